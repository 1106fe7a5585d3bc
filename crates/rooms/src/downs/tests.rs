use srtp::{Profile, SessionKeys};
use wire::codec::{Codec, PayloadInfo};
use wire::{LinkId, Path};

use super::*;
use crate::batch::{BatchPool, Posts};
use crate::packet::{LayerStart, PacketMeta};
use crate::spec::{ExtensionIds, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, WorkerId};

/// A stream with these layers, and somebody who watches it under two SSRCs, 7 and 8.
fn viewer_of_two(start: Instant, settings: &Settings, rids: &[&str]) -> (Slab<Stream>, usize, Transport, Downs) {
    let rids = rids.iter().map(|rid| (*rid).into()).collect();
    let track = TrackSpec { codec: Codec::Vp8, profile: Default::default(), rids };
    let mut streams = Slab::new();
    let key = streams.insert(Stream::new(StreamSpec { id: StreamId(1), tracks: vec![track] }, settings));
    let path = Path { link: LinkId::datagrams(0), remote: ([10, 0, 0, 2], 1).into(), local: None };
    let (keys, _) = SessionKeys::made_up_pair(Profile::AeadAes128Gcm, 1);
    let peer = PeerSpec { session: SessionId(1), path, keys, cname: None };
    let transport = Transport::new(start, &peer, settings).unwrap();
    let mut downs = Downs::new(start);
    let extensions = ExtensionIds::default();
    let specs = [7, 8].map(|ssrc| DownTrackSpec {
        track: 0,
        mid: "0".into(),
        ssrc,
        payload_type: 96,
        rtx: None,
        red: None,
        extensions,
    });
    downs.add(start, key, &streams[key], specs.into(), settings, &mut Random::new(1));
    (streams, key, transport, downs)
}

/// Lets the peer say what it takes of some tracks. Returns the estimate.
fn say_remb(downs: &mut Downs, transport: &mut Transport, now: Instant, kbps: u64, ssrcs: &[u32]) -> Bitrate {
    let mut buf = [0; 40];
    let len = rtcp::write_remb(&mut buf, 1, Bitrate::from_kbps(kbps), ssrcs).unwrap();
    let Some(Packet::Remb(remb)) = rtcp::packets(&buf[..len]).unwrap().next() else { panic!("a REMB") };
    downs.on_remb(&remb, transport, now);
    transport.estimate().unwrap()
}

#[test]
fn what_the_peer_takes_of_each_track_is_added_up() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    let (_, _, mut transport, mut downs) = viewer_of_two(start, &settings, &["small", "large"]);
    transport.expect_feedback(start, false, &settings);
    let mut say = |seconds, kbps, ssrcs: &[u32]| {
        say_remb(&mut downs, &mut transport, start + Duration::from_secs(seconds), kbps, ssrcs)
    };
    for second in 0..10 {
        assert_eq!(say(second, 3_000, &[7]), settings.estimate_max);
        assert_eq!(say(second, 250, &[8]), settings.estimate_max);
    }
    assert_eq!(say(10, 1_000, &[7]), Bitrate::from_kbps(1_250));
    assert_eq!(say(11, 900, &[8, 7]), Bitrate::from_kbps(900));
    assert_eq!(say(12, 800, &[]), Bitrate::from_kbps(800));
}

#[test]
fn what_the_peer_took_of_a_track_that_fell_silent_counts_for_the_others_no_more() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    let (_, _, mut transport, mut downs) = viewer_of_two(start, &settings, &["small", "large"]);
    transport.expect_feedback(start, false, &settings);
    let mut say = |seconds, kbps, ssrcs: &[u32]| {
        say_remb(&mut downs, &mut transport, start + Duration::from_secs(seconds), kbps, ssrcs)
    };
    // Nothing was sent, so what does not fall is no bound; what falls is.
    say(0, 3_000, &[7]);
    say(0, 500, &[8]);
    assert_eq!(say(1, 2_000, &[7]), Bitrate::from_kbps(2_500));
    assert_eq!(say(4, 400, &[8]), Bitrate::from_kbps(2_400), "it may say it again");
    assert_eq!(say(6, 400, &[8]), Bitrate::from_kbps(400));
    assert_eq!(say(7, 300, &[7]), Bitrate::from_kbps(700), "it is back");
    // Most name all of which they have heard lately.
    assert_eq!(say(8, 600, &[7, 8]), Bitrate::from_kbps(600));
    assert_eq!(say(11, 580, &[8]), Bitrate::from_kbps(1_180));
    assert_eq!(say(13, 560, &[8]), Bitrate::from_kbps(560));
}

