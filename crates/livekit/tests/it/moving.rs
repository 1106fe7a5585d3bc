use livekit::admin::{Answer, Refusal, Request as Admin};
use livekit::media::Request;
use livekit::proto::signal_response::Message;
use livekit::proto::{MoveParticipantRequest, participant_info};
use livekit::token::VideoGrant;

use crate::support::{Lab, ROOM, a_join, camera, microphone};

fn to(room: &str) -> Admin {
    let (identity, destination_room) = ("eve".to_owned(), room.to_owned());
    Admin::MoveParticipant(MoveParticipantRequest { room: ROOM.into(), identity, destination_room })
}

fn grant(destination: &str) -> VideoGrant {
    let (room, destination_room) = (ROOM.to_owned(), destination.to_owned());
    VideoGrant { room_admin: true, room, destination_room, ..VideoGrant::default() }
}

#[test]
fn who_is_moved_keeps_its_tracks_and_gets_what_there_is_in_the_other_room() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let mut elsewhere = a_join("cain");
    elsewhere.claims.video.as_mut().expect("a grant").room = "other".into();
    let cain = lab.enter_as(elsewhere);
    let (hers, his) = (lab.publish(&eve, camera("cam")), lab.publish(&cain, microphone("mic")));
    lab.publish(&adam, microphone("mic"));
    assert_eq!(lab.downs(&adam), std::slice::from_ref(&hers));
    lab.forget();

    assert_eq!(lab.admin_as(&grant("other"), to("other")), Ok(Answer::Nothing));

    assert!(
        !lab.take_media().iter().any(|request| matches!(request, Request::Unpublish { .. } | Request::Close { .. }))
    );
    assert_eq!(lab.take_webhooks(), ["participant_left", "participant_joined"]);
    let left = lab.take_updates(&adam).remove(0);
    assert_eq!((left.identity.as_str(), left.state()), ("eve", participant_info::State::Disconnected));
    let come = lab.take_updates(&cain).remove(0);
    assert_eq!((come.identity.as_str(), come.sid, come.tracks[0].sid.clone()), ("eve", eve.sid.clone(), hers));
    let told = lab.take(&eve);
    let Some(Message::RoomMoved(moved)) = told.first() else { panic!("{told:?}") };
    assert!(matches!(told.get(1), Some(Message::RefreshToken(_))), "{told:?}");
    assert_eq!(moved.room.as_ref().map(|room| room.name.as_str()), Some("other"));
    assert_eq!(moved.other_participants[0].tracks[0].sid, his);
    assert!(!moved.token.is_empty());

    // She is there as anybody else.
    lab.cut(&eve);
    lab.hear(livekit::media::Event::Ended { session: eve.down, by_client: false });
    assert_eq!(lab.take_webhooks(), ["track_unpublished", "participant_left"]);
}

#[test]
fn downs_of_who_is_moved_are_those_of_the_room_that_it_comes_to() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let (his, hers) = (lab.publish(&adam, camera("cam")), lab.publish(&eve, camera("cam")));
    assert_eq!((lab.downs(&eve), lab.downs(&adam)), (vec![his], vec![hers]));
    lab.admin_as(&grant("empty"), to("empty")).expect("moved");
    assert!(lab.downs(&eve).is_empty() && lab.downs(&adam).is_empty());
}

#[test]
fn nobody_is_moved_to_where_it_may_not_be() {
    let mut lab = Lab::with(|config| config.participants_max = 1);
    lab.enter("eve");
    let mut elsewhere = a_join("cain");
    elsewhere.claims.video.as_mut().expect("a grant").room = "full".into();
    lab.enter_as(elsewhere);
    for (destination, refusal) in [("full", Refusal::RoomFull), ("", Refusal::NoName), (ROOM, Refusal::NoName)] {
        assert_eq!(lab.admin_as(&grant(destination), to(destination)), Err(refusal), "{destination}");
    }
    assert_eq!(lab.admin_as(&grant("other"), to("full")), Err(Refusal::NotAllowed));
}
