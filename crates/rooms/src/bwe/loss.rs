//! Bounds the rate by loss, for paths that drop before they delay; but not for those that drop whatever is sent.
//!
//! In: how many packets were reported and lost. Out: a loss fraction each half second, and a rate adjusted by it.
//! Cost: O(1). Source: draft-ietf-rmcat-gcc-02 §6; libwebrtc
//! modules/congestion_controller/goog_cc/send_side_bandwidth_estimation.cc.

use std::time::{Duration, Instant};

/// Below this loss the rate grows, above the other it falls, between them it stays (`kDefaultLowLossThreshold`,
/// `kDefaultHighLossThreshold`).
const LOSS_LOW: f64 = 0.02;
const LOSS_HIGH: f64 = 0.10;
/// Growth per second (8 % in `UpdateEstimate`).
const GROWTH: f64 = 1.08;
/// Time between two decreases, beside the round trip (`kBweDecreaseInterval`).
const DECREASE_INTERVAL: Duration = Duration::from_millis(300);
/// A loss fraction needs so many packets (`kLimitNumPackets`).
const PACKETS_MIN: u32 = 20;
/// … and so much time. Half of libwebrtc's `kLossUpdateInterval` (goog_cc_network_control.cc), because a layer can only
/// be changed in large steps.
const INTERVAL: Duration = Duration::from_millis(500);

/// Collects reports until they make a fraction.
#[derive(Debug)]
pub(super) struct LossWindow {
    since: Instant,
    reported: u32,
    lost: u32,
}

impl LossWindow {
    pub(super) fn new(now: Instant) -> Self {
        LossWindow { since: now, reported: 0, lost: 0 }
    }

    pub(super) fn on_lost(&mut self) {
        self.reported += 1;
        self.lost += 1;
    }

    /// Takes a packet that arrived; one that was counted as lost before is no longer.
    pub(super) fn on_received(&mut self, was_lost: bool) {
        if was_lost {
            self.lost = self.lost.saturating_sub(1);
        } else {
            self.reported += 1;
        }
    }

    /// The lost share, 0 to 1, of an interval that has ended.
    pub(super) fn poll(&mut self, now: Instant) -> Option<f64> {
        if self.reported < PACKETS_MIN || now.saturating_duration_since(self.since) < INTERVAL {
            return None;
        }
        let loss = f64::from(self.lost) / f64::from(self.reported);
        *self = LossWindow::new(now);
        Some(loss)
    }
}

/// A rate that loss moves.
#[derive(Debug)]
pub(super) struct LossBound {
    pub(super) bps: f64,
    min_bps: f64,
    max_bps: f64,
    changed: Instant,
    reduced: Option<Instant>,
    /// Share that is lost however little is sent.
    inherent: f64,
    /// What was sent and lost before the last decrease, while it is not known whether it helped.
    before: Option<Trial>,
}

/// Finds out whether less is lost when less is sent (the question of libwebrtc's loss_based_bwe_v2.cc, asked once).
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// It ends then.
    until: Instant,
    sent_bps: f64,
    loss: f64,
    /// Fractions since so much less was sent that it should be felt: how many, and their sum.
    count: u32,
    sum: f64,
}

/// So much less has to be sent for so many fractions, and if then this share of the loss is still there, it is no congestion.
const TRIAL_SENT: f64 = 0.7;
const TRIAL_COUNT: u32 = 4;
const TRIAL_LOSS: f64 = 0.6;
/// What was lost longer ago says nothing about what is lost now: so long, or so many fractions where these are rarer, as those
/// of receiver reports may be, of which sound's come each 5 s from libwebrtc (`kDefaultAudioReportInterval`).
const TRIAL_TIME: Duration = Duration::from_secs(15);
const TRIAL_FRACTIONS: u32 = 8;
const TRIAL_TIME_MAX: Duration = Duration::from_secs(45);
/// How fast it is forgotten when less is lost, per fraction.
const INHERENT_DECAY: f64 = 0.1;
/// More than this is never taken for the path's nature.
pub(super) const INHERENT_MAX: f64 = 0.25;

impl LossBound {
    pub(super) fn new(now: Instant, start_bps: f64, min_bps: f64, max_bps: f64) -> Self {
        let bps = start_bps.clamp(min_bps, max_bps);
        LossBound { bps, min_bps, max_bps, changed: now, reduced: None, inherent: 0.0, before: None }
    }

    /// Takes a loss fraction of what was sent, and the smoothed one: both have to be high, for a few packets make the first.
    /// A decrease starts from what was sent: what arrived of it is carried in any case, and what nobody sent was not lost.
    pub(super) fn on_loss(&mut self, now: Instant, loss: f64, smoothed: f64, sent_bps: f64, rtt: Duration) {
        let since = now.saturating_duration_since(self.changed);
        let seconds = since.as_secs_f64().min(1.0);
        self.changed = now;
        self.judge(now, loss, sent_bps);
        if loss <= LOSS_LOW + self.inherent {
            self.bps = (self.bps * GROWTH.powf(seconds) + 1_000.0).min(self.max_bps);
        } else if self.is_high(loss) && self.is_high(smoothed) {
            let pause = DECREASE_INTERVAL + rtt;
            if self.reduced.is_none_or(|at| now.saturating_duration_since(at) >= pause) {
                self.bps = self.bps.min(sent_bps * (1.0 - loss / 2.0)).max(self.min_bps);
                self.reduced = Some(now);
                let until = now + (since * TRIAL_FRACTIONS).clamp(TRIAL_TIME, TRIAL_TIME_MAX);
                self.before.get_or_insert(Trial { until, sent_bps, loss: smoothed, count: 0, sum: 0.0 });
            }
        }
    }

