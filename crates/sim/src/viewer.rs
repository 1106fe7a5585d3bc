//! A viewer as a browser would be: takes packets, puts frames together, and sends NACKs, reports, transport feedback and
//! keyframe requests. It keeps a record of all that it got, for the test to look at.
//!
//! In: SRTP and SRTCP datagrams, and the time. Out: SRTCP datagrams in `poll_transmit`; `poll_timeout` says when.
//! Source: RFC 3550 §6.4.2 (RR), RFC 4585 §6 (NACK, PLI), RFC 4588 (RTX),
//! draft-holmer-rmcat-transport-wide-cc-extensions-01.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use rooms::spec::DownTrackSpec;
use srtp::{Opener, Sealer, SessionKeys};
use wire::codec::red::Red;
use wire::codec::{self, Codec, MediaKind, PictureNumbers};
use wire::rtcp::{self, Packet, ReportBlock};
use wire::rtp::{self, Kind, RtpPacket};
use wire::{Random, Seq, SeqExtender};

use crate::media::Tag;
use crate::network::HEADERS;
use crate::publisher::{TrackPlan, extensions, seal_rtcp};
use crate::remb::ReceiverEstimate;

/// A gap is asked for after so long, when mere reordering has had its time, …
const NACK_DELAY: Duration = Duration::from_millis(10);
/// … again after this, and so many times in all.
const NACK_INTERVAL: Duration = Duration::from_millis(80);
const NACK_TRIES_MAX: u32 = 10;
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(50);
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Tracks that one receiver report speaks of (RFC 3550 §6.4.1).
const BLOCKS_MAX: usize = 31;
/// A viewer that has no keyframe yet asks for one this often.
const KEYFRAME_INTERVAL: Duration = Duration::from_millis(500);
/// How often misbehaviour is repeated.
const MISCHIEF_INTERVAL: Duration = Duration::from_millis(10);

/// What kind of a viewer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Throws all that arrives away unseen, and says nothing of its own.
    pub is_deaf: bool,
    /// Asks for the last 512 packets again, whether it has them or not, every 10 ms.
    pub nacks_everything: bool,
    /// Asks for a keyframe every 10 ms.
    pub hammers_for_keyframes: bool,
    /// Says by REMB what it takes.
    pub sends_remb: bool,
}

impl Behaviour {
    /// Does what browsers do.
    pub const GOOD: Behaviour =
        Behaviour { is_deaf: false, nacks_everything: false, hammers_for_keyframes: false, sends_remb: false };
    /// Costs next to nothing: for crowds of viewers that only have to be sent to.
    pub const DEAF: Behaviour = Behaviour { is_deaf: true, ..Behaviour::GOOD };
}

/// What a viewer counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewerCounters {
    /// Packets whose number was there already, RTX included.
    pub duplicates: u64,
    /// Payloads that are not what the publisher made.
    pub spoilt: u64,
    /// Sequence numbers that it asked for, repeated ones included.
    pub nacks_sent: u64,
    /// PLI messages that it sent.
    pub keyframe_requests: u64,
    /// Sender reports that came.
    pub sender_reports: u64,
    /// Datagrams that could not be opened or read.
    pub refused: u64,
    /// RTCP datagrams that are no whole compounds: a report in front, and a CNAME behind it (RFC 3550 §6.1).
    pub reduced: u64,
    /// Sources that rooms said goodbye to.
    pub goodbyes: u64,
    /// Packets of sound with redundancy (RED).
    pub redundant: u64,
    /// Packets that were lost and taken from that.
    pub recovered: u64,
}

/// One media packet as it came, after RTX was undone.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// When it came; of one that came twice, the last time.
    pub arrival: Instant,
    /// As forwarded; in clock-rate units.
    pub timestamp: u32,
    /// As forwarded.
    pub marker: bool,
    /// As forwarded; only of VP8.
    pub numbers: Option<PictureNumbers>,
    /// What the publisher wrote at the payload's end.
    pub tag: Tag,
}

/// What a viewer knows about one frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameRecord {
    /// That of the packet which came first.
    pub tag: Tag,
    /// How many of its packets came.
    pub packets: u16,
    /// When its last packet came; only of a whole frame.
    pub whole_at: Option<Instant>,
}

