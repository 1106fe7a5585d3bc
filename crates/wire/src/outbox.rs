//! The buffer into which services write finished packets, in place.
//!
//! In: datagrams, each for one path, best written destination by destination; or rows of them that lie ready elsewhere and
//! are only pointed at (`push_shared`).
//! Out: runs. A run is a row of neighbouring datagrams for the same path, all of one size but for a last one that may
//! be shorter: just what one UDP GSO send takes (`UDP_SEGMENT`, udp(7)). Received runs leave again with other bytes before
//! each datagram (`push_prefixed`). For byte streams (`push_bytes` and others) out
//! come pieces, in order. And what a product wants of its links (`request`).
//! Cost: no copy and no allocation; one path comparison per datagram.

mod again;
mod pieces;

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use self::again::{Again, Part};
pub use self::again::{Gathered, RunBytes};
pub use self::pieces::{Piece, PieceSource};
use crate::{LinkRequest, Path};

/// The largest datagram that fits a slot, in bytes: an Ethernet frame's payload.
pub const DATAGRAM_MAX: usize = 1_500;

/// The most segments the kernel takes in one GSO send (`UDP_MAX_SEGMENTS` before Linux 6.9).
const RUN_SEGMENTS_MAX: u16 = 64;

/// The most bytes in one GSO send: 65,535 less the UDP and IPv6 headers.
const RUN_BYTES_MAX: usize = 65_535 - 8 - 40;

/// Rows of shared bytes that are queued at most: as many messages as go to the kernel in one call.
const SHARED_ROWS_MAX: usize = 128;

/// References that are looked through for one to the same bytes. Counting a reference costs little, but not when another
/// thread counts references to the same bytes.
const SHARED_RECENT: usize = 8;

/// Pieces for byte streams that are queued at most.
const PIECES_MAX: usize = 256;

/// Rows of received datagrams that are queued at most.
const AGAIN_MAX: usize = 1_024;

/// Datagrams in them at most: about what one receive call brings.
const PARTS_MAX: usize = 8_192;

/// Requests that are queued at most.
const REQUESTS_MAX: usize = 64;

/// Bytes that lie somewhere, and stay as they are until the last reference is gone.
type Shared = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Neighbouring datagrams for one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The way they go.
    pub path: Path,
    source: Source,
    /// Where its bytes begin, or its parts.
    start: u32,
    /// Bytes in all.
    len: u32,
    /// Bytes of every datagram but the last, which may be shorter.
    segment_size: u16,
    segment_count: u16,
}

/// Where a run's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Slots,
    /// The number of the shared row.
    Shared(u16),
    /// Where they were received; the number of what stands before them.
    Again(u16),
}

impl Run {
    /// Bytes of every datagram but the last, which may be shorter.
    pub fn segment_size(&self) -> usize {
        self.segment_size.into()
    }

    /// How many datagrams it is.
    pub fn segment_count(&self) -> usize {
        self.segment_count.into()
    }

    /// Bytes in all.
    pub fn len_bytes(&self) -> usize {
        self.len as usize
    }

    /// Whether another datagram of `len` bytes for `path` may stand behind the last one.
    #[inline]
    fn takes(&self, path: &Path, len: usize) -> bool {
        self.source == Source::Slots && self.has_room_for(path, len)
    }

    /// The same, wherever its bytes lie.
    #[inline]
    fn has_room_for(&self, path: &Path, len: usize) -> bool {
        let full_so_far = self.len as usize == self.segment_size() * self.segment_count();
        full_so_far
            && len <= self.segment_size()
            && self.segment_count < RUN_SEGMENTS_MAX
            && self.len as usize + len <= RUN_BYTES_MAX
            && self.path == *path
    }

    /// Takes another datagram of `len` bytes, for which there is room.
    fn grow(&mut self, len: usize) {
        debug_assert!(self.has_room_for(&self.path, len), "it is what one send takes");
        self.len += len as u32;
        self.segment_count += 1;
    }
}

/// Finished datagrams on their way to the kernel. It has a fixed size; a full one takes no more until it is flushed.
pub struct Outbox {
    buf: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    shared: Vec<Shared>,
    shared_rows: usize,
    again: Vec<Again>,
    parts: Vec<Part>,
    pieces: Vec<Piece>,
    files: Vec<Arc<File>>,
    requests: Vec<LinkRequest>,
}

