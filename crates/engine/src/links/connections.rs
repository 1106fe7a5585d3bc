//! Listeners and connections that are ready, some in each turn.
//!
//! In: a set of descriptors, which is itself one in the worker's set, beside UDP sockets and the mailbox. Out: one after the
//! other; who was reported and had no turn is the first in the next one, so that no row of busy connections hides another.
//! Cost: a wait for 256 of them.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use wire::LinkId;

use super::EVENTS_MAX;
use crate::sys::{Epoll, Ready};

pub(crate) struct Connections {
    pub(super) epoll: Epoll,
    /// The next one of those that the last wait reported.
    next: usize,
    /// Connections with something to handle that the kernel knows nothing of: each is there once for each reason.
    unread: VecDeque<LinkId>,
}

impl Connections {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Connections { epoll: Epoll::new(EVENTS_MAX)?, next: 0, unread: VecDeque::new() })
    }

    /// Whether some that were reported had no turn yet.
    pub(crate) fn has_rest(&self) -> bool {
        !self.unread.is_empty() || self.next < self.epoll.ready_count()
    }

    /// Has a connection's turn come though the kernel has nothing new of it.
    pub(super) fn come_back_to(&mut self, link: LinkId) {
        self.unread.push_back(link);
    }

    /// Looks who is ready, when all who were had their turns.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        if self.next >= self.epoll.ready_count() {
            self.next = 0;
            self.epoll.wait(Some(Duration::ZERO))?;
        }
        Ok(())
    }

    /// The next who is ready, or was.
    pub(crate) fn next(&mut self) -> Option<Ready> {
        if let Some(link) = self.unread.pop_front() {
            return Some(Ready { token: link.to_bits(), readable: true, writable: false, failed: false });
        }
        let ready = self.epoll.ready(self.next)?;
        self.next += 1;
        Some(ready)
    }
}
