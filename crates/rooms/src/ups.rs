//! The up tracks of one session: which SSRC carries which layer, what is missing, and what the peer is told about it.

use std::time::{Duration, Instant};

use slab::Slab;
use wire::codec::red::Red;
use wire::codec::{Codec, MediaKind};
use wire::rtcp::{self, Bye, SenderReport};
use wire::rtp::RtpPacket;
use wire::{Budget, Random, Rate, Seq};

use crate::drops::DropReason;
use crate::io::Io;
use crate::keyframe::{LayerKey, Urgency};
use crate::packet::{LayerStart, PacketMeta, SenderClock};
use crate::passthrough::{self, PASSED_MAX, Passage};
use crate::receive::{Layers, MISSING_MAX, Receiver, TransportRecorder};
use crate::reports;
use crate::spec::{SessionStats, UpTrackSpec};
use crate::story::Happened;
use crate::stream::{LAYERS_MAX, Layer, Stream, TRACKS_MAX};
use crate::transport::Transport;

/// Up tracks of one session, of any streams.
#[derive(Debug)]
pub struct Ups {
    /// Keys of the streams that are published, each once; perhaps without a track of theirs.
    streams: Vec<usize>,
    tracks: Vec<UpTrack>,
    /// One per layer that has been heard of or was announced.
    sources: Vec<Source>,
    /// Our NTP time less the peer's, by its first report.
    ntp_offset: Option<u64>,
    /// Counts the starts of layers, from a number that other publishers of the same streams do not use.
    epoch: u32,
    /// Under which SSRC we report (RFC 3550 §6.4.2).
    ssrc: u32,
    report_at: Instant,
    /// Where we give transport-wide feedback.
    recorder: TransportRecorder,
}

/// An up track: one track of a stream, as the peer sends it.
#[derive(Debug)]
struct UpTrack {
    /// Key of the stream on this worker.
    stream: usize,
    spec: UpTrackSpec,
    /// What takes the peer's frame numbers to behind those of the publisher before; known from the first dependency
    /// descriptor on.
    frame_shift: Option<u16>,
    /// Of which layers something came when that was noted last.
    noted: u8,
}

/// One layer as it arrives.
#[derive(Debug)]
struct Source {
    ssrc: u32,
    rtx_ssrc: Option<u32>,
    /// Index into `Ups::tracks`.
    up: usize,
    layer: u8,
    epoch: u32,
    codec: Codec,
    receiver: Receiver,
    layers: Layers,
    /// When a packet of it last came.
    heard_at: Option<Instant>,
    /// How many sender reports may set its clock.
    clocks: Budget,
}

/// Of a layer's sender reports so many set its clock, of which each worker with viewers is told; the others say little new.
const CLOCKS: Rate = Rate { burst: 1, interval: Duration::from_millis(100) };

/// Receiver reports go out this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A layer that was heard of within this time keeps its SSRC, whatever comes under others: two at a time would restart it
/// with each packet.
const SILENCE: Duration = Duration::from_millis(200);

/// Of the packets before one that has them once more, so many are looked at: more are lost only where nothing is heard
/// anyway, and one packet is not to become hundreds.
const RECOVERED_MAX: usize = 4;

impl Ups {
    /// No tracks yet.
    pub fn new(now: Instant) -> Self {
        let (streams, tracks, sources) = (Vec::new(), Vec::new(), Vec::new());
        let recorder = TransportRecorder::new(now);
        Ups { streams, tracks, sources, ntp_offset: None, epoch: 0, ssrc: 0, report_at: now, recorder }
    }

