//! A publisher vanishes and comes back: in the same session, or with a new one.

use crate::common::*;
use rooms::spec::{EndReason, Event};
use sim::check::{Holes, check_track};
use sim::viewer::Behaviour;
use sim::world::World;

#[test]
fn after_a_pause_in_the_same_session_viewers_go_on() {
    let mut world = World::new(1, quiet());
    let stream = world.open_stream(&[vp8(), opus()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(5));
    let now = world.now;
    world.publisher(publisher).set_sending(now, false);
    world.run(seconds(5));
    let before = world.viewer(viewer).tracks[0].whole_frames();
    let now = world.now;
    world.publisher(publisher).set_sending(now, true);
    world.run(seconds(5));
    let after = world.viewer(viewer).tracks[0].whole_frames();
    assert!(after >= before + 130, "{before} frames, then {after}");
    check_track(&world.viewer(viewer).tracks[0], VIDEO_CLOCK, seconds(1), Holes::Refused).unwrap();
}

#[test]
fn another_session_takes_the_stream_over_without_a_break_in_the_numbers() {
    let mut world = World::new(2, quiet());
    let stream = world.open_stream(&[vp8(), opus()]);
    let first = world.add_publisher(stream);
    let viewers: Vec<_> = (0..3).map(|_| world.add_viewer(stream, Behaviour::GOOD)).collect();
    world.run(seconds(5));
    let now = world.now;
    world.publisher(first).set_sending(now, false);
    world.run(seconds(3));
    let back_at = world.now;
    world.add_publisher(stream);
    let session = world.session(first);
    assert!(world.events.iter().any(|(_, event)| matches!(
        event,
        Event::SessionEnded { session: ended, reason: EndReason::Replaced } if *ended == session
    )));
    let before: Vec<_> = viewers.iter().map(|viewer| world.viewer(*viewer).tracks[0].records.len()).collect();
    world.run(seconds(5));
    for (viewer, before) in viewers.into_iter().zip(before) {
        let track = &world.viewer(viewer).tracks[0];
        assert!(track.records.len() > before + 300, "{before} packets, then {}", track.records.len());
        assert_eq!(track.holes(), [], "numbers go on");
        let records: Vec<_> = track.records.values().collect();
        for pair in records.windows(2) {
            let step = pair[1].timestamp.wrapping_sub(pair[0].timestamp) as i32;
            assert!(step >= 0, "the timestamp goes back by {step}");
        }
        let started = track.records.values().rev().take_while(|record| record.arrival > back_at).last();
        assert!(started.is_some_and(|record| record.tag.keyframe && record.tag.index == 0), "{started:?}");
    }
}

#[test]
fn one_that_stays_away_is_removed_and_its_viewers_stay() {
    let mut world = World::new(3, quiet());
    let stream = world.open_stream(&[vp8()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(5));
    let now = world.now;
    world.publisher(publisher).set_sending(now, false);
    world.run(seconds(40));
    let session = world.session(publisher);
    let ended: Vec<_> = world.events.iter().filter(|(_, event)| matches!(event, Event::SessionEnded { .. })).collect();
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(matches!(
        ended[0].1,
        Event::SessionEnded { session: ended, reason: EndReason::Silent } if ended == session
    ));
    let before = world.viewer(viewer).tracks[0].whole_frames();
    world.add_publisher(stream);
    world.run(seconds(5));
    assert!(world.viewer(viewer).tracks[0].whole_frames() >= before + 130);
}

#[test]
fn a_viewer_that_falls_silent_is_removed_after_30_seconds() {
    let mut world = World::new(4, quiet());
    let stream = world.open_stream(&[vp8()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::DEAF);
    world.run(seconds(29));
    assert_eq!(world.counters(0).viewers, 1);
    world.run(seconds(3));
    assert_eq!(world.counters(0).viewers, 0);
    let session = world.session(viewer);
    assert!(world.events.iter().any(|(_, event)| matches!(
        event,
        Event::SessionEnded { session: ended, reason: EndReason::Silent } if *ended == session
    )));
}
