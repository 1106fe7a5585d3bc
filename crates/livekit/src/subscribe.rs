//! Who gets which track: what subscribers want, what publishers and tokens allow, and what the packet path is told.
//!
//! `reconcile` is the one place where it is decided. What it changes is told to the packet path once per input, as the
//! whole set of a subscriber (`flush`).

use std::collections::{BTreeMap, HashSet};

use livekit_protocol::signal_response::Message;
use livekit_protocol::{
    ConnectionQualityInfo, ConnectionQualityUpdate, SpeakerInfo, SpeakersChanged, StreamState, StreamStateInfo,
    StreamStateUpdate, SubscriptionError, SubscriptionPermission, SubscriptionPermissionUpdate, SubscriptionResponse,
    TrackSubscribed, UpdateSubscription, UpdateTrackSettings,
};

use crate::backup;
use crate::demand::Layers;
use crate::directory::Number;
use crate::limits;
use crate::media::{self, Kind, Layer, Request, Role, SessionId, TrackId};
use crate::participant::{Down, Participant};
use crate::presence;
use crate::room::{Room, Timer};
use crate::subscription::Settings;
use crate::track::Track;
use crate::turn::Turn;

/// What somebody asks for, by sids of tracks.
pub(crate) fn handle_subscription(room: &mut Room, who: Number, request: &UpdateSubscription, turn: &mut Turn<'_>) {
    let of_participants = request.participant_tracks.iter().flat_map(|tracks| &tracks.track_sids);
    for sid in each_once(request.track_sids.iter().chain(of_participants)) {
        let Some(member) = room.members.get_mut(&who) else { return };
        if !member.wishes.subscribe(sid, request.subscribe) {
            continue;
        }
        if room.tracks.contains_key(sid) {
            reconcile(room, who, sid, turn);
            update_demand(room, sid, turn);
        } else if request.subscribe {
            let err = SubscriptionError::SeTrackNotfound as i32;
            let response = SubscriptionResponse { track_sid: sid.clone(), err };
            room.send(who, Message::SubscriptionResponse(response), turn);
        }
    }
}

/// Somebody cannot decode a track in this codec. It gets the other, as soon as there is one. Where none will be it is told so, and
/// does not get the track unless it asks for it again.
pub(crate) fn handle_unsupported(room: &mut Room, who: Number, media: TrackId, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let Some(sid) = member.downs.get(&media).map(|down| down.sid.clone()) else { return };
    if room.tracks.get(&sid).is_some_and(|track| backup::fall_back(track, media, member)) {
        place(room, who, &sid, turn);
        return update_demand(room, &sid, turn);
    }
    member.wishes.refuse(&sid);
    unsubscribe(room, who, &sid, turn);
    update_demand(room, &sid, turn);
    let err = SubscriptionError::SeCodecUnsupported as i32;
    room.send(who, Message::SubscriptionResponse(SubscriptionResponse { track_sid: sid, err }), turn);
}

/// How somebody wants tracks: how large, or not now.
pub(crate) fn handle_settings(room: &mut Room, who: Number, mut settings: UpdateTrackSettings, turn: &mut Turn<'_>) {
    let sids = std::mem::take(&mut settings.track_sids);
    for sid in each_once(&sids) {
        let Some(member) = room.members.get_mut(&who) else { return };
        if member.wishes.set(sid, settings.clone()) {
            apply_settings(room, who, sid, turn);
            update_demand(room, sid, turn);
        }
    }
}

/// Those of a client's list that may be sids, each once: for each of them everybody is looked at who gets that track.
fn each_once<'a>(sids: impl IntoIterator<Item = &'a String>) -> impl Iterator<Item = &'a String> {
    let mut known = HashSet::new();
    sids.into_iter().filter(move |sid| sid.len() <= limits::NAME_BYTES_MAX && known.insert(*sid))
}

/// Whether somebody gets what it shall get, or nothing for want of bandwidth.
pub(crate) fn handle_active(room: &mut Room, who: Number, media: TrackId, is_active: bool, turn: &mut Turn<'_>) {
    let down = room.members.get_mut(&who).and_then(|member| member.downs.get_mut(&media));
    let Some(down) = down else { return };
    down.is_starved = !is_active;
    let sid = down.sid.clone();
    tell_stream_state(room, who, &sid, if is_active { StreamState::Active } else { StreamState::Paused }, turn);
}

