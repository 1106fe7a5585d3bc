//! What became of sessions that are gone, for as long as there is room.
//!
//! In: that a session has ended, from control, and its story, from its worker: whichever comes first. Out: both, for who asks.
//! Cost: a map lookup each; the memory of `KEPT_MAX` stories.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use rooms::spec::{self, SessionId};
use rooms::story::Story;

use crate::kept::Kept;
use crate::rooms::directory::{Role, Session};
use crate::rooms::negotiator::EndReason;

/// Sessions that are gone and still known, at most: the one that ended first is forgotten for the next. A story has one
/// kilobyte, and seven at most.
const KEPT_MAX: usize = 4_096;

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Part {
    /// It brings a stream.
    Publisher,
    /// It gets one.
    Viewer,
    /// It is one of a participant's, in a room of LiveKit's.
    Participant,
}

impl From<Role> for Part {
    fn from(role: Role) -> Self {
        match role {
            Role::Publisher => Part::Publisher,
            Role::Viewer => Part::Viewer,
        }
    }
}

/// Who a session was.
#[derive(Clone, Debug)]
pub struct About {
    /// What it is for.
    pub part: Part,
    /// The stream's name, or the room's.
    pub stream: Arc<str>,
    /// From where its request came.
    pub address: Option<IpAddr>,
    /// Its token's `sub`, or its identity in the room.
    pub subject: Option<Arc<str>>,
    /// When it came.
    pub since: Instant,
    /// Its handshake was done; of a participant's it is taken to be.
    pub was_connected: bool,
}

impl From<&Session> for About {
    fn from(session: &Session) -> Self {
        About {
            part: session.role.into(),
            stream: session.name.clone(),
            address: session.client.address,
            subject: session.client.subject.clone(),
            since: session.since,
            was_connected: session.is_connected,
        }
    }
}

/// A session that is gone.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Who it was; `None` where that is still to come.
    pub about: Option<About>,
    /// When it ended.
    pub at: Instant,
    /// Why, in a word.
    pub why: &'static str,
    /// What became of it; `None` where it never was connected, or that is still to come.
    pub story: Option<Box<Story>>,
}

/// The same of sessions that never were connected: they are cheap to make, and are not to push the others out.
const UNCONNECTED_KEPT_MAX: usize = 512;

/// All that are still known.
#[derive(Debug)]
pub struct Stories {
    connected: Kept<SessionId, Ended>,
    unconnected: Kept<SessionId, Ended>,
}

impl Default for Stories {
    fn default() -> Self {
        Stories { connected: Kept::new(KEPT_MAX), unconnected: Kept::new(UNCONNECTED_KEPT_MAX) }
    }
}

impl Stories {
    /// A session has ended.
    pub fn end(&mut self, now: Instant, session: SessionId, about: About, why: &'static str) {
        let kept = if about.was_connected { &mut self.connected } else { &mut self.unconnected };
        let ended = kept.entry(session, || Ended::at(now));
        (ended.about, ended.why) = (Some(about), why);
    }

    /// A worker has told what became of a session.
    pub fn tell(&mut self, now: Instant, session: SessionId, story: Box<Story>) {
        self.connected.entry(session, || Ended::at(now)).story = Some(story);
    }

    /// A session that has ended.
    pub fn get(&self, session: SessionId) -> Option<&Ended> {
        self.connected.get(&session).or_else(|| self.unconnected.get(&session))
    }

    /// Those that have ended and are known, the last first.
    pub fn latest(&self) -> impl Iterator<Item = (SessionId, &About, &Ended)> {
        let all = self.connected.latest_with(&self.unconnected, |ended| ended.at);
        all.filter_map(|(session, ended)| Some((session, ended.about.as_ref()?, ended)))
    }
}

impl Ended {
    fn at(now: Instant) -> Self {
        Ended { about: None, at: now, why: "", story: None }
    }
}

/// Why a session ended, in a word.
pub fn reason(reason: &EndReason) -> &'static str {
    match reason {
        EndReason::Asked => "asked",
        EndReason::HandshakeTimeout => "handshake_timeout",
        EndReason::MadeRoom => "made_room",
        EndReason::Refused => "refused",
        EndReason::Peer(webrtc::EndReason::Closed) => "closed_by_client",
        EndReason::Peer(_) => "failed",
        EndReason::Abandoned => "abandoned",
        EndReason::Worker(reason) => match reason {
            spec::EndReason::Silent => "silent",
            spec::EndReason::StreamClosed => "stream_closed",
            spec::EndReason::Replaced => "replaced",
            spec::EndReason::Full => "worker_full",
            spec::EndReason::BadKeys => "bad_keys",
            spec::EndReason::Disconnected => "disconnected",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whichever_comes_first_both_are_told_and_the_oldest_are_forgotten() {
        let (now, mut stories) = (Instant::now(), Stories::default());
        let about = |was_connected| About {
            part: Part::Viewer,
            stream: "a".into(),
            address: None,
            subject: None,
            since: now,
            was_connected,
        };
        for session in 0..KEPT_MAX as u64 + 10 {
            if session % 2 == 0 {
                stories.tell(now, SessionId(session), Box::default());
                assert!(
                    stories.latest().all(|(known, ..)| known.0 < session),
                    "it has not ended yet, as far as is known"
                );
            }
            stories.end(now, SessionId(session), about(true), "asked");
            if session % 2 == 1 {
                stories.tell(now, SessionId(session), Box::default());
            }
        }
        assert!(stories.latest().all(|(_, _, ended)| ended.story.is_some() && ended.why == "asked"));
        let known: Vec<u64> = stories.latest().map(|(session, ..)| session.0).collect();
        assert_eq!((known.len(), known[0], known[KEPT_MAX - 1]), (KEPT_MAX, KEPT_MAX as u64 + 9, 10));
        assert!(stories.get(SessionId(9)).is_none() && stories.get(SessionId(10)).is_some());

        for session in 10_000..20_000 {
            stories.end(now, SessionId(session), about(false), "abandoned");
        }
        assert!(stories.get(SessionId(10)).is_some(), "who only asks pushes nobody out");
        assert_eq!(stories.latest().count(), KEPT_MAX + UNCONNECTED_KEPT_MAX);
    }
}
