//! When each packet of a title is due: piecewise linear between the program clock references in it.
//!
//! In: marks (a PCR and the packet that carries it), in order. Out: nanoseconds from the first mark to any packet.
//! Times are absolute: each is computed from whole ticks of 27 MHz, so nothing adds up over hours. Between two marks
//! packets are spread evenly, whatever the rate is there; a constant rate and a variable one are the same thing.
//! Where the references do not continue (the discontinuity indicator, backwards, an unlikely step) time goes on at the
//! rate that was, and counts by the new references from there.
//! Cost: one multiplication and one division per time asked for.
//! Source: ISO/IEC 13818-1 §2.4.2.2 (arrival times between PCRs), §2.4.3.5 (discontinuity).

use wire::Bitrate;
use wire::ts::{PACKET_LEN, Pcr};

/// A step of at most this many ticks (500 ms) is believed whatever rate it means. The standard allows 100 ms.
const STEP_SURE: u64 = Pcr::HZ / 2;

/// No longer step is believed (30 s).
const STEP_MAX: u64 = 30 * Pcr::HZ;

/// A long step is believed when the rate that it means is not below the rate before by more than this factor. A jump
/// ahead looks like a sudden crawl: the bytes of a moment, and the time of minutes.
const SLOWER_MAX: u64 = 16;

/// A reference, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Packets from the title's start.
    pub position: u64,
    /// The reference there.
    pub pcr: Pcr,
    /// The sender says that this reference does not continue those before it.
    pub discontinuity: bool,
}

/// Ticks of 27 MHz that a number of packets takes. Neither is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slope {
    /// So many packets
    pub packets: u64,
    /// in so many ticks of 27 MHz.
    pub ticks: u64,
}

impl Slope {
    /// `None` at rate zero.
    pub fn of_rate(rate: Bitrate) -> Option<Slope> {
        let packets = rate.bps();
        (packets > 0).then_some(Slope { packets, ticks: PACKET_LEN as u64 * 8 * Pcr::HZ })
    }

    /// The rate of the packets' bytes.
    pub fn rate(self) -> Bitrate {
        let bits = u128::from(self.packets) * PACKET_LEN as u128 * 8;
        Bitrate::from_bps(u64::try_from(bits * u128::from(Pcr::HZ) / u128::from(self.ticks)).unwrap_or(u64::MAX))
    }

    /// Nanoseconds that `packets` take, rounded down.
    pub fn ns(self, packets: u64) -> i64 {
        let ns = i128::from(packets) * i128::from(self.ticks) * 1_000 / (27 * i128::from(self.packets));
        i64::try_from(ns).unwrap_or(i64::MAX)
    }
}

/// The running time of a title.
#[derive(Clone, Debug)]
pub struct Clock {
    from: Mark,
    /// Ticks from the first mark to `from`.
    ticks: i64,
    slope: Slope,
    until: Option<Mark>,
    jumps: u64,
}

impl Clock {
    /// Begins with zero at a mark. Until the next one is known, time passes at the rate of `slope`.
    pub fn new(from: Mark, slope: Slope) -> Self {
        Clock { from, ticks: 0, slope, until: None, jumps: 0 }
    }

    /// The mark behind which time counts now.
    pub fn from(&self) -> Mark {
        self.from
    }

    /// The mark up to which time is known. `None`: nobody said what comes next.
    pub fn until(&self) -> Option<Mark> {
        self.until
    }

    /// The rate that holds at present.
    pub fn slope(&self) -> Slope {
        self.slope
    }

    /// Marks so far that did not continue those before them and did not say so.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Takes the mark that follows `from`. One that does not stand behind it is ignored.
    pub fn aim(&mut self, next: Mark) {
        if next.position <= self.from.position {
            return;
        }
        if let Some(slope) = self.believed(next) {
            self.slope = slope;
        }
        self.until = Some(next);
    }

    /// Goes on to the mark last aimed at. **Aim again afterwards**; until then the rate stays.
    pub fn reach(&mut self) {
        let Some(next) = self.until.take() else { return };
        // Rounded up, so that time does not run back by a part of a tick; without a jump nothing is to be rounded.
        let packets = i128::from(next.position) - i128::from(self.from.position);
        let (all, step) = (i128::from(self.slope.packets), i128::from(self.slope.ticks));
        self.ticks = self.ticks.saturating_add((packets * step + all - 1).div_euclid(all) as i64);
        self.jumps += u64::from(self.jumps_to(next));
        self.from = next;
    }

    /// Whether a mark behind `from` does not continue it, and does not say so.
    pub fn jumps_to(&self, next: Mark) -> bool {
        !next.discontinuity && self.believed(next).is_none()
    }