fn tell_stream_state(room: &Room, who: Number, sid: &str, state: StreamState, turn: &mut Turn<'_>) {
    let publisher = room.tracks.get(sid).and_then(|track| room.members.get(&track.publisher));
    let Some(participant_sid) = publisher.map(|member| member.sid.clone()) else { return };
    let info = StreamStateInfo { participant_sid, track_sid: sid.to_owned(), state: state as i32 };
    room.send(who, Message::StreamStateUpdate(StreamStateUpdate { stream_states: vec![info] }), turn);
}

/// Who may subscribe to somebody's tracks.
pub(crate) fn handle_permission(room: &mut Room, who: Number, update: &SubscriptionPermission, turn: &mut Turn<'_>) {
    let Some(mut permissions) = room.members.get_mut(&who).map(|member| std::mem::take(&mut member.permissions)) else {
        return;
    };
    let identity_of = |sid: &str| Some(room.members.get(room.by_sid.get(sid)?)?.identity.clone());
    let _kept_as_it_was = permissions.set(update, identity_of);
    let Some(member) = room.members.get_mut(&who) else { return };
    member.permissions = permissions;
    member.version += 1;
    for sid in member.tracks.clone() {
        reconcile_track(room, &sid, turn);
    }
}

/// Everything that somebody may get.
pub(crate) fn reconcile_subscriber(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    let sids: Vec<_> = room.tracks.keys().cloned().collect();
    for sid in sids {
        reconcile(room, who, &sid, turn);
        update_demand(room, &sid, turn);
    }
}

/// Everybody who may get a track.
pub(crate) fn reconcile_track(room: &mut Room, sid: &str, turn: &mut Turn<'_>) {
    let members: Vec<_> = room.members.keys().copied().collect();
    for who in members {
        reconcile(room, who, sid, turn);
        apply_settings(room, who, sid, turn);
    }
    update_demand(room, sid, turn);
}

/// A track is nobody's any more.
pub(crate) fn drop_track(room: &mut Room, sid: &str, turn: &mut Turn<'_>) {
    let Some(track) = room.tracks.get(sid) else { return };
    let subscribers: Vec<Number> = track.subscribers.keys().copied().collect();
    for who in subscribers {
        unsubscribe(room, who, sid, turn);
    }
}

/// Somebody gets nothing any more.
pub(crate) fn drop_all(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    // Also what it only waits for.
    let own = room.tracks.iter().filter(|(_, track)| track.subscribers.contains_key(&who));
    let sids: Vec<_> = own.map(|(sid, _)| sid.clone()).collect();
    for sid in sids {
        unsubscribe(room, who, &sid, turn);
        update_demand(room, &sid, turn);
    }
}

/// Gives somebody a track or takes it away, as it is wanted and allowed.
fn reconcile(room: &mut Room, who: Number, sid: &str, turn: &mut Turn<'_>) {
    let (Some(track), Some(member)) = (room.tracks.get(sid), room.members.get(&who)) else { return };
    let Some(publisher) = room.members.get(&track.publisher) else { return };
    let is_wanted = member.wishes.subscribes(sid, member.auto_subscribe);
    let is_possible = track.publisher != who && member.permission.can_subscribe && !publisher.is_hidden();
    let is_allowed = member.is_recorder() || publisher.permissions.allow(sid, &member.identity);
    let has_it = track.subscribers.contains_key(&who);
    let publisher_sid = publisher.sid.clone();
    if is_possible && is_wanted {
        tell_allowed(room, who, publisher_sid, sid, is_allowed, turn);
    }
    match is_possible && is_wanted && is_allowed {
        true if has_it => place(room, who, sid, turn),
        true => subscribe(room, who, sid, turn),
        false if has_it => unsubscribe(room, who, sid, turn),
        false => {}
    }
}

fn tell_allowed(room: &mut Room, who: Number, publisher: String, sid: &str, is_allowed: bool, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    if let Some(allowed) = member.wishes.tell_allowed(sid, is_allowed) {
        let update = SubscriptionPermissionUpdate { participant_sid: publisher, track_sid: sid.to_owned(), allowed };
        room.send(who, Message::SubscriptionPermissionUpdate(update), turn);
    }
}

