//! What comes in goes out: a sender over a network that is uneven, an input, and sessions that play it; by a clock that is
//! set.

mod world;

use std::time::Duration;

use proptest::prelude::*;
use pump::live::{Settings, State};
use pump::monitor::Monitor;
use pump::sample::Sample;
use pump::spec::{self, Command, SessionId};
use wire::Bitrate;
use wire::ts::{DATAGRAM_LEN, PACKET_LEN, Packet};

use world::{Flight, MS, SOURCE, World, find, flights, in_order, noise, sample, with_rtp, without_nulls};

const RATE: Bitrate = Bitrate::from_kbps(4_500);

#[test]
fn what_arrives_unevenly_goes_out_evenly_and_unchanged_to_all() {
    let source = sample(RATE, 20, 5);
    // Delays change every 50 ms.
    let mut delays = noise(100 * MS);
    let delays: Vec<i64> = (0..1_000).map(&mut delays).collect();
    let flights = in_order(flights(&source, RATE, 0, 0.0, |index| delays[index / 20]));
    let mut world = World::new(Settings::default());
    world.receive(&flights, 3_000 * MS);
    for number in 1..=3 {
        world.open(number);
        world.receive(&flights, 3_000 * MS + number as i64 * 1_700 * MS);
    }
    world.receive(&flights, 20_000 * MS);

    for number in 1..=3 {
        let sent = world.bytes(number);
        let start = find(&source, &sent[..DATAGRAM_LEN]);
        assert!(source[start..].starts_with(&sent), "session {number}");
        let first = Packet::parse(&sent).unwrap();
        assert_eq!(first.pid(), wire::ts::Pid::PAT, "it begins with the tables before a picture");
        let stats = world.stats(number);
        assert_eq!((stats.underruns, stats.shifts, stats.nulls), (0, 0, 0));
        let delays = world.delays(number, &source, &flights);
        for second in delays.windows(428).step_by(20) {
            let (low, high) = (second.iter().min().unwrap(), second.iter().max().unwrap());
            assert!(high - low < 900_000, "{} ns within a second", high - low);
        }
        let mut monitor = Monitor::new(Some(RATE));
        world.sent[&number].iter().for_each(|(ns, bytes)| monitor.handle_datagram(*ns as u64, bytes));
        let report = monitor.report();
        assert!(report.delay_factor_max_ns.is_some_and(|ns| ns < 4_000_000), "{:?}", report.delay_factor_max_ns);
        assert_eq!((report.lost, report.malformed), (0, 0));
    }
    let counters = world.live.counters(world.now);
    assert_eq!(
        (counters.state, world.live.source(), counters.resyncs, counters.flushes),
        (State::Receiving, Some(SOURCE), 0, 0)
    );
    assert!(counters.jitter > Duration::from_millis(40) && counters.delay_factor_max > Duration::from_millis(40));
}

/// A title as its clock says: each datagram when its last packet is due.
fn by_clock(bytes: &[u8]) -> Vec<Flight> {
    let packets: &[[u8; PACKET_LEN]] = bytes.as_chunks().0;
    let marks = packets.iter().enumerate().filter_map(|(at, packet)| Some((at, Packet::parse(packet).ok()?.pcr()?)));
    let marks: Vec<(usize, wire::ts::Pcr)> = marks.collect();
    let time_ns = |position: usize| {
        let next = marks.partition_point(|(at, _)| *at <= position).clamp(1, marks.len() - 1);
        let ((from, before), (to, behind)) = (marks[next - 1], marks[next]);
        let ticks = before.ticks_to(behind) * (position as i64 - from as i64) / (to - from) as i64;
        (marks[0].1.ticks_to(before) + ticks) * 1_000 / 27
    };
    let of = |(index, part): (usize, &[u8])| {
        let ns = time_ns(7 * index + 6) + MS;
        Flight { sent_ns: ns, arrives_ns: ns, from: SOURCE, bytes: part.to_vec() }
    };
    bytes.chunks(DATAGRAM_LEN).enumerate().map(of).collect()
}

