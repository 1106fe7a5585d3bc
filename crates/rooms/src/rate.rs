//! How many bits per second pass, over about the last second.

use std::time::{Duration, Instant};

use wire::Bitrate;

const BUCKETS: usize = 10;
const BUCKET: Duration = Duration::from_millis(100);

/// Ten buckets of 100 ms. Cost: an addition per packet.
#[derive(Clone, Debug, Default)]
pub struct RateMeter {
    bytes: [u32; BUCKETS],
    current: usize,
    current_until: Option<Instant>,
    /// When what is in the buckets began to come.
    since: Option<Instant>,
}

/// What came in a shorter time says little: a keyframe stands first.
const SPAN_MIN: Duration = Duration::from_millis(300);

impl RateMeter {
    /// Takes note of a packet.
    pub fn add(&mut self, now: Instant, bytes: usize) {
        self.turn_to(now);
        self.since.get_or_insert(now);
        self.bytes[self.current] = self.bytes[self.current].saturating_add(bytes as u32);
    }

    /// The rate over the last second, or over what there was of it.
    pub fn rate(&self, now: Instant) -> Bitrate {
        let mut meter = self.clone();
        if meter.current_until.is_none() {
            return Bitrate::ZERO;
        }
        meter.turn_to(now);
        let bytes = meter.bytes.iter().map(|count| u64::from(*count)).sum();
        let passed = meter.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        Bitrate::of(bytes, passed.clamp(SPAN_MIN, BUCKET * BUCKETS as u32))
    }

    fn turn_to(&mut self, now: Instant) {
        let until = *self.current_until.get_or_insert(now + BUCKET);
        if now < until {
            return;
        }
        let behind = now.duration_since(until).as_nanos() / BUCKET.as_nanos() + 1;
        for _ in 0..behind.min(BUCKETS as u128) {
            self.current = (self.current + 1) % BUCKETS;
            self.bytes[self.current] = 0;
        }
        if self.bytes == [0; BUCKETS] {
            self.since = None;
        }
        self.current_until = Some(until + BUCKET * u32::try_from(behind).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_flow_is_measured_and_its_end_too() {
        let start = Instant::now();
        let mut meter = RateMeter::default();
        for packet in 0..200u32 {
            meter.add(start + Duration::from_millis(10) * packet, 1_250);
        }
        let at_end = start + Duration::from_millis(1_990);
        assert_eq!(meter.rate(at_end), Bitrate::from_kbps(1_000));
        assert_eq!(meter.rate(at_end + Duration::from_secs(2)), Bitrate::ZERO);
    }

    #[test]
    fn a_flow_that_just_began_is_measured_by_its_age() {
        let start = Instant::now();
        for before in [None, Some(start), Some(start + Duration::from_secs(1))] {
            let mut meter = RateMeter::default();
            before.inspect(|at| meter.add(*at, 1_250));
            let begin = start + Duration::from_secs(10);
            (0..50).for_each(|packet| meter.add(begin + Duration::from_millis(10) * packet, 1_250));
            assert_eq!(meter.rate(begin + Duration::from_millis(500)), Bitrate::from_kbps(1_000), "{before:?}");
        }
    }
}
