//! Measures a stream as its receiver gets it.
//!
//! In: datagrams, with or without RTP, and when each arrived, in nanoseconds of any one clock. Out: a `Report`.
//! Cost: one look-up per packet; some 10 KiB per stream.
//! Source: RFC 4445 (delay factor, media loss rate), ETSI TR 101 290 §5.2.1 and §5.2.2 (the first two priorities),
//! ISO/IEC 13818-1 §2.4.2.2 (clock).

mod delay;
mod priorities;

pub use priorities::Priorities;

use wire::Bitrate;
use wire::rtp::RtpHeader;
use wire::ts::{PACKET_LEN, Packet, Pcr, Pid, datagram_packets};
use wire::{Seq, ts};

pub(crate) use delay::DelayFactor;
pub(crate) use priorities::Watch;

/// What was measured so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Datagrams that arrived.
    pub datagrams: u64,
    /// Packets in these.
    pub packets: u64,
    /// Null packets among these.
    pub nulls: u64,
    /// Of whole packets.
    pub bytes: u64,
    /// Datagrams that carry something else than whole packets.
    pub malformed: u64,
    /// RTP packets that did not come, and that came late or twice.
    pub rtp_lost: u64,
    /// RTP packets that came late or twice.
    pub rtp_reordered: u64,
    /// Packets that are missing by the continuity counters, which see no more than 14 in a row (RFC 4445 §3.2).
    pub lost: u64,
    /// The same per second, in the worst second.
    pub loss_rate_max: u64,
    /// Nanoseconds, over whole seconds: the worst, and the mean. Only with a constant rate (RFC 4445 §3.1).
    pub delay_factor_max_ns: Option<u64>,
    /// And the mean.
    pub delay_factor_mean_ns: Option<u64>,
    /// Clock references.
    pub references: u64,
    /// How far references and arrivals went apart within a second, peak to peak, at the worst.
    pub pcr_jitter_max_ns: u64,
    /// How far a reference is from its place in the stream at the worst, arrival aside. Only with a constant rate.
    pub pcr_accuracy_max_ns: Option<u64>,
    /// Time from datagram to datagram, at the longest.
    pub interval_max_ns: u64,
    /// Errors of TR 101 290.
    pub priorities: Priorities,
}

/// Measures one stream.
#[derive(Debug, Default)]
pub struct Monitor {
    rate: Option<Bitrate>,
    pub(crate) report: Report,
    delay: DelayFactor,
    pub(crate) watch: Watch,
    last_ns: Option<u64>,
    next_seq: Option<Seq>,
    clock: Option<Reference>,
    /// From which places in the stream are counted: anew from each that is off, so that what happened once counts once.
    place: Option<Reference>,
    /// Bounds of arrival less reference in the second that runs, and when it began.
    jitter: Option<(i64, i64)>,
    second_ns: u64,
    lost_before: u64,
}

/// The reference from which the others are counted.
#[derive(Clone, Copy, Debug)]
struct Reference {
    pid: Pid,
    pcr: Pcr,
    at_ns: u64,
    /// Packets before it.
    position: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

/// References are counted anew from one that is this far from where it should be: a splice, not jitter.
const JUMP_NS: i64 = 1_000_000_000;

impl Monitor {
    /// `rate` is the constant rate of the stream, nulls included, where it has one.
    pub fn new(rate: Option<Bitrate>) -> Self {
        Monitor { rate: rate.filter(|rate| *rate > Bitrate::ZERO), ..Monitor::default() }
    }

    /// Takes a datagram.
    pub fn handle_datagram(&mut self, at_ns: u64, datagram: &[u8]) {
        self.note_arrival(at_ns);
        let Ok((header, packets)) = datagram_packets(datagram) else {
            self.report.malformed += 1;
            return;
        };
        self.report.datagrams += 1;
        self.report.bytes += packets.as_flattened().len() as u64;
        if let Some(header) = header {
            self.note_rtp(&header);
        }
        if let Some(rate) = self.rate {
            self.delay.add(at_ns, packets.as_flattened().len() as u64, rate);
        }
        for packet in packets {
            self.note_packet(at_ns, packet);
            self.report.packets += 1;
        }
    }

