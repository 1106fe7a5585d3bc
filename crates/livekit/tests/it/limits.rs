use livekit::proto::request_response::Reason;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{Ping, SubscriptionPermission, TrackPermission, UpdateSubscription, UpdateTrackSettings};

use crate::support::{Lab, camera, microphone};

#[test]
fn ten_thousand_announcements_are_refused_and_nobody_else_notices() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.advance_seconds(10);
    lab.forget();
    for number in 0..10_000 {
        lab.say(&eve, Signal::AddTrack(camera(&format!("cid{number}"))));
    }
    let messages = lab.take(&eve);
    let published = messages.iter().filter(|message| matches!(message, Message::TrackPublished(_)));
    assert_eq!(published.count(), 20);
    let refused = messages.iter().filter(|message| match message {
        Message::RequestResponse(response) => response.reason() == Reason::LimitExceeded,
        _ => false,
    });
    assert!(refused.count() > 1000);
    // Who goes on all the same has left.
    assert!(lab.closed(&eve).is_some());
    assert!(lab.take(&adam).is_empty());
}

#[test]
fn nobody_publishes_more_tracks_than_are_kept() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    for number in 0..64 {
        lab.publish(&eve, microphone(&format!("mic{number}")));
    }
    lab.forget();
    lab.say(&eve, Signal::AddTrack(microphone("more")));
    assert!(
        matches!(&lab.take(&eve)[..], [Message::RequestResponse(response)] if response.reason() == Reason::LimitExceeded)
    );
}

#[test]
fn nobody_gets_more_tracks_than_a_description_has() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    let mut sids = Vec::new();
    for publisher in 0..5 {
        let eve = lab.enter(&format!("eve{publisher}"));
        sids.extend((0..64).map(|number| lab.publish(&eve, microphone(&format!("mic{number}")))));
    }
    assert_eq!(lab.downs(&adam), sids[..256]);
    let not = UpdateSubscription { track_sids: sids[..10].to_vec(), subscribe: false, participant_tracks: vec![] };
    lab.say(&adam, Signal::Subscription(not));
    assert_eq!(lab.downs(&adam), sids[10..266]);
}

#[test]
fn an_announcement_without_a_cid_or_with_a_long_one_is_refused() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    for cid in [String::new(), "x".repeat(300)] {
        lab.forget();
        lab.say(&eve, Signal::AddTrack(camera(&cid)));
        assert!(
            matches!(&lab.take(&eve)[..], [Message::RequestResponse(response)] if response.reason() == Reason::InvalidRequest)
        );
    }
}

#[test]
fn wishes_for_a_hundred_thousand_tracks_are_not_all_kept() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let track_sids = (0..100_000).map(|number| format!("TR_{number}")).collect();
    lab.say(
        &eve,
        Signal::Subscription(UpdateSubscription { track_sids, subscribe: false, participant_tracks: vec![] }),
    );
    assert_eq!(lab.closed(&eve), None);
}

#[test]
fn settings_of_thirty_thousand_tracks_harm_nobody() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let track_sids = (0..30_000).map(|number| format!("TR_{number}")).collect();
    lab.say(&eve, Signal::TrackSetting(UpdateTrackSettings { track_sids, ..UpdateTrackSettings::default() }));
    assert_eq!(lab.closed(&eve), None);
}

#[test]
fn a_track_that_one_request_names_ten_thousand_times_is_looked_at_once() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    let track_sids = vec!["TR_no".to_owned(); 10_000];
    lab.say(&eve, Signal::Subscription(UpdateSubscription { track_sids, subscribe: true, participant_tracks: vec![] }));
    assert_eq!(lab.take(&eve).len(), 1);
}

#[test]
fn a_hundred_thousand_permissions_are_refused_and_everybody_keeps_the_track() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    let named = (0..100_000)
        .map(|number| TrackPermission { participant_identity: format!("p{number}"), ..TrackPermission::default() });
    let update = SubscriptionPermission { all_participants: false, track_permissions: named.collect() };
    lab.say(&eve, Signal::SubscriptionPermission(update));
    assert_eq!(lab.downs(&adam), [sid]);
}

#[test]
fn who_pings_is_answered_with_its_own_time_and_ours() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    lab.say(&eve, Signal::Ping(1));
    lab.say(&eve, Signal::PingReq(Ping { timestamp: 7, rtt: 0 }));
    let ours = lab.now().unix.as_millis() as i64;
    let messages = lab.take(&eve);
    let [Message::Pong(pong), Message::PongResp(response)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((*pong, response.last_ping_timestamp, response.timestamp), (ours, 7, ours));
}
