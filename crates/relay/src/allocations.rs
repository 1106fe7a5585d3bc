//! All allocations of one worker, and the sockets and ports that they have.
//!
//! In: what requests want, what became of sockets, the time. Out: answers that waited for a socket, requests for links, what
//! control is told.
//! Cost: a client is found by one hash of its path, a relayed address by its slot. What expires or is closed is done in
//! portions, so that 50,000 at once delay no packet: see `PORTION`.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use slab::Slab;
use wheel::{TimerId, Wheel};
use wire::{Fragments, LinkId, LinkRequest, ListenOptions, Outbox, Path, Token, UdpOptions};

use crate::allocation::{Allocation, Client, Opening, PeerTransport, Relayed, family_index};
use crate::answer::{Code, Seal};
use crate::blocked::Blocked;
use crate::channel::Channels;
use crate::counters::{AllocationCounts, Counters};
use crate::ledger::Account;
use crate::message::{Family, TransactionId};
use crate::names::Name;
use crate::permission::Permissions;
use crate::ports::{Ports, Wanted};
use crate::random::Secret;
use crate::reservation::ReservationToken;
use crate::rules::Rules;
use crate::settings::Settings;
use crate::spec::{AllocationId, AllocationInfo, ClientTransport, EndReason, Event, Traffic};
use crate::story::Story;
use crate::tcp::PeerConnections;

/// Allocations that expire or are held against other rules, or sockets that are closed, before everything else gets its turn;
/// the next portion waits for `PAUSE`. A socket takes the kernel some ten microseconds.
const PORTION: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// Of one question for allocations: how many are looked at, and how many are told, before everything else gets its turn. Who wants
/// more asks again.
const LOOKS_MAX: usize = 1_024;
const TOLD_MAX: usize = 128;

/// How fine the wheel turns.
const TICK: Duration = Duration::from_millis(10);

/// For how long a port is kept for who has the token (RFC 8656 §7.2: 30 seconds at least).
const RESERVATION_LIFETIME: Duration = Duration::from_secs(30);

/// Other ports that are tried when somebody else has one.
const RETRIES_MAX: usize = 8;

/// Peers' connections that one listener accepts beyond those that its client may have, until they are refused.
const REFUSED_MAX: usize = 32;

/// 508.
pub(crate) const NO_ROOM: Code = (508, "Insufficient Capacity");

/// What becomes due.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// An allocation runs out.
    Allocation(usize),
    /// A port that was kept may be free again.
    Reservation(ReservationToken),
}

/// What a client wants (RFC 8656 §7.2), checked so far.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) client: Client,
    pub(crate) user: Arc<str>,
    pub(crate) account: Account,
    pub(crate) lifetime: Duration,
    pub(crate) family: Family,
    pub(crate) additional: Option<Family>,
    pub(crate) peers: PeerTransport,
    pub(crate) wanted: Wanted,
    /// A port that was kept for it.
    pub(crate) kept: Option<(ReservationToken, SocketAddr)>,
    pub(crate) transaction: TransactionId,
    pub(crate) seal: Seal,
    pub(crate) has_fingerprint: bool,
}

/// What came of a socket that an allocation waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has all it needs: the client is to be told.
    Ready(usize),
    /// It cannot have that: the client is to be told, and it removed.
    Failed(usize),
}

/// The table.
#[derive(Debug)]
pub(crate) struct Allocations {
    settings: Arc<Settings>,
    all: Slab<Allocation>,
    by_client: HashMap<Path, usize>,
    by_id: BTreeMap<AllocationId, usize>,
    sockets: Slab<Relayed>,
    /// The slot of each relayed address that is open for datagrams, by what peers see.
    by_shown: HashMap<SocketAddr, usize>,
    /// IPv4 and IPv6.
    ports: [Ports; 2],
    /// Of those the ones that are kept, by their tokens, and the timers that look after them.
    kept: HashMap<ReservationToken, (SocketAddr, TimerId)>,
    secret: Secret,
    wheel: Wheel<Due>,
    /// Before this nothing more expires, as a portion just did.
    expires_at: Option<Instant>,
    opens: VecDeque<LinkRequest>,
    closes: VecDeque<LinkId>,
    /// Before this no more sockets are closed.
    closes_at: Instant,
    /// From which slot on other rules have still to be applied, and when that goes on.
    applies: Option<(usize, Instant)>,
    last_id: u64,
    counts: AllocationCounts,
    pub(crate) events: VecDeque<Event>,
    /// TCP allocations that have ended, and whose connections are to.
    pub(crate) ended_tcp: Vec<usize>,
    /// The slots of clients' connections whose allocations have ended.
    pub(crate) ended_connections: Vec<usize>,
    /// The paths of clients by DTLS whose allocations have ended.
    pub(crate) ended_associations: Vec<Path>,
}

