//! What the fuzz target of the relay does with its bytes: let clients, peers and time do anything in any order, and hold what
//! comes of it against a small model of RFC 8656. Shared by the fuzz target and by `crates/relay/tests`, which replays the
//! corpus and plays inputs of its own.
//!
//! Each record is four bytes: what is done, by which client, and how; raw messages take what follows.

#[path = "../../crates/relay/tests/support/client.rs"]
mod client;
#[path = "../../crates/relay/tests/support/world.rs"]
mod world;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use client::{Answer, Client, channel_data, indication};
use relay::channel::{CHANNEL_LIFETIME, CHANNEL_NUMBERS};
use relay::limits::LimitSettings;
use relay::message::{Message, Method, attribute};
use relay::permission::PERMISSION_LIFETIME;
use relay::spec::{AllocationId, ClientTransport, Command, Event};
use wire::Rate;
use world::{PASSWORD, World};

/// Records of one input that are looked at.
const RECORDS_MAX: usize = 200;

/// Few, so that one that is lost is missed.
const PORTS: std::ops::RangeInclusive<u16> = 50_000..=50_063;

const USERS: [&str; 4] = ["ann", "ann", "bob", "eve"];
const NUMBERS: [u16; 6] = [0x4000, 0x4001, 0x4002, 0x7fff, 0x3fff, 0x8000];
const LIFETIMES: [u32; 4] = [1, 600, 1_000, 100_000];
const STEPS: [u64; 8] = [1, 10, 29, 31, 150, 299, 300, 601];

/// The key of a user.
fn key(user: &str) -> Vec<u8> {
    relay::auth::UserKeys::new(user, "millrace", PASSWORD).md5.expect("it has one").to_vec()
}

/// What a client has, as the RFC says.
#[derive(Clone, Debug, Default)]
struct Allocation {
    relayed: Vec<SocketAddr>,
    until: Option<Instant>,
    permissions: HashMap<IpAddr, Instant>,
    channels: Vec<(u16, SocketAddr, Instant)>,
}

impl Allocation {
    fn relayed(&self, peer: SocketAddr) -> Option<SocketAddr> {
        self.relayed.iter().copied().find(|relayed| relayed.is_ipv4() == peer.is_ipv4())
    }

    fn channel(&self, now: Instant, peer: SocketAddr) -> Option<u16> {
        let mut channels = self.channels.iter().filter(|(_, bound, until)| *bound == peer && now < *until);
        channels.next().map(|(number, ..)| *number)
    }

    fn peer(&self, now: Instant, number: u16) -> Option<SocketAddr> {
        let mut channels = self.channels.iter().filter(|(bound, _, until)| *bound == number && now < *until);
        channels.next().map(|(_, peer, _)| *peer)
    }

    fn permits(&self, now: Instant, peer: SocketAddr) -> bool {
        let is_permitted = self.permissions.get(&peer.ip()).is_some_and(|until| now < *until);
        (is_permitted && peer.port() != 0) || self.channel(now, peer).is_some()
    }
}

/// A port that is kept.
#[derive(Clone, Debug)]
struct Kept {
    token: Vec<u8>,
    user: &'static str,
    address: SocketAddr,
    since: Instant,
}

struct Play {
    world: World,
    clients: Vec<Client>,
    model: Vec<Option<Allocation>>,
    kept: Vec<Kept>,
    payloads: u32,
}

pub fn relay(data: &[u8]) {
    let mut play = Play::new();
    let mut rest = data;
    for _ in 0..RECORDS_MAX {
        let Some((&[what, who, how, more], after)) = rest.split_first_chunk() else { break };
        rest = after;
        let who = usize::from(who) % USERS.len();
        match what % 16 {
            0 => play.allocate(who, how, more),
            1 => play.refresh(who, how),
            2 => play.permit(who, how, more),
            3 | 4 => play.bind(who, how, more),
            5 => play.send(who, how),
            6 | 7 => play.send_on(who, how),
            8 | 9 => play.hear(who, how, more),
            10 => play.pass(Duration::from_secs(STEPS[usize::from(how) % STEPS.len()])),
            11 => play.impersonate(who, how),
            12 => play.allocate_slowly(who, how),
            13 => play.damage(who, how, more),
            14 => {
                let (bytes, after) = rest.split_at(rest.len().min(usize::from(how)));
                rest = after;
                play.raw(who, bytes);
            }
            _ => play.end(who, how),
        }
        play.check();
    }
    play.finish();
}

