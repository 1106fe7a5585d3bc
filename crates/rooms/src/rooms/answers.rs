//! What control asks about sessions.

use super::Rooms;
use crate::spec::{Event, SessionId};

impl Rooms {
    /// Answers `Command::Inspect`.
    pub(super) fn inspect(&mut self, session: SessionId, token: u64) {
        let session = self.session_by_id.get(&session).map(|key| &self.sessions[*key]);
        let stats = session.map(|session| session.stats(&self.streams));
        self.events.push_back(Event::Stats { token, stats });
    }

    /// Answers `Command::Tell`.
    pub(super) fn tell(&mut self, session: SessionId, token: u64) {
        let session = self.session_by_id.get(&session).map(|key| &self.sessions[*key]);
        let story = session.map(|session| Box::new(session.transport.story.clone()));
        self.events.push_back(Event::Story { token, story });
    }
}
