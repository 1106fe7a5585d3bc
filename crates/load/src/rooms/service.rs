//! Thousands of clients on one thread and one socket.
//!
//! On loopback every address of 127.0.0.0/8 is ours, so each client has an address of its own behind one wildcard
//! socket: a batch received there holds packets for many clients, and the server sees as many peers.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use engine::Service;
use hdrhistogram::Histogram;
use srtp::{Opener, Sealer, SessionKeys};
use webrtc::{Output, Peer, Remote};
use wheel::{TimerId, Wheel};
use wire::rtp::{self, Kind};
use wire::{Datagram, DatagramRun, LinkId, Outbox, Path, Product};

use super::publisher::Publisher;
use super::viewer::{Seen, Viewer};
use crate::clients::Addresses;
use measure::percentiles::histogram;

/// What the load threads are told.
pub enum Message {
    /// A client whose offer was answered; it connects now.
    Join(Box<Joining>),
    /// A viewer that has ended its session.
    Leave {
        client: u32,
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
    pub client: u32,
    pub peer: Peer,
    /// When the join began, before the HTTP request.
    pub started: Instant,
    pub role: JoiningRole,
}

/// What becomes of the client when it is connected.
pub type JoiningRole = Box<dyn FnOnce(Instant, Opener, Sealer) -> Role + Send>;

pub enum Role {
    Viewer(Viewer),
    Publisher(Publisher),
}

struct Client {
    path: Path,
    peer: Peer,
    peer_timeout: Option<Instant>,
    started: Instant,
    connected: Option<Instant>,
    joining: Option<JoiningRole>,
    role: Option<Role>,
    /// Whether it watched when the counting began: a newcomer starts at a stored keyframe, which is old by nature.
    is_settled: bool,
    /// The wheel's entry for the client's next deadline.
    timer: Option<(Instant, TimerId)>,
}

impl Client {
    fn poll_timeout(&self) -> Option<Instant> {
        let role = self.role.as_ref().map(|role| match role {
            Role::Viewer(viewer) => viewer.poll_timeout(),
            Role::Publisher(publisher) => publisher.poll_timeout(),
        });
        [self.peer_timeout, role].into_iter().flatten().min()
    }
}

/// What one thread's clients saw.
pub struct Totals {
    pub viewers: Vec<Seen>,
    pub connected_viewers: usize,
    pub publishers: usize,
    pub keyframe_requests: u64,
    /// Publisher's send to viewer's receive, in µs, for those who watched when the counting began.
    pub latency_us: Histogram<u64>,
    /// From the start of the HTTP request until DTLS was done, in µs.
    pub join_us: Histogram<u64>,
    /// From the same start until the first media packet, and until a keyframe's first packet, in µs.
    pub first_packet_us: Histogram<u64>,
    pub first_keyframe_us: Histogram<u64>,
    pub failed: usize,
}

pub struct LoadService {
    link: LinkId,
    /// The run's zero, which stamps count from.
    epoch: Instant,
    /// By the client's number, less the first.
    clients: Vec<Option<Client>>,
    wheel: Wheel<u32>,
    /// Publishers with packets that found no room.
    sending: Vec<u32>,
    latency_us: Histogram<u64>,
    joined_us: Histogram<u64>,
    addresses: Addresses,
    /// Viewers that were connected and have left.
    left: usize,
    failed: usize,
}

const TICK: Duration = Duration::from_micros(500);

impl LoadService {
    pub fn new(now: Instant, epoch: Instant, link: LinkId, addresses: Addresses) -> Self {
        LoadService {
            link,
            epoch,
            clients: Vec::new(),
            wheel: Wheel::new(now, TICK),
            sending: Vec::new(),
            latency_us: histogram(),
            joined_us: histogram(),
            addresses,
            left: 0,
            failed: 0,
        }
    }

    fn join(&mut self, now: Instant, joining: Joining, out: &mut Outbox) {
        let index = joining.client as usize;
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        // The remote is filled in by the first check.
        let local = Some(self.addresses.of(joining.client));
        let path = Path { link: self.link, remote: ([127, 0, 0, 1], 9).into(), local };
        self.clients[index] = Some(Client {
            path,
            peer: joining.peer,
            peer_timeout: Some(now),
            started: joining.started,
            connected: None,
            joining: Some(joining.role),
            role: None,
            is_settled: false,
            timer: None,
        });
        self.drive(now, joining.client, true, out);
        self.schedule(joining.client);
    }

    fn leave(&mut self, client: u32) {
        let Some(client) = self.clients.get_mut(client as usize).and_then(Option::take) else { return };
        self.left += usize::from(client.connected.is_some());
        if let Some((_, timer)) = client.timer {
            self.wheel.cancel(timer);
        }
    }

