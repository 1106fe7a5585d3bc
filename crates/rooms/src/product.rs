//! The rooms as one of a worker's products.

use std::time::Instant;

use wire::{DatagramRun, LinkEvent, Outbox, Product, Token};

use crate::rooms::Rooms;

impl Product for Rooms {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        for datagram in run.into_datagrams() {
            self.handle_datagram(now, datagram, out);
        }
    }

    fn handle_link(&mut self, _now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        if let LinkEvent::Closed { link, .. } = event {
            self.handle_link_closed(link);
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        Rooms::handle_timeout(self, now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Rooms::poll_timeout(self)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        Rooms::poll_transmit(self, now, out)
    }
}