    /// Nanoseconds from the first mark to the packet at `position`, which may also lie before it.
    #[inline]
    pub fn ns_at(&self, position: u64) -> i64 {
        let packets = i128::from(position) - i128::from(self.from.position);
        let (all, step) = (i128::from(self.slope.packets), i128::from(self.slope.ticks));
        let ns = (i128::from(self.ticks) * 1_000 * all + packets * step * 1_000).div_euclid(27 * all);
        ns as i64
    }

    /// Ticks of 27 MHz from the first mark to the packet at `position`.
    pub fn ticks_at(&self, position: u64) -> i64 {
        self.ticks.saturating_add(self.ticks_from_mark(position))
    }

    /// The reference that the packet at `position` would carry.
    pub fn pcr_at(&self, position: u64) -> Pcr {
        self.from.pcr.plus(self.ticks_from_mark(position))
    }

    fn ticks_from_mark(&self, position: u64) -> i64 {
        let packets = i128::from(position) - i128::from(self.from.position);
        (packets * i128::from(self.slope.ticks)).div_euclid(i128::from(self.slope.packets)) as i64
    }

    /// The rate up to `next`, when its reference continues that of `from`.
    fn believed(&self, next: Mark) -> Option<Slope> {
        let packets = next.position - self.from.position;
        let ticks = u64::try_from(self.from.pcr.ticks_to(next.pcr)).ok()?;
        if next.discontinuity || ticks == 0 || ticks > STEP_MAX {
            return None;
        }
        let crawls = u128::from(ticks) * u128::from(self.slope.packets)
            > u128::from(SLOWER_MAX) * u128::from(self.slope.ticks) * u128::from(packets);
        (ticks <= STEP_SURE || !crawls).then_some(Slope { packets, ticks })
    }
}

