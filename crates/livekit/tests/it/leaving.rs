use livekit::media::{Event, Request};
use livekit::output::CloseReason;
use livekit::proto::leave_request::Action;
use livekit::proto::participant_info::State;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{DisconnectReason, LeaveRequest, ParticipantPermission, UpdateParticipantRequest};
use livekit::token::VideoGrant;

use crate::support::{Lab, ROOM, a_join, camera, join_granted, microphone};

#[test]
fn who_leaves_is_closed_and_its_sessions_too() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    lab.say(&eve, Signal::Leave(LeaveRequest::default()));
    assert_eq!(lab.closed(&eve), Some(CloseReason::Left));
    assert_eq!(lab.take_media(), [Request::Close { session: eve.down }]);
    assert!(lab.take(&eve).is_empty());
}

#[test]
fn others_hear_at_once_when_a_publisher_leaves() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, microphone("mic"));
    lab.forget();
    lab.say(&eve, Signal::Leave(LeaveRequest::default()));
    let updates = lab.take_updates(&adam);
    assert_eq!((updates[0].sid.as_str(), updates[0].state()), (eve.sid.as_str(), State::Disconnected));
    assert_eq!(updates[0].disconnect_reason(), DisconnectReason::ClientInitiated);
    assert_eq!(lab.downs(&adam), Vec::<String>::new());
}

#[test]
fn who_has_published_leaves_as_a_publisher_and_who_has_not_does_not() {
    let mut lab = Lab::new();
    let (adam, eve, ada) = (lab.enter("adam"), lab.enter("eve"), lab.enter("ada"));
    lab.publish(&eve, microphone("mic"));
    // What it has published is over by now.
    lab.publish(&ada, camera("cam"));
    lab.unpublish(&ada, "cam");
    for client in [&adam, &eve, &ada] {
        lab.forget();
        lab.say(client, Signal::Leave(LeaveRequest::default()));
        let left = lab.take_events().pop().expect("a webhook");
        let info = left.participant.expect("a participant");
        let permission = info.permission.as_ref().expect("permissions");
        assert_eq!((left.event.as_str(), info.identity.as_str()), ("participant_left", client.identity.as_str()));
        assert_eq!(info.is_publisher, client.identity != "adam", "{}", client.identity);
        assert!(permission.can_publish && info.joined_at_ms > 0 && info.tracks.is_empty());
    }
}

#[test]
fn who_may_publish_no_more_leaves_as_a_viewer() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.publish(&eve, microphone("mic"));
    let permission = Some(ParticipantPermission { can_subscribe: true, ..ParticipantPermission::default() });
    let (room, identity) = (ROOM.to_owned(), "eve".to_owned());
    let request = UpdateParticipantRequest { room, identity, permission, ..UpdateParticipantRequest::default() };
    lab.admin(livekit::admin::Request::UpdateParticipant(request)).expect("a participant");
    lab.say(&eve, Signal::Leave(LeaveRequest::default()));
    let left = lab.take_events().pop().expect("a webhook");
    assert!(!left.participant.expect("a participant").is_publisher);
}

#[test]
fn others_hear_within_three_seconds_when_a_viewer_leaves() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.advance_seconds(10);
    lab.forget();
    lab.say(&eve, Signal::Leave(LeaveRequest::default()));
    assert!(lab.take_updates(&adam).is_empty());
    lab.advance_seconds(3);
    assert_eq!(lab.take_updates(&adam)[0].state(), State::Disconnected);
}

#[test]
fn who_joins_with_the_same_identity_takes_the_place_of_the_first() {
    let mut lab = Lab::new();
    let (adam, first) = (lab.enter("adam"), lab.enter("eve"));
    lab.advance_seconds(10);
    lab.forget();
    let second = lab.enter("eve");
    let leave = lab.take_leave(&first).expect("a leave");
    assert_eq!((leave.reason(), leave.action()), (DisconnectReason::DuplicateIdentity, Action::Disconnect));
    lab.advance_seconds(3);
    // Who goes by identities hears of the new one alone.
    let heard: Vec<_> = lab.take_updates(&adam).into_iter().map(|info| (info.sid, info.state)).collect();
    assert_eq!(heard, [(second.sid, State::Active as i32)]);
}

#[test]
fn an_older_client_hears_that_the_first_of_an_identity_has_gone() {
    let mut lab = Lab::new();
    let mut old = a_join("adam");
    old.client.protocol = 9;
    let (adam, first) = (lab.enter_as(old), lab.enter("eve"));
    lab.advance_seconds(10);
    lab.forget();
    lab.enter("eve");
    let heard = lab.take_updates(&adam);
    assert_eq!((heard[0].sid.as_str(), heard[0].state()), (first.sid.as_str(), State::Disconnected));
}

#[test]
fn an_older_client_reads_whether_it_may_come_again_in_another_field() {
    let mut lab = Lab::new();
    let mut old = a_join("eve");
    old.client.protocol = 9;
    let eve = lab.enter_as(old);
    lab.forget();
    lab.hear(Event::Ended { session: eve.down, by_client: false });
    let leave = lab.take_leave(&eve).expect("a leave");
    assert!(leave.can_reconnect);
    assert_eq!(leave.action(), Action::Disconnect);
}