    fn note_arrival(&mut self, at_ns: u64) {
        let Some(last_ns) = self.last_ns.replace(at_ns) else {
            self.second_ns = at_ns;
            return;
        };
        self.report.interval_max_ns = self.report.interval_max_ns.max(at_ns.saturating_sub(last_ns));
        if at_ns.saturating_sub(self.second_ns) >= SECOND_NS {
            self.end_second();
            self.second_ns += (at_ns - self.second_ns) / SECOND_NS * SECOND_NS;
        }
    }

    fn end_second(&mut self) {
        let report = &mut self.report;
        report.loss_rate_max = report.loss_rate_max.max(report.lost - self.lost_before);
        self.lost_before = report.lost;
        if let Some((low, high)) = self.jitter.take() {
            report.pcr_jitter_max_ns = report.pcr_jitter_max_ns.max((high - low) as u64);
        }
    }

    fn note_rtp(&mut self, header: &RtpHeader) {
        let ahead = self.next_seq.map_or(0, |next| next.distance_to(header.seq));
        if ahead < 0 {
            // It was counted as lost.
            self.report.rtp_reordered += 1;
            self.report.rtp_lost = self.report.rtp_lost.saturating_sub(1);
            return;
        }
        self.report.rtp_lost += ahead as u64;
        self.next_seq = Some(header.seq.plus(1));
    }

    fn note_packet(&mut self, at_ns: u64, bytes: &[u8; PACKET_LEN]) {
        if bytes[0] != ts::SYNC_BYTE {
            self.watch.sync_byte();
            return;
        }
        self.watch.in_sync();
        let Ok(packet) = Packet::parse(bytes) else { return };
        if packet.pid() == Pid::NULL {
            self.report.nulls += 1;
            return;
        }
        self.report.lost += self.watch.packet(at_ns, &packet);
        if let Some(pcr) = packet.pcr() {
            self.report.references += 1;
            self.note_reference(at_ns, &packet, pcr);
        }
    }

    /// Compares a reference of the first PID that has any with its arrival, and with its place.
    fn note_reference(&mut self, at_ns: u64, packet: &Packet<'_>, pcr: Pcr) {
        let here = Reference { pid: packet.pid(), pcr, at_ns, position: self.report.packets };
        let (Some(first), Some(place)) = (self.clock, self.place) else {
            (self.clock, self.place) = (Some(here), Some(here));
            return;
        };
        if first.pid != here.pid {
            return;
        }
        let by_clock_ns = (i128::from(first.pcr.ticks_to(pcr)) * 1_000 / 27) as i64;
        let by_arrival_ns = at_ns.saturating_sub(first.at_ns) as i64;
        let apart_ns = by_arrival_ns - by_clock_ns;
        // Half the way round a clock its sign turns.
        if packet.discontinuity() || apart_ns.abs() > JUMP_NS || by_clock_ns.abs() > i64::MAX / 4 {
            (self.clock, self.place) = (Some(here), Some(here));
            self.jitter = None;
            return;
        }
        let (low, high) = self.jitter.unwrap_or((apart_ns, apart_ns));
        self.jitter = Some((low.min(apart_ns), high.max(apart_ns)));
        if let Some(rate) = self.rate {
            let bits = u128::from(here.position - place.position) * PACKET_LEN as u128 * 8;
            let by_place_ns = (bits * 1_000_000_000 / u128::from(rate.bps())) as i64;
            let by_clock_ns = (i128::from(place.pcr.ticks_to(pcr)) * 1_000 / 27) as i64;
            let off_ns = by_place_ns.abs_diff(by_clock_ns);
            if self.watch.accuracy(off_ns) {
                self.place = Some(here);
            }
            self.report.pcr_accuracy_max_ns = self.report.pcr_accuracy_max_ns.max(Some(off_ns));
        }
    }

    /// What was measured so far. Of the second that runs only counts are in it.
    pub fn report(&self) -> Report {
        let delay = self.delay.whole_seconds();
        Report {
            delay_factor_max_ns: delay.map(|(max, _)| max),
            delay_factor_mean_ns: delay.map(|(_, mean)| mean),
            priorities: self.watch.counts,
            ..self.report.clone()
        }
    }
}
