//! Both halves against each other, through the public API.

use proptest::prelude::*;

use super::*;

const SSRC: u32 = 0x1234_5678;

/// An extended sequence number as the sealer wants it.
fn extended(roc: u64, seq: u64) -> u64 {
    ((roc + 1) << 16) + seq
}

/// Decodes hexadecimal digits.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// What the client sends, and the server that opens it.
fn client_to_server(profile: Profile) -> (Sealer, Opener) {
    let (client, server) = SessionKeys::made_up_pair(profile, 7);
    (Sealer::new(&client).unwrap(), Opener::new(&server).unwrap())
}

/// A packet with one contributing source and two words of header extensions: 28 bytes of header.
fn rtp(ssrc: u32, seq: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x91, 96];
    packet.extend(seq.to_be_bytes());
    packet.extend([0, 0, 1, 2]);
    packet.extend(ssrc.to_be_bytes());
    packet.extend([9, 9, 9, 9]);
    packet.extend([0xbe, 0xde, 0, 2, 0x22, 1, 2, 3, 0x31, 4, 5, 0]);
    packet.extend(payload);
    packet
}

const HEADER_LEN: usize = 28;

fn sealed_rtp(sealer: &Sealer, ssrc: u32, seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut packet = rtp(ssrc, seq as u16, payload);
    let len = packet.len();
    packet.resize(len + sealer.rtp_overhead(), 0);
    assert_eq!(sealer.seal_rtp(&mut packet, HEADER_LEN, len, ssrc, seq), packet.len());
    packet
}

/// A receiver report without blocks, and some more.
fn rtcp(ssrc: u32) -> Vec<u8> {
    let mut packet = vec![0x80, 201, 0, 1];
    packet.extend(ssrc.to_be_bytes());
    packet.extend([0x81, 203, 0, 1, 5, 6, 7, 8]);
    packet
}

fn sealed_rtcp(sealer: &mut Sealer, ssrc: u32) -> Vec<u8> {
    let mut packet = rtcp(ssrc);
    let len = packet.len();
    packet.resize(len + sealer.rtcp_overhead(), 0);
    assert_eq!(sealer.seal_rtcp(&mut packet, len), packet.len());
    packet
}

#[test]
fn what_one_side_seals_the_other_opens() {
    for profile in Profile::ALL {
        let (client, server) = SessionKeys::made_up_pair(profile, 7);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (mut sealer, mut opener) = (Sealer::new(from).unwrap(), Opener::new(to).unwrap());
            for len in [0, 1, 15, 16, 17, 160, 1_200] {
                let (seq, payload) = (extended(0, len as u64), vec![0xab; len]);
                let mut packet = sealed_rtp(&sealer, SSRC, seq, &payload);
                assert!(len < 15 || packet[HEADER_LEN..][..len] != payload, "the payload is encrypted");
                let plain_len = opener.open_rtp(&mut packet).unwrap();
                assert_eq!(packet[..plain_len], rtp(SSRC, seq as u16, &payload));

                let mut packet = sealed_rtcp(&mut sealer, SSRC);
                assert!(packet[8..16] != rtcp(SSRC)[8..], "the report is encrypted");
                let plain_len = opener.open_rtcp(&mut packet).unwrap();
                assert_eq!(packet[..plain_len], rtcp(SSRC));
            }
        }
    }
}

#[test]
fn a_payload_that_lies_elsewhere_is_sealed_to_the_same_bytes() {
    for profile in Profile::ALL {
        let (sealer, _) = client_to_server(profile);
        for len in [0, 1, 16, 1_200] {
            let (seq, payload) = (extended(0, 9), vec![0xab; len]);
            let mut packet = vec![0xff; HEADER_LEN + len + sealer.rtp_overhead()];
            packet[..HEADER_LEN].copy_from_slice(&rtp(SSRC, 9, &[]));
            assert_eq!(sealer.seal_rtp_from(&mut packet, HEADER_LEN, &payload, SSRC, seq), packet.len());
            assert_eq!(packet, sealed_rtp(&sealer, SSRC, seq, &payload));
        }
    }
}

#[test]
fn the_two_directions_have_different_keys() {
    for profile in Profile::ALL {
        let (client, _) = SessionKeys::made_up_pair(profile, 7);
        let (sealer, mut opener) = (Sealer::new(&client).unwrap(), Opener::new(&client).unwrap());
        let mut packet = sealed_rtp(&sealer, SSRC, extended(0, 1), b"mine");
        assert_eq!(opener.open_rtp(&mut packet), Err(SrtpError::NotAuthentic));
    }
}

