//! Pictures in two codecs: eve's camera is announced in H.264, with VP8 as its backup, and adam watches.

use std::time::Duration;

use livekit::admin::Request as Admin;
use livekit::join::Join;
use livekit::media::{Event, Kind, Request, Section, SessionId, TrackId};
use livekit::proto::request_response::Reason;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    AddTrackRequest, BackupCodecPolicy, ForwardParticipantRequest, LeaveRequest, MoveParticipantRequest,
    MuteTrackRequest, SimulcastCodec, StreamState, SubscribedQualityUpdate, SyncState, TrackInfo,
    TrackPublishedResponse, UpdateSubscription,
};

use crate::support::{Client, Lab, ROOM, a_join, camera, section};

struct Show {
    lab: Lab,
    adam: Client,
    eve: Client,
    session: SessionId,
    sections: Vec<Section>,
    sid: String,
    /// What the packet path calls the camera in H.264.
    first: TrackId,
}

fn codec(name: &str, cid: &str) -> SimulcastCodec {
    SimulcastCodec { codec: name.into(), cid: cid.into(), ..SimulcastCodec::default() }
}

fn in_two_codecs(policy: BackupCodecPolicy) -> AddTrackRequest {
    let simulcast_codecs = vec![codec("h264", "cam"), codec("vp8", "")];
    AddTrackRequest { simulcast_codecs, backup_codec_policy: policy as i32, ..camera("cam") }
}

fn backup_of(sid: &str, cid: &str) -> AddTrackRequest {
    AddTrackRequest { sid: sid.into(), simulcast_codecs: vec![codec("vp8", cid)], ..camera(cid) }
}

/// Somebody who comes to the other room.
fn elsewhere(identity: &str) -> Join {
    let mut join = a_join(identity);
    join.claims.video.iter_mut().for_each(|video| video.room = "other".into());
    join
}

impl Show {
    fn new(policy: BackupCodecPolicy) -> Show {
        Show::watched_by(policy, a_join("adam"))
    }

    fn watched_by(policy: BackupCodecPolicy, adam: Join) -> Show {
        let mut lab = Lab::new();
        let (adam, eve) = (lab.enter_as(adam), lab.enter("eve"));
        lab.say(&eve, Signal::AddTrack(in_two_codecs(policy)));
        let sid = published(&lab.take(&eve)).expect("an answer").sid;
        let session = lab.offer(&eve);
        let first = Section { codec: "video/H264".into(), ..section("0", Kind::Video, "cam") };
        let mut show = Show { lab, adam, eve, session, sections: vec![first], sid, first: TrackId(0) };
        show.answered();
        show.first = show.lab.last_track();
        show
    }

    fn answered(&mut self) {
        let sections = self.sections.clone();
        self.lab.hear(Event::Answered { session: self.session, sdp: "answer".into(), sections, has_data: true });
    }

    /// The packet path finds that somebody cannot decode what it gets.
    fn cannot_decode(&mut self, client: &Client, track: TrackId) {
        self.lab.hear(Event::Unsupported { session: client.down, track });
    }

    /// Eve's client does as it is asked; returns what the packet path calls the backup.
    fn publish_backup(&mut self) -> TrackId {
        let request = backup_of(&self.sid, "clone");
        self.lab.say(&self.eve, Signal::AddTrack(request));
        self.sections.push(section("1", Kind::Video, "clone"));
        self.lab.forget();
        self.answered();
        self.lab.last_track()
    }

    /// Adam lacks H.264, and the backup is published.
    fn with_backup(policy: BackupCodecPolicy) -> (Show, TrackId) {
        let mut show = Show::new(policy);
        let (adam, first) = (show.adam.clone(), show.first);
        show.cannot_decode(&adam, first);
        let backup = show.publish_backup();
        (show, backup)
    }

    /// What the packet path was told last that a client gets.
    fn gets(&mut self, client: &Client) -> Option<Vec<TrackId>> {
        let told = self.lab.take_media().into_iter().rev().find_map(|request| match request {
            Request::SetDown { session, tracks } if session == client.down => Some(tracks),
            _ => None,
        });
        told.map(|tracks| tracks.iter().map(|down| down.track).collect())
    }

