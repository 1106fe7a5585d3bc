//! The time in which is counted, and what is counted in it.

use std::thread;
use std::time::Instant;

use anyhow::Result;
use wheel::{BUCKETS, Lateness};

use super::reference;
use crate::comparison::Sample;
use measure::cpu::{Spent, Stopwatch};

/// Begins when all streams run. What is sent before and after is not counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) end: Instant,
    /// A thread that spins beside the senders tells how late the machine alone makes it.
    pub(super) has_reference: bool,
}

impl Window {
    /// Counts a burst that was due at `due` and went out at `now`.
    pub(super) fn note(&self, sample: &mut Sample, due: Instant, now: Instant, sent: u64, refused: u64) {
        if self.begin <= now && now < self.end {
            sample.lateness.record(now.saturating_duration_since(due));
            sample.sent += sent;
            sample.refused += refused;
        }
    }

    /// Waits for the window and through it, and says what the process spent, without the thread that spins; calls `mark`
    /// when it begins and when it ends.
    pub(super) fn measure(&self, mut mark: impl FnMut()) -> Result<Sample> {
        thread::scope(|scope| {
            let spinning = self.has_reference.then(|| scope.spawn(|| reference::spin(self.begin, self.end)));
            sleep_until(self.begin);
            let stopwatch = Stopwatch::start()?;
            mark();
            sleep_until(self.end);
            mark();
            let spent = stopwatch.stop()?;
            let Some(spinning) = spinning else { return Ok(Sample { spent, ..Sample::default() }) };
            let (reference, spun) = spinning.join().expect("the reference does not panic")?;
            let spent = Spent { cpu: spent.cpu.since(spun.cpu), ..spent };
            Ok(Sample { spent, reference, ..Sample::default() })
        })
    }
}

pub(super) fn sleep_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// What a histogram has counted since it was as `before`.
pub(super) fn since(after: &Lateness, before: &Lateness) -> Lateness {
    let mut buckets = [0; BUCKETS];
    for (bucket, (after, before)) in buckets.iter_mut().zip(after.buckets().iter().zip(before.buckets())) {
        *bucket = after.saturating_sub(*before);
    }
    Lateness::from_buckets(buckets)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_sent_outside_the_window_is_not_counted() {
        let begin = Instant::now() + Duration::from_secs(1);
        let window = Window { begin, end: begin + Duration::from_secs(1), has_reference: false };
        let mut sample = Sample::default();
        for at in [Duration::ZERO, Duration::from_millis(1_500), Duration::from_secs(3)] {
            let now = window.begin - Duration::from_secs(1) + at;
            window.note(&mut sample, now - Duration::from_micros(3), now, 4, 1);
        }
        assert_eq!((sample.sent, sample.refused, sample.lateness.count()), (4, 1, 1));
    }

    #[test]
    fn a_difference_has_only_what_came_since() {
        let mut before = Lateness::default();
        before.record(Duration::from_nanos(100));
        let mut after = before.clone();
        after.record(Duration::from_micros(100));
        let difference = since(&after, &before);
        assert_eq!(difference.count(), 1);
        assert!(difference.quantile(0.0) > Duration::from_micros(50));
    }
}
