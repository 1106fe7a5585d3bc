//! When to tell workers that a stream has grown.
//!
//! In: how many bytes came, and the time. Out: whether to tell now, or when.
//!
//! Each time costs a wake and a send per viewer, whose segments are mostly not full, so the interval is the strongest
//! lever there is: 40 ms instead of 5 ms is a sixth of the CPU. What nobody tells of is late. So what comes after a pause
//! is told of at once, and otherwise a few full segments are waited for, between a lower and an upper bound in time.
//! Cost: some 60 bytes per stream.

use std::time::{Duration, Instant};

/// Payload of a segment at an MTU of 1,500, with timestamps (RFC 7323).
const SEGMENT: usize = 1_448;

/// How much waiting is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Not told more often than that, however much comes.
    pub min: Duration,
    /// Nothing waits longer than that. After a pause of this length nothing waits.
    pub max: Duration,
    /// Bytes that are worth telling of: each viewer gets as many.
    pub bytes: usize,
}

impl Default for Intervals {
    /// Four full segments, within 5 to 20 ms.
    fn default() -> Self {
        Intervals { min: Duration::from_millis(5), max: Duration::from_millis(20), bytes: 4 * SEGMENT }
    }
}

impl Intervals {
    /// For very many viewers on few cores: sixteen full segments, within 20 to 40 ms.
    pub fn dense() -> Self {
        Intervals { min: Duration::from_millis(20), max: Duration::from_millis(40), bytes: 16 * SEGMENT }
    }
}

/// What one stream has that nobody was told of.
#[derive(Clone, Debug)]
pub struct Coalescer {
    intervals: Intervals,
    waiting: usize,
    /// `None`: nobody was ever told.
    told_at: Option<Instant>,
}

impl Coalescer {
    /// Of a stream without a byte.
    pub fn new(intervals: Intervals) -> Self {
        Coalescer { intervals, waiting: 0, told_at: None }
    }

    /// So many bytes came. `poll_timeout` says when they are due.
    pub fn handle_bytes(&mut self, count: usize) {
        self.waiting += count;
    }

    /// What waits or comes next is told of at once.
    pub fn hurry(&mut self) {
        self.told_at = None;
    }

    /// Whether to tell now; then nothing waits any more.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_due = self.waiting > 0 && self.due_at().is_none_or(|at| at <= now);
        if is_due {
            (self.waiting, self.told_at) = (0, Some(now));
        }
        is_due
    }

    /// When `take` next has something; a time that is over means at once. `None`: when more comes.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        (self.waiting > 0).then(|| self.due_at().unwrap_or(now))
    }

    /// `None`: at once.
    fn due_at(&self) -> Option<Instant> {
        let Intervals { min, max, bytes } = self.intervals;
        self.told_at.map(|told_at| told_at + if self.waiting >= bytes { min } else { max.max(min) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells when it was told, in ms, with bytes that come at these.
    fn told(intervals: Intervals, came: &[(u64, usize)]) -> Vec<u64> {
        let start = Instant::now();
        let mut coalescer = Coalescer::new(intervals);
        let mut told = Vec::new();
        for at_ms in 0..200 {
            let now = start + Duration::from_millis(at_ms);
            came.iter().filter(|(at, _)| *at == at_ms).for_each(|(_, count)| coalescer.handle_bytes(*count));
            let is_due = coalescer.poll_timeout(now).is_some_and(|at| at <= now);
            assert_eq!(coalescer.take(now), is_due);
            if is_due {
                told.push(at_ms);
            }
        }
        told
    }

    #[test]
    fn the_first_bytes_after_a_pause_are_told_of_at_once() {
        assert_eq!(told(Intervals::default(), &[(3, 1), (103, 1), (123, 1)]), [3, 103, 123]);
    }

    #[test]
    fn few_bytes_wait_for_the_upper_bound() {
        assert_eq!(told(Intervals::default(), &[(0, 1), (1, 1), (7, 1_316), (19, 1)]), [0, 20]);
    }

    #[test]
    fn full_segments_wait_for_the_lower_bound_alone() {
        assert_eq!(told(Intervals::default(), &[(0, 1), (1, 6_000), (9, 3_000), (12, 3_000)]), [0, 5, 12]);
    }

    #[test]
    fn a_fast_stream_is_told_of_at_the_lower_bound() {
        let came: Vec<_> = (0..100).map(|at| (at, 10_000)).collect();
        let expected: Vec<u64> = (0..100).step_by(5).chain([100]).collect();
        assert_eq!(told(Intervals::default(), &came), expected);
        assert_eq!(told(Intervals::dense(), &came), [0, 20, 40, 60, 80, 100]);
    }
}
