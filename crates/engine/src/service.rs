//! What a worker runs.

use std::time::Instant;

use wire::{Outbox, Product};

/// A product that hears from other threads as well. One that holds several drives them in turns.
///
/// The worker calls `poll_transmit` after each batch of input, and again after each flush while that returns true.
/// Before every call there is room for at least one datagram in `out`, and before `handle_run` for one per datagram of
/// the run; who has more to say keeps it for `poll_transmit`. `now` is read once per batch, so many calls see the same.
/// How late the worker is for `poll_timeout` is counted.
pub trait Service: Product {
    /// What other threads tell the service.
    type Message: Send + 'static;

    /// Takes one message from the worker's mailbox.
    fn handle_message(&mut self, now: Instant, message: Self::Message, out: &mut Outbox);

    /// When what cannot wait is due, no earlier than `poll_timeout` says. The rest of what is due shares the wake-ups of a worker
    /// that coalesces (`WorkerConfig`): it is late by that much at most.
    fn poll_exact(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    /// When `poll_transmit` is to be called though nothing else happens. Nobody waits for it, so it is never late.
    fn poll_wake(&self) -> Option<Instant> {
        None
    }

    /// Whether somebody waits for an answer to what comes by a patient socket (`Socket::with_patient`). The worker looks at it
    /// whenever it has work then, and after an eighth of its patience otherwise.
    fn is_awaited(&self, _now: Instant) -> bool {
        false
    }
}
