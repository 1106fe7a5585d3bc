//! All clients of one thread, and their peers.
//!
//! In: what the server sends, what peers get, the time. Out: messages as the job says, and what became of them.
//! Peers send back what they get, from the same thread: what comes from one relayed address at once leaves as one run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Service;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use wire::{
    Datagram, DatagramRun, LinkEvent, LinkId, LinkRequest, Outbox, Path, Product, Random, StreamOptions, Token,
};

use super::client::{self, Client, Frame, Sent, Stage, Way};
use super::connection::Connection;
use super::dialog::{Answer, Dialog, Step};
use super::job::{CLIENTS, Job, Message, PEERS, SHARED, Setup, Totals, Transport};
use super::payload::Stamp;
use super::seen::Arrival;
use super::strangers::{Heard, Strangers};
use crate::clients::Addresses;

/// Clients that are set up at once.
const SETTING_UP_MAX: usize = 32;

/// How often it is looked for requests without an answer, and for messages that will not come back.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// When an allocation and what belongs to it are refreshed: a permission is there for five minutes (RFC 8656 §9).
const REFRESH_INTERVAL: Duration = Duration::from_secs(200);

/// What a connection may keep in the engine.
const BACKLOG_MAX: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    SettingUp,
    Going,
    Stopped,
    Freeing,
}

/// One thread's clients.
pub(super) struct RelayLoad {
    setup: Setup,
    clients: Vec<Client>,
    phase: Phase,
    /// The next client to be set up, or to be freed.
    next: usize,
    /// How many are.
    in_work: usize,
    /// Allocations that were made and freed.
    cycles: usize,
    /// Clients that may have something to send.
    hungry: Vec<u32>,
    /// Since when messages are sent at a pace, and how many were.
    paced_since: Option<Instant>,
    paced: u64,
    epoch: Instant,
    sweep_at: Instant,
    random: Random,
    totals: Totals,
}

impl RelayLoad {
    pub(super) fn new(now: Instant, setup: Setup) -> Self {
        let client = |index: usize| {
            let way = match &setup.transport {
                Transport::Stream(_) => Way::Stream(None),
                Transport::Udp => {
                    let local = setup.addresses.map(|addresses| addresses.of(index).into());
                    let link = setup.links[index % setup.links.len()];
                    Way::Datagrams(Path { link, remote: setup.server, local })
                }
            };
            let peer = setup.peers[index % setup.peers.len()];
            Client::new(now, way, peer, setup.payload.len(), setup.indications)
        };
        RelayLoad {
            clients: (0..setup.count).map(client).collect(),
            phase: Phase::Idle,
            next: 0,
            in_work: 0,
            cycles: 0,
            hungry: Vec::with_capacity(setup.count),
            paced_since: None,
            paced: 0,
            epoch: now,
            sweep_at: now + SWEEP_INTERVAL,
            random: Random::new(setup.seed),
            totals: Totals::default(),
            setup,
        }
    }

    /// Sets up, or frees, the next ones, some at once.
    fn begin_more(&mut self, now: Instant, out: &mut Outbox) {
        if !matches!(self.phase, Phase::SettingUp | Phase::Freeing) {
            return;
        }
        while self.in_work < SETTING_UP_MAX
            && self.next < self.clients.len()
            && out.has_room()
            && out.has_room_for_request()
        {
            let index = self.next;
            self.next += 1;
            if self.phase == Phase::SettingUp {
                self.in_work += 1;
                self.set_up(now, index, out);
            } else if self.clients[index].stage == Stage::Ready {
                self.in_work += 1;
                self.clients[index].stage = Stage::Freeing;
                self.ask(now, index, Step::Free, out);
            }
        }
    }

    fn set_up(&mut self, now: Instant, index: usize, out: &mut Outbox) {
        let client = &mut self.clients[index];
        (client.stage, client.started) = (Stage::SettingUp, now);
        if let Transport::Udp = self.setup.transport {
            return self.allocate(now, index, out);
        }
        let from = self.setup.addresses.map(|addresses| (addresses.of(index), 0).into());
        let options = StreamOptions { backlog_max: BACKLOG_MAX, ..StreamOptions::default() };
        let token = Token { owner: CLIENTS, number: index as u32 };
        let request = LinkRequest::Connect { token, to: self.setup.server, from, options };
        if out.request(request).is_err() {
            self.fail(index, "no room for a request");
        }
    }

