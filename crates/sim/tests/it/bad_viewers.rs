//! A viewer that misbehaves harms nobody else: the others get the same frames, and not later.

use std::time::Duration;

use crate::common::*;
use rooms::spec::{Command, LayerLimit};
use sim::check::{Holes, check_track};
use sim::viewer::Behaviour;
use sim::world::{PeerId, World};

const GOOD_COUNT: usize = 10;

/// What the good viewers got: whole frames of each, and how late nine in ten were at most.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    frames: Vec<usize>,
    lateness: Vec<Duration>,
    keyframe_requests: usize,
}

/// Runs ten good viewers for 20 s, beside them one of the other kind.
fn run(bad: Option<Behaviour>) -> (Outcome, World, Option<PeerId>) {
    let mut world = World::new(7, quiet());
    let stream = world.open_stream(&[vp8(), opus()]);
    let publisher = world.add_publisher(stream);
    let good: Vec<_> = (0..GOOD_COUNT).map(|_| world.add_viewer(stream, Behaviour::GOOD)).collect();
    let bad = bad.map(|behaviour| world.add_viewer(stream, behaviour));
    world.run(seconds(20));
    let start = world.start;
    let mut outcome = Outcome { frames: Vec::new(), lateness: Vec::new(), keyframe_requests: 0 };
    for viewer in good {
        let track = &world.viewer(viewer).tracks[0];
        check_track(track, VIDEO_CLOCK, seconds(1), Holes::Refused).unwrap();
        outcome.frames.push(track.whole_frames());
        outcome.lateness.push(nine_in_ten(&track.lateness(start)));
    }
    outcome.keyframe_requests = world.publisher(publisher).keyframe_requests.len();
    (outcome, world, bad)
}

#[test]
fn one_that_neither_reads_nor_answers_changes_nothing_for_the_others() {
    let (expected, ..) = run(None);
    let (outcome, ..) = run(Some(Behaviour::DEAF));
    assert_eq!(outcome, expected);
}

#[test]
fn who_asks_for_other_sizes_in_turn_does_not_have_a_keyframe_for_each() {
    let mut world = World::new(7, quiet());
    let stream = world.open_stream(&[simulcast()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(10));
    let before = world.publisher(publisher).keyframe_requests.len();
    let session = world.session(viewer);
    for second in 0..=60 {
        let spatial_max = if second % 2 == 0 { 0 } else { u8::MAX };
        world.command(0, Command::Limit { session, layers: LayerLimit { spatial_max, ..LayerLimit::NONE } });
        world.run(seconds(1));
    }
    // Three at once, one in five seconds, and what is asked for again until it comes.
    let asked = world.publisher(publisher).keyframe_requests.len() - before;
    assert!(asked <= 20, "{asked} keyframes");
    world.run(seconds(8));
    assert_eq!(layer_now(&mut world, viewer), 0, "the last wish");
}

#[test]
fn one_that_asks_for_everything_again_gets_only_its_share() {
    let (expected, ..) = run(None);
    let (outcome, mut world, bad) = run(Some(Behaviour { nacks_everything: true, ..Behaviour::GOOD }));
    assert_eq!(outcome, expected);
    let bad = bad.unwrap();
    let counters = world.viewer(bad).counters;
    assert!(counters.nacks_sent > 500_000, "{counters:?}");
    // Half of its rate, and what it may save up.
    let sent = world.network.sent_bytes(world.worker_addr(0), world.addr(bad));
    let ordinary = 20 * 700_000 / 8;
    assert!(sent < ordinary * 2, "{sent} bytes, where {ordinary} are ordinary");
    assert!(world.counters(0).drops.count(rooms::drops::DropReason::ResendBudgetSpent) > 0);
}

#[test]
fn one_that_asks_for_keyframes_a_hundred_times_a_second_costs_the_others_one_in_five_seconds() {
    let (expected, ..) = run(None);
    let (outcome, mut world, bad) = run(Some(Behaviour { hammers_for_keyframes: true, ..Behaviour::GOOD }));
    assert_eq!(outcome.frames, expected.frames);
    // Keyframes are larger than other frames, but still leave in one go.
    assert_eq!(
        outcome.lateness.iter().max().map(Duration::as_millis),
        expected.lateness.iter().max().map(Duration::as_millis)
    );
    let asked = world.viewer(bad.unwrap()).counters.keyframe_requests;
    assert!(asked > 1_900, "{asked}");
    // Three at once, then one in five seconds, beside what the others ask for.
    let for_one = outcome.keyframe_requests - expected.keyframe_requests;
    assert!((3..=7).contains(&for_one), "{for_one}");
    assert!(world.counters(0).drops.count(rooms::drops::DropReason::KeyframeBudgetSpent) > 0);
}

#[test]
fn who_asks_until_a_far_publisher_answers_has_asked_once() {
    let mut world = World::new(7, quiet());
    let stream = world.open_stream(&[vp8()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(3));
    world.set_path(publisher, sim::network::LinkConfig { delay: millis(450), ..quiet() });
    world.run(seconds(5));
    let before = world.publisher(publisher).keyframe_requests.len();
    for _ in 0..3 {
        // As libwebrtc does until it has a picture again.
        for _ in 0..5 {
            let mut pli = [0; 64];
            let ssrc = world.viewer(viewer).tracks[0].ssrc;
            let len = wire::rtcp::write_pli(&mut pli, 1, ssrc).unwrap();
            world.viewer(viewer).send_rtcp(&pli[..len]);
            world.run(millis(200));
        }
        world.run(seconds(1));
    }
    assert_eq!(world.publisher(publisher).keyframe_requests.len() - before, 3);
    assert_eq!(world.counters(0).drops.count(rooms::drops::DropReason::KeyframeBudgetSpent), 0);
}

#[test]
fn one_on_a_path_too_narrow_for_anything_harms_only_itself() {
    let (expected, ..) = run(None);
    let mut world = World::new(7, quiet());
    let stream = world.open_stream(&[vp8(), opus()]);
    world.add_publisher(stream);
    let good: Vec<_> = (0..GOOD_COUNT).map(|_| world.add_viewer(stream, Behaviour::GOOD)).collect();
    let bad = world.add_viewer(stream, Behaviour::GOOD);
    let narrow = sim::network::LinkConfig { rate: Some(wire::Bitrate::from_kbps(100)), queue_bytes: 5_000, ..quiet() };
    world.set_way_down(bad, narrow);
    world.run(seconds(20));
    let frames: Vec<_> = good.iter().map(|viewer| world.viewer(*viewer).tracks[0].whole_frames()).collect();
    assert_eq!(frames, expected.frames);
}