impl Allocations {
    pub(crate) fn new(now: Instant, settings: &Arc<Settings>) -> Self {
        let ports = || Ports::new(settings.ports.clone());
        Allocations {
            settings: Arc::clone(settings),
            all: Slab::new(),
            by_client: HashMap::default(),
            by_id: BTreeMap::new(),
            sockets: Slab::new(),
            by_shown: HashMap::default(),
            ports: [ports(), ports()],
            kept: HashMap::default(),
            secret: Secret::new(&settings.seed, "ports and tokens"),
            wheel: Wheel::new(now, TICK),
            expires_at: None,
            opens: VecDeque::new(),
            closes: VecDeque::new(),
            closes_at: now,
            applies: None,
            last_id: u64::from(settings.worker.0) << 48,
            counts: AllocationCounts::default(),
            events: VecDeque::new(),
            ended_tcp: Vec::new(),
            ended_connections: Vec::new(),
            ended_associations: Vec::new(),
        }
    }

    /// The allocation of a five-tuple, unless its time has come.
    #[inline]
    pub(crate) fn find(&self, now: Instant, path: &Path) -> Option<usize> {
        let key = *self.by_client.get(path)?;
        self.all.get(key).is_some_and(|allocation| !allocation.is_over(now)).then_some(key)
    }

    /// An allocation.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&Allocation> {
        self.all.get(key)
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut Allocation> {
        self.all.get_mut(key)
    }

    /// A relayed address.
    #[inline]
    pub(crate) fn socket(&self, slot: usize) -> Option<&Relayed> {
        self.sockets.get(slot)
    }

    /// The slot of the relayed address that peers see as this one.
    #[inline]
    pub(crate) fn shown(&self, address: &SocketAddr) -> Option<usize> {
        self.by_shown.get(address).copied()
    }

    /// What peers see of an allocation.
    pub(crate) fn shown_of(&self, allocation: &Allocation) -> impl Iterator<Item = SocketAddr> {
        allocation.relayed.into_iter().flatten().filter_map(|slot| Some(self.sockets.get(slot)?.shown))
    }

    /// Begins an allocation: asks for its sockets. The client is told when they are open.
    pub(crate) fn begin(&mut self, now: Instant, wish: Wish) -> Result<(), Code> {
        // One that has run out, and that nobody saw to yet.
        if let Some(key) = self.by_client.get(&wish.client.path).copied() {
            self.remove(now, key, EndReason::Expired);
        }
        if self.all.len() >= self.settings.allocations_max {
            return Err(NO_ROOM);
        }
        let first = match wish.kept {
            Some((token, bound)) => self.open_at(bound, wish.peers, Some(token)),
            None => self.open(wish.family, wish.peers, wish.wanted).ok_or(NO_ROOM)?,
        };
        let mut relayed = [None; 2];
        let family = self.sockets.get(first).map_or(wish.family, |socket| Family::of(socket.bound.ip()));
        relayed[family_index(family)] = Some(first);
        let mut lacks = None;
        if let Some(additional) = wish.additional {
            match self.open(additional, wish.peers, Wanted::Any) {
                Some(slot) => relayed[family_index(additional)] = Some(slot),
                None if self.settings.relay(additional).is_none() => lacks = Some((additional, 440)),
                None => lacks = Some((additional, 508)),
            }
        }
        self.last_id += 1;
        let waiting = relayed.iter().flatten().count();
        let opening = Opening { waiting, seal: wish.seal, has_fingerprint: wish.has_fingerprint };
        *self.counts.of(wish.client.transport, wish.client.family()) += 1;
        let entry = self.all.vacant_entry();
        let (key, until, path) = (entry.key(), now + wish.lifetime, wish.client.path);
        entry.insert(Allocation {
            id: AllocationId(self.last_id),
            client: wish.client,
            is_tcp: wish.peers == PeerTransport::Tcp,
            user: wish.user,
            account: wish.account,
            begun: now,
            until,
            timer: self.wheel.insert(until, Due::Allocation(key)),
            relayed,
            transaction: wish.transaction,
            reserved: None,
            lacks,
            opening: Some(Box::new(opening)),
            permissions: Permissions::default(),
            channels: Channels::default(),
            sent: Traffic::default(),
            received: Traffic::default(),
            dropped: 0,
            story: Box::default(),
        });
        for slot in relayed.into_iter().flatten() {
            if let Some(socket) = self.sockets.get_mut(slot) {
                socket.allocation = Some(key);
            }
        }
        self.by_client.insert(path, key);
        self.by_id.insert(AllocationId(self.last_id), key);
        Ok(())
    }

