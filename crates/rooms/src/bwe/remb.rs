//! Bounds the rate by what a receiver says that it takes (REMB), where there is no transport-wide feedback.
//!
//! In: each message's rate, and the rate that was sent lately. Out: a bound. Cost: O(1) per message.
//! Source: draft-alvestrand-rmcat-remb-03; libwebrtc modules/remote_bitrate_estimator for what receivers mean by it.
//!
//! A receiver's estimate grows with what it gets, to half as much again (`AimdRateControl::ChangeBitrate`), and a larger
//! layer is more than that. So a rate that does not fall says only that nothing stands in the way yet: the bound grows on its
//! own then, until the layer is tried, and the message after that says whether it was too much. One that rises says that what was
//! sent has passed.

use std::time::Instant;

/// Growth per second, as the loss bound's.
const GROWTH: f64 = 1.08;
/// A rate that is lower than the last by less has not fallen: receivers send at once what fell by more (`kRembSendThreshold`
/// in remb_throttler.cc is 97 %).
const FALLEN: f64 = 0.97;
/// Less than this share of what was sent, and not rising: so much the receiver takes, or its path.
const SHORT: f64 = 0.85;

#[derive(Clone, Copy, Debug)]
pub(super) struct RembBound {
    pub(super) bps: f64,
    /// What the receiver said last.
    said_bps: f64,
    changed: Instant,
}

impl RembBound {
    /// Begins with the first message. It is no bound when it is about what was sent: receivers begin with what they got.
    pub(super) fn new(now: Instant, said_bps: f64, sent_bps: f64) -> Self {
        let bps = if said_bps < SHORT * sent_bps { said_bps } else { f64::MAX };
        RembBound { bps, said_bps, changed: now }
    }

    pub(super) fn on_message(&mut self, now: Instant, said_bps: f64, sent_bps: f64) {
        let is_short = said_bps < SHORT * sent_bps && said_bps <= self.said_bps;
        self.bps = if said_bps < FALLEN * self.said_bps || is_short {
            said_bps
        } else {
            let seconds = now.saturating_duration_since(self.changed).as_secs_f64().min(1.0);
            let passed_bps = if said_bps > self.said_bps { sent_bps } else { 0.0 };
            said_bps.max(self.bps * GROWTH.powf(seconds)).max(passed_bps)
        };
        (self.said_bps, self.changed) = (said_bps, now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The bound after messages of each second, in kbit/s: what was said, and what was sent.
    fn after(messages: &[(f64, f64)]) -> f64 {
        let start = Instant::now();
        let mut bound = RembBound::new(start, messages[0].0 * 1e3, messages[0].1 * 1e3);
        for (second, (said, sent)) in (1..).zip(&messages[1..]) {
            bound.on_message(start + Duration::from_secs(second), said * 1e3, sent * 1e3);
        }
        bound.bps / 1e3
    }

    #[test]
    fn what_falls_or_stays_below_what_is_sent_is_a_bound() {
        assert_eq!(after(&[(600.0, 2_500.0)]), 600.0);
        assert_eq!(after(&[(3_000.0, 2_500.0), (1_000.0, 2_500.0)]), 1_000.0);
        assert_eq!(after(&[(700.0, 500.0), (700.0, 2_500.0)]), 700.0);
    }

    #[test]
    fn what_does_not_fall_bounds_less_and_less() {
        assert_eq!(after(&[(2_400.0, 2_500.0)]), f64::MAX / 1e3);
        let mut messages = vec![(600.0, 2_500.0)];
        messages.extend([(750.0, 500.0); 20]);
        assert!(after(&messages) > 2_500.0, "a larger layer can be tried");
        // It takes the receiver long to believe in it, and that is no reason to come down.
        messages.extend([(800.0, 2_500.0), (860.0, 2_500.0), (930.0, 2_500.0)]);
        assert!(after(&messages) > 3_000.0);
        messages.push((800.0, 2_500.0));
        assert_eq!(after(&messages), 800.0);
    }

    /// A receiver at its limit says the same twice when a stream becomes ten times as much.
    #[test]
    fn what_was_sent_while_the_rate_rose_has_passed() {
        assert_eq!(after(&[(160.0, 150.0), (160.0, 1_000.0)]), 160.0);
        assert_eq!(after(&[(160.0, 150.0), (160.0, 1_000.0), (172.0, 1_000.0)]), 1_000.0);
    }
}
