//! Streams of high rates, whose keyframes take longer to send than to come.

use crate::common::*;
use rooms::drops::DropReason;
use rooms::spec::DownTrackSpec;
use sim::check::{Holes, check_track};
use sim::media::{LayerPlan, Spatial};
use sim::network::LinkConfig;
use sim::publisher::TrackPlan;
use sim::viewer::Behaviour;
use sim::world::World;
use wire::Bitrate;
use wire::codec::Codec;

/// Frames of 250 KB, keyframes of 1 MB.
fn four_k() -> TrackPlan {
    let layer = LayerPlan {
        bitrate: Bitrate::from_kbps(10_000),
        frames_per_second: 5,
        temporal_layers: 1,
        spatial: Spatial::ONE,
    };
    TrackPlan { codec: Codec::Vp8, layers: vec![layer] }
}

fn without_feedback(tracks: &mut [DownTrackSpec]) {
    tracks.iter_mut().for_each(|track| track.extensions.transport_cc = None);
}

#[test]
fn a_keyframe_of_a_megabyte_reaches_a_viewer_that_is_paced_at_20_mbit_s() {
    let mut world = World::new(5, quiet());
    let stream = world.open_stream(&[four_k()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer_with(0, stream, Behaviour::GOOD, without_feedback);
    world.run(seconds(10));
    let track = &world.viewer(viewer).tracks[0];
    check_track(track, VIDEO_CLOCK, seconds(1), Holes::Refused).unwrap();
    assert!(track.whole_frames() >= 47, "{} frames", track.whole_frames());
    assert_eq!(world.publisher(publisher).keyframe_requests.len(), 0);
}

/// Some 1,700 packets a second.
fn at_16_mbit_s() -> TrackPlan {
    let layer = LayerPlan {
        bitrate: Bitrate::from_kbps(16_000),
        frames_per_second: 30,
        temporal_layers: 1,
        spatial: Spatial::ONE,
    };
    TrackPlan { codec: Codec::Vp8, layers: vec![layer] }
}

#[test]
fn what_is_lost_on_the_way_up_of_16_mbit_s_is_repaired_over_a_round_trip_of_600_ms() {
    let mut world = World::new(5, quiet());
    let stream = world.open_stream(&[at_16_mbit_s()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer_with(0, stream, Behaviour::GOOD, without_feedback);
    world.set_path(publisher, LinkConfig { delay: millis(300), ..quiet() });
    world.run(seconds(3));
    let (from, to) = (world.addr(publisher), world.worker_addr(0));
    world.network.set_link(from, to, LinkConfig { delay: millis(300), loss: 0.02, ..quiet() });
    world.run(seconds(5));
    world.network.set_link(from, to, LinkConfig { delay: millis(300), ..quiet() });
    world.run(seconds(3));
    let (repaired, drops) = (world.publisher(publisher).counters.packets_resent, world.counters(0).drops);
    assert!(repaired > 100, "{repaired}");
    assert_eq!([DropReason::TooOld, DropReason::BehindHistory].map(|reason| drops.count(reason)), [0, 0]);
    // A repair that is lost, too, comes too late for some.
    let holes = world.viewer(viewer).tracks[0].holes().len();
    assert!(holes < 10, "{holes} never came");
}

#[test]
fn what_is_lost_of_16_mbit_s_is_repaired_over_a_round_trip_of_600_ms() {
    let mut world = World::new(5, quiet());
    let stream = world.open_stream(&[at_16_mbit_s()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer_with(0, stream, Behaviour::GOOD, without_feedback);
    world.run(seconds(3));
    world.set_path(viewer, LinkConfig { delay: millis(300), ..quiet() });
    world.run(seconds(2));
    world.set_way_down(viewer, LinkConfig { delay: millis(300), loss: 0.02, ..quiet() });
    world.run(seconds(5));
    world.set_way_down(viewer, LinkConfig { delay: millis(300), ..quiet() });
    world.run(seconds(3));
    let repaired = world.counters(0).packets_resent;
    // A repair that is lost, too, comes too late for some.
    let holes = world.viewer(viewer).tracks[0].holes().len();
    assert!(repaired > 100 && holes < 10, "{repaired} packets sent again, {holes} never came");
}
