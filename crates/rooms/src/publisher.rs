//! The sending half of a session: which SSRC carries which layer, what is missing, and what the publisher is told.

use std::time::{Duration, Instant};

use wire::Seq;
use wire::codec::{Codec, MediaKind};
use wire::rtcp::{self, Packet};
use wire::rtp::RtpPacket;

use crate::drops::DropReason;
use crate::keyframe::KeyframeWishes;
use crate::packet::{PacketMeta, Place, SenderClock};
use crate::passthrough::{self, Passage};
use crate::receive::{Receiver, TransportRecorder};
use crate::reports;
use crate::session::Link;
use crate::settings::Settings;
use crate::spec::{ExtensionIds, SessionStats, UpTrackSpec};
use crate::stream::{LAYERS_MAX, Layer, Stream, TRACKS_MAX};

#[derive(Debug)]
pub struct Publisher {
    /// Key of the stream on this worker.
    pub stream: usize,
    tracks: Vec<UpTrackSpec>,
    /// One per layer that has been heard of or was announced.
    sources: Vec<Source>,
    recorder: TransportRecorder,
    /// Our NTP time less the publisher's, by its first report.
    ntp_offset: Option<u64>,
    /// By track: what takes the publisher's frame numbers to behind those of the publisher before; known from the first
    /// dependency descriptor on.
    frame_shifts: [Option<u16>; TRACKS_MAX],
    /// Counts the starts of layers, from a number that other publishers of the stream do not use.
    epoch: u32,
    /// Under which SSRC we report (RFC 3550 §6.4.2).
    ssrc: u32,
    report_at: Instant,
    stats: SessionStats,
}

/// One layer as it arrives.
#[derive(Debug)]
struct Source {
    ssrc: u32,
    rtx_ssrc: Option<u32>,
    track: u8,
    layer: u8,
    epoch: u32,
    codec: Codec,
    receiver: Receiver,
}

/// A media packet that found its layer.
pub struct Arrived<'a> {
    pub place: Place,
    pub meta: PacketMeta,
    pub payload: &'a [u8],
    /// How its header extensions are passed on.
    pub passage: Passage,
}

/// Receiver reports go out this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Lost packets are asked for again after this long, until the round trip is known.
const RTT_ASSUMED: Duration = Duration::from_millis(50);

impl Publisher {
    pub fn new(now: Instant, stream_key: usize, stream: &Stream, tracks: Vec<UpTrackSpec>, ssrc: u32) -> Self {
        let mut publisher = Publisher {
            stream: stream_key,
            tracks: Vec::new(),
            sources: Vec::new(),
            recorder: TransportRecorder::new(now),
            ntp_offset: None,
            frame_shifts: [None; TRACKS_MAX],
            epoch: ssrc,
            ssrc,
            report_at: now + REPORT_INTERVAL,
            stats: SessionStats::default(),
        };
        for spec in &tracks {
            for (layer, (ssrc, rtx_ssrc)) in (0..).zip(&spec.ssrcs).take(LAYERS_MAX) {
                publisher.add_source(now, *ssrc, *rtx_ssrc, spec.track, layer, stream);
            }
        }
        publisher.tracks = tracks;
        publisher
    }

