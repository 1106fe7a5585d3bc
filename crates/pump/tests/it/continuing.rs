//! Where a title does not continue, what is sent does: loops, seeks, pauses, chunks that are late.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Source, World};
use pump::chunk::Chunk;
use pump::monitor::{Monitor, Report};
use pump::sample::{Sample, VIDEO_PID};
use pump::spec::{Activity, Command, EndReason, Pacing, SessionId, Settings, WhenStarved};
use wire::Bitrate;
use wire::ts::{PACKET_LEN, Packet, Pcr, PesHeader, Pid};

const RATE: Bitrate = Bitrate::from_kbps(4_500);

fn exact() -> Settings {
    Settings { tick: Duration::from_nanos(1), ..Settings::default() }
}

fn measured(world: &World, number: u64) -> Report {
    let mut monitor = Monitor::new(Some(RATE));
    for sent in &world.sent[&number] {
        monitor.handle_datagram(sent.ns, &sent.bytes);
    }
    monitor.report()
}

/// References with the indicator, and the time of arrival in ticks of 27 MHz.
fn references(world: &World, number: u64) -> Vec<(Pcr, bool, i64)> {
    let mut found = Vec::new();
    for sent in &world.sent[&number] {
        for packet in wire::ts::datagram_packets(&sent.bytes).unwrap().1 {
            let packet = Packet::parse(packet).unwrap();
            if let Some(pcr) = packet.pcr() {
                found.push((pcr, packet.discontinuity(), (sent.ns * 27 / 1_000) as i64));
            }
        }
    }
    found
}

/// Each reference is as far from the one before as their arrivals are, to `slack` ticks.
fn assert_clock_runs_on(world: &World, number: u64, slack: i64) {
    let references = references(world, number);
    assert!(references.len() > 100);
    for pair in references.windows(2) {
        let (by_clock, by_arrival) = (pair[0].0.ticks_to(pair[1].0), pair[1].2 - pair[0].2);
        assert!((by_clock - by_arrival).abs() <= slack, "{pair:?}");
    }
}

/// A datagram's time, in ticks: a reference may stand anywhere in it.
const DATAGRAM: i64 = 63_500;

/// How far timestamps are ahead of the reference before them, in ticks of 90 kHz.
fn leads(world: &World, number: u64) -> Vec<i64> {
    let mut pcr = None;
    let mut leads = Vec::new();
    for packet in world.packets(number) {
        let packet = Packet::parse(&packet).unwrap();
        pcr = packet.pcr().or(pcr);
        if let (Some(pcr), true, true) = (pcr, packet.payload_unit_start(), packet.pid() == VIDEO_PID) {
            let dts = PesHeader::parse(packet.payload()).unwrap().dts.unwrap();
            leads.push(wire::ts::Timestamp::from_ticks(pcr.ticks() / 300).ticks_to(dts));
        }
    }
    leads
}

