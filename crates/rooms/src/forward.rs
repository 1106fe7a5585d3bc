//! Renumbers a track for one viewer, so that dropped and switched layers leave no hole.
//!
//! In: packets of the chosen layer in arrival order: some lost, some late.
//! Out: the same packets renumbered, or the `DropReason` of one that has no place in the output.
//! Cost: O(1) and no allocation per packet; 192 bytes per down track.
//! Source: RFC 3550 §5.1 (header fields), RFC 7667 §3.7 (selective forwarding middlebox), RFC 7741 (VP8), RFC 9628 (VP9).
//!
//! A packet that the publisher's network lost stays a hole in the output, too: the viewer asks for it, and when it
//! comes late it gets the number that was kept for it, also when its layer was left meanwhile (`Kept`). No number is ever
//! given to two packets.

mod numbers;
mod pictures;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
mod timeline;

use std::ops::Range;
use std::time::Instant;

use crate::drops::DropReason;
use crate::packet::{PacketMeta, SenderClock};
use numbers::Numbers;
pub use pictures::PictureRewrite;
use pictures::Pictures;
use timeline::Timeline;

/// What a packet is called in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Extended sequence number; the first of a down track is in 65,536..131,072.
    pub seq: u64,
    /// In clock-rate units.
    pub timestamp: u32,
    /// As it came, but for the last packet of the highest spatial layer that goes out (RFC 9628 §4.1).
    pub marker: bool,
    /// What to write into a VP8 or VP9 payload descriptor.
    pub picture: Option<PictureRewrite>,
    /// The viewer would have no use for what the packet holds: only its number goes out, which it may be asking for.
    pub is_padding: bool,
}

/// The publisher's clocks of the layer that is left and the one that is switched to, where known.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwitchClocks {
    /// Of the layer that is left.
    pub from: Option<SenderClock>,
    /// Of the layer that is switched to.
    pub to: Option<SenderClock>,
}

/// One down track's choice of layers, and its running numbers.
#[derive(Debug)]
pub struct Forwarder {
    row: Row,
    timeline: Timeline,
    current: Option<u8>,
    /// The layer of the last `switch`.
    last_layer: Option<u8>,
    temporal_max: u8,
    /// The highest temporal layer that the viewer can decode now; reaches `temporal_max` at the next chance.
    temporal: u8,
    /// Highest of the spatial layers that share an SSRC.
    spatial_max: u8,
}

/// How one layer's numbers become the output's, since the last switch.
#[derive(Clone, Debug)]
struct Row {
    numbers: Numbers,
    pictures: Pictures,
    last: LastPacket,
    /// The highest spatial layer that goes out; reaches `spatial_max` at the next keyframe.
    spatial: u8,
    /// The same before `spatial_since`, for what comes late of that time.
    spatial_before: u8,
    /// The incoming number of the first packet for which `spatial` counts.
    spatial_since: u64,
    /// The spatial layers of a picture are of different temporal layers (L2T2_KEY_SHIFT and the like).
    is_shifted: bool,
}

/// The numbers of a layer that was left, which are kept for what was missing of it then.
#[derive(Debug)]
pub struct Kept {
    row: Row,
    timestamp_shift: u32,
}

/// The packet with the highest incoming number, which may have been dropped.
#[derive(Clone, Copy, Debug, Default)]
struct LastPacket {
    timestamp: u32,
    marker: bool,
    /// Of the first packet of its picture.
    temporal_id: u8,
    /// Its picture is left out, with all spatial layers.
    left_out: bool,
    /// It was left out itself.
    dropped: bool,
    /// It was the last packet of its picture that goes out.
    ended: bool,
    /// False right after a switch.
    known: bool,
}

impl Forwarder {
    /// `first_seq` and `first_timestamp` should be random (RFC 3550 §5.1).
    pub fn new(clock_rate: u32, first_seq: u16, first_timestamp: u32) -> Self {
        Forwarder {
            row: Row {
                numbers: Numbers::new((1 << 16) + u64::from(first_seq)),
                pictures: Pictures::default(),
                last: LastPacket::default(),
                spatial: u8::MAX,
                spatial_before: u8::MAX,
                spatial_since: 0,
                is_shifted: false,
            },
            timeline: Timeline::new(clock_rate, first_timestamp),
            current: None,
            last_layer: None,
            temporal_max: u8::MAX,
            temporal: u8::MAX,
            spatial_max: u8::MAX,
        }
    }

    /// Limits the temporal layers. Down at the next frame; up at the next one that says so, or at a keyframe.
    pub fn set_temporal_max(&mut self, temporal_max: u8) {
        self.temporal_max = temporal_max;
    }