/// One track as received.
pub struct ReceivedTrack {
    /// Under which its media is sent.
    pub ssrc: u32,
    rtx_ssrc: Option<u32>,
    red_payload_type: Option<u8>,
    codec: Codec,
    extender: SeqExtender,
    first_seq: Option<u64>,
    /// By extended number.
    pub records: BTreeMap<u64, Record>,
    /// Extended numbers of packets that held nothing but padding.
    pub padding: BTreeSet<u64>,
    /// By layer and frame number.
    pub frames: BTreeMap<(u8, u32), FrameRecord>,
    missing: BTreeMap<u64, Missing>,
    /// When the first of these is to be asked for.
    ask_at: Option<Instant>,
    /// Of the records, those that came as another packet's redundancy.
    recovered: u64,
    /// For the fraction in receiver reports.
    reported_expected: u64,
    reported_received: u64,
    last_sr: Option<(u32, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    ask_at: Instant,
    tries: u32,
}

/// The client's side of a session that receives.
pub struct Viewer {
    start: Instant,
    ssrc: u32,
    sealer: Sealer,
    opener: Opener,
    /// May be changed at any time.
    pub behaviour: Behaviour,
    /// In the order of the stream.
    pub tracks: Vec<ReceivedTrack>,
    transport: SeqExtender,
    /// SSRCs that have shown their MID: others belong to no media section (RFC 8843 §9.2).
    bound_ssrcs: BTreeSet<u32>,
    /// Arrival ticks of packets that no feedback has spoken of yet, by extended transport number.
    arrivals: BTreeMap<u64, i64>,
    next_feedback_seq: Option<u64>,
    feedback_count: u8,
    feedback_due: Instant,
    report_due: Instant,
    keyframe_due: Instant,
    mischief_due: Instant,
    estimate: ReceiverEstimate,
    outgoing: VecDeque<Vec<u8>>,
    /// What it counted so far.
    pub counters: ViewerCounters,
}

/// What is negotiated for a viewer of such tracks. Different viewers get different SSRCs.
pub fn down_tracks(plans: &[TrackPlan], random: &mut Random) -> Vec<DownTrackSpec> {
    let specs = plans.iter().enumerate().map(|(index, plan)| {
        let payload_type = TrackPlan::payload_type(index);
        let ssrc = random.next_u64() as u32;
        let rtx = (plan.codec.kind() == MediaKind::Video).then(|| (random.next_u64() as u32, payload_type + 1));
        DownTrackSpec {
            track: index as u8,
            mid: TrackPlan::mid(index),
            ssrc,
            payload_type,
            rtx,
            red: None,
            extensions: extensions(),
        }
    });
    specs.collect()
}

impl Viewer {
    /// A viewer with `keys` of the client's side.
    pub fn new(
        now: Instant,
        start: Instant,
        keys: &SessionKeys,
        plans: &[TrackPlan],
        specs: &[DownTrackSpec],
        behaviour: Behaviour,
        random: &mut Random,
    ) -> Self {
        let tracks = plans.iter().zip(specs).map(|(plan, spec)| ReceivedTrack {
            ssrc: spec.ssrc,
            rtx_ssrc: spec.rtx.map(|(ssrc, _)| ssrc),
            red_payload_type: spec.red.map(|red| red.payload_type),
            codec: plan.codec,
            extender: SeqExtender::default(),
            first_seq: None,
            records: BTreeMap::new(),
            padding: BTreeSet::new(),
            frames: BTreeMap::new(),
            missing: BTreeMap::new(),
            ask_at: None,
            recovered: 0,
            reported_expected: 0,
            reported_received: 0,
            last_sr: None,
        });
        Viewer {
            start,
            ssrc: random.next_u64() as u32,
            sealer: Sealer::new(keys).expect("made-up keys have the right length"),
            opener: Opener::new(keys).expect("made-up keys have the right length"),
            behaviour,
            tracks: tracks.collect(),
            transport: SeqExtender::default(),
            bound_ssrcs: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            next_feedback_seq: None,
            feedback_count: 0,
            feedback_due: now + FEEDBACK_INTERVAL,
            report_due: now + REPORT_INTERVAL,
            keyframe_due: now + KEYFRAME_INTERVAL,
            mischief_due: now + MISCHIEF_INTERVAL,
            estimate: ReceiverEstimate::default(),
            outgoing: VecDeque::new(),
            counters: ViewerCounters::default(),
        }
    }

