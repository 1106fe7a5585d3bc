//! A stream's writer that goes over to another process, with the source that is heard.
//!
//! In: an inlet. Out: a plain value, and the same inlet made of it and of the file. What a container's reader knows does not go
//! over: the next one reads again from the newest start point on, behind its header, as a newcomer's player does; what was told
//! of that part already is not told again. So it takes some milliseconds per stream, by its bytes between two start points.
//!
//! **A source that cannot be read on like this is left** (`InletState::has_source`), and is to be asked anew: one that has not
//! come to its first start point, and one whose newest start point is over. What HLS lists goes over, and is the same there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use live::Format;
use live::metacube::{self, BLOCK_HEAD_LEN, Kind, Part};
use reflect::hls::PlaylistState;
use reflect::moved::BacklogState;
use serde::{Deserialize, Serialize};
use wire::Bitrate;

use super::ring::Ring;
use super::source::{Mark, MarkKind, Source};
use super::{Counts, Framing, Incoming, Inlet, News, Settings};
use crate::reflect::hls::Hls;
use crate::reflect::inlet::rate::Meter;

/// Bytes that are read again at a time.
const READ: usize = 256 << 10;

/// All of an inlet but its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InletState {
    format: Option<u8>,
    content_type: String,
    backlog: BacklogState,
    hls: Option<PlaylistState>,
    /// Of a source that is heard: what it brought and is not in the file.
    pending: Option<Vec<u8>>,
    rate_bps: u64,
    heard: Option<Duration>,
    counts: Counts,
}

impl InletState {
    /// Whether the source that was heard goes on.
    pub fn has_source(&self) -> bool {
        self.pending.is_some()
    }
}

const FORMATS: [Format; 5] = [Format::Ts, Format::Flv, Format::Matroska, Format::Mp4, Format::Raw];

impl Inlet {
    /// All of it but the file, for another process; nothing is to be done here any more. A source that cannot be read on there
    /// is broken off.
    pub fn give_away(&mut self, now: Instant) -> (Arc<File>, InletState) {
        let goes_on = match &self.incoming {
            Incoming::Begun { source, .. } => {
                source.format() == Format::Raw || self.ring.backlog.newest_start().is_some()
            }
            _ => false,
        };
        if !goes_on {
            self.break_off(now);
        }
        let state = InletState {
            format: self.format.and_then(|format| FORMATS.iter().position(|other| *other == format)).map(|at| at as u8),
            content_type: self.content_type.clone(),
            backlog: self.ring.backlog.state(now),
            hls: self.hls.as_ref().map(|hls| hls.give_away(now)),
            pending: match &self.incoming {
                Incoming::Begun { source, .. } => Some(source.pending.clone()),
                _ => None,
            },
            rate_bps: self.meter.rate().bps(),
            heard: self.heard.map(|heard| now.saturating_duration_since(heard)),
            counts: self.counts,
        };
        (self.ring.file.clone(), state)
    }

    /// An inlet that comes from another process, and whether its source goes on. `settings` are those of now, but that the
    /// backlog is as long as it was, and HLS as it was begun; where there was none, or it cannot have been, it begins anew.
    ///
    /// # Errors
    /// When it cannot have been, or the file cannot be read.
    pub fn take_up(now: Instant, settings: Settings, file: Arc<File>, state: InletState) -> io::Result<(Self, bool)> {
        let InletState { format, content_type, backlog, hls, pending, rate_bps, heard, counts } = state;
        let mut inlet = Inlet::with(settings, Ring::take_up(now, file, backlog)?);
        if let Some(format) = format {
            let format = *FORMATS.get(usize::from(format)).ok_or(io::ErrorKind::InvalidData)?;
            inlet.set_format(format);
        }
        let end = inlet.ring.backlog.end();
        let listed = hls.and_then(|state| Hls::restore(now, state, end, inlet.ring.file.clone())).map(Arc::new);
        let is_listed = inlet.hls.is_some() && listed.is_some();
        if is_listed {
            inlet.hls = listed;
        }
        inlet.content_type = content_type;
        if inlet.ring.backlog.untold() > 0 {
            inlet.coalescer.handle_bytes();
        }
        inlet.meter = Meter::of(Bitrate::from_bps(rate_bps));
        inlet.heard = heard.and_then(|age| now.checked_sub(age));
        inlet.counts = counts;
        let goes_on = pending.is_some_and(|pending| inlet.go_on(now, &pending, is_listed).is_some());
        if let Some(hls) = inlet.hls.as_ref().filter(|_| !goes_on) {
            hls.tell(|playlist| playlist.break_off(inlet.ring.backlog.end(), now));
        }
        inlet.meter.begin();
        Ok((inlet, goes_on))
    }