impl Play {
    fn new() -> Self {
        let often = Rate { burst: 10_000, interval: Duration::from_micros(1) };
        let mut world = World::new(|settings| {
            settings.ports = PORTS;
            settings.limits = LimitSettings {
                source: often,
                total: often,
                cookies: often,
                source_handshakes: often,
                handshakes: often,
            };
        });
        let clients = (1..).zip(USERS).map(|(port, user)| match port {
            3 => {
                let mut client = Client::over(ClientTransport::Tcp, &mut world, port);
                (client.user, client.key) = (user.to_owned(), key(user));
                client
            }
            _ => Client::of(user, port),
        });
        let clients: Vec<_> = clients.collect();
        let model = vec![None; clients.len()];
        let mut play = Play { world, clients, model, kept: Vec::new(), payloads: 0 };
        // Each knows its nonce.
        for who in 0..play.clients.len() {
            play.clients[who].allocate(&mut play.world);
            play.clients[who].refresh(&mut play.world, 0);
        }
        play
    }

    /// What a client has, if its time is not over.
    fn own(&mut self, who: usize) -> Option<&mut Allocation> {
        let now = self.world.now;
        let own = &mut self.model[who];
        if own.as_ref().is_some_and(|it| it.until.is_none_or(|until| until <= now)) {
            *own = None;
        }
        own.as_mut()
    }

    /// Some peer: of a family, forbidden, with port 0, or another client's relayed address.
    fn peer(&mut self, how: u8) -> SocketAddr {
        let peers = [
            "198.51.100.1:5000",
            "198.51.100.1:5001",
            "198.51.100.2:5000",
            "[2001:db8::9]:5000",
            "127.0.0.1:22",
            "198.51.100.1:0",
        ];
        let index = usize::from(how) % (peers.len() + self.clients.len());
        let other = index.checked_sub(peers.len()).and_then(|who| self.own(who)?.relayed.first().copied());
        other.unwrap_or_else(|| peers[index % peers.len()].parse().expect("an address"))
    }

    fn is_allowed(peer: SocketAddr) -> bool {
        !peer.ip().is_loopback() && peer.port() != 0
    }

    fn payload(&mut self, how: u8) -> Vec<u8> {
        self.payloads += 1;
        let len = 4 + usize::from(how) % 9;
        self.payloads.to_be_bytes().into_iter().cycle().take(len).collect()
    }

