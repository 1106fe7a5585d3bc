//! Tells from the change of one-way delay whether the path's queue is growing.
//!
//! In: send and arrival time of each received packet, in send order, in µs of two unrelated clocks.
//! Out: a `Signal`. Cost: O(1) per packet; a line fit over 20 points per group of packets.
//! Source: draft-ietf-rmcat-gcc-02 §5.2–5.5; libwebrtc modules/congestion_controller/goog_cc/inter_arrival_delta.cc
//! (groups) and trendline_estimator.cc (filter, threshold, detector), whose constants are used where they differ.

/// Packets sent within this time form one group (inter_arrival_delta.cc, `kSendTimeGroupLength` of delay_based_bwe.cc).
const GROUP_US: i64 = 5_000;
/// Groups that arrive this close behind each other were queued together (`kBurstDeltaThreshold`).
const BURST_GAP_US: i64 = 5_000;
/// The longest such burst (`kMaxBurstDuration`).
const BURST_MAX_US: i64 = 100_000;
/// An arrival clock that runs this far ahead of ours has jumped (`kArrivalTimeOffsetThreshold`).
const CLOCK_JUMP_US: i64 = 3_000_000;
/// So many groups in the wrong order mean that the arrival clock went back (`kReorderedResetThreshold`).
const REORDERED_MAX: u32 = 3;

/// Points of the line fit (trendline_estimator.cc, `kDefaultTrendlineWindowSize`).
const WINDOW: usize = 20;
/// Share of the old value in the smoothed delay (`kDefaultTrendlineSmoothingCoeff`).
const SMOOTHING: f64 = 0.9;
/// Scales the slope to the threshold (`kDefaultTrendlineThresholdGain`).
const GAIN: f64 = 4.0;
/// Full weight is reached after so many groups (`kMinNumDeltas`).
const DELTAS_FULL: u32 = 60;
/// How long the slope has to stay above the threshold (`kOverUsingTimeThreshold`).
const OVERUSE_MS: f64 = 10.0;
/// Threshold in ms: where it starts, and its bounds (`threshold_` and `UpdateThreshold`).
const THRESHOLD_MS: f64 = 12.5;
const THRESHOLD_MIN_MS: f64 = 6.0;
const THRESHOLD_MAX_MS: f64 = 600.0;
/// How fast the threshold follows up and down, per ms (`k_up_`, `k_down_`).
const THRESHOLD_UP: f64 = 0.0087;
const THRESHOLD_DOWN: f64 = 0.039;
/// A slope that is further out than this does not move the threshold (`kMaxAdaptOffsetMs`).
const ADAPT_OFFSET_MAX_MS: f64 = 15.0;

/// What the delay says about the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Signal {
    #[default]
    Normal,
    /// The queue grows.
    Overuse,
    /// The queue drains.
    Underuse,
}

/// Groups, trendline and detector of one path.
#[derive(Debug, Default)]
pub(super) struct DelayDetector {
    current: Option<Group>,
    previous: Option<Group>,
    reordered_count: u32,
    trend: Trendline,
}

/// Packets that were sent, or that arrived, as one burst.
#[derive(Clone, Copy, Debug)]
struct Group {
    first_sent_us: i64,
    last_sent_us: i64,
    first_arrival_us: i64,
    last_arrival_us: i64,
    /// Our own clock when the last packet was reported.
    reported_us: i64,
}

impl DelayDetector {
    /// Takes one received packet; `now_us` is on the same clock as `sent_us`.
    pub(super) fn on_packet(&mut self, sent_us: i64, arrival_us: i64, now_us: i64) {
        let Some(current) = &mut self.current else {
            self.current = Some(Group::of(sent_us, arrival_us, now_us));
            return;
        };
        if sent_us < current.first_sent_us || arrival_us < current.first_arrival_us.saturating_sub(CLOCK_JUMP_US) {
            // An old packet reported late, or a clock that went back: the group that follows tells which.
            self.note_reordering();
            return;
        }
        if current.takes(sent_us, arrival_us) {
            current.last_sent_us = current.last_sent_us.max(sent_us);
            current.last_arrival_us = current.last_arrival_us.max(arrival_us);
            current.reported_us = now_us;
            return;
        }
        let done = *current;
        self.current = Some(Group::of(sent_us, arrival_us, now_us));
        if let Some(previous) = self.previous.replace(done) {
            self.on_group(previous, done);
        }
    }

