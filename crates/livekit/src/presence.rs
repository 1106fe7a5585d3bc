//! Who comes, is there, and goes.

use livekit_protocol::client_info::Sdk;
use livekit_protocol::leave_request::Action;
use livekit_protocol::participant_info::State;
use livekit_protocol::server_info::Edition;
use livekit_protocol::signal_response::Message;
use livekit_protocol::{
    Codec, DisconnectReason, JoinResponse, LeaveRequest, ParticipantInfo, ParticipantUpdate, RoomEndReason, ServerInfo,
};

use crate::config::Config;
use crate::directory::Number;
use crate::join::Join;
use crate::limits;
use crate::media::{Request, Role, SessionId};
use crate::output::{CloseReason, ConnectionId};
use crate::participant::Participant;
use crate::room::{Room, Timer, When};
use crate::transports::{Peer, Transports};
use crate::turn::Turn;
use crate::{behind, codecs, negotiate, publish, subscribe, webhook};

/// The version of the protocol that this is.
const PROTOCOL: i32 = 17;
/// How often clients ask whether we are there, and after how long without an answer they think we are not.
const PING_INTERVAL_SECONDS: i32 = 5;
const PING_TIMEOUT_SECONDS: i32 = 15;

/// Lets somebody in for whom there is a place; who has the same identity leaves.
pub(crate) fn join(room: &mut Room, mut join: Join, turn: &mut Turn<'_>) -> ConnectionId {
    let duplicate = room.find(&join.claims.sub);
    let (add_tracks, offer) = (std::mem::take(&mut join.add_tracks), join.offer.take());
    let wants_data = !join.without_data;
    let who = Number(turn.directory.number());
    let sid = turn.sids.next("PA_");
    let member = Participant::new(who, sid, join, turn);
    let others = room.members.values().filter(|member| !member.is_dependent() && Some(member.number) != duplicate);
    let others = others.count();
    if let Some(former) = duplicate {
        leave(room, former, DisconnectReason::DuplicateIdentity, Some(Action::Disconnect), turn);
    }
    room.is_livestream |= turn.config.livestream_from > 0 && others + 1 >= turn.config.livestream_from;
    room.has_been_joined |= !member.is_dependent();
    let is_recorder = member.is_recorder();
    room.by_identity.insert(member.identity.clone(), who);
    room.by_sid.insert(member.sid.clone(), who);
    room.members.insert(who, member);
    room.close_when_empty(turn.now);
    room.timers.set(Timer::Connect(who), turn.now.at + limits::CONNECT_WITHIN);
    room.timers.set_if_none(Timer::Quality, turn.now.at + limits::QUALITY_EVERY);

    let connection = connect(room, who, turn);
    let response = join_response(room, who, turn.config);
    room.send(who, Message::Join(response), turn);
    send_token(room, who, turn);
    // Until others hear of who took a place, they look at frozen pictures of the one who had it.
    room.announce(who, if duplicate.is_some() { When::Now } else { When::Gathered }, false, turn);
    match is_recorder {
        true => room.send_room_update(turn),
        false => room.gather_room(turn.now),
    }
    open_primary(room, who, wants_data, turn);
    for request in add_tracks.into_iter().take(limits::PENDING_MAX) {
        publish::add_track(room, who, request, turn);
    }
    if let Some(offer) = offer {
        negotiate::handle_offer(room, who, offer, turn);
    }
    subscribe::reconcile_subscriber(room, who, turn);
    connection
}

/// Gives somebody a signalling connection.
pub(crate) fn connect(room: &mut Room, who: Number, turn: &mut Turn<'_>) -> ConnectionId {
    let connection = turn.directory.open_connection(room.place(who));
    if let Some(member) = room.members.get_mut(&who) {
        member.connection = Some(connection);
    }
    connection
}

/// Closes somebody's signalling connection, if there is one.
pub(crate) fn disconnect(room: &mut Room, who: Number, why: CloseReason, turn: &mut Turn<'_>) {
    if let Some(connection) = room.members.get_mut(&who).and_then(|member| member.connection.take()) {
        turn.directory.close_connection(connection);
        turn.out.close(connection, why);
    }
}

