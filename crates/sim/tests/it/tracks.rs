//! Several tracks of a kind.

use crate::common::*;
use rooms::spec::{Command, DownTrackSpec, Event, LayerLimit, LayerStats, SessionId};
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

#[test]
fn each_of_many_streams_has_its_own_limit_and_pause() {
    for seed in [1, 2] {
        let mut world = World::new(seed, quiet());
        let streams: Vec<_> = (0..4).map(|_| world.open_stream(&[simulcast()])).collect();
        for stream in &streams {
            world.add_publisher(*stream);
        }
        // Without numbers for feedback, as this viewer reads the first stream alone: what was sent is told by its session.
        let unnumbered = |tracks: &mut [DownTrackSpec]| tracks[0].extensions.transport_cc = None;
        let viewer = world.add_viewer_with(0, streams[0], Behaviour::GOOD, unnumbered);
        let session = world.session(viewer);
        for (number, stream) in (1..).zip(&streams[1..]) {
            let mut tracks = sim::viewer::down_tracks(&[simulcast()], &mut wire::Random::new(seed + number));
            unnumbered(&mut tracks);
            tracks[0].mid = format!("more {number}").into();
            world.command(0, Command::Watch { session, stream: *stream, tracks });
        }
        world.run(seconds(10));
        let small = LayerLimit { spatial_max: 0, ..LayerLimit::NONE };
        world.command(0, Command::LimitStream { session, stream: streams[1], layers: small, priority: 0 });
        world.command(0, Command::Pause { session, stream: streams[2], on: true });
        world.run(seconds(10));
        let layers = layers_of(&mut world, session);
        assert_eq!(layers[1].current, Some(0), "seed {seed}: {layers:?}");
        assert_eq!(layers[2].current, None, "seed {seed}: {layers:?}");
        for index in [0, 3] {
            assert_eq!(layers[index].current, Some(2), "seed {seed}: {layers:?}");
        }
        let whole = LayerLimit::NONE;
        world.command(0, Command::LimitStream { session, stream: streams[1], layers: whole, priority: 0 });
        world.command(0, Command::Pause { session, stream: streams[2], on: false });
        world.run(seconds(10));
        let layers = layers_of(&mut world, session);
        assert!(layers.iter().all(|layer| layer.current == Some(2)), "seed {seed}: {layers:?}");
    }
}

/// How each picture goes to a session, in the order in which it was watched.
fn layers_of(world: &mut World, session: SessionId) -> Vec<LayerStats> {
    world.events.clear();
    world.command(0, Command::Inspect { session, token: 1 });
    let Some((_, Event::Stats { stats: Some(stats), .. })) = world.events.pop() else { panic!("no stats") };
    stats.layers
}
