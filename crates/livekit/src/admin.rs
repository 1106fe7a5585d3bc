//! What applications ask for over HTTP: LiveKit's RoomService.

use livekit_protocol::leave_request::Action;
use livekit_protocol::signal_response::Message;
use livekit_protocol::{
    CreateRoomRequest, DataPacket, DeleteRoomRequest, DisconnectReason, ForwardParticipantRequest,
    ListParticipantsRequest, ListParticipantsResponse, ListRoomsRequest, ListRoomsResponse, MoveParticipantRequest,
    MuteRoomTrackRequest, MuteRoomTrackResponse, MuteTrackRequest, ParticipantInfo, Room as RoomInfo,
    RoomParticipantIdentity, SendDataRequest, UpdateParticipantRequest, UpdateRoomMetadataRequest, UpdateSubscription,
    UpdateSubscriptionsRequest, UserPacket, data_packet,
};

use crate::directory::Number;
use crate::limits::{self, TooLong};
use crate::media::Channel;
use crate::room::Room;
use crate::token::{RoomConfig, VideoGrant};
use crate::turn::Turn;
use crate::{data, presence, profile, publish, subscribe};

/// One request, by the name of its method.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "LiveKit's methods, by their names")]
pub enum Request {
    CreateRoom(CreateRoomRequest),
    ListRooms(ListRoomsRequest),
    DeleteRoom(DeleteRoomRequest),
    ListParticipants(ListParticipantsRequest),
    GetParticipant(RoomParticipantIdentity),
    RemoveParticipant(RoomParticipantIdentity),
    MutePublishedTrack(MuteRoomTrackRequest),
    UpdateParticipant(UpdateParticipantRequest),
    UpdateSubscriptions(UpdateSubscriptionsRequest),
    SendData(SendDataRequest),
    UpdateRoomMetadata(UpdateRoomMetadataRequest),
    MoveParticipant(MoveParticipantRequest),
    ForwardParticipant(ForwardParticipantRequest),
}

