//! Users that control looks up: what it found, whom it is asked for, and the requests that wait for it.
//!
//! In: names that requests come with, and what was found. Out: keys, or that there is nobody; names to look up.
//!
//! An answer is used until it is some time old; then it is used once more and asked for again, so nobody waits for a user
//! who is known. While nothing can be looked up, whoever is known goes on, and others are told so (500). Names that nobody
//! has are remembered for a short time in a table of their own, so that who makes names up drives out nobody.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{LinkKind, Path};

use super::generations::Generations;
use super::{Client, UserKeys};
use crate::message::Message;

/// Users whose keys are remembered: as many, or twice as many. Those who were not heard of for longest are asked for again.
const KNOWN_COUNT_MAX: usize = 8_192;
/// Names of nobody, likewise.
const MISSING_COUNT_MAX: usize = 2_048;
/// Users who are asked for at a time; others are told to come again (500).
const ASKED_COUNT_MAX: usize = 1_024;
/// Datagrams that wait for one user; others are forgotten, and come again.
const WAITING_COUNT_MAX: usize = 4;
/// Connections that wait for one user, and requests of each of them, for whichever users. Nothing is sent again there (RFC
/// 8489 §6.2.2), so others are told to come again (500).
const CONNECTIONS_COUNT_MAX: usize = 1_024;
const PER_CONNECTION_MAX: usize = 4;
/// A request with what TURN knows has a tenth of it; a longer one does not wait.
const WAITING_LEN_MAX: usize = 1_500;
/// Bytes of all requests that wait. Beyond that datagrams are forgotten too, and who is at a connection is told so (500).
const WAITING_BYTES_MAX: usize = 4 * 1_024 * 1_024;

/// Keys are asked for again when they are so old,
const FRESH_FOR: Duration = Duration::from_secs(60);
/// and not used before there is an answer, when they are so old.
const USED_FOR: Duration = Duration::from_secs(600);
/// Who was not there may be by now.
const MISSING_FOR: Duration = Duration::from_secs(5);
/// After so long what could not be looked up is asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Control answers every question; should one be lost, it is asked again.
const ANSWERED_AFTER: Duration = Duration::from_secs(10);

/// What was found of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// His keys.
    Keys(UserKeys),
    /// There is no such user.
    Nobody,
    /// It could not be found out.
    Unavailable,
}

/// A request that waited for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who sent it.
    pub client: Client,
    /// All of it.
    pub request: Box<[u8]>,
}

/// What is known of a user by now.
pub(super) enum Outcome {
    Keys(UserKeys),
    Nobody,
    Unavailable,
    Asked,
}

#[derive(Debug)]
pub(super) struct Answers {
    known: Generations<Known>,
    /// Whether there is nobody, or it could not be found out; until when that holds.
    missing: Generations<(Found, Instant)>,
    asked: HashMap<Arc<str>, Asked>,
    load: Load,
    lookups: VecDeque<Arc<str>>,
}

/// What waits for all users together.
#[derive(Debug, Default)]
struct Load {
    bytes: usize,
    /// Requests of each connection.
    per_connection: HashMap<Path, usize>,
}

#[derive(Debug)]
struct Known {
    keys: UserKeys,
    /// From when on it is asked for again.
    fresh_until: Instant,
    /// From when on it is not used without an answer.
    used_until: Instant,
    /// Where the stranger came from for whom he was asked for, until he has proved himself there.
    tried_at: Option<IpAddr>,
}

#[derive(Debug)]
struct Asked {
    at: Instant,
    waiting: Vec<Waiting>,
    /// As `Known::tried_at`.
    tried_at: Option<IpAddr>,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            known: Generations::new(KNOWN_COUNT_MAX),
            missing: Generations::new(MISSING_COUNT_MAX),
            asked: HashMap::new(),
            load: Load::default(),
            lookups: VecDeque::new(),
        }
    }
}

impl Answers {
    /// What is known of a user, who is asked for when that is nothing, or too old. For a stranger that is if `may_ask`, which
    /// takes a try where he is at `tried_at`.
    pub(super) fn find(
        &mut self,
        now: Instant,
        name: &Arc<str>,
        tried_at: Option<IpAddr>,
        may_ask: impl FnOnce() -> bool,
    ) -> Outcome {
        if let Some(known) = self.known.get_mut(name) {
            let (keys, used_until) = (known.keys.clone(), known.used_until);
            if known.fresh_until <= now && !self.ask(now, name, None) && used_until <= now {
                return Outcome::Unavailable;
            }
            return if now < used_until { Outcome::Keys(keys) } else { Outcome::Asked };
        }
        match self.missing.get_mut(name) {
            Some((Found::Unavailable, until)) if now < *until => return Outcome::Unavailable,
            Some((_, until)) if now < *until => return Outcome::Nobody,
            _ => {}
        }
        if self.asked.contains_key(name) || may_ask() && self.ask(now, name, tried_at) {
            Outcome::Asked
        } else {
            Outcome::Unavailable
        }
    }

