//! What the application hears of by webhooks.

use livekit_protocol::{ParticipantInfo, RoomEndReason, TrackInfo, WebhookEvent};

use crate::room::Room;
use crate::turn::Turn;

pub(crate) fn room(event: &str, room: &Room, turn: &mut Turn<'_>) {
    let event = WebhookEvent { room: Some(room.info()), ..begun(event, turn) };
    turn.out.webhook(event);
}

pub(crate) fn room_finished(room: &Room, reason: RoomEndReason, turn: &mut Turn<'_>) {
    let begun = begun("room_finished", turn);
    turn.out.webhook(WebhookEvent { room: Some(room.info()), room_end_reason: reason as i32, ..begun });
}

pub(crate) fn participant(event: &str, room: &Room, participant: ParticipantInfo, turn: &mut Turn<'_>) {
    let begun = begun(event, turn);
    turn.out.webhook(WebhookEvent { room: Some(room.info()), participant: Some(participant), ..begun });
}

pub(crate) fn track(event: &str, room: &Room, participant: ParticipantInfo, track: TrackInfo, turn: &mut Turn<'_>) {
    let begun = begun(event, turn);
    let event = WebhookEvent { room: Some(room.info()), participant: Some(participant), track: Some(track), ..begun };
    turn.out.webhook(event);
}

fn begun(event: &str, turn: &mut Turn<'_>) -> WebhookEvent {
    WebhookEvent {
        event: event.to_owned(),
        id: turn.sids.next("EV_"),
        created_at: turn.now.unix.as_secs() as i64,
        ..WebhookEvent::default()
    }
}
