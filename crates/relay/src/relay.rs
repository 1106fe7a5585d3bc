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

use wire::{DatagramRun, LinkEvent, LinkId, LinkKind, Outbox, Path, Product, Random, Token};

use crate::allocation::Client;
use crate::allocations::{self, Allocations, NO_ROOM, Outcome};
use crate::alternates::Alternates;
use crate::answer::Writer;
use crate::associations::{self, Associations};
use crate::auth::{self, Authority, Found, Verdict, Waiting};
use crate::blocked::Blocked;
use crate::connections::Connections;
use crate::counters::Counters;
use crate::discovery;
use crate::drops::DropReason;
use crate::forward::{self, Forward};
use crate::ledger::Direction;
use crate::limits::Limits;
use crate::message::{Class, Message, Method, TransactionId, attribute};
use crate::names::Name;
use crate::opening::{Opener, Opening};
use crate::random;
use crate::requests::{self, Granted, Requests};
use crate::rules::Rules;
use crate::settings::Settings;
use crate::spec::{ClientTransport, Command, EndReason, Event};
use crate::story::Happened;
use crate::tcp::{News, PeerConnections};

/// The relay of one worker. It holds no socket and reads no clock.
#[derive(Debug)]
pub struct Relay {
    settings: Arc<Settings>,
    rules: Arc<Rules>,
    authority: Authority,
    limits: Limits,
    allocations: Allocations,
    /// Of each listener, when it is open.
    listeners: Vec<Option<LinkId>>,
    connections: Connections,
    associations: Associations,
    peers: PeerConnections,
    counters: Counters,
    events: VecDeque<Event>,
    random: Random,
    blocked: Arc<Blocked>,
    is_draining: bool,
    alternates: Alternates,
}

/// An error's code, and the first peer that a request of a proved user named.
type Refused = (u16, Option<SocketAddr>);

impl Relay {
    /// A relay without allocations.
    pub fn new(now: Instant, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let seed = |purpose| random::seed(&settings.seed, purpose);
        let mut random = Random::new(seed("alternates"));
        Relay {
            rules: Arc::clone(&settings.rules),
            authority: Authority::new(Arc::clone(&settings.realm), settings.epoch, settings.auth.clone()),
            limits: Limits::new(now, settings.limits, seed("limits")),
            allocations: Allocations::new(now, &settings),
            listeners: vec![None; settings.listeners.len()],
            connections: Connections::new(now, &settings),
            associations: Associations::new(now, &settings),
            peers: PeerConnections::new(now, &settings),
            counters: Counters::default(),
            events: VecDeque::new(),
            random: Random::new(seed("indications")),
            blocked: Arc::default(),
            is_draining: false,
            alternates: Alternates::new(&settings.alternates, || random.next_u64()),
            settings,
        }
    }

    /// Takes what control asks for.
    pub fn handle_command(&mut self, now: Instant, command: Command, out: &mut Outbox) {
        match command {
            Command::List { token, user, after, count } => {
                let (allocations, upto) = self.allocations.list(now, user.as_deref(), after, count);
                self.events.push_back(Event::Allocations { token, allocations, upto });
            }
            Command::Story { token, id } => self.allocations.tell(now, token, id),
            Command::Delete(id) => {
                if let Some(key) = self.allocations.by_id(id) {
                    self.allocations.remove(now, key, EndReason::Deleted);
                }
            }
            Command::Block(blocked) => {
                self.allocations.remove_blocked(now, &blocked);
                self.blocked = blocked;
            }
            Command::Rules(rules) => {
                self.allocations.begin_applying(now, &rules);
                for news in self.peers.apply(&rules) {
                    self.tell(now, Some(news), out);
                }
                self.rules = rules;
            }
            Command::Clock(at, since_1970) => self.authority.set_clock((at, since_1970)),
            Command::Drain(is_draining) => self.is_draining = is_draining,
            Command::Found { user, found } => self.handle_found(now, &user, found, out),
            Command::Credentials(credentials) => self.authority.replace(credentials),
            Command::AddClient(connection) => {
                let is_taken = self.connections.add(connection);
                self.counters.connections_refused += u64::from(!is_taken);
            }
            Command::Handshake { association, step } => {
                self.associations.handle_step(now, association, step, &mut self.counters, out);
                self.settle(now);
            }
        }
    }

