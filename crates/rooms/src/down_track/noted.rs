//! How a picture stood when that was last noted in its session's story.

use std::time::{Duration, Instant};

use slab::Slab;

use super::DownTrack;
use crate::downs::PathNote;
use crate::spec::{LayerLimit, StreamId};
use crate::story::{Happened, Stall, Story, Why};
use crate::stream::{Stream, Track};

/// A picture of which nothing was sent for so long stands still. Looks are a second apart, or a little less.
const STILL: Duration = Duration::from_millis(900);

/// What was noted last.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    /// Packets that had been sent.
    packets: u64,
    /// When it was seen last that some were.
    moved_at: Instant,
    /// What it stands still for, and since when.
    stall: Option<(Instant, Stall)>,
    rank: Option<u8>,
    temporal_max: u8,
    limit: LayerLimit,
    has_begun: bool,
    /// Why it changed last: it comes back for the same.
    gone_for: Why,
}

impl Noted {
    pub(super) fn new(now: Instant) -> Self {
        Noted {
            packets: 0,
            moved_at: now,
            stall: None,
            rank: None,
            temporal_max: u8::MAX,
            limit: LayerLimit::NONE,
            has_begun: false,
            gone_for: Why::Begins,
        }
    }
}

impl DownTrack {
    /// Notes what of it is otherwise than the last time.
    pub fn take_note(&mut self, now: Instant, streams: &Slab<Stream>, path: PathNote, story: &mut Story) {
        let track = self.track(streams);
        self.note_layer(now, track, streams[self.stream].id, story);
        let before = std::mem::replace(&mut self.noted.packets, self.packets);
        let moves = self.packets != before;
        let stall = self.stall(now, track, moves, path);
        if moves {
            self.noted.moved_at = now;
        }
        let (stream, track) = (streams[self.stream].id, self.spec.track);
        match (self.noted.stall, stall) {
            (None, Some(cause)) => {
                let since = if moves { now } else { self.noted.moved_at };
                self.noted.stall = Some((since, cause));
                story.note(now, Happened::Stalled { stream, track, cause });
            }
            (Some((since, known)), Some(cause)) if known != cause => {
                self.noted.stall = Some((since, cause));
                story.note(now, Happened::Stalled { stream, track, cause });
            }
            (Some((since, _)), None) => {
                self.noted.stall = None;
                // Who is to get nothing has not waited for it.
                if !self.is_held {
                    let after = now.saturating_duration_since(since);
                    story.note(now, Happened::Moves { stream, track, after });
                }
            }
            _ => {}
        }
    }

    fn note_layer(&mut self, now: Instant, track: &Track, stream: StreamId, story: &mut Story) {
        let (rank, temporal_max) = (self.current_rank(track), self.choice.temporal_max());
        let limit = self.limit.holds();
        let Noted { rank: from, temporal_max: temporal_from, limit: limit_from, has_begun, .. } = *self.noted;
        if (rank, temporal_max) == (from, temporal_from) {
            self.noted.limit = limit;
            return;
        }
        let why = match (from, rank) {
            (None, Some(_)) if !has_begun => Why::Begins,
            _ if self.is_held || limit != limit_from => Why::Wish,
            (_, None) if self.choice.is_paused() => Why::Bandwidth,
            (_, None) if !track.is_flowing(now) => Why::Publisher,
            (Some(from), Some(_)) if track.is_gone(from) => Why::Publisher,
            (Some(_), Some(to)) if track.is_young(to, now) => Why::Publisher,
            (Some(_), Some(_)) => Why::Bandwidth,
            (_, None) => Why::Keyframe,
            (None, Some(_)) => self.noted.gone_for,
        };
        self.noted.rank = rank;
        self.noted.temporal_max = temporal_max;
        self.noted.limit = limit;
        self.noted.has_begun |= rank.is_some();
        self.noted.gone_for = why;
        let track = self.spec.track;
        story.note(now, Happened::Layer { stream, track, from, to: rank, temporal_max, why });
    }

    /// What it stands still for, if it does.
    fn stall(&self, now: Instant, track: &Track, moves: bool, path: PathNote) -> Option<Stall> {
        let is_still = now.saturating_duration_since(self.noted.moved_at) >= STILL;
        match () {
            () if self.is_held => None,
            () if moves && path.is_silent => Some(Stall::Path),
            () if moves && path.is_lossy => Some(Stall::Loss),
            () if moves || !is_still => self.noted.stall.filter(|_| !moves).map(|(_, cause)| cause),
            () if path.is_cut_off => Some(Stall::CutOff),
            () if self.choice.is_paused() => Some(Stall::Bandwidth),
            () if !track.is_flowing(now) => Some(Stall::Publisher),
            () if self.current() != Some(self.target) => Some(Stall::Keyframe),
            () if self.is_behind(track) => Some(Stall::Backlog),
            () => Some(Stall::Publisher),
        }
    }
}
