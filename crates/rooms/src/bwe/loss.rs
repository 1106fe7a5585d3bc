//! Bounds the rate by loss, for paths that drop before they delay.
//!
//! In: how many packets were reported and lost. Out: a loss fraction each half second, and a rate adjusted by it.
//! Cost: O(1). Source: draft-ietf-rmcat-gcc-02 §6; libwebrtc
//! modules/congestion_controller/goog_cc/send_side_bandwidth_estimation.cc.

use std::time::{Duration, Instant};

/// Below this loss the rate grows, above the other it falls, between them it stays (`kDefaultLowLossThreshold`,
/// `kDefaultHighLossThreshold`).
const LOSS_LOW: f64 = 0.02;
pub(super) const LOSS_HIGH: f64 = 0.10;
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
}

impl LossBound {
    pub(super) fn new(now: Instant, start_bps: f64, min_bps: f64, max_bps: f64) -> Self {
        let bps = start_bps.clamp(min_bps, max_bps);
        LossBound { bps, min_bps, max_bps, changed: now, reduced: None }
    }

    /// Takes a loss fraction; a decrease starts from `sending_bps`, the rate that met the loss.
    pub(super) fn on_loss(&mut self, now: Instant, loss: f64, sending_bps: f64, rtt: Duration) {
        let seconds = now.saturating_duration_since(self.changed).as_secs_f64().min(1.0);
        self.changed = now;
        if loss <= LOSS_LOW {
            self.bps = (self.bps * GROWTH.powf(seconds) + 1_000.0).min(self.max_bps);
        } else if loss > LOSS_HIGH {
            let pause = DECREASE_INTERVAL + rtt;
            if self.reduced.is_none_or(|at| now.saturating_duration_since(at) >= pause) {
                self.bps = (self.bps.min(sending_bps) * (1.0 - loss / 2.0)).max(self.min_bps);
                self.reduced = Some(now);
            }
        }
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
        bound.on_loss(start + second, 0.01, 1e6, Duration::ZERO);
        assert_eq!(bound.bps.round(), 1_081_000.0);
        bound.on_loss(start + 2 * second, 0.05, 1e6, Duration::ZERO);
        assert_eq!(bound.bps.round(), 1_081_000.0);
        bound.on_loss(start + 3 * second, 0.2, 1e6, Duration::ZERO);
        assert_eq!(bound.bps.round(), 900_000.0);
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