#[test]
fn what_the_peer_took_of_the_picture_counts_while_there_is_nothing_but_sound() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    let (_, _, mut transport, mut downs) = viewer_of_two(start, &settings, &["small", "large"]);
    downs.tracks[0].kind = MediaKind::Audio;
    transport.expect_feedback(start, false, &settings);
    say_remb(&mut downs, &mut transport, start, 3_000, &[8]);
    for second in 1..20 {
        let now = start + Duration::from_secs(second);
        let estimate = say_remb(&mut downs, &mut transport, now, 100, &[7]);
        assert!(estimate > Bitrate::from_kbps(3_000), "after {second} s without a picture: {estimate:?}");
    }
}

#[test]
fn layers_are_chosen_when_something_comes_and_not_while_all_are_silent() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    let (mut streams, key, mut transport, mut downs) = viewer_of_two(start, &settings, &["small", "large"]);
    let mut posts = Posts::new(WorkerId(0), BatchPool::new(1));

    assert!(!downs.has_choice_to_make(&streams, start), "nothing came yet");
    for (at_ms, seq) in [(0, 0), (5_000, 1)] {
        let arrival = start + Duration::from_millis(at_ms);
        let payload = PayloadInfo { starts_frame: true, keyframe: true, ..PayloadInfo::default() };
        let meta = PacketMeta { seq: 65_536 + seq, timestamp: 0, arrival, marker: true, payload };
        streams[key].push(LayerStart { track: 0, layer: 0, epoch: 1 }, &meta, &[], &[0; 9], &mut posts);
        assert!(downs.has_choice_to_make(&streams, arrival));
        downs.choose_layers(&mut transport, &streams, arrival);
        assert!(downs.has_chosen && !downs.has_choice_to_make(&streams, arrival));
        let silent_since = arrival + Duration::from_secs(2);
        downs.choose_layers(&mut transport, &streams, silent_since);
        assert!(!downs.has_chosen && !downs.has_choice_to_make(&streams, silent_since));
    }
}

#[test]
fn of_what_is_held_nothing_is_to_be_chosen_whatever_comes_of_it() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    let (mut streams, key, mut transport, mut downs) = viewer_of_two(start, &settings, &["small", "medium", "large"]);
    let mut posts = Posts::new(WorkerId(0), BatchPool::new(1));
    downs.hold(key, true, &mut transport, &streams, start);
    push(&mut streams, key, &mut posts, start, 0, 0);
    downs.choose_again(key);
    assert!(!downs.has_choice_to_make(&streams, start));
    downs.hold(key, false, &mut transport, &streams, start);
    downs.choose_again(key);
    assert!(downs.has_choice_to_make(&streams, start));
}

/// Lets a packet of a layer come.
fn push(streams: &mut Slab<Stream>, key: usize, posts: &mut Posts, arrival: Instant, seq: u64, layer: u8) {
    push_bytes(streams, key, posts, arrival, seq, (layer, [100, 3_000, 60_000][usize::from(layer)]));
}

/// The same, of any size.
fn push_bytes(
    streams: &mut Slab<Stream>,
    key: usize,
    posts: &mut Posts,
    arrival: Instant,
    seq: u64,
    (layer, bytes): (u8, usize),
) {
    let payload = PayloadInfo { starts_frame: true, keyframe: true, ..PayloadInfo::default() };
    let meta = PacketMeta { seq: 65_536 + seq, timestamp: 0, arrival, marker: true, payload };
    streams[key].push(LayerStart { track: 0, layer, epoch: 1 }, &meta, &[], &vec![0; bytes], posts);
}

#[test]
fn who_wants_no_more_than_what_is_not_sent_gets_the_smallest_that_is() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    let rids = ["small", "medium", "large"];
    let (mut streams, key, mut transport, mut downs) = viewer_of_two(start, &settings, &rids);
    let mut posts = Posts::new(WorkerId(0), BatchPool::new(1));
    let limit = LayerLimit { spatial_max: 0, ..LayerLimit::NONE };
    downs.set_limit(None, limit, &mut transport, &streams, start);
    let steps: [(u64, u64, &[u8], u8); 5] = [
        (50, 70, &[2], 2),
        (70, 90, &[1, 2], 1),
        (90, 110, &[0, 1, 2], 0),
        (110, 118, &[1, 2], 0),
        (118, 140, &[1, 2], 1),
    ];
    for (from, to, layers, expected) in steps {
        for tenth in from..to {
            let arrival = start + Duration::from_millis(100 * tenth);
            layers.iter().for_each(|layer| push(&mut streams, key, &mut posts, arrival, tenth, *layer));
            downs.choose_layers(&mut transport, &streams, arrival);
            assert!(downs.has_chosen, "nothing is to be chosen per turn");
        }
        assert_eq!(downs.tracks[0].choice.place.layer, expected, "of {layers:?}");
    }
}