    /// Adds a stream and tracks of it; those that the stream does not have, or over `TRACKS_MAX`, are left out.
    pub fn add(&mut self, now: Instant, key: usize, stream: &Stream, specs: Vec<UpTrackSpec>, random: &mut Random) {
        debug_assert!(!self.streams.contains(&key), "a stream is published once");
        if self.is_empty() {
            self.ssrc = random.next_u64() as u32 | 1;
            self.epoch = self.ssrc;
            self.report_at = now + REPORT_INTERVAL;
        }
        self.streams.push(key);
        for spec in specs.into_iter().take(TRACKS_MAX) {
            if usize::from(spec.track) < stream.tracks.len() {
                let (up, ssrcs) = (self.tracks.len(), spec.ssrcs.clone());
                self.tracks.push(UpTrack { stream: key, spec, frame_shift: None, noted: 0 });
                for (layer, (ssrc, rtx_ssrc)) in (0..).zip(ssrcs).take(LAYERS_MAX) {
                    self.add_source(now, ssrc, rtx_ssrc, up, layer, stream);
                }
            }
        }
    }

    /// Forgets a stream and its tracks.
    pub fn remove(&mut self, stream: usize) {
        self.streams.retain(|published| *published != stream);
        while let Some(removed) = self.tracks.iter().position(|up| up.stream == stream) {
            self.tracks.remove(removed);
            self.sources.retain(|source| source.up != removed);
            for source in &mut self.sources {
                source.up -= usize::from(source.up > removed);
            }
        }
    }

    /// Whether nothing is published.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Key of one of the streams that are published.
    pub fn any_stream(&self) -> Option<usize> {
        self.streams.last().copied()
    }

    /// Finds the layer of a decrypted packet and its place in the row, and stores it. Returns the key of its stream.
    pub fn handle_rtp(
        &mut self,
        packet: &RtpPacket<'_>,
        transport: &mut Transport,
        io: &mut Io<'_>,
    ) -> Result<usize, DropReason> {
        transport.stats.packets_received += 1;
        transport.stats.bytes_received += packet.payload().len() as u64;
        let (index, is_rtx) = self.source_of(io.now, packet, io.streams)?;
        let source = &mut self.sources[index];
        let up = &mut self.tracks[source.up];
        let ids = up.spec.extensions;
        if let Some(value) = ids.transport_cc.and_then(|id| packet.extension(id))
            && let Some(seq) = value.first_chunk()
        {
            self.recorder.on_packet(io.now, u16::from_be_bytes(*seq));
        }
        let (seq, payload) = match (is_rtx, packet.payload()) {
            (false, payload) => (packet.seq(), payload),
            // The original sequence number stands before the payload (RFC 4588 §4); padding alone is a probe.
            (true, [high, low, payload @ ..]) => (Seq(u16::from_be_bytes([*high, *low])), payload),
            (true, _) => return Err(DropReason::Padding),
        };
        // Chromium sends padding alone under the payload type of what it sent last.
        let is_red = !is_rtx && !payload.is_empty() && up.spec.red_payload_type == Some(packet.payload_type());
        let payload = if is_red { source.undo_redundancy(packet, up, io)? } else { payload };
        source.heard_at = Some(io.now);
        let extended = source.receiver.on_packet(io.now, seq, packet.timestamp(), is_rtx)?;
        let descriptor = ids.dependency_descriptor.and_then(|id| packet.extension(id));
        let stream = &mut io.streams[up.stream];
        if let Some([level, ..]) = ids.audio_level.and_then(|id| packet.extension(id)) {
            // The highest bit says whether it is speech (RFC 6464 §3).
            let level = level & 0x7f;
            stream.level = Some(stream.level.map_or(level, |before| before.min(level)));
        }
        let meta = PacketMeta {
            seq: extended,
            timestamp: packet.timestamp(),
            arrival: io.now,
            marker: packet.marker(),
            payload: source.layers.inspect(source.codec, extended, payload, descriptor),
        };
        // Each keyframe says it again: with that everybody begins.
        let says_delay = meta.payload.keyframe && meta.payload.starts_frame && source.codec.kind() == MediaKind::Video;
        let passage = Passage {
            ids,
            frame_shift: up.frame_shift(descriptor, stream),
            ntp_offset: self.ntp_offset,
            playout_delay: io.settings.playout_delay.filter(|_| says_delay),
        };
        let mut extensions = [0; PASSED_MAX];
        let extensions_len = passthrough::gather(packet, &passage, &mut extensions);
        let start = LayerStart { track: up.spec.track, layer: source.layer, epoch: source.epoch };
        stream.push(start, &meta, &extensions[..extensions_len], payload, io.posts);
        io.counters.packets_in += 1;
        Ok(up.stream)
    }

