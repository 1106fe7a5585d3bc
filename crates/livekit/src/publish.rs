//! Tracks: announced, published when a section carries them, muted, changed, ended.

use std::collections::{BTreeMap, BTreeSet};

use livekit_protocol::client_info::Sdk;
use livekit_protocol::encryption;
use livekit_protocol::request_response::{Reason, Request as Asked};
use livekit_protocol::signal_response::Message;
use livekit_protocol::{
    AddTrackRequest, AudioTrackFeature, MuteTrackRequest, RequestResponse, SimulcastCodecInfo, TrackInfo,
    TrackPublishedResponse, TrackSource, TrackType, TrackUnpublishedResponse, UpdateLocalAudioTrack,
    UpdateLocalVideoTrack, VideoLayer,
};

use crate::config::Config;
use crate::demand::Demand;
use crate::directory::Number;
use crate::limits;
use crate::media::{Kind, Request, Section, SessionId, Up};
use crate::room::{Room, Timer, When};
use crate::track::{Encoding, Pending, Track, announced, backup_cid, is_of_codec, kind};
use crate::turn::Turn;
use crate::{backup, codecs, subscribe, webhook};

/// Takes an announcement, and gives the track its sid.
pub(crate) fn add_track(room: &mut Room, who: Number, request: AddTrackRequest, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let texts = [&request.cid, &request.name, &request.stream, &request.sid].into_iter();
    let cids = request.simulcast_codecs.iter().map(|codec| &codec.cid);
    let is_too_long = texts.chain(cids).any(|text| text.len() > limits::TRACK_NAME_BYTES_MAX);
    let waiting = member.pending.len();
    let refusal = match request.r#type() {
        _ if !member.may_publish(request.source()) => Some(Reason::NotAllowed),
        TrackType::Data => Some(Reason::UnsupportedType),
        _ if is_too_long || request.cid.is_empty() => Some(Reason::InvalidRequest),
        // It is no further track.
        _ if !request.sid.is_empty() => None,
        _ if waiting >= limits::PENDING_MAX || waiting + member.tracks.len() >= limits::TRACKS_MAX => {
            Some(Reason::LimitExceeded)
        }
        _ => None,
    };
    if let Some(reason) = refusal {
        return answer(room, who, reason, Asked::AddTrack(request), turn);
    }
    if !request.sid.is_empty() {
        return backup::announce(room, who, request, turn);
    }
    let codecs = codecs::of(&member.client, &turn.config.codecs);
    // One that is announced twice waits for the first to end.
    let is_queued = is_taken(room, who, &request.cid);
    let info = announced(&request, &codecs, turn.sids);
    let Some(member) = room.members.get_mut(&who) else { return };
    member.pending.push(Pending { cid: request.cid.clone(), info: info.clone(), is_queued });
    match is_queued {
        true => answer(room, who, Reason::Queued, Asked::AddTrack(request), turn),
        false => send_published(room, who, request.cid, info, turn),
    }
}

/// Whether something of somebody's, announced or published, has this id.
pub(crate) fn is_taken(room: &Room, who: Number, cid: &str) -> bool {
    let Some(member) = room.members.get(&who) else { return false };
    let has_it = |track: &Track| track.first.cid == cid || track.backup_cid() == Some(cid);
    member.pending.iter().any(|pending| pending.is_at(cid))
        || member.tracks.iter().filter_map(|sid| room.tracks.get(sid)).any(has_it)
}

pub(crate) fn send_published(room: &Room, who: Number, cid: String, track: TrackInfo, turn: &mut Turn<'_>) {
    room.send(who, Message::TrackPublished(TrackPublishedResponse { cid, track: Some(track) }), turn);
}

/// Says how a request went.
pub(crate) fn answer(room: &Room, who: Number, reason: Reason, asked: Asked, turn: &mut Turn<'_>) {
    let message = match reason {
        Reason::Ok | Reason::Queued => "",
        Reason::NotFound => "there is no such track",
        Reason::NotAllowed => "the token does not allow this source",
        Reason::LimitExceeded => "there are too many tracks",
        Reason::UnsupportedType => "tracks of this type, or this one in this codec, are not taken",
        _ => "a name is too long, cid is empty or taken, or this codec comes already",
    };
    let (reason, message) = (reason as i32, message.to_owned());
    room.send(
        who,
        Message::RequestResponse(RequestResponse { request_id: 0, reason, message, request: Some(asked) }),
        turn,
    );
}

