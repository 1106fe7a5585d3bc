//! Other speeds: pictures that stand alone, one after the other, and what control is told of them.

use crate::queue::Queue;
use crate::spec::{Event, SessionId};

/// Pictures that are being shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pictures {
    /// Their number, from `Command::Trick`, and how many commands they came by.
    run: u64,
    parts: u32,
    /// Control was told that they are about to run out.
    is_asked_for: bool,
    /// All are shown, and nobody was told.
    pub(super) is_shown: bool,
}

impl Pictures {
    /// The first ones. `is_shown`: there are none.
    pub(super) fn new(run: u64, is_shown: bool) -> Self {
        Pictures { run, parts: 1, is_asked_for: false, is_shown }
    }

    /// More of them; false when they belong to others.
    pub(super) fn add(&mut self, run: u64) -> bool {
        if self.run == run {
            *self = Pictures { run, parts: self.parts + 1, is_asked_for: false, is_shown: false };
        }
        self.run == run
    }

    /// What control is to be told.
    pub(super) fn poll_event(&mut self, queue: &Queue, session: SessionId) -> Option<Event> {
        let Pictures { run, parts, .. } = *self;
        if !self.is_asked_for && queue.lacks_pictures() {
            self.is_asked_for = true;
            return Some(Event::PicturesWanted { session, run });
        }
        std::mem::take(&mut self.is_shown).then_some(Event::PicturesShown { session, run, parts })
    }
}
