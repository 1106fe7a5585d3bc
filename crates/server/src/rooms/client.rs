//! Who asks for sessions, and how many each client has: sessions, and offers that wait for their client to connect.
//!
//! Publishers and viewers have shares of their own, so that viewers of a household keep its publisher from nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::accept::{PerClient, household};
use crate::rooms::directory::{DirectoryError, Role, Settings};

/// Who asks for a session, as far as HTTP knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Where the request came from, before any proxy. A client of our own has none.
    pub address: Option<IpAddr>,
    /// The address is that of a proxy that is believed, and has not said for whom it asks: there may be many behind it.
    pub is_proxy: bool,
    /// Its token's `sub`.
    pub subject: Option<Arc<str>>,
    /// Tells its token from others where that has no `sub`: there may be many who have the same.
    pub token: Option<u64>,
    /// When its session ends, where sessions end with their tokens.
    pub ends_at: Option<Instant>,
}

/// By what clients are told apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Address(IpAddr),
    Subject(Arc<str>),
    Token(u64),
}

impl Client {
    /// Its household, and whose token it shows.
    pub(super) fn keys(&self) -> [Option<Key>; 2] {
        let subject = self.subject.clone().map(Key::Subject);
        [self.address.map(|ip| Key::Address(household(ip))), subject.or(self.token.map(Key::Token))]
    }

    /// Those of whom a client has so many offers waiting: a token that many may have is none of them.
    fn waits_as(&self) -> impl Iterator<Item = Key> {
        self.watches_as().filter(|key| !matches!(key, Key::Token(_)))
    }

    /// Those of whom a client has so many sessions: a proxy is nobody.
    fn watches_as(&self) -> impl Iterator<Item = Key> {
        self.keys().into_iter().flatten().filter(|key| !(self.is_proxy && matches!(key, Key::Address(_))))
    }
}

/// What each client has.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Offers whose clients are not connected yet.
    waiting: PerClient<(Role, Key)>,
    /// Sessions that are connected.
    connected: PerClient<(Role, Key)>,
}

impl Shares {
    /// Whether the client may have one more offer waiting, and one more session.
    pub(super) fn check(&self, role: Role, client: &Client, settings: &Settings) -> Result<(), DirectoryError> {
        let has_room = |key| {
            // One who is named takes no household's or office's whole share.
            let max = match key {
                Key::Subject(_) => settings.waiting_per_client.div_ceil(4),
                Key::Address(_) | Key::Token(_) => settings.waiting_per_client,
            };
            self.waiting.has_room(&(role, key), max)
        };
        if !client.waits_as().all(has_room) {
            return Err(DirectoryError::TooManyWaiting);
        }
        self.check_connected(role, client, settings)
    }

    /// Whether the client may have one more session.
    pub(super) fn check_connected(
        &self,
        role: Role,
        client: &Client,
        settings: &Settings,
    ) -> Result<(), DirectoryError> {
        let has_room = |key| {
            let max = match key {
                Key::Token(_) => settings.sessions_per_token,
                Key::Address(_) | Key::Subject(_) => settings.sessions_per_client,
            };
            self.connected.has_room(&(role, key), max)
        };
        if client.watches_as().all(has_room) { Ok(()) } else { Err(DirectoryError::TooManySessions) }
    }

    /// An offer waits.
    pub(super) fn wait(&mut self, role: Role, client: &Client) {
        for key in client.waits_as() {
            self.waiting.enter((role, key), usize::MAX);
        }
    }

    /// An offer waits no more.
    pub(super) fn end_wait(&mut self, role: Role, client: &Client) {
        client.waits_as().for_each(|key| self.waiting.leave((role, key)));
    }

    /// A session is connected.
    pub(super) fn enter(&mut self, role: Role, client: &Client) {
        for key in client.watches_as() {
            self.connected.enter((role, key), usize::MAX);
        }
    }

    /// A session that was connected is over.
    pub(super) fn leave(&mut self, role: Role, client: &Client) {
        client.watches_as().for_each(|key| self.connected.leave((role, key)));
    }
}
