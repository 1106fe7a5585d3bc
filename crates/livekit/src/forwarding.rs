//! A participant stands in another room, too, as an application asks: there it is one that publishes what it publishes in its own.
//!
//! In: how it is in its own room, whenever that changes (`look`). Out: the same in the other (`follow`). The packet path knows of
//! nothing: a track is one track, whoever gets it, and its publisher sends all of its layers as long as it is forwarded. Data stays in
//! its room, and so does who speaks.

use std::collections::BTreeMap;

use livekit_protocol::participant_info::State;
use livekit_protocol::{DisconnectReason, TrackInfo};

use crate::backup;
use crate::demand::Demand;
use crate::directory::{Number, RoomNumber};
use crate::join::Join;
use crate::participant::Participant;
use crate::permission::Permissions;
use crate::presence;
use crate::publish;
use crate::room::{Room, When};
use crate::subscribe;
use crate::token::{Claims, VideoGrant};
use crate::track::{Encoding, Track};
use crate::turn::Turn;
use crate::webhook;

/// Who stands where else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) who: Number,
    pub(crate) to: RoomNumber,
    /// Who it is there.
    pub(crate) there: Number,
    /// Its version when it was looked at last; `None` is never.
    pub(crate) seen: Option<u32>,
}

/// How it is.
#[derive(Debug)]
pub(crate) struct Look {
    name: String,
    metadata: String,
    attributes: BTreeMap<String, String>,
    permissions: Permissions,
    tracks: Vec<Shown>,
}

#[derive(Debug)]
struct Shown {
    first: Encoding,
    backup: Option<Encoding>,
    info: TrackInfo,
}

/// Looks at those who are forwarded and have changed since, or have left (`None`); these are forwarded no more.
pub(crate) fn look(room: &mut Room, turn: &mut Turn<'_>) -> Vec<(Forward, Option<Look>)> {
    let mut news = Vec::new();
    for mut forward in std::mem::take(&mut room.forwards) {
        let Some(member) = room.members.get(&forward.who) else {
            news.push((forward, None));
            continue;
        };
        if forward.seen.replace(member.version) != Some(member.version) {
            for sid in member.tracks.clone() {
                if let Some(track) = room.tracks.get_mut(&sid) {
                    track.is_shown_elsewhere = true;
                    subscribe::update_demand(room, &sid, turn);
                }
            }
            news.push((forward, shown(room, forward.who)));
        }
        room.forwards.push(forward);
    }
    news
}

fn shown(room: &Room, who: Number) -> Option<Look> {
    let member = room.members.get(&who)?;
    let show =
        |track: &Track| Shown { first: track.first.clone(), backup: track.backup.clone(), info: track.info.clone() };
    Some(Look {
        name: member.name.clone(),
        metadata: member.metadata.clone(),
        attributes: member.attributes.clone(),
        permissions: member.permissions.clone(),
        tracks: member.tracks.iter().filter_map(|sid| room.tracks.get(sid)).map(show).collect(),
    })
}

/// Has it stand in another room; who has its identity there leaves. Its tracks come with the first look.
pub(crate) fn stand_in(room: &mut Room, claims: Claims, turn: &mut Turn<'_>) -> Number {
    if let Some(former) = room.find(&claims.sub) {
        let action = Some(livekit_protocol::leave_request::Action::Disconnect);
        presence::leave(room, former, DisconnectReason::DuplicateIdentity, action, turn);
    }
    let video = claims.video.clone().unwrap_or_default();
    let claims = Claims { video: Some(VideoGrant { can_subscribe: Some(false), ..video }), ..claims };
    let who = Number(turn.directory.number());
    let sid = turn.sids.next("PA_");
    let mut member = Participant::new(who, sid, Join { claims, ..Join::default() }, turn);
    member.state = State::Active;
    room.by_identity.insert(member.identity.clone(), who);
    room.by_sid.insert(member.sid.clone(), who);
    room.has_been_joined |= !member.is_dependent();
    room.members.insert(who, member);
    room.close_when_empty(turn.now);
    room.announce(who, When::Now, false, turn);
    room.gather_room(turn.now);
    if let Some(info) = room.member_info(who) {
        webhook::participant("participant_joined", room, info, turn);
    }
    who
}

/// It stands there no more.
pub(crate) fn end(room: &mut Room, who: Number, there: Number, turn: &mut Turn<'_>) {
    room.forwards.retain(|forward| forward.there != there);
    if room.forwards.iter().any(|forward| forward.who == who) {
        return;
    }
    for sid in room.members.get(&who).map(|member| member.tracks.clone()).unwrap_or_default() {
        room.tracks.get_mut(&sid).into_iter().for_each(|track| track.is_shown_elsewhere = false);
        subscribe::update_demand(room, &sid, turn);
    }
}

/// Has it be there as it is in its own room. False: it stands there no more.
pub(crate) fn follow(room: &mut Room, there: Number, look: Option<Look>, turn: &mut Turn<'_>) -> bool {
    let Some(member) = room.members.get_mut(&there) else { return false };
    let Some(look) = look else {
        presence::leave(room, there, DisconnectReason::ClientInitiated, None, turn);
        return false;
    };
    let Look { name, metadata, attributes, permissions, tracks } = look;
    (member.name, member.metadata, member.attributes, member.permissions) = (name, metadata, attributes, permissions);
    member.version += 1;
    let gone = member.tracks.iter().filter(|sid| !tracks.iter().any(|shown| shown.info.sid == **sid));
    for sid in gone.cloned().collect::<Vec<_>>() {
        publish::remove(room, &sid, turn);
    }
    let mut new = Vec::new();
    for Shown { first, backup, info } in tracks {
        let sid = info.sid.clone();
        match room.tracks.get_mut(&sid) {
            Some(track) => {
                track.info = info;
                backup::replace(room, &sid, backup, turn);
            }
            None => {
                let (subscribers, demand) = (BTreeMap::new(), Demand::new([true, false], turn.now.at));
                let track = Track {
                    publisher: there,
                    first,
                    backup,
                    info,
                    subscribers,
                    demand,
                    is_told_of_subscriber: true,
                    is_of_another_room: true,
                    is_shown_elsewhere: false,
                };
                room.tracks.insert(sid.clone(), track);
                if let Some(member) = room.members.get_mut(&there) {
                    member.tracks.push(sid.clone());
                    member.is_publisher = true;
                }
                new.push(sid);
            }
        }
    }
    room.announce(there, When::Now, false, turn);
    room.gather_room(turn.now);
    for sid in new {
        if let (Some(info), Some(track)) = (room.member_info(there), room.tracks.get(&sid)) {
            let track = track.info.clone();
            webhook::track("track_published", room, info, track, turn);
        }
    }
    for sid in room.members.get(&there).map(|member| member.tracks.clone()).unwrap_or_default() {
        subscribe::reconcile_track(room, &sid, turn);
    }
    true
}
