//! Sound with redundancy (RED, RFC 2198): taken off where it arrives, and put on for who loses packets.

use crate::common::*;
use rooms::drops::DropReason;
use rooms::spec::{DownTrackSpec, RedSpec};
use sim::network::LinkConfig;
use sim::publisher::{RED, TrackPlan, extensions};
use sim::viewer::Behaviour;
use sim::world::{PeerId, World};
use wire::codec::red::{self, Block};
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{Bitrate, Seq};

/// A fifth is lost.
fn lossy() -> LinkConfig {
    LinkConfig { loss: 0.2, ..quiet() }
}

fn takes_red(is_preferred: bool) -> impl FnOnce(&mut [DownTrackSpec]) {
    move |tracks| tracks[0].red = Some(RedSpec { payload_type: RED, is_preferred })
}

/// The share of the frames of sound made in `from..to` seconds that the viewer heard.
fn heard(world: &mut World, viewer: PeerId, from: u64, to: u64) -> f64 {
    let made = (from * 1_000_000)..(to * 1_000_000);
    let frames = world.viewer(viewer).tracks[0].frames.values().filter(|frame| made.contains(&frame.tag.sent_us));
    frames.filter(|frame| frame.whole_at.is_some()).count() as f64 / (50 * (to - from)) as f64
}

#[test]
fn who_loses_a_fifth_hears_nearly_all_with_redundancy_and_who_loses_nothing_gets_none() {
    for seed in [1, 2, 3] {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[opus()]);
        world.add_publisher(stream);
        let with = world.add_viewer_with(0, stream, Behaviour::GOOD, takes_red(false));
        let without = world.add_viewer(stream, Behaviour::GOOD);
        let quiet = world.add_viewer_with(0, stream, Behaviour::GOOD, takes_red(false));
        world.set_way_down(with, lossy());
        world.set_way_down(without, lossy());
        world.run(seconds(32));
        // The first reports have to tell of the loss.
        let [with_share, without_share, quiet_share] =
            [with, without, quiet].map(|viewer| heard(&mut world, viewer, 5, 30));
        assert!(with_share > 0.985, "seed {seed}: {with_share}");
        assert!((0.75..0.85).contains(&without_share), "seed {seed}: {without_share}");
        assert_eq!(quiet_share, 1.0, "seed {seed}");
        let [with, without, quiet] = [with, without, quiet].map(|viewer| world.viewer(viewer).counters);
        assert!(with.recovered > 200 && with.refused + with.spoilt == 0, "seed {seed}: {with:?}");
        assert_eq!((without.redundant, quiet.redundant), (0, 0), "seed {seed}");
        assert!(world.counters(0).packets_redundant > 1_200, "seed {seed}");
    }
}

