//! What control asks of a session, and hears of it: pauses from the start, ends that move, pictures by and by, and where
//! it goes on.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Source, World};
use crate::trick::picks;
use pump::index::Index;
use pump::monitor::Monitor;
use pump::sample::Sample;
use pump::spec::{Activity, Command, EndReason, RtpPoint, SessionId, Settings, Transport};
use pump::trick::Pick;
use wire::ts::{PACKET_LEN, datagram_packets};

const SESSION: SessionId = SessionId(1);

fn exact() -> Settings {
    Settings { tick: Duration::from_nanos(1), ..Settings::default() }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn rtp() -> Transport {
    Transport::Rtp { ssrc: 7, first_seq: 65_530, first_timestamp: u32::MAX - 1_000 }
}

/// Numbers of the datagrams from `index` on.
fn point(world: &World, index: usize) -> RtpPoint {
    let (header, _) = datagram_packets(&world.sent[&1][index].bytes).expect("whole packets");
    let header = header.expect("RTP");
    RtpPoint { seq: header.seq.0, timestamp: header.timestamp }
}

#[test]
fn a_session_that_is_opened_paused_begins_when_it_is_resumed() {
    let source = Source::sample(&Sample { pictures: 50, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| (spec.play.is_paused, spec.transport) = (true, rtp()));
    world.run(millis(5_000));
    assert!(!world.sent.contains_key(&1) && !world.asked.is_empty(), "it has what it needs, and waits");

    world.command(Command::AwaitStart { session: SESSION, token: 5 });
    assert!(world.started.is_empty());
    world.command(Command::Resume(SESSION));
    let start = world.started[0].1.expect("it plays");
    world.run_to_the_end();
    assert_eq!((start.position, start.rtp), (0, Some(point(&world, 0))));
    assert_eq!(start.rtp, Some(RtpPoint { seq: 65_530, timestamp: u32::MAX - 1_000 }));
    assert_eq!(world.packets(1).as_flattened()[..source.bytes.len()], source.bytes);
}

#[test]
fn where_a_session_goes_on_is_told_as_it_is_then_sent() {
    let source = Source::sample(&Sample { pictures: 1_000, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.transport = rtp());
    world.run(millis(1_234));
    world.delay = |_, _| millis(300);
    for (round, to) in [(0, 30_000), (1, 70_000), (2, 700)] {
        world.command(Command::Pause(SESSION));
        world.run(millis(777));
        let sent = world.sent[&1].len();
        world.command(Command::Seek { session: SESSION, to });
        world.command(Command::Resume(SESSION));
        world.command(Command::AwaitStart { session: SESSION, token: 100 + round });
        world.run(millis(1_000));
        let (token, start) = world.started[round as usize];
        let start = start.expect("it plays");
        assert_eq!((token, start.position, start.rtp), (100 + round, to, Some(point(&world, sent))));
    }
    // While it plays it is told at once.
    let sent = world.sent[&1].len();
    world.command(Command::AwaitStart { session: SESSION, token: 1 });
    let (_, start) = world.started[3];
    world.run(millis(100));
    assert_eq!(start.and_then(|start| start.rtp), Some(point(&world, sent)));
}

#[test]
fn who_waits_for_a_session_that_ends_is_told_so() {
    let source = Source::sample(&Sample { pictures: 50, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.play.is_paused = true);
    world.command(Command::AwaitStart { session: SESSION, token: 1 });
    world.command(Command::AwaitStart { session: SESSION, token: 2 });
    world.command(Command::Close(SESSION));
    world.command(Command::AwaitStart { session: SESSION, token: 3 });
    assert_eq!(world.started, [(1, None), (2, None), (3, None)]);
}

#[test]
fn the_end_moves_and_what_is_played_continues() {
    let source = Source::sample(&Sample::default());
    for (at_ms, end, expected) in [(1_000, Some(4_001), 4_001), (1_000, Some(50), 0), (1_000, None, usize::MAX)] {
        let mut world = World::new(exact());
        world.open(1, &source, |spec| spec.end = Some(10_000));
        world.run(millis(at_ms));
        let sent = world.packets(1).len();
        world.command(Command::SetEnd { session: SESSION, end });
        world.run_to_the_end();
        let expected = expected.clamp(sent, source.bytes.len() / PACKET_LEN);
        let packets = world.packets(1);
        assert_eq!(packets.as_flattened()[..expected * PACKET_LEN], source.bytes[..expected * PACKET_LEN]);
        assert!(packets.len() - expected < 7, "{} of {expected}", packets.len());
        let (_, reason, stats) = &world.ended[0];
        assert_eq!((*reason, stats.underruns), (EndReason::Ended, 0));
    }
}

#[test]
fn what_was_gone_and_is_asked_for_again_is_the_end_no_more() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    // The third chunk does not come at first.
    world.delay = |_, number| millis(if number == 3 { 3_600_000 } else { 0 });
    world.open(1, &source, |_| ());
    world.run(millis(100));
    world.command(Command::Gone { session: SESSION, chunk: 3 });
    world.delay = |_, _| Duration::ZERO;
    world.command(Command::SetEnd { session: SESSION, end: Some(10_000) });
    world.run_to_the_end();
    assert_eq!(world.packets(1).as_flattened()[..10_000 * PACKET_LEN], source.bytes[..10_000 * PACKET_LEN]);
    assert_eq!(world.ended[0].1, EndReason::Ended);
}

#[test]
fn a_session_that_holds_at_its_end_goes_on_by_a_seek() {
    let source = Source::sample(&Sample { pictures: 50, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| (spec.play.holds_at_end, spec.transport) = (true, rtp()));
    world.run(millis(5_000));
    assert!(world.ended.is_empty());
    let sent = world.sent[&1].len();
    world.command(Command::Seek { session: SESSION, to: 0 });
    world.command(Command::AwaitStart { session: SESSION, token: 1 });
    world.run(millis(5_000));
    assert_eq!(world.started[0].1.and_then(|start| start.rtp), Some(point(&world, sent)));
    assert!(world.sent[&1].len() >= 2 * sent && world.ended.is_empty());
    world.command(Command::Close(SESSION));
    assert_eq!(world.ended[0].2.activity, Activity::Paused);
}

#[test]
fn a_part_that_ends_within_a_chunk_is_continued_by_a_loop_and_by_a_seek() {
    let source = Source::sample(&Sample::default());
    for looped in [true, false] {
        let mut world = World::new(exact());
        world.open(1, &source, |spec| {
            (spec.start, spec.end, spec.play.looped, spec.play.holds_at_end) = (100, Some(5_001), looped, true);
        });
        world.run(millis(4_000));
        if !looped {
            world.command(Command::Seek { session: SESSION, to: 300 });
            world.run(millis(1_000));
        }
        let mut monitor = Monitor::new(None);
        world.sent[&1].iter().for_each(|sent| monitor.handle_datagram(sent.ns, &sent.bytes));
        assert_eq!((monitor.report().lost, monitor.report().priorities.continuity), (0, 0), "{looped}");
        assert!(world.packets(1).len() > 6_000);
    }
}

/// A source, and its pictures from 20 seconds on, twice as fast.
fn fast() -> (Arc<Source>, Vec<Pick>) {
    let source = Source::sample(&Sample { pictures: 1_000, ..Sample::default() });
    let mut index = Index::new(&source.title);
    (0..source.title.chunk_count()).for_each(|number| index.add(&source.chunk(number)));
    let rate = source.title.slope.expect("a clock");
    let picks = picks(&index.pictures(), millis(20_000), 2_000, rate, millis(100));
    assert!(picks.len() >= 30);
    (source, picks)
}

#[test]
fn pictures_that_come_by_and_by_are_shown_as_those_that_came_at_once() {
    let (source, picks) = fast();
    let mut sent = Vec::new();
    for step in [picks.len(), 14, 3] {
        let mut world = World::new(exact());
        world.open(1, &source, |spec| spec.play.burst = Some(1));
        world.run(millis(1_000));
        let mut parts = picks.chunks(step).map(Arc::<[Pick]>::from);
        let first = parts.next().expect("some");
        world.command(Command::Trick { session: SESSION, picks: first, run: 9 });
        let mut answered = 0;
        for _ in 0..400 {
            while answered < world.wanted.len() {
                answered += 1;
                if let Some(picks) = parts.next() {
                    world.command(Command::MorePictures { session: SESSION, picks, run: 9 });
                }
            }
            world.run(millis(50));
        }
        world.run(millis(10_000));
        assert_eq!(world.shown, [SESSION]);
        assert!(parts.next().is_none());
        sent.push(world.sent.remove(&1).expect("sent"));
    }
    assert!(sent[0] == sent[1], "the second part came in time");
    assert_eq!(sent[0].len(), sent[2].len(), "so did all others, in rows of three");
}

#[test]
fn pictures_of_another_run_are_not_added() {
    let (source, picks) = fast();
    let mut world = World::new(exact());
    world.open(1, &source, |_| {});
    world.run(millis(1_000));
    world.command(Command::Trick { session: SESSION, picks: picks[..2].into(), run: 9 });
    world.command(Command::MorePictures { session: SESSION, picks: picks[2..].into(), run: 8 });
    world.run(millis(3_000));
    assert_eq!(world.shown, [SESSION]);
    // Pictures that come when it is too late follow at once.
    let (sent, at) = (world.sent[&1].len(), world.now - world.start);
    world.command(Command::MorePictures { session: SESSION, picks: picks[10..12].into(), run: 9 });
    world.run(millis(1_500));
    let next_ns = world.sent[&1][sent].ns;
    assert!(next_ns < at.as_nanos() as u64 + 10_000_000, "{next_ns} for {at:?}");
    assert_eq!(world.shown.len(), 2);
}
