use wire::codec::PayloadInfo;

use super::starts::arrival_beside;
use super::*;
use crate::batch::{BatchPool, Posts};
use crate::packet::{LayerStart, PacketMeta};
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

/// A stream with two layers, `small` and `large`, and a down track of it.
struct Bench {
    start: Instant,
    stream: Stream,
    posts: Posts,
    down: DownTrack,
    /// The number of the first packet.
    first: Option<u64>,
}

impl Bench {
    fn new(random: &mut Random) -> Self {
        let start = Instant::now();
        let settings = Settings { pause: true, ..Settings::new(1, (start, 0)) };
        let rids = vec!["small".into(), "large".into()];
        let track = TrackSpec { codec: Codec::H264, profile: Default::default(), rids };
        let stream = Stream::new(StreamSpec { id: StreamId(1), tracks: vec![track] }, &settings);
        let extensions = ExtensionIds::default();
        let spec =
            DownTrackSpec { track: 0, mid: "0".into(), ssrc: 7, payload_type: 96, rtx: None, red: None, extensions };
        let down = DownTrack::new(start, 0, spec, &stream.tracks[0], &settings, random);
        Bench { start, stream, posts: Posts::new(WorkerId(0), BatchPool::new(1)), down, first: None }
    }

    fn push(&mut self, layer: u8, meta: PacketMeta) {
        self.stream.push(LayerStart { track: 0, layer, epoch: 1 }, &meta, &[], &[0; 9], &mut self.posts);
    }

    /// The layers and numbers, from the first on, of what is to be sent.
    fn send(&mut self, now_ms: u64) -> Vec<(u8, u64)> {
        let (now, track) = (self.start + Duration::from_millis(now_ms), &self.stream.tracks[0]);
        let mut drops = DropCounters::default();
        self.down.update(now, track);
        let next = || self.down.next(now, track, &mut drops);
        let sent: Vec<_> = std::iter::from_fn(next).map(|next| (next.layer, next.forwarded.seq)).collect();
        let first = *self.first.get_or_insert_with(|| sent[0].1);
        sent.into_iter().map(|(layer, seq)| (layer, seq - first)).collect()
    }
}

#[test]
fn a_switch_waits_for_a_keyframe_that_is_as_new_as_what_was_sent() {
    let mut bench = Bench::new(&mut Random::new(1));
    let start = bench.start;
    bench.down.set_target(0);
    bench.push(0, packet(start, 0, 0, 0, true));
    assert_eq!(bench.send(0), [(0, 0)]);
    bench.down.set_target(1);
    bench.push(1, packet(start, 1, 100, 100, false));
    bench.push(0, packet(start, 1, 300, 300, false));
    assert_eq!(bench.send(300), [(0, 1)], "the first packet of the keyframe is missing");
    bench.push(1, packet(start, 0, 100, 310, true));
    assert_eq!(bench.send(310), [], "it is of a time that was seen");
    bench.push(1, packet(start, 2, 330, 330, true));
    assert_eq!(bench.send(330), [(1, 2)]);
}

#[test]
fn a_keyframe_that_came_just_before_its_layer_was_chosen_is_as_good_as_the_next() {
    let mut bench = Bench::new(&mut Random::new(1));
    let start = bench.start;
    bench.down.set_target(0);
    bench.push(0, packet(start, 0, 0, 0, true));
    assert_eq!(bench.send(0), [(0, 0)]);
    bench.push(1, packet(start, 0, 30, 30, true));
    bench.push(0, packet(start, 1, 33, 33, false));
    assert_eq!(bench.send(35), [(0, 1)]);
    bench.down.set_target(1);
    assert_eq!(bench.send(40), [(1, 2)]);
}

#[test]
fn what_is_missing_of_a_layer_that_is_left_comes_under_its_number() {
    let mut bench = Bench::new(&mut Random::new(1));
    let start = bench.start;
    bench.down.set_target(0);
    bench.push(0, packet(start, 0, 0, 0, true));
    bench.push(0, packet(start, 2, 60, 60, false));
    bench.push(0, packet(start, 4, 120, 120, false));
    assert_eq!(bench.send(120), [(0, 0), (0, 2), (0, 4)]);
    bench.down.set_target(1);
    bench.push(0, packet(start, 3, 90, 130, false));
    bench.push(1, packet(start, 9, 130, 130, true));
    bench.push(0, packet(start, 5, 150, 150, false));
    assert_eq!(bench.send(150), [(1, 5), (0, 3)], "the next one of the layer that was left has no number");
    bench.push(1, packet(start, 10, 160, 160, false));
    bench.push(0, packet(start, 1, 30, 160, false));
    assert_eq!(bench.send(160), [(1, 6), (0, 1)]);
    assert!(bench.down.former.is_some());
    bench.push(1, packet(start, 11, 2_200, 2_200, false));
    assert_eq!(bench.send(2_200), [(1, 7)]);
    assert!(bench.down.former.is_none(), "nothing is waited for that long");
}

