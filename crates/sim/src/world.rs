//! Rooms, a network, publishers and viewers, and the clock that drives them.
//!
//! In: who is there, and how long to go on. Out: what everybody got, read from `publisher`, `viewer` and `counters`.
//! Computing takes no time in here: what is late is late because of the network or because rooms held it back.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rooms::batch::BatchPool;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{Command, Counters, DownTrackSpec, Event, PeerSpec, SessionId, StreamId, WorkerId};
use rooms::story::Story;
use srtp::{Profile, SessionKeys};
use wire::codec::MediaKind;
use wire::{Datagram, LinkId, Outbox, Path, Product, Random};

use crate::network::{LinkConfig, Network};
use crate::publisher::{Publisher, TrackPlan, stream_spec};
use crate::viewer::{Behaviour, Viewer, down_tracks};

/// Bytes of a worker's outbox: small, so that tests meet a full one.
const OUTBOX_BYTES: usize = 64 * 1_024;
/// Time goes on by at least this much, as a worker's does between two turns.
const TURN: Duration = Duration::from_micros(100);

/// Frame numbers of one publisher, so that its frames are not taken for another's.
const FRAMES_PER_PUBLISHER: u32 = 1 << 20;
/// Where ports begin.
const FIRST_WORKER_PORT: u16 = 5_000;
const FIRST_PEER_PORT: u16 = 10_000;

/// All that a test needs, with a clock that only `run` moves.
pub struct World {
    /// Where times of frames (`Tag::sent_us`) count from.
    pub start: Instant,
    /// What the world's clock shows.
    pub now: Instant,
    /// What joins peers and workers.
    pub network: Network,
    random: Random,
    profile: Profile,
    cname: Option<Arc<str>>,
    workers: Vec<Worker>,
    streams: HashMap<StreamId, Vec<TrackPlan>>,
    peers: Vec<Peer>,
    peer_by_addr: HashMap<SocketAddr, usize>,
    /// What rooms told control, with the worker that did.
    pub events: Vec<(usize, Event)>,
}

struct Worker {
    rooms: Rooms,
    addr: SocketAddr,
    out: Outbox,
}

struct Peer {
    session: SessionId,
    addr: SocketAddr,
    worker: usize,
    role: Role,
}

enum Role {
    Publisher(Box<Publisher>),
    Viewer(Box<Viewer>),
}

/// A publisher or a viewer of this world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerId(usize);

impl World {
    /// One worker, and a network whose links are like `link`.
    pub fn new(seed: u64, link: LinkConfig) -> Self {
        World::with_workers(seed, link, 1, |_| ())
    }

    /// Several workers, which mirror each other's streams; `change` may change their settings.
    pub fn with_workers(seed: u64, link: LinkConfig, count: u16, change: impl Fn(&mut Settings)) -> Self {
        let start = Instant::now();
        let mut settings = Settings::new(seed, (start, 3_900_000_000 << 32));
        change(&mut settings);
        let pool = BatchPool::new(64);
        let workers = (0..count).map(|index| Worker {
            rooms: Rooms::new(start, WorkerId(index), settings.clone(), pool.clone()),
            addr: ([10, 0, 0, 1], FIRST_WORKER_PORT + index).into(),
            out: Outbox::new(OUTBOX_BYTES),
        });
        World {
            start,
            now: start,
            network: Network::new(seed, link),
            random: Random::new(seed),
            profile: Profile::AeadAes128Gcm,
            cname: None,
            workers: workers.collect(),
            streams: HashMap::new(),
            peers: Vec::new(),
            peer_by_addr: HashMap::new(),
            events: Vec::new(),
        }
    }

    /// The profile of the sessions that come after.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    /// The sessions that come after take whole compounds only, in which rooms have this name.
    pub fn set_cname(&mut self, cname: &str) {
        self.cname = Some(cname.into());
    }

    /// Makes a stream of such tracks known to all workers.
    pub fn open_stream(&mut self, plans: &[TrackPlan]) -> StreamId {
        let id = StreamId(self.streams.len() as u32 + 1);
        self.streams.insert(id, plans.to_vec());
        for worker in 0..self.workers.len() {
            self.command(worker, Command::OpenStream(stream_spec(id, plans)));
        }
        id
    }

