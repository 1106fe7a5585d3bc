//! One track on its way to one viewer: a place in the track's log, and the numbers under which the viewer knows it.

mod mid;
mod noted;
mod padding;
mod starts;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use slab::Slab;
use wire::codec::{self, Codec, MediaKind, PictureNumbers};
use wire::rtcp::ReportBlock;
use wire::rtp::{self, HeaderWriter, RtpHeader};
use wire::{Bitrate, Random, Seq};

use self::mid::MidShown;
use self::noted::Noted;
use self::starts::is_unseen;
use crate::drops::{DropCounters, DropReason};
use crate::former::Former;
use crate::forward::{Forwarded, Forwarder};
use crate::io::Io;
use crate::keyframe::{ASK_AGAIN, KeyframeBudget, LayerKey, Request, Urgency};
use crate::layer_choice::LayerChoice;
use crate::layer_limit::Limit;
use crate::log::{Log, Logged};
use crate::passthrough;
use crate::redundancy::{self, Redundancy};
use crate::reports::{self, Losses};
use crate::sent::{Sent, SentLayer, SentPackets};
use crate::settings::Settings;
use crate::spec::{DownTrackSpec, LayerLimit};
use crate::stream::{Place, Stream, Track};
use crate::transport::Transport;

/// A packet is sent again no sooner than the round trip after the last time, within these bounds.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// The round trip as long as none was measured.
const RTT_ASSUMED: Duration = Duration::from_millis(20);

/// A down track: one track of a stream, as one peer receives it.
#[derive(Debug)]
pub struct DownTrack {
    /// Key of the stream on this worker.
    pub stream: usize,
    /// Sound or picture.
    pub kind: MediaKind,
    codec: Codec,
    /// As it was negotiated.
    pub spec: DownTrackSpec,
    /// The running numbers.
    pub forwarder: Forwarder,
    /// Where in the log of the current layer the next packet stands.
    position: u64,
    /// The log's epoch at the switch to the current layer.
    epoch: u32,
    /// The layer before, where something of it was missing.
    former: Option<Box<Former>>,
    /// What is to be sent, by the estimate and by what the viewer asked for.
    pub choice: LayerChoice,
    /// What the viewer may get at most.
    pub limit: Limit,
    /// Whether that was chosen since something of the track came.
    pub is_chosen: bool,
    /// The layer to be on.
    target: u8,
    /// Nothing is sent for now, because it was chosen or because it is held.
    is_paused: bool,
    is_held: bool,
    /// What was told of its pauses for want of bandwidth.
    is_told_of_pause: bool,
    /// A pause is over, and no keyframe has come since from which the picture goes on.
    resumes: bool,
    /// See `Settings`.
    keyframe_age_max: Duration,
    /// Keyframes that came before this are of no use: the viewer has seen later pictures already.
    not_before: Instant,
    asked_at: Option<Instant>,
    /// What the peer may ask for by itself.
    keyframes: KeyframeBudget,
    /// When the peer last said what it takes at most of it, and of those that it named with it; zero where another has that.
    pub takes: Option<(Instant, Bitrate)>,
    redundancy: Redundancy,
    losses: Losses,
    /// So many packets are repeated in each now.
    repeated: u8,
    sent: SentPackets,
    rtx_seq: u64,
    /// When the packets leave that are being written, as the header extension has it.
    send_time: [u8; 3],
    /// Packets sent under the SSRC, as sender reports have it; wraps.
    pub packet_count: u32,
    /// Bytes of their payloads; wraps.
    pub octet_count: u32,
    packets: u64,
    mid: MidShown,
    /// The number before the first one.
    before_first: u64,
    /// `packet_count` at the last call of `follow_rate`.
    packet_count_then: u32,
    /// Packets of the log that this viewer never got, because it was too slow.
    pub skipped: u64,
    /// Elsewhere in memory: nobody needs it but once a second.
    noted: Box<Noted>,
}

/// How far sending came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything is written.
    Done,
    /// The outbox is full; more waits.
    Full,
    /// The burst is spent; more waits until then.
    Later(Instant),
}

/// Why a packet is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The peer asked for it.
    Lost,
    /// To find out what its path carries, however often.
    Probe,
}

/// The next packet for the viewer, with its numbers given.
pub struct Next<'a> {
    /// As it was stored, or as padding.
    pub logged: Logged<'a>,
    /// Its numbers.
    pub forwarded: Forwarded,
    /// Of the track.
    pub layer: u8,
    /// In the layer's log.
    pub position: u64,
}

