//! A live input: a transport stream that comes by UDP or RTP, made into chunks that sessions play as it goes.
//!
//! In: datagrams, who sent them, and when they arrived. Out: chunks with rising numbers, in which the time is written at
//! which each packet is due; where a newcomer begins; counters. What is sent by these times is as even as the sender
//! meant it, `delay` behind its arrival, and goes on with the sender's clock (`recovery`).
//!
//! A datagram's way: `receiver` puts RTP in order → packets; those with a reference of the title's clock get a time from
//! `recovery` → `cutter` makes chunks from one reference to a later one. `search` finds out beside that what the stream
//! is, at the start, when its tables change, when its clock stops and when its source is another.
//!
//! Bytes are passed on as they came, with one exception: a reference that does not continue those before, and does not
//! say so, is made to say it (discontinuity_indicator).
//! Cost: two copies per packet, once for all sessions. It holds no socket and reads no clock.
//! Source: RFC 2250 (RTP), ISO/IEC 13818-1 §2.4.3.5 (references, discontinuity).

mod counters;
mod cutter;
mod receiver;
mod recovery;
mod search;
mod sorter;
mod tuned;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::Bitrate;
use wire::ts::{PACKET_LEN, Packet, Packets, Pcr, Pid, Spacing, set_discontinuity};

pub use self::counters::{Counters, State};
pub use self::receiver::{Datagram, Heard, Receiver};
use crate::chunk::{Chunk, Due};
use crate::monitor::{DelayFactor, Watch};
use crate::title::Title;
use cutter::{Cutter, Piece};
use recovery::Recovery;
use search::{Found, Search};
use tuned::Tuned;

/// Another source is listened to once this one was silent for so long.
pub const SOURCE_TIMEOUT: Duration = Duration::from_secs(1);

/// Chunks are kept for so long, for newcomers and for sessions that are behind, and up to so many bytes.
const KEEP: Duration = Duration::from_secs(10);
const KEEP_BYTES: usize = 64 << 20;

/// A newcomer begins with a picture that stands alone, if that is no older. Else it begins with the newest table.
const START_AGE_MAX: Duration = Duration::from_secs(5);

/// References that come further apart make one look whether the clock has moved to another PID.
const CLOCK_TIMEOUT_NS: i64 = 1_000_000_000;

/// After so long a silence a sender is taken to have paused.
const SILENCE_NS: i64 = 500_000_000;

/// What an operator may choose of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From a packet's arrival until it is due. It has to last from one reference to the next (100 ms at most, by the
    /// standard), and for what arrives late.
    pub delay: Duration,
    /// Nobody else is listened to.
    pub source: Option<IpAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { delay: Duration::from_millis(250), source: None }
    }
}

/// Where a newcomer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The chunk's number.
    pub chunk: u32,
    /// Packets before it in that chunk.
    pub packet: u32,
}

/// One input.
#[derive(Debug)]
pub struct Live {
    zero: Instant,
    settings: Settings,
    receiver: Receiver,
    search: Option<Search>,
    tuned: Option<Tuned>,
    recovery: Option<Recovery>,
    cutter: Option<Cutter>,
    delay: DelayFactor,
    /// Looks at packets in their order, as they are handed out.
    watch: Watch,
    /// When the last reference came.
    clock_ns: i64,
    /// What comes is too early, and left out.
    is_ahead: bool,
    number: u32,
    /// When the first packet was due.
    begun: Option<Instant>,
    ring: VecDeque<Arc<Chunk>>,
    ring_bytes: usize,
    /// Chunks at the end of the ring that were not taken yet.
    fresh: usize,
    counters: Counters,
}

impl Live {
    /// An input at which nothing has come.
    pub fn new(now: Instant, settings: Settings) -> Self {
        let patience_ns = ns(settings.delay) / 4;
        Live {
            zero: now,
            settings,
            receiver: Receiver::new(settings.source, patience_ns),
            search: Some(Search::default()),
            tuned: None,
            recovery: None,
            cutter: None,
            delay: DelayFactor::default(),
            watch: Watch::default(),
            clock_ns: 0,
            is_ahead: false,
            number: 0,
            begun: None,
            ring: VecDeque::new(),
            ring_bytes: 0,
            fresh: 0,
            counters: Counters::default(),
        }
    }

