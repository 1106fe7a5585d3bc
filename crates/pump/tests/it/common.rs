//! A pump, titles in memory, and a clock that is set.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::chunk::Chunk;
use pump::pump::Pump;
use pump::sample::Sample;
use pump::spec::{Command, Counters, Event, SessionId, SessionSpec, SessionStats, Settings, Start};
use pump::title::Title;
use wire::ts::PACKET_LEN;
use wire::{LinkEvent, LinkId, LinkRequest, Outbox, Path, PieceSource, Product as _, Token};

/// A title with all its bytes.
pub struct Source {
    pub title: Arc<Title>,
    pub bytes: Vec<u8>,
}

impl Source {
    pub fn new(bytes: Vec<u8>, chunk_packets: u32) -> Arc<Source> {
        let title = Title::probe(&bytes[..bytes.len().min(1 << 20)], bytes.len() as u64, chunk_packets).unwrap();
        Arc::new(Source { title: Arc::new(title), bytes })
    }

    pub fn sample(sample: &Sample) -> Arc<Source> {
        Source::new(sample.make(), 700)
    }

    pub fn chunk(&self, number: u32) -> Arc<Chunk> {
        let range = self.title.chunk_range(number);
        let bytes = self.bytes[range.start as usize..range.end as usize].to_vec();
        Arc::new(Chunk::scan(&self.title, number, bytes))
    }

    /// The first packets of a chunk.
    pub fn part(&self, number: u32, packets: usize) -> Arc<Chunk> {
        let range = self.title.chunk_range(number);
        let bytes = &self.bytes[range.start as usize..range.end as usize];
        Arc::new(Chunk::scan(&self.title, number, bytes[..bytes.len().min(packets * 188)].to_vec()))
    }
}

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub ns: u64,
    pub bytes: Vec<u8>,
}

pub struct World {
    pub start: Instant,
    pub now: Instant,
    pub pump: Pump,
    pub out: Outbox,
    sources: HashMap<SessionId, Arc<Source>>,
    /// By the session's number.
    pub sent: HashMap<u64, Vec<Sent>>,
    pub ended: Vec<(SessionId, pump::spec::EndReason, SessionStats)>,
    pub shown: Vec<SessionId>,
    pub wanted: Vec<SessionId>,
    pub started: Vec<(u64, Option<Start>)>,
    /// What clients said on connections, and which of these are over.
    pub heard: Vec<(Token, Vec<u8>)>,
    pub hung_up: Vec<Token>,
    /// What was written for byte streams.
    pub pieces: Vec<(LinkId, Vec<u8>)>,
    pub requests: Vec<LinkRequest>,
    /// Chunks on their way, with the time of their arrival.
    coming: VecDeque<(Instant, SessionId, u32)>,
    /// How long a chunk takes.
    pub delay: fn(SessionId, u32) -> Duration,
    pub asked: Vec<(SessionId, u32)>,
    /// The answer to the last question.
    stats: Option<SessionStats>,
}

impl World {
    pub fn new(settings: Settings) -> World {
        let start = Instant::now();
        World {
            start,
            now: start,
            pump: Pump::new(start, settings),
            out: Outbox::new(1 << 20),
            sources: HashMap::new(),
            sent: HashMap::new(),
            ended: Vec::new(),
            shown: Vec::new(),
            wanted: Vec::new(),
            started: Vec::new(),
            heard: Vec::new(),
            hung_up: Vec::new(),
            pieces: Vec::new(),
            requests: Vec::new(),
            coming: VecDeque::new(),
            delay: |_, _| Duration::ZERO,
            asked: Vec::new(),
            stats: None,
        }
    }

    /// One session, which plays the source as `change` says.
    pub fn open(&mut self, number: u64, source: &Arc<Source>, change: impl FnOnce(&mut SessionSpec)) -> SessionId {
        let id = SessionId(number);
        let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], number as u16).into(), local: None };
        let mut spec = SessionSpec::new(id, source.title.clone(), path);
        change(&mut spec);
        self.sources.insert(id, source.clone());
        self.command(Command::Open(Box::new(spec)));
        id
    }

    pub fn command(&mut self, command: Command) {
        self.pump.handle_command(self.now, command);
        self.turn();
    }

    /// What the engine tells of a link.
    pub fn link(&mut self, token: Token, event: LinkEvent<'_>) {
        self.pump.handle_link(self.now, token, event, &mut self.out);
        self.turn();
    }

    /// Lets the clock run for `span`.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next = self.pump.poll_timeout().into_iter().chain(self.coming.iter().map(|(at, ..)| *at)).min();
            match next {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
            self.turn();
        }
        self.now = end;
        self.turn();
    }

    /// Until nothing is left to do, or for ten minutes.
    pub fn run_to_the_end(&mut self) {
        self.run(Duration::from_secs(600));
    }

    fn turn(&mut self) {
        loop {
            self.pump.handle_timeout(self.now, &mut self.out);
            while self.pump.poll_transmit(self.now, &mut self.out) {
                self.collect();
            }
            self.collect();
            let mut is_quiet = true;
            while let Some(event) = self.pump.poll_event() {
                is_quiet = false;
                self.handle_event(event);
            }
            let now = self.now;
            let (due, later): (Vec<_>, Vec<_>) = self.coming.drain(..).partition(|(at, ..)| *at <= now);
            self.coming = later.into();
            for (_, session, number) in due {
                is_quiet = false;
                let chunk = self.sources[&session].chunk(number);
                self.pump.handle_command(self.now, Command::Chunk { session, chunk });
            }
            if is_quiet {
                return;
            }
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Need { session, chunk } => {
                self.asked.push((session, chunk));
                self.coming.push_back((self.now + (self.delay)(session, chunk), session, chunk));
            }
            Event::SessionEnded { session, reason, stats } => self.ended.push((session, reason, *stats)),
            Event::PicturesShown { session, .. } => self.shown.push(session),
            Event::PicturesWanted { session, .. } => self.wanted.push(session),
            Event::Started { token, start } => self.started.push((token, start)),
            Event::Heard { connection, bytes } => self.heard.push((connection, bytes.into())),
            Event::HungUp { connection } => self.hung_up.push(connection),
            Event::Stats { stats, .. } => self.stats = stats.map(|stats| *stats),
        }
    }

    fn collect(&mut self) {
        let ns = (self.now - self.start).as_nanos() as u64;
        for (path, bytes) in self.out.datagrams() {
            let sent = Sent { ns, bytes: bytes.to_vec() };
            self.sent.entry(path.remote.port().into()).or_default().push(sent);
        }
        for piece in self.out.pieces() {
            let PieceSource::Copied(bytes) = self.out.piece(piece) else { panic!("packets are copied") };
            self.pieces.push((piece.link, bytes.to_vec()));
        }
        self.requests.extend(self.out.take_requests());
        self.out.clear();
    }

    pub fn stats(&mut self, number: u64) -> SessionStats {
        self.command(Command::Inspect { session: SessionId(number), token: 1 });
        self.stats.take().expect("it is open")
    }

    pub fn counters(&self) -> Counters {
        self.pump.counters().clone()
    }

    /// All packets that a session got, without RTP headers.
    pub fn packets(&self, number: u64) -> Vec<[u8; PACKET_LEN]> {
        let datagrams = self.sent.get(&number).map_or(&[][..], |sent| sent);
        datagrams.iter().flat_map(|sent| wire::ts::datagram_packets(&sent.bytes).unwrap().1).copied().collect()
    }
}
