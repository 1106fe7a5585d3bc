//! What a worker runs. The one trait of the data plane.

use std::net::SocketAddr;
use std::time::Instant;

use wire::{Datagram, LinkId, Outbox};

/// A protocol without sockets and clocks: it takes datagrams, messages and the time, and writes datagrams.
///
/// The worker calls `poll_transmit` after each batch of input, and again after each flush while that returns true.
/// Before every call there is room for at least one datagram in `out`; who has more to say keeps it for
/// `poll_transmit`. `now` is read once per batch, so many calls see the same.
pub trait Service {
    /// What other threads tell the service.
    type Message: Send + 'static;

    /// Takes one datagram. Its bytes may be changed in place.
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>, out: &mut Outbox);

    /// Takes one message from the worker's mailbox.
    fn handle_message(&mut self, now: Instant, message: Self::Message, out: &mut Outbox);

    /// Does what is due.
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox);

    /// When `handle_timeout` next has work.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Writes what is ready into `out` until it is full; true when there is more.
    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool;

    /// The network says that a datagram from a link that only sends (`WorkerConfig::senders`) did not get there.
    fn handle_refused(&mut self, now: Instant, link: LinkId, remote: SocketAddr) {
        let _ = (now, link, remote);
    }

    /// A TCP link is gone: its number is not used again soon, and what is sent to it is dropped.
    fn handle_link_closed(&mut self, now: Instant, link: LinkId) {
        let _ = (now, link);
    }
}
