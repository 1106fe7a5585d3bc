//! How many requests a participant may send: a bucket that fills at a steady rate.

use std::time::Instant;

use crate::limits::{REQUESTS_BURST, REQUESTS_PER_SECOND};

#[derive(Debug)]
pub(crate) struct Allowance {
    left: f64,
    at: Instant,
}

impl Allowance {
    pub(crate) fn new(now: Instant) -> Self {
        Allowance { left: f64::from(REQUESTS_BURST), at: now }
    }

    /// Takes one; false when there is none.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + since * f64::from(REQUESTS_PER_SECOND)).min(f64::from(REQUESTS_BURST));
        let is_left = self.left >= 1.0;
        self.left -= f64::from(u8::from(is_left));
        is_left
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_the_steady_rate() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        assert!((0..REQUESTS_BURST).all(|_| allowance.take(start)));
        assert!(!allowance.take(start));

        let later = start + Duration::from_secs(1);
        assert!((0..REQUESTS_PER_SECOND).all(|_| allowance.take(later)));
        assert!(!allowance.take(later));
    }
}
