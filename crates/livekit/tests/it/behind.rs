//! Who is behind with reliable data, and who waits for that.

use livekit::admin::Request as Admin;
use livekit::limits::BEHIND_FOR_MAX;
use livekit::media::{Channel, Event, Request, SessionId};
use livekit::proto::data_packet::Value;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::{DataPacket, LeaveRequest, MoveParticipantRequest, UserPacket};
use livekit::token::VideoGrant;
use prost::Message as _;

use crate::support::{Client, Lab, ROOM};

fn is_behind(lab: &mut Lab, client: &Client, is_behind: bool) {
    lab.hear(Event::Behind { session: client.down, is_behind });
}

/// Sends a packet by the client's channel, to those who are named or to everybody.
fn send(lab: &mut Lab, from: &Client, channel: Channel, to: &[&str]) {
    let packet = DataPacket {
        value: Some(Value::User(UserPacket::default())),
        destination_identities: to.iter().map(|name| (*name).to_owned()).collect(),
        ..DataPacket::default()
    };
    lab.hear(Event::Data { session: from.down, channel, bytes: packet.encode_to_vec() });
}

/// Who was held since this was asked last, and who let go.
fn holds(lab: &mut Lab) -> Vec<(SessionId, bool)> {
    let holds = lab.take_media().into_iter().filter_map(|request| match request {
        Request::Hold { session, on } => Some((session, on)),
        _ => None,
    });
    holds.collect()
}

#[test]
fn who_sends_to_somebody_who_is_behind_waits_until_it_has_caught_up() {
    let mut lab = Lab::new();
    let (adam, cain, eve) = (lab.enter("adam"), lab.enter("cain"), lab.enter("eve"));
    is_behind(&mut lab, &adam, true);
    send(&mut lab, &cain, Channel::Lossy, &[]);
    send(&mut lab, &cain, Channel::Reliable, &["eve"]);
    assert!(holds(&mut lab).is_empty(), "nothing reliable for who is behind");
    send(&mut lab, &eve, Channel::Reliable, &[]);
    send(&mut lab, &eve, Channel::Reliable, &["adam"]);
    assert_eq!(holds(&mut lab), [(eve.down, true)]);
    is_behind(&mut lab, &adam, false);
    assert_eq!(holds(&mut lab), [(eve.down, false)]);
    send(&mut lab, &eve, Channel::Reliable, &[]);
    assert!(holds(&mut lab).is_empty());
}

#[test]
fn nobody_waits_longer_than_five_seconds_for_who_stays_behind() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    is_behind(&mut lab, &adam, true);
    send(&mut lab, &eve, Channel::Reliable, &[]);
    assert_eq!(holds(&mut lab), [(eve.down, true)]);
    lab.advance(BEHIND_FOR_MAX);
    assert_eq!(holds(&mut lab), [(eve.down, false)]);
    send(&mut lab, &eve, Channel::Reliable, &[]);
    assert!(holds(&mut lab).is_empty());
    // Whoever has caught up is waited for again.
    is_behind(&mut lab, &adam, false);
    is_behind(&mut lab, &adam, true);
    send(&mut lab, &eve, Channel::Reliable, &[]);
    assert_eq!(holds(&mut lab), [(eve.down, true)]);
}

#[test]
fn who_waits_for_two_goes_on_when_both_have_caught_up() {
    let mut lab = Lab::new();
    let (adam, cain, eve) = (lab.enter("adam"), lab.enter("cain"), lab.enter("eve"));
    is_behind(&mut lab, &adam, true);
    is_behind(&mut lab, &cain, true);
    send(&mut lab, &eve, Channel::Reliable, &[]);
    assert_eq!(holds(&mut lab), [(eve.down, true)]);
    is_behind(&mut lab, &adam, false);
    assert!(holds(&mut lab).is_empty());
    is_behind(&mut lab, &cain, false);
    assert_eq!(holds(&mut lab), [(eve.down, false)]);
}

#[test]
fn who_leaves_is_waited_for_no_more() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    is_behind(&mut lab, &adam, true);
    send(&mut lab, &eve, Channel::Reliable, &[]);
    assert_eq!(holds(&mut lab), [(eve.down, true)]);
    lab.say(&adam, Signal::Leave(LeaveRequest::default()));
    assert_eq!(holds(&mut lab), [(eve.down, false)]);
}

#[test]
fn who_goes_to_another_room_waits_for_nobody_there() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    is_behind(&mut lab, &adam, true);
    send(&mut lab, &eve, Channel::Reliable, &[]);
    assert_eq!(holds(&mut lab), [(eve.down, true)]);
    let request =
        MoveParticipantRequest { room: ROOM.into(), identity: "eve".into(), destination_room: "other".into() };
    let grant =
        VideoGrant { room_admin: true, room: ROOM.into(), destination_room: "other".into(), ..VideoGrant::default() };
    lab.admin_as(&grant, Admin::MoveParticipant(request)).expect("a participant");
    assert_eq!(holds(&mut lab), [(eve.down, false)]);
}
