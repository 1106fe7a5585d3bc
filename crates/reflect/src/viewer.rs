//! One viewer: a connection, and what it still gets.
//!
//! Cost: some 250 bytes, and those of the response's head and the header until they are sent.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Bitrate, LinkId, LinkRequest};

use crate::counters::Counters;
use crate::course::{After, Course};
use crate::feed::{Feed, Place};
use crate::moved::{MovedViewer, PaceState, ViewerState};
use crate::spec::{EndReason, EndedViewer, Join, Lag, NewViewer, Pace, StreamId, ViewerId, ViewerNow};
use crate::stream::Stream;
use crate::window::{Bytes, StartPoint, Window};

/// How many times faster than its pace a connection may be until it has caught up: so that who begins at a start point
/// sees something soon.
const JOINING: f64 = 8.0;

/// For how long it may. A worker that has more to do than it can would otherwise never be rid of it: bursts cost it half as much
/// again, and so nobody would catch up.
const JOINING_MAX: Duration = Duration::from_secs(1);

/// Bytes of rests of units that are kept for all viewers of a worker who fell out of the window. Who needs more is closed.
const RESTS_MAX: u64 = 64 * 1_024 * 1_024;

/// What lets a connection be that had a pace: more than any network has.
const UNLIMITED: Bitrate = Bitrate::from_bps(u64::MAX);

#[derive(Debug)]
pub(crate) struct Viewer {
    pub(crate) id: ViewerId,
    name: StreamId,
    /// His stream's slot, and his index in its members.
    pub(crate) stream: usize,
    pub(crate) member: usize,
    /// `None`: it is not open yet.
    pub(crate) link: Option<LinkId>,
    pub(crate) feed: Feed,
    /// The header that he has seen; he gets another one where he is moved to.
    header: Option<u64>,
    /// The kernel has no room.
    pub(crate) is_blocked: bool,
    /// The last turn in which something was written for him (`Reflect::turn`).
    pub(crate) turn: u64,
    /// He is to have a turn of his own.
    pub(crate) is_ready: bool,
    has_caught_up: bool,
    /// The end of what was written for him last.
    written_to: u64,
    pace: Option<Pace>,
    /// What the engine was told of it.
    paced: Option<Bitrate>,
    /// What is under a cipher cannot go over to another process.
    pub(crate) is_sealed: bool,
    /// He goes over to another process, or is about to.
    pub(crate) is_leaving: bool,
    /// He gets what is ahead of him, and no more.
    pub(crate) is_finishing: bool,
    /// Nothing more is sent to him.
    pub(crate) ending: Option<EndReason>,
    /// Bytes that he sent, which nobody looks at.
    pub(crate) ignored_bytes: usize,
    sent_bytes: u64,
    /// Bytes of the rest of a unit that is kept for him (`Counters::rest_bytes`).
    pub(crate) rest_bytes: u64,
    course: Course,
    began: Instant,
}

/// What becomes of somebody when the window moves.
pub(crate) enum Moved {
    /// He goes on, here or elsewhere.
    GoesOn,
    /// He is to go.
    Ends,
}

impl Viewer {
    pub(crate) fn new(now: Instant, new: &mut NewViewer, stream: &Stream, place: usize) -> Self {
        let mut viewer = Viewer {
            id: new.id,
            name: new.stream,
            stream: place,
            member: 0,
            link: None,
            feed: Feed::default(),
            header: None,
            is_blocked: false,
            turn: 0,
            is_ready: false,
            has_caught_up: false,
            written_to: u64::MAX,
            pace: new.pace,
            paced: None,
            is_sealed: new.begun.cipher.is_some(),
            is_leaving: false,
            is_finishing: false,
            ending: None,
            ignored_bytes: 0,
            sent_bytes: 0,
            rest_bytes: 0,
            course: Course::default(),
            began: now,
        };
        viewer.feed.put_ahead(Arc::new(std::mem::take(&mut new.head)));
        let from = if new.join == Join::Next { stream.window.extent().end } else { 0 };
        viewer.feed.wait(from);
        if let Some(start) = stream.place(now, new.join) {
            viewer.begin(now, start, &stream.window);
        }
        viewer
    }