    /// Asks for a socket at a free port of a family.
    fn open(&mut self, family: Family, peers: PeerTransport, wanted: Wanted) -> Option<usize> {
        let bind = self.settings.relay(family)?.bind;
        let port = self.ports[family_index(family)].take(wanted, self.secret.number())?;
        let slot = self.open_at(SocketAddr::new(bind, port), peers, None);
        self.sockets[slot].is_pair = wanted == Wanted::Pair;
        Some(slot)
    }

    fn open_at(&mut self, bound: SocketAddr, peers: PeerTransport, token: Option<ReservationToken>) -> usize {
        let shown = self.shown_at(bound);
        let (allocation, link, retries, is_pair, is_kept) = (None, None, 0, false, false);
        let relayed = Relayed { allocation, bound, shown, link, peers, token, retries, is_pair, is_kept };
        let slot = self.sockets.insert(relayed);
        self.ask(slot);
        slot
    }

    /// What peers see of what is bound.
    fn shown_at(&self, bound: SocketAddr) -> SocketAddr {
        let relay = self.settings.relay(Family::of(bound.ip()));
        SocketAddr::new(relay.map_or(bound.ip(), |relay| relay.shown()), bound.port())
    }

    fn ask(&mut self, slot: usize) {
        let Some(socket) = self.sockets.get(slot) else { return };
        let addr = socket.bound;
        let token = Token { owner: self.settings.owner, number: Name::Relayed(slot).number() };
        if socket.peers == PeerTransport::Tcp {
            // Connections to peers leave from the same address and port.
            let links_max = self.settings.peer_connections_max + REFUSED_MAX;
            let stream = PeerConnections::options();
            let options = ListenOptions { reuse_port: true, links_max, stream };
            return self.opens.push_back(LinkRequest::Listen { token, addr, options });
        }
        let (receive_buffer_bytes, send_buffer_bytes) = (None, None);
        // What a client sends may be longer than its peer's path takes, and only who asked for it wants to lose that (RFC 8656
        // §14).
        let fragments = if socket.peers == PeerTransport::UdpWhole { Fragments::Never } else { Fragments::Always };
        // What keeps a port has it still.
        let reuse_port = socket.token.is_some();
        let options =
            UdpOptions { receive_buffer_bytes, send_buffer_bytes, fragments, reuse_port, ..UdpOptions::default() };
        self.opens.push_back(LinkRequest::OpenUdp { token, addr, ports: None, options });
    }

    /// A socket is open. Says what came of it for an allocation that waited.
    pub(crate) fn handle_opened(&mut self, now: Instant, slot: usize, link: LinkId) -> Option<Outcome> {
        let Some(socket) = self.sockets.get_mut(slot) else {
            self.closes.push_back(link);
            return None;
        };
        socket.link = Some(link);
        let (allocation, token) = (socket.allocation, socket.token);
        let (shown, bound, is_pair) = (socket.shown, socket.bound, socket.is_pair);
        let is_tcp = socket.peers == PeerTransport::Tcp;
        let Some(key) = allocation else {
            // Its client did not wait, and nobody was told of the next port: that is given back with this one, once.
            self.closes.push_back(link);
            return None;
        };
        if is_pair && let Err(error) = self.reserve(now, key, SocketAddr::new(bound.ip(), bound.port() | 1)) {
            // Others are tried, as when this one cannot be had.
            self.closes.push_back(link);
            self.sockets.get_mut(slot)?.link = None;
            return self.handle_failed(slot, &error);
        }
        if let Some(token) = token {
            self.settings.reservations.bound(&token);
        }
        self.sockets.get_mut(slot)?.is_kept = is_pair;
        self.settings.opened.set(bound, is_tcp, true);
        // What a client sends there by UDP is nothing to who listens for connections.
        if !is_tcp {
            self.by_shown.insert(shown, slot);
        }
        self.count_down(key)
    }

