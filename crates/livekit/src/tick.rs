//! What happens when it is time.

use std::collections::BTreeMap;

use livekit_protocol::leave_request::Action;
use livekit_protocol::participant_info::State;
use livekit_protocol::signal_response::Message;
use livekit_protocol::{
    ConnectionQualityInfo, ConnectionQualityUpdate, DisconnectReason, ParticipantUpdate, RoomEndReason, SpeakerInfo,
    SpeakersChanged,
};

use crate::directory::Number;
use crate::limits;
use crate::room::{Room, Timer};
use crate::turn::Turn;
use crate::{behind, presence, resume, subscribe};

pub(crate) fn handle_timeout(room: &mut Room, turn: &mut Turn<'_>) {
    while let Some(timer) = room.timers.pop(turn.now.at) {
        match timer {
            Timer::Close => presence::close(room, RoomEndReason::RoomEndIdleTimeout, turn),
            Timer::Updates => send_updates(room, turn),
            Timer::Room => room.send_room_update(turn),
            Timer::Speakers => look_who_speaks(room, turn),
            Timer::Quality => look_at_quality(room, turn),
            Timer::Token(who) => presence::send_token(room, who, turn),
            Timer::Connect(who) => {
                presence::leave(room, who, DisconnectReason::JoinFailure, Some(Action::Disconnect), turn);
            }
            Timer::Resume(who) => resume::handle_timeout(room, who, turn),
            Timer::Behind(session) => behind::give_up(room, session, turn),
            Timer::Demand(track) => subscribe::tell_demand(room, track, turn),
        }
        if room.is_closed {
            return;
        }
    }
}

fn send_updates(room: &mut Room, turn: &mut Turn<'_>) {
    let participants = room.updates.take();
    if !participants.is_empty() {
        turn.out.send_all(room.audience(None), Message::Update(ParticipantUpdate { participants }));
    }
}

fn look_who_speaks(room: &mut Room, turn: &mut Turn<'_>) {
    let changes = room.speakers.changes(turn.now.at);
    if !room.speakers.is_idle() {
        room.timers.set(Timer::Speakers, turn.now.at + limits::SPEAKERS_EVERY);
    }
    let mut news: BTreeMap<Number, Vec<usize>> = BTreeMap::new();
    for (index, (who, _)) in changes.iter().enumerate() {
        for reader in subscribe::followers(room, *who).into_iter().chain([*who]) {
            news.entry(reader).or_default().push(index);
        }
    }
    // Many hear the same.
    let mut readers: BTreeMap<Vec<usize>, Vec<_>> = BTreeMap::new();
    for (reader, indexes) in news {
        if let Some(connection) = room.members.get(&reader).and_then(|member| member.connection) {
            readers.entry(indexes).or_default().push(connection);
        }
    }
    for (indexes, to) in readers {
        let speakers = indexes.iter().map(|index| changes[*index]).filter_map(|(who, level)| {
            Some(SpeakerInfo { sid: room.members.get(&who)?.sid.clone(), level, active: level > 0.0 })
        });
        let speakers = speakers.collect();
        turn.out.send_all(to, Message::SpeakersChanged(SpeakersChanged { speakers }));
    }
}

fn look_at_quality(room: &mut Room, turn: &mut Turn<'_>) {
    if room.members.is_empty() {
        return;
    }
    room.timers.set(Timer::Quality, turn.now.at + limits::QUALITY_EVERY);
    let active = room.members.values_mut().filter(|member| member.state == State::Active);
    let changed: Vec<_> = active.filter_map(|member| member.quality.look().then_some(member.number)).collect();
    tell_quality(room, &changed, turn);
}

/// Tells of how well somebody is connected: those who follow them, and themselves.
pub(crate) fn tell_quality(room: &Room, of: &[Number], turn: &mut Turn<'_>) {
    let mut news: BTreeMap<Number, Vec<ConnectionQualityInfo>> = BTreeMap::new();
    for who in of.iter().copied() {
        let Some(info) = room.members.get(&who).and_then(subscribe::quality_info) else { continue };
        for reader in subscribe::followers(room, who).into_iter().chain([who]) {
            news.entry(reader).or_default().push(info.clone());
        }
    }
    for (reader, updates) in news {
        room.send(reader, Message::ConnectionQuality(ConnectionQualityUpdate { updates }), turn);
    }
}