    /// Takes one of the peer's sender reports, in plain text: the clock of a layer. Its NTP time is turned into ours by the
    /// same offset for all tracks, which keeps them together.
    pub fn handle_sender_report(&mut self, report: &SenderReport<'_>, io: &mut Io<'_>) {
        let Some(source) = self.sources.iter_mut().find(|source| source.ssrc == report.info.ssrc) else { return };
        source.receiver.on_sender_report(io.now, report.info.ntp);
        if !source.clocks.take(io.now, CLOCKS) {
            return;
        }
        let ours = reports::ntp_time(io.now, io.settings.ntp_epoch);
        let offset = *self.ntp_offset.get_or_insert(ours.wrapping_sub(report.info.ntp));
        let clock = SenderClock { ntp: report.info.ntp.wrapping_add(offset), rtp: report.info.rtp_timestamp };
        let up = &self.tracks[source.up];
        io.streams[up.stream].set_clock(up.spec.track, source.layer, clock, io.posts);
    }

    /// The peer says that these sources end (RFC 3550 §6.6): nothing of them is asked for any more, and another SSRC may take
    /// the place of each at once.
    pub fn handle_bye(&mut self, ssrcs: &Bye<'_>) {
        for source in self.sources.iter_mut().filter(|source| ssrcs.ssrcs().any(|ssrc| ssrc == source.ssrc)) {
            source.heard_at = None;
            source.receiver.stop_asking();
        }
    }

    /// Asks the peer for a keyframe (RFC 4585 §6.3.1). False when there is no room or the layer is unknown.
    pub fn request_keyframe(&self, wanted: LayerKey, transport: &mut Transport, io: &mut Io<'_>) -> bool {
        let Some(source) = self.sources.iter().find(|source| self.layer_key(source) == wanted) else { return false };
        transport.send_rtcp(io.out, self.ssrc, |buf| rtcp::write_pli(buf, self.ssrc, source.ssrc))
    }

    fn layer_key(&self, source: &Source) -> LayerKey {
        let up = &self.tracks[source.up];
        LayerKey { stream: up.stream, track: up.spec.track, layer: source.layer }
    }

