//! Streams take turns: none waits for more than an outbox of another's datagrams.

use std::collections::HashMap;
use std::time::Duration;

use rooms::batch::Post;
use rooms::spec::{Command, DownTrackSpec, ExtensionIds, SessionId, StreamId, WorkerId};
use sim::bare::{Sink, down_track, path};
use wire::Product;
use wire::rtp::RtpPacket;

use crate::world::{PACKETS, World, addr, keys};

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

/// The same, of which the large one has sent a keyframe.
fn begun(viewers: u64) -> World {
    let mut world = two_streams(viewers);
    world.frame(LARGE_PUBLISHER, true);
    world.drain();
    world
}

/// How many datagrams go out behind each packet of a frame.
fn one_by_one(world: &mut World) -> [usize; PACKETS] {
    world.next_frame(LARGE_PUBLISHER, false).map(|mut packet| {
        world.receive(LARGE_PUBLISHER, &mut packet);
        world.drain().len()
    })
}

#[test]
fn many_viewers_get_what_comes_packet_by_packet_when_its_frame_is_whole() {
    for (viewers, expected) in [(7, [7, 7, 7]), (8, [0, 0, 8 * PACKETS])] {
        let mut world = begun(viewers);
        assert_eq!(one_by_one(&mut world), expected, "{viewers} viewers");
    }
}

#[test]
fn a_frame_that_does_not_become_whole_is_waited_for_five_milliseconds() {
    let mut world = begun(8);
    let [mut first, mut second, mut last] = world.next_frame(LARGE_PUBLISHER, false);
    let ms = Duration::from_millis(1);
    world.receive(LARGE_PUBLISHER, &mut first);
    let since = world.now;
    world.now += ms;
    world.receive(LARGE_PUBLISHER, &mut second);
    assert!(world.drain().is_empty());
    world.now = since + 4 * ms;
    world.rooms.handle_timeout(world.now, &mut world.out);
    assert!(world.drain().is_empty());
    world.now = since + 6 * ms;
    world.rooms.handle_timeout(world.now, &mut world.out);
    assert_eq!(world.drain().len(), 8 * 2);
    world.receive(LARGE_PUBLISHER, &mut last);
    assert_eq!(world.drain().len(), 8);
    // The timer is set anew for each.
    let [mut first, ..] = world.next_frame(LARGE_PUBLISHER, false);
    world.receive(LARGE_PUBLISHER, &mut first);
    world.now += 6 * ms;
    world.rooms.handle_timeout(world.now, &mut world.out);
    assert_eq!(world.drain().len(), 8);
}

#[test]
fn another_worker_gets_a_frame_as_one() {
    let mut world = two_streams(1);
    world.command(Command::Mirror { stream: LARGE, to: WorkerId(1), on: true });
    world.frame(LARGE_PUBLISHER, true);
    world.drain();
    let posted = |world: &mut World| {
        let posts: Vec<Post> = std::iter::from_fn(|| world.rooms.poll_post()).map(|(_, post)| post).collect();
        let count = |post: &Post| if let Post::Packets(batch) = post { batch.packets().count() } else { 0 };
        posts.iter().map(count).collect::<Vec<_>>()
    };
    posted(&mut world);
    let frame = world.next_frame(LARGE_PUBLISHER, false).map(|mut packet| {
        world.receive(LARGE_PUBLISHER, &mut packet);
        world.drain();
        posted(&mut world)
    });
    assert_eq!(frame, [vec![], vec![], vec![PACKETS]]);
}

#[test]
fn what_comes_late_waits_for_nothing() {
    let mut world = begun(8);
    let [mut first, mut lost, mut last] = world.next_frame(LARGE_PUBLISHER, false);
    world.receive(LARGE_PUBLISHER, &mut first);
    world.receive(LARGE_PUBLISHER, &mut last);
    assert_eq!(world.drain().len(), 8 * 2);
    world.receive(LARGE_PUBLISHER, &mut lost);
    assert_eq!(world.drain().len(), 8);
}

/// A viewer of a small stream, and what it has had of so many frames.
fn watched(extensions: ExtensionIds, frames: usize) -> (World, SessionId, Sink, Vec<Vec<u8>>) {
    let mut world = two_streams(0);
    let session = SessionId(FIRST_VIEWER + 2);
    world.add_session(session);
    world.watch(session, SMALL, DownTrackSpec { extensions, ..down_track(9) });
    let mut sink = Sink::new(&keys(session).0, 9).unwrap();
    let mut came = Vec::new();
    for frame in 0..frames {
        world.frame(SMALL_PUBLISHER, frame == 0);
        came.extend(world.drain().into_iter().filter(|(to, _)| *to == addr(session)).map(|(_, datagram)| datagram));
    }
    came.iter().for_each(|datagram| assert!(sink.take(datagram)));
    (world, session, sink, came)
}

#[test]
fn a_long_nack_is_answered_in_full_when_the_outbox_is_nearly_full() {
    let (mut world, session, mut sink, came) = watched(ExtensionIds::default(), 20);
    assert_eq!(came.len(), 20 * PACKETS);
    let elsewhere = wire::Path { remote: addr(LARGE_PUBLISHER), ..path(0, 0) };
    while world.out.has_room_for(3) {
        world.out.slot().unwrap()[..1_000].fill(0);
        world.out.commit(&elsewhere, 1_000);
    }
    let lost: Vec<u16> = (1..=40).rev().collect();
    let mut report = sink.report(0, &lost);
    world.receive(session, &mut report);
    let mut again = 0;
    for _ in 0..20 {
        again += world.drain().into_iter().filter(|(to, data)| *to == addr(session) && data[1] & 0x7f == 97).count();
        // They are paced.
        world.now += Duration::from_millis(20);
        world.rooms.handle_timeout(world.now, &mut world.out);
    }
    assert_eq!(again, 40);
}

#[test]
fn a_viewer_that_estimates_by_itself_is_told_when_each_packet_left() {
    let (mut world, session, mut sink, came) =
        watched(ExtensionIds { abs_send_time: Some(5), ..Default::default() }, 1);
    let sent_at = |datagram: &[u8]| {
        let packet = RtpPacket::parse_header(datagram).unwrap();
        let [high, middle, low] = *packet.extension(5).unwrap().first_chunk().unwrap();
        u32::from_be_bytes([0, high, middle, low])
    };
    let first = sent_at(&came[0]);
    // The world's clock begins at 100 s, and the extension's ends at 64 s.
    assert_eq!(first, (100 % 64) << 18);
    world.now += Duration::from_millis(1_500);
    let mut report = sink.report(0, &[1]);
    world.receive(session, &mut report);
    let again = world.drain().into_iter().find(|(to, _)| *to == addr(session)).unwrap().1;
    assert_eq!(sent_at(&again) - first, 3 << 17, "a retransmission has the time at which it leaves");
}
