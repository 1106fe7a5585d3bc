//! What the fuzz targets of the session descriptions do with their text: offers, answers and trickle fragments. Shared by
//! the fuzz targets and by `crates/webrtc/tests`, which replays the corpora.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Instant;

use webrtc::{
    AnswerOptions, CONFERENCE_SECTIONS_MAX, Candidate, Conference, ConferenceOptions, Context, Described, Direction,
    Down, Fragment, LAYERS_MAX, Media, Negotiated, OfferOptions, Output, Peer, Purpose, SECTIONS_MAX, TRACKS_MAX,
};
use wire::codec::Codec;

const CODECS: [Codec; 6] = [Codec::Opus, Codec::Vp8, Codec::Vp9, Codec::H264, Codec::H265, Codec::Av1];
const TRACKS: [Codec; 2] = [Codec::Opus, Codec::Vp8];
const WATCH: OfferOptions<'static> =
    OfferOptions { direction: Direction::Receive, audio: true, video: &CODECS, rids: &[], stream: "fuzz", tcp: true };
const PUBLISH: OfferOptions<'static> = OfferOptions { direction: Direction::Send, rids: &["q", "h", "f"], ..WATCH };

static CONTEXT: LazyLock<Context> = LazyLock::new(|| Context::new().expect("a certificate"));

/// An offer, to a WHIP server and to a WHEP server.
pub fn offer(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let addr = ([192, 0, 2, 1], 7_000).into();
    let candidates = [Candidate { addr, tcp: false }, Candidate { addr, tcp: true }];
    for purpose in [
        Purpose::Receive { codecs: &CODECS },
        Purpose::Send { tracks: &TRACKS, profiles: &[], chosen: &[], stream: "fuzz", transport_cc: false },
    ] {
        let options = AnswerOptions { purpose, candidates: &candidates };
        let Ok((mut peer, negotiated)) = Peer::answer(&CONTEXT, Instant::now(), &text, &options) else { continue };
        assert_eq!(section_count(&negotiated.sdp), section_count(&text), "{}", negotiated.sdp);
        assert_sane(&negotiated);
        let is_a_line = |line: &str| line.as_bytes().get(1) == Some(&b'=');
        assert!(negotiated.sdp.lines().all(is_a_line), "{}", negotiated.sdp);
        let own = Fragment::parse(&negotiated.sdp).expect("an answer has credentials and candidates");
        assert_eq!(own.ufrag, Some(peer.ufrag()));
        come_to_rest(&mut peer);
    }
}

fn section_count(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("m=")).count()
}

fn assert_sane(negotiated: &Negotiated) {
    assert!((1..=TRACKS_MAX.min(SECTIONS_MAX)).contains(&negotiated.media.len()));
    negotiated.media.iter().for_each(assert_sane_media);
}

fn assert_sane_media(media: &Media) {
    assert!(media.payload_type < 128 && media.rtx_payload_type.is_none_or(|rtx| rtx < 128));
    assert_ne!(media.rtx_payload_type, Some(media.payload_type), "{media:?}");
    assert!(media.rids.len() <= LAYERS_MAX && media.track < TRACKS_MAX);
    assert!(media.extensions.iter().all(|(id, _)| *id != 0 && *id != 15));
}

/// What stands between two descriptions of one connection.
const NEXT: &str = "=====";

/// Descriptions one after the other: as offers to a connection that answers, and as answers to one that offers, while what
/// is wanted comes and goes.
pub fn conference(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let options = ConferenceOptions {
        candidates: [Candidate { addr: ([192, 0, 2, 1], 7_000).into(), tcp: false }].into(),
        cname: "fuzz".into(),
        wants_data: true,
        codecs: CODECS.into(),
    };
    let now = Instant::now();
    let (mut peer, mut conference) = Conference::answerer(&CONTEXT, now, options.clone()).expect("a connection");
    let mut ssrcs = HashMap::new();
    for (round, offer) in text.split(NEXT).take(ROUNDS_MAX).enumerate() {
        conference.set_downs(downs(round)).expect("a few");
        let before = conference.sections();
        match conference.answer(&mut peer, now, offer.trim_start()) {
            Ok(described) => {
                assert_eq!(section_count(&described.sdp), section_count(offer), "{}", described.sdp);
                assert_described(&described, &mut ssrcs);
            }
            Err(_) => assert_eq!(conference.sections(), before, "what is refused changes nothing"),
        }
        come_to_rest(&mut peer);
    }

    let (mut peer, mut conference) = Conference::offerer(&CONTEXT, now, options).expect("a connection");
    let mut ssrcs = HashMap::new();
    for (round, answer) in text.split(NEXT).take(ROUNDS_MAX).enumerate() {
        conference.set_downs(downs(round)).expect("a few");
        let _ = conference.offer(&mut peer).expect("random numbers");
        let before = conference.sections();
        match conference.accept_answer(&mut peer, now, answer.trim_start()) {
            Ok(described) => assert_described(&described, &mut ssrcs),
            Err(_) => assert_eq!(conference.sections(), before, "what is refused changes nothing"),
        }
        come_to_rest(&mut peer);
    }
}