    /// By codec, how many of its layers eve was told last to send.
    fn wanted(&mut self) -> Option<Vec<(String, usize)>> {
        let eve = self.eve.clone();
        let updates = self.lab.take(&eve).into_iter().rev().find_map(|message| match message {
            Message::SubscribedQualityUpdate(update) => Some(update),
            _ => None,
        });
        let of = |update: SubscribedQualityUpdate| {
            let layers =
                |codec: &livekit::proto::SubscribedCodec| codec.qualities.iter().filter(|layer| layer.enabled).count();
            update.subscribed_codecs.iter().map(|codec| (codec.codec.clone(), layers(codec))).collect()
        };
        updates.map(of)
    }

    /// Eve stands in another room, too, or goes there.
    fn send_eve(&mut self, forwards: bool) {
        let (room, identity, destination_room) = (ROOM.to_owned(), "eve".to_owned(), "other".to_owned());
        let request = match forwards {
            true => Admin::ForwardParticipant(ForwardParticipantRequest { room, identity, destination_room }),
            false => Admin::MoveParticipant(MoveParticipantRequest { room, identity, destination_room }),
        };
        let grant = livekit::token::VideoGrant {
            room_admin: true,
            room: ROOM.into(),
            destination_room: "other".into(),
            ..Default::default()
        };
        self.lab.admin_as(&grant, request).expect("somebody who is there");
    }

    fn reasons(&mut self, client: &Client) -> Vec<Reason> {
        let responses = self.lab.take(client).into_iter().filter_map(|message| match message {
            Message::RequestResponse(response) => Some(response.reason()),
            _ => None,
        });
        responses.collect()
    }
}

fn published(messages: &[Message]) -> Option<TrackInfo> {
    messages.iter().find_map(|message| match message {
        Message::TrackPublished(published) => published.track.clone(),
        _ => None,
    })
}

fn of(h264: usize, vp8: usize) -> Option<Vec<(String, usize)>> {
    Some(vec![("h264".into(), h264), ("vp8".into(), vp8)])
}

#[test]
fn a_track_lists_both_codecs_and_by_which_section_each_comes() {
    let (mut show, _) = Show::with_backup(BackupCodecPolicy::Simulcast);
    let adam = show.adam.clone();
    let track = show.lab.take_updates(&adam).remove(0).tracks.remove(0);
    let codecs = track.codecs.iter().map(|codec| (codec.mime_type.as_str(), codec.mid.as_str(), codec.cid.as_str()));
    assert_eq!(codecs.collect::<Vec<_>>(), [("video/H264", "0", "cam"), ("video/VP8", "1", "clone")]);
    assert_eq!((track.sid, track.mime_type.as_str(), track.mid.as_str()), (show.sid, "video/H264", "0"));
    assert!(show.lab.take_webhooks().is_empty(), "it is one track");
    assert_eq!(show.lab.rooms.sizes().tracks, 1);
}

#[test]
fn the_backup_is_wanted_at_once_when_somebody_cannot_decode_the_first_codec() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let adam = show.adam.clone();
    show.lab.forget();
    show.cannot_decode(&adam, show.first);
    assert_eq!(show.gets(&adam), Some(vec![]), "until it is there nothing comes");
    assert_eq!(show.wanted(), of(3, 3));
    assert!(show.lab.take(&adam).is_empty(), "it is not told that there is no help");
    show.lab.advance_seconds(5);
    assert_eq!(show.wanted(), of(0, 3));
}

#[test]
fn a_publisher_that_was_not_ready_to_hear_of_the_backup_is_asked_for_it_until_it_comes() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let (adam, _bob) = (show.adam.clone(), show.lab.enter("bob"));
    show.cannot_decode(&adam, show.first);
    for _ in 0..3 {
        show.lab.forget();
        show.lab.advance_seconds(2);
        assert_eq!(show.wanted(), of(3, 3));
    }
    show.publish_backup();
    show.lab.forget();
    show.lab.advance_seconds(60);
    assert_eq!(show.wanted(), None);
}