#[test]
fn a_loop_continues_counters_clock_and_timestamps_and_says_so() {
    let source = Source::sample(&Sample { pictures: 60, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| (spec.play.looped, spec.play.burst) = (true, Some(1)));
    world.run(Duration::from_secs(10));

    let report = measured(&world, 1);
    assert_eq!((report.lost, report.priorities.continuity, report.malformed), (0, 0, 0));
    assert_eq!(report.priorities.sums(), (0, report.priorities.pcr_accuracy));
    assert_clock_runs_on(&world, 1, DATAGRAM + 300);
    let flagged = references(&world, 1).iter().filter(|(_, flag, _)| *flag).count();
    assert_eq!(flagged, 4, "2.4 seconds each");
    let leads = leads(&world, 1);
    assert!(leads.iter().all(|lead| (40_000..50_000).contains(lead)), "{leads:?}");
    assert!(report.delay_factor_max_ns.unwrap() < 5_000_000, "{report:?}");
}

#[test]
fn a_loop_between_two_places_continues_counters_wherever_they_are() {
    let source = Source::sample(&Sample { pictures: 60, ..Sample::default() });
    for (start, end) in [(0, 1_000), (300, 699), (300, 701), (650, 1_995), (701, 3_333)] {
        let mut world = World::new(exact());
        world.open(1, &source, |spec| (spec.play.looped, spec.start, spec.end) = (true, start, Some(end)));
        let session = world.open(2, &source, |spec| {
            (spec.play.holds_at_end, spec.start, spec.end) = (true, start, Some(end));
        });
        world.run(Duration::from_secs(5));
        world.command(Command::Seek { session, to: start + 100 });
        world.run(Duration::from_secs(5));
        for number in [1, 2] {
            let report = measured(&world, number);
            assert_eq!((report.lost, report.priorities.continuity), (0, 0), "{number}: {start} to {end}");
        }
        assert!(world.packets(2).len() as u64 > 2 * (end - start) - 150, "it plays again");
    }
}

#[test]
fn without_restamping_references_stay_and_the_loop_is_flagged() {
    let source = Source::sample(&Sample { pictures: 60, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| (spec.play.looped, spec.play.restamp) = (true, false));
    world.run(Duration::from_secs(6));
    let report = measured(&world, 1);
    assert_eq!((report.lost, report.priorities.continuity, report.priorities.pcr_discontinuity), (0, 0, 0));
    let references = references(&world, 1);
    let firsts: Vec<_> =
        references.iter().filter(|(pcr, ..)| *pcr == references[0].0).map(|(_, flag, _)| *flag).collect();
    assert_eq!(firsts, [false, true, true]);
}

#[test]
fn a_seek_sends_tables_first_and_the_clock_runs_on() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    let session = world.open(1, &source, |spec| spec.play.burst = Some(1));
    world.run(Duration::from_millis(3_333));
    for to in [20_000, 3, 11_111] {
        let before = world.sent[&1].len();
        world.command(Command::Seek { session, to });
        world.run(Duration::from_millis(1_777));
        let first = &world.sent[&1][before].bytes;
        let pids: Vec<Pid> =
            first.chunks(PACKET_LEN).take(2).map(|packet| Packet::parse(packet).unwrap().pid()).collect();
        assert_eq!(pids, [Pid::PAT, pump::sample::PMT_PID]);
        // From there on it is the title, but for counters and clocks: the payload's ends are the same.
        let bytes = &source.bytes[to as usize * PACKET_LEN..];
        for packet in 0..5 {
            assert_eq!(first[(packet + 2) * PACKET_LEN + 20..][..160], bytes[packet * PACKET_LEN + 20..][..160]);
        }
    }
    let report = measured(&world, 1);
    assert_eq!((report.lost, report.priorities.continuity), (0, 0));
    assert_clock_runs_on(&world, 1, 2 * DATAGRAM);
    assert_eq!(references(&world, 1).iter().filter(|(_, flag, _)| *flag).count(), 3);
}

#[test]
fn a_pause_holds_the_stream_and_its_clock_goes_on_with_it() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    let session = world.open(1, &source, |_| {});
    world.run(Duration::from_secs(2));
    world.command(Command::Pause(session));
    let sent = world.sent[&1].len();
    world.run(Duration::from_secs(5));
    assert_eq!(world.sent[&1].len(), sent);
    world.command(Command::Resume(session));
    world.run_to_the_end();

    assert_eq!(world.packets(1).len() / 7, source.bytes.len().div_ceil(1_316));
    let report = measured(&world, 1);
    assert_eq!((report.lost, report.priorities.continuity), (0, 0));
    assert_clock_runs_on(&world, 1, 2 * DATAGRAM);
    assert_eq!(world.ended[0].2.underruns, 0);
}

#[test]
fn a_late_chunk_is_an_underrun_and_no_other_stream_notices() {
    let source = Source::sample(&Sample::default());
    for when_starved in [WhenStarved::Pause, WhenStarved::Nulls] {
        let mut world = World::new(exact());
        // The second session's chunk 9 takes 20 seconds.
        let slow = |session, chunk| Duration::from_secs(if session == SessionId(2) && chunk == 9 { 20 } else { 0 });
        world.delay = slow;
        world.open(1, &source, |_| {});
        world.open(2, &source, |spec| spec.play.when_starved = when_starved);
        world.open(3, &source, |_| {});
        world.run_to_the_end();

        assert!(world.ended.iter().all(|(_, reason, _)| *reason == EndReason::Ended));
        let stats = |number| &world.ended.iter().find(|(id, ..)| *id == SessionId(number)).unwrap().2;
        assert_eq!((stats(1).underruns, stats(2).underruns, stats(3).underruns), (0, 1, 0));
        assert!(stats(2).starved > Duration::from_secs(17), "{:?}", stats(2));
        for number in [1, 3] {
            assert_eq!(world.packets(number).as_flattened()[..source.bytes.len()], source.bytes);
            assert!(measured(&world, number).delay_factor_max_ns.unwrap() < 7_100_000);
        }
        let report = measured(&world, 2);
        assert_eq!((report.lost, report.priorities.continuity), (0, 0));
        assert_clock_runs_on(&world, 2, 2 * DATAGRAM);
        if when_starved == WhenStarved::Nulls {
            assert!(report.delay_factor_max_ns.unwrap() < 10_000_000, "{report:?}");
            assert!(report.nulls > 17 * 4_500_000 / 8 / 188 - 100);
        }
    }
}

