//! Sessions of conferences.

use webrtc::{Conference, ConferenceOptions, Down};

use super::*;
use rooms::spec::LayerLimit;

use crate::rooms::negotiator::conference::{Choice, ConferenceNotice, ConferenceRequest, Open, Watched};
use crate::rooms::negotiator::member::Member;

const MEMBER: SessionId = SessionId(1);

impl Harness {
    fn ask(&mut self, request: ConferenceRequest) {
        let request = Request::Conference { session: MEMBER, request };
        self.negotiator.handle(self.now, Input::Request(request));
    }

    fn open(&mut self, offer: Option<String>, downs: Vec<Watched>) {
        self.open_as(offer, downs, false);
    }

    fn open_as(&mut self, offer: Option<String>, downs: Vec<Watched>, wants_packets: bool) {
        let offer = offer.map(|sdp| (sdp, Vec::new()));
        let client = place(1, Role::Viewer).client;
        let open = Open { client, offer, downs, wants_data: true, wants_packets, cname: "room".into() };
        self.ask(ConferenceRequest::Open(Box::new(open)));
    }

    /// What was said since the last call.
    fn said(&self) -> Vec<ConferenceNotice> {
        let notices = std::mem::take(&mut self.heard.borrow_mut().notices);
        let of_members = notices.into_iter().filter_map(|notice| match notice {
            Notice::Conference { session: MEMBER, notice } => Some(notice),
            Notice::Reached { .. } => None,
            other => panic!("{other:?}"),
        });
        of_members.collect()
    }

    /// A client whose offer opens the session, once it is connected.
    fn member(&mut self, options: &OfferOptions<'_>, downs: Vec<Watched>) -> (Client, String) {
        self.member_as(options, downs, false)
    }

    fn member_as(&mut self, options: &OfferOptions<'_>, downs: Vec<Watched>, wants_packets: bool) -> (Client, String) {
        let (mut peer, offer) = Peer::offer(&self.context, self.now, options).unwrap();
        self.open_as(Some(offer.clone()), downs, wants_packets);
        let said = self.said();
        let [ConferenceNotice::Answered(described)] = &said[..] else { panic!("{said:?}") };
        peer.accept_answer(&described.sdp).unwrap();
        let path = Path { link: LinkId::datagrams(1), remote: ([127, 0, 0, 1], 9_001).into(), local: None };
        (Client { peer, path, keys: None, has_ended: false }, offer)
    }
}

fn watched(stream: u32, codec: Codec) -> Watched {
    let (media_stream, track) = (format!("PA_1|TR_{stream}"), format!("TR_{stream}"));
    let down = Down { id: 0, codec, fmtp: String::new(), red: false, media_stream, track, subscription: 0 };
    Watched { stream: StreamId(stream), down }
}

/// Names of commands, with the stream where they are about one.
fn names(commands: &[Command]) -> Vec<String> {
    let name = |command: &Command| match command {
        Command::AddMember(_) => "add".to_owned(),
        Command::Publish { stream, .. } => format!("publish {}", stream.0),
        Command::Unpublish { stream, .. } => format!("unpublish {}", stream.0),
        Command::Watch { stream, .. } => format!("watch {}", stream.0),
        Command::Announce { stream, .. } => format!("announce {}", stream.0),
        Command::Unwatch { stream, .. } => format!("unwatch {}", stream.0),
        Command::LimitStream { stream, layers, .. } => format!("limit {} to {}", stream.0, layers.spatial_max),
        Command::Pause { stream, on, .. } => format!("pause {} {on}", stream.0),
        Command::RemoveSession(_) => "remove".to_owned(),
        Command::Consent { .. } | Command::AnswerChecks { .. } => "consent".to_owned(),
        other => panic!("{other:?}"),
    };
    commands.iter().map(name).filter(|name| name != "consent").collect()
}