/// What comes back.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Answer {
    Room(RoomInfo),
    Rooms(ListRoomsResponse),
    Participant(ParticipantInfo),
    Participants(ListParticipantsResponse),
    Track(MuteRoomTrackResponse),
    /// A message without a field.
    Nothing,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Refusal {
    #[error("the token does not allow this")]
    NotAllowed,
    #[error("there is no such room")]
    NoSuchRoom,
    #[error("there is no such participant")]
    NoSuchParticipant,
    #[error("there is no such track")]
    NoSuchTrack,
    #[error("no room is named, or the one in which the participant is")]
    NoName,
    #[error("{0}")]
    TooLong(#[from] TooLong),
    #[error("there are too many rooms")]
    TooManyRooms,
    #[error("the room is full")]
    RoomFull,
    #[error("tracks are not unmuted from here: only their publishers do that")]
    MayNotUnmute,
    #[error("this method is not served here")]
    NotServed,
}

impl Refusal {
    /// As Twirp has it: the code, and the HTTP status.
    pub fn twirp(self) -> (&'static str, u16) {
        match self {
            // As LiveKit says it.
            Refusal::NotAllowed => ("unauthenticated", 401),
            Refusal::NoSuchRoom | Refusal::NoSuchParticipant | Refusal::NoSuchTrack => ("not_found", 404),
            Refusal::NoName | Refusal::TooLong(_) => ("invalid_argument", 400),
            Refusal::TooManyRooms | Refusal::RoomFull => ("resource_exhausted", 429),
            Refusal::MayNotUnmute => ("failed_precondition", 412),
            Refusal::NotServed => ("unimplemented", 501),
        }
    }
}

impl Request {
    /// Whether the bearer of a grant may ask for it.
    pub fn is_allowed(&self, grant: &VideoGrant) -> bool {
        match self {
            Request::CreateRoom(_) | Request::DeleteRoom(_) => grant.room_create,
            Request::ListRooms(_) => grant.room_list,
            Request::MoveParticipant(MoveParticipantRequest { room, destination_room, .. })
            | Request::ForwardParticipant(ForwardParticipantRequest { room, destination_room, .. }) => {
                grant.is_admin_of(room) && grant.destination_room == *destination_room
            }
            Request::ListParticipants(request) => grant.is_admin_of(&request.room),
            Request::GetParticipant(request) | Request::RemoveParticipant(request) => grant.is_admin_of(&request.room),
            Request::MutePublishedTrack(request) => grant.is_admin_of(&request.room),
            Request::UpdateParticipant(request) => grant.is_admin_of(&request.room),
            Request::UpdateSubscriptions(request) => grant.is_admin_of(&request.room),
            Request::SendData(request) => grant.is_admin_of(&request.room),
            Request::UpdateRoomMetadata(request) => grant.is_admin_of(&request.room),
        }
    }

    /// Whether something is another way afterwards: neither what only asks does that, nor a message to participants.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Request::ListRooms(_) | Request::ListParticipants(_) | Request::GetParticipant(_) | Request::SendData(_)
        )
    }

    /// The participant that it is about, by identity.
    pub fn identity(&self) -> Option<&str> {
        match self {
            Request::GetParticipant(request) | Request::RemoveParticipant(request) => Some(&request.identity),
            Request::MutePublishedTrack(request) => Some(&request.identity),
            Request::UpdateParticipant(request) => Some(&request.identity),
            Request::UpdateSubscriptions(request) => Some(&request.identity),
            Request::MoveParticipant(request) => Some(&request.identity),
            Request::ForwardParticipant(request) => Some(&request.identity),
            _ => None,
        }
    }

    /// The room that it is about, where it is about one that is there.
    pub fn room(&self) -> Option<&str> {
        match self {
            Request::CreateRoom(_) | Request::ListRooms(_) => None,
            Request::DeleteRoom(request) => Some(&request.room),
            Request::ListParticipants(request) => Some(&request.room),
            Request::GetParticipant(request) | Request::RemoveParticipant(request) => Some(&request.room),
            Request::MutePublishedTrack(request) => Some(&request.room),
            Request::UpdateParticipant(request) => Some(&request.room),
            Request::UpdateSubscriptions(request) => Some(&request.room),
            Request::SendData(request) => Some(&request.room),
            Request::UpdateRoomMetadata(request) => Some(&request.room),
            Request::MoveParticipant(request) => Some(&request.room),
            Request::ForwardParticipant(request) => Some(&request.room),
        }
    }
}

/// What a request for a room says of it.
pub(crate) fn wanted(request: &CreateRoomRequest) -> Result<RoomConfig, Refusal> {
    if request.name.is_empty() {
        return Err(Refusal::NoName);
    }
    TooLong::check("the name", request.name.len(), limits::NAME_BYTES_MAX)?;
    TooLong::check("the metadata", request.metadata.len(), limits::METADATA_BYTES_MAX)?;
    Ok(RoomConfig {
        empty_timeout: request.empty_timeout,
        departure_timeout: request.departure_timeout,
        max_participants: request.max_participants,
        metadata: request.metadata.clone(),
    })
}

