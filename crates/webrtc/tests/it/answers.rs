//! Offers of browsers and encoders get valid answers, with one codec per section.

use std::time::Instant;

use crate::common::{ALL, TO_RECEIVE, TO_SEND, addr, udp};
use webrtc::{AnswerOptions, Candidate, Context, Direction, Error, Extension, Media, Negotiated, Peer, Purpose, Red};
use wire::codec::{Codec, MediaKind, Profile};

const CHROME_WHIP: &str = include_str!("../offers/chrome-whip-simulcast.sdp");
const CHROME_WHEP: &str = include_str!("../offers/chrome-whep-recvonly.sdp");
const CHROME_MAX_BUNDLE: &str = include_str!("../offers/chrome-whep-max-bundle-extra.sdp");
const FIREFOX_WHEP: &str = include_str!("../offers/firefox-whep.sdp");
const OBS_WHIP: &str = include_str!("../offers/obs-whip.sdp");
const PION_WHIP: &str = include_str!("../offers/pion-whip.sdp");

fn answer(offer: &str, purpose: Purpose<'_>) -> Result<Negotiated, Error> {
    let candidates =
        [udp("203.0.113.5:7000"), udp("[2001:db8::5]:7000"), Candidate { addr: addr("203.0.113.5:7001"), tcp: true }];
    let options = AnswerOptions { purpose, candidates: &candidates };
    Peer::answer(&Context::new().unwrap(), Instant::now(), offer, &options).map(|(_, negotiated)| negotiated)
}

fn send(codec: Codec) -> [Codec; 2] {
    [Codec::Opus, codec]
}

fn has(negotiated: &Negotiated, line: &str) -> bool {
    negotiated.sdp.split("\r\n").any(|other| other == line)
}

fn video(negotiated: &Negotiated) -> &Media {
    negotiated.media.iter().find(|media| media.codec.kind() == MediaKind::Video).unwrap()
}

#[test]
fn chrome_publishes_simulcast() {
    let negotiated = answer(CHROME_WHIP, TO_RECEIVE).unwrap();
    for line in [
        "a=ice-lite",
        "a=group:BUNDLE 0 1",
        "a=setup:passive",
        "a=recvonly",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111 63",
        "m=video 9 UDP/TLS/RTP/SAVPF 96 97",
        "a=rtpmap:96 VP8/90000",
        "a=fmtp:97 apt=96",
        "a=rid:q recv",
        "a=rid:f recv",
        "a=simulcast:recv q;h;f",
        "a=rtcp-fb:96 nack",
        "a=rtcp-fb:96 nack pli",
        "a=rtcp-fb:96 ccm fir",
        "a=rtcp-fb:96 transport-cc",
        "a=extmap:10 urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
        "a=extmap:12 https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension",
        "a=candidate:1 1 udp 2130706431 203.0.113.5 7000 typ host",
        "a=candidate:3 1 tcp 1526726143 203.0.113.5 7001 typ host tcptype passive",
        "a=end-of-candidates",
    ] {
        assert!(has(&negotiated, line), "{line} is not in\n{}", negotiated.sdp);
    }
    assert_eq!(negotiated.sdp.matches("a=rtpmap:").count(), 4);
    assert_eq!(negotiated.sdp.matches("typ host").count(), 3, "candidates stand once in a bundle");
    assert!(!negotiated.sdp.contains("a=msid:"));
    let video = video(&negotiated);
    assert_eq!((video.codec, video.payload_type, video.rtx_payload_type), (Codec::Vp8, 96, Some(97)));
    assert_eq!(video.rids, ["q", "h", "f"]);
    assert_eq!((video.direction, video.track), (Direction::Receive, 1));
    assert!(video.transport_cc);
    assert_eq!(video.extension_id(Extension::RepairedRid), Some(11));
    assert_eq!(video.extension_id(Extension::DependencyDescriptor), Some(12));
    let audio = &negotiated.media[0];
    assert_eq!((audio.codec, audio.payload_type), (Codec::Opus, 111));
    assert_eq!(audio.rx, [(1_733_295_487, None)]);
    assert_eq!(audio.extension_id(Extension::AudioLevel), Some(1));
}

