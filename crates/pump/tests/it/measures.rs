//! What a session tells of itself, and the start that is faster than its clock.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Source, World};
use pump::chunk::Chunk;
use pump::monitor::Monitor;
use pump::sample::{Sample, VIDEO_PID};
use pump::spec::{Command, LATE_BUCKETS, SessionId, SessionStats, Settings, Transport, late_bound};
use wire::Bitrate;
use wire::ts::{PACKET_LEN, Packet, Pcr, datagram_packets};

const SESSION: SessionId = SessionId(1);

fn exact() -> Settings {
    Settings { tick: Duration::from_nanos(1), ..Settings::default() }
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// When each reference was sent, in nanoseconds, and how far it is from the first.
fn references(world: &World) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let mut first: Option<(i64, Pcr)> = None;
    for sent in &world.sent[&1] {
        for packet in datagram_packets(&sent.bytes).expect("packets").1 {
            if let Some(pcr) = Packet::parse(packet).expect("a packet").pcr() {
                let (at_ns, base) = *first.get_or_insert((sent.ns as i64, pcr));
                found.push((sent.ns as i64 - at_ns, base.ticks_to(pcr) * 1_000 / 27));
            }
        }
    }
    found
}

#[test]
fn a_clock_that_jumps_within_a_part_or_from_one_to_the_next_is_flagged() {
    let first = Sample { pictures: 50, ..Sample::default() }.make();
    // All of it is one part; or the jump is where the second begins.
    let parts = [70_000, (first.len() / PACKET_LEN) as u32];
    for (seconds, packets_in_part) in [-5, 3, 7_200].into_iter().flat_map(|seconds| parts.map(|part| (seconds, part))) {
        let first_pcr = (10 + 2 + seconds) as u64 * Pcr::HZ;
        let second = Sample { pictures: 50, first_pcr, seed: 2, ..Sample::default() }.make();
        let bytes = [first.clone(), second].concat();
        let source = Source::new(bytes.clone(), packets_in_part);
        let mut world = World::new(exact());
        world.open(1, &source, |_| ());
        world.run_to_the_end();
        let packets = world.packets(1);
        let (sent, read) = (packets.iter(), bytes.as_chunks::<PACKET_LEN>().0.iter());
        let changed: Vec<usize> =
            sent.zip(read).enumerate().filter(|(_, (sent, read))| sent != read).map(|(at, _)| at).collect();
        let [at] = changed[..] else { panic!("{seconds} s: {changed:?}") };
        assert!(at >= first.len() / PACKET_LEN && Packet::parse(&packets[at]).expect("a packet").discontinuity());
        assert_eq!(world.ended[0].2.clock_jumps, 1, "it is counted");
        let mut monitor = Monitor::new(None);
        world.sent[&1].iter().for_each(|sent| monitor.handle_datagram(sent.ns, &sent.bytes));
        assert_eq!(monitor.report().priorities.pcr_discontinuity, 0, "{seconds} s");
    }
}

#[test]
fn a_clock_that_jumps_from_a_part_to_one_that_comes_late_is_flagged() {
    let first = Sample { pictures: 50, ..Sample::default() }.make();
    let second = Sample { pictures: 50, first_pcr: 7_200 * Pcr::HZ, seed: 2, ..Sample::default() }.make();
    let seam = first.len() / PACKET_LEN;
    let source = Source::new([first, second].concat(), seam as u32);
    let mut world = World::new(exact());
    world.delay = |_, number| millis(if number == 1 { 5_000 } else { 0 });
    world.open(1, &source, |_| ());
    world.run_to_the_end();

    assert!(world.ended[0].2.underruns > 0, "it had to be waited for");
    let is_flagged = |packet: &[u8; PACKET_LEN]| Packet::parse(packet).expect("a packet").discontinuity();
    let flagged: Vec<usize> =
        (0..).zip(&world.packets(1)).filter(|(_, packet)| is_flagged(packet)).map(|(at, _)| at).collect();
    assert!(matches!(flagged[..], [at] if at >= seam), "{flagged:?}");
}

