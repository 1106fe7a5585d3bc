use livekit::admin::{Answer, Refusal, Request as Admin};
use livekit::media::{Channel, Request};
use livekit::proto::leave_request::Action;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    CreateRoomRequest, DeleteRoomRequest, DisconnectReason, ListParticipantsRequest, ListRoomsRequest,
    MuteRoomTrackRequest, RoomParticipantIdentity, SendDataRequest, UpdateParticipantRequest,
    UpdateRoomMetadataRequest, UpdateSubscriptionsRequest,
};
use livekit::token::VideoGrant;

use crate::support::{Lab, camera, microphone};

pub fn create(name: &str) -> Admin {
    Admin::CreateRoom(CreateRoomRequest { name: name.into(), max_participants: 2, ..CreateRoomRequest::default() })
}

fn mute(track_sid: &str, muted: bool) -> Admin {
    let (room, identity, track_sid) = ("room".into(), "eve".into(), track_sid.into());
    Admin::MutePublishedTrack(MuteRoomTrackRequest { room, identity, track_sid, muted })
}

fn who(identity: &str) -> RoomParticipantIdentity {
    RoomParticipantIdentity { room: "room".into(), identity: identity.into(), ..RoomParticipantIdentity::default() }
}

#[test]
fn a_room_is_created_once_and_listed() {
    let mut lab = Lab::new();
    let Ok(Answer::Room(first)) = lab.admin(create("room")) else { panic!("no room") };
    let Ok(Answer::Room(second)) = lab.admin(create("room")) else { panic!("no room") };
    assert_eq!((&first.sid, first.max_participants), (&second.sid, 2));
    let other =
        CreateRoomRequest { name: "room".into(), max_participants: 9, metadata: "m".into(), ..Default::default() };
    assert_eq!(lab.admin(Admin::CreateRoom(other)), Ok(Answer::Room(second)), "one that is there stays as it is");
    let grant = VideoGrant { room_admin: true, room: "none".into(), ..VideoGrant::default() };
    let nobody = lab.admin_as(&grant, Admin::ListParticipants(ListParticipantsRequest { room: "none".into() }));
    assert!(matches!(nobody, Ok(Answer::Participants(list)) if list.participants.is_empty()));
    lab.admin(create("other")).expect("a room");
    let list = |lab: &mut Lab, names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let Ok(Answer::Rooms(rooms)) = lab.admin(Admin::ListRooms(ListRoomsRequest { names })) else {
            panic!("no list")
        };
        rooms.rooms.into_iter().map(|room| room.name).collect::<Vec<_>>()
    };
    assert_eq!(list(&mut lab, &[]), ["room", "other"]);
    assert_eq!(list(&mut lab, &["other", "none"]), ["other"]);
}

#[test]
fn a_room_that_is_deleted_sends_everybody_away() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, camera("cam"));
    lab.forget();
    assert_eq!(lab.admin(Admin::DeleteRoom(DeleteRoomRequest { room: "room".into() })), Ok(Answer::Nothing));
    for client in [&adam, &eve] {
        let leave = lab.take_leave(client).expect("a leave");
        assert_eq!((leave.reason(), leave.action()), (DisconnectReason::RoomDeleted, Action::Disconnect));
    }
    assert_eq!(lab.take_webhooks().last().map(String::as_str), Some("room_finished"));
    assert_eq!(lab.rooms.sizes(), livekit::rooms::Sizes::default());
    assert_eq!(lab.rooms.poll_timeout(), None);
}

#[test]
fn nothing_is_done_without_the_grant_for_it() {
    let mut lab = Lab::new();
    lab.enter("eve");
    let none = VideoGrant::default();
    let of_other = VideoGrant { room_admin: true, room: "other".into(), ..VideoGrant::default() };
    let requests = [
        create("x"),
        Admin::ListRooms(ListRoomsRequest::default()),
        Admin::DeleteRoom(DeleteRoomRequest { room: "room".into() }),
        Admin::ListParticipants(ListParticipantsRequest { room: "room".into() }),
        Admin::GetParticipant(who("eve")),
        Admin::RemoveParticipant(who("eve")),
        mute("TR_1", true),
        Admin::SendData(SendDataRequest { room: "room".into(), ..SendDataRequest::default() }),
        Admin::UpdateRoomMetadata(UpdateRoomMetadataRequest { room: "room".into(), metadata: "m".into() }),
    ];
    for request in requests {
        for grant in [&none, &of_other] {
            assert_eq!(lab.admin_as(grant, request.clone()), Err(Refusal::NotAllowed), "{request:?}");
        }
    }
    assert_eq!(lab.rooms.sizes().rooms, 1);
}