    fn allocate(&mut self, now: Instant, index: usize, out: &mut Outbox) {
        let is_ipv6 = self.clients[index].peer.is_ipv6();
        self.ask(now, index, Step::Allocate { is_ipv6 }, out);
    }

    fn ask(&mut self, now: Instant, index: usize, step: Step, out: &mut Outbox) {
        let client = &mut self.clients[index];
        client.dialog.ask(now, step, &mut self.setup.credentials, &mut self.random);
        client.send_request(out);
        self.note_hungry(index);
    }

    /// Of a connection there may be something left to write.
    fn note_hungry(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if !client.is_hungry {
            client.is_hungry = true;
            self.hungry.push(index as u32);
        }
    }

    fn fail(&mut self, index: usize, why: &str) {
        let client = &mut self.clients[index];
        if client.stage == Stage::Ended {
            return;
        }
        if matches!(client.stage, Stage::SettingUp | Stage::Freeing) {
            self.in_work = self.in_work.saturating_sub(1);
        }
        // A server may close the connection of who has gone.
        let is_gone = client.stage == Stage::Freeing;
        client.stage = Stage::Ended;
        if is_gone {
            return;
        }
        self.totals.failed += 1;
        *self.totals.failures.entry(why.to_owned()).or_default() += 1;
    }

    /// The step behind one that is done.
    fn go_on(&mut self, now: Instant, index: usize, done: Step, out: &mut Outbox) {
        let is_allocating = self.setup.job == Job::Allocate;
        let client = &mut self.clients[index];
        let peer = client.peer;
        match (done, client.stage) {
            (Step::Allocate { .. }, Stage::Ready) if is_allocating => self.ask(now, index, Step::Free, out),
            (Step::Allocate { .. }, Stage::SettingUp) if is_allocating => self.be_ready(now, index),
            (Step::Allocate { .. } | Step::Refresh, _) => {
                let step = if self.setup.indications { Step::Permit(peer) } else { Step::Bind(peer) };
                self.ask(now, index, step, out);
            }
            (Step::Bind(_) | Step::Permit(_), Stage::SettingUp) => self.be_ready(now, index),
            (Step::Bind(_) | Step::Permit(_), _) => client.refresh_at = now + REFRESH_INTERVAL,
            (Step::Free, Stage::Ready) => {
                self.totals.received += u64::from(self.phase == Phase::Going);
                self.totals.latency.record(now - client.started);
                if self.phase == Phase::Going {
                    self.allocate_again(now, index, out);
                } else {
                    client.stage = Stage::Ended;
                }
            }
            (Step::Free, _) => {
                client.stage = Stage::Ended;
                self.in_work = self.in_work.saturating_sub(1);
            }
        }
        self.begin_more(now, out);
    }

    fn be_ready(&mut self, now: Instant, index: usize) {
        let client = &mut self.clients[index];
        client.stage = Stage::Ready;
        client.refresh_at = now + REFRESH_INTERVAL;
        self.totals.set_up.record(now - client.started);
        self.totals.allocated += 1;
        self.in_work = self.in_work.saturating_sub(1);
    }

    /// Allocates once more, as somebody else where there are addresses for that.
    fn allocate_again(&mut self, now: Instant, index: usize, out: &mut Outbox) {
        self.cycles += 1;
        let count = self.clients.len();
        let client = &mut self.clients[index];
        if let (Some(addresses), Way::Datagrams(path)) = (self.setup.addresses, &mut client.way)
            && let Some(own) = path.local.and_then(|local| addresses.client(local))
        {
            let next = (own + count) % (Addresses::MAX / count * count);
            path.local = Some(addresses.of(next).into());
        }
        client.dialog = Dialog::default();
        client.started = now;
        self.allocate(now, index, out);
    }

