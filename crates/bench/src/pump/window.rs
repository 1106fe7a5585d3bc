//! The time in which is counted, and what is counted in it.

use std::ops::AddAssign;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use wheel::{BUCKETS, Lateness};

use super::reference;
use measure::cpu::{Spent, Stopwatch};

/// Begins when all streams run. What is sent before and after is not counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) end: Instant,
    /// A thread that spins beside the senders tells how late the machine alone makes it.
    pub(super) has_reference: bool,
}

/// What a window cost.
pub(super) struct Measured {
    /// Of the process, without the thread that spins.
    pub(super) spent: Spent,
    pub(super) reference: Option<Lateness>,
}

impl Window {
    pub(super) fn contains(&self, at: Instant) -> bool {
        self.begin <= at && at < self.end
    }

    /// Waits for the window and through it; calls `mark` when it begins and when it ends.
    pub(super) fn measure(&self, mut mark: impl FnMut() -> Result<()>) -> Result<Measured> {
        thread::scope(|scope| {
            let spinning = self.has_reference.then(|| scope.spawn(|| reference::spin(self.begin, self.end)));
            sleep_until(self.begin);
            let stopwatch = Stopwatch::start()?;
            mark()?;
            sleep_until(self.end);
            mark()?;
            let spent = stopwatch.stop()?;
            let Some(spinning) = spinning else { return Ok(Measured { spent, reference: None }) };
            let (lateness, spun) = spinning.join().expect("the reference does not panic")?;
            Ok(Measured { spent: spent - spun, reference: Some(lateness) })
        })
    }
}

pub(super) fn sleep_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// What was sent within a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Datagrams.
    pub(super) sent: u64,
    pub(super) refused: u64,
    /// How long after its time each burst was sent.
    pub(super) lateness: Lateness,
}

impl Tally {
    /// Counts a burst that was due at `due` and went out at `now`.
    pub(super) fn note(&mut self, window: &Window, due: Instant, now: Instant, sent: u64, refused: u64) {
        if window.contains(now) {
            self.lateness.record(now.saturating_duration_since(due));
            self.sent += sent;
            self.refused += refused;
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.lateness.merge(&other.lateness);
    }
}

/// What a histogram has counted since it was as `before`.
pub(super) fn since(after: &Lateness, before: &Lateness) -> Lateness {
    let mut buckets = [0; BUCKETS];
    for (bucket, (after, before)) in buckets.iter_mut().zip(after.buckets().iter().zip(before.buckets())) {
        *bucket = after.saturating_sub(*before);
    }
    Lateness::from_buckets(buckets)
}

/// A window that begins as soon as streams that begin now have come into step.
pub(super) fn window(warm_up: Duration, time: Duration, has_reference: bool) -> Window {
    let begin = Instant::now() + warm_up;
    Window { begin, end: begin + time, has_reference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_outside_the_window_is_not_counted() {
        let window = window(Duration::from_secs(1), Duration::from_secs(1), false);
        let mut tally = Tally::default();
        for at in [Duration::ZERO, Duration::from_millis(1_500), Duration::from_secs(3)] {
            let now = window.begin - Duration::from_secs(1) + at;
            tally.note(&window, now - Duration::from_micros(3), now, 4, 1);
        }
        assert_eq!((tally.sent, tally.refused, tally.lateness.count()), (4, 1, 1));
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
