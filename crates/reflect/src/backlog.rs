//! The writer's side of a stream's memory: one file of ever-growing offsets that all workers send from.
//!
//! In: bytes, and what is at the place where they begin. Out: where to write them, `Growth` to tell workers of, and which
//! part of the file to give back (fallocate(2), "FALLOC_FL_PUNCH_HOLE").
//!
//! Nothing is ever overwritten: the kernel's queues refer to pages of the file, and what is written there again would be
//! sent twice, in part. A page that is given back stays with who refers to it. But who reads it afterwards reads zeros; so
//! a part is given back when every worker has said that nobody of its viewers is there any more (`Event::Passed`).
//! Memory: the window, a step, and what workers are slow to let go of: together no more than two windows. Then nothing is
//! taken until they have, and the source waits.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use wire::WorkerId;

use crate::moved::{BacklogState, Places};
use crate::window::{BOUNDARIES_MAX, Bytes, Extent, Growth, Header, STARTS_MAX, StartPoint, Units, Window};

/// No more than the last so many bytes go to those who wait for them by a copy, as a send of that is cheaper than one of a
/// file's pages.
pub const FRESH_MAX: usize = 16 * 1_024;

/// Growth of so many times at most is sent by a copy: what viewers wait for who have their turns in shares.
const FRESH_TIMES: usize = 12;

/// The window's beginning moves in steps of this part of it: each is a look at every viewer and a hole.
const STEPS: u64 = 16;

/// What holes are made of.
const PAGE: u64 = 4_096;

/// There is no room until workers have let go of what is over (`Backlog::passed`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a worker holds on to {held} bytes")]
pub struct Full {
    /// What is in memory.
    pub held: u64,
}

/// What the writer of a stream knows. The file is the caller's.
#[derive(Debug)]
pub struct Backlog {
    window: Window,
    size: u64,
    step: u64,
    /// Before this the file is a hole.
    hole: u64,
    /// Workers that read, and the beginning of the window that each has let go of what is before.
    readers: Vec<(WorkerId, u64)>,
    last_start: Option<u64>,
    last_boundary: Option<u64>,
    news: Growth,
    /// The last bytes once more, `FRESH_MAX` or more of them.
    fresh: Vec<u8>,
    /// Where the last growths that were told of began.
    told: VecDeque<u64>,
}

impl Backlog {
    /// A stream without a byte, of which the last `size` bytes are to be there; a few pages at least.
    pub fn new(size: u64, units: Units) -> Self {
        let size = size.max(STEPS * PAGE);
        Backlog {
            window: Window::new(units),
            size,
            step: (size / STEPS).next_multiple_of(PAGE),
            hole: 0,
            readers: Vec::new(),
            last_start: None,
            last_boundary: None,
            news: nothing_new(Extent::default()),
            fresh: Vec::new(),
            told: VecDeque::with_capacity(FRESH_TIMES),
        }
    }

    /// All of it but who reads, for another process, which takes the file too.
    pub fn state(&self, now: Instant) -> BacklogState {
        let Backlog { window, size, hole, last_start, last_boundary, news, .. } = self;
        BacklogState {
            unit_len: match window.units() {
                Units::Fixed(len) => Some(len),
                Units::Marked => None,
            },
            size: *size,
            hole: *hole,
            told: Places::of(&window.all(), now),
            news: Places::of(news, now),
            last_start: *last_start,
            last_boundary: *last_boundary,
        }
    }

    /// The same again, without readers. `None`: it cannot have been.
    pub fn restore(now: Instant, state: BacklogState) -> Option<Self> {
        let BacklogState { unit_len, size, hole, told, news, last_start, last_boundary } = state;
        let units = unit_len.map_or(Units::Marked, Units::Fixed);
        let (told, news) = (told.growth(now)?, news.growth(now)?);
        let (before, after) = (told.extent, news.extent);
        let is_right = unit_len.is_none_or(|len| (1..=u64::from(u32::MAX)).contains(&len))
            && hole <= before.begin
            && before.begin <= after.begin
            && before.end <= after.end
            && after.end <= u64::MAX / 4
            && (STEPS * PAGE..=u64::MAX / 4).contains(&size)
            && last_start.max(last_boundary).is_none_or(|at| at <= after.end);
        if !is_right {
            return None;
        }
        let mut window = Window::new(units);
        window.grow(&told);
        let backlog = Backlog::new(size, units);
        Some(Backlog { window, hole, last_start, last_boundary, news, ..backlog })
    }

