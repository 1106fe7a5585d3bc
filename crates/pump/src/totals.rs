//! One worker's numbers, kept as they change: nobody has to walk the sessions for them.

use std::time::Duration;

use crate::spec::{Activity, Counters};

const SECOND_NS: i64 = 1_000_000_000;

/// The counters, and what is under way for those that are the worst of a second.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    /// When the second that runs began, and the worst in it.
    second_ns: i64,
    delay_factor: Duration,
    pcr_jitter: Duration,
}

impl Totals {
    /// Lets seconds end. What was the worst of one is shown until the next has ended too.
    pub(crate) fn handle_time(&mut self, now_ns: i64) {
        let passed_ns = now_ns - self.second_ns;
        if passed_ns < SECOND_NS {
            return;
        }
        let is_next = passed_ns < 2 * SECOND_NS;
        let shown = |worst: &mut Duration| Some(std::mem::take(worst)).filter(|_| is_next).unwrap_or_default();
        self.counters.delay_factor_max = shown(&mut self.delay_factor);
        self.counters.pcr_jitter_max = shown(&mut self.pcr_jitter);
        self.second_ns = now_ns - passed_ns % SECOND_NS;
    }

    /// A session does something else now. One that is not there is as one that loads.
    pub(crate) fn move_session(&mut self, before: Activity, now: Activity) {
        let Counters { playing, starved, .. } = &mut self.counters;
        *playing -= u64::from(before == Activity::Playing);
        *starved -= u64::from(before == Activity::Starved);
        *playing += u64::from(now == Activity::Playing);
        *starved += u64::from(now == Activity::Starved);
    }

    /// A session's delay factor in its last whole second.
    pub(crate) fn note_delay_factor(&mut self, delay_factor: Duration) {
        self.delay_factor = self.delay_factor.max(delay_factor);
        self.counters.delay_factor_max = self.counters.delay_factor_max.max(delay_factor);
    }

    /// The worst jitter of clock references that a session's monitor saw.
    pub(crate) fn note_pcr_jitter(&mut self, jitter: Duration) {
        self.pcr_jitter = self.pcr_jitter.max(jitter);
        self.counters.pcr_jitter_max = self.counters.pcr_jitter_max.max(jitter);
    }

    /// The last session is gone, and what was measured of it.
    pub(crate) fn forget_worst(&mut self) {
        (self.delay_factor, self.pcr_jitter) = (Duration::ZERO, Duration::ZERO);
        (self.counters.delay_factor_max, self.counters.pcr_jitter_max) = (Duration::ZERO, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_is_that_of_the_second_that_runs_and_the_one_before() {
        let mut totals = Totals::default();
        let ms = Duration::from_millis;
        let mut shown = |at_ms: i64, noted_ms: u64| {
            totals.handle_time(at_ms * 1_000_000);
            totals.note_delay_factor(ms(noted_ms));
            totals.counters.delay_factor_max
        };
        assert_eq!([(100, 5), (900, 3)].map(|(at, noted)| shown(at, noted)), [ms(5), ms(5)]);
        assert_eq!([(1_000, 1), (1_999, 2)].map(|(at, noted)| shown(at, noted)), [ms(5), ms(5)]);
        assert_eq!([(2_500, 1), (3_100, 0)].map(|(at, noted)| shown(at, noted)), [ms(2), ms(1)]);
        assert_eq!(shown(9_000, 0), ms(0));
    }
}
