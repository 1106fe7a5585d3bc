//! A playlist that goes over to another process, which lists on where this one stops.
//!
//! In: a playlist as it stands, the segment that is not over included. Out: a plain value, and the same playlist made of it.
//! Times are ages. What comes in may be from another program: what does not fit together is refused.
//! Cost: a copy of each header that differs from the one before, and some 30 bytes per segment.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cutter::{Anchor, Cutter, MARKS_MAX, Mark, Open, TARGET_SECONDS_MAX};
use super::parts::{DURATION_MIN, Part, Parts};
use super::{Playlist, SEGMENTS_MAX, Segment, Settings};
use crate::window::Bytes;

/// No time within a playlist is longer, but what sources and settings say.
const TIME_MAX: Duration = Duration::from_secs(u32::MAX as u64);

/// All that a playlist knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaylistState {
    settings: Settings,
    target_seconds: Option<u64>,
    header: Vec<u8>,
    is_broken: bool,
    open: Option<OpenState>,
    segments: Vec<SegmentState>,
    first: u64,
    listed_from: u64,
    discontinuities: u64,
    is_ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SegmentState {
    begin: u64,
    end: u64,
    duration: Duration,
    is_independent: bool,
    is_discontinuous: bool,
    /// `None`: that of the segment before.
    header: Option<Vec<u8>>,
    map: u64,
    parts: Vec<Part>,
}

/// The segment that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OpenState {
    begin: Mark,
    is_discontinuous: bool,
    header: Vec<u8>,
    parts: Vec<Part>,
    /// Where the part that is not over begins.
    part: Mark,
    marks: Vec<Mark>,
    last: AnchorState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AnchorState {
    at: u64,
    time: Duration,
    age: Duration,
    media: Option<Duration>,
}

impl Playlist {
    /// All of it.
    pub fn state(&self, now: Instant) -> PlaylistState {
        let mut before: Option<&Bytes> = None;
        let segments = self.segments.iter().map(|segment| {
            let is_same = before.replace(&segment.header).is_some_and(|before| *before == segment.header);
            SegmentState::of(segment, (!is_same).then(|| segment.header.to_vec()))
        });
        PlaylistState {
            settings: self.settings,
            target_seconds: self.cutter.target_seconds,
            header: self.cutter.header.to_vec(),
            is_broken: self.cutter.is_broken,
            segments: segments.collect(),
            open: self.cutter.open.as_ref().map(|open| OpenState::of(open, now)),
            first: self.first,
            listed_from: self.listed_from,
            discontinuities: self.discontinuities,
            is_ended: self.is_ended,
        }
    }

    /// The same again, of a stream of which `end` bytes are there. `None`: it cannot have been.
    pub fn restore(now: Instant, state: PlaylistState, end: u64) -> Option<Self> {
        state.is_right(end).then_some(())?;
        let PlaylistState { settings, first, listed_from, discontinuities, is_ended, .. } = state;
        let mut playlist = Playlist { first, listed_from, discontinuities, is_ended, ..Playlist::new(settings) };
        for segment in state.segments {
            let before = playlist.segments.back().map(|segment| segment.header.clone());
            playlist.segments.push_back(segment.restore(before)?);
        }
        playlist.listed_duration = playlist.listed().map(|(_, segment)| segment.duration).sum();
        playlist.cutter.target_seconds = state.target_seconds;
        playlist.cutter.is_broken = state.is_broken;
        playlist.cutter.set_header(&state.header);
        playlist.cutter.open = state.open.map(|open| open.restore(now, &playlist.cutter));
        Some(playlist)
    }
}