    /// Keeps a port for who made the allocation.
    fn reserve(&mut self, now: Instant, key: usize, address: SocketAddr) -> io::Result<()> {
        let (token, until) = (self.secret.bytes(), now + RESERVATION_LIFETIME);
        let Some(allocation) = self.all.get_mut(key) else { return Ok(()) };
        self.settings.reservations.keep(token, &allocation.user, address, until)?;
        allocation.reserved = Some(token);
        self.kept.insert(token, (address, self.wheel.insert(until, Due::Reservation(token))));
        Ok(())
    }

    /// A socket cannot be had. When somebody else has its port, others are tried.
    pub(crate) fn handle_failed(&mut self, slot: usize, error: &io::Error) -> Option<Outcome> {
        let socket = self.sockets.get_mut(slot)?;
        let (family, bound, is_pair) = (Family::of(socket.bound.ip()), socket.bound, socket.is_pair);
        let Some(key) = socket.allocation else {
            self.forget_socket(slot);
            return None;
        };
        let may_retry = error.kind() == ErrorKind::AddrInUse && socket.token.is_none() && socket.retries < RETRIES_MAX;
        if may_retry {
            socket.retries += 1;
            let wanted = match (is_pair, bound.port().is_multiple_of(2)) {
                (true, _) => Wanted::Pair,
                (false, true) => Wanted::Even,
                (false, false) => Wanted::Any,
            };
            let next = self.ports[family_index(family)].take(wanted, self.secret.number());
            // Given back when the next one is found, so that it is another.
            self.give_back(bound, is_pair);
            if let Some(port) = next {
                let bound = SocketAddr::new(bound.ip(), port);
                let shown = self.shown_at(bound);
                let socket = self.sockets.get_mut(slot)?;
                (socket.bound, socket.shown) = (bound, shown);
                self.ask(slot);
                return None;
            }
            // Nothing is left to be given back.
            self.sockets.remove(slot);
        } else {
            self.forget_socket(slot);
        }
        let allocation = self.all.get_mut(key)?;
        allocation.relayed.iter_mut().filter(|it| **it == Some(slot)).for_each(|it| *it = None);
        if allocation.relayed.iter().all(Option::is_none) {
            return Some(Outcome::Failed(key));
        }
        allocation.lacks = Some((family, NO_ROOM.0));
        self.count_down(key)
    }

    fn count_down(&mut self, key: usize) -> Option<Outcome> {
        let opening = self.all.get_mut(key)?.opening.as_mut()?;
        opening.waiting = opening.waiting.saturating_sub(1);
        (opening.waiting == 0).then_some(Outcome::Ready(key))
    }

    /// A socket is gone.
    pub(crate) fn handle_closed(&mut self, now: Instant, slot: usize, link: LinkId) {
        let Some(socket) = self.sockets.get(slot).filter(|socket| socket.link == Some(link)) else { return };
        let key = socket.allocation;
        self.forget_socket(slot);
        // The system took it from an allocation, which is nothing without.
        if let Some(key) = key {
            self.remove(now, key, EndReason::AddressLost);
        }
    }

    /// Forgets a socket that is not there any more, or never was, and gives its port back.
    fn forget_socket(&mut self, slot: usize) {
        let Some(socket) = self.sockets.try_remove(slot) else { return };
        self.settings.opened.set(socket.bound, socket.peers == PeerTransport::Tcp, false);
        if self.by_shown.get(&socket.shown) == Some(&slot) {
            self.by_shown.remove(&socket.shown);
        }
        if let Some(allocation) = socket.allocation.and_then(|key| self.all.get_mut(key)) {
            allocation.relayed.iter_mut().filter(|it| **it == Some(slot)).for_each(|it| *it = None);
        }
        match socket.token {
            // Its worker gives it back, which may be another.
            Some(token) => self.settings.reservations.give_back(&token),
            // It may have gone before the next port was kept.
            None => self.give_back(socket.bound, socket.is_pair && !socket.is_kept),
        }
    }

    fn give_back(&mut self, bound: SocketAddr, is_pair: bool) {
        let ports = &mut self.ports[family_index(Family::of(bound.ip()))];
        ports.give_back(bound.port());
        if is_pair {
            ports.give_back(bound.port() | 1);
        }
    }

    /// Gives an allocation another time.
    pub(crate) fn refresh(&mut self, now: Instant, key: usize, lifetime: Duration) {
        let Some(allocation) = self.all.get_mut(key) else { return };
        allocation.permissions.forget_lapsed(now);
        allocation.channels.forget_lapsed(now);
        allocation.story.refreshes = allocation.story.refreshes.saturating_add(1);
        self.wheel.cancel(allocation.timer);
        allocation.until = now + lifetime;
        allocation.timer = self.wheel.insert(allocation.until, Due::Allocation(key));
    }

