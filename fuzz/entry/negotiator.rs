//! What the fuzz target of the negotiator does with its bytes: offers, fragments, datagrams of strangers and of clients that
//! mean well, words of the worker, and time. Shared by the fuzz target and by `crates/server/tests`.
//!
//! The bytes are records: what to do, to which session, two bytes of length, and the bytes to do it with.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rooms::spec::{Command, EndReason, Event, SessionId, StreamId, TrackSpec};
use server::plane::workers::Posted;
use server::rooms::client::Client;
use server::rooms::directory::{Admitted, Role};
use server::rooms::negotiator::{Answer, Input, Negotiator, Notice, Request, Settings};
use server::worker::{Message, Ticket};
use tokio::sync::{Mutex, oneshot};
use webrtc::{Candidate, Context, Direction, OfferOptions, Output, Peer, Remote};
use wire::codec::Codec;
use wire::{LinkId, Path, WorkerId};

/// Records of one input that are looked at.
const RECORDS_MAX: usize = 48;
/// Sessions have numbers below this, and a port each.
const SESSIONS: u8 = 6;
/// Room for sessions; fewer than there may be numbers for.
const SESSIONS_MAX: usize = 4;
const HANDSHAKE: Duration = Duration::from_secs(10);
const WATCH: OfferOptions<'static> = OfferOptions {
    direction: Direction::Receive,
    audio: true,
    video: &[Codec::Vp8],
    rids: &[],
    stream: "fuzz",
    tcp: false,
};
const PUBLISH: OfferOptions<'static> = OfferOptions { direction: Direction::Send, ..WATCH };

static CONTEXT: LazyLock<Context> = LazyLock::new(|| Context::new().expect("a certificate"));

pub fn negotiator(mut data: &[u8]) {
    let mut world = World::new();
    for _ in 0..RECORDS_MAX {
        let [action, session, high, low, rest @ ..] = data else { break };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (bytes, rest) = rest.split_at(rest.len().min(len));
        data = rest;
        world.act(*action, session % SESSIONS, bytes);
        world.check();
    }
    world.end();
}

/// What the worker and the control plane were told.
#[derive(Default)]
struct Heard {
    transmits: Vec<(Path, Box<[u8]>)>,
    /// By session: how often it was answered, connected, and ended.
    answered: HashMap<u64, u32>,
    added: HashMap<u64, u32>,
    connected: HashMap<u64, u32>,
    ended: HashMap<u64, u32>,
    is_full: bool,
}

type Send = Box<dyn FnMut(Message) -> Posted>;
type Notify = Box<dyn FnMut(Notice) -> bool>;

struct World {
    now: Instant,
    negotiator: Negotiator<Send, Notify>,
    heard: Rc<RefCell<Heard>>,
    /// Clients that mean well, by session.
    clients: HashMap<u8, Peer>,
}

fn path(session: u8) -> Path {
    let remote = ([192, 0, 2, 1], 9_000 + u16::from(session)).into();
    Path { link: LinkId::datagrams(0), remote, local: None }
}

impl World {
    fn new() -> Self {
        let heard = Rc::<RefCell<Heard>>::default();
        let (worker, control) = (heard.clone(), heard.clone());
        let send: Send = Box::new(move |message| worker.borrow_mut().obey(message));
        let notify: Notify = Box::new(move |notice| {
            control.borrow_mut().hear(&notice);
            true
        });
        let settings = Settings {
            candidates: vec![Candidate { addr: ([192, 0, 2, 2], 7_000).into(), tcp: false }],
            sessions_max: SESSIONS_MAX,
            handshake_timeout: HANDSHAKE,
            ..Settings::default()
        };
        let now = Instant::now();
        let negotiator = Negotiator::new(now, settings, CONTEXT.clone(), send, notify);
        World { now, negotiator, heard, clients: HashMap::new() }
    }