#[test]
fn redundancy_ends_ten_seconds_after_the_loss() {
    let mut world = World::new(4, quiet());
    let stream = world.open_stream(&[opus()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer_with(0, stream, Behaviour::GOOD, takes_red(false));
    world.set_way_down(viewer, lossy());
    world.run(seconds(5));
    world.set_way_down(viewer, quiet());
    world.run(seconds(5));
    let during = world.counters(0).packets_redundant;
    world.run(seconds(2));
    assert_eq!(world.counters(0).packets_redundant, during + 100);
    world.run(seconds(7));
    let after = world.counters(0).packets_redundant;
    world.run(seconds(5));
    assert_eq!(world.counters(0).packets_redundant, after);
    assert!(after > during);
}

/// A viewer whose path carries the sound, some 75 kbit/s, but not each packet twice, some 125.
fn narrow_path(seed: u64) -> (World, PeerId) {
    let mut world = World::new(seed, quiet());
    let stream = world.open_stream(&[opus()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer_with(0, stream, Behaviour::GOOD, takes_red(false));
    let narrow = LinkConfig { rate: Some(Bitrate::from_kbps(100)), queue_bytes: 12_000, loss: 0.05, ..quiet() };
    world.set_way_down(viewer, narrow);
    (world, viewer)
}

#[test]
fn redundancy_does_not_fill_a_path_that_carries_the_sound_alone() {
    for seed in [1, 2, 3] {
        let (mut world, viewer) = narrow_path(seed);
        world.run(seconds(60));
        assert!(world.viewer(viewer).counters.redundant > 0, "seed {seed}: it was tried");
        let share = heard(&mut world, viewer, 20, 58);
        assert!(share > 0.93, "seed {seed}: {share}");
        let start = world.start;
        let late = world.viewer(viewer).tracks[0].lateness(start);
        let late = late[late.len() * 3 / 4];
        assert!(late < millis(60), "seed {seed}: a quarter came later than {late:?}");
    }
}

#[test]
fn redundancy_comes_back_when_the_path_is_no_longer_narrow() {
    for seed in [1, 2, 3] {
        let (mut world, viewer) = narrow_path(seed);
        world.run(seconds(20));
        world.set_way_down(viewer, LinkConfig { loss: 0.05, ..quiet() });
        world.run(seconds(60));
        let before = world.counters(0).packets_redundant;
        world.run(seconds(20));
        let during = world.counters(0).packets_redundant - before;
        assert!(during > 900, "seed {seed}: {during} of 1,000");
    }
}

/// At a fifth of loss each packet takes two others with it: one of twenty-five is lost with one, one of 125 with two.
#[test]
fn the_second_repetition_comes_back_too() {
    for seed in [1, 2, 3] {
        let (mut world, viewer) = narrow_path(seed);
        world.run(seconds(20));
        world.set_way_down(viewer, lossy());
        world.run(seconds(80));
        let share = heard(&mut world, viewer, 60, 98);
        assert!(share > 0.98, "seed {seed}: {share}");
    }
}

#[test]
fn who_prefers_redundancy_has_it_from_the_first_packet_on() {
    let mut world = World::with_workers(5, quiet(), 2, |_| ());
    let stream = world.open_stream(&[opus()]);
    let publisher = world.add_publisher(stream);
    let viewers = [0, 1].map(|worker| world.add_viewer_with(worker, stream, Behaviour::GOOD, takes_red(true)));
    world.run(seconds(3));
    // The publisher's own is passed on as well.
    world.publisher(publisher).set_redundancy(1);
    world.run(seconds(3));
    for viewer in viewers {
        let counters = world.viewer(viewer).counters;
        assert!(counters.redundant >= 295 && counters.recovered + counters.spoilt == 0, "{counters:?}");
        assert_eq!(world.viewer(viewer).tracks[0].records.len() as u64, counters.redundant);
        assert_eq!(heard(&mut world, viewer, 1, 5), 1.0);
    }
}

#[test]
fn what_a_publisher_loses_comes_from_its_redundancy_and_viewers_get_plain_opus() {
    for seed in [1, 2, 3] {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[opus()]);
        let publisher = world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(1));
        let (from, to) = (world.addr(publisher), world.worker_addr(0));
        let rough = LinkConfig { reordering: 0.1, duplication: 0.02, jitter: millis(4), ..lossy() };
        world.network.set_link(from, to, rough);
        world.publisher(publisher).set_redundancy(2);
        world.run(seconds(22));
        let share = heard(&mut world, viewer, 2, 20);
        assert!(share > 0.985, "seed {seed}: {share}");
        let counters = world.viewer(viewer).counters;
        assert_eq!((counters.redundant, counters.spoilt, counters.duplicates), (0, 0, 0), "seed {seed}: {counters:?}");
        assert!(world.counters(0).packets_recovered > 150, "seed {seed}");
        // Each frame has the timestamp of when it was made.
        let track = &world.viewer(viewer).tracks[0];
        let (_, first) = track.records.first_key_value().unwrap();
        for record in track.records.values() {
            let said = record.timestamp.wrapping_sub(first.timestamp);
            assert_eq!(u64::from(said), (record.tag.sent_us - first.tag.sent_us) * 48 / 1_000, "seed {seed}");
        }
    }
}

#[test]
fn what_a_publisher_loses_is_nobody_elses_loss() {
    for seed in [1, 2, 3] {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[opus()]);
        let publisher = world.add_publisher(stream);
        let near = world.add_viewer_with(0, stream, Behaviour::GOOD, takes_red(false));
        let far = world.add_viewer_with(0, stream, Behaviour::GOOD, takes_red(false));
        world.set_path(far, LinkConfig { delay: millis(150), jitter: millis(30), ..quiet() });
        world.run(seconds(1));
        let (from, to) = (world.addr(publisher), world.worker_addr(0));
        world.network.set_link(from, to, LinkConfig { reordering: 0.02, ..lossy() });
        world.run(seconds(60));
        assert_eq!(world.counters(0).packets_redundant, 0, "seed {seed}: it would have nothing of what was lost");
        // What is lost on a viewer's own path counts as before.
        world.set_way_down(near, LinkConfig { loss: 0.05, ..quiet() });
        world.run(seconds(10));
        let [near, far] = [near, far].map(|viewer| world.viewer(viewer).counters.redundant);
        assert!(near > 200 && far == 0, "seed {seed}: {near}, {far}");
    }
}

/// A packet of sound with any payload, of a publisher that sends nothing else.
fn send_red(world: &mut World, publisher: PeerId, seq: u64, payload: &[u8]) {
    const SSRC: u32 = 9;
    let timestamp = seq as u32 * 960;
    let header = RtpHeader { payload_type: RED, marker: false, seq: Seq(seq as u16), timestamp, ssrc: SSRC };
    let mut plain = vec![0; 64];
    let mut writer = HeaderWriter::new(&mut plain, &header).unwrap();
    writer.extension(extensions().mid.unwrap(), TrackPlan::mid(0).as_bytes());
    let len = writer.finish();
    plain.truncate(len);
    plain.extend(payload);
    let packet = world.publisher(publisher).seal_rtp(&plain, len, SSRC, (1 << 16) + seq);
    let from = world.addr(publisher);
    world.inject(0, from, &packet);
}

#[test]
fn redundancy_that_lies_is_dropped_and_one_packet_does_not_become_hundreds() {
    let mut world = World::new(6, quiet());
    let stream = world.open_stream(&[opus()]);
    let publisher = world.add_publisher(stream);
    let now = world.now;
    world.publisher(publisher).set_sending(now, false);
    let opus = TrackPlan::payload_type(0);
    let more = 0x80 | opus;
    let bad: [&[u8]; 6] = [
        &[more],
        &[more, 0x0f, 0, 9, opus, 1, 2],
        &[more, 0x0f, 0, 1, more, 0x0f, 0, 1],
        &[0xff; 100],
        &[RED, 1, 2],
        &[more, 0x0f, 0, 1, opus + 1, 1, 2],
    ];
    send_red(&mut world, publisher, 1, &[opus, 1]);
    for (seq, payload) in (2..).zip(bad) {
        send_red(&mut world, publisher, seq, payload);
    }
    // Padding alone is no redundancy.
    send_red(&mut world, publisher, 10, &[]);
    let counters = world.counters(0);
    assert_eq!((counters.packets_in, counters.packets_recovered), (2, 0));
    assert_eq!(counters.drops.count(DropReason::MalformedRed), bad.len() as u64);

    let blocks = (1..16).rev().map(|back| Block { payload_type: opus, offset: back * 960, payload: &[7] });
    let mut payload = [0; 200];
    let len = red::write(&mut payload, &blocks.collect::<Vec<_>>(), opus, &[1]).unwrap();
    send_red(&mut world, publisher, 200, &payload[..len]);
    assert_eq!((world.counters(0).packets_in, world.counters(0).packets_recovered), (3, 4));
    // Of nothing that came already, whatever it is called.
    send_red(&mut world, publisher, 202, &[more, 0x1e, 0, 1, opus, 7, 1]);
    assert_eq!(world.counters(0).packets_recovered, 4);
}