    /// Finds the layer of a decrypted packet, and its place in the row.
    pub fn handle_rtp<'a>(
        &mut self,
        now: Instant,
        packet: &RtpPacket<'a>,
        stream: &Stream,
    ) -> Result<Arrived<'a>, DropReason> {
        self.stats.packets_received += 1;
        self.stats.bytes_received += packet.payload().len() as u64;
        let (index, is_rtx) = self.source_of(now, packet, stream)?;
        let ids = self.extensions_of(index);
        if let Some(value) = ids.transport_cc.and_then(|id| packet.extension(id))
            && let Some(seq) = value.first_chunk()
        {
            self.recorder.on_packet(now, u16::from_be_bytes(*seq));
        }
        let source = &mut self.sources[index];
        let (seq, payload) = match (is_rtx, packet.payload()) {
            (false, payload) => (packet.seq(), payload),
            // The original sequence number stands before the payload (RFC 4588 §4); padding alone is a probe.
            (true, [high, low, payload @ ..]) => (Seq(u16::from_be_bytes([*high, *low])), payload),
            (true, _) => return Err(DropReason::Padding),
        };
        let extended = source.receiver.on_packet(now, seq, packet.timestamp(), is_rtx)?;
        let descriptor = ids.dependency_descriptor.and_then(|id| packet.extension(id));
        let shift = &mut self.frame_shifts[usize::from(source.track)];
        if let Some([_, high, low, ..]) = descriptor {
            let first = u16::from_be_bytes([*high, *low]);
            shift.get_or_insert_with(|| frame_shift(stream, source.track, first));
        }
        let passage = Passage { ids, frame_shift: shift.unwrap_or(0) };
        let meta = PacketMeta {
            seq: extended,
            timestamp: packet.timestamp(),
            arrival: now,
            marker: packet.marker(),
            payload: source.receiver.inspect(source.codec, extended, payload, descriptor),
        };
        let place = Place { track: source.track, layer: source.layer, epoch: source.epoch };
        Ok(Arrived { place, meta, payload, passage })
    }

    fn extensions_of(&self, source: usize) -> ExtensionIds {
        let track = self.sources[source].track;
        self.tracks.iter().find(|spec| spec.track == track).map_or_else(ExtensionIds::default, |spec| spec.extensions)
    }

    /// Takes the publisher's reports, in plain text. Returns the clock that a sender report brought.
    /// Its NTP time is turned into ours by the same offset for all tracks, which keeps them together.
    pub fn handle_rtcp(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        settings: &Settings,
    ) -> Option<(u8, u8, SenderClock)> {
        let Packet::SenderReport(report) = packet else { return None };
        let source = self.sources.iter_mut().find(|source| source.ssrc == report.info.ssrc)?;
        source.receiver.on_sender_report(now, report.info.ntp);
        let ours = reports::ntp_time(now, settings.ntp_epoch);
        let offset = *self.ntp_offset.get_or_insert(ours.wrapping_sub(report.info.ntp));
        let clock = SenderClock { ntp: report.info.ntp.wrapping_add(offset), rtp: report.info.rtp_timestamp };
        Some((source.track, source.layer, clock))
    }

    /// Asks the publisher for a keyframe (RFC 4585 §6.3.1). False when there is no room or the layer is unknown.
    pub fn request_keyframe(&self, track: u8, layer: u8, link: &mut Link<'_>) -> bool {
        let Some(source) = self.sources.iter().find(|source| (source.track, source.layer) == (track, layer)) else {
            return false;
        };
        link.send_rtcp(|buf| rtcp::write_pli(buf, self.ssrc, source.ssrc))
    }

    pub fn poll_timeout(&self) -> Instant {
        let nacks = self.sources.iter().filter_map(|source| source.receiver.next_nack_at());
        nacks.chain(self.recorder.poll_timeout()).fold(self.report_at, Instant::min)
    }

    /// Sends the NACKs, the transport feedback and the reports that are due. Returns layers that have lost too much and
    /// need a keyframe.
    pub fn handle_timeout(&mut self, link: &mut Link<'_>, wishes: &mut KeyframeWishes) {
        for source in &mut self.sources {
            if source.receiver.next_nack_at().is_some_and(|at| at <= link.now) {
                let mut lost = LostSeqs::default();
                source.receiver.poll_nacks(link.now, RTT_ASSUMED, &mut |seq| lost.add(seq));
                if lost.count > 0 {
                    link.send_rtcp(|buf| rtcp::write_nack(buf, self.ssrc, source.ssrc, lost.iter()));
                }
            }
            if source.receiver.take_keyframe_needed() {
                wishes.add(source.track, source.layer);
            }
        }
        let media_ssrc = self.sources.first().map_or(0, |source| source.ssrc);
        while self.recorder.poll_timeout().is_some_and(|at| at <= link.now) {
            let (now, recorder, ssrc) = (link.now, &mut self.recorder, self.ssrc);
            if !link.send_rtcp(|buf| recorder.write_feedback(now, buf, ssrc, media_ssrc)) {
                break;
            }
        }
        if self.report_at <= link.now {
            self.report_at = link.now + REPORT_INTERVAL;
            self.send_report(link);
        }
    }

    fn send_report(&mut self, link: &mut Link<'_>) {
        // The count field of a report has 5 bits (RFC 3550 §6.4.2).
        let mut blocks = [rtcp::ReportBlock::default(); 31];
        for (block, source) in blocks.iter_mut().zip(&mut self.sources) {
            *block = source.receiver.report(link.now);
        }
        let blocks = &blocks[..self.sources.len().min(31)];
        link.send_rtcp(|buf| rtcp::write_receiver_report(buf, self.ssrc, blocks));
    }

    pub fn stats(&self) -> SessionStats {
        let mut stats = self.stats.clone();
        stats.packets_without_layer = self.sources.iter().map(|source| source.receiver.unknown_layers()).sum();
        stats.loss = self.sources.iter().map(|source| source.receiver.loss()).fold(0.0, f32::max);
        stats
    }

    /// The source of a packet, and whether the packet is a retransmission. An unknown SSRC is looked up by its MID and
    /// RID (RFC 8843 §9.2, RFC 8852) or, without those, by its payload type.
    fn source_of(
        &mut self,
        now: Instant,
        packet: &RtpPacket<'_>,
        stream: &Stream,
    ) -> Result<(usize, bool), DropReason> {
        let ssrc = packet.ssrc();
        for (index, source) in self.sources.iter().enumerate() {
            if source.ssrc == ssrc {
                return Ok((index, false));
            }
            if source.rtx_ssrc == Some(ssrc) {
                return Ok((index, true));
            }
        }
        let spec = self.track_of(packet).ok_or(DropReason::UnknownSsrc)?;
        let (track, is_rtx) = (spec.track, spec.rtx_payload_type == Some(packet.payload_type()));
        let (rid, repaired_rid) = (spec.extensions.rid, spec.extensions.repaired_rid);
        let rids = &stream.tracks.get(usize::from(track)).ok_or(DropReason::UnknownSsrc)?.spec.rids;
        let named = if is_rtx { repaired_rid } else { rid }.and_then(|id| packet.extension(id));
        let layer = match named {
            Some(name) => rids.iter().position(|rid| rid.as_bytes() == name).ok_or(DropReason::UnknownSsrc)?,
            None if rids.len() <= 1 => 0,
            None => return Err(DropReason::UnknownSsrc),
        } as u8;
        let known = self.sources.iter().position(|source| (source.track, source.layer) == (track, layer));
        match (known, is_rtx) {
            (Some(index), true) => self.sources[index].rtx_ssrc = Some(ssrc),
            // The publisher restarted the layer under a new SSRC.
            (Some(index), false) => {
                self.sources[index].ssrc = ssrc;
                self.sources[index].epoch = self.next_epoch();
                self.sources[index].receiver = self.new_receiver(now, ssrc, track, stream);
            }
            (None, true) => return Err(DropReason::UnknownSsrc),
            (None, false) => self.add_source(now, ssrc, None, track, layer, stream),
        }
        let index = self.sources.iter().position(|source| (source.track, source.layer) == (track, layer));
        index.map(|index| (index, is_rtx)).ok_or(DropReason::UnknownSsrc)
    }

    fn track_of(&self, packet: &RtpPacket<'_>) -> Option<&UpTrackSpec> {
        let by_mid = self.tracks.iter().find(|spec| {
            let mid = spec.extensions.mid.and_then(|id| packet.extension(id));
            mid == Some(spec.mid.as_bytes())
        });
        let payload_type = packet.payload_type();
        by_mid.or_else(|| {
            let mut fitting = self
                .tracks
                .iter()
                .filter(|spec| spec.payload_type == payload_type || spec.rtx_payload_type == Some(payload_type));
            fitting.next().filter(|_| fitting.next().is_none())
        })
    }

    fn add_source(&mut self, now: Instant, ssrc: u32, rtx_ssrc: Option<u32>, track: u8, layer: u8, stream: &Stream) {
        let Some(known) = stream.tracks.get(usize::from(track)) else { return };
        if usize::from(layer) >= known.layers.len() {
            return;
        }
        let receiver = self.new_receiver(now, ssrc, track, stream);
        let epoch = self.next_epoch();
        self.sources.push(Source { ssrc, rtx_ssrc, track, layer, epoch, codec: known.spec.codec, receiver });
    }

    fn next_epoch(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch
    }

    fn new_receiver(&self, now: Instant, ssrc: u32, track: u8, stream: &Stream) -> Receiver {
        let spec = stream.tracks.get(usize::from(track)).map(|track| &track.spec);
        let receiver = Receiver::new(now, ssrc, spec.map_or(90_000, |spec| spec.clock_rate));
        // A lost audio packet is 20 ms that the decoder conceals; by the time it came again it would be late.
        if spec.is_some_and(|spec| spec.kind == MediaKind::Audio) { receiver.without_nacks() } else { receiver }
    }
}

