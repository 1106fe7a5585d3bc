//! A negotiator, the clients of its sessions in memory, and a worker that only keeps what it is told.

mod consent;
mod floods;
mod members;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rooms::spec::{Command, Event, SessionId, StreamId, TrackSpec};
use srtp::{Profile, SessionKeys};
use tokio::sync::{Mutex, oneshot};
use webrtc::{Candidate, Context, Direction, OfferOptions, Output, Peer, Remote};
use wire::codec::Codec;
use wire::{LinkId, Path, WorkerId};

use super::*;
use crate::plane::workers::Posted;
use crate::rooms::client as rooms_client;
use crate::rooms::directory::Role;
use crate::worker::{Message, Ticket};

const SERVER: &str = "127.0.0.1:7000";
const STREAM: StreamId = StreamId(5);
const WATCH: OfferOptions<'static> = OfferOptions {
    direction: Direction::Receive,
    audio: true,
    video: &[Codec::Vp8, Codec::H264],
    rids: &[],
    stream: "client",
    tcp: false,
};
/// Of Chromium, which can say what it takes.
const OFFER: &str = include_str!("../../../../webrtc/tests/offers/chrome-whep-recvonly.sdp");
const PUBLISH: OfferOptions<'static> = OfferOptions { direction: Direction::Send, rids: &["f", "h", "q"], ..WATCH };

type Sender = Box<dyn FnMut(Message) -> Posted>;
type Notifier = Box<dyn FnMut(Notice) -> bool>;

/// What the worker and the control plane were told.
#[derive(Default)]
struct Heard {
    transmits: Vec<(Path, Box<[u8]>)>,
    commands: Vec<Command>,
    /// How many handshakes the worker is to expect.
    expected: usize,
    notices: Vec<Notice>,
    /// For each notice.
    commands_before: Vec<usize>,
    /// Control has no room for who connects.
    is_full: bool,
}

struct Harness {
    negotiator: Negotiator<Sender, Notifier>,
    heard: Rc<RefCell<Heard>>,
    context: Context,
    now: Instant,
}

struct Client {
    peer: Peer,
    path: Path,
    keys: Option<SessionKeys>,
    has_ended: bool,
}

impl Harness {
    fn new() -> Self {
        Harness::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let candidates = vec![Candidate { addr: SERVER.parse().unwrap(), tcp: false }];
        let settings = Settings { candidates, ..settings };
        let heard = Rc::new(RefCell::new(Heard::default()));
        let (worker, control) = (heard.clone(), heard.clone());
        let send: Sender = Box::new(move |message| {
            let mut heard = worker.borrow_mut();
            match message {
                Message::Transmit { path, data } => heard.transmits.push((path, data)),
                Message::Command(command) => heard.commands.push(command),
                Message::Expect => heard.expected += 1,
                message => panic!("{message:?} is not a negotiator's"),
            }
            Posted::Sent
        });
        let notify: Notifier = Box::new(move |notice| {
            let mut heard = control.borrow_mut();
            let before = heard.commands.len();
            heard.commands_before.push(before);
            heard.notices.push(notice);
            !heard.is_full
        });
        let context = Context::new().unwrap();
        let now = Instant::now();
        let negotiator = Negotiator::new(now, settings, context.clone(), send, notify);
        Harness { negotiator, heard, context, now }
    }

    fn request<T>(&mut self, make: impl FnOnce(Reply<T>) -> Request) -> Result<T, NegotiationError> {
        let (reply, mut answer) = oneshot::channel();
        self.negotiator.handle(self.now, Input::Request(make(reply)));
        answer.try_recv().expect("each request is answered at once")
    }

    fn watch_with(&mut self, session: u64, offer: String) -> Result<Answer, NegotiationError> {
        let track = |codec| TrackSpec { codec, profile: Default::default(), rids: Vec::new() };
        let place = Admitted { tracks: vec![track(Codec::Opus), track(Codec::Vp8)], ..place(session, Role::Viewer) };
        self.request(|reply| Request::Open { place, offer, reply })
    }

    fn publish_with(&mut self, session: u64, offer: String) -> Result<Answer, NegotiationError> {
        let place = place(session, Role::Publisher);
        self.request(|reply| Request::Open { place, offer, reply })
    }

