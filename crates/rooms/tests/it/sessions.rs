//! One session has many tracks, of many streams, in both directions.

use std::time::Duration;

use rooms::batch::Post;
use rooms::spec::{Command, EndReason, Event, PeerSpec, SessionId, StreamId, WorkerId};
use sim::bare::{Sink, down_track};
use srtp::Sealer;
use wire::rtcp::{self, SenderInfo};
use wire::{CloseReason, LinkEvent, LinkId, LinkKind, Path, Product, Token};

use crate::world::{Media, PACKETS, World, addr, keys, media_to};

const FIRST: StreamId = StreamId(1);
const SECOND: StreamId = StreamId(2);
const ANN: SessionId = SessionId(1);
const BEN: SessionId = SessionId(2);
const EVE: SessionId = SessionId(3);

/// Ann publishes the first stream and watches the second, Ben publishes the second, Eve watches both.
fn meeting() -> World {
    let mut world = World::new(&[FIRST, SECOND]);
    [ANN, BEN, EVE].into_iter().for_each(|session| world.add_session(session));
    world.publish(ANN, FIRST);
    world.publish(BEN, SECOND);
    world.watch(ANN, SECOND, down_track(12));
    world.watch(EVE, FIRST, down_track(21));
    world.watch(EVE, SECOND, down_track(22));
    world.drain();
    world
}

fn count_of(ssrc: u32, media: &[Media]) -> usize {
    media.iter().filter(|packet| packet.ssrc == ssrc).count()
}

#[test]
fn a_session_gets_the_tracks_of_two_streams_under_one_row_of_transport_wide_numbers() {
    let mut world = meeting();
    let mut media = Vec::new();
    // No more than a burst.
    for frame in 0..2 {
        world.frame(ANN, frame == 0);
        world.frame(BEN, frame == 0);
        media.extend(media_to(EVE, &world.drain()));
    }
    assert_eq!((count_of(21, &media), count_of(22, &media)), (2 * PACKETS, 2 * PACKETS));
    let numbers: Vec<u16> =
        media.iter().map(|packet| packet.transport_number.expect("a transport-wide number")).collect();
    assert_eq!(numbers, (0..4 * PACKETS as u16).collect::<Vec<_>>(), "one estimator hears of both");
    assert_eq!(world.rooms.counters().viewers, 3);
}

#[test]
fn no_ssrc_is_used_twice_in_a_session() {
    let mut world = meeting();
    world.frame(ANN, true);
    let before = media_to(EVE, &world.drain());
    assert_eq!(count_of(21, &before), PACKETS);

    for ssrc in [21, 22] {
        world.watch(EVE, FIRST, down_track(ssrc));
        world.frame(ANN, false);
        let media = media_to(EVE, &world.drain());
        assert_eq!((count_of(21, &media), count_of(22, &media)), (PACKETS, 0), "it goes on as it was, after {ssrc}");
    }
    world.watch(EVE, FIRST, down_track(23));
    world.frame(ANN, true);
    let media = media_to(EVE, &world.drain());
    assert_eq!((count_of(21, &media), count_of(23, &media) > 0), (0, true), "it began anew");
    assert_eq!(world.rooms.counters().viewers, 3);
}

