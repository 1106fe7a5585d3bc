//! Where newcomers go: by what the sessions of all products take, and by how busy the workers are.
//!
//! In: how long each worker has been at work, what sessions take and give back. Out: a worker with room, or none.
//! Cost: a look at each worker per place. It has no clock and no lock.
//!
//! A worker's load is what its sessions are expected to take of its core, or what it is measured to take when that is
//! more. Who watches a stream goes to the worker of its publisher while that is loaded no more than `near_max`: there a
//! packet need not be copied to another worker. All others go where the load is least.

use std::time::Instant;

use wire::{Bitrate, WorkerId};

use super::busy::BusyMeter;

/// What a core is expected to send: between what sealed viewers and what plain titles take. A guess is enough, for it only
/// has to tell workers apart before they are busy.
const CORE: Bitrate = Bitrate::from_kbps(4_000_000);

/// Below this share, how busy a worker is says more about the moment than about its sessions.
const BUSY_COUNTS: f64 = 0.2;

/// What an operator may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// A worker that is busier takes no newcomers.
    pub busy_max: f64,
    /// A viewer goes to its stream's worker while that is loaded no more than this; 0: never for that reason.
    pub near_max: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { busy_max: 1.0, near_max: 0.5 }
    }
}

/// The load of all workers.
#[derive(Clone, Debug)]
pub struct Placement {
    settings: Settings,
    workers: Vec<Load>,
}

#[derive(Clone, Debug, Default)]
struct Load {
    busy: BusyMeter,
    /// What the sessions there are expected to send.
    taken_bps: u64,
    /// It does not keep up with what it is told.
    is_behind: bool,
}

impl Placement {
    /// Workers without sessions.
    pub fn new(workers: usize, settings: Settings) -> Self {
        Placement { settings, workers: vec![Load::default(); workers] }
    }

    /// Takes the nanoseconds that a worker has been at work until now.
    pub fn update(&mut self, now: Instant, worker: WorkerId, busy_ns: u64) {
        if let Some(load) = self.workers.get_mut(worker.index()) {
            load.busy.update(now, busy_ns);
        }
    }

    /// The share of its time for which a worker is at work.
    pub fn busy(&self, worker: WorkerId) -> f64 {
        self.workers.get(worker.index()).map_or(0.0, |load| load.busy.share())
    }

    /// Whether messages wait for room in the worker's mailbox.
    pub fn set_behind(&mut self, worker: WorkerId, is_behind: bool) {
        if let Some(load) = self.workers.get_mut(worker.index()) {
            load.is_behind = is_behind;
        }
    }

    /// Finds a worker for a session: `near` another worker's while there is room; among those that `fits` agrees to.
    /// `None` when all others are too busy.
    pub fn find(&self, near: Option<WorkerId>, fits: impl Fn(WorkerId) -> bool) -> Option<WorkerId> {
        let has_room = |worker: WorkerId| {
            let load = self.workers.get(worker.index());
            load.is_some_and(|load| !load.is_behind && load.busy.share() <= self.settings.busy_max) && fits(worker)
        };
        let is_near = |worker: &WorkerId| has_room(*worker) && self.load(*worker) < self.settings.near_max;
        near.filter(is_near).or_else(|| self.least(has_room))
    }

    /// As `find`, for one more session of somebody who was let in: however busy workers are.
    pub fn find_anyhow(&self, near: Option<WorkerId>, fits: impl Fn(WorkerId) -> bool) -> Option<WorkerId> {
        self.find(near, &fits).or_else(|| self.least(fits))
    }

    fn least(&self, fits: impl Fn(WorkerId) -> bool) -> Option<WorkerId> {
        let all = WorkerId::all(self.workers.len()).filter(|worker| fits(*worker));
        all.min_by(|one, other| self.load(*one).total_cmp(&self.load(*other)))
    }

    /// A session begins on a worker.
    pub fn take(&mut self, worker: WorkerId, cost: Bitrate) {
        if let Some(load) = self.workers.get_mut(worker.index()) {
            load.taken_bps = load.taken_bps.saturating_add(cost.bps());
        }
    }