    fn patch(&mut self, session: u64, fragment: &str, if_match: &str) -> Result<Patched, NegotiationError> {
        let (session, fragment, if_match) = (SessionId(session), fragment.to_owned(), if_match.to_owned());
        let turn = Arc::<Mutex<()>>::default().try_lock_owned().expect("nobody else has it");
        self.request(|reply| Request::Patch { session, fragment, if_match, reply, turn })
    }

    /// A client that has its answer.
    fn client(&mut self, session: u64, options: &OfferOptions<'_>) -> (Client, Answer) {
        let (mut peer, offer) = Peer::offer(&self.context, self.now, options).unwrap();
        let answer = match options.direction {
            Direction::Receive => self.watch_with(session, offer),
            Direction::Send => self.publish_with(session, offer),
        };
        let answer = answer.unwrap();
        peer.accept_answer(&answer.sdp).unwrap();
        let remote: SocketAddr = ([127, 0, 0, 1], 9_000 + session as u16).into();
        let path = Path { link: LinkId::datagrams(1), remote, local: Some([127, 0, 0, 1].into()) };
        (Client { peer, path, keys: None, has_ended: false }, answer)
    }

    fn deliver(&mut self, path: Path, data: &[u8]) {
        self.negotiator.handle(self.now, Input::Datagram { path, data: data.into(), ticket: Ticket::default() });
    }

    /// Lets so much time pass, in steps of 10 ms.
    fn run(&mut self, clients: &mut [&mut Client], time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(10);
            for client in clients.iter_mut() {
                client.peer.handle_timeout(self.now);
                client.drain(self);
            }
            if self.negotiator.poll_timeout().is_some_and(|at| at <= self.now) {
                self.negotiator.handle_timeout(self.now);
            }
            let transmits = std::mem::take(&mut self.heard.borrow_mut().transmits);
            for (path, data) in transmits {
                if let Some(client) = clients.iter_mut().find(|client| client.path == path) {
                    let from = Remote { addr: SERVER.parse().unwrap(), tcp: false };
                    let _ = client.peer.handle_datagram(self.now, from, &data);
                    client.drain(self);
                }
            }
        }
    }

    fn commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.heard.borrow_mut().commands)
    }

    fn ended(&self) -> Vec<(u64, EndReason)> {
        let heard = self.heard.borrow();
        let ended = heard.notices.iter().filter_map(|notice| match notice {
            Notice::Ended { session, reason } => Some((session.0, reason.clone())),
            Notice::Reached { .. } | Notice::Connected { .. } | Notice::Conference { .. } => None,
        });
        ended.collect()
    }

    fn counted(&self) -> Counters {
        self.negotiator.counters().clone()
    }
}

/// Clients of these and higher numbers have a network each; all others are in one.
const APART: u64 = 1_000;

/// A place in the stream. A publisher brings the tracks.
fn place(session: u64, role: Role) -> Admitted {
    let network = session.saturating_sub(APART - 1) as u16;
    let address = Some(IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, 1]));
    let client = rooms_client::Client { address, ..Default::default() };
    let (session, name) = (SessionId(session), "stream".into());
    let (tracks, chosen) = (Vec::new(), Vec::new());
    Admitted { session, role, worker: WorkerId(0), stream: STREAM, name, tracks, chosen, client }
}

impl Client {
    fn drain(&mut self, harness: &mut Harness) {
        loop {
            match self.peer.poll() {
                Output::Transmit { data, .. } => harness.deliver(self.path, &data),
                Output::Connected { keys, .. } => self.keys = Some(keys),
                Output::Ended(_) => self.has_ended = true,
                Output::PathChanged(_) | Output::Channel(_) => {}
                Output::Timeout(_) => return,
            }
        }
    }

    fn has_keys(&self, server: &SessionKeys) -> bool {
        let mut keys = self.keys.clone().expect("the client has connected");
        keys.is_client = false;
        keys == *server && server.profile() == Profile::AeadAes128Gcm
    }
}

