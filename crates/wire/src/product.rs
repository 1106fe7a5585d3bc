//! What every product of a worker is: the seam between a protocol and whoever drives it.

use std::time::Instant;

use crate::{DatagramRun, LinkEvent, Outbox, Token};

/// A protocol without sockets and clocks, one of those that share a worker.
///
/// It hears of its own links only, and writes into an outbox that it shares with the others: they are asked in turns, and
/// what finds no room is kept for the next. What it is told to do and what it tells are its own commands and events.
pub trait Product {
    /// Takes datagrams that came by one path. Their bytes may be changed in place. There is room for one per datagram, in
    /// whatever way it is pushed (`Outbox::has_room_for`).
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        let _ = (now, run, out);
    }

    /// Hears what became of a link; `token` is what it calls it. It hears so before any other call that comes afterwards:
    /// nothing of a link before it is `Opened`, and what was not taken of a byte stream (`Unsent`) before it may write more.
    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        let _ = (now, token, event, out);
    }

    /// Does what is due.
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox);

    /// When `handle_timeout` next has work.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Writes what is ready into `out` until it is full; true when there is more.
    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool;
}