    /// The client that a datagram of the clients' sockets is for.
    fn client_of(&self, token: Token, path: &Path) -> Option<usize> {
        let index = match self.setup.addresses {
            _ if token.number != SHARED => token.number as usize,
            Some(addresses) => addresses.client(path.local?)? % self.clients.len(),
            None => return None,
        };
        // What comes for an address that it had before is for nobody.
        let is_own = match &self.clients.get(index)?.way {
            Way::Datagrams(own) => own.local.is_none() || own.local == path.local,
            Way::Stream(_) => false,
        };
        is_own.then_some(index)
    }

    /// Takes what the server sent to a client.
    fn handle_frame(&mut self, now: Instant, index: usize, frame: &[u8], out: &mut Outbox) {
        match client::look(frame) {
            Frame::Message(range) => self.handle_message_bytes(now, &frame[range]),
            Frame::Dialog => {
                let client = &mut self.clients[index];
                let Some(step) = client.dialog.step() else { return };
                match client.dialog.handle(now, frame, &mut self.setup.credentials, &mut self.random) {
                    Answer::Done => self.go_on(now, index, step, out),
                    Answer::Again => {
                        client.send_request(out);
                        self.note_hungry(index);
                    }
                    Answer::Refused(code) => {
                        self.fail(index, &format!("{}: {code}", step.name()));
                        self.begin_more(now, out);
                    }
                    Answer::NotOurs => {}
                }
            }
            Frame::Other => self.totals.damaged += 1,
        }
    }

    /// Counts a message that arrived where it was to.
    fn handle_message_bytes(&mut self, now: Instant, bytes: &[u8]) {
        let Some(Stamp { client: number, seq, sent_ns }) = self.setup.payload.read(bytes) else {
            self.totals.damaged += 1;
            return;
        };
        let Some(client) = self.clients.get_mut(number as usize).filter(|client| seq < client.next_seq) else {
            self.totals.damaged += 1;
            return;
        };
        let arrival = client.seen.note(seq);
        if arrival == Arrival::Again {
            self.totals.duplicates += 1;
            return;
        }
        self.totals.reordered += u64::from(arrival == Arrival::Late);
        self.totals.answered += u64::from(seq >= client.counted_from);
        if self.phase == Phase::Going {
            self.totals.received += 1;
            self.totals.latency.record_ns((now.duration_since(self.epoch).as_nanos() as u64).saturating_sub(sent_ns));
            if !client.is_hungry && matches!(self.setup.job, Job::Flood { .. }) {
                client.is_hungry = true;
                self.hungry.push(number);
            }
        }
    }

    fn begin_strangers(&mut self, now: Instant) {
        self.setup.strangers.iter_mut().for_each(|strangers| strangers.begin(now));
    }

    /// Sends what strangers have to say. True when there was no room for all.
    fn send_strangers(&mut self, now: Instant, out: &mut Outbox) -> bool {
        self.setup.strangers.as_mut().is_some_and(|strangers| strangers.send(now, &mut self.random, out))
    }

    fn go(&mut self, now: Instant) {
        self.phase = Phase::Going;
        self.paced_since = Some(now);
        for index in 0..self.clients.len() {
            if self.clients[index].stage == Stage::Ready {
                self.note_hungry(index);
            }
        }
    }

    fn reset(&mut self) {
        let Totals { allocated, failed, failures, set_up, .. } = std::mem::take(&mut self.totals);
        self.totals = Totals { allocated, failed, failures, set_up, ..Totals::default() };
        self.clients.iter_mut().for_each(|client| client.counted_from = client.next_seq);
        self.setup.strangers.iter_mut().for_each(|strangers| strangers.heard = Heard::default());
    }

    fn report(&mut self) -> Totals {
        let count = |stage| self.clients.iter().filter(|client| client.stage == stage).count();
        let sent = self.clients.iter().map(|client| u64::from(client.next_seq - client.counted_from)).sum();
        Totals {
            setting_up: count(Stage::Waiting) + count(Stage::SettingUp),
            ready: count(Stage::Ready) + count(Stage::Freeing),
            sent,
            strangers: self.setup.strangers.as_ref().map_or_else(Heard::default, |strangers| strangers.heard),
            ..self.totals.clone()
        }
    }