/// What was agreed on for a session: announced tracks that have a section now are published, and those whose section
/// carries nothing any more, or something else, have ended.
pub(crate) fn handle_sections(
    room: &mut Room,
    who: Number,
    session: SessionId,
    sections: &[Section],
    turn: &mut Turn<'_>,
) {
    let Some(member) = room.members.get(&who) else { return };
    let own = member.tracks.iter().filter_map(|sid| room.tracks.get(sid));
    let ended = own.filter(|track| !track.first.is_carried(session, sections));
    let ended: Vec<_> = ended.map(|track| track.info.sid.clone()).collect();
    for sid in &ended {
        remove(room, sid, turn);
    }
    let published = bind(room, who, session, sections, turn);
    let changed = backup::handle_sections(room, who, session, sections, turn);
    if published.is_empty() && ended.is_empty() && changed.is_empty() {
        return;
    }
    if let Some(member) = room.members.get_mut(&who) {
        member.version += 1;
    }
    room.gather_room(turn.now);
    // Even if nothing is left: who hears late that a track has ended looks at a frozen picture.
    room.announce(who, When::Now, false, turn);
    for sid in published {
        if let (Some(info), Some(track)) = (room.member_info(who), room.tracks.get(&sid)) {
            let track = track.info.clone();
            webhook::track("track_published", room, info, track, turn);
        }
        subscribe::reconcile_track(room, &sid, turn);
    }
    for sid in changed {
        subscribe::reconcile_track(room, &sid, turn);
    }
}

/// How somebody's tracks are taken, announced and published ones. Each codec that comes by a track of its own has an entry.
pub(crate) fn ups(room: &Room, who: Number, config: &Config) -> Vec<Up> {
    let Some(member) = room.members.get(&who) else { return Vec::new() };
    let is_of_pion = member.client.sdk() == Sdk::Go;
    let others = if is_of_pion { codecs::of(&member.client, &config.codecs) } else { Vec::new() };
    let published = member.tracks.iter().filter_map(|sid| room.tracks.get(sid));
    let published = published.flat_map(|track| {
        let of = |cid: &str, mime: &str| Up { codecs: vec![mime.to_owned()], ..up(cid, &track.info) };
        let backup = track.backup_cid().zip(track.backup_codec()).map(|(cid, codec)| of(cid, &codec.mime_type));
        std::iter::once(of(&track.first.cid, &track.info.mime_type)).chain(backup)
    });
    let announced = member.pending.iter().flat_map(|pending| {
        let (apart, together): (Vec<_>, Vec<_>) = (pending.info.codecs.iter())
            .filter(|codec| !codec.mime_type.is_empty())
            .partition(|codec| !codec.cid.is_empty() && codec.cid != pending.cid);
        let mimes = |codecs: &[&SimulcastCodecInfo]| codecs.iter().map(|codec| codec.mime_type.clone()).collect();
        let of_codec = |codec: &&SimulcastCodecInfo| Up { codecs: mimes(&[codec]), ..up(&codec.cid, &pending.info) };
        let apart: Vec<Up> = apart.iter().map(of_codec).collect();
        std::iter::once(Up { codecs: mimes(&together), ..up(&pending.cid, &pending.info) }).chain(apart)
    });
    published.chain(announced).map(|up| Up { others: others.clone(), ..up }).collect()
}

#[allow(deprecated, reason = "older clients say and read these fields")]
fn up(cid: &str, info: &TrackInfo) -> Up {
    // What is encrypted from end to end cannot be taken apart here.
    let red = !info.disable_red && info.encryption() == encryption::Type::None;
    let (dtx, stereo) = (!info.disable_dtx, info.stereo);
    Up { cid: cid.to_owned(), codecs: Vec::new(), others: Vec::new(), red, dtx, stereo }
}

