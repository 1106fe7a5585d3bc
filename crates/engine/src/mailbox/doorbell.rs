//! Whether one who sends has to ring for one who may sleep, so that a bell rings per sleep and not per value.
//!
//! No ring is missed, by Dekker's argument. The sender pushes, then looks whether the receiver sleeps; the receiver
//! says that it sleeps, then looks whether anything was pushed. Between the two steps both have a sequentially
//! consistent fence, and one of the fences comes first: if the sender's, the receiver sees what was pushed; if the
//! receiver's, the sender sees the sleeper and rings.
//!
//! `tests/it/wake_ups.rs` includes this file with loom's atomics and goes through every order of steps.

use super::atomic::{AtomicBool, Ordering, fence};

/// Hangs between any number of senders and one receiver.
pub(crate) struct Doorbell {
    is_sleeping: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> Self {
        Doorbell { is_sleeping: AtomicBool::new(false) }
    }

    /// Called by a sender after it has pushed. True when the receiver sleeps and nobody else rings for it.
    pub(crate) fn is_to_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_sleeping.load(Ordering::Relaxed) && self.is_sleeping.swap(false, Ordering::Relaxed)
    }

    /// Called by the receiver before it waits for the bell. False when it must not wait, as there is something to do.
    pub(crate) fn fall_asleep(&self, has_nothing: impl FnOnce() -> bool) -> bool {
        self.is_sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let sleeps = has_nothing();
        if !sleeps {
            self.is_sleeping.store(false, Ordering::Relaxed);
        }
        sleeps
    }

    /// Called by the receiver when it waits no longer.
    pub(crate) fn wake_up(&self) {
        self.is_sleeping.store(false, Ordering::Relaxed);
    }
}
