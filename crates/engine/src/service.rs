//! What a worker runs. The one trait of the data plane.

use std::time::Instant;

use wire::{DatagramRun, LinkEvent, Outbox, Token};

/// A protocol without sockets and clocks: it takes datagrams, messages and the time, and writes datagrams.
///
/// The worker calls `poll_transmit` after each batch of input, and again after each flush while that returns true.
/// Before every call there is room for at least one datagram in `out`, and before `handle_run` for one per datagram of
/// the run; who has more to say keeps it for `poll_transmit`. `now` is read once per batch, so many calls see the same.
pub trait Service {
    /// What other threads tell the service.
    type Message: Send + 'static;

    /// Takes datagrams that came by one path. Their bytes may be changed in place.
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox);

    /// Hears what became of a link; `token` is what those who asked for it call it.
    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        let _ = (now, token, event, out);
    }

    /// Takes one message from the worker's mailbox.
    fn handle_message(&mut self, now: Instant, message: Self::Message, out: &mut Outbox);

    /// Does what is due.
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox);

    /// When `handle_timeout` next has work. How late the worker is for it is counted.
    fn poll_timeout(&self) -> Option<Instant>;

    /// When `poll_transmit` is to be called though nothing else happens. Nobody waits for it, so it is never late.
    fn poll_wake(&self) -> Option<Instant> {
        None
    }

    /// Writes what is ready into `out` until it is full; true when there is more.
    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool;
}
