//! The rate at which packets arrive at the receiver.
//!
//! In: arrival time and size of each received packet. Out: a smoothed rate, once half a second has been seen, and the
//! latest.
//! Cost: O(1) per packet. Source: libwebrtc modules/congestion_controller/goog_cc/bitrate_estimator.cc.

/// Length of the first sample, and of all others, in µs (`kInitialRateWindowMs`, `kRateWindowMs`).
const FIRST_WINDOW_US: i64 = 500_000;
const WINDOW_US: i64 = 150_000;
/// A window of which so much is over says something.
const PART_US: i64 = 75_000;
/// How strongly a deviating sample is doubted (`uncertainty_scale`).
const DOUBT: f64 = 10.0;
/// Variance at the start, and what each sample adds to it (`bitrate_estimate_var_`, and 5 in `Update`).
const VARIANCE_START: f64 = 50.0;
const VARIANCE_STEP: f64 = 5.0;

/// Acknowledged-bitrate estimator: a Bayesian filter over fixed windows.
#[derive(Debug)]
pub(super) struct AckedRate {
    kbps: Option<f64>,
    variance: f64,
    last_us: Option<i64>,
    window_us: i64,
    bytes: u64,
    /// The last sample as it was.
    sample_kbps: f64,
}

impl AckedRate {
    pub(super) fn new() -> Self {
        AckedRate { kbps: None, variance: VARIANCE_START, last_us: None, window_us: 0, bytes: 0, sample_kbps: 0.0 }
    }

    /// Takes a packet, or several that arrived at one time.
    pub(super) fn on_packet(&mut self, arrival_us: i64, bytes: u64) {
        let limit_us = if self.kbps.is_some() { WINDOW_US } else { FIRST_WINDOW_US };
        let passed_us = self.last_us.map_or(0, |last_us| arrival_us.saturating_sub(last_us));
        if passed_us < -limit_us || passed_us > limit_us {
            // A pause or a clock that jumped: what was collected belongs to no window.
            self.window_us = 0;
            self.bytes = 0;
            self.last_us = Some(arrival_us);
        } else if passed_us >= 0 {
            self.window_us += passed_us;
            self.last_us = Some(arrival_us);
        }
        if self.window_us >= limit_us {
            self.on_sample(self.bytes as f64 * 8e3 / limit_us as f64);
            self.window_us -= limit_us;
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Bits per second; `None` before the first sample.
    pub(super) fn bps(&self) -> Option<f64> {
        self.kbps.map(|kbps| kbps * 1e3)
    }

    /// The rate of the last window, or of the present one as far as it went, where that is more. When a queue has just
    /// begun to grow, this is what the path carries, and the smoothed rate is still that of before.
    pub(super) fn latest_bps(&self) -> Option<f64> {
        let smoothed_bps = self.bps()?;
        let present_bps = if self.window_us >= PART_US { self.bytes as f64 * 8e6 / self.window_us as f64 } else { 0.0 };
        Some(smoothed_bps.max(self.sample_kbps * 1e3).max(present_bps))
    }

    fn on_sample(&mut self, sample_kbps: f64) {
        self.sample_kbps = sample_kbps;
        let Some(kbps) = self.kbps else {
            self.kbps = Some(sample_kbps);
            return;
        };
        let doubt = DOUBT * (kbps - sample_kbps).abs() / kbps.max(1.0);
        let sample_variance = doubt * doubt;
        let own_variance = self.variance + VARIANCE_STEP;
        let sum = sample_variance + own_variance;
        self.kbps = Some((sample_variance * kbps + own_variance * sample_kbps) / sum);
        self.variance = sample_variance * own_variance / sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_is_measured_and_a_change_is_followed() {
        let mut rate = AckedRate::new();
        for i in 0..200 {
            rate.on_packet(i * 10_000, 1_250);
        }
        assert!((rate.bps().unwrap() / 1e6 - 1.0).abs() < 0.05, "{:?}", rate.bps());
        for i in 0..100 {
            rate.on_packet(2_000_000 + i * 20_000, 1_250);
        }
        assert!((rate.bps().unwrap() / 0.5e6 - 1.0).abs() < 0.1, "{:?}", rate.bps());
    }
}
