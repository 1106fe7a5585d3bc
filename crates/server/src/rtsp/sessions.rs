//! The RTSP sessions there are, by ids that nobody guesses.
//!
//! Cost: one lock, held for a map lookup; a look at all sessions when it is asked which are due.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use pump::spec::SessionId;
use rustc_hash::FxHashMap;

use super::SESSION_TIMEOUT;
use crate::pump::destination::Destination;

/// Sessions at most, those that play nothing included; newcomers are refused.
const SESSIONS_MAX: usize = 50_000;

pub(super) struct Session {
    pub(super) title: String,
    pub(super) duration: Option<Duration>,
    /// Only this address may speak for it.
    pub(super) client: IpAddr,
    pub(super) destination: Destination,
    /// Held while a request is carried out, so that requests of two connections do not mix.
    pub(super) playing: tokio::sync::Mutex<Playing>,
}

#[derive(Default)]
pub(super) struct Playing {
    /// `None`: not played yet.
    pub(super) pump: Option<SessionId>,
    /// Where the pump session was told to end.
    pub(super) end: Option<Duration>,
    /// It was removed while a request waited.
    pub(super) is_gone: bool,
}

#[derive(Default)]
pub(super) struct Sessions {
    /// With when they time out.
    sessions: Mutex<FxHashMap<String, (Instant, Arc<Session>)>>,
}

impl Sessions {
    /// Adds a session and returns its id; `None` when there are too many.
    pub(super) fn add(&self, now: Instant, session: Session) -> Option<String> {
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random).ok()?;
        let id = random.iter().fold(String::new(), |mut id, byte| {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
            id
        });
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            return None;
        }
        sessions.insert(id.clone(), (now + SESSION_TIMEOUT, Arc::new(session)));
        Some(id)
    }

    /// The client's session of that id, which lives on from `now`.
    pub(super) fn touch(&self, now: Instant, id: &str, client: IpAddr) -> Option<Arc<Session>> {
        let mut sessions = self.lock();
        let (due, session) = sessions.get_mut(id).filter(|(_, session)| session.client == client)?;
        *due = now + SESSION_TIMEOUT;
        Some(session.clone())
    }

    pub(super) fn remove(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Removes the sessions that have timed out.
    pub(super) fn take_due(&self, now: Instant) -> Vec<Arc<Session>> {
        self.lock().extract_if(|_, (due, _)| *due <= now).map(|(_, (_, session))| session).collect()
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<String, (Instant, Arc<Session>)>> {
        self.sessions.lock().expect("nobody panics under this lock")
    }
}