#[test]
fn a_changed_byte_is_refused_wherever_it_is() {
    for profile in Profile::ALL {
        let (mut sealer, mut opener) = client_to_server(profile);
        let packet = sealed_rtp(&sealer, SSRC, extended(0, 1), b"payload");
        for i in 0..packet.len() {
            let mut changed = packet.clone();
            changed[i] ^= 0x08;
            assert!(opener.open_rtp(&mut changed).is_err(), "byte {i}");
        }
        assert!(opener.open_rtp(&mut packet.clone()).is_ok(), "nothing was learned from what was refused");

        let packet = sealed_rtcp(&mut sealer, SSRC);
        for i in 0..packet.len() {
            let mut changed = packet.clone();
            changed[i] ^= 0x08;
            assert!(opener.open_rtcp(&mut changed).is_err(), "byte {i}");
        }
        assert!(opener.open_rtcp(&mut packet.clone()).is_ok());
    }
}

#[test]
fn a_packet_opens_once() {
    for profile in Profile::ALL {
        let (mut sealer, mut opener) = client_to_server(profile);
        for seq in [100, 102, 101] {
            let packet = sealed_rtp(&sealer, SSRC, extended(0, seq), b"payload");
            assert!(opener.open_rtp(&mut packet.clone()).is_ok());
            assert_eq!(opener.open_rtp(&mut packet.clone()), Err(SrtpError::Replayed));
        }
        let packet = sealed_rtcp(&mut sealer, SSRC);
        assert!(opener.open_rtcp(&mut packet.clone()).is_ok());
        assert_eq!(opener.open_rtcp(&mut packet.clone()), Err(SrtpError::Replayed));
    }
}

#[test]
fn the_rollover_counter_follows_through_wraps_loss_and_reordering() {
    for profile in Profile::ALL {
        let (sealer, mut opener) = client_to_server(profile);
        let mut opens = |roc, seq| {
            let mut packet = sealed_rtp(&sealer, SSRC, extended(roc, seq), b"payload");
            assert!(opener.open_rtp(&mut packet).is_ok(), "{profile:?} roc {roc} seq {seq}");
        };
        opens(0, 65_530);
        opens(1, 2);
        opens(0, 65_535);
        opens(1, 0);
        opens(0, 65_531);
        opens(1, 30_000);
        opens(1, 60_000);
        opens(2, 20_000);
    }
}

#[test]
fn a_forged_packet_does_not_move_the_rollover_counter() {
    let (sealer, mut opener) = client_to_server(Profile::AeadAes128Gcm);
    opener.open_rtp(&mut sealed_rtp(&sealer, SSRC, extended(0, 60_000), b"a")).unwrap();
    let mut forged = rtp(SSRC, 10, &[0; 40]);
    assert_eq!(opener.open_rtp(&mut forged), Err(SrtpError::NotAuthentic));
    opener.open_rtp(&mut sealed_rtp(&sealer, SSRC, extended(0, 60_001), b"b")).unwrap();
}

#[test]
fn a_newcomer_to_a_full_table_takes_the_place_of_who_was_silent_for_longest() {
    let (mut sealer, mut opener) = client_to_server(Profile::AeadAes128Gcm);
    let mut open = |ssrc, seq| opener.open_rtp(&mut sealed_rtp(&sealer, ssrc, extended(0, seq), b"a")).map(drop);
    for ssrc in 0..SSRCS_MAX as u32 {
        assert_eq!(open(ssrc, 9), Ok(()));
    }
    assert_eq!(open(0, 10), Ok(()));
    for newcomer in [1_000, 1_001] {
        assert_eq!(open(newcomer, 9), Ok(()));
        assert_eq!(open(newcomer, 9), Err(SrtpError::Replayed));
    }
    for known in (3..SSRCS_MAX as u32).chain([0]) {
        assert_eq!(open(known, 9), Err(SrtpError::Replayed), "{known} is still known");
    }
    for ssrc in 0..2 * SSRCS_MAX as u32 {
        assert!(opener.open_rtcp(&mut sealed_rtcp(&mut sealer, ssrc)).is_ok(), "{ssrc}");
    }
}