#[test]
fn a_client_without_a_certificate_ends_at_once_and_is_counted() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    let is_dtls = |data: &[u8]| data.first() == Some(&22);
    loop {
        harness.now += Duration::from_millis(10);
        client.peer.handle_timeout(harness.now);
        client.drain(&mut harness);
        let transmits = std::mem::take(&mut harness.heard.borrow_mut().transmits);
        if transmits.iter().any(|(_, data)| is_dtls(data)) {
            break;
        }
        let from = Remote { addr: SERVER.parse().unwrap(), tcp: false };
        for (_, data) in transmits {
            client.peer.handle_datagram(harness.now, from, &data).unwrap();
        }
    }
    // The server has asked for a certificate: a record with the second handshake message, an empty list.
    let record = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 15, 11, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0];
    harness.deliver(client.path, &record);

    assert_eq!(harness.ended(), [(1, EndReason::Peer(webrtc::EndReason::CertificateRefused))]);
    let counted = harness.counted();
    assert_eq!((counted.failed, counted.certificates_refused, counted.sessions), (1, 1, 0));
    assert!(harness.heard.borrow().transmits.iter().any(|(_, data)| data.first() == Some(&21)), "an alert");
}

#[cfg(debug_assertions)]
#[test]
fn a_panic_in_a_library_ends_its_session_everywhere_and_no_other() {
    let mut harness = Harness::new();
    let (mut one, _) = harness.client(1, &WATCH);
    let (mut other, _) = harness.client(2, &PUBLISH);
    let (mut third, _) = harness.client(3, &WATCH);
    harness.run(&mut [&mut one, &mut other], Duration::from_secs(3));
    assert_eq!(harness.counted().connected, 2);
    harness.commands();

    harness.negotiator.peer_mut(SessionId(1)).inject_fault(webrtc::Fault::Session);
    harness.run(&mut [&mut one, &mut other, &mut third], Duration::from_secs(3));

    assert_eq!(harness.ended(), [(1, EndReason::Peer(webrtc::EndReason::Panicked))], "the directory is told");
    let is_removed = |command: &Command| matches!(command, Command::RemoveSession(SessionId(1)));
    assert_eq!(harness.commands().iter().filter(|command| is_removed(command)).count(), 1, "and so is the worker");
    let counted = harness.counted();
    assert_eq!((counted.panicked, counted.failed, counted.connected, counted.sessions), (1, 0, 3, 2));
}

#[test]
fn a_viewer_that_has_connected_is_handed_to_the_worker() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    assert_eq!(harness.heard.borrow().expected, 1, "its checks are expected once it has its answer");
    assert_eq!(harness.counted().handshakes, 1);
    harness.run(&mut [&mut client], Duration::from_secs(1));

    let commands = harness.commands();
    let [Command::AddSession(peer), Command::Watch { session, stream, tracks }, ..] = &commands[..] else {
        panic!("{commands:?}")
    };
    assert_eq!((*stream, *session, peer.session, peer.path), (STREAM, SessionId(1), SessionId(1), client.path));
    assert!(client.has_keys(&peer.keys));
    assert_eq!(tracks.iter().map(|track| track.track).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((tracks[1].payload_type, tracks[1].rtx.map(|rtx| rtx.1)), (96, Some(97)));
    assert!(tracks[1].extensions.mid.is_some() && tracks[1].extensions.audio_level.is_none());
    let reached = |notice: &Notice| match notice {
        Notice::Reached { session: SessionId(1), progress } => Some(*progress),
        _ => None,
    };
    let heard = harness.heard.borrow();
    let [first, second, Notice::Connected { session: SessionId(1) }] = &heard.notices[..] else {
        panic!("{:?}", heard.notices)
    };
    assert_eq!([reached(first), reached(second)], [Some(Progress::Checked), Some(Progress::Proved)]);
    drop(heard);
    assert_eq!(
        harness.heard.borrow().commands_before,
        [0; 3],
        "control opens the stream before the session comes to it"
    );
    let counted = harness.counted();
    assert_eq!((counted.sessions, counted.handshakes, counted.connected), (1, 0, 1));
}

#[test]
fn an_offer_tells_its_tracks_with_layers_from_small_to_large() {
    let (_, offer) = Peer::offer(&Context::new().unwrap(), Instant::now(), &PUBLISH).unwrap();
    let tracks = published_tracks(&offer).unwrap();
    assert_eq!(tracks.iter().map(|track| track.codec).collect::<Vec<_>>(), [Codec::Opus, Codec::Vp8]);
    assert_eq!(tracks[1].rids.iter().map(|rid| &**rid).collect::<Vec<_>>(), ["q", "h", "f"]);
}

