//! Streams whose spatial layers share one SSRC (SVC): each viewer gets those that its path carries.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::common::*;
use sim::media::{LayerPlan, Spatial};
use sim::network::LinkConfig;
use sim::publisher::TrackPlan;
use sim::viewer::{Behaviour, ReceivedTrack, Record};
use sim::world::World;
use wire::Bitrate;
use wire::codec::Codec;

/// Three sizes of 125, 500 and 2,000 kbit/s, each with what is below it.
fn svc(codec: Codec, key_only: bool) -> TrackPlan {
    let layer = LayerPlan {
        bitrate: Bitrate::from_kbps(2_000),
        frames_per_second: 30,
        temporal_layers: 1,
        spatial: Spatial { layers: 3, key_only },
    };
    TrackPlan { codec, layers: vec![layer] }
}

fn narrow(kbps: u64) -> LinkConfig {
    LinkConfig { rate: Some(Bitrate::from_kbps(kbps)), queue_bytes: kbps as usize * 1_000 / 8 / 4, ..quiet() }
}

/// The highest spatial layer of each picture, by the number of the picture. Every picture has to be one that a decoder can
/// make use of: its layers begin with the lowest and leave out none below the highest, the marker stands on its last packet
/// alone, and no layer comes in but with a keyframe. Numbers are missing only of what the network lost for good: such pictures
/// are left out, and few, and nothing is said of the layers right behind one.
fn pictures(track: &ReceivedTrack) -> BTreeMap<u32, u8> {
    let mut pictures: BTreeMap<u32, Vec<(u64, Record)>> = BTreeMap::new();
    let first = track.records.iter().find(|(_, record)| record.tag.keyframe && record.tag.index == 0);
    let (first, _) = first.expect("a keyframe came");
    let end = track.records.values().map(|record| record.arrival).max().unwrap() - seconds(1);
    for (seq, record) in track.records.range(first..).filter(|(_, record)| record.arrival < end) {
        pictures.entry(record.tag.frame).or_default().push((*seq, *record));
    }
    // The end cuts it.
    let (_, end) = pictures.pop_last().expect("a picture came");
    let begins = pictures.values().skip(1).map(|packets| packets[0].0).chain([end[0].0]);
    let begins: Vec<u64> = begins.collect();
    let (mut tops, mut next_seq, mut before, mut cut) = (BTreeMap::new(), *first, None, 0);
    for ((number, packets), next_begins) in pictures.into_iter().zip(begins) {
        let mut expected = (0, 0);
        let is_whole = packets.iter().map(|(seq, _)| *seq).eq(next_seq..next_begins);
        next_seq = packets.last().map_or(next_seq, |(seq, _)| seq + 1);
        if !is_whole {
            (cut, before) = (cut + 1, None);
            continue;
        }
        for (at, (_, record)) in packets.iter().enumerate() {
            assert_eq!((record.tag.layer, record.tag.index), expected, "picture {number}");
            let ends = record.tag.index + 1 == record.tag.count;
            expected = if ends { (record.tag.layer + 1, 0) } else { (record.tag.layer, record.tag.index + 1) };
            assert_eq!(record.marker, at + 1 == packets.len(), "picture {number}: marker of packet {at}");
        }
        assert_eq!(expected.1, 0, "picture {number} is whole");
        let top = expected.0 - 1;
        assert!(
            before.is_none_or(|before| top <= before) || packets[0].1.tag.keyframe,
            "picture {number} has layer {top} after {before:?}"
        );
        tops.insert(number, top);
        before = Some(top);
    }
    // On 400 kbit/s the first keyframe, of all layers, and the first probe fill the queue.
    assert!(cut * 40 <= tops.len(), "{cut} of {} pictures lack packets", tops.len());
    tops
}