    /// Takes a datagram.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let now_ns = self.ns(now);
        let bytes = datagram.len() as u64;
        let datagram = Datagram::parse(datagram);
        match self.receiver.hear(now_ns, from, &datagram) {
            Heard::Foreign => {
                self.counters.foreign += 1;
                return;
            }
            Heard::Known => {}
            Heard::Another => {
                self.counters.sources += 1;
                self.receive(|receiver, out| receiver.restart(out));
                self.search = Some(Search::default());
            }
        }
        self.counters.datagrams += 1;
        self.counters.bytes += bytes;
        if let Some(rate) = self.title().map(|title| title.rate()).filter(|rate| *rate > Bitrate::ZERO) {
            self.delay.add(now_ns.max(0) as u64, datagram.payload().len() as u64, rate);
        }
        self.receive(|receiver, out| receiver.push(now_ns, &datagram, out));
    }

    /// Lets go of what waited long enough.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now_ns = self.ns(now);
        self.receive(|receiver, out| receiver.handle_timeout(now_ns, out));
        if self.cutter_timeout().is_some_and(|at_ns| at_ns <= now_ns)
            && let Some(piece) = self.cutter.as_mut().and_then(Cutter::flush)
        {
            self.counters.flushes += 1;
            self.publish(piece);
        }
    }

    /// When `handle_timeout` next has work.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at_ns = self.receiver.poll_timeout().into_iter().chain(self.cutter_timeout()).min()?;
        Some(self.instant(at_ns))
    }

    /// What waits for a reference goes when three quarters of the delay are over: in time for the slowest session.
    fn cutter_timeout(&self) -> Option<i64> {
        let since_ns = self.cutter.as_ref()?.waits_since_ns()?;
        Some(since_ns.saturating_add(ns(self.settings.delay) / 4 * 3))
    }

    /// The next chunk, and the number of the oldest that is kept.
    pub fn poll_chunk(&mut self) -> Option<(Arc<Chunk>, u32)> {
        let index = self.ring.len().checked_sub(self.fresh)?;
        let chunk = self.ring.get(index)?.clone();
        self.fresh -= 1;
        Some((chunk, self.oldest()))
    }

    /// Chunks that are kept, and were taken.
    pub fn kept(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.ring.iter().take(self.ring.len() - self.fresh)
    }

    /// The number of the oldest chunk that is kept.
    pub fn oldest(&self) -> u32 {
        self.ring.front().map_or(self.number, |chunk| chunk.number)
    }

    /// What comes, once that is known.
    pub fn title(&self) -> Option<&Arc<Title>> {
        self.tuned.as_ref().map(|tuned| &tuned.title)
    }

    /// Where a newcomer begins: at the last picture that stands alone, with the tables before it; else at the newest
    /// tables; else at the newest packet. `None` before the first chunk, and while the first picture may still come.
    pub fn start(&self) -> Option<Start> {
        let newest = self.kept().last()?;
        let end = newest.dues.last()?;
        let place = |position: u64| {
            let index = self.ring.partition_point(|chunk| chunk.first <= position).checked_sub(1)?;
            let chunk = self.ring.get(index).filter(|chunk| chunk.number <= newest.number)?;
            let packet = u32::try_from(position - chunk.first).ok().filter(|packet| *packet < chunk.packet_count())?;
            let age = end.at.saturating_duration_since(chunk.dues.first()?.at);
            (age <= START_AGE_MAX).then_some(Start { chunk: chunk.number, packet })
        };
        let tuned = self.tuned.as_ref()?;
        let begun = self.begun.is_none_or(|begun| end.at.saturating_duration_since(begun) > START_AGE_MAX);
        if !begun && tuned.title.video.is_some() && tuned.pictures.is_empty() {
            return None;
        }
        let last_of = |places: &VecDeque<u64>| place(*places.iter().rev().find(|place| **place < end.position)?);
        last_of(&tuned.pictures).or_else(|| last_of(&tuned.tables)).or(Some(Start { chunk: newest.number, packet: 0 }))
    }

    /// From whom it is.
    pub fn source(&self) -> Option<SocketAddr> {
        self.receiver.sender()
    }

    /// What was counted, and what holds now.
    pub fn counters(&self, now: Instant) -> Counters {
        let (sorted, now_ns) = (self.receiver.counts(), self.ns(now));
        let is_heard = self.receiver.is_heard(now_ns);
        let state = match (is_heard, &self.tuned) {
            (false, _) => State::Silent,
            (true, None) => State::Searching,
            (true, Some(_)) => State::Receiving,
        };
        let jitter_ns = self.recovery.as_ref().map_or(0, |recovery| recovery.jitter_ns);
        Counters {
            state,
            rate_bps: self.title().map_or(0, |title| title.rate().bps()),
            rtp_lost: sorted.lost,
            rtp_reordered: sorted.reordered,
            rtp_late: sorted.late,
            continuity_errors: self.watch.counts.continuity,
            resyncs: self.counters.resyncs + self.recovery.as_ref().map_or(0, |recovery| recovery.steps),
            drift_ppm: self.recovery.as_ref().map_or(0.0, Recovery::drift_ppm),
            jitter: Duration::from_nanos(jitter_ns.max(0) as u64),
            delay_factor_max: Duration::from_nanos(self.delay.whole_seconds().map_or(0, |(max_ns, _)| max_ns)),
            ..self.counters.clone()
        }
    }

    /// Does something with the receiver, and takes what comes out of it.
    fn receive(&mut self, act: impl FnOnce(&mut Receiver, &mut dyn FnMut(i64, &[u8]))) {
        // It stands aside meanwhile.
        let mut receiver = std::mem::take(&mut self.receiver);
        act(&mut receiver, &mut |arrived_ns, payload| self.take_payload(arrived_ns, payload));
        self.receiver = receiver;
    }

    fn take_payload(&mut self, arrived_ns: i64, payload: &[u8]) {
        let mut packets = Packets::new(payload, Spacing::Ts188);
        let mut count = 0;
        for (_, bytes) in packets.by_ref() {
            count += 1;
            match Packet::parse(bytes) {
                Ok(packet) => self.take_packet(arrived_ns, &packet),
                Err(_) => self.counters.malformed += 1,
            }
        }
        self.counters.malformed += packets.sync_losses() as u64;
        self.counters.malformed += u64::from(count == 0 && packets.sync_losses() == 0);
    }

    fn take_packet(&mut self, arrived_ns: i64, packet: &Packet<'_>) {
        let step_ns = ns(self.settings.delay) / 2;
        if let Some(search) = &mut self.search
            && let Some(found) = search.push(arrived_ns, packet, step_ns)
        {
            self.search = None;
            return self.tune(arrived_ns, found);
        }
        let Some(tuned) = &mut self.tuned else { return };
        if packet.pid() != Pid::NULL {
            self.counters.lost += self.watch.packet(arrived_ns.max(0) as u64, packet);
        }
        let is_clock = Some(packet.pid()) == tuned.title.pcr_pid;
        let mut bytes = *packet.bytes();
        if let Some(pcr) = packet.pcr().filter(|_| is_clock) {
            if self.take_reference(arrived_ns, pcr, packet.discontinuity()) {
                set_discontinuity(&mut bytes, true);
            }
        } else if arrived_ns.saturating_sub(self.clock_ns) > CLOCK_TIMEOUT_NS {
            self.search.get_or_insert_default();
        }
        if self.is_ahead {
            self.counters.overruns += 1;
            return;
        }
        let (Some(cutter), Some(tuned)) = (&mut self.cutter, &mut self.tuned) else { return };
        if tuned.push(cutter.position(), packet) {
            self.search.get_or_insert_default();
        }
        if let Some(piece) = cutter.push(arrived_ns, &bytes) {
            self.publish(piece);
        }
    }

    /// Goes on with what was found: with the packets that told, where these are the first, else with the last of them.
    fn tune(&mut self, arrived_ns: i64, found: search::Found) {
        let Found { title, recovery, head, arrivals } = found;
        let title = Arc::new(title);
        let first = if self.cutter.is_none() { 0 } else { arrivals.len().saturating_sub(1) };
        let slope = title.slope.map_or((1, 1_000_000), |slope| (slope.packets, slope.ns(slope.packets)));
        self.recovery.get_or_insert(recovery);
        self.cutter.get_or_insert_with(|| Cutter::new(slope));
        self.clock_ns = arrived_ns;
        self.tuned = Some(Tuned::new(title, self.tuned.take()));
        for (packet, arrived_ns) in head.as_chunks::<PACKET_LEN>().0.iter().zip(arrivals).skip(first) {
            if let Ok(packet) = Packet::parse(packet) {
                self.take_packet(arrived_ns, &packet);
            }
        }
    }

    /// The packet that comes next has a reference of the title's clock. Returns whether that jumps.
    fn take_reference(&mut self, arrived_ns: i64, pcr: Pcr, is_flagged: bool) -> bool {
        let (delay_ns, step_ns) = (ns(self.settings.delay), ns(self.settings.delay) / 2);
        let (Some(recovery), Some(cutter)) = (&mut self.recovery, &mut self.cutter) else { return false };
        let silence_ns = arrived_ns.saturating_sub(std::mem::replace(&mut self.clock_ns, arrived_ns));
        let (by_clock_ns, expected_ns) = (recovery.time_of(pcr), cutter.expected_ns().map(|due_ns| due_ns - delay_ns));
        let off_ns = arrived_ns.saturating_sub(by_clock_ns);
        let is_near = |at_ns: i64, other_ns: i64| at_ns.saturating_sub(other_ns).abs() <= step_ns;
        if self.is_ahead {
            if off_ns < -recovery::JUMP_NS / 2 && off_ns > -AHEAD_MAX_NS {
                return false;
            }
            self.is_ahead = false;
        }
        let continues = recovery.continues(pcr, arrived_ns) && !(is_flagged && off_ns.abs() > step_ns);
        let time_ns = if continues {
            recovery.note(pcr, arrived_ns)
        } else {
            let is_silent = silence_ns > SILENCE_NS;
            if !is_silent && off_ns < 0 && expected_ns.is_some_and(|expected_ns| is_near(by_clock_ns, expected_ns)) {
                // Neither clock nor rate jumps, so it is the sender that is too fast.
                self.is_ahead = true;
                return false;
            }
            let goes_on = expected_ns.filter(|expected_ns| !is_silent && is_near(arrived_ns, *expected_ns));
            let time_ns = goes_on.unwrap_or(arrived_ns);
            recovery.restart(pcr, time_ns);
            self.counters.resyncs += 1;
            time_ns
        };
        if let Some(piece) = cutter.mark(time_ns.saturating_add(delay_ns)) {
            self.publish(piece);
        }
        !continues
    }

    fn publish(&mut self, piece: Piece) {
        let Some(tuned) = &self.tuned else { return };
        let Piece { first, bytes, dues } = piece;
        let dues = dues.into_iter().map(|(position, at_ns)| Due { position, at: self.instant(at_ns) }).collect();
        let chunk = Chunk::live(&tuned.title, self.number, first, bytes, dues);
        self.begun = self.begun.or(chunk.dues.first().map(|due| due.at));
        self.number = self.number.wrapping_add(1);
        self.ring_bytes += chunk.bytes().len();
        self.ring.push_back(Arc::new(chunk));
        self.fresh += 1;
        self.forget();
    }

    /// Lets go of what is too old, or too much.
    fn forget(&mut self) {
        let end = self.ring.back().and_then(|chunk| chunk.dues.last()).map(|due| due.at);
        while self.ring.len() > 1
            && let (Some(end), Some(oldest)) = (end, self.ring.front())
        {
            let is_old = oldest.dues.last().is_some_and(|due| end.saturating_duration_since(due.at) > KEEP);
            if !is_old && self.ring_bytes <= KEEP_BYTES {
                break;
            }
            self.ring_bytes -= oldest.bytes().len();
            self.ring.pop_front();
        }
        self.fresh = self.fresh.min(self.ring.len());
        if let (Some(tuned), Some(oldest)) = (&mut self.tuned, self.ring.front()) {
            tuned.forget(oldest.first);
        }
    }

    fn ns(&self, at: Instant) -> i64 {
        ns(at.saturating_duration_since(self.zero))
    }

    fn instant(&self, at_ns: i64) -> Instant {
        self.zero + Duration::from_nanos(at_ns.max(0) as u64)
    }
}

/// References that are further ahead than this are of another clock.
const AHEAD_MAX_NS: i64 = 60_000_000_000;

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