/// A page that is shown for three seconds, then another one: its layers come one after the other.
#[test]
fn a_picture_after_seconds_without_one_moves_nobody_to_the_layer_that_comes_first() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    for (spatial_max, is_narrow, expected) in [(0, false, 0), (1, false, 1), (2, false, 2), (2, true, 1)] {
        for layers in [[2, 1, 0], [0, 1, 2], [1, 2, 0]] {
            let (mut streams, key, mut transport, mut downs) =
                viewer_of_two(start, &settings, &["small", "medium", "large"]);
            transport.expect_feedback(start, is_narrow, &settings);
            let mut posts = Posts::new(WorkerId(0), BatchPool::new(1));
            let limit = LayerLimit { spatial_max, ..LayerLimit::NONE };
            downs.set_limit(None, limit, &mut transport, &streams, start);
            let pictures = (0..30).map(|picture| 100 * picture).chain((2..12).map(|page| 3_000 * page));
            for (seq, at_ms) in (0..).zip(pictures) {
                for (after_ms, layer) in [0, 15, 30].into_iter().zip(layers) {
                    let arrival = start + Duration::from_millis(at_ms + after_ms);
                    push(&mut streams, key, &mut posts, arrival, seq, layer);
                    downs.choose_layers(&mut transport, &streams, arrival);
                    let chosen = downs.tracks[0].choice.place.layer;
                    assert!(at_ms < 1_000 || chosen == expected, "{chosen} of {layers:?}, wanted {spatial_max}");
                    assert!(downs.has_chosen, "nothing is to be chosen per turn");
                }
                // While nothing comes.
                (1..at_ms / 1_000).take(2).for_each(|second| {
                    let now = start + Duration::from_millis(at_ms + 1_000 * second);
                    downs.choose_layers(&mut transport, &streams, now);
                });
            }
        }
    }
}

#[test]
fn a_pause_for_want_of_bandwidth_is_told_once_and_so_is_its_end() {
    let start = Instant::now();
    let settings = Settings { pause: true, ..Settings::new(1, (start, 0)) };
    let (mut streams, key, mut transport, mut downs) = viewer_of_two(start, &settings, &[]);
    transport.expect_feedback(start, false, &settings);
    let mut posts = Posts::new(WorkerId(0), BatchPool::new(1));
    let mut told = |tenths: std::ops::Range<u64>, kbps| {
        let mut told = Vec::new();
        for tenth in tenths {
            let now = start + Duration::from_millis(100 * tenth);
            push_bytes(&mut streams, key, &mut posts, now, tenth, (0, 3_000));
            say_remb(&mut downs, &mut transport, now, kbps, &[7, 8]);
            downs.choose_layers(&mut transport, &streams, now);
            told.extend(downs.take_pauses());
        }
        told
    };
    assert_eq!(told(0..20, 3_000), []);
    assert_eq!(told(20..60, 1), [(key, true); 2]);
    assert_eq!(told(60..100, 3_000), [(key, false); 2]);
}

#[test]
fn who_comes_first_has_the_large_picture_where_there_is_room_for_one() {
    let start = Instant::now();
    let settings = Settings { estimate_start: Bitrate::from_kbps(8_000), ..Settings::new(1, (start, 0)) };
    for (priorities, expected) in [([0, 0], [2, 1]), ([1, 0], [2, 1]), ([2, 1], [1, 2])] {
        let (mut streams, key, mut transport, mut downs) =
            viewer_of_two(start, &settings, &["small", "medium", "large"]);
        transport.expect_feedback(start, true, &settings);
        for (down, priority) in downs.tracks.iter_mut().zip(priorities) {
            down.choice.priority = priority;
        }
        let mut posts = Posts::new(WorkerId(0), BatchPool::new(1));
        for tenth in 0..60 {
            let now = start + Duration::from_millis(100 * tenth);
            (0..3).for_each(|layer| push(&mut streams, key, &mut posts, now, tenth, layer));
            downs.choose_layers(&mut transport, &streams, now);
        }
        let chosen = downs.tracks.iter().map(|down| down.choice.place.layer).collect::<Vec<_>>();
        assert_eq!(chosen, expected, "{priorities:?}");
    }
}