    /// The newest start point that is there, told of or not, and the header before it. `None`: there is none that has one.
    pub fn newest_start(&self) -> Option<(u64, Bytes)> {
        let start = self.news.starts.last().copied().or_else(|| self.window.last_start())?;
        let told = || self.window.header_of(start);
        let header = self.news.headers.iter().rfind(|header| header.from <= start.at).or_else(told)?;
        (start.at >= self.news.extent.begin).then(|| (start.at, Bytes::clone(&header.bytes)))
    }

    /// Where the next byte will stand.
    pub fn end(&self) -> u64 {
        self.news.extent.end
    }

    /// What is there, the last bytes included, of which workers may not have been told.
    pub fn extent(&self) -> Extent {
        self.news.extent
    }

    /// Bytes that nobody was told of yet.
    pub fn untold(&self) -> u64 {
        self.end() - self.window.extent().end
    }

    /// Whether so much came that workers are to be told at once: who is at the end must not fall out of the window before that.
    pub fn is_urgent(&self) -> bool {
        self.untold() >= self.step
    }

    /// Whether there is room for so many bytes, or for a whole window if they are more.
    ///
    /// # Errors
    /// When workers hold on to too much.
    pub fn check(&self, len: usize) -> Result<(), Full> {
        let held = self.end() - self.hole + self.size.min(len as u64);
        if held > 2 * self.size && !self.readers.is_empty() { Err(Full { held }) } else { Ok(()) }
    }

    /// Takes bytes; returns where they are to be written, at once and before anybody is told.
    ///
    /// # Errors
    /// When workers hold on to too much. Then nothing was taken.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64, Full> {
        self.check(bytes.len())?;
        let at = self.end();
        let end = at + bytes.len() as u64;
        self.news.extent.end = end;
        let over = end.saturating_sub(self.size);
        if over > self.news.extent.begin {
            self.news.extent.begin = over.next_multiple_of(self.step);
        }
        if bytes.len() > FRESH_MAX {
            self.fresh.clear();
        } else {
            self.fresh.extend_from_slice(bytes);
            let over = self.fresh.len().saturating_sub(2 * FRESH_MAX);
            if over > 0 {
                self.fresh.drain(..over + FRESH_MAX);
            }
        }
        Ok(at)
    }

    /// A random-access point begins at the end, with the next byte.
    pub fn mark_start(&mut self, time: Instant) {
        self.mark_start_at(self.end(), time);
    }

    /// A random-access point begins at `at`: it is known by what stands behind it, of which workers may have been told. Of
    /// those that come in another order than they stand in, or are over already, nothing is kept.
    pub fn mark_start_at(&mut self, at: u64, time: Instant) {
        let is_far = self.last_start.is_none_or(|last| at > last + self.size / STARTS_MAX);
        if is_far && at >= self.news.extent.begin {
            debug_assert!(at <= self.end(), "bytes are taken before they are told of");
            self.last_start = Some(at);
            self.news.starts.push(StartPoint { at, time });
        }
    }

    /// A unit begins at the end, with the next byte, or the last one has ended. Nothing to be said of `Units::Fixed`.
    pub fn mark_boundary(&mut self) {
        self.mark_boundary_at(self.end());
    }

    /// A unit begins at `at`, or the one before it has ended there.
    pub fn mark_boundary_at(&mut self, at: u64) {
        let is_far = self.last_boundary.is_none_or(|last| at > last + self.size / BOUNDARIES_MAX);
        if self.window.units() == Units::Marked && is_far && at >= self.news.extent.begin {
            debug_assert!(at <= self.end(), "bytes are taken before they are told of");
            self.last_boundary = Some(at);
            self.news.boundaries.push(at);
        }
    }

    /// Start points at the end, and later ones, are behind this header; empty is none.
    pub fn set_header(&mut self, bytes: &[u8]) {
        self.set_header_at(self.end(), bytes);
    }

    /// Start points from `from` on are behind this header. It is behind the last start point that was marked.
    pub fn set_header_at(&mut self, from: u64, bytes: &[u8]) {
        self.news.headers.retain(|header| header.from < from);
        self.news.headers.push(Header { from, bytes: Arc::new(bytes.into()) });
    }

    /// What is new since it was last asked for, for all workers that read (`Command::Grown`). `in_shares`: not all viewers had
    /// a turn for what was told last.
    pub fn take_growth(&mut self, in_shares: bool) -> Growth {
        let next = nothing_new(self.news.extent);
        let mut growth = std::mem::replace(&mut self.news, next);
        growth.fresh = self.take_fresh(in_shares);
        self.window.grow(&growth);
        self.window.forget();
        growth
    }

    /// A copy of what is new, and of what was before if viewers wait for that. `None`: it is too much.
    fn take_fresh(&mut self, in_shares: bool) -> Option<Bytes> {
        let (told, end) = (self.window.extent().end, self.end());
        let from = if in_shares { self.told.front().copied() } else { None };
        if self.told.len() == FRESH_TIMES {
            self.told.pop_front();
        }
        self.told.push_back(told);
        let new = (end - told) as usize;
        let len = ((end - from.unwrap_or(told)) as usize).min(FRESH_MAX).min(self.fresh.len());
        let copy = &self.fresh[self.fresh.len() - len..];
        (len > 0 && new <= len).then(|| Arc::new(copy.into()))
    }

    /// A worker reads from now on. Returns all that the others were told of (`Command::AddStream`); it may still read before
    /// `extent.begin` of nothing.
    pub fn add_reader(&mut self, worker: WorkerId) -> Growth {
        self.remove_reader(worker);
        let all = self.window.all();
        self.readers.push((worker, all.extent.begin));
        all
    }

    /// A worker reads no more (`Event::Left`).
    pub fn remove_reader(&mut self, worker: WorkerId) {
        self.readers.retain(|(reader, _)| *reader != worker);
    }

    /// Nobody of a worker is before `begin` any more (`Event::Passed`).
    pub fn passed(&mut self, worker: WorkerId, begin: u64) {
        if let Some((_, passed)) = self.readers.iter_mut().find(|(reader, _)| *reader == worker) {
            *passed = begin.max(*passed);
        }
    }

    /// The part of the file to give back now, if there is one.
    pub fn take_hole(&mut self) -> Option<Range<u64>> {
        let told = self.window.extent().begin;
        let passed = self.readers.iter().map(|(_, passed)| *passed).fold(told, u64::min);
        let hole = self.hole..passed / PAGE * PAGE;
        self.hole = self.hole.max(hole.end);
        (!hole.is_empty()).then_some(hole)
    }
}