#[test]
fn who_decodes_the_first_codec_goes_on_with_it_and_the_other_gets_the_backup() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
    show.cannot_decode(&adam, show.first);
    let backup = show.publish_backup();
    let asked = show.lab.take_media();
    let downs = |client: &Client| {
        asked.iter().find_map(|request| match request {
            Request::SetDown { session, tracks } if *session == client.down => Some(tracks.clone()),
            _ => None,
        })
    };
    let [down] = &downs(&adam).expect("it gets something")[..] else { panic!("{asked:?}") };
    assert_eq!((down.track, &down.sid), (backup, &show.sid));
    assert_eq!(downs(&bob), None);
    show.lab.forget();
    show.lab.advance_seconds(60);
    assert_eq!((show.wanted(), show.gets(&bob)), (None, None));
}

#[test]
fn a_backup_that_nobody_needs_any_more_is_not_wanted_after_five_seconds() {
    let (mut show, _) = Show::with_backup(BackupCodecPolicy::Simulcast);
    let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
    show.lab.advance_seconds(5);
    show.lab.forget();
    let not = UpdateSubscription { track_sids: vec![show.sid.clone()], subscribe: false, participant_tracks: vec![] };
    show.lab.say(&adam, Signal::Subscription(not.clone()));
    show.lab.advance(Duration::from_millis(4_999));
    assert_eq!(show.wanted(), None);
    show.lab.advance(Duration::from_millis(1));
    assert_eq!(show.wanted(), of(3, 0));

    // What it cannot decode it is not given again.
    show.lab.say(&adam, Signal::Subscription(UpdateSubscription { subscribe: true, ..not }));
    assert_eq!(show.wanted(), of(3, 3));
    assert_eq!(show.gets(&bob), None);
}

#[test]
fn unless_the_policy_is_simulcast_everybody_gets_the_backup_from_when_it_is_there() {
    for policy in [BackupCodecPolicy::PreferRegression, BackupCodecPolicy::Regression] {
        let mut show = Show::new(policy);
        let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
        show.cannot_decode(&adam, show.first);
        let backup = show.publish_backup();
        assert_eq!(show.lab.downs(&adam).len(), 1);
        assert_eq!(show.gets(&bob), Some(vec![backup]), "{policy:?}");
        let carl = show.lab.enter("carl");
        assert_eq!(show.gets(&carl), Some(vec![backup]), "{policy:?}");
        show.lab.advance_seconds(5);
        assert_eq!(show.wanted(), of(0, 3), "{policy:?}");
    }
}

#[test]
fn when_the_backup_ends_alone_who_can_gets_the_first_codec_and_the_other_waits_again() {
    let mut show = Show::new(BackupCodecPolicy::PreferRegression);
    let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
    show.cannot_decode(&adam, show.first);
    let backup = show.publish_backup();
    show.lab.advance_seconds(5);
    show.lab.forget();
    show.sections[1].is_sent = false;
    show.answered();
    assert_eq!((show.lab.downs(&adam).len(), show.lab.downs(&bob).len()), (0, 1));
    assert_eq!(show.wanted(), of(3, 3));
    let unpublished = Request::Unpublish { session: show.session, track: backup };
    assert!(show.lab.take_media().contains(&unpublished));
    assert!(show.lab.take_webhooks().is_empty());

    show.sections.pop();
    let backup = show.publish_backup();
    assert_eq!(show.gets(&bob), Some(vec![backup]));
}

