//! How long the newest packet waited on its way.
//!
//! In: of each feedback message the time that its newest packet took, between two clocks. Out: how much longer that was than the
//! shortest of late. Cost: O(1) per message.

use std::time::{Duration, Instant};

/// While the newest packet waited longer than this, what was sent before is not through.
const LONG_US: i64 = 50_000;
/// What was said longer ago says nothing of now.
const SAID_MAX: Duration = Duration::from_secs(1);
/// The shortest time grows by one part in so many of the time that passes: clocks go apart by 100 ppm, and paths become longer.
const LEAK: i64 = 2_000;

/// The queue on one path.
#[derive(Debug)]
pub(super) struct Queue {
    shortest_us: i64,
    waited_us: i64,
    said: Option<Instant>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Queue { shortest_us: i64::MAX, waited_us: 0, said: None }
    }

    /// Takes how long the newest packet of a message took.
    pub(super) fn on_transit(&mut self, now: Instant, transit_us: i64) {
        let passed = self.said.map_or(Duration::ZERO, |said| now.saturating_duration_since(said));
        let leaked_us = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX) / LEAK;
        self.shortest_us = self.shortest_us.saturating_add(leaked_us).min(transit_us);
        self.waited_us = transit_us.saturating_sub(self.shortest_us);
        self.said = Some(now);
    }

    /// Whether what was sent before is still on its way.
    pub(super) fn is_long(&self, now: Instant) -> bool {
        self.waited_us > LONG_US && self.said.is_some_and(|said| now.saturating_duration_since(said) < SAID_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages each 50 ms, for so many seconds, with the time that the newest packet of each took. Returns in which seconds the queue
    /// was long.
    fn long(seconds: u64, transit_us: impl Fn(u64) -> i64) -> Vec<u64> {
        let start = Instant::now();
        let mut queue = Queue::new();
        let is_long = |second: &u64| {
            (0..20).fold(false, |is_long, part| {
                let now = start + Duration::from_millis(1_000 * second + 50 * part);
                queue.on_transit(now, transit_us(*second));
                is_long || queue.is_long(now)
            })
        };
        (0..seconds).filter(is_long).collect()
    }

    #[test]
    fn a_queue_is_seen_while_it_lasts() {
        assert_eq!(long(10, |second| if (3..5).contains(&second) { -700_000 } else { -800_000 }), [3, 4]);
    }

    #[test]
    fn clocks_that_go_apart_are_no_queue() {
        // 100 ppm for six hours.
        assert_eq!(long(21_600, |second| 100 * second as i64), []);
    }

    #[test]
    fn a_path_that_has_become_longer_is_taken_as_it_is_after_some_time() {
        let seconds = long(200, |second| if second < 10 { 20_000 } else { 120_000 });
        assert_eq!((seconds.first(), seconds.len()), (Some(&10), 100));
    }

    #[test]
    fn what_was_said_long_ago_counts_no_more() {
        let start = Instant::now();
        let mut queue = Queue::new();
        queue.on_transit(start, 0);
        queue.on_transit(start, 60_000);
        assert!(queue.is_long(start) && !queue.is_long(start + SAID_MAX));
    }
}