    fn allocate(&mut self, who: usize, how: u8, more: u8) {
        let now = self.world.now;
        let lifetime = LIFETIMES[usize::from(how >> 6)];
        let (even, family) = (how & 3, how >> 2 & 3);
        let token = match more % 4 {
            0 => Some(vec![9; 8]),
            1 => self.kept.last().map(|kept| kept.token.clone()),
            _ => None,
        };
        let exists = self.own(who).is_some();
        let user = USERS[who];
        self.forget_kept();
        let taken = self.kept.iter().position(|kept| {
            Some(&kept.token) == token.as_ref() && kept.user == user && now < kept.since + Duration::from_secs(30)
        });
        let is_pair = even == 2;
        let answer = self.clients[who].allocate_with(&mut self.world, |writer| {
            writer.number(attribute::LIFETIME, lifetime);
            match even {
                1 => drop(writer.attribute(attribute::EVEN_PORT, &[0])),
                2 => drop(writer.attribute(attribute::EVEN_PORT, &[0x80])),
                _ => {}
            }
            match family {
                1 => drop(writer.attribute(attribute::REQUESTED_ADDRESS_FAMILY, &[1, 0, 0, 0])),
                2 => drop(writer.attribute(attribute::REQUESTED_ADDRESS_FAMILY, &[2, 0, 0, 0])),
                3 => drop(writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0])),
                _ => {}
            }
            if let Some(token) = &token {
                writer.attribute(attribute::RESERVATION_TOKEN, token);
            }
        });
        let has_even = even == 1 || is_pair;
        let expected = match () {
            () if exists => 437,
            () if token.is_some() && (has_even || family != 0) => 400,
            () if is_pair && family == 3 => 400,
            () if token.is_some() && taken.is_none() => 508,
            () => 0,
        };
        // Kept ports may be all that there are.
        let may_be_full = self.kept.len() > 8;
        assert!(
            answer.code == expected || (expected == 0 && may_be_full && answer.code == 508),
            "{answer:?} {expected}"
        );
        if answer.code != 0 {
            return;
        }
        let relayed = answer.addresses(attribute::XOR_RELAYED_ADDRESS);
        assert_eq!(relayed.len(), if family == 3 { 2 } else { 1 });
        assert!(relayed.iter().all(|relayed| PORTS.contains(&relayed.port())));
        // A port that is kept is of the family that it was kept in.
        let is_ipv6 = taken.map_or(family == 2, |taken| self.kept[taken].address.is_ipv6());
        assert_eq!(relayed[0].is_ipv6(), is_ipv6);
        assert!(!has_even || relayed[0].port().is_multiple_of(2));
        if let Some(taken) = taken {
            assert_eq!(relayed, [self.kept.remove(taken).address]);
        }
        let token = answer.value(attribute::RESERVATION_TOKEN);
        assert_eq!(token.is_some(), is_pair);
        if let Some(token) = token {
            let address = SocketAddr::new(relayed[0].ip(), relayed[0].port() + 1);
            self.kept.push(Kept { token: token.to_vec(), user, address, since: now });
        }
        self.begin(who, &answer, Duration::from_secs(lifetime.clamp(600, 3_600).into()));
    }

    /// A port is kept as long as the allocation beside it is there.
    fn forget_kept(&mut self) {
        let all: Vec<_> = (0..self.clients.len()).filter_map(|who| self.own(who).cloned()).collect();
        let begin = |kept: &Kept| SocketAddr::new(kept.address.ip(), kept.address.port() - 1);
        self.kept.retain(|kept| all.iter().any(|own| own.relayed.contains(&begin(kept))));
    }

    fn begin(&mut self, who: usize, answer: &Answer, lifetime: Duration) {
        let relayed = answer.addresses(attribute::XOR_RELAYED_ADDRESS);
        for other in self.model.iter().flatten() {
            assert!(!other.relayed.iter().any(|address| relayed.contains(address)), "an address is one client's");
        }
        let until = Some(self.world.now + lifetime);
        self.model[who] = Some(Allocation { relayed, until, ..Allocation::default() });
    }

    /// Its socket is opened late, and what made it comes once more.
    fn allocate_slowly(&mut self, who: usize, how: u8) {
        let exists = self.own(who).is_some();
        let id = self.clients[who].transaction();
        let (is_pair, is_too_late) = (how & 4 != 0, how & 8 != 0);
        let request = self.clients[who].sealed(Method::Allocate, id, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
            if is_pair {
                writer.attribute(attribute::EVEN_PORT, &[0x80]);
            }
        });
        self.world.is_slow = true;
        let mut answers = self.clients[who].exchange(&mut self.world, &request);
        if how & 1 != 0 {
            answers.extend(self.clients[who].exchange(&mut self.world, &request));
        }
        let begun = self.world.now;
        match how & 10 {
            0 => {}
            2 => self.pass(Duration::from_secs(599)),
            _ => self.pass(Duration::from_secs(601)),
        }
        self.world.is_slow = false;
        self.world.open_sockets();
        answers.extend(self.clients[who].take(&mut self.world));
        // A nonce may be too old; then nothing has happened.
        let answer = answers.first().map(|answer| self.clients[who].read(answer, Method::Allocate, id));
        match answer {
            Some(answer) if answer.code == 0 => {
                assert!(!exists && answers.len() == 1 && !is_too_late);
                if let Some(token) = answer.value(attribute::RESERVATION_TOKEN) {
                    let relayed = answer.relayed();
                    let address = SocketAddr::new(relayed.ip(), relayed.port() + 1);
                    self.kept.push(Kept { token: token.to_vec(), user: USERS[who], address, since: self.world.now });
                }
                self.begin(who, &answer, begun + Duration::from_secs(600) - self.world.now);
            }
            Some(answer) => {
                assert!(answer.code == 438 || (exists && answer.code == 437) || self.kept.len() > 8, "{answer:?}")
            }
            None => assert!(is_too_late && !exists, "it is answered"),
        }
    }

    fn refresh(&mut self, who: usize, how: u8) {
        let now = self.world.now;
        let seconds = if how & 1 == 0 { 0 } else { LIFETIMES[usize::from(how >> 6)] };
        let answer = self.clients[who].refresh(&mut self.world, seconds);
        let lifetime = if seconds == 0 { 0 } else { seconds.clamp(600, 3_600) };
        let Some(own) = self.own(who) else { return assert_eq!(answer.code, 437) };
        assert_eq!(answer.number(attribute::LIFETIME), Some(lifetime));
        own.until = Some(now + Duration::from_secs(lifetime.into()));
    }

    fn permit(&mut self, who: usize, how: u8, more: u8) {
        let peers: Vec<_> = [how, more].into_iter().take(usize::from(how % 3)).map(|how| self.peer(how)).collect();
        let code = self.clients[who].permit(&mut self.world, &peers);
        let now = self.world.now;
        let Some(own) = self.own(who) else { return assert_eq!(code, 437) };
        let wrong = peers.iter().find_map(|peer| match own.relayed(*peer) {
            None => Some(443),
            Some(_) if peer.ip().is_loopback() => Some(403),
            Some(_) => None,
        });
        assert_eq!(code, if peers.is_empty() { 400 } else { wrong.unwrap_or(0) }, "{peers:?}");
        if code == 0 {
            own.permissions.extend(peers.iter().map(|peer| (peer.ip(), now + PERMISSION_LIFETIME)));
        }
    }

    fn bind(&mut self, who: usize, how: u8, more: u8) {
        let (number, peer) = (NUMBERS[usize::from(how) % NUMBERS.len()], self.peer(more));
        let code = self.clients[who].bind(&mut self.world, number, peer);
        let now = self.world.now;
        let Some(own) = self.own(who) else { return assert_eq!(code, 437) };
        let is_other = own.peer(now, number).is_some_and(|bound| bound != peer)
            || own.channel(now, peer).is_some_and(|bound| bound != number);
        let expected = match own.relayed(peer) {
            _ if !CHANNEL_NUMBERS.contains(&number) => 400,
            None => 443,
            Some(_) if !Play::is_allowed(peer) => 403,
            Some(_) if is_other => 400,
            Some(_) => 0,
        };
        assert_eq!(code, expected, "{number:#x} {peer}");
        if code == 0 {
            own.channels.retain(|(bound, bound_peer, _)| *bound != number && *bound_peer != peer);
            own.channels.push((number, peer, now + CHANNEL_LIFETIME));
            own.permissions.insert(peer.ip(), now + PERMISSION_LIFETIME);
        }
    }

    fn send(&mut self, who: usize, how: u8) {
        let (peer, payload, now) = (self.peer(how), self.payload(how), self.world.now);
        let from = self.own(who).filter(|own| own.permits(now, peer)).and_then(|own| own.relayed(peer));
        let client = self.clients[who].clone();
        self.world.receive(client.number, client.path, &[&indication(Method::Send, peer, &payload)]);
        self.expect_at_peer(from, peer, &payload);
    }

    fn send_on(&mut self, who: usize, how: u8) {
        let (number, payload, now) = (NUMBERS[usize::from(how) % 4], self.payload(how), self.world.now);
        let bound = self.own(who).and_then(|own| own.peer(now, number).map(|peer| (own.relayed(peer), peer)));
        let client = self.clients[who].clone();
        let data = channel_data(number, &payload);
        self.world.receive(client.number, client.path, &[&data, &data]);
        match bound {
            Some((from, peer)) => self.expect_at_peer(from, peer, &payload.repeat(2)),
            None => assert!(self.world.sent.is_empty(), "{:?}", self.world.sent),
        }
    }

    /// What was sent goes from a relayed address to a peer, which may be another client, or nowhere.
    fn expect_at_peer(&mut self, from: Option<SocketAddr>, peer: SocketAddr, payload: &[u8]) {
        let Some(from) = from else { return assert!(self.world.sent.is_empty(), "{:?}", self.world.sent) };
        let other = (0..self.clients.len()).find(|who| self.own(*who).is_some_and(|own| own.relayed.contains(&peer)));
        match other {
            Some(who) => self.expect_at_client(who, from, payload),
            None => {
                let sent = std::mem::take(&mut self.world.sent);
                assert!(sent.iter().all(|sent| sent.path.remote == peer));
                let (_, _, bound) = self.world.sockets[&sent[0].path.link.slot()];
                assert_eq!(bound, from);
                assert_eq!(sent.into_iter().flat_map(|sent| sent.datagrams).flatten().collect::<Vec<_>>(), payload);
            }
        }
    }

    /// A client hears of a peer if it permits that, by its channel or by a Data indication, once for each four bytes that
    /// repeat.
    fn expect_at_client(&mut self, who: usize, peer: SocketAddr, payload: &[u8]) {
        let now = self.world.now;
        let heard = self.clients[who].take(&mut self.world);
        assert!(self.world.sent.is_empty(), "{:?}", self.world.sent);
        let own = self.own(who).expect("it was asked").clone();
        if !own.permits(now, peer) {
            return assert!(heard.is_empty(), "{heard:?}");
        }
        let data = heard.iter().map(|heard| match own.channel(now, peer) {
            Some(number) => {
                assert_eq!(heard[..2], number.to_be_bytes());
                heard[4..].to_vec()
            }
            None => {
                // On a connection the engine pads it.
                let padded = [&heard[..], &[0; 3][..heard.len().next_multiple_of(4) - heard.len()]].concat();
                let message = Message::parse(&padded).expect("an indication");
                assert_eq!((message.method, message.peers().next()), (Some(Method::Data), Some(peer)));
                Answer::of(&padded, message.class).value(attribute::DATA).expect("data").to_vec()
            }
        });
        assert_eq!(data.collect::<Vec<_>>().concat(), payload);
    }

    fn hear(&mut self, who: usize, how: u8, more: u8) {
        let (peer, payload) = (self.peer(how), self.payload(how));
        let Some(own) = self.own(who) else { return };
        let relayed = own.relayed[usize::from(more) % own.relayed.len()];
        self.world.receive_from_peer(relayed, peer, &[&payload]);
        if relayed.is_ipv4() == peer.is_ipv4() {
            self.expect_at_client(who, peer, &payload);
        } else {
            // No network brings that.
            self.world.sent.clear();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.world.advance(time);
        let now = self.world.now;
        // As long as they may be kept.
        self.kept.retain(|kept| now < kept.since + Duration::from_secs(61));
    }

    /// Somebody else at the same five-tuple.
    fn impersonate(&mut self, who: usize, how: u8) {
        let mut other = self.clients[who].clone();
        let user = USERS.into_iter().find(|user| *user != other.user).expect("there are others");
        (other.user, other.key) = (user.to_owned(), key(user));
        let code = match how % 3 {
            0 => other.refresh(&mut self.world, 0).code,
            1 => other.permit(&mut self.world, &[([198, 51, 100, 7], 1).into()]),
            _ => other.bind(&mut self.world, 0x4005, ([198, 51, 100, 7], 1).into()),
        };
        assert_eq!(code, if self.own(who).is_some() { 441 } else { 437 });
    }

    /// A request of which a byte is another does nothing.
    fn damage(&mut self, who: usize, how: u8, more: u8) {
        let id = self.clients[who].transaction();
        let mut request = self.clients[who].sealed(Method::Refresh, id, |writer| {
            writer.number(attribute::LIFETIME, 0);
        });
        let at = usize::from(how) % request.len();
        request[at] ^= 1 << (more % 8);
        let answers = self.clients[who].exchange(&mut self.world, &request);
        let bytes: usize = answers.iter().map(Vec::len).sum();
        assert!(bytes * 10 <= request.len() * 26, "{bytes} for {}", request.len());
    }

    /// Anything that a client may send. Nothing of it is proved.
    fn raw(&mut self, who: usize, bytes: &[u8]) {
        if bytes.is_empty() || bytes.first().is_some_and(|first| first >> 6 == 1) {
            return;
        }
        let is_send = bytes.starts_with(&[0, 0x16]);
        let client = self.clients[who].clone();
        let answers = client.exchange(&mut self.world, bytes);
        let len: usize = answers.iter().map(Vec::len).sum();
        assert!(is_send || who == 2 || len * 10 <= bytes.len() * 26, "{len} for {}", bytes.len());
        self.world.sent.clear();
    }

    /// Control ends an allocation, or the client's connection does.
    fn end(&mut self, who: usize, how: u8) {
        if who == 2 && how & 1 == 0 {
            // It may be closed, as nobody used it.
            if self.world.connections.contains_key(&self.clients[who].path.link.slot()) {
                let path = self.clients[who].path;
                self.world.hang_up(&path);
            }
        } else if let Some(relayed) = self.own(who).map(|own| own.relayed.clone()) {
            self.world.events.clear();
            self.world.command(Command::List { token: 1, user: None, after: AllocationId(0), count: 100 });
            let Some(Event::Allocations { allocations, .. }) = self.world.events.pop() else { panic!("it is told") };
            let info = allocations.iter().find(|info| info.relayed == relayed).expect("it is there");
            self.world.command(Command::Delete(info.id));
        }
        self.model[who] = None;
    }

    /// What holds after each step.
    fn check(&mut self) {
        let sockets: usize = (0..self.clients.len()).filter_map(|who| Some(self.own(who)?.relayed.len())).sum();
        let count = (0..self.clients.len()).filter(|who| self.own(*who).is_some()).count();
        self.world.step();
        assert!(self.world.sent.is_empty(), "{:?}", self.world.sent);
        assert_eq!(self.world.relay.counters().allocations.total(), count as u64);
        // Sockets that are closed take a turn.
        self.world.advance(Duration::from_millis(5));
        assert_eq!(self.world.sockets.len(), sockets);
        // The connection of a client who did nothing for long is closed; it makes another.
        if !self.world.connections.contains_key(&self.clients[2].path.link.slot()) {
            assert!(self.own(2).is_none());
            let remote = self.clients[2].path.remote;
            let (number, path) = self.world.connect(remote, ClientTransport::Tcp).expect("there is room");
            (self.clients[2].number, self.clients[2].path) = (number, path);
        }
        self.world.events.clear();
    }

    /// In the end all is as it was: each port can be had.
    fn finish(mut self) {
        for _ in 0..3 {
            self.pass(Duration::from_secs(3_700));
        }
        assert_eq!((self.world.sockets.len(), self.world.relay.counters().allocations.total()), (0, 0));
        let mut ports: Vec<_> =
            PORTS.map(|port| Client::of("bob", 1_000 + port % 1_000).allocate(&mut self.world).port()).collect();
        ports.sort_unstable();
        assert_eq!(ports, PORTS.collect::<Vec<_>>());
    }
}
