//! When the packets of a run are due: a run is what is played from one place on, until a splice.
//!
//! In: the queue's marks. Out: nanoseconds from the run's first packet to any other.

use wire::ts::Pcr;

use crate::clock::{Clock, Mark, Slope};
use crate::queue::Queue;

/// Due times of one run. They are absolute, so that nothing adds up while it lasts.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    clock: Clock,
    /// The clock's time of the first packet.
    zero_ns: i64,
    /// A constant rate that holds instead of the clock's.
    rate: Option<Slope>,
    /// Position of the first packet.
    first: u64,
    speed_permille: i64,
}

impl Pace {
    /// Begins at the next packet of the queue. `slope` is the rate until the title's clock says another.
    pub(crate) fn new(queue: &Queue, slope: Slope, rate: Option<Slope>, speed_permille: u32) -> Self {
        let first = queue.position().unwrap_or(0);
        // Where no reference is in sight the first one that comes counts from here.
        let nowhere = Mark { position: first, pcr: Pcr::from_ticks(0), discontinuity: true };
        let mut clock = Clock::new(queue.first_mark().unwrap_or(nowhere), slope);
        follow(&mut clock, queue, first);
        let zero_ns = clock.ns_at(first);
        Pace { clock, zero_ns, rate, first, speed_permille: i64::from(speed_permille.max(1)) }
    }

    /// Nanoseconds from the run's first packet to the one at `position`.
    #[inline]
    pub(crate) fn ns_at(&mut self, queue: &Queue, position: u64) -> i64 {
        if self.clock.until().is_none_or(|until| until.position <= position) {
            follow(&mut self.clock, queue, position);
        }
        let ns = match self.rate {
            None => self.clock.ns_at(position) - self.zero_ns,
            Some(rate) => rate.ns(position.saturating_sub(self.first)),
        };
        if self.speed_permille == 1_000 {
            ns
        } else {
            (i128::from(ns) * 1_000 / i128::from(self.speed_permille)) as i64
        }
    }

    /// The reference that the title has at `position`.
    pub(crate) fn pcr_at(&self, position: u64) -> Pcr {
        self.clock.pcr_at(position)
    }

    /// Reads it all.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        let until = self.clock.until().map_or(0, |mark| mark.position);
        (self.zero_ns ^ self.speed_permille) as u64 ^ self.first ^ self.clock.from().position ^ until
    }

    pub(crate) fn jumps(&self) -> u64 {
        self.clock.jumps()
    }
}

/// Brings the clock to the mark before `position`.
fn follow(clock: &mut Clock, queue: &Queue, position: u64) {
    loop {
        match clock.until() {
            None => match queue.mark_behind(clock.from().position) {
                Some(next) => clock.aim(next),
                None => return,
            },
            Some(until) if until.position <= position => clock.reach(),
            Some(_) => return,
        }
    }
}