impl Outbox {
    /// Makes an outbox of `size` bytes, which must hold at least one datagram.
    pub fn new(size: usize) -> Self {
        assert!(size >= DATAGRAM_MAX, "an outbox holds at least one datagram");
        // A run is at least one datagram, and most datagrams are larger than 64 bytes; beyond that the vector grows once.
        let (runs, shared) = (Vec::with_capacity(size / 64), Vec::with_capacity(SHARED_ROWS_MAX));
        Outbox {
            buf: vec![0; size].into(),
            used: 0,
            runs,
            shared,
            shared_rows: 0,
            again: Vec::new(),
            parts: Vec::new(),
            pieces: Vec::new(),
            files: Vec::new(),
            requests: Vec::with_capacity(REQUESTS_MAX),
        }
    }

    /// Room for one datagram of up to `DATAGRAM_MAX` bytes, or `None` when the outbox is full. Nothing is queued until `commit`.
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        self.buf.get_mut(self.used..self.used + DATAGRAM_MAX)
    }

    /// Whether `slot` would return room.
    pub fn has_room(&self) -> bool {
        self.used + DATAGRAM_MAX <= self.buf.len()
    }

    /// Whether there is room for more of each kind: datagrams, copied or shared, pieces of byte streams, requests.
    pub fn has_room_for_all(&self) -> bool {
        self.has_room_for_piece() && self.has_room_for_shared() && self.has_room_for_request()
    }

    /// How many datagrams of any size an empty outbox takes.
    pub fn datagrams_max(&self) -> usize {
        self.buf.len() / DATAGRAM_MAX
    }

    /// Whether there is room for `count` datagrams or pieces, in whatever way each is pushed and wherever it goes. What is
    /// copied may have `DATAGRAM_MAX` bytes.
    pub fn has_room_for(&self, count: usize) -> bool {
        self.used + count * DATAGRAM_MAX <= self.buf.len()
            && self.shared_rows + count <= SHARED_ROWS_MAX
            && self.again.len() + count <= AGAIN_MAX
            && self.parts.len() + count <= PARTS_MAX
            && self.pieces.len() + count <= PIECES_MAX
    }

    /// Queues the first `len` bytes of the slot for `path`. An empty datagram is not queued.
    ///
    /// # Panics
    /// When `len` exceeds `DATAGRAM_MAX`, or there was no slot.
    pub fn commit(&mut self, path: &Path, len: usize) {
        assert!(len <= DATAGRAM_MAX && self.has_room(), "commit follows a slot");
        if len > 0 {
            self.queue(path, len);
        }
    }

    /// Queues a datagram without a byte, for who relays one. Returns false when the outbox is full.
    pub fn push_empty(&mut self, path: &Path) -> bool {
        let has_room = self.has_room();
        if has_room {
            let start = self.used as u32;
            self.runs.push(Run {
                path: *path,
                source: Source::Slots,
                start,
                len: 0,
                segment_size: 0,
                segment_count: 1,
            });
            // So that there are no more of these than of others.
            self.used += 1;
        }
        has_room
    }

    /// Queues the next `len` bytes, which are written, for `path`.
    fn queue(&mut self, path: &Path, len: usize) {
        let start = self.used;
        self.used += len;
        if let Some(run) = self.runs.last_mut()
            && run.takes(path, len)
        {
            debug_assert_eq!(run.start as usize + run.len_bytes(), start, "a run lies in one piece");
            return run.grow(len);
        }
        self.runs.push(Run {
            path: *path,
            source: Source::Slots,
            start: start as u32,
            len: len as u32,
            segment_size: len as u16,
            segment_count: 1,
        });
    }

    /// Whether `push_shared` has room.
    #[inline]
    pub fn has_room_for_shared(&self) -> bool {
        self.shared_rows < SHARED_ROWS_MAX
    }

    /// Queues `count` datagrams of `datagram_len` bytes each for `path`, which lie in `bytes` one behind the other from
    /// `start` on. They are not copied. Returns false when there is no room, or they are not all there or more than one
    /// send takes; then nothing is queued.
    #[inline]
    pub fn push_shared<T: AsRef<[u8]> + Send + Sync + 'static>(
        &mut self,
        path: &Path,
        bytes: &Arc<T>,
        start: usize,
        datagram_len: usize,
        count: usize,
    ) -> bool {
        let len = datagram_len * count;
        let is_there = start.checked_add(len).is_some_and(|end| end <= (**bytes).as_ref().len());
        let fits = (1..=DATAGRAM_MAX).contains(&datagram_len)
            && (1..=usize::from(RUN_SEGMENTS_MAX)).contains(&count)
            && len <= RUN_BYTES_MAX;
        if !is_there || !fits || !self.has_room_for_shared() || u32::try_from(start).is_err() {
            return false;
        }
        let source = Source::Shared(self.keep(bytes));
        self.shared_rows += 1;
        self.runs.push(Run {
            path: *path,
            source,
            start: start as u32,
            len: len as u32,
            segment_size: datagram_len as u16,
            segment_count: count as u16,
        });
        true
    }

    /// Keeps a reference to the bytes until all is sent; returns its number.
    #[inline]
    fn keep<T: AsRef<[u8]> + Send + Sync + 'static>(&mut self, bytes: &Arc<T>) -> u16 {
        let recent = self.shared.iter().enumerate().rev().take(SHARED_RECENT);
        let mut same = recent.filter(|(_, kept)| std::ptr::addr_eq(Arc::as_ptr(kept), Arc::as_ptr(bytes)));
        let kept = same.next().map(|(index, _)| index);
        kept.unwrap_or_else(|| {
            self.shared.push(Arc::<T>::clone(bytes));
            self.shared.len() - 1
        }) as u16
    }

    /// Copies one finished datagram in. Returns false, and drops it, when the outbox is full or it is too long.
    pub fn push(&mut self, path: &Path, datagram: &[u8]) -> bool {
        if datagram.len() > DATAGRAM_MAX {
            return false;
        }
        let Some(slot) = self.slot() else { return false };
        slot[..datagram.len()].copy_from_slice(datagram);
        self.commit(path, datagram.len());
        true
    }

    /// Copies one datagram in that stands in several places, and may be longer than a slot. Returns false, and drops it, when
    /// there is no room for it, or it is too long to be sent, or empty.
    pub fn push_joined(&mut self, path: &Path, parts: &[&[u8]]) -> bool {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let place = self.buf.get_mut(self.used..self.used + len);
        let Some(mut place) = place.filter(|_| (1..=RUN_BYTES_MAX).contains(&len)) else { return false };
        for part in parts {
            let (here, rest) = place.split_at_mut(part.len());
            here.copy_from_slice(part);
            place = rest;
        }
        self.queue(path, len);
        true
    }

    /// Queues what a product wants of its links. It is done when the outbox is flushed, after all that is written is sent, also
    /// what is written later into the same outbox. Gives the request back
    /// when too many are queued; before each call of a service there is room for one.
    pub fn request(&mut self, request: LinkRequest) -> Result<(), LinkRequest> {
        if !self.has_room_for_request() {
            return Err(request);
        }
        self.requests.push(request);
        Ok(())
    }

    /// Whether `request` has room.
    pub fn has_room_for_request(&self) -> bool {
        self.requests.len() < REQUESTS_MAX
    }

    /// Whether anything is requested.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Takes what was requested, in order.
    pub fn take_requests(&mut self) -> impl Iterator<Item = LinkRequest> {
        self.requests.drain(..)
    }

    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.pieces.is_empty()
    }

    /// What is queued, in the order in which it was written.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The bytes of one run that lie one behind the other; of one that is gathered there are none (`run_bytes`).
    pub fn bytes(&self, run: &Run) -> &[u8] {
        let bytes = match run.source {
            Source::Slots => &*self.buf,
            Source::Shared(index) => (*self.shared[usize::from(index)]).as_ref(),
            Source::Again(_) => return &[],
        };
        &bytes[run.start as usize..][..run.len as usize]
    }

    /// Each queued datagram with its path; for tests.
    pub fn datagrams(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.runs.iter().flat_map(|run| {
            let bytes = RunBytes::Whole(self.bytes(run));
            (0..run.segment_count()).map(move |index| (&run.path, bytes.datagram(run, index)[0]))
        })
    }

    /// Forgets everything that is to be sent. Requests stay.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
        self.shared.clear();
        self.shared_rows = 0;
        self.again.clear();
        self.parts.clear();
        self.pieces.clear();
        self.files.clear();
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("used", &self.used).field("runs", &self.runs).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkId;

    fn path(port: u16) -> Path {
        Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], port).into(), local: None }
    }

    fn shape(out: &Outbox) -> Vec<(u16, usize, usize)> {
        out.runs().iter().map(|run| (run.path.remote.port(), run.segment_size(), run.segment_count())).collect()
    }

    #[test]
    fn a_datagram_in_several_places_may_be_longer_than_a_slot() {
        let path = path(1);
        let mut out = Outbox::new(4_000);
        let long = [7; 1_700];
        assert!(out.push(&path, &[1; 9]) && out.push_joined(&path, &[b"head", &long, b"end"]));
        assert!(!out.push_joined(&path, &[&long, &long]), "it is full");
        assert!(!out.push_joined(&path, &[b"", b""]));
        let all: Vec<_> = out.datagrams().map(|(_, bytes)| bytes.to_vec()).collect();
        assert_eq!(all, [vec![1; 9], [b"head", &long[..], b"end"].concat()]);
        let mut large = Outbox::new(200_000);
        assert!(!large.push_joined(&path, &[&[0; 65_500]]) && large.push_joined(&path, &[&[0; 65_400]]));
    }

    #[test]
    fn neighbours_of_one_size_become_one_run() {
        let mut out = Outbox::new(10_000);
        for _ in 0..3 {
            assert!(out.push(&path(1), &[7; 100]));
        }
        assert!(out.push(&path(2), &[8; 100]));
        assert_eq!(shape(&out), [(1, 100, 3), (2, 100, 1)]);
    }

    #[test]
    fn a_shorter_datagram_ends_a_run_and_a_longer_one_starts_another() {
        let mut out = Outbox::new(10_000);
        for len in [100, 100, 60, 60, 100] {
            out.push(&path(1), &vec![1; len]);
        }
        assert_eq!(shape(&out), [(1, 100, 3), (1, 60, 1), (1, 100, 1)]);
        let lens: Vec<usize> = out.datagrams().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(lens, [100, 100, 60, 60, 100]);
    }

    #[test]
    fn runs_stay_within_what_one_gso_send_takes() {
        let mut out = Outbox::new(1 << 20);
        for _ in 0..65 {
            out.push(&path(1), &[0; 10]);
        }
        for _ in 0..60 {
            out.push(&path(2), &[0; 1_400]);
        }
        assert_eq!(shape(&out), [(1, 10, 64), (1, 10, 1), (2, 1_400, 46), (2, 1_400, 14)]);
    }

    #[test]
    fn a_full_outbox_refuses_until_it_is_cleared() {
        let mut out = Outbox::new(DATAGRAM_MAX + 10);
        assert!(out.push(&path(1), &[0; 11]));
        assert!(!out.push(&path(1), &[0; 11]));
        out.clear();
        assert!(out.push(&path(1), &[0; 11]));
    }

    #[test]
    fn shared_bytes_are_pointed_at_and_let_go_when_all_is_sent() {
        let shared = Arc::new((0..100).collect::<Vec<u8>>());
        let mut out = Outbox::new(10_000);
        out.push(&path(1), &[7; 10]);
        assert!(out.push_shared(&path(1), &shared, 20, 10, 3));
        out.push(&path(1), &[8; 10]);
        assert_eq!(shape(&out), [(1, 10, 1), (1, 10, 3), (1, 10, 1)]);
        let sent: Vec<u8> = out.datagrams().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(sent, [7, 20, 30, 40, 8]);
        assert!(out.push_shared(&path(2), &shared, 0, 10, 3));
        assert_eq!(Arc::strong_count(&shared), 2, "it is kept once");
        out.clear();
        assert_eq!((out.is_empty(), Arc::strong_count(&shared)), (true, 1));
    }

    #[test]
    fn shared_bytes_that_are_not_there_or_too_many_are_refused() {
        let shared = Arc::new(vec![0; 70_000]);
        let mut out = Outbox::new(10_000);
        for (start, len, count) in [
            (69_990, 10, 2),
            (usize::MAX, 10, 1),
            (0, 0, 1),
            (0, 10, 0),
            (0, 10, 65),
            (0, DATAGRAM_MAX + 1, 1),
            (0, 1_500, 44),
        ] {
            assert!(!out.push_shared(&path(1), &shared, start, len, count), "{start} {len} {count}");
        }
        assert!(out.is_empty());
        while out.has_room_for_shared() {
            assert!(out.push_shared(&path(1), &shared, 0, 10, 1));
        }
        assert!(!out.push_shared(&path(1), &shared, 0, 10, 1));
        assert_eq!(out.runs().len(), SHARED_ROWS_MAX);
    }
}