impl<'a> Next<'a> {
    /// A packet as it was stored, which goes out as padding when the viewer has no use for more.
    #[inline(always)]
    pub fn new(stored: Logged<'a>, forwarded: Forwarded, layer: u8, position: u64) -> Self {
        let logged = if forwarded.is_padding { stored.emptied() } else { stored };
        Next { logged, forwarded, layer, position }
    }
}

impl DownTrack {
    /// Begins at the best layer, as soon as a keyframe of it is there.
    pub fn new(
        now: Instant,
        stream: usize,
        spec: DownTrackSpec,
        track: &Track,
        settings: &Settings,
        random: &mut Random,
    ) -> Self {
        let first = random.next_u64();
        let redundancy = Redundancy::new(now, spec.red.is_some_and(|red| red.is_preferred));
        let forwarder = Forwarder::new(track.spec.codec.clock_rate(), first as u16 & 0x7fff, (first >> 16) as u32);
        let before_first = forwarder.last_number();
        DownTrack {
            stream,
            kind: track.spec.codec.kind(),
            codec: track.spec.codec,
            spec,
            forwarder,
            position: 0,
            epoch: 0,
            former: None,
            choice: LayerChoice::new(track, settings.pause && track.spec.codec.kind() == MediaKind::Video),
            limit: Limit::new(now, LayerLimit::NONE),
            is_chosen: false,
            is_paused: false,
            is_held: false,
            is_told_of_pause: false,
            resumes: false,
            keyframe_age_max: settings.keyframe_age_max,
            target: track.order.top(),
            not_before: now.checked_sub(settings.keyframe_age_max).unwrap_or(now),
            asked_at: None,
            keyframes: KeyframeBudget::new(now),
            repeated: redundancy.blocks(Bitrate::ZERO, None, false),
            redundancy,
            takes: None,
            losses: Losses::new(before_first),
            sent: SentPackets::new(track.spec.codec.kind()),
            send_time: [0; 3],
            rtx_seq: (1 << 16) + (first >> 49),
            packet_count: 0,
            octet_count: 0,
            packets: 0,
            mid: MidShown::new(),
            before_first,
            packet_count_then: 0,
            skipped: 0,
            noted: Box::new(Noted::new(now)),
        }
    }

    /// Asks for where its next packets are taken note of.
    #[inline]
    pub fn prefetch_sent(&self) {
        self.sent.prefetch();
    }

    /// The layer that is sent now.
    pub fn current(&self) -> Option<u8> {
        self.forwarder.current()
    }

    /// Whether its packets carry transport-wide numbers: each section has the extension, or not.
    fn is_numbered(&self) -> bool {
        self.spec.extensions.transport_cc.is_some()
    }

    /// Whether its packets may be sent again and are heard of.
    pub fn can_probe(&self) -> bool {
        self.spec.rtx.is_some() && self.is_numbered()
    }

    /// Takes a report. Returns the share of what was sent that the path lost, in 256ths, when it is time to tell. Of the packets
    /// that are on their way no more than `room` are looked at, which it takes its part from.
    pub fn on_report(&mut self, now: Instant, block: &ReportBlock, room: &mut usize) -> Option<u8> {
        self.mid.on_report();
        let last = self.forwarder.last_seq()?;
        let on_its_way = (last as u16).wrapping_sub(block.highest_seq as u16);
        let highest = last.checked_sub(on_its_way.into())?;
        let holes = (last - self.before_first).saturating_sub(self.packets);
        let fraction_lost =
            self.losses.on_report(highest, block.fraction_lost, holes, || self.sent.holes(highest + 1..=last, room))?;
        if self.spec.red.is_some() {
            self.redundancy.on_report(now, fraction_lost);
        }
        Some(fraction_lost)
    }

    /// Repeats as much of sound as its loss needs and the path carries.
    pub fn choose_redundancy(&mut self, track: &Track, transport: &Transport, now: Instant) {
        let (carried, is_held) = (transport.delay_estimate(), transport.is_held_by_delay(now));
        self.repeated = self.redundancy.blocks(track.rate(0, now), carried, is_held);
    }

    /// What it takes on the wire now, in the layer that is or will be sent.
    pub fn rate(&self, streams: &Slab<Stream>, now: Instant) -> Bitrate {
        let track = self.track(streams);
        let rank = self.current_rank(track).unwrap_or_else(|| track.rank_of(self.choice.place));
        Bitrate::from_bps(track.rate(rank, now).bps() * (1 + u64::from(self.repeated)))
    }