#[test]
fn a_variable_rate_and_rare_references_starve_nobody() {
    let variable = Sample { rate: RATE, pictures: 500, is_constant: false, ..Sample::default() }.make();
    let mut rare = sample(RATE, 20, 5);
    let has_pcr =
        |packet: &&mut [u8; PACKET_LEN]| Packet::parse(&packet[..]).is_ok_and(|packet| packet.pcr().is_some());
    // One in 400 ms; the standard wants one in 100.
    for (count, packet) in rare.as_chunks_mut::<PACKET_LEN>().0.iter_mut().filter(has_pcr).enumerate() {
        if !count.is_multiple_of(12) {
            packet[5] &= !0x10;
        }
    }
    for (source, flushes) in [(variable, false), (rare, true)] {
        let flights = by_clock(&source);
        let mut world = World::new(Settings::default());
        world.receive(&flights, 4_000 * MS);
        world.open(1);
        world.receive(&flights, 19_000 * MS);
        let sent = world.bytes(1);
        assert!(source[find(&source, &sent[..DATAGRAM_LEN])..].starts_with(&sent));
        assert_eq!(world.stats(1).underruns, 0);
        let counters = world.live.counters(world.now);
        assert_eq!((counters.resyncs, counters.flushes > 20), (0, flushes), "{counters:?}");
    }
}

#[test]
fn a_newcomer_begins_with_the_last_picture_that_stands_alone_and_not_before_its_time() {
    let source = sample(RATE, 10, 5);
    let flights = flights(&source, RATE, 0, 0.0, |_| 0);
    let mut world = World::new(Settings::default());
    for at_ns in [3_000 * MS, 4_170 * MS, 5_400 * MS, 6_810 * MS] {
        world.receive(&flights, at_ns);
        world.open(at_ns as u64 / MS as u64);
        world.receive(&flights, at_ns + 700 * MS);
        let (first_ns, _) = world.sent[&(at_ns as u64 / MS as u64)][0];
        assert!(first_ns - at_ns <= 260 * MS, "it waits for {first_ns}");
        let delays = world.delays(at_ns as u64 / MS as u64, &source, &flights);
        // A picture stands alone every 480 ms.
        assert!(delays.iter().all(|ns| (249 * MS..(480 + 250 + 10) * MS).contains(ns)), "{:?}", &delays[..5]);
    }
}

#[test]
fn who_comes_as_soon_as_it_is_known_what_comes_gets_the_first_picture() {
    // A picture stands alone every four seconds.
    let source = Sample { rate: RATE, pictures: 150, group: 100, ..Sample::default() }.make();
    let flights = in_order(flights(&source, RATE, MS, 0.0, noise(40 * MS)));
    let mut world = World::new(Settings::default());
    let known = (1..100).find(|count| {
        world.receive(&flights, count * 50 * MS);
        world.live.start().is_some()
    });
    assert!(known.is_some_and(|count| count < 20), "{known:?}");
    world.open(1);
    world.receive(&flights, 5_000 * MS);
    assert!(source.starts_with(&world.bytes(1)), "from the first packet on");
    assert_eq!(world.stats(1).underruns, 0);
}

