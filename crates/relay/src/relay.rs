//! All allocations of one worker.

use std::collections::VecDeque;
use std::time::Instant;

use wire::{DatagramRun, LinkEvent, LinkRequest, Outbox, Product, Token};

use crate::counters::Counters;
use crate::drops::DropReason;
use crate::settings::Settings;
use crate::spec::{Command, Event};

/// The relay of one worker. It holds no socket and reads no clock.
#[derive(Debug)]
pub struct Relay {
    settings: Settings,
    counters: Counters,
    events: VecDeque<Event>,
    /// What is wanted of links, until the outbox has room for it.
    requests: VecDeque<LinkRequest>,
    is_draining: bool,
}

impl Relay {
    /// A relay without allocations.
    pub fn new(_now: Instant, settings: Settings) -> Self {
        Relay {
            settings,
            counters: Counters::default(),
            events: VecDeque::new(),
            requests: VecDeque::new(),
            is_draining: false,
        }
    }

    /// Takes what control asks for.
    pub fn handle_command(&mut self, _now: Instant, command: Command, _out: &mut Outbox) {
        match command {
            Command::List { token, .. } => {
                self.events.push_back(Event::Allocations { token, allocations: Vec::new() });
            }
            Command::Drain => self.is_draining = true,
            Command::AddClient(_) | Command::Found { .. } | Command::Credentials(_) | Command::Delete(_) => {}
        }
    }

    /// What control has to know, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// All numbers of this worker.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Product for Relay {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, _out: &mut Outbox) {
        debug_assert_eq!(run.token.owner, self.settings.owner, "it hears of its own links");
        self.counters.drops.add(DropReason::UnknownProtocol, run.datagram_count() as u64);
    }

    fn handle_link(&mut self, _now: Instant, _token: Token, _event: LinkEvent<'_>, _out: &mut Outbox) {}

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
        while let Some(request) = self.requests.pop_front() {
            if let Err(request) = out.request(request) {
                self.requests.push_front(request);
                return true;
            }
        }
        false
    }
}