    /// Limits the spatial layers that share an SSRC. Down at the next picture whose first packet is there, up at a keyframe:
    /// elsewhere nobody knows at the end of a layer, where the marker may have to stand, whether the next one can be taken up
    /// in this picture.
    pub fn set_spatial_max(&mut self, spatial_max: u8) {
        self.spatial_max = spatial_max;
    }

    /// Whether a keyframe would bring larger pictures.
    pub fn waits_for_spatial(&self) -> bool {
        self.row.spatial < self.spatial_max
    }

    /// The highest spatial layer that goes out.
    pub fn spatial(&self) -> u8 {
        self.row.spatial
    }

    /// Starts to forward `layer` at `packet`, which starts a keyframe (any packet will do for audio). The packet itself
    /// and what comes after it then go through `forward`.
    ///
    /// Going on with the same layer after a pause, or after `stop`, is a switch, too.
    pub fn switch(&mut self, layer: u8, packet: &PacketMeta, clocks: SwitchClocks) {
        self.row.numbers.switch(packet.seq);
        self.timeline.switch(packet, self.last_layer == Some(layer), clocks);
        if let Some(numbers) = &packet.payload.picture {
            self.row.pictures.switch(numbers);
        }
        self.temporal = self.temporal_max;
        (self.row.spatial, self.row.spatial_since) = (self.spatial_max, packet.seq);
        (self.row.last.known, self.row.is_shifted) = (false, false);
        self.current = Some(layer);
        self.last_layer = Some(layer);
    }

    /// Number and timestamp of a packet without content, which goes out before the first that comes. That one goes on behind it.
    pub fn pad(&mut self, now: Instant) -> (u64, u32) {
        debug_assert!(self.last_layer.is_none(), "later numbers stand for what came");
        (self.row.numbers.pad(), self.timeline.pad(now))
    }

    /// Forwards nothing until the next `switch`, which goes on from here.
    pub fn stop(&mut self) {
        self.current = None;
    }

    /// Renumbers a packet of the current layer. Each packet comes here once.
    ///
    /// # Errors
    /// When it has no place in the output.
    pub fn forward(&mut self, packet: &PacketMeta) -> Result<Forwarded, DropReason> {
        if self.current.is_none() {
            return Err(DropReason::NotForwarding);
        }
        if self.row.numbers.is_late(packet.seq) {
            return self.forward_late(packet);
        }
        let last = self.row.last;
        let is_of_last = last.known && packet.timestamp == last.timestamp;
        let left_out = if is_of_last { last.left_out } else { !self.admits(packet) };
        let temporal_id = if is_of_last { last.temporal_id } else { packet.payload.temporal_id };
        self.row.is_shifted |= packet.payload.spatial_id > 0 && packet.payload.temporal_id != temporal_id;
        let dropped = left_out || packet.payload.spatial_id > self.row.spatial;
        if self.gap_is_dropped(packet, left_out, dropped) {
            self.row.numbers.drop_before(packet.seq);
        }
        let (timestamp, marker) = (packet.timestamp, self.row.is_last(packet));
        let ended = if dropped { is_of_last && last.ended } else { marker };
        self.row.last =
            LastPacket { timestamp, marker: packet.marker, temporal_id, left_out, dropped, ended, known: true };
        if dropped {
            self.row.numbers.drop(packet.seq);
            if let Some(numbers) = &packet.payload.picture {
                self.row.pictures.leave_out(numbers);
            }
            return Err(if left_out { DropReason::TemporalLayer } else { DropReason::SpatialLayer });
        }
        Ok(Forwarded {
            seq: self.row.numbers.forward(packet.seq),
            timestamp: self.timeline.forward(packet),
            marker,
            picture: packet.payload.picture.as_ref().map(|numbers| self.row.pictures.forward(numbers)),
            is_padding: false,
        })
    }

    /// The numbers of the current layer, for what comes late of it after the next `switch`.
    pub fn keep(&self) -> Kept {
        Kept { row: self.row.clone(), timestamp_shift: self.timeline.shift }
    }

    /// The numbers of the current layer's packets that may have come since the last `switch`.
    pub fn span(&self) -> Range<u64> {
        self.row.numbers.span()
    }

    /// The layer that is forwarded now.
    pub fn current(&self) -> Option<u8> {
        self.current
    }

    /// When the newest picture that was forwarded came from the publisher, or the last padding before it went out; `None` before the
    /// first.
    pub fn last_arrival(&self) -> Option<Instant> {
        self.timeline.last_arrival
    }

    /// The last number given to any packet.
    pub fn last_seq(&self) -> Option<u64> {
        self.last_layer.map(|_| self.last_number())
    }

