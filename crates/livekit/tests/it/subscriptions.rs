use std::time::Duration;

use livekit::join::Join;
use livekit::media::{Event, Layer, Request};
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    ParticipantPermission, StreamState, SubscriptionError, SubscriptionPermission, TrackPermission,
    UpdateLocalVideoTrack, UpdateParticipantRequest, UpdateSubscription, UpdateTrackSettings, VideoQuality,
};

use crate::support::{Client, Lab, a_join, camera, hidden, microphone};

fn by_hand(identity: &str) -> Join {
    Join { auto_subscribe: false, ..a_join(identity) }
}

fn subscribe(sid: &str, subscribe: bool) -> Signal {
    Signal::Subscription(UpdateSubscription { track_sids: vec![sid.into()], subscribe, participant_tracks: vec![] })
}

fn settings(sid: &str, settings: UpdateTrackSettings) -> Signal {
    Signal::TrackSetting(UpdateTrackSettings { track_sids: vec![sid.into()], ..settings })
}

/// Only these may subscribe.
fn only(identities: &[&str]) -> Signal {
    let named = identities.iter().map(|identity| TrackPermission {
        participant_identity: (*identity).into(),
        all_tracks: true,
        ..TrackPermission::default()
    });
    Signal::SubscriptionPermission(SubscriptionPermission {
        all_participants: false,
        track_permissions: named.collect(),
    })
}

/// Which qualities the publisher was told to send, each time.
fn qualities(lab: &mut Lab, client: &Client) -> Vec<Vec<bool>> {
    let updates = lab.take(client).into_iter().filter_map(|message| match message {
        Message::SubscribedQualityUpdate(update) => Some(update.subscribed_codecs[0].qualities.clone()),
        _ => None,
    });
    updates.map(|qualities| qualities.iter().map(|quality| quality.enabled).collect()).collect()
}

#[test]
fn everybody_gets_what_is_published_unless_they_choose() {
    let mut lab = Lab::new();
    let (adam, cain) = (lab.enter("adam"), lab.enter_as(by_hand("cain")));
    let eve = lab.enter("eve");
    let sid = lab.publish(&eve, camera("cam"));
    assert_eq!(lab.downs(&adam), std::slice::from_ref(&sid));
    assert!(lab.downs(&cain).is_empty() && lab.downs(&eve).is_empty());
    // Who comes later gets it too.
    let late = lab.enter("late");
    assert_eq!(lab.downs(&late), [sid]);
}

#[test]
fn a_track_comes_under_its_publishers_sid_and_its_own() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    let told = lab.take_media().into_iter().find_map(|request| match request {
        Request::SetDown { mut tracks, .. } => tracks.pop(),
        _ => None,
    });
    assert_eq!(told.expect("a track").stream, format!("{}|{sid}", eve.sid));
}

#[test]
fn who_chooses_gets_what_it_asks_for() {
    let mut lab = Lab::new();
    let (cain, eve) = (lab.enter_as(by_hand("cain")), lab.enter("eve"));
    let (mic, cam) = (lab.publish(&eve, microphone("mic")), lab.publish(&eve, camera("cam")));
    lab.say(&cain, subscribe(&cam, true));
    assert_eq!(lab.downs(&cain), std::slice::from_ref(&cam));
    lab.say(&cain, subscribe(&mic, true));
    lab.say(&cain, subscribe(&cam, false));
    assert_eq!(lab.downs(&cain), [mic]);
}

#[test]
fn who_lets_go_of_a_track_and_asks_again_gets_it_anew_and_who_asks_again_does_not() {
    let mut lab = Lab::new();
    let (cain, eve) = (lab.enter_as(by_hand("cain")), lab.enter("eve"));
    let cam = lab.publish(&eve, camera("cam"));
    let mut ask = |wanted: &[bool]| {
        wanted.iter().for_each(|wanted| lab.say(&cain, subscribe(&cam, *wanted)));
        lab.down_tracks(&cain)[0].subscription
    };
    let first = ask(&[true]);
    assert_eq!(ask(&[true, true]), first);
    let again = ask(&[false, true]);
    assert_ne!(again, first);
    assert_ne!(ask(&[false, false, true]), again);
}