    /// Reads again what the source brought since the newest start point, and goes on behind it. `None`: that cannot be.
    /// `is_listed`: HLS goes on, too.
    fn go_on(&mut self, now: Instant, pending: &[u8], is_listed: bool) -> Option<()> {
        let format = self.format?;
        let mut source = Source::new(now, format);
        let end = self.ring.backlog.end();
        let (from, to) = if format == Format::Raw {
            (0, end)
        } else {
            let (start, header) = self.ring.backlog.newest_start()?;
            let header = match self.settings.framing {
                Framing::None => &header[..],
                Framing::Metacube => header.get(BLOCK_HEAD_LEN..)?,
            };
            source.take(now, header).ok()?;
            let known = header.len() as u64 + self.read_again(now, &mut source, start, end)?;
            source.pass(known);
            (header.len() as u64, start)
        };
        let known = source.pending_at;
        source.take(now, pending).ok()?;
        if source.pending.len() != pending.len() {
            return None;
        }
        // All that was found in these bytes is told already, but for what stands in no block yet.
        let known = match self.settings.framing {
            _ if format == Format::Raw => 0,
            Framing::Metacube => known,
            Framing::None => u64::MAX,
        };
        let told: Vec<Mark> = source.marks.extract_if(.., |mark| mark.at < known).collect();
        if is_listed {
            self.set_clock(&told, (from, to));
        } else {
            self.begin_list(now, &told, to);
        }
        self.header = source.header().cloned();
        self.incoming = Incoming::Begun { source, from, to };
        Some(())
    }

    /// Gives a source what stands in the file. Returns how many bytes of its own that is.
    fn read_again(&self, now: Instant, source: &mut Source, start: u64, end: u64) -> Option<u64> {
        let (mut at, mut count, mut buffer) = (start, 0, vec![0; READ]);
        let (mut blocks, mut is_header) = (metacube::Reader::default(), false);
        while at < end {
            let len = READ.min((end - at) as usize);
            self.ring.file.read_exact_at(&mut buffer[..len], at).ok()?;
            at += len as u64;
            if self.settings.framing == Framing::None {
                source.take(now, &buffer[..len]).ok()?;
                count += len as u64;
            } else {
                let mut rest = &buffer[..len];
                while let Some(part) = blocks.read(&mut rest) {
                    match part {
                        Part::Block { kind, .. } => is_header = kind == Kind::Header,
                        Part::Data(data) if !is_header => {
                            source.take(now, data).ok()?;
                            count += data.len() as u64;
                        }
                        _ => {}
                    }
                }
            }
            // What is held until more is known stays.
            source.pass(source.taken());
        }
        Some(count)
    }

    /// HLS learns where the source's clock begins now. The source's byte `from` stands at `to`.
    fn set_clock(&self, told: &[Mark], (from, to): (u64, u64)) {
        let Some(hls) = &self.hls else { return };
        for mark in told {
            if let MarkKind::Start { media: Some(media), .. } = mark.kind {
                hls.tell(|playlist| playlist.set_clock(mark.at.saturating_sub(from) + to, media));
            }
        }
    }

    /// HLS begins at the newest start point, which is at `start`.
    fn begin_list(&self, now: Instant, told: &[Mark], start: u64) {
        let first = told.iter().find_map(|mark| match &mark.kind {
            MarkKind::Start { media, header: Some(header) } => Some((*media, header.clone())),
            _ => None,
        });
        if let Some((media, header)) = first {
            self.tell(now, &[News::Header(header), News::Start(start, media)]);
        }
    }
}
