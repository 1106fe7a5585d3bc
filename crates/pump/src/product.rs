//! The pump as one of a worker's products. Its sockets only send; its connections are clients'.

use std::time::Instant;

use wire::{LinkEvent, Outbox, Product, Token};

use crate::pump::Pump;

impl Product for Pump {
    fn handle_link(&mut self, _now: Instant, token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        Pump::handle_link(self, token, event);
    }

    fn handle_timeout(&mut self, now: Instant, _out: &mut Outbox) {
        Pump::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Pump::poll_timeout(self)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        Pump::poll_transmit(self, now, out)
    }
}