#[test]
fn who_never_connects_is_taken_out_after_a_minute() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    lab.advance_seconds(59);
    assert_eq!(lab.closed(&eve), None);
    lab.advance_seconds(1);
    assert_eq!(lab.take_leave(&eve).expect("a leave").reason(), DisconnectReason::JoinFailure);
    assert_eq!(lab.take_webhooks(), ["room_started", "participant_connection_aborted"]);
}

#[test]
fn a_connection_that_ends_before_there_is_media_takes_its_participant_with_it() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    lab.cut(&eve);
    assert_eq!(lab.rooms.sizes().participants, 0);
}

#[test]
fn rooms_and_who_is_in_them_are_listed_in_parts() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.enter("adam");
    lab.publish(&eve, camera("cam"));
    let rooms = lab.rooms.rooms_behind(0, 10);
    let [room] = &rooms[..] else { panic!("{rooms:?}") };
    assert_eq!((room.participants, room.tracks), (2, 1));
    assert!(lab.rooms.rooms_behind(room.number, 10).is_empty());

    let first = lab.rooms.participants_behind(&room.name, 0, 1).expect("a room");
    assert_eq!((first[0].identity.as_str(), first[0].publishes, first[0].state.as_str()), ("eve", 1, "active"));
    let second = lab.rooms.participants_behind(&room.name, first[0].number, 10).expect("a room");
    assert_eq!((second.len(), second[0].identity.as_str(), second[0].gets), (1, "adam", 1));
    assert_eq!(lab.rooms.participant(&room.name, "adam"), second.first().cloned());
    assert_eq!(lab.rooms.participants_behind("nowhere", 0, 10), None);
}

#[test]
fn who_closes_its_connection_before_it_says_goodbye_has_left_by_itself() {
    for (by_client, reason) in [(true, DisconnectReason::ClientInitiated), (false, DisconnectReason::ConnectionTimeout)]
    {
        let mut lab = Lab::new();
        let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
        lab.publish(&eve, camera("cam"));
        lab.forget();
        lab.hear(Event::Ended { session: eve.down, by_client });
        let heard = lab.take_updates(&adam);
        assert_eq!(heard.last().expect("an update").disconnect_reason(), reason);
    }
}

#[test]
fn a_session_that_ends_sends_its_client_to_join_anew() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.hear(Event::Ended { session: eve.down, by_client: false });
    assert_eq!(lab.take_leave(&eve).expect("a leave").action(), Action::Reconnect);
    assert_eq!(lab.rooms.sizes().participants, 0);
}

#[test]
fn a_room_that_nobody_has_joined_closes_after_the_empty_timeout() {
    let mut lab = Lab::new();
    lab.admin(crate::admin::create("room")).expect("a room");
    lab.advance_seconds(299);
    assert_eq!(lab.rooms.sizes().rooms, 1);
    lab.advance_seconds(1);
    assert_eq!(lab.rooms.sizes().rooms, 0);
    assert_eq!(lab.take_webhooks(), ["room_started", "room_finished"]);
}

#[test]
fn a_room_that_all_have_left_closes_after_the_departure_timeout() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.say(&eve, Signal::Leave(LeaveRequest::default()));
    lab.advance_seconds(19);
    assert_eq!(lab.rooms.sizes().rooms, 1);
    lab.advance_seconds(1);
    assert_eq!(lab.rooms.sizes().rooms, 0);
}

#[test]
fn a_room_stays_open_for_who_comes_back_in_time() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.say(&eve, Signal::Leave(LeaveRequest::default()));
    lab.advance_seconds(19);
    lab.enter("eve");
    lab.advance_seconds(1000);
    assert_eq!(lab.rooms.sizes().rooms, 1);
}

#[test]
fn a_room_with_none_but_an_agent_closes_and_sends_the_agent_away() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let agent = lab.enter_as(join_granted("bot", VideoGrant { agent: true, ..VideoGrant::default() }));
    lab.say(&eve, Signal::Leave(LeaveRequest::default()));
    lab.advance_seconds(20);
    assert_eq!(lab.take_leave(&agent).expect("a leave").reason(), DisconnectReason::RoomClosed);
    assert_eq!(lab.rooms.sizes(), livekit::rooms::Sizes::default());
}

#[test]
fn when_the_server_ends_everybody_is_told_so() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.forget();
    let now = lab.now();
    lab.act(|rooms, out| rooms.close(now, out));
    for client in [adam, eve] {
        let messages = lab.take(&client);
        let [Message::Leave(leave)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(leave.reason(), DisconnectReason::ServerShutdown);
    }
}

#[test]
fn others_hear_at_once_of_who_takes_the_place_of_a_publisher() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, microphone("mic"));
    lab.advance_seconds(10);
    lab.forget();
    let second = lab.enter("eve");
    let heard = lab.take_updates(&adam);
    assert_eq!((heard[0].sid.as_str(), heard[0].tracks.len()), (second.sid.as_str(), 0));
}