    /// Lets ICE and DTLS go on.
    fn drive(&mut self, now: Instant, number: u32, is_timeout: bool, out: &mut Outbox) {
        let Some(Some(client)) = self.clients.get_mut(number as usize) else { return };
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
                    client.connected = Some(now);
                    let role = client.joining.take();
                    if let (Some(role), Some((opener, sealer))) = (role, contexts(&keys)) {
                        client.role = Some(role(now, opener, sealer));
                        let took = now.duration_since(client.started).as_micros() as u64;
                        self.joined_us.saturating_record(took);
                    }
                }
                Output::PathChanged(remote) => client.path.remote = remote.addr,
                Output::Ended(_) => {
                    self.failed += 1;
                    client.peer_timeout = None;
                    return;
                }
                Output::Timeout(at) => {
                    client.peer_timeout = Some(at);
                    return;
                }
            }
        }
    }

    /// Moves the client's entry on the wheel forward when its next deadline is earlier than that.
    fn schedule(&mut self, number: u32) {
        let Some(Some(client)) = self.clients.get_mut(number as usize) else { return };
        let Some(at) = client.poll_timeout() else { return };
        if client.timer.is_some_and(|(set, _)| set <= at) {
            return;
        }
        if let Some((_, timer)) = client.timer {
            self.wheel.cancel(timer);
        }
        client.timer = Some((at, self.wheel.insert(at, number)));
    }

    fn totals(&mut self) -> Totals {
        let mut totals = Totals {
            viewers: Vec::new(),
            connected_viewers: self.left,
            publishers: 0,
            keyframe_requests: 0,
            latency_us: self.latency_us.clone(),
            join_us: self.joined_us.clone(),
            first_packet_us: histogram(),
            first_keyframe_us: histogram(),
            failed: self.failed,
        };
        for client in self.clients.iter_mut().flatten() {
            match &mut client.role {
                Some(Role::Viewer(viewer)) => {
                    let seen = viewer.finish();
                    let marks = [
                        (seen.first_packet, &mut totals.first_packet_us),
                        (seen.first_keyframe, &mut totals.first_keyframe_us),
                    ];
                    for (at, histogram) in marks {
                        if let Some(at) = at {
                            histogram.saturating_record(at.duration_since(client.started).as_micros() as u64);
                        }
                    }
                    totals.connected_viewers += 1;
                    totals.viewers.push(seen);
                }
                Some(Role::Publisher(publisher)) => {
                    totals.publishers += 1;
                    totals.keyframe_requests += publisher.keyframe_requests;
                }
                None => {}
            }
        }
        totals
    }
}

fn contexts(keys: &SessionKeys) -> Option<(Opener, Sealer)> {
    Some((Opener::new(keys).ok()?, Sealer::new(keys).ok()?))
}

impl LoadService {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>, out: &mut Outbox) {
        let Datagram { path, data, .. } = datagram;
        let Some(number) = path.local.and_then(|local| self.addresses.client(local)) else { return };
        let Some(Some(client)) = self.clients.get_mut(number as usize) else { return };
        match (rtp::classify(data), &mut client.role) {
            (Kind::Rtp, Some(Role::Viewer(viewer))) => {
                if let Some(stamp) = viewer.handle_rtp(now, data)
                    && client.is_settled
                {
                    let took = now.duration_since(self.epoch).as_nanos() as u64;
                    self.latency_us.saturating_record(took.saturating_sub(stamp.sent_ns) / 1_000);
                }
            }
            (Kind::Rtcp, Some(Role::Viewer(viewer))) => viewer.handle_rtcp(now, data),
            (Kind::Rtcp, Some(Role::Publisher(publisher))) => publisher.handle_rtcp(data, &client.path, out),
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
            Message::Leave { client, done } => {
                self.leave(client);
                drop(done);
            }
            Message::Reset => {
                self.latency_us.reset();
                for client in self.clients.iter_mut().flatten() {
                    if let Some(Role::Viewer(viewer)) = &mut client.role {
                        client.is_settled = true;
                        viewer.reset();
                    }
                }
            }
            Message::Report(reply) => {
                let totals = self.totals();
                // Nobody listens any more: then nobody needs it.
                let _ = reply.send(totals);
            }
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
            let Some(Some(client)) = self.clients.get_mut(number as usize) else { continue };
            client.timer = None;
            match &mut client.role {
                Some(Role::Viewer(viewer)) => viewer.handle_timeout(now, &client.path, out),
                Some(Role::Publisher(publisher)) => {
                    publisher.handle_timeout(now, &client.path, out);
                    self.sending.push(number);
                }
                None => {}
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

    fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
        while let Some(number) = self.sending.last() {
            if let Some(Some(client)) = self.clients.get_mut(*number as usize)
                && let Some(Role::Publisher(publisher)) = &mut client.role
                && publisher.send_waiting(&client.path, out)
            {
                return true;
            }
            self.sending.pop();
        }
        false
    }
}
