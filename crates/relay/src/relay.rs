//! All of one worker's relay.
//!
//! A datagram's way: `handle_run` → `handle_client` tells by the first byte what it is: ChannelData and Send indications go
//! through `forward` to a peer; requests are proved (`auth`) and go to `requests`. What comes to a relayed address goes through
//! `forward` to its client.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use wire::{DatagramRun, LinkEvent, LinkId, Outbox, Path, Product, Random, Token};

use crate::allocation::Client;
use crate::allocations::{self, Allocations, NO_ROOM, Outcome};
use crate::answer::Writer;
use crate::auth::{self, Authority, Found, Verdict, Waiting};
use crate::connections::Connections;
use crate::counters::Counters;
use crate::drops::DropReason;
use crate::forward::{self, Forward};
use crate::limits::Limits;
use crate::message::{Class, Message, Method, attribute};
use crate::names::Name;
use crate::requests::{self, Granted, Requests};
use crate::rules::Rules;
use crate::settings::Settings;
use crate::spec::{Command, Event};

/// The relay of one worker. It holds no socket and reads no clock.
#[derive(Debug)]
pub struct Relay {
    settings: Arc<Settings>,
    rules: Arc<Rules>,
    authority: Authority,
    limits: Limits,
    allocations: Allocations,
    connections: Connections,
    counters: Counters,
    events: VecDeque<Event>,
    random: Random,
    is_draining: bool,
    next_alternate: usize,
}

impl Relay {
    /// A relay without allocations.
    pub fn new(now: Instant, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let seed = settings.seed.first_chunk().map_or(0, |seed| u64::from_be_bytes(*seed));
        Relay {
            rules: Arc::clone(&settings.rules),
            authority: Authority::new(Arc::clone(&settings.realm), settings.epoch, settings.auth.clone()),
            limits: Limits::new(now, settings.limits, seed),
            allocations: Allocations::new(now, &settings),
            connections: Connections::new(now, &settings),
            counters: Counters::default(),
            events: VecDeque::new(),
            random: Random::new(seed),
            is_draining: false,
            next_alternate: 0,
            settings,
        }
    }

    /// Takes what control asks for.
    pub fn handle_command(&mut self, now: Instant, command: Command, out: &mut Outbox) {
        match command {
            Command::List { token, after, count } => {
                let allocations = self.allocations.list(now, after, count);
                self.events.push_back(Event::Allocations { token, allocations });
            }
            Command::Delete(id) => {
                if let Some(key) = self.allocations.by_id(id) {
                    self.allocations.remove(now, key);
                }
            }
            Command::Rules(rules) => {
                self.allocations.iter_mut().for_each(|allocation| allocation.apply(&rules));
                self.rules = rules;
            }
            Command::Drain => self.is_draining = true,
            Command::Found { user, found } => self.handle_found(now, &user, found, out),
            Command::Credentials(credentials) => self.authority.replace(credentials),
            Command::AddClient(connection) => self.connections.add(connection),
        }
    }

