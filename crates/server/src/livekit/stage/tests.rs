//! Two workers, one room, and what both are told.

use livekit::media::Down;
use webrtc::{Direction, Red, Up};

use super::*;
use crate::plane::placement;

const ALICE: SessionId = SessionId(1);
const BOB: SessionId = SessionId(2);
const TRACK: TrackId = TrackId(7);

struct Test {
    stage: Stage,
    placement: Placement,
}

impl Test {
    /// Everybody goes to another worker than the last.
    fn new() -> Self {
        let settings = placement::Settings { busy_max: 1.0, near_max: 0.0 };
        Test { stage: Stage::new(2, 100), placement: Placement::new(2, settings) }
    }

    /// Alice publishes a picture, which Bob is to get by the other worker.
    fn with_track(role: Role) -> Self {
        let mut test = Test::new();
        test.open(ALICE, Role::Publisher);
        test.ask(Request::Offer { session: ALICE, sdp: "offer".to_owned(), ups: Vec::new() });
        test.hear(ALICE, ConferenceNotice::Answered(described(vec![up("0")])));
        test.ask(Request::Publish { session: ALICE, mid: "0".to_owned(), track: TRACK });
        test.open(BOB, role);
        test
    }

    fn open(&mut self, session: SessionId, role: Role) {
        let opened = self.ask(opening(session, "RM_1", role));
        assert_eq!(opened, None);
    }

    fn ask(&mut self, request: Request) -> Option<Event> {
        self.stage.handle_request(&mut self.placement, request)
    }

    fn hear(&mut self, session: SessionId, notice: ConferenceNotice) -> Vec<Event> {
        self.stage.handle_notice(Stage::spec_id(session), notice)
    }

    fn want(&mut self, tracks: &[TrackId]) -> Option<Event> {
        let down = |track: &TrackId| Down {
            track: *track,
            stream: "PA_1|TR_1".to_owned(),
            sid: format!("TR_{}", track.0),
            subscription: 1,
            kind: Kind::Video,
        };
        self.ask(Request::SetDown { session: BOB, tracks: tracks.iter().map(down).collect() })
    }

    /// What workers were told, in short.
    fn told(&mut self) -> Vec<String> {
        let short = |(worker, command): (WorkerId, Command)| match command {
            Command::OpenStream(_) => format!("{} open", worker.0),
            Command::CloseStream(_) => format!("{} close", worker.0),
            Command::Mirror { to, on, .. } => format!("{} mirror {} {on}", worker.0, to.0),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| self.stage.poll_command()).map(short).collect()
    }

    /// What negotiators were asked, in short.
    fn asked(&mut self) -> Vec<String> {
        let short = |(worker, ask): (WorkerId, Ask)| match ask.request {
            ConferenceRequest::Open(open) => format!("{} open, offered {}", worker.0, open.offer.is_some()),
            ConferenceRequest::Publish { mid, .. } => format!("{} publish {mid}", worker.0),
            ConferenceRequest::Unpublish { .. } => format!("{} unpublish", worker.0),
            ConferenceRequest::SetDowns(downs) => format!("{} downs {}", worker.0, downs.len()),
            ConferenceRequest::Choose { choice, .. } => {
                let Choice { is_paused, layers, priority } = choice;
                let first = if priority > 0 { format!(", {priority}") } else { String::new() };
                format!("{} choose {is_paused} {}{first}", worker.0, layers.spatial_max)
            }
            ConferenceRequest::Offer { .. } => format!("{} offer", worker.0),
            ConferenceRequest::Data { .. } => format!("{} data", worker.0),
            ConferenceRequest::Hold(on) => format!("{} hold {on}", worker.0),
            ConferenceRequest::Close => format!("{} close", worker.0),
            other => panic!("{other:?}"),
        };
        let asks = self.stage.asks().flat_map(|(worker, asks)| asks.drain(..).map(move |ask| (worker, ask)));
        asks.map(short).collect()
    }
}