/// What to add to a publisher's frame numbers, of which the first to arrive is `first`, so that they go on behind those of
/// the publisher before: a viewer drops a keyframe whose number is behind the last keyframe's.
fn frame_shift(stream: &Stream, track: u8, first: u16) -> u16 {
    let layers = stream.tracks.get(usize::from(track)).map_or(&[][..], |track| &track.layers);
    let newest = layers.iter().filter_map(|Layer { log, .. }| {
        let mut positions = (log.head().saturating_sub(LOOKED_AT)..log.head()).rev();
        positions.find_map(|position| {
            let packet = log.at(position)?;
            Some((packet.meta.arrival, passthrough::frame_number(packet.extensions)?))
        })
    });
    let last = newest.max_by_key(|(arrival, _)| *arrival).map(|(_, number)| number);
    last.map_or(0, |last| last.wrapping_add(FRAMES_APART).wrapping_sub(first))
}

/// Frame numbers between two publishers: more than layers of one picture are apart that arrive out of order.
const FRAMES_APART: u16 = 64;

/// Packets of each layer's log in which the last frame number is looked for: retransmissions may lack the extension.
const LOOKED_AT: u64 = 64;

/// Sequence numbers for one NACK, without a heap; what is over waits for the next turn.
struct LostSeqs {
    seqs: [u16; 256],
    count: usize,
}

impl Default for LostSeqs {
    fn default() -> Self {
        LostSeqs { seqs: [0; 256], count: 0 }
    }
}

impl LostSeqs {
    fn add(&mut self, seq: u16) {
        if let Some(place) = self.seqs.get_mut(self.count) {
            *place = seq;
            self.count += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = Seq> {
        self.seqs[..self.count].iter().copied().map(Seq)
    }
}
