//! Rooms and who is in them, for who looks at many of them: a part of a list at a time, and of each what takes no search.

use std::ops::Bound;
use std::time::Duration;

use livekit_protocol::participant_info::State;

use crate::directory::{Number, RoomNumber};
use crate::media::SessionId;
use crate::participant::Participant;
use crate::rooms::Rooms;

/// A room as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomView {
    /// Of all rooms that there ever were: lists go by it.
    pub number: u64,
    /// What it is called.
    pub name: String,
    /// When it was opened, since 1970.
    pub created: Duration,
    /// Who is there, whether or not others hear of them.
    pub participants: usize,
    /// What is published.
    pub tracks: usize,
}

/// A participant as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipantView {
    /// Of all that there ever were: lists go by it.
    pub number: u64,
    /// Who it is.
    pub identity: String,
    /// What it is called.
    pub name: String,
    /// How far it has come: `joining`, `joined`, `active`, `disconnected`.
    pub state: String,
    /// When it came, since 1970.
    pub joined: Duration,
    /// Tracks that it publishes.
    pub publishes: usize,
    /// Tracks that it gets.
    pub gets: usize,
    /// Its client: the SDK, by its name in LiveKit's protocol, and that one's version.
    pub client: (String, String),
    /// Of the packet path.
    pub sessions: Vec<SessionId>,
}

impl Rooms {
    /// So many rooms behind a number, the oldest first.
    pub fn rooms_behind(&self, after: u64, count: usize) -> Vec<RoomView> {
        let rooms = self.rooms().range((Bound::Excluded(RoomNumber(after)), Bound::Unbounded)).take(count);
        let view = |(number, room): (&RoomNumber, &crate::room::Room)| RoomView {
            number: number.0,
            name: room.name.clone(),
            created: room.created.unix,
            participants: room.members.len(),
            tracks: room.tracks.len(),
        };
        rooms.map(view).collect()
    }

    /// So many participants of a room behind a number, the first to come first. `None`: there is no such room.
    pub fn participants_behind(&self, room: &str, after: u64, count: usize) -> Option<Vec<ParticipantView>> {
        let behind = (Bound::Excluded(Number(after)), Bound::Unbounded);
        Some(self.named(room)?.members.range(behind).take(count).map(|(_, member)| view(member)).collect())
    }

    /// One participant of a room.
    pub fn participant(&self, room: &str, identity: &str) -> Option<ParticipantView> {
        let room = self.named(room)?;
        room.members.get(&room.find(identity)?).map(view)
    }
}

fn view(member: &Participant) -> ParticipantView {
    let state = State::try_from(member.state as i32).map_or("", |state| state.as_str_name());
    ParticipantView {
        number: member.number.0,
        identity: member.identity.clone(),
        name: member.name.clone(),
        state: state.to_lowercase(),
        joined: member.joined.unix,
        publishes: member.tracks.len(),
        gets: member.downs.len(),
        client: (member.client.sdk().as_str_name().to_lowercase(), member.client.version.clone()),
        sessions: member.transports.sessions(),
    }
}