    /// The same, and before the first packet the number before its own.
    pub fn last_number(&self) -> u64 {
        self.row.numbers.last()
    }

    /// The publisher's clock of the current layer, in the output's timestamp units: for our own sender reports.
    pub fn map_clock(&self, clock: SenderClock) -> Option<SenderClock> {
        self.current.map(|_| self.timeline.map_clock(clock))
    }

    /// A late packet fills the hole that was left for it, whatever its temporal layer; with padding when its frame is left out.
    fn forward_late(&mut self, packet: &PacketMeta) -> Result<Forwarded, DropReason> {
        let late = self.row.late(packet)?;
        Ok(Forwarded { timestamp: self.timeline.forward(packet), ..late })
    }

    /// Whether a picture that starts with this packet goes out. A layer is taken up where its decoding can start. Of shifted
    /// layers the first packet says nothing of those above, which the next pictures may need: then all pictures go out.
    fn admits(&mut self, packet: &PacketMeta) -> bool {
        let payload = &packet.payload;
        self.temporal = self.temporal.min(self.temporal_max);
        if payload.starts_frame && (payload.keyframe || self.spatial_max < self.row.spatial) {
            self.row.set_spatial(self.spatial_max, packet);
        }
        if payload.keyframe && payload.starts_frame {
            self.temporal = self.temporal_max;
        } else if payload.switch_up && (self.temporal..=self.temporal_max).contains(&payload.temporal_id) {
            self.temporal = payload.temporal_id;
        } else if payload.temporal_id <= self.temporal {
            self.temporal = payload.switch_target(self.temporal_max).map_or(self.temporal, |to| to.max(self.temporal));
        }
        debug_assert!(self.temporal <= self.temporal_max);
        payload.temporal_id <= self.temporal || self.row.is_shifted && self.row.spatial > 0
    }

    /// Whether all packets that are missing before this one belong to what is left out: they then leave no hole for which
    /// the viewer would ask in vain.
    fn gap_is_dropped(&self, packet: &PacketMeta, left_out: bool, dropped: bool) -> bool {
        let last = &self.row.last;
        if !last.known || self.row.numbers.gap(packet.seq) == 0 {
            return false;
        }
        let rest_of_last = last.dropped || last.ended;
        if packet.timestamp == last.timestamp {
            return dropped && rest_of_last;
        }
        let adjacent = packet.payload.picture.as_ref().is_some_and(|numbers| self.row.pictures.follows(numbers));
        let all_of_last = packet.payload.starts_frame && rest_of_last;
        let all_of_this = last.marker && left_out;
        adjacent && (all_of_last || all_of_this || (rest_of_last && left_out))
    }
}

impl Row {
    /// Takes another spatial layer for the highest from `packet` on, which starts a picture.
    fn set_spatial(&mut self, spatial: u8, packet: &PacketMeta) {
        if packet.payload.spatial_id == 0 && spatial != self.spatial {
            (self.spatial_before, self.spatial_since) = (self.spatial, packet.seq);
            self.spatial = spatial;
        }
    }

    /// The highest spatial layer that goes out of a packet's picture.
    fn spatial_of(&self, packet: &PacketMeta) -> u8 {
        if packet.seq < self.spatial_since { self.spatial_before } else { self.spatial }
    }

    /// What was kept for a packet, under the publisher's timestamp.
    fn late(&self, packet: &PacketMeta) -> Result<Forwarded, DropReason> {
        let seq = self.numbers.late(packet.seq)?;
        let is_left_out = self.last.left_out && packet.timestamp == self.last.timestamp;
        if is_left_out || packet.payload.spatial_id > self.spatial_of(packet) {
            let timestamp = packet.timestamp;
            return Ok(Forwarded { seq, timestamp, marker: false, picture: None, is_padding: true });
        }
        let picture = packet.payload.picture.as_ref().map(|numbers| self.pictures.late(numbers)).transpose()?;
        Ok(Forwarded { seq, timestamp: packet.timestamp, marker: self.is_last(packet), picture, is_padding: false })
    }

    /// Whether no packet of the picture goes out behind this one.
    fn is_last(&self, packet: &PacketMeta) -> bool {
        packet.marker || packet.payload.ends_layer && packet.payload.spatial_id == self.spatial_of(packet)
    }
}

impl Kept {
    /// Renumbers a packet of the layer that was left. `None` when it has no place, or came after it was left.
    pub fn forward_late(&self, packet: &PacketMeta) -> Option<Forwarded> {
        if !self.row.numbers.is_late(packet.seq) {
            return None;
        }
        let late = self.row.late(packet).ok()?;
        Some(Forwarded { timestamp: late.timestamp.wrapping_add(self.timestamp_shift), ..late })
    }
}
