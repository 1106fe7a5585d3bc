//! Offers, answers and candidates, between clients and the packet path.

use std::collections::HashMap;

use livekit_protocol::leave_request::Action;
use livekit_protocol::signal_response::Message;
use livekit_protocol::{DisconnectReason, MediaSectionsRequirement, SessionDescription, SignalTarget, TrickleRequest};

use crate::directory::Number;
use crate::limits::{CANDIDATE_BYTES_MAX, SDP_BYTES_MAX};
use crate::media::{Request, Role, Section, SessionId};
use crate::presence;
use crate::publish;
use crate::room::Room;
use crate::transports::Peer;
use crate::turn::Turn;

pub(crate) fn handle_offer(room: &mut Room, who: Number, offer: SessionDescription, turn: &mut Turn<'_>) {
    if offer.sdp.len() > SDP_BYTES_MAX {
        return presence::leave(room, who, DisconnectReason::StateMismatch, Some(Action::Disconnect), turn);
    }
    let Some(peer) = publisher(room, who, turn) else { return };
    peer.asked = offer.id;
    let session = peer.id;
    let ups = publish::ups(room, who, turn.config);
    turn.out.media(Request::Offer { session, sdp: offer.sdp, ups });
}

/// The client's answer to our last offer; to an earlier one it is not heard any more.
pub(crate) fn handle_answer(room: &mut Room, who: Number, answer: SessionDescription, turn: &mut Turn<'_>) {
    if answer.sdp.len() > SDP_BYTES_MAX {
        return presence::leave(room, who, DisconnectReason::StateMismatch, Some(Action::Disconnect), turn);
    }
    let Some(peer) = room.members.get(&who).and_then(|member| member.transports.subscriber.as_ref()) else { return };
    if peer.offered != 0 && (answer.id == 0 || answer.id == peer.offered) {
        turn.out.media(Request::Answer { session: peer.id, sdp: answer.sdp });
    }
}

pub(crate) fn handle_trickle(room: &mut Room, who: Number, trickle: &TrickleRequest, turn: &mut Turn<'_>) {
    if trickle.candidate_init.len() > CANDIDATE_BYTES_MAX {
        return presence::leave(room, who, DisconnectReason::StateMismatch, Some(Action::Disconnect), turn);
    }
    let init: serde_json::Value = serde_json::from_str(&trickle.candidate_init).unwrap_or_default();
    let candidate = init.get("candidate").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    let Some(member) = room.members.get(&who) else { return };
    let session = match trickle.target() {
        SignalTarget::Subscriber if !member.transports.is_single => {
            member.transports.subscriber.as_ref().map(|peer| peer.id)
        }
        _ => publisher(room, who, turn).map(|peer| peer.id),
    };
    let is_last = trickle.r#final || candidate.is_empty();
    if let Some(session) = session {
        turn.out.media(Request::Trickle { session, candidate, is_last });
    }
}

/// The peer connection by which somebody publishes, opened when it is first needed.
fn publisher<'a>(room: &'a mut Room, who: Number, turn: &mut Turn<'_>) -> Option<&'a mut Peer> {
    if room.members.get(&who)?.transports.publisher.is_none() {
        presence::open_session(room, who, Role::Publisher, true, turn);
    }
    room.members.get_mut(&who)?.transports.publisher.as_mut()
}

/// The packet path has answered the client's offer.
pub(crate) fn handle_answered(
    room: &mut Room,
    who: Number,
    session: SessionId,
    sdp: String,
    sections: &[Section],
    has_data: bool,
    turn: &mut Turn<'_>,
) {
    let Some(peer) = room.members.get_mut(&who).and_then(|member| member.transports.peer_mut(session)) else { return };
    peer.has_data = has_data || (peer.is_connected && peer.has_data);
    let id = peer.asked;
    let mid_to_track_id: HashMap<_, _> =
        sections.iter().filter_map(|section| Some((section.mid.clone(), section.down.clone()?))).collect();
    room.send(who, Message::Answer(SessionDescription { r#type: "answer".into(), sdp, id, mid_to_track_id }), turn);
    publish::handle_sections(room, who, session, sections, turn);
    presence::handle_established(room, who, turn);
}

/// The packet path has an offer for the client.
pub(crate) fn handle_offered(
    room: &mut Room,
    who: Number,
    session: SessionId,
    sdp: String,
    tracks: Vec<(String, String)>,
    turn: &mut Turn<'_>,
) {
    let Some(peer) = room.members.get_mut(&who).and_then(|member| member.transports.peer_mut(session)) else { return };
    peer.offered = peer.offered.wrapping_add(1).max(1);
    let id = peer.offered;
    let mid_to_track_id = tracks.into_iter().collect();
    room.send(who, Message::Offer(SessionDescription { r#type: "offer".into(), sdp, id, mid_to_track_id }), turn);
}

/// What a client sent cannot be used: it begins anew.
pub(crate) fn handle_refused(room: &mut Room, who: Number, turn: &mut Turn<'_>) {
    presence::leave(room, who, DisconnectReason::MediaFailure, Some(Action::Reconnect), turn);
}

pub(crate) fn handle_need(room: &Room, who: Number, audio: u32, video: u32, turn: &mut Turn<'_>) {
    let need = MediaSectionsRequirement { num_audios: audio, num_videos: video };
    room.send(who, Message::MediaSectionsRequirement(need), turn);
}

pub(crate) fn handle_candidate(room: &mut Room, who: Number, session: SessionId, init: String, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get(&who) else { return };
    let is_subscriber = member.transports.subscriber.as_ref().is_some_and(|peer| peer.id == session);
    let target = if is_subscriber { SignalTarget::Subscriber } else { SignalTarget::Publisher };
    let trickle = TrickleRequest { candidate_init: init, target: target as i32, r#final: false };
    room.send(who, Message::Trickle(trickle), turn);
}
