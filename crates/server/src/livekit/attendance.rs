//! Who the sessions of LiveKit's rooms are, for their stories.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use livekit::media::{Request, SessionId};

use crate::rooms::stories::{About, Part};

/// Those that are there.
#[derive(Debug, Default)]
pub struct Attendance(HashMap<SessionId, Attendant>);

#[derive(Debug)]
struct Attendant {
    about: About,
    /// Why it ends, where that is known before the rooms let go of it.
    why: Option<&'static str>,
}

impl Attendance {
    /// Takes note of what the rooms ask for. Returns who is gone by that, and why.
    pub fn handle(&mut self, now: Instant, request: &Request) -> Option<(SessionId, About, &'static str)> {
        match request {
            Request::Open { session, room_name, identity, .. } => {
                let about = About {
                    part: Part::Participant,
                    stream: room_name.as_str().into(),
                    address: None,
                    subject: Some(Arc::from(identity.as_str())),
                    since: now,
                    was_connected: true,
                };
                self.0.insert(*session, Attendant { about, why: None });
                None
            }
            Request::Close { session } => {
                let Attendant { about, why } = self.0.remove(session)?;
                Some((*session, about, why.unwrap_or("asked")))
            }
            _ => None,
        }
    }

    /// The packet path has lost a session; the rooms will let go of it.
    pub fn note_end(&mut self, session: SessionId, why: &'static str) {
        if let Some(attendant) = self.0.get_mut(&session) {
            attendant.why = Some(why);
        }
    }

    /// Who a session is.
    pub fn get(&self, session: SessionId) -> Option<&About> {
        self.0.get(&session).map(|attendant| &attendant.about)
    }
}