/// Publishes what has a section now, and returns its sids.
fn bind(room: &mut Room, who: Number, session: SessionId, sections: &[Section], turn: &mut Turn<'_>) -> Vec<String> {
    let (mut published, place) = (Vec::new(), room.place(who));
    let Some(member) = room.members.get_mut(&who) else { return published };
    let own = member.tracks.iter().filter_map(|sid| room.tracks.get(sid));
    let backups = own.clone().filter_map(Track::backup_cid);
    let backups = backups.chain(member.pending.iter().filter_map(|pending| backup_cid(&pending.info)));
    let bound: BTreeSet<&str> = own.flat_map(Track::encodings).map(|encoding| encoding.mid.as_str()).collect();
    let backups: BTreeSet<&str> = backups.collect();
    let is_free = |section: &&Section| {
        section.is_sent && !bound.contains(section.mid.as_str()) && !backups.contains(cid_of(section))
    };
    let free: Vec<&Section> = sections.iter().filter(is_free).collect();
    for (section, Pending { mut info, .. }) in matched(&mut member.pending, free) {
        complete(&mut info, section);
        let media = turn.directory.open_track(place, &info.sid);
        turn.out.media(Request::Publish { session, mid: section.mid.clone(), track: media });
        if info.muted {
            turn.out.media(Request::Mute { track: media, is_muted: true });
        }
        if info.source() == TrackSource::Microphone && section.kind == Kind::Audio {
            room.loudest.add(media, who, turn.now.at).into_iter().for_each(|it| turn.out.media(it));
        }
        let demand = Demand::new([true, false], turn.now.at);
        let due = demand.due().filter(|_| section.kind == Kind::Video);
        room.timers.set_or_clear(Timer::Demand(media), due);
        member.tracks.push(info.sid.clone());
        member.is_publisher = true;
        published.push(info.sid.clone());
        let (mid, cid) = (section.mid.clone(), cid_of(section).to_owned());
        let track = Track {
            publisher: who,
            first: Encoding { media, session, mid, cid },
            backup: None,
            info,
            subscribers: BTreeMap::new(),
            demand,
            is_told_of_subscriber: false,
            is_of_another_room: false,
            is_shown_elsewhere: false,
        };
        room.tracks.insert(track.info.sid.clone(), track);
    }
    published
}

/// Which section carries which announced track, by the track's id. A browser may have renamed a track: what is left then
/// is the first of its kind that is waited for.
fn matched<'a>(pending: &mut Vec<Pending>, mut sections: Vec<&'a Section>) -> Vec<(&'a Section, Pending)> {
    let mut found = Vec::new();
    for by_id in [true, false] {
        sections.retain(|section| {
            let at = pending.iter().position(|pending| {
                let is_it = !by_id || pending.is_at(cid_of(section));
                is_it && !pending.is_queued && kind(&pending.info) == section.kind
            });
            found.extend(at.map(|at| (*section, pending.remove(at))));
            at.is_none()
        });
    }
    found
}

fn cid_of(section: &Section) -> &str {
    section.cid.as_deref().unwrap_or(&section.mid)
}

/// What the section tells of a track.
#[allow(deprecated, reason = "older clients read these fields")]
fn complete(info: &mut TrackInfo, section: &Section) {
    info.mid.clone_from(&section.mid);
    info.mime_type.clone_from(&section.codec);
    info.simulcast |= section.rids.len() > 1;
    if info.codecs.get(1).is_some_and(|backup| is_of_codec(&section.codec, &backup.mime_type)) {
        info.codecs.truncate(1);
    }
    if let Some(codec) = info.codecs.first_mut() {
        codec.mime_type.clone_from(&section.codec);
        codec.mid.clone_from(&section.mid);
        identify(&mut codec.layers, section);
        info.layers.clone_from(&codec.layers);
    }
}

/// Says of layers, of which the smallest stands first, how they come, as far as the section tells.
pub(crate) fn identify(layers: &mut [VideoLayer], section: &Section) {
    for (place, layer) in layers.iter_mut().enumerate() {
        let (ssrc, repair_ssrc) = section.ssrcs.get(place).copied().unwrap_or_default();
        layer.spatial_layer = place as i32;
        layer.rid = section.rids.get(place).cloned().unwrap_or_default();
        (layer.ssrc, layer.repair_ssrc) = (ssrc, repair_ssrc.unwrap_or_default());
    }
}

/// A track has ended; the publisher knows. Its announcement is the caller's.
pub(crate) fn remove(room: &mut Room, sid: &str, turn: &mut Turn<'_>) {
    subscribe::drop_track(room, sid, turn);
    let Some(track) = room.tracks.remove(sid) else { return };
    if !track.is_of_another_room {
        turn.directory.close_track(track.first.media);
        for Encoding { session, media, .. } in track.encodings() {
            turn.out.media(Request::Unpublish { session: *session, track: *media });
        }
    }
    room.timers.clear(&Timer::Demand(track.first.media));
    room.speakers.remove(track.first.media);
    room.loudest.remove(track.first.media, turn.now.at).into_iter().for_each(|it| turn.out.media(it));
    for member in room.members.values_mut() {
        member.wishes.forget(sid);
    }
    let Some(member) = room.members.get_mut(&track.publisher) else { return };
    member.tracks.retain(|own| own != sid);
    for cid in std::iter::once(track.first.cid.as_str()).chain(track.backup_cid()) {
        announce_queued(room, track.publisher, cid, turn);
    }
    if let Some(info) = room.member_info(track.publisher) {
        webhook::track("track_unpublished", room, info, track.info, turn);
    }
}

