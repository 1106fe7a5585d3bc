//! The second codec of a published picture, its backup: announced with the track, published when somebody lacks the first.
//!
//! In: what a publisher announces and sends of it, and who cannot decode the first codec. Out: which of the two somebody gets; who
//! needs the backup waits until it is published. With the policy SIMULCAST both go on beside each other; otherwise everybody gets the
//! backup from when it is there.
//! Source: LiveKit's server 1.13.5, `BackupCodecPolicy` of its protocol.

use std::collections::BTreeSet;

use livekit_protocol::leave_request::Action;
use livekit_protocol::request_response::{Reason, Request as Asked};
use livekit_protocol::{AddTrackRequest, DisconnectReason, SimulcastCodec};

use crate::directory::Number;
use crate::media::{Kind, Request, Section, SessionId, TrackId};
use crate::participant::Participant;
use crate::presence;
use crate::publish::{self, answer, send_published};
use crate::room::Room;
use crate::track::{Encoding, Track, is_of_codec, sorted};
use crate::turn::Turn;

/// Takes what is said of the backup of a track that is published. One that comes already stays as it is.
pub(crate) fn announce(room: &mut Room, who: Number, request: AddTrackRequest, turn: &mut Turn<'_>) {
    if let Some(reason) = refusal(room, who, &request) {
        return answer(room, who, reason, Asked::AddTrack(request), turn);
    }
    let Some(track) = room.tracks.get_mut(&request.sid) else { return };
    let before = track.backup_cid().unwrap_or_default().to_owned();
    let asked = asked(track, &request);
    for (asked, codec) in asked.into_iter().zip(track.info.codecs.get_mut(1)) {
        cid_of(asked, &request).clone_into(&mut codec.cid);
        if !asked.layers.is_empty() {
            codec.layers = sorted(&asked.layers);
        }
    }
    let (info, is_other) = (track.info.clone(), track.backup_cid() != Some(&before));
    send_published(room, who, request.cid, info, turn);
    if is_other {
        publish::announce_queued(room, who, &before, turn);
    }
}

fn refusal(room: &Room, who: Number, request: &AddTrackRequest) -> Option<Reason> {
    let Some(track) = room.tracks.get(&request.sid).filter(|track| track.publisher == who) else {
        return Some(Reason::NotFound);
    };
    if request.simulcast_codecs.is_empty() {
        return None;
    }
    let Some(asked) = asked(track, request) else { return Some(Reason::UnsupportedType) };
    let cid = cid_of(asked, request);
    let is_another_s = track.backup_cid() != Some(cid) && publish::is_taken(room, who, cid);
    (track.backup.is_some() || is_another_s).then_some(Reason::InvalidRequest)
}

/// What a request says of a track's backup.
fn asked<'a>(track: &Track, request: &'a AddTrackRequest) -> Option<&'a SimulcastCodec> {
    let backup = track.backup_codec()?;
    request.simulcast_codecs.iter().find(|asked| is_of_codec(&asked.codec, &backup.mime_type))
}

fn cid_of<'a>(asked: &'a SimulcastCodec, request: &'a AddTrackRequest) -> &'a str {
    if asked.cid.is_empty() { &request.cid } else { &asked.cid }
}

/// What was agreed on for a session: backups that have a section now are published, and those whose section carries nothing any more
/// have ended. Returns the sids of their tracks.
pub(crate) fn handle_sections(
    room: &mut Room,
    who: Number,
    session: SessionId,
    sections: &[Section],
    turn: &mut Turn<'_>,
) -> Vec<String> {
    let sids = room.members.get(&who).map(|member| member.tracks.clone()).unwrap_or_default();
    let own = sids.iter().filter_map(|sid| room.tracks.get(sid));
    let mut bound: BTreeSet<String> = own.flat_map(Track::encodings).map(|encoding| encoding.mid.clone()).collect();
    let mut changed = Vec::new();
    for sid in sids {
        let Some(track) = room.tracks.get(&sid) else { continue };
        let mut free = sections.iter().filter(|section| !bound.contains(&section.mid));
        match &track.backup {
            Some(backup) if backup.is_carried(session, sections) => continue,
            Some(_) => end(room, &sid, turn),
            None => {
                let Some(section) = free.find(|section| carries(track, section)) else { continue };
                bound.insert(section.mid.clone());
                begin(room, &sid, session, section, turn);
            }
        }
        changed.push(sid);
    }
    changed
}

