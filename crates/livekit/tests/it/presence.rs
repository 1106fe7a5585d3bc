use livekit::join::Join;
use livekit::media::Event;
use livekit::proto::LeaveRequest;
use livekit::proto::participant_info::State;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::token::VideoGrant;

use crate::support::{Lab, a_join, a_viewer, hidden, join_granted, microphone};

#[test]
fn somebody_is_there_when_media_is_connected_and_both_channels_are_open() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    lab.take_webhooks();
    lab.hear(Event::Connected { session: eve.down });
    assert!(lab.take_webhooks().is_empty());
    lab.hear(Event::ChannelsOpen { session: eve.down });
    assert_eq!(lab.take_webhooks(), ["participant_joined"]);
    assert_eq!(lab.take_updates(&eve)[0].state(), State::Active);
}

#[test]
fn who_offers_no_data_channels_is_there_without_them() {
    let mut lab = Lab::new();
    let eve = lab.try_join(Join { is_single: true, ..a_join("eve") }).expect("somebody who is let in");
    lab.hear(Event::Answered { session: eve.down, sdp: String::new(), sections: vec![], has_data: false });
    lab.hear(Event::Connected { session: eve.down });
    assert_eq!(lab.take_updates(&eve)[0].state(), State::Active);
}

#[test]
fn who_may_not_subscribe_is_there_when_its_publishing_session_is() {
    let mut lab = Lab::new();
    let grant = VideoGrant { can_subscribe: Some(false), ..VideoGrant::default() };
    let eve = lab.try_join(join_granted("eve", grant)).expect("somebody who is let in");
    let session = lab.offer(&eve);
    lab.answered(session);
    lab.hear(Event::Connected { session });
    lab.hear(Event::ChannelsOpen { session });
    assert_eq!(lab.take_updates(&eve)[0].state(), State::Active);
}

#[test]
fn others_hear_of_who_comes_within_three_seconds() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    lab.advance_seconds(10);
    lab.forget();
    lab.enter("eve");
    assert!(lab.take_updates(&adam).is_empty());
    lab.advance_seconds(3);
    let heard = lab.take_updates(&adam);
    assert_eq!((heard[0].identity.as_str(), heard[0].state()), ("eve", State::Active));
}

#[test]
fn many_who_come_at_once_are_one_message() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    lab.advance_seconds(10);
    lab.forget();
    for number in 0..50 {
        lab.enter(&format!("viewer{number}"));
    }
    lab.advance_seconds(3);
    let updates: Vec<_> = lab.take(&adam).into_iter().filter(|message| matches!(message, Message::Update(_))).collect();
    let [Message::Update(update)] = &updates[..] else { panic!("{} updates", updates.len()) };
    assert_eq!(update.participants.len(), 50);
}

#[test]
fn others_hear_of_a_publisher_at_once() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.forget();
    let sid = lab.publish(&eve, microphone("mic"));
    let heard = lab.take_updates(&adam);
    assert!(heard[0].is_publisher);
    assert_eq!(heard[0].tracks[0].sid, sid);
    // What was gathered before is older, and is not sent behind it.
    lab.advance_seconds(3);
    assert!(lab.take_updates(&adam).iter().all(|info| info.identity != "eve"));
}

#[test]
fn nobody_hears_of_who_is_hidden_but_it_itself() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    lab.advance_seconds(10);
    lab.forget();
    let spy = lab.enter_as(hidden("spy"));
    assert_eq!(lab.take_updates(&spy)[0].state(), State::Active);
    lab.say(&spy, Signal::Leave(LeaveRequest::default()));
    lab.advance_seconds(10);
    assert!(lab.take_updates(&adam).is_empty());
}

#[test]
fn in_a_livestream_viewers_are_not_told_of() {
    let mut lab = Lab::with(|config| config.livestream_from = 3);
    let host = lab.enter("host");
    let first = lab.enter_as(a_viewer("first"));
    lab.advance_seconds(10);
    lab.forget();
    let more: Vec<_> = (0..20).map(|number| lab.enter_as(a_viewer(&format!("viewer{number}")))).collect();
    lab.say(&more[7], Signal::Leave(LeaveRequest::default()));
    lab.advance_seconds(10);
    assert!(lab.take_updates(&host).is_empty() && lab.take_updates(&first).is_empty());
    // Who comes hears of the host and of who was told of before.
    let late = lab.try_join(a_viewer("late")).expect("somebody who is let in");
    let known: Vec<_> = lab.take_join(&late).other_participants.into_iter().map(|other| other.identity).collect();
    assert_eq!(known, ["host", "first"]);
}

#[test]
fn in_a_livestream_who_was_told_of_is_told_to_have_left() {
    let mut lab = Lab::with(|config| config.livestream_from = 3);
    let (host, first) = (lab.enter("host"), lab.enter_as(a_viewer("first")));
    lab.enter_as(a_viewer("second"));
    lab.advance_seconds(10);
    lab.forget();
    lab.say(&first, Signal::Leave(LeaveRequest::default()));
    lab.advance_seconds(3);
    assert_eq!(lab.take_updates(&host)[0].state(), State::Disconnected);
}

#[test]
fn in_a_livestream_who_may_publish_is_told_of() {
    let mut lab = Lab::with(|config| config.livestream_from = 2);
    let host = lab.enter("host");
    lab.forget();
    lab.enter("guest");
    lab.advance_seconds(3);
    assert!(lab.take_updates(&host).iter().any(|info| info.identity == "guest"));
}

#[test]
fn the_rooms_numbers_come_within_five_seconds() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    lab.advance_seconds(10);
    lab.enter("eve");
    lab.forget();
    lab.advance_seconds(5);
    let numbers: Vec<_> = lab
        .take(&adam)
        .into_iter()
        .filter_map(|message| match message {
            Message::RoomUpdate(update) => update.room.map(|room| room.num_participants),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, [2]);
}

#[test]
fn a_recorder_is_told_of_at_once() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    lab.forget();
    lab.enter_as(join_granted("tape", VideoGrant { recorder: true, hidden: true, ..VideoGrant::default() }));
    let is_recorded = lab.take(&adam).into_iter().any(|message| match message {
        Message::RoomUpdate(update) => update.room.is_some_and(|room| room.active_recording),
        _ => false,
    });
    assert!(is_recorded);
}
