//! The buffer into which services write finished packets, in place.
//!
//! In: datagrams, each for one path, best written destination by destination.
//! Out: runs. A run is a row of neighbouring datagrams for the same path, all of one size but for a last one that may
//! be shorter: just what one UDP GSO send takes (`UDP_SEGMENT`, udp(7)).
//! Cost: no copy and no allocation; one path comparison per datagram.

use crate::Path;

/// The largest datagram that fits a slot, in bytes: an Ethernet frame's payload.
pub const DATAGRAM_MAX: usize = 1_500;

/// The most segments the kernel takes in one GSO send (`UDP_MAX_SEGMENTS` before Linux 6.9).
const RUN_SEGMENTS_MAX: u16 = 64;

/// The most bytes in one GSO send: 65,535 less the UDP and IPv6 headers.
const RUN_BYTES_MAX: usize = 65_535 - 8 - 40;

/// Neighbouring datagrams for one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub path: Path,
    start: u32,
    /// Bytes in all.
    len: u32,
    /// Bytes of every datagram but the last, which may be shorter.
    segment_size: u16,
    segment_count: u16,
}

impl Run {
    pub fn segment_size(&self) -> usize {
        self.segment_size.into()
    }

    pub fn segment_count(&self) -> usize {
        self.segment_count.into()
    }

    pub fn len_bytes(&self) -> usize {
        self.len as usize
    }

    /// Whether another datagram of `len` bytes for `path` may stand behind the last one.
    fn takes(&self, path: &Path, len: usize) -> bool {
        let full_so_far = self.len as usize == self.segment_size() * self.segment_count();
        full_so_far
            && len <= self.segment_size()
            && self.segment_count < RUN_SEGMENTS_MAX
            && self.len as usize + len <= RUN_BYTES_MAX
            && self.path == *path
    }
}

/// Finished datagrams on their way to the kernel. It has a fixed size; a full one takes no more until it is flushed.
#[derive(Debug)]
pub struct Outbox {
    buf: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    joins: bool,
}

impl Outbox {
    /// Makes an outbox of `size` bytes, which must hold at least one datagram.
    pub fn new(size: usize) -> Self {
        assert!(size >= DATAGRAM_MAX, "an outbox holds at least one datagram");
        // A run is at least one datagram, and most datagrams are larger than 64 bytes; beyond that the vector grows once.
        Outbox { buf: vec![0; size].into(), used: 0, runs: Vec::with_capacity(size / 64), joins: true }
    }

    /// With `joins` off every datagram becomes a run of its own: for kernels without GSO, and to measure against.
    pub fn set_joins(&mut self, joins: bool) {
        self.joins = joins;
    }

    /// Room for one datagram of up to `DATAGRAM_MAX` bytes, or `None` when the outbox is full. Nothing is queued until `commit`.
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        self.buf.get_mut(self.used..self.used + DATAGRAM_MAX)
    }

    /// Whether `slot` would return room.
    pub fn has_room(&self) -> bool {
        self.used + DATAGRAM_MAX <= self.buf.len()
    }

    /// Queues the first `len` bytes of the slot for `path`. An empty datagram is not queued.
    ///
    /// # Panics
    /// When `len` exceeds `DATAGRAM_MAX`, or there was no slot.
    pub fn commit(&mut self, path: &Path, len: usize) {
        assert!(len <= DATAGRAM_MAX && self.has_room(), "commit follows a slot");
        if len == 0 {
            return;
        }
        let start = self.used;
        self.used += len;
        if self.joins
            && let Some(run) = self.runs.last_mut()
            && run.takes(path, len)
        {
            run.len += len as u32;
            run.segment_count += 1;
            return;
        }
        self.runs.push(Run {
            path: *path,
            start: start as u32,
            len: len as u32,
            segment_size: len as u16,
            segment_count: 1,
        });
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

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// What is queued, in the order in which it was written.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The bytes of one run.
    pub fn bytes(&self, run: &Run) -> &[u8] {
        &self.buf[run.start as usize..][..run.len as usize]
    }

    /// Each queued datagram with its path; for tests and for links without GSO.
    pub fn datagrams(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.runs.iter().flat_map(|run| self.bytes(run).chunks(run.segment_size()).map(|bytes| (&run.path, bytes)))
    }

    /// Forgets everything that is queued.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkId;

    fn path(port: u16) -> Path {
        Path { link: LinkId(0), remote: ([127, 0, 0, 1], port).into(), local: None }
    }

    fn shape(out: &Outbox) -> Vec<(u16, usize, usize)> {
        out.runs().iter().map(|run| (run.path.remote.port(), run.segment_size(), run.segment_count())).collect()
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
    fn without_joins_every_datagram_is_a_run() {
        let mut out = Outbox::new(10_000);
        out.set_joins(false);
        out.push(&path(1), &[0; 10]);
        out.push(&path(1), &[0; 10]);
        assert_eq!(shape(&out), [(1, 10, 1), (1, 10, 1)]);
    }
}
