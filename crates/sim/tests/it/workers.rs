//! A stream that arrives on one worker is watched on others.

use crate::common::*;
use rooms::drops::DropReason;
use sim::check::{Holes, check_track};
use sim::viewer::Behaviour;
use sim::world::World;

#[test]
fn viewers_on_every_worker_get_the_same() {
    let mut world = World::with_workers(1, quiet(), 3, |_| ());
    let stream = world.open_stream(&[simulcast(), opus()]);
    world.add_publisher(stream);
    let viewers: Vec<_> = (0..9).map(|index| world.add_viewer_on(index % 3, stream, Behaviour::GOOD)).collect();
    world.run(seconds(10));
    for viewer in viewers {
        for (index, clock_rate) in [VIDEO_CLOCK, AUDIO_CLOCK].into_iter().enumerate() {
            let summary =
                check_track(&world.viewer(viewer).tracks[index], clock_rate, seconds(1), Holes::Refused).unwrap();
            assert!(summary.frames > 250, "{viewer:?}: {summary:?}");
        }
        assert!(world.viewer(viewer).counters.sender_reports > 0, "{viewer:?}");
    }
    for worker in 0..3 {
        assert_eq!(world.counters(worker).drops.count(DropReason::MailboxFull), 0);
    }
}

#[test]
fn loss_on_the_last_mile_is_repaired_by_the_viewer_s_own_worker() {
    let mut world = World::with_workers(2, quiet(), 2, |_| ());
    let stream = world.open_stream(&[vp8()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer_on(1, stream, Behaviour::GOOD);
    world.set_path(viewer, rough());
    world.run(seconds(15));
    let summary = check_track(&world.viewer(viewer).tracks[0], VIDEO_CLOCK, seconds(2), Holes::Refused).unwrap();
    assert!(summary.frames > 350, "{summary:?}");
    assert_eq!(world.publisher(publisher).counters.nacked, 0, "the publisher hears nothing of it");
}
