//! Loss and reordering of a tenth, each way, on every path.
//!
//! The criterion: a viewer asks for each missing packet up to ten times, 80 ms apart, and each of these attempts succeeds
//! with a chance of at least 0.9 × 0.9. So of the frames that the publisher made from the viewer's first keyframe on,
//! until two seconds before the end, every single one has to be whole, in a row of numbers without a hole.

use crate::common::*;
use sim::check::{Holes, check_track};
use sim::media::{LayerPlan, Spatial};
use sim::network::LinkConfig;
use sim::publisher::TrackPlan;
use sim::viewer::Behaviour;
use sim::world::World;
use wire::Bitrate;
use wire::codec::Codec;

#[test]
fn viewers_get_every_frame_that_retransmission_can_give() {
    for seed in [1, 2, 3] {
        let mut world = World::new(seed, rough());
        let stream = world.open_stream(&[vp8(), opus()]);
        let publisher = world.add_publisher(stream);
        let viewers: Vec<_> = (0..6).map(|_| world.add_viewer(stream, Behaviour::GOOD)).collect();
        world.run(seconds(20));
        // The tail gets its chance of repair.
        let frames = world.publisher(publisher).frame_count(0, 0);
        let made_before = frames - 60;
        for viewer in viewers {
            let track = &world.viewer(viewer).tracks[0];
            let first = track.frames.values().find(|frame| frame.tag.keyframe && frame.whole_at.is_some());
            let first = first.expect("a keyframe came").tag.frame;
            assert!(first < 60, "seed {seed}: first keyframe is frame {first}");
            for number in first..made_before {
                let frame = track.frames.get(&(0, number));
                assert!(frame.is_some_and(|frame| frame.whole_at.is_some()), "seed {seed}: frame {number}: {frame:?}");
            }
            check_track(track, VIDEO_CLOCK, seconds(2), Holes::Refused)
                .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            let audio = &world.viewer(viewer).tracks[1];
            // Audio is not repaired, neither up nor down: 0.9 × 0.9 of it comes through.
            assert!(audio.whole_frames() > 760, "seed {seed}: {} of 1,000 audio frames", audio.whole_frames());
        }
        assert!(world.publisher(publisher).counters.nacked > 0, "the way up was lossy, too");
    }
}

#[test]
fn a_publisher_300_ms_away_is_asked_once_for_what_is_lost() {
    let mut world = World::new(11, quiet());
    let stream = world.open_stream(&[vp8()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    let far = LinkConfig { delay: millis(150), ..quiet() };
    world.set_path(publisher, far);
    world.run(seconds(2));
    let (from, to) = (world.addr(publisher), world.worker_addr(0));
    world.network.set_link(from, to, LinkConfig { loss: 0.05, ..far });
    world.run(seconds(30));
    world.network.set_link(from, to, far);
    world.run(seconds(5));
    let asked = world.publisher(publisher).counters.nacked;
    let lost = world.counters(0).packets_in / 20;
    assert!(asked < lost * 3 / 2, "{asked} requests for some {lost} packets");
    check_track(&world.viewer(viewer).tracks[0], VIDEO_CLOCK, seconds(1), Holes::Refused).unwrap();
}

#[test]
fn sound_waits_neither_for_what_is_sent_again_nor_for_the_pace() {
    for seed in 0..4 {
        let mut world =
            World::with_workers(seed, quiet(), 1, |settings| settings.estimate_max = Bitrate::from_kbps(300));
        let stream = world.open_stream(&[video(Codec::Vp8, &[2_000]), opus()]);
        world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(3));
        for _ in 0..5 {
            world.set_way_down(viewer, LinkConfig { loss: 0.9, ..quiet() });
            world.run(millis(400));
            world.set_way_down(viewer, LinkConfig { loss: 0.2, ..quiet() });
            world.run(seconds(2));
        }
        assert!(world.counters(0).packets_resent > 300, "seed {seed}: {}", world.counters(0).packets_resent);
        let start = world.start;
        // The way is 20 ms long.
        let latest = world.viewer(viewer).tracks[1].lateness(start).pop().unwrap();
        assert!(latest < millis(25), "seed {seed}: {latest:?}");
    }
}

#[test]
fn pictures_do_not_queue_behind_what_is_sent_again() {
    let mut lateness = Vec::new();
    for nacks_everything in [false, true] {
        let mut world = World::with_workers(6, quiet(), 1, |settings| settings.estimate_max = Bitrate::from_kbps(300));
        let stream = world.open_stream(&[TrackPlan { layers: vec![steady(2_000)], codec: Codec::Vp8 }]);
        world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour { nacks_everything, ..Behaviour::GOOD });
        world.run(seconds(20));
        let start = world.start;
        lateness.push(nine_in_ten(&world.viewer(viewer).tracks[0].lateness(start)));
    }
    assert!(lateness[1] < lateness[0] + millis(30), "{lateness:?}");
}

/// One layer without temporal ones, none of which is ever left out.
fn steady(kbps: u64) -> LayerPlan {
    LayerPlan { bitrate: Bitrate::from_kbps(kbps), frames_per_second: 30, temporal_layers: 1, spatial: Spatial::ONE }
}

#[test]
fn h264_is_repaired_as_well() {
    let mut world = World::new(4, rough());
    let stream = world.open_stream(&[h264()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(15));
    let summary = check_track(&world.viewer(viewer).tracks[0], VIDEO_CLOCK, seconds(2), Holes::Refused).unwrap();
    assert!(summary.frames > 350, "{summary:?}");
}

#[test]
fn a_quiet_network_needs_no_repair_at_all() {
    let mut world = World::new(5, quiet());
    let stream = world.open_stream(&[vp8(), opus()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(10));
    assert_eq!(world.publisher(publisher).counters.nacked, 0);
    let counters = world.viewer(viewer).counters;
    assert_eq!((counters.nacks_sent, counters.refused, counters.spoilt), (0, 0, 0), "{counters:?}");
    let video = check_track(&world.viewer(viewer).tracks[0], VIDEO_CLOCK, seconds(1), Holes::Refused).unwrap();
    let audio = check_track(&world.viewer(viewer).tracks[1], AUDIO_CLOCK, seconds(1), Holes::Refused).unwrap();
    assert!(video.frames >= 265 && audio.frames >= 445, "{video:?} {audio:?}");
}

/// What shows to which track an SSRC belongs goes with its first packets, and those may all be lost.
#[test]
fn who_gets_none_of_the_first_packets_has_sound_and_pictures_a_second_later() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[vp8(), opus()]);
        world.add_publisher(stream);
        world.set_way_down_of_next(0, LinkConfig { loss: 1.0, ..quiet() });
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(3));
        world.set_way_down(viewer, quiet());
        world.run(millis(1_600));
        for (index, track) in world.viewer(viewer).tracks.iter().enumerate() {
            assert!(track.whole_frames() > 5, "seed {seed}, track {index}: {} frames", track.whole_frames());
        }
    }
}
