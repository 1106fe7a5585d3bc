//! A stream as one worker knows it: what is there, how it is served, and who gets it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use crate::coalesce::Share;
use crate::feed::Source;
use crate::spec::{Join, StreamId, Terms};
use crate::window::{Bytes, Growth, StartPoint, Units, Window};

/// Bytes of the longest unit whose rest somebody gets who falls out of the window within it.
const REST_MAX: u64 = 256 * 1_024;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    file: Arc<File>,
    pub(crate) window: Window,
    pub(crate) terms: Terms,
    fresh: Option<Bytes>,
    /// No more comes.
    pub(crate) is_ended: bool,
    pub(crate) members: Members,
}

impl Stream {
    pub(crate) fn new(id: StreamId, file: Arc<File>, units: Units, growth: &Growth, terms: Terms) -> Self {
        let mut window = Window::new(units);
        window.grow(growth);
        Stream { id, file, window, terms, fresh: None, is_ended: false, members: Members::default() }
    }

    pub(crate) fn grow(&mut self, growth: &Growth) {
        self.window.grow(growth);
        self.fresh.clone_from(&growth.fresh);
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source { file: &self.file, end: self.window.extent().end, fresh: self.fresh.as_ref() }
    }

    /// Where somebody begins who comes now. `None`: at the next start point.
    pub(crate) fn place(&self, now: Instant, join: Join) -> Option<StartPoint> {
        match join {
            Join::Next => None,
            Join::Newest => self.window.last_start(),
            Join::Back(time) => {
                now.checked_sub(time).map_or_else(|| self.window.start_at(now), |time| self.window.start_at(time))
            }
        }
    }

    /// The rest of the unit that a position is in, of what is over but still there. `None`: it cannot be had, or
    /// has more than `len_max` bytes.
    pub(crate) fn rest_of_unit(&self, position: u64, len_max: u64) -> Option<Bytes> {
        let end = self.window.unit_end(position)?;
        let len = Some(end - position).filter(|len| *len <= REST_MAX.min(len_max))?;
        let mut rest = vec![0; len as usize];
        self.file.read_exact_at(&mut rest, position).ok()?;
        Some(Arc::new(rest.into()))
    }
}

/// Who gets a stream, in turns: a share of them after each growth, all of them at most.
#[derive(Debug, Default)]
pub(crate) struct Members {
    slots: Vec<usize>,
    next: usize,
    left: usize,
    /// Of a turn, in thousandths, which shares have left over.
    rest: usize,
}

impl Members {
    /// Takes a viewer in; returns his index.
    pub(crate) fn insert(&mut self, slot: usize) -> usize {
        self.slots.push(slot);
        self.slots.len() - 1
    }

    /// Lets one go; returns who has his index from now on. That was the last one, whose turn may have been to come where he
    /// was: **he is to have one of his own.**
    pub(crate) fn remove(&mut self, index: usize) -> Option<usize> {
        self.slots.swap_remove(index);
        self.slots.get(index).copied()
    }

    /// So many are to have a turn, those next who had none for longest; true when nobody had one to come.
    pub(crate) fn start(&mut self, share: Share) -> bool {
        let thousandths = self.slots.len() * share.thousandths() + self.rest;
        self.rest = thousandths % 1_000;
        let left = (self.left + thousandths / 1_000).min(self.slots.len());
        std::mem::replace(&mut self.left, left) == 0 && left > 0
    }

    /// Whose turn it is.
    pub(crate) fn current(&mut self) -> Option<usize> {
        if self.next >= self.slots.len() {
            self.next = 0;
        }
        if self.left == 0 { None } else { self.slots.get(self.next).copied() }
    }

    /// He has had it.
    pub(crate) fn advance(&mut self) {
        (self.next, self.left) = (self.next + 1, self.left.saturating_sub(1));
    }

    pub(crate) fn slots(&self) -> &[usize] {
        &self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves so many, or all.
    fn serve(members: &mut Members, count: usize) -> Vec<usize> {
        let next = |members: &mut Members| members.current().inspect(|_| members.advance());
        std::iter::from_fn(|| next(members)).take(count).collect()
    }

    #[test]
    fn members_go_on_where_they_stopped_and_nobody_is_left_out() {
        let mut members = Members::default();
        for slot in 10..15 {
            members.insert(slot);
        }
        assert_eq!(serve(&mut members, 9), [], "nothing has grown");
        assert!(members.start(Share::ALL));
        assert_eq!(serve(&mut members, 3), [10, 11, 12]);
        assert!(!members.start(Share::ALL), "they have turns already");
        assert_eq!(serve(&mut members, 9), [13, 14, 10, 11, 12]);
    }

    #[test]
    fn of_those_who_stay_where_they_are_nobody_loses_his_turn_by_one_that_leaves() {
        for gone in 0..4 {
            let mut members = Members::default();
            for slot in 10..14 {
                members.insert(slot);
            }
            members.start(Share::ALL);
            let mut served = serve(&mut members, 2);
            let moved = members.remove(gone);
            assert_eq!(moved, (gone < 3).then_some(13));
            served.extend(serve(&mut members, 9));
            for slot in (10..14).filter(|slot| *slot != 10 + gone && Some(*slot) != moved) {
                assert!(served.contains(&slot), "{slot} of {served:?} when {gone} has left");
            }
        }
        let mut members = Members::default();
        members.insert(10);
        members.start(Share::ALL);
        assert!(members.remove(0).is_none() && members.current().is_none() && !members.start(Share::ALL));
    }
}