    /// Ends the allocation of a five-tuple that is no more.
    pub(crate) fn remove_of(&mut self, now: Instant, path: &Path) {
        if let Some(key) = self.by_client.get(path).copied() {
            self.remove(now, key, EndReason::ConnectionClosed);
        }
    }

    /// Ends an allocation, and tells control.
    pub(crate) fn remove(&mut self, now: Instant, key: usize, reason: EndReason) {
        let was_told = self.all.get(key).is_some_and(|allocation| allocation.opening.is_none());
        let info = self.take_out(now, key);
        // Of one that nobody was told of there is nothing to tell.
        let ended = info.filter(|_| was_told).map(|(info, story)| Event::Ended(info, reason, story));
        self.events.extend(ended);
    }

    /// Takes one out of which nobody was told.
    pub(crate) fn remove_untold(&mut self, now: Instant, key: usize) {
        self.take_out(now, key);
    }

    fn take_out(&mut self, now: Instant, key: usize) -> Option<(AllocationInfo, Box<Story>)> {
        let mut allocation = self.all.try_remove(key)?;
        allocation.look(now);
        let relayed = self.shown_of(&allocation).collect();
        *self.counts.of(allocation.client.transport, allocation.client.family()) -= 1;
        self.wheel.cancel(allocation.timer);
        self.by_client.remove(&allocation.client.path);
        self.by_id.remove(&allocation.id);
        self.ended_tcp.extend(allocation.is_tcp.then_some(key));
        if let Name::Client(slot) = Name::of(allocation.client.token.number) {
            self.ended_connections.push(slot);
        }
        if allocation.client.transport == ClientTransport::Dtls {
            self.ended_associations.push(allocation.client.path);
        }
        for slot in allocation.relayed.into_iter().flatten() {
            self.release(slot);
        }
        // A port that nobody came for is kept no longer: who may have few allocations has few of these.
        if let Some(token) = allocation.reserved.filter(|token| self.settings.reservations.end(token)) {
            self.give_back_kept(token);
        }
        Some((allocation.info(now, relayed), allocation.story))
    }

    /// Lets go of one of an allocation's two relayed addresses. The last one goes with the allocation.
    pub(crate) fn release_family(&mut self, key: usize, family: Family) {
        let Some(slot) = self.all.get_mut(key).and_then(|it| it.relayed[family_index(family)].take()) else { return };
        self.release(slot);
    }

    /// Nobody needs a socket any more. Its slot stays taken until the engine says that it is gone.
    fn release(&mut self, slot: usize) {
        let Some(socket) = self.sockets.get_mut(slot) else { return };
        socket.allocation = None;
        let (link, shown) = (socket.link, socket.shown);
        if self.by_shown.get(&shown) == Some(&slot) {
            self.by_shown.remove(&shown);
        }
        self.closes.extend(link);
    }

    /// Ends what has run out, a portion at a time.
    pub(crate) fn handle_timeout(&mut self, now: Instant, counters: &mut Counters) {
        if self.expires_at.is_some_and(|at| now < at) {
            return;
        }
        self.expires_at = None;
        for _ in 0..PORTION {
            match self.wheel.pop_due(now) {
                Some(Due::Allocation(key)) => {
                    counters.allocations_expired += 1;
                    self.remove(now, key, EndReason::Expired);
                }
                Some(Due::Reservation(token)) => self.end_reservation(now, token),
                None => {
                    counters.lateness = self.wheel.lateness().clone();
                    return;
                }
            }
        }
        self.expires_at = Some(now + PAUSE);
    }

    /// The time of a reserved port is over. Who has taken it may keep it for long.
    fn end_reservation(&mut self, now: Instant, token: ReservationToken) {
        if self.settings.reservations.is_over(now, &token) {
            self.give_back_kept(token);
        } else if let Some((_, timer)) = self.kept.get_mut(&token) {
            *timer = self.wheel.insert(now + RESERVATION_LIFETIME, Due::Reservation(token));
        }
    }

    /// A port that was kept is free, unless it is already.
    fn give_back_kept(&mut self, token: ReservationToken) {
        if let Some((address, timer)) = self.kept.remove(&token) {
            self.wheel.cancel(timer);
            self.give_back(address, false);
        }
    }

