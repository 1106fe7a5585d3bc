//! A title that is played straight through: all of it, at its time.

use std::time::Duration;

use crate::common::{Source, World};
use pump::sample::Sample;
use pump::spec::{EndReason, Pacing, Settings, Transport};
use wire::Bitrate;
use wire::ts::{PACKET_LEN, Packet, Pcr};

/// Ticks short enough not to be seen.
fn exact() -> Settings {
    Settings { tick: Duration::from_nanos(1), ..Settings::default() }
}

fn vbr() -> Sample {
    Sample { is_constant: false, ..Sample::default() }
}

/// References, and when they arrived, in ticks of 27 MHz since the first.
fn arrivals(world: &World, number: u64) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    let mut first: Option<(u64, Pcr)> = None;
    for sent in &world.sent[&number] {
        for packet in wire::ts::datagram_packets(&sent.bytes).unwrap().1 {
            if let Some(pcr) = Packet::parse(packet).unwrap().pcr() {
                let (at, base) = *first.get_or_insert((sent.ns, pcr));
                found.push((base.ticks_to(pcr), ((sent.ns - at) * 27 / 1_000) as i64));
            }
        }
    }
    found
}

#[test]
fn every_byte_of_a_title_arrives_in_datagrams_of_seven_packets() {
    for sample in [Sample::default(), vbr()] {
        for burst in [1, 2, 4, 7] {
            let source = Source::sample(&sample);
            let mut world = World::new(Settings::default());
            world.open(1, &source, |spec| spec.play.burst = Some(burst));
            world.run_to_the_end();

            let packets = world.packets(1);
            assert_eq!(packets.as_flattened()[..source.bytes.len()], source.bytes);
            assert!(packets.len() - source.bytes.len() / PACKET_LEN < 7, "only the last datagram is filled up");
            assert!(world.sent[&1].iter().all(|sent| sent.bytes.len() == 1_316));
            let (_, reason, stats) = &world.ended[0];
            assert_eq!((*reason, stats.underruns, stats.shifts, stats.clock_jumps), (EndReason::Ended, 0, 0, 0));
            assert_eq!(stats.datagrams, world.sent[&1].len() as u64);
        }
    }
}

#[test]
fn each_datagram_leaves_when_its_first_packet_is_due() {
    for sample in [Sample::default(), vbr()] {
        let source = Source::sample(&sample);
        let mut world = World::new(exact());
        world.open(1, &source, |spec| spec.play.burst = Some(1));
        world.run_to_the_end();

        // A reference travels with up to six packets before it: so much may it be early, never late.
        let rate = sample.rate.bps() as i64;
        let datagram = if sample.is_constant { 1_316 * 8 * 27_000_000 / rate } else { 27_000_000 / 25 };
        for (pcr, arrived) in arrivals(&world, 1) {
            assert!((pcr - arrived).abs() <= datagram, "reference {pcr} arrived at {arrived}");
        }
    }
}

#[test]
fn a_constant_title_leaves_at_a_constant_interval() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.play.burst = Some(1));
    world.run_to_the_end();
    let times: Vec<u64> = world.sent[&1].iter().map(|sent| sent.ns).collect();
    for pair in times.windows(2) {
        // 2,339,555 ns, to a tick of the references.
        assert!((2_339_400..2_339_700).contains(&(pair[1] - pair[0])), "{pair:?}");
    }
}

#[test]
fn a_given_rate_is_kept_to_the_nanosecond() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    let rate = Bitrate::from_kbps(3_333);
    world.open(1, &source, |spec| (spec.play.burst, spec.play.pacing) = (Some(1), Pacing::Rate(rate)));
    world.run_to_the_end();
    let first = world.sent[&1][0].ns;
    for (count, sent) in world.sent[&1].iter().enumerate() {
        assert_eq!(sent.ns - first, count as u64 * 1_316 * 8 * 1_000_000_000 / rate.bps());
    }
    assert_eq!(world.packets(1).as_flattened()[..source.bytes.len()], source.bytes);
}

#[test]
fn at_twice_the_speed_a_title_takes_half_the_time() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.open(1, &source, |spec| spec.play.speed_permille = 2_000);
    world.open(2, &source, |_| {});
    world.run_to_the_end();
    let span = |number: u64| world.sent[&number].last().unwrap().ns - world.sent[&number][0].ns;
    assert!(span(1).abs_diff(span(2) / 2) < 2, "{} {}", span(1), span(2));
}

