//! A stream's live media playlist, for players that speak HLS.
//!
//! In: the headers, start points and ends of units of a transport stream or of fragmented MP4, as they come. Out: the playlist
//! as text, and for each segment the part of the backlog that it is, and what stands before it.
//!
//! A segment has an address of its own by its number, and is whole: no byte range of one address. So a transport stream's
//! segment can begin with PAT and PMT, every player takes it (ranges are of version 4), a browser asks no permission for the
//! Range header of another origin first, and a cache needs to understand nothing.
//! Numbers begin where the caller says; with the seconds since 1970 they go on upwards when the server begins anew, and no
//! address is ever given to something else.
//!
//! What is listed is a third of the backlog at most: the rest is for what is no longer listed, which must be there for as long as
//! it plays, and the longest playlist that it was in (RFC 8216 §6.2.2). In a backlog of thirty segments it is, unless the
//! stream's rate rises by more than a third. Three target durations are listed in any case (§6.2.2 as well), though they be more.
//! Cost: some 80 bytes per segment.
//! Source: RFC 8216; draft-pantos-hls-rfc8216bis.

mod cutter;
mod moved;
mod parts;
#[cfg(test)]
mod tests;
mod text;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::window::Bytes;
use cutter::{Cut, Cutter};
pub use moved::PlaylistState;
use parts::Part;

/// Segments that are there at most, listed or not. Of one more the oldest is no longer there.
pub const SEGMENTS_MAX: usize = 8_192;

/// What is listed is no more than this part of the backlog.
const LISTED_PART: u64 = 3;

/// A part that is further away than that is nobody's to wait for (§6.2.5.2 of the draft: three are, or as many as are a second).
const PARTS_AHEAD_MAX: u64 = 30;

/// What segments are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Container {
    /// MPEG transport stream: PAT and PMT are the beginning of each segment.
    Ts,
    /// Fragmented MP4: `ftyp` and `moov` have an address of their own (EXT-X-MAP).
    Mp4,
}

impl Container {
    /// What the addresses of segments end in.
    pub fn extension(self) -> &'static str {
        match self {
            Container::Ts => "ts",
            Container::Mp4 => "m4s",
        }
    }
}

/// How a playlist is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// What the stream is.
    pub container: Container,
    /// How long segments are to be; whole seconds, 1 at least. Where the first start points are further apart, it is that.
    pub target: Duration,
    /// For how long one can go back. `None`: as far as the backlog lets it.
    pub window: Option<Duration>,
    /// Low latency: how long parts of segments are to be. `None`: there are none.
    pub part_target: Option<Duration>,
    /// Of the backlog, in bytes.
    pub backlog_size: u64,
    /// The number of the first segment.
    pub first_number: u64,
}

/// Where a segment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Here.
    There {
        /// What it begins with. Empty: nothing.
        header: Bytes,
        /// The rest of it, in bytes since the stream began.
        range: Range<u64>,
    },
    /// It is no longer there, or never was.
    Gone,
    /// It is the next one, and not over yet.
    Next,
}

/// Whether a playlist has what a player waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It has.
    Yes,
    /// It will.
    NotYet,
    /// It is so far away that nobody can mean it.
    TooFar,
}

#[derive(Clone, Debug)]
struct Segment {
    range: Range<u64>,
    duration: Duration,
    is_independent: bool,
    is_discontinuous: bool,
    header: Bytes,
    /// The number of the first segment with this header.
    map: u64,
    /// None when it is older than what parts are listed of.
    parts: Vec<Part>,
}

/// The playlist of one stream.
#[derive(Debug)]
pub struct Playlist {
    settings: Settings,
    cutter: Cutter,
    /// All that are there, the listed ones last.
    segments: VecDeque<Segment>,
    /// The number of the first that is there.
    first: u64,
    /// The number of the first that is listed.
    listed_from: u64,
    /// How long all that are listed play.
    listed_duration: Duration,
    /// How many segments that are listed no more did not go on from the one before.
    discontinuities: u64,
    is_ended: bool,
    cuts: Vec<Cut>,
}

impl Playlist {
    /// Of a stream without a byte.
    pub fn new(settings: Settings) -> Self {
        Playlist {
            settings,
            cutter: Cutter::new(settings.target, settings.part_target),
            segments: VecDeque::new(),
            first: settings.first_number,
            listed_from: settings.first_number,
            listed_duration: Duration::ZERO,
            discontinuities: 0,
            is_ended: false,
            cuts: Vec::new(),
        }
    }

