//! The part of a case that is counted.

use std::hint::black_box;

/// Where counting is on, by this function's name: `callgrind` is told to toggle at its start and end.
#[inline(never)]
fn counted_region<T>(extra_turns: u64, work: impl FnOnce() -> T) -> T {
    let done = work();
    idle(extra_turns);
    done
}

/// Instructions for nothing: an artificial slowdown.
#[inline]
fn idle(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Counts units of work, each with an artificial slowdown.
#[derive(Debug)]
pub struct Region {
    /// Turns of an idle loop per unit.
    extra: f64,
    /// That were counted.
    pub units: u64,
    is_counted: bool,
}

impl Region {
    pub fn new(extra: f64) -> Self {
        Region { extra, units: 0, is_counted: true }
    }

    /// For work that is done alike and not counted, such as a warm-up.
    pub fn uncounted() -> Self {
        Region { extra: 0.0, units: 0, is_counted: false }
    }

    /// Does `work`, which is so many units, where instructions are counted.
    pub fn count<T>(&mut self, units: u64, work: impl FnOnce() -> T) -> T {
        if !self.is_counted {
            return work();
        }
        self.units += units;
        counted_region((units as f64 * self.extra) as u64, work)
    }
}