#[test]
fn rtp_is_put_in_order_and_what_is_lost_is_counted() {
    let source = sample(RATE, 12, 5);
    let all = flights(&source, RATE, 0, 0.0, noise(8 * MS));
    let mut sent = with_rtp(all, 65_000);
    let is_lost = |index: usize| index > 1_000 && index.is_multiple_of(100);
    let dropped: Vec<usize> = (0..sent.len()).filter(|index| is_lost(*index)).collect();
    for index in dropped.iter().rev() {
        sent.remove(*index);
    }
    let twice = sent[500].clone();
    sent.push(Flight { arrives_ns: twice.arrives_ns + 30 * MS, ..twice });
    let mut world = World::new(Settings::default());
    world.receive(&sent, 2_000 * MS);
    world.open(1);
    world.receive(&sent, 14_000 * MS);

    let counters = world.live.counters(world.now);
    assert_eq!((counters.rtp_lost, counters.rtp_late), (dropped.len() as u64, 1));
    assert!(counters.rtp_reordered > 500);
    let (events, missing) = (counters.continuity_errors as usize, counters.lost as usize);
    assert!((1..=2 * dropped.len()).contains(&events) && missing > events, "{events} events, {missing} packets");
    let mut expected = source.clone();
    for index in dropped.iter().rev() {
        expected.drain(index * DATAGRAM_LEN..(index + 1) * DATAGRAM_LEN);
    }
    let sent = world.bytes(1);
    let start = find(&expected, &sent[..DATAGRAM_LEN]);
    assert!(without_nulls(&expected[start..]).starts_with(&without_nulls(&sent)));
    assert!(sent.len() > 9 * 4_500_000 / 8, "{} bytes", sent.len());
    assert_eq!(world.stats(1).underruns, 1, "when it was over");
}

#[test]
fn a_sender_whose_clock_drifts_neither_starves_nor_lags_a_session() {
    let rate = Bitrate::from_kbps(500);
    let source = sample(rate, 600, 5);
    for ppm in [-100.0, 100.0] {
        let flights = in_order(flights(&source, rate, 0, ppm, noise(60 * MS)));
        let mut world = World::new(Settings::default());
        world.receive(&flights, 3_000 * MS);
        world.open(1);
        world.receive(&flights, 600_000 * MS);
        assert_eq!(world.stats(1).underruns, 0, "{ppm} ppm");
        let delays = world.delays(1, &source, &flights);
        let (low, high) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(high - low < 25 * MS, "{ppm} ppm: from {low} to {high} ns");
        let counters = world.live.counters(world.now);
        assert_eq!((counters.resyncs, counters.overruns), (0, 0));
        assert!((counters.drift_ppm - ppm).abs() < 15.0, "{} for {ppm} ppm", counters.drift_ppm);
    }
}

/// Delay of the session's last packet, when that was of `source`.
fn last_delay(world: &World, source: &[u8], flights: &[Flight]) -> i64 {
    // Null packets are all alike.
    let is_unique = |bytes: &[u8]| bytes.as_chunks().0.iter().any(|packet: &[u8; PACKET_LEN]| packet[1] != 0x1f);
    let (ns, bytes) = world.sent[&1].iter().rev().find(|(_, bytes)| is_unique(bytes)).unwrap();
    ns - flights[find(source, bytes) / DATAGRAM_LEN].sent_ns
}

#[test]
fn another_source_with_another_clock_takes_over_after_a_silence() {
    let (first, second) = (sample(RATE, 8, 50 * 27_000_000), sample(RATE, 8, 7));
    let before = flights(&first, RATE, 0, 0.0, |_| 5 * MS);
    let mut after = flights(&second, RATE, 10_000 * MS, 0.0, |_| 5 * MS);
    after.iter_mut().for_each(|flight| flight.from = "192.0.2.2:7000".parse().unwrap());
    let mut world = World::new(Settings::default());
    world.receive(&before, 2_000 * MS);
    world.open(1);
    world.receive(&before, 9_500 * MS);
    let delay_ns = last_delay(&world, &first, &before);
    assert_eq!(world.stats(1).activity, spec::Activity::Starved);
    assert_eq!(world.live.counters(world.now).state, State::Silent);
    world.receive(&after, 16_000 * MS);

    let counters = world.live.counters(world.now);
    assert_eq!((counters.state, counters.sources, counters.foreign), (State::Receiving, 1, 0));
    assert_eq!(world.live.source(), Some(after[0].from));
    let off_ns = last_delay(&world, &second, &after) - delay_ns;
    assert!(off_ns.abs() < 30 * MS, "it is later by {off_ns} ns");
    assert_eq!(world.stats(1).underruns, 1);
    let sent = world.bytes(1);
    let flagged = |packet: &[u8; PACKET_LEN]| Packet::parse(packet).is_ok_and(|packet| packet.discontinuity());
    let flagged = sent.as_chunks().0.iter().filter(|packet| flagged(packet)).count();
    assert_eq!(flagged, 1, "the new clock's first reference says that it does not continue");
    assert!(world.needs.is_empty());
}