    /// Sends requests again that have no answer, refreshes, and gives up messages that will not come back.
    fn sweep(&mut self, now: Instant, out: &mut Outbox) {
        self.sweep_at = now + SWEEP_INTERVAL;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if matches!(client.stage, Stage::Waiting | Stage::Ended) {
                continue;
            }
            let is_stream = matches!(client.way, Way::Stream(_));
            match client.dialog.step() {
                // A connection brings its requests there.
                Some(_) => match client.dialog.is_due(now) {
                    Some(true) if !is_stream => client.send_request(out),
                    Some(_) => {}
                    None => self.fail(index, "no answer"),
                },
                None if self.setup.job == Job::Allocate => {}
                None if client.stage == Stage::Ready && client.refresh_at <= now => {
                    client.refresh_at = now + REFRESH_INTERVAL;
                    self.ask(now, index, Step::Refresh, out);
                }
                None => {}
            }
            let client = &mut self.clients[index];
            if client.seen.next() == client.looked_at && !is_stream {
                client.given_up = client.next_seq;
            }
            client.looked_at = client.seen.next();
            if self.phase == Phase::Going && client.stage == Stage::Ready {
                self.note_hungry(index);
            }
        }
        self.begin_more(now, out);
    }

    /// When the next message at a pace is due.
    fn next_paced(&self) -> Option<Instant> {
        let Job::Paced { interval_ns, tick_ns } = self.setup.job else { return None };
        let since = self.paced_since.filter(|_| self.phase == Phase::Going)?;
        let due_ns = (self.paced as f64 * interval_ns / self.clients.len() as f64) as u64;
        let due_ns = if tick_ns > 0 { due_ns.next_multiple_of(tick_ns) } else { due_ns };
        Some(since + Duration::from_nanos(due_ns))
    }

    /// Sends what is due at the pace, client by client. True when there was no room for all.
    fn send_paced(&mut self, now: Instant, out: &mut Outbox) -> bool {
        while self.next_paced().is_some_and(|due| due <= now) {
            if !out.has_room_for_piece() {
                return true;
            }
            let index = (self.paced % self.clients.len() as u64) as usize;
            self.paced += 1;
            let client = &mut self.clients[index];
            if client.stage == Stage::Ready {
                let sent_ns = now.duration_since(self.epoch).as_nanos() as u64;
                if client.send(index as u32, sent_ns, &self.setup.payload, out) != Sent::Yes {
                    // A message that a real client would have had to drop.
                    client.skip();
                }
                if !client.flush(out) {
                    self.note_hungry(index);
                }
            }
        }
        false
    }

    /// Lets a client send what it may. True when there was no room for all.
    fn feed(&mut self, now: Instant, index: usize, out: &mut Outbox) -> bool {
        let client = &mut self.clients[index];
        if !client.flush(out) {
            return true;
        }
        let Job::Flood { in_flight } = self.setup.job else { return false };
        if self.phase != Phase::Going || client.stage != Stage::Ready {
            return false;
        }
        let sent_ns = now.duration_since(self.epoch).as_nanos() as u64;
        while client.in_flight() < in_flight {
            match client.send(index as u32, sent_ns, &self.setup.payload, out) {
                Sent::Yes => {}
                Sent::Never => return false,
                // A connection takes what fits one write; when that is handed over there is room for more.
                Sent::NoRoom if matches!(client.way, Way::Stream(_)) && client.flush(out) => {}
                Sent::NoRoom => return true,
            }
        }
        !client.flush(out)
    }

    fn handle_bytes(&mut self, now: Instant, index: usize, bytes: &[u8], out: &mut Outbox) {
        // Its frames are read while other things of the client are changed.
        let Some(Client { way: Way::Stream(connection), .. }) = self.clients.get_mut(index) else { return };
        let Some(mut taken) = connection.take() else { return };
        let mut result = taken.take(bytes);
        let mut frames = Vec::new();
        while result.is_ok() {
            match taken.next_frame() {
                Ok(Some(frame)) => match client::look(frame) {
                    Frame::Message(range) => self.handle_message_bytes(now, &frame[range]),
                    Frame::Dialog | Frame::Other => frames.push(frame.to_vec()),
                },
                Ok(None) => break,
                Err(error) => result = Err(error),
            }
        }
        if let Err(error) = result {
            return self.fail(index, &format!("{error:#}"));
        }
        self.clients[index].way = Way::Stream(Some(taken));
        for frame in frames {
            self.handle_frame(now, index, &frame, out);
        }
        if !self.clients[index].flush(out) {
            self.note_hungry(index);
        }
    }

    fn connect(&mut self, now: Instant, index: usize, link: LinkId, out: &mut Outbox) {
        let Transport::Stream(config) = &self.setup.transport else { return };
        let name = ServerName::IpAddress(self.setup.server.ip().into());
        let tls = config.as_ref().map(|config| ClientConnection::new(Arc::clone(config), name)).transpose();
        match tls {
            Ok(tls) => {
                self.clients[index].way = Way::Stream(Some(Connection::new(link, tls)));
                self.allocate(now, index, out);
            }
            Err(error) => self.fail(index, &error.to_string()),
        }
    }
}