#[test]
fn chrome_watches_each_codec() {
    for (codec, payload_type, rtx) in
        [(Codec::Vp8, 96, 97), (Codec::H264, 103, 104), (Codec::Av1, 45, 46), (Codec::Vp9, 98, 99)]
    {
        let tracks = send(codec);
        let negotiated = answer(
            CHROME_WHEP,
            Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "my stream", transport_cc: true },
        )
        .unwrap();
        let video = video(&negotiated);
        assert_eq!((video.codec, video.payload_type, video.rtx_payload_type), (codec, payload_type, Some(rtx)));
        assert_eq!(negotiated.sdp.matches("a=sendonly").count(), 2);
        assert_eq!(video.extension_id(Extension::DependencyDescriptor), Some(12));
        assert!(has(&negotiated, &format!("a=extmap:12 {}", Extension::DependencyDescriptor.uri())));
        let (ssrc, rtx_ssrc) = video.tx[0];
        assert!(has(&negotiated, &format!("a=ssrc-group:FID {ssrc} {}", rtx_ssrc.unwrap())));
        assert!(has(&negotiated, &format!("a=ssrc:{ssrc} cname:mystream")));
        assert!(has(&negotiated, "a=msid:mystream video1") && has(&negotiated, "a=msid:mystream audio0"));
        assert_eq!(negotiated.media[0].tx[0].1, None, "Opus has no RTX");
    }
    let tracks = send(Codec::H265);
    let refused = answer(
        CHROME_WHEP,
        Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true },
    )
    .unwrap_err();
    assert_eq!(refused, Error::CodecNotOffered { codec: Codec::H265 });
}

#[test]
fn send_times_are_for_who_watches_without_transport_wide_feedback() {
    let tracks = [Codec::Vp8];
    let to_send = Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true };
    let without: String =
        CHROME_WHEP.lines().filter(|line| !line.contains("transport-")).map(|line| format!("{line}\r\n")).collect();
    for (offer, purpose, is_there) in
        [(CHROME_WHEP, to_send, false), (&without[..], to_send, true), (CHROME_WHIP, TO_RECEIVE, false)]
    {
        let negotiated = answer(offer, purpose).unwrap();
        assert!(offer.contains("abs-send-time"));
        assert_eq!(video(&negotiated).extension_id(Extension::AbsSendTime).is_some(), is_there);
        assert_eq!(negotiated.sdp.contains("abs-send-time"), is_there);
    }
}

#[test]
fn who_is_asked_for_no_transport_wide_feedback_says_what_it_takes() {
    let tracks = [Codec::Opus, Codec::Vp8];
    for transport_cc in [true, false] {
        let purpose = Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc };
        let negotiated = answer(CHROME_WHEP, purpose).unwrap();
        let (media, sdp) = (&negotiated.media, &negotiated.sdp);
        let is_numbered = |media: &Media| media.transport_cc && media.extension_id(Extension::TransportCc).is_some();
        assert_eq!([is_numbered(&media[0]), is_numbered(&media[1])], [transport_cc; 2]);
        assert_eq!(sdp.contains("transport-cc") || sdp.contains("transport-wide-cc"), transport_cc, "{sdp}");
        assert_eq!(has(&negotiated, "a=rtcp-fb:96 goog-remb"), !transport_cc);
        assert_eq!(sdp.contains("abs-send-time"), !transport_cc, "what REMB is made of");
        assert!(has(&negotiated, "a=rtcp-fb:96 nack") && has(&negotiated, "a=rtcp-fb:96 nack pli"));
    }
}

#[test]
fn sound_is_not_asked_for_again() {
    let tracks = [Codec::Opus, Codec::Vp8];
    let to_send = Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true };
    for (offer, purpose) in [(CHROME_WHIP, TO_RECEIVE), (CHROME_WHEP, to_send)] {
        let feedback = "a=rtcp-fb:111 transport-cc";
        assert!(offer.contains(feedback));
        let offer = offer.replace(feedback, &format!("{feedback}\r\na=rtcp-fb:111 nack"));
        let negotiated = answer(&offer, purpose).unwrap();
        assert!(has(&negotiated, feedback) && has(&negotiated, "a=rtcp-fb:96 nack"));
        assert!(!negotiated.sdp.contains("a=rtcp-fb:111 nack"), "{}", negotiated.sdp);
    }
}

