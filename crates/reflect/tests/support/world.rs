//! A reflector, a clock, a writer with a file in memory, and an engine that is none: it takes as much as a test says.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reflect::backlog::Backlog;
use reflect::coalesce::Share;
use reflect::moved::{BacklogState, Handed, MovedViewer, ViewerState};
use reflect::reflect::{Reflect, Settings};
use reflect::spec::{Command, EndedViewer, Event, Join, NewViewer, Pace, StreamId, Terms, ViewerId, ViewerNow};
use reflect::window::Units;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use wire::{
    Begun, Bitrate, Cipher, CipherError, CloseReason, LinkEvent, LinkId, LinkKind, LinkRequest, Opened, Outbox,
    PieceSource, Product as _, Token, WorkerId,
};

pub const STREAM: StreamId = StreamId(1);

/// What each viewer is sent first.
pub const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

/// The least window that there is.
pub const WINDOW: u64 = 64 * 1_024;

pub const OWNER: u16 = 4;
const WORKER: WorkerId = WorkerId(0);

/// One connection, as its other side sees it.
#[derive(Debug)]
pub struct Link {
    pub id: LinkId,
    token: Token,
    /// Bytes that the kernel still takes.
    pub room: usize,
    is_blocked: bool,
    pub received: Vec<u8>,
    pub is_closed: bool,
    /// All that it was told, in order.
    pub paces: Vec<Bitrate>,
}

pub struct World {
    settings: Settings,
    terms: Terms,
    /// Who comes from another process, in order.
    returning: VecDeque<u64>,
    pub reflect: Reflect,
    pub now: Instant,
    pub backlog: Backlog,
    pub file: Arc<File>,
    out: Outbox,
    /// By the number of the viewer.
    pub links: BTreeMap<u64, Link>,
    next_viewer: u64,
    /// What the kernel takes of a newcomer.
    pub room: usize,
    pub ended: Vec<EndedViewer>,
    /// The answer to the last question for what became of a viewer.
    pub told: Option<ViewerNow>,
    pub has_left: bool,
    /// The beginning of the window, as it was told.
    pub begin: u64,
    /// Pieces that were written, of files and of memory.
    pub pieces: [usize; 2],
    units: Units,
}

impl World {
    pub fn new(units: Units) -> Self {
        Self::with(units, |_| {})
    }

    pub fn with(units: Units, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(OWNER);
        change(&mut settings);
        let file = memfd_create("backlog", MemfdFlags::CLOEXEC).expect("memory");
        World {
            reflect: Reflect::new(settings.clone()),
            settings,
            terms: Terms::default(),
            returning: VecDeque::new(),
            now: Instant::now(),
            backlog: Backlog::new(WINDOW, units),
            file: Arc::new(File::from(file)),
            out: Outbox::new(512 * 1_024),
            links: BTreeMap::new(),
            next_viewer: 0,
            room: usize::MAX,
            ended: Vec::new(),
            told: None,
            has_left: false,
            begin: 0,
            pieces: [0; 2],
            units,
        }
    }

    /// The stream is told of.
    pub fn add_stream(&mut self, terms: Terms) {
        self.terms = terms;
        let growth = self.backlog.add_reader(WORKER);
        let (file, units) = (Arc::clone(&self.file), self.units);
        self.command(Command::AddStream { stream: STREAM, file, units, growth, terms });
    }

    /// Bytes come; nobody is told, unless there is no room otherwise.
    pub fn write(&mut self, bytes: &[u8]) {
        let at = self.backlog.append(bytes).or_else(|_| {
            self.tell();
            self.backlog.append(bytes)
        });
        let at = at.expect("everybody has let go");
        self.file.write_all_at(bytes, at).expect("memory");
    }

    /// Workers are told of what came.
    pub fn tell(&mut self) {
        self.tell_some(Share::ALL);
    }

    /// The same, and so many viewers have a turn.
    pub fn tell_some(&mut self, share: Share) {
        let grown = self.grown(share);
        self.command(grown);
    }

    /// What workers are told of what came.
    pub fn grown(&mut self, share: Share) -> Command {
        let growth = Arc::new(self.backlog.take_growth(share < Share::ALL));
        self.begin = growth.extent.begin;
        Command::Grown { stream: STREAM, growth, share }
    }

    /// A viewer comes; his number.
    pub fn join(&mut self, join: Join) -> u64 {
        self.join_at(join, None)
    }

    pub fn join_at(&mut self, join: Join, pace: Option<Pace>) -> u64 {
        self.begin(join, pace, Begun::default())
    }

    /// One whose connection is under a cipher.
    pub fn join_sealed(&mut self, join: Join) -> u64 {
        self.begin(join, None, Begun { cipher: Some(Box::new(NoCipher)), ..Begun::default() })
    }

