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
}

impl RateMeter {
    /// Takes note of a packet.
    pub fn add(&mut self, now: Instant, bytes: usize) {
        self.turn_to(now);
        self.bytes[self.current] = self.bytes[self.current].saturating_add(bytes as u32);
    }

    /// The rate over the last second; rises through the first second.
    pub fn rate(&self, now: Instant) -> Bitrate {
        let mut meter = self.clone();
        if meter.current_until.is_none() {
            return Bitrate::ZERO;
        }
        meter.turn_to(now);
        let bytes = meter.bytes.iter().map(|count| u64::from(*count)).sum();
        Bitrate::of(bytes, BUCKET * BUCKETS as u32)
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
}