impl Service for RelayLoad {
    type Message = Message;

    fn handle_message(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        match message {
            Message::SetUp => {
                self.phase = Phase::SettingUp;
                self.begin_more(now, out);
            }
            Message::Go if self.setup.job == Job::Allocate => {
                self.begin_strangers(now);
                self.phase = Phase::Going;
                (0..self.clients.len())
                    .filter(|index| self.clients[*index].stage == Stage::Ready)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|index| self.ask(now, index, Step::Free, out));
            }
            Message::Go => {
                self.begin_strangers(now);
                self.go(now);
            }
            Message::Reset => self.reset(),
            Message::Stop => {
                self.phase = Phase::Stopped;
                self.setup.strangers.iter_mut().for_each(Strangers::end);
            }
            Message::Free => {
                (self.phase, self.next, self.in_work) = (Phase::Freeing, 0, 0);
                self.begin_more(now, out);
            }
            // Nobody listens any more: then nobody needs it.
            Message::Report(reply) => drop(reply.send(self.report())),
        }
    }
}

impl Product for RelayLoad {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        if run.token.owner == PEERS {
            for Datagram { path, data } in run.into_datagrams() {
                if self.setup.sink {
                    self.handle_message_bytes(now, data);
                } else {
                    out.push(&path, data);
                }
            }
            return;
        }
        let Some(index) = self.client_of(run.token, &run.path) else {
            let Some(strangers) = &mut self.setup.strangers else { return };
            return run.into_datagrams().for_each(|Datagram { path, data }| strangers.handle(path.local, data));
        };
        for datagram in run.into_datagrams() {
            self.handle_frame(now, index, datagram.data, out);
        }
    }

    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        let index = token.number as usize;
        if token.owner != CLIENTS || index >= self.clients.len() {
            return;
        }
        match event {
            LinkEvent::Opened { link, .. } => self.connect(now, index, link, out),
            LinkEvent::Bytes { bytes, .. } => self.handle_bytes(now, index, bytes, out),
            LinkEvent::Failed { error } => self.fail(index, &format!("connect: {error}")),
            // Half a frame cannot be made whole again.
            LinkEvent::Unsent { .. } => self.fail(index, "the server does not read"),
            LinkEvent::InputEnded { .. } | LinkEvent::Closed { .. } => {
                self.fail(index, "the server closed a connection")
            }
            LinkEvent::Writable { .. } | LinkEvent::Refused { .. } | LinkEvent::Released { .. } => {}
        }
        self.begin_more(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        if self.sweep_at <= now {
            self.sweep(now, out);
        }
        self.send_paced(now, out);
        self.send_strangers(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let strangers = self.setup.strangers.as_ref().and_then(Strangers::poll_timeout);
        [Some(self.sweep_at), self.next_paced(), strangers].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        while let Some(index) = self.hungry.last().map(|index| *index as usize) {
            if self.feed(now, index, out) {
                return true;
            }
            self.clients[index].is_hungry = false;
            self.hungry.pop();
        }
        self.send_paced(now, out) || self.send_strangers(now, out)
    }
}