    /// One who comes from another process. `None`: that cannot have been of this stream.
    pub(crate) fn take_up(
        now: Instant,
        (id, state): (ViewerId, ViewerState),
        stream: &Stream,
        place: usize,
    ) -> Option<Self> {
        let ViewerState { feed, header, has_caught_up, pace, paced_bps, ignored_bytes, sent_bytes, rest_bytes, .. } =
            state;
        if rest_bytes > RESTS_MAX || sent_bytes > u64::MAX / 2 || state.skips > u32::MAX / 2 {
            return None;
        }
        Some(Viewer {
            id,
            name: stream.id,
            stream: place,
            member: 0,
            link: None,
            feed: Feed::restore(feed, stream.window.extent())?,
            header,
            is_blocked: false,
            turn: 0,
            is_ready: false,
            has_caught_up,
            written_to: u64::MAX,
            pace: pace.map(|pace| match pace {
                PaceState::Free => Pace::Free,
                PaceState::Percent(percent) => Pace::Percent(percent),
                PaceState::Bps(bps) => Pace::Rate(Bitrate::from_bps(bps)),
            }),
            paced: paced_bps.map(Bitrate::from_bps),
            is_sealed: false,
            is_leaving: false,
            is_finishing: false,
            ending: None,
            ignored_bytes: ignored_bytes.min(u64::from(u32::MAX)) as usize,
            sent_bytes,
            rest_bytes,
            course: Course {
                skips: state.skips,
                skips_before: state.skips,
                came_over: Some(After::new(state.age)),
                ..Course::default()
            },
            began: now.checked_sub(state.age).unwrap_or(now),
        })
    }

    /// What goes over to another process. **To be settled before.**
    pub(crate) fn moved(self, now: Instant, descriptor: OwnedFd, unread: Box<[u8]>) -> MovedViewer {
        let state = ViewerState {
            feed: self.feed.state(),
            header: self.header,
            has_caught_up: self.has_caught_up,
            pace: self.pace.map(|pace| match pace {
                Pace::Free => PaceState::Free,
                Pace::Percent(percent) => PaceState::Percent(percent),
                Pace::Rate(rate) => PaceState::Bps(rate.bps()),
            }),
            paced_bps: self.paced.map(Bitrate::bps),
            ignored_bytes: self.ignored_bytes as u64,
            sent_bytes: self.sent_bytes,
            rest_bytes: self.rest_bytes,
            skips: self.course.skips,
            age: now.saturating_duration_since(self.began),
        };
        MovedViewer { id: self.id, stream: self.name, descriptor, unread, state }
    }

    fn begin(&mut self, now: Instant, start: StartPoint, window: &Window) {
        self.course.join(now.saturating_duration_since(self.began), window.extent().end - start.at);
        let header = window.header_of(start);
        let other = header.filter(|header| self.header != Some(header.from));
        self.feed.begin(start.at, other.map(|header| Bytes::clone(&header.bytes)));
        self.header = header.map(|header| header.from);
    }

    /// The kernel took what was written, but for the last bytes.
    pub(crate) fn settle(&mut self, unsent: usize, counters: &mut Counters) {
        let taken = self.feed.settle_but(unsent);
        self.sent_bytes += taken;
        counters.sent_bytes += taken;
        if !self.feed.has_ahead() {
            self.forget_rest(counters);
        }
    }

    /// Nothing is kept for him any more.
    pub(crate) fn forget_rest(&mut self, counters: &mut Counters) {
        counters.rest_bytes -= std::mem::take(&mut self.rest_bytes);
    }

    /// Takes him on if he is before the window, which moves: what is over is still there. Where he goes on is seen when he has
    /// room (`go_on`). **To be settled before.**
    pub(crate) fn handle_lag(&mut self, now: Instant, stream: &Stream, counters: &mut Counters) -> Moved {
        let begin = stream.window.extent().begin;
        let Place::At(position) = self.feed.place() else { return Moved::GoesOn };
        if position >= begin {
            return Moved::GoesOn;
        }
        self.see(now, &stream.window);
        let rest = if stream.terms.lag == Lag::Skip { rest_of_unit(stream, position, counters) } else { None };
        let Some(rest) = rest else { return Moved::Ends };
        self.course.skip(now.saturating_duration_since(self.began));
        counters.skips += 1;
        self.wait_behind(rest, begin, counters);
        Moved::GoesOn
    }

