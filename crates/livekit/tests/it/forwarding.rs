use std::slice::from_ref;

use livekit::admin::{Answer, Refusal, Request as Admin};
use livekit::media::Request;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    ForwardParticipantRequest, MuteTrackRequest, RoomParticipantIdentity, UpdateTrackSettings, participant_info,
};
use livekit::token::VideoGrant;

use crate::support::{Client, Lab, ROOM, a_join, camera, microphone};

const OTHER: &str = "other";

fn forward(lab: &mut Lab) -> Result<Answer, Refusal> {
    let (room, destination_room) = (ROOM.to_owned(), OTHER.to_owned());
    let grant = VideoGrant { room_admin: true, room, destination_room, ..VideoGrant::default() };
    let (identity, destination_room) = ("eve".to_owned(), OTHER.to_owned());
    let request = ForwardParticipantRequest { room: ROOM.into(), identity, destination_room };
    lab.admin_as(&grant, Admin::ForwardParticipant(request))
}

fn enter_other(lab: &mut Lab, identity: &str) -> Client {
    let mut join = a_join(identity);
    join.claims.video.as_mut().expect("a grant").room = OTHER.into();
    lab.enter_as(join)
}

#[test]
fn who_is_forwarded_publishes_in_the_other_room_what_it_publishes_in_its_own() {
    let mut lab = Lab::new();
    let (eve, cain) = (lab.enter("eve"), enter_other(&mut lab, "cain"));
    let picture = lab.publish(&eve, camera("cam"));
    let track = lab.last_track();
    lab.forget();
    assert_eq!(forward(&mut lab), Ok(Answer::Nothing));
    assert_eq!(lab.downs(&cain), from_ref(&picture));
    assert!(!lab.take_media().iter().any(|request| matches!(request, Request::Publish { .. } | Request::Open { .. })));
    assert_eq!(lab.take_webhooks(), ["participant_joined", "track_published"]);
    let there = lab.take_updates(&cain).remove(0);
    assert_eq!((there.identity.as_str(), there.state()), ("eve", participant_info::State::Active));
    assert!(there.sid != eve.sid && there.tracks[0].sid == picture);

    // What changes, changes there.
    let sound = lab.publish(&eve, microphone("mic"));
    assert_eq!(lab.downs(&cain), [picture.clone(), sound.clone()]);
    lab.take_updates(&cain);
    lab.say(&eve, Signal::Mute(MuteTrackRequest { sid: picture.clone(), muted: true }));
    assert!(lab.take_updates(&cain)[0].tracks[0].muted);
    lab.unpublish(&eve, "mic");
    assert_eq!(lab.downs(&cain), from_ref(&picture));
    // Who comes later gets it too.
    let abel = enter_other(&mut lab, "abel");
    assert_eq!(lab.downs(&abel), [picture]);
    assert_eq!(forward(&mut lab), Ok(Answer::Nothing), "once is enough");
    lab.forget();
    lab.say(&eve, Signal::Leave(Default::default()));
    assert_eq!(lab.take_updates(&cain).remove(0).state(), participant_info::State::Disconnected);
    let unpublished = |request: &&Request| matches!(request, Request::Unpublish { track: of, .. } if *of == track);
    assert_eq!(lab.take_media().iter().filter(unpublished).count(), 1);
}

#[test]
fn who_is_taken_out_of_the_other_room_goes_on_in_its_own() {
    let mut lab = Lab::new();
    let (eve, adam, cain) = (lab.enter("eve"), lab.enter("adam"), enter_other(&mut lab, "cain"));
    let picture = lab.publish(&eve, camera("cam"));
    forward(&mut lab).expect("forwarded");
    lab.forget();
    let grant = VideoGrant { room_admin: true, room: OTHER.into(), ..VideoGrant::default() };
    let remove = RoomParticipantIdentity { room: OTHER.into(), identity: "eve".into(), ..Default::default() };
    lab.admin_as(&grant, Admin::RemoveParticipant(remove)).expect("it is there");
    assert!(lab.downs(&cain).is_empty());
    assert!(!lab.take_media().iter().any(|request| matches!(request, Request::Unpublish { .. })));
    let sound = lab.publish(&eve, microphone("mic"));
    assert_eq!(lab.downs(&adam), [picture.clone(), sound.clone()]);
    assert!(lab.downs(&cain).is_empty());
    forward(&mut lab).expect("again");
    assert_eq!(lab.downs(&cain), [picture, sound]);
}

#[test]
fn a_picture_that_is_shown_elsewhere_is_wanted_whole() {
    let mut lab = Lab::new();
    let (eve, adam) = (lab.enter("eve"), lab.enter("adam"));
    let picture = lab.publish(&eve, camera("cam"));
    forward(&mut lab).expect("forwarded");
    let off = UpdateTrackSettings { track_sids: vec![picture], disabled: true, ..UpdateTrackSettings::default() };
    lab.say(&adam, Signal::TrackSetting(off));
    lab.forget();
    lab.advance_seconds(20);
    let is_of_demand = |message: &Message| matches!(message, Message::SubscribedQualityUpdate(_));
    assert!(!lab.take(&eve).iter().any(is_of_demand));
}
