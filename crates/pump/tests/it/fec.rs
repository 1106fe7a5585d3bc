//! Parity of RTP sessions: what is lost on the way is repaired byte for byte.

use std::time::Duration;

use crate::common::{Source, World};
use crate::repair::{FEC_PAYLOAD_TYPE, FecHeader, Repair};
use proptest::collection::vec;
use proptest::prelude::*;
use pump::fec::Fec;
use pump::sample::Sample;
use pump::spec::{Settings, Transport};
use wire::Outbox;

const PORT: u64 = 5_000;

/// A session of two seconds with parity, on ports 5,000, 5,002 and 5,004.
fn played(fec: Fec, outbox: usize) -> World {
    let source = Source::sample(&Sample { pictures: 50, ..Sample::default() });
    let mut world = World::new(Settings { tick: Duration::from_nanos(1), ..Settings::default() });
    world.out = Outbox::new(outbox);
    world.open(PORT, &source, |spec| {
        spec.transport = Transport::Rtp { ssrc: 7, first_seq: 65_500, first_timestamp: 9 };
        (spec.play.fec, spec.play.burst) = (Some(fec), Some(1));
    });
    world.run_to_the_end();
    world
}

/// What arrives but for the lost: the datagrams that were repaired, by their place.
fn repaired(world: &World, is_lost: impl Fn(usize) -> bool) -> Vec<(usize, Vec<u8>)> {
    let media =
        world.sent[&PORT].iter().enumerate().filter(|(index, _)| !is_lost(*index)).map(|(_, sent)| (sent, false));
    let parity =
        [PORT + 2, PORT + 4].into_iter().filter_map(|port| world.sent.get(&port)).flatten().map(|sent| (sent, true));
    let mut arrived: Vec<_> = media.chain(parity).collect();
    arrived.sort_by_key(|(sent, is_parity)| (sent.ns, *is_parity));
    let mut repair = Repair::default();
    let mut found = Vec::new();
    for (sent, is_parity) in arrived {
        if is_parity {
            repair.handle_parity(&sent.bytes)
        } else {
            repair.handle_datagram(&sent.bytes)
        }
        while let Some(datagram) = repair.poll_repaired() {
            let seq = u16::from_be_bytes([datagram[2], datagram[3]]);
            found.push((usize::from(seq.wrapping_sub(65_500)), datagram));
        }
    }
    found.sort();
    found
}

fn assert_repairs(world: &World, lost: &[usize]) {
    let expected: Vec<_> = lost.iter().map(|index| (*index, world.sent[&PORT][*index].bytes.clone())).collect();
    assert!(repaired(world, |index| lost.contains(&index)) == expected, "{lost:?}");
}

/// Numbers that look random, from a seed.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

#[test]
fn a_burst_of_losses_as_long_as_a_row_is_repaired_wherever_it_begins() {
    for (columns, rows) in [(1, 4), (10, 10), (20, 5), (5, 20)] {
        let world = played(Fec::new(columns, rows, false).unwrap(), 1 << 20);
        assert!(!world.sent.contains_key(&(PORT + 4)), "one dimension");
        for first in (0..400).step_by(39) {
            let lost: Vec<usize> = (first..first + usize::from(columns)).collect();
            assert_repairs(&world, &lost);
        }
    }
}

#[test]
fn single_losses_at_random_are_repaired() {
    let world = played(Fec::new(10, 10, true).unwrap(), 1 << 20);
    for seed in 0..8 {
        let mut random = random(seed);
        // One in each row, so several in a column.
        let lost: Vec<usize> = (0..60).map(|row| 10 * row + random(10)).collect();
        assert_repairs(&world, &lost);
    }
}

#[test]
fn rows_and_columns_together_repair_what_neither_does_alone() {
    let world = played(Fec::new(10, 10, true).unwrap(), 1 << 20);
    assert_repairs(&world, &[102, 103, 112]);
    // Four corners of a rectangle: each row and column lacks two.
    assert!(repaired(&world, |index| [102, 103, 112, 113].contains(&index)).is_empty());
}

#[test]
fn columns_are_spread_over_the_matrix_that_follows_and_rows_come_at_once() {
    let world = played(Fec::new(10, 5, true).unwrap(), 1 << 20);
    let media = &world.sent[&PORT];
    let before = |ns: u64| media.partition_point(|sent| sent.ns <= ns);
    for (number, sent) in world.sent[&(PORT + 2)].iter().enumerate() {
        let (header, _) = FecHeader::parse(&sent.bytes).unwrap();
        assert_eq!((header.offset, header.count, header.is_row), (10, 5, false));
        assert_eq!(before(sent.ns), (50 + 5 * number + 1).min(media.len()));
        let first = number / 10 * 50 + number % 10;
        assert_eq!(header.base.0, 65_500_u16.wrapping_add(first as u16));
    }
    for (number, sent) in world.sent[&(PORT + 4)].iter().enumerate() {
        let (header, _) = FecHeader::parse(&sent.bytes).unwrap();
        assert_eq!((header.offset, header.count, header.is_row), (1, 10, true));
        assert_eq!(before(sent.ns), 10 * (number + 1));
        assert_eq!((sent.bytes[1] & 0x7f, sent.bytes.len()), (FEC_PAYLOAD_TYPE, 12 + 16 + 1_316));
    }
    let parity = world.sent[&(PORT + 2)].len() + world.sent[&(PORT + 4)].len();
    let stats = &world.ended[0].2;
    assert_eq!((stats.fec_datagrams, stats.datagrams), (parity as u64, media.len() as u64));
}