#[test]
fn rtp_numbers_and_times_follow_rfc_2250() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    world.open(1, &source, |spec| {
        spec.transport = Transport::Rtp { ssrc: 7, first_seq: 65_530, first_timestamp: u32::MAX };
        spec.play.burst = Some(2);
    });
    world.run_to_the_end();
    let sent = &world.sent[&1];
    for (count, sent) in sent.iter().enumerate() {
        let (header, packets) = wire::ts::datagram_packets(&sent.bytes).unwrap();
        let header = header.unwrap();
        assert_eq!((header.payload_type, header.ssrc, packets.len()), (33, 7, 7));
        assert_eq!(header.seq.0, 65_530_u16.wrapping_add(count as u16));
        assert_eq!(header.marker, count == 0, "the first timestamp continues none");
        // 90 kHz of the time at which the datagram is due.
        let expected = (count as u64 * 1_316 * 8 * 90_000 / 4_500_000) as u32;
        assert!(header.timestamp.wrapping_add(1).abs_diff(expected) <= 1, "{} {expected}", header.timestamp);
    }
}

#[test]
fn a_session_plays_from_its_start_to_its_end_and_not_before_its_time() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(exact());
    let not_before = world.start + Duration::from_secs(3);
    world.open(1, &source, |spec| {
        (spec.start, spec.end, spec.not_before) = (1_001, Some(2_051), Some(not_before));
    });
    world.run_to_the_end();
    assert_eq!(world.packets(1).as_flattened(), &source.bytes[1_001 * PACKET_LEN..2_051 * PACKET_LEN]);
    assert!(world.sent[&1][0].ns >= 3_000_000_000);
}

#[test]
fn streams_of_one_rate_are_spread_over_their_interval() {
    let source = Source::sample(&Sample::default());
    let mut world = World::new(Settings::default());
    for number in 0..400 {
        world.open(number, &source, |spec| spec.play.burst = Some(4));
    }
    world.run(Duration::from_secs(3));
    let mut by_tick = std::collections::BTreeMap::new();
    for sent in world.sent.values().flatten().filter(|sent| (1_000_000_000..2_000_000_000).contains(&sent.ns)) {
        *by_tick.entry(sent.ns / 500_000).or_insert(0) += 1;
    }
    // 400 streams of 427 datagrams a second over 2,000 ticks: 85 each, in bursts of four.
    assert_eq!(by_tick.len(), 2_000);
    let (least, most) = (by_tick.values().min().unwrap(), by_tick.values().max().unwrap());
    assert!(*least >= 85 - 17 && *most <= 85 + 17, "{least} to {most}");
    let late = world.counters().lateness;
    assert!(late.quantile(1.0) <= Duration::from_nanos(524_288 * 2));
}

#[test]
fn a_title_of_192_or_204_bytes_a_packet_is_sent_as_188() {
    let plain = Sample { pictures: 50, ..Sample::default() }.make();
    for (before, behind) in [(4, 0), (0, 16)] {
        let packets = plain.as_chunks::<PACKET_LEN>().0;
        let spaced: Vec<u8> =
            packets.iter().flat_map(|packet| [&vec![1; before][..], packet, &vec![2; behind]].concat()).collect();
        let source = Source::new(spaced, 700);
        let mut world = World::new(Settings::default());
        world.open(1, &source, |_| {});
        world.run_to_the_end();
        assert_eq!(world.packets(1).as_flattened()[..plain.len()], plain);
    }
}

#[test]
fn a_stream_that_is_faster_than_the_ticks_keeps_its_rate() {
    let source = Source::sample(&Sample { rate: Bitrate::from_kbps(100_000), pictures: 75, ..Sample::default() });
    let mut world = World::new(Settings { tick: Duration::from_millis(1), ..Settings::default() });
    world.open(1, &source, |spec| spec.play.burst = Some(1));
    world.run_to_the_end();
    let stats = &world.ended[0].2;
    assert_eq!((stats.shifts, world.packets(1).len() / 7), (0, source.bytes.len().div_ceil(1_316)));
    assert!(stats.late_max <= Duration::from_millis(1), "{stats:?}");
    let span = world.sent[&1].last().unwrap().ns - world.sent[&1][0].ns;
    assert!(span.abs_diff(3_000_000_000) < 3_000_000, "{span}");
}
