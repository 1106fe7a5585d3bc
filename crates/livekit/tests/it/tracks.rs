use livekit::join::Join;
use livekit::media::{Event, Kind, Request, Section};
use livekit::proto::client_info::Sdk;
use livekit::proto::request_response::Reason;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    AddTrackRequest, AudioTrackFeature, ClientInfo, GetDataBlobRequest, MuteTrackRequest, ParticipantPermission,
    PublishDataTrackRequest, SimulcastCodec, StoreDataBlobRequest, TrackType, UpdateLocalAudioTrack,
    UpdateLocalVideoTrack, UpdateParticipantRequest, VideoLayer, VideoQuality,
};
use livekit::token::VideoGrant;

use crate::support::{Client, Lab, a_join, camera, join_granted, microphone, section};

fn reasons(lab: &mut Lab, client: &Client) -> Vec<Reason> {
    let responses = lab.take(client).into_iter().filter_map(|message| match message {
        Message::RequestResponse(response) => Some(response.reason()),
        _ => None,
    });
    responses.collect()
}

fn mute(sid: &str, muted: bool) -> Signal {
    Signal::Mute(MuteTrackRequest { sid: sid.into(), muted })
}

#[test]
fn a_track_is_published_when_a_section_carries_it() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.forget();
    lab.say(&eve, Signal::AddTrack(camera("cam")));
    let messages = lab.take(&eve);
    let [Message::TrackPublished(published)] = &messages[..] else { panic!("{messages:?}") };
    let sid = published.track.as_ref().expect("a track").sid.clone();
    assert!(published.cid == "cam" && sid.starts_with("TR_VC"));
    assert!(lab.take_updates(&adam).is_empty() && lab.take_webhooks().is_empty());

    let session = lab.offer(&eve);
    lab.hear(Event::Answered {
        session,
        sdp: "".into(),
        sections: vec![section("3", Kind::Video, "cam")],
        has_data: true,
    });
    assert_eq!(lab.take_webhooks(), ["track_published"]);
    let track = lab.take_updates(&adam).remove(0).tracks.remove(0);
    assert_eq!((track.sid, track.mid.as_str(), track.mime_type.as_str()), (sid, "3", "video/VP8"));
}

#[test]
#[allow(deprecated)]
fn each_layer_says_how_it_comes_as_far_as_the_section_tells() {
    let layer = |quality: VideoQuality| VideoLayer { quality: quality as i32, width: 640, ..VideoLayer::default() };
    let layers = vec![layer(VideoQuality::High), layer(VideoQuality::Low), layer(VideoQuality::Medium)];
    let named = vec![(1, Some(11)), (2, Some(22)), (3, None)];
    for (rids, ssrcs, expected) in [
        (vec!["q", "h", "f"], named, [("q", 1, 11), ("h", 2, 22), ("f", 3, 0)]),
        // Browsers name no SSRCs of simulcast layers, and without simulcast the only one.
        (vec!["q", "h", "f"], vec![], [("q", 0, 0), ("h", 0, 0), ("f", 0, 0)]),
        (vec![], vec![(1, Some(11))], [("", 1, 11), ("", 0, 0), ("", 0, 0)]),
    ] {
        let mut lab = Lab::new();
        let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
        lab.say(&eve, Signal::AddTrack(AddTrackRequest { layers: layers.clone(), ..camera("cam") }));
        let session = lab.offer(&eve);
        lab.forget();
        let rids = rids.into_iter().map(str::to_owned).collect();
        let sections = vec![Section { rids, ssrcs, ..section("0", Kind::Video, "cam") }];
        lab.hear(Event::Answered { session, sdp: "".into(), sections, has_data: true });
        let track = lab.take_updates(&adam).remove(0).tracks.remove(0);
        assert_eq!(track.layers, track.codecs[0].layers);
        for ((place, layer), (rid, ssrc, repair_ssrc)) in (0..).zip(&track.layers).zip(expected) {
            assert_eq!((layer.quality, layer.width, layer.spatial_layer), (place, 640, place));
            assert_eq!((layer.rid.as_str(), layer.ssrc, layer.repair_ssrc), (rid, ssrc, repair_ssrc));
        }
        assert_eq!(track.layers.len(), 3);
    }
}