#[test]
fn a_padded_session_that_is_starved_says_so_and_for_how_long() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.delay = |_, chunk| Duration::from_secs(if chunk == 9 { 20 } else { 0 });
    for (number, pacing) in [(1, Pacing::Clock), (2, Pacing::Padded(Bitrate::from_kbps(9_000)))] {
        world.open(number, &source, |spec| spec.play.pacing = pacing);
    }
    world.run(Duration::from_secs(15));
    assert_eq!((world.counters().starved, world.counters().playing), (2, 0));
    for number in [1, 2] {
        let stats = world.stats(number);
        assert_eq!(stats.activity, Activity::Starved);
        assert!((10.0..14.0).contains(&stats.starved.as_secs_f64()), "{number}: {:?}", stats.starved);
    }
    world.run(Duration::from_secs(6));
    assert_eq!((world.counters().starved, world.counters().playing), (0, 2));
    world.run_to_the_end();
    for (_, reason, stats) in &world.ended {
        assert_eq!(*reason, EndReason::Ended);
        assert!((17.0..20.0).contains(&stats.starved.as_secs_f64()), "{:?}", stats.starved);
        let [began, starved, went_on] = &stats.steps[..] else { panic!("{:?}", stats.steps) };
        let activities = [began, starved, went_on].map(|step| step.activity);
        assert_eq!(activities, [Activity::Playing, Activity::Starved, Activity::Playing]);
        assert!((went_on.at - starved.at).abs_diff(stats.starved) < Duration::from_millis(10), "{:?}", stats.steps);
        // It notices with the next datagram.
        assert!((starved.position..starved.position + 7).contains(&went_on.position), "{:?}", stats.steps);
        assert!(began.position == 0 && starved.position > 0, "{:?}", stats.steps);
    }
}

#[test]
fn where_a_stream_begins_the_chunk_that_is_played_next_has_the_way_for_itself() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(Settings { read_ahead: Duration::from_millis(400), ..exact() });
    world.delay = |_, chunk| Duration::from_millis(if chunk < 8 { 20 } else { 300 });
    let session = world.open(1, &source, |_| {});
    let asked = |world: &World| world.asked.iter().map(|(_, chunk)| *chunk).collect::<Vec<_>>();
    assert_eq!(asked(&world), [0]);
    world.run(Duration::from_millis(25));
    assert_eq!(asked(&world), [0, 1]);
    world.run(Duration::from_millis(20));
    assert_eq!(asked(&world), [0, 1, 2]);
    let before = world.asked.len();
    world.command(Command::Seek { session, to: 700 * 8 });
    assert_eq!(asked(&world)[before..], [8]);
    world.run(Duration::from_millis(650));
    // Then as many as there is room for.
    assert_eq!(asked(&world)[before..], [8, 9, 10, 11]);
}

#[test]
fn chunks_are_asked_for_ahead_once_each_and_in_order() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(Settings { read_ahead: Duration::from_millis(600), ..exact() });
    world.open(1, &source, |_| {});
    assert_eq!(world.asked.iter().map(|(_, chunk)| *chunk).collect::<Vec<_>>(), [0, 1, 2, 3]);
    world.run_to_the_end();
    let all: Vec<u32> = (0..source.title.chunk_count()).collect();
    assert_eq!(world.asked.iter().map(|(_, chunk)| *chunk).collect::<Vec<_>>(), all);
}

#[test]
fn as_much_is_asked_for_as_plays_for_the_time_to_read_ahead_whatever_the_rate() {
    // Chunks of 700 packets play for 2.1 s, 234 and 53 ms.
    for (rate, expected) in [(500_000, 2), (4_500_000, 1 + 3), (20_000_000, 1 + 12)] {
        let source = Source::sample(&Sample { rate: Bitrate::from_bps(rate), ..Sample::default() });
        let mut world = World::new(Settings { read_ahead: Duration::from_millis(600), ..exact() });
        world.open(1, &source, |_| {});
        world.run(Duration::from_millis(10));
        assert_eq!(world.asked.len(), expected, "{rate} bit/s");
    }
}