    /// Start points that come are behind this header. The segment of the first of them does not go on from the one before.
    pub fn set_header(&mut self, bytes: &[u8]) {
        self.cutter.set_header(bytes);
    }

    /// A start point is at `at`, in bytes since the stream began; `media` is its time by the stream's own clock.
    pub fn handle_start(&mut self, at: u64, media: Option<Duration>, now: Instant) {
        self.cutter.start(at, media, now, &mut self.cuts);
        self.list();
    }

    /// The bytes before `at` are there, and a unit ends with them. Who writes many at once need not say so of each.
    pub fn handle_boundary(&mut self, at: u64, now: Instant) {
        self.cutter.boundary(at, now, &mut self.cuts);
        self.list();
    }

    /// Whoever reads the stream began anew, and has another beginning of its clock: by that it is `media` at a start point that
    /// was told of already. If it was the last one, times go on from there.
    pub fn set_clock(&mut self, at: u64, media: Duration) {
        self.cutter.set_clock(at, media);
    }

    /// The source is gone, or another one comes: what follows does not go on from what is before `at`, where the last whole unit
    /// ends.
    pub fn break_off(&mut self, at: u64, now: Instant) {
        self.cutter.break_off(at, now, &mut self.cuts);
        self.list();
    }

    /// Nothing comes any more, in no name: players stop asking.
    pub fn end(&mut self, at: u64, now: Instant) {
        self.break_off(at, now);
        self.is_ended = true;
    }

    /// The backlog no longer has what is before `begin`.
    pub fn forget(&mut self, begin: u64) {
        while self.segments.front().is_some_and(|segment| segment.range.start < begin) {
            self.forget_first();
        }
    }

    /// The playlist; `None` before the first segment. The addresses are relative to its own, and end in `query`: empty, or what
    /// players are to show again, from the question mark on.
    pub fn text(&self, query: &str) -> Option<String> {
        Some(text::write(self, self.cutter.target_seconds()?, query))
    }

