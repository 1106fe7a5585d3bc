use livekit::admin::{Answer, Request as Admin};
use livekit::join::{Join, Refused};
use livekit::media::{Request, Role};
use livekit::proto::participant_info::{Kind, KindDetail};
use livekit::proto::signal_response::Message;
use livekit::proto::{
    AddTrackRequest, Codec, ListRoomsRequest, ParticipantPermission, SessionDescription, UpdateParticipantRequest,
};
use livekit::token::{Claims, RoomConfig, VideoGrant};

use crate::support::{Client, Lab, ROOM, a_join, a_viewer, camera, hidden, join_granted, microphone};

#[test]
fn who_joins_hears_join_first_and_then_a_token() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    let messages = lab.take(&eve);
    assert!(matches!(messages[0], Message::Join(_)));
    assert!(matches!(messages[1], Message::RefreshToken(_)));
}

#[test]
fn the_join_response_has_what_clients_need() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    let join = lab.take_join(&eve);
    let (room, participant) = (join.room.expect("a room"), join.participant.expect("a participant"));
    assert!(room.sid.starts_with("RM_") && room.name == "room" && participant.sid.starts_with("PA_"));
    assert!(join.subscriber_primary && join.fast_publish && participant.permission.is_some());
    assert_eq!((join.ping_interval, join.ping_timeout), (5, 15));
    assert_eq!(join.server_info.expect("information").version, "1.2.3");
    assert!(!join.sif_trailer.is_empty());
}

#[test]
fn the_room_says_which_codecs_may_be_published_and_who_joins_hears_of_pictures_first() {
    let all = ["audio/opus", "audio/red", "video/VP8", "video/H264", "video/rtx"].map(str::to_owned);
    let mut lab = Lab::with(|config| config.codecs = all.clone().into());
    let mimes = |codecs: Vec<Codec>| codecs.into_iter().map(|codec| codec.mime).collect::<Vec<_>>();
    let eve = lab.enter("eve");
    let join = lab.take_join(&eve);
    assert_eq!(mimes(join.room.expect("a room").enabled_codecs), all);
    assert_eq!(mimes(join.enabled_publish_codecs), ["video/VP8", "video/H264", "audio/opus", "audio/red"]);
    for event in lab.take_events() {
        assert_eq!(mimes(event.room.expect("a room").enabled_codecs), all, "{}", event.event);
    }
    let rooms = lab.admin(Admin::ListRooms(ListRoomsRequest::default()));
    let Ok(Answer::Rooms(mut listed)) = rooms else { panic!("{rooms:?}") };
    assert_eq!(mimes(listed.rooms.remove(0).enabled_codecs), all);
}

#[test]
fn a_token_that_was_given_out_lets_its_bearer_in_again() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    let claims = given_out(&mut lab, &eve);
    assert_eq!((claims.sub.as_str(), claims.iss.as_str()), ("eve", "key"));
    assert_eq!(Join { claims, ..Join::default() }.check(), Ok(()));
}

#[test]
fn what_the_token_says_of_its_bearers_kind_and_where_it_is_is_told() {
    let mut lab = Lab::with(|config| config.region = "eu".into());
    let mut bot = a_join("bot");
    bot.claims.kind = "agent".into();
    bot.claims.kind_details = vec!["cloud_agent".into(), "of no such kind".into()];
    let bot = lab.enter_as(bot);
    let eve = lab.join("eve");
    let other = lab.take_join(&eve).other_participants.remove(0);
    assert_eq!((other.kind(), other.region.as_str()), (Kind::Agent, "eu"));
    assert_eq!(other.kind_details().collect::<Vec<_>>(), [KindDetail::CloudAgent]);
    assert_eq!(given_out(&mut lab, &bot).kind_details, ["cloud_agent"]);
}

/// The token that a client was sent.
fn given_out(lab: &mut Lab, client: &Client) -> Claims {
    let token = lab.take(client).into_iter().find_map(|message| match message {
        Message::RefreshToken(token) => Some(token),
        _ => None,
    });
    lab.rooms.verify(&token.expect("a token"), lab.now()).expect("one that holds")
}

#[test]
fn who_is_there_is_listed_for_who_comes() {
    let mut lab = Lab::new();
    lab.enter("adam");
    let eve = lab.join("eve");
    let others = lab.take_join(&eve).other_participants;
    assert_eq!(others.iter().map(|other| other.identity.as_str()).collect::<Vec<_>>(), ["adam"]);
}

#[test]
fn who_is_hidden_is_not_listed() {
    let mut lab = Lab::new();
    lab.enter_as(hidden("spy"));
    let eve = lab.join("eve");
    assert!(lab.take_join(&eve).other_participants.is_empty());
}

#[test]
fn by_v0_we_offer_to_watch_and_the_publishing_session_comes_with_its_offer() {
    let mut lab = Lab::new();
    let eve = lab.join("eve");
    assert!(matches!(lab.take_media()[..], [Request::Open { role: Role::Subscriber, wants_data: true, .. }]));
    lab.offer(&eve);
    assert!(matches!(lab.take_media()[..], [Request::Open { role: Role::Publisher, .. }, Request::Offer { .. }]));
}