    /// Takes an SRTP or SRTCP datagram, which is opened in place. What cannot be read is counted.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        if self.behaviour.is_deaf {
            return;
        }
        let taken = match rtp::classify(datagram) {
            Kind::Rtp => self.handle_rtp(now, datagram),
            Kind::Rtcp => self.handle_rtcp(now, datagram),
            _ => None,
        };
        if taken.is_none() {
            self.counters.refused += 1;
        }
    }

    /// When it next has to report, to ask again or to misbehave; `None` when it does nothing of that.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Behaviour { is_deaf, nacks_everything, hammers_for_keyframes, .. } = self.behaviour;
        let missing = self.tracks.iter().filter_map(|track| track.ask_at);
        let mischief = (nacks_everything || hammers_for_keyframes).then_some(self.mischief_due);
        let ordinary = [self.feedback_due, self.report_due, self.keyframe_due].into_iter().chain(missing);
        ordinary.filter(|_| !is_deaf).chain(mischief).min()
    }

    /// Sends what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.behaviour.is_deaf {
            self.say_what_is_due(now);
        }
        if self.mischief_due <= now {
            self.mischief_due = now + MISCHIEF_INTERVAL;
            if self.behaviour.nacks_everything {
                self.nack_everything();
            }
            if self.behaviour.hammers_for_keyframes {
                self.ask_for_keyframes(true);
            }
        }
    }

    fn say_what_is_due(&mut self, now: Instant) {
        self.send_nacks(now);
        if self.feedback_due <= now {
            self.feedback_due = now + FEEDBACK_INTERVAL;
            self.send_feedback();
            if self.behaviour.sends_remb {
                self.send_remb(now);
            }
        }
        if self.report_due <= now {
            self.report_due = now + REPORT_INTERVAL;
            self.send_report(now);
        }
        if self.keyframe_due <= now {
            self.keyframe_due = now + KEYFRAME_INTERVAL;
            self.ask_for_keyframes(false);
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }

    /// Sends any compound, sealed with the viewer's keys: for tests that send what no viewer would.
    pub fn send_rtcp(&mut self, plain: &[u8]) {
        let packet = seal_rtcp(&mut self.sealer, plain);
        self.outgoing.push_back(packet);
    }

    fn handle_rtp(&mut self, now: Instant, datagram: &mut [u8]) -> Option<()> {
        let datagram_len = datagram.len() + HEADERS;
        let len = self.opener.open_rtp(datagram).ok()?;
        let packet = RtpPacket::parse(&datagram[..len]).ok()?;
        let ssrc = packet.ssrc();
        if extensions().mid.is_some_and(|id| packet.extension(id).is_some()) {
            self.bound_ssrcs.insert(ssrc);
        }
        // As Firefox has it, which then says that the packet was lost.
        if !self.bound_ssrcs.contains(&ssrc) {
            return None;
        }
        self.note_arrival(now, &packet);
        let track = self.tracks.iter_mut().find(|track| track.ssrc == ssrc || track.rtx_ssrc == Some(ssrc))?;
        let mut payload = packet.payload();
        let mut seq = packet.seq();
        if track.rtx_ssrc == Some(ssrc) {
            let Some((original, rest)) = payload.split_first_chunk() else { return Some(()) };
            (seq, payload) = (Seq(u16::from_be_bytes(*original)), rest);
        }
        if payload.is_empty() {
            let extended = track.note_seq(now, seq);
            track.padding.insert(extended);
            return Some(());
        }
        if track.red_payload_type == Some(packet.payload_type()) {
            let Some(red) = Red::parse(payload) else {
                self.counters.spoilt += 1;
                return Some(());
            };
            payload = red.primary;
            self.counters.redundant += 1;
            self.counters.recovered += track.recover(now, &packet, &red);
        }
        let Some(tag) = Tag::parse(payload) else {
            self.counters.spoilt += 1;
            return Some(());
        };
        let made_at = self.start + Duration::from_micros(tag.sent_us);
        let delay = (track.ssrc == ssrc).then(|| now.saturating_duration_since(made_at));
        if self.behaviour.sends_remb {
            self.estimate.on_datagram(now, datagram_len, delay);
        }
        let numbers = codec::inspect(track.codec, payload, None).picture;
        let record = Record { arrival: now, timestamp: packet.timestamp(), marker: packet.marker(), numbers, tag };
        let extended = track.note_seq(now, seq);
        if track.records.insert(extended, record).is_some() {
            self.counters.duplicates += 1;
        } else {
            track.note_frame(now, tag);
        }
        Some(())
    }

    /// Notes the transport-wide number.
    fn note_arrival(&mut self, now: Instant, packet: &RtpPacket<'_>) {
        let value = extensions().transport_cc.and_then(|id| packet.extension(id));
        if let Some(bytes) = value.and_then(<[u8]>::first_chunk) {
            let extended = self.transport.extend(Seq(u16::from_be_bytes(*bytes)));
            let ticks = now.duration_since(self.start).as_micros() as i64 / 250;
            self.arrivals.insert(extended, ticks);
        }
    }

    fn handle_rtcp(&mut self, now: Instant, datagram: &mut [u8]) -> Option<()> {
        let len = self.opener.open_rtcp(datagram).ok()?;
        self.counters.reduced += u64::from(!is_whole_compound(&datagram[..len]));
        for packet in rtcp::packets(&datagram[..len]).ok()? {
            if let Packet::Bye(bye) = packet {
                self.counters.goodbyes += bye.ssrcs().count() as u64;
            }
            let Packet::SenderReport(report) = packet else { continue };
            self.counters.sender_reports += 1;
            let track = self.tracks.iter_mut().find(|track| track.ssrc == report.info.ssrc)?;
            track.last_sr = Some(((report.info.ntp >> 16) as u32, now));
        }
        Some(())
    }

    fn send_nacks(&mut self, now: Instant) {
        for index in 0..self.tracks.len() {
            let track = &mut self.tracks[index];
            if track.ask_at.is_none_or(|at| at > now) {
                continue;
            }
            let mut asked = Vec::new();
            track.missing.retain(|seq, missing| {
                if missing.ask_at <= now {
                    asked.push(Seq(*seq as u16));
                    missing.ask_at = now + NACK_INTERVAL;
                    missing.tries += 1;
                }
                missing.tries < NACK_TRIES_MAX
            });
            track.follow_missing();
            let ssrc = track.ssrc;
            self.nack(ssrc, &asked);
        }
    }

    /// Asks for the last packets of each track, got or not.
    fn nack_everything(&mut self) {
        for index in 0..self.tracks.len() {
            let track = &self.tracks[index];
            let Some(highest) = track.extender.highest() else { continue };
            let all: Vec<_> = (highest.saturating_sub(511)..=highest).map(|seq| Seq(seq as u16)).collect();
            let ssrc = track.ssrc;
            self.nack(ssrc, &all);
        }
    }

    fn nack(&mut self, media_ssrc: u32, seqs: &[Seq]) {
        let mut buf = [0; 1_200];
        for some in seqs.chunks(256) {
            if let Some(len) = rtcp::write_nack(&mut buf, self.ssrc, media_ssrc, some.iter().copied()) {
                self.counters.nacks_sent += some.len() as u64;
                self.send_rtcp(&buf[..len]);
            }
        }
    }

    fn send_feedback(&mut self) {
        let Some(highest) = self.arrivals.keys().next_back().copied() else { return };
        let mut base =
            self.next_feedback_seq.unwrap_or_else(|| self.arrivals.keys().next().copied().unwrap_or(highest));
        while base <= highest {
            let arrivals: Vec<_> = (base..=highest).map(|seq| self.arrivals.get(&seq).copied()).collect();
            let mut buf = [0; 1_200];
            let media_ssrc = self.tracks.first().map_or(0, |track| track.ssrc);
            let written = rtcp::write_transport_feedback(
                &mut buf,
                self.ssrc,
                media_ssrc,
                base as u16,
                self.feedback_count,
                &arrivals,
            );
            let Some((len, covered)) = written else { break };
            self.feedback_count = self.feedback_count.wrapping_add(1);
            base += covered as u64;
            self.send_rtcp(&buf[..len]);
        }
        self.next_feedback_seq = Some(base);
        self.arrivals = self.arrivals.split_off(&base);
    }

    fn send_remb(&mut self, now: Instant) {
        let Some(rate) = self.estimate.poll(now) else { return };
        let ssrcs: Vec<u32> = self.tracks.iter().map(|track| track.ssrc).collect();
        let mut buf = [0; 128];
        if let Some(len) = rtcp::write_remb(&mut buf, self.ssrc, rate, &ssrcs) {
            self.send_rtcp(&buf[..len]);
        }
    }

    fn send_report(&mut self, now: Instant) {
        let blocks: Vec<_> = self.tracks.iter_mut().filter_map(|track| track.report_block(now)).collect();
        let mut buf = [0; 800];
        for some in blocks.chunks(BLOCKS_MAX).chain(blocks.is_empty().then_some(&blocks[..])) {
            let len = rtcp::write_receiver_report(&mut buf, self.ssrc, some).expect("a report holds so many blocks");
            self.send_rtcp(&buf[..len]);
        }
    }

    /// Asks for keyframes of the video tracks; unless `always`, of those only that have none yet.
    fn ask_for_keyframes(&mut self, always: bool) {
        for index in 0..self.tracks.len() {
            let track = &self.tracks[index];
            if track.codec.kind() == MediaKind::Audio || !always && track.has_keyframe() {
                continue;
            }
            let mut buf = [0; 64];
            if let Some(len) = rtcp::write_pli(&mut buf, self.ssrc, track.ssrc) {
                self.counters.keyframe_requests += 1;
                self.send_rtcp(&buf[..len]);
            }
        }
    }
}