/// The mean rate over a row of marks, those left out that do not continue; `None` when no two do.
pub fn mean_slope(marks: &[Mark]) -> Option<Slope> {
    let mut sum = Slope { packets: 0, ticks: 0 };
    for pair in marks.windows(2) {
        let packets = pair[1].position.saturating_sub(pair[0].position);
        match u64::try_from(pair[0].pcr.ticks_to(pair[1].pcr)) {
            Ok(ticks @ 1..=STEP_SURE) if packets > 0 && !pair[1].discontinuity => {
                sum = Slope { packets: sum.packets + packets, ticks: sum.ticks + ticks };
            }
            _ => {}
        }
    }
    (sum.packets > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 4.5 Mbit/s.
    const RATE: Slope = Slope { packets: 4_500_000, ticks: 188 * 8 * 27_000_000 };

    fn mark(position: u64, ticks: u64) -> Mark {
        Mark { position, pcr: Pcr::from_ticks(ticks), discontinuity: false }
    }

    /// Follows the marks up to `position`.
    fn clock_at(marks: &[Mark], position: u64) -> Clock {
        let mut clock = Clock::new(marks[0], RATE);
        for next in &marks[1..] {
            clock.aim(*next);
            if next.position > position {
                break;
            }
            clock.reach();
        }
        clock
    }

    fn ns_at(marks: &[Mark], position: u64) -> i64 {
        clock_at(marks, position).ns_at(position)
    }

    #[test]
    fn packets_between_two_references_are_spread_evenly_at_any_rate() {
        // 100 packets in 10 ms, 100 in 40 ms.
        let marks = [mark(50, 1_000), mark(150, 271_000), mark(250, 1_351_000)];
        let times: Vec<i64> = [50, 51, 100, 150, 151, 200, 250].map(|at| ns_at(&marks, at)).into();
        assert_eq!(times, [0, 100_000, 5_000_000, 10_000_000, 10_400_000, 30_000_000, 50_000_000]);
        assert_eq!(clock_at(&marks, 100).ns_at(40), -1_000_000, "before the first mark, by the rate behind it");
        assert_eq!(clock_at(&marks, 100).pcr_at(100).ticks(), 136_000);
    }

    #[test]
    fn a_two_hour_title_does_not_drift_by_a_nanosecond() {
        // A reference every 100 packets at 4.5 Mbit/s, as a multiplexer writes it: rounded down to whole ticks, begun
        // an hour before the wrap.
        let first = Pcr::MODULUS - 3_600 * Pcr::HZ;
        let ticks_at =
            |position: u64| (u128::from(position) * u128::from(RATE.ticks) / u128::from(RATE.packets)) as u64;
        let mark_at = |position| mark(position, first + ticks_at(position));
        let packets = 7_200 * 4_500_000 / 8 / 188;
        let mut clock = Clock::new(mark_at(0), RATE);
        clock.aim(mark_at(100));
        for position in (0..packets).step_by(7) {
            while clock.until().is_some_and(|until| until.position <= position) {
                clock.reach();
                clock.aim(mark_at(clock.from().position + 100));
            }
            // The time by the two references around it, in one step from the start: exact to the nanosecond.
            let before = position / 100 * 100;
            let (a, b) = (i128::from(ticks_at(before)), i128::from(ticks_at(before + 100)));
            let exact = (a * 100 + (b - a) * i128::from(position - before)) * 1_000 / 2_700;
            assert_eq!(i128::from(clock.ns_at(position)), exact, "packet {position}");
        }
        assert_eq!((clock.jumps(), clock.ns_at(packets) / 1_000_000), (0, 7_199_999));
        let analytic = (u128::from(packets) * 188 * 8 * 1_000_000_000 / 4_500_000) as i64;
        assert!((clock.ns_at(packets) - analytic).abs() <= 38, "one tick is 37 ns");
    }

    #[test]
    fn a_flagged_discontinuity_goes_on_at_the_rate_that_was() {
        let mut marks = [mark(0, 0), mark(100, 270_000), mark(200, 5_000), mark(300, 545_000)];
        marks[2].discontinuity = true;
        assert_eq!(ns_at(&marks, 200), 20_000_000);
        assert_eq!(ns_at(&marks, 300), 40_000_000);
        assert_eq!(clock_at(&marks, 300).jumps(), 0);
        assert_eq!(clock_at(&marks, 250).pcr_at(250).ticks(), 275_000);
    }

    #[test]
    fn references_that_run_backwards_or_jump_cost_no_time() {
        for broken in [1, 100_000_000, 40 * Pcr::HZ, Pcr::MODULUS / 2 + 9] {
            let marks = [mark(0, 27_000_000), mark(100, 27_270_000), mark(200, broken), mark(300, broken + 270_000)];
            assert_eq!(ns_at(&marks, 300), 30_000_000, "{broken}");
            assert_eq!(clock_at(&marks, 300).jumps(), 1);
        }
    }

    #[test]
    fn a_gap_in_the_references_is_believed_while_the_rate_stays() {
        // Two seconds without a reference, at the same rate; then at a tenth of it.
        let marks = [mark(0, 0), mark(100, 270_000), mark(20_100, 54_270_000), mark(22_100, 108_270_000)];
        assert_eq!(ns_at(&marks, 20_100), 2_010_000_000);
        assert_eq!(ns_at(&marks, 22_100), 4_010_000_000);
    }

    #[test]
    fn without_a_next_mark_the_rate_stays() {
        let mut clock = clock_at(&[mark(0, 0), mark(100, 270_000)], 100);
        assert_eq!(clock.ns_at(150), 15_000_000);
        clock.aim(mark(100, 9));
        assert_eq!(clock.until(), None, "the same place again");
        clock.aim(mark(200, 810_000));
        assert_eq!((clock.ns_at(100), clock.ns_at(150)), (10_000_000, 20_000_000));
    }

    #[test]
    fn slopes_and_rates_are_the_same_thing() {
        let rate = Bitrate::from_kbps(4_500);
        let slope = Slope::of_rate(rate).unwrap();
        assert_eq!((slope.rate(), slope.ns(7)), (rate, 2_339_555));
        assert_eq!(Slope::of_rate(Bitrate::ZERO), None);
        assert_eq!(
            mean_slope(&[mark(0, 0), mark(10, 100), mark(20, 50), mark(40, 350)]),
            Some(Slope { packets: 30, ticks: 400 })
        );
        assert_eq!(mean_slope(&[mark(0, 5), mark(10, 5)]), None);
    }

    proptest! {
        #[test]
        fn time_never_runs_backwards(steps in proptest::collection::vec((1..5_000_u64, any::<u64>(), any::<bool>()), 2..40)) {
            let mut position = 0;
            let marks: Vec<Mark> = steps.into_iter().map(|(packets, ticks, discontinuity)| {
                position += packets;
                Mark { discontinuity, ..mark(position, if ticks % 3 == 0 { ticks } else { position * 9_000 + ticks % 5_000 }) }
            }).collect();
            let mut clock = Clock::new(marks[0], RATE);
            let mut last = 0;
            for next in &marks[1..] {
                clock.aim(*next);
                for position in [clock.from().position, (clock.from().position + next.position) / 2, next.position] {
                    prop_assert!(clock.ns_at(position) >= last);
                    last = clock.ns_at(position);
                }
                clock.reach();
            }
        }
    }
}