fn opening(session: SessionId, room: &str, role: Role) -> Request {
    Request::Open {
        session,
        room: room.to_owned(),
        room_name: room.to_owned(),
        identity: "somebody".to_owned(),
        role,
        wants_data: true,
        wants_packets: false,
    }
}

fn media(mid: &str, direction: Direction) -> Media {
    Media {
        mid: mid.to_owned(),
        direction,
        track: 0,
        codec: Codec::Vp8,
        payload_type: 96,
        rtx_payload_type: None,
        red: None,
        fmtp: String::new(),
        extensions: Vec::new(),
        tx: Vec::new(),
        rx: Vec::new(),
        rids: Vec::new(),
        transport_cc: false,
        reduced_size: true,
    }
}

fn section(mid: &str) -> webrtc::Section {
    webrtc::Section { mid: mid.to_owned(), kind: Some(MediaKind::Video), up: None, down: None }
}

/// One by which a client publishes.
fn up(mid: &str) -> webrtc::Section {
    let up = Up { media: media(mid, Direction::Receive), media_stream: "stream".to_owned(), cid: "cid".to_owned() };
    webrtc::Section { up: Some(up), ..section(mid) }
}

/// One by which it gets the first stream that there was.
fn down(mid: &str) -> webrtc::Section {
    webrtc::Section { down: Some((STREAMS_FROM.into(), media(mid, Direction::Send))), ..section(mid) }
}

fn described(sections: Vec<webrtc::Section>) -> Described {
    Described { sdp: "answer".to_owned(), sections, unplaced: Vec::new(), refused: Vec::new(), restarted: false }
}

#[test]
fn a_track_is_on_its_publishers_worker_and_on_those_of_who_gets_it() {
    let mut test = Test::with_track(Role::Subscriber);
    assert_eq!(test.told(), ["0 open"]);
    assert_eq!(test.asked(), ["0 open, offered true", "0 publish 0", "1 open, offered false"]);
    test.want(&[TRACK]);
    assert_eq!(test.told(), ["1 open", "0 mirror 1 true"]);
    assert_eq!(test.asked(), ["1 choose false 255", "1 downs 1"]);
    test.hear(BOB, ConferenceNotice::Accepted(described(vec![down("1")])));

    // What is wanted no more is silent, and stays until it is described no more.
    test.want(&[]);
    assert!(test.told().is_empty());
    assert_eq!(test.asked(), ["1 choose true 255", "1 downs 0"]);
    test.want(&[TRACK]);
    assert_eq!(test.asked(), ["1 choose false 255", "1 downs 1"]);
    test.want(&[]);
    assert!(test.told().is_empty());
    test.hear(BOB, ConferenceNotice::Accepted(described(vec![section("1")])));
    assert_eq!(test.told(), ["0 mirror 1 false", "1 close"]);
    test.ask(Request::Unpublish { session: ALICE, track: TRACK });
    assert_eq!(test.told(), ["0 close"]);
}

#[test]
fn who_leaves_takes_nothing_along_but_what_is_its_own() {
    let mut test = Test::with_track(Role::Subscriber);
    test.want(&[TRACK]);
    test.told();
    test.asked();
    test.ask(Request::Close { session: BOB });
    assert_eq!(test.told(), ["0 mirror 1 false", "1 close"]);
    assert_eq!(test.asked(), ["1 close"]);
    test.ask(Request::Data { to: vec![BOB], channel: Channel::Lossy, bytes: (*b"late").into() });
    assert!(test.asked().is_empty() && test.hear(BOB, ConferenceNotice::Connected).is_empty());
    test.ask(Request::Unpublish { session: ALICE, track: TRACK });
    test.ask(Request::Close { session: ALICE });
    assert_eq!(test.told(), ["0 close"]);
    assert!(test.stage.rooms.is_empty() && test.stage.counts == [0, 0] && test.stage.by_stream.is_empty());
}