    fn begin(&mut self, join: Join, pace: Option<Pace>, begun: Begun) -> u64 {
        let newcomer = self.newcomer(join, pace, begun);
        self.command(newcomer);
        self.next_viewer
    }

    /// What a worker is told of a viewer who comes, the next one.
    pub fn newcomer(&mut self, join: Join, pace: Option<Pace>, begun: Begun) -> Command {
        self.next_viewer += 1;
        let id = ViewerId(self.next_viewer);
        let descriptor = File::open("/dev/null").expect("it is there").into();
        let head = HEAD.into();
        Command::AddViewer(Box::new(NewViewer { id, stream: STREAM, descriptor, begun, head, join, pace }))
    }

    pub fn command(&mut self, command: Command) {
        self.reflect.handle_command(self.now, command);
        self.run();
    }

    /// Another process goes on, which knows no more than it is told in bytes, and sends nothing before it is told to.
    pub fn hand_over(&mut self) {
        self.command(Command::Release);
        let mut moved: Vec<MovedViewer> = Vec::new();
        while let Handed::Viewer(viewer) = self.reflect.poll_moved().expect("there is an end of it") {
            moved.push(*viewer);
        }
        assert_eq!((self.reflect.counters().viewers, self.reflect.counters().rest_bytes), (0, 0), "nobody is left");
        let state: BacklogState = again(&self.backlog.state(self.now));
        self.backlog = Backlog::restore(self.now, state).expect("it is as it was");
        self.reflect = Reflect::new(self.settings.clone());
        self.command(Command::Hold);
        self.add_stream(self.terms);
        let received = |world: &World| world.links.values().map(|link| link.received.len()).sum::<usize>();
        let before = received(self);
        for viewer in moved {
            let state: ViewerState = again(&viewer.state);
            self.returning.push_back(viewer.id.0);
            self.command(Command::TakeUp(Box::new(MovedViewer { state, ..viewer })));
        }
        assert!(self.returning.is_empty(), "each has his connection");
        self.tell();
        assert_eq!(received(self), before, "they are the other process's still");
        self.command(Command::Resume);
    }

    /// A viewer's connection takes more.
    pub fn give_room(&mut self, viewer: u64, bytes: usize) {
        let Some(link) = self.links.get_mut(&viewer).filter(|link| !link.is_closed) else { return };
        link.room = link.room.saturating_add(bytes);
        if std::mem::take(&mut link.is_blocked) {
            let (id, token) = (link.id, link.token);
            self.hear(token, LinkEvent::Writable { link: id });
        }
        self.run();
    }

    /// A viewer sends something.
    pub fn bring(&mut self, viewer: u64, bytes: &mut [u8]) {
        let (link, token) = (self.links[&viewer].id, self.links[&viewer].token);
        self.hear(token, LinkEvent::Bytes { link, bytes });
        self.run();
    }

    /// A viewer sends no more.
    pub fn end_input(&mut self, viewer: u64) {
        let (link, token) = (self.links[&viewer].id, self.links[&viewer].token);
        self.hear(token, LinkEvent::InputEnded { link });
        self.run();
    }

    /// A viewer's connection ends.
    pub fn break_off(&mut self, viewer: u64) {
        let Some(link) = self.links.get_mut(&viewer).filter(|link| !link.is_closed) else { return };
        link.is_closed = true;
        let (id, token) = (link.id, link.token);
        self.hear(token, LinkEvent::Closed { link: id, remote: None, reason: CloseReason::Failed });
        self.run();
    }

    pub fn advance(&mut self, time: Duration) {
        self.now += time;
        if self.reflect.poll_timeout().is_some_and(|at| at <= self.now) {
            self.reflect.handle_timeout(self.now, &mut self.out);
        }
        self.run();
    }

    /// What a viewer has, behind the head of the response.
    pub fn received(&self, viewer: u64) -> &[u8] {
        let received = &self.links[&viewer].received;
        assert!(received.starts_with(&HEAD[..received.len().min(HEAD.len())]), "{received:?}");
        &received[received.len().min(HEAD.len())..]
    }

