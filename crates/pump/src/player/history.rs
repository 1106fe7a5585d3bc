//! What a stream has done, for whoever asks later why it stood still.
//!
//! In: each change of what it does. Out: the last `STEPS_MAX` of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::spec::{Activity, Step};

/// Changes that are remembered, at most. For a newer one the oldest but the first is forgotten.
const STEPS_MAX: usize = 64;

/// A stream's changes.
#[derive(Debug)]
pub(super) struct History {
    zero: Instant,
    steps: VecDeque<Step>,
}

impl History {
    /// None yet. Times count from `zero`.
    pub(super) fn new(zero: Instant) -> Self {
        History { zero, steps: VecDeque::new() }
    }

    /// It does that from now on, at this packet.
    pub(super) fn note(&mut self, at_ns: i64, activity: Activity, position: u64) {
        if self.steps.len() == STEPS_MAX {
            self.steps.remove(1);
        }
        let at = self.zero + Duration::from_nanos(at_ns.max(0) as u64);
        self.steps.push_back(Step { at, activity, position });
    }

    /// The oldest first.
    pub(super) fn steps(&self) -> Vec<Step> {
        self.steps.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_steps_are_kept() {
        let zero = Instant::now();
        let mut history = History::new(zero);
        for position in 0..100 {
            history.note(position * 1_000, Activity::Playing, position as u64);
        }
        let steps = history.steps();
        assert_eq!((steps.len(), steps[0].position, steps[1].position, steps[63].position), (64, 0, 37, 99));
        assert_eq!(steps[63].at, zero + Duration::from_micros(99));
    }
}