fn nothing_new(extent: Extent) -> Growth {
    Growth { extent, starts: Vec::new(), boundaries: Vec::new(), headers: Vec::new(), fresh: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = STEPS * PAGE;

    /// A stream of so many steps, told of.
    fn filled(backlog: &mut Backlog, steps: usize) -> Extent {
        for _ in 0..steps {
            backlog.append(&[7; PAGE as usize]).expect("room");
            backlog.mark_start(Instant::now());
            backlog.mark_boundary();
        }
        backlog.take_growth(false).extent
    }

    #[test]
    fn the_window_moves_in_steps_and_never_beyond_its_size() {
        let mut backlog = Backlog::new(SIZE, Units::Fixed(188));
        assert_eq!(filled(&mut backlog, 16), Extent { begin: 0, end: SIZE });
        assert!(!backlog.is_urgent());
        assert_eq!(backlog.append(&[1]), Ok(SIZE));
        assert_eq!(backlog.take_growth(false).extent, Extent { begin: PAGE, end: SIZE + 1 });
        assert_eq!(backlog.append(&[1; 9]), Ok(SIZE + 1));
        assert_eq!(backlog.take_growth(false).extent, Extent { begin: PAGE, end: SIZE + 10 });
        backlog.append(&[1; PAGE as usize]).expect("room");
        assert!(backlog.is_urgent());
    }

    #[test]
    fn a_hole_waits_until_it_was_told_of_and_every_reader_has_passed() {
        let mut backlog = Backlog::new(SIZE, Units::Marked);
        let (one, two) = (WorkerId(1), WorkerId(2));
        assert_eq!((backlog.add_reader(one).extent.end, backlog.add_reader(two).extent.end), (0, 0));
        filled(&mut backlog, 18);
        assert_eq!(backlog.take_hole(), None);
        backlog.passed(one, 2 * PAGE);
        assert_eq!(backlog.take_hole(), None);
        backlog.passed(two, PAGE);
        assert_eq!((backlog.take_hole(), backlog.take_hole()), (Some(0..PAGE), None));
        backlog.remove_reader(two);
        assert_eq!(backlog.take_hole(), Some(PAGE..2 * PAGE));
        backlog.remove_reader(one);
        backlog.append(&[0; 3 * PAGE as usize]).expect("room");
        assert_eq!(backlog.take_hole(), None, "nobody was told");
        backlog.take_growth(false);
        assert_eq!(backlog.take_hole(), Some(2 * PAGE..5 * PAGE));
    }

    #[test]
    fn nothing_is_taken_while_a_worker_holds_on_to_two_windows() {
        let mut backlog = Backlog::new(SIZE, Units::Fixed(1));
        backlog.add_reader(WorkerId(0));
        let begin = filled(&mut backlog, 32).begin;
        assert_eq!(backlog.append(&[1]), Err(Full { held: 2 * SIZE + 1 }));
        backlog.passed(WorkerId(0), begin);
        assert!(backlog.append(&[1]).is_err(), "there is no hole yet");
        assert_eq!((backlog.take_hole(), backlog.append(&[1])), (Some(0..SIZE), Ok(2 * SIZE)));
    }

    #[test]
    fn places_that_are_close_to_each_other_are_one() {
        let mut backlog = Backlog::new(1 << 20, Units::Marked);
        for _ in 0..1 << 18 {
            backlog.mark_start(Instant::now());
            backlog.mark_boundary();
            backlog.append(&[1; 4]).expect("room");
        }
        let growth = backlog.take_growth(false);
        assert_eq!((growth.starts.len(), growth.boundaries.len()), (1_021, 7_944));
        assert_eq!(backlog.add_reader(WorkerId(0)), Growth { fresh: None, ..growth });
    }

    #[test]
    fn places_are_marked_behind_what_was_told_of_in_order_and_while_they_are_there() {
        let mut backlog = Backlog::new(1 << 20, Units::Marked);
        let now = Instant::now();
        backlog.append(&[1; 10_000]).expect("room");
        backlog.take_growth(false);
        backlog.append(&[1; 10_000]).expect("room");
        backlog.set_header_at(4_000, b"header");
        backlog.mark_start_at(4_000, now);
        backlog.mark_start_at(3_000, now);
        backlog.mark_boundary_at(6_000);
        backlog.mark_boundary_at(5_000);
        backlog.mark_start_at(20_000, now);
        let growth = backlog.take_growth(false);
        let starts: Vec<u64> = growth.starts.iter().map(|start| start.at).collect();
        assert_eq!((starts, growth.boundaries), (vec![4_000, 20_000], vec![6_000]));
        assert_eq!(growth.headers.iter().map(|header| header.from).collect::<Vec<_>>(), [4_000]);
        backlog.append(&[1; 1 << 20]).expect("room");
        backlog.mark_start_at(24_000, now);
        backlog.mark_boundary_at(24_000);
        let growth = backlog.take_growth(false);
        assert_eq!((growth.starts, growth.boundaries), (vec![], vec![]), "they are over");
    }

    #[test]
    fn few_bytes_come_with_the_news_of_them() {
        let mut backlog = Backlog::new(SIZE, Units::Fixed(1));
        backlog.append(&[1; 10]).expect("room");
        backlog.append(&[2; 10]).expect("room");
        assert_eq!(
            backlog.take_growth(false).fresh.as_deref().map(|bytes| bytes.to_vec()),
            Some([[1; 10], [2; 10]].concat())
        );
        assert_eq!(backlog.take_growth(false).fresh, None);
        backlog.append(&[1; FRESH_MAX]).expect("room");
        backlog.append(&[1]).expect("room");
        assert_eq!(backlog.take_growth(false).fresh, None);
        backlog.append(&[3]).expect("room");
        assert_eq!(backlog.take_growth(false).fresh.as_deref().map(|bytes| bytes.to_vec()), Some(vec![3]));
    }

    #[test]
    fn who_had_no_turn_for_a_while_gets_a_copy_too() {
        let mut backlog = Backlog::new(SIZE, Units::Fixed(1));
        let mut last = 0;
        for byte in 1..=20 {
            backlog.append(&[byte; 1_000]).expect("room");
            last = backlog.take_growth(true).fresh.expect("few bytes").len();
        }
        assert_eq!(last, 13_000, "the last times'");
        backlog.append(&[21; 9_000]).expect("room");
        let fresh = backlog.take_growth(true).fresh.expect("few bytes");
        assert_eq!((fresh.len(), fresh[0], fresh[7_383]), (FRESH_MAX, 13, 20));
        backlog.append(&[22; FRESH_MAX]).expect("room");
        backlog.append(&[23]).expect("room");
        assert_eq!(backlog.take_growth(true).fresh, None);
        backlog.append(&[24]).expect("room");
        assert_eq!(backlog.take_growth(true).fresh.map(|fresh| fresh.len()), Some(FRESH_MAX));
    }
}