    /// A publisher on the first worker, whose stream the others mirror.
    pub fn add_publisher(&mut self, stream: StreamId) -> PeerId {
        self.add_publisher_on(0, stream)
    }

    /// A publisher on any worker, whose stream the others mirror.
    pub fn add_publisher_on(&mut self, worker: usize, stream: StreamId) -> PeerId {
        let (peer, keys) = self.peer_spec(worker);
        let plans = self.streams[&stream].clone();
        let first_frame = self.peers.len() as u32 * FRAMES_PER_PUBLISHER;
        let publisher = Publisher::new(self.now, self.start, &keys, &plans, first_frame, &mut self.random);
        let tracks = publisher.up_tracks();
        let session = peer.session;
        self.command(worker, Command::AddSession(peer));
        self.command(worker, Command::Publish { session, stream, tracks });
        for other in (0..self.workers.len()).filter(|other| *other != worker) {
            self.command(worker, Command::Mirror { stream, to: WorkerId(other as u16), on: true });
        }
        self.add_peer(session, worker, Role::Publisher(Box::new(publisher)))
    }

    /// A viewer of all tracks, on the first worker.
    pub fn add_viewer(&mut self, stream: StreamId, behaviour: Behaviour) -> PeerId {
        self.add_viewer_on(0, stream, behaviour)
    }

    /// A viewer of all tracks, on any worker.
    pub fn add_viewer_on(&mut self, worker: usize, stream: StreamId, behaviour: Behaviour) -> PeerId {
        self.add_viewer_with(worker, stream, behaviour, |_| ())
    }

    /// A viewer of all tracks that negotiates something else: `change` gets its tracks.
    pub fn add_viewer_with(
        &mut self,
        worker: usize,
        stream: StreamId,
        behaviour: Behaviour,
        change: impl FnOnce(&mut [DownTrackSpec]),
    ) -> PeerId {
        let (peer, keys) = self.peer_spec(worker);
        let plans = self.streams[&stream].clone();
        let mut tracks = down_tracks(&plans, &mut self.random);
        change(&mut tracks);
        let viewer = Viewer::new(self.now, self.start, &keys, &plans, &tracks, behaviour, &mut self.random);
        let session = peer.session;
        self.command(worker, Command::AddSession(peer));
        self.command(worker, Command::Watch { session, stream, tracks });
        self.add_peer(session, worker, Role::Viewer(Box::new(viewer)))
    }

    /// A member of a conference, who watches all tracks of several streams, in their order, by one session.
    pub fn add_member_on(&mut self, worker: usize, streams: &[StreamId], behaviour: Behaviour) -> PeerId {
        let (peer, keys) = self.peer_spec(worker);
        let plans: Vec<_> = streams.iter().flat_map(|stream| self.streams[stream].clone()).collect();
        let mut specs = down_tracks(&plans, &mut self.random);
        // All pictures have one payload type, and all sound another one: there are more tracks than payload types.
        for (spec, plan) in specs.iter_mut().zip(&plans) {
            spec.payload_type = TrackPlan::payload_type(usize::from(plan.codec.kind() == MediaKind::Audio));
            spec.rtx = spec.rtx.map(|(ssrc, _)| (ssrc, spec.payload_type + 1));
        }
        let member = Viewer::new(self.now, self.start, &keys, &plans, &specs, behaviour, &mut self.random);
        let session = peer.session;
        self.command(worker, Command::AddMember(peer));
        let mut specs = specs.into_iter();
        for stream in streams {
            let tracks = specs.by_ref().take(self.streams[stream].len()).enumerate();
            let tracks = tracks.map(|(index, spec)| DownTrackSpec { track: index as u8, ..spec }).collect();
            self.command(worker, Command::Watch { session, stream: *stream, tracks });
        }
        self.add_peer(session, worker, Role::Viewer(Box::new(member)))
    }