    /// What control has to know, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        let lookup = self.authority.poll_lookup().map(|user| Event::Lookup { user });
        lookup.or_else(|| self.events.pop_front()).or_else(|| self.allocations.events.pop_front())
    }

    /// All numbers of this worker.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes what a client sent.
    fn handle_client(&mut self, now: Instant, client: Client, run: &DatagramRun<'_>, out: &mut Outbox) {
        let mut key = self.allocations.find(now, &client.path);
        let mut index = 0;
        while let Some(segment) = forward::segment_of(run, index) {
            let first = segment.first().copied().unwrap_or_default();
            // The two upper bits tell STUN from ChannelData (RFC 8656 §12.4).
            match first >> 6 {
                1 => index += self.forward(now, run, out).channel_data(key, index),
                0 if forward::is_send(segment) => {
                    self.forward(now, run, out).send_indication(key, index);
                    index += 1;
                }
                0 => {
                    self.handle_message(now, client, segment, out);
                    key = self.allocations.find(now, &client.path);
                    index += 1;
                }
                _ => {
                    self.counters.drops.add(DropReason::UnknownProtocol, 1);
                    index += 1;
                }
            }
        }
    }

    fn forward<'a, 'r>(&'a mut self, now: Instant, run: &'a DatagramRun<'r>, out: &'a mut Outbox) -> Forward<'a, 'r> {
        let Relay { allocations, rules, counters, random, .. } = self;
        Forward { now, allocations, rules, counters, random, run, out }
    }

    /// Takes a STUN message that is no data.
    fn handle_message(&mut self, now: Instant, client: Client, bytes: &[u8], out: &mut Outbox) {
        let Ok(message) = Message::parse(bytes) else {
            return self.counters.drops.add(DropReason::MalformedStun, 1);
        };
        match (message.class, message.method) {
            (Class::Request, Some(Method::Binding)) => self.answer_binding(now, client, &message, out),
            (Class::Request, Some(method)) => self.handle_request(now, client, method, &message, out),
            // It keeps a NAT's mapping alive.
            (Class::Indication, Some(Method::Binding)) => {}
            _ => self.counters.drops.add(DropReason::UnexpectedStun, 1),
        }
    }

    /// Tells a client its address, and nothing that is not asked for (RFC 8489 §12).
    fn answer_binding(&mut self, now: Instant, client: Client, message: &Message<'_>, out: &mut Outbox) {
        if !self.may_answer(now, &client) {
            return;
        }
        self.counters.bindings += 1;
        let is_understood = message.unknown().is_empty();
        let class = if is_understood { Class::Success } else { Class::Error };
        self.answer(&client.path, message, class, Method::Binding, out, |writer| {
            if is_understood {
                writer.xor_address(attribute::XOR_MAPPED_ADDRESS, client.address);
            } else {
                writer.error((requests::UNKNOWN_ATTRIBUTE.0, ""));
                requests::write_unknown(message, writer);
            }
        });
    }

    /// Whether there is an answer for who has proved nothing.
    fn may_answer(&mut self, now: Instant, client: &Client) -> bool {
        let is_known = client.is_proved() || self.allocations.find(now, &client.path).is_some();
        let may = is_known || self.limits.take(now, client.address.ip());
        self.counters.drops.add(DropReason::UnauthenticatedBudgetSpent, u64::from(!may));
        may
    }

    /// Writes an answer that nobody has to prove.
    fn answer(
        &mut self,
        path: &Path,
        message: &Message<'_>,
        class: Class,
        method: Method,
        out: &mut Outbox,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        let len = out.slot().and_then(|slot| {
            let mut writer = Writer::new(slot, class, method, message.transaction());
            write(&mut writer);
            if message.has_fingerprint {
                writer.fingerprint();
            }
            writer.finish()
        });
        match len {
            Some(len) => out.commit(path, len),
            None => self.counters.drops.add(DropReason::OutboxFull, 1),
        }
    }

    /// Takes a request that has to be proved.
    fn handle_request(
        &mut self,
        now: Instant,
        client: Client,
        method: Method,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let sender = auth::Client { token: client.token, path: client.path, is_proved: client.is_proved() };
        let granted = match self.authority.judge(now, &sender, message, &mut self.limits) {
            Verdict::Granted(granted) => granted,
            Verdict::Answer(reply) => {
                self.counters.challenges += 1;
                let is_sent = out.push(&client.path, &reply);
                return self.counters.drops.add(DropReason::OutboxFull, u64::from(!is_sent));
            }
            Verdict::Silence(reason) => return self.counters.drops.add(reason, 1),
            // `handle_found` goes on with it.
            Verdict::Waits => return,
        };
        let proof = granted;
        let Relay { settings, rules, allocations, next_alternate, .. } = self;
        let (is_draining, seal) = (self.is_draining, proof.seal.clone());
        let mut request = Requests { now, settings, rules, allocations, is_draining, next_alternate, client, proof };
        let granted = request.handle(message);
        match granted {
            Ok(_) => self.counters.requests_granted += 1,
            Err(_) => self.counters.requests_refused += 1,
        }
        let class = if granted.is_ok() { Class::Success } else { Class::Error };
        let (shown, lifetime) = match granted {
            Ok(Granted::Later) => return,
            Ok(Granted::Allocated(key)) => (self.allocations.get(key), None),
            Ok(Granted::Refreshed(lifetime)) => (None, Some(lifetime)),
            Ok(Granted::Done) | Err(_) => (None, None),
        };
        let Some(slot) = out.slot() else { return self.counters.drops.add(DropReason::OutboxFull, 1) };
        let mut writer = Writer::new(slot, class, method, message.transaction());
        if let Some(allocation) = shown {
            let shown: Vec<SocketAddr> = self.allocations.shown_of(allocation).collect();
            requests::write_allocated(now, allocation, &shown, &mut writer);
        }
        if let Some(lifetime) = lifetime {
            writer.number(attribute::LIFETIME, requests::seconds(lifetime));
        }
        if let Err(refusal) = granted {
            refusal.write(message, &mut writer);
        }
        writer.seal(&seal);
        if message.has_fingerprint {
            writer.fingerprint();
        }
        match writer.finish() {
            Some(len) => out.commit(&client.path, len),
            None => self.counters.drops.add(DropReason::OutboxFull, 1),
        }
    }

    /// Takes what was found of a user, and handles the requests that waited for it.
    fn handle_found(&mut self, now: Instant, user: &Arc<str>, found: Found, out: &mut Outbox) {
        for Waiting { client, request } in self.authority.handle_found(now, user, found) {
            if let Some(client) = self.client_of(client.token, &client.path) {
                self.handle_message(now, client, &request, out);
            }
        }
    }

    /// The client at the other end of a path.
    fn client_of(&self, token: Token, path: &Path) -> Option<Client> {
        let listener = match Name::of(token.number) {
            Name::Listener(index) => self.settings.listeners.get(index)?,
            Name::Client(slot) => return self.connections.client(token, slot, path),
            Name::Relayed(_) | Name::Peer(_) => return None,
        };
        let server = SocketAddr::new(path.local.unwrap_or(listener.addr.ip()), listener.addr.port());
        let address = SocketAddr::new(path.remote.ip().to_canonical(), path.remote.port());
        Some(Client { token, path: *path, address, server, transport: listener.transport })
    }

    fn handle_opened(&mut self, now: Instant, name: Name, link: LinkId, remote: Option<SocketAddr>, out: &mut Outbox) {
        match name {
            Name::Relayed(slot) => {
                let outcome = self.allocations.handle_opened(now, slot, link);
                self.tell_outcome(now, outcome, out);
            }
            Name::Client(slot) => self.connections.handle_opened(now, slot, link, remote),
            Name::Listener(_) | Name::Peer(_) => {}
        }
    }

    fn handle_failed(&mut self, now: Instant, name: Name, error: &io::Error, out: &mut Outbox) {
        match name {
            Name::Relayed(slot) => {
                let outcome = self.allocations.handle_failed(slot, error);
                self.tell_outcome(now, outcome, out);
            }
            Name::Client(slot) => drop(self.connections.handle_closed(slot)),
            Name::Listener(_) | Name::Peer(_) => {}
        }
    }

    /// What was there is no more; a client's allocation ends with its connection.
    fn handle_closed(&mut self, now: Instant, name: Name, link: LinkId) {
        match name {
            Name::Relayed(slot) => self.allocations.handle_closed(now, slot, link),
            Name::Client(slot) => {
                if let Some(path) = self.connections.handle_closed(slot) {
                    self.allocations.remove_of(now, &path);
                }
            }
            Name::Listener(_) | Name::Peer(_) => {}
        }
    }

    fn count(&mut self) {
        self.counters.allocations = self.allocations.len() as u64;
        self.counters.connections = self.connections.len() as u64;
    }

    /// Answers the Allocate that waited for sockets.
    fn tell_outcome(&mut self, now: Instant, outcome: Option<Outcome>, out: &mut Outbox) {
        let (key, class) = match outcome {
            Some(Outcome::Ready(key)) => (key, Class::Success),
            Some(Outcome::Failed(key)) => (key, Class::Error),
            None => return,
        };
        let opening = self.allocations.get_mut(key).and_then(|allocation| allocation.opening.take());
        let (Some(opening), Some(allocation)) = (opening, self.allocations.get(key)) else { return };
        let path = allocation.client.path;
        let shown: Vec<SocketAddr> = self.allocations.shown_of(allocation).collect();
        let len = out.slot().and_then(|slot| {
            let mut writer = Writer::new(slot, class, Method::Allocate, allocation.transaction);
            match class {
                Class::Success => requests::write_allocated(now, allocation, &shown, &mut writer),
                _ => {
                    writer.error(NO_ROOM);
                }
            }
            writer.seal(&opening.seal);
            if opening.has_fingerprint {
                writer.fingerprint();
            }
            writer.finish()
        });
        match len {
            Some(len) => out.commit(&path, len),
            // The client asks again.
            None => self.counters.drops.add(DropReason::OutboxFull, 1),
        }
        if class == Class::Success {
            self.counters.allocations_begun += 1;
            let info = allocation.info(now, shown);
            self.events.push_back(Event::Began(info));
        } else {
            self.counters.requests_refused += 1;
            self.allocations.remove_untold(now, key);
        }
    }
}

