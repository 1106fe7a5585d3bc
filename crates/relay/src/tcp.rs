//! Connections between TCP allocations and their peers, each joined with one of the client's (RFC 6062).
//!
//! In: what clients ask for (Connect, ConnectionBind), connections that peers make, bytes of both sides. Out: the same bytes on
//! the other side, requests for links, what clients are to be told.
//! Cost: one hash per piece of a byte stream; a piece is copied once on its way. Who reads too slowly has the other side read
//! no more: up to `UNCONFIRMED_MAX` and one piece wait in the engine each way.
//! When one side ends, the other is closed behind what was on its way to it (RFC 6062 §5.6): there are no half connections.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use slab::Slab;
use wheel::{TimerId, Wheel};
use wire::{DATAGRAM_MAX, LinkId, LinkRequest, Outbox, Path, StreamOptions, Token};

use crate::answer::Seal;
use crate::ledger::Direction;
use crate::message::TransactionId;
use crate::names::Name;
use crate::random::Secret;
use crate::rules::Rules;
use crate::settings::Settings;
use crate::spec::CONNECTION_RANDOM_BITS;

/// For how long a peer may take to answer, and then the client to bind the connection (RFC 6062 §5.2, §5.3).
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that are on their way to one side before the other is read no more. It is told when all of them have left.
const UNCONFIRMED_MAX: usize = 64 * 1_024;

/// Bytes that the engine takes for one side: what is on its way, and what was read before the other side was paused.
const BACKLOG_MAX: usize = 4 * UNCONFIRMED_MAX;

/// Bytes that were read of one side and cannot be written to the other yet. That side is not read then, so more is a fault,
/// and the connection is closed.
const EARLY_MAX: usize = 2 * UNCONFIRMED_MAX;

/// How fine the wheel turns.
const TICK: Duration = Duration::from_millis(100);

/// All connections to and from peers of one worker.
#[derive(Debug)]
pub(crate) struct PeerConnections {
    settings: Arc<Settings>,
    all: Slab<PeerConnection>,
    /// Both sides of each, by their links.
    by_link: HashMap<LinkId, (usize, Direction)>,
    by_id: HashMap<u32, usize>,
    by_allocation: HashMap<usize, Vec<usize>>,
    wheel: Wheel<Due>,
    requests: VecDeque<LinkRequest>,
    /// Those with something that found no room.
    stuck: VecDeque<usize>,
    secret: Secret,
    /// How many each user has, those that are being closed among them, and all together.
    by_user: HashMap<Arc<str>, usize>,
    count: usize,
    /// Those of peers that are being closed, and whose they were.
    closing: HashMap<LinkId, Arc<str>>,
}

/// What becomes due, of the connection at a slot.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// Nobody answered, or bound it.
    Patience(usize),
    /// Enough time has passed for what went one way.
    Rest(usize),
}

/// One connection to or from a peer.
#[derive(Debug)]
pub(crate) struct PeerConnection {
    /// Whose it is; `None` when that is gone.
    pub(crate) allocation: Option<usize>,
    /// Whose place among all of them it has.
    user: Arc<str>,
    pub(crate) peer: SocketAddr,
    /// What the client calls it (RFC 6062 §6.2.1).
    pub(crate) id: u32,
    /// Its own end, and the client's when that has bound it.
    ends: [Option<LinkId>; 2],
    is_bound: bool,
    /// The engine has still to tell what becomes of it. Its slot, by which that is told, is nobody else's until then.
    is_under_way: bool,
    timer: Option<TimerId>,
    /// The Connect that waits for it.
    asked: Option<Box<Asked>>,
    /// From the client to the peer, and back.
    pipes: [Pipe; 2],
}

/// A Connect whose answer waits.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) path: Path,
    pub(crate) transaction: TransactionId,
    pub(crate) seal: Seal,
    pub(crate) has_fingerprint: bool,
}

/// One way.
#[derive(Debug, Default)]
struct Pipe {
    /// What found no room in the outbox, or came before there was another side.
    waiting: Vec<u8>,
    /// Bytes that were written since the engine told of room, which it is asked to tell.
    unconfirmed: usize,
    /// The side that it comes from is not read.
    is_paused: bool,
    /// Nor before this, as it has brought more than its user's bandwidth.
    rests_until: Option<Instant>,
    /// That side has ended.
    has_ended: bool,
}

