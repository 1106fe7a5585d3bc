//! Listeners and connections that are ready, some in each turn.
//!
//! In: a set of descriptors, which is itself one in the worker's set, beside UDP sockets and the mailbox. Out: one after the
//! other; who was reported and had no turn is the first in the next one, so that no row of busy connections hides another.
//! Cost: a wait for 256 of them.

use std::io;
use std::time::Duration;

use super::EVENTS_MAX;
use crate::sys::{Epoll, Ready};

pub(crate) struct Connections {
    pub(super) epoll: Epoll,
    /// The next one of those that the last wait reported.
    next: usize,
}

impl Connections {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Connections { epoll: Epoll::new(EVENTS_MAX)?, next: 0 })
    }

    /// Whether some that were reported had no turn yet.
    pub(crate) fn has_rest(&self) -> bool {
        self.next < self.epoll.ready_count()
    }

    /// Looks who is ready, when all who were had their turns.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        if !self.has_rest() {
            self.next = 0;
            self.epoll.wait(Some(Duration::ZERO))?;
        }
        Ok(())
    }

    /// The next who is ready, or was.
    pub(crate) fn next(&mut self) -> Option<Ready> {
        let ready = self.epoll.ready(self.next)?;
        self.next += 1;
        Some(ready)
    }
}
