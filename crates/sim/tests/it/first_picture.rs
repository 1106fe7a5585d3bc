//! When a viewer's picture begins, and when it has its full size.

use std::time::Duration;

use crate::common::*;
use rooms::spec::{Command, LayerLimit};
use sim::check::{Holes, check_track};
use sim::network::LinkConfig;
use sim::publisher::TrackPlan;
use sim::viewer::Behaviour;
use sim::world::{PeerId, World};
use wire::codec::Codec;
use wire::{Bitrate, Random};

/// A camera of 720 lines, of which the largest layer does not fit what is known of a path at first.
fn camera() -> TrackPlan {
    video(Codec::H264, &[150, 500, 2_000])
}

/// How often a recording has a keyframe: of its smaller layers more rarely, as of the clips that load testers send.
const RECORDING: [u64; 3] = [8_000, 4_000, 2_000];

fn make_recording(world: &mut World, publisher: PeerId) {
    for (layer, interval) in RECORDING.into_iter().enumerate() {
        world.publisher(publisher).set_keyframe_interval(0, layer, millis(interval));
    }
}

/// When the first whole picture came, and the first of the largest layer, since then.
fn begins(world: &mut World, viewer: PeerId, since: Duration) -> (Duration, Option<Duration>) {
    let start = world.start + since;
    let track = &world.viewer(viewer).tracks[0];
    check_track(track, VIDEO_CLOCK, seconds(1), Holes::Refused).unwrap();
    let first_of = |layers: std::ops::RangeInclusive<u8>| {
        let frames = track.frames.values().filter(|frame| layers.contains(&frame.tag.layer));
        frames.filter_map(|frame| frame.whole_at).min().map(|at| at.duration_since(start))
    };
    (first_of(0..=2).expect("a picture came"), first_of(2..=2))
}

#[test]
fn who_was_there_before_has_the_first_picture_in_full_size() {
    for is_recording in [false, true] {
        for seed in seeds(0..8) {
            let mut world = World::new(seed, quiet());
            let stream = world.open_stream(&[camera()]);
            let viewer = world.add_viewer(stream, Behaviour::GOOD);
            world.run(millis(300));
            let began = world.now - world.start;
            let publisher = world.add_publisher(stream);
            if is_recording {
                make_recording(&mut world, publisher);
            }
            world.run(seconds(4));
            let (first, full) = begins(&mut world, viewer, began);
            assert!(first < millis(100), "seed {seed}: {first:?}");
            assert_eq!(full, Some(first), "seed {seed}");
        }
    }
}

#[test]
fn a_newcomer_has_a_picture_at_once_and_its_full_size_soon() {
    for seed in seeds(0..8) {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[camera()]);
        world.add_publisher(stream);
        world.run(seconds(3) + millis(Random::new(seed).below(2_000)));
        let came = world.now - world.start;
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(4));
        let (first, full) = begins(&mut world, viewer, came);
        assert!(first < millis(100), "seed {seed}: {first:?}");
        assert!(full.is_some_and(|full| full < millis(700)), "seed {seed}: {full:?}");
    }
}

/// Nothing that is asked for brings a keyframe: what comes by itself is all that there is.
#[test]
fn a_newcomer_to_a_recording_begins_with_any_keyframe_and_has_its_full_size_with_the_next() {
    for seed in seeds(0..20) {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[camera()]);
        let publisher = world.add_publisher(stream);
        make_recording(&mut world, publisher);
        let came = seconds(12) + millis(Random::new(seed).below(8_000));
        world.run(came);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(6));
        let (first, full) = begins(&mut world, viewer, came);
        let to_next = |interval: u64| millis(interval - came.as_millis() as u64 % interval);
        let next = to_next(RECORDING[2]);
        // What the path carries is known after this; of one that came before, what is stored will do.
        let known = millis(300);
        assert!(first < next.max(known) + millis(200), "seed {seed}: {first:?}, a keyframe came after {next:?}");
        let in_full_size = if next < known { next + millis(RECORDING[2]) } else { next };
        assert!(full.is_some_and(|full| full < in_full_size + millis(200)), "seed {seed}: {full:?}, {in_full_size:?}");
    }
}

/// Browsers begin with the small layers, and send the large ones when they have found out what their own path carries.
#[test]
fn a_layer_that_begins_is_taken_up_with_its_first_keyframe() {
    for seed in seeds(0..8) {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[camera()]);
        let publisher = world.add_publisher(stream);
        let now = world.now;
        world.publisher(publisher).pause_layer(now, 0, 2, true);
        world.run(seconds(2));
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(2));
        assert_eq!(layer_now(&mut world, viewer), 1, "seed {seed}");
        let (now, began) = (world.now, world.now - world.start);
        world.publisher(publisher).pause_layer(now, 0, 2, false);
        world.run(seconds(2));
        let (_, full) = begins(&mut world, viewer, began);
        assert!(full.is_some_and(|full| full < millis(150)), "seed {seed}: {full:?}");
        let asked = &world.publisher(publisher).keyframe_requests;
        assert!(!asked.iter().any(|(at, _, layer)| *at > now && *layer == 2), "seed {seed}: {asked:?}");
    }
}

/// Pictures that are sent, smaller ones than are wanted of these, and missing ones.
fn pictures(world: &World) -> [u64; 3] {
    let counters = world.counters(0);
    [counters.pictures, counters.pictures_small, counters.pictures_missing]
}

#[test]
fn pictures_that_are_small_or_missing_are_counted_until_they_are_not_or_their_viewer_leaves() {
    let mut world = World::new(1, quiet());
    let stream = world.open_stream(&[camera(), opus()]);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(2));
    assert_eq!(pictures(&world), [0, 0, 0], "nothing comes");
    let publisher = world.add_publisher(stream);
    (0..3).for_each(|layer| world.publisher(publisher).set_keyframe_interval(0, layer, seconds(60)));
    world.run(seconds(5));
    assert_eq!(pictures(&world), [1, 0, 0]);
    let late = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(2));
    assert_eq!(pictures(&world), [1, 0, 1], "no keyframe comes");
    let session = world.session(late);
    world.command(0, Command::RemoveSession(session));
    assert_eq!(pictures(&world), [1, 0, 0]);

    (0..3).for_each(|layer| world.publisher(publisher).set_keyframe_interval(0, layer, seconds(1)));
    let rate = Some(Bitrate::from_kbps(900));
    world.set_way_down(viewer, LinkConfig { rate, queue_bytes: 30_000, ..quiet() });
    world.run(seconds(5));
    assert_eq!(pictures(&world), [1, 1, 0]);
    let session = world.session(viewer);
    let limit = |spatial_max| Command::Limit { session, layers: LayerLimit { spatial_max, ..LayerLimit::NONE } };
    world.command(0, limit(1));
    world.run(seconds(2));
    assert_eq!(pictures(&world), [1, 0, 0], "no larger one is wanted");
    world.command(0, Command::RemoveSession(session));
    assert_eq!(pictures(&world), [0, 0, 0]);

    let member = world.add_member_on(0, &[stream], Behaviour::GOOD);
    world.run(seconds(3));
    assert_eq!(pictures(&world)[0], 1);
    let session = world.session(member);
    world.command(0, Command::Unwatch { session, stream });
    assert_eq!(pictures(&world), [0, 0, 0], "it stays, and watches nothing");
}
