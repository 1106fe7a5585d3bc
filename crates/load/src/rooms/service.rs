//! Thousands of clients on one thread and one socket.
//!
//! On loopback every address of 127.0.0.0/8 is ours, so each client has an address of its own behind one wildcard
//! socket: a batch received there holds packets for many clients, and the server sees as many peers.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use engine::Service;
use measure::percentiles::Times;
use srtp::{Opener, Sealer, SessionKeys};
use tokio::sync::oneshot;
use webrtc::{Media, Output, Peer, Remote};
use wheel::{TimerId, Wheel};
use wire::rtp::{self, Kind};
use wire::{Datagram, DatagramRun, LinkId, Outbox, Path, Product};

use super::join::Video;
use super::publisher::Publisher;
use super::viewer::{Check, Seen, Viewer};
use crate::clients::Addresses;

/// What the load threads are told.
pub enum Message {
    /// A client whose offer was answered; it connects now.
    Join(Box<Joining>),
    /// What a viewer gets from now on.
    Tracks {
        client: usize,
        media: Vec<Media>,
        /// It is let go of when the viewer knows.
        done: oneshot::Sender<()>,
    },
    /// Where a client's server is, too.
    Candidate { client: usize, candidate: String },
    /// A client whose session the server has ended.
    Ended { client: usize, why: String },
    /// A viewer that has ended its session.
    Leave {
        client: usize,
        /// It is let go of when the client is gone.
        done: mpsc::SyncSender<()>,
    },
    /// Forgets what was counted so far: the warm-up is over.
    Reset,
    /// Everything counted, please.
    Report(mpsc::SyncSender<Totals>),
}

/// A client between the answer and its first packet.
pub struct Joining {
    pub client: usize,
    pub peer: Peer,
    /// When the join began, before the HTTP request.
    pub started: Instant,
    /// What its description says: the sections that it publishes or watches.
    pub media: Vec<Media>,
    pub part: Part,
}

/// What becomes of a client when it is connected.
#[derive(Clone, Copy)]
pub enum Part {
    Publish(Video),
    Watch(Check),
}

enum Role {
    Joining(Vec<Media>, Part),
    Viewer(Viewer),
    Publisher(Publisher),
}

struct Client {
    path: Path,
    peer: Peer,
    peer_timeout: Option<Instant>,
    started: Instant,
    role: Role,
    /// Whether it watched when the counting began: a newcomer starts at a stored keyframe, which is old by nature.
    is_settled: bool,
    has_failed: bool,
    /// The wheel's entry for the client's next deadline.
    timer: Option<(Instant, TimerId)>,
}

impl Client {
    fn poll_timeout(&self) -> Option<Instant> {
        let role = match &self.role {
            Role::Joining(..) => None,
            Role::Viewer(viewer) => Some(viewer.poll_timeout()),
            Role::Publisher(publisher) => Some(publisher.poll_timeout()),
        };
        [self.peer_timeout, role].into_iter().flatten().min()
    }

    /// Becomes what it is to be, with the keys of its handshake. `None`: it is that already, or they are none.
    fn play(&mut self, now: Instant, keys: &SessionKeys) -> Option<()> {
        let (opener, sealer) = (Opener::new(keys).ok()?, Sealer::new(keys).ok()?);
        let Role::Joining(media, part) = &self.role else { return None };
        self.role = match *part {
            Part::Publish(video) => Role::Publisher(Publisher::new(now, video, media, opener, sealer)),
            Part::Watch(check) => {
                let mut viewer = Viewer::new(now, opener, sealer, check);
                viewer.set_tracks(now, media);
                Role::Viewer(viewer)
            }
        };
        Some(())
    }

    fn set_tracks(&mut self, now: Instant, tracks: Vec<Media>) {
        match &mut self.role {
            Role::Joining(media, _) => *media = tracks,
            Role::Viewer(viewer) => viewer.set_tracks(now, &tracks),
            Role::Publisher(_) => {}
        }
    }
}

/// What one thread's clients saw.
#[derive(Clone, Default)]
pub struct Totals {
    pub viewers: Vec<Seen>,
    /// What those have seen together that have left since the counting began.
    pub gone: Seen,
    /// Those that are connected, and those that were and have left.
    pub connected_viewers: usize,
    pub publishers: usize,
    pub keyframe_requests: u64,
    /// Publisher's send to viewer's receive, for those who watched when the counting began.
    pub latency: Times,
    /// From the start of the HTTP request until DTLS was done.
    pub join: Times,
    /// From the same start until the first media packet, and until a keyframe's first packet.
    pub first_packet: Times,
    pub first_keyframe: Times,
    pub failed: usize,
    /// Of the first of them.
    pub why_failed: Option<String>,
}

