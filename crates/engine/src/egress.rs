//! The way out of a worker: the outbox, and what it is flushed to.

use std::time::Instant;

use wire::Outbox;

use crate::links::Links;

/// The outbox of a worker, and all that it leads to.
pub(crate) struct Egress {
    pub(crate) out: Outbox,
    pub(crate) links: Links,
}

impl Egress {
    /// Flushes when there is no room for as many datagrams, or for a request. `received` is what is being handled.
    #[inline]
    pub(crate) fn make_room(&mut self, datagrams: usize, received: &[u8]) {
        if !self.out.has_room_for(datagrams) || !self.out.has_room_for_request() {
            self.flush(received);
        }
    }

    /// Flushes what lies where it was received, as other things are received next, and what is requested, as it may be that
    /// nothing more is to be read.
    #[inline]
    pub(crate) fn let_go_of(&mut self, received: &[u8]) {
        if self.out.points_at_received() || self.out.has_requests() {
            self.flush(received);
        }
    }

    /// Hands everything in the outbox to the kernel, and then does what is requested. `received` is what is being handled.
    pub(crate) fn flush(&mut self, received: &[u8]) {
        self.links.send(&self.out, received);
        self.out.clear();
        debug_assert!(self.out.is_empty() && !self.out.points_at_received(), "all has left or is counted");
        if self.out.has_requests() {
            let now = Instant::now();
            for request in self.out.take_requests() {
                self.links.handle_request(now, request);
            }
        }
    }
}
