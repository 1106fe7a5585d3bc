//! Replays the fuzz corpus of titles, and plays titles of any bytes.

#[path = "../../../fuzz/entry/pump.rs"]
mod entry;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use proptest::prelude::*;
use pump::sample::Sample;
use wire::Bitrate;
use wire::ts::{PACKET_LEN, SYNC_BYTE};

#[test]
fn pump_corpus_holds() {
    replay::replay("../../fuzz/corpus/pump", 12, |data| {
        entry::pump(data);
        entry::monitor(data);
    });
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