#[test]
fn behind_the_last_datagram_columns_of_complete_matrices_go_on_at_the_same_pace() {
    let source = Source::sample(&Sample { pictures: 50, ..Sample::default() });
    // Ends in the middle of a matrix, right behind one, and one datagram later; at an end where the session stays, too.
    for (count, holds_at_end) in [(130, false), (150, false), (151, false), (150, true)] {
        let mut world = World::new(Settings { tick: Duration::from_nanos(1), ..Settings::default() });
        world.open(PORT, &source, |spec| {
            spec.transport = Transport::Rtp { ssrc: 7, first_seq: 65_500, first_timestamp: 9 };
            (spec.play.fec, spec.end) = (Fec::new(10, 5, false), Some(7 * count));
            spec.play.holds_at_end = holds_at_end;
        });
        world.run_to_the_end();

        let media = &world.sent[&PORT];
        assert_eq!(media.len() as u64, count);
        let columns = world.sent.get(&(PORT + 2)).map_or(&[][..], |sent| sent);
        assert_eq!(columns.len() as u64, count / 50 * 10, "of each complete matrix, {count} datagrams");
        let last = media[media.len() - 1].ns;
        let span = last - media[media.len() - 51].ns;
        let behind = columns.iter().filter(|sent| sent.ns > last);
        let times: Vec<u64> = std::iter::once(last).chain(behind.map(|sent| sent.ns)).collect();
        for gap in times.windows(2).map(|pair| pair[1] - pair[0]) {
            assert!((span / 12..span / 8).contains(&gap), "{gap} ns, and a matrix takes {span}");
        }
        assert_eq!(world.ended.len(), usize::from(!holds_at_end));
        let first = count as usize / 50 * 50 - 50;
        assert_repairs(&world, &(first + 7..first + 17).collect::<Vec<_>>());
    }
}

#[test]
fn an_outbox_of_one_datagram_changes_nothing_but_when_parity_leaves() {
    let fec = Fec::new(10, 5, true).unwrap();
    let (wide, narrow) = (played(fec, 1 << 20), played(fec, 1_500));
    for port in [PORT, PORT + 2, PORT + 4] {
        // Of parity the timestamp alone says when it left.
        let bytes = |world: &World| -> Vec<Vec<u8>> {
            world.sent[&port].iter().map(|sent| [&sent.bytes[..4], &sent.bytes[8..]].concat()).collect()
        };
        let (wide, narrow) = (bytes(&wide), bytes(&narrow));
        assert!(wide.len().abs_diff(narrow.len()) <= 1 && wide.iter().zip(&narrow).all(|(one, other)| one == other));
    }
}

#[test]
fn datagrams_without_rtp_have_no_parity() {
    let source = Source::sample(&Sample { pictures: 10, ..Sample::default() });
    let mut world = World::new(Settings::default());
    world.open(PORT, &source, |spec| spec.play.fec = Fec::new(10, 5, true));
    world.run_to_the_end();
    assert_eq!(world.sent.len(), 1);
}

proptest! {
    /// Whatever arrives, forged as well: nothing that is longer than what was sent comes of it.
    #[test]
    fn datagrams_of_any_bytes_do_no_harm(
        datagrams in vec((any::<bool>(), vec(any::<u8>(), 0..80)), 0..60),
        headers in vec((0_u16..40, 0_u16..60, any::<bool>(), 0_u8..30, 0_u8..30, 0_usize..40), 0..60),
    ) {
        let mut repair = Repair::default();
        for (is_parity, bytes) in &datagrams {
            if *is_parity { repair.handle_parity(bytes) } else { repair.handle_datagram(bytes) }
        }
        for (base, length_recovery, is_row, offset, count, len) in headers {
            let [[base0, base1], [length0, length1]] = [base, length_recovery].map(u16::to_be_bytes);
            let kind = u8::from(is_row) << 6;
            let header = [base0, base1, length0, length1, 0x80, 0, 0, 0, 0, 0, 0, 0, kind, offset, count, 0];
            let rtp = |payload_type, seq: u16| [&[0x80, payload_type][..], &seq.to_be_bytes(), &[0; 8]].concat();
            repair.handle_parity(&[rtp(FEC_PAYLOAD_TYPE, 0), header.to_vec(), vec![7; len]].concat());
            repair.handle_datagram(&[rtp(33, base + 1), vec![3; len]].concat());
        }
        while let Some(datagram) = repair.poll_repaired() {
            prop_assert!((12..=12 + 80).contains(&datagram.len()));
        }
    }
}