/// Lets a viewer watch, and returns the share of pictures of the last third that have a highest layer within the range.
fn share_within(seed: u64, plan: &TrackPlan, way_down: &[(u64, LinkConfig)], range: RangeInclusive<u8>) -> f64 {
    let mut world = World::new(seed, quiet());
    let stream = world.open_stream(&[plan.clone(), opus()]);
    world.add_publisher(stream);
    world.run(seconds(3));
    world.set_way_down_of_next(0, way_down[0].1);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    for (span, link) in way_down {
        world.set_way_down(viewer, *link);
        world.run(seconds(*span));
    }
    let tops = pictures(&world.viewer(viewer).tracks[0]);
    assert!(tops.len() > 200, "seed {seed}: {} pictures", tops.len());
    let late: Vec<u8> = tops.values().copied().skip(tops.len() * 2 / 3).collect();
    late.iter().filter(|top| range.contains(*top)).count() as f64 / late.len() as f64
}

fn all_kinds() -> impl Iterator<Item = (u64, TrackPlan)> {
    let kinds = [(Codec::Vp9, false), (Codec::Vp9, true), (Codec::Av1, false), (Codec::Av1, true)];
    (0..).zip(kinds.map(|(codec, key_only)| svc(codec, key_only)))
}

#[test]
fn a_wide_path_gets_all_spatial_layers_and_a_narrow_one_those_that_fit() {
    for (seed, plan) in all_kinds() {
        for (kbps, range) in [(20_000, 2..=2), (1_000, 1..=1), (400, 0..=0)] {
            let share = share_within(seed, &plan, &[(20, narrow(kbps))], range);
            assert!(share > 0.9, "{plan:?} at {kbps} kbit/s: {share:.2} of the pictures are of the layer that fits");
        }
    }
}

#[test]
fn spatial_layers_go_at_once_and_come_back_at_a_keyframe() {
    for (seed, plan) in all_kinds() {
        let steps = [(15, narrow(8_000)), (15, narrow(700)), (60, narrow(8_000))];
        let share = share_within(seed, &plan, &steps, 2..=2);
        assert!(share > 0.8, "{plan:?}: {share:.2} of the pictures are of the largest layer in the end");
    }
}

#[test]
fn a_viewer_may_ask_for_less_spatial_layers() {
    use rooms::spec::{Command, LayerLimit};
    for (seed, plan) in all_kinds() {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[plan, opus()]);
        world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        let session = world.session(viewer);
        world.run(seconds(8));
        for (spatial_max, spans) in [(0, 4), (u8::MAX, 8)] {
            world.command(0, Command::Limit { session, layers: LayerLimit { spatial_max, ..LayerLimit::NONE } });
            world.run(seconds(spans));
        }
        let tops: Vec<u8> = pictures(&world.viewer(viewer).tracks[0]).into_values().collect();
        let of = |from: usize, to: usize| &tops[30 * from..30 * to];
        assert!(of(9, 11).iter().all(|top| *top == 0), "seed {seed}: {:?}", of(9, 11));
        assert!(of(16, 18).iter().all(|top| *top == 2), "seed {seed}: {:?}", of(16, 18));
    }
}

#[test]
fn what_a_publisher_loses_comes_before_and_after_upper_layers_go() {
    use rooms::spec::{Command, LayerLimit};
    for (seed, plan) in all_kinds() {
        let lossy = LinkConfig { loss: 0.02, delay: Duration::from_millis(40), ..quiet() };
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[plan, opus()]);
        let publisher = world.add_publisher(stream);
        world.set_path(publisher, lossy);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        let session = world.session(viewer);
        world.run(seconds(5));
        // It falls in the middle of whatever is being repaired, and a keyframe brings it back. So often it may change.
        for _ in 0..12 {
            for (spatial_max, ms) in [(0, 430), (u8::MAX, 9_570)] {
                world.command(0, Command::Limit { session, layers: LayerLimit { spatial_max, ..LayerLimit::NONE } });
                world.run(Duration::from_millis(ms));
            }
        }
        let track = &world.viewer(viewer).tracks[0];
        let tops = pictures(track);
        let falls = tops.values().zip(tops.values().skip(1)).filter(|(before, after)| after < before).count();
        assert!(falls >= 10, "seed {seed}: {falls} falls");
        let holes = track.holes().len();
        assert!(holes <= 3, "seed {seed}: {holes} numbers are asked for in vain");
    }
}