    /// A session that took `cost` is over.
    pub fn release(&mut self, worker: WorkerId, cost: Bitrate) {
        if let Some(load) = self.workers.get_mut(worker.index()) {
            debug_assert!(load.taken_bps >= cost.bps(), "what is given back was taken");
            load.taken_bps = load.taken_bps.saturating_sub(cost.bps());
        }
    }

    /// The share of its core that a worker needs: 0 at rest.
    fn load(&self, worker: WorkerId) -> f64 {
        let Some(load) = self.workers.get(worker.index()) else { return f64::INFINITY };
        let expected = load.taken_bps as f64 / CORE.bps() as f64;
        match load.busy.share() {
            busy if busy >= BUSY_COUNTS => expected.max(busy),
            _ => expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ANY: fn(WorkerId) -> bool = |_| true;

    fn placement(workers: usize) -> Placement {
        Placement::new(workers, Settings { busy_max: 0.9, near_max: 0.5 })
    }

    /// Five seconds of work, so many percent of the time.
    fn work(placement: &mut Placement, worker: u16, start: Instant, percent: u64) {
        for tick in 0..50 {
            let now = start + Duration::from_millis(tick * 100);
            placement.update(now, WorkerId(worker), tick * percent * 1_000_000);
        }
    }

    fn mbps(megabits: u64) -> Bitrate {
        Bitrate::from_kbps(megabits * 1_000)
    }

    #[test]
    fn sessions_of_all_products_go_where_the_least_is_taken() {
        let mut placement = placement(2);
        let places = [3, 1, 1, 2].map(|megabits| {
            let worker = placement.find(None, ANY).expect("room");
            placement.take(worker, mbps(megabits));
            worker.0
        });
        assert_eq!(places, [0, 1, 1, 1]);

        placement.release(WorkerId(1), mbps(2));
        assert_eq!(placement.find(None, ANY), Some(WorkerId(1)));
    }

    #[test]
    fn who_watches_a_stream_goes_to_its_publisher_until_that_worker_has_enough_to_do() {
        let mut placement = placement(2);
        let mut near = 0;
        while placement.find(Some(WorkerId(1)), ANY) == Some(WorkerId(1)) {
            placement.take(WorkerId(1), mbps(4));
            near += 1;
        }
        assert_eq!(near, 500, "half of what a core is expected to send");
        assert_eq!(placement.find(Some(WorkerId(1)), ANY), Some(WorkerId(0)));
    }

    #[test]
    fn what_is_measured_counts_where_it_is_more_than_what_is_expected() {
        let mut placement = placement(2);
        let start = Instant::now();
        placement.take(WorkerId(1), mbps(100));
        work(&mut placement, 0, start, 60);
        assert_eq!(placement.find(None, ANY), Some(WorkerId(1)));
        assert_eq!(placement.find(Some(WorkerId(0)), ANY), Some(WorkerId(1)));

        work(&mut placement, 0, start + Duration::from_secs(10), 5);
        assert_eq!(placement.find(None, ANY), Some(WorkerId(0)), "a little work says nothing");
    }

    #[test]
    fn workers_that_are_too_busy_or_behind_or_do_not_fit_take_none() {
        let mut placement = placement(3);
        work(&mut placement, 0, Instant::now(), 99);
        placement.set_behind(WorkerId(1), true);
        assert_eq!(placement.find(Some(WorkerId(0)), ANY), Some(WorkerId(2)));
        assert_eq!(placement.find(Some(WorkerId(1)), |worker| worker.0 != 2), None);

        placement.set_behind(WorkerId(1), false);
        assert_eq!(placement.find(None, |worker| worker.0 != 2), Some(WorkerId(1)));
        assert_eq!(Placement::new(0, Settings::default()).find(None, ANY), None);

        placement.set_behind(WorkerId(2), true);
        let fits = |worker: WorkerId| worker.0 != 1;
        assert_eq!((placement.find(None, fits), placement.find_anyhow(None, fits)), (None, Some(WorkerId(2))));
    }
}
