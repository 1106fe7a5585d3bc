//! What the fuzz target of TCP allocations does with its bytes: let clients, peers and time do anything in any order, and hold
//! what comes of it against a small model of RFC 6062. Shared by the fuzz target and by `crates/relay/tests`, which replays the
//! corpus and plays inputs of its own.
//!
//! Each record is four bytes: what is done, by which client, and how.

#[path = "../../crates/relay/tests/support/client.rs"]
mod client;
#[path = "../../crates/relay/tests/support/world.rs"]
mod world;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use client::Client;
use relay::message::{Class, Message, Method, attribute};
use relay::permission::PERMISSION_LIFETIME;
use relay::spec::ClientTransport;
use wire::LinkId;
use world::{PASSWORD, World};

/// Records of one input that are looked at.
const RECORDS_MAX: usize = 200;

/// Ann has two clients.
const USERS: [&str; 3] = ["ann", "ann", "bob"];

const STEPS_S: [u64; 4] = [7, 31, 299, 601];

/// Connections of one allocation at most.
const CONNECTIONS_MAX: usize = 3;

/// For how long a peer may take to answer, and then the client to bind the connection (RFC 6062 §5.2, §5.3).
const PATIENCE: Duration = Duration::from_secs(30);

/// What is due is done so much later at most.
const TICK: Duration = Duration::from_millis(150);

/// TCP, as REQUESTED-TRANSPORT has it.
const TCP: u32 = 6 << 24;

/// The key of a user.
fn key(user: &str) -> Vec<u8> {
    relay::auth::UserKeys::new(user, "millrace", PASSWORD).md5.expect("it has one").to_vec()
}

/// What a client has.
#[derive(Clone, Debug)]
struct Allocation {
    relayed: SocketAddr,
    until: Instant,
    permissions: HashMap<IpAddr, Instant>,
}

/// A connection to or from a peer.
#[derive(Clone, Debug)]
struct Connection {
    /// Whose it is.
    who: usize,
    peer: SocketAddr,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// A Connect that the peer has not answered.
    Asked { transaction: [u8; 12], until: Instant },
    /// Nobody waits for the peer any more.
    Abandoned,
    /// The client has still to bind it.
    Unbound { id: u32, peer: LinkId, until: Instant },
    /// It is joined with one of the client's.
    Bound { id: u32, peer: LinkId, own: LinkId },
}

struct Play {
    world: World,
    clients: Vec<Client>,
    model: Vec<Option<Allocation>>,
    connections: Vec<Connection>,
    last_port: u16,
}

pub fn relay_tcp(data: &[u8]) {
    let mut play = Play::new();
    for record in data.chunks_exact(4).take(RECORDS_MAX) {
        let (who, how, more) = (usize::from(record[1]) % USERS.len(), record[2], record[3]);
        play.pass_deadlines();
        play.connect_again();
        match record[0] % 14 {
            0 => play.allocate(who),
            1 => play.refresh(who, how),
            2 => play.permit(who, how),
            3 | 4 => play.connect(who, how),
            5 => play.answer(true),
            6 => play.answer(how & 1 == 0),
            7 => play.accept(who, how),
            8 | 9 => play.bind(who, how, more),
            10 => play.bring(how, more),
            11 => play.end_side(how),
            12 => play.pass(Duration::from_secs(STEPS_S[usize::from(how) % STEPS_S.len()])),
            _ => play.hang_up(who),
        }
        play.check();
    }
    play.finish();
}

impl Play {
    fn new() -> Self {
        let mut world = World::new(|settings| {
            settings.allows_tcp = true;
            settings.peer_connections_max = CONNECTIONS_MAX;
            settings.auth.nonce_age_max = Duration::from_secs(10_000_000);
        });
        let client = |(port, user): (u16, &str)| {
            let mut client = Client::over(ClientTransport::Tcp, &mut world, port);
            (client.user, client.key) = (user.to_owned(), key(user));
            client
        };
        let clients: Vec<_> = (1..).zip(USERS).map(client).collect();
        let (model, connections) = (vec![None; clients.len()], Vec::new());
        let mut play = Play { world, clients, model, connections, last_port: 10_000 };
        // Each knows its nonce.
        for who in 0..play.clients.len() {
            play.allocate(who);
            play.refresh(who, 0);
        }
        play
    }

