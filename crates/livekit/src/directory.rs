//! Whose connections, sessions and tracks are which.

use std::collections::HashMap;

use crate::media::{SessionId, TrackId};
use crate::output::ConnectionId;

/// A room, by the order in which they were opened. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoomNumber(pub(crate) u64);

/// A participant, by the order in which they joined. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Number(pub(crate) u64);

/// Where a participant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) room: RoomNumber,
    pub(crate) who: Number,
}

#[derive(Debug, Default)]
pub(crate) struct Directory {
    connections: HashMap<ConnectionId, Place>,
    sessions: HashMap<SessionId, Place>,
    tracks: HashMap<TrackId, (Place, String)>,
    last: u64,
}

impl Directory {
    /// A number that nobody has had yet.
    pub(crate) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn open_connection(&mut self, place: Place) -> ConnectionId {
        let connection = ConnectionId(self.number());
        self.connections.insert(connection, place);
        connection
    }

    pub(crate) fn open_session(&mut self, place: Place) -> SessionId {
        let session = SessionId(self.number());
        self.sessions.insert(session, place);
        session
    }

    pub(crate) fn open_track(&mut self, place: Place, sid: &str) -> TrackId {
        let track = TrackId(self.number());
        self.place_track(track, place, sid);
        track
    }

    /// These are somewhere else now.
    pub(crate) fn place(&mut self, place: Place, connection: Option<ConnectionId>, sessions: &[SessionId]) {
        self.connections.extend(connection.map(|connection| (connection, place)));
        self.sessions.extend(sessions.iter().map(|session| (*session, place)));
    }

    /// The same of a track.
    pub(crate) fn place_track(&mut self, track: TrackId, place: Place, sid: &str) {
        self.tracks.insert(track, (place, sid.to_owned()));
    }

    pub(crate) fn close_connection(&mut self, connection: ConnectionId) -> Option<Place> {
        self.connections.remove(&connection)
    }

    pub(crate) fn close_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub(crate) fn close_track(&mut self, track: TrackId) {
        self.tracks.remove(&track);
    }

    pub(crate) fn of_connection(&self, connection: ConnectionId) -> Option<Place> {
        self.connections.get(&connection).copied()
    }

    pub(crate) fn of_session(&self, session: SessionId) -> Option<Place> {
        self.sessions.get(&session).copied()
    }

    pub(crate) fn of_track(&self, track: TrackId) -> Option<(Place, &str)> {
        self.tracks.get(&track).map(|(place, sid)| (*place, sid.as_str()))
    }

    /// How many connections, sessions and tracks there are.
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.connections.len(), self.sessions.len(), self.tracks.len())
    }
}