fn subscribe(room: &mut Room, who: Number, sid: &str, turn: &mut Turn<'_>) {
    let Some(track) = room.tracks.get_mut(sid) else { return };
    track.subscribers.insert(who, turn.directory.number());
    let (publisher, is_first) = (track.publisher, !track.is_told_of_subscriber);
    track.is_told_of_subscriber = true;
    if is_first {
        room.send(publisher, Message::TrackSubscribed(TrackSubscribed { track_sid: sid.to_owned() }), turn);
    }
    place(room, who, sid, turn);
    // What others have heard in the last seconds.
    let Some(publisher_sid) = room.members.get(&publisher).map(|member| member.sid.clone()) else { return };
    if let Some(level) = room.speakers.level_of(publisher) {
        send_level(room, who, publisher_sid, level, turn);
    }
    if let Some(info) = quality_info(&room.members[&publisher]) {
        room.send(who, Message::ConnectionQuality(ConnectionQualityUpdate { updates: vec![info] }), turn);
    }
}

/// Gives a subscriber of a track the encoding that is for it, in the place of the one that it had.
fn place(room: &mut Room, who: Number, sid: &str, turn: &mut Turn<'_>) {
    let (Some(track), Some(member)) = (room.tracks.get(sid), room.members.get_mut(&who)) else { return };
    let wanted = backup::encoding_for(track, member);
    if wanted.is_some_and(|wanted| member.downs.contains_key(&wanted)) {
        return;
    }
    let before = track.encodings().filter_map(|encoding| member.downs.remove(&encoding.media)).last();
    if before.is_none() && wanted.is_none() {
        return;
    }
    let down = Down { sid: sid.to_owned(), settings: None, is_starved: false };
    member.downs.extend(wanted.map(|wanted| (wanted, down)));
    room.changed_downs.insert(who);
    // Of the other encoding nothing was said yet.
    if before.is_some_and(|before| before.is_starved) {
        tell_stream_state(room, who, sid, StreamState::Active, turn);
    }
}

fn unsubscribe(room: &mut Room, who: Number, sid: &str, turn: &mut Turn<'_>) {
    let (Some(track), Some(member)) = (room.tracks.get_mut(sid), room.members.get_mut(&who)) else { return };
    if track.subscribers.remove(&who).is_none() {
        return;
    }
    let publisher = track.publisher;
    for encoding in track.encodings() {
        member.downs.remove(&encoding.media);
    }
    room.changed_downs.insert(who);
    // Who hears nothing of somebody any more does not hear that it has fallen silent either.
    if room.speakers.level_of(publisher).is_some() && !follows(room, who, publisher) {
        let Some(sid) = room.members.get(&publisher).map(|member| member.sid.clone()) else { return };
        send_level(room, who, sid, 0.0, turn);
    }
}

fn send_level(room: &Room, who: Number, sid: String, level: f32, turn: &mut Turn<'_>) {
    let speakers = vec![SpeakerInfo { sid, level, active: level > 0.0 }];
    room.send(who, Message::SpeakersChanged(SpeakersChanged { speakers }), turn);
}

/// Whether somebody gets any track of somebody's.
pub(crate) fn follows(room: &Room, who: Number, publisher: Number) -> bool {
    let Some(publisher) = room.members.get(&publisher) else { return false };
    let mut tracks = publisher.tracks.iter().filter_map(|sid| room.tracks.get(sid));
    tracks.any(|track| track.subscribers.contains_key(&who))
}

/// Everybody who gets any track of somebody's.
pub(crate) fn followers(room: &Room, publisher: Number) -> std::collections::BTreeSet<Number> {
    let Some(publisher) = room.members.get(&publisher) else { return Default::default() };
    let tracks = publisher.tracks.iter().filter_map(|sid| room.tracks.get(sid));
    tracks.flat_map(|track| track.subscribers.keys().copied()).collect()
}

/// How well somebody is connected, once that was looked at.
pub(crate) fn quality_info(member: &Participant) -> Option<ConnectionQualityInfo> {
    let quality = member.quality.told()?;
    let score = member.quality.stars();
    Some(ConnectionQualityInfo { participant_sid: member.sid.clone(), quality: quality as i32, score })
}

/// Tells the packet path how somebody wants a track, when that is news; of a track that the packet path has not heard
/// of yet `flush` does.
fn apply_settings(room: &mut Room, who: Number, sid: &str, turn: &mut Turn<'_>) {
    let (Some(track), Some(member)) = (room.tracks.get(sid), room.members.get_mut(&who)) else { return };
    let wanted = member.wishes.settings(&track.info, member.is_adaptive);
    let (session, media) = (member.transports.down().map(|peer| peer.id), backup::encoding_for(track, member));
    let (Some(session), Some(media)) = (session, media) else { return };
    let Some(down) = member.downs.get_mut(&media) else { return };
    if let Some(told) = down.settings {
        down.settings = Some(wanted);
        tell_settings(session, media, told, wanted, turn);
    }
}

