//! Where in a log a viewer starts, and whether it is time to.

use std::time::{Duration, Instant};

use super::{PAUSE_MAX, PAUSE_MIN, RTT_ASSUMED};
use crate::log::Log;
use crate::packet::PacketMeta;

/// So many packets before a keyframe's first one in the log may belong to it or to what follows.
const OVERTAKING_MAX: u64 = 256;

/// How long a keyframe takes to come and to be sent, as a rule.
const KEYFRAME_TIME: Duration = Duration::from_millis(100);

/// Whether a keyframe was sent so lately that the peer cannot have said anything about it.
pub fn is_unseen(now: Instant, rtt: Option<Duration>, came_at: Option<Instant>) -> bool {
    let unseen = rtt.unwrap_or(RTT_ASSUMED).clamp(PAUSE_MIN, PAUSE_MAX) + KEYFRAME_TIME;
    came_at.is_some_and(|at| now.saturating_duration_since(at) < unseen)
}

/// Where in the log to start for the keyframe that begins at `position` with `seq`: its first packet may have come late,
/// after others of it. Older ones in between have no place in the output, and the forwarder drops them.
pub fn first_of(log: &Log, position: u64, seq: u64) -> u64 {
    let oldest = position.saturating_sub(OVERTAKING_MAX).max(log.start());
    let overtook = |at: &u64| log.at(*at).is_some_and(|logged| logged.meta.seq > seq);
    (oldest..position).find(overtook).unwrap_or(position)
}

/// When `packet` would have come if it had come in order: beside `first`, which came no later and was sent no earlier. What
/// is lost comes again a round trip or more too late, which says nothing about when it was sent.
pub fn arrival_beside(first: &PacketMeta, packet: &PacketMeta, clock_rate: u32) -> Instant {
    let ticks = first.timestamp.wrapping_sub(packet.timestamp) as i32;
    let ahead = Duration::from_secs_f64(f64::from(ticks.max(0)) / f64::from(clock_rate.max(1)));
    first.arrival.checked_sub(ahead).unwrap_or(first.arrival)
}