#[test]
fn a_track_ends_in_both_codecs() {
    let (mut show, backup) = Show::with_backup(BackupCodecPolicy::Simulcast);
    let adam = show.adam.clone();
    show.lab.forget();
    show.sections.iter_mut().for_each(|section| section.is_sent = false);
    show.answered();
    assert_eq!(show.lab.take_webhooks(), ["track_unpublished"]);
    assert!(show.lab.take_updates(&adam)[0].tracks.is_empty() && show.lab.downs(&adam).is_empty());
    let ended: Vec<TrackId> = show
        .lab
        .take_media()
        .into_iter()
        .filter_map(|request| match request {
            Request::Unpublish { track, .. } => Some(track),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [show.first, backup]);
    assert_eq!(show.lab.rooms.sizes().tracks, 0);
    show.lab.advance_seconds(60);
    assert_eq!(show.wanted(), None);
}

#[test]
fn muting_is_of_both_codecs() {
    let (mut show, backup) = Show::with_backup(BackupCodecPolicy::Simulcast);
    let eve = show.eve.clone();
    for is_muted in [true, false] {
        show.lab.forget();
        show.lab.say(&eve, Signal::Mute(MuteTrackRequest { sid: show.sid.clone(), muted: is_muted }));
        let mute = |track| Request::Mute { track, is_muted };
        assert_eq!(show.lab.take_media(), [mute(show.first), mute(backup)]);
    }
}

#[test]
fn a_backup_that_comes_while_the_track_is_muted_is_muted() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let eve = show.eve.clone();
    show.lab.say(&eve, Signal::Mute(MuteTrackRequest { sid: show.sid.clone(), muted: true }));
    let track = show.publish_backup();
    assert!(show.lab.take_media().contains(&Request::Mute { track, is_muted: true }));
}

#[test]
fn who_comes_back_with_a_track_in_two_codecs_has_one_track() {
    let (mut show, _) = Show::with_backup(BackupCodecPolicy::Simulcast);
    let (eve, adam) = (show.eve.clone(), show.adam.clone());
    let track = show.lab.take_updates(&adam).remove(0).tracks.remove(0);
    show.lab.cut(&eve);
    let sync_state = SyncState {
        publish_tracks: vec![TrackPublishedResponse { cid: "cam".into(), track: Some(track) }],
        ..SyncState::default()
    };
    let join = Join { reconnect: Some(eve.sid.clone()), sync_state: Some(sync_state), ..a_join("eve") };
    let back = show.lab.try_join(join).expect("a connection");
    assert!(show.lab.take_leave(&back).is_none());
    show.lab.forget();
    show.answered();
    assert!(show.lab.take_media().is_empty() && show.lab.take_webhooks().is_empty(), "all is as it was");
}

#[test]
fn who_can_decode_neither_is_told_so() {
    let (mut show, backup) = Show::with_backup(BackupCodecPolicy::Simulcast);
    let adam = show.adam.clone();
    show.lab.forget();
    show.cannot_decode(&adam, backup);
    let messages = show.lab.take(&adam);
    assert!(matches!(&messages[..], [Message::SubscriptionResponse(_)]), "{messages:?}");
    assert_eq!(show.gets(&adam), Some(vec![]));
    show.lab.advance_seconds(10);
    assert_eq!(show.wanted(), of(0, 0));
}

#[test]
fn for_who_leaves_while_it_waits_for_a_backup_none_is_wanted() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let adam = show.adam.clone();
    show.cannot_decode(&adam, show.first);
    show.lab.say(&adam, Signal::Leave(LeaveRequest::default()));
    show.lab.advance_seconds(5);
    assert_eq!(show.wanted(), of(0, 0));
}

#[test]
fn whose_description_does_not_change_keeps_the_codec_that_it_has() {
    let fixed = Join { describes_once: true, ..a_join("adam") };
    let mut show = Show::watched_by(BackupCodecPolicy::PreferRegression, fixed);
    let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
    show.cannot_decode(&bob, show.first);
    let backup = show.publish_backup();
    let asked = show.lab.take_media();
    let is_for = |client: &Client| {
        asked.iter().any(|request| matches!(request, Request::SetDown { session, .. } if *session == client.down))
    };
    assert!(is_for(&bob) && !is_for(&adam));
    show.lab.advance_seconds(10);
    assert_eq!(show.wanted(), None, "both are wanted");
    let carl = show.lab.enter_as(Join { describes_once: true, ..a_join("carl") });
    assert_eq!(show.gets(&carl), Some(vec![backup]));
}

