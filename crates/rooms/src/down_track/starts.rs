//! Where in a log a viewer starts, and whether it is time to.

use std::time::{Duration, Instant};

use wire::codec::MediaKind;

use super::{DownTrack, PAUSE_MAX, PAUSE_MIN, RTT_ASSUMED};
use crate::former::Former;
use crate::forward::SwitchClocks;
use crate::log::Log;
use crate::packet::PacketMeta;
use crate::stream::Track;

/// A keyframe may have come so much earlier than what was sent last. One that is older, because its first packet was lost,
/// would show again what was seen, under timestamps that are ahead from then on by as much.
const BEHIND_MAX: Duration = Duration::from_millis(50);

/// So many packets before a keyframe's first one in the log may belong to it or to what follows.
const OVERTAKING_MAX: u64 = 256;

/// How long a keyframe takes to come and to be sent, as a rule.
const KEYFRAME_TIME: Duration = Duration::from_millis(100);

impl DownTrack {
    /// Whether a picture is sent.
    pub fn shows_picture(&self) -> bool {
        self.kind == MediaKind::Video && self.current().is_some()
    }

    /// Whether there is no picture, and the keyframe that was asked for did not come at once.
    pub fn lacks_keyframe(&self, now: Instant) -> bool {
        let was_asked = |at: Instant| now.saturating_duration_since(at) >= KEYFRAME_TIME;
        self.current().is_none() && !self.is_paused && self.asked_at.is_some_and(was_asked)
    }

    /// Moves to the target layer when that can be done now. Who has no picture begins with a smaller one, if that comes first.
    /// Comes once per batch, before `next`.
    pub(super) fn update(&mut self, now: Instant, track: &Track) {
        if self.current() == Some(self.target) || self.is_paused {
            return;
        }
        if self.start(now, track, self.target) || self.current().is_some() {
            return;
        }
        let smaller = 0..track.order.rank(self.target);
        smaller.rev().any(|rank| self.start(now, track, track.order.index(rank)));
    }

    /// Goes on with a layer, where a keyframe of it is at hand. False: there is none.
    fn start(&mut self, now: Instant, track: &Track, layer_index: u8) -> bool {
        let Some(layer) = track.layers.get(usize::from(layer_index)) else { return false };
        let start = match track.spec.codec.kind() {
            MediaKind::Audio => layer.log.head().checked_sub(1),
            MediaKind::Video => layer.log.keyframe(),
        };
        let Some((position, packet)) = start.and_then(|position| Some((position, layer.log.at(position)?))) else {
            return false;
        };
        let sent_until = self.forwarder.last_arrival().and_then(|at| at.checked_sub(BEHIND_MAX));
        let oldest = self.current().and_then(|_| now.checked_sub(self.keyframe_age_max));
        let not_before = [sent_until, oldest].into_iter().flatten().fold(self.not_before, Instant::max);
        // What has come too early was not sent later: then nothing needs to be searched.
        if packet.meta.arrival < not_before {
            return false;
        }
        let first_position = first_of(&layer.log, position, packet.meta.seq);
        debug_assert!((layer.log.start()..=position).contains(&first_position), "of the publisher's present start");
        let first = layer.log.at(first_position).map_or(packet.meta, |logged| logged.meta);
        let packet =
            PacketMeta { arrival: arrival_beside(first, packet.meta, track.spec.codec.clock_rate()), ..*packet.meta };
        if packet.arrival < not_before {
            return false;
        }
        let left = self.current().and_then(|current| track.layers.get(usize::from(current)));
        let former = left.and_then(|left| Former::of(now, &self.forwarder, &left.log, (self.epoch, self.position)));
        self.former = former.or(self.former.take());
        let from = left.and_then(|left| left.clock);
        self.forwarder.switch(layer_index, &packet, SwitchClocks { from, to: layer.clock });
        self.resumes = false;
        self.position = first_position;
        self.epoch = layer.log.epoch();
        true
    }
}

/// Whether a keyframe was sent so lately that the peer cannot have said anything about it.
pub fn is_unseen(now: Instant, rtt: Option<Duration>, came_at: Option<Instant>) -> bool {
    let unseen = rtt.unwrap_or(RTT_ASSUMED).clamp(PAUSE_MIN, PAUSE_MAX) + KEYFRAME_TIME;
    came_at.is_some_and(|at| now.saturating_duration_since(at) < unseen)
}

/// Where in the log to start for the keyframe that begins at `position` with `seq`: its first packet may have come late,
/// after others of it. Older ones in between have no place in the output, and the forwarder drops them.
fn first_of(log: &Log, position: u64, seq: u64) -> u64 {
    let oldest = position.saturating_sub(OVERTAKING_MAX).max(log.start());
    let overtook = |at: &u64| log.at(*at).is_some_and(|logged| logged.meta.seq > seq);
    (oldest..position).find(overtook).unwrap_or(position)
}

/// When `packet` would have come if it had come in order: beside `first`, which came no later and was sent no earlier. What
/// is lost comes again a round trip or more too late, which says nothing about when it was sent.
pub(super) fn arrival_beside(first: &PacketMeta, packet: &PacketMeta, clock_rate: u32) -> Instant {
    let ticks = first.timestamp.wrapping_sub(packet.timestamp) as i32;
    let ahead = Duration::from_secs_f64(f64::from(ticks.max(0)) / f64::from(clock_rate.max(1)));
    first.arrival.checked_sub(ahead).unwrap_or(first.arrival)
}
