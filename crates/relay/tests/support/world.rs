//! A relay, a clock, and an engine that is none: sockets open and close as the relay asks, and what it sends is looked at.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::{BTreeMap, HashSet};
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use relay::auth::{Credentials, UserKeys};
use relay::relay::Relay;
use relay::rules::{Lists, Own, Rules};
use relay::settings::{Listener, RelayAddress, Settings};
use relay::spec::{ClientTransport, Command, Connection, Event};
use wire::{
    Adopted, Begun, CloseReason, DatagramRun, Fragments, LinkEvent, LinkId, LinkKind, LinkRequest, Outbox, Path,
    Product as _, Token,
};

/// The password of each user: ann, bob and eve.
pub const PASSWORD: &str = "secret";

/// Where clients send to.
pub const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 3_478);

/// What peers see of an IPv4 allocation.
pub const RELAY: [u8; 4] = [203, 0, 113, 1];

/// The ports of relayed addresses.
pub const PORTS: std::ops::RangeInclusive<u16> = 50_000..=50_999;

/// One run that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The way it goes.
    pub path: Path,
    /// Each of its datagrams.
    pub datagrams: Vec<Vec<u8>>,
}

/// All of it.
pub struct World {
    pub relay: Relay,
    pub now: Instant,
    out: Outbox,
    /// Open UDP sockets, by their links' slots.
    pub sockets: BTreeMap<usize, (LinkId, Token, SocketAddr)>,
    /// Ports of those that make no fragments.
    pub whole: HashSet<u16>,
    /// Ports that somebody else has.
    pub taken: HashSet<u16>,
    next_slot: u32,
    /// What was sent and nobody has looked at.
    pub sent: Vec<Sent>,
    pub events: Vec<Event>,
    /// Sockets are opened later, by `open_sockets`.
    pub is_slow: bool,
    waiting: Vec<LinkRequest>,
    /// Connections that are there.
    pub connections: BTreeMap<usize, (LinkId, Token, SocketAddr)>,
    /// Connections to peers that are asked for: where to and from.
    pub connecting: Vec<(Token, SocketAddr, SocketAddr)>,
    /// What was written for byte streams, by their links' slots.
    pub written: BTreeMap<usize, Vec<u8>>,
    /// Byte streams that are not read.
    pub paused: HashSet<usize>,
    /// Byte streams of which what was written does not leave.
    pub stalled: HashSet<usize>,
    watched: HashSet<LinkId>,
    /// Byte streams that were closed and that the other side has not ended: who asks again does not wait for that.
    pub lingering: HashSet<LinkId>,
    /// Bytes of the longest frame of each connection, by their links' slots.
    pub frames_max: BTreeMap<usize, usize>,
    /// What the engine has to tell.
    closed: Vec<(Token, LinkId)>,
}

/// What most tests have: two listeners, IPv4 and IPv6, and private networks among the peers.
pub fn settings(now: Instant) -> Settings {
    let mut settings = Settings::new([7; 32], (now, Duration::from_secs(1_700_000_000)));
    let v6: SocketAddr = "[2001:db8::1]:3478".parse().expect("an address");
    let listener = |addr| Listener { addr, transport: ClientTransport::Udp };
    settings.listeners = vec![listener(SERVER.into()), listener(v6)];
    settings.relays =
        vec![RelayAddress::of(IpAddr::from(RELAY)), RelayAddress::of("2001:db8::2".parse().expect("an address"))];
    settings.ports = PORTS;
    settings.ports_of_all = PORTS;
    let users = ["ann", "bob", "eve"].map(|user| (user.into(), UserKeys::new(user, "millrace", PASSWORD)));
    settings.auth.credentials = Arc::new(Credentials::new("millrace", users, []));
    settings.rules = Arc::new(Rules::new(
        &Lists {
            allow: vec![
                "198.51.100.0/24".parse().expect("a prefix"),
                "203.0.113.0/24".parse().expect("a prefix"),
                "2001:db8::/32".parse().expect("a prefix"),
            ],
            deny: Vec::new(),
        },
        &Own::default(),
    ));
    settings
}

