//! The way out of a worker: the outbox, and what it is flushed to.

use std::time::Instant;

use wire::Outbox;

use crate::links::Links;
use crate::service::Service;

/// News of links told before one call of the service. What was not taken of a byte stream comes first.
const NEWS_MAX: usize = 1_024;

/// The outbox of a worker, and all that it leads to.
pub(crate) struct Egress {
    pub(crate) out: Outbox,
    pub(crate) links: Links,
}

impl Egress {
    /// Comes before each call of the service: makes room for as many datagrams and for a request, and tells what became of
    /// links, which a flush for room may have changed. False when there is more to tell, as there hardly ever is; then
    /// nothing is to be received. `received` is what is being handled.
    #[inline]
    pub(crate) fn prepare(
        &mut self,
        service: &mut impl Service,
        now: Instant,
        datagrams: usize,
        received: &[u8],
    ) -> bool {
        for _ in 0..NEWS_MAX {
            self.make_room(datagrams, received);
            let Some((token, event)) = self.links.poll_news() else { return true };
            service.handle_link(now, token, event, &mut self.out);
        }
        self.make_room(datagrams, received);
        false
    }

    /// Flushes when there is no room for as many datagrams, or for a request.
    fn make_room(&mut self, datagrams: usize, received: &[u8]) {
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