#[test]
fn opus_with_redundancy_is_taken_in_the_order_of_the_offer() {
    let tracks = send(Codec::Vp8);
    let to_send = Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true };
    let red_first = |offer: &str| offer.replace("SAVPF 111 63", "SAVPF 63 111");
    for (offer, purpose, formats, is_preferred) in [
        (CHROME_WHEP.to_owned(), to_send, "111 63", false),
        (red_first(CHROME_WHEP), to_send, "63 111", true),
        (CHROME_WHIP.to_owned(), TO_RECEIVE, "111 63", false),
        (red_first(CHROME_WHIP), TO_RECEIVE, "63 111", true),
    ] {
        let negotiated = answer(&offer, purpose).unwrap();
        assert!(has(&negotiated, &format!("m=audio 9 UDP/TLS/RTP/SAVPF {formats}")), "{}", negotiated.sdp);
        assert!(has(&negotiated, "a=rtpmap:63 red/48000/2") && has(&negotiated, "a=fmtp:63 111/111"));
        let audio = &negotiated.media[0];
        assert_eq!((audio.codec, audio.payload_type), (Codec::Opus, 111));
        assert_eq!(audio.red, Some(Red { payload_type: 63, is_preferred }));
    }
    for blocks in ["", "a=fmtp:63 111/110\r\n", "a=fmtp:63 111/\r\n", "a=fmtp:63 x\r\n"] {
        let negotiated = answer(&CHROME_WHEP.replace("a=fmtp:63 111/111\r\n", blocks), to_send).unwrap();
        assert_eq!(negotiated.media[0].red, None, "{blocks}");
        assert!(has(&negotiated, "m=audio 9 UDP/TLS/RTP/SAVPF 111") && !negotiated.sdp.contains(" red/"));
    }
    assert_eq!(answer(FIREFOX_WHEP, to_send).unwrap().media[0].red, None);
}

#[test]
fn remb_is_for_who_watches_without_transport_wide_feedback() {
    let tracks = send(Codec::Vp8);
    let to_send = Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true };
    let without = |what: &str| -> String {
        CHROME_WHEP.lines().filter(|line| !line.contains(what)).map(|line| format!("{line}\r\n")).collect()
    };
    for (offer, purpose, is_there) in [
        (CHROME_WHEP, to_send, false),
        (&without("transport-cc"), to_send, true),
        (&without("transport-wide-cc"), to_send, true),
        (&without("transport-wide-cc").replace("goog-remb", "x"), to_send, false),
        (CHROME_WHIP, TO_RECEIVE, false),
    ] {
        assert!(CHROME_WHEP.contains("goog-remb"));
        assert_eq!(answer(offer, purpose).unwrap().sdp.contains("goog-remb"), is_there);
    }
}

#[test]
fn sound_of_telephones_is_passed_on() {
    let with_g711_alone: String = CHROME_WHIP
        .lines()
        .map(|line| if line.starts_with("m=audio") { "m=audio 9 UDP/TLS/RTP/SAVPF 8 0" } else { line })
        .map(|line| format!("{line}\r\n"))
        .collect();
    let negotiated = answer(&with_g711_alone, Purpose::Receive { codecs: &Codec::ALL }).unwrap();
    assert_eq!((negotiated.media[0].codec, negotiated.media[0].payload_type), (Codec::Pcma, 8));
    assert!(has(&negotiated, "a=rtpmap:8 PCMA/8000"));
    let to_send = Purpose::Send { tracks: &[Codec::Pcmu], profiles: &[], chosen: &[], stream: "s", transport_cc: true };
    assert_eq!(answer(CHROME_WHEP, to_send).unwrap().media[0].payload_type, 0);
}

#[test]
fn a_viewer_gets_the_format_that_decodes_the_stream_s_profile() {
    for (codec, profile, payload_type) in [
        (Codec::H264, Profile::H264(0), Some(103)),
        (Codec::H264, Profile::H264(1), Some(117)),
        // Nothing offered holds high: decoders do.
        (Codec::H264, Profile::H264(2), Some(103)),
        (Codec::Vp9, Profile::Vp9(0), Some(98)),
        (Codec::Vp9, Profile::Vp9(2), Some(100)),
        (Codec::Vp9, Profile::Vp9(1), None),
        (Codec::Av1, Profile::Av1(0), Some(45)),
        (Codec::Av1, Profile::Av1(1), None),
    ] {
        let purpose =
            Purpose::Send { tracks: &[codec], profiles: &[profile], chosen: &[], stream: "s", transport_cc: true };
        let got = answer(CHROME_WHEP, purpose).map(|negotiated| video(&negotiated).payload_type);
        assert_eq!(got, payload_type.ok_or(Error::CodecNotOffered { codec }), "{profile:?}");
    }
}