impl World {
    pub fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let now = Instant::now();
        let mut settings = settings(now);
        change(&mut settings);
        let listeners = settings.listeners.len();
        let mut world = World {
            relay: Relay::new(now, settings),
            now,
            out: Outbox::new(512 * 1_024),
            sockets: BTreeMap::new(),
            connections: BTreeMap::new(),
            connecting: Vec::new(),
            written: BTreeMap::new(),
            paused: HashSet::new(),
            stalled: HashSet::new(),
            watched: HashSet::new(),
            lingering: HashSet::new(),
            whole: HashSet::new(),
            frames_max: BTreeMap::new(),
            taken: HashSet::new(),
            next_slot: 100,
            sent: Vec::new(),
            events: Vec::new(),
            is_slow: false,
            waiting: Vec::new(),
            closed: Vec::new(),
        };
        // Those that are there from the start.
        for slot in 0..listeners as u32 {
            let token = Token { owner: 0, number: relay::names::listener(slot as usize) };
            let event = LinkEvent::Opened { link: LinkId::datagrams(slot), local: SERVER.into(), remote: None };
            world.tell(token, event);
        }
        world
    }

    /// Something came to a link: datagrams of one size, but for a last one that may be shorter.
    pub fn receive(&mut self, number: u32, path: Path, datagrams: &[&[u8]]) {
        let mut data = datagrams.concat();
        let Some(first) = datagrams.first() else { return };
        let size = NonZeroUsize::new(first.len()).unwrap_or(NonZeroUsize::MIN);
        let run = DatagramRun::new(Token { owner: 0, number }, path, size, &mut data).at(0);
        self.relay.handle_run(self.now, run, &mut self.out);
        self.flush(&data);
        self.settle();
    }

    /// Something came to a relayed address.
    pub fn receive_from_peer(&mut self, to: SocketAddr, peer: SocketAddr, datagrams: &[&[u8]]) {
        let found = self.sockets.values().find(|(_, _, addr)| *addr == to).copied();
        let Some((link, token, _)) = found else { return };
        self.receive(token.number, Path { link, remote: peer, local: None }, datagrams);
    }

    pub fn command(&mut self, command: Command) {
        self.relay.handle_command(self.now, command, &mut self.out);
        self.flush(&[]);
        self.settle();
    }

    /// A client has connected; the token's number and the path of its connection.
    pub fn connect(&mut self, remote: SocketAddr, transport: ClientTransport) -> Option<(u32, Path)> {
        self.connect_with(remote, transport, &[])
    }

    /// The same, with what it has sent already.
    pub fn connect_with(
        &mut self,
        remote: SocketAddr,
        transport: ClientTransport,
        received: &[u8],
    ) -> Option<(u32, Path)> {
        let descriptor = std::fs::File::open("/dev/null").expect("it is there").into();
        let begun = Begun { remote: Some(remote), received: received.into(), ..Begun::default() };
        let connection = Connection { descriptor, client: remote, server: SERVER.into(), transport, begun };
        self.command(Command::AddClient(connection));
        let mut found = self.connections.values().filter(|(_, _, other)| *other == remote);
        let found = found.next_back().map(|(link, token, _)| (*link, token.number));
        let (link, number) = found?;
        if link.kind() == LinkKind::Stream {
            self.bring(link, received);
        }
        Some((number, Path { link, remote, local: None }))
    }

    /// A peer connects to a relayed address; the link, if it was not closed at once.
    pub fn connect_peer(&mut self, to: SocketAddr, peer: SocketAddr) -> Option<LinkId> {
        let (_, token, _) = *self.sockets.values().find(|(_, _, addr)| *addr == to)?;
        Some(self.open_stream(token, peer)).filter(|link| self.connections.contains_key(&link.slot()))
    }

    /// Peers answer, or do not; the links.
    pub fn answer_connects(&mut self, do_answer: bool) -> Vec<LinkId> {
        let mut links = Vec::new();
        for (token, peer, _) in std::mem::take(&mut self.connecting) {
            if do_answer {
                links.push(self.open_stream(token, peer));
            } else {
                let event = LinkEvent::Failed { error: Error::from(ErrorKind::ConnectionRefused) };
                self.tell(token, event);
            }
        }
        links
    }

    fn open_stream(&mut self, token: Token, remote: SocketAddr) -> LinkId {
        let link = LinkId::new(LinkKind::Stream, self.next_slot, 0);
        self.next_slot += 1;
        self.connections.insert(link.slot(), (link, token, remote));
        self.tell(token, LinkEvent::Opened { link, local: SERVER.into(), remote: Some(remote) });
        link
    }

    /// A byte stream brings something.
    pub fn bring(&mut self, link: LinkId, bytes: &[u8]) {
        let (_, token, _) = self.connections[&link.slot()];
        self.tell(token, LinkEvent::Bytes { link, bytes: &mut bytes.to_vec() });
    }

    /// What was written for a byte stream and nobody has looked at.
    pub fn read(&mut self, link: LinkId) -> Vec<u8> {
        self.written.remove(&link.slot()).unwrap_or_default()
    }

    /// What was written for a byte stream leaves.
    pub fn drain(&mut self, link: LinkId) {
        self.stalled.remove(&link.slot());
        if self.watched.remove(&link) {
            let (_, token, _) = self.connections[&link.slot()];
            self.tell(token, LinkEvent::Writable { link });
        }
    }

    /// The other side of a byte stream sends no more.
    pub fn end_input(&mut self, link: LinkId) {
        let (_, token, _) = self.connections[&link.slot()];
        self.tell(token, LinkEvent::InputEnded { link });
    }

    fn tell(&mut self, token: Token, event: LinkEvent<'_>) {
        self.relay.handle_link(self.now, token, event, &mut self.out);
        self.flush(&[]);
        self.settle();
    }

    /// A client's connection breaks.
    pub fn hang_up(&mut self, path: &Path) {
        let (link, token, _) = self.connections.remove(&path.link.slot()).expect("it is there");
        self.tell(token, LinkEvent::Closed { link, remote: Some(path.remote), reason: CloseReason::Ended });
    }

    /// Time passes; what is due is done when it is.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.relay.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
        self.step();
    }

    /// One turn of the worker.
    pub fn step(&mut self) {
        self.relay.handle_timeout(self.now, &mut self.out);
        self.flush(&[]);
        self.settle();
    }

    /// Until nobody has more to say.
    fn settle(&mut self) {
        loop {
            let has_more = self.relay.poll_transmit(self.now, &mut self.out);
            let has_asked = self.flush(&[]);
            if !has_more && !has_asked {
                break;
            }
        }
        self.events.extend(std::iter::from_fn(|| self.relay.poll_event()));
    }

    /// Takes what is sent, and does what is asked for; true when there was any.
    fn flush(&mut self, received: &[u8]) -> bool {
        for run in self.out.runs() {
            let bytes = self.out.run_bytes(run, received);
            let datagrams = match bytes {
                wire::RunBytes::Whole(_) => {
                    (0..run.segment_count()).map(|index| bytes.datagram(run, index)[0].to_vec()).collect()
                }
                wire::RunBytes::Gathered(all) => {
                    (0..run.segment_count()).map(|index| all.datagram(index).concat()).collect()
                }
            };
            self.sent.push(Sent { path: run.path, datagrams });
        }
        for piece in self.out.pieces() {
            let wire::PieceSource::Copied(bytes) = self.out.piece(piece) else { panic!("it is copied") };
            if self.connections.contains_key(&piece.link.slot()) {
                self.written.entry(piece.link.slot()).or_default().extend(bytes);
            }
        }
        self.out.clear();
        let requests: Vec<_> = self.out.take_requests().collect();
        let has_asked = !requests.is_empty();
        for request in requests {
            match request {
                LinkRequest::OpenUdp { .. } if self.is_slow => self.waiting.push(request),
                request => self.handle_request(request),
            }
        }
        for (token, link) in std::mem::take(&mut self.closed) {
            let event = LinkEvent::Closed { link, remote: None, reason: CloseReason::Asked };
            self.relay.handle_link(self.now, token, event, &mut self.out);
        }
        has_asked
    }

    /// Opens the sockets that wait.
    pub fn open_sockets(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            self.handle_request(request);
        }
        self.flush(&[]);
        self.settle();
    }

    fn handle_request(&mut self, request: LinkRequest) {
        match request {
            LinkRequest::OpenUdp { token, addr, ports: None, options } => {
                let is_taken =
                    self.taken.contains(&addr.port()) || self.sockets.values().any(|(_, _, other)| *other == addr);
                let event = if is_taken {
                    LinkEvent::Failed { error: Error::from(ErrorKind::AddrInUse) }
                } else {
                    let link = LinkId::datagrams(self.next_slot);
                    self.next_slot += 1;
                    self.sockets.insert(link.slot(), (link, token, addr));
                    self.whole.extend((options.fragments == Fragments::Never).then_some(addr.port()));
                    LinkEvent::Opened { link, local: addr, remote: None }
                };
                self.relay.handle_link(self.now, token, event, &mut self.out);
            }
            LinkRequest::Listen { token, addr, .. } => {
                let link = LinkId::new(LinkKind::Listener, self.next_slot, 0);
                self.next_slot += 1;
                self.sockets.insert(link.slot(), (link, token, addr));
                let event = LinkEvent::Opened { link, local: addr, remote: None };
                self.relay.handle_link(self.now, token, event, &mut self.out);
            }
            LinkRequest::Connect { token, to, from, .. } => {
                self.connecting.push((token, to, from.expect("the relayed address")));
            }
            LinkRequest::Read { link, is_on } => {
                if is_on {
                    self.paused.remove(&link.slot());
                } else {
                    self.paused.insert(link.slot());
                }
            }
            LinkRequest::WatchWritable { link } if self.stalled.contains(&link.slot()) => {
                self.watched.insert(link);
            }
            LinkRequest::WatchWritable { link } => {
                if let Some((_, token, _)) = self.connections.get(&link.slot()).copied() {
                    self.relay.handle_link(self.now, token, LinkEvent::Writable { link }, &mut self.out);
                }
            }
            LinkRequest::Adopt { token, kind: Adopted::Begun(options, begun), .. } => {
                let kind = if options.framing.is_some() { LinkKind::Framed } else { LinkKind::Stream };
                let link = LinkId::new(kind, self.next_slot, 0);
                self.next_slot += 1;
                let remote = begun.remote.expect("tests say it");
                self.frames_max.insert(link.slot(), options.frame_max);
                self.connections.insert(link.slot(), (link, token, remote));
                let event = LinkEvent::Opened { link, local: SERVER.into(), remote: Some(remote) };
                self.relay.handle_link(self.now, token, event, &mut self.out);
            }
            LinkRequest::LimitFrames { link, bytes } => drop(self.frames_max.insert(link.slot(), bytes)),
            LinkRequest::Close { link } if self.lingering.remove(&link) => {}
            LinkRequest::Close { link } => {
                if matches!(link.kind(), LinkKind::Stream | LinkKind::Framed) {
                    self.lingering.insert(link);
                }
                let socket = self.sockets.remove(&link.slot());
                let (_, token, _) = socket.or_else(|| self.connections.remove(&link.slot())).expect("it is open");
                self.closed.push((token, link));
            }
            other => panic!("{other:?}"),
        }
    }
}