/// Whether a compound has a report in front and a source description behind it.
pub(crate) fn is_whole_compound(compound: &[u8]) -> bool {
    let first_len = compound.get(2..4).map_or(0, |words| 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]])));
    matches!(compound.get(1), Some(200 | 201)) && compound.get(first_len + 1) == Some(&202)
}

impl ReceivedTrack {
    /// Extends the number, and notes the numbers that are missing before it.
    fn note_seq(&mut self, now: Instant, seq: Seq) -> u64 {
        let before = self.extender.highest();
        let extended = self.extender.extend(seq);
        self.first_seq.get_or_insert(extended);
        self.missing.remove(&extended);
        if let Some(before) = before {
            for seq in before + 1..extended {
                self.missing.insert(seq, Missing { ask_at: now + NACK_DELAY, tries: 0 });
            }
        }
        self.follow_missing();
        extended
    }

    fn follow_missing(&mut self) {
        self.ask_at = self.missing.values().map(|missing| missing.ask_at).min();
    }

    /// Takes what is missing from a packet's redundancy. Returns how many packets that were.
    fn recover(&mut self, now: Instant, packet: &RtpPacket<'_>, red: &Red<'_>) -> u64 {
        let newest = self.note_seq(now, packet.seq());
        let count = red.redundant().len() as u64;
        let mut recovered = 0;
        for (block, back) in red.redundant().zip((1..=count).rev()) {
            let Some(tag) = Tag::parse(block.payload) else { continue };
            let (seq, timestamp) = (newest - back, packet.timestamp().wrapping_sub(block.offset));
            if self.first_seq.is_some_and(|first| first > seq) || self.records.contains_key(&seq) {
                continue;
            }
            let record = Record { arrival: now, timestamp, marker: true, numbers: None, tag };
            self.records.insert(seq, record);
            self.missing.remove(&seq);
            self.note_frame(now, tag);
            recovered += 1;
        }
        self.follow_missing();
        self.recovered += recovered;
        recovered
    }