    /// The rules are others now. What they allow no more is forgotten, a portion of allocations at a time.
    pub(crate) fn begin_applying(&mut self, now: Instant, rules: &Rules) {
        self.applies = Some((0, now));
        self.go_on_applying(now, rules);
    }

    /// The next portion, when it is time.
    pub(crate) fn go_on_applying(&mut self, now: Instant, rules: &Rules) {
        let Some((start, _)) = self.applies.filter(|(_, at)| *at <= now) else { return };
        let end = start + PORTION;
        for key in start..end.min(self.all.capacity()) {
            if let Some(allocation) = self.all.get_mut(key) {
                allocation.apply(now, rules);
            }
        }
        self.applies = (end < self.all.capacity()).then_some((end, now + PAUSE));
    }

    /// When there is something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.wheel.next_deadline().map(|at| self.expires_at.map_or(at, |not_before| at.max(not_before)));
        let close = (!self.closes.is_empty()).then_some(self.closes_at);
        let apply = self.applies.map(|(_, at)| at);
        [expiry, close, apply].into_iter().flatten().min()
    }

    /// Asks for sockets, and has others closed, a portion at a time; true when there is more that finds no room.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        if !transmit(&mut self.opens, out) {
            return true;
        }
        if self.closes.is_empty() || now < self.closes_at {
            return false;
        }
        for _ in 0..PORTION {
            let Some(link) = self.closes.pop_front() else { return false };
            if out.request(LinkRequest::Close { link }).is_err() {
                self.closes.push_front(link);
                return true;
            }
        }
        self.closes_at = now + PAUSE;
        false
    }

    /// Ends those of users who are kept out.
    pub(crate) fn remove_blocked(&mut self, now: Instant, blocked: &Blocked) {
        let of_blocked = self.all.iter().filter(|(_, allocation)| blocked.has(now, &allocation.user));
        let keys: Vec<usize> = of_blocked.map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.remove(now, key, EndReason::Blocked));
    }

    /// Those of the lowest numbers above `after`, of one user or of all; and, where not all of these were looked at, up to which
    /// number.
    pub(crate) fn list(
        &self,
        now: Instant,
        user: Option<&str>,
        after: AllocationId,
        count: usize,
    ) -> (Vec<AllocationInfo>, Option<AllocationId>) {
        let (mut found, mut looks) = (Vec::new(), 0);
        let count = count.min(TOLD_MAX);
        for (id, key) in self.by_id.range((Excluded(after), Unbounded)) {
            let Some(allocation) = self.all.get(*key) else { continue };
            if allocation.opening.is_none() && user.is_none_or(|user| *user == *allocation.user) {
                found.push(allocation.info(now, self.shown_of(allocation).collect()));
            }
            looks += 1;
            if looks == LOOKS_MAX || found.len() >= count {
                return (found, Some(*id));
            }
        }
        (found, None)
    }

    /// Tells what became of one that is there.
    pub(crate) fn tell(&mut self, now: Instant, token: u64, id: AllocationId) {
        let key = self.by_id(id).filter(|key| self.all.get(*key).is_some_and(|it| it.opening.is_none()));
        let told = key.and_then(|key| {
            let allocation = self.all.get_mut(key)?;
            allocation.look(now);
            let story = allocation.story.clone();
            let allocation = self.all.get(key)?;
            Some((allocation.info(now, self.shown_of(allocation).collect()), story))
        });
        // Behind what ended before.
        self.events.push_back(Event::Story { token, told });
    }

    /// The allocation of a number.
    pub(crate) fn by_id(&self, id: AllocationId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// How many there are.
    pub(crate) fn counts(&self) -> &AllocationCounts {
        &self.counts
    }

    /// Counts the ports of families in which it has an address.
    pub(crate) fn count_ports(&self, counters: &mut Counters) {
        for family in self.settings.relays.iter().map(|relay| Family::of(relay.bind)) {
            let ports = &self.ports[family_index(family)];
            counters.ports.set(family, ports.count().into());
            counters.ports_in_use.set(family, (ports.count() - ports.free_count()).into());
        }
    }
}

/// Asks the engine for all that is wanted; false when there is no room for it.
pub(crate) fn transmit(requests: &mut VecDeque<LinkRequest>, out: &mut Outbox) -> bool {
    while let Some(request) = requests.pop_front() {
        if let Err(request) = out.request(request) {
            requests.push_front(request);
            return false;
        }
    }
    true
}
