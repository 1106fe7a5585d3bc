//! How many bits per second pass, over about the last second.

use std::time::{Duration, Instant};

use wire::Bitrate;

const BUCKETS: usize = 10;
const BUCKET: Duration = Duration::from_millis(100);
/// Of all buckets.
const SPAN_MAX: Duration = Duration::from_secs(1);

/// Ten buckets of 100 ms. Cost: two additions per packet.
#[derive(Clone, Debug, Default)]
pub struct RateMeter {
    bytes: [u32; BUCKETS],
    /// Of them all.
    sum: u64,
    current: usize,
    current_until: Option<Instant>,
    /// When what is in the buckets began to come, unless they are full.
    since: Option<Instant>,
}

/// What came in a shorter time says little: a keyframe stands first.
const SPAN_MIN: Duration = Duration::from_millis(300);

impl RateMeter {
    /// Takes note of a packet. Returns whether it is the first after a second of nothing.
    pub fn add(&mut self, now: Instant, bytes: usize) -> bool {
        self.turn_to(now);
        let begins = self.sum == 0;
        if begins {
            self.since = Some(now);
        }
        let before = self.bytes[self.current];
        self.bytes[self.current] = before.saturating_add(bytes as u32);
        self.sum += u64::from(self.bytes[self.current] - before);
        begins
    }

    /// Whether something comes, and has done so for less than a second.
    pub fn is_young(&self, now: Instant) -> bool {
        self.is_flowing(now) && self.since.is_some_and(|since| now.saturating_duration_since(since) < SPAN_MAX)
    }

    /// The rate over the last second, or over what there was of it. `now` may be before the last packet's time: a thread that
    /// the kernel had stopped has an old one.
    pub fn rate(&self, now: Instant) -> Bitrate {
        let Some(until) = self.current_until else { return Bitrate::ZERO };
        let mut gone = 0;
        // The newest bucket has not lasted its whole time yet.
        let covered = if now < until {
            SPAN_MAX.saturating_sub(until - now)
        } else {
            let since = now - until;
            let behind = buckets_in(since);
            if behind >= BUCKETS as u64 {
                return Bitrate::ZERO;
            }
            gone = (1..=behind as usize).map(|ahead| u64::from(self.bytes[(self.current + ahead) % BUCKETS])).sum();
            SPAN_MAX - BUCKET * behind as u32 + since
        };
        let passed =
            self.since.map_or(covered, |since| now.saturating_duration_since(since).min(covered)).max(SPAN_MIN);
        // Not `Bitrate::of`, whose 128-bit division is felt in reports.
        let micros = passed.as_secs() * 1_000_000 + u64::from(passed.subsec_micros());
        Bitrate::from_bps((self.sum - gone) * 8_000_000 / micros)
    }

    /// Whether anything came within about the last second.
    pub fn is_flowing(&self, now: Instant) -> bool {
        self.current_until.is_some_and(|until| now < until || buckets_in(now - until) < BUCKETS as u64)
    }

    /// Whether nothing has come after `at`; of what came less than 100 ms before that it may say that it came after.
    pub fn is_silent_since(&self, at: Instant) -> bool {
        self.current_until.is_none_or(|until| until <= at)
    }

    fn turn_to(&mut self, now: Instant) {
        let until = *self.current_until.get_or_insert(now + BUCKET);
        if now < until {
            return;
        }
        let behind = buckets_in(now - until);
        for _ in 0..behind.min(BUCKETS as u64) {
            self.current = (self.current + 1) % BUCKETS;
            self.sum -= u64::from(std::mem::take(&mut self.bytes[self.current]));
        }
        self.since = self.since.filter(|since| now.saturating_duration_since(*since) < SPAN_MAX);
        self.current_until = Some(until + BUCKET * u32::try_from(behind).unwrap_or(u32::MAX));
    }
}

/// Buckets that have begun in the time since the current one's end.
fn buckets_in(since: Duration) -> u64 {
    (since.as_millis() as u64) / (BUCKET.as_millis() as u64) + 1
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
        assert_eq!(meter.rate(at_end + Duration::from_millis(10)), Bitrate::from_kbps(1_000));
        assert_eq!(meter.rate(at_end + Duration::from_secs(2)), Bitrate::ZERO);
    }

    #[test]
    fn a_steady_flow_has_one_rate_whenever_it_is_asked_for() {
        let start = Instant::now();
        let mut meter = RateMeter::default();
        for packet in 0..2_000u64 {
            let now = start + Duration::from_millis(packet);
            meter.add(now, 125);
            let rate = meter.rate(now).bps();
            assert!(packet < 400 || (995_000..1_005_000).contains(&rate), "{packet} ms: {rate}");
        }
        // And falls evenly when it ends.
        for (after_ms, share) in [(100, 0.9), (150, 0.85), (500, 0.5), (850, 0.15)] {
            let rate = meter.rate(start + Duration::from_millis(1_999 + after_ms)).bps() as f64 / 1e6;
            assert!((rate - share).abs() < 0.06, "{after_ms} ms later: {rate}");
        }
    }

    #[test]
    fn a_time_before_the_last_packet_s_is_no_trouble() {
        let start = Instant::now() + Duration::from_secs(60);
        for before_ms in [0, 50, 100, 899, 901, 1_500, 60_000] {
            let mut meter = RateMeter::default();
            (0..20).for_each(|packet| _ = meter.add(start + Duration::from_millis(50) * packet, 1_250));
            let now = start + Duration::from_millis(950) - Duration::from_millis(before_ms);
            let rate = meter.rate(now).bps();
            assert!(meter.is_flowing(now) && rate > 0, "{before_ms} ms before: {rate}");
        }
    }

    #[test]
    fn a_flow_that_just_began_is_measured_by_its_age() {
        let start = Instant::now();
        for before in [None, Some(start), Some(start + Duration::from_secs(1))] {
            let mut meter = RateMeter::default();
            before.inspect(|at| _ = meter.add(*at, 1_250));
            let begin = start + Duration::from_secs(10);
            (0..50).for_each(|packet| _ = meter.add(begin + Duration::from_millis(10) * packet, 1_250));
            assert_eq!(meter.rate(begin + Duration::from_millis(500)), Bitrate::from_kbps(1_000), "{before:?}");
        }
    }
}
