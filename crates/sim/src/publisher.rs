//! A publisher as a browser would be: sends its tracks and layers, answers NACK and keyframe requests, sends reports.
//!
//! In: SRTCP datagrams, and the time. Out: SRTP and SRTCP datagrams in `poll_transmit`; `poll_timeout` says when.
//! Source: RFC 3550 §6.4.1 (SR), RFC 4585 §6 (NACK, PLI), RFC 4588 (RTX), RFC 8852 (RID), RFC 8843 (MID).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rooms::spec::{ExtensionIds, StreamSpec, TrackSpec, UpTrackSpec};
use srtp::{Opener, Sealer, SessionKeys};
use wire::codec::red::{self, Block};
use wire::codec::{Codec, MediaKind};
use wire::rtcp::{self, Packet, SenderInfo};
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{DATAGRAM_MAX, Random, Seq};

use crate::media::{Encoder, LayerPlan};
use crate::viewer::is_whole_compound;

/// Header extensions that all sides of this world agree on.
pub fn extensions() -> ExtensionIds {
    let (mid, rid, repaired_rid, transport_cc) = (Some(1), Some(2), Some(3), Some(4));
    ExtensionIds { mid, rid, repaired_rid, transport_cc, dependency_descriptor: Some(5), ..ExtensionIds::default() }
}

/// Sent packets that are kept for retransmission, per layer.
const HISTORY_LEN: usize = 4_000;
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What one track sends.
#[derive(Clone, Debug)]
pub struct TrackPlan {
    /// What `Encoder` can make: VP8, VP9, AV1, H.264, Opus or G.711.
    pub codec: Codec,
    /// Smallest picture first.
    pub layers: Vec<LayerPlan>,
}

impl TrackPlan {
    /// The MID of the track at that index of its stream, as all sides of this world have it.
    pub fn mid(index: usize) -> Arc<str> {
        index.to_string().into()
    }

    fn rids(&self) -> Vec<Arc<str>> {
        match self.layers.len() {
            1 => Vec::new(),
            count => (0..count).map(|layer| format!("l{layer}").into()).collect(),
        }
    }

    /// The payload type of the track at that index; the next one is that of its retransmissions.
    pub fn payload_type(index: usize) -> u8 {
        96 + 2 * index as u8
    }
}

/// The payload type of audio with redundancy, with which packets of Opus may come and go.
pub const RED: u8 = 63;

/// The stream that such tracks make.
pub fn stream_spec(id: rooms::spec::StreamId, plans: &[TrackPlan]) -> StreamSpec {
    let tracks =
        plans.iter().map(|plan| TrackSpec { codec: plan.codec, profile: Default::default(), rids: plan.rids() });
    StreamSpec { id, tracks: tracks.collect() }
}

/// What was asked of a publisher, and what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherCounters {
    /// Media packets that were sent once more for a NACK.
    pub packets_resent: u64,
    /// Sequence numbers asked for.
    pub nacked: u64,
    /// Receiver reports (RFC 3550 §6.4.2).
    pub reports_received: u64,
    /// Transport-wide feedback messages.
    pub transport_feedbacks: u64,
    /// Datagrams that could not be opened or read.
    pub refused: u64,
    /// RTCP datagrams that are no whole compounds: a report in front, and a CNAME behind it (RFC 3550 §6.1).
    pub reduced: u64,
    /// Sources that rooms said goodbye to.
    pub goodbyes: u64,
}

/// The client's side of a session that sends.
pub struct Publisher {
    start: Instant,
    sealer: Sealer,
    opener: Opener,
    tracks: Vec<Track>,
    transport_seq: u16,
    report_due: Instant,
    outgoing: VecDeque<Vec<u8>>,
    sending: bool,
    /// So many packets of sound go with each once more (RED).
    redundancy: usize,
    /// What it did so far.
    pub counters: PublisherCounters,
    /// When keyframes were asked for: track and layer.
    pub keyframe_requests: Vec<(Instant, u8, u8)>,
}

struct Track {
    mid: Arc<str>,
    payload_type: u8,
    has_rtx: bool,
    layers: Vec<Layer>,
}

struct Layer {
    encoder: Encoder,
    rid: Option<Arc<str>>,
    ssrc: u32,
    rtx_ssrc: u32,
    /// Extended numbers of the next packets.
    next_seq: u64,
    next_rtx_seq: u64,
    history: VecDeque<Sent>,
    frame_due: Instant,
    keyframe_wanted: bool,
    /// A keyframe is made each so often, whatever is asked for; `None`: when one is asked for.
    keyframe_interval: Option<Duration>,
    paused: bool,
    packets: u32,
    bytes: u32,
}

/// A sent packet, kept for retransmission.
#[derive(Clone)]
struct Sent {
    seq: u64,
    timestamp: u32,
    marker: bool,
    payload: Vec<u8>,
    /// Empty where it has none.
    descriptor: Vec<u8>,
}