#[test]
fn a_viewer_gets_the_tracks_that_it_chose() {
    let mut harness = Harness::new();
    let tracks = [Codec::Opus, Codec::Vp8, Codec::Opus];
    let tracks = tracks.map(|codec| TrackSpec { codec, profile: Default::default(), rids: Vec::new() });
    for (session, chosen, sent, refused) in
        [(1, vec![], ["audio0", "video1"], "audio2"), (2, vec![2, 1, 0], ["audio2", "video1"], "audio0")]
    {
        let (_, offer) = Peer::offer(&harness.context, harness.now, &WATCH).unwrap();
        let place = Admitted { tracks: tracks.to_vec(), chosen, ..place(session, Role::Viewer) };
        let answer = harness.request(|reply| Request::Open { place, offer, reply }).unwrap();
        for track in sent {
            assert!(answer.sdp.contains(&format!("a=msid:stream {track}\r\n")), "{}", answer.sdp);
        }
        assert!(!answer.sdp.contains(refused));
    }
}

#[test]
fn transport_wide_feedback_is_asked_of_all_or_of_who_has_a_choice_of_layers() {
    let layers = || vec!["q".into(), "f".into()];
    for (for_layers, codec, rids, chosen, is_asked) in [
        (false, Codec::Vp8, vec![], vec![], true),
        (true, Codec::Vp8, vec![], vec![], false),
        (true, Codec::Vp8, layers(), vec![], true),
        (true, Codec::Vp8, layers(), vec![2], false),
        (true, Codec::Vp9, vec![], vec![], true),
    ] {
        let mut harness = Harness::with(Settings { transport_cc_for_layers: for_layers, ..Settings::default() });
        let track = |codec, rids| TrackSpec { codec, profile: Default::default(), rids };
        let tracks = vec![track(Codec::Opus, vec![]), track(codec, rids), track(Codec::Vp8, vec![])];
        let place = Admitted { tracks, chosen, ..place(1, Role::Viewer) };
        let offer = OFFER.to_owned();
        let answer = harness.request(|reply| Request::Open { place, offer, reply }).unwrap();
        assert_eq!(answer.sdp.contains("transport-cc"), is_asked, "{}", answer.sdp);
    }
}

#[test]
fn a_publisher_that_has_connected_is_handed_to_the_worker() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &PUBLISH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    let commands = harness.commands();
    let [Command::AddSession(peer), Command::Publish { tracks, .. }, ..] = &commands[..] else {
        panic!("{commands:?}")
    };
    assert!(client.has_keys(&peer.keys));
    assert_eq!((&*tracks[0].mid, tracks[0].ssrcs.len(), tracks[1].ssrcs.len()), ("0", 1, 0));
    assert!(tracks[1].extensions.rid.is_some());
}

#[test]
fn many_sessions_shake_hands_at_once() {
    let mut harness = Harness::new();
    let mut clients: Vec<Client> = (1..=20).map(|session| harness.client(session, &WATCH).0).collect();
    let mut all: Vec<&mut Client> = clients.iter_mut().collect();
    harness.run(&mut all, Duration::from_secs(1));
    let mut commands = harness.commands();
    commands.retain(|command| !matches!(command, Command::AnswerChecks { .. }));
    assert_eq!(commands.len(), 40);
    for pair in commands.chunks(2) {
        let [Command::AddSession(peer), Command::Watch { .. }] = pair else { panic!("{pair:?}") };
        let client = &clients[peer.session.0 as usize - 1];
        assert!(client.path == peer.path && client.has_keys(&peer.keys));
    }
}

#[test]
fn who_proves_no_address_within_5_seconds_is_dropped() {
    let mut harness = Harness::new();
    let (_silent, _) = harness.client(1, &WATCH);
    harness.run(&mut [], Duration::from_millis(4_900));
    assert_eq!(harness.ended(), []);
    harness.run(&mut [], Duration::from_millis(200));
    assert_eq!(harness.ended(), [(1, EndReason::HandshakeTimeout)]);
    assert!(harness.commands().is_empty(), "the worker never knew");
    assert_eq!((harness.counted().sessions, harness.counted().handshakes), (0, 0));
    assert_eq!(harness.negotiator.poll_timeout(), None);
}

