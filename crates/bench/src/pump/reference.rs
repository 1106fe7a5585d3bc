//! A thread that never sleeps, and so is late only when the machine takes the core from it.
//!
//! In: a stretch of time. Out: how late it noticed each of the deadlines that follow each other in it, and its CPU time.
//! It takes a whole core: what is measured beside it has one less.

use std::hint;
use std::time::{Duration, Instant};

use anyhow::Result;
use wheel::Lateness;

use measure::cpu::{Spent, Stopwatch};

/// Time from deadline to deadline.
const TICK: Duration = Duration::from_micros(500);

/// Spins from `begin` to `end`, on the calling thread.
pub(super) fn spin(begin: Instant, end: Instant) -> Result<(Lateness, Spent)> {
    super::window::sleep_until(begin);
    let stopwatch = Stopwatch::start_on_thread()?;
    let mut lateness = Lateness::default();
    let mut due = Instant::now() + TICK;
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok((lateness, stopwatch.stop()?));
        }
        while due <= now {
            lateness.record(now - due);
            due += TICK;
        }
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_is_noticed_once() {
        loop {
            let begin = Instant::now();
            let (lateness, spent) = spin(begin, begin + Duration::from_millis(50)).unwrap();
            // A disturbed machine may begin late, or too late for any, but no deadline in between is left out.
            assert!(lateness.count() <= 100 && spent.wall > Duration::ZERO);
            if lateness.count() > 0 {
                return;
            }
        }
    }
}