    pub(super) fn signal(&self) -> Signal {
        self.trend.signal
    }

    /// Forgets everything: after a pause, old delays say nothing about new ones.
    pub(super) fn reset(&mut self) {
        *self = DelayDetector::default();
    }

    fn on_group(&mut self, previous: Group, done: Group) {
        let sent_us = done.last_sent_us - previous.last_sent_us;
        let arrival_us = done.last_arrival_us - previous.last_arrival_us;
        if arrival_us - (done.reported_us - previous.reported_us) >= CLOCK_JUMP_US {
            self.reset();
        } else if arrival_us < 0 {
            self.note_reordering();
        } else {
            self.reordered_count = 0;
            self.trend.on_delta(arrival_us as f64 / 1e3, sent_us as f64 / 1e3, done.last_arrival_us);
        }
    }

    fn note_reordering(&mut self) {
        self.reordered_count += 1;
        if self.reordered_count >= REORDERED_MAX {
            self.reset();
        }
    }
}

impl Group {
    fn of(sent_us: i64, arrival_us: i64, now_us: i64) -> Self {
        Group {
            first_sent_us: sent_us,
            last_sent_us: sent_us,
            first_arrival_us: arrival_us,
            last_arrival_us: arrival_us,
            reported_us: now_us,
        }
    }

    fn takes(&self, sent_us: i64, arrival_us: i64) -> bool {
        if sent_us - self.first_sent_us <= GROUP_US {
            return true;
        }
        // Sent apart, but arrived together: a queue let them go in one burst.
        let gap_us = arrival_us - self.last_arrival_us;
        let spread_us = gap_us - (sent_us - self.last_sent_us);
        spread_us < 0 && gap_us <= BURST_GAP_US && arrival_us - self.first_arrival_us < BURST_MAX_US
    }
}

/// Fits a line through the recent delays, and compares its slope with a threshold that adapts.
#[derive(Debug, Default)]
struct Trendline {
    signal: Signal,
    delta_count: u32,
    origin_us: Option<i64>,
    accumulated_ms: f64,
    smoothed_ms: f64,
    /// Arrival time and smoothed delay of the last groups, both in ms; a ring.
    points: [(f64, f64); WINDOW],
    next: usize,
    point_count: usize,
    slope: f64,
    /// `None` for `THRESHOLD_MS`, where it starts.
    threshold_ms: Option<f64>,
    adapted_us: Option<i64>,
    /// Time above the threshold, and groups in that time.
    over_ms: Option<f64>,
    over_count: u32,
}

impl Trendline {
    fn on_delta(&mut self, arrival_ms: f64, sent_ms: f64, arrival_us: i64) {
        self.delta_count = self.delta_count.saturating_add(1);
        let origin_us = *self.origin_us.get_or_insert(arrival_us);
        self.accumulated_ms += arrival_ms - sent_ms;
        self.smoothed_ms = SMOOTHING * self.smoothed_ms + (1.0 - SMOOTHING) * self.accumulated_ms;
        self.points[self.next] = ((arrival_us - origin_us) as f64 / 1e3, self.smoothed_ms);
        self.next = (self.next + 1) % WINDOW;
        self.point_count = (self.point_count + 1).min(WINDOW);
        let before = self.slope;
        if self.point_count == WINDOW {
            self.slope = fit_slope(&self.points).unwrap_or(self.slope);
        }
        self.detect(before, sent_ms, arrival_us);
    }

