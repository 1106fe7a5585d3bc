//! The sender's clock on ours: when each reference would have come if the network always took the same time.
//!
//! In: references with their times of arrival, both of which are uneven and drift apart. Out: a time for each reference,
//! on a line that is nearly straight: its slope changes by parts per million only, so what is sent by it is as even as
//! the sender meant it, and it follows the sender's clock however many hours that runs.
//! How: the mean error of each second goes into a filter of place and drift, with the gains of a least-squares fit of
//! the time so far, and later of the last quarter of an hour; the line turns towards what the filter says, by no more
//! than `SLEW_MAX` beyond the drift.
//! Cost: a multiplication and an addition per reference.
//! Source: Brookner, Tracking and Kalman Filtering Made Easy, §1.2.10 (expanding-memory g-h filter); ISO/IEC 13818-1
//! Annex D.0.3 (recovery of the system clock).

use wire::ts::Pcr;

/// A reference that is further off starts the line anew.
pub(super) const JUMP_NS: i64 = 1_000_000_000;

/// Sender's time over which errors are averaged, and how many there have to be, so that one does not decide.
const WINDOW: i64 = Pcr::HZ as i64;
const WINDOW_COUNT: u32 = 5;

/// Windows that the filter begins with, as if they had said that there is no drift, and that it remembers at most.
const WINDOWS_MIN: f64 = 30.0;
const WINDOWS_MAX: f64 = 900.0;

/// No clock drifts by more (the standard allows 30 ppm).
const DRIFT_MAX: f64 = 500e-6;

/// How fast the line goes to where it should be, at most, and in how many seconds otherwise.
const SLEW_MAX: f64 = 100e-6;
const SLEW_SECONDS: f64 = 30.0;

/// Times are nanoseconds of the receiver's clock, from any zero.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    /// All errors of a second beyond this on the same side move the line at once.
    step_ns: i64,
    from: Pcr,
    at_ns: i64,
    last: Pcr,
    /// The line's slope, less one.
    rate: f64,
    /// What the filter thinks: the sender's slope, less one, and how far behind the line references arrive.
    drift: f64,
    offset_ns: f64,
    windows: f64,
    window: Window,
    /// How often the line had to be moved.
    pub(super) steps: u64,
    /// From the earliest reference to the latest in the last window.
    pub(super) jitter_ns: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    sum_ns: f64,
    count: u32,
    min_ns: i64,
    max_ns: i64,
}

impl Recovery {
    /// Begins with a reference that stands for `at_ns`.
    pub(super) fn new(pcr: Pcr, at_ns: i64, step_ns: i64) -> Self {
        Recovery {
            step_ns,
            from: pcr,
            at_ns,
            last: pcr,
            rate: 0.0,
            drift: 0.0,
            offset_ns: 0.0,
            windows: WINDOWS_MIN,
            window: Window::default(),
            steps: 0,
            jitter_ns: 0,
        }
    }

    /// The reference stands for this time, and those behind it count from here. The drift is taken to stay.
    pub(super) fn restart(&mut self, pcr: Pcr, at_ns: i64) {
        let (drift, steps, jitter_ns) = (self.drift, self.steps, self.jitter_ns);
        *self = Recovery { rate: drift, drift, steps, jitter_ns, ..Recovery::new(pcr, at_ns, self.step_ns) };
    }

    /// The time for which a reference stands.
    pub(super) fn time_of(&self, pcr: Pcr) -> i64 {
        let ticks = self.from.ticks_to(pcr);
        let ns = (i128::from(ticks) * 1_000 / 27) as i64;
        self.at_ns + ns + (ns as f64 * self.rate) as i64
    }

    /// Whether a reference continues those before, when it arrived at `arrived_ns`.
    pub(super) fn continues(&self, pcr: Pcr, arrived_ns: i64) -> bool {
        let is_near = arrived_ns.saturating_sub(self.time_of(pcr)).abs() <= JUMP_NS;
        is_near && self.last.ticks_to(pcr) >= 0
    }