    /// When `handle_timeout` next has work.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let nacks = self.sources.iter().filter_map(|source| source.receiver.next_nack_at());
        nacks.chain((!self.is_empty()).then_some(self.report_at)).chain(self.recorder.poll_timeout()).min()
    }

    /// Sends the NACKs, the transport feedback and the reports that are due, and wishes for keyframes of layers that have
    /// lost too much.
    pub fn handle_timeout(&mut self, transport: &mut Transport, io: &mut Io<'_>) {
        for source in &mut self.sources {
            if source.receiver.next_nack_at().is_some_and(|at| at <= io.now) {
                // More than `MISSING_MAX` are never missing.
                let (mut lost, mut count) = ([Seq::default(); MISSING_MAX], 0);
                source.receiver.poll_nacks(io.now, &mut |seq| {
                    lost[count] = Seq(seq);
                    count += 1;
                });
                if count > 0 {
                    let lost = lost[..count].iter().copied();
                    transport.send_rtcp(io.out, self.ssrc, |buf| rtcp::write_nack(buf, self.ssrc, source.ssrc, lost));
                }
            }
            if source.receiver.take_keyframe_needed() {
                let up = &self.tracks[source.up];
                let layer = LayerKey { stream: up.stream, track: up.spec.track, layer: source.layer };
                io.wishes.add(layer, Urgency::Now);
            }
        }
        let media_ssrc = self.sources.first().map_or(0, |source| source.ssrc);
        while self.recorder.poll_timeout().is_some_and(|at| at <= io.now) {
            let write = |buf: &mut [u8]| self.recorder.write_feedback(io.now, buf, self.ssrc, media_ssrc);
            if !transport.send_rtcp(io.out, self.ssrc, write) {
                break;
            }
        }
        if self.report_at <= io.now && !self.is_empty() {
            self.report_at = io.now + REPORT_INTERVAL;
            for stream in &self.streams {
                io.streams[*stream].tidy(io.now);
            }
            self.send_report(transport, io);
            self.take_notes(transport, io.streams, io.now);
        }
    }

    /// Notes what is otherwise than the last time. Comes once a second.
    fn take_notes(&mut self, transport: &mut Transport, streams: &Slab<Stream>, now: Instant) {
        for up in &mut self.tracks {
            let (stream, track) = (&streams[up.stream], up.spec.track);
            let layers = stream.tracks[usize::from(track)].flowing(now);
            if std::mem::replace(&mut up.noted, layers) != layers {
                transport.story.note(now, Happened::Sends { stream: stream.id, track, layers });
            }
        }
        let lost = self.sources.iter().map(|source| source.receiver.loss()).fold(0.0, f32::max);
        transport.story.note_loss_up(now, (lost * 100.0) as u8);
    }

    fn send_report(&mut self, transport: &mut Transport, io: &mut Io<'_>) {
        // The count field of a report has 5 bits (RFC 3550 §6.4.2).
        let mut blocks = [rtcp::ReportBlock::default(); 31];
        for (block, source) in blocks.iter_mut().zip(&mut self.sources) {
            *block = source.receiver.report(io.now);
        }
        let blocks = &blocks[..self.sources.len().min(31)];
        transport.send_rtcp(io.out, self.ssrc, |buf| rtcp::write_receiver_report(buf, self.ssrc, blocks));
    }

    /// Adds how the tracks stand.
    pub fn add_stats(&self, stats: &mut SessionStats) {
        stats.packets_without_layer = self.sources.iter().map(|source| source.layers.unknown()).sum();
        stats.loss = self.sources.iter().map(|source| source.receiver.loss()).fold(stats.loss, f32::max);
    }

    /// The source of a packet, and whether the packet is a retransmission. An unknown SSRC is looked up by its MID and
    /// RID (RFC 8843 §9.2, RFC 8852) or, without those, by its payload type.
    fn source_of(
        &mut self,
        now: Instant,
        packet: &RtpPacket<'_>,
        streams: &Slab<Stream>,
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
        let up = self.track_of(packet).filter(|up| !self.tracks[*up].spec.other_ssrcs.contains(&ssrc));
        let up = up.ok_or(DropReason::UnknownSsrc)?;
        let UpTrack { stream, spec, .. } = &self.tracks[up];
        let (stream, is_rtx) = (&streams[*stream], spec.rtx_payload_type == Some(packet.payload_type()));
        let rids = &stream.tracks[usize::from(spec.track)].spec.rids;
        let id = if is_rtx { spec.extensions.repaired_rid } else { spec.extensions.rid };
        let layer = match id.and_then(|id| packet.extension(id)) {
            Some(name) => rids.iter().position(|rid| rid.as_bytes() == name).ok_or(DropReason::UnknownSsrc)?,
            None if rids.len() <= 1 => 0,
            None => return Err(DropReason::UnknownSsrc),
        } as u8;
        let known = self.sources.iter().position(|source| (source.up, source.layer) == (up, layer));
        match (known, is_rtx) {
            (Some(index), true) => self.sources[index].rtx_ssrc = Some(ssrc),
            (Some(index), false) if self.sources[index].is_heard(now) => return Err(DropReason::UnknownSsrc),
            // The publisher restarted the layer under a new SSRC.
            (Some(index), false) => {
                let epoch = self.next_epoch();
                let source = &mut self.sources[index];
                let receiver = Receiver::new(now, ssrc, source.codec);
                *source = Source { ssrc, epoch, receiver, layers: Layers::default(), heard_at: None, ..*source };
            }
            (None, true) => return Err(DropReason::UnknownSsrc),
            (None, false) => self.add_source(now, ssrc, None, up, layer, stream),
        }
        let index = self.sources.iter().position(|source| (source.up, source.layer) == (up, layer));
        index.map(|index| (index, is_rtx)).ok_or(DropReason::UnknownSsrc)
    }

    /// Index of the track that a packet of an unknown SSRC belongs to.
    fn track_of(&self, packet: &RtpPacket<'_>) -> Option<usize> {
        let by_mid = self.tracks.iter().position(|up| {
            let mid = up.spec.extensions.mid.and_then(|id| packet.extension(id));
            mid == Some(up.spec.mid.as_bytes())
        });
        let payload_type = packet.payload_type();
        let takes = |spec: &UpTrackSpec| {
            spec.payload_type == payload_type
                || [spec.rtx_payload_type, spec.red_payload_type].contains(&Some(payload_type))
        };
        by_mid.or_else(|| {
            let mut fitting = (0..self.tracks.len()).filter(|up| takes(&self.tracks[*up].spec));
            fitting.next().filter(|_| fitting.next().is_none())
        })
    }

    fn add_source(&mut self, now: Instant, ssrc: u32, rtx_ssrc: Option<u32>, up: usize, layer: u8, stream: &Stream) {
        let track = &stream.tracks[usize::from(self.tracks[up].spec.track)];
        if usize::from(layer) >= track.layers.len() {
            return;
        }
        let (epoch, codec, layers) = (self.next_epoch(), track.spec.codec, Layers::default());
        let receiver = Receiver::new(now, ssrc, codec);
        let (heard_at, clocks) = (None, Budget::new(now));
        self.sources.push(Source { ssrc, rtx_ssrc, up, layer, epoch, codec, receiver, layers, heard_at, clocks });
    }

    fn next_epoch(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch
    }
}