#[test]
fn a_session_publishes_one_stream_and_watches_another() {
    let mut world = meeting();
    world.frame(ANN, true);
    world.frame(BEN, true);
    let sent = world.drain();
    assert_eq!(count_of(12, &media_to(ANN, &sent)), PACKETS, "Ann gets Ben's");
    assert_eq!(count_of(21, &media_to(EVE, &sent)), PACKETS, "Eve gets Ann's");

    // Ann's report is about what she receives, and what she sends goes on.
    let mut sink = Sink::new(&keys(ANN).0, 12).expect("keys that fit");
    sent.iter().filter(|(to, _)| *to == addr(ANN)).for_each(|(_, data)| assert!(sink.take(data)));
    world.receive(ANN, &mut sink.report(1, &[1]));
    assert_eq!(media_to(ANN, &world.drain()).len(), 1);
    assert_eq!(world.rooms.counters().packets_resent, 1);
    world.frame(ANN, false);
    assert_eq!(count_of(21, &media_to(EVE, &world.drain())), PACKETS);
    assert_eq!(world.rooms.counters().publishers, 2);
    assert_eq!(world.rooms.counters().drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn a_session_goes_on_without_a_stream_that_is_closed_and_ends_with_its_last() {
    let mut world = meeting();
    world.frame(ANN, true);
    world.frame(BEN, true);
    world.drain();
    world.command(Command::CloseStream(FIRST));
    assert!(world.poll_event().is_none(), "each has the second still");
    world.frame(BEN, false);
    let sent = world.drain();
    assert_eq!(count_of(22, &media_to(EVE, &sent)), PACKETS);
    assert_eq!(count_of(12, &media_to(ANN, &sent)), PACKETS);

    world.command(Command::CloseStream(SECOND));
    let mut ended = Vec::new();
    while let Some(event) = world.poll_event() {
        let Event::SessionEnded { session, reason: EndReason::StreamClosed } = event else { panic!("{event:?}") };
        ended.push(session);
    }
    ended.sort();
    assert_eq!(ended, [ANN, BEN, EVE]);
    let counters = world.rooms.counters();
    assert_eq!((counters.sessions, counters.streams, counters.publishers, counters.viewers), (0, 0, 0, 0));
}

#[test]
fn a_session_that_loses_one_of_two_publications_goes_on_with_the_other() {
    let mut world = World::new(&[FIRST, SECOND]);
    [ANN, BEN, EVE].into_iter().for_each(|session| world.add_session(session));
    world.publish(ANN, FIRST);
    world.publish(ANN, SECOND);
    world.watch(EVE, SECOND, down_track(22));
    world.publish(BEN, FIRST);
    assert!(world.poll_event().is_none(), "Ann has the second stream still");
    world.publish(BEN, SECOND);
    let event = world.poll_event();
    assert!(matches!(event, Some(Event::SessionEnded { session: ANN, reason: EndReason::Replaced })), "{event:?}");
    assert_eq!(world.rooms.counters().publishers, 2);
}

/// Where Eve comes from by TCP.
const TCP: LinkId = LinkId::new(LinkKind::Framed, 7, 1);

/// Ann publishes the first stream, Eve watches it over a TCP connection.
fn over_tcp() -> (World, Path) {
    let mut world = World::new(&[FIRST]);
    world.add_session(ANN);
    world.publish(ANN, FIRST);
    let tcp = Path { link: TCP, remote: addr(EVE), local: None };
    world.open(tcp);
    world.command(Command::AddSession(PeerSpec { session: EVE, path: tcp, keys: keys(EVE).1, cname: None }));
    world.watch(EVE, FIRST, down_track(21));
    world.frame(ANN, true);
    assert_eq!(count_of(21, &media_to(EVE, &world.drain())), PACKETS);
    (world, tcp)
}

fn close(world: &mut World, path: Path) {
    let closed = LinkEvent::Closed { link: path.link, remote: Some(path.remote), reason: CloseReason::Ended };
    world.rooms.handle_link(world.now, Token::default(), closed, &mut world.out);
}

#[test]
fn who_has_lost_a_tcp_connection_goes_on_over_another_path_where_it_was() {
    let (mut world, tcp) = over_tcp();
    close(&mut world, tcp);
    world.frame(ANN, false);
    assert_eq!(media_to(EVE, &world.drain()), [], "nothing is sent to nobody");

    world.command(Command::MovePath { session: EVE, path: tcp });
    assert_eq!(media_to(EVE, &world.drain()), [], "it is gone for good");

    let other = Path { link: LinkId::new(LinkKind::Framed, 8, 1), ..tcp };
    world.open(other);
    world.command(Command::MovePath { session: EVE, path: other });
    assert_eq!(count_of(21, &media_to(EVE, &world.drain())), PACKETS, "the frame that was missed");
    // The end of the old one, heard late, is none of the new one.
    close(&mut world, tcp);
    world.frame(ANN, false);
    assert_eq!(count_of(21, &media_to(EVE, &world.drain())), PACKETS);
}

#[test]
fn who_has_lost_a_tcp_connection_and_has_no_other_path_ends_when_it_was_silent_for_long() {
    let (mut world, tcp) = over_tcp();
    close(&mut world, tcp);
    assert!(world.poll_event().is_none(), "it is not over at once");
    world.now += Duration::from_secs(31);
    while world.rooms.poll_timeout().is_some_and(|at| at <= world.now) {
        world.rooms.handle_timeout(world.now, &mut world.out);
        world.out.clear();
    }
    let ended: Vec<Event> = std::iter::from_fn(|| world.poll_event()).collect();
    let is_eves = |event: &Event| matches!(event, Event::SessionEnded { session: EVE, reason: EndReason::Silent });
    assert!(ended.iter().any(is_eves), "{ended:?}");
}

#[test]
fn who_comes_by_a_tcp_connection_that_has_ended_meanwhile_ends_at_once() {
    let (mut world, tcp) = over_tcp();
    let other = Path { remote: addr(BEN), link: LinkId::new(LinkKind::Framed, 8, 1), local: None };
    world.open(other);
    close(&mut world, other);
    world.command(Command::AddSession(PeerSpec { session: BEN, path: other, keys: keys(BEN).1, cname: None }));
    let event = world.poll_event();
    let is_bens = matches!(event, Some(Event::SessionEnded { session: BEN, reason: EndReason::Disconnected }));
    assert!(is_bens, "{event:?}");
    world.watch(BEN, FIRST, down_track(22));
    assert!(world.poll_event().is_none(), "and is not heard of again");
    world.frame(ANN, false);
    assert_eq!(count_of(21, &media_to(EVE, &world.drain())), PACKETS, "{tcp:?} is none the worse");
}

#[test]
fn of_a_flood_of_sender_reports_other_workers_hear_ten_a_second() {
    let mut world = World::new(&[FIRST]);
    world.add_session(ANN);
    world.publish(ANN, FIRST);
    world.command(Command::Mirror { stream: FIRST, to: WorkerId(1), on: true });
    world.frame(ANN, true);
    let mut sealer = Sealer::new(&keys(ANN).0).expect("keys that fit");
    let mut count = 0;
    for _ in 0..1_000 {
        let mut report = vec![0; 200];
        let info = SenderInfo { ssrc: 1_000, ntp: 100 << 32, rtp_timestamp: 0, packet_count: 3, byte_count: 3_000 };
        let len = rtcp::write_sender_report(&mut report, &info, &[]).expect("room for a report");
        let len = sealer.seal_rtcp(&mut report, len);
        world.receive(ANN, &mut report[..len]);
        count += std::iter::from_fn(|| world.rooms.poll_post()).filter(|(_, post)| is_clock(post)).count();
        world.now += Duration::from_millis(1);
    }
    assert_eq!(count, 10);
    assert_eq!(world.rooms.counters().drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
}

fn is_clock(post: &Post) -> bool {
    matches!(post, Post::Clock { .. })
}
