//! What a received run of DTLS records carries, taken out of it piece by piece.
//!
//! In: a run of one path. Out: runs of what its records carry: messages of one size, one behind the other, where the records
//! were received, so that they leave from there as others do.
//! Cost: each byte is moved once, behind the one before it; no memory.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Instant;

use dtls::{Carried, HEADER_LEN, Header, RecordError};
use wire::{DatagramRun, Outbox, Path, Token};

use crate::associations::Associations;
use crate::counters::Counters;
use crate::drops::DropReason;
use crate::limits::Limits;

/// Records of a handshake, and of data (RFC 5246 §6.2.1).
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// A handshake's message that begins one (RFC 5246 §7.4).
const CLIENT_HELLO: u8 = 1;

/// A run that is being opened.
pub(crate) struct Opening<'a> {
    token: Token,
    path: Path,
    stride: usize,
    place: Option<usize>,
    data: &'a mut [u8],
    /// The next record, and the end of its datagram.
    at: usize,
    end: usize,
    /// Up to here lies what was taken out.
    taken: usize,
    /// Something that was opened and is the first of the next piece.
    next: Option<Range<usize>>,
    /// The client has said that this is all. It is gone when the last piece is done with.
    has_ended: bool,
}

/// What it takes to open one.
pub(crate) struct Opener<'a> {
    pub(crate) now: Instant,
    pub(crate) associations: &'a mut Associations,
    pub(crate) limits: &'a mut Limits,
    pub(crate) counters: &'a mut Counters,
    pub(crate) out: &'a mut Outbox,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(run: DatagramRun<'a>) -> Self {
        let (token, path, stride, place) = (run.token, run.path, run.segment_size.get(), run.place());
        Opening { token, path, stride, place, data: run.data, at: 0, end: 0, taken: 0, next: None, has_ended: false }
    }

    /// The next messages of one size, of which the last may be shorter.
    pub(crate) fn next(&mut self, opener: &mut Opener<'_>) -> Option<DatagramRun<'_>> {
        let (start, mut size) = (self.taken, 0);
        while let Some(message) = self.next.take().or_else(|| self.next_message(opener)) {
            let len = message.len();
            if size > 0 && len > size {
                self.next = Some(message);
                break;
            }
            self.data.copy_within(message, self.taken);
            self.taken += len;
            size = size.max(len);
            if len < size {
                break;
            }
        }
        if size == 0 && self.has_ended {
            opener.associations.end(&self.path);
        }
        let run = DatagramRun::new(self.token, self.path, NonZeroUsize::new(size)?, &mut self.data[start..self.taken]);
        Some(match self.place {
            Some(place) => run.at(place + start),
            None => run,
        })
    }

    /// Where the next message lies, once it is opened; what is none is done with on the way.
    fn next_message(&mut self, opener: &mut Opener<'_>) -> Option<Range<usize>> {
        loop {
            if self.at == self.end {
                self.end = (self.at + self.stride).min(self.data.len());
                if self.at == self.end {
                    return None;
                }
                self.pass_over_plain(opener);
                if self.is_of_handshake(opener) {
                    let datagram = &self.data[self.at..self.end];
                    let Opener { now, associations, limits, counters, out } = opener;
                    if let Err(reason) =
                        associations.handle_handshake(*now, &self.path, datagram, (limits, counters), out)
                    {
                        counters.drops.add(reason, 1);
                    }
                    self.at = self.end;
                    continue;
                }
            }
            let record = &mut self.data[self.at..self.end];
            let header = Header::read(record);
            let Some((header, records)) = header.zip(opener.associations.records(&self.path)) else {
                opener.counters.drops.add(DropReason::MalformedDtls, 1);
                self.at = self.end;
                continue;
            };
            let start = self.at;
            self.at += header.len;
            match records.open(&header, record) {
                Ok(Carried::Data(place)) if place.is_empty() => opener.counters.drops.add(DropReason::Empty, 1),
                Ok(Carried::Data(place)) => return Some(start + place.start..start + place.end),
                Ok(Carried::Handshake) => opener.associations.repeat_flight(&self.path, opener.out),
                Ok(Carried::End) => {
                    self.has_ended = true;
                    // What follows the end means nothing.
                    (self.at, self.end) = (self.data.len(), self.data.len());
                }
                Ok(Carried::Nothing) => {}
                Err(RecordError::Replayed) => opener.counters.drops.add(DropReason::Replayed, 1),
                Err(RecordError::NotAuthentic) => opener.counters.drops.add(DropReason::NotAuthentic, 1),
            }
        }
    }

    /// Goes on to what is under keys, where there are some: who has not got the end of a handshake sends his own part of it
    /// again, most of which is under none, and what is under keys may stand behind that in the same datagram (RFC 6347 §4.2.4).
    fn pass_over_plain(&mut self, opener: &Opener<'_>) {
        let Opener { associations, .. } = opener;
        if !associations.has(&self.path) || associations.is_shaking(&self.path) {
            return;
        }
        let mut at = self.at;
        while let Some(header) = Header::read(&self.data[at..self.end]) {
            if header.epoch != 0 {
                self.at = at;
                return;
            }
            let is_hello = header.content == HANDSHAKE && self.data[at + HEADER_LEN] == CLIENT_HELLO;
            // He begins anew.
            if is_hello {
                return;
            }
            at += header.len;
        }
    }

    /// Whether the datagram at hand is of a handshake: it is under no keys, or there are none for it, or somebody shakes hands
    /// and it is no data.
    fn is_of_handshake(&self, opener: &Opener<'_>) -> bool {
        let Some(header) = Header::read(&self.data[self.at..self.end]) else { return false };
        let Opener { associations, .. } = opener;
        let is_new = header.epoch == 0 || (header.content != DATA && associations.is_shaking(&self.path));
        is_new || !associations.has(&self.path)
    }
}