impl PlaylistState {
    fn is_right(&self, end: u64) -> bool {
        let Settings { target, part_target, .. } = self.settings;
        let is_time = |time: Duration| time <= TIME_MAX;
        let count = self.segments.len() as u64;
        let is_count = |count: u64| count <= u64::MAX / 2;
        let behind = self.first.checked_add(count).filter(|behind| is_count(*behind));
        let mut at = 0;
        let mut follows = |begin: u64, end: u64| std::mem::replace(&mut at, end) <= begin && begin < end;
        is_time(target)
            && part_target.is_none_or(|part| (DURATION_MIN..=TIME_MAX).contains(&part))
            && self.target_seconds.is_none_or(|seconds| (1..=TARGET_SECONDS_MAX).contains(&seconds))
            && self.segments.len() <= SEGMENTS_MAX
            && is_count(self.discontinuities)
            && behind.is_some_and(|behind| (self.first..=behind).contains(&self.listed_from))
            && self.segments.iter().all(|segment| follows(segment.begin, segment.end) && segment.is_right())
            && at <= end
            && self.open.as_ref().is_none_or(|open| at <= open.begin.at && open.is_right(end))
    }
}

impl SegmentState {
    fn of(segment: &Segment, header: Option<Vec<u8>>) -> Self {
        SegmentState {
            begin: segment.range.start,
            end: segment.range.end,
            duration: segment.duration,
            is_independent: segment.is_independent,
            is_discontinuous: segment.is_discontinuous,
            header,
            map: segment.map,
            parts: segment.parts.clone(),
        }
    }

    /// `before`: the header of the segment before.
    fn restore(self, before: Option<Bytes>) -> Option<Segment> {
        Some(Segment {
            range: self.begin..self.end,
            duration: self.duration,
            is_independent: self.is_independent,
            is_discontinuous: self.is_discontinuous,
            header: self.header.map_or(before, |header| Some(Bytes::new(header.into())))?,
            map: self.map,
            parts: self.parts,
        })
    }

    fn is_right(&self) -> bool {
        self.duration <= TIME_MAX && are_parts(&self.parts, self.begin, self.end)
    }
}

impl OpenState {
    fn of(open: &Open, now: Instant) -> Self {
        let Anchor { at, time, came, media } = open.last;
        OpenState {
            begin: open.begin,
            is_discontinuous: open.is_discontinuous,
            header: open.header.to_vec(),
            parts: open.parts.over().to_vec(),
            part: open.parts.begin(),
            marks: open.marks.clone(),
            last: AnchorState { at, time, age: now.saturating_duration_since(came).min(TIME_MAX), media },
        }
    }

    fn restore(self, now: Instant, cutter: &Cutter) -> Open {
        let AnchorState { at, time, age, media } = self.last;
        let is_current = *self.header == **cutter.header;
        Open {
            begin: self.begin,
            is_discontinuous: self.is_discontinuous,
            header: if is_current { cutter.header.clone() } else { Bytes::new(self.header.into()) },
            parts: Parts::restore(cutter.part_target, self.parts, self.part),
            marks: self.marks,
            step: 1,
            last: Anchor { at, time, came: now.checked_sub(age).unwrap_or(now), media },
        }
    }

    fn is_right(&self, end: u64) -> bool {
        let mut marks = [self.begin, self.part].iter().chain(&self.marks).copied().collect::<Vec<_>>();
        let are_sorted = marks[1..].is_sorted_by(|one, next| one.at <= next.at) && self.begin.at <= self.part.at;
        marks.push(Mark { at: self.last.at, time: self.last.time, is_start: true });
        are_sorted
            && self.marks.len() <= MARKS_MAX
            && self.last.age <= TIME_MAX
            && marks.iter().all(|mark| mark.at <= end && mark.time <= TIME_MAX)
            && are_parts(&self.parts, self.begin.at, self.part.at)
    }
}

/// Whether parts may be those of what is between two places.
fn are_parts(parts: &[Part], begin: u64, end: u64) -> bool {
    let mut at = begin;
    let mut follows = |part: &Part| {
        let is_there = at <= part.range.start && part.range.start < part.range.end && part.range.end <= end;
        at = part.range.end;
        is_there && part.duration <= TIME_MAX
    };
    parts.iter().all(&mut follows)
}
