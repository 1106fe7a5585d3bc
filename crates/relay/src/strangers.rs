//! Clients' connections that nobody makes use of: there is no allocation on them, and they carry no data.
//!
//! In: connections as they come, are made use of, are not any more, and go. Out: how many of them a source has, and which of
//! them came first, of all or of one source.
//! Cost: two ordered maps, when a connection comes, changes and goes; packets never come here.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use wire::source_network;

/// All of one worker, by their slots.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    last: u64,
    /// The number of each in the order in which they came, and where from.
    known: HashMap<usize, (u64, IpAddr)>,
    queue: BTreeMap<u64, usize>,
    by_source: HashMap<IpAddr, BTreeMap<u64, usize>>,
}

impl Strangers {
    /// One has come, or is not made use of any more.
    pub(crate) fn enter(&mut self, slot: usize, client: SocketAddr) {
        if self.known.contains_key(&slot) {
            return;
        }
        self.last += 1;
        let (number, source) = (self.last, source_of(client));
        self.known.insert(slot, (number, source));
        self.queue.insert(number, slot);
        self.by_source.entry(source).or_default().insert(number, slot);
    }

    /// One is made use of, or gone.
    pub(crate) fn leave(&mut self, slot: usize) {
        let Some((number, source)) = self.known.remove(&slot) else { return };
        self.queue.remove(&number);
        if let Some(queue) = self.by_source.get_mut(&source) {
            queue.remove(&number);
            if queue.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }

    /// The one that came first.
    pub(crate) fn oldest(&self) -> Option<usize> {
        self.queue.first_key_value().map(|(_, slot)| *slot)
    }

    /// The one that came first of a client's source, where that has so many.
    pub(crate) fn oldest_of_many(&self, client: SocketAddr, max: usize) -> Option<usize> {
        let queue = self.by_source.get(&source_of(client)).filter(|queue| queue.len() >= max)?;
        queue.first_key_value().map(|(_, slot)| *slot)
    }
}

fn source_of(client: SocketAddr) -> IpAddr {
    source_network(client.ip().to_canonical())
}