/// Behind a relay, or on a satellite link, a round trip takes its time.
#[test]
fn who_has_sent_a_check_has_10_seconds_to_prove_an_address() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [], Duration::from_millis(4_900));
    client.peer.handle_timeout(harness.now);
    client.drain(&mut harness);
    harness.heard.borrow_mut().transmits.clear();
    harness.run(&mut [], Duration::from_millis(9_900));
    assert_eq!(harness.ended(), []);
    harness.run(&mut [], Duration::from_millis(200));
    assert_eq!(harness.ended(), [(1, EndReason::HandshakeTimeout)]);
}

#[test]
fn checks_alone_keep_nobody_out() {
    let mut harness = Harness::with(Settings { handshakes_max: 20, ..Settings::default() });
    let come_and_check = |harness: &mut Harness, session| {
        harness.now += Duration::from_millis(1);
        let (mut client, _) = harness.client(session, &WATCH);
        client.peer.handle_timeout(harness.now);
        client.drain(harness);
    };
    (1..=100).for_each(|session| come_and_check(&mut harness, session));
    harness.now += Duration::from_millis(1);
    let (mut slow, _) = harness.client(101, &WATCH);
    (102..=120).for_each(|session| come_and_check(&mut harness, session));
    harness.run(&mut [&mut slow], Duration::from_secs(1));
    assert!(slow.keys.is_some(), "who came before and has checked goes before it");
    assert_eq!(harness.counted().made_room, 100);
}

#[test]
fn who_has_proved_an_address_has_10_seconds_for_the_rest() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    while harness.counted().proved == 0 {
        harness.run(&mut [&mut client], Duration::from_millis(10));
    }
    harness.run(&mut [], Duration::from_millis(9_900));
    assert_eq!(harness.ended(), []);
    harness.run(&mut [], Duration::from_millis(200));
    assert_eq!(harness.ended(), [(1, EndReason::HandshakeTimeout)]);
}

#[test]
fn offers_that_never_connect_keep_nobody_out() {
    let mut harness = Harness::with(Settings { handshakes_max: 20, ..Settings::default() });
    let (mut first, _) = harness.client(1, &WATCH);
    while harness.counted().proved == 0 {
        harness.run(&mut [&mut first], Duration::from_millis(10));
    }
    for session in 2..=100 {
        let _ = harness.client(session, &WATCH);
    }
    let (mut last, _) = harness.client(101, &WATCH);
    harness.run(&mut [&mut first, &mut last], Duration::from_secs(1));
    assert!(first.keys.is_some() && last.keys.is_some());
    let counted = harness.counted();
    assert_eq!((counted.overloaded, counted.made_room), (0, 81));
    assert!(harness.ended().iter().all(|(_, reason)| *reason == EndReason::MadeRoom), "{:?}", harness.ended());
}

#[test]
fn who_has_most_offers_that_wait_makes_room_whoever_came_first() {
    let mut harness = Harness::with(Settings { handshakes_max: 20, ..Settings::default() });
    let (mut early, _) = harness.client(APART, &WATCH);
    for session in 1..=100 {
        let _ = harness.client(session, &WATCH);
    }
    let (mut late, _) = harness.client(APART + 1, &WATCH);
    harness.run(&mut [&mut early, &mut late], Duration::from_secs(1));
    assert!(early.keys.is_some() && late.keys.is_some());
    assert_eq!((harness.counted().overloaded, harness.counted().made_room), (0, 82));
    assert!(harness.ended().iter().all(|(session, _)| *session < APART), "{:?}", harness.ended());
}

#[test]
fn who_has_connected_when_there_is_no_room_any_more_is_told_goodbye_and_no_worker_of_it() {
    let mut harness = Harness::new();
    harness.heard.borrow_mut().is_full = true;
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    assert!(client.has_ended && harness.commands().is_empty());
    assert_eq!(harness.ended(), [(1, EndReason::Refused)]);
    let counted = harness.counted();
    assert_eq!((counted.connected, counted.sessions, counted.handshakes), (0, 0, 0));
}