    /// Chooses the layer to be on; the switch happens at that layer's next keyframe.
    fn set_target(&mut self, layer: u8) {
        if self.target == layer {
            return;
        }
        self.choice.place.layer = layer;
        self.target = layer;
        self.asked_at = None;
    }

    /// Does what was chosen: at once, at the next picture, or at the next keyframe.
    pub fn follow_choice(&mut self, now: Instant) {
        let Place { layer, spatial_max } = self.choice.place;
        self.forwarder.set_temporal_max(self.choice.temporal_max());
        self.forwarder.set_spatial_max(spatial_max);
        self.set_target(layer);
        self.follow_pause(now);
    }

    fn follow_pause(&mut self, now: Instant) {
        if (self.choice.is_paused() || self.is_held) != self.is_paused {
            self.is_paused = !self.is_paused;
            self.resumes = !self.is_paused;
            // After a pause the viewer is as a newcomer, but for what it has seen (`last_arrival`).
            (self.not_before, self.asked_at) = (now.checked_sub(self.keyframe_age_max).unwrap_or(now), None);
            self.forwarder.stop();
        }
    }

    /// Takes what the viewer may get at most.
    pub fn set_limit(&mut self, now: Instant, limit: LayerLimit) {
        self.limit.wish(now, limit);
        self.choice.set_temporal_limit(limit.temporal_max);
    }

    /// Sends nothing for now, or goes on.
    pub fn hold(&mut self, now: Instant, on: bool) {
        if self.is_held != on {
            self.is_held = on;
            self.is_chosen &= on;
            self.follow_pause(now);
        }
    }

    /// Whether it has begun to pause for want of bandwidth since this was asked last (true), or has ended that.
    pub fn take_pause(&mut self) -> Option<bool> {
        let is_paused = self.choice.is_paused();
        (std::mem::replace(&mut self.is_told_of_pause, is_paused) != is_paused).then_some(is_paused)
    }

    /// Whether nothing is sent because nothing is to be.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// What is sent now, by its rank; `None` when nothing is.
    pub fn current_rank(&self, track: &Track) -> Option<u8> {
        self.current().map(|layer| track.rank_of(Place { layer, spatial_max: self.forwarder.spatial() }))
    }

    /// Wishes for a keyframe when this track can only go on or switch with one, and it is time to ask for it.
    pub fn wish_for_keyframe(&mut self, io: &mut Io<'_>) {
        let waits_for_spatial = self.forwarder.waits_for_spatial();
        let waits = self.kind == MediaKind::Video
            && !self.is_paused
            && (self.current() != Some(self.target) || waits_for_spatial);
        let asked = self.asked_at.is_some_and(|at| io.now.duration_since(at) < ASK_AGAIN);
        if waits && !asked {
            self.asked_at = Some(io.now);
            io.wishes.add(self.layer_key(self.target), self.urgency(self.track(io.streams)));
        }
    }