/// The most descriptions of one connection that are tried.
const ROUNDS_MAX: usize = 8;

/// What is wanted in a round: some of it stays, some is subscribed to anew, some goes.
fn downs(round: usize) -> Vec<Down> {
    let down = |id: usize| {
        let codec = CODECS[id % CODECS.len()];
        let (media_stream, track) = (format!("PA_{id}|TR_{id}"), format!("TR_{id}"));
        let subscription = if id == 5 { round as u64 / 2 } else { 0 };
        Down { id: id as u64, codec, fmtp: String::new(), red: id.is_multiple_of(2), media_stream, track, subscription }
    };
    (0..6).filter(|id| !(round + id).is_multiple_of(3)).chain([6 + round]).map(down).collect()
}

/// No SSRC is ever another track's.
fn assert_described(described: &Described, ssrcs: &mut HashMap<u32, u64>) {
    let mut mids: Vec<&str> = described.sections.iter().map(|section| section.mid.as_str()).collect();
    mids.sort_unstable();
    mids.dedup();
    assert!(mids.len() == described.sections.len() && mids.len() <= CONFERENCE_SECTIONS_MAX);
    for section in &described.sections {
        section.up.iter().for_each(|up| assert_sane_media(&up.media));
        let Some((id, media)) = &section.down else { continue };
        assert_sane_media(media);
        for ssrc in media.tx.iter().flat_map(|(ssrc, rtx)| [Some(*ssrc), *rtx]).flatten() {
            assert_eq!(*ssrcs.entry(ssrc).or_insert(*id), *id, "{ssrc} is another's");
        }
    }
}

/// An answer, to a client that publishes and to one that watches.
pub fn answer(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for options in [PUBLISH, WATCH] {
        let (mut peer, _) = Peer::offer(&CONTEXT, Instant::now(), &options).expect("an offer");
        if let Ok(negotiated) = peer.accept_answer(&text) {
            assert_sane(&negotiated);
            assert!(peer.accept_answer(&text).is_err(), "one offer, one answer");
        }
        come_to_rest(&mut peer);
    }
}

/// A trickle fragment, to a server and to its client, where it is also the answer to a restart.
pub fn fragment(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(fragment) = Fragment::parse(&text) else { return };
    if let (Some(ufrag), Some(pwd)) = (fragment.ufrag, fragment.pwd) {
        let written = Fragment::write(ufrag, pwd, fragment.mid, &[]);
        let again = Fragment::parse(&written).expect("what was written can be read");
        assert_eq!((again.ufrag, again.pwd, again.mid), (fragment.ufrag, fragment.pwd, fragment.mid));
    }

    let now = Instant::now();
    let (mut client, offer) = Peer::offer(&CONTEXT, now, &WATCH).expect("an offer");
    let purpose = Purpose::Send { tracks: &TRACKS, profiles: &[], chosen: &[], stream: "fuzz", transport_cc: true };
    let (mut server, negotiated) =
        Peer::answer(&CONTEXT, now, &offer, &AnswerOptions { purpose, candidates: &[] }).expect("a good offer");
    client.accept_answer(&negotiated.sdp).expect("a good answer");

    let before = server.ufrag().to_owned();
    if let Ok(Some(restart)) = server.handle_fragment(&text) {
        assert_ne!(server.ufrag(), before, "a restart brings other credentials");
        let restart = Fragment::parse(&restart).expect("a fragment");
        assert_eq!(restart.ufrag, Some(server.ufrag()));
        assert_eq!(server.handle_fragment(&text), Ok(None), "the same again is no other restart");
    }
    come_to_rest(&mut server);
    let _ = client.handle_fragment(&text);
    come_to_rest(&mut client);
    let _ = client.start_restart();
    let _ = client.accept_restart(&text);
    come_to_rest(&mut client);
}

fn come_to_rest(peer: &mut Peer) {
    let is_done = |output: Output| matches!(output, Output::Timeout(_));
    assert!((0..1_000).any(|_| is_done(peer.poll())), "the peer never comes to rest");
}