    /// Takes a reference that continues those before. Returns the time for which it stands.
    pub(super) fn note(&mut self, pcr: Pcr, arrived_ns: i64) -> i64 {
        let time_ns = self.time_of(pcr);
        self.last = pcr;
        self.window.add(arrived_ns.saturating_sub(time_ns));
        let ticks = self.from.ticks_to(pcr);
        if ticks >= WINDOW && self.window.count >= WINDOW_COUNT {
            (self.from, self.at_ns) = (pcr, time_ns);
            self.end_window(ticks as f64 / Pcr::HZ as f64);
        }
        time_ns
    }

    fn end_window(&mut self, seconds: f64) {
        let window = std::mem::take(&mut self.window);
        self.jitter_ns = window.max_ns - window.min_ns;
        let mean_ns = window.sum_ns / f64::from(window.count);
        let offset_ns = self.offset_ns + (self.drift - self.rate) * seconds * 1e9;
        let off = offset_ns as i64;
        if window.min_ns - off > self.step_ns || window.max_ns - off < -self.step_ns {
            self.steps += 1;
            self.at_ns += mean_ns as i64;
            (self.offset_ns, self.windows, self.rate) = (0.0, WINDOWS_MIN, self.drift);
            return;
        }
        let n = self.windows;
        let (gain, drift_gain) = (2.0 * (2.0 * n - 1.0) / (n * (n + 1.0)), 6.0 / (n * (n + 1.0)));
        let residual_ns = mean_ns - offset_ns;
        self.offset_ns = offset_ns + gain * residual_ns;
        self.drift = (self.drift + drift_gain * residual_ns / 1e9 / seconds).clamp(-DRIFT_MAX, DRIFT_MAX);
        self.windows = (n + 1.0).min(WINDOWS_MAX);
        self.rate = self.drift + (self.offset_ns / 1e9 / SLEW_SECONDS).clamp(-SLEW_MAX, SLEW_MAX);
    }

    /// How much slower the sender's clock is than ours, in parts per million.
    pub(super) fn drift_ppm(&self) -> f64 {
        self.drift * 1e6
    }
}

