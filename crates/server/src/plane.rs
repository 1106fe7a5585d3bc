//! What the control planes of all products have in common: the way to the workers, who is placed where, and the drain.
//!
//! In: messages for workers, sessions that want a place, the time. Out: the messages in their order, places, and whether
//! newcomers are taken. Cost: one lock per message and one per place, each held for a few steps; no worker takes them.
//! Locks: a product's control takes its own first, then one of these.

pub mod busy;
pub mod placement;
pub(crate) mod questions;
pub mod workers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use placement::Placement;
use workers::Workers;

use crate::traces::Traces;

/// The control plane of one product, as far as the server's life is concerned.
pub trait ProductControl: Send + Sync {
    /// Does what is due. Called a few times a second.
    fn handle_timeout(&self, now: Instant);

    /// Whether anybody is sent anything, for whom a drain waits.
    fn has_receivers(&self) -> bool;

    /// Ends all sessions.
    fn close_all(&self);
}

/// The workers as all control planes see them.
pub struct Plane {
    workers: Workers,
    placement: Mutex<Placement>,
    is_draining: AtomicBool,
    traces: Traces,
}

impl Plane {
    /// All workers at rest, with no session. Joins are not traced.
    pub fn new(workers: Workers, settings: placement::Settings) -> Arc<Self> {
        Plane::traced(workers, settings, Traces::default())
    }

    /// The same, and joins are traced.
    pub fn traced(workers: Workers, settings: placement::Settings, traces: Traces) -> Arc<Self> {
        let placement = Mutex::new(Placement::new(workers.count(), settings));
        Arc::new(Plane { workers, placement, is_draining: AtomicBool::new(false), traces })
    }

    /// The way to the workers.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Where newcomers go.
    pub fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock().expect("nobody panics under this lock")
    }

    /// What becomes of joins.
    pub fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Refuses newcomers from now on.
    pub fn start_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Whether newcomers are refused because the server is about to stop.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Whether a newcomer finds a place: neither is the server about to stop, nor every worker too busy.
    pub fn takes_newcomers(&self) -> bool {
        !self.is_draining() && self.placement().find(None, |_| true).is_some()
    }

    /// Looks how busy the workers are, and sends them what waited. To be called a few times a second.
    pub fn handle_timeout(&self, now: Instant) {
        self.workers.flush();
        let mut placement = self.placement();
        for (worker, counters) in self.workers.counters() {
            placement.update(now, worker, counters.busy.as_nanos() as u64);
            placement.set_behind(worker, self.workers.is_behind(worker));
        }
    }
}
