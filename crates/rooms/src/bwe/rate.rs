//! Turns the delay signal into a rate: up slowly, down at once (additive or multiplicative increase, multiplicative
//! decrease).
//!
//! In: signal, acknowledged rate, round-trip time. Out: the delay-based bound. Cost: O(1) per feedback.
//! Source: draft-ietf-rmcat-gcc-02 §5.5; libwebrtc modules/remote_bitrate_estimator/aimd_rate_control.cc and
//! modules/congestion_controller/goog_cc/link_capacity_estimator.cc, delay_based_bwe.cc.

use std::time::{Duration, Instant};

use super::delay::Signal;

/// What is kept of the acknowledged rate on overuse (`kDefaultBackoffFactor`).
const BACKOFF: f64 = 0.85;
/// While less than this share of the estimate arrives, the sender has no more to send (our own rule).
pub(super) const APP_LIMITED: f64 = 0.8;
/// Growth per second while the link's capacity is unknown (`MultiplicativeRateIncrease`).
const GROWTH: f64 = 1.08;
/// The estimate does not grow beyond this many times the acknowledged rate, plus a margin (`ChangeBitrate`,
/// throughput-based limit). There it is 1.5, for an encoder that finds out by a little more than fits; of a layer, little more
/// is never sent, so that would be half as much again which nobody has seen. Probes see it.
pub(super) const GROWTH_LIMIT: f64 = 1.2;
const GROWTH_MARGIN_BPS: f64 = 10_000.0;
/// Slowest additive growth per second (`GetNearMaxIncreaseRateBpsPerSecond`).
const ADD_MIN_BPS: f64 = 4_000.0;
/// A response to a change takes a round trip and this long (same function).
const RESPONSE: Duration = Duration::from_millis(100);
/// Bounds of the time between two decreases (`TimeToReduceFurther`).
const REDUCE_MIN: Duration = Duration::from_millis(10);
const REDUCE_MAX: Duration = Duration::from_millis(200);
/// Smoothing and bounds of the capacity's relative variance (link_capacity_estimator.cc).
const CAPACITY_ALPHA: f64 = 0.05;
const CAPACITY_VARIANCE_MIN: f64 = 0.4;
const CAPACITY_VARIANCE_MAX: f64 = 2.5;

/// The delay-based bound of the send rate.
#[derive(Debug)]
pub(super) struct RateControl {
    pub(super) bps: f64,
    min_bps: f64,
    max_bps: f64,
    phase: Phase,
    capacity: Option<Capacity>,
    /// When the rate was last raised or looked at, and last lowered.
    changed: Instant,
    pub(super) reduced: Option<Instant>,
    /// Whether delay ever lowered it: until then nothing says that the path is narrow.
    pub(super) was_lowered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Hold,
    Increase,
}

impl RateControl {
    pub(super) fn new(now: Instant, start_bps: f64, min_bps: f64, max_bps: f64) -> Self {
        let bps = start_bps.clamp(min_bps, max_bps);
        RateControl {
            bps,
            min_bps,
            max_bps,
            phase: Phase::Hold,
            capacity: None,
            changed: now,
            reduced: None,
            was_lowered: false,
        }
    }

    /// Takes what a feedback message said, and what arrives: over some time, and lately.
    pub(super) fn update(
        &mut self,
        now: Instant,
        signal: Signal,
        acked_bps: Option<f64>,
        latest_bps: Option<f64>,
        rtt: Duration,
    ) {
        match signal {
            Signal::Overuse => self.decrease(now, latest_bps, rtt),
            Signal::Underuse => self.phase = Phase::Hold,
            Signal::Normal if self.phase == Phase::Hold => self.phase = Phase::Increase,
            Signal::Normal => self.increase(now, acked_bps, rtt),
        }
        self.changed = now;
    }

    /// Raises the rate to what a probe has proven.
    pub(super) fn raise_to(&mut self, now: Instant, proven_bps: f64) {
        if proven_bps <= self.bps {
            return;
        }
        self.bps = proven_bps.min(self.max_bps);
        self.changed = now;
        if self.capacity.is_some_and(|capacity| proven_bps > capacity.upper_kbps() * 1e3) {
            self.capacity = None;
        }
    }

    /// Lowers the rate by `factor`, for a reason other than delay: that says nothing of how narrow the path is.
    pub(super) fn scale_down(&mut self, factor: f64) {
        self.bps = (self.bps * factor).max(self.min_bps);
    }

    fn increase(&mut self, now: Instant, acked_bps: Option<f64>, rtt: Duration) {
        // Without a sample nothing is known, and nothing grows.
        let Some(acked_bps) = acked_bps else { return };
        // What arrives while no queue grows is carried: layers are steps, and more may be sent than the rate says.
        self.bps = self.bps.max(acked_bps.min(self.max_bps));
        let limit_bps = GROWTH_LIMIT * acked_bps + GROWTH_MARGIN_BPS;
        if self.bps >= limit_bps {
            return;
        }
        if self.capacity.is_some_and(|capacity| acked_bps > capacity.upper_kbps() * 1e3) {
            self.capacity = None;
        }
        let seconds = now.saturating_duration_since(self.changed).as_secs_f64().min(1.0);
        let grown_bps = match self.capacity {
            Some(_) => self.bps + seconds * self.additive_bps(rtt),
            None => self.bps * GROWTH.powf(seconds),
        };
        self.bps = grown_bps.min(limit_bps).clamp(self.min_bps, self.max_bps);
    }

