//! What the fuzz target of live inputs does with its bytes: takes them for datagrams with their times of arrival, and lets
//! a session play what comes of them. Shared by the fuzz target and by `crates/pump/tests`, which replays the corpus.
//!
//! The first two bytes say how the session is sent, and the delay. Each datagram is a byte of `flags`, one of the time
//! since the one before, with `MOVED` one of its place in the row, and as many `HEAD`s of packets as the flags say.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::fec::Fec;
use pump::live::{Live, Settings};
use pump::pump::Pump;
use pump::spec::{self, Command, Event, InputId, LiveSpec, Pacing, SessionId, SessionSpec, Transport, WhenStarved};
use wire::ts::{DATAGRAM_PACKETS, PACKET_LEN, write_rtp_header};
use wire::{Bitrate, LinkId, Outbox, Path, Product as _, Seq};

/// Bytes that are given of a packet; the others are zero. Tables and references lie there.
pub const HEAD: usize = 40;

/// Flags: three bits of sender, one each of what is said here, and three of the number of packets.
pub const RTP: u8 = 1 << 2;
/// The time is in steps of 20 ms instead of 0.2 ms.
pub const LONG: u8 = 1 << 3;
pub const MOVED: u8 = 1 << 4;

/// What all chunks of an input may take in memory: its own limit, and one chunk.
const KEPT_MAX: usize = (64 << 20) + 1_000_000;

/// Times that something happens between two datagrams, at most; then it is over.
const STEPS: usize = 5_000;

const INPUT: InputId = InputId(1);
const SESSION: SessionId = SessionId(1);

pub fn live(data: &[u8]) {
    let Some((&[how, delay], mut rest)) = data.split_first_chunk() else { return };
    let start = Instant::now();
    let delay = Duration::from_millis(50 + 20 * u64::from(delay));
    let (live, pump) =
        (Live::new(start, Settings { delay, source: None }), Pump::new(start, spec::Settings::default()));
    let (now, out) = (start, Outbox::new(20_000));
    let mut world = World { how, now, live, pump, out, next: None, is_open: false };
    let mut seq = 0;
    while let Some(datagram) = Datagram::take(&mut rest, &mut seq) {
        if !world.run(world.now + datagram.after) {
            return;
        }
        world.live.handle_datagram(world.now, datagram.from, &datagram.bytes);
        world.turn();
    }
    // What waited goes.
    world.run(world.now + Duration::from_secs(2));
}

struct Datagram {
    after: Duration,
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl Datagram {
    fn take(rest: &mut &[u8], seq: &mut u16) -> Option<Datagram> {
        let [flags, time] = *rest.split_off(..2)?.first_chunk()?;
        let unit = Duration::from_micros(if flags & LONG == 0 { 200 } else { 20_000 });
        *seq = seq.wrapping_add(1);
        let moved = if flags & MOVED == 0 { 0 } else { *rest.split_off_first()? as i8 };
        let mut bytes = vec![0; if flags & RTP == 0 { 0 } else { 12 }];
        write_rtp_header(&mut bytes, Seq(seq.wrapping_add_signed(moved.into())), 0, 7, false);
        for _ in 0..flags >> 5 {
            let head = rest.split_off(..HEAD.min(rest.len()))?;
            bytes.extend(head);
            // The last one may be cut off.
            bytes.resize(bytes.len() + if head.len() == HEAD { PACKET_LEN - HEAD } else { 0 }, 0);
        }
        let from = ([192, 0, 2, 1], u16::from(flags & 3)).into();
        Some(Datagram { after: unit * u32::from(time), from, bytes })
    }
}

struct World {
    how: u8,
    now: Instant,
    live: Live,
    pump: Pump,
    out: Outbox,
    /// Number and position of the chunk that comes next, and when it is due at the earliest.
    next: Option<(u32, u64, Instant)>,
    is_open: bool,
}

impl World {
    /// Lets the clock run; false when too much happened.
    fn run(&mut self, until: Instant) -> bool {
        for _ in 0..STEPS {
            let next = self.pump.poll_timeout().into_iter().chain(self.live.poll_timeout()).min();
            let Some(at) = next.filter(|at| *at <= until) else {
                self.now = until;
                self.turn();
                return true;
            };
            self.now = self.now.max(at);
            self.turn();
        }
        false
    }

    fn turn(&mut self) {
        self.live.handle_timeout(self.now);
        assert!(self.live.poll_timeout().is_none_or(|at| at > self.now), "what was due is done");
        while let Some((chunk, oldest)) = self.live.poll_chunk() {
            let end = chunk.first + u64::from(chunk.packet_count());
            let dues = &chunk.dues;
            assert!(dues.windows(2).all(|pair| pair[0].position < pair[1].position && pair[0].at <= pair[1].at));
            let (first, last) = (dues.first().expect("times"), dues.last().expect("times"));
            assert_eq!((first.position, last.position), (chunk.first, end));
            if let Some((number, position, at)) = self.next {
                assert_eq!((chunk.number, chunk.first), (number, position));
                assert!(first.at >= at, "times never run backwards");
            }
            self.next = Some((chunk.number + 1, end, last.at));
            self.pump
                .handle_command(self.now, Command::LiveChunk { input: INPUT, chunk, oldest, ticket: Arc::default() });
        }
        assert!(self.live.kept().map(|chunk| chunk.bytes().len()).sum::<usize>() <= KEPT_MAX);
        if !self.is_open {
            self.open();
        }
        self.send();
        while let Some(event) = self.pump.poll_event() {
            if let (Event::Need { .. }, Some(to)) = (event, self.live.start()) {
                self.pump.handle_command(self.now, Command::Jump { session: SESSION, to });
            }
        }
        let _ = self.live.counters(self.now);
    }

    fn open(&mut self) {
        let (Some(title), Some(start)) = (self.live.title(), self.live.start()) else { return };
        let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], 1).into(), local: None };
        let mut spec = SessionSpec::new(SESSION, Arc::clone(title), path);
        spec.live = Some(LiveSpec { input: INPUT, start });
        if self.how & 1 != 0 {
            spec.transport = Transport::Rtp { ssrc: 1, first_seq: 2, first_timestamp: 3 };
            spec.play.fec = Fec::new(4, 4, true);
        }
        if self.how & 2 != 0 {
            spec.play.when_starved = WhenStarved::Nulls;
        }
        if self.how & 4 != 0 {
            spec.play.pacing = Pacing::Padded(Bitrate::from_kbps(64 << (self.how >> 4)));
        }
        spec.play.is_monitored = self.how & 8 != 0;
        self.pump.handle_command(self.now, Command::Open(Box::new(spec)));
        self.is_open = true;
    }

    fn send(&mut self) {
        self.pump.handle_timeout(self.now, &mut self.out);
        loop {
            let more = self.pump.poll_transmit(self.now, &mut self.out);
            for (path, datagram) in self.out.datagrams() {
                let packets = wire::ts::datagram_packets(datagram);
                assert!(path.remote.port() > 1 || packets.is_ok_and(|(_, packets)| packets.len() == DATAGRAM_PACKETS));
            }
            self.out.clear();
            if !more {
                return;
            }
        }
    }
}
