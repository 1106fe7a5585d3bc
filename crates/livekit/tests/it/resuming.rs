use livekit::join::Join;
use livekit::media::{Event, Request};
use livekit::output::CloseReason;
use livekit::proto::leave_request::Action;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::simulate_scenario::Scenario;
use livekit::proto::{
    DisconnectReason, SimulateScenario, SyncState, TrackInfo, TrackPublishedResponse, UpdateSubscription,
};

use crate::support::{Client, Lab, a_join, camera};

fn again(client: &Client) -> Join {
    Join { reconnect: Some(client.sid.clone()), ..a_join(&client.identity) }
}

/// Comes back; the client that the test goes on with.
fn resume(lab: &mut Lab, client: &Client) -> Client {
    let back = lab.try_join(again(client)).expect("somebody who is let in");
    Client { connection: back.connection, ..client.clone() }
}

fn published(sid: &str) -> SyncState {
    let track = Some(TrackInfo { sid: sid.into(), ..TrackInfo::default() });
    SyncState {
        publish_tracks: vec![TrackPublishedResponse { track, ..TrackPublishedResponse::default() }],
        ..SyncState::default()
    }
}

#[test]
fn who_comes_back_keeps_its_sid_its_tracks_and_its_subscriptions() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, camera("cam"));
    lab.advance_seconds(10);
    lab.cut(&adam);
    lab.forget();
    let adam = resume(&mut lab, &adam);
    let messages = lab.take(&adam);
    let kinds = [
        matches!(messages[0], Message::Reconnect(_)),
        matches!(&messages[1], Message::Update(update) if update.participants.len() == 2),
        matches!(messages[2], Message::RoomUpdate(_)),
        matches!(messages[3], Message::RefreshToken(_)),
    ];
    assert_eq!(kinds, [true; 4], "{messages:?}");
    // What the packet path was told of subscriptions holds on; ICE begins again.
    assert_eq!(lab.take_media(), [Request::Restart { session: adam.down }]);
    assert!(lab.take(&eve).is_empty());
}

#[test]
fn the_connection_that_was_there_is_closed() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let back = resume(&mut lab, &eve);
    assert_eq!(lab.closed(&eve), Some(CloseReason::Replaced));
    // The one that is closed is not heard any more.
    lab.say(&eve, Signal::Leave(Default::default()));
    assert_eq!((lab.rooms.sizes().participants, lab.closed(&back)), (1, None));
}

#[test]
fn who_is_not_there_any_more_is_to_join_anew() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    lab.cut(&eve);
    let back = lab.try_join(again(&eve)).expect("a connection");
    assert_eq!(lab.closed(&back), Some(CloseReason::Left));
    let leave = lab.take_leave(&back).expect("a leave");
    assert_eq!((leave.action(), leave.reason()), (Action::Reconnect, DisconnectReason::StateMismatch));
}

#[test]
fn who_comes_back_with_the_sid_of_an_earlier_session_is_to_join_anew() {
    let mut lab = Lab::new();
    let first = lab.enter("eve");
    let second = lab.enter("eve");
    let back = lab.try_join(again(&first)).expect("a connection");
    assert_eq!(lab.take_leave(&back).expect("a leave").action(), Action::Reconnect);
    assert_eq!(lab.closed(&second), None);
}

#[test]
fn coming_back_opens_no_room() {
    let mut lab = Lab::new();
    let join = Join { reconnect: Some(String::new()), ..a_join("eve") };
    lab.try_join(join).expect("a connection");
    assert_eq!(lab.rooms.sizes(), livekit::rooms::Sizes::default());
}

#[test]
fn who_says_to_publish_what_is_not_known_is_to_join_anew() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let sid = lab.publish(&eve, camera("cam"));
    let eve = resume(&mut lab, &eve);
    lab.say(&eve, Signal::SyncState(published(&sid)));
    assert_eq!(lab.closed(&eve), None);
    lab.say(&eve, Signal::SyncState(published("TR_nowhere")));
    assert_eq!(lab.take_leave(&eve).expect("a leave").action(), Action::Reconnect);
}

#[test]
fn what_was_subscribed_to_before_is_subscribed_to_again() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter_as(Join { auto_subscribe: false, ..a_join("adam") }), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    let track = lab.last_track();
    let adam = resume(&mut lab, &adam);
    lab.forget();
    let subscription =
        UpdateSubscription { track_sids: vec![sid.clone()], subscribe: true, participant_tracks: vec![] };
    let state =
        SyncState { subscription: Some(subscription), track_sids_disabled: vec![sid.clone()], ..SyncState::default() };
    lab.say(&adam, Signal::SyncState(state));
    assert_eq!(lab.downs(&adam), [sid]);
    assert!(lab.take_media().contains(&Request::Pause { session: adam.down, track, is_paused: true }));
}

