//! A viewer's picture stands still, for one reason after the other: its story names the right one, and when it was over.

use rooms::spec::{Command, LayerLimit};
use rooms::story::{Happened, Stall, Story, Why};
use sim::network::LinkConfig;
use sim::viewer::Behaviour;
use sim::world::{PeerId, World};
use wire::Bitrate;

use crate::common::*;

/// What its picture stood still for, each time, and whether it moved again afterwards.
fn stalls(story: &Story) -> Vec<(Stall, bool)> {
    let mut stalls = Vec::new();
    for entry in story.entries() {
        match entry.what {
            Happened::Stalled { cause, .. } => stalls.push((cause, false)),
            Happened::Moves { .. } => stalls.last_mut().expect("it stood still").1 = true,
            _ => {}
        }
    }
    stalls
}

/// A publisher of one picture and somebody who has watched it for five seconds.
fn watched(seed: u64) -> (World, PeerId, PeerId) {
    let mut world = World::with_workers(seed, quiet(), 1, |settings| settings.pause = true);
    let stream = world.open_stream(&[vp8(), opus()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(5));
    assert_eq!(stalls(&world.story(viewer)), [], "it moves");
    (world, publisher, viewer)
}

#[test]
fn of_a_publisher_that_pauses() {
    for seed in 0..4 {
        let (mut world, publisher, viewer) = watched(seed);
        let now = world.now;
        world.publisher(publisher).set_sending(now, false);
        world.run(seconds(4));
        let now = world.now;
        world.publisher(publisher).set_sending(now, true);
        world.run(seconds(3));
        let story = world.story(viewer);
        assert_eq!(stalls(&story), [(Stall::Publisher, true)], "seed {seed}: {story:?}");
        let after = story.entries().find_map(|entry| match entry.what {
            Happened::Moves { after, .. } => Some(after),
            _ => None,
        });
        assert!(after.is_some_and(|after| after >= seconds(3) && after <= seconds(6)), "seed {seed}: {after:?}");
        let sends: Vec<u8> = world.story(publisher).entries().filter_map(|entry| sent_layers(&entry.what)).collect();
        assert_eq!(sends, [1, 0, 1], "seed {seed}: what the publisher's own story says");
    }
}

/// Of the picture, which is the first track.
fn sent_layers(what: &Happened) -> Option<u8> {
    match what {
        Happened::Sends { track: 0, layers, .. } => Some(*layers),
        _ => None,
    }
}

#[test]
fn of_a_path_that_is_gone() {
    for seed in 0..4 {
        let (mut world, _, viewer) = watched(seed);
        world.set_path(viewer, LinkConfig { loss: 1.0, ..quiet() });
        world.run(seconds(7));
        world.set_path(viewer, quiet());
        world.run(seconds(4));
        let story = world.story(viewer);
        let [(Stall::Path, true), ..] = stalls(&story)[..] else { panic!("seed {seed}: {story:?}") };
    }
}

#[test]
fn of_a_path_that_carries_next_to_nothing() {
    for seed in 0..4 {
        let (mut world, _, viewer) = watched(seed);
        world.set_way_down(viewer, LinkConfig { rate: Some(Bitrate::from_kbps(60)), ..quiet() });
        world.run(seconds(20));
        let story = world.story(viewer);
        let is_paused = stalls(&story).iter().any(|(cause, _)| *cause == Stall::Bandwidth);
        assert!(is_paused, "seed {seed}: {story:?}");
        let went = |what| matches!(what, Happened::Layer { to: None, why: Why::Bandwidth, .. });
        assert!(story.entries().any(|entry| went(entry.what)), "seed {seed}: {story:?}");
        assert!(
            story
                .entries()
                .any(|entry| matches!(entry.what, Happened::Estimate(rate) if rate < Bitrate::from_kbps(300)))
        );
    }
}

#[test]
fn of_a_keyframe_that_does_not_come() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[vp8()]);
        let publisher = world.add_publisher(stream);
        // Its encoder takes no requests.
        world.publisher(publisher).set_keyframe_interval(0, 0, seconds(36));
        world.run(seconds(30));
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(9));
        let story = world.story(viewer);
        assert_eq!(stalls(&story), [(Stall::Keyframe, true)], "seed {seed}: {story:?}");
        let begins = |what| matches!(what, Happened::Layer { from: None, to: Some(0), why: Why::Begins, .. });
        assert!(story.entries().any(|entry| begins(entry.what)), "seed {seed}: {story:?}");
    }
}

#[test]
fn of_loss() {
    for seed in 0..4 {
        let (mut world, _, viewer) = watched(seed);
        world.set_way_down(viewer, LinkConfig { loss: 0.5, ..quiet() });
        world.run(seconds(4));
        world.set_way_down(viewer, quiet());
        world.run(seconds(5));
        let story = world.story(viewer);
        let [(Stall::Loss, true), ..] = stalls(&story)[..] else { panic!("seed {seed}: {story:?}") };
        assert!(story.entries().any(|entry| matches!(entry.what, Happened::Asked(_))), "seed {seed}: {story:?}");
    }
}

#[test]
fn who_wants_a_smaller_picture_or_none_does_not_wait_for_it() {
    let mut world = World::new(1, quiet());
    let stream = world.open_stream(&[simulcast()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(20));
    let session = world.session(viewer);
    world.command(0, Command::Limit { session, layers: LayerLimit { spatial_max: 0, ..LayerLimit::NONE } });
    world.run(seconds(5));
    world.command(0, Command::Pause { session, stream, on: true });
    world.run(seconds(5));
    world.command(0, Command::Pause { session, stream, on: false });
    world.run(seconds(5));
    let story = world.story(viewer);
    assert_eq!(stalls(&story), [], "{story:?}");
    let steps = story.entries().filter_map(|entry| match entry.what {
        Happened::Layer { to, why, .. } => Some((to, why)),
        _ => None,
    });
    let steps: Vec<_> = steps.collect();
    let wished = [(Some(2), Why::Begins), (Some(0), Why::Wish), (None, Why::Wish), (Some(0), Why::Wish)];
    assert_eq!(steps, wished);
}
