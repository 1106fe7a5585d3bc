//! Where segments end.
//!
//! In: start points with their times, and places between two units, as they come. Out: pieces of the stream that go on from
//! each other, none longer than the target duration, rounded.
//!
//! A segment ends at a start point: at the one that reaches the target duration, or the last before it would be exceeded. Where
//! start points are further apart than that, it ends between two units, and the next one cannot be begun with.
//! The target duration may never change (RFC 8216 §6.2.1), so it is the first segment that says whether the one that is
//! wanted is long enough.
//! Times are the media's where start points have them. Between two of them, and without, it is when the bytes came that counts;
//! but of what came faster than it plays, the times are spread over the bytes once the next start point is there.

use std::mem;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::parts::{Part, Parts};
use crate::window::Bytes;

/// The longest target duration, in seconds: x264 begins a key frame every 250 frames where nobody asks for more.
pub(super) const TARGET_SECONDS_MAX: u64 = 12;

/// For so long after a segment's time is over a start point is waited for.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Media times may run so far ahead of the bytes that bring them: what a source has stored for newcomers. If they go further, or
/// back, it is another clock.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// Places in an open segment where it could end. Of one more, every second is forgotten.
pub(super) const MARKS_MAX: usize = 256;

/// A piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Where it stands, in bytes since the stream began.
    pub(super) range: Range<u64>,
    /// For how long it plays.
    pub(super) duration: Duration,
    /// It begins at a start point.
    pub(super) is_independent: bool,
    /// It does not go on from the one before.
    pub(super) is_discontinuous: bool,
    /// What stands before it.
    pub(super) header: Bytes,
    /// What it is made of, if there are parts.
    pub(super) parts: Vec<Part>,
}

/// Cuts one stream.
#[derive(Debug)]
pub(super) struct Cutter {
    wanted_seconds: u64,
    pub(super) part_target: Option<Duration>,
    /// `None` before the first segment.
    pub(super) target_seconds: Option<u64>,
    /// What stands before start points that come.
    pub(super) header: Bytes,
    /// The next start point does not go on from what is before.
    pub(super) is_broken: bool,
    pub(super) open: Option<Open>,
}

/// The segment that is not over yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) begin: Mark,
    pub(super) is_discontinuous: bool,
    pub(super) header: Bytes,
    pub(super) parts: Parts,
    /// Behind `begin` and the parts that are over, in order.
    pub(super) marks: Vec<Mark>,
    /// Marks are no closer to each other than that, in bytes.
    pub(super) step: u64,
    /// The last start point.
    pub(super) last: Anchor,
}

/// A place where a segment may begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) at: u64,
    /// On a clock of our own, of which only differences count.
    pub(super) time: Duration,
    pub(super) is_start: bool,
}

/// A start point, to which the times of what is behind it are related.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) at: u64,
    pub(super) time: Duration,
    pub(super) came: Instant,
    pub(super) media: Option<Duration>,
}

impl Cutter {
    pub(super) fn new(wanted: Duration, part_target: Option<Duration>) -> Self {
        Cutter {
            wanted_seconds: wanted.as_secs().clamp(1, TARGET_SECONDS_MAX),
            part_target,
            target_seconds: None,
            header: Bytes::default(),
            is_broken: false,
            open: None,
        }
    }

    /// What no segment exceeds, rounded. `None` before the first is there.
    pub(super) fn target_seconds(&self) -> Option<u64> {
        self.target_seconds
    }

    /// The segment that is not over yet: whether it does not go on from the one before, its header, and its parts that are over.
    /// `None` when there are none of these.
    pub(super) fn open_parts(&self) -> Option<(bool, &Bytes, &[Part])> {
        let open = self.open.as_ref().filter(|open| !open.parts.over().is_empty())?;
        Some((open.is_discontinuous, &open.header, open.parts.over()))
    }

