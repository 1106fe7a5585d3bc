//! Streams take turns: none waits for more than an outbox of another's datagrams.

use std::collections::HashMap;

use rooms::spec::{DownTrackSpec, ExtensionIds, SessionId, StreamId};
use sim::bare::down_track;

use crate::world::{PACKETS, World, addr};

const LARGE: StreamId = StreamId(1);
const SMALL: StreamId = StreamId(2);
const LARGE_PUBLISHER: SessionId = SessionId(1);
const SMALL_PUBLISHER: SessionId = SessionId(2);
const FIRST_VIEWER: u64 = 3;

/// A stream with `viewers`, and one with two more.
fn two_streams(viewers: u64) -> World {
    let mut world = World::new(&[LARGE, SMALL]);
    for (publisher, stream) in [(LARGE_PUBLISHER, LARGE), (SMALL_PUBLISHER, SMALL)] {
        world.add_session(publisher);
        world.publish(publisher, stream);
    }
    for number in 0..viewers + 2 {
        let session = SessionId(FIRST_VIEWER + number);
        // Without feedback a viewer takes less memory.
        let track = DownTrackSpec { extensions: ExtensionIds::default(), ..down_track(9) };
        world.add_session(session);
        world.watch(session, if number < viewers { LARGE } else { SMALL }, track);
    }
    world.drain();
    world
}

#[test]
fn a_stream_of_two_viewers_waits_for_one_outbox_of_a_stream_of_ten_thousand() {
    const VIEWERS: u64 = 10_000;
    let mut world = two_streams(VIEWERS);
    world.frame(LARGE_PUBLISHER, true);
    world.frame(SMALL_PUBLISHER, true);

    let (first, has_more) = world.turn();
    // 512 KiB of 1,000 bytes each.
    assert!(has_more && first.len() < 600, "an outbox holds {} datagrams", first.len());
    let (second, _) = world.turn();
    for number in 0..2 {
        let viewer = addr(SessionId(FIRST_VIEWER + VIEWERS + number));
        assert_eq!(second.iter().filter(|(to, _)| *to == viewer).count(), PACKETS, "viewer {number}");
    }
    let rest = world.drain();
    assert_eq!(first.len() + second.len() + rest.len(), (VIEWERS as usize + 2) * PACKETS);
}

#[test]
fn a_newcomer_to_a_small_stream_waits_for_one_outbox() {
    const VIEWERS: u64 = 2_000;
    let mut world = two_streams(VIEWERS);
    world.frame(SMALL_PUBLISHER, true);
    world.drain();
    world.frame(LARGE_PUBLISHER, true);
    let session = SessionId(FIRST_VIEWER + VIEWERS + 2);
    world.add_session(session);
    world.watch(session, SMALL, down_track(9));

    let (_, has_more) = world.turn();
    assert!(has_more);
    let (second, _) = world.turn();
    assert_eq!(second.iter().filter(|(to, _)| *to == addr(session)).count(), PACKETS);
}

#[test]
fn what_comes_in_the_middle_of_a_round_goes_to_those_before_it_too() {
    const VIEWERS: u64 = 500;
    let mut world = two_streams(VIEWERS);
    world.frame(LARGE_PUBLISHER, true);
    let (mut sent, has_more) = world.turn();
    assert!(has_more && !sent.is_empty());

    world.frame(LARGE_PUBLISHER, false);
    sent.extend(world.drain());

    let mut counts = HashMap::new();
    sent.iter().for_each(|(to, _)| *counts.entry(*to).or_insert(0) += 1);
    assert_eq!(counts.len(), VIEWERS as usize);
    assert!(counts.values().all(|count| *count == 2 * PACKETS), "{counts:?}");
}
