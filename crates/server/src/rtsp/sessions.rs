//! The RTSP sessions there are, by ids that nobody guesses, and what each plays.
//!
//! Cost: one lock, held for a few map lookups; a look at all sessions when it is asked which are due.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use pump::spec::{PlaySpec, SessionId};
use rustc_hash::FxHashMap;
use wire::rtsp::Extent;
use wire::{Token, WorkerId};

use super::limits::Limits;
use super::stats::Transports;
use crate::accept::{PerAddress, household};
use crate::pump::destination::Destination;
use crate::pump::request::{Channel, OpenRequest};

/// One session, from SETUP to its end.
#[derive(Debug)]
pub(super) struct Session {
    /// Nobody guesses it.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) extent: Extent,
    /// The stream's URI as SETUP had it.
    pub(super) track: String,
    /// Only this address may speak for it.
    pub(super) client: IpAddr,
    pub(super) destination: Destination,
    pub(super) delivery: Delivery,
    /// Held while a request is carried out, so that requests of two connections do not mix.
    pub(super) state: tokio::sync::Mutex<State>,
}

/// What PLAY has to know of what was before.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) has_played: bool,
    /// The last PLAY set an end.
    pub(super) has_end: bool,
}

/// How packets and reports get to the client.
#[derive(Debug)]
pub(super) enum Delivery {
    /// By UDP; reports to an address of their own, when it has one.
    Datagrams { rtcp: Option<SocketAddr> },
    /// In a connection, on channels of packets and of reports.
    Interleaved { connection: Token, channels: (u8, u8) },
}

impl Session {
    /// What is asked of the pump for it: all of the title. `worker` has its connection, if one does.
    pub(super) fn opening(&self, worker: Option<WorkerId>) -> OpenRequest {
        let channel = match self.delivery {
            Delivery::Datagrams { .. } => None,
            Delivery::Interleaved { connection, channels } => Some(Channel { connection, number: channels.0, worker }),
        };
        // A player tells where it is by the title's own clock, and stands still itself while it pauses.
        let play = PlaySpec { restamp: false, ..PlaySpec::default() };
        OpenRequest { channel, play, ..OpenRequest::new(self.title.clone(), self.destination.clone()) }
    }
}

impl Delivery {
    /// As a Transport header says it.
    pub(super) fn words(&self, client: IpAddr, destination: &Destination) -> String {
        match self {
            Delivery::Datagrams { rtcp } => {
                let second = rtcp.map(|rtcp| format!("-{}", rtcp.port())).unwrap_or_default();
                format!("destination={client};client_port={}{second}", destination.port)
            }
            Delivery::Interleaved { channels: (rtp, rtcp), .. } => format!("interleaved={rtp}-{rtcp}"),
        }
    }
}

/// What a session plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) pump: SessionId,
    pub(super) worker: WorkerId,
    /// `None`: it is not sent in RTP.
    pub(super) ssrc: Option<u32>,
}

pub(super) struct Sessions {
    limits: Limits,
    /// That of the limits, which may change.
    sessions_per_client: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    sessions: FxHashMap<String, Entry>,
    by_ssrc: FxHashMap<u32, String>,
    clients: PerAddress,
}

struct Entry {
    session: Arc<Session>,
    /// When it times out.
    due: Instant,
    source: Option<Source>,
    /// When its next report is due.
    report: Instant,
    /// Since when its source is known to have ended.
    ended: Option<Instant>,
}