#[test]
fn who_was_told_that_nothing_comes_in_the_one_codec_is_told_that_it_does_in_the_other() {
    let mut show = Show::new(BackupCodecPolicy::PreferRegression);
    let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
    let active = |track, is_active| Event::Active { session: bob.down, track, is_active };
    show.lab.hear(active(show.first, false));
    show.cannot_decode(&adam, show.first);
    let backup = show.publish_backup();
    show.lab.hear(active(backup, false));
    let told = show.lab.take(&bob).into_iter().filter_map(|message| match message {
        Message::StreamStateUpdate(update) => Some(update.stream_states[0].state()),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [StreamState::Active, StreamState::Paused]);
}

#[test]
fn what_is_not_a_backup_of_ones_own_track_is_refused() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let (adam, eve) = (show.adam.clone(), show.eve.clone());
    show.lab.say(&eve, Signal::AddTrack(camera("other")));
    show.lab.forget();
    let sid = show.sid.clone();
    let in_av1 = AddTrackRequest { simulcast_codecs: vec![codec("av1", "clone")], ..backup_of(&sid, "clone") };
    let first = AddTrackRequest { simulcast_codecs: vec![codec("h264", "clone")], ..backup_of(&sid, "clone") };
    let long = "c".repeat(257);
    for (who, request, reason) in [
        (&eve, backup_of("TR_no", "clone"), Reason::NotFound),
        (&adam, backup_of(&sid, "clone"), Reason::NotFound),
        (&eve, in_av1, Reason::UnsupportedType),
        (&eve, first, Reason::UnsupportedType),
        (&eve, backup_of(&sid, "cam"), Reason::InvalidRequest),
        (&eve, backup_of(&sid, "other"), Reason::InvalidRequest),
        (&eve, AddTrackRequest { cid: "clone".into(), ..backup_of(&sid, &long) }, Reason::InvalidRequest),
    ] {
        show.lab.say(who, Signal::AddTrack(request.clone()));
        assert_eq!(show.reasons(who), [reason], "{request:?}");
    }
    show.publish_backup();
    show.lab.forget();
    show.lab.say(&eve, Signal::AddTrack(backup_of(&sid, "clone of the clone")));
    assert_eq!(show.reasons(&eve), [Reason::InvalidRequest]);
}

#[test]
fn a_section_of_another_codec_than_the_backup_s_is_none() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let eve = show.eve.clone();
    show.lab.say(&eve, Signal::AddTrack(backup_of(&show.sid, "clone")));
    show.sections.push(Section { codec: "video/H264".into(), ..section("1", Kind::Video, "clone") });
    show.lab.forget();
    show.answered();
    assert!(show.lab.take_media().is_empty());
}

#[test]
fn a_backup_s_section_is_not_taken_for_that_of_another_track() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let eve = show.eve.clone();
    show.lab.say(&eve, Signal::AddTrack(camera("later")));
    let backup = show.publish_backup();
    assert_eq!(show.lab.rooms.sizes().tracks, 1);
    show.sections.push(section("2", Kind::Video, "later"));
    show.answered();
    assert!(show.lab.last_track() != backup && show.lab.rooms.sizes().tracks == 2);
}

#[test]
fn the_offer_asks_for_each_codec_in_its_own_section() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let eve = show.eve.clone();
    show.lab.say(&eve, Signal::AddTrack(backup_of(&show.sid, "clone")));
    show.lab.forget();
    show.lab.offer(&eve);
    let asked = show.lab.take_media();
    let [Request::Offer { ups, .. }] = &asked[..] else { panic!("{asked:?}") };
    let ups: Vec<_> = ups.iter().map(|up| (up.cid.as_str(), up.codecs.concat())).collect();
    assert_eq!(ups, [("cam", "video/H264".to_owned()), ("clone", "video/VP8".to_owned())]);
}

#[test]
fn a_publisher_who_sends_the_backup_s_codec_in_the_first_place_has_no_backup() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.say(&eve, Signal::AddTrack(in_two_codecs(BackupCodecPolicy::Simulcast)));
    let session = lab.offer(&eve);
    let sections = vec![section("0", Kind::Video, "cam")];
    lab.forget();
    lab.hear(Event::Answered { session, sdp: "answer".into(), sections, has_data: true });
    let track = lab.take_updates(&adam).remove(0).tracks.remove(0);
    assert_eq!((track.mime_type.as_str(), track.codecs.len()), ("video/VP8", 1));
}

