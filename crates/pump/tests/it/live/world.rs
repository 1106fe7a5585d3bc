//! A sender, the network, an input, and a worker with sessions that play it, by a clock that is set.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::live::{Live, Settings};
use pump::pump::Pump;
use pump::sample::Sample;
use pump::spec::{self, Command, Event, InputId, LiveSpec, SessionId, SessionSpec, SessionStats};
use wire::ts::{DATAGRAM_LEN, PACKET_LEN, write_rtp_header};
use wire::{Bitrate, LinkId, Outbox, Path, Product as _, Seq};

pub const INPUT: InputId = InputId(4);
pub const SOURCE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 5_000);
pub const MS: i64 = 1_000_000;

/// A datagram on its way: when it was sent and arrives, in nanoseconds from the start.
#[derive(Clone, Debug)]
pub struct Flight {
    pub sent_ns: i64,
    pub arrives_ns: i64,
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

/// A constant rate from `begin_ns` on, by a clock that is slower by `ppm`.
pub fn flights(
    bytes: &[u8],
    rate: Bitrate,
    begin_ns: i64,
    ppm: f64,
    mut network_ns: impl FnMut(usize) -> i64,
) -> Vec<Flight> {
    let of = |(index, part): (usize, &[u8])| {
        let passed_ns = (index * DATAGRAM_LEN * 8) as f64 * 1e9 / rate.bps() as f64 * (1.0 + ppm / 1e6);
        let sent_ns = begin_ns + passed_ns as i64;
        Flight { sent_ns, arrives_ns: sent_ns + network_ns(index), from: SOURCE, bytes: part.to_vec() }
    };
    bytes.chunks(DATAGRAM_LEN).enumerate().map(of).collect()
}

pub fn with_rtp(mut flights: Vec<Flight>, first: u16) -> Vec<Flight> {
    for (index, flight) in flights.iter_mut().enumerate() {
        let mut datagram = vec![0; 12];
        write_rtp_header(&mut datagram, Seq(first.wrapping_add(index as u16)), index as u32 * 210, 7, false).unwrap();
        datagram.append(&mut flight.bytes);
        flight.bytes = datagram;
    }
    flights
}

/// Even noise up to `span_ns`.
pub fn noise(span_ns: i64) -> impl FnMut(usize) -> i64 {
    let mut random: u64 = 5;
    move |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as i64 % span_ns
    }
}

/// In the order of sending, as a network does it.
pub fn in_order(mut flights: Vec<Flight>) -> Vec<Flight> {
    let mut last = 0;
    for flight in &mut flights {
        flight.arrives_ns = flight.arrives_ns.max(last);
        last = flight.arrives_ns;
    }
    flights
}

pub struct World {
    pub start: Instant,
    pub now: Instant,
    pub live: Live,
    pub pump: Pump,
    pub out: Outbox,
    /// Time and bytes of each datagram, by session.
    pub sent: HashMap<u64, Vec<(i64, Vec<u8>)>>,
    pub needs: Vec<u32>,
    /// Chunks with these numbers never come to the worker.
    pub lost: std::ops::Range<u32>,
    pub stats: Option<SessionStats>,
}

impl World {
    pub fn new(settings: Settings) -> World {
        let start = Instant::now();
        World {
            start,
            now: start,
            live: Live::new(start, settings),
            pump: Pump::new(start, spec::Settings::default()),
            out: Outbox::new(1 << 20),
            sent: HashMap::new(),
            needs: Vec::new(),
            lost: 0..0,
            stats: None,
        }
    }

    pub fn open(&mut self, number: u64) {
        self.open_with(number, |_| {});
    }