#[test]
fn a_section_is_matched_by_its_mid_when_it_names_no_track() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.say(&eve, Signal::AddTrack(camera("7")));
    lab.say(&eve, Signal::AddTrack(camera("8")));
    let session = lab.offer(&eve);
    let mut eighth = section("8", Kind::Video, "");
    eighth.cid = None;
    lab.forget();
    lab.hear(Event::Answered { session, sdp: "".into(), sections: vec![eighth], has_data: true });
    assert_eq!(lab.take_media().len(), 1);
    assert_eq!(lab.rooms.sizes().tracks, 1);
    // The other still waits: it is not taken for one of the other's sections.
    lab.say(&eve, Signal::AddTrack(camera("7")));
    assert_eq!(reasons(&mut lab, &eve), [Reason::Queued]);
}

#[test]
fn a_section_with_a_name_that_was_not_announced_is_the_first_of_its_kind() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.say(&eve, Signal::AddTrack(microphone("mic")));
    lab.say(&eve, Signal::AddTrack(camera("cam")));
    let session = lab.offer(&eve);
    let sections = vec![section("0", Kind::Video, "{renamed}")];
    lab.hear(Event::Answered { session, sdp: "".into(), sections, has_data: true });
    let published = lab.take_updates(&eve);
    assert!(published.is_empty() || published[0].tracks.len() <= 1);
    assert_eq!(lab.rooms.sizes().tracks, 1);
}

#[test]
fn a_section_that_is_left_over_does_not_take_a_track_that_has_its_own() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.say(&eve, Signal::AddTrack(camera("cam")));
    let session = lab.offer(&eve);
    lab.forget();
    let sections = vec![section("0", Kind::Video, "left over"), section("1", Kind::Video, "cam")];
    lab.hear(Event::Answered { session, sdp: "".into(), sections, has_data: true });
    let published = lab.take_media();
    assert!(matches!(&published[..], [Request::Publish { mid, .. }] if mid == "1"), "{published:?}");
}

#[test]
fn a_track_whose_section_carries_nothing_any_more_has_ended() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    lab.publish(&eve, camera("cam"));
    lab.forget();
    lab.unpublish(&eve, "cam");
    assert!(lab.take_updates(&adam)[0].tracks.is_empty());
    assert_eq!(lab.take_webhooks(), ["track_unpublished"]);
    assert!(lab.take_media().iter().any(|request| matches!(request, Request::Unpublish { .. })));
    assert_eq!(lab.rooms.sizes().tracks, 0);
}

#[test]
fn a_section_that_carries_another_track_ends_the_first_and_publishes_the_second() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let first = lab.publish(&eve, camera("cam"));
    lab.say(&eve, Signal::AddTrack(camera("other")));
    let session = lab.offer(&eve);
    lab.forget();
    let sections = vec![section("0", Kind::Video, "other")];
    lab.hear(Event::Answered { session, sdp: "".into(), sections, has_data: true });
    assert_eq!(lab.take_webhooks(), ["track_unpublished", "track_published"]);
    assert_eq!(lab.rooms.sizes().tracks, 1);
    lab.say(&eve, mute(&first, true));
    assert_eq!(reasons(&mut lab, &eve), [Reason::NotFound]);
}

#[test]
fn a_track_that_is_announced_twice_waits_for_the_first_to_end() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.publish(&eve, camera("cam"));
    lab.forget();
    lab.say(&eve, Signal::AddTrack(camera("cam")));
    assert_eq!(reasons(&mut lab, &eve), [Reason::Queued]);
    lab.unpublish(&eve, "cam");
    assert!(lab.take(&eve).iter().any(|message| matches!(message, Message::TrackPublished(_))));
}