    /// Some peer, of which one is forbidden and one of a family that no allocation has.
    fn peer(how: u8) -> SocketAddr {
        let peers = ["198.51.100.1:5000", "198.51.100.1:5001", "198.51.100.2:5000", "198.51.100.2:5001"];
        let text = match how % 16 {
            14 => "127.0.0.1:22",
            15 => "[2001:db8::9]:5000",
            other => peers[usize::from(other) % peers.len()],
        };
        text.parse().expect("an address")
    }

    fn of(&self, who: usize) -> impl Iterator<Item = &Connection> {
        self.connections.iter().filter(move |it| it.who == who && !matches!(it.state, State::Abandoned))
    }

    fn allocate(&mut self, who: usize) {
        let answer = self.clients[who].request(&mut self.world, Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, TCP);
        });
        if self.model[who].is_some() {
            return assert_eq!(answer.code, 437);
        }
        assert_eq!(answer.code, 0);
        let (relayed, until) = (answer.relayed(), self.world.now + Duration::from_secs(600));
        self.model[who] = Some(Allocation { relayed, until, permissions: HashMap::new() });
    }

    fn refresh(&mut self, who: usize, how: u8) {
        let seconds = u32::from(how & 1) * 600;
        let answer = self.clients[who].refresh(&mut self.world, seconds);
        let until = self.world.now + Duration::from_secs(seconds.into());
        match &mut self.model[who] {
            None => assert_eq!(answer.code, 437),
            Some(_) if seconds == 0 => self.lose(who),
            Some(own) => own.until = until,
        }
    }

    fn permit(&mut self, who: usize, how: u8) {
        let peer = Play::peer(how % 14);
        let (code, until) = (self.clients[who].permit(&mut self.world, &[peer]), self.world.now + PERMISSION_LIFETIME);
        match &mut self.model[who] {
            None => assert_eq!(code, 437),
            Some(own) => {
                assert_eq!(code, 0);
                own.permissions.insert(peer.ip(), until);
            }
        }
    }

    /// Asks for a connection. It is answered when the peer has.
    fn connect(&mut self, who: usize, how: u8) {
        let peer = Play::peer(how);
        let transaction = self.clients[who].transaction();
        let request = self.clients[who].sealed(Method::Connect, transaction, |writer| {
            writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
        });
        let under_way = self.world.connecting.len();
        let answers = self.clients[who].exchange(&mut self.world, &request);
        let code = match &self.model[who] {
            None => 437,
            Some(_) if peer.is_ipv6() => 443,
            Some(_) if peer.ip().is_loopback() => 403,
            Some(_) if self.of(who).any(|other| other.peer == peer) => 446,
            Some(_) if self.of(who).count() >= CONNECTIONS_MAX => 508,
            Some(own) => {
                assert!(answers.is_empty(), "the peer has not answered");
                assert_eq!(self.world.connecting.len(), under_way + 1);
                let (_, to, from) = self.world.connecting[under_way];
                assert_eq!((to, from), (peer, own.relayed));
                let state = State::Asked { transaction, until: self.world.now + PATIENCE };
                return self.connections.push(Connection { who, peer, state });
            }
        };
        assert_eq!(self.clients[who].read(&answers[0], Method::Connect, transaction).code, code);
        assert_eq!(self.world.connecting.len(), under_way);
    }

    /// All peers answer that were asked, or refuse.
    fn answer(&mut self, do_answer: bool) {
        let links = self.world.answer_connects(do_answer);
        let mut links = links.into_iter();
        let until = self.world.now + PATIENCE;
        for mut connection in std::mem::take(&mut self.connections) {
            let link = match connection.state {
                State::Asked { .. } | State::Abandoned => links.next(),
                _ => None,
            };
            match connection.state {
                State::Asked { transaction, .. } => {
                    let id = self.told(connection.who, transaction, if do_answer { 0 } else { 447 });
                    let (Some(id), Some(peer)) = (id, link) else { continue };
                    assert!(self.world.paused.contains(&peer.slot()), "nothing is read before it is bound");
                    connection.state = State::Unbound { id, peer, until };
                    self.connections.push(connection);
                }
                State::Abandoned => {
                    assert!(link.is_none_or(|link| !self.world.connections.contains_key(&link.slot())));
                }
                _ => self.connections.push(connection),
            }
        }
    }

    /// A client hears what became of its Connect; the number of the connection.
    fn told(&mut self, who: usize, transaction: [u8; 12], code: u16) -> Option<u32> {
        let path = self.clients[who].path;
        let own = self.world.sent.iter_mut().filter(|sent| sent.path == path);
        let found =
            own.flat_map(|sent| sent.datagrams.extract_if(.., |datagram| datagram[8..20] == transaction)).next();
        self.world.sent.retain(|sent| !sent.datagrams.is_empty());
        let answer = self.clients[who].read(&found.expect("it is told"), Method::Connect, transaction);
        assert_eq!(answer.code, code);
        answer.number(attribute::CONNECTION_ID)
    }

    /// A peer connects.
    fn accept(&mut self, who: usize, how: u8) {
        let peer = Play::peer(how % 15);
        let Some(own) = self.model[who].clone() else { return };
        let now = self.world.now;
        let is_permitted = own.permissions.get(&peer.ip()).is_some_and(|until| now < *until);
        let link = self.world.connect_peer(own.relayed, peer);
        if !is_permitted || self.of(who).count() >= CONNECTIONS_MAX {
            return assert!(link.is_none(), "{peer} is not permitted, or there are enough");
        }
        let (link, told) = (link.expect("it is permitted"), self.clients[who].take(&mut self.world));
        let message = Message::parse(&told[0]).expect("an indication");
        assert_eq!((message.class, message.method), (Class::Indication, Some(Method::ConnectionAttempt)));
        assert_eq!((told.len(), message.peers().next()), (1, Some(peer)));
        let id = message.connection_id.expect("it is told");
        let state = State::Unbound { id, peer: link, until: now + PATIENCE };
        self.connections.push(Connection { who, peer, state });
    }

    /// A client binds some connection, perhaps another's, or one that is bound, or none.
    fn bind(&mut self, who: usize, how: u8, more: u8) {
        let known: Vec<(usize, u32)> = self.connections.iter().enumerate().filter_map(Play::id).collect();
        let chosen = known.get(usize::from(how) % (known.len() + 1)).copied();
        let id = chosen.map_or(0x3f_ffff, |(_, id)| id);
        let transaction = self.clients[who].transaction();
        let request = self.clients[who].sealed(Method::ConnectionBind, transaction, |writer| {
            writer.number(attribute::CONNECTION_ID, id);
        });
        let behind = &b"behind"[..usize::from(more) % 7];
        self.last_port += 1;
        // A nonce is for one IP address.
        let remote = ([192, 0, 2, 200], self.last_port).into();
        let received = [&request[..], behind].concat();
        let (_, path) = self.world.connect_with(remote, ClientTransport::Tcp, &received).expect("it is taken over");
        let written = self.world.read(path.link);
        let answer = self.clients[who].read(&written, Method::ConnectionBind, transaction);
        let found = chosen.map(|(index, _)| &mut self.connections[index]);
        let unbound = found.and_then(|it| match it.state {
            State::Unbound { peer, .. } => Some((it, peer)),
            _ => None,
        });
        match unbound {
            None => assert_eq!(answer.code, 400),
            Some((it, _)) if USERS[it.who] != USERS[who] => assert_eq!(answer.code, 441),
            Some((it, peer)) => {
                assert_eq!(answer.code, 0);
                it.state = State::Bound { id, peer, own: path.link };
                assert_eq!(self.world.read(peer), behind);
                return assert!(!self.world.paused.contains(&peer.slot()), "it is read now");
            }
        }
        // Who has asked in vain may ask again there, but does not.
        if self.world.connections.contains_key(&path.link.slot()) {
            self.world.hang_up(&path);
        }
    }

    fn id((index, connection): (usize, &Connection)) -> Option<(usize, u32)> {
        match connection.state {
            State::Unbound { id, .. } | State::Bound { id, .. } => Some((index, id)),
            State::Asked { .. } | State::Abandoned => None,
        }
    }

    fn bound(&self, how: u8) -> Option<(usize, [LinkId; 2])> {
        let mut bound = self.connections.iter().enumerate().filter_map(|(index, it)| match it.state {
            State::Bound { peer, own, .. } => Some((index, [peer, own])),
            _ => None,
        });
        let count = bound.clone().count().max(1);
        bound.nth(usize::from(how >> 1) % count)
    }

    /// One side of a connection brings something, which the other gets.
    fn bring(&mut self, how: u8, more: u8) {
        let Some((_, ends)) = self.bound(how) else { return };
        let (from, to) = (ends[usize::from(how & 1)], ends[1 - usize::from(how & 1)]);
        let bytes = vec![more; 1 + usize::from(more)];
        self.world.bring(from, &bytes);
        assert_eq!(self.world.read(to), bytes);
    }

    /// One side of a connection ends, and so the other.
    fn end_side(&mut self, how: u8) {
        let Some((index, ends)) = self.bound(how) else { return };
        self.world.end_input(ends[usize::from(how & 1)]);
        self.connections.remove(index);
        assert!(ends.iter().all(|link| !self.world.connections.contains_key(&link.slot())));
    }

    /// A client's connection breaks, and it makes another.
    fn hang_up(&mut self, who: usize) {
        let path = self.clients[who].path;
        if self.world.connections.contains_key(&path.link.slot()) {
            self.world.hang_up(&path);
            self.lose(who);
        }
    }

    /// A client's allocation is no more, nor are its connections.
    fn lose(&mut self, who: usize) {
        self.model[who] = None;
        self.connections.iter_mut().filter(|it| it.who == who).for_each(Play::give_up);
        self.connections.retain(|it| it.who != who || matches!(it.state, State::Abandoned));
    }

    /// Nobody waits for a peer any more that may still answer; until then its place is taken.
    fn give_up(connection: &mut Connection) {
        if let State::Asked { .. } = connection.state {
            connection.state = State::Abandoned;
        }
    }

    fn pass(&mut self, time: Duration) {
        self.world.advance(time);
        let now = self.world.now;
        for mut connection in std::mem::take(&mut self.connections) {
            match connection.state {
                State::Asked { transaction, until } if until <= now => {
                    // Where its allocation has ended before nobody is told.
                    let own = self.model[connection.who].as_ref().expect("its connections end with it").until;
                    if until + TICK < own {
                        self.told(connection.who, transaction, 447);
                    } else if until < own + TICK {
                        let path = self.clients[connection.who].path;
                        self.world.sent.retain(|sent| sent.path != path);
                    }
                    Play::give_up(&mut connection);
                    self.connections.push(connection);
                }
                State::Unbound { peer, until, .. } if until <= now => {
                    assert!(!self.world.connections.contains_key(&peer.slot()), "nobody bound it");
                }
                _ => self.connections.push(connection),
            }
        }
        for who in 0..self.clients.len() {
            if self.model[who].as_ref().is_some_and(|own| own.until <= now) {
                self.lose(who);
            }
        }
    }

    /// What is due now may be done in a moment.
    fn pass_deadlines(&mut self) {
        let until = |connection: &Connection| match connection.state {
            State::Asked { until, .. } | State::Unbound { until, .. } => Some(until),
            State::Abandoned | State::Bound { .. } => None,
        };
        loop {
            let now = self.world.now;
            let of_connections = self.connections.iter().filter_map(until);
            let mut all = of_connections.chain(self.model.iter().flatten().map(|own| own.until));
            if !all.any(|until| until + TICK > now && until <= now + TICK) {
                return;
            }
            self.pass(TICK);
        }
    }

    /// What holds after each step.
    fn check(&mut self) {
        assert!(self.world.sent.is_empty(), "{:?}", self.world.sent);
        self.pass_deadlines();
        // Sockets that are closed take a turn.
        self.world.advance(Duration::from_millis(5));
        let counters = self.world.relay.counters();
        assert_eq!(counters.allocations.total(), self.model.iter().flatten().count() as u64);
        assert_eq!(counters.peer_connections, self.connections.len() as u64, "{:?}", self.connections);
        for connection in &self.connections {
            let links = match connection.state {
                State::Bound { peer, own, .. } => vec![peer, own],
                State::Unbound { peer, .. } => vec![peer],
                State::Asked { .. } | State::Abandoned => vec![],
            };
            assert!(links.iter().all(|link| self.world.connections.contains_key(&link.slot())), "{connection:?}");
        }
        self.connect_again();
        self.world.events.clear();
    }

    /// The connection of a client who has no allocation for long is closed; it makes another.
    fn connect_again(&mut self) {
        for who in 0..self.clients.len() {
            if !self.world.connections.contains_key(&self.clients[who].path.link.slot()) {
                assert!(self.model[who].is_none());
                let remote = self.clients[who].path.remote;
                let connected = self.world.connect(remote, ClientTransport::Tcp).expect("there is room");
                (self.clients[who].number, self.clients[who].path) = connected;
            }
        }
    }

    /// In the end all is as it was.
    fn finish(mut self) {
        (0..self.clients.len()).for_each(|who| self.hang_up(who));
        self.answer(false);
        self.pass(Duration::from_secs(200));
        assert_eq!((self.world.sockets.len(), self.world.connections.len()), (0, 0), "{:?}", self.world.connections);
        let counters = self.world.relay.counters();
        assert_eq!((counters.allocations.total(), counters.peer_connections, counters.connections), (0, 0, 0));
    }
}