/// The offer with its sections a second time, under other names and SSRCs.
fn doubled(offer: &str) -> String {
    let sections = &offer[offer.find("m=audio").unwrap()..];
    let again =
        sections.replace("a=mid:0", "a=mid:2").replace("a=mid:1", "a=mid:3").replace("ssrc:1733295487", "ssrc:5");
    format!("{offer}{again}").replace("a=group:BUNDLE 0 1", "a=group:BUNDLE 0 1 2 3")
}

#[test]
fn several_tracks_of_a_kind_are_told_apart() {
    let published = answer(&doubled(CHROME_WHIP), TO_RECEIVE).unwrap();
    assert!(has(&published, "a=group:BUNDLE 0 1 2 3"));
    let sections: Vec<_> = published.media.iter().map(|media| (&*media.mid, media.track, media.codec)).collect();
    let [sound, picture] = [Codec::Opus, Codec::Vp8];
    assert_eq!(sections, [("0", 0, sound), ("1", 1, picture), ("2", 2, sound), ("3", 3, picture)]);
    assert_eq!(
        (&published.media[0].rx[..], &published.media[2].rx[..]),
        (&[(1_733_295_487, None)][..], &[(5, None)][..])
    );

    let tracks = [sound, picture, sound, picture];
    for (chosen, sent) in [
        (&[][..], &[(0, "s audio0"), (1, "s video1"), (2, "1.s audio2"), (3, "1.s video3")][..]),
        (&[3, 2, 0], &[(2, "s audio2"), (3, "s video3"), (0, "1.s audio0")]),
        // One that is gone by now.
        (&[7, 1], &[(1, "s video1")]),
    ] {
        let purpose = Purpose::Send { tracks: &tracks, profiles: &[], chosen, stream: "s", transport_cc: true };
        let watched = answer(&doubled(CHROME_WHEP), purpose).unwrap();
        let got: Vec<_> = watched.media.iter().map(|media| media.track).collect();
        assert_eq!(got, sent.iter().map(|(track, _)| *track).collect::<Vec<_>>(), "{chosen:?}");
        let names: Vec<_> = watched.sdp.lines().filter_map(|line| line.strip_prefix("a=msid:")).collect();
        assert_eq!(names, sent.iter().map(|(_, name)| *name).collect::<Vec<_>>(), "{chosen:?}");
        // One clock counts all of them.
        assert_eq!(watched.sdp.matches("cname:").count(), watched.sdp.matches(" cname:s\r\n").count());
        let mut ssrcs: Vec<_> = watched.media.iter().map(|media| media.tx[0].0).collect();
        ssrcs.dedup();
        assert_eq!(ssrcs.len(), sent.len());
    }
}

#[test]
fn sections_that_the_stream_has_no_track_for_are_refused_in_place() {
    let negotiated = answer(CHROME_MAX_BUNDLE, TO_SEND).unwrap();
    let lines: Vec<&str> = negotiated.sdp.lines().filter(|line| line.starts_with("m=")).collect();
    assert_eq!(
        lines,
        [
            "m=video 9 UDP/TLS/RTP/SAVPF 96 97",
            "m=audio 9 UDP/TLS/RTP/SAVPF 111",
            "m=video 0 UDP/TLS/RTP/SAVPF 96",
            "m=application 0 UDP/DTLS/SCTP webrtc-datachannel",
        ]
    );
    assert!(has(&negotiated, "a=group:BUNDLE 0 1"));
    assert!(!negotiated.sdp.contains("bundle-only"));
    assert_eq!(negotiated.media.iter().map(|media| media.track).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn bundled_sections_may_leave_the_transport_to_the_first() {
    let (first, second) = CHROME_WHEP.split_once("m=video").unwrap();
    let transport = ["a=ice-", "a=fingerprint", "a=setup", "a=rtcp-mux"];
    let is_kept = |line: &&str| !transport.iter().any(|prefix| line.starts_with(prefix));
    let second: String = second.lines().filter(is_kept).map(|line| format!("{line}\r\n")).collect();
    let tracks = [Codec::Vp8];
    let negotiated = answer(
        &format!("{first}m=video{second}"),
        Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true },
    )
    .unwrap();
    assert_eq!(negotiated.media.len(), 1);
}

#[test]
fn a_stream_without_sound_is_sent_on_the_video_section_alone() {
    let tracks = [Codec::Vp8];
    let negotiated = answer(
        CHROME_WHEP,
        Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true },
    )
    .unwrap();
    assert!(has(&negotiated, "m=audio 0 UDP/TLS/RTP/SAVPF 111") && has(&negotiated, "a=group:BUNDLE 1"));
    assert!(negotiated.sdp.find("a=candidate").unwrap() > negotiated.sdp.find("m=video").unwrap());
}

