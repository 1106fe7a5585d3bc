//! What is said of a participant, and what it may do: changed while it is there.

use std::collections::HashMap;

use livekit_protocol::request_response::{Reason, Request as Asked};
use livekit_protocol::signal_response::Message;
use livekit_protocol::{ParticipantPermission, RequestResponse, UpdateParticipantMetadata};

use crate::directory::Number;
use crate::limits::{self, TooLong};
use crate::room::{Room, When};
use crate::turn::Turn;
use crate::{presence, publish, subscribe};

/// A client changes what is said of it, and hears how that went.
pub(crate) fn handle_update(room: &mut Room, who: Number, update: UpdateParticipantMetadata, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get(&who) else { return };
    let (reason, message) = match member.permission.can_update_metadata {
        false => (Reason::NotAllowed, "the token does not allow it (canUpdateOwnMetadata)".to_owned()),
        true => match set(room, who, &update.name, &update.metadata, &update.attributes, turn) {
            Ok(()) => (Reason::Ok, String::new()),
            Err(too_long) => (Reason::LimitExceeded, too_long.to_string()),
        },
    };
    let response = RequestResponse {
        request_id: update.request_id,
        reason: reason as i32,
        message,
        request: Some(Asked::UpdateMetadata(update)),
    };
    room.send(who, Message::RequestResponse(response), turn);
}

/// Changes what is not empty; an attribute that is empty is removed.
pub(crate) fn set(
    room: &mut Room,
    who: Number,
    name: &str,
    metadata: &str,
    attributes: &HashMap<String, String>,
    turn: &mut Turn<'_>,
) -> Result<(), TooLong> {
    let Some(member) = room.members.get_mut(&who) else { return Ok(()) };
    let mut merged = member.attributes.clone();
    for (key, value) in attributes {
        match value.is_empty() {
            true => merged.remove(key),
            false => merged.insert(key.clone(), value.clone()),
        };
    }
    let attribute_bytes: usize = merged.iter().map(|(key, value)| key.len() + value.len()).sum();
    TooLong::check("the name", name.len(), limits::NAME_BYTES_MAX)?;
    TooLong::check("the metadata", metadata.len(), limits::METADATA_BYTES_MAX)?;
    TooLong::check("all attributes together", attribute_bytes, limits::ATTRIBUTES_BYTES_MAX)?;
    let kept = |new: &str, old: &str| if new.is_empty() { old.to_owned() } else { new.to_owned() };
    let (name, metadata) = (kept(name, &member.name), kept(metadata, &member.metadata));
    if (&name, &metadata, &merged) == (&member.name, &member.metadata, &member.attributes) {
        return Ok(());
    }
    (member.name, member.metadata, member.attributes) = (name, metadata, merged);
    member.version += 1;
    room.announce(who, When::Now, true, turn);
    presence::send_token(room, who, turn);
    Ok(())
}

/// Changes what somebody may do, at once. Whether it is hidden, a recorder or an agent stays as its token says.
#[allow(deprecated, reason = "older clients read these fields")]
pub(crate) fn set_permission(room: &mut Room, who: Number, permission: ParticipantPermission, turn: &mut Turn<'_>) {
    let Some(member) = room.members.get_mut(&who) else { return };
    let former = &member.permission;
    let mut permission =
        ParticipantPermission { hidden: former.hidden, recorder: former.recorder, agent: former.agent, ..permission };
    permission.can_publish_sources.truncate(limits::LAYERS_MAX);
    if *former == permission {
        return;
    }
    member.is_publisher &= permission.can_publish;
    member.permission = permission;
    member.version += 1;
    publish::revoke(room, who, turn);
    subscribe::reconcile_subscriber(room, who, turn);
    room.announce(who, When::Now, true, turn);
    presence::send_token(room, who, turn);
    presence::handle_established(room, who, turn);
}
