//! A participant goes from one room to another, as an application asks: its connections stay, and so does what it publishes.
//!
//! To those whom it leaves it has left, and to the others it has come. It gets what there is there, by the wishes of somebody who has
//! just joined.

use std::collections::BTreeMap;

use livekit_protocol::participant_info::State;
use livekit_protocol::signal_response::Message;
use livekit_protocol::{DisconnectReason, RoomMovedResponse, TrackSource};

use crate::behind;
use crate::demand::Demand;
use crate::directory::Number;
use crate::limits;
use crate::media::Kind;
use crate::participant::Participant;
use crate::presence;
use crate::room::{Room, Timer, When};
use crate::subscribe;
use crate::subscription::Wishes;
use crate::track::Track;
use crate::turn::Turn;
use crate::webhook;

/// Somebody on the way, with what it publishes.
pub(crate) struct Moved {
    member: Participant,
    tracks: Vec<Track>,
}

/// Takes somebody out of a room.
pub(crate) fn take_out(room: &mut Room, who: Number, turn: &mut Turn<'_>) -> Option<Moved> {
    let sids = room.members.get(&who)?.tracks.clone();
    let mut tracks = Vec::new();
    for sid in &sids {
        subscribe::drop_track(room, sid, turn);
        let Some(track) = room.tracks.remove(sid) else { continue };
        room.timers.clear(&Timer::Demand(track.first.media));
        room.speakers.remove(track.first.media);
        room.loudest.remove(track.first.media, turn.now.at).into_iter().for_each(|it| turn.out.media(it));
        for member in room.members.values_mut() {
            member.wishes.forget(sid);
        }
        tracks.push(track);
    }
    subscribe::drop_all(room, who, turn);
    let mut member = presence::forget(room, who)?;
    behind::forget(room, &member.transports.sessions(), turn);
    let state = std::mem::replace(&mut member.state, State::Disconnected);
    member.version += 1;
    let info = member.last_info(DisconnectReason::Migration);
    member.state = state;
    let event = if state == State::Active { "participant_left" } else { "participant_connection_aborted" };
    webhook::participant(event, room, info.clone(), turn);
    presence::tell_of_departure(room, &member, info, turn);
    room.gather_room(turn.now);
    room.close_when_empty(turn.now);
    Some(Moved { member, tracks })
}

/// Puts it into another. Who has its identity there leaves.
pub(crate) fn put_in(room: &mut Room, moved: Moved, turn: &mut Turn<'_>) {
    let Moved { mut member, tracks } = moved;
    if let Some(former) = room.find(&member.identity) {
        let action = Some(livekit_protocol::leave_request::Action::Disconnect);
        presence::leave(room, former, DisconnectReason::DuplicateIdentity, action, turn);
    }
    let (who, place) = (member.number, room.place(member.number));
    member.is_announced = false;
    member.wishes = Wishes::default();
    member.version += 1;
    let (is_dependent, is_active) = (member.is_dependent(), member.state == State::Active);
    let is_lost = member.transports.is_lost();
    turn.directory.place(place, member.connection, &member.transports.sessions());
    room.has_been_joined |= !is_dependent;
    room.by_identity.insert(member.identity.clone(), who);
    room.by_sid.insert(member.sid.clone(), who);
    room.members.insert(who, member);
    for track in tracks {
        add(room, track, turn);
    }
    room.close_when_empty(turn.now);
    room.timers.set_if_none(Timer::Quality, turn.now.at + limits::QUALITY_EVERY);
    if !is_active {
        room.timers.set(Timer::Connect(who), turn.now.at + limits::CONNECT_WITHIN);
    }
    if is_lost {
        room.timers.set(Timer::Resume(who), turn.now.at + limits::RESUME_WITHIN);
    }
    tell(room, who, turn);
    room.announce(who, When::Now, false, turn);
    room.gather_room(turn.now);
    if let Some(info) = room.member_info(who).filter(|_| is_active) {
        webhook::participant("participant_joined", room, info, turn);
    }
    // What it was sent before it is sent no more, even if there is nothing else.
    room.changed_downs.insert(who);
    subscribe::reconcile_subscriber(room, who, turn);
    for sid in room.members.get(&who).map(|member| member.tracks.clone()).unwrap_or_default() {
        subscribe::reconcile_track(room, &sid, turn);
    }
}

fn add(room: &mut Room, track: Track, turn: &mut Turn<'_>) {
    let demand = Demand::new([true, track.backup.is_some()], turn.now.at);
    let due = demand.due().filter(|_| track.kind() == Kind::Video);
    room.timers.set_or_clear(Timer::Demand(track.first.media), due);
    let sid = track.info.sid.clone();
    turn.directory.place_track(track.first.media, room.place(track.publisher), &sid);
    if track.info.source() == TrackSource::Microphone && track.kind() == Kind::Audio {
        room.loudest.add(track.first.media, track.publisher, turn.now.at).into_iter().for_each(|it| turn.out.media(it));
    }
    room.tracks.insert(
        sid,
        Track {
            subscribers: BTreeMap::new(),
            demand,
            is_told_of_subscriber: false,
            is_shown_elsewhere: false,
            ..track
        },
    );
}

/// Says to somebody where it is now.
fn tell(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get(&who) else { return };
    let token = turn.config.keys.sign(member.claims(&room.name, turn.now));
    let moved = RoomMovedResponse {
        room: Some(room.info()),
        token,
        participant: room.member_info(who),
        other_participants: presence::others(room, who),
    };
    room.send(who, Message::RoomMoved(moved), turn);
    // The SDK for Rust keeps tokens that come so, and no others.
    presence::send_token(room, who, turn);
}
