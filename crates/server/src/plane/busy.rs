//! How busy each worker is, and so whether it takes newcomers.
//!
//! In: the time that each worker has spent at work since it started, now and then.
//! Out: the share of its time, smoothed over about a second. Waiting for a core counts as work: a worker that does not
//! get one is as late as one that has too much to do.

use std::time::{Duration, Instant};

/// The weight of what was before falls by a factor of e in this time.
const MEMORY: Duration = Duration::from_secs(1);

/// One worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusyMeter {
    last: Option<(Instant, u64)>,
    share: f64,
}

impl BusyMeter {
    /// Takes the nanoseconds that the worker has been at work until now.
    pub fn update(&mut self, now: Instant, busy_ns: u64) {
        let Some((at, before_ns)) = self.last.replace((now, busy_ns)) else { return };
        let passed = now.saturating_duration_since(at);
        if passed.is_zero() {
            return;
        }
        let share = (busy_ns.saturating_sub(before_ns) as f64 / passed.as_nanos() as f64).min(1.0);
        let weight = 1.0 - (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.share += weight * (share - self.share);
    }

    /// 0 when it only waits, 1 when it never does.
    pub fn share(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_within_seconds_and_a_moment_changes_little() {
        let start = Instant::now();
        let mut meter = BusyMeter::default();
        let mut busy_ns = 7_000_000_000;
        let mut run = |from: u64, to: u64, percent: u64| {
            for tick in from..to {
                meter.update(start + Duration::from_millis(tick * 100), busy_ns);
                busy_ns += percent * 1_000_000;
            }
            meter.share()
        };
        assert!((run(0, 50, 95) - 0.95).abs() < 0.02);
        let after_a_pause = run(50, 52, 0);
        assert!((0.7..0.95).contains(&after_a_pause), "{after_a_pause}");
        assert!(run(52, 100, 10) < 0.12);
    }

    #[test]
    fn the_same_moment_twice_changes_nothing() {
        let now = Instant::now();
        let mut meter = BusyMeter::default();
        meter.update(now, 5);
        meter.update(now, 9);
        assert_eq!(meter.share(), 0.0);
    }
}