impl Totals {
    /// Counts a viewer that has connected, and how long it waited for what it saw.
    fn count(&mut self, started: Instant, seen: &Seen) {
        self.connected_viewers += 1;
        let marks = [(seen.first_packet, &mut self.first_packet), (seen.first_keyframe, &mut self.first_keyframe)];
        for (at, times) in marks {
            at.into_iter().for_each(|at| times.record(at.duration_since(started)));
        }
    }
}

pub struct LoadService {
    link: LinkId,
    /// The run's zero, which stamps count from.
    epoch: Instant,
    /// By the client's number.
    clients: Vec<Option<Client>>,
    wheel: Wheel<usize>,
    /// Publishers with packets that found no room.
    sending: Vec<usize>,
    addresses: Addresses,
    /// Without those numbers that the clients that are there have themselves.
    totals: Totals,
}

const TICK: Duration = Duration::from_micros(500);

impl LoadService {
    pub fn new(now: Instant, epoch: Instant, link: LinkId, addresses: Addresses) -> Self {
        let (clients, sending, totals, wheel) = (Vec::new(), Vec::new(), Totals::default(), Wheel::new(now, TICK));
        LoadService { link, epoch, clients, wheel, sending, addresses, totals }
    }

    fn join(&mut self, now: Instant, joining: Joining, out: &mut Outbox) {
        let Joining { client: number, peer, started, media, part } = joining;
        if self.clients.len() <= number {
            self.clients.resize_with(number + 1, || None);
        }
        // The remote is filled in by the first check.
        let local = Some(self.addresses.of(number).into());
        let path = Path { link: self.link, remote: ([127, 0, 0, 1], 9).into(), local };
        let (peer_timeout, role) = (Some(now), Role::Joining(media, part));
        let client =
            Client { path, peer, peer_timeout, started, role, is_settled: false, has_failed: false, timer: None };
        self.clients[number] = Some(client);
        self.drive(now, number, true, out);
        self.schedule(number);
    }

    fn leave(&mut self, now: Instant, client: usize) {
        let Some(client) = self.clients.get_mut(client).and_then(Option::take) else { return };
        if let Role::Viewer(viewer) = &client.role {
            let seen = viewer.finish(now);
            self.totals.count(client.started, &seen);
            self.totals.gone.add(&seen);
        }
        if let Some((_, timer)) = client.timer {
            self.wheel.cancel(timer);
        }
    }

    /// Lets ICE and DTLS go on.
    fn drive(&mut self, now: Instant, number: usize, is_timeout: bool, out: &mut Outbox) {
        let Some(Some(client)) = self.clients.get_mut(number) else { return };
        if is_timeout {
            client.peer.handle_timeout(now);
        }
        loop {
            match client.peer.poll() {
                Output::Transmit { remote, data } => {
                    out.push(&Path { remote: remote.addr, ..client.path }, &data);
                }
                Output::Connected { keys, remote } => {
                    client.path.remote = remote.addr;
                    if client.play(now, &keys).is_some() {
                        self.totals.join.record(now.duration_since(client.started));
                    }
                }
                Output::PathChanged(remote) => client.path.remote = remote.addr,
                Output::Channel(_) => {}
                Output::Ended(reason) => {
                    client.peer_timeout = None;
                    return self.fail(number, format!("{reason:?}"));
                }
                Output::Timeout(at) => {
                    client.peer_timeout = Some(at);
                    return;
                }
            }
        }
    }

    fn fail(&mut self, number: usize, why: String) {
        let Some(Some(client)) = self.clients.get_mut(number) else { return };
        if !std::mem::replace(&mut client.has_failed, true) {
            self.totals.failed += 1;
            self.totals.why_failed.get_or_insert(why);
        }
    }

    fn add_candidate(&mut self, now: Instant, number: usize, candidate: &str, out: &mut Outbox) {
        let Some(Some(client)) = self.clients.get_mut(number) else { return };
        client.peer.add_candidate(candidate);
        self.drive(now, number, true, out);
        self.schedule(number);
    }