    fn note_frame(&mut self, now: Instant, tag: Tag) {
        let frame =
            self.frames.entry((tag.layer, tag.frame)).or_insert(FrameRecord { tag, packets: 0, whole_at: None });
        frame.packets += 1;
        if frame.packets == tag.count {
            frame.whole_at = Some(now);
        }
    }

    fn has_keyframe(&self) -> bool {
        self.frames.values().any(|frame| frame.tag.keyframe && frame.whole_at.is_some())
    }

    fn report_block(&mut self, now: Instant) -> Option<ReportBlock> {
        let highest = self.extender.highest()?;
        let expected = highest - self.first_seq? + 1;
        let received = (self.records.len() + self.padding.len()) as u64 - self.recovered;
        let (new_expected, new_received) =
            (expected - self.reported_expected, received.saturating_sub(self.reported_received));
        (self.reported_expected, self.reported_received) = (expected, received);
        let lost = new_expected.saturating_sub(new_received);
        let (last_sr, heard) = self.last_sr.map_or((0, now), |(ntp, at)| (ntp, at));
        Some(ReportBlock {
            ssrc: self.ssrc,
            fraction_lost: (lost * 256).checked_div(new_expected).unwrap_or(0).min(255) as u8,
            cumulative_lost: expected.saturating_sub(received) as i32,
            highest_seq: (highest - (1 << 16)) as u32,
            jitter: 0,
            last_sr,
            delay_since_last_sr: (now.duration_since(heard).as_micros() * 65_536 / 1_000_000) as u32,
        })
    }

    /// How many frames are whole.
    pub fn whole_frames(&self) -> usize {
        self.frames.values().filter(|frame| frame.whole_at.is_some()).count()
    }

    /// From the publisher's encoder to the last packet here, of each whole frame, sorted.
    pub fn lateness(&self, start: Instant) -> Vec<Duration> {
        let whole = self.frames.values().filter_map(|frame| {
            let made_at = start + Duration::from_micros(frame.tag.sent_us);
            Some(frame.whole_at?.saturating_duration_since(made_at))
        });
        let mut all: Vec<_> = whole.collect();
        all.sort_unstable();
        all
    }

    /// Numbers between the first and the last that never came.
    pub fn holes(&self) -> Vec<u64> {
        let (Some(first), Some(last)) = (self.records.keys().next(), self.records.keys().next_back()) else {
            return Vec::new();
        };
        (*first..=*last).filter(|seq| !self.records.contains_key(seq) && !self.padding.contains(seq)).collect()
    }
}