    /// The peer, which is a publisher.
    ///
    /// # Panics
    /// When it is a viewer.
    pub fn publisher(&mut self, id: PeerId) -> &mut Publisher {
        let Role::Publisher(publisher) = &mut self.peers[id.0].role else { panic!("{id:?} is a viewer") };
        publisher
    }

    /// The peer, which is a viewer.
    ///
    /// # Panics
    /// When it is a publisher.
    pub fn viewer(&mut self, id: PeerId) -> &mut Viewer {
        let Role::Viewer(viewer) = &mut self.peers[id.0].role else { panic!("{id:?} is a publisher") };
        viewer
    }

    /// How commands name the peer's session.
    pub fn session(&self, id: PeerId) -> SessionId {
        self.peers[id.0].session
    }

    /// Where the peer sends from.
    pub fn addr(&self, id: PeerId) -> SocketAddr {
        self.peers[id.0].addr
    }

    /// Where the worker, by its index, is reached.
    pub fn worker_addr(&self, worker: usize) -> SocketAddr {
        self.workers[worker].addr
    }

    /// What the worker's rooms counted so far.
    pub fn counters(&self, worker: usize) -> Counters {
        self.workers[worker].rooms.counters()
    }

    /// What became of a peer's session.
    ///
    /// # Panics
    /// When its worker has it no more.
    pub fn story(&mut self, id: PeerId) -> Story {
        let Peer { session, worker, .. } = self.peers[id.0];
        self.command(worker, Command::Tell { session, token: 0 });
        let told = self.events.pop().map(|(_, event)| event);
        let Some(Event::Story { story: Some(story), .. }) = told else { panic!("{id:?} has no story: {told:?}") };
        *story
    }

    /// Changes both directions between a peer and its worker.
    pub fn set_path(&mut self, id: PeerId, config: LinkConfig) {
        let (addr, worker) = (self.peers[id.0].addr, self.peers[id.0].worker);
        self.network.set_path(addr, self.workers[worker].addr, config);
    }

    /// Changes what comes to a peer.
    pub fn set_way_down(&mut self, id: PeerId, config: LinkConfig) {
        let (addr, worker) = (self.peers[id.0].addr, self.peers[id.0].worker);
        self.network.set_link(self.workers[worker].addr, addr, config);
    }

    /// Changes what comes to the peer that is added next, before anything does.
    pub fn set_way_down_of_next(&mut self, worker: usize, config: LinkConfig) {
        self.network.set_link(self.workers[worker].addr, peer_addr(self.peers.len()), config);
    }

    /// Tells a worker something, as control does.
    pub fn command(&mut self, worker: usize, command: Command) {
        let now = self.now;
        let worker = &mut self.workers[worker];
        worker.rooms.handle_command(now, command, &mut worker.out);
        self.settle();
    }

    /// Hands a worker any datagram, at once and without the network.
    pub fn inject(&mut self, worker: usize, from: SocketAddr, bytes: &[u8]) {
        self.deliver_to_worker(worker, from, bytes.to_vec());
        self.settle();
    }