#[test]
fn participants_are_listed_and_found() {
    let mut lab = Lab::new();
    lab.enter("adam");
    lab.enter("eve");
    let all = lab.admin(Admin::ListParticipants(ListParticipantsRequest { room: "room".into() }));
    assert!(matches!(all, Ok(Answer::Participants(all)) if all.participants.len() == 2));
    let eve = lab.admin(Admin::GetParticipant(who("eve")));
    assert!(matches!(eve, Ok(Answer::Participant(eve)) if eve.identity == "eve"));
    assert_eq!(lab.admin(Admin::GetParticipant(who("nobody"))), Err(Refusal::NoSuchParticipant));
}

#[test]
fn who_is_removed_is_told_so() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    assert_eq!(lab.admin(Admin::RemoveParticipant(who("eve"))), Ok(Answer::Nothing));
    assert_eq!(lab.take_leave(&eve).expect("a leave").reason(), DisconnectReason::ParticipantRemoved);
}

#[test]
fn a_track_that_an_admin_mutes_is_muted_for_its_publisher_and_for_all() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, microphone("mic"));
    lab.forget();
    assert!(
        matches!(lab.admin(mute(&sid, true)), Ok(Answer::Track(track)) if track.track.as_ref().expect("a track").muted)
    );
    // LiveKit's SDK for Go answers news of a track that is muted, before it was told to mute it, by unmuting it.
    assert!(matches!(&lab.take(&eve)[..], [Message::Mute(mute), Message::Update(_)] if mute.muted));
    assert!(lab.take_updates(&adam)[0].tracks[0].muted);
    assert_eq!(lab.admin(mute(&sid, false)), Err(Refusal::MayNotUnmute));
    assert_eq!(lab.admin(mute("TR_no", true)), Err(Refusal::NoSuchTrack));
}

#[test]
fn an_admin_unmutes_where_that_is_configured() {
    let mut lab = Lab::with(|config| config.remote_unmute = true);
    let eve = lab.enter("eve");
    let sid = lab.publish(&eve, microphone("mic"));
    lab.admin(mute(&sid, true)).expect("a track");
    assert!(lab.admin(mute(&sid, false)).is_ok());
}

#[test]
fn an_admin_subscribes_for_somebody() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    let request = UpdateSubscriptionsRequest {
        room: "room".into(),
        identity: "adam".into(),
        track_sids: vec![sid],
        subscribe: false,
        participant_tracks: vec![],
    };
    lab.admin(Admin::UpdateSubscriptions(request)).expect("a participant");
    assert!(lab.downs(&adam).is_empty());
}

#[test]
fn an_admin_sends_data_to_all_or_to_whom_it_names() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let mut to = |named: &[&str]| {
        lab.take_media();
        let request = SendDataRequest {
            room: "room".into(),
            data: b"hi".into(),
            destination_identities: named.iter().map(|name| (*name).to_owned()).collect(),
            ..SendDataRequest::default()
        };
        lab.admin(Admin::SendData(request)).expect("a room");
        match lab.take_media().pop() {
            Some(Request::Data { to, channel: Channel::Reliable, .. }) => to,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(to(&[]), [adam.down, eve.down]);
    assert_eq!(to(&["eve"]), [eve.down]);
}

#[test]
fn a_rooms_metadata_is_told_to_everybody_at_once() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    let request = UpdateRoomMetadataRequest { room: "room".into(), metadata: "m".into() };
    assert!(matches!(lab.admin(Admin::UpdateRoomMetadata(request)), Ok(Answer::Room(room)) if room.metadata == "m"));
    assert!(
        matches!(&lab.take(&eve)[..], [Message::RoomUpdate(update)] if update.room.as_ref().expect("a room").metadata == "m")
    );
}

#[test]
fn an_admin_changes_what_is_said_of_somebody_without_its_permission() {
    let mut lab = Lab::new();
    let (adam, _eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.forget();
    let request = UpdateParticipantRequest {
        room: "room".into(),
        identity: "eve".into(),
        name: "Eve".into(),
        metadata: "m".into(),
        ..UpdateParticipantRequest::default()
    };
    assert!(matches!(lab.admin(Admin::UpdateParticipant(request)), Ok(Answer::Participant(eve)) if eve.name == "Eve"));
    assert_eq!(lab.take_updates(&adam).pop().expect("an update").metadata, "m");
}

#[test]
fn of_a_room_that_is_not_there_nothing_is_asked() {
    let mut lab = Lab::new();
    assert_eq!(lab.admin(Admin::GetParticipant(who("eve"))), Err(Refusal::NoSuchRoom));
}