fn tell_settings(session: SessionId, track: TrackId, told: Settings, wanted: Settings, turn: &mut Turn<'_>) {
    let Settings { is_paused, layer, fps, priority } = wanted;
    if (told.layer, told.fps, told.priority) != (layer, fps, priority) {
        turn.out.media(Request::Limit { session, track, layer, fps, priority });
    }
    if told.is_paused != is_paused {
        turn.out.media(Request::Pause { session, track, is_paused });
    }
}

/// Tells the packet path what has changed in who gets what.
pub(crate) fn flush(room: &mut Room, turn: &mut Turn<'_>) {
    for who in std::mem::take(&mut room.changed_downs) {
        let Some(session) = down(room, who, turn) else { continue };
        let Some(member) = room.members.get(&who) else { continue };
        let tracks = member.downs.iter().take(limits::DOWNS_MAX).filter_map(|(media, down)| {
            let track = room.tracks.get(&down.sid)?;
            let subscription = *track.subscribers.get(&who)?;
            let publisher = room.members.get(&track.publisher)?;
            let stream = format!("{}|{}", publisher.sid, down.sid);
            Some(media::Down { track: *media, stream, sid: down.sid.clone(), subscription, kind: track.kind() })
        });
        let tracks = tracks.collect();
        turn.out.media(Request::SetDown { session, tracks });
        let Some(member) = room.members.get_mut(&who) else { continue };
        // Of what waits the packet path keeps nothing.
        member.downs.values_mut().skip(limits::DOWNS_MAX).for_each(|down| down.settings = None);
        let told = member.downs.iter_mut().take(limits::DOWNS_MAX);
        for (track, down) in told.filter(|(_, down)| down.settings.is_none()) {
            let Some(info) = room.tracks.get(&down.sid).map(|track| &track.info) else { continue };
            let wanted = member.wishes.settings(info, member.is_adaptive);
            down.settings = Some(wanted);
            tell_settings(session, *track, Settings::default(), wanted, turn);
        }
    }
}

/// The peer connection by which somebody gets tracks. Who might not subscribe when it joined has one from its first track on.
fn down(room: &mut Room, who: Number, turn: &mut Turn<'_>) -> Option<SessionId> {
    let Participant { transports, downs, .. } = room.members.get(&who)?;
    match transports.down() {
        Some(peer) => Some(peer.id),
        // Who only stands in the room has no connection at all.
        None if downs.is_empty() || transports.publisher.is_none() => None,
        None => presence::open_session(room, who, Role::Subscriber, true, turn),
    }
}

/// Looks how much anybody wants of a track, and tells its publisher when that is news.
pub(crate) fn update_demand(room: &mut Room, sid: &str, turn: &mut Turn<'_>) {
    let Some(track) = room.tracks.get_mut(sid).filter(|track| track.kind() == Kind::Video) else { return };
    let wanted = wanted(track, &room.members);
    let is_more = track.demand.want(wanted, turn.now.at);
    room.timers.set_or_clear(Timer::Demand(track.first.media), track.demand.due());
    if is_more {
        let (publisher, update) = (track.publisher, track.quality_update());
        room.send(publisher, Message::SubscribedQualityUpdate(update), turn);
    }
}

/// The best that anybody wants of each codec of a track.
fn wanted(track: &Track, members: &BTreeMap<Number, Participant>) -> Layers {
    let is_wanted_whole = [track.is_shown_elsewhere, track.is_shown_elsewhere && track.backup.is_some()];
    // What does not come yet is for those who wait for it here.
    let mut wanted = is_wanted_whole.map(|is_it| is_it.then_some(Layer::High));
    for member in track.subscribers.keys().filter_map(|who| members.get(who)) {
        let Settings { is_paused, layer, .. } = member.wishes.settings(&track.info, member.is_adaptive);
        let of_codec = &mut wanted[usize::from(backup::is_for(track, member))];
        *of_codec = (*of_codec).max(Some(layer).filter(|_| !is_paused));
    }
    wanted
}

/// It is time to tell a publisher to send less, or what it does not send yet.
pub(crate) fn tell_demand(room: &mut Room, media: TrackId, turn: &mut Turn<'_>) {
    let Some(track) = room.tracks.values_mut().find(|track| track.first.media == media) else { return };
    let is_due = track.demand.handle_timeout(turn.now.at);
    room.timers.set_or_clear(Timer::Demand(media), track.demand.due());
    if is_due {
        let (publisher, update) = (track.publisher, track.quality_update());
        room.send(publisher, Message::SubscribedQualityUpdate(update), turn);
    }
}