    /// Goes on for so long.
    pub fn run(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            let next = self.next_at().map_or(until, |at| at.max(self.now + TURN));
            if next >= until {
                break;
            }
            self.now = next;
            self.turn();
        }
        self.now = until;
        self.turn();
    }

    fn next_at(&self) -> Option<Instant> {
        let peers = self.peers.iter().filter_map(|peer| match &peer.role {
            Role::Publisher(publisher) => publisher.poll_timeout(),
            Role::Viewer(viewer) => viewer.poll_timeout(),
        });
        let workers = self.workers.iter().filter_map(|worker| worker.rooms.poll_timeout());
        peers.chain(workers).chain(self.network.next_at()).min()
    }

    /// Does all that is due now.
    fn turn(&mut self) {
        let now = self.now;
        for index in 0..self.peers.len() {
            match &mut self.peers[index].role {
                Role::Publisher(publisher) => publisher.handle_timeout(now),
                Role::Viewer(viewer) => viewer.handle_timeout(now),
            }
            self.flush_peer(index);
        }
        while let Some(datagram) = self.network.poll(now) {
            match self.workers.iter().position(|worker| worker.addr == datagram.to) {
                Some(worker) => self.deliver_to_worker(worker, datagram.from, datagram.bytes),
                None => self.deliver_to_peer(datagram.to, datagram.bytes),
            }
        }
        for worker in &mut self.workers {
            if worker.rooms.poll_timeout().is_some_and(|at| at <= now) {
                worker.rooms.handle_timeout(now, &mut worker.out);
            }
        }
        self.settle();
    }

    fn deliver_to_worker(&mut self, worker: usize, from: SocketAddr, mut bytes: Vec<u8>) {
        let path = path(worker, from);
        let now = self.now;
        let Worker { rooms, out, .. } = &mut self.workers[worker];
        rooms.handle_datagram(now, Datagram { path, data: &mut bytes }, out);
        self.flush_worker(worker);
    }

    fn deliver_to_peer(&mut self, to: SocketAddr, mut bytes: Vec<u8>) {
        let Some(&index) = self.peer_by_addr.get(&to) else { return };
        let now = self.now;
        match &mut self.peers[index].role {
            Role::Publisher(publisher) => publisher.handle_datagram(now, &mut bytes),
            Role::Viewer(viewer) => viewer.handle_datagram(now, &mut bytes),
        }
        self.flush_peer(index);
    }

    /// Sends what the workers have ready, and carries posts between them, until nobody has anything left.
    fn settle(&mut self) {
        let now = self.now;
        loop {
            let mut posts = Vec::new();
            for index in 0..self.workers.len() {
                self.flush_worker(index);
                loop {
                    let Worker { rooms, out, .. } = &mut self.workers[index];
                    let has_more = rooms.poll_transmit(now, out);
                    self.flush_worker(index);
                    if !has_more {
                        break;
                    }
                }
                let rooms = &mut self.workers[index].rooms;
                posts.extend(std::iter::from_fn(|| rooms.poll_post()));
                self.events.extend(std::iter::from_fn(|| rooms.poll_event()).map(|event| (index, event)));
            }
            if posts.is_empty() {
                return;
            }
            for (to, post) in posts {
                let Worker { rooms, out, .. } = &mut self.workers[usize::from(to.0)];
                rooms.handle_post(now, post, out);
            }
        }
    }

    fn flush_worker(&mut self, index: usize) {
        let Worker { addr, out, .. } = &mut self.workers[index];
        for (path, bytes) in out.datagrams() {
            self.network.send(self.now, *addr, path.remote, bytes);
        }
        out.clear();
    }

    fn flush_peer(&mut self, index: usize) {
        let Peer { addr, worker, role, .. } = &mut self.peers[index];
        let to = self.workers[*worker].addr;
        let next = || match role {
            Role::Publisher(publisher) => publisher.poll_transmit(),
            Role::Viewer(viewer) => viewer.poll_transmit(),
        };
        for bytes in std::iter::from_fn(next) {
            self.network.send(self.now, *addr, to, &bytes);
        }
    }

    /// The server's side of a new session, and the keys of the client's.
    fn peer_spec(&self, worker: usize) -> (PeerSpec, SessionKeys) {
        let index = self.peers.len();
        let (client, keys) = SessionKeys::made_up_pair(self.profile, index as u8);
        (
            PeerSpec {
                session: SessionId(index as u64 + 1),
                path: path(worker, peer_addr(index)),
                keys,
                cname: self.cname.clone(),
            },
            client,
        )
    }

    fn add_peer(&mut self, session: SessionId, worker: usize, role: Role) -> PeerId {
        let index = self.peers.len();
        let addr = peer_addr(index);
        self.peers.push(Peer { session, addr, worker, role });
        self.peer_by_addr.insert(addr, index);
        PeerId(index)
    }
}

fn path(worker: usize, remote: SocketAddr) -> Path {
    Path { link: LinkId::datagrams(worker as u32), remote, local: None }
}

fn peer_addr(index: usize) -> SocketAddr {
    ([10, 0, 0, 2], FIRST_PEER_PORT + index as u16).into()
}
