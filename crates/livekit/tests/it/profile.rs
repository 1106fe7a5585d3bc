use std::collections::HashMap;

use livekit::proto::UpdateParticipantMetadata;
use livekit::proto::request_response::Reason;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::token::VideoGrant;

use crate::support::{Client, Lab, join_granted};

fn enter(lab: &mut Lab, may_update: bool) -> Client {
    let grant = VideoGrant { can_update_own_metadata: Some(may_update), ..VideoGrant::default() };
    lab.enter_as(join_granted("eve", grant))
}

fn reason(lab: &mut Lab, client: &Client) -> (u32, Reason) {
    let response = lab.take(client).into_iter().find_map(|message| match message {
        Message::RequestResponse(response) => Some((response.request_id, response.reason())),
        _ => None,
    });
    response.expect("a response")
}

fn update(metadata: &str, attributes: &[(&str, &str)]) -> Signal {
    let attributes = attributes.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect::<HashMap<_, _>>();
    Signal::UpdateMetadata(UpdateParticipantMetadata {
        metadata: metadata.into(),
        attributes,
        request_id: 5,
        ..UpdateParticipantMetadata::default()
    })
}

#[test]
fn who_may_change_its_metadata_is_told_of_at_once() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    let eve = enter(&mut lab, true);
    lab.forget();
    lab.say(&eve, update("m", &[("a", "1"), ("b", "2")]));
    let heard = lab.take_updates(&adam).remove(0);
    assert_eq!((heard.metadata.as_str(), heard.attributes.len()), ("m", 2));
    assert_eq!(reason(&mut lab, &eve), (5, Reason::Ok));
}

#[test]
fn an_attribute_that_is_empty_is_removed_and_others_stay() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    let eve = enter(&mut lab, true);
    lab.say(&eve, update("", &[("a", "1"), ("b", "2")]));
    lab.say(&eve, update("", &[("a", "")]));
    let heard = lab.take_updates(&adam).pop().expect("an update");
    assert_eq!(heard.attributes, HashMap::from([("b".to_owned(), "2".to_owned())]));
}

#[test]
fn who_may_not_change_its_metadata_is_told_so() {
    let mut lab = Lab::new();
    let adam = lab.enter("adam");
    let eve = enter(&mut lab, false);
    lab.forget();
    lab.say(&eve, update("m", &[]));
    assert_eq!(reason(&mut lab, &eve), (5, Reason::NotAllowed));
    assert!(lab.take_updates(&adam).is_empty());
}

#[test]
fn metadata_that_is_too_long_is_not_taken() {
    let mut lab = Lab::new();
    let eve = enter(&mut lab, true);
    lab.forget();
    lab.say(&eve, update(&"x".repeat(70_000), &[]));
    assert_eq!(reason(&mut lab, &eve), (5, Reason::LimitExceeded));
}

#[test]
fn attributes_do_not_grow_beyond_their_limit_update_by_update() {
    let mut lab = Lab::new();
    let eve = enter(&mut lab, true);
    let value = "x".repeat(40_000);
    lab.say(&eve, update("", &[("a", &value)]));
    lab.forget();
    lab.say(&eve, update("", &[("b", &value)]));
    assert_eq!(reason(&mut lab, &eve), (5, Reason::LimitExceeded));
}

#[test]
fn what_changes_is_in_the_next_token() {
    let mut lab = Lab::new();
    let eve = enter(&mut lab, true);
    lab.forget();
    lab.say(&eve, update("m", &[]));
    let token = lab.take(&eve).into_iter().find_map(|message| match message {
        Message::RefreshToken(token) => Some(token),
        _ => None,
    });
    let claims = lab.rooms.verify(&token.expect("a token"), lab.now()).expect("one that holds");
    assert_eq!(claims.metadata, "m");
}