#[test]
fn firefox_watches_vp8_and_h264() {
    for (codec, payload_type, rtx) in [(Codec::Vp8, 120, 124), (Codec::H264, 126, 127)] {
        let tracks = send(codec);
        let negotiated = answer(
            FIREFOX_WHEP,
            Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true },
        )
        .unwrap();
        let video = video(&negotiated);
        assert_eq!((video.payload_type, video.rtx_payload_type), (payload_type, Some(rtx)));
        assert_eq!(video.extension_id(Extension::PlayoutDelay), Some(6));
        assert!(!has(&negotiated, "a=extmap-allow-mixed"));
    }
}

#[test]
fn obs_publishes_h264_and_names_its_ssrcs() {
    let negotiated = answer(OBS_WHIP, TO_RECEIVE).unwrap();
    let video = video(&negotiated);
    assert_eq!((video.codec, video.payload_type, video.rtx_payload_type), (Codec::H264, 96, Some(97)));
    assert_eq!(video.rx, [(2_950_912_341, Some(2_950_912_342))]);
    assert!(video.rids.is_empty() && !video.transport_cc);
    assert!(negotiated.media[0].fmtp.contains("stereo=1"));
}

#[test]
fn pion_publishes_with_sendrecv_and_gets_recvonly() {
    let negotiated = answer(PION_WHIP, TO_RECEIVE).unwrap();
    assert_eq!(negotiated.sdp.matches("a=recvonly").count(), 2);
    let video = video(&negotiated);
    assert_eq!((video.codec, video.payload_type), (Codec::Vp8, 96));
    assert_eq!(video.rx, [(2_596_996_162, Some(4_039_455_774))]);
    assert!(has(&negotiated, "a=rtcp-fb:96 nack") && video.transport_cc, "feedback with a space behind it counts");
}

#[test]
fn only_allowed_codecs_are_received() {
    let negotiated = answer(CHROME_WHIP, Purpose::Receive { codecs: &[Codec::Opus, Codec::Av1] }).unwrap();
    assert_eq!(video(&negotiated).codec, Codec::Av1);
    let refused = answer(OBS_WHIP, Purpose::Receive { codecs: &[Codec::Opus, Codec::Av1] }).unwrap_err();
    assert_eq!(refused, Error::NoCodec { kind: MediaKind::Video, mid: "1".into() });
}

#[test]
fn what_is_wrong_with_an_offer_is_said() {
    let refused = |offer: &str| answer(offer, TO_RECEIVE).unwrap_err().to_string();
    let without = |prefix: &str| -> String {
        CHROME_WHIP.lines().filter(|line| !line.starts_with(prefix)).map(|line| format!("{line}\r\n")).collect()
    };
    assert_eq!(refused(""), "v=0 is missing");
    assert_eq!(refused("v=0\r\n"), "a media section is missing");
    assert_eq!(refused("hello"), "line 1: no \"=\"");
    assert_eq!(refused("m=audio 9 X 0"), "line 1: the first line is not \"v=0\"");
    assert_eq!(refused("v=0\nm=audio x RTP/AVP 0"), "line 2: m-line with a bad port");
    assert_eq!(refused(&without("a=ice-ufrag")), "a=ice-ufrag is missing");
    assert_eq!(refused(&without("a=fingerprint")), "a=fingerprint is missing");
    assert_eq!(refused(&without("a=group")), "media sections are not in one BUNDLE group (RFC 8843)");
    assert_eq!(refused(&CHROME_WHIP.replace("actpass", "passive")).split(':').next(), Some("a=setup"));
    assert_eq!(refused(&CHROME_WHIP.replace("s=-", "a=ice-lite")).split(' ').next(), Some("a=ice-lite"));
    assert_eq!(refused(CHROME_WHEP), "no media section to receive from");
    assert_eq!(refused(&format!("v=0\r\n{}", "m=audio 9 RTP/AVP 0\r\n".repeat(33))), "more than 32 media sections");
    assert_eq!(refused(&"x".repeat(65 * 1024)), "66560 bytes, more than the 65536 that are read");
    assert_eq!(answer(CHROME_WHIP, TO_SEND).unwrap_err(), Error::NoMedia("send on"));
}