    /// Whether so much loss is congestion.
    pub(super) fn is_high(&self, loss: f64) -> bool {
        loss > LOSS_HIGH + self.inherent
    }

    fn judge(&mut self, now: Instant, loss: f64, sent_bps: f64) {
        self.inherent -= INHERENT_DECAY * (self.inherent - loss).max(0.0);
        self.before = self.before.filter(|trial| now < trial.until);
        let Some(trial) = &mut self.before else { return };
        if sent_bps > TRIAL_SENT * trial.sent_bps {
            return;
        }
        trial.count += 1;
        trial.sum += loss;
        if trial.count < TRIAL_COUNT {
            return;
        }
        let mean = trial.sum / f64::from(trial.count);
        if mean >= TRIAL_LOSS * trial.loss {
            self.inherent = mean.min(INHERENT_MAX);
        }
        self.before = None;
    }

    /// Whether it ever fell.
    pub(super) fn was_lowered(&self) -> bool {
        self.reduced.is_some()
    }

    pub(super) fn raise_to(&mut self, proven_bps: f64) {
        self.bps = self.bps.max(proven_bps).min(self.max_bps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_holds_and_falls_with_loss() {
        let start = Instant::now();
        let mut bound = LossBound::new(start, 1e6, 50e3, 5e6);
        let second = Duration::from_secs(1);
        bound.on_loss(start + second, 0.01, 0.01, 1e6, Duration::ZERO);
        assert_eq!(bound.bps.round(), 1_081_000.0);
        bound.on_loss(start + 2 * second, 0.05, 0.05, 1e6, Duration::ZERO);
        assert_eq!(bound.bps.round(), 1_081_000.0);
        bound.on_loss(start + 3 * second, 0.2, 0.2, 1e6, Duration::ZERO);
        assert_eq!(bound.bps.round(), 900_000.0);
    }

    /// Half-second fractions of a path on which so much is lost of so much that is sent.
    fn lose(bound: &mut LossBound, from: Instant, count: u32, loss: f64, sent_bps: f64) {
        (0..count).for_each(|half| bound.on_loss(from + INTERVAL * half, loss, loss, sent_bps, Duration::ZERO));
    }

    #[test]
    fn the_bound_falls_from_what_was_sent_and_not_below_what_arrives_of_it() {
        let start = Instant::now();
        for (bps, falls_to) in [(5e6, 925e3), (1e6, 925e3), (500e3, 500e3)] {
            let mut bound = LossBound::new(start, bps, 50e3, 5e6);
            lose(&mut bound, start, 100, 0.15, 1e6);
            assert_eq!(bound.bps.round(), falls_to, "from {bps}");
        }
    }

    #[test]
    fn loss_that_stays_when_less_is_sent_is_no_congestion() {
        let start = Instant::now();
        for (loss_after, grows) in [(0.15, true), (0.05, false)] {
            let mut bound = LossBound::new(start, 1e6, 50e3, 5e6);
            lose(&mut bound, start, 10, 0.15, 1e6);
            lose(&mut bound, start + 10 * INTERVAL, 20, loss_after, 300e3);
            let before = bound.bps;
            lose(&mut bound, start + 30 * INTERVAL, 20, loss_after, 300e3);
            assert_eq!(bound.bps > before, grows, "{loss_after}");
        }
        // What comes on top of it is congestion again, and when less is lost it is forgotten.
        let mut bound = LossBound { inherent: 0.15, ..LossBound::new(start, 1e6, 50e3, 5e6) };
        assert!(!bound.is_high(0.2) && bound.is_high(0.3));
        lose(&mut bound, start, 50, 0.0, 1e6);
        assert!(bound.is_high(0.12));
    }

    #[test]
    fn loss_that_stays_is_known_from_rare_reports_too() {
        let start = Instant::now();
        for interval in [1, 3, 5] {
            let mut bound = LossBound::new(start, 1e6, 50e3, 5e6);
            let at = |report: u32| start + Duration::from_secs(interval) * report;
            (1..5).for_each(|report| bound.on_loss(at(report), 0.15, 0.15, 1e6, Duration::ZERO));
            (5..10).for_each(|report| bound.on_loss(at(report), 0.15, 0.15, 300e3, Duration::ZERO));
            assert!(bound.inherent > 0.1, "a report each {interval} s");
        }
    }

    #[test]
    fn what_is_lost_long_after_a_decrease_is_not_held_against_it() {
        let start = Instant::now();
        for (later, is_inherent) in [(Duration::from_secs(5), true), (Duration::from_secs(60), false)] {
            let mut bound = LossBound::new(start, 1e6, 50e3, 5e6);
            lose(&mut bound, start, 4, 0.15, 1e6);
            // The viewer wants less by itself, and meets other loss.
            lose(&mut bound, start + later, 4, 0.12, 300e3);
            assert_eq!(bound.inherent > 0.0, is_inherent, "{later:?}");
        }
    }

    #[test]
    fn a_window_waits_for_packets_and_time_and_takes_late_arrivals_back() {
        let start = Instant::now();
        let mut window = LossWindow::new(start);
        for _ in 0..19 {
            window.on_received(false);
        }
        assert_eq!(window.poll(start + INTERVAL), None);
        window.on_lost();
        assert_eq!(window.poll(start + INTERVAL / 2), None);
        window.on_lost();
        window.on_received(true);
        assert_eq!(window.poll(start + INTERVAL), Some(1.0 / 21.0));
    }
}