#[test]
fn a_wish_is_kept_for_a_track_that_comes_later() {
    let mut lab = Lab::new();
    let (cain, eve) = (lab.enter_as(by_hand("cain")), lab.enter("eve"));
    lab.say(&eve, Signal::AddTrack(camera("cam")));
    let published = lab.take(&eve).into_iter().find_map(|message| match message {
        Message::TrackPublished(published) => published.track,
        _ => None,
    });
    let sid = published.expect("a track").sid;
    lab.say(&cain, subscribe(&sid, true));
    let session = lab.offer(&eve);
    let sections = vec![crate::support::section("0", livekit::media::Kind::Video, "cam")];
    lab.hear(Event::Answered { session, sdp: "".into(), sections, has_data: true });
    assert_eq!(lab.downs(&cain), [sid]);
}

#[test]
fn who_asks_for_a_track_that_is_not_there_is_told_so() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    lab.say(&eve, subscribe("TR_nowhere", true));
    let messages = lab.take(&eve);
    assert!(matches!(&messages[..], [Message::SubscriptionResponse(response)] if response.track_sid == "TR_nowhere"));
}

#[test]
fn who_cannot_decode_a_track_is_told_so_and_gets_it_when_it_asks_again() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let (mic, cam) = (lab.publish(&eve, microphone("mic")), lab.publish(&eve, camera("cam")));
    let unsupported = Event::Unsupported { session: adam.down, track: lab.last_track() };
    lab.forget();
    lab.hear(unsupported.clone());
    lab.hear(unsupported);
    let told = lab.take(&adam);
    let [Message::SubscriptionResponse(response)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&response.track_sid, response.err()), (&cam, SubscriptionError::SeCodecUnsupported));
    assert_eq!(lab.downs(&adam), std::slice::from_ref(&mic));
    // What changes otherwise does not bring it back.
    lab.say(&eve, Signal::UpdateVideoTrack(UpdateLocalVideoTrack { track_sid: cam.clone(), width: 64, height: 48 }));
    assert_eq!(lab.downs(&adam), std::slice::from_ref(&mic));
    lab.say(&adam, subscribe(&cam, true));
    assert_eq!(lab.downs(&adam), [mic, cam]);
}

#[test]
fn a_publisher_hears_once_that_its_track_is_watched() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.forget();
    let sid = lab.publish(&eve, camera("cam"));
    lab.enter("cain");
    let told = lab.take(&eve).into_iter().filter(|message| match message {
        Message::TrackSubscribed(subscribed) => subscribed.track_sid == sid,
        _ => false,
    });
    assert_eq!(told.count(), 1);
}