    /// Start points that come are behind this header. Another one than before begins a segment of its own.
    pub(super) fn set_header(&mut self, bytes: &[u8]) {
        if **self.header != *bytes {
            self.header = Bytes::new(bytes.into());
        }
    }

    /// What comes does not go on from what is before `at`, where the last unit ends.
    pub(super) fn break_off(&mut self, at: u64, now: Instant, cuts: &mut Vec<Cut>) {
        if let Some(mut open) = self.open.take() {
            let time = open.time_of(now);
            let end = Mark { at: at.max(open.end()), time, is_start: false };
            self.close(&mut open, end, cuts);
            // If nothing came since the last time, that is still to be said; but of the first segment of all it is not.
            self.is_broken = open.is_discontinuous || !cuts.is_empty();
        }
    }

    /// The stream's own clock says `media` at a start point that was taken, and goes on from there: whoever reads it began anew.
    pub(super) fn set_clock(&mut self, at: u64, media: Duration) {
        if let Some(open) = self.open.as_mut().filter(|open| open.last.at == at) {
            open.last.media = Some(media);
        }
    }

    /// Takes a start point.
    pub(super) fn start(&mut self, at: u64, media: Option<Duration>, now: Instant, cuts: &mut Vec<Cut>) {
        let Some(mut open) = self.open.take() else {
            let anchor = Anchor { at, time: Duration::ZERO, came: now, media };
            let begin = Mark { at, time: Duration::ZERO, is_start: true };
            let is_discontinuous = mem::take(&mut self.is_broken);
            self.open = Some(self.begin(begin, is_discontinuous, anchor));
            return;
        };
        let waited = now.saturating_duration_since(open.last.came);
        let media_step = open.last.media.zip(media).map(|(last, media)| media.checked_sub(last));
        let has_jumped = media_step.is_some_and(|step| step.is_none_or(|step| step > waited + AHEAD_MAX));
        let step = media_step.flatten().filter(|_| !has_jumped);
        let time = open.last.time + step.unwrap_or(waited);
        let gap = time - open.last.time;
        open.settle(at, step.filter(|step| *step > 2 * waited));
        open.last = Anchor { at, time, came: now, media };
        let mark = Mark { at, time, is_start: true };
        let is_new = has_jumped || *open.header != *self.header;
        let len = time.saturating_sub(open.begin.time);
        let target_seconds = self.target_seconds.unwrap_or(self.wanted_seconds);
        let is_enough = len.as_secs() >= target_seconds || len + gap >= limit(target_seconds);
        if at == open.begin.at {
            open.begin = mark;
        } else if at >= open.parts.end() && (is_new || is_enough) {
            self.close(&mut open, mark, cuts);
            open = self.begin(mark, is_new, open.last);
        } else if at >= open.parts.end() {
            open.push(mark);
        }
        open.parts.start(at);
        self.open = Some(open);
    }

    /// A unit ends at `at`. Who writes many at once need not say so of each.
    pub(super) fn boundary(&mut self, at: u64, now: Instant, cuts: &mut Vec<Cut>) {
        let Some(mut open) = self.open.take() else { return };
        let time = open.time_of(now);
        let mark = Mark { at, time, is_start: false };
        open.push(mark);
        if let Some(target_seconds) = self.target_seconds
            && let Some(longer) = open.parts.boundary(mark)
        {
            open.marks.clear();
            if longer >= limit(target_seconds) {
                open.cut(mark, target_seconds, cuts);
            }
        }
        let target_seconds = self.target_seconds.unwrap_or(TARGET_SECONDS_MAX);
        let is_late = time.saturating_sub(open.begin.time) > Duration::from_secs(target_seconds) + LATE_MAX;
        if is_late && !open.marks.is_empty() {
            self.target_seconds = Some(target_seconds);
            self.split(&mut open, target_seconds, cuts);
        }
        self.open = Some(open);
    }

    fn begin(&self, begin: Mark, is_discontinuous: bool, last: Anchor) -> Open {
        let parts = Parts::new(self.part_target, begin);
        Open { begin, is_discontinuous, header: self.header.clone(), parts, marks: Vec::new(), step: 1, last }
    }

