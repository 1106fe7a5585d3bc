//! Replays the fuzz corpora of titles, of clocks and of live inputs, plays titles of any bytes, and follows any references.

#[path = "../../../../fuzz/entry/clock.rs"]
mod clock;
#[path = "../../../../fuzz/entry/pump.rs"]
mod entry;
#[path = "../../../../fuzz/entry/live.rs"]
mod live;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;
use pump::sample::Sample;
use wire::Bitrate;
use wire::ts::{PACKET_LEN, Pcr, SYNC_BYTE};

#[test]
fn pump_corpus_holds() {
    replay::replay("../../fuzz/corpus/pump", 12, |data| {
        entry::pump(data);
        entry::monitor(data);
    });
}

#[test]
fn clock_corpus_holds() {
    replay::replay("../../fuzz/corpus/clock", 200, clock::clock);
}

#[test]
fn live_corpus_holds() {
    replay::replay("../../fuzz/corpus/live", 4, live::live);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_references_are_followed(
        rate in any::<[u8; 4]>(),
        first in 0..Pcr::MODULUS,
        steps in proptest::collection::vec((1..2_000_u32, -3..30_i64, 0..40_000_i64, 0..30_u8), 1..60),
    ) {
        // Mostly they go on by some milliseconds, sometimes by seconds, or back.
        let (mut data, mut pcr) = (rate.to_vec(), Pcr::from_ticks(first));
        for (packets, seconds, rest, kind) in steps {
            pcr = pcr.plus(if kind < 3 { seconds * Pcr::HZ as i64 + rest } else { rest * 20 });
            data.extend(&packets.to_le_bytes()[..3]);
            data.extend(&pcr.ticks().to_le_bytes()[..6]);
            data.push(u8::from(kind == 7));
        }
        clock::clock(&data);
    }

    #[test]
    fn any_bytes_are_references(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        clock::clock(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_packets_are_played(how in any::<[u8; 6]>(), packets in proptest::collection::vec(any::<[u8; 12]>(), 2..80), few in any::<bool>()) {
        let mut data = how.to_vec();
        for head in packets {
            let mut packet = [0; PACKET_LEN];
            packet[..12].copy_from_slice(&head);
            packet[0] = SYNC_BYTE;
            if few {
                // One PID, mostly with a reference.
                (packet[1], packet[2], packet[4], packet[5]) = (packet[1] & 0x40 | 1, 0, 7, packet[5] | 0x10);
            }
            data.extend(packet);
        }
        entry::pump(&data);
        entry::monitor(&data[6..]);
    }

    #[test]
    fn damaged_titles_are_played(how in any::<[u8; 6]>(), damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..40)) {
        let mut title = Sample { rate: Bitrate::from_kbps(450), pictures: 8, group: 3, ..Sample::default() }.make();
        let len = title.len();
        damage.into_iter().for_each(|(at, byte)| title[usize::from(at) % len] = byte);
        entry::pump(&[&how[..], &title].concat());
    }
}