#[test]
fn who_is_not_named_by_the_publisher_loses_the_track_and_is_told_so() {
    let mut lab = Lab::new();
    let (adam, cain, eve) = (lab.enter("adam"), lab.enter("cain"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    lab.take(&cain);
    lab.say(&eve, only(&["adam"]));
    assert_eq!(lab.downs(&adam), std::slice::from_ref(&sid));
    assert!(lab.downs(&cain).is_empty());
    let told = |messages: Vec<Message>| {
        let told = messages.into_iter().filter_map(|message| match message {
            Message::SubscriptionPermissionUpdate(update) => Some((update.track_sid, update.allowed)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(told(lab.take(&cain)), [(sid.clone(), false)]);

    let all = SubscriptionPermission { all_participants: true, ..SubscriptionPermission::default() };
    lab.say(&eve, Signal::SubscriptionPermission(all));
    assert_eq!(told(lab.take(&cain)), [(sid.clone(), true)]);
    assert_eq!(lab.downs(&cain), [sid]);
}

#[test]
fn a_permission_holds_for_who_comes_later_too() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.publish(&eve, camera("cam"));
    lab.say(&eve, only(&["adam"]));
    let (cain, adam) = (lab.enter("cain"), lab.enter("adam"));
    assert!(lab.downs(&cain).is_empty());
    assert_eq!(lab.downs(&adam).len(), 1);
}

#[test]
fn who_may_subscribe_no_more_loses_everything_and_gets_it_back_with_the_permission() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    for can_subscribe in [false, true] {
        let permission = Some(ParticipantPermission { can_subscribe, ..ParticipantPermission::default() });
        let request =
            UpdateParticipantRequest { room: "room".into(), identity: "adam".into(), permission, ..Default::default() };
        lab.admin(livekit::admin::Request::UpdateParticipant(request)).expect("a participant");
        assert_eq!(lab.downs(&adam).contains(&sid), can_subscribe);
    }
}

#[test]
fn nobody_gets_a_track_of_who_is_hidden() {
    let mut lab = Lab::new();
    let (adam, spy) = (lab.enter("adam"), lab.enter_as(hidden("spy")));
    lab.publish(&spy, microphone("mic"));
    assert!(lab.downs(&adam).is_empty());
}

#[test]
fn who_is_hidden_gets_what_others_publish() {
    let mut lab = Lab::new();
    let (spy, eve) = (lab.enter_as(hidden("spy")), lab.enter("eve"));
    lab.publish(&eve, microphone("mic"));
    assert_eq!(lab.downs(&spy).len(), 1);
}

#[test]
fn settings_are_told_to_the_packet_path_when_they_change() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    let track = lab.last_track();
    lab.forget();
    let small = UpdateTrackSettings { width: 320, height: 180, fps: 15, priority: 2, ..UpdateTrackSettings::default() };
    lab.say(&adam, settings(&sid, small.clone()));
    let session = adam.down;
    assert_eq!(lab.take_media(), [Request::Limit { session, track, layer: Layer::Low, fps: 15, priority: 2 }]);
    lab.say(&adam, settings(&sid, small.clone()));
    assert!(lab.take_media().is_empty());
    lab.say(&adam, settings(&sid, UpdateTrackSettings { disabled: true, ..small }));
    assert_eq!(lab.take_media(), [Request::Pause { session, track, is_paused: true }]);
}

#[test]
fn settings_that_came_before_the_track_hold_from_its_beginning() {
    let mut lab = Lab::new();
    let (cain, eve) = (lab.enter_as(by_hand("cain")), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    lab.say(&cain, settings(&sid, UpdateTrackSettings { quality: VideoQuality::Medium as i32, ..Default::default() }));
    lab.forget();
    lab.say(&cain, subscribe(&sid, true));
    let media = lab.take_media();
    assert!(matches!(&media[..], [Request::SetDown { .. }, Request::Limit { layer: Layer::Medium, .. }]), "{media:?}");
}

#[test]
fn an_adaptive_client_begins_with_the_smallest_picture() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.publish(&eve, camera("cam"));
    lab.forget();
    lab.enter_as(Join { adaptive_stream: true, ..a_join("adam") });
    assert!(lab.take_media().iter().any(|request| matches!(request, Request::Limit { layer: Layer::Low, .. })));
}

#[test]
fn a_publisher_is_told_to_send_less_after_five_seconds_and_more_at_once() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    lab.forget();
    let quality = |quality: VideoQuality| UpdateTrackSettings { quality: quality as i32, ..Default::default() };
    lab.say(&adam, settings(&sid, quality(VideoQuality::Low)));
    lab.advance(Duration::from_millis(4900));
    assert!(qualities(&mut lab, &eve).is_empty());
    lab.advance(Duration::from_millis(100));
    assert_eq!(qualities(&mut lab, &eve), [[true, false, false]]);
    lab.say(&adam, settings(&sid, quality(VideoQuality::High)));
    assert_eq!(qualities(&mut lab, &eve), [[true, true, true]]);
}

#[test]
fn a_publisher_that_nobody_watches_is_told_to_send_nothing() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.publish(&eve, camera("cam"));
    lab.forget();
    lab.advance_seconds(5);
    assert_eq!(qualities(&mut lab, &eve), [[false, false, false]]);
    lab.enter("adam");
    assert_eq!(qualities(&mut lab, &eve), [[true, true, true]]);
}

#[test]
fn the_best_that_anybody_wants_counts() {
    let mut lab = Lab::new();
    let (adam, cain, eve) = (lab.enter("adam"), lab.enter("cain"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    let quality = |quality: VideoQuality| UpdateTrackSettings { quality: quality as i32, ..Default::default() };
    lab.say(&adam, settings(&sid, quality(VideoQuality::Low)));
    lab.say(&cain, settings(&sid, quality(VideoQuality::Medium)));
    lab.forget();
    lab.advance_seconds(5);
    assert_eq!(qualities(&mut lab, &eve), [[true, true, false]]);
    // Who leaves wants nothing any more.
    lab.say(&cain, Signal::Leave(Default::default()));
    lab.advance_seconds(5);
    assert_eq!(qualities(&mut lab, &eve), [[true, false, false]]);
}

#[test]
fn a_subscriber_is_told_when_its_path_is_too_narrow_for_a_track() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    let track = lab.last_track();
    lab.take(&adam);
    lab.hear(Event::Active { session: adam.down, track, is_active: false });
    let messages = lab.take(&adam);
    let [Message::StreamStateUpdate(update)] = &messages[..] else { panic!("{messages:?}") };
    let info = &update.stream_states[0];
    assert_eq!((&info.participant_sid, &info.track_sid, info.state()), (&eve.sid, &sid, StreamState::Paused));
}