#[test]
fn where_all_have_proved_an_address_too_many_handshakes_are_refused_until_some_are_done() {
    let mut harness = Harness::with(Settings { handshakes_max: 2, ..Settings::default() });
    let (mut first, _) = harness.client(1, &WATCH);
    let (mut second, _) = harness.client(2, &WATCH);
    while harness.counted().proved < 2 {
        harness.run(&mut [&mut first, &mut second], Duration::from_millis(10));
    }
    let (_, offer) = Peer::offer(&harness.context, harness.now, &WATCH).unwrap();
    let refused = harness.watch_with(3, offer.clone());
    assert_eq!(refused, Err(NegotiationError::Overloaded { retry_after_seconds: 2 }));
    harness.run(&mut [&mut first], Duration::from_secs(1));
    assert!(harness.watch_with(3, offer).is_ok());
}

#[test]
fn a_bad_offer_is_refused_and_leaves_nothing_behind() {
    let mut harness = Harness::new();
    assert!(matches!(harness.watch_with(1, "v=0".into()), Err(NegotiationError::Sdp(_))));
    assert!(matches!(harness.publish_with(1, "nonsense".into()), Err(NegotiationError::Sdp(_))));
    assert_eq!((harness.counted().sessions, harness.counted().refused), (0, 2));
    assert!(harness.ended().is_empty());
}

#[test]
fn an_answer_that_nobody_waits_for_ends_its_session() {
    let mut harness = Harness::new();
    let (_, offer) = Peer::offer(&harness.context, harness.now, &PUBLISH).unwrap();
    let (reply, answer) = oneshot::channel();
    drop(answer);
    let request = Request::Open { place: place(1, Role::Publisher), offer, reply };
    harness.negotiator.handle(harness.now, Input::Request(request));
    assert_eq!(harness.ended(), [(1, EndReason::Abandoned)]);
    assert_eq!(harness.counted().sessions, 0);
}

#[test]
fn a_closed_session_says_goodbye_to_the_peer_and_leaves_the_worker() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    harness.commands();
    harness.negotiator.handle(harness.now, Input::Request(Request::Close { session: SessionId(1) }));
    harness.run(&mut [&mut client], Duration::from_millis(100));
    assert!(client.has_ended);
    assert!(matches!(harness.commands()[..], [Command::RemoveSession(SessionId(1))]));
    assert_eq!(harness.ended(), [(1, EndReason::Asked)]);
}

#[test]
fn a_peers_goodbye_and_the_workers_word_end_a_session_once() {
    let mut harness = Harness::new();
    let (mut leaving, _) = harness.client(1, &WATCH);
    let (mut silent, _) = harness.client(2, &WATCH);
    harness.run(&mut [&mut leaving, &mut silent], Duration::from_secs(1));
    harness.commands();

    leaving.peer.close();
    harness.run(&mut [&mut leaving], Duration::from_millis(100));
    let reason = rooms::spec::EndReason::Silent;
    let gone = |session| Input::Event(Event::SessionEnded { session: SessionId(session), reason });
    harness.negotiator.handle(harness.now, gone(2));
    harness.negotiator.handle(harness.now, gone(2));
    harness.negotiator.handle(harness.now, gone(1));

    let by_peer = EndReason::Peer(webrtc::EndReason::Closed);
    assert_eq!(harness.ended(), [(1, by_peer), (2, EndReason::Worker(reason))]);
    assert!(matches!(harness.commands()[..], [Command::RemoveSession(SessionId(1))]));
    assert_eq!(harness.counted().sessions, 0);
}

#[test]
fn a_peer_that_moves_takes_its_session_along() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    harness.commands();
    client.path = Path { link: LinkId::datagrams(0), remote: "127.0.0.1:9999".parse().unwrap(), local: None };
    harness.run(&mut [&mut client], Duration::from_secs(20));
    let commands = harness.commands();
    let moved =
        commands.iter().filter(|command| matches!(command, Command::MovePath { path, .. } if *path == client.path));
    assert_eq!(moved.count(), 1, "{commands:?}");
}

