//! Who asks for sessions, and how many of each client's offers wait for their client to connect.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::accept::{PerClient, household};

/// Who asks for a session, as far as HTTP knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Where the request came from, before any proxy. A client of our own has none.
    pub address: Option<IpAddr>,
    /// Its token's `sub`.
    pub subject: Option<Arc<str>>,
    /// When its session ends, where sessions end with their tokens.
    pub ends_at: Option<Instant>,
}

/// By what clients are told apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Address(IpAddr),
    Subject(Arc<str>),
}

/// Offers whose clients are not connected yet, of each address and each subject.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    counts: PerClient<Key>,
}

impl Waiting {
    /// Whether the client may have one more.
    pub(super) fn has_room(&self, client: &Client, max: usize) -> bool {
        client.keys().all(|key| self.counts.has_room(&key, max))
    }

    /// One more, for which there is room.
    pub(super) fn enter(&mut self, client: &Client) {
        for key in client.keys() {
            self.counts.enter(key, usize::MAX);
        }
    }

    pub(super) fn leave(&mut self, client: &Client) {
        client.keys().for_each(|key| self.counts.leave(key));
    }
}

impl Client {
    fn keys(&self) -> impl Iterator<Item = Key> {
        let address = self.address.map(|ip| Key::Address(household(ip)));
        address.into_iter().chain(self.subject.clone().map(Key::Subject))
    }
}