#[test]
fn a_title_that_begins_slowly_is_read_further_ahead_when_it_becomes_faster() {
    let slow = Sample { rate: Bitrate::from_bps(500_000), ..Sample::default() }.make();
    let fast = Sample { rate: Bitrate::from_bps(20_000_000), ..Sample::default() }.make();
    let chunk_bytes = 700 * wire::ts::PACKET_LEN;
    let begin = slow.len() / chunk_bytes * chunk_bytes;
    let source = Source::new([&slow[..begin], &fast].concat(), 700);
    let mut world = World::new(Settings { read_ahead: Duration::from_millis(600), ..exact() });
    world.open(1, &source, |_| {});
    // Chunks of 53 ms in place of those of two seconds: eleven and more are there when a tenth of a second of them is played.
    world.run(Duration::from_secs(10) + Duration::from_millis(300));
    let played = (begin / chunk_bytes) + 4;
    assert!(world.asked.len() > played + 8, "{} asked for", world.asked.len());
}

#[test]
fn a_chunk_that_cannot_be_had_is_skipped_and_flagged() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.delay = |_, chunk| Duration::from_secs(if chunk == 5 { 1_000 } else { 0 });
    let session = world.open(1, &source, |_| {});
    world.run(Duration::from_secs(1));
    let chunk = Arc::new(Chunk::hole(&source.title, 5));
    world.command(Command::Chunk { session, chunk });
    world.run_to_the_end();
    let report = measured(&world, 1);
    assert_eq!((report.lost, report.priorities.continuity), (0, 0));
    assert_eq!(references(&world, 1).iter().filter(|(_, flag, _)| *flag).count(), 1);
    assert_clock_runs_on(&world, 1, 2 * DATAGRAM);
    let expected = source.bytes.len() / PACKET_LEN - 700;
    let got = world.packets(1).len();
    assert!((expected..expected + 21).contains(&got), "{got} of {expected}");
}

#[test]
fn a_stream_that_the_worker_serves_late_catches_up_at_twice_its_pace() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.play.burst = Some(1));
    world.run(Duration::from_secs(2));
    let due = world.sent[&1].len();
    // The worker is away for 100 ms.
    world.now += Duration::from_millis(100);
    world.run(Duration::from_secs(3));
    let sent = &world.sent[&1][due..];
    assert!(sent[1].ns - sent[0].ns < 2_339_555 * 6 / 10);
    let caught_up = sent.windows(2).position(|pair| pair[1].ns - pair[0].ns > 2_339_000).unwrap();
    assert!((35..=90).contains(&caught_up), "{caught_up} datagrams");
    let last = world.sent[&1].len() - 1;
    let on_time = world.sent[&1][0].ns + (last as u64 * 1_316 * 8 * 1_000_000 / 4_500);
    assert!(world.sent[&1][last].ns.abs_diff(on_time) < 100_000, "on its first schedule again");
}

#[test]
fn a_stream_that_is_too_late_goes_on_from_there() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.open(1, &source, |_| {});
    world.run(Duration::from_secs(2));
    world.now += Duration::from_secs(3);
    world.run_to_the_end();
    assert_eq!((world.ended[0].2.shifts, world.counters().shifts), (1, 1));
    assert_clock_runs_on(&world, 1, 2 * DATAGRAM);
    assert_eq!(measured(&world, 1).lost, 0);
}

#[test]
fn padding_makes_a_variable_title_constant_and_keeps_its_clock() {
    let sample = Sample { is_constant: false, ..Sample::default() };
    let source = Source::sample(&sample);
    for (number, looped) in [(1, false), (2, true)] {
        let mut world = World::new(exact());
        let rate = Bitrate::from_kbps(8_000);
        world.open(number, &source, |spec| {
            (spec.play.pacing, spec.play.looped, spec.play.burst) = (Pacing::Padded(rate), looped, Some(1));
        });
        world.run(Duration::from_secs(25));
        let mut monitor = Monitor::new(Some(rate));
        for sent in &world.sent[&number] {
            monitor.handle_datagram(sent.ns, &sent.bytes);
        }
        let report = monitor.report();
        assert_eq!((report.lost, report.priorities.continuity), (0, 0));
        // A loop puts a tick of 90 kHz of difference in.
        let accuracy = if looped { 30_000 } else { 75 };
        assert!(report.pcr_accuracy_max_ns.unwrap() <= accuracy, "{report:?}");
        assert!(report.delay_factor_max_ns.unwrap() <= 1_316_100, "{report:?}");
        assert!(report.nulls > 1_000);
        if !looped {
            let content = world.packets(number).into_iter().filter(|packet| packet[1] & 0x1f != 0x1f);
            assert_eq!(content.count(), source.bytes.len() / PACKET_LEN);
        }
    }
}