/// Whether a section is that of a track's backup.
fn carries(track: &Track, section: &Section) -> bool {
    let is_named = |cid| section.cid.as_deref() == Some(cid);
    let is_in = |mime: &str| section.codec.eq_ignore_ascii_case(mime);
    let is_it =
        track.backup_cid().is_some_and(is_named) && track.backup_codec().is_some_and(|codec| is_in(&codec.mime_type));
    is_it && section.is_sent && section.kind == Kind::Video
}

fn begin(room: &mut Room, sid: &str, session: SessionId, section: &Section, turn: &mut Turn<'_>) {
    // It has no sound, so nobody asks whose it is.
    let media = TrackId(turn.directory.number());
    let Some(track) = room.tracks.get_mut(sid) else { return };
    let (mid, cid) = (section.mid.clone(), track.backup_cid().unwrap_or_default().to_owned());
    turn.out.media(Request::Publish { session, mid: mid.clone(), track: media });
    if track.info.muted {
        turn.out.media(Request::Mute { track: media, is_muted: true });
    }
    if let Some(codec) = track.info.codecs.get_mut(1) {
        codec.mid.clone_from(&mid);
        publish::identify(&mut codec.layers, section);
    }
    track.demand.begin_backup(turn.now.at);
    replace(room, sid, Some(Encoding { media, session, mid, cid }), turn);
}

/// The backup of a track comes no more; who needs it waits for another.
fn end(room: &mut Room, sid: &str, turn: &mut Turn<'_>) {
    let Some(ended) = replace(room, sid, None, turn) else { return };
    turn.out.media(Request::Unpublish { session: ended.session, track: ended.media });
    let Some(track) = room.tracks.get_mut(sid) else { return };
    track.demand.end_backup(turn.now.at);
    if let Some(codec) = track.info.codecs.get_mut(1) {
        codec.mid.clear();
        codec.cid.clear();
    }
    let publisher = track.publisher;
    publish::announce_queued(room, publisher, &ended.cid, turn);
}

/// The backup of a track is this one from now on, and nobody gets the one before, which is returned. Who gets which is for
/// `subscribe::reconcile_track`.
pub(crate) fn replace(room: &mut Room, sid: &str, backup: Option<Encoding>, turn: &mut Turn<'_>) -> Option<Encoding> {
    let track = room.tracks.get_mut(sid)?;
    if track.backup.is_none() && backup.is_some() {
        room.members.values_mut().for_each(|member| member.wishes.reconsider(sid));
    }
    let before = std::mem::replace(&mut track.backup, backup)?;
    if track.backup.as_ref().is_some_and(|backup| backup.media == before.media) {
        return None;
    }
    let mut bound = Vec::new();
    for who in track.subscribers.keys() {
        let Some(member) = room.members.get_mut(who) else { continue };
        if member.downs.remove(&before.media).is_some() {
            room.changed_downs.insert(*who);
            bound.extend(member.describes_once.then_some(*who));
        }
    }
    // Whose description stays as it is would look at a frozen picture, though the track goes on. It may come again.
    for who in bound {
        presence::leave(room, who, DisconnectReason::MediaFailure, Some(Action::Reconnect), turn);
    }
    Some(before)
}

/// Whether somebody gets the backup of a track, or waits for it.
pub(crate) fn is_for(track: &Track, member: &Participant) -> bool {
    // Whose description stays as it is gets nothing else than it has.
    let is_bound_to_first = member.describes_once && member.downs.contains_key(&track.first.media);
    let [lacks_first, lacks_backup] = member.wishes.lacks(&track.info.sid);
    !is_bound_to_first && (lacks_first || (track.is_regressed() && !lacks_backup))
}

/// What of a track somebody gets; none while that is waited for.
pub(crate) fn encoding_for(track: &Track, member: &Participant) -> Option<TrackId> {
    match is_for(track, member) {
        true => track.backup.as_ref().map(|backup| backup.media),
        false => Some(track.first.media),
    }
}

/// Notes that somebody cannot decode what it gets of a track. False: the other codec would not help, or is not to be had.
pub(crate) fn fall_back(track: &Track, media: TrackId, member: &mut Participant) -> bool {
    let (sid, is_first) = (&track.info.sid, media == track.first.media);
    let is_noted = track.backup_codec().is_some() && !member.describes_once && member.wishes.lack(sid, is_first);
    // Where its publisher only stands in the room, nobody asks it for more than there is.
    let is_to_be_had = !is_first || track.backup.is_some() || !track.is_of_another_room;
    is_noted && is_to_be_had && member.wishes.lacks(sid) != [true; 2]
}