    /// Asks for a user, unless that was done. False when there are too many questions.
    fn ask(&mut self, now: Instant, name: &Arc<str>, tried_at: Option<IpAddr>) -> bool {
        let is_lost = |asked: &Asked| now.saturating_duration_since(asked.at) >= ANSWERED_AFTER;
        if self.asked.get(name).is_some_and(|asked| !is_lost(asked)) {
            return true;
        }
        if self.asked.len() >= ASKED_COUNT_MAX {
            for (_, lost) in self.asked.extract_if(|_, asked| is_lost(asked)) {
                self.load.remove(&lost.waiting);
            }
        }
        if self.asked.len() >= ASKED_COUNT_MAX {
            return false;
        }
        self.asked.entry(name.clone()).or_insert_with(|| Asked { at: now, waiting: Vec::new(), tried_at }).at = now;
        self.lookups.push_back(name.clone());
        true
    }

    /// Keeps a request until its user is found. One that came twice is kept once. False: there is no room for one that will
    /// not come again.
    pub(super) fn wait(&mut self, name: &Arc<str>, client: &Client, request: &Message<'_>) -> bool {
        let Some(asked) = self.asked.get_mut(name) else { return true };
        let same = |there: &&Waiting| there.client == *client;
        if asked.waiting.iter().filter(same).any(|there| *there.request == *request.bytes) {
            return true;
        }
        let (is_sent_once, fits) = (is_connection(client), request.bytes.len() <= WAITING_LEN_MAX);
        let waiting = asked.waiting.iter().filter(|there| is_connection(&there.client) == is_sent_once).count();
        let has_room = match is_sent_once {
            true => waiting < CONNECTIONS_COUNT_MAX && self.load.of_connection(client) < PER_CONNECTION_MAX,
            false => waiting < WAITING_COUNT_MAX,
        };
        let is_kept =
            has_room && fits && self.load.bytes + size_of::<Waiting>() + request.bytes.len() <= WAITING_BYTES_MAX;
        if is_kept {
            let waiting = Waiting { client: *client, request: request.bytes.into() };
            self.load.add(&waiting);
            asked.waiting.push(waiting);
        }
        is_kept || !is_sent_once
    }

    /// Takes an answer; returns who waited for it.
    pub(super) fn handle_found(&mut self, now: Instant, name: &Arc<str>, found: Found) -> Vec<Waiting> {
        let asked = self.asked.remove(name);
        self.load.remove(asked.as_ref().map_or(&[], |asked| &asked.waiting));
        let before = self.known.get_mut(name);
        match (found, before) {
            (Found::Keys(keys), _) => {
                self.missing.remove(name);
                let tried_at = asked.as_ref().and_then(|asked| asked.tried_at);
                let known = Known { keys, fresh_until: now + FRESH_FOR, used_until: now + USED_FOR, tried_at };
                self.known.insert(name.clone(), known);
            }
            (Found::Unavailable, Some(known)) => {
                known.fresh_until = now + RETRY_AFTER;
                known.used_until = known.used_until.max(now + ANSWERED_AFTER);
            }
            (Found::Unavailable, None) => {
                self.missing.insert(name.clone(), (Found::Unavailable, now + RETRY_AFTER));
            }
            (Found::Nobody, _) => {
                self.known.remove(name);
                self.missing.insert(name.clone(), (Found::Nobody, now + MISSING_FOR));
            }
        }
        asked.map(|asked| asked.waiting).unwrap_or_default()
    }

    /// A user has proved himself at an address. True, once: to ask for him took a try there.
    pub(super) fn has_proved(&mut self, name: &Arc<str>, at: IpAddr) -> bool {
        self.known.get_mut(name).is_some_and(|known| known.tried_at.take_if(|tried_at| *tried_at == at).is_some())
    }

    pub(super) fn poll_lookup(&mut self) -> Option<Arc<str>> {
        self.lookups.pop_front()
    }
}

impl Load {
    fn of_connection(&self, client: &Client) -> usize {
        self.per_connection.get(&client.path).copied().unwrap_or(0)
    }

    fn add(&mut self, waiting: &Waiting) {
        self.bytes += waiting.size();
        if is_connection(&waiting.client) {
            *self.per_connection.entry(waiting.client.path).or_default() += 1;
        }
    }

    fn remove(&mut self, all: &[Waiting]) {
        for waiting in all {
            self.bytes -= waiting.size();
            if let Entry::Occupied(mut entry) = self.per_connection.entry(waiting.client.path) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }
}

impl Waiting {
    /// Bytes that it takes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.request.len()
    }
}

fn is_connection(client: &Client) -> bool {
    client.path.link.kind() != LinkKind::Datagrams
}
