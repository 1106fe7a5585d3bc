//! When the packets of a run are due: a run is what is played from one place on, until a splice.
//!
//! In: the queue's marks. Out: nanoseconds from the run's first packet to any other.

use std::time::Instant;

use wire::ts::Pcr;

use crate::chunk::Due;
use crate::clock::{Clock, Mark, Slope};
use crate::queue::Queue;

/// Due times of one run. They are absolute, so that nothing adds up while it lasts.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// The title's.
    pub(crate) clock: Clock,
    /// The clock's time of the first packet.
    pub(crate) zero_ns: i64,
    /// A constant rate that holds instead of the clock's.
    rate: Option<Slope>,
    /// Position of the first packet.
    first: u64,
    speed_permille: i64,
    /// The times of a live input, which hold instead of the clock's.
    live: Option<Box<LivePace>>,
    /// So long the run goes out at twice its pace, and is that much ahead from then on. Not for a live input.
    pub(crate) burst_ns: i64,
}

/// When the packets of a live input are due, as its chunks say.
#[derive(Clone, Debug)]
pub(crate) struct LivePace {
    zero: Instant,
    /// Position and time, before the packet last asked for and behind it.
    from: (u64, i64),
    until: Option<(u64, i64)>,
}

impl Pace {
    /// Begins at the next packet of the queue. `slope` is the rate until the title's clock says another.
    pub(crate) fn new(
        queue: &Queue,
        slope: Slope,
        rate: Option<Slope>,
        speed_permille: u32,
        mut live: Option<LivePace>,
    ) -> Self {
        let first = queue.position().unwrap_or(0);
        // Where no reference is in sight the first one that comes counts from here.
        let nowhere = Mark { position: first, pcr: Pcr::from_ticks(0), discontinuity: true };
        let mut clock = Clock::new(queue.first_mark().unwrap_or(nowhere), slope);
        follow(&mut clock, queue, first);
        let zero_ns = live.as_mut().map_or(clock.ns_at(first), |live| live.ns_at(queue, first));
        Pace {
            clock,
            zero_ns,
            rate,
            first,
            speed_permille: i64::from(speed_permille.max(1)),
            live: live.map(Box::new),
            burst_ns: 0,
        }
    }

    /// How far ahead of its pace the run is `ns` after its begin.
    pub(crate) fn ahead_ns(&self, ns: i64) -> i64 {
        ns.clamp(0, self.burst_ns)
    }

    /// Nanoseconds from the run's first packet to the one at `position`.
    #[inline]
    pub(crate) fn ns_at(&mut self, queue: &Queue, position: u64) -> i64 {
        if let Some(live) = &mut self.live {
            return live.ns_at(queue, position) - self.zero_ns;
        }
        if self.clock.until().is_none_or(|until| until.position <= position) {
            follow(&mut self.clock, queue, position);
        }
        let ns = match self.rate {
            None => self.clock.ns_at(position) - self.zero_ns,
            Some(rate) => rate.ns(position.saturating_sub(self.first)),
        };
        let ns = if self.speed_permille == 1_000 {
            ns
        } else {
            (i128::from(ns) * 1_000 / i128::from(self.speed_permille)) as i64
        };
        ns - (ns / 2).clamp(0, self.burst_ns)
    }

    /// Reads it all.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        let until = self.clock.until().map_or(0, |mark| mark.position);
        (self.zero_ns ^ self.speed_permille) as u64 ^ self.first ^ self.clock.from().position ^ until
    }
}

impl LivePace {
    /// Times are counted from `zero`.
    pub(crate) fn new(zero: Instant) -> Self {
        LivePace { zero, from: (0, 0), until: None }
    }

    /// Nanoseconds from `zero` until the packet at `position` is due. Behind the last chunk it is as late as that one's end.
    #[inline]
    pub(crate) fn ns_at(&mut self, queue: &Queue, position: u64) -> i64 {
        if self.until.is_none_or(|(until, _)| until <= position) {
            self.follow(queue, position);
        }
        let (from, from_ns) = self.from;
        let Some((until, until_ns)) = self.until else { return from_ns };
        let (done, all) = (position.saturating_sub(from), until.saturating_sub(from).max(1));
        from_ns + (i128::from(until_ns - from_ns) * i128::from(done) / i128::from(all)) as i64
    }

    fn follow(&mut self, queue: &Queue, position: u64) {
        let ns = |due: &Due| {
            let passed = due.at.saturating_duration_since(self.zero).as_nanos();
            (due.position, i64::try_from(passed).unwrap_or(i64::MAX))
        };
        // Where a sender was silent, the end of a chunk is due before the start of the next.
        let Some(chunk) = queue.chunk_before(position) else {
            self.from = self.until.take().unwrap_or(self.from);
            return;
        };
        let index = chunk.dues.partition_point(|due| due.position <= position);
        if let Some(before) = index.checked_sub(1).and_then(|before| chunk.dues.get(before)) {
            (self.from, self.until) = (ns(before), chunk.dues.get(index).map(ns));
        }
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