#[test]
fn by_v1_one_session_takes_the_offer_that_came_with_the_join() {
    let mut lab = Lab::new();
    let offer = SessionDescription { sdp: "v=0".into(), ..SessionDescription::default() };
    let join = Join { is_single: true, offer: Some(offer), add_tracks: vec![camera("cid")], ..a_join("eve") };
    let eve = lab.try_join(join).expect("somebody who is let in");
    let media = lab.take_media();
    assert!(matches!(&media[..], [Request::Open { role: Role::Both, .. }, Request::Offer { sdp, .. }] if sdp == "v=0"));
    let messages = lab.take(&eve);
    assert!(messages.iter().any(|message| matches!(message, Message::TrackPublished(_))));
    let Message::Join(join) = &messages[0] else { panic!("{messages:?}") };
    assert!(!join.subscriber_primary);
}

#[test]
fn who_may_not_subscribe_counts_on_its_publishing_session() {
    let mut lab = Lab::new();
    let eve = lab
        .try_join(join_granted("eve", VideoGrant { can_subscribe: Some(false), ..VideoGrant::default() }))
        .expect("somebody who is let in");
    assert!(!lab.take_join(&eve).subscriber_primary);
}

#[test]
fn who_may_not_subscribe_gets_no_offer_before_it_may_and_there_is_a_track() {
    let mut lab = Lab::new();
    let grant = VideoGrant { can_subscribe: Some(false), ..VideoGrant::default() };
    lab.try_join(join_granted("eve", grant)).expect("somebody who is let in");
    assert_eq!(opened(&lab.take_media()), [Role::Publisher]);
    let adam = lab.enter("adam");
    let sids: Vec<_> = ["mic", "second mic"].into_iter().map(|cid| lab.publish(&adam, microphone(cid))).collect();
    lab.take_media();

    let permission = Some(ParticipantPermission { can_subscribe: true, ..ParticipantPermission::default() });
    let request =
        UpdateParticipantRequest { room: ROOM.into(), identity: "eve".into(), permission, ..Default::default() };
    lab.admin(Admin::UpdateParticipant(request)).expect("a participant");
    let media = lab.take_media();
    assert_eq!(opened(&media), [Role::Subscriber]);
    let told = media.iter().find_map(|request| match request {
        Request::SetDown { session, tracks } => Some((session, tracks)),
        _ => None,
    });
    let (session, tracks) = told.expect("tracks");
    assert!(matches!(&media[0], Request::Open { session: open, .. } if open == session));
    assert_eq!(tracks.iter().map(|down| &down.sid).collect::<Vec<_>>(), sids.iter().collect::<Vec<_>>());
}

fn opened(media: &[Request]) -> Vec<Role> {
    let opened = media.iter().filter_map(|request| match request {
        Request::Open { role, .. } => Some(*role),
        _ => None,
    });
    opened.collect()
}

#[test]
fn a_room_that_is_not_there_is_opened_only_if_that_is_configured_or_granted() {
    let mut lab = Lab::with(|config| config.auto_create = false);
    assert_eq!(lab.try_join(a_join("eve")).err(), Some(Refused::NoSuchRoom));
    let creator = join_granted("eve", VideoGrant { room_create: true, ..VideoGrant::default() });
    assert!(lab.try_join(creator).is_ok());
    assert!(lab.try_join(a_join("adam")).is_ok());
}

#[test]
fn a_full_room_lets_nobody_in_but_who_was_in_it_already() {
    let mut lab = Lab::with(|config| config.participants_max = 2);
    lab.enter("adam");
    lab.enter("eve");
    assert_eq!(lab.try_join(a_join("cain")).err(), Some(Refused::RoomFull));
    assert_eq!(lab.rooms.check(&a_join("cain")), Err(Refused::RoomFull), "who asks beforehand is told so, too");
    assert_eq!(lab.rooms.check(&a_join("eve")), Ok(()));
    assert!(lab.try_join(a_join("eve")).is_ok());
}

#[test]
fn recorders_and_agents_do_not_count_towards_the_limit() {
    let mut lab = Lab::with(|config| config.participants_max = 1);
    lab.enter_as(join_granted("bot", VideoGrant { agent: true, ..VideoGrant::default() }));
    assert!(lab.try_join(a_join("eve")).is_ok());
}

#[test]
fn the_token_says_how_a_room_is_made() {
    let mut lab = Lab::new();
    let mut join = a_join("eve");
    join.claims.room_config =
        Some(RoomConfig { max_participants: 7, metadata: "m".into(), empty_timeout: 9, ..RoomConfig::default() });
    let eve = lab.try_join(join).expect("somebody who is let in");
    let room = lab.take_join(&eve).room.expect("a room");
    assert_eq!((room.max_participants, room.metadata.as_str(), room.empty_timeout), (7, "m", 9));
}

#[test]
fn a_new_token_comes_every_five_minutes() {
    let mut lab = Lab::new();
    let eve = lab.enter_as(a_viewer("eve"));
    lab.take(&eve);
    lab.advance_seconds(301);
    let tokens = lab.take(&eve).into_iter().filter(|message| matches!(message, Message::RefreshToken(_)));
    assert_eq!(tokens.count(), 1);
}

#[test]
fn ten_thousand_announcements_in_a_join_are_no_more_than_those_that_may_wait() {
    let mut lab = Lab::new();
    let add_tracks: Vec<AddTrackRequest> = (0..10_000).map(|number| camera(&format!("cid{number}"))).collect();
    let eve = lab.try_join(Join { is_single: true, add_tracks, ..a_join("eve") }).expect("somebody who is let in");
    assert_eq!(lab.take(&eve).iter().filter(|message| matches!(message, Message::TrackPublished(_))).count(), 20);
}