#[test]
fn a_gap_of_more_than_half_a_cycle_is_bridged_after_some_packets() {
    for profile in Profile::ALL {
        for gap in [32_766, 40_000, 65_000, 65_537, 70_000, 98_000] {
            let (sealer, mut opener) = client_to_server(profile);
            let first = extended(0, 50_000);
            opener.open_rtp(&mut sealed_rtp(&sealer, SSRC, first, b"a")).unwrap();
            let open = |n: &u64| opener.open_rtp(&mut sealed_rtp(&sealer, SSRC, first + gap + n, b"b")).is_ok();
            let opened: Vec<u64> = (0..40).filter(open).collect();
            let expected = if gap < 32_768 { 0 } else { 16 };
            assert_eq!(opened, (expected..40).collect::<Vec<_>>(), "{profile:?}, a gap of {gap}");
        }
    }
}

#[test]
fn what_was_here_does_not_come_in_again_however_often_it_is_tried() {
    let (sealer, mut opener) = client_to_server(Profile::AeadAes128Gcm);
    let sealed: Vec<_> = (0..3_000).map(|n| sealed_rtp(&sealer, SSRC, extended(0, n), b"a")).collect();
    for packet in &sealed {
        opener.open_rtp(&mut packet.clone()).unwrap();
    }
    for packet in &sealed {
        assert!(opener.open_rtp(&mut packet.clone()).is_err());
    }
}

#[test]
fn rtcp_stops_when_its_indexes_are_used_up() {
    let (mut sealer, mut opener) = client_to_server(Profile::AeadAes128Gcm);
    sealer.use_up_rtcp_indexes(1);
    assert!(opener.open_rtcp(&mut sealed_rtcp(&mut sealer, SSRC)).is_ok());
    let mut packet = rtcp(SSRC);
    packet.resize(100, 0);
    assert_eq!(sealer.seal_rtcp(&mut packet, 16), 0);
}

#[test]
fn keying_material_has_the_length_of_its_profile() {
    for profile in Profile::ALL {
        assert!(SessionKeys::new(profile, &vec![1; profile.material_len()], true).is_ok());
        let wrong = KeyError::Length { profile, got: 10, wanted: profile.material_len() };
        assert_eq!(SessionKeys::new(profile, &[1; 10], true).err(), Some(wrong));
    }
}

#[test]
fn short_packets_and_other_versions_are_malformed() {
    let (_, mut opener) = client_to_server(Profile::Aes128CmSha1_80);
    assert_eq!(opener.open_rtp(&mut [0x80; 11]), Err(SrtpError::Malformed));
    assert_eq!(opener.open_rtp(&mut [0x40; 40]), Err(SrtpError::Malformed));
    assert_eq!(opener.open_rtcp(&mut []), Err(SrtpError::Malformed));
    assert_eq!(opener.open_rtcp(&mut [0; 40]), Err(SrtpError::Malformed));
}

fn profiles() -> impl Strategy<Value = Profile> {
    prop::sample::select(Profile::ALL.to_vec())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(profile in profiles(), mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_, mut opener) = client_to_server(profile);
        prop_assert!(opener.open_rtp(&mut bytes.clone()).is_err());
        prop_assert!(opener.open_rtcp(&mut bytes.clone()).is_err());
        if let Some(first) = bytes.first_mut() {
            *first = 0x80 | *first & 0x3f;
        }
        prop_assert!(opener.open_rtp(&mut bytes.clone()).is_err());
        prop_assert!(opener.open_rtcp(&mut bytes).is_err());
    }

    #[test]
    fn a_valid_packet_that_was_cut_stretched_or_changed_is_refused(
        profile in profiles(),
        payload in prop::collection::vec(any::<u8>(), 0..100),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 0..4),
        len_change in -40_isize..40,
    ) {
        let (mut sealer, mut opener) = client_to_server(profile);
        for is_rtcp in [false, true] {
            let valid = match is_rtcp {
                true => sealed_rtcp(&mut sealer, SSRC),
                false => sealed_rtp(&sealer, SSRC, extended(0, 40_000), &payload),
            };
            let mut packet = valid.clone();
            for (at, change) in &changes {
                let at = at.index(packet.len());
                packet[at] ^= change;
            }
            packet.resize(packet.len().saturating_add_signed(len_change), 0xa5);
            let same = packet == valid;
            let opened = if is_rtcp { opener.open_rtcp(&mut packet) } else { opener.open_rtp(&mut packet) };
            prop_assert_eq!(opened.is_ok(), same, "{:?}", opened);
        }
    }
}