#[test]
fn muting_is_told_to_everybody_and_to_the_packet_path() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, microphone("mic"));
    let track = lab.last_track();
    lab.forget();
    lab.say(&eve, mute(&sid, true));
    assert!(lab.take_updates(&adam)[0].tracks[0].muted && lab.take_updates(&eve)[0].tracks[0].muted);
    assert_eq!(lab.take_media(), [Request::Mute { track, is_muted: true }]);
    lab.say(&eve, mute(&sid, true));
    assert!(lab.take_updates(&adam).is_empty() && lab.take_media().is_empty());
}

#[test]
fn a_track_that_is_announced_muted_is_published_muted() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    lab.publish(&eve, AddTrackRequest { muted: true, ..microphone("mic") });
    let track = lab.last_track();
    assert!(lab.take_media().contains(&Request::Mute { track, is_muted: true }));
}

#[test]
fn nobody_mutes_a_track_of_somebody_else() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, microphone("mic"));
    lab.forget();
    lab.say(&adam, mute(&sid, true));
    assert_eq!(reasons(&mut lab, &adam), [Reason::NotFound]);
    assert!(lab.take(&eve).is_empty());
}

#[test]
fn who_may_not_publish_a_source_is_told_so() {
    let mut lab = Lab::new();
    let grant = VideoGrant { can_publish_sources: vec!["microphone".into()], ..VideoGrant::default() };
    let eve = lab.enter_as(join_granted("eve", grant));
    lab.forget();
    lab.say(&eve, Signal::AddTrack(camera("cam")));
    assert_eq!(reasons(&mut lab, &eve), [Reason::NotAllowed]);
    lab.publish(&eve, microphone("mic"));
}