#[test]
fn a_padded_stream_keeps_its_rate_while_a_chunk_is_late() {
    let source = Source::sample(&Sample { is_constant: false, ..Sample::default() });
    let mut world = World::new(exact());
    world.delay = |_, chunk| Duration::from_secs(if chunk == 9 { 20 } else { 0 });
    let rate = Bitrate::from_kbps(8_000);
    world.open(1, &source, |spec| (spec.play.pacing, spec.play.burst) = (Pacing::Padded(rate), Some(1)));
    world.run_to_the_end();
    let mut monitor = Monitor::new(Some(rate));
    for sent in &world.sent[&1] {
        monitor.handle_datagram(sent.ns, &sent.bytes);
    }
    let report = monitor.report();
    assert_eq!((report.lost, report.priorities.continuity, world.ended[0].2.underruns), (0, 0, 1));
    assert!(report.delay_factor_max_ns.unwrap() <= 1_316_100, "{report:?}");
    assert_clock_runs_on(&world, 1, 2 * DATAGRAM);
}

#[test]
fn a_session_that_cannot_be_is_refused_and_one_that_is_closed_says_how_it_was() {
    let source = Source::sample(&Sample { pictures: 20, ..Sample::default() });
    let mut world = World::new(Settings { sessions_max: 2, ..exact() });
    world.open(1, &source, |spec| spec.play.pacing = Pacing::Rate(Bitrate::ZERO));
    world.open(1, &source, |spec| spec.play.pacing = Pacing::Padded(Bitrate::ZERO));
    world.open(1, &source, |_| {});
    world.open(1, &source, |_| {});
    world.open(2, &source, |_| {});
    world.open(3, &source, |_| {});
    let reasons: Vec<_> = world.ended.iter().map(|(id, reason, _)| (id.0, *reason)).collect();
    assert_eq!(reasons, [(1, EndReason::NoPace), (1, EndReason::NoPace), (1, EndReason::InUse), (3, EndReason::Full)]);
    world.run(Duration::from_millis(200));
    world.command(Command::Close(SessionId(2)));
    let (_, reason, stats) = world.ended.last().unwrap();
    assert_eq!((*reason, stats.activity), (EndReason::Closed, Activity::Playing));
    assert!(stats.datagrams > 50);
    world.command(Command::Pause(SessionId(99)));
    assert_eq!(world.counters().sessions, 1);
}

#[test]
fn a_session_with_nothing_to_play_ends() {
    let source = Source::sample(&Sample { pictures: 20, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.start = 1 << 40);
    world.open(2, &source, |spec| (spec.end, spec.play.looped) = (Some(0), true));
    // All chunks are missing, in a loop.
    world.delay = |_, _| Duration::from_secs(10_000);
    let session = world.open(3, &source, |spec| spec.play.looped = true);
    let mut answered = 0;
    while let Some((_, number)) = world.asked.iter().filter(|(id, _)| *id == session).nth(answered) {
        let chunk = Arc::new(Chunk::hole(&source.title, *number));
        world.command(Command::Chunk { session, chunk });
        answered += 1;
        assert!(answered < 10_000);
    }
    let ended: Vec<_> = world.ended.iter().map(|(id, reason, _)| (id.0, *reason)).collect();
    assert_eq!(ended, [(1, EndReason::Ended), (2, EndReason::Ended), (3, EndReason::Ended)]);
}

#[test]
fn pausing_and_resuming_again_and_again_makes_nothing_faster() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    let session = world.open(1, &source, |_| {});
    for _ in 0..500 {
        world.command(Command::Pause(session));
        world.command(Command::Resume(session));
        world.run(Duration::from_micros(1_700));
    }
    assert!(world.sent[&1].len() as u64 <= 500 * 1_700_000 / 2_339_555 + 2, "{}", world.sent[&1].len());
    world.run_to_the_end();
    assert_eq!(measured(&world, 1).lost, 0);
    assert_clock_runs_on(&world, 1, 2 * DATAGRAM);
}
