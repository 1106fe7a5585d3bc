//! When viewers hear of the publisher's clock.

use std::time::{Duration, Instant};

use rooms::spec::{SessionId, StreamId};
use sim::bare::{SSRC, down_track};
use srtp::Sealer;
use wire::Product;
use wire::rtcp::{self, SenderInfo};
use wire::rtp::{Kind, classify};

use crate::world::{PACKETS, World, addr, keys};

const STREAM: StreamId = StreamId(1);
const PUBLISHER: SessionId = SessionId(1);
const VIEWER: SessionId = SessionId(2);

const STEP: Duration = Duration::from_millis(33);

/// A publisher that has told of its clock, and a viewer that gets its pictures.
fn begun() -> World {
    let mut world = World::new(&[STREAM]);
    world.add_session(PUBLISHER);
    world.publish(PUBLISHER, STREAM);
    world.add_session(VIEWER);
    world.watch(VIEWER, STREAM, down_track(9));
    world.frame(PUBLISHER, true);
    let info = SenderInfo { ssrc: SSRC, ntp: 1 << 32, rtp_timestamp: 0, packet_count: 3, byte_count: 3_000 };
    let mut report = [0; 200];
    let len = rtcp::write_sender_report(&mut report, &info, &[]).unwrap();
    let len = Sealer::new(&keys(PUBLISHER).0).unwrap().seal_rtcp(&mut report, len);
    world.receive(PUBLISHER, &mut report[..len]);
    world.drain();
    world
}

/// What kinds of datagrams go to the viewer now.
fn sent(world: &mut World) -> Vec<Kind> {
    let to_viewer = world.out.datagrams().filter(|(path, _)| path.remote == addr(VIEWER));
    let kinds = to_viewer.map(|(_, data)| classify(data)).collect();
    world.out.clear();
    kinds
}

fn assert_each_second(reports: &[Instant]) {
    let between: Vec<_> = reports.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (least, most) = (Duration::from_millis(980), Duration::from_millis(1_100));
    assert!(between.len() >= 3 && between.iter().all(|time| (least..most).contains(time)), "{between:?}");
}

#[test]
fn reports_go_with_pictures_and_need_no_turn_of_their_own() {
    let mut world = begun();
    let mut reports = Vec::new();
    for _ in 0..150 {
        world.now += STEP;
        world.rooms.handle_timeout(world.now, &mut world.out);
        assert_eq!(sent(&mut world), [], "nothing goes by itself");
        world.frame(PUBLISHER, false);
        world.rooms.poll_transmit(world.now, &mut world.out);
        let kinds = sent(&mut world);
        if let Some(first) = kinds.iter().position(|kind| *kind == Kind::Rtcp) {
            assert_eq!((first, kinds.len()), (PACKETS, PACKETS + 1), "{kinds:?}");
            reports.push(world.now);
        }
    }
    assert_each_second(&reports);
}

#[test]
fn reports_go_by_themselves_where_nothing_else_does() {
    let mut world = begun();
    let mut reports = Vec::new();
    for _ in 0..500 {
        world.now += Duration::from_millis(10);
        world.rooms.handle_timeout(world.now, &mut world.out);
        let kinds = sent(&mut world);
        assert!(kinds.iter().all(|kind| *kind == Kind::Rtcp), "{kinds:?}");
        reports.extend(kinds.iter().map(|_| world.now));
    }
    assert_each_second(&reports);
}

#[test]
fn reports_of_many_viewers_are_not_drawn_to_the_same_picture() {
    let mut world = begun();
    let viewers = (3..43).map(SessionId);
    for viewer in viewers {
        world.add_session(viewer);
        world.watch(viewer, STREAM, down_track(9));
    }
    // Of each second, in how many of its 100 turns reports left; a picture comes in five of them.
    let mut spread = Vec::new();
    for _ in 0..25 {
        let mut turns = 0;
        for turn in 0..100 {
            world.now += Duration::from_millis(10);
            world.rooms.handle_timeout(world.now, &mut world.out);
            if turn % 20 == 0 {
                world.frame(PUBLISHER, false);
            }
            let sent = world.drain();
            turns += usize::from(sent.iter().any(|(to, data)| *to != addr(PUBLISHER) && classify(data) == Kind::Rtcp));
        }
        spread.push(turns);
    }
    assert!(spread[1] > 12 && spread[24] >= spread[1] - 2, "{spread:?}");
}
