//! A worker's pump, and where its events go; and the service of a worker that has nothing else.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use engine::Service;
use pump::pump::Pump;
use pump::spec::{self, Command};
use rustc_hash::FxHashSet;
use wire::{DatagramRun, LinkEvent, Outbox, Token};

/// What a worker reports.
#[derive(Debug)]
pub enum Event {
    Pump {
        worker: usize,
        event: spec::Event,
    },
    /// Nobody listens at a destination.
    Refused {
        remote: SocketAddr,
    },
}

/// A destination's refusals are reported once in this time, as there is one for nearly every datagram.
const REFUSALS_INTERVAL: Duration = Duration::from_millis(500);

/// Destinations whose refusals are reported in that time; those of others wait for the next.
const REFUSALS_MAX: usize = 4_096;

/// One worker's pump. It is not a service itself, as it may stand beside the rooms.
pub struct PumpPart<S> {
    worker: usize,
    pump: Pump,
    /// Hands an event to control; gives back what found no room.
    send_event: S,
    refused: FxHashSet<SocketAddr>,
    /// When `refused` was empty.
    refused_since: Instant,
}

impl<S: FnMut(Event) -> Result<(), Event>> PumpPart<S> {
    pub fn new(now: Instant, worker: usize, pump: Pump, send_event: S) -> Self {
        PumpPart { worker, pump, send_event, refused: FxHashSet::default(), refused_since: now }
    }

    pub fn handle_command(&mut self, now: Instant, command: Command) {
        self.pump.handle_command(now, command);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.pump.handle_timeout(now);
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pump.poll_timeout()
    }

    /// Writes what is due, and passes on what the pump has to say. Events keep their order, and wait for the next turn
    /// when control is behind.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let more = self.pump.poll_transmit(now, out);
        while let Some(event) = self.pump.poll_event() {
            let unheard = (self.send_event)(Event::Pump { worker: self.worker, event }).err();
            if let Some(Event::Pump { event, .. }) = unheard {
                self.pump.handle_unheard(event);
                break;
            }
        }
        more
    }

    /// What finds no room is told again by the next refusal.
    pub fn handle_refused(&mut self, now: Instant, remote: SocketAddr) {
        if now.saturating_duration_since(self.refused_since) >= REFUSALS_INTERVAL {
            self.refused.clear();
            self.refused_since = now;
        }
        if self.refused.len() < REFUSALS_MAX && self.refused.insert(remote) {
            (self.send_event)(Event::Refused { remote }).ok();
        }
    }
}

/// A worker that only pumps.
pub struct PumpService<S>(pub PumpPart<S>);

impl<S: FnMut(Event) -> Result<(), Event>> Service for PumpService<S> {
    type Message = Command;

    fn handle_run(&mut self, _now: Instant, _run: DatagramRun<'_>, _out: &mut Outbox) {}

    fn handle_link(&mut self, now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        if let LinkEvent::Refused { remote, .. } = event {
            self.0.handle_refused(now, remote);
        }
    }

    fn handle_message(&mut self, now: Instant, command: Command, _out: &mut Outbox) {
        self.0.handle_command(now, command);
    }

    fn handle_timeout(&mut self, now: Instant, _out: &mut Outbox) {
        self.0.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        self.0.poll_transmit(now, out)
    }
}
