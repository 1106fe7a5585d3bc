use wire::codec::PayloadInfo;

use super::*;
use crate::batch::{BatchPool, Posts};
use crate::packet::LayerStart;
use crate::spec::{ExtensionIds, StreamId, StreamSpec, TrackSpec, WorkerId};

/// A packet of a layer, so many milliseconds after its start by its timestamp and by its arrival.
fn packet(start: Instant, seq: u64, sent_ms: u32, arrival_ms: u32, keyframe: bool) -> PacketMeta {
    let payload = PayloadInfo { starts_frame: keyframe, keyframe, ..PayloadInfo::default() };
    let arrival = start + Duration::from_millis(arrival_ms.into());
    PacketMeta { seq: 65_536 + seq, timestamp: sent_ms * 90, arrival, marker: false, payload }
}

#[test]
fn a_keyframe_whose_first_packet_was_lost_counts_as_come_with_what_overtook_it() {
    let start = Instant::now();
    let lost = packet(start, 0, 50, 290, true);
    for (overtook, arrival_ms) in
        [(packet(start, 1, 50, 55, false), 55), (packet(start, 9, 150, 155, false), 55), (lost, 290)]
    {
        let arrival = arrival_beside(&overtook, &lost, 90_000);
        assert_eq!(arrival.duration_since(start).as_millis(), arrival_ms, "{overtook:?}");
    }
}

#[test]
fn a_switch_waits_for_a_keyframe_that_is_as_new_as_what_was_sent() {
    let start = Instant::now();
    let settings = Settings::new(1, (start, 0));
    let rids = vec!["small".into(), "large".into()];
    let track = TrackSpec { codec: Codec::H264, profile: Default::default(), rids };
    let mut stream = Stream::new(StreamSpec { id: StreamId(1), tracks: vec![track] }, &settings);
    let mut posts = Posts::new(WorkerId(0), BatchPool::new(1));
    let mut push = |stream: &mut Stream, layer, meta| {
        stream.push(LayerStart { track: 0, layer, epoch: 1 }, &meta, &[], &[0; 9], &mut posts);
    };
    let extensions = ExtensionIds::default();
    let spec = DownTrackSpec { track: 0, mid: "0".into(), ssrc: 7, payload_type: 96, rtx: None, extensions };
    let mut down = DownTrack::new(start, 0, spec, &stream.tracks[0], &settings, &mut Random::new(1));
    let mut drops = DropCounters::default();
    let mut send = |down: &mut DownTrack, stream: &Stream| {
        down.update(start, &stream.tracks[0]);
        while down.next(start, &stream.tracks[0], &mut drops).is_some() {}
        down.current()
    };

    down.set_target(start, 0);
    push(&mut stream, 0, packet(start, 0, 0, 0, true));
    assert_eq!(send(&mut down, &stream), Some(0));
    down.set_target(start + Duration::from_millis(10), 1);
    push(&mut stream, 1, packet(start, 1, 100, 100, false));
    push(&mut stream, 0, packet(start, 1, 300, 300, false));
    assert_eq!(send(&mut down, &stream), Some(0), "the first packet of the keyframe is missing");
    push(&mut stream, 1, packet(start, 0, 100, 310, true));
    assert_eq!(send(&mut down, &stream), Some(0), "it is of a time that was seen");
    push(&mut stream, 1, packet(start, 2, 330, 330, true));
    assert_eq!(send(&mut down, &stream), Some(1));
}

#[test]
fn numbers_of_retransmissions_begin_in_the_lower_half_so_that_they_do_not_wrap_at_once() {
    let settings = Settings::new(1, (Instant::now(), 0));
    let track = TrackSpec { codec: Codec::H264, profile: Default::default(), rids: Vec::new() };
    let stream = Stream::new(StreamSpec { id: StreamId(1), tracks: vec![track] }, &settings);
    let mut random = Random::new(1);
    for _ in 0..100 {
        let extensions = ExtensionIds::default();
        let spec = DownTrackSpec { track: 0, mid: "0".into(), ssrc: 7, payload_type: 96, rtx: None, extensions };
        let down = DownTrack::new(Instant::now(), 0, spec, &stream.tracks[0], &settings, &mut random);
        assert_eq!(down.rtx_seq >> 15, 2);
    }
}
