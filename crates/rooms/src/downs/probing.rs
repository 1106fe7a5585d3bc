//! Finds out whether larger pictures would fit.
//!
//! In: what would be sent if they did. Out: packets beside the others, when the estimator asks for some (`bwe::probe`).
//! Cost: a look at each track some ten times in a second, while there is something larger to have, or may be.

use std::time::{Duration, Instant};

use slab::Slab;
use wire::Bitrate;

use super::{Downs, rates};
use crate::bwe;
use crate::down_track::{Again, DownTrack};
use crate::io::Io;
use crate::stream::{Stream, Track};
use crate::transport::Transport;

/// How often a viewer who could use more is considered for a probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Packets of one track in a slice of a probe at most.
const PROBE_PACKETS_MAX: u16 = 64;

/// What a picture of several layers is taken to want of which not all have come yet: as much as a camera's 720p takes.
const FIRST_PICTURE: Bitrate = Bitrate::from_kbps(2_500);

/// Packets of padding in a slice at most.
const PADDING_PACKETS_MAX: usize = 256;

/// What another worker has of a stream comes in this time.
const REPLAY_WAIT: Duration = Duration::from_millis(20);

/// Half of the time between two pictures.
const BETWEEN_PICTURES: Duration = Duration::from_millis(15);

/// A keyframe that was asked for comes in this time, unless its publisher makes them by a clock of its own.
const KEYFRAME_WAIT: Duration = Duration::from_millis(200);

impl Downs {
    /// Looks for more when the first picture of a new stream has had time to come; or before it comes, where the stream lies still.
    pub(super) fn probe_soon(&mut self, now: Instant, is_flowing: bool) {
        self.probe_at.get_or_insert(now + if is_flowing { KEYFRAME_WAIT } else { REPLAY_WAIT });
    }

    /// Looks for more where there is some to have. A picture may have left just now, and what came behind it would be measured
    /// with it.
    pub(super) fn probe_between_pictures(&mut self, transport: &Transport, io: &Io<'_>) {
        if self.probe_at.is_none() && self.wanted_rate(transport, io.streams, io.now).is_some() {
            self.probe_at = Some(io.now + BETWEEN_PICTURES);
        }
    }

    /// Finds out by sending the newest packets again, and padding where these are too few, whether a larger layer would fit.
    pub(super) fn probe(&mut self, transport: &mut Transport, io: &mut Io<'_>) {
        self.probe_at = None;
        if transport.estimator.is_none() || !self.tracks.iter().any(DownTrack::can_probe) {
            return;
        }
        let Some(wanted) = self.wanted_rate(transport, io.streams, io.now) else { return };
        self.probe_at = Some(io.now + PROBE_INTERVAL);
        let is_busy = self.tracks.iter().any(DownTrack::shows_picture);
        let probe = transport.estimator.as_mut().and_then(|estimator| estimator.poll_probe(io.now, wanted, is_busy));
        let Some(bytes) = probe else { return };
        self.probe_at = Some(io.now + bwe::PROBE_SLICE);
        let mut sent = 0;
        // The last may have too little to send again, or nothing where it is muted.
        for down in self.tracks.iter_mut().rev().filter(|down| down.can_probe()) {
            for back in 0..PROBE_PACKETS_MAX {
                if sent >= bytes {
                    break;
                }
                match down.send_again(down.last_sent(back), Again::Probe, transport, io) {
                    Some(len) => sent += len,
                    // Nothing is kept of a track that has been muted for a while.
                    None if back == 0 => break,
                    None => {}
                }
            }
        }
        if let Some(down) = self.tracks.iter_mut().rfind(|down| down.can_probe()) {
            for _ in 0..PADDING_PACKETS_MAX {
                if sent >= bytes {
                    break;
                }
                let Some(len) = down.send_probe(transport, io) else { break };
                sent += len;
            }
        }
        io.counters.probe_bytes += sent as u64;
    }

    /// What would be sent if of each track the next larger layer were, or the largest while all fitted that was tried; `None` when the
    /// viewer has all that it may have.
    fn wanted_rate(&self, transport: &Transport, streams: &Slab<Stream>, now: Instant) -> Option<Bitrate> {
        let ramps = transport.is_ramping();
        let mut now_sent = transport.resend.rate(now).bps();
        let mut more: Option<u64> = None;
        for down in &self.tracks {
            let track = down.track(streams);
            let Some(rank) = down.current_rank(track) else {
                if ramps
                    && track.rank_count() > 1
                    && down.lacks_keyframe(now)
                    && let Some((_, first)) = largest(down, track, now)
                {
                    more = Some(more.unwrap_or(0) + first.bps());
                }
                continue;
            };
            let (current, thicker) = down.choice.thinned_rate(now, &track.thinned_rates(rank, now));
            now_sent += current.bps();
            let next = thicker.or_else(|| {
                if ramps {
                    return largest(down, track, now).filter(|(largest, _)| *largest > rank).map(|(_, rate)| rate);
                }
                let (rates, wanted) = rates(down, track, now);
                down.choice.wanted_rate(now, &rates[..wanted], rank)
            });
            if let Some(next) = next {
                more = Some(more.unwrap_or(0) + next.bps().saturating_sub(current.bps()));
            }
        }
        let is_known = transport.estimate().is_none_or(|estimate| estimate >= FIRST_PICTURE);
        let first = || ramps && !is_known && self.tracks.iter().any(|down| waits(down, down.track(streams), now));
        more.map(|more| Bitrate::from_bps(now_sent + more)).or_else(|| first().then_some(FIRST_PICTURE))
    }
}

/// Whether there will be more of a picture than comes now.
fn waits(down: &DownTrack, track: &Track, now: Instant) -> bool {
    let (rates, wanted) = rates(down, track, now);
    let count = usize::from(track.rank_count());
    count > 1 && !down.is_held() && rates[..wanted.min(count)].contains(&Bitrate::ZERO)
}

/// The largest layer that the viewer wants of those that come: its rank, and what it takes.
pub(super) fn largest(down: &DownTrack, track: &Track, now: Instant) -> Option<(u8, Bitrate)> {
    let (rates, wanted) = rates(down, track, now);
    (0..).zip(rates).take(wanted).filter(|(_, rate)| *rate > Bitrate::ZERO).last()
}