    fn act(&mut self, action: u8, session: u8, bytes: &[u8]) {
        let id = SessionId(session.into());
        let text = || String::from_utf8_lossy(bytes).into_owned();
        match action % 11 {
            0 => drop(self.publish(session, text())),
            1 => drop(self.watch(session, text())),
            2 => self.patch(session, text()),
            3 => self.negotiator.handle(self.now, Input::Request(Request::Close { session: id })),
            4 => self.deliver(path(session), bytes),
            5 => self.join(session, bytes.len().is_multiple_of(2)),
            6 => self.talk(bytes),
            7 => self.pass(Duration::from_millis(bytes.iter().map(|byte| u64::from(*byte)).sum())),
            8 => self.hear_of_end(id),
            9 => self.heard.borrow_mut().is_full = bytes.is_empty(),
            // From another's address.
            _ => self.deliver(path(SESSIONS + session), bytes),
        }
    }

    fn publish(&mut self, session: u8, offer: String) -> Option<Answer> {
        self.open(session, Role::Publisher, Vec::new(), offer)
    }

    fn watch(&mut self, session: u8, offer: String) -> Option<Answer> {
        let track = |codec| TrackSpec { codec, profile: Default::default(), rids: Vec::new() };
        let tracks = vec![track(Codec::Opus), track(Codec::Vp8)];
        self.open(session, Role::Viewer, tracks, offer)
    }

    fn open(&mut self, number: u8, role: Role, tracks: Vec<TrackSpec>, offer: String) -> Option<Answer> {
        let (session, stream, name) = (SessionId(number.into()), StreamId(1), "fuzz".into());
        // Some share a network, and so make room for each other.
        let client = Client { address: Some([192, 0, 2, number % 4].into()), ..Client::default() };
        let place = Admitted { session, role, worker: WorkerId(0), stream, name, tracks, chosen: Vec::new(), client };
        let (reply, mut answer) = oneshot::channel();
        self.negotiator.handle(self.now, Input::Request(Request::Open { place, offer, reply }));
        let answer = answer.try_recv().expect("each request is answered at once").ok()?;
        *self.heard.borrow_mut().answered.entry(session.0).or_default() += 1;
        self.clients.remove(&number);
        Some(answer)
    }

    /// The first line is the If-Match header's value, the rest the fragment.
    fn patch(&mut self, session: u8, text: String) {
        let (if_match, fragment) = text.split_once('\n').unwrap_or(("*", &text));
        let (reply, mut answer) = oneshot::channel();
        let (session, fragment) = (SessionId(session.into()), fragment.to_owned());
        let turn = Arc::<Mutex<()>>::default().try_lock_owned().expect("nobody else has it");
        let request = Request::Patch { session, fragment, if_match: if_match.to_owned(), reply, turn };
        self.negotiator.handle(self.now, Input::Request(request));
        let _ = answer.try_recv().expect("each request is answered at once");
    }

    /// A client that means well asks for a session.
    fn join(&mut self, session: u8, publishes: bool) {
        let options = if publishes { &PUBLISH } else { &WATCH };
        let (mut peer, offer) = Peer::offer(&CONTEXT, self.now, options).expect("an offer");
        let answer = if publishes { self.publish(session, offer) } else { self.watch(session, offer) };
        if let Some(answer) = answer {
            peer.accept_answer(&answer.sdp).expect("a good answer");
            self.clients.insert(session, peer);
        }
    }

    /// Clients and server exchange datagrams. The bytes say what each datagram of a client is damaged with, in turn: 0 is
    /// nothing, 255 loses it, another number changes the byte at that place.
    fn talk(&mut self, bytes: &[u8]) {
        let mut damages = bytes.iter().copied();
        for _ in 0..8 {
            self.pass(Duration::from_millis(10));
            let mut sent = Vec::new();
            for (session, peer) in &mut self.clients {
                peer.handle_timeout(self.now);
                sent.extend(outputs(peer).into_iter().map(|data| (*session, data)));
            }
            // The order of a map is not the same each time.
            sent.sort_by_key(|(session, _)| *session);
            for (session, mut data) in sent {
                match damages.next().unwrap_or(0) {
                    0 => {}
                    255 => continue,
                    place => data[usize::from(place) % data.len().max(1)] ^= 0x55,
                }
                self.deliver(path(session), &data);
            }
        }
    }

