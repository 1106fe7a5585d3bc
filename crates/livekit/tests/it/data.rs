use livekit::limits;
use livekit::media::{Channel, Event, Request, SessionId};
use livekit::proto::data_packet::Value;
use livekit::proto::{
    ChatMessage, DataPacket, ParticipantPermission, Transcription, UpdateParticipantRequest, UserPacket,
};
use livekit::token::VideoGrant;
use prost::Message as _;

use crate::support::{Client, Lab, hidden, join_granted};

fn user(payload: &[u8]) -> DataPacket {
    let user = UserPacket { payload: payload.into(), ..UserPacket::default() };
    DataPacket { value: Some(Value::User(user)), ..DataPacket::default() }
}

/// Sends a packet by the client's channel; to whom it goes, and what.
fn send(lab: &mut Lab, from: &Client, channel: Channel, packet: &DataPacket) -> Option<(Vec<SessionId>, DataPacket)> {
    lab.take_media();
    lab.hear(Event::Data { session: from.down, channel, bytes: packet.encode_to_vec() });
    sent(lab)
}

fn sent(lab: &mut Lab) -> Option<(Vec<SessionId>, DataPacket)> {
    lab.take_media().into_iter().find_map(|request| match request {
        Request::Data { to, bytes, .. } => Some((to, DataPacket::decode(&*bytes).expect("a packet"))),
        _ => None,
    })
}

#[test]
#[allow(deprecated)]
fn a_packet_goes_to_everybody_else_with_its_senders_name() {
    let mut lab = Lab::new();
    let (adam, cain, eve) = (lab.enter("adam"), lab.enter("cain"), lab.enter("eve"));
    let forged = DataPacket { participant_identity: "adam".into(), participant_sid: adam.sid.clone(), ..user(b"hi") };
    let (to, packet) = send(&mut lab, &eve, Channel::Lossy, &forged).expect("a packet");
    assert_eq!(to, [adam.down, cain.down]);
    assert_eq!((packet.participant_identity.as_str(), &packet.participant_sid), ("eve", &eve.sid));
    assert_eq!(packet.kind(), livekit::proto::data_packet::Kind::Lossy);
}

#[test]
fn a_packet_that_names_somebody_goes_to_nobody_else() {
    let mut lab = Lab::new();
    let (_adam, cain, eve) = (lab.enter("adam"), lab.enter("cain"), lab.enter("eve"));
    let named = DataPacket { destination_identities: vec!["cain".into(), "nobody".into(), "eve".into()], ..user(b"") };
    let (to, _) = send(&mut lab, &eve, Channel::Reliable, &named).expect("a packet");
    assert_eq!(to, [cain.down]);
}

#[test]
#[allow(deprecated)]
fn an_older_client_names_whom_by_sid_or_in_the_user_packet() {
    let mut lab = Lab::new();
    let (adam, cain, eve) = (lab.enter("adam"), lab.enter("cain"), lab.enter("eve"));
    let user = UserPacket {
        destination_sids: vec![adam.sid.clone()],
        destination_identities: vec!["cain".into()],
        ..UserPacket::default()
    };
    let packet = DataPacket { value: Some(Value::User(user)), ..DataPacket::default() };
    let (to, _) = send(&mut lab, &eve, Channel::Reliable, &packet).expect("a packet");
    assert_eq!(to, [adam.down, cain.down]);
}

#[test]
fn a_packet_that_names_nobody_who_is_there_goes_nowhere() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let named = DataPacket { destination_identities: vec!["nobody".into()], ..user(b"") };
    assert_eq!(send(&mut lab, &eve, Channel::Reliable, &named), None);
}

#[test]
fn who_may_not_publish_data_is_not_heard() {
    let mut lab = Lab::new();
    lab.enter("adam");
    let eve = lab.enter_as(join_granted("eve", VideoGrant { can_publish_data: Some(false), ..VideoGrant::default() }));
    assert_eq!(send(&mut lab, &eve, Channel::Reliable, &user(b"hi")), None);
}

#[test]
fn who_may_publish_data_no_more_is_not_heard() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    assert!(send(&mut lab, &eve, Channel::Reliable, &user(b"hi")).is_some());
    let permission = Some(ParticipantPermission::default());
    let request =
        UpdateParticipantRequest { room: "room".into(), identity: "eve".into(), permission, ..Default::default() };
    lab.admin(livekit::admin::Request::UpdateParticipant(request)).expect("a participant");
    assert_eq!(send(&mut lab, &eve, Channel::Reliable, &user(b"hi")), None);
}

#[test]
fn who_has_no_channels_yet_gets_no_packet() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.join("adam");
    assert_eq!(send(&mut lab, &eve, Channel::Reliable, &user(b"hi")), None);
}

#[test]
fn who_may_not_subscribe_gets_data_by_the_session_by_which_it_publishes() {
    let mut lab = Lab::new();
    let grant = VideoGrant { can_subscribe: Some(false), ..VideoGrant::default() };
    let (eve, adam) = (lab.enter("eve"), lab.try_join(join_granted("adam", grant)).expect("somebody who is let in"));
    let session = lab.offer(&adam);
    lab.answered(session);
    lab.hear(Event::Connected { session });
    lab.hear(Event::ChannelsOpen { session });
    let (to, _) = send(&mut lab, &eve, Channel::Reliable, &user(b"hi")).expect("a packet");
    assert_eq!(to, [session]);
}