#[test]
fn a_hole_in_what_is_sent_delays_nothing_behind_it() {
    let source = sample(RATE, 12, 5);
    let all = flights(&source, RATE, 0, 0.0, |_| 5 * MS);
    let there = |flight: &&Flight| !(5_000 * MS..7_000 * MS).contains(&flight.sent_ns);
    let sent: Vec<Flight> = all.iter().filter(there).cloned().collect();
    let mut world = World::new(Settings::default());
    world.receive(&sent, 2_000 * MS);
    world.open(1);
    world.receive(&sent, 4_900 * MS);
    let delay_ns = last_delay(&world, &source, &all);
    world.receive(&sent, 11_000 * MS);
    let off_ns = last_delay(&world, &source, &all) - delay_ns;
    assert!(off_ns.abs() < 30 * MS, "it is later by {off_ns} ns");
    assert_eq!(world.live.counters(world.now).sources, 0, "the same source goes on");
}

#[test]
fn the_last_packets_before_a_silence_are_sent_though_they_fill_no_datagram() {
    let source = sample(RATE, 12, 5);
    let all = flights(&source, RATE, 0, 0.0, |_| 5 * MS);
    for (policy, lag) in [(spec::WhenStarved::Pause, 250 + 215), (spec::WhenStarved::Nulls, 250 + 15)] {
        for count in 0..7 {
            // Of the last datagram before two seconds of silence some packets come.
            let mut sent = all.clone();
            sent.drain(3_000..4_000);
            sent[2_999].bytes.truncate((7 - count) * PACKET_LEN);
            let mut world = World::new(Settings::default());
            world.receive(&sent, 2_000 * MS);
            world.open_with(1, |spec| spec.play.when_starved = policy);
            let last_ns = all[2_999].sent_ns;
            world.receive(&sent, last_ns + lag * MS);

            let end = 3_000 * DATAGRAM_LEN - count * PACKET_LEN;
            let heard = without_nulls(&world.bytes(1));
            assert!(without_nulls(&source[..end]).ends_with(&heard), "{policy:?}, {count} packets are missing");
            assert!(world.sent[&1].iter().all(|(_, bytes)| bytes.len() == DATAGRAM_LEN));
            world.receive(&sent, last_ns + 4_000 * MS);
            assert_eq!(world.stats(1).underruns, 1);
        }
    }
}

#[test]
fn a_session_that_wants_null_packets_gets_them_while_nothing_comes() {
    let source = sample(RATE, 12, 5);
    let all = flights(&source, RATE, 0, 0.0, |_| 5 * MS);
    let there = |flight: &&Flight| !(5_000 * MS..7_000 * MS).contains(&flight.sent_ns);
    let sent: Vec<Flight> = all.iter().filter(there).cloned().collect();
    let mut world = World::new(Settings::default());
    world.receive(&sent, 2_000 * MS);
    world.open_with(1, |spec| spec.play.when_starved = spec::WhenStarved::Nulls);
    world.receive(&sent, 4_900 * MS);
    let delay_ns = last_delay(&world, &source, &all);
    world.receive(&sent, 11_000 * MS);
    let off_ns = last_delay(&world, &source, &all) - delay_ns;
    assert!(off_ns.abs() < 30 * MS, "it is later by {off_ns} ns");
    let nulls = world.stats(1).nulls;
    let two_seconds = 2 * RATE.bps() / 8 / PACKET_LEN as u64;
    assert!(nulls.abs_diff(two_seconds) < two_seconds / 5, "{nulls}");
    let gaps = world.sent[&1].windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.max().is_some_and(|gap| gap < 60 * MS));
}