impl Source {
    /// Takes the redundancy off a packet that has some (RFC 2198), after what was lost is taken from it. Returns the payload
    /// of its own: viewers are given redundancy of ours, as each needs it.
    ///
    /// # Errors
    /// When it cannot be read, or is of something else than the track's codec.
    fn undo_redundancy<'a>(
        &mut self,
        packet: &RtpPacket<'a>,
        up: &UpTrack,
        io: &mut Io<'_>,
    ) -> Result<&'a [u8], DropReason> {
        let red = Red::parse(packet.payload()).filter(|red| red.payload_type == up.spec.payload_type);
        let red = red.ok_or(DropReason::MalformedRed)?;
        let count = red.redundant().len();
        for (block, back) in red.redundant().zip((1..=count).rev()).filter(|(_, back)| *back <= RECOVERED_MAX) {
            let seq = packet.seq().plus((back as u16).wrapping_neg());
            let timestamp = packet.timestamp().wrapping_sub(block.offset);
            let is_media = block.payload_type == up.spec.payload_type && !block.payload.is_empty();
            if !is_media || !self.receiver.misses(seq, timestamp) {
                continue;
            }
            let Ok(seq) = self.receiver.on_packet(io.now, seq, timestamp, true) else { continue };
            let payload = self.layers.inspect(self.codec, seq, block.payload, None);
            let meta = PacketMeta { seq, timestamp, arrival: io.now, marker: false, payload };
            let start = LayerStart { track: up.spec.track, layer: self.layer, epoch: self.epoch };
            io.streams[up.stream].push(start, &meta, &[], block.payload, io.posts);
            io.counters.packets_recovered += 1;
        }
        Ok(red.primary)
    }

    fn is_heard(&self, now: Instant) -> bool {
        self.heard_at.is_some_and(|at| now.saturating_duration_since(at) < SILENCE)
    }
}

impl UpTrack {
    /// What is added to the frame numbers of dependency descriptors, of which this one may be the first.
    fn frame_shift(&mut self, descriptor: Option<&[u8]>, stream: &Stream) -> u16 {
        if let Some([_, high, low, ..]) = descriptor {
            let first = u16::from_be_bytes([*high, *low]);
            self.frame_shift.get_or_insert_with(|| frame_shift(stream, self.spec.track, first));
        }
        self.frame_shift.unwrap_or(0)
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
