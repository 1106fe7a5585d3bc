//! Parts of segments, which players get before the segment is over (draft-pantos-hls-rfc8216bis §4.4.4.9).
//!
//! A part ends with the unit that reaches nine tenths of the part's target duration: less than 85 % is allowed to the last of a
//! segment alone, and more than all of it to none. Between start points only the bytes' coming says what time it is, so a source
//! must send as it plays; of one that does not, parts say too little of how long they play, and segments do not.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cutter::Mark;

/// No part is said to play shorter.
pub(super) const DURATION_MIN: Duration = Duration::from_millis(1);

/// A piece of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Where it stands, in bytes since the stream began.
    pub(super) range: Range<u64>,
    /// For how long it plays.
    pub(super) duration: Duration,
    /// It begins at a start point. The draft asks for one anywhere in it; but of a part with sound before its first picture
    /// players make streams of sound alone, which take no picture any more.
    pub(super) is_independent: bool,
}

/// The parts of an open segment.
#[derive(Debug)]
pub(super) struct Parts {
    /// `None`: there are none.
    target: Option<Duration>,
    over: Vec<Part>,
    /// Where the open one begins.
    begin: Mark,
}

impl Parts {
    pub(super) fn new(target: Option<Duration>, begin: Mark) -> Self {
        Parts { target, over: Vec::new(), begin }
    }

    /// The same, when some are over already.
    pub(super) fn restore(target: Option<Duration>, over: Vec<Part>, begin: Mark) -> Self {
        Parts { target, over, begin }
    }

    /// Where the open one begins.
    pub(super) fn begin(&self) -> Mark {
        self.begin
    }

    /// Those that are over.
    pub(super) fn over(&self) -> &[Part] {
        &self.over
    }

    /// Before this, nothing can be changed any more.
    pub(super) fn end(&self) -> u64 {
        self.begin.at
    }

    /// There is a start point at `at`.
    pub(super) fn start(&mut self, at: u64) {
        self.begin.is_start |= at == self.begin.at;
    }

    /// A unit ends. Returns whether a part does; then with it how long the segment would be with another one.
    pub(super) fn boundary(&mut self, mark: Mark) -> Option<Duration> {
        let target = self.target?;
        if mark.at <= self.begin.at || mark.time.saturating_sub(self.begin.time) < target * 9 / 10 {
            return None;
        }
        self.end_part(mark, target);
        Some(self.over.iter().map(|part| part.duration).sum::<Duration>() + target)
    }

    /// The segment ends. Returns all its parts: none, when all of it came at once.
    pub(super) fn close(&mut self, end: Mark) -> Vec<Part> {
        let is_whole = |target| self.over.is_empty() && end.time.saturating_sub(self.begin.time) > target;
        if let Some(target) = self.target.filter(|target| end.at > self.begin.at && !is_whole(*target)) {
            self.end_part(end, target);
        }
        self.begin = end;
        std::mem::take(&mut self.over)
    }

    fn end_part(&mut self, end: Mark, target: Duration) {
        let len = end.time.saturating_sub(self.begin.time);
        let duration = len.clamp(DURATION_MIN, target);
        self.over.push(Part { range: self.begin.at..end.at, duration, is_independent: self.begin.is_start });
        self.begin = end;
    }
}