    /// How soon the keyframe is needed that it waits for. Who has had no picture for seconds can wait for a keyframe a little
    /// longer: each try after a pause would be one for everybody.
    fn urgency(&self, track: &Track) -> Urgency {
        let rank = |layer| track.order.rank(layer);
        let can_wait = match self.current().map(|current| rank(current).cmp(&rank(self.target))) {
            None => self.resumes,
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) => self.forwarder.waits_for_spatial(),
            Some(Ordering::Greater) => false,
        };
        if can_wait { Urgency::CanWait } else { Urgency::Now }
    }

    /// Takes the peer's wish for a keyframe of the layer that it gets: unless one is on its way, and within its budget.
    pub fn on_keyframe_request(&mut self, rtt: Option<Duration>, io: &mut Io<'_>) {
        let Some(current) = self.current() else { return };
        let Some(layer) = self.track(io.streams).layers.get(usize::from(current)) else { return };
        let (log, came_at) = (&layer.log, layer.keyframes.came_at());
        let newest = log.keyframe().filter(|_| log.epoch() == self.epoch);
        if newest.is_some_and(|position| position >= self.position) || is_unseen(io.now, rtt, came_at) {
            return;
        }
        match self.keyframes.request(io.now, came_at) {
            Request::Passed => io.wishes.add(self.layer_key(current), Urgency::Now),
            Request::Repeated => {}
            Request::Refused => io.counters.drops.add(DropReason::KeyframeBudgetSpent),
        }
    }

    fn layer_key(&self, layer: u8) -> LayerKey {
        LayerKey { stream: self.stream, track: self.spec.track, layer }
    }

    /// The track of the stream that it is a copy of.
    pub fn track<'a>(&self, streams: &'a Slab<Stream>) -> &'a Track {
        &streams[self.stream].tracks[usize::from(self.spec.track)]
    }

    /// Writes the packets that the peer has not had yet, until the outbox is full or the burst is spent.
    // By itself it gets the processor's registers for its loop; within its callers a packet costs 14 instructions more.
    #[inline(never)]
    pub fn send(&mut self, transport: &mut Transport, io: &mut Io<'_>) -> Progress {
        let Io { now, streams, settings, counters, out, .. } = io;
        let (now, track) = (*now, self.track(streams));
        self.update(now, track);
        if !self.is_behind(track) {
            return Progress::Done;
        }
        let budget = match self.kind {
            // It is little, and is heard when it is late: it counts, and is not held back, as in libwebrtc's pacing controller.
            MediaKind::Audio => usize::MAX,
            MediaKind::Video => match transport.pacer.budget(now) {
                Ok(budget) => budget,
                Err(at) => return Progress::Later(at),
            },
        };
        self.note_send_time(now, settings);
        let (mut sent, mut count) = (0, 0);
        let end = loop {
            if sent > budget {
                break None;
            }
            let Some(slot) = out.slot() else { break Some(Progress::Full) };
            let Some(next) = self.next(now, track, &mut counters.drops) else { break Some(Progress::Done) };
            let redundant = if self.repeated == 0 { None } else { self.write_redundant(slot, &next, track, transport) };
            let len = match redundant {
                None => self.write(slot, &next, transport),
                Some(len) => {
                    counters.packets_redundant += 1;
                    len
                }
            };
            if len == 0 {
                counters.drops.add(DropReason::DatagramTooLarge);
                continue;
            }
            transport.commit(now, len, self.is_numbered(), out);
            sent += len;
            count += 1;
        };
        transport.on_sent(now, count, sent, settings);
        counters.packets_out += count;
        // Without an end the burst is spent, and the next begins when all of it is through.
        end.unwrap_or_else(|| Progress::Later(transport.pacer.free_at(now)))
    }

    /// Sends a packet again that the peer lost or that probes its path. Returns its size on the wire; `None` when it is not
    /// sent (see `write_again`).
    pub fn send_again(&mut self, seq: u16, again: Again, transport: &mut Transport, io: &mut Io<'_>) -> Option<usize> {
        self.note_send_time(io.now, io.settings);
        let slot = io.out.slot()?;
        let len = self.write_again(slot, seq, again, self.track(io.streams), transport, io.now)?;
        transport.commit(io.now, len, self.is_numbered(), io.out);
        transport.on_resent(io.now, len);
        io.counters.packets_resent += 1;
        Some(len)
    }

    fn note_send_time(&mut self, now: Instant, settings: &Settings) {
        if self.spec.extensions.abs_send_time.is_some() {
            let [_, _, _, _, _, high, middle, low] = (reports::ntp_time(now, settings.ntp_epoch) >> 14).to_be_bytes();
            self.send_time = [high, middle, low];
        }
    }

    /// The next packet that has a place in the output; those before it that have none are counted.
    #[inline(always)]
    fn next<'a>(&mut self, now: Instant, track: &'a Track, drops: &mut DropCounters) -> Option<Next<'a>> {
        loop {
            let layer = self.current()?;
            let log = &track.layers.get(usize::from(layer))?.log;
            if self.position >= log.head() {
                return self.next_late(now, track);
            }
            let Some(logged) = log.at(self.position).filter(|_| log.epoch() == self.epoch) else {
                self.fall_out(now, log);
                return None;
            };
            let position = self.position;
            self.position += 1;
            match self.forwarder.forward(logged.meta) {
                // No number goes out twice, whatever came in: with AES-GCM it would give the key away (RFC 7714 §10.1).
                Ok(forwarded) if self.sent.has(forwarded.seq) => drops.add(DropReason::Duplicate),
                Ok(forwarded) => return Some(Next::new(logged, forwarded, layer, position)),
                Err(reason) => drops.add(reason),
            }
        }
    }

    /// The next packet of the layer before that was missing when it was left.
    #[inline(never)]
    fn next_late<'a>(&mut self, now: Instant, track: &'a Track) -> Option<Next<'a>> {
        if self.former.as_ref()?.is_over(now, track) {
            self.former = None;
        }
        let former = self.former.as_mut()?;
        std::iter::from_fn(|| former.next(track)).find(|next| !self.sent.has(next.forwarded.seq))
    }

    /// Whether packets wait for this track in the logs that it reads.
    fn is_behind(&self, track: &Track) -> bool {
        let Some(layer) = self.current() else { return false };
        let is_behind = track.layers.get(usize::from(layer)).is_some_and(|layer| self.position < layer.log.head());
        is_behind || self.former.as_ref().is_some_and(|former| former.is_behind(track))
    }

    /// Writes and seals a packet into `slot`. Returns its size on the wire, 0 when it does not fit.
    #[inline(always)] // into `send`, of which it is the most, and which alone calls it
    fn write(&mut self, slot: &mut [u8], next: &Next<'_>, transport: &Transport) -> usize {
        let Next { logged, forwarded, .. } = next;
        let Some(header_len) = self.write_new_header(slot, next, self.spec.payload_type, transport) else { return 0 };
        let payload_end = header_len + logged.payload.len();
        let padded_end = header_len + logged.padded_len.max(usize::from(logged.payload.is_empty()));
        if padded_end + transport.sealer.rtp_overhead() > slot.len() {
            return 0;
        }
        self.remember(next, logged.payload.len());
        let rewrite =
            forwarded.picture.filter(|rewrite| !rewrite.changes_nothing(logged.meta.payload.picture.as_ref()));
        if rewrite.is_none() && padded_end == payload_end {
            return transport.sealer.seal_rtp_from(slot, header_len, logged.payload, self.spec.ssrc, forwarded.seq);
        }
        let payload = &mut slot[header_len..payload_end];
        payload.copy_from_slice(logged.payload);
        if let Some(rewrite) = &rewrite {
            codec::rewrite(self.codec, payload, rewrite.picture_id, rewrite.tl0_pic_idx);
        }
        let len = rtp::pad(slot, payload_end, padded_end);
        transport.sealer.seal_rtp(slot, header_len, len, self.spec.ssrc, forwarded.seq)
    }

    /// The same of a packet with those before it once more (RFC 2198). `None` when it goes by itself: it is empty, they do not
    /// fit, or the peer takes no such.
    #[cold]
    fn write_redundant(
        &mut self,
        slot: &mut [u8],
        next: &Next<'_>,
        track: &Track,
        transport: &Transport,
    ) -> Option<usize> {
        let Next { logged, forwarded, layer, position } = next;
        let red = self.spec.red.filter(|_| !logged.payload.is_empty())?;
        let log = &track.layers.get(usize::from(*layer))?.log;
        let header_len = self.write_new_header(slot, next, red.payload_type, transport)?;
        let payload = slot.get_mut(header_len..slot.len() - transport.sealer.rtp_overhead())?;
        let packet = (*position, logged);
        let payload_len = redundancy::write(payload, log, packet, self.spec.payload_type, self.repeated)?;
        self.remember(next, payload_len);
        Some(transport.sealer.seal_rtp(slot, header_len, header_len + payload_len, self.spec.ssrc, forwarded.seq))
    }

    /// Writes a packet that was sent before into `slot` as its retransmission (RFC 4588 §4).
    ///
    /// `None` when it is not known any more, was lost and sent again lately, or the viewer takes no RTX. A retransmission under the
    /// original number would need the same bytes: another header under the same nonce breaks GCM (RFC 7714 §8).
    ///
    /// Lately is within the pause, and when the budget is short also within half of the packet's age, so that the pauses
    /// double. Some receivers (pion's) go on asking for what they have got by RTX, each time before what is newly lost.
    fn write_again(
        &mut self,
        slot: &mut [u8],
        seq: u16,
        again: Again,
        track: &Track,
        transport: &Transport,
        now: Instant,
    ) -> Option<usize> {
        let (rtx_ssrc, rtx_payload_type) = self.spec.rtx?;
        let sent = self.sent.get(seq)?;
        let log = &track.layers.get(usize::from(sent.layer.layer()))?.log;
        let stored = log.at(log.position_of(sent.position))?;
        let logged = if sent.layer.is_padding() { stored.emptied() } else { stored };
        let mut pause = transport.rtt.unwrap_or(RTT_ASSUMED).clamp(PAUSE_MIN, PAUSE_MAX);
        if transport.resend.is_short() {
            pause = pause.max(now.saturating_duration_since(logged.meta.arrival) / 2);
        }
        let now_ms = transport.age_ms(now);
        let since = Duration::from_millis(now_ms.wrapping_sub(sent.resent_at_ms).into());
        if again == Again::Lost && sent.resent_at_ms != 0 && since < pause {
            return None;
        }
        let header = RtpHeader {
            payload_type: rtx_payload_type,
            marker: sent.layer.marker(),
            seq: Seq(self.rtx_seq as u16),
            timestamp: sent.timestamp,
            ssrc: rtx_ssrc,
        };
        let header_len = self.write_header(slot, &header, logged.extensions, transport.transport_seq, true)?;
        let len = header_len + 2 + logged.payload.len();
        if len + transport.sealer.rtp_overhead() > slot.len() {
            return None;
        }
        slot[header_len..header_len + 2].copy_from_slice(&seq.to_be_bytes());
        let payload = &mut slot[header_len + 2..len];
        payload.copy_from_slice(logged.payload);
        if let Some(PictureNumbers { picture_id, tl0_pic_idx, .. }) = logged.meta.payload.picture {
            let (picture_id, tl0) = (picture_id.map(|_| sent.picture_id), tl0_pic_idx.map(|_| sent.tl0_pic_idx));
            codec::rewrite(self.codec, payload, picture_id, tl0);
        }
        self.sent.on_resent(seq, now_ms);
        let rtx_seq = self.rtx_seq;
        self.rtx_seq += 1;
        Some(transport.sealer.seal_rtp(slot, header_len, len, rtx_ssrc, rtx_seq))
    }

    /// The number of the last packet sent, for probes that send it again.
    pub fn last_sent(&self, back: u16) -> u16 {
        (self.forwarder.last_seq().unwrap_or(0) as u16).wrapping_sub(back)
    }

    /// Remembers as many packets as go out, and shows the MID again. Comes once a second.
    pub fn follow_rate(&mut self) {
        self.mid.follow(self.packets);
        self.sent.follow(self.packet_count.wrapping_sub(self.packet_count_then));
        self.packet_count_then = self.packet_count;
    }

    #[inline(always)]
    fn write_new_header(
        &self,
        slot: &mut [u8],
        next: &Next<'_>,
        payload_type: u8,
        transport: &Transport,
    ) -> Option<usize> {
        let Next { logged, forwarded, .. } = next;
        let header = RtpHeader {
            payload_type,
            marker: forwarded.marker,
            seq: Seq(forwarded.seq as u16),
            timestamp: forwarded.timestamp,
            ssrc: self.spec.ssrc,
        };
        self.write_header(slot, &header, logged.extensions, transport.transport_seq, self.mid.goes_with(self.packets))
    }

    fn write_header(
        &self,
        slot: &mut [u8],
        header: &RtpHeader,
        extensions: &[u8],
        transport_seq: u16,
        with_mid: bool,
    ) -> Option<usize> {
        let ids = &self.spec.extensions;
        let mut writer = HeaderWriter::new(slot, header)?;
        if let Some(id) = ids.transport_cc {
            writer.extension(id, &transport_seq.to_be_bytes());
        }
        if let Some(id) = ids.abs_send_time {
            writer.extension(id, &self.send_time);
        }
        if with_mid && let Some(id) = ids.mid {
            writer.extension(id, self.spec.mid.as_bytes());
        }
        if !extensions.is_empty() {
            passthrough::scatter(extensions, ids, &mut writer);
        }
        Some(writer.finish())
    }

    /// Takes note of a packet that goes out for the first time.
    #[inline(always)] // as `write`
    fn remember(&mut self, next: &Next<'_>, payload_len: usize) {
        self.packets += 1;
        self.packet_count = self.packet_count.wrapping_add(1);
        self.octet_count = self.octet_count.wrapping_add(payload_len as u32);
        let picture = next.forwarded.picture.unwrap_or_default();
        let sent = Sent {
            position: next.position as u32,
            timestamp: next.forwarded.timestamp,
            seq: next.forwarded.seq as u16,
            resent_at_ms: 0,
            picture_id: picture.picture_id.unwrap_or(0),
            tl0_pic_idx: picture.tl0_pic_idx.unwrap_or(0),
            layer: SentLayer::new(next.layer, next.forwarded.marker, next.forwarded.is_padding),
        };
        self.sent.insert(next.forwarded.seq, sent);
    }

    /// The place in the log is overwritten, because the viewer was too slow, or the publisher started anew: the track goes
    /// on at a keyframe.
    fn fall_out(&mut self, now: Instant, log: &Log) {
        if log.epoch() == self.epoch {
            self.skipped += log.head() - self.position;
            self.not_before = now;
        }
        self.forwarder.stop();
        self.asked_at = None;
    }
}