    pub fn open_with(&mut self, number: u64, change: impl FnOnce(&mut SessionSpec)) {
        let title = self.live.title().expect("it is known what comes").clone();
        let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], number as u16).into(), local: None };
        let live = LiveSpec { input: INPUT, start: self.live.start().expect("there are chunks") };
        let mut spec = SessionSpec { live: Some(live), ..SessionSpec::new(SessionId(number), title, path) };
        spec.play.burst = Some(1);
        change(&mut spec);
        self.command(Command::Open(Box::new(spec)));
    }

    pub fn command(&mut self, command: Command) {
        self.pump.handle_command(self.now, command);
        self.turn();
    }

    pub fn stats(&mut self, number: u64) -> SessionStats {
        self.command(Command::Inspect { session: SessionId(number), token: 1 });
        self.stats.take().expect("it is open")
    }

    pub fn ns(&self) -> i64 {
        (self.now - self.start).as_nanos() as i64
    }

    /// Everything arrives that does so until `until_ns`.
    pub fn receive(&mut self, flights: &[Flight], until_ns: i64) {
        let from_ns = self.ns();
        let mut coming: Vec<&Flight> = flights.iter().collect();
        coming.retain(|flight| flight.arrives_ns > from_ns && flight.arrives_ns <= until_ns);
        coming.sort_by_key(|flight| flight.arrives_ns);
        for flight in coming {
            self.run(flight.arrives_ns);
            self.live.handle_datagram(self.now, flight.from, &flight.bytes);
            self.turn();
        }
        self.run(until_ns);
    }

    pub fn run(&mut self, until_ns: i64) {
        let until = self.start + Duration::from_nanos(until_ns as u64);
        while let Some(at) = self.pump.poll_timeout().into_iter().chain(self.live.poll_timeout()).min()
            && at <= until
        {
            self.now = self.now.max(at);
            self.turn();
        }
        self.now = until;
        self.turn();
    }

    pub fn turn(&mut self) {
        self.live.handle_timeout(self.now);
        while let Some((chunk, oldest)) = self.live.poll_chunk() {
            if !self.lost.contains(&chunk.number) {
                let command = Command::LiveChunk { input: INPUT, chunk, oldest, ticket: Arc::default() };
                self.pump.handle_command(self.now, command);
            }
        }
        self.pump.handle_timeout(self.now, &mut self.out);
        loop {
            let more = self.pump.poll_transmit(self.now, &mut self.out);
            let ns = self.ns();
            for (path, bytes) in self.out.datagrams() {
                self.sent.entry(path.remote.port().into()).or_default().push((ns, bytes.to_vec()));
            }
            self.out.clear();
            if !more {
                break;
            }
        }
        while let Some(event) = self.pump.poll_event() {
            match event {
                Event::Need { chunk, .. } => self.needs.push(chunk),
                Event::Stats { stats, .. } => self.stats = stats.map(|stats| *stats),
                _ => {}
            }
        }
    }

    pub fn bytes(&self, number: u64) -> Vec<u8> {
        self.sent
            .get(&number)
            .map(|sent| sent.iter().flat_map(|(_, bytes)| bytes.clone()).collect())
            .unwrap_or_default()
    }

    /// For each datagram that a session got: how long ago its first packet was sent to the input. Only of a source that is
    /// sent whole, and no datagram is when it is.
    pub fn delays(&self, number: u64, source: &[u8], flights: &[Flight]) -> Vec<i64> {
        let sent = &self.sent[&number];
        let at = find(source, &sent[0].1) / PACKET_LEN;
        let times = sent.iter().enumerate().map(|(index, (ns, _))| {
            let (before, within) = ((at + 7 * index) / 7, (at + 7 * index) % 7);
            let next_ns = flights.get(before + 1).map_or(0, |next| next.sent_ns - flights[before].sent_ns);
            ns - flights[before].sent_ns - next_ns * within as i64 / 7
        });
        times.collect()
    }
}

pub fn find(source: &[u8], part: &[u8]) -> usize {
    let mut places = source.windows(part.len()).step_by(PACKET_LEN);
    places.position(|place| place == part).expect("it is of the source") * PACKET_LEN
}

pub fn without_nulls(bytes: &[u8]) -> Vec<u8> {
    let is_null = |packet: &&[u8; PACKET_LEN]| wire::ts::Pid::from_bytes(packet[1], packet[2]) == wire::ts::Pid::NULL;
    bytes.as_chunks().0.iter().filter(|packet| !is_null(packet)).flatten().copied().collect()
}

pub fn sample(rate: Bitrate, seconds: u32, first_pcr: u64) -> Vec<u8> {
    Sample { rate, pictures: 25 * seconds, first_pcr, ..Sample::default() }.make()
}