    /// About one packet more per response time, where packets are what a 30 fps frame splits into.
    fn additive_bps(&self, rtt: Duration) -> f64 {
        let frame_bits = self.bps / 30.0;
        let packet_bits = frame_bits / (frame_bits / (1_200.0 * 8.0)).ceil().max(1.0);
        (packet_bits / (rtt + RESPONSE).as_secs_f64()).max(ADD_MIN_BPS)
    }

    fn decrease(&mut self, now: Instant, acked_bps: Option<f64>, rtt: Duration) {
        self.phase = Phase::Hold;
        let due = self.reduced.is_none_or(|at| now.saturating_duration_since(at) >= rtt.clamp(REDUCE_MIN, REDUCE_MAX));
        let Some(acked_bps) = acked_bps else {
            if due {
                self.scale_down(0.5);
                self.was_lowered = true;
                self.reduced = Some(now);
            }
            return;
        };
        if !due {
            return;
        }
        // What arrives is what the path carries only while the path is full. While less than that is sent, one large
        // frame can look like overuse, so the first step goes half-way; where it was no illusion, others follow at once.
        let carried_bps = if acked_bps < APP_LIMITED * self.bps { (acked_bps * self.bps).sqrt() } else { acked_bps };
        let mut lowered_bps = carried_bps * BACKOFF;
        if lowered_bps > self.bps
            && let Some(capacity) = self.capacity
        {
            lowered_bps = capacity.kbps * 1e3 * BACKOFF;
        }
        self.bps = lowered_bps.min(self.bps).max(self.min_bps);
        self.was_lowered = true;
        self.reduced = Some(now);
        self.note_capacity(acked_bps / 1e3);
    }

    fn note_capacity(&mut self, sample_kbps: f64) {
        match &mut self.capacity {
            Some(capacity) if sample_kbps >= capacity.lower_kbps() => capacity.on_sample(sample_kbps),
            capacity => *capacity = Some(Capacity { kbps: sample_kbps, variance: CAPACITY_VARIANCE_MIN }),
        }
    }
}

/// Where overuse began, lately.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    kbps: f64,
    /// Relative to `kbps`.
    variance: f64,
}

impl Capacity {
    fn on_sample(&mut self, sample_kbps: f64) {
        self.kbps = (1.0 - CAPACITY_ALPHA) * self.kbps + CAPACITY_ALPHA * sample_kbps;
        let error_kbps = self.kbps - sample_kbps;
        let relative = error_kbps * error_kbps / self.kbps.max(1.0);
        self.variance = ((1.0 - CAPACITY_ALPHA) * self.variance + CAPACITY_ALPHA * relative)
            .clamp(CAPACITY_VARIANCE_MIN, CAPACITY_VARIANCE_MAX);
    }

    fn upper_kbps(&self) -> f64 {
        self.kbps + 3.0 * (self.variance * self.kbps).sqrt()
    }

    fn lower_kbps(&self) -> f64 {
        (self.kbps - 3.0 * (self.variance * self.kbps).sqrt()).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn growth_stops_a_fifth_above_what_arrives() {
        let start = Instant::now();
        let mut rate = RateControl::new(start, 300e3, 50e3, 10e6);
        for i in 0..600 {
            rate.update(start + Duration::from_millis(100 * i), Signal::Normal, Some(300e3), Some(300e3), RTT);
        }
        assert!((rate.bps - 370e3).abs() < 1.0, "{}", rate.bps);
    }

    #[test]
    fn overuse_drops_below_what_arrives_and_only_once_per_round_trip() {
        let start = Instant::now();
        let mut rate = RateControl::new(start, 1.1e6, 50e3, 10e6);
        rate.update(start, Signal::Overuse, Some(1e6), Some(1e6), RTT);
        assert_eq!(rate.bps, 850e3);
        rate.update(start + RTT / 2, Signal::Overuse, Some(0.8e6), Some(0.8e6), RTT);
        assert_eq!(rate.bps, 850e3);
        rate.update(start + RTT, Signal::Overuse, Some(0.8e6), Some(0.8e6), RTT);
        assert_eq!(rate.bps, 680e3);
    }

    #[test]
    fn overuse_of_a_path_that_is_little_used_is_believed_by_steps() {
        let start = Instant::now();
        let mut rate = RateControl::new(start, 4e6, 50e3, 10e6);
        rate.update(start, Signal::Overuse, Some(1e6), Some(1e6), RTT);
        assert_eq!(rate.bps, 1.7e6);
        for step in 1..=3 {
            rate.update(start + step * RTT, Signal::Overuse, Some(1e6), Some(1e6), RTT);
        }
        assert_eq!(rate.bps, 850e3);
    }
}
