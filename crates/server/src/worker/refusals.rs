//! Which reports of the network are worth telling, as there is one for nearly every datagram to a destination where nobody
//! listens.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

/// A destination's refusals are told once in this time.
const INTERVAL: Duration = Duration::from_millis(500);

/// Destinations whose refusals are told in that time; those of others wait for the next.
const DESTINATIONS_MAX: usize = 4_096;

/// The destinations that were told lately.
#[derive(Debug)]
pub(super) struct Refusals {
    told: FxHashSet<SocketAddr>,
    /// When `told` was empty.
    since: Instant,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Refusals { told: FxHashSet::default(), since: now }
    }

    /// Whether control has to hear that a destination refuses.
    pub(super) fn is_news(&mut self, now: Instant, remote: SocketAddr) -> bool {
        if now.saturating_duration_since(self.since) >= INTERVAL {
            self.told.clear();
            self.since = now;
        }
        self.told.len() < DESTINATIONS_MAX && self.told.insert(remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_told_once_in_a_while_and_not_too_many_are() {
        let start = Instant::now();
        let mut refusals = Refusals::new(start);
        let remote = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!([1, 1, 2].map(|port| refusals.is_news(start, remote(port))), [true, false, true]);
        assert!(refusals.is_news(start + INTERVAL, remote(1)));

        let told = (2..10_000).filter(|port| refusals.is_news(start + INTERVAL, remote(*port))).count();
        assert_eq!(told, DESTINATIONS_MAX - 1);
    }
}
