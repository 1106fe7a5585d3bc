//! What the fuzz targets of the session descriptions do with their text: offers, answers and trickle fragments. Shared by
//! the fuzz targets and by `crates/webrtc/tests`, which replays the corpora.

use std::sync::LazyLock;
use std::time::Instant;

use webrtc::{
    AnswerOptions, Candidate, Context, Direction, Fragment, LAYERS_MAX, Negotiated, OfferOptions, Output, Peer,
    Purpose, SECTIONS_MAX, TRACKS_MAX,
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
        Purpose::Send { tracks: &TRACKS, profiles: &[], chosen: &[], stream: "fuzz" },
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
    for media in &negotiated.media {
        assert!(media.payload_type < 128 && media.rtx_payload_type.is_none_or(|rtx| rtx < 128));
        assert_ne!(media.rtx_payload_type, Some(media.payload_type), "{}", negotiated.sdp);
        assert!(media.rids.len() <= LAYERS_MAX && media.track < TRACKS_MAX);
        assert!(media.extensions.iter().all(|(id, _)| *id != 0 && *id != 15));
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
    let purpose = Purpose::Send { tracks: &TRACKS, profiles: &[], chosen: &[], stream: "fuzz" };
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