#[test]
fn who_is_moved_or_forwarded_takes_both_codecs_along() {
    for forwards in [false, true] {
        let (mut show, backup) = Show::with_backup(BackupCodecPolicy::Simulcast);
        let far = show.lab.enter_as(elsewhere("far"));
        show.send_eve(forwards);
        assert_eq!(show.gets(&far), Some(vec![show.first]), "{forwards}");
        show.cannot_decode(&far, show.first);
        assert_eq!(show.gets(&far), Some(vec![backup]), "{forwards}");
        show.lab.forget();
        show.sections[1].is_sent = false;
        show.answered();
        assert_eq!(show.gets(&far), Some(vec![]), "{forwards}");
    }
}

#[test]
fn who_waits_for_the_backup_of_somebody_who_is_forwarded_has_it_sent() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    show.send_eve(true);
    let adam = show.adam.clone();
    show.lab.forget();
    show.cannot_decode(&adam, show.first);
    assert_eq!(show.gets(&adam), Some(vec![]));
    assert_eq!(show.wanted(), of(3, 3));
}

#[test]
fn who_lacks_the_backup_s_codec_keeps_the_first_when_others_are_given_the_backup() {
    let mut show = Show::new(BackupCodecPolicy::PreferRegression);
    let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
    show.cannot_decode(&adam, show.first);
    let backup = show.publish_backup();
    assert_eq!(show.gets(&bob), Some(vec![backup]));
    show.cannot_decode(&bob, backup);
    assert_eq!(show.gets(&bob), Some(vec![show.first]));
    show.lab.forget();
    show.lab.advance_seconds(10);
    assert_eq!(show.wanted(), None, "both are wanted");
}

#[test]
fn who_could_not_decode_a_forwarded_track_gets_its_backup_when_that_begins() {
    let mut show = Show::new(BackupCodecPolicy::PreferRegression);
    let far = show.lab.enter_as(elsewhere("far"));
    show.send_eve(true);
    assert_eq!(show.lab.downs(&far), [show.sid.clone()]);
    show.cannot_decode(&far, show.first);
    let adam = show.adam.clone();
    show.cannot_decode(&adam, show.first);
    let backup = show.publish_backup();
    assert_eq!(show.gets(&far), Some(vec![backup]));
}

#[test]
fn who_can_decode_neither_is_told_so_once_however_often_the_backup_begins() {
    let mut show = Show::new(BackupCodecPolicy::PreferRegression);
    let (adam, bob) = (show.adam.clone(), show.lab.enter("bob"));
    show.cannot_decode(&adam, show.first);
    let backup = show.publish_backup();
    show.cannot_decode(&bob, backup);
    show.cannot_decode(&bob, show.first);
    assert!(matches!(show.lab.take(&bob).last(), Some(Message::SubscriptionResponse(_))));
    for _ in 0..3 {
        show.sections[1].is_sent = false;
        show.answered();
        show.sections.pop();
        show.publish_backup();
        assert_eq!(show.gets(&bob), None);
    }
}

#[test]
fn a_track_that_waits_for_a_backup_s_id_is_announced_when_the_backup_takes_another() {
    let mut show = Show::new(BackupCodecPolicy::Simulcast);
    let eve = show.eve.clone();
    show.lab.say(&eve, Signal::AddTrack(backup_of(&show.sid, "clone")));
    show.lab.say(&eve, Signal::AddTrack(camera("clone")));
    assert_eq!(show.reasons(&eve), [Reason::Queued]);
    show.lab.say(&eve, Signal::AddTrack(backup_of(&show.sid, "other")));
    let announced = show.lab.take(&eve).into_iter().filter(|message| matches!(message, Message::TrackPublished(_)));
    assert_eq!(announced.count(), 2);
}

#[test]
fn whose_description_does_not_change_leaves_when_the_backup_in_it_ends() {
    let (mut show, _) = Show::with_backup(BackupCodecPolicy::PreferRegression);
    let bob = show.lab.enter("bob");
    let carl = show.lab.enter_as(Join { describes_once: true, ..a_join("carl") });
    show.sections[1].is_sent = false;
    show.answered();
    assert_eq!(show.lab.closed(&bob), None);
    assert!(show.lab.closed(&carl).is_some(), "else it looks at a frozen picture");
}