#[test]
fn a_fingerprint_is_sha_256() {
    let with = |fingerprints: &[&str]| -> String {
        let lines = CHROME_WHIP.lines().flat_map(|line| match line.starts_with("a=fingerprint") {
            true => fingerprints.iter().map(|fingerprint| format!("a=fingerprint:{fingerprint}\r\n")).collect(),
            false => vec![format!("{line}\r\n")],
        });
        lines.collect()
    };
    let sha_1 = format!("sha-1 {}", ["AB"; 20].join(":"));
    let sha_256 = format!("sha-256 {}", ["AB"; 32].join(":"));
    let sha_512 = format!("sha-512 {}", ["AB"; 64].join(":"));
    for other in [&sha_1, &sha_512] {
        let refused = answer(&with(&[other]), TO_RECEIVE).unwrap_err();
        assert!(matches!(refused, Error::Invalid { what: "a=fingerprint", .. }), "{refused}");
        assert!(answer(&with(&[other, &sha_256]), TO_RECEIVE).is_ok());
    }
}

#[test]
fn an_offer_and_its_answer_mean_the_same_to_both_sides() {
    let layers = webrtc::OfferOptions { rids: &["q", "h", "f"], ..crate::common::PUBLISH };
    for (offer, purpose) in
        [(layers, TO_RECEIVE), (crate::common::PUBLISH, TO_RECEIVE), (crate::common::WATCH, TO_SEND)]
    {
        let pair = crate::common::Pair::new(&offer, purpose);
        for (server, client) in pair.answer.media.iter().zip(&pair.accepted.media) {
            let swapped = Media {
                direction: if server.direction == Direction::Send { Direction::Receive } else { Direction::Send },
                tx: client.tx.clone(),
                rx: client.rx.clone(),
                ..server.clone()
            };
            assert_eq!(&swapped, client);
            assert_eq!(server.tx, client.rx);
            if server.rids.is_empty() {
                assert_eq!(server.rx, client.tx);
            } else {
                assert_eq!((client.tx.len(), server.rids.len()), (3, 3));
            }
        }
        assert_eq!(pair.accepted.media.len(), 2);
        assert!(ALL.contains(&pair.accepted.media[1].codec));
    }
}

#[test]
fn a_user_fragment_that_no_check_of_ours_can_name_is_refused_at_once() {
    let line = CHROME_WHEP.lines().find(|line| line.starts_with("a=ice-ufrag")).unwrap();
    let with = |len| answer(&CHROME_WHEP.replace(line, &format!("a=ice-ufrag:{}", "u".repeat(len))), TO_SEND);
    assert!(with(115).is_ok());
    let refused = Error::Invalid { what: "a=ice-ufrag", why: "this server takes no more than 115 characters" };
    assert_eq!(with(116).err(), Some(refused.clone()));
    assert_eq!(with(256).err(), Some(refused.clone()));
    assert_eq!(refused.to_string(), "a=ice-ufrag is not valid: this server takes no more than 115 characters");

    let options = AnswerOptions { purpose: TO_SEND, candidates: &[udp("203.0.113.5:7000")] };
    let (mut peer, _) = Peer::answer(&Context::new().unwrap(), Instant::now(), CHROME_WHEP, &options).unwrap();
    let restart = format!("a=ice-ufrag:{}\r\na=ice-pwd:{}\r\n", "u".repeat(116), "p".repeat(24));
    assert_eq!(peer.handle_fragment(&restart), Err(refused));
}
