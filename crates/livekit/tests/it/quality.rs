use std::time::Duration;

use livekit::media::{Event, TrackId};
use livekit::proto::ConnectionQuality;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{AddTrackRequest, ConnectionQualityInfo, SpeakerInfo, TrackSource, UpdateSubscription};

use crate::support::{Client, Lab, microphone};

fn speakers(lab: &mut Lab, client: &Client) -> Vec<SpeakerInfo> {
    let changes = lab.take(client).into_iter().filter_map(|message| match message {
        Message::SpeakersChanged(changed) => Some(changed.speakers),
        _ => None,
    });
    changes.flatten().collect()
}

fn qualities(lab: &mut Lab, client: &Client) -> Vec<ConnectionQualityInfo> {
    let updates = lab.take(client).into_iter().filter_map(|message| match message {
        Message::ConnectionQuality(update) => Some(update.updates),
        _ => None,
    });
    updates.flatten().collect()
}

/// A second of somebody who is this loud.
fn speak(lab: &mut Lab, track: TrackId, level_dbov: u8) {
    for _ in 0..10 {
        lab.hear(Event::Level { track, level_dbov, over: Duration::from_millis(100) });
        lab.advance(Duration::from_millis(100));
    }
}

#[test]
fn who_speaks_is_told_to_who_hears_it_and_to_itself() {
    let mut lab = Lab::new();
    let (adam, deaf, eve) = (lab.enter("adam"), lab.enter("deaf"), lab.enter("eve"));
    let sid = lab.publish(&eve, microphone("mic"));
    let track = lab.last_track();
    let not = UpdateSubscription { track_sids: vec![sid], subscribe: false, participant_tracks: vec![] };
    lab.say(&deaf, Signal::Subscription(not));
    lab.forget();
    speak(&mut lab, track, 20);
    for client in [&adam, &eve] {
        let told = speakers(&mut lab, client);
        assert!(told[0].active && told[0].sid == eve.sid && told[0].level > 0.0);
    }
    assert!(speakers(&mut lab, &deaf).is_empty());
}

#[test]
fn who_stops_speaking_is_told_too() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, microphone("mic"));
    let track = lab.last_track();
    speak(&mut lab, track, 20);
    lab.forget();
    lab.advance_seconds(2);
    let told = speakers(&mut lab, &adam);
    assert_eq!((told.len(), told[0].active), (1, false));
}

#[test]
fn who_begins_to_hear_a_speaker_is_told_at_once() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.publish(&eve, microphone("mic"));
    let track = lab.last_track();
    speak(&mut lab, track, 20);
    let adam = lab.join("adam");
    assert!(speakers(&mut lab, &adam)[0].active);
}

#[test]
fn levels_of_a_track_that_there_is_no_more_are_not_heard() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, microphone("mic"));
    let track = lab.last_track();
    lab.unpublish(&eve, "mic");
    lab.forget();
    speak(&mut lab, track, 20);
    assert!(speakers(&mut lab, &adam).is_empty());
}

#[test]
fn who_shows_a_film_does_not_speak() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let source = TrackSource::ScreenShareAudio as i32;
    lab.publish(&eve, AddTrackRequest { source, ..microphone("film") });
    let track = lab.last_track();
    lab.forget();
    speak(&mut lab, track, 5);
    assert!(speakers(&mut lab, &eve).is_empty());
}

#[test]
fn how_well_somebody_is_connected_is_told_to_it_and_to_who_gets_its_tracks() {
    let mut lab = Lab::new();
    let (adam, eve, other) = (lab.enter("adam"), lab.enter("eve"), lab.enter("other"));
    lab.publish(&eve, microphone("mic"));
    lab.advance_seconds(5);
    lab.forget();
    let rtt = Duration::from_millis(30);
    lab.hear(Event::Quality { session: eve.down, loss: 0.2, rtt, jitter: Duration::ZERO });
    lab.advance_seconds(5);
    for client in [&adam, &eve] {
        let told = qualities(&mut lab, client);
        assert_eq!((told.len(), told[0].quality()), (1, ConnectionQuality::Poor));
        assert_eq!(told[0].participant_sid, eve.sid);
    }
    // Whom nobody watches is of no interest to others.
    lab.hear(Event::Quality { session: other.down, loss: 0.2, rtt, jitter: Duration::ZERO });
    lab.advance_seconds(5);
    assert!(qualities(&mut lab, &adam).iter().all(|info| info.participant_sid != other.sid));
}

#[test]
fn that_somebody_is_lost_is_told_at_once_and_that_it_is_back_with_the_next_look() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, microphone("mic"));
    lab.advance_seconds(5);
    lab.forget();
    lab.hear(Event::Lost { session: eve.down });
    let told = qualities(&mut lab, &adam);
    assert_eq!((told.len(), told[0].quality()), (1, ConnectionQuality::Lost));
    lab.hear(Event::Heard { session: eve.down });
    lab.advance_seconds(5);
    let told = qualities(&mut lab, &adam);
    assert_eq!((told.len(), told[0].quality()), (1, ConnectionQuality::Excellent));
}

#[test]
fn a_quality_that_stays_is_not_told_again() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.advance_seconds(5);
    assert_eq!(qualities(&mut lab, &eve).len(), 1);
    lab.advance_seconds(60);
    assert!(qualities(&mut lab, &eve).is_empty());
}