#[test]
fn a_hidden_sender_is_not_named() {
    let mut lab = Lab::new();
    let (_adam, spy) = (lab.enter("adam"), lab.enter_as(hidden("spy")));
    let (_, packet) = send(&mut lab, &spy, Channel::Reliable, &user(b"hi")).expect("a packet");
    assert_eq!(packet.participant_identity, "");
}

#[test]
fn a_reliable_packet_that_is_sent_again_is_dropped() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let numbered = |sequence| DataPacket { sequence, ..user(b"") };
    let heard = [1, 2, 2, 1, 3].map(|sequence| send(&mut lab, &eve, Channel::Reliable, &numbered(sequence)).is_some());
    assert_eq!(heard, [true, true, false, false, true]);
}

#[test]
fn a_packet_with_a_nonce_that_was_just_seen_is_dropped() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let user = UserPacket { nonce: vec![7; 16], ..UserPacket::default() };
    let packet = DataPacket { value: Some(Value::User(user)), ..DataPacket::default() };
    assert!(send(&mut lab, &eve, Channel::Lossy, &packet).is_some());
    assert!(send(&mut lab, &eve, Channel::Lossy, &packet).is_none());
}

#[test]
fn only_agents_transcribe() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let mut join = join_granted("bot", VideoGrant { agent: true, ..VideoGrant::default() });
    join.claims.kind = "agent".into();
    let bot = lab.enter_as(join);
    let packet = DataPacket { value: Some(Value::Transcription(Transcription::default())), ..DataPacket::default() };
    assert!(send(&mut lab, &eve, Channel::Reliable, &packet).is_none());
    assert!(send(&mut lab, &bot, Channel::Reliable, &packet).is_some());
}

#[test]
fn an_agent_speaks_for_somebody_and_what_it_says_is_marked() {
    let mut lab = Lab::new();
    lab.enter("adam");
    let mut join = join_granted("bot", VideoGrant::default());
    join.claims.kind = "agent".into();
    let bot = lab.enter_as(join);
    let packet = DataPacket {
        participant_identity: "adam".into(),
        value: Some(Value::ChatMessage(ChatMessage::default())),
        ..DataPacket::default()
    };
    let (_, packet) = send(&mut lab, &bot, Channel::Reliable, &packet).expect("a packet");
    assert_eq!(packet.participant_identity, "adam");
    assert!(matches!(packet.value, Some(Value::ChatMessage(message)) if message.generated));
}

#[test]
fn what_is_no_packet_is_dropped() {
    let mut lab = Lab::new();
    let (_adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    for bytes in [vec![0xff; 100], Vec::new(), user(&[0; 70_000]).encode_to_vec()] {
        lab.take_media();
        lab.hear(Event::Data { session: eve.down, channel: Channel::Reliable, bytes });
        assert_eq!(sent(&mut lab), None);
    }
}

#[test]
fn what_is_reliable_is_kept_for_who_has_joined_and_is_not_active_yet() {
    let mut lab = Lab::new();
    let (eve, adam) = (lab.enter("eve"), lab.join("adam"));
    assert_eq!(send(&mut lab, &eve, Channel::Lossy, &user(b"lost")), None);
    for number in 0..=limits::DATA_KEPT_MAX {
        assert_eq!(send(&mut lab, &eve, Channel::Reliable, &user(&[number as u8])), None, "nobody is there yet");
    }
    lab.connect(&adam);
    let kept = lab.take_media().into_iter().filter_map(|request| match request {
        Request::Data { to, channel: Channel::Reliable, bytes } => {
            Some((to, DataPacket::decode(&*bytes).expect("one")))
        }
        _ => None,
    });
    let kept: Vec<_> = kept.collect();
    assert_eq!(kept.len(), limits::DATA_KEPT_MAX, "what is more is dropped");
    assert!(kept.iter().zip(0..).all(|((to, packet), number)| {
        let payload = match &packet.value {
            Some(Value::User(user)) => user.payload.clone(),
            _ => Vec::new(),
        };
        to[..] == [adam.down] && payload == [number]
    }));
    let (to, _) = send(&mut lab, &eve, Channel::Reliable, &user(b"now")).expect("a packet");
    assert_eq!(to, [adam.down]);
}

#[test]
fn no_more_bytes_are_kept_than_there_may_be() {
    let mut lab = Lab::new();
    let (eve, adam) = (lab.enter("eve"), lab.join("adam"));
    let long = user(&vec![0; limits::DATA_BYTES_MAX / 2]);
    (0..20).for_each(|_| _ = send(&mut lab, &eve, Channel::Reliable, &long));
    lab.connect(&adam);
    let sizes = lab.take_media().into_iter().filter_map(|request| match request {
        Request::Data { bytes, .. } => Some(bytes.len()),
        _ => None,
    });
    let kept: usize = sizes.sum();
    assert!((limits::DATA_KEPT_BYTES_MAX / 2..=limits::DATA_KEPT_BYTES_MAX).contains(&kept), "{kept}");
}