#[test]
fn a_data_track_is_not_taken_for_media() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    lab.say(&eve, Signal::AddTrack(AddTrackRequest { r#type: TrackType::Data as i32, ..camera("cam") }));
    assert_eq!(reasons(&mut lab, &eve), [Reason::UnsupportedType]);
}

#[test]
fn a_device_whose_h264_is_bad_publishes_another_codec() {
    let mut lab = Lab::new();
    let os = "android".to_owned();
    let client = ClientInfo { os, device_model: "Xiaomi 2201117TI".into(), ..ClientInfo::default() };
    let eve = lab.enter_as(Join { client, ..a_join("eve") });
    assert_eq!(lab.take_join(&eve).enabled_publish_codecs.len(), 2);
    let codecs = vec![SimulcastCodec { codec: "video/h264".into(), cid: "cam".into(), ..SimulcastCodec::default() }];
    lab.say(&eve, Signal::AddTrack(AddTrackRequest { simulcast_codecs: codecs, ..camera("cam") }));
    lab.forget();
    lab.offer(&eve);
    let asked = lab.take_media();
    let [Request::Open { .. }, Request::Offer { ups, .. }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(ups[0].codecs, ["video/VP8"]);
}

#[test]
fn a_client_of_pion_has_its_other_codecs_in_the_answer_too() {
    for (sdk, count) in [(Sdk::Go, 3), (Sdk::Js, 0)] {
        let mut lab = Lab::new();
        let client = ClientInfo { sdk: sdk as i32, ..ClientInfo::default() };
        let eve = lab.enter_as(Join { client, ..a_join("eve") });
        lab.say(&eve, Signal::AddTrack(camera("cam")));
        lab.offer(&eve);
        let asked = lab.take_media();
        let Some(Request::Offer { ups, .. }) = asked.last() else { panic!("{asked:?}") };
        assert_eq!(ups[0].others.len(), count);
    }
}

#[test]
fn a_client_of_pion_is_sent_something_of_each_track_since_it_hears_of_none_before() {
    for (sdk, expected) in [(Sdk::Go, true), (Sdk::Js, false), (Sdk::Rust, false)] {
        let mut lab = Lab::new();
        let client = ClientInfo { sdk: sdk as i32, ..ClientInfo::default() };
        lab.enter_as(Join { client, ..a_join("eve") });
        let asked = lab.take_media();
        let [Request::Open { wants_packets, .. }, ..] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(*wants_packets, expected, "{sdk:?}");
    }
}

#[test]
fn who_may_publish_no_more_loses_its_tracks_at_once() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let sid = lab.publish(&eve, camera("cam"));
    lab.forget();
    let permission = ParticipantPermission { can_subscribe: true, ..ParticipantPermission::default() };
    let request = UpdateParticipantRequest {
        room: "room".into(),
        identity: "eve".into(),
        permission: Some(permission),
        ..UpdateParticipantRequest::default()
    };
    lab.admin(livekit::admin::Request::UpdateParticipant(request)).expect("a participant");
    let unpublished = lab.take(&eve).into_iter().any(|message| match message {
        Message::TrackUnpublished(unpublished) => unpublished.track_sid == sid,
        _ => false,
    });
    assert!(unpublished);
    assert!(lab.take_updates(&adam)[0].tracks.is_empty() && lab.downs(&adam).is_empty());
}

#[test]
fn what_a_track_is_changes_while_it_is_published() {
    let mut lab = Lab::new();
    let (adam, eve) = (lab.enter("adam"), lab.enter("eve"));
    let (mic, cam) = (lab.publish(&eve, microphone("mic")), lab.publish(&eve, camera("cam")));
    lab.forget();
    let features = vec![AudioTrackFeature::TfStereo as i32];
    lab.say(&eve, Signal::UpdateAudioTrack(UpdateLocalAudioTrack { track_sid: mic, features: features.clone() }));
    lab.say(&eve, Signal::UpdateVideoTrack(UpdateLocalVideoTrack { track_sid: cam, width: 64, height: 48 }));
    let tracks = lab.take_updates(&adam).remove(0).tracks;
    assert_eq!(tracks[0].audio_features, features);
    assert_eq!((tracks[1].width, tracks[1].height), (64, 48));
    lab.say(&eve, Signal::UpdateVideoTrack(UpdateLocalVideoTrack { track_sid: "TR_no".into(), width: 1, height: 1 }));
    assert_eq!(reasons(&mut lab, &eve), [Reason::NotFound]);
}

#[test]
fn another_codec_of_a_track_leaves_the_track_as_it_is() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    let sid = lab.publish(&eve, camera("cam"));
    lab.forget();
    lab.say(&eve, Signal::AddTrack(AddTrackRequest { sid: sid.clone(), ..camera("backup") }));
    let messages = lab.take(&eve);
    assert!(
        matches!(&messages[..], [Message::TrackPublished(published)] if published.track.as_ref().expect("a track").sid == sid)
    );
    lab.say(&eve, Signal::AddTrack(AddTrackRequest { sid: "TR_no".into(), ..camera("backup") }));
    assert_eq!(reasons(&mut lab, &eve), [Reason::NotFound]);
}

#[test]
fn who_asks_for_data_tracks_or_blobs_is_told_that_they_are_turned_off() {
    let mut lab = Lab::new();
    let eve = lab.enter("eve");
    lab.forget();
    lab.say(&eve, Signal::PublishDataTrackRequest(PublishDataTrackRequest::default()));
    lab.say(&eve, Signal::StoreDataBlobRequest(StoreDataBlobRequest { request_id: 7, blob: None }));
    lab.say(&eve, Signal::GetDataBlobRequest(GetDataBlobRequest { request_id: 8, ..GetDataBlobRequest::default() }));
    let answered = lab.take(&eve).into_iter().filter_map(|message| match message {
        Message::RequestResponse(response) => Some((response.request_id, response.reason())),
        _ => None,
    });
    assert_eq!(answered.collect::<Vec<_>>(), [(0, Reason::NotAllowed), (7, Reason::NotAllowed), (8, Reason::NotFound)]);
}