#[test]
fn a_member_that_offers_gets_what_is_wanted_and_its_worker_is_told_when_it_is_connected() {
    let mut harness = Harness::new();
    let downs = vec![watched(11, Codec::Opus), watched(12, Codec::Vp8)];
    let (mut client, offer) = harness.member(&WATCH, downs);
    assert!(harness.commands().is_empty(), "an offer alone does nothing on a worker");
    harness.run(&mut [&mut client], Duration::from_secs(1));
    assert!(matches!(harness.said()[..], [ConferenceNotice::Connected]));
    assert_eq!(names(&harness.commands()), ["add", "watch 11", "watch 12"]);

    // One is replaced by another, which waits until the section was idle once.
    harness.ask(ConferenceRequest::SetDowns(vec![watched(11, Codec::Opus), watched(13, Codec::Vp8)]));
    assert!(harness.said().is_empty() && harness.commands().is_empty(), "that is for the next offer");
    for (unplaced, commands) in [(vec![13], vec!["unwatch 12"]), (vec![], vec!["watch 13"])] {
        harness.ask(ConferenceRequest::Offer { sdp: offer.clone(), ups: Vec::new() });
        let said = harness.said();
        let [ConferenceNotice::Answered(described)] = &said[..] else { panic!("{said:?}") };
        assert_eq!(described.unplaced, unplaced);
        assert_eq!(names(&harness.commands()), commands);
    }

    harness.ask(ConferenceRequest::Close);
    assert!(matches!(harness.said()[..], [ConferenceNotice::Ended(EndReason::Asked)]));
    assert_eq!(names(&harness.commands()), ["remove"]);
    assert_eq!(harness.counted().sessions, 0);
}

#[test]
fn who_hears_of_tracks_by_their_packets_is_announced_each_that_it_gets() {
    let mut harness = Harness::new();
    let (mut client, offer) = harness.member_as(&WATCH, vec![watched(12, Codec::Vp8)], true);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    assert_eq!(names(&harness.commands()), ["add", "watch 12", "announce 12"]);
    harness.ask(ConferenceRequest::SetDowns(vec![watched(11, Codec::Opus), watched(12, Codec::Vp8)]));
    harness.ask(ConferenceRequest::Offer { sdp: offer, ups: Vec::new() });
    assert_eq!(names(&harness.commands()), ["watch 11", "announce 11"]);
}

#[test]
fn what_a_member_publishes_is_a_stream_from_when_it_is_said_to_be_one() {
    let mut harness = Harness::new();
    let (mut client, offer) = harness.member(&PUBLISH, Vec::new());
    harness.ask(ConferenceRequest::Publish { mid: "0".into(), stream: StreamId(21) });
    harness.ask(ConferenceRequest::Publish { mid: "nothing".into(), stream: StreamId(22) });
    let said = harness.said();
    assert!(matches!(said[..], [ConferenceNotice::Refused(NegotiationError::Sdp(webrtc::Error::NoMedia(_)))]));
    harness.run(&mut [&mut client], Duration::from_secs(1));
    assert_eq!(names(&harness.commands()), ["add", "publish 21"]);
    harness.ask(ConferenceRequest::Publish { mid: "1".into(), stream: StreamId(22) });
    assert_eq!(names(&harness.commands()), ["publish 22"]);
    harness.ask(ConferenceRequest::Unpublish { stream: StreamId(21) });
    assert_eq!(names(&harness.commands()), ["unpublish 21"]);
    // Its section falls silent.
    harness.ask(ConferenceRequest::Offer { sdp: offer.replace("a=sendonly", "a=inactive"), ups: Vec::new() });
    assert_eq!(names(&harness.commands()), ["unpublish 22"]);
}

#[test]
fn what_is_chosen_for_a_stream_holds_from_when_the_peer_gets_it() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.member(&WATCH, vec![watched(12, Codec::Vp8)]);
    let low = LayerLimit { spatial_max: 0, ..LayerLimit::NONE };
    let choose = |harness: &mut Harness, is_paused, layers| {
        harness
            .ask(ConferenceRequest::Choose { stream: StreamId(12), choice: Choice { is_paused, layers, priority: 0 } });
        names(&harness.commands())
    };
    assert!(choose(&mut harness, true, low).is_empty());
    harness.run(&mut [&mut client], Duration::from_secs(1));
    assert_eq!(names(&harness.commands()), ["add", "watch 12", "limit 12 to 0", "pause 12 true"]);
    assert_eq!(choose(&mut harness, false, low), ["pause 12 false"]);
    assert_eq!(choose(&mut harness, false, LayerLimit::NONE), ["limit 12 to 255"]);
    assert!(choose(&mut harness, false, LayerLimit::NONE).is_empty());
}