#[test]
fn a_live_input_is_waited_for_however_long_also_where_it_is_padded() {
    let source = sample(RATE, 90, 5);
    let all = flights(&source, RATE, 0, 0.0, |_| 5 * MS);
    let there = |flight: &&Flight| !(5_000 * MS..65_000 * MS).contains(&flight.sent_ns);
    let sent: Vec<Flight> = all.iter().filter(there).cloned().collect();
    let mut world = World::new(Settings::default());
    world.receive(&sent, 2_000 * MS);
    for session in [1, 2] {
        world.open_with(session, |spec| {
            spec.play.starved_timeout = Some(Duration::from_secs(3));
            if session == 2 {
                spec.play.pacing = spec::Pacing::Padded(Bitrate::from_kbps(12_000));
            }
        });
    }
    world.receive(&sent, 60_000 * MS);
    for session in [1, 2] {
        let stats = world.stats(session);
        assert_eq!(stats.activity, spec::Activity::Starved, "session {session}");
        assert!(stats.starved.abs_diff(Duration::from_secs(55)) < Duration::from_secs(1), "{:?}", stats.starved);
    }
    world.receive(&sent, 70_000 * MS);
    for session in [1, 2] {
        let stats = world.stats(session);
        assert_eq!(stats.activity, spec::Activity::Playing, "session {session}");
        assert!(stats.starved.abs_diff(Duration::from_secs(60)) < Duration::from_secs(1), "{:?}", stats.starved);
    }
}

#[test]
fn a_live_input_is_filled_up_to_a_constant_rate() {
    let source = Sample { rate: RATE, pictures: 300, is_constant: false, ..Sample::default() }.make();
    let flights = by_clock(&source);
    let rate = Bitrate::from_kbps(12_000);
    let mut world = World::new(Settings::default());
    world.receive(&flights, 2_000 * MS);
    world.open_with(1, |spec| spec.play.pacing = spec::Pacing::Padded(rate));
    world.receive(&flights, 11_000 * MS);
    let mut monitor = Monitor::new(Some(rate));
    world.sent[&1].iter().for_each(|(ns, bytes)| monitor.handle_datagram(*ns as u64, bytes));
    let report = monitor.report();
    assert_eq!((report.lost, world.stats(1).underruns), (0, 0));
    assert!(report.nulls > 10_000 && report.delay_factor_max_ns.is_some_and(|ns| ns < 2_000_000), "{report:?}");
    // A reference has the time of its new place, within what the line turned.
    assert!(report.pcr_accuracy_max_ns.is_some_and(|ns| ns < 500_000), "{report:?}");
}

#[test]
fn nobody_but_the_source_is_listened_to() {
    let (ours, theirs) = (sample(RATE, 6, 5), sample(RATE, 6, 999));
    let mut sent = flights(&ours, RATE, MS, 0.0, |_| 0);
    let mut other = flights(&theirs, RATE, MS + 1, 0.0, |_| 0);
    other.iter_mut().for_each(|flight| flight.from = "192.0.2.9:5000".parse().unwrap());
    let count = other.len() as u64;
    sent.extend(other);
    for source in [None, Some(SOURCE.ip())] {
        let mut world = World::new(Settings { source, ..Settings::default() });
        world.receive(&sent, 3_000 * MS);
        world.open(1);
        world.receive(&sent, 6_500 * MS);
        let sent = world.bytes(1);
        let start = find(&ours, &sent[..DATAGRAM_LEN]);
        assert!(without_nulls(&ours[start..]).starts_with(&without_nulls(&sent)));
        assert_eq!(world.live.counters(world.now).foreign, count);
    }
    // When ours is silent, a configured source is still the only one.
    let mut world = World::new(Settings { source: Some("192.0.2.77".parse().unwrap()), ..Settings::default() });
    world.receive(&sent, 3_000 * MS);
    assert_eq!((world.live.counters(world.now).state, world.live.title()), (State::Silent, None));
}