/// What comes by an id has ended: one that waited for that is announced now.
pub(crate) fn announce_queued(room: &mut Room, who: Number, cid: &str, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let next = member.pending.iter_mut().find(|pending| pending.is_queued && pending.cid == cid);
    let next = next.map(|pending| {
        pending.is_queued = false;
        pending.info.clone()
    });
    if let Some(info) = next {
        send_published(room, who, cid.to_owned(), info, turn);
    }
}

/// Ends what somebody may not publish any more, and tells it so.
pub(crate) fn revoke(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let permission = member.permission.clone();
    let may = |info: &TrackInfo| {
        let sources = &permission.can_publish_sources;
        permission.can_publish && (sources.is_empty() || sources.contains(&info.source))
    };
    member.pending.retain(|pending| may(&pending.info));
    let own = member.tracks.iter().filter(|sid| room.tracks.get(*sid).is_some_and(|track| !may(&track.info)));
    let revoked: Vec<_> = own.cloned().collect();
    for sid in revoked {
        remove(room, &sid, turn);
        room.send(who, Message::TrackUnpublished(TrackUnpublishedResponse { track_sid: sid }), turn);
    }
}

/// The client, or an admin, mutes a track; returns it when there is one.
pub(crate) fn mute(room: &mut Room, who: Number, sid: &str, is_muted: bool, turn: &mut Turn<'_>) -> Option<TrackInfo> {
    let member = room.members.get_mut(&who)?;
    if let Some(pending) = member.pending.iter_mut().find(|pending| pending.info.sid == sid) {
        pending.info.muted = is_muted;
        return Some(pending.info.clone());
    }
    let track = room.tracks.get_mut(sid).filter(|track| track.publisher == who && !track.is_of_another_room)?;
    let is_news = track.info.muted != is_muted;
    track.info.muted = is_muted;
    let info = track.info.clone();
    if is_news {
        member.version += 1;
        for encoding in track.encodings() {
            turn.out.media(Request::Mute { track: encoding.media, is_muted });
        }
        room.announce(who, When::Now, true, turn);
    }
    Some(info)
}

/// Whether somebody has announced a track of that sid, which may be published by now.
pub(crate) fn is_announced(room: &Room, who: Number, sid: &str) -> bool {
    let is_pending =
        room.members.get(&who).is_some_and(|member| member.pending.iter().any(|pending| pending.info.sid == sid));
    is_pending || room.tracks.get(sid).is_some_and(|track| track.publisher == who && !track.is_of_another_room)
}

pub(crate) fn handle_mute(room: &mut Room, who: Number, request: MuteTrackRequest, turn: &mut Turn<'_>) {
    if mute(room, who, &request.sid, request.muted, turn).is_none() {
        answer(room, who, Reason::NotFound, Asked::Mute(request), turn);
    }
}

#[allow(deprecated, reason = "older clients read these fields")]
pub(crate) fn handle_update_audio(room: &mut Room, who: Number, request: UpdateLocalAudioTrack, turn: &mut Turn<'_>) {
    let mut features = request.features.clone();
    features.sort_unstable();
    features.dedup();
    features.truncate(limits::LAYERS_MAX);
    let is_found = change(room, who, &request.track_sid, turn, |info| {
        info.stereo = features.contains(&(AudioTrackFeature::TfStereo as i32));
        info.disable_dtx = features.contains(&(AudioTrackFeature::TfNoDtx as i32));
        info.audio_features.clone_from(&features);
    });
    if !is_found {
        answer(room, who, Reason::NotFound, Asked::UpdateAudioTrack(request), turn);
    }
}

pub(crate) fn handle_update_video(room: &mut Room, who: Number, request: UpdateLocalVideoTrack, turn: &mut Turn<'_>) {
    let is_found = change(room, who, &request.track_sid, turn, |info| {
        (info.width, info.height) = (request.width, request.height);
    });
    if !is_found {
        return answer(room, who, Reason::NotFound, Asked::UpdateVideoTrack(request), turn);
    }
    subscribe::reconcile_track(room, &request.track_sid, turn);
}

/// Changes what is said of a track, announced or published.
fn change(room: &mut Room, who: Number, sid: &str, turn: &mut Turn<'_>, change: impl Fn(&mut TrackInfo)) -> bool {
    let Some(member) = room.members.get_mut(&who) else { return false };
    if let Some(pending) = member.pending.iter_mut().find(|pending| pending.info.sid == sid) {
        change(&mut pending.info);
        return true;
    }
    let Some(track) = room.tracks.get_mut(sid).filter(|track| track.publisher == who) else { return false };
    change(&mut track.info);
    member.version += 1;
    room.announce(who, When::Now, true, turn);
    true
}