#[test]
fn a_slow_stream_is_sent_as_the_standard_has_it_where_nobody_chose_a_burst() {
    for (kbps, is_constant) in [300, 650, 1_000, 2_000].into_iter().flat_map(|kbps| [(kbps, true), (kbps, false)]) {
        let sample = Sample { rate: Bitrate::from_kbps(kbps), is_constant, pictures: 500, ..Sample::default() };
        let mut world = World::new(Settings::default());
        world.open(1, &Source::sample(&sample), |_| ());
        world.run_to_the_end();
        let rate = is_constant.then_some(sample.rate);
        let mut monitor = Monitor::new(rate);
        world.sent[&1].iter().for_each(|sent| monitor.handle_datagram(sent.ns, &sent.bytes));
        let report = monitor.report();

        let errors = report.priorities;
        let found = (errors.pcr_repetition, errors.pcr_discontinuity, errors.pcr_accuracy, errors.continuity);
        assert_eq!(found, (0, 0, 0, 0), "{kbps} kbit/s: {report:?}");
        let datagram_ns = 7 * 188 * 8 * 1_000_000 / kbps;
        let delay_factor_ns = report.delay_factor_max_ns.unwrap_or(0);
        assert!(delay_factor_ns <= datagram_ns.max(10_000_000) + 1_100_000, "{kbps} kbit/s: {report:?}");
        if is_constant {
            assert!(report.pcr_jitter_max_ns <= datagram_ns.max(10_000_000) + 1_100_000, "{kbps} kbit/s: {report:?}");
        }
    }
}

#[test]
fn a_session_begins_at_twice_its_pace_and_is_ahead_from_then_on() {
    let source = Source::sample(&Sample::default());
    for transport in [Transport::Udp, Transport::Rtp { ssrc: 1, first_seq: 2, first_timestamp: 3 }] {
        let mut world = World::new(exact());
        world.open(1, &source, |spec| {
            (spec.play.burst, spec.play.burst_start, spec.transport) = (Some(1), millis(1_500), transport);
        });
        world.run_to_the_end();
        for (at_ns, pcr_ns) in references(&world) {
            let expected_ns = pcr_ns - (pcr_ns / 2).min(1_500_000_000);
            assert!((at_ns - expected_ns).abs() < 2_400_000, "reference {pcr_ns} was sent at {at_ns}");
        }
        assert_eq!(world.packets(1).as_flattened()[..source.bytes.len()], source.bytes, "nothing is changed");
        if transport == Transport::Udp {
            continue;
        }
        // Timestamps run as the title does, however fast it is sent.
        let timestamp =
            |index: usize| datagram_packets(&world.sent[&1][index].bytes).expect("packets").0.expect("RTP").timestamp;
        for index in 1..world.sent[&1].len() {
            let step = timestamp(index) - timestamp(index - 1);
            assert!((210..=211).contains(&step), "{step} from datagram {} to the next", index - 1);
        }
    }
}

#[test]
fn behind_a_seek_what_is_ahead_stays_ahead() {
    let source = Source::sample(&Sample { pictures: 1_000, ..Sample::default() });
    let mut world = World::new(exact());
    world.open(1, &source, |spec| (spec.play.burst, spec.play.burst_start) = (Some(1), millis(1_000)));
    world.run(millis(3_000));
    world.command(Command::Seek { session: SESSION, to: 60_000 });
    world.run(millis(3_000));
    for (at_ns, pcr_ns) in references(&world).into_iter().filter(|(at_ns, _)| *at_ns > 1_000_000_000) {
        assert!((pcr_ns - at_ns - 1_000_000_000).abs() < 5_000_000, "reference {pcr_ns} was sent at {at_ns}");
    }
}

fn stats(mut world: World) -> (SessionStats, World) {
    world.command(Command::Close(SESSION));
    let (.., stats) = world.ended.pop().expect("it ended");
    (stats, world)
}