/// What became of a connection that is to be told to its client.
#[derive(Debug)]
pub(crate) enum News {
    /// The peer has answered a Connect, or not.
    Connected { asked: Box<Asked>, id: Option<u32> },
    /// A peer has connected.
    Attempt { allocation: usize, peer: SocketAddr, id: u32 },
}

/// The place of a side among a connection's ends.
const PEER: usize = 0;
const CLIENT: usize = 1;

impl PeerConnections {
    pub(crate) fn new(now: Instant, settings: &Arc<Settings>) -> Self {
        PeerConnections {
            settings: Arc::clone(settings),
            all: Slab::new(),
            by_link: HashMap::default(),
            by_id: HashMap::default(),
            by_allocation: HashMap::default(),
            wheel: Wheel::new(now, TICK),
            requests: VecDeque::new(),
            stuck: VecDeque::new(),
            secret: Secret::new(&settings.seed, "connection ids"),
            by_user: HashMap::default(),
            count: 0,
            closing: HashMap::default(),
        }
    }

    /// What holds for each connection with a peer.
    pub(crate) fn options() -> StreamOptions {
        StreamOptions { backlog_max: BACKLOG_MAX, ..StreamOptions::default() }
    }

    /// Asks for a connection to a peer.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        allocation: (usize, &Arc<str>),
        from: SocketAddr,
        peer: SocketAddr,
        asked: Asked,
    ) {
        let slot = self.insert(now, allocation, peer, Some(Box::new(asked)));
        let token = Token { owner: self.settings.owner, number: Name::Peer(slot).number() };
        let to = self.settings.inside(peer);
        let request = LinkRequest::Connect { token, to, from: Some(from), options: Self::options() };
        self.requests.push_back(request);
    }

    /// Whether there is a place for one more of a user. He leaves half of them to others.
    pub(crate) fn has_place(&self, user: &Arc<str>) -> bool {
        let (max, own) = (self.settings.peer_connections_of_all_max, self.by_user.get(user).copied());
        self.count < max && own.unwrap_or_default() < max.div_ceil(2)
    }

    /// A place is free again.
    fn give_place(&mut self, user: &Arc<str>) {
        self.count -= 1;
        let Some(own) = self.by_user.get_mut(user) else { return };
        *own -= 1;
        if *own == 0 {
            self.by_user.remove(user);
        }
    }

    fn insert(
        &mut self,
        now: Instant,
        (allocation, user): (usize, &Arc<str>),
        peer: SocketAddr,
        asked: Option<Box<Asked>>,
    ) -> usize {
        *self.by_user.entry(Arc::clone(user)).or_default() += 1;
        self.count += 1;
        let id = loop {
            let random = self.secret.number() as u32 & ((1 << CONNECTION_RANDOM_BITS) - 1);
            let id = u32::from(self.settings.worker.0) << CONNECTION_RANDOM_BITS | random;
            if !self.by_id.contains_key(&id) {
                break id;
            }
        };
        let entry = self.all.vacant_entry();
        let slot = entry.key();
        let timer = Some(self.wheel.insert(now + PATIENCE, Due::Patience(slot)));
        let (ends, pipes) = ([None; 2], [Pipe::default(), Pipe::default()]);
        entry.insert(PeerConnection {
            allocation: Some(allocation),
            user: Arc::clone(user),
            peer,
            id,
            ends,
            is_bound: false,
            is_under_way: asked.is_some(),
            timer,
            asked,
            pipes,
        });
        self.by_id.insert(id, slot);
        self.by_allocation.entry(allocation).or_default().push(slot);
        slot
    }

    /// A peer has connected to a relayed address, and is permitted. Returns what the client is told.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        allocation: (usize, &Arc<str>),
        peer: SocketAddr,
        link: LinkId,
        out: &mut Outbox,
    ) -> News {
        let slot = self.insert(now, allocation, peer, None);
        self.begin(slot, link, out);
        News::Attempt { allocation: allocation.0, peer, id: self.all[slot].id }
    }

    /// A peer has answered.
    pub(crate) fn handle_opened(&mut self, now: Instant, slot: usize, link: LinkId, out: &mut Outbox) -> Option<News> {
        let Some(connection) = self.all.get_mut(slot) else {
            self.requests.push_back(LinkRequest::Close { link });
            return None;
        };
        connection.is_under_way = false;
        let asked = connection.asked.take().filter(|_| connection.allocation.is_some());
        let Some(asked) = asked else {
            // Nobody waits for it any more: it is closed at once.
            self.forget(slot);
            self.requests.extend([LinkRequest::Close { link }, LinkRequest::Close { link }]);
            return None;
        };
        if let Some(timer) = connection.timer.replace(self.wheel.insert(now + PATIENCE, Due::Patience(slot))) {
            self.wheel.cancel(timer);
        }
        let id = Some(connection.id);
        self.begin(slot, link, out);
        Some(News::Connected { asked, id })
    }

    /// Nothing is read of it before it is bound.
    fn begin(&mut self, slot: usize, link: LinkId, out: &mut Outbox) {
        self.all[slot].ends[PEER] = Some(link);
        self.all[slot].pipes[Direction::Received as usize].is_paused = true;
        self.by_link.insert(link, (slot, Direction::Received));
        if let Err(request) = out.request(LinkRequest::Read { link, is_on: false }) {
            self.requests.push_back(request);
        }
    }

    /// A peer has not answered. Returns what the client is told.
    pub(crate) fn handle_failed(&mut self, slot: usize) -> Option<News> {
        let connection = self.all.get_mut(slot)?;
        let asked = connection.asked.take().filter(|_| connection.allocation.is_some());
        self.forget(slot);
        asked.map(|asked| News::Connected { asked, id: None })
    }

    /// One of its sides is gone: what is on its way to the other still goes there.
    pub(crate) fn handle_closed(&mut self, link: LinkId) {
        if let Some(user) = self.closing.remove(&link) {
            self.give_place(&user);
        }
        let Some((slot, direction)) = self.by_link.remove(&link) else { return };
        let Some(connection) = self.all.get_mut(slot) else { return };
        let side = side_of(direction);
        connection.ends[side] = None;
        connection.pipes[direction as usize].has_ended = true;
        self.end_if_done(slot);
    }

    /// The connection that a client binds.
    pub(crate) fn find(&self, id: u32) -> Option<(usize, &PeerConnection)> {
        let slot = *self.by_id.get(&id)?;
        let connection = self.all.get(slot)?;
        let is_bindable = connection.ends[PEER].is_some() && !connection.is_bound;
        is_bindable.then_some((slot, connection))
    }

    /// The peers that an allocation has connections with, or wants to have.
    pub(crate) fn peers(&self, allocation: usize) -> impl Iterator<Item = SocketAddr> {
        let slots = self.by_allocation.get(&allocation).into_iter().flatten();
        slots.filter_map(|slot| Some(self.all.get(*slot)?.peer))
    }

    /// The client has bound a connection: from now on both sides are one.
    pub(crate) fn bind(&mut self, slot: usize, client: LinkId) {
        let Some(connection) = self.all.get_mut(slot) else { return };
        connection.timer.take().map(|timer| self.wheel.cancel(timer));
        (connection.ends[CLIENT], connection.is_bound) = (Some(client), true);
        self.by_link.insert(client, (slot, Direction::Sent));
        self.stuck.push_back(slot);
    }

    /// Whether a link is a side of one.
    pub(crate) fn has(&self, link: LinkId) -> bool {
        self.by_link.contains_key(&link)
    }

    /// Takes what one side has brought, for the other. Returns whose it is, and which way it goes.
    pub(crate) fn handle_bytes(&mut self, link: LinkId, bytes: &[u8], out: &mut Outbox) -> Option<(usize, Direction)> {
        let (slot, direction) = *self.by_link.get(&link)?;
        let connection = self.all.get_mut(slot)?;
        let (to, pipe) = (connection.ends[1 - side_of(direction)], &mut connection.pipes[direction as usize]);
        let is_written = pipe.waiting.is_empty() && to.is_some_and(|to| out.push_bytes(to, bytes));
        if is_written {
            pipe.unconfirmed += bytes.len();
        } else {
            pipe.waiting.extend_from_slice(bytes);
        }
        if pipe.waiting.len() > EARLY_MAX {
            self.close(slot);
            return None;
        }
        let is_first = is_written && pipe.unconfirmed == bytes.len();
        if (pipe.unconfirmed > UNCONFIRMED_MAX || !pipe.waiting.is_empty()) && !pipe.is_paused {
            pipe.is_paused = true;
            // At once, as what else is there may be read before the next turn.
            let request = LinkRequest::Read { link, is_on: false };
            self.requests.extend(out.request(request).err());
        }
        if let Some(to) = to.filter(|_| is_first) {
            self.requests.push_back(LinkRequest::WatchWritable { link: to });
        }
        if !is_written && to.is_some() {
            self.stuck.push_back(slot);
        }
        Some((connection.allocation?, direction))
    }

    /// A side has brought more than its user's bandwidth: it is not read before that time.
    pub(crate) fn rest(&mut self, link: LinkId, until: Instant, out: &mut Outbox) {
        let Some((slot, direction)) = self.by_link.get(&link).copied() else { return };
        let Some(connection) = self.all.get_mut(slot) else { return };
        let pipe = &mut connection.pipes[direction as usize];
        pipe.rests_until = Some(until);
        if !std::mem::replace(&mut pipe.is_paused, true) {
            let request = LinkRequest::Read { link, is_on: false };
            self.requests.extend(out.request(request).err());
        }
        self.stuck.push_back(slot);
    }

    /// All that was written to a side has left.
    pub(crate) fn handle_writable(&mut self, link: LinkId) {
        let Some((slot, direction)) = self.by_link.get(&link).copied() else { return };
        let Some(connection) = self.all.get_mut(slot) else { return };
        // What leaves on this side has come from the other.
        connection.pipes[1 - direction as usize].unconfirmed = 0;
        self.stuck.push_back(slot);
    }

    /// One side sends no more.
    pub(crate) fn handle_input_ended(&mut self, link: LinkId) {
        let Some((slot, direction)) = self.by_link.get(&link).copied() else { return };
        let Some(connection) = self.all.get_mut(slot) else { return };
        connection.pipes[direction as usize].has_ended = true;
        self.end_if_done(slot);
    }

    /// Ends it when a side has, and all of that side is on its way.
    fn end_if_done(&mut self, slot: usize) {
        let Some(connection) = self.all.get(slot) else { return };
        let is_done = |direction: Direction| {
            let (pipe, to) = (&connection.pipes[direction as usize], connection.ends[1 - side_of(direction)]);
            pipe.has_ended && (pipe.waiting.is_empty() || to.is_none())
        };
        if !connection.is_bound || is_done(Direction::Sent) || is_done(Direction::Received) {
            self.close(slot);
        }
    }

    /// Ends a connection, on both sides, behind what is on its way.
    pub(crate) fn close(&mut self, slot: usize) {
        self.detach(slot);
        let Some(connection) = self.all.get_mut(slot) else { return };
        connection.asked = None;
        if !connection.is_under_way {
            self.forget(slot);
        }
    }

    /// Ends those with peers that are not allowed any more. Returns what clients are told.
    pub(crate) fn apply(&mut self, rules: &Rules) -> Vec<News> {
        let is_over = |connection: &PeerConnection| !rules.allows_by_tcp(connection.peer);
        let over: Vec<usize> = self.all.iter().filter(|(_, it)| is_over(it)).map(|(slot, _)| slot).collect();
        over.into_iter().filter_map(|slot| self.give_up(slot)).collect()
    }

    /// Ends one. Returns what its client is told, who may wait for it.
    fn give_up(&mut self, slot: usize) -> Option<News> {
        let connection = self.all.get_mut(slot)?;
        let asked = connection.asked.take().filter(|_| connection.allocation.is_some());
        self.close(slot);
        asked.map(|asked| News::Connected { asked, id: None })
    }

    /// It is no allocation's any more.
    fn detach(&mut self, slot: usize) {
        let Some(allocation) = self.all.get_mut(slot).and_then(|connection| connection.allocation.take()) else {
            return;
        };
        let Some(slots) = self.by_allocation.get_mut(&allocation) else { return };
        slots.retain(|other| *other != slot);
        if slots.is_empty() {
            self.by_allocation.remove(&allocation);
        }
    }

    /// Ends all of an allocation that is gone.
    pub(crate) fn close_all(&mut self, allocation: usize) {
        for slot in self.by_allocation.get(&allocation).cloned().unwrap_or_default() {
            self.close(slot);
        }
    }

    /// Something was written that the engine had no room for, which is not to be.
    pub(crate) fn handle_unsent(&mut self, link: LinkId) {
        if let Some((slot, _)) = self.by_link.get(&link).copied() {
            self.close(slot);
        }
    }

    /// Forgets it, and has what is left of it closed.
    fn forget(&mut self, slot: usize) {
        self.detach(slot);
        let Some(connection) = self.all.try_remove(slot) else { return };
        self.by_id.remove(&connection.id);
        connection.timer.map(|timer| self.wheel.cancel(timer));
        // Its socket has the place until it is gone.
        match connection.ends[PEER] {
            Some(link) => drop(self.closing.insert(link, connection.user)),
            None => self.give_place(&connection.user),
        }
        for link in connection.ends.into_iter().flatten() {
            self.by_link.remove(&link);
            self.requests.push_back(LinkRequest::Close { link });
        }
    }

    /// Ends those for which nobody came in time. Returns what a client is to be told, one at a time.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<News> {
        loop {
            let slot = match self.wheel.pop_due(now)? {
                Due::Patience(slot) => slot,
                Due::Rest(slot) => {
                    self.stuck.push_back(slot);
                    continue;
                }
            };
            let Some(connection) = self.all.get_mut(slot) else { continue };
            connection.timer = None;
            if let Some(news) = self.give_up(slot) {
                return Some(news);
            }
        }
    }

    /// When that is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    /// Writes what found no room before, and has sides read again to which there is room; false when there is more than the
    /// outbox takes.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        for _ in 0..self.stuck.len() {
            let Some(slot) = self.stuck.pop_front() else { break };
            if !self.go_on(now, slot, out) {
                self.stuck.push_front(slot);
                return false;
            }
        }
        crate::allocations::transmit(&mut self.requests, out)
    }

    /// The same for one connection.
    fn go_on(&mut self, now: Instant, slot: usize, out: &mut Outbox) -> bool {
        let Some(connection) = self.all.get_mut(slot) else { return true };
        for direction in [Direction::Sent, Direction::Received] {
            let side = side_of(direction);
            let (from, to) = (connection.ends[side], connection.ends[1 - side]);
            let pipe = &mut connection.pipes[direction as usize];
            let Some(to) = to else { continue };
            // What was written before has to leave first, so that all of this has room.
            if pipe.unconfirmed > 0 {
                continue;
            }
            if !pipe.waiting.is_empty() {
                // In pieces for which any outbox has room.
                let pieces = pipe.waiting.chunks(DATAGRAM_MAX).take_while(|piece| out.push_bytes(to, piece));
                pipe.unconfirmed = pieces.map(<[u8]>::len).sum();
                if pipe.unconfirmed == 0 {
                    return false;
                }
                pipe.waiting.drain(..pipe.unconfirmed);
                self.requests.push_back(LinkRequest::WatchWritable { link: to });
            } else if let Some(until) = pipe.rests_until.filter(|until| now < *until) {
                self.wheel.insert(until, Due::Rest(slot));
            } else if let Some(link) = from.filter(|_| pipe.is_paused && !pipe.has_ended) {
                (pipe.is_paused, pipe.rests_until) = (false, None);
                self.requests.push_back(LinkRequest::Read { link, is_on: true });
            }
        }
        self.end_if_bound_and_done(slot);
        true
    }

    fn end_if_bound_and_done(&mut self, slot: usize) {
        let ended = |connection: &PeerConnection| connection.pipes.iter().any(|pipe| pipe.has_ended);
        if self.all.get(slot).is_some_and(ended) {
            self.end_if_done(slot);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// The side that bytes of a direction come from.
fn side_of(direction: Direction) -> usize {
    match direction {
        Direction::Sent => CLIENT,
        Direction::Received => PEER,
    }
}