#[test]
fn nobody_gets_a_track_while_it_is_muted_or_others_are_louder() {
    let mut test = Test::with_track(Role::Subscriber);
    test.want(&[TRACK]);
    test.asked();
    let mute = |is_muted| Request::Mute { track: TRACK, is_muted };
    for (is_muted, asked) in [(true, vec!["1 choose true 255"]), (true, vec![]), (false, vec!["1 choose false 255"])] {
        test.ask(mute(is_muted));
        assert_eq!(test.asked(), asked);
    }
    // While others are louder it is the same, and one reason does not end with the other.
    let quiet = |is_quiet| Request::Quiet { track: TRACK, is_quiet };
    test.ask(quiet(true));
    assert_eq!(test.asked(), ["1 choose true 255"]);
    for request in [mute(true), quiet(false)] {
        test.ask(request);
        assert!(test.asked().is_empty());
    }
    test.ask(mute(false));
    assert_eq!(test.asked(), ["1 choose false 255"]);
    // Who comes meanwhile gets nothing either.
    test.want(&[]);
    test.ask(mute(true));
    test.want(&[TRACK]);
    assert_eq!(test.asked(), ["1 downs 0", "1 choose true 255", "1 downs 1"]);
}

#[test]
fn a_client_that_offers_is_asked_for_as_many_sections_as_it_lacks() {
    let mut test = Test::with_track(Role::Both);
    test.want(&[TRACK]);
    assert_eq!(test.asked(), ["0 open, offered true", "0 publish 0"], "it has not offered yet");
    test.ask(Request::Offer { session: BOB, sdp: "offer".to_owned(), ups: Vec::new() });
    assert_eq!(test.asked(), ["1 open, offered true", "1 choose false 255"]);
    let need = |video| Event::NeedSections { session: BOB, audio: 0, video };
    let heard = test.hear(BOB, ConferenceNotice::Answered(described(vec![up("0")])));
    assert_eq!(heard.last(), Some(&need(1)), "it cannot get anything where it has published");
    assert_eq!(test.want(&[TRACK]), Some(need(0)), "it was asked already");
    test.ask(Request::Offer { session: BOB, sdp: "offer".to_owned(), ups: Vec::new() });
    let heard = test.hear(BOB, ConferenceNotice::Answered(described(vec![section("0"), down("1")])));
    let [Event::Answered { sections, has_data: false, .. }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(sections[1].down.as_deref(), Some("TR_7"));

    // A section that is free is taken again, with an offer that asks for nothing new.
    assert_eq!(test.want(&[]), Some(need(0)));
    test.hear(BOB, ConferenceNotice::Answered(described(vec![section("0"), section("1")])));
    assert_eq!(test.want(&[TRACK]), Some(need(0)));
}

/// The first stream that there was is refused.
fn refused(sections: Vec<webrtc::Section>) -> Described {
    Described { refused: vec![STREAMS_FROM.into()], ..described(sections) }
}

#[test]
fn a_track_that_a_client_cannot_take_is_wanted_no_more() {
    let mut test = Test::with_track(Role::Subscriber);
    test.want(&[TRACK]);
    test.told();
    let heard = test.hear(BOB, ConferenceNotice::Accepted(refused(vec![section("1")])));
    assert_eq!(heard, [Event::Unsupported { session: BOB, track: TRACK }]);
    assert_eq!(test.told(), ["0 mirror 1 false", "1 close"]);
}

#[test]
fn a_client_that_offers_is_asked_for_no_more_sections_when_one_lacks_the_codec() {
    let mut test = Test::with_track(Role::Both);
    test.want(&[TRACK]);
    let mut offer = |sections| {
        test.ask(Request::Offer { session: BOB, sdp: "offer".to_owned(), ups: Vec::new() });
        test.hear(BOB, ConferenceNotice::Answered(refused(sections)))
    };
    // What it publishes may be of one codec alone.
    let need = Event::NeedSections { session: BOB, audio: 0, video: 1 };
    assert_eq!(offer(vec![up("0")])[1..], [need]);
    assert_eq!(offer(vec![up("0"), section("1")])[1..], [Event::Unsupported { session: BOB, track: TRACK }]);
}

#[test]
fn choices_are_the_layers_of_qualities_and_hold_together() {
    let mut test = Test::with_track(Role::Subscriber);
    test.want(&[TRACK]);
    test.asked();
    let limit = |layer, fps, priority| Request::Limit { session: BOB, track: TRACK, layer, fps, priority };
    test.ask(limit(Layer::Medium, 15, 0));
    test.ask(Request::Pause { session: BOB, track: TRACK, is_paused: true });
    test.ask(limit(Layer::High, 0, 2));
    assert_eq!(test.asked(), ["1 choose false 1", "1 choose true 1", "1 choose true 255, 2"]);
}

#[test]
fn of_a_new_subscription_nothing_is_chosen_yet() {
    let mut test = Test::with_track(Role::Subscriber);
    let down = |subscription| Down {
        track: TRACK,
        stream: "PA_1|TR_1".to_owned(),
        sid: "TR_1".to_owned(),
        subscription,
        kind: Kind::Video,
    };
    let want = |test: &mut Test, subscription| {
        test.ask(Request::SetDown { session: BOB, tracks: vec![down(subscription)] });
        test.asked()
    };
    want(&mut test, 1);
    test.ask(Request::Pause { session: BOB, track: TRACK, is_paused: true });
    assert_eq!(test.asked(), ["1 choose true 255"]);
    assert_eq!(want(&mut test, 1), ["1 downs 1"]);
    assert_eq!(want(&mut test, 2), ["1 choose false 255", "1 downs 1"]);
}

#[test]
fn where_no_worker_has_room_nobody_is_let_in() {
    let mut test = Test::new();
    test.stage.sessions_max = 1;
    for session in [ALICE, BOB] {
        test.open(session, Role::Both);
    }
    let third = opening(SessionId(3), "RM_2", Role::Both);
    assert!(matches!(test.ask(third), Some(Event::Refused { session: SessionId(3), .. })));
}

#[test]
fn more_data_than_a_negotiator_takes_is_dropped() {
    let mut test = Test::with_track(Role::Subscriber);
    test.asked();
    for _ in 0..=DATA_WAITING_MAX {
        test.ask(Request::Data { to: vec![BOB], channel: Channel::Reliable, bytes: (*b"much").into() });
    }
    assert_eq!((test.asked().len(), test.stage.data_dropped()), (DATA_WAITING_MAX, 1));
}

#[test]
fn what_else_waits_takes_no_room_from_data() {
    let mut test = Test::with_track(Role::Subscriber);
    test.want(&[TRACK]);
    test.asked();
    for change in 0..=DATA_WAITING_MAX {
        test.ask(Request::Quiet { track: TRACK, is_quiet: change % 2 == 0 });
    }
    test.ask(Request::Data { to: vec![BOB], channel: Channel::Reliable, bytes: (*b"more").into() });
    let asked = test.asked();
    assert!(asked.len() > DATA_WAITING_MAX, "{} wait", asked.len());
    assert_eq!((asked.last().map(String::as_str), test.stage.data_dropped()), (Some("1 data"), 0));
}

#[test]
fn who_is_behind_is_told_of_and_who_is_held_is_held_by_its_negotiator() {
    let mut test = Test::with_track(Role::Subscriber);
    test.asked();
    for (event, is_behind) in [(ChannelEvent::Behind, true), (ChannelEvent::CaughtUp, false)] {
        let heard = test.hear(BOB, ConferenceNotice::Channel(event));
        assert_eq!(heard, [Event::Behind { session: BOB, is_behind }]);
        test.ask(Request::Hold { session: ALICE, on: is_behind });
    }
    assert_eq!((test.asked(), test.stage.data_holds()), (vec!["0 hold true".to_owned(), "0 hold false".into()], 1));
}

#[test]
fn what_comes_by_a_channel_of_another_name_is_a_message_of_its_sender() {
    let mut test = Test::with_track(Role::Subscriber);
    let heard = test.hear(BOB, ConferenceNotice::Channel(ChannelEvent::Other { data: b"hello".to_vec() }));
    let [Event::Data { session: BOB, channel: Channel::Reliable, bytes }] = &heard[..] else { panic!("{heard:?}") };
    let packet = DataPacket::decode(&bytes[..]).expect("a packet");
    assert!(matches!(packet.value, Some(data_packet::Value::User(user)) if user.payload == b"hello"));
}

#[test]
fn a_pause_for_want_of_bandwidth_is_told_of_the_track_while_there_is_one() {
    let mut test = Test::with_track(Role::Subscriber);
    test.want(&[TRACK]);
    let stream = StreamId(STREAMS_FROM);
    let told = test.stage.handle_pause(Stage::spec_id(BOB), stream, true);
    assert_eq!(told, [Event::Active { session: BOB, track: TRACK, is_active: false }]);
    test.ask(Request::Unpublish { session: ALICE, track: TRACK });
    assert!(test.stage.handle_pause(Stage::spec_id(BOB), stream, false).is_empty());
    assert!(test.stage.handle_pause(spec::SessionId(7), stream, false).is_empty(), "a viewer of a broadcast");
}

#[test]
fn sound_is_red_where_its_publisher_names_that_first_and_opus_to_who_takes_it() {
    let mut test = Test::new();
    test.open(ALICE, Role::Publisher);
    test.ask(Request::Offer { session: ALICE, sdp: "offer".to_owned(), ups: Vec::new() });
    let mut named = |red: Option<Red>| {
        let media = Media { codec: Codec::Opus, payload_type: 111, red, ..media("0", Direction::Receive) };
        let up = Some(Up { media, media_stream: "stream".to_owned(), cid: "mic".to_owned() });
        let section = webrtc::Section { kind: Some(MediaKind::Audio), up, ..section("0") };
        let heard = test.hear(ALICE, ConferenceNotice::Answered(described(vec![section])));
        let [Event::Answered { sections, .. }] = &heard[..] else { panic!("{heard:?}") };
        sections[0].codec.clone()
    };
    let red = |is_preferred| Some(Red { payload_type: 63, is_preferred });
    assert_eq!([None, red(false), red(true)].map(&mut named), ["audio/opus", "audio/opus", "audio/red"]);
    assert_eq!(["audio/red", "audio/opus", "audio/g722"].map(codec_of), [Some(Codec::Opus), Some(Codec::Opus), None]);
}

#[test]
fn layers_are_told_from_the_smallest_picture_to_the_largest_however_they_are_offered() {
    let mut test = Test::new();
    test.open(ALICE, Role::Publisher);
    test.ask(Request::Offer { session: ALICE, sdp: "offer".to_owned(), ups: Vec::new() });
    let rx = vec![(3, Some(33)), (2, Some(22)), (1, Some(11))];
    let rids = ["f", "h", "q"].map(str::to_owned).into();
    let media = Media { rids, rx, ..media("0", Direction::Receive) };
    let up = Some(Up { media, media_stream: "stream".to_owned(), cid: "cam".to_owned() });
    let heard = test.hear(ALICE, ConferenceNotice::Answered(described(vec![webrtc::Section { up, ..section("0") }])));
    let [Event::Answered { sections, .. }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(sections[0].rids, ["q", "h", "f"]);
    assert_eq!(sections[0].ssrcs, [(1, Some(11)), (2, Some(22)), (3, Some(33))]);
}