/// A session's own checks, sent on in another's name.
#[test]
fn checks_that_come_from_anothers_address_take_nothing_from_it() {
    let mut harness = Harness::new();
    let (mut victim, _) = harness.client(1, &WATCH);
    let (mut attacker, _) = harness.client(2, &WATCH);
    for step in 0..200 {
        harness.run(&mut [&mut victim], Duration::from_millis(10));
        attacker.peer.handle_timeout(harness.now);
        while let Output::Transmit { data, .. } = attacker.peer.poll() {
            harness.deliver(attacker.path, &data);
            harness.deliver(victim.path, &data);
        }
        if step == 10 {
            assert!(victim.keys.is_some(), "the handshake is none the slower");
        }
    }
    let commands = harness.commands();
    let is_attackers = |command: &Command| match command {
        Command::AddSession(peer) => peer.session == SessionId(2) && peer.path == victim.path,
        Command::MovePath { path, .. } => *path == victim.path,
        _ => false,
    };
    assert!(!commands.iter().any(is_attackers), "{commands:?}");
    victim.peer.close();
    harness.run(&mut [&mut victim], Duration::from_millis(100));
    assert_eq!(harness.ended(), [(1, EndReason::Peer(webrtc::EndReason::Closed))], "its goodbye has found it");
}

#[test]
fn malformed_and_foreign_datagrams_are_counted_and_harm_no_session() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    let elsewhere = Path { remote: "127.0.0.1:1234".parse().unwrap(), ..client.path };
    let mut other = Harness::new();
    let (mut stranger, _) = other.client(1, &WATCH);
    let foreign = loop {
        other.now += Duration::from_millis(10);
        stranger.peer.handle_timeout(other.now);
        if let Output::Transmit { data, .. } = stranger.peer.poll() {
            break data;
        }
    };

    let before = harness.counted();
    for data in [&[0; 30][..], &[1, 1], &[], &[22, 254, 253], &foreign, &[0x80; 40]] {
        harness.deliver(elsewhere, data);
    }
    for data in [&[0; 30][..], &[22; 60], &[21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 40], &[0x80; 40]] {
        harness.deliver(client.path, data);
    }
    let after = harness.counted();
    assert_eq!(after.datagrams - before.datagrams, 10);
    assert!(after.unknown - before.unknown == 4, "{after:?}");
    assert!(after.malformed - before.malformed >= 4, "{after:?}");
    harness.run(&mut [&mut client], Duration::from_secs(20));
    assert_eq!((harness.ended(), after.sessions), (vec![], 1));
}

/// Answers name their session by its tag before they are known to be authentic.
#[test]
fn answers_of_others_find_no_session() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    let before = harness.counted();
    for key in 0..1_000_u32 {
        let mut answer = [1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9];
        answer[8..12].copy_from_slice(&key.to_be_bytes());
        harness.deliver(client.path, &answer);
    }
    // One of them may be its.
    assert!(harness.counted().unknown - before.unknown >= 999);
}

#[cfg(debug_assertions)]
#[test]
fn a_panic_over_a_datagram_that_only_names_a_session_ends_nobody() {
    let mut harness = Harness::new();
    let (mut client, answer) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    harness.negotiator.peer_mut(SessionId(1)).inject_fault(webrtc::Fault::Parser);
    let name = format!("{}:abcd", answer.etag);
    assert_eq!(name.len(), 17);
    let mut check = vec![0, 1, 0, 24, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 6, 0, 17];
    check.extend(name.bytes().chain([0; 3]));
    let elsewhere = Path { remote: "127.0.0.1:1234".parse().unwrap(), ..client.path };
    harness.deliver(elsewhere, &check);
    assert_eq!((harness.ended(), harness.counted().malformed, harness.counted().panicked), (vec![], 1, 0));
}

#[test]
fn the_thread_ends_with_its_last_sender() {
    let (inputs, receiver) = engine::mailbox(8).unwrap();
    let context = Context::new().unwrap();
    let thread = std::thread::spawn(move || {
        let negotiator = Negotiator::new(Instant::now(), Settings::default(), context, |_| Posted::Sent, |_| true);
        run(negotiator, &receiver, &::counters::Published::default());
    });
    let (reply, answer) = oneshot::channel();
    let request = Request::Open { place: place(1, Role::Publisher), offer: String::new(), reply };
    inputs.send(Input::Request(request)).unwrap();
    assert!(matches!(answer.blocking_recv(), Ok(Err(NegotiationError::Sdp(_)))));
    drop(inputs);
    thread.join().unwrap();
}