#[test]
fn what_came_of_a_layer_just_before_it_is_left_comes_under_its_number() {
    let mut bench = Bench::new(&mut Random::new(1));
    let start = bench.start;
    bench.down.set_target(0);
    [0, 2].into_iter().for_each(|seq| bench.push(0, packet(start, seq, 30, 30, seq == 0)));
    assert_eq!(bench.send(30), [(0, 0), (0, 2)]);
    bench.down.set_target(1);
    bench.push(0, packet(start, 1, 30, 130, false));
    bench.push(1, packet(start, 9, 130, 130, true));
    assert_eq!(bench.send(130), [(1, 3), (0, 1)]);
}

#[test]
fn a_layer_of_which_nothing_is_missing_is_forgotten_when_it_is_left() {
    let mut bench = Bench::new(&mut Random::new(1));
    let start = bench.start;
    bench.down.set_target(0);
    (0..3).for_each(|seq| bench.push(0, packet(start, seq, 30, 30, seq == 0)));
    bench.send(30);
    bench.down.set_target(1);
    bench.push(1, packet(start, 9, 130, 130, true));
    assert_eq!(bench.send(130), [(1, 3)]);
    assert!(bench.down.former.is_none());
}

#[test]
fn numbers_of_retransmissions_begin_in_the_lower_half_so_that_they_do_not_wrap_at_once() {
    let mut random = Random::new(1);
    for _ in 0..100 {
        assert_eq!(Bench::new(&mut random).down.rtx_seq >> 15, 2);
    }
}

#[test]
fn after_a_pause_a_keyframe_that_came_lately_will_do_and_another_can_wait() {
    for (keyframe_ms, expected) in [(6_600, vec![(0, 1), (0, 2)]), (6_400, vec![]), (2_900, vec![])] {
        let mut bench = Bench::new(&mut Random::new(1));
        let start = bench.start;
        let at = |ms: u64| start + Duration::from_millis(ms);
        bench.down.set_target(0);
        bench.push(0, packet(start, 0, 0, 0, true));
        assert_eq!(bench.send(0), [(0, 0)]);
        assert_eq!(bench.down.urgency(&bench.stream.tracks[0]), Urgency::Now);
        let least = [Bitrate::ZERO, Bitrate::ZERO, Bitrate::from_kbps(150)];
        for (ms, is_paused) in [(0, false), (3_000, true), (8_000, false)] {
            if ms == 8_000 {
                bench.push(0, packet(start, 1, keyframe_ms, keyframe_ms, true));
                bench.push(0, packet(start, 2, 7_900, 7_900, false));
                assert_eq!(bench.send(7_999), []);
            }
            bench.down.choice.pause(at(ms), Bitrate::ZERO, &least);
            bench.down.follow_choice(at(ms));
            assert_eq!(bench.down.is_paused, is_paused, "at {ms} ms");
        }
        assert_eq!(bench.down.urgency(&bench.stream.tracks[0]), Urgency::CanWait);
        assert_eq!(bench.send(8_000), expected, "keyframe at {keyframe_ms} ms");
        bench.push(0, packet(start, 3, 8_100, 8_100, true));
        bench.send(8_100);
        bench.down.forwarder.stop();
        assert_eq!(bench.down.urgency(&bench.stream.tracks[0]), Urgency::Now, "it has had a picture since");
    }
}

/// What the peer's reports come to of packets 0 to `end`, of which the publisher has lost some: each names the highest number that
/// has come, when so many packets were on their way, and the share that the peer missed since the one before.
fn path_losses(lost: std::ops::Range<u64>, reports: &[(u64, u64, u8)]) -> Vec<Option<u8>> {
    let mut bench = Bench::new(&mut Random::new(1));
    bench.down.set_target(0);
    let (start, mut sent) = (bench.start, 0);
    let mut told = Vec::new();
    for (highest, on_its_way, fraction_lost) in reports {
        for seq in (sent..=highest + on_its_way).filter(|seq| !lost.contains(seq)) {
            bench.push(0, packet(start, seq, seq as u32, seq as u32, seq == 0));
            let track = &bench.stream.tracks[0];
            bench.down.update(start, track);
            let next = bench.down.next(start, track, &mut DropCounters::default()).unwrap();
            bench.down.remember(&next, 9);
        }
        sent = sent.max(highest + on_its_way + 1);
        let first = bench.down.before_first + 1;
        let block = ReportBlock {
            highest_seq: (first + highest) as u32,
            fraction_lost: *fraction_lost,
            ..ReportBlock::default()
        };
        told.push(bench.down.on_report(start, &block, &mut 2_048));
    }
    told
}

#[test]
fn what_the_publisher_lost_is_not_the_path_s_loss_however_much_is_on_its_way() {
    for on_its_way in [25, 63, 64, 100, 480] {
        // A fifth of the packets from 150 to 249 never came to us.
        let reports = [(99, on_its_way.min(40), 0), (149, on_its_way, 0), (249, on_its_way, 51), (349, on_its_way, 26)];
        let told = path_losses(150..170, &reports);
        assert_eq!(told, [Some(0), Some(0), Some(0), Some(28)], "{on_its_way} on their way");
    }
}

#[test]
fn where_more_is_on_its_way_than_is_remembered_nothing_is_told_of_what_is_not_known() {
    let reports = [(99, 40, 0), (149, 700, 0), (249, 700, 51), (849, 100, 0), (949, 700, 26)];
    assert_eq!(path_losses(150..170, &reports), [Some(0), None, None, Some(0), Some(28)]);
}