/// Does what is asked of one room.
pub(crate) fn handle(room: &mut Room, request: Request, turn: &mut Turn<'_>) -> Result<Answer, Refusal> {
    match request {
        Request::DeleteRoom(_) => {
            presence::close(room, livekit_protocol::RoomEndReason::RoomEndApiDelete, turn);
            Ok(Answer::Nothing)
        }
        Request::ListParticipants(_) => {
            let participants = room.members.values().map(|member| member.info(&room.tracks)).collect();
            Ok(Answer::Participants(ListParticipantsResponse { participants }))
        }
        Request::GetParticipant(request) => participant(room, &request.identity),
        Request::RemoveParticipant(request) => {
            let who = find(room, &request.identity)?;
            presence::leave(room, who, DisconnectReason::ParticipantRemoved, Some(Action::Disconnect), turn);
            Ok(Answer::Nothing)
        }
        Request::MutePublishedTrack(request) => mute(room, &request, turn),
        Request::UpdateParticipant(request) => update_participant(room, request, turn),
        Request::UpdateSubscriptions(request) => {
            let who = find(room, &request.identity)?;
            let UpdateSubscriptionsRequest { track_sids, subscribe, participant_tracks, .. } = request;
            let wanted = UpdateSubscription { track_sids, subscribe, participant_tracks };
            subscribe::handle_subscription(room, who, &wanted, turn);
            Ok(Answer::Nothing)
        }
        Request::SendData(request) => send_data(room, request, turn),
        Request::UpdateRoomMetadata(request) => {
            TooLong::check("the metadata", request.metadata.len(), limits::METADATA_BYTES_MAX)?;
            room.metadata = request.metadata;
            room.send_room_update(turn);
            Ok(Answer::Room(room.info()))
        }
        Request::CreateRoom(_)
        | Request::ListRooms(_)
        | Request::MoveParticipant(_)
        | Request::ForwardParticipant(_) => Err(Refusal::NotServed),
    }
}

fn find(room: &Room, identity: &str) -> Result<Number, Refusal> {
    room.find(identity).ok_or(Refusal::NoSuchParticipant)
}

fn participant(room: &Room, identity: &str) -> Result<Answer, Refusal> {
    let info = room.member_info(find(room, identity)?);
    info.map(Answer::Participant).ok_or(Refusal::NoSuchParticipant)
}

fn mute(room: &mut Room, request: &MuteRoomTrackRequest, turn: &mut Turn<'_>) -> Result<Answer, Refusal> {
    let who = find(room, &request.identity)?;
    if !request.muted && !turn.config.remote_unmute {
        return Err(Refusal::MayNotUnmute);
    }
    if !publish::is_announced(room, who, &request.track_sid) {
        return Err(Refusal::NoSuchTrack);
    }
    // First: SDKs answer news of a track that is muted, while they have it unmuted, by unmuting it.
    let (sid, muted) = (request.track_sid.clone(), request.muted);
    room.send(who, Message::Mute(MuteTrackRequest { sid, muted }), turn);
    let track = publish::mute(room, who, &request.track_sid, request.muted, turn).ok_or(Refusal::NoSuchTrack)?;
    Ok(Answer::Track(MuteRoomTrackResponse { track: Some(track) }))
}

fn update_participant(
    room: &mut Room,
    request: UpdateParticipantRequest,
    turn: &mut Turn<'_>,
) -> Result<Answer, Refusal> {
    let who = find(room, &request.identity)?;
    let UpdateParticipantRequest { name, metadata, attributes, permission, .. } = &request;
    profile::set(room, who, name, metadata, attributes, turn)?;
    if let Some(permission) = permission {
        profile::set_permission(room, who, permission.clone(), turn);
    }
    participant(room, &request.identity)
}

#[allow(deprecated, reason = "older applications say these fields")]
fn send_data(room: &mut Room, request: SendDataRequest, turn: &mut Turn<'_>) -> Result<Answer, Refusal> {
    TooLong::check("the data", request.data.len(), limits::DATA_BYTES_MAX)?;
    let channel = match request.kind() {
        data_packet::Kind::Reliable => Channel::Reliable,
        data_packet::Kind::Lossy => Channel::Lossy,
    };
    let user = UserPacket {
        payload: request.data,
        destination_sids: request.destination_sids,
        topic: request.topic,
        nonce: request.nonce,
        ..UserPacket::default()
    };
    let packet = DataPacket {
        destination_identities: request.destination_identities,
        value: Some(data_packet::Value::User(user)),
        ..DataPacket::default()
    };
    data::send(room, None, channel, packet, turn);
    Ok(Answer::Nothing)
}
