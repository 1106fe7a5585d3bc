//! Coming back with another signalling connection, while media goes on.

use livekit_protocol::leave_request::Action;
use livekit_protocol::signal_response::Message;
use livekit_protocol::simulate_scenario::Scenario;
use livekit_protocol::{
    DisconnectReason, LeaveRequest, ParticipantUpdate, ReconnectResponse, RoomUpdate, SpeakerInfo, SpeakersChanged,
    SyncState, UpdateTrackSettings,
};

use crate::directory::Number;
use crate::join::Join;
use crate::limits::RESUME_WITHIN;
use crate::media::{Request, SessionId};
use crate::output::{CloseReason, ConnectionId};
use crate::room::{Room, Timer};
use crate::turn::Turn;
use crate::{presence, subscribe, tick};

/// Gives a participant that is still there its new connection.
pub(crate) fn resume(room: &mut Room, who: Number, join: Join, turn: &mut Turn<'_>) -> ConnectionId {
    presence::disconnect(room, who, CloseReason::Replaced, turn);
    let connection = presence::connect(room, who, turn);
    // However it went before: now its paths have time to be found.
    room.timers.set(Timer::Resume(who), turn.now.at + RESUME_WITHIN);
    let Some(member) = room.members.get_mut(&who) else { return connection };
    member.ice_servers = join.ice_servers;
    let response = ReconnectResponse {
        ice_servers: member.ice_servers.clone(),
        server_info: Some(presence::server_info(turn.config)),
        last_message_seq: member.last_reliable,
        ..ReconnectResponse::default()
    };
    let (is_cut, subscriber) = (std::mem::take(&mut member.cuts_resume), member.transports.subscriber.as_ref());
    if let Some(session) = subscriber.map(|peer| peer.id) {
        turn.out.media(Request::Restart { session });
    }
    room.send(who, Message::Reconnect(response), turn);
    let all = room.members.values().filter(|other| other.number == who || (other.is_announced && !other.is_hidden()));
    let participants = all.map(|other| other.info(&room.tracks)).collect();
    room.send(who, Message::Update(ParticipantUpdate { participants }), turn);
    room.send(who, Message::RoomUpdate(RoomUpdate { room: Some(room.info()) }), turn);
    presence::send_token(room, who, turn);
    if let Some(state) = join.sync_state {
        handle_sync_state(room, who, &state, turn);
    }
    if is_cut {
        presence::disconnect(room, who, CloseReason::Resume, turn);
    }
    connection
}

/// Somebody wants to come back who is not there any more: it is to join anew.
pub(crate) fn refuse(join: &Join, turn: &mut Turn<'_>) -> ConnectionId {
    let connection = ConnectionId(turn.directory.number());
    let leave = LeaveRequest {
        can_reconnect: join.client.protocol <= 12,
        reason: DisconnectReason::StateMismatch as i32,
        action: if join.client.protocol > 12 { Action::Reconnect as i32 } else { Action::Disconnect as i32 },
        regions: None,
    };
    turn.out.send(connection, Message::Leave(leave));
    turn.out.close(connection, CloseReason::Left);
    connection
}

/// What a client that has come back says to have had. If it publishes what we know nothing of, it is to join anew.
pub(crate) fn handle_sync_state(room: &mut Room, who: Number, state: &SyncState, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get(&who) else { return };
    let is_known = |sid: &str| {
        member.tracks.iter().any(|own| own == sid) || member.pending.iter().any(|pending| pending.info.sid == sid)
    };
    let published = state.publish_tracks.iter().map(|published| published.track.as_ref());
    if !published.into_iter().all(|track| track.is_some_and(|track| is_known(&track.sid))) {
        return presence::leave(room, who, DisconnectReason::StateMismatch, Some(Action::Reconnect), turn);
    }
    let disabled =
        UpdateTrackSettings { track_sids: state.track_sids_disabled.clone(), disabled: true, ..Default::default() };
    subscribe::handle_settings(room, who, disabled, turn);
    if let Some(subscription) = &state.subscription {
        subscribe::handle_subscription(room, who, subscription, turn);
    }
}

/// Nothing comes by a path any more. Its client is to come back by another one, and has some time for that.
pub(crate) fn handle_lost(room: &mut Room, who: Number, session: SessionId, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let Some(peer) = member.transports.peer_mut(session) else { return };
    peer.is_lost = true;
    // Who has no signalling is told nothing, and cannot come back.
    if member.describes_once {
        return;
    }
    member.quality.set_lost(true);
    if member.quality.look() {
        tick::tell_quality(room, &[who], turn);
    }
    // Who is coming back is not sent away from that.
    if room.timers.has(&Timer::Resume(who)) {
        return;
    }
    room.timers.set(Timer::Resume(who), turn.now.at + RESUME_WITHIN);
    let Some(member) = room.members.get(&who) else { return };
    if member.reads_actions() && member.connection.is_some() {
        let message = presence::leave_request(member, DisconnectReason::ConnectionTimeout, Action::Resume);
        room.send(who, message, turn);
    }
    presence::disconnect(room, who, CloseReason::Resume, turn);
}

/// Something comes by a path, perhaps again.
pub(crate) fn handle_heard(room: &mut Room, who: Number, session: SessionId) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let Some(peer) = member.transports.peer_mut(session) else { return };
    peer.is_lost = false;
    if !member.transports.is_lost() {
        member.quality.set_lost(false);
        room.timers.clear(&Timer::Resume(who));
    }
}

/// Who was lost, or came back, has had its time.
pub(crate) fn handle_timeout(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    if room.members.get(&who).is_some_and(|member| member.transports.is_lost()) {
        presence::leave(room, who, DisconnectReason::ConnectionTimeout, Some(Action::Reconnect), turn);
    }
}

/// What clients ask for to test themselves. It is about the one who asks, and nobody else.
pub(crate) fn handle_simulate(room: &mut Room, who: Number, scenario: Scenario, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let shutdown = DisconnectReason::ServerShutdown;
    match scenario {
        Scenario::SpeakerUpdate(_) => {
            let speakers = vec![SpeakerInfo { sid: member.sid.clone(), level: 0.9, active: true }];
            room.send(who, Message::SpeakersChanged(SpeakersChanged { speakers }), turn);
        }
        Scenario::NodeFailure(_) | Scenario::Migration(_) => presence::leave(room, who, shutdown, None, turn),
        Scenario::ServerLeave(_) => presence::leave(room, who, shutdown, Some(Action::Disconnect), turn),
        Scenario::LeaveRequestFullReconnect(_) => presence::leave(room, who, shutdown, Some(Action::Reconnect), turn),
        Scenario::DisconnectSignalOnResume(_) | Scenario::DisconnectSignalOnResumeNoMessages(_) => {
            member.cuts_resume = true;
        }
        Scenario::SwitchCandidateProtocol(_) | Scenario::SubscriberBandwidth(_) => {}
    }
}