#[test]
fn while_the_connection_is_away_others_hear_nothing() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, camera("cam"));
    lab.advance_seconds(10);
    lab.forget();
    lab.cut(&eve);
    lab.advance_seconds(60);
    assert!(lab.take_updates(&adam).is_empty());
    assert_eq!(lab.downs(&adam), Vec::<String>::new());
    assert_eq!(lab.rooms.sizes().tracks, 1);
}

#[test]
fn who_loses_its_path_is_told_to_come_back_and_has_ten_seconds() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    lab.hear(Event::Lost { session: eve.down });
    assert_eq!(lab.take_leave(&eve).expect("a leave").action(), Action::Resume);
    assert_eq!(lab.closed(&eve), Some(CloseReason::Resume));
    lab.advance_seconds(9);
    let eve = resume(&mut lab, &eve);
    lab.hear(Event::Heard { session: eve.down });
    lab.advance_seconds(100);
    assert_eq!((lab.rooms.sizes().participants, lab.closed(&eve)), (1, None));
}

#[test]
fn who_does_not_come_back_within_ten_seconds_has_left() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.hear(Event::Lost { session: eve.down });
    lab.advance_seconds(10);
    assert_eq!(lab.rooms.sizes().participants, 0);
}

#[test]
fn who_comes_back_has_ten_seconds_more_until_it_is_heard_and_then_joins_anew() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.hear(Event::Lost { session: eve.down });
    lab.advance_seconds(9);
    let eve = resume(&mut lab, &eve);
    lab.advance_seconds(9);
    assert_eq!((lab.rooms.sizes().participants, lab.closed(&eve)), (1, None));
    lab.forget();
    lab.advance_seconds(1);
    assert_eq!(lab.rooms.sizes().participants, 0);
    assert_eq!(lab.take_leave(&eve).expect("a leave").action(), Action::Reconnect);
}

#[test]
fn who_is_coming_back_is_not_sent_away_from_that_by_what_is_lost_meanwhile() {
    for is_told_first in [true, false] {
        let mut lab = Lab::new();
        let eve = lab.enter("eve");
        let up = lab.offer(&eve);
        if is_told_first {
            lab.hear(Event::Lost { session: eve.down });
        }
        let eve = resume(&mut lab, &eve);
        lab.hear(Event::Lost { session: up });
        lab.hear(Event::Lost { session: eve.down });
        assert_eq!(lab.closed(&eve), None);
        lab.hear(Event::Heard { session: eve.down });
        lab.hear(Event::Heard { session: up });
        lab.advance_seconds(60);
        assert_eq!((lab.rooms.sizes().participants, lab.closed(&eve)), (1, None));
    }
}

#[test]
fn who_is_heard_again_stays_and_may_be_lost_again() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let up = lab.offer(&eve);
    for _ in 0..2 {
        lab.hear(Event::Lost { session: eve.down });
        lab.advance_seconds(9);
        lab.hear(Event::Heard { session: eve.down });
        lab.advance_seconds(60);
        assert_eq!(lab.rooms.sizes().participants, 1);
    }
    // By one of two paths is not enough.
    lab.hear(Event::Lost { session: eve.down });
    lab.hear(Event::Heard { session: up });
    lab.advance_seconds(10);
    assert_eq!(lab.rooms.sizes().participants, 0);
}

#[test]
fn who_joins_anew_takes_its_own_place() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.cut(&eve);
    let again = lab.enter("eve");
    assert_ne!(eve.sid, again.sid);
    assert_eq!(lab.rooms.sizes().participants, 1);
}

#[test]
fn a_client_that_tests_itself_is_cut_off_when_it_comes_back_once() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let scenario = Some(Scenario::DisconnectSignalOnResume(true));
    lab.say(&eve, Signal::Simulate(SimulateScenario { scenario }));
    let first = resume(&mut lab, &eve);
    assert_eq!(lab.closed(&first), Some(CloseReason::Resume));
    let second = resume(&mut lab, &eve);
    assert_eq!(lab.closed(&second), None);
}

#[test]
fn a_client_that_tests_itself_is_sent_to_join_anew() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let scenario = Some(Scenario::LeaveRequestFullReconnect(true));
    lab.say(&eve, Signal::Simulate(SimulateScenario { scenario }));
    assert_eq!(lab.take_leave(&eve).expect("a leave").action(), Action::Reconnect);
    assert_eq!(lab.closed(&adam), None);
}