#[test]
fn where_the_server_offers_a_second_offer_waits_until_the_peer_has_connected() {
    let mut harness = Harness::new();
    harness.open(None, vec![watched(11, Codec::Opus)]);
    let said = harness.said();
    let [ConferenceNotice::Offered { sdp: offer }] = &said[..] else { panic!("{said:?}") };
    harness.ask(ConferenceRequest::SetDowns(vec![watched(11, Codec::Opus), watched(12, Codec::Vp8)]));
    assert!(harness.said().is_empty());

    harness.ask(ConferenceRequest::Answer { sdp: "v=0\r\n".into() });
    assert!(matches!(harness.said()[..], [ConferenceNotice::Refused(_)]));
    harness.ask(ConferenceRequest::Answer { sdp: answer_to(offer) });
    let said = harness.said();
    let [ConferenceNotice::Accepted(described)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(described.sections.iter().filter(|section| section.down.is_some()).count(), 1);
    // Who never comes is dropped.
    harness.run(&mut [], Duration::from_secs(31));
    assert!(matches!(harness.said()[..], [ConferenceNotice::Ended(EndReason::HandshakeTimeout)]));
}

#[test]
fn where_the_server_offers_what_changes_meanwhile_waits_for_the_answer() {
    let (context, now) = (Context::new().unwrap(), Instant::now());
    let (mut peer, conference) = Conference::offerer(&context, now, taking_all()).unwrap();
    let mut member = Member::new(conference, "room".into(), false);
    let mut ask = |member: &mut Member, request| member.handle(now, MEMBER, &mut peer, request).notices;
    let first = ask(&mut member, ConferenceRequest::Restart);
    let [ConferenceNotice::Offered { sdp: first }] = &first[..] else { panic!("{first:?}") };
    assert!(ask(&mut member, ConferenceRequest::Answer { sdp: answer_to(first) }).len() == 1);
    let mut wanted = vec![watched(11, Codec::Opus)];
    assert!(ask(&mut member, ConferenceRequest::SetDowns(wanted.clone())).is_empty(), "it has not connected yet");

    let second = member.handle_connected(&mut peer).notices;
    let [ConferenceNotice::Offered { sdp: second }] = &second[..] else { panic!("{second:?}") };
    assert!(second.contains("a=msid:PA_1|TR_11 TR_11\r\n"), "{second}");
    let mut ask = |member: &mut Member, request| member.handle(now, MEMBER, &mut peer, request).notices;
    wanted.push(watched(12, Codec::Vp8));
    assert!(ask(&mut member, ConferenceRequest::SetDowns(wanted)).is_empty(), "an offer waits for its answer");
}

fn taking_all() -> ConferenceOptions {
    ConferenceOptions { candidates: [].into(), cname: "client".into(), wants_data: true, codecs: Codec::ALL.into() }
}

/// What a client would answer that takes all.
fn answer_to(offer: &str) -> String {
    let context = Context::new().unwrap();
    let (mut peer, mut conference) = Conference::answerer(&context, Instant::now(), taking_all()).unwrap();
    let offer = offer.replace("a=ice-lite\r\n", "");
    let answer = conference.answer(&mut peer, Instant::now(), &offer).unwrap().sdp;
    answer.replace("a=ice-lite\r\n", "").replace("a=setup:passive", "a=setup:active")
}

#[test]
fn an_offer_that_cannot_be_read_opens_nothing_and_nothing_is_asked_of_who_is_not_there() {
    let mut harness = Harness::new();
    harness.open(Some("nonsense".into()), Vec::new());
    assert!(matches!(harness.said()[..], [ConferenceNotice::Refused(NegotiationError::Sdp(_))]));
    harness.ask(ConferenceRequest::Restart);
    harness.ask(ConferenceRequest::Close);
    harness.ask(ConferenceRequest::SetDowns(Vec::new()));
    assert!(harness.said().is_empty());
    assert_eq!((harness.counted().sessions, harness.counted().refused), (0, 1));

    // One that is there is not opened again.
    let (_client, offer) = harness.member(&WATCH, Vec::new());
    harness.open(Some(offer), Vec::new());
    assert!(matches!(harness.said()[..], [ConferenceNotice::Refused(NegotiationError::SessionExists)]));
    assert_eq!(harness.counted().sessions, 1);
}

#[test]
fn a_member_for_whom_there_is_no_room_any_more_ends_when_it_has_connected() {
    let mut harness = Harness::new();
    harness.heard.borrow_mut().is_full = true;
    let (mut client, _) = harness.member(&WATCH, vec![watched(11, Codec::Opus)]);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    let said = harness.said();
    let [ConferenceNotice::Connected, ConferenceNotice::Ended(EndReason::Refused)] = said[..] else {
        panic!("{said:?}")
    };
    assert!(harness.commands().is_empty());
}

#[test]
fn messages_for_who_has_no_channel_are_counted_and_dropped() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.member(&WATCH, Vec::new());
    harness.run(&mut [&mut client], Duration::from_secs(1));
    harness.ask(ConferenceRequest::Data { delivery: webrtc::Delivery::Reliable, bytes: (*b"hello").into() });
    assert_eq!(harness.counted().messages_dropped, 1);
}
