//! How often somebody may do something.

use std::time::{Duration, Instant};

/// So many times at once, and once more in each interval.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// In the long run once in this time.
    pub interval: Duration,
}

/// What is left of one rate. The caller passes the same one each time.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// When nothing of it is used any more.
    full_at: Instant,
}

impl Budget {
    /// All of it.
    pub fn new(now: Instant) -> Self {
        Budget { full_at: now }
    }

    /// Takes one. False when none is left.
    pub fn take(&mut self, now: Instant, rate: Rate) -> bool {
        let has_one = self.next_at(rate) <= now;
        if has_one {
            self.full_at = self.full_at.max(now) + rate.interval;
        }
        has_one
    }

    /// Gives one back that was taken and not used.
    pub fn give_back(&mut self, now: Instant, rate: Rate) {
        self.full_at = self.full_at.checked_sub(rate.interval).map_or(now, |full_at| full_at.max(now));
    }

    /// From when on there is one.
    pub fn next_at(&self, rate: Rate) -> Instant {
        // `burst` intervals before that, all of them were used.
        let used = rate.interval * rate.burst.saturating_sub(1);
        self.full_at.checked_sub(used).unwrap_or(self.full_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3, interval: Duration::from_secs(2) };

    #[test]
    fn so_many_go_at_once_and_then_one_in_each_interval() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let taken: Vec<u64> = (0..200)
            .map(|tenth| tenth * 100)
            .flat_map(|ms| (0..5).map(move |_| ms))
            .filter(|ms| budget.take(start + Duration::from_millis(*ms), RATE))
            .take(6)
            .collect();
        assert_eq!(taken, [0, 0, 0, 2_000, 4_000, 6_000]);
        assert_eq!(budget.next_at(RATE), start + Duration::from_secs(8));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_is_no_more_than_the_burst() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        assert_eq!((0..10).filter(|_| budget.take(start, RATE)).count(), 3);
        (0..2).for_each(|_| budget.give_back(start, RATE));
        assert_eq!((0..10).filter(|_| budget.take(start, RATE)).count(), 2);
        (0..10).for_each(|_| budget.give_back(start, RATE));
        assert_eq!((0..10).filter(|_| budget.take(start, RATE)).count(), 3);
    }

    #[test]
    fn what_is_saved_up_is_no_more_than_the_burst() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        assert!(budget.take(start, RATE));
        let later = start + Duration::from_secs(1_000);
        assert_eq!((0..10).filter(|_| budget.take(later, RATE)).count(), 3);
    }
}