impl Window {
    fn add(&mut self, error_ns: i64) {
        (self.min_ns, self.max_ns) = match self.count {
            0 => (error_ns, error_ns),
            _ => (self.min_ns.min(error_ns), self.max_ns.max(error_ns)),
        };
        self.sum_ns += error_ns as f64;
        self.count = self.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 33 ms, as multiplexers do.
    const STEP: u64 = Pcr::HZ * 33 / 1_000;
    const MS: i64 = 1_000_000;

    /// A sender whose clock is slower by `ppm`, over a network with even jitter of ±`jitter_ns`.
    struct Sender {
        ppm: f64,
        jitter_ns: i64,
        ticks: u64,
        random: u64,
    }

    impl Sender {
        fn new(ppm: f64, jitter_ns: i64) -> Self {
            // Half an hour before the wrap.
            Sender { ppm, jitter_ns, ticks: Pcr::MODULUS - 1_800 * Pcr::HZ, random: 7 }
        }

        /// The next reference, when it was sent, and when it arrives.
        fn next(&mut self) -> (Pcr, i64, i64) {
            self.ticks += STEP;
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (self.random >> 33) as i64;
            let passed = (self.ticks - (Pcr::MODULUS - 1_800 * Pcr::HZ)) as f64 * 1_000.0 / 27.0;
            let sent_ns = (passed * (1.0 + self.ppm / 1e6)) as i64;
            let jitter_ns = if self.jitter_ns == 0 { 0 } else { random % (2 * self.jitter_ns) - self.jitter_ns };
            (Pcr::from_ticks(self.ticks), sent_ns, sent_ns + 100 * MS + jitter_ns)
        }
    }

    fn begun(sender: &mut Sender) -> Recovery {
        let first: Vec<(Pcr, i64, i64)> = (0..15).map(|_| sender.next()).collect();
        let (zero, ..) = first[0];
        let ns_to = |pcr| zero.ticks_to(pcr) * 1_000 / 27;
        let at_ns = first.iter().map(|(pcr, _, arrived)| arrived - ns_to(*pcr)).sum::<i64>() / first.len() as i64;
        Recovery::new(zero, at_ns, 100 * MS)
    }

    #[test]
    fn a_drifting_clock_is_followed_for_hours_without_underrun_or_growing_delay() {
        for ppm in [-100.0, 0.0, 100.0] {
            let mut sender = Sender::new(ppm, 50 * MS);
            let mut recovery = begun(&mut sender);
            let (mut worst, mut late_worst): (i64, i64) = (0, 0);
            for count in 0..3 * 3_600 * 1_000 / 33 {
                let (pcr, sent_ns, arrived_ns) = sender.next();
                assert!(recovery.continues(pcr, arrived_ns));
                // 100 ms behind the sender, as the network is on average.
                let off = recovery.note(pcr, arrived_ns) - sent_ns - 100 * MS;
                worst = worst.max(off.abs());
                if count > 600 * 1_000 / 33 {
                    late_worst = late_worst.max(off.abs());
                }
            }
            assert!(worst < 25 * MS, "{ppm} ppm: off by {worst} ns");
            assert!(late_worst < 4 * MS, "{ppm} ppm: off by {late_worst} ns after ten minutes");
            assert!((recovery.drift_ppm() - ppm).abs() < 5.0, "{ppm} ppm: {}", recovery.drift_ppm());
            assert_eq!(recovery.steps, 0);
        }
    }

    #[test]
    fn the_line_is_even_however_uneven_arrivals_are() {
        let mut sender = Sender::new(60.0, 50 * MS);
        let mut recovery = begun(&mut sender);
        let mut before: Option<(i64, i64)> = None;
        for _ in 0..600 * 1_000 / 33 {
            let (pcr, sent_ns, arrived_ns) = sender.next();
            let time_ns = recovery.note(pcr, arrived_ns);
            if let Some((sent_before, time_before)) = before.replace((sent_ns, time_ns)) {
                let off = (time_ns - time_before) - (sent_ns - sent_before);
                assert!(off.abs() < 25_000, "a step of 33 ms is off by {off} ns");
            }
        }
        assert!((80 * MS..=100 * MS).contains(&recovery.jitter_ns));
    }

    #[test]
    fn a_sender_that_is_late_from_now_on_moves_the_line_within_seconds() {
        let mut sender = Sender::new(0.0, 10 * MS);
        let mut recovery = begun(&mut sender);
        for count in 0..600 {
            let (pcr, sent_ns, arrived_ns) = sender.next();
            let late_ns = if count >= 300 { 400 * MS } else { 0 };
            let off = recovery.note(pcr, arrived_ns + late_ns) - sent_ns - 100 * MS - late_ns;
            assert!(off.abs() < 12 * MS || (300..400).contains(&count), "reference {count} is off by {off} ns");
        }
        assert_eq!(recovery.steps, 1);
    }

    #[test]
    fn what_does_not_continue_is_told() {
        let mut sender = Sender::new(0.0, 0);
        let mut recovery = begun(&mut sender);
        let (pcr, _, arrived_ns) = sender.next();
        recovery.note(pcr, arrived_ns);
        assert!(!recovery.continues(pcr.plus(40 * Pcr::HZ as i64), arrived_ns + MS));
        assert!(!recovery.continues(pcr.plus(-1), arrived_ns + MS));
        assert!(!recovery.continues(pcr, arrived_ns + 2 * JUMP_NS));
        assert!(recovery.continues(pcr.plus(1), arrived_ns + MS));
    }
}