    /// The number of the segment that comes next.
    pub fn next_number(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// What changes whenever the playlist does, but for what it no longer lists: the number of the segment that comes next, how
    /// many parts of it are there, and whether there is no more to come.
    pub fn edge(&self) -> (u64, usize, bool) {
        (self.next_number(), self.open_parts().len(), self.is_ended)
    }

    /// Whether there is no more to come.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The longest that a segment may play, rounded to seconds. `None` before the first segment.
    pub fn target(&self) -> Option<Duration> {
        self.cutter.target_seconds().map(Duration::from_secs)
    }

    /// Where a segment is.
    pub fn segment(&self, number: u64) -> Found {
        let Some(segment) = self.get(number) else {
            return if number == self.next_number() && !self.is_ended { Found::Next } else { Found::Gone };
        };
        Found::There { header: self.begins_with(number, 0), range: segment.range.clone() }
    }

    /// Where a part of a segment is, by its place in it.
    pub fn part(&self, number: u64, index: u64) -> Found {
        let parts = if number == self.next_number() { self.open_parts() } else { self.parts_of(number) };
        let place = usize::try_from(index).ok();
        match place.and_then(|place| parts.get(place)) {
            Some(part) => Found::There { header: self.begins_with(number, index), range: part.range.clone() },
            None if (number, place) == self.next_part() && !self.is_ended => Found::Next,
            None => Found::Gone,
        }
    }

    /// Whether a segment is listed, or so many of its parts before `part` and that one (§6.2.5.2 of the draft: `_HLS_msn`,
    /// `_HLS_part`).
    pub fn reaches(&self, number: u64, part: Option<u64>) -> Reached {
        let (next, open) = (self.next_number(), self.open_parts().len() as u64);
        // Of a segment that is over with fewer parts, the first of the next one is meant.
        let is_beyond =
            part.is_some_and(|part| number.checked_add(1) == Some(next) && part >= self.parts_of(number).len() as u64);
        let (number, part) = if is_beyond { (next, Some(0)) } else { (number, part) };
        match part {
            _ if self.is_ended || number < next => Reached::Yes,
            _ if number > next + 1 => Reached::TooFar,
            Some(part) if number == next && part < open => Reached::Yes,
            Some(part) if part > open + PARTS_AHEAD_MAX => Reached::TooFar,
            _ => Reached::NotYet,
        }
    }

    /// The header that EXT-X-MAP names by the number of the first segment that it is for. That one may be there no more.
    pub fn map(&self, number: u64) -> Option<Bytes> {
        let later = self.segments.partition_point(|segment| segment.map < number);
        let over = self.segments.get(later).filter(|segment| segment.map == number).map(|segment| &segment.header);
        let open = || self.cutter.open_parts().filter(|_| self.open_map() == number).map(|(_, header, _)| header);
        over.or_else(open).cloned()
    }

    /// What the first part of a segment has before all else.
    fn begins_with(&self, number: u64, index: u64) -> Bytes {
        let open = || self.cutter.open_parts().map(|(_, header, _)| header);
        match (self.settings.container, index) {
            (Container::Ts, 0) => {
                self.get(number).map(|segment| &segment.header).or_else(open).cloned().unwrap_or_default()
            }
            _ => Bytes::default(),
        }
    }

    /// The number of the first segment with a header that the next one has.
    fn map_of(&self, header: &Bytes) -> u64 {
        let last = self.segments.back().filter(|last| last.header == *header);
        last.map_or(self.next_number(), |last| last.map)
    }

    fn open_map(&self) -> u64 {
        self.cutter.open_parts().map_or(self.next_number(), |(_, header, _)| self.map_of(header))
    }

    /// Of the segment that is not over.
    fn open_parts(&self) -> &[Part] {
        self.cutter.open_parts().map_or(&[], |(_, _, parts)| parts)
    }

    fn parts_of(&self, number: u64) -> &[Part] {
        self.get(number).map_or(&[], |segment| &segment.parts)
    }

    /// The part that comes next: its segment's number, and its place there. No place: there are no parts.
    fn next_part(&self) -> (u64, Option<usize>) {
        (self.next_number(), self.settings.part_target.map(|_| self.open_parts().len()))
    }

    fn get(&self, number: u64) -> Option<&Segment> {
        self.segments.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn listed(&self) -> impl ExactSizeIterator<Item = (u64, &Segment)> {
        let unlisted = (self.listed_from - self.first) as usize;
        let numbered = move |(index, segment)| (self.listed_from + index as u64, segment);
        self.segments.range(unlisted..).enumerate().map(numbered)
    }

    /// Takes new segments, and takes the oldest off the list.
    fn list(&mut self) {
        for cut in std::mem::take(&mut self.cuts) {
            let Cut { range, duration, is_independent, is_discontinuous, header, parts } = cut;
            let map = self.map_of(&header);
            self.listed_duration += duration;
            self.segments.push_back(Segment { range, duration, is_independent, is_discontinuous, header, map, parts });
            if self.segments.len() > SEGMENTS_MAX {
                self.forget_first();
            }
            self.forget_parts();
        }
        while self.is_over() {
            self.unlist_first();
        }
    }

    /// Parts are listed of the last three target durations (§6.2.2 of the draft).
    fn forget_parts(&mut self) {
        let Some(target) = self.target() else { return };
        let mut behind = Duration::ZERO;
        for segment in self.segments.iter_mut().rev() {
            if behind >= 3 * target && std::mem::take(&mut segment.parts).is_empty() {
                return;
            }
            behind += segment.duration;
        }
    }

    /// Whether the first that is listed is to go.
    fn is_over(&self) -> bool {
        let (Some(first), Some(last)) = (self.get(self.listed_from), self.segments.back()) else { return false };
        let is_needed = self.target().is_none_or(|target| self.listed_duration - first.duration < 3 * target);
        let is_large = last.range.end - first.range.start > self.settings.backlog_size / LISTED_PART;
        let is_old = self.settings.window.is_some_and(|window| self.listed_duration - first.duration >= window);
        !is_needed && (is_large || is_old)
    }

    fn unlist_first(&mut self) {
        let Some(first) = self.get(self.listed_from) else { return };
        let (duration, is_discontinuous) = (first.duration, first.is_discontinuous);
        self.listed_duration -= duration;
        self.discontinuities += u64::from(is_discontinuous);
        self.listed_from += 1;
    }

    fn forget_first(&mut self) {
        if self.listed_from == self.first {
            self.unlist_first();
        }
        self.first += u64::from(self.segments.pop_front().is_some());
    }
}