    /// Ends the open segment at `end`, or some segments up to there.
    fn close(&mut self, open: &mut Open, end: Mark, cuts: &mut Vec<Cut>) {
        if end.at <= open.begin.at {
            return;
        }
        let len = end.time.saturating_sub(open.begin.time);
        let rounded = (len + Duration::from_millis(500)).as_secs();
        let chosen = rounded.clamp(self.wanted_seconds, TARGET_SECONDS_MAX);
        let target_seconds = *self.target_seconds.get_or_insert(chosen);
        open.marks.retain(|mark| mark.at < end.at);
        while end.time.saturating_sub(open.begin.time) >= limit(target_seconds) && !open.marks.is_empty() {
            self.split(open, target_seconds, cuts);
        }
        open.cut(end, target_seconds, cuts);
    }

    /// Ends the open segment at the last start point within the target duration, if there is none at the last unit within it, or
    /// else at the first unit.
    fn split(&mut self, open: &mut Open, target_seconds: u64, cuts: &mut Vec<Cut>) {
        let within = |mark: &Mark| mark.time.saturating_sub(open.begin.time) < limit(target_seconds);
        let start = open.marks.iter().rposition(|mark| mark.is_start && within(mark));
        let place = start.or_else(|| open.marks.iter().rposition(within)).unwrap_or(0);
        if let Some(mark) = open.marks.get(place).copied() {
            open.marks.drain(..=place);
            open.cut(mark, target_seconds, cuts);
        }
    }
}

impl Open {
    /// The last place that is known of.
    fn end(&self) -> u64 {
        self.marks.last().map_or(self.parts.end(), |mark| mark.at)
    }

    /// The time of what comes now, as far as it can be known.
    fn time_of(&self, now: Instant) -> Duration {
        self.last.time + now.saturating_duration_since(self.last.came)
    }

    fn push(&mut self, mark: Mark) {
        if mark.is_start {
            // It was found behind units that were told of.
            self.marks.retain(|other| other.at < mark.at);
        } else if mark.at < self.end() + self.step {
            return;
        }
        if self.marks.len() == MARKS_MAX {
            let mut is_kept = true;
            self.marks.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.step = (mark.at - self.begin.at) / MARKS_MAX as u64 + 1;
        }
        self.marks.push(mark);
    }

    /// The next start point is at `at`, so long after the last one, if what is between came faster than it plays.
    fn settle(&mut self, at: u64, step: Option<Duration>) {
        let (Some(step), Some(len)) = (step, at.checked_sub(self.last.at).filter(|len| *len > 0)) else { return };
        for mark in self.marks.iter_mut().filter(|mark| mark.at > self.last.at) {
            let part = (mark.at.min(at) - self.last.at) as f64 / len as f64;
            mark.time = self.last.time + step.mul_f64(part);
        }
    }

    /// Ends a segment at `end`, and begins the next there.
    fn cut(&mut self, end: Mark, target_seconds: u64, cuts: &mut Vec<Cut>) {
        if end.at <= self.begin.at {
            return;
        }
        let len = end.time.saturating_sub(self.begin.time);
        // A unit that is longer than all is to be cannot be cut.
        let duration = if len < limit(target_seconds) { len } else { Duration::from_secs(target_seconds) };
        cuts.push(Cut {
            range: self.begin.at..end.at,
            duration: duration.max(Duration::from_millis(1)),
            is_independent: self.begin.is_start,
            is_discontinuous: mem::take(&mut self.is_discontinuous),
            header: self.header.clone(),
            parts: self.parts.close(end),
        });
        (self.begin, self.step) = (end, 1);
    }
}

/// What a segment's duration must stay below, so that it is the target duration when rounded (RFC 8216 §4.3.3.1).
fn limit(target_seconds: u64) -> Duration {
    Duration::from_millis(target_seconds * 1_000 + 500)
}