    /// Lets the reflector write until it has nothing more.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return self.hear_events();
            }
        }
        panic!("it never ends");
    }

    /// Lets it write until its outbox is full; false when there is nothing more.
    pub fn step(&mut self) -> bool {
        let has_more = self.reflect.poll_transmit(self.now, &mut self.out);
        let did_something = self.flush();
        has_more || did_something
    }

    fn hear(&mut self, token: Token, event: LinkEvent<'_>) {
        self.reflect.handle_link(self.now, token, event, &mut self.out);
    }

    fn hear_events(&mut self) {
        while let Some(event) = self.reflect.poll_event() {
            match event {
                Event::Passed { stream, begin } => {
                    assert_eq!(stream, STREAM);
                    self.backlog.passed(WORKER, begin);
                }
                Event::Left(_) => {
                    self.has_left = true;
                    self.backlog.remove_reader(WORKER);
                }
                Event::ViewerEnded(ended) => self.ended.push(ended),
                Event::Story { told, .. } => self.told = told,
            }
        }
        if let Some(hole) = self.backlog.take_hole() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&*self.file, flags, hole.start, hole.end - hole.start).expect("memory");
        }
    }

    /// Does what the engine does between two calls; false when that was nothing.
    fn flush(&mut self) -> bool {
        let mut unsent: BTreeMap<u64, usize> = BTreeMap::new();
        for piece in self.out.pieces() {
            let found = self.links.iter_mut().find(|(_, link)| link.id == piece.link && !link.is_closed);
            let Some((viewer, link)) = found else { continue };
            let bytes = match self.out.piece(piece) {
                PieceSource::Copied(bytes) => bytes.to_vec(),
                PieceSource::Shared(bytes) => {
                    self.pieces[1] += 1;
                    bytes.to_vec()
                }
                PieceSource::File { file, at } => {
                    self.pieces[0] += 1;
                    let mut bytes = vec![0; piece.len_bytes()];
                    file.read_exact_at(&mut bytes, at).expect("it is written before it is told of");
                    bytes
                }
            };
            let taken = if link.is_blocked { 0 } else { bytes.len().min(link.room) };
            link.received.extend_from_slice(&bytes[..taken]);
            link.room -= taken;
            if taken < bytes.len() {
                link.is_blocked = true;
                *unsent.entry(*viewer).or_default() += bytes.len() - taken;
            }
        }
        let has_pieces = !self.out.pieces().is_empty();
        self.out.clear();
        for (viewer, bytes) in unsent {
            let (link, token) = (self.links[&viewer].id, self.links[&viewer].token);
            self.hear(token, LinkEvent::Unsent { link, bytes });
        }
        let requests: Vec<_> = self.out.take_requests().collect();
        let has_requests = !requests.is_empty();
        requests.into_iter().for_each(|request| self.grant(request));
        has_pieces || has_requests
    }

    fn grant(&mut self, request: LinkRequest) {
        match request {
            LinkRequest::Adopt { token, .. } => {
                assert_eq!(token.owner, OWNER);
                if let Some(viewer) = self.returning.pop_front() {
                    let link = self.links.get_mut(&viewer).expect("it was here before");
                    let id = LinkId::new(LinkKind::Stream, viewer as u32, link.id.generation() + 1);
                    (link.id, link.token, link.is_blocked) = (id, token, false);
                    let opened = LinkEvent::Opened { link: id, local: ([127, 0, 0, 1], 80).into(), remote: None };
                    return self.hear(token, opened);
                }
                let viewer = self.links.last_key_value().map_or(0, |(viewer, _)| *viewer) + 1;
                let id = LinkId::new(LinkKind::Stream, viewer as u32, 0);
                let room = self.room;
                self.links.insert(
                    viewer,
                    Link {
                        id,
                        token,
                        room,
                        is_blocked: false,
                        received: Vec::new(),
                        is_closed: false,
                        paces: Vec::new(),
                    },
                );
                self.hear(token, LinkEvent::Opened { link: id, local: ([127, 0, 0, 1], 80).into(), remote: None });
            }
            LinkRequest::Close { link: id } => {
                let Some(link) = self.links.values_mut().find(|link| link.id == id && !link.is_closed) else { return };
                link.is_closed = true;
                let token = link.token;
                self.hear(token, LinkEvent::Closed { link: id, remote: None, reason: CloseReason::Asked });
            }
            LinkRequest::Release { link: id } => {
                let Some(link) = self.links.values().find(|link| link.id == id && !link.is_closed) else { return };
                let descriptor = File::open("/dev/null").expect("it is there").into();
                let (unsent, unread) = Default::default();
                self.hear(link.token, LinkEvent::Released { link: id, descriptor, unsent, unread });
            }
            LinkRequest::Pace { link: id, rate } => {
                let link = self.links.values_mut().find(|link| link.id == id).expect("it is there");
                link.paces.push(rate);
            }
            other => panic!("nobody asks for {other:?}"),
        }
    }
}

/// One that nobody asks for anything, as there is no engine.
#[derive(Debug)]
struct NoCipher;

impl Cipher for NoCipher {
    fn open(&mut self, _: &mut [u8]) -> Result<Opened, CipherError> {
        unreachable!("the engine opens")
    }

    fn seal(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), CipherError> {
        unreachable!("the engine seals")
    }

    fn poll_output(&mut self, _: &mut Vec<u8>) {}

    fn end(&mut self, _: &mut Vec<u8>) {}
}

/// What another process makes of it.
fn again<T: serde::Serialize + serde::de::DeserializeOwned>(state: &T) -> T {
    postcard::from_bytes(&postcard::to_allocvec(state).expect("it can be written")).expect("it can be read")
}