    /// What control has to know, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        let lookup = self.authority.poll_lookup().map(|user| Event::Lookup { user });
        let others = [&mut self.events, &mut self.allocations.events, &mut self.associations.events];
        let failure = || self.authority.poll_failure().map(Event::NotProved);
        lookup.or_else(failure).or_else(|| others.into_iter().find_map(VecDeque::pop_front))
    }

    /// Counts what was lost on its way to control.
    pub fn count_drop(&mut self, reason: DropReason) {
        self.counters.drops.add(reason, 1);
    }

    /// All numbers of this worker.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        self.allocations.count_ports(&mut counters);
        counters.draining = u64::from(self.is_draining);
        counters
    }

    /// Takes what came to a listener for DTLS.
    fn handle_sealed(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        let (token, path, mut opening) = (run.token, run.path, Opening::new(run));
        loop {
            let Relay { associations, limits, counters, .. } = self;
            let Some(piece) = opening.next(&mut Opener { now, associations, limits, counters, out }) else { return };
            match self.client_of(token, &path) {
                Some(client) => self.handle_client(now, client, &piece, out),
                None => self.counters.drops.add(DropReason::NoAssociation, piece.datagram_count() as u64),
            }
        }
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
        let Relay { allocations, associations, settings, rules, counters, random, .. } = self;
        Forward { now, allocations, associations, settings, rules, counters, random, run, out }
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
        let unknown = discovery::unknown(&self.settings, &client, message);
        if !message.unknown().is_empty() || unknown.is_some() {
            self.counters.refusals.add(requests::UNKNOWN_ATTRIBUTE.0);
            return self.answer(&client.path, message, Class::Error, Method::Binding, out, |writer| {
                writer.error((requests::UNKNOWN_ATTRIBUTE.0, ""));
                requests::write_unknown(message, unknown, writer);
            });
        }
        let Some(origin) = discovery::origin(&self.settings, &self.listeners, &client, message) else {
            return self.counters.drops.add(DropReason::StaleLink, 1);
        };
        self.answer(&origin.path, message, Class::Success, Method::Binding, out, |writer| {
            writer.xor_address(attribute::XOR_MAPPED_ADDRESS, client.address);
            origin.write(writer);
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
        content: impl FnOnce(&mut Writer<'_>),
    ) {
        let len = write(out, class, method, message.transaction(), |writer| {
            content(writer);
            if message.has_fingerprint {
                writer.fingerprint();
            }
        });
        self.send(path, len, out);
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
        let sender = auth::Client {
            token: client.token,
            path: client.path,
            address: client.address,
            is_proved: client.is_proved(),
        };
        let owner = self.allocations.find(now, &client.path).and_then(|key| self.allocations.get(key));
        let owner = owner.map(|allocation| &*allocation.user);
        let proof = match self.authority.judge(now, &sender, owner, message, &mut self.limits) {
            Verdict::Granted(granted) => granted,
            Verdict::Answer(reply) => {
                self.counters.refusals.add(reply.code);
                // That a request has to be proved, and that a nonce runs out, is no news. Who has no nonce of ours (400) may be
                // anybody, and who has one, but no key, does not choose what stands there.
                let is_proof = message.integrity.is_some() || message.integrity_sha256.is_some();
                if is_proof && ![requests::BAD_REQUEST.0, auth::STALE_NONCE.0].contains(&reply.code) {
                    self.note(now, &client, message.method, Some((reply.code, None)));
                }
                let place = out.slot().and_then(|slot| slot.get_mut(..reply.len()));
                let len = place.map(|place| {
                    place.copy_from_slice(&reply);
                    reply.len()
                });
                return self.send(&client.path, len, out);
            }
            Verdict::Silence(reason) => return self.counters.drops.add(reason, 1),
            // `handle_found` goes on with it.
            Verdict::Waits => return,
        };
        let Relay { settings, rules, blocked, allocations, peers, alternates, .. } = self;
        let (is_draining, seal) = (self.is_draining, proof.seal.clone());
        let mut request =
            Requests { now, settings, rules, blocked, allocations, peers, is_draining, alternates, client, proof };
        let granted = request.handle(message);
        match granted {
            Ok(_) => self.counters.requests_granted += 1,
            Err(refusal) => self.counters.refusals.add(refusal.code()),
        }
        let refused = granted.err().map(|refusal| (refusal.code(), message.peers().next()));
        self.note(now, &client, message.method, refused);
        let class = if granted.is_ok() { Class::Success } else { Class::Error };
        let (shown, lifetime) = match granted {
            Ok(Granted::Later) => return,
            Ok(Granted::Allocated(key)) => (self.allocations.get(key), None),
            Ok(Granted::Refreshed(lifetime)) => (None, Some(lifetime)),
            Ok(Granted::Done) | Err(_) => (None, None),
        };
        let len = write(out, class, method, message.transaction(), |writer| {
            if let Some(allocation) = shown {
                let shown: Vec<SocketAddr> = self.allocations.shown_of(allocation).collect();
                requests::write_allocated(now, allocation, &shown, writer);
            }
            if let Some(lifetime) = lifetime {
                writer.number(attribute::LIFETIME, requests::seconds(lifetime));
            }
            if let Err(refusal) = granted {
                refusal.write(message, writer);
            }
            writer.seal(&seal);
            if message.has_fingerprint {
                writer.fingerprint();
            }
        });
        self.send(&client.path, len, out);
    }

    /// Writes into the story of the allocation that is there what became of a request.
    fn note(&mut self, now: Instant, client: &Client, method: Option<Method>, refused: Option<Refused>) {
        let key = self.allocations.find(now, &client.path);
        let Some(allocation) = key.and_then(|key| self.allocations.get_mut(key)) else { return };
        if let (Some((code, peer)), Some(method)) = (refused, method) {
            allocation.story.note_refusal(now, method, code, peer);
        }
        allocation.look(now);
    }

    /// Takes what was found of a user, and handles the requests that waited for it.
    fn handle_found(&mut self, now: Instant, user: &Arc<str>, found: Found, out: &mut Outbox) {
        for Waiting { client, request } in self.authority.handle_found(now, user, found) {
            if let Some(client) = self.client_of(client.token, &client.path) {
                self.handle_message(now, client, &request, out);
                self.begin_data(now, &client, out);
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
        let is_there = listener.transport != ClientTransport::Dtls || self.associations.has(path);
        is_there.then_some(Client { token, path: *path, address, server, transport: listener.transport })
    }

    fn handle_opened(&mut self, now: Instant, name: Name, link: LinkId, remote: Option<SocketAddr>, out: &mut Outbox) {
        match name {
            Name::Relayed(slot) if link.kind() == LinkKind::Stream => self.accept_peer(now, slot, link, remote, out),
            Name::Relayed(slot) => {
                let outcome = self.allocations.handle_opened(now, slot, link);
                self.tell_outcome(now, outcome, out);
            }
            Name::Client(slot) => self.connections.handle_opened(now, slot, link, remote),
            Name::Peer(slot) => {
                let news = self.peers.handle_opened(now, slot, link, out);
                self.tell(now, news, out);
            }
            Name::Listener(index) => {
                if let Some(listener) = self.listeners.get_mut(index) {
                    *listener = Some(link);
                }
            }
        }
    }

    fn handle_failed(&mut self, now: Instant, name: Name, error: &io::Error, out: &mut Outbox) {
        match name {
            Name::Relayed(slot) => {
                let outcome = self.allocations.handle_failed(slot, error);
                self.tell_outcome(now, outcome, out);
            }
            Name::Client(slot) => {
                self.connections.handle_closed(slot);
                self.counters.connections_refused += 1;
            }
            Name::Peer(slot) => {
                let news = self.peers.handle_failed(slot);
                self.tell(now, news, out);
            }
            Name::Listener(_) => {}
        }
    }

    /// What was there is no more; a client's allocation ends with its connection.
    fn handle_closed(&mut self, now: Instant, name: Name, link: LinkId) {
        self.peers.handle_closed(link);
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

    /// Ends what is nobody's any more, and counts what there is.
    fn settle(&mut self, now: Instant) {
        for path in std::mem::take(&mut self.associations.ended) {
            self.allocations.remove_of(now, &path);
        }
        for path in std::mem::take(&mut self.allocations.ended_associations) {
            self.associations.unsettle(&path);
        }
        for key in std::mem::take(&mut self.allocations.ended_tcp) {
            self.peers.close_all(key);
        }
        for slot in std::mem::take(&mut self.allocations.ended_connections) {
            self.connections.unsettle(slot);
        }
        self.counters.peer_connections = self.peers.len() as u64;
        self.counters.allocations.clone_from(self.allocations.counts());
        self.counters.connections = self.connections.len() as u64;
        self.counters.connections_made_room = self.connections.made_room;
        let (open, shaking) = self.associations.count();
        (self.counters.dtls_associations, self.counters.dtls_handshakes) = (open as u64, shaking as u64);
    }

    /// A peer has connected to a relayed address: its client is told, if it permits that peer (RFC 6062 §5.3).
    fn accept_peer(&mut self, now: Instant, slot: usize, link: LinkId, remote: Option<SocketAddr>, out: &mut Outbox) {
        let remote = remote.map(|remote| self.settings.outside(remote));
        let key = self.allocations.socket(slot).and_then(|socket| socket.allocation);
        let permitted = key.zip(remote).filter(|(key, peer)| {
            let allocation = self.allocations.get(*key).filter(|it| !it.is_over(now) && it.opening.is_none());
            let is_permitted = allocation.is_some_and(|it| it.permissions.ports(now, &peer.ip()).is_some());
            let has_room = self.peers.peers(*key).count() < self.settings.peer_connections_max
                && allocation.is_some_and(|it| self.peers.has_place(&it.user));
            is_permitted && has_room && self.rules.allows_by_tcp(*peer)
        });
        match permitted {
            Some((key, peer)) => {
                let Some(allocation) = self.allocations.get(key) else { return };
                let news = self.peers.accept(now, (key, &allocation.user), peer, link, out);
                self.tell(now, Some(news), out);
            }
            None => {
                self.counters.drops.add(DropReason::NoPermission, 1);
                self.connections.refuse(link);
            }
        }
    }

    /// Tells a client what became of a connection with a peer.
    fn tell(&mut self, now: Instant, news: Option<News>, out: &mut Outbox) {
        let (path, len) = match news {
            Some(News::Connected { asked, id }) => {
                let class = if id.is_some() { Class::Success } else { Class::Error };
                if id.is_none() {
                    self.counters.refusals.add(requests::CONNECTION_FAILURE.0);
                    let key = self.allocations.find(now, &asked.path);
                    if let Some(allocation) = key.and_then(|key| self.allocations.get_mut(key)) {
                        allocation.story.note(now, Happened::NotConnected);
                    }
                }
                let len = write(out, class, Method::Connect, asked.transaction, |writer| {
                    match id {
                        Some(id) => writer.number(attribute::CONNECTION_ID, id),
                        None => writer.error(requests::CONNECTION_FAILURE),
                    };
                    writer.seal(&asked.seal);
                    if asked.has_fingerprint {
                        writer.fingerprint();
                    }
                });
                (asked.path, len)
            }
            Some(News::Attempt { allocation, peer, id }) => {
                let Some(allocation) = self.allocations.get(allocation) else { return };
                let mut transaction = [0; 12];
                transaction[..8].copy_from_slice(&self.random.next_u64().to_be_bytes());
                let len = write(out, Class::Indication, Method::ConnectionAttempt, transaction, |writer| {
                    writer.number(attribute::CONNECTION_ID, id).xor_address(attribute::XOR_PEER_ADDRESS, peer);
                });
                (allocation.client.path, len)
            }
            None => return,
        };
        self.send(&path, len, out);
    }

    /// Takes what a byte stream brings: data of a client or a peer, or what comes before it is that.
    fn handle_bytes(&mut self, now: Instant, token: Token, link: LinkId, bytes: &[u8], out: &mut Outbox) {
        if self.peers.has(link) {
            return self.join(now, link, bytes, out);
        }
        // What comes of a peer's connection that is being closed is nobody's.
        let Name::Client(slot) = Name::of(token.number) else { return };
        let found = self.connections.take_message(slot, bytes);
        if let Ok(None) = found {
            return;
        }
        if let (Ok(Some(message)), Some(client)) = (found, self.connections.client_of(token, slot)) {
            self.handle_message(now, client, &message, out);
            let may_stay = Message::parse(&message).is_ok() && self.connections.may_ask_again(slot);
            if self.begin_data(now, &client, out) || may_stay {
                return;
            }
        }
        self.connections.end(slot, link);
    }

    /// Whether a client's connection was bound to a peer's; then what stands behind the request is data.
    fn begin_data(&mut self, now: Instant, client: &Client, out: &mut Outbox) -> bool {
        let (link, Name::Client(slot)) = (client.path.link, Name::of(client.token.number)) else { return false };
        let is_data = self.peers.has(link);
        if is_data {
            self.connections.settle(slot);
            let rest = self.connections.take_rest(slot);
            if !rest.is_empty() {
                self.join(now, link, &rest, out);
            }
        }
        is_data
    }

    /// Takes data of a client or a peer to the other.
    fn join(&mut self, now: Instant, link: LinkId, bytes: &[u8], out: &mut Outbox) {
        let Some((key, direction)) = self.peers.handle_bytes(link, bytes, out) else { return };
        let Some(allocation) = self.allocations.get_mut(key) else { return };
        let pause = allocation.account.charge(now, direction, bytes.len());
        let (traffic, count) = match direction {
            Direction::Sent => (&mut allocation.sent, &mut self.counters.bytes_to_peers),
            Direction::Received => (&mut allocation.received, &mut self.counters.bytes_to_clients),
        };
        traffic.packets += 1;
        traffic.bytes += bytes.len() as u64;
        *count += bytes.len() as u64;
        if !pause.is_zero() {
            self.peers.rest(link, now + pause, out);
        }
    }

    /// Sends what stands in the slot.
    fn send(&mut self, path: &Path, len: Option<usize>, out: &mut Outbox) {
        let is_stream = path.link.kind() == LinkKind::Stream;
        let len = match len {
            Some(len) if self.is_sealed(path.link) => {
                self.associations.records(path).and_then(|records| associations::seal_slot(records, len, out))
            }
            len => len,
        };
        let is_sent = match len {
            Some(len) if is_stream => out.commit_bytes(path.link, len),
            Some(len) => {
                out.commit(path, len);
                true
            }
            None => false,
        };
        self.associations.end_used_up(path, out);
        if is_sent {
            return;
        }
        self.counters.drops.add(DropReason::OutboxFull, 1);
        // Who asked by a datagram asks again; on a connection for data nobody does.
        if is_stream {
            self.connections.close(path.link);
        }
    }

    /// Whether a link is that of a listener for DTLS, by which nothing leaves that is not sealed.
    fn is_sealed(&self, link: LinkId) -> bool {
        let mut listeners = self.settings.listeners.iter().zip(&self.listeners);
        listeners.any(|(listener, own)| listener.transport == ClientTransport::Dtls && *own == Some(link))
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
        let (path, client, transport) =
            (allocation.client.path, allocation.client.token.number, allocation.client.transport);
        let shown: Vec<SocketAddr> = self.allocations.shown_of(allocation).collect();
        let len = write(out, class, Method::Allocate, allocation.transaction, |writer| {
            match class {
                Class::Success => requests::write_allocated(now, allocation, &shown, writer),
                _ => drop(writer.error(NO_ROOM)),
            }
            writer.seal(&opening.seal);
            if opening.has_fingerprint {
                writer.fingerprint();
            }
        });
        let info = allocation.info(now, shown);
        self.send(&path, len, out);
        if class == Class::Success {
            if let Some(allocation) = self.allocations.get_mut(key) {
                allocation.story.note(now, Happened::Began(info.expires_in));
            }
            if let Name::Client(slot) = Name::of(client) {
                self.connections.settle(slot);
            }
            if transport == ClientTransport::Dtls {
                self.associations.settle(&path);
            }
            self.counters.allocations_begun += 1;
            self.events.push_back(Event::Began(info));
        } else {
            self.counters.refusals.add(NO_ROOM.0);
            self.allocations.remove_untold(now, key);
        }
    }
}

impl Product for Relay {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        match Name::of(run.token.number) {
            Name::Relayed(slot) => self.forward(now, &run, out).handle_peer(slot),
            Name::Listener(_) if self.is_sealed(run.path.link) => self.handle_sealed(now, run, out),
            Name::Listener(_) | Name::Client(_) => match self.client_of(run.token, &run.path) {
                Some(client) => self.handle_client(now, client, &run, out),
                None => self.counters.drops.add(DropReason::StaleLink, run.datagram_count() as u64),
            },
            Name::Peer(_) => {
                self.counters.drops.add(DropReason::StaleLink, run.datagram_count() as u64);
            }
        }
        self.settle(now);
    }

    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        let name = Name::of(token.number);
        match event {
            LinkEvent::Opened { link, remote, .. } => self.handle_opened(now, name, link, remote, out),
            LinkEvent::Failed { error } => self.handle_failed(now, name, &error, out),
            LinkEvent::Closed { link, .. } => self.handle_closed(now, name, link),
            LinkEvent::Bytes { link, bytes } => self.handle_bytes(now, token, link, bytes, out),
            LinkEvent::InputEnded { link } if self.peers.has(link) => self.peers.handle_input_ended(link),
            LinkEvent::InputEnded { link } => self.connections.close(link),
            LinkEvent::Unsent { link, .. } => self.peers.handle_unsent(link),
            LinkEvent::Writable { link } => self.peers.handle_writable(link),
            // None is given back.
            LinkEvent::Refused { .. } | LinkEvent::Released { .. } => {}
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        let Relay { allocations, associations, connections, peers, counters, rules, .. } = self;
        allocations.handle_timeout(now, counters);
        allocations.go_on_applying(now, rules);
        associations.handle_timeout(now, |path| allocations.find(now, path).is_some(), counters, out);
        let is_used = |path: &Path| allocations.find(now, path).is_some() || peers.has(path.link);
        connections.handle_timeout(now, is_used);
        while let Some(news) = self.peers.handle_timeout(now) {
            self.tell(now, Some(news), out);
        }
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.allocations.poll_timeout(), self.connections.poll_timeout(), self.peers.poll_timeout()];
        timeouts.into_iter().chain([self.associations.poll_timeout()]).flatten().min()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        self.settle(now);
        !self.peers.transmit(now, out)
            || !allocations::transmit(self.connections.requests(), out)
            || self.allocations.transmit(now, out)
    }
}

/// Writes a message into the outbox's slot; how many bytes it has.
fn write(
    out: &mut Outbox,
    class: Class,
    method: Method,
    transaction: TransactionId,
    content: impl FnOnce(&mut Writer<'_>),
) -> Option<usize> {
    let mut writer = Writer::new(out.slot()?, class, method, transaction);
    content(&mut writer);
    writer.finish()
}
