//! Spreads streams of one interval over its phases, so that every tick carries the same number of them.
//!
//! In: an interval. Out: a phase for one more stream of it: the least used; of those the one farthest from the others.
//! Cost: a look at 1,024 counters per stream that opens.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// Phases of an interval that are told apart.
const PHASES: usize = 1_024;

/// Names a place that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    class: u64,
    index: u16,
}

impl Phase {
    /// The first time at or after `from_ns` that has this phase of the interval.
    pub(crate) fn next_ns(self, from_ns: i64, interval_ns: i64) -> i64 {
        let phase_ns = (i128::from(interval_ns) * i128::from(self.index) / PHASES as i128) as i64;
        from_ns + (phase_ns - from_ns).rem_euclid(interval_ns.max(1))
    }
}

/// How many streams each phase has, by interval.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    classes: HashMap<u64, Box<[u16; PHASES]>, FxBuildHasher>,
}

impl Phases {
    pub(crate) fn take(&mut self, interval_ns: i64) -> Phase {
        let class = class(interval_ns);
        let counts = self.classes.entry(class).or_insert_with(|| Box::new([0; PHASES]));
        // Reversed bits: each next phase lies in the middle of the largest gap. Another class begins at another place.
        let start = (class.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
        let order = (0..PHASES as u16).map(|count| usize::from(count.reverse_bits() >> 6) ^ start);
        let index = order.min_by_key(|index| counts[*index]).unwrap_or(0);
        counts[index] = counts[index].saturating_add(1);
        Phase { class, index: index as u16 }
    }

    pub(crate) fn give(&mut self, phase: Phase) {
        if let Some(counts) = self.classes.get_mut(&phase.class) {
            let count = &mut counts[usize::from(phase.index)];
            *count = count.saturating_sub(1);
            if counts.iter().all(|count| *count == 0) {
                self.classes.remove(&phase.class);
            }
        }
    }
}

/// Intervals that differ by less than one in 64 are of one class: the seven leading bits, and how many follow.
fn class(interval_ns: i64) -> u64 {
    let ns = interval_ns.max(1) as u64;
    let shift = (64 - ns.leading_zeros()).saturating_sub(7);
    u64::from(shift) << 8 | ns >> shift
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: i64 = 9_358_222;

    /// The largest and the smallest number of streams that fall into one tick.
    fn spread(times: &[i64], tick_ns: i64) -> (usize, usize) {
        let mut ticks = vec![0; (INTERVAL / tick_ns) as usize];
        for time in times {
            if let Some(count) = ticks.get_mut((time / tick_ns) as usize) {
                *count += 1;
            }
        }
        (*ticks.iter().max().unwrap(), *ticks.iter().min().unwrap())
    }

    #[test]
    fn every_tick_of_an_interval_gets_the_same_number() {
        for (streams, slack) in [(50, 2), (1_000, 4), (3_500, 8)] {
            let mut phases = Phases::default();
            let times: Vec<i64> = (0..streams).map(|_| phases.take(INTERVAL).next_ns(0, INTERVAL)).collect();
            let (most, least) = spread(&times, 500_000);
            assert!(most - least <= slack, "{streams}: {least} to {most}");
        }
    }

    #[test]
    fn who_leaves_makes_room_for_who_comes() {
        let mut phases = Phases::default();
        let all: Vec<Phase> = (0..PHASES * 2).map(|_| phases.take(INTERVAL)).collect();
        phases.give(all[77]);
        assert_eq!(phases.take(INTERVAL), all[77]);
        all.into_iter().for_each(|phase| phases.give(phase));
        assert!(phases.classes.is_empty());
    }

    #[test]
    fn the_next_time_has_the_phase_and_is_not_before() {
        let phase = Phases::default().take(1_000);
        let first = phase.next_ns(0, 1_000);
        for from in [-5_000, -1, 0, 1, 999, 1_000, 123_456] {
            let at = phase.next_ns(from, 1_000);
            assert!(at >= from && at < from + 1_000);
            assert_eq!((at - first).rem_euclid(1_000), 0);
        }
    }
}
