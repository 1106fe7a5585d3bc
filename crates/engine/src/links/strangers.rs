//! Strangers among the connections of one listener, which are those to which nothing was sent yet, and who is none any more.
//!
//! In: connections as they come, are answered, and go. Out: how many of either a source has, and which stranger came first,
//! of all or of one source.
//! Cost: two entries of 8 bytes for each connection of the last seconds, as a stranger's time is short.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use wire::{LinkId, source_network};

#[derive(Default)]
pub(super) struct Strangers {
    /// In the order in which they came. Some are none any more, or gone.
    queue: VecDeque<LinkId>,
    by_source: HashMap<IpAddr, Source>,
}

/// Those of one source, of which there are some now.
#[derive(Default)]
struct Source {
    count: usize,
    /// Connections that are known.
    known: usize,
    /// As the queue of all.
    queue: VecDeque<LinkId>,
}

impl Strangers {
    /// How many one source has now, and how many connections that are known.
    pub(super) fn counts_of(&self, ip: IpAddr) -> (usize, usize) {
        self.by_source.get(&source_network(ip)).map_or((0, 0), |source| (source.count, source.known))
    }

    /// One has come.
    pub(super) fn enter(&mut self, link: LinkId, ip: IpAddr) {
        self.queue.push_back(link);
        let source = self.by_source.entry(source_network(ip)).or_default();
        source.count += 1;
        source.queue.push_back(link);
    }

    /// One is known from now on.
    pub(super) fn settle(&mut self, ip: IpAddr) {
        if let Some(source) = self.by_source.get_mut(&source_network(ip)) {
            source.count -= 1;
            source.known += 1;
        }
    }

    /// One is gone, or one who was known.
    pub(super) fn leave(&mut self, ip: IpAddr, is_stranger: bool) {
        let network = source_network(ip);
        if let Some(source) = self.by_source.get_mut(&network) {
            *(if is_stranger { &mut source.count } else { &mut source.known }) -= 1;
            if source.count == 0 && source.known == 0 {
                self.by_source.remove(&network);
            }
        }
    }

    /// The one that came first, of all or of one source, if it may be one still.
    pub(super) fn oldest(&self, of: Option<IpAddr>) -> Option<LinkId> {
        let queue = match of {
            Some(ip) => &self.by_source.get(&source_network(ip))?.queue,
            None => &self.queue,
        };
        queue.front().copied()
    }

    /// The one that came first is none any more.
    pub(super) fn pass_over_oldest(&mut self, of: Option<IpAddr>) {
        let queue = match of {
            Some(ip) => self.by_source.get_mut(&source_network(ip)).map(|source| &mut source.queue),
            None => Some(&mut self.queue),
        };
        queue.and_then(VecDeque::pop_front);
    }
}