/// A session whose time has come for a report.
pub(super) struct Due {
    pub(super) session: Arc<Session>,
    pub(super) source: Source,
    /// The source has ended, and this is to be its last report.
    pub(super) is_last: bool,
}

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        Sessions { sessions_per_client: AtomicUsize::new(limits.sessions_per_client), limits, table: Mutex::default() }
    }

    /// So many of one client there may be from now on. Those that are there go on.
    pub(super) fn set_sessions_per_client(&self, count: usize) {
        self.sessions_per_client.store(count, Relaxed);
    }

    /// Adds a session; `None` when there are too many, in all or of its client.
    pub(super) fn add(&self, now: Instant, session: Session) -> Option<Arc<Session>> {
        let (sessions_max, sessions_per_client) = (self.limits.sessions_max, self.sessions_per_client.load(Relaxed));
        let mut table = self.lock();
        if table.sessions.len() >= sessions_max || !table.clients.enter(household(session.client), sessions_per_client)
        {
            return None;
        }
        let (session, due) = (Arc::new(session), now + self.limits.session_timeout);
        let entry = Entry { session: session.clone(), due, source: None, report: now, ended: None };
        table.sessions.insert(session.id.clone(), entry);
        Some(session)
    }

    /// The client's session of that id, which lives on from `now`.
    pub(super) fn touch(&self, now: Instant, id: &str, client: IpAddr) -> Option<Arc<Session>> {
        let mut table = self.lock();
        let entry = table.sessions.get_mut(id).filter(|entry| entry.session.client == client)?;
        entry.due = now + self.limits.session_timeout;
        Some(entry.session.clone())
    }

    /// A receiver reports on a stream: its session lives on. Returns the session's id.
    pub(super) fn touch_by_ssrc(&self, now: Instant, ssrc: u32, client: IpAddr) -> Option<String> {
        let mut table = self.lock();
        let id = table.by_ssrc.get(&ssrc)?.clone();
        let entry = table.sessions.get_mut(&id).filter(|entry| entry.session.client == client)?;
        entry.due = now + self.limits.session_timeout;
        Some(id)
    }

    /// The session's player said goodbye: it ends soon, unless it is heard of again. Returns what it plays.
    pub(super) fn part(&self, now: Instant, id: &str) -> Option<Source> {
        let mut table = self.lock();
        let entry = table.sessions.get_mut(id)?;
        entry.due = now + self.limits.goodbye_timeout;
        entry.source
    }

    pub(super) fn source(&self, id: &str) -> Option<Source> {
        self.lock().sessions.get(id)?.source
    }

    /// Whether the session plays nothing: it has played to its end, and said so.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        self.lock().sessions.get(id).is_some_and(|entry| entry.source.is_none())
    }

    /// Whether there is such a session, whatever it plays.
    pub(super) fn has(&self, id: &str) -> bool {
        self.lock().sessions.contains_key(id)
    }

    /// From `now` on the session plays this; false when it is gone, so that nobody else would end what it plays.
    #[must_use]
    pub(super) fn set_source(&self, now: Instant, id: &str, source: Source) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.sessions.get_mut(id) else { return false };
        (entry.report, entry.ended) = (now + self.limits.first_report, None);
        let before = entry.source.replace(source);
        if let Some(ssrc) = before.and_then(|source| source.ssrc) {
            table.by_ssrc.remove(&ssrc);
        }
        if let Some(ssrc) = source.ssrc {
            table.by_ssrc.insert(ssrc, id.to_owned());
        }
        true
    }

    /// The session plays nothing more, when it played this.
    pub(super) fn clear_source(&self, id: &str, pump: SessionId) {
        let mut table = self.lock();
        let entry = table.sessions.get_mut(id);
        let source = entry.and_then(|entry| entry.source.take_if(|source| source.pump == pump));
        if let Some(ssrc) = source.and_then(|source| source.ssrc) {
            table.by_ssrc.remove(&ssrc);
        }
    }

    /// Removes a session, and returns it with what it plays.
    pub(super) fn remove(&self, id: &str) -> Option<(Arc<Session>, Option<Source>)> {
        self.lock().remove(id)
    }

    /// Removes the sessions that have timed out. One that plays in a connection that there is has not: that ends when its
    /// client takes nothing any more.
    pub(super) fn take_due(
        &self,
        now: Instant,
        is_playing: impl Fn(Token, SessionId) -> bool,
    ) -> Vec<(Arc<Session>, Option<Source>)> {
        let mut table = self.lock();
        let mut due = Vec::new();
        for (id, entry) in table.sessions.iter_mut().filter(|(_, entry)| entry.due <= now) {
            let plays = match (&entry.session.delivery, entry.source) {
                (Delivery::Interleaved { connection, .. }, Some(source)) => is_playing(*connection, source.pump),
                _ => false,
            };
            if plays {
                entry.due = now + self.limits.session_timeout;
            } else {
                due.push(id.clone());
            }
        }
        due.iter().filter_map(|id| table.remove(id)).collect()
    }

    /// The sessions that are to report. `is_open` tells whether what they play has not ended; those of which it has get
    /// their last report a while later, so that it overtakes no packet.
    pub(super) fn take_reports(&self, now: Instant, is_open: impl Fn(SessionId) -> bool) -> Vec<Due> {
        let mut table = self.lock();
        let mut due = Vec::new();
        for entry in table.sessions.values_mut() {
            let Some(source) = entry.source else { continue };
            let is_last = match entry.ended {
                Some(ended) => now.saturating_duration_since(ended) >= self.limits.goodbye_linger,
                None if !is_open(source.pump) => {
                    entry.ended = Some(now);
                    false
                }
                None => false,
            };
            if !is_last && (entry.ended.is_some() || entry.report > now) {
                continue;
            }
            // Each has its own distance, so that they do not come together.
            let spread = self.limits.report_interval / 2 * (source.ssrc.unwrap_or(0) % 1_000) / 1_000;
            entry.report = now + self.limits.report_interval + spread;
            due.push(Due { session: entry.session.clone(), source, is_last });
        }
        due
    }

    pub(super) fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    pub(super) fn by_transport(&self) -> Transports {
        let mut counts = Transports::default();
        self.lock().sessions.values().for_each(|entry| counts.count(&entry.session));
        counts
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("nobody panics under this lock")
    }
}

impl Table {
    fn remove(&mut self, id: &str) -> Option<(Arc<Session>, Option<Source>)> {
        let Entry { session, source, .. } = self.sessions.remove(id)?;
        if let Some(ssrc) = source.and_then(|source| source.ssrc) {
            self.by_ssrc.remove(&ssrc);
        }
        self.clients.leave(household(session.client));
        Some((session, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_share_the_sessions_that_a_client_may_have() {
        let sessions = Sessions::new(Limits { sessions_per_client: 2, ..Limits::default() });
        let add = |client: &str| sessions.add(Instant::now(), session(client)).is_some();
        assert!(add("2001:db8::1") && add("2001:db8::2"));
        assert!(!add("2001:db8::3") && !add("2001:db8:0:0:ffff::1"), "the same network");
        assert!(add("2001:db8:0:1::1") && add("192.0.2.1"));
        drop(sessions.remove("2001:db8::1"));
        assert!(add("2001:db8::4"), "one has gone");
    }

    /// A session of that client, which is also its id.
    fn session(client: &str) -> Session {
        Session {
            id: client.to_owned(),
            title: "title".to_owned(),
            extent: Extent::Live,
            track: String::new(),
            client: client.parse().expect("an address"),
            destination: Destination { is_rtp: true, host: client.to_owned(), port: 5_004 },
            delivery: Delivery::Datagrams { rtcp: None },
            state: tokio::sync::Mutex::default(),
        }
    }
}