/// The peer connection that a client counts on is there from when it joins, others from when they are needed.
fn open_primary(room: &mut Room, who: Number, wants_data: bool, turn: &mut Turn<'_>) {
    let Some(Transports { is_single, is_subscriber_primary, .. }) =
        room.members.get(&who).map(|member| &member.transports)
    else {
        return;
    };
    let role = match (is_single, is_subscriber_primary) {
        (true, _) => Role::Both,
        (false, true) => Role::Subscriber,
        (false, false) => Role::Publisher,
    };
    open_session(room, who, role, wants_data, turn);
}

/// Opens one of somebody's peer connections. Where its role is to subscribe alone, the client gets an offer, and has to answer it.
pub(crate) fn open_session(
    room: &mut Room,
    who: Number,
    role: Role,
    wants_data: bool,
    turn: &mut Turn<'_>,
) -> Option<SessionId> {
    let (place, sid, room_name) = (room.place(who), room.sid.clone(), room.name.clone());
    let member = room.members.get_mut(&who)?;
    let identity = member.identity.clone();
    // That is pion's way; others are libwebrtc, and know tracks by descriptions.
    let wants_packets = member.client.sdk() == Sdk::Go;
    let Transports { publisher, subscriber, .. } = &mut member.transports;
    let session = turn.directory.open_session(place);
    turn.out.media(Request::Open { session, room: sid, room_name, identity, role, wants_data, wants_packets });
    let peer = if role == Role::Subscriber { subscriber } else { publisher };
    *peer = Some(Peer::new(session, wants_data));
    Some(session)
}

#[allow(deprecated, reason = "older clients read these fields")]
fn join_response(room: &Room, who: Number, config: &Config) -> JoinResponse {
    let member = &room.members[&who];
    let mut codecs = codecs::of(&member.client, &config.codecs);
    // As LiveKit lists them: nobody chooses to publish retransmissions, and Flutter's SDK 2.4.2 wants pictures first.
    codecs.retain(|mime| mime != "video/rtx");
    codecs.sort_by_key(|mime| !mime.starts_with("video/"));
    JoinResponse {
        room: Some(room.info()),
        participant: room.member_info(who),
        other_participants: others(room, who),
        server_version: config.version.clone(),
        server_region: config.region.clone(),
        ice_servers: member.ice_servers.clone(),
        subscriber_primary: member.transports.is_subscriber_primary,
        ping_timeout: PING_TIMEOUT_SECONDS,
        ping_interval: PING_INTERVAL_SECONDS,
        server_info: Some(server_info(config)),
        sif_trailer: room.trailer.clone(),
        enabled_publish_codecs: codecs.into_iter().map(|mime| Codec { mime, ..Codec::default() }).collect(),
        fast_publish: member.permission.can_publish,
        ..JoinResponse::default()
    }
}

/// The others that somebody is told of.
pub(crate) fn others(room: &Room, who: Number) -> Vec<ParticipantInfo> {
    let others = room.members.values().filter(|other| other.number != who && other.is_announced && !other.is_hidden());
    others.map(|other| other.info(&room.tracks)).collect()
}

pub(crate) fn server_info(config: &Config) -> ServerInfo {
    ServerInfo {
        edition: Edition::Standard as i32,
        version: config.version.clone(),
        protocol: PROTOCOL,
        region: config.region.clone(),
        node_id: config.node.clone(),
        ..ServerInfo::default()
    }
}

/// Gives somebody a token for as it is now, and another one later.
pub(crate) fn send_token(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get(&who) else { return };
    let token = turn.config.keys.sign(member.claims(&room.name, turn.now));
    room.send(who, Message::RefreshToken(token), turn);
    room.timers.set(Timer::Token(who), turn.now.at + limits::TOKEN_EVERY);
}

/// Looks whether somebody is all there now.
pub(crate) fn handle_established(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    if member.state == State::Active || !member.transports.is_established() {
        return;
    }
    member.state = State::Active;
    member.version += 1;
    room.timers.clear(&Timer::Connect(who));
    room.announce(who, When::Gathered, true, turn);
    if let Some(info) = room.member_info(who) {
        webhook::participant("participant_joined", room, info, turn);
    }
}