#[test]
fn a_sender_that_is_too_fast_fills_no_memory_and_floods_nobody() {
    let source = sample(RATE, 60, 5);
    // A minute in six seconds, after two at the right pace.
    let fast = Bitrate::from_bps(RATE.bps() * 10);
    let slow_len = source.len() / 30 / DATAGRAM_LEN * DATAGRAM_LEN;
    let mut sent = flights(&source[..slow_len], RATE, 0, 0.0, |_| 0);
    sent.extend(flights(&source[slow_len..], fast, 2_000 * MS, 0.0, |_| 0));
    let mut world = World::new(Settings::default());
    world.receive(&sent, 1_900 * MS);
    world.open(1);
    world.receive(&sent, 8_000 * MS);
    let counters = world.live.counters(world.now);
    assert!(counters.overruns > 50_000, "{counters:?}");
    let last_second = world.sent[&1].iter().filter(|(ns, _)| *ns >= 7_000 * MS).count();
    assert!(last_second < 2 * 430, "{last_second} datagrams");
    let newest = world.live.kept().last().and_then(|chunk| chunk.dues.last()).unwrap().at;
    assert!(newest.saturating_duration_since(world.now) < Duration::from_millis(2_500));
}

#[test]
fn a_session_whose_chunk_is_gone_is_told_and_goes_on_where_it_is_sent() {
    let source = sample(RATE, 10, 5);
    let flights = flights(&source, RATE, 0, 0.0, |_| 0);
    let mut world = World::new(Settings::default());
    world.receive(&flights, 2_000 * MS);
    world.open(1);
    world.receive(&flights, 4_000 * MS);
    let next = world.live.kept().last().unwrap().number + 1;
    world.lost = next..next + 10;
    world.receive(&flights, 5_000 * MS);
    assert!(world.needs.iter().all(|number| world.lost.contains(number)) && !world.needs.is_empty());
    let to = world.live.start().unwrap();
    world.command(Command::Jump { session: SessionId(1), to });
    world.receive(&flights, 8_000 * MS);
    let mut monitor = Monitor::new(None);
    world.sent[&1].iter().for_each(|(ns, bytes)| monitor.handle_datagram(*ns as u64, bytes));
    assert_eq!(monitor.report().lost, 0, "counters go on");
    assert!(world.stats(1).datagrams > 4 * 400);
}

#[test]
fn tables_that_change_give_newcomers_another_title() {
    let first = sample(RATE, 4, 5);
    // The same, with its video renamed.
    let mut second = sample(RATE, 4, 5 + 4 * 27_000_000);
    let tables = rename_video(&mut second);
    assert!(tables > 10);
    let mut sent = flights(&first, RATE, 0, 0.0, |_| 0);
    sent.extend(flights(&second, RATE, 4_000 * MS, 0.0, |_| 0));
    let mut world = World::new(Settings::default());
    world.receive(&sent, 3_000 * MS);
    world.open(1);
    assert_eq!(world.live.title().unwrap().pcr_pid, Some(pump::sample::VIDEO_PID));
    world.receive(&sent, 7_900 * MS);
    assert_eq!(world.live.title().unwrap().pcr_pid.map(|pid| pid.number()), Some(0x155));
    world.open(2);
    world.receive(&sent, 9_000 * MS);
    let both = [first, second].concat();
    for number in [1, 2] {
        let sent = world.bytes(number);
        let start = find(&both, &sent[..DATAGRAM_LEN]);
        assert!(without_nulls(&both[start..]).starts_with(&without_nulls(&sent)), "session {number}");
    }
    assert_eq!(world.stats(1).underruns, 1, "when it was over");
}

