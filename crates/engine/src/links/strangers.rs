//! Strangers among the connections of one listener: those to which nothing was sent yet.
//!
//! In: connections as they come, are answered, and go. Out: whether one more may come, and who makes room for it.
//! Cost: an entry of 16 bytes for each connection of the last seconds, as a stranger's time is short.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use wire::{LinkId, source_network};

#[derive(Default)]
pub(super) struct Strangers {
    /// In the order in which they came. Some are none any more, or gone.
    queue: VecDeque<LinkId>,
    /// How many each source has now.
    by_source: HashMap<IpAddr, usize>,
}

impl Strangers {
    /// How many one source has now.
    pub(super) fn count_of(&self, ip: IpAddr) -> usize {
        self.by_source.get(&source_network(ip)).copied().unwrap_or(0)
    }

    /// One has come.
    pub(super) fn enter(&mut self, link: LinkId, ip: IpAddr) {
        self.queue.push_back(link);
        *self.by_source.entry(source_network(ip)).or_default() += 1;
    }

    /// One is none any more, or gone.
    pub(super) fn leave(&mut self, ip: IpAddr) {
        let source = source_network(ip);
        if let Some(count) = self.by_source.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    /// The one that came first, if it may be one still.
    pub(super) fn oldest(&self) -> Option<LinkId> {
        self.queue.front().copied()
    }

    /// The one that came first is none any more.
    pub(super) fn pass_over_oldest(&mut self) {
        self.queue.pop_front();
    }
}