#[test]
fn lateness_and_the_delay_factor_are_those_of_the_schedule() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.play.burst = Some(4));
    world.run(millis(2_500));
    let worst = world.counters().delay_factor_max;
    let (on_time, _) = stats(world);
    assert_eq!(worst, on_time.delay_factor);
    let bursts: u32 = on_time.lateness.iter().sum();
    assert_eq!((u64::from(bursts), on_time.lateness[0]), (on_time.datagrams.div_ceil(4), bursts));
    // Four datagrams at 4.5 Mbit/s.
    assert!(on_time.delay_factor.abs_diff(Duration::from_nanos(4 * 2_339_555)) < Duration::from_micros(10));
    assert!(on_time.age.abs_diff(millis(2_500)) < millis(20), "{:?}", on_time.age);

    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.play.burst = Some(4));
    world.run(millis(1_500));
    world.now += millis(50);
    world.run(millis(2_000));
    let (late, _) = stats(world);
    assert!(late.delay_factor_max > millis(40) && late.delay_factor_max < millis(60), "{late:?}");
    assert!(late.delay_factor < late.delay_factor_max);
    let late_ones: u32 = late.lateness[1..].iter().sum();
    assert!(late_ones > 1, "it caught up: {:?}", late.lateness);
    assert_eq!(late_bound(0), Some(Duration::from_micros(64)));
    assert_eq!(
        (late_bound(LATE_BUCKETS - 2), late_bound(LATE_BUCKETS - 1)),
        (Some(Duration::from_micros(64 << 10)), None)
    );
}

#[test]
fn what_a_title_lacks_is_counted_of_each_session_and_in_all() {
    let sample = Sample::default();
    let mut bytes = sample.make();
    let packets = bytes.as_chunks_mut::<PACKET_LEN>().0;
    let with_video = |packet: &&mut [u8; PACKET_LEN]| {
        let packet = Packet::parse(*packet).expect("a packet");
        packet.pid() == VIDEO_PID && packet.has_payload() && packet.pcr().is_none()
    };
    // Three packets become null packets, in the midst of chunks.
    for packet in packets.iter_mut().filter(with_video).skip(500).step_by(2_000).take(3) {
        wire::ts::write_null(packet);
    }
    let source = Source::new(bytes, 700);
    let mut world = World::new(exact());
    world.delay = |_, chunk| Duration::from_secs(if chunk == 5 { 1_000 } else { 0 });
    world.open(1, &source, |_| {});
    world.run(millis(1_000));
    world.command(Command::Chunk { session: SESSION, chunk: Arc::new(Chunk::hole(&source.title, 5)) });
    world.run(millis(8_000));
    let counted = world.counters();
    world.run_to_the_end();
    let (.., ended) = &world.ended[0];
    assert_eq!((ended.lost, ended.continuity_errors), (700, 3));
    for counters in [counted, world.counters()] {
        assert_eq!((counters.lost, counters.continuity_errors), (700, 3));
    }
}

#[test]
fn what_is_sent_is_measured_when_that_is_asked_for() {
    let source = Source::sample(&Sample::default());
    let transports = [Transport::Udp, Transport::Rtp { ssrc: 1, first_seq: 2, first_timestamp: 3 }];
    for (transport, looped) in transports.into_iter().zip([false, true]) {
        let mut world = World::new(exact());
        world.open(1, &source, |spec| {
            (spec.play.is_monitored, spec.transport, spec.play.looped) = (true, transport, looped);
            spec.play.pacing = pump::spec::Pacing::Rate(Bitrate::from_kbps(4_500));
        });
        world.run(millis(15_000));
        let (monitored, errors) = (world.counters().monitored, world.counters().priority_1);
        let jitter = world.counters().pcr_jitter_max;
        let mut monitor = Monitor::new(Some(Bitrate::from_kbps(4_500)));
        world.sent[&1].iter().for_each(|sent| monitor.handle_datagram(sent.ns, &sent.bytes));
        let expected = monitor.report();
        let report = match world.ended.pop() {
            Some((.., stats)) => stats.report,
            None => stats(world).0.report,
        };
        if looped {
            assert_eq!(jitter, Duration::from_nanos(expected.pcr_jitter_max_ns));
        }
        assert_eq!(report.map(|report| *report), Some(expected), "{transport:?}");
        assert_eq!((monitored, errors), (u64::from(looped), 0));
    }
    let mut world = World::new(exact());
    world.open(1, &source, |_| {});
    world.run(millis(1_000));
    assert_eq!(stats(world).0.report, None);
}