    fn detect(&mut self, slope_before: f64, sent_ms: f64, arrival_us: i64) {
        if self.delta_count < 2 {
            return;
        }
        let scaled_ms = f64::from(self.delta_count.min(DELTAS_FULL)) * self.slope * GAIN;
        let threshold_ms = self.threshold_ms.unwrap_or(THRESHOLD_MS);
        if scaled_ms > threshold_ms {
            let over_ms = self.over_ms.map_or(sent_ms / 2.0, |over_ms| over_ms + sent_ms);
            self.over_ms = Some(over_ms);
            self.over_count += 1;
            if over_ms > OVERUSE_MS && self.over_count > 1 && self.slope >= slope_before {
                self.over_ms = Some(0.0);
                self.over_count = 0;
                self.signal = Signal::Overuse;
            }
        } else {
            self.over_ms = None;
            self.over_count = 0;
            self.signal = if scaled_ms < -threshold_ms { Signal::Underuse } else { Signal::Normal };
        }
        self.adapt_threshold(threshold_ms, scaled_ms.abs(), arrival_us);
    }

    fn adapt_threshold(&mut self, threshold_ms: f64, scaled_ms: f64, arrival_us: i64) {
        let before_us = self.adapted_us.replace(arrival_us).unwrap_or(arrival_us);
        if scaled_ms > threshold_ms + ADAPT_OFFSET_MAX_MS {
            return;
        }
        let pace = if scaled_ms < threshold_ms { THRESHOLD_DOWN } else { THRESHOLD_UP };
        let step_ms = ((arrival_us - before_us) as f64 / 1e3).clamp(0.0, 100.0);
        let adapted_ms = threshold_ms + pace * (scaled_ms - threshold_ms) * step_ms;
        self.threshold_ms = Some(adapted_ms.clamp(THRESHOLD_MIN_MS, THRESHOLD_MAX_MS));
    }
}

/// Slope of the least-squares line; `None` when all points stand above each other.
fn fit_slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let x_mean = points.iter().map(|point| point.0).sum::<f64>() / count;
    let y_mean = points.iter().map(|point| point.1).sum::<f64>() / count;
    let numerator: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let denominator: f64 = points.iter().map(|(x, _)| (x - x_mean) * (x - x_mean)).sum();
    (denominator > 0.0).then(|| numerator / denominator)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a packet each 10 ms, of which each is delayed by `growth_us` more than the one before.
    fn feed(detector: &mut DelayDetector, from: i64, count: i64, growth_us: i64) -> Vec<Signal> {
        (from..from + count)
            .map(|i| {
                detector.on_packet(i * 10_000, i * (10_000 + growth_us), i * 10_000);
                detector.signal()
            })
            .collect()
    }

    #[test]
    fn a_steady_delay_is_normal() {
        let mut detector = DelayDetector::default();
        assert!(feed(&mut detector, 0, 200, 0).iter().all(|signal| *signal == Signal::Normal));
    }

    #[test]
    fn a_growing_delay_is_overuse() {
        let mut detector = DelayDetector::default();
        let signals = feed(&mut detector, 0, 100, 2_000);
        assert!(signals.contains(&Signal::Overuse));
    }

    #[test]
    fn a_shrinking_delay_is_underuse() {
        let mut detector = DelayDetector::default();
        let signals = feed(&mut detector, 0, 100, -1_000);
        assert!(signals.contains(&Signal::Underuse) && !signals.contains(&Signal::Overuse));
    }

    #[test]
    fn clocks_that_jump_are_not_overuse() {
        let mut detector = DelayDetector::default();
        for i in 0..300 {
            let jump_us = if i % 100 < 50 { 0 } else { 1_000_000_000_000 };
            detector.on_packet(i * 10_000, i * 10_000 + jump_us, i * 10_000);
            assert_ne!(detector.signal(), Signal::Overuse, "packet {i}");
        }
    }
}
