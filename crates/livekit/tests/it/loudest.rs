use std::time::Duration;

use livekit::admin::Request as Admin;
use livekit::media::{Event, Request, TrackId};
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::{AddTrackRequest, MoveParticipantRequest, MuteTrackRequest, TrackSource, TrackType};
use livekit::token::VideoGrant;

use crate::support::{Client, Lab, ROOM, a_join, camera, microphone};

fn publish(lab: &mut Lab, client: &Client, track: AddTrackRequest) -> TrackId {
    lab.publish(client, track);
    lab.last_track()
}

/// Who is heard no more (true), or again.
fn changes(lab: &mut Lab) -> Vec<(TrackId, bool)> {
    let changes = lab.take_media().into_iter().filter_map(|request| match request {
        Request::Quiet { track, is_quiet } => Some((track, is_quiet)),
        _ => None,
    });
    changes.collect()
}

fn speak(lab: &mut Lab, track: TrackId) {
    lab.hear(Event::Level { track, level_dbov: 20, over: Duration::from_millis(100) });
}

#[test]
fn of_more_microphones_than_are_heard_who_speaks_is() {
    let mut lab = Lab::with(|config| config.loudest = 1);
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let (his, hers) = (publish(&mut lab, &adam, microphone("mic")), publish(&mut lab, &eve, microphone("mic")));
    assert_eq!(changes(&mut lab), [(his, false), (hers, true)]);
    lab.advance_seconds(1);
    speak(&mut lab, hers);
    assert_eq!(changes(&mut lab), [(his, true), (hers, false)]);

    // Pictures, and the sound of a film, are no microphones.
    let film = AddTrackRequest {
        cid: "film".into(),
        source: TrackSource::ScreenShareAudio.into(),
        r#type: TrackType::Audio.into(),
        ..Default::default()
    };
    lab.publish(&adam, film);
    lab.publish(&adam, camera("cam"));
    assert_eq!(changes(&mut lab), []);

    lab.unpublish(&eve, "mic");
    assert_eq!(changes(&mut lab), [(his, false)]);
}

#[test]
fn who_is_muted_takes_no_place_and_nobody_has_two() {
    let mut lab = Lab::with(|config| config.loudest = 1);
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    publish(&mut lab, &adam, microphone("mic"));
    let sid = lab.publish(&eve, microphone("mic"));
    let hers = lab.last_track();
    lab.advance_seconds(1);
    changes(&mut lab);
    let mute = |muted| Signal::Mute(MuteTrackRequest { sid: sid.clone(), muted });
    lab.say(&eve, mute(true));
    speak(&mut lab, hers);
    assert_eq!(changes(&mut lab), []);
    lab.say(&eve, mute(false));
    speak(&mut lab, hers);
    assert_eq!(changes(&mut lab).len(), 2);

    let mut roomy = Lab::with(|config| config.loudest = 3);
    let eve = roomy.enter("eve");
    let both = ["one", "two"].map(|cid| publish(&mut roomy, &eve, microphone(cid)));
    assert_eq!(changes(&mut roomy), [(both[0], false), (both[1], true)]);
}

#[test]
fn nobody_is_quiet_where_nothing_is_said() {
    let mut lab = Lab::new();
    for who in ["adam", "eve", "cain"] {
        let client = lab.enter(who);
        let track = publish(&mut lab, &client, microphone("mic"));
        speak(&mut lab, track);
    }
    assert_eq!(changes(&mut lab), []);
}

#[test]
fn who_is_moved_leaves_its_place_and_takes_one_elsewhere() {
    let mut lab = Lab::with(|config| config.loudest = 1);
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let (hers, his) = (publish(&mut lab, &eve, microphone("mic")), publish(&mut lab, &adam, microphone("mic")));
    let mut elsewhere = a_join("cain");
    elsewhere.claims.video.as_mut().expect("a grant").room = "other".into();
    lab.enter_as(elsewhere);
    changes(&mut lab);

    let grant = VideoGrant {
        room_admin: true,
        room: ROOM.to_owned(),
        destination_room: "other".to_owned(),
        ..VideoGrant::default()
    };
    let request =
        MoveParticipantRequest { room: ROOM.into(), identity: "eve".into(), destination_room: "other".into() };
    lab.admin_as(&grant, Admin::MoveParticipant(request)).expect("moved");
    assert_eq!(changes(&mut lab), [(his, false), (hers, false)]);
}
