//! Several tracks of a kind.

use crate::common::*;
use sim::check::{Holes, check_track};
use sim::publisher::TrackPlan;
use sim::viewer::Behaviour;
use sim::world::World;
use wire::codec::Codec;

#[test]
fn each_track_arrives_as_itself_and_whole_whatever_is_beside_it() {
    for seed in [1, 2] {
        let mut world = World::new(seed, rough());
        let plans = [opus(), vp8(), opus(), simulcast()];
        let stream = world.open_stream(&plans);
        world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(15));
        for (index, plan) in plans.iter().enumerate() {
            let track = &world.viewer(viewer).tracks[index];
            assert!(
                track.records.values().all(|record| usize::from(record.tag.track) == index),
                "seed {seed}: {index}"
            );
            let holes = if plan.layers.len() > 1 || index % 2 == 0 { Holes::Allowed } else { Holes::Refused };
            let rate = plan.codec.clock_rate();
            let summary = check_track(track, rate, seconds(2), holes);
            assert!(summary.as_ref().is_ok_and(|summary| summary.frames > 250), "seed {seed}: {index}: {summary:?}");
        }
    }
}

#[test]
fn sound_of_telephones_passes_as_it_came() {
    for codec in [Codec::Pcmu, Codec::Pcma] {
        let mut world = World::new(1, quiet());
        let stream = world.open_stream(&[TrackPlan { codec, ..sound(64) }, vp8()]);
        world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(5));
        let summary = check_track(&world.viewer(viewer).tracks[0], codec.clock_rate(), seconds(1), Holes::Refused);
        assert!(summary.as_ref().is_ok_and(|summary| summary.frames > 190), "{codec:?}: {summary:?}");
        let counters = world.viewer(viewer).counters;
        assert_eq!((counters.spoilt, counters.refused), (0, 0), "{codec:?}");
    }
}
