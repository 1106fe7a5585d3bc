use livekit::media::{Event, Request};
use livekit::proto::leave_request::Action;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{SessionDescription, SignalTarget, TrickleRequest};

use crate::support::{Client, Lab, a_join};
use livekit::join::Join;
use livekit::limits::SDP_BYTES_MAX;

fn offered(lab: &mut Lab, client: &Client) -> u32 {
    let tracks = vec![("1".to_owned(), "TR_1".to_owned())];
    lab.hear(Event::Offered { session: client.down, sdp: "offer".into(), tracks });
    let messages = lab.take(client);
    let Some(Message::Offer(offer)) = messages.last() else { panic!("{messages:?}") };
    assert_eq!(offer.mid_to_track_id["1"], "TR_1");
    offer.id
}

fn answer(id: u32) -> Signal {
    Signal::Answer(SessionDescription { r#type: "answer".into(), sdp: "answer".into(), id, ..Default::default() })
}

#[test]
fn an_answer_to_an_earlier_offer_is_not_heard_any_more() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    let (first, second) = (offered(&mut lab, &eve), offered(&mut lab, &eve));
    lab.forget();
    lab.say(&eve, answer(first));
    assert!(lab.take_media().is_empty());
    lab.say(&eve, answer(second));
    assert_eq!(lab.take_media(), [Request::Answer { session: eve.down, sdp: "answer".into() }]);
}

#[test]
fn an_answer_to_no_offer_is_not_heard() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    lab.forget();
    lab.say(&eve, answer(0));
    assert!(lab.take_media().is_empty());
}

#[test]
fn our_answer_names_the_offer_that_it_is_to() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    lab.say(&eve, Signal::Offer(SessionDescription { sdp: "v=0".into(), id: 9, ..Default::default() }));
    let session = lab.take_media().into_iter().find_map(|request| match request {
        Request::Offer { session, .. } => Some(session),
        _ => None,
    });
    lab.answered(session.expect("an offer"));
    let messages = lab.take(&eve);
    assert!(matches!(messages.last(), Some(Message::Answer(answer)) if answer.id == 9));
}

#[test]
fn candidates_go_to_the_session_that_they_are_for() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    lab.forget();
    let trickle = |target: SignalTarget, init: &str| {
        Signal::Trickle(TrickleRequest { candidate_init: init.into(), target: target as i32, r#final: false })
    };
    lab.say(&eve, trickle(SignalTarget::Subscriber, r#"{"candidate":"candidate:1 1 UDP 1 192.0.2.1 1 typ host"}"#));
    lab.say(&eve, trickle(SignalTarget::Publisher, "no JSON"));
    let media = lab.take_media();
    assert!(
        matches!(&media[0], Request::Trickle { session, is_last: false, candidate } if *session == eve.down && candidate.starts_with("candidate:1"))
    );
    assert!(matches!(&media[1], Request::Open { .. }));
    assert!(matches!(&media[2], Request::Trickle { session, is_last: true, .. } if *session != eve.down));
}

#[test]
fn by_v1_every_candidate_goes_to_the_one_session() {
    let mut lab = Lab::new();
    let eve = lab.try_join(Join { is_single: true, ..a_join("eve") }).expect("somebody who is let in");
    lab.forget();
    let target = SignalTarget::Subscriber as i32;
    lab.say(&eve, Signal::Trickle(TrickleRequest { target, r#final: true, ..TrickleRequest::default() }));
    assert!(matches!(lab.take_media()[..], [Request::Trickle { session, .. }] if session == eve.down));
}

#[test]
fn a_description_that_cannot_be_used_sends_its_client_to_join_anew() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.advance_seconds(10);
    lab.forget();
    lab.hear(Event::Refused { session: eve.down, why: "nonsense".into() });
    assert_eq!(lab.take_leave(&eve).expect("a leave").action(), Action::Reconnect);
    assert!(lab.take(&adam).is_empty());
}

#[test]
fn who_needs_more_sections_is_asked_for_them() {
    let mut lab = Lab::new();
    let eve = lab.try_join(Join { is_single: true, ..a_join("eve") }).expect("somebody who is let in");
    lab.hear(Event::NeedSections { session: eve.down, audio: 2, video: 1 });
    let messages = lab.take(&eve);
    assert!(
        matches!(messages.last(), Some(Message::MediaSectionsRequirement(need)) if (need.num_audios, need.num_videos) == (2, 1))
    );
}

#[test]
fn a_description_that_is_too_long_ends_its_client_and_nobody_else() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.say(&eve, Signal::Offer(SessionDescription { sdp: "x".repeat(SDP_BYTES_MAX + 1), ..Default::default() }));
    assert!(lab.closed(&eve).is_some());
}
