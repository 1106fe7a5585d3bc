//! Data packets: who sent them, and who gets them.
//!
//! The server says who a packet is from; what is in it is the clients'. It goes to everybody else, or to whom it names.
//! Packets with a nonce that the room has just seen are dropped, and so are reliable ones that a client sends again
//! after it has come back. Who has joined and has no open channels yet gets reliable ones when it has. Who sends reliable ones to
//! somebody who is behind with them waits (`behind`).

use std::sync::Arc;

use livekit_protocol::data_packet::Value;
use livekit_protocol::{DataPacket, UserPacket, data_packet, data_stream};
use prost::Message as _;

use crate::behind;
use crate::directory::Number;
use crate::limits::{DATA_BYTES_MAX, DATA_KEPT_BYTES_MAX, DATA_KEPT_MAX, NONCES_MAX};
use crate::media::{Channel, Request, SessionId};
use crate::participant::Participant;
use crate::room::Room;
use crate::turn::Turn;

/// A packet from somebody's data channel.
pub(crate) fn handle(
    room: &mut Room,
    (who, session): (Number, SessionId),
    channel: Channel,
    bytes: &[u8],
    turn: &mut Turn<'_>,
) {
    let Some(member) = room.members.get_mut(&who) else { return };
    if !member.permission.can_publish_data || bytes.len() > DATA_BYTES_MAX {
        return;
    }
    let Ok(mut packet) = DataPacket::decode(bytes) else { return };
    if channel == Channel::Reliable && packet.sequence > 0 {
        if packet.sequence <= member.last_reliable {
            return;
        }
        member.last_reliable = packet.sequence;
    }
    if sign(member, &mut packet) {
        send(room, Some((who, session)), channel, packet, turn);
    }
}

/// Writes the sender into a packet; false when this sender may not send it.
#[allow(deprecated, reason = "older clients read these fields")]
fn sign(sender: &Participant, packet: &mut DataPacket) -> bool {
    let is_hidden = sender.is_hidden();
    let shown = |text: &String| if is_hidden { String::new() } else { text.clone() };
    packet.participant_sid = sender.sid.clone();
    // An agent may speak for somebody: then what it sends is marked as made.
    let speaks_for =
        sender.is_agent() && !packet.participant_identity.is_empty() && packet.participant_identity != sender.identity;
    let mut is_for_other = false;
    match &mut packet.value {
        None | Some(Value::Speaker(_)) => return false,
        Some(Value::Transcription(_)) => return sender.is_agent(),
        Some(Value::User(user)) => {
            (user.participant_sid, user.participant_identity) = (shown(&sender.sid), shown(&sender.identity));
        }
        Some(Value::ChatMessage(message)) if speaks_for => (message.generated, is_for_other) = (true, true),
        Some(Value::StreamHeader(header)) if speaks_for => {
            if let Some(data_stream::header::ContentHeader::TextHeader(text)) = &mut header.content_header {
                (text.generated, is_for_other) = (true, true);
            }
        }
        Some(_) => {}
    }
    if !is_for_other {
        packet.participant_identity = shown(&sender.identity);
    }
    true
}

/// Sends a packet on, which has come by a session of somebody's; without a sender it is from an admin.
#[allow(deprecated, reason = "older clients say and read these fields")]
pub(crate) fn send(
    room: &mut Room,
    by: Option<(Number, SessionId)>,
    channel: Channel,
    mut packet: DataPacket,
    turn: &mut Turn<'_>,
) {
    let kind = if channel == Channel::Reliable { data_packet::Kind::Reliable } else { data_packet::Kind::Lossy };
    packet.kind = kind as i32;
    let mut sids = Vec::new();
    if let Some(Value::User(user)) = &mut packet.value {
        if is_duplicate(room, user) {
            return;
        }
        // One of the two is said, by older clients or by newer ones.
        if packet.destination_identities.is_empty() {
            packet.destination_identities.clone_from(&user.destination_identities);
        } else {
            user.destination_identities.clone_from(&packet.destination_identities);
        }
        sids.clone_from(&user.destination_sids);
    }
    let from = by.map(|(who, _)| who);
    let is_of_metrics = matches!(packet.value, Some(Value::Metrics(_)));
    let named = &packet.destination_identities;
    let who: Vec<Number> = match named.is_empty() && sids.is_empty() {
        true => {
            let all = room.members.values().filter(|member| match is_of_metrics {
                true => member.permission.can_subscribe_metrics,
                false => Some(member.number) != from,
            });
            all.map(|member| member.number).collect()
        }
        false => {
            let named = named.iter().filter_map(|identity| room.by_identity.get(identity));
            let sids = sids.iter().filter_map(|sid| room.by_sid.get(sid));
            let mut named: Vec<_> = named.chain(sids).copied().filter(|number| Some(*number) != from).collect();
            named.sort_unstable();
            named.dedup();
            named
        }
    };
    if !who.is_empty() {
        let session = by.map(|(_, session)| session);
        deliver(room, session, &who, channel, packet.encode_to_vec().into(), turn);
    }
}

/// Sends a packet to those whose channels are open. What is reliable is kept for those who are about to open theirs.
fn deliver(
    room: &mut Room,
    by: Option<SessionId>,
    who: &[Number],
    channel: Channel,
    bytes: Arc<[u8]>,
    turn: &mut Turn<'_>,
) {
    let mut to: Vec<SessionId> = Vec::new();
    for number in who {
        let Some(member) = room.members.get_mut(number) else { continue };
        match member.transports.primary() {
            Some(peer) if peer.has_channels => to.push(peer.id),
            Some(peer) if peer.has_data && channel == Channel::Reliable => keep(member, &bytes),
            _ => {}
        }
    }
    if let (Some(by), Channel::Reliable) = (by, channel) {
        behind::hold(room, by, &to, turn);
    }
    if !to.is_empty() {
        turn.out.media(Request::Data { to, channel, bytes });
    }
}

fn keep(member: &mut Participant, bytes: &Arc<[u8]>) {
    let kept_bytes: usize = member.kept.iter().map(|kept| kept.len()).sum();
    if member.kept.len() < DATA_KEPT_MAX && kept_bytes + bytes.len() <= DATA_KEPT_BYTES_MAX {
        member.kept.push(bytes.clone());
    }
}

/// Somebody's channels are open: it gets what was kept for it.
pub(crate) fn handle_open(room: &mut Room, who: Number, session: SessionId, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    if member.transports.primary().is_some_and(|peer| peer.id == session) {
        for bytes in std::mem::take(&mut member.kept) {
            turn.out.media(Request::Data { to: vec![session], channel: Channel::Reliable, bytes });
        }
    }
}

fn is_duplicate(room: &mut Room, user: &UserPacket) -> bool {
    if user.nonce.is_empty() {
        return false;
    }
    // Nonces are 16 bytes; who sends longer ones is kept from filling the memory.
    let nonce = &user.nonce[..user.nonce.len().min(64)];
    if room.nonces.iter().any(|known| known == nonce) {
        return true;
    }
    if room.nonces.len() >= NONCES_MAX {
        room.nonces.pop_front();
    }
    room.nonces.push_back(nonce.to_vec());
    false
}