    fn deliver(&mut self, path: Path, data: &[u8]) {
        self.negotiator.handle(self.now, Input::Datagram { path, data: data.into(), ticket: Ticket::default() });
        let transmits = std::mem::take(&mut self.heard.borrow_mut().transmits);
        let from = Remote { addr: ([192, 0, 2, 2], 7_000).into(), tcp: false };
        for (to, data) in transmits {
            let client = self.clients.iter_mut().find(|(session, _)| path_is(to, **session));
            if let Some((_, peer)) = client {
                let _ = peer.handle_datagram(self.now, from, &data);
            }
        }
    }

    fn hear_of_end(&mut self, session: SessionId) {
        let reason = EndReason::Silent;
        self.negotiator.handle(self.now, Input::Event(Event::SessionEnded { session, reason }));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        if self.negotiator.poll_timeout().is_some_and(|at| at <= self.now) {
            self.negotiator.handle_timeout(self.now);
        }
    }

    fn check(&self) {
        let (counted, heard) = (self.negotiator.counters(), self.heard.borrow());
        assert!(counted.sessions <= SESSIONS_MAX as u64 && counted.handshakes <= counted.sessions, "{counted:?}");
        for (session, answered) in &heard.answered {
            let count = |map: &HashMap<u64, u32>| map.get(session).copied().unwrap_or(0);
            assert!(count(&heard.ended) <= *answered && count(&heard.connected) <= *answered, "session {session}");
            assert!(count(&heard.added) <= count(&heard.connected), "session {session}");
        }
    }

    /// Whoever is not connected by then runs out of time, the others are told to go: nothing may be left.
    fn end(&mut self) {
        self.heard.borrow_mut().is_full = false;
        self.now += HANDSHAKE + Duration::from_secs(1);
        self.negotiator.handle_timeout(self.now);
        for session in 0..SESSIONS {
            let session = SessionId(session.into());
            self.negotiator.handle(self.now, Input::Request(Request::Close { session }));
        }
        let (counted, heard) = (self.negotiator.counters(), self.heard.borrow());
        assert_eq!((counted.sessions, counted.handshakes), (0, 0));
        assert_eq!(heard.ended, heard.answered, "each session ends once");
        assert_eq!(heard.added, heard.connected);
        assert_eq!(self.negotiator.poll_timeout(), None);
    }
}

impl Heard {
    fn obey(&mut self, message: Message) -> Posted {
        match message {
            Message::Transmit { .. } if self.is_full => return Posted::Refused,
            Message::Transmit { path, data } => self.transmits.push((path, data)),
            Message::Command(Command::AddSession(peer)) => {
                *self.added.entry(peer.session.0).or_default() += 1;
            }
            _ => {}
        }
        if self.is_full { Posted::Waits } else { Posted::Sent }
    }

    fn hear(&mut self, notice: &Notice) {
        match notice {
            Notice::Connected { session } => *self.connected.entry(session.0).or_default() += 1,
            Notice::Reached { .. } | Notice::Conference { .. } => {}
            Notice::Ended { session, .. } => *self.ended.entry(session.0).or_default() += 1,
        }
    }
}

fn path_is(to: Path, session: u8) -> bool {
    to.remote == path(session).remote
}

fn outputs(peer: &mut Peer) -> Vec<Box<[u8]>> {
    let mut sent = Vec::new();
    loop {
        match peer.poll() {
            Output::Transmit { data, .. } => sent.push(data),
            Output::Connected { .. } | Output::PathChanged(_) | Output::Channel(_) | Output::Ended(_) => {}
            Output::Timeout(_) => return sent,
        }
    }
}