fn rename_video(bytes: &mut [u8]) -> usize {
    let to = wire::ts::Pid::new(0x155).unwrap();
    let mut tables = 0;
    for packet in bytes.as_chunks_mut::<PACKET_LEN>().0 {
        let pid = wire::ts::Pid::from_bytes(packet[1], packet[2]);
        if pid == pump::sample::VIDEO_PID {
            wire::ts::set_pid(packet, to);
        } else if pid == pump::sample::PMT_PID {
            tables += 1;
            let section_len = 3 + (usize::from(packet[6] & 0x0f) << 8 | usize::from(packet[7]));
            let section = &mut packet[5..5 + section_len];
            for at in 8..section_len - 6 {
                if section[at] & 0x1f == 0x01 && section[at + 1] == 0 && [8, 13].contains(&at) {
                    (section[at], section[at + 1]) = (0xe1, 0x55);
                }
            }
            let crc = wire::ts::crc32(&section[..section_len - 4]);
            section[section_len - 4..].copy_from_slice(&crc.to_be_bytes());
        }
    }
    tables
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_datagram_whatever_it_is_does_harm(
        seed in any::<u64>(),
        broken in proptest::collection::vec((0_usize..3_000, 0_u8..9, any::<u64>()), 0..200),
    ) {
        let source = Sample { seed, ..Sample { rate: RATE, pictures: 150, ..Sample::default() } }.make();
        let mut sent = with_rtp(flights(&source, RATE, 0, 0.0, noise(20 * MS)), seed as u16);
        for (index, kind, value) in broken {
            let len = sent.len();
            let flight = &mut sent[index % len];
            let at = value as usize % flight.bytes.len().max(1);
            match kind {
                0 => flight.bytes.truncate(at),
                1 => flight.bytes.iter_mut().skip(at).for_each(|byte| *byte = byte.rotate_left(3) ^ value as u8),
                2 => flight.bytes = value.to_le_bytes().repeat(at / 8),
                3 => flight.arrives_ns += (value % 5_000) as i64 * MS,
                4 => drop(flight.bytes.drain(..12.min(flight.bytes.len()))),
                5 => flight.from.set_port(value as u16 % 3),
                6 => flight.bytes.iter_mut().step_by(PACKET_LEN).for_each(|byte| *byte = 0x47),
                // References anywhere.
                7 => flight.bytes.get_mut(12..).unwrap_or(&mut []).chunks_mut(PACKET_LEN).for_each(|packet| {
                    if packet.len() == PACKET_LEN && packet[3] & 0x20 != 0 && packet[5] & 0x10 != 0 {
                        packet[6..12].copy_from_slice(&value.to_be_bytes()[..6]);
                    }
                }),
                _ => flight.bytes.clear(),
            }
        }
        let mut world = World::new(Settings::default());
        for step in 1..12 {
            world.receive(&sent, step * 1_000 * MS);
            if world.live.start().is_some() {
                world.open(step as u64);
            }
            if let Some(to) = world.live.start().filter(|_| !world.needs.is_empty()) {
                world.needs.clear();
                world.command(Command::Jump { session: SessionId(step as u64 / 2), to });
            }
        }
        let chunks: Vec<_> = world.live.kept().collect();
        for pair in chunks.windows(2) {
            prop_assert_eq!(pair[0].number + 1, pair[1].number);
            prop_assert_eq!(pair[0].first + u64::from(pair[0].packet_count()), pair[1].first);
            prop_assert!(pair[0].dues.last().unwrap().at <= pair[1].dues[0].at);
        }
        for chunk in chunks {
            prop_assert!(chunk.dues.windows(2).all(|pair| pair[0].position < pair[1].position && pair[0].at <= pair[1].at));
        }
    }
}