    /// He gets the rest of the unit that he is in, as far as it is there, and no more.
    pub(crate) fn finish(&mut self, stream: &Stream, counters: &mut Counters) {
        self.settle(0, counters);
        self.is_finishing = true;
        let rest = match self.feed.place() {
            Place::At(position) => rest_of_unit(stream, position, counters),
            Place::Waits(_) => None,
        };
        self.wait_behind(rest.unwrap_or_default(), u64::MAX, counters);
    }

    /// He waits for a start point, behind the rest of a unit.
    fn wait_behind(&mut self, rest: Bytes, from: u64, counters: &mut Counters) {
        // Who is within a unit has nothing else ahead.
        self.rest_bytes += rest.len() as u64;
        counters.rest_bytes += rest.len() as u64;
        // A header that has not begun is seen by nobody.
        if self.feed.wait(from) {
            self.header = None;
        }
        self.feed.put_ahead(rest);
    }

    /// Begins at the newest start point, if he waits for one that is not older.
    pub(crate) fn go_on(&mut self, now: Instant, window: &Window) {
        let Place::Waits(from) = self.feed.place() else { return };
        if let Some(start) = window.last_start().filter(|start| start.at >= from) {
            self.begin(now, start, window);
        }
    }

    /// What the engine is to be told of his pace, if that has changed, before all that is there is written.
    pub(crate) fn pace(
        &mut self,
        now: Instant,
        link: LinkId,
        stream: &Stream,
        is_crowded: bool,
    ) -> Option<LinkRequest> {
        let written_to = std::mem::replace(&mut self.written_to, stream.window.extent().end);
        self.has_caught_up |= matches!(self.feed.place(), Place::At(position) if position >= written_to)
            || now.saturating_duration_since(self.began) >= JOINING_MAX;
        let rate = match self.pace.unwrap_or(stream.terms.pace) {
            Pace::Free => Bitrate::ZERO,
            Pace::Percent(_) if is_crowded => Bitrate::ZERO,
            Pace::Percent(percent) => stream.terms.rate.scale(f64::from(percent) / 100.0),
            Pace::Rate(rate) => rate,
        };
        let rate = match (rate, self.paced) {
            (Bitrate::ZERO, None) => return None,
            (Bitrate::ZERO, Some(_)) => UNLIMITED,
            (rate, _) if self.has_caught_up => rate,
            (rate, _) => rate.scale(JOINING),
        };
        (self.paced.replace(rate) != Some(rate)).then_some(LinkRequest::Pace { link, rate })
    }

    /// The kernel had no room for all of it.
    pub(crate) fn block(&mut self) {
        self.is_blocked = true;
        self.course.full = self.course.full.saturating_add(1);
    }

    /// Notes how far he is behind. **To be settled before.**
    pub(crate) fn see(&mut self, now: Instant, window: &Window) {
        self.course.see(now.saturating_duration_since(self.began), self.behind(window));
    }

    /// Bytes that are there and that he has still to get; 0 while he waits for a start point.
    fn behind(&self, window: &Window) -> u64 {
        match self.feed.place() {
            Place::At(position) => window.extent().end.saturating_sub(position),
            Place::Waits(_) => 0,
        }
    }

    /// What is said of him while he is here.
    pub(crate) fn told(&self, now: Instant, window: &Window) -> ViewerNow {
        let (sent_bytes, course, behind) = (self.sent_bytes, self.course, self.behind(window));
        ViewerNow { sent_bytes, behind, course, age: now.saturating_duration_since(self.began) }
    }

    /// What is said of him when he is gone.
    pub(crate) fn ended(&self, now: Instant, reason: EndReason) -> EndedViewer {
        let Viewer { id, name, sent_bytes, course, began, .. } = *self;
        let age = now.saturating_duration_since(began);
        EndedViewer { id, stream: name, reason, sent_bytes, course, age }
    }
}

/// What a viewer is owed of the unit that he is in, while there is room for it.
fn rest_of_unit(stream: &Stream, position: u64, counters: &Counters) -> Option<Bytes> {
    stream.rest_of_unit(position, RESTS_MAX.saturating_sub(counters.rest_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_is_small() {
        let bytes = std::mem::size_of::<Viewer>();
        assert!(bytes <= 304, "{bytes}");
    }
}