impl Product for Relay {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        match Name::of(run.token.number) {
            Name::Relayed(slot) => self.forward(now, &run, out).handle_peer(slot),
            Name::Listener(_) | Name::Client(_) => match self.client_of(run.token, &run.path) {
                Some(client) => self.handle_client(now, client, &run, out),
                None => self.counters.drops.add(DropReason::StaleLink, run.datagram_count() as u64),
            },
            Name::Peer(_) => {
                self.counters.drops.add(DropReason::StaleLink, run.datagram_count() as u64);
            }
        }
        self.count();
    }

    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        let name = Name::of(token.number);
        match event {
            LinkEvent::Opened { link, remote, .. } => self.handle_opened(now, name, link, remote, out),
            LinkEvent::Failed { error } => self.handle_failed(now, name, &error, out),
            LinkEvent::Closed { link, .. } => self.handle_closed(now, name, link),
            LinkEvent::Bytes { .. }
            | LinkEvent::InputEnded { .. }
            | LinkEvent::Unsent { .. }
            | LinkEvent::Writable { .. }
            | LinkEvent::Refused { .. } => {}
        }
        self.count();
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut Outbox) {
        let Relay { allocations, connections, counters, .. } = self;
        allocations.handle_timeout(now, counters);
        connections.handle_timeout(now, |path| allocations.find(now, path).is_some());
        self.count();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.allocations.poll_timeout(), self.connections.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        !allocations::transmit(self.connections.requests(), out) || self.allocations.transmit(now, out)
    }
}