impl Publisher {
    /// A publisher that starts to send at `now`, with `keys` of the client's side. All its numbers follow from `random`;
    /// its frames count from `first_frame`.
    pub fn new(
        now: Instant,
        start: Instant,
        keys: &SessionKeys,
        plans: &[TrackPlan],
        first_frame: u32,
        random: &mut Random,
    ) -> Self {
        let mut tracks = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            let rids = plan.rids();
            let mut layers = Vec::new();
            for (layer, layer_plan) in plan.layers.iter().enumerate() {
                let seed = Random::new(random.next_u64());
                layers.push(Layer {
                    encoder: Encoder::new(plan.codec, index as u8, layer as u8, layer_plan.clone(), seed)
                        .starting_at(first_frame),
                    rid: rids.get(layer).cloned(),
                    ssrc: random.next_u64() as u32,
                    rtx_ssrc: random.next_u64() as u32,
                    next_seq: (1 << 16) + random.below(1 << 16),
                    next_rtx_seq: (1 << 16) + random.below(1 << 16),
                    history: VecDeque::new(),
                    frame_due: now,
                    keyframe_wanted: true,
                    keyframe_interval: None,
                    paused: false,
                    packets: 0,
                    bytes: 0,
                });
            }
            let payload_type = TrackPlan::payload_type(index);
            tracks.push(Track {
                mid: TrackPlan::mid(index),
                payload_type,
                has_rtx: plan.codec.kind() == MediaKind::Video,
                layers,
            });
        }
        Publisher {
            start,
            sealer: Sealer::new(keys).expect("made-up keys have the right length"),
            opener: Opener::new(keys).expect("made-up keys have the right length"),
            tracks,
            transport_seq: random.next_u64() as u16,
            report_due: now,
            outgoing: VecDeque::new(),
            sending: true,
            redundancy: 0,
            counters: PublisherCounters::default(),
            keyframe_requests: Vec::new(),
        }
    }

    /// What was negotiated: SSRCs are not announced, as browsers do with simulcast, but found by MID and RID.
    pub fn up_tracks(&self) -> Vec<UpTrackSpec> {
        let tracks = self.tracks.iter().enumerate().map(|(index, track)| UpTrackSpec {
            track: index as u8,
            mid: track.mid.clone(),
            payload_type: track.payload_type,
            rtx_payload_type: track.has_rtx.then_some(track.payload_type + 1),
            red_payload_type: (!track.has_rtx).then_some(RED),
            ssrcs: Vec::new(),
            other_ssrcs: Vec::new(),
            extensions: extensions(),
        });
        tracks.collect()
    }

    /// Stops or resumes one layer, as an encoder does that lacks bandwidth.
    pub fn pause_layer(&mut self, now: Instant, track: usize, layer: usize, paused: bool) {
        let layer = &mut self.tracks[track].layers[layer];
        layer.paused = paused;
        layer.keyframe_wanted |= !paused;
        layer.frame_due = layer.frame_due.max(now);
    }

    /// Sends so many packets of sound with each once more (RED).
    pub fn set_redundancy(&mut self, count: usize) {
        self.redundancy = count;
    }

    /// Makes a layer's keyframes each so often and for no request, as who sends a recording.
    pub fn set_keyframe_interval(&mut self, track: usize, layer: usize, interval: Duration) {
        self.tracks[track].layers[layer].keyframe_interval = Some(interval);
    }

    /// Turns everything off, or on again.
    pub fn set_sending(&mut self, now: Instant, sending: bool) {
        self.sending = sending;
        for layer in self.tracks.iter_mut().flat_map(|track| &mut track.layers) {
            layer.frame_due = layer.frame_due.max(now);
        }
    }

    /// Frames of the layer so far.
    pub fn frame_count(&self, track: usize, layer: usize) -> u32 {
        self.tracks[track].layers[layer].encoder.frame_count
    }

    /// The SSRC under which a layer is sent.
    pub fn ssrc(&self, track: usize, layer: usize) -> u32 {
        self.tracks[track].layers[layer].ssrc
    }

    /// The SSRC of its retransmissions (RFC 4588 §5.3).
    pub fn rtx_ssrc(&self, track: usize, layer: usize) -> u32 {
        self.tracks[track].layers[layer].rtx_ssrc
    }

    /// Seals any packet with the publisher's keys: for tests that send what no publisher would.
    pub fn seal_rtp(&self, plain: &[u8], header_len: usize, ssrc: u32, seq: u64) -> Vec<u8> {
        let mut packet = plain.to_vec();
        packet.resize(plain.len() + self.sealer.rtp_overhead(), 0);
        let len = self.sealer.seal_rtp(&mut packet, header_len, plain.len(), ssrc, seq);
        packet.truncate(len);
        packet
    }

    /// The same for RTCP.
    pub fn seal_rtcp(&mut self, plain: &[u8]) -> Vec<u8> {
        seal_rtcp(&mut self.sealer, plain)
    }

    /// Takes an SRTCP datagram, which is opened in place. What cannot be read is counted.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        if self.handle_rtcp(now, datagram).is_none() {
            self.counters.refused += 1;
        }
    }

    fn handle_rtcp(&mut self, now: Instant, datagram: &mut [u8]) -> Option<()> {
        let len = self.opener.open_rtcp(datagram).ok()?;
        self.counters.reduced += u64::from(!is_whole_compound(&datagram[..len]));
        for packet in rtcp::packets(&datagram[..len]).ok()? {
            match packet {
                Packet::Nack(nack) => {
                    for seq in nack.lost() {
                        self.counters.nacked += 1;
                        self.send_again(nack.media_ssrc, seq);
                    }
                }
                Packet::Pli { media_ssrc } => self.want_keyframe(now, media_ssrc),
                Packet::Fir(fir) => fir.media_ssrcs().for_each(|ssrc| self.want_keyframe(now, ssrc)),
                Packet::ReceiverReport(_) => self.counters.reports_received += 1,
                Packet::TransportFeedback(_) => self.counters.transport_feedbacks += 1,
                _ => {}
            }
        }
        Some(())
    }

    /// When the next frame or report is due; `None` while it sends nothing.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.sending {
            return None;
        }
        let layers = self.tracks.iter().flat_map(|track| &track.layers);
        let frames = layers.filter(|layer| !layer.paused).map(|layer| layer.frame_due);
        Some(frames.fold(self.report_due, Instant::min))
    }

    /// Makes the frames and reports that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.sending {
            return;
        }
        for track in 0..self.tracks.len() {
            for layer in 0..self.tracks[track].layers.len() {
                while !self.tracks[track].layers[layer].paused && self.tracks[track].layers[layer].frame_due <= now {
                    self.send_frame(track, layer);
                }
            }
        }
        if self.report_due <= now {
            self.report_due = now + REPORT_INTERVAL;
            self.send_reports(now);
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }

    /// Track and layer that are sent under an SSRC.
    fn place_of(&self, ssrc: u32) -> Option<(usize, usize)> {
        let layer_of = |track: &Track| track.layers.iter().position(|layer| layer.ssrc == ssrc);
        self.tracks.iter().enumerate().find_map(|(index, track)| Some((index, layer_of(track)?)))
    }

    fn want_keyframe(&mut self, now: Instant, ssrc: u32) {
        if let Some((track, layer)) = self.place_of(ssrc) {
            let wanted = &mut self.tracks[track].layers[layer];
            wanted.keyframe_wanted |= wanted.keyframe_interval.is_none();
            self.keyframe_requests.push((now, track as u8, layer as u8));
        }
    }

    fn send_frame(&mut self, track: usize, layer_index: usize) {
        let layer = &mut self.tracks[track].layers[layer_index];
        let is_due = layer.keyframe_interval.is_some_and(|interval| layer.encoder.is_due_for_keyframe(interval));
        let keyframe = std::mem::take(&mut layer.keyframe_wanted) || is_due;
        let sent_us = layer.frame_due.duration_since(self.start).as_micros() as u64;
        let frame = layer.encoder.next_frame(sent_us, keyframe);
        layer.frame_due += layer.encoder.interval();
        let count = frame.payloads.len();
        for (index, (payload, descriptor)) in frame.payloads.into_iter().zip(frame.descriptors).enumerate() {
            let layer = &mut self.tracks[track].layers[layer_index];
            let seq = layer.next_seq;
            layer.next_seq += 1;
            layer.packets = layer.packets.wrapping_add(1);
            layer.bytes = layer.bytes.wrapping_add(payload.len() as u32);
            let marker = index + 1 == count;
            let sent = Sent { seq, timestamp: frame.timestamp, marker, payload, descriptor };
            let packet = if self.redundancy > 0 && !self.tracks[track].has_rtx {
                self.make_redundant_packet(track, layer_index, &sent)
            } else {
                self.make_packet(track, layer_index, &sent, None)
            };
            self.outgoing.push_back(packet);
            let history = &mut self.tracks[track].layers[layer_index].history;
            history.push_back(sent);
            if history.len() > HISTORY_LEN {
                history.pop_front();
            }
        }
    }

    fn send_again(&mut self, ssrc: u32, seq: Seq) {
        let Some((track, index)) = self.place_of(ssrc) else { return };
        let layer = &mut self.tracks[track].layers[index];
        let Some(sent) = layer.history.iter().find(|sent| sent.seq as u16 == seq.0).cloned() else { return };
        self.counters.packets_resent += 1;
        let rtx_seq = layer.next_rtx_seq;
        layer.next_rtx_seq += 1;
        let packet = self.make_packet(track, index, &sent, Some(rtx_seq));
        self.outgoing.push_back(packet);
    }

    /// The same with those before it (RFC 2198).
    fn make_redundant_packet(&mut self, track: usize, layer: usize, sent: &Sent) -> Vec<u8> {
        let Track { payload_type, layers, .. } = &self.tracks[track];
        let before = layers[layer].history.iter().rev().take(self.redundancy).rev();
        let blocks: Vec<_> = before
            .map(|before| Block {
                payload_type: *payload_type,
                offset: sent.timestamp.wrapping_sub(before.timestamp),
                payload: &before.payload,
            })
            .collect();
        let mut payload = vec![0; DATAGRAM_MAX];
        let len = red::write(&mut payload, &blocks, *payload_type, &sent.payload).expect("packets of sound are small");
        payload.truncate(len);
        self.seal_packet(track, layer, &Sent { payload, descriptor: Vec::new(), ..*sent }, RED, None)
    }

    /// Writes and seals a packet; with `rtx_seq` as a retransmission on the RTX stream.
    fn make_packet(&mut self, track: usize, layer: usize, sent: &Sent, rtx_seq: Option<u64>) -> Vec<u8> {
        let payload_type = self.tracks[track].payload_type + u8::from(rtx_seq.is_some());
        self.seal_packet(track, layer, sent, payload_type, rtx_seq)
    }

    fn seal_packet(
        &mut self,
        track: usize,
        layer: usize,
        sent: &Sent,
        payload_type: u8,
        rtx_seq: Option<u64>,
    ) -> Vec<u8> {
        let Track { mid, layers, .. } = &self.tracks[track];
        let layer = &layers[layer];
        let is_rtx = rtx_seq.is_some();
        let (ssrc, seq) = rtx_seq.map_or((layer.ssrc, sent.seq), |seq| (layer.rtx_ssrc, seq));
        let mut packet = vec![0; DATAGRAM_MAX];
        let header =
            RtpHeader { payload_type, marker: sent.marker, seq: Seq(seq as u16), timestamp: sent.timestamp, ssrc };
        let mut writer = HeaderWriter::new(&mut packet, &header).expect("a datagram holds a header");
        let ids = extensions();
        let rid_id = if is_rtx { ids.repaired_rid } else { ids.rid };
        let values = [
            (ids.mid, Some(mid.as_bytes())),
            (rid_id, layer.rid.as_ref().map(|rid| rid.as_bytes())),
            (ids.transport_cc, Some(&self.transport_seq.to_be_bytes()[..])),
            (ids.dependency_descriptor, Some(&sent.descriptor[..]).filter(|descriptor| !descriptor.is_empty())),
        ];
        for (id, value) in values {
            if let (Some(id), Some(value)) = (id, value) {
                writer.extension(id, value);
            }
        }
        let header_len = writer.finish();
        packet.truncate(header_len);
        if is_rtx {
            packet.extend((sent.seq as u16).to_be_bytes());
        }
        packet.extend(&sent.payload);
        self.transport_seq = self.transport_seq.wrapping_add(1);
        self.seal_rtp(&packet, header_len, ssrc, seq)
    }

    fn send_reports(&mut self, now: Instant) {
        let passed = now.duration_since(self.start);
        // 32.32 fixed-point seconds (RFC 3550 §4), counted from an arbitrary day.
        let fraction = (u64::from(passed.subsec_nanos()) << 32) / 1_000_000_000;
        let ntp = ((3_900_000_000 + passed.as_secs()) << 32) | fraction;
        let Publisher { tracks, sealer, outgoing, .. } = self;
        for layer in tracks.iter().flat_map(|track| &track.layers).filter(|layer| layer.packets > 0) {
            let info = SenderInfo {
                ssrc: layer.ssrc,
                ntp,
                // Of this very moment, also of a layer that is paused (RFC 3550 §6.4.1).
                rtp_timestamp: layer.encoder.timestamp(passed.as_micros() as u64),
                packet_count: layer.packets,
                byte_count: layer.bytes,
            };
            let mut buf = [0; 64];
            let len = rtcp::write_sender_report(&mut buf, &info, &[]).expect("a sender report has 28 bytes");
            outgoing.push_back(seal_rtcp(sealer, &buf[..len]));
        }
    }
}

/// Seals one plain compound.
pub(crate) fn seal_rtcp(sealer: &mut Sealer, plain: &[u8]) -> Vec<u8> {
    let mut packet = plain.to_vec();
    packet.resize(plain.len() + sealer.rtcp_overhead(), 0);
    let len = sealer.seal_rtcp(&mut packet, plain.len());
    packet.truncate(len);
    packet
}