/// A signalling connection has ended. The participant stays while its media goes on, and may come back.
pub(crate) fn handle_connection_closed(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    member.connection = None;
    if !member.transports.is_connected() {
        leave(room, who, DisconnectReason::SignalClose, None, turn);
    }
}

/// Takes somebody out of the room; with an action it is told what to do next.
pub(crate) fn leave(
    room: &mut Room,
    who: Number,
    reason: DisconnectReason,
    action: Option<Action>,
    turn: &mut Turn<'_>,
) {
    let Some(member) = room.members.get(&who) else { return };
    if let Some(action) = action {
        let message = leave_request(member, reason, action);
        room.send(who, message, turn);
    }
    disconnect(room, who, CloseReason::Left, turn);
    for sid in room.members[&who].tracks.clone() {
        publish::remove(room, &sid, turn);
    }
    subscribe::drop_all(room, who, turn);
    let Some(mut member) = forget(room, who) else { return };
    behind::forget(room, &member.transports.sessions(), turn);
    for session in member.transports.sessions() {
        turn.directory.close_session(session);
        turn.out.media(Request::Close { session });
    }
    let was_active = member.state == State::Active;
    member.state = State::Disconnected;
    member.version += 1;
    let info = member.last_info(reason);
    let event = if was_active { "participant_left" } else { "participant_connection_aborted" };
    webhook::participant(event, room, info.clone(), turn);
    tell_of_departure(room, &member, info, turn);
    room.gather_room(turn.now);
    room.close_when_empty(turn.now);
}

/// Somebody is in the room no more, and its tracks are not either. Nobody is told.
pub(crate) fn forget(room: &mut Room, who: Number) -> Option<Participant> {
    let member = room.members.remove(&who)?;
    room.by_identity.remove(&member.identity);
    room.by_sid.remove(&member.sid);
    room.speakers.forget(who);
    room.changed_downs.remove(&who);
    for timer in [Timer::Token(who), Timer::Connect(who), Timer::Resume(who)] {
        room.timers.clear(&timer);
    }
    Some(member)
}

pub(crate) fn tell_of_departure(room: &mut Room, member: &Participant, info: ParticipantInfo, turn: &mut Turn<'_>) {
    if !member.is_announced || member.is_hidden() {
        return;
    }
    let update = |info| Message::Update(ParticipantUpdate { participants: vec![info] });
    if info.disconnect_reason == DisconnectReason::DuplicateIdentity as i32 {
        // Who knows that an identity has one session at a time hears of the new one alone.
        room.updates.forget(&info.sid);
        let old = room.members.values().filter(|other| !other.goes_by_identity());
        let to = old.filter_map(|other| other.connection).collect();
        turn.out.send_all(to, update(info));
    } else if member.is_publisher {
        room.updates.forget(&info.sid);
        turn.out.send_all(room.audience(None), update(info));
    } else {
        room.gather(info, turn);
    }
}

/// What somebody hears who is to leave; older clients read less of it.
pub(crate) fn leave_request(member: &Participant, reason: DisconnectReason, action: Action) -> Message {
    let can_reconnect = !member.reads_actions() && action != Action::Disconnect;
    let action = if member.reads_actions() { action } else { Action::Disconnect };
    Message::Leave(LeaveRequest { can_reconnect, reason: reason as i32, action: action as i32, regions: None })
}

/// Everybody leaves, and the room is no more.
pub(crate) fn close(room: &mut Room, why: RoomEndReason, turn: &mut Turn<'_>) {
    let reason = match why {
        RoomEndReason::RoomEndApiDelete => DisconnectReason::RoomDeleted,
        RoomEndReason::RoomEndServerShutdown => DisconnectReason::ServerShutdown,
        _ => DisconnectReason::RoomClosed,
    };
    // Nobody hears that others leave, as all do.
    let everybody: Vec<_> = room.members.keys().copied().collect();
    for member in room.members.values_mut() {
        member.is_announced = false;
    }
    for who in everybody {
        leave(room, who, reason, Some(Action::Disconnect), turn);
    }
    room.is_closed = true;
    webhook::room_finished(room, why, turn);
}
