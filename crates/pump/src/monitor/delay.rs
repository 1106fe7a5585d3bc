//! The delay factor (RFC 4445 §3.1): how much buffer, in time, would have evened the arrivals out.

use wire::Bitrate;

const SECOND_NS: u64 = 1_000_000_000;

/// A buffer that is filled by what arrives and drained at the stream's rate, second by second.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelayFactor {
    /// The second that runs: when it began, what came since, and the bounds of the fill level in nanoseconds of stream.
    second: Option<Second>,
    max_ns: u64,
    sum_ns: u64,
    seconds: u64,
}

#[derive(Clone, Copy, Debug)]
struct Second {
    start_ns: u64,
    bytes: u64,
    low_ns: i64,
    high_ns: i64,
}

impl DelayFactor {
    /// Takes `bytes` that arrived.
    pub(crate) fn add(&mut self, at_ns: u64, bytes: u64, rate: Bitrate) {
        if let Some(second) = self.second.filter(|second| at_ns.saturating_sub(second.start_ns) >= SECOND_NS) {
            let factor = (second.high_ns - second.low_ns) as u64;
            self.max_ns = self.max_ns.max(factor);
            (self.sum_ns, self.seconds) = (self.sum_ns + factor, self.seconds + 1);
            self.second = None;
        }
        let fresh = Second { start_ns: at_ns, bytes: 0, low_ns: 0, high_ns: 0 };
        let second = self.second.get_or_insert(fresh);
        let drained_ns = at_ns.saturating_sub(second.start_ns) as i64;
        let filled_ns = |bytes: u64| (u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate.bps())) as i64;
        // The level is lowest right before an arrival and highest right after it.
        second.low_ns = second.low_ns.min(filled_ns(second.bytes) - drained_ns);
        second.bytes += bytes;
        second.high_ns = second.high_ns.max(filled_ns(second.bytes) - drained_ns);
    }

    /// The largest and the mean factor over whole seconds.
    pub(crate) fn whole_seconds(&self) -> Option<(u64, u64)> {
        (self.seconds > 0).then(|| (self.max_ns, self.sum_ns / self.seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Bitrate = Bitrate::from_kbps(10_528);

    fn factor(arrivals: impl Iterator<Item = (u64, u64)>) -> u64 {
        let mut delay = DelayFactor::default();
        arrivals.for_each(|(at_ns, bytes)| delay.add(at_ns, bytes, RATE));
        delay.whole_seconds().unwrap().0
    }

    #[test]
    fn even_arrivals_have_the_factor_of_one_datagram() {
        // 1,316 bytes a millisecond.
        assert_eq!(factor((0..2_000).map(|count| (count * 1_000_000, 1_316))), 1_000_000);
    }

    #[test]
    fn a_burst_and_a_gap_both_count() {
        assert_eq!(factor((0..500).map(|count| (count * 4_000_000, 4 * 1_316))), 4_000_000);
        // One datagram 10 ms late: the level falls by that, and the others come behind it.
        let late = |count: u64| if count == 500 { 10_000_000 } else { 0 };
        let mut arrivals: Vec<u64> = (0..2_000).map(|count| count * 1_000_000 + late(count)).collect();
        arrivals.sort_unstable();
        assert_eq!(factor(arrivals.into_iter().map(|at| (at, 1_316))), 2_000_000);
    }

    #[test]
    fn nothing_is_said_before_a_second_is_over() {
        let mut delay = DelayFactor::default();
        delay.add(0, 1_316, RATE);
        assert_eq!(delay.whole_seconds(), None);
    }
}