    /// Moves the client's entry on the wheel forward when its next deadline is earlier than that.
    fn schedule(&mut self, number: usize) {
        let Some(Some(client)) = self.clients.get_mut(number) else { return };
        let Some(at) = client.poll_timeout() else { return };
        if client.timer.is_some_and(|(set, _)| set <= at) {
            return;
        }
        if let Some((_, timer)) = client.timer {
            self.wheel.cancel(timer);
        }
        client.timer = Some((at, self.wheel.insert(at, number)));
    }

    fn totals(&self, now: Instant) -> Totals {
        let mut totals = self.totals.clone();
        for client in self.clients.iter().flatten() {
            match &client.role {
                Role::Viewer(viewer) => {
                    let seen = viewer.finish(now);
                    totals.count(client.started, &seen);
                    totals.viewers.push(seen);
                }
                Role::Publisher(publisher) => {
                    totals.publishers += 1;
                    totals.keyframe_requests += publisher.keyframe_requests;
                }
                Role::Joining(..) => {}
            }
        }
        totals
    }

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>, out: &mut Outbox) {
        let Datagram { path, data, .. } = datagram;
        let Some(number) = path.local.and_then(|local| self.addresses.client(local)) else { return };
        let Some(Some(client)) = self.clients.get_mut(number) else { return };
        match (rtp::classify(data), &mut client.role) {
            (Kind::Rtp, Role::Viewer(viewer)) => {
                if let Some(stamp) = viewer.handle_rtp(now, data)
                    && client.is_settled
                {
                    let took = now.duration_since(self.epoch).as_nanos() as u64;
                    self.totals.latency.record_ns(took.saturating_sub(stamp.sent_ns));
                }
            }
            (Kind::Rtcp, Role::Viewer(viewer)) => viewer.handle_rtcp(now, data),
            (Kind::Rtcp, Role::Publisher(publisher)) => publisher.handle_rtcp(data, &client.path, out),
            (Kind::Stun | Kind::Dtls, _) => {
                let remote = Remote { addr: path.remote, tcp: false };
                if client.peer.handle_datagram(now, remote, data).is_ok() {
                    self.drive(now, number, false, out);
                }
            }
            _ => {}
        }
        self.schedule(number);
    }
}

impl Service for LoadService {
    type Message = Message;

    fn handle_message(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        match message {
            Message::Join(joining) => self.join(now, *joining, out),
            Message::Tracks { client, media, done } => {
                if let Some(Some(client)) = self.clients.get_mut(client) {
                    client.set_tracks(now, media);
                }
                drop(done);
            }
            Message::Candidate { client, candidate } => self.add_candidate(now, client, &candidate, out),
            Message::Ended { client, why } => self.fail(client, why),
            Message::Leave { client, done } => {
                self.leave(now, client);
                drop(done);
            }
            Message::Reset => {
                (self.totals.latency, self.totals.gone) = (Times::default(), Seen::default());
                for client in self.clients.iter_mut().flatten() {
                    match &mut client.role {
                        Role::Viewer(viewer) => {
                            client.is_settled = true;
                            viewer.reset();
                        }
                        Role::Publisher(publisher) => publisher.keyframe_requests = 0,
                        Role::Joining(..) => {}
                    }
                }
            }
            // Nobody listens any more: then nobody needs it.
            Message::Report(reply) => drop(reply.send(self.totals(now))),
        }
    }
}

impl Product for LoadService {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        for datagram in run.into_datagrams() {
            self.handle_datagram(now, datagram, out);
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        while out.has_room()
            && let Some(number) = self.wheel.pop_due(now)
        {
            let Some(Some(client)) = self.clients.get_mut(number) else { continue };
            client.timer = None;
            match &mut client.role {
                Role::Viewer(viewer) => viewer.handle_timeout(now, &client.path, out),
                Role::Publisher(publisher) => {
                    publisher.handle_timeout(now, &client.path, out);
                    self.sending.push(number);
                }
                Role::Joining(..) => {}
            }
            if client.peer_timeout.is_some_and(|at| at <= now) {
                self.drive(now, number, true, out);
            }
            self.schedule(number);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        while let Some(number) = self.sending.last() {
            if let Some(Some(client)) = self.clients.get_mut(*number)
                && let Role::Publisher(publisher) = &mut client.role
                && publisher.send_waiting(now, &client.path, out)
            {
                return true;
            }
            self.sending.pop();
        }
        false
    }
}
