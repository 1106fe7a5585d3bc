//! Feedback that asks for something: packets again (NACK), keyframes (FIR), no more than a rate (REMB).

use super::split_ssrcs;
use crate::{Bitrate, Seq};

/// The packets that a receiver misses (RFC 4585 §6.2.1).
#[derive(Clone, Copy, Debug)]
pub struct Nack<'a> {
    /// Whose packets they are.
    pub media_ssrc: u32,
    pairs: &'a [[u8; 4]],
}

impl<'a> Nack<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (_, media_ssrc, rest) = split_ssrcs(body)?;
        Some(Nack { media_ssrc, pairs: rest.as_chunks().0 })
    }

    /// Every number asked for, at most 17 per four bytes of the packet. The sender may repeat itself.
    pub fn lost(&self) -> impl Iterator<Item = Seq> + use<'a> {
        self.pairs.iter().flat_map(|&[a, b, c, d]| {
            let first = Seq(u16::from_be_bytes([a, b]));
            let following = u16::from_be_bytes([c, d]);
            let others = (0..16).filter(move |bit| following & 1 << bit != 0).map(move |bit| first.plus(bit + 1));
            std::iter::once(first).chain(others)
        })
    }
}

/// Full intra request: a keyframe, please, from each of several streams (RFC 5104 §4.3.1).
#[derive(Clone, Copy, Debug)]
pub struct Fir<'a> {
    entries: &'a [[u8; 8]],
}

impl<'a> Fir<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (.., rest) = split_ssrcs(body)?;
        Some(Fir { entries: rest.as_chunks().0 })
    }

    /// The streams asked. A request that is repeated (by its running number) asks again.
    pub fn media_ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.entries.iter().map(|&[a, b, c, d, ..]| u32::from_be_bytes([a, b, c, d]))
    }
}

/// What tells REMB from other application layer feedback.
pub(super) const REMB_NAME: [u8; 4] = *b"REMB";

/// Reads the rate of a REMB: a number of 18 bits, and how many bits it is shifted by (draft-alvestrand-rmcat-remb-03 §2.2).
/// What a receiver takes at most (draft-alvestrand-rmcat-remb-03 §2.2).
#[derive(Clone, Copy, Debug)]
pub struct Remb<'a> {
    /// Of all that it names together.
    pub rate: Bitrate,
    ssrcs: &'a [[u8; 4]],
}

impl<'a> Remb<'a> {
    /// What it is about: all of a session from most receivers, one track from others.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.ssrcs.iter().map(|ssrc| u32::from_be_bytes(*ssrc))
    }
}

pub(super) fn parse_remb(body: &[u8]) -> Option<Remb<'_>> {
    let (.., rest) = split_ssrcs(body)?;
    let &[_, _, _, _, ssrc_count, first, second, third, ref ssrcs @ ..] = rest else { return None };
    let mantissa = u64::from(first & 3) << 16 | u64::from(second) << 8 | u64::from(third);
    let bps = u128::from(mantissa) << (first >> 2);
    let ssrcs = ssrcs.as_chunks().0.get(..usize::from(ssrc_count))?;
    Some(Remb { rate: Bitrate::from_bps(bps.min(u64::MAX.into()) as u64), ssrcs })
}

#[cfg(test)]
mod tests {
    use super::super::{Packet, packets, write_nack, write_pli, write_remb};
    use super::*;

    fn only(data: &[u8]) -> Packet<'_> {
        packets(data).unwrap().next().unwrap()
    }

    #[test]
    fn a_nack_is_a_number_and_a_bit_for_each_of_the_16_after_it() {
        let data = [0x81, 205, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xfe, 0x80, 0x05];
        let Packet::Nack(nack) = only(&data) else { panic!() };
        assert_eq!(nack.lost().map(|seq| seq.0).collect::<Vec<_>>(), [65_534, 65_535, 1, 14]);
        let mut buf = [0; 16];
        assert_eq!(write_nack(&mut buf, 1, 2, [65_534, 65_534, 65_535, 1, 14].map(Seq)), Some(16));
        assert_eq!(buf, data);
    }

    #[test]
    fn numbers_more_than_16_apart_take_another_field() {
        let mut buf = [0; 20];
        assert_eq!(write_nack(&mut buf, 1, 2, [7, 23, 24].map(Seq)), Some(20));
        assert_eq!(buf[12..], [0, 7, 0x80, 0, 0, 24, 0, 0]);
        assert_eq!(write_nack(&mut buf[..19], 1, 2, [7, 23, 24].map(Seq)), None);
    }

    #[test]
    fn keyframe_requests_are_laid_out_as_in_rfc_4585_and_rfc_5104() {
        let mut buf = [0; 12];
        assert_eq!(write_pli(&mut buf, 1, 2), Some(12));
        assert_eq!(buf, [0x81, 206, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        let data = [0x84, 206, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 9, 0, 0, 0];
        let Packet::Fir(fir) = only(&data) else { panic!() };
        assert!(fir.media_ssrcs().eq([2]));
    }

    #[test]
    fn a_remb_is_a_rate_in_the_form_of_a_floating_point_number() {
        let mut buf = [0; 28];
        for (bps, read) in [(0, 0), (262_143, 262_143), (262_145, 262_144), (2_500_000, 2_500_000), (1 << 40, 1 << 40)]
        {
            assert_eq!(write_remb(&mut buf, 1, Bitrate::from_bps(bps), &[2, 3]), Some(28));
            let Packet::Remb(remb) = only(&buf) else { panic!("{bps}") };
            assert_eq!(remb.rate, Bitrate::from_bps(read));
            assert!(remb.ssrcs().eq([2, 3]));
        }
        assert_eq!(write_remb(&mut buf[..27], 1, Bitrate::ZERO, &[2, 3]), None);
        // The largest that can be said is more than a rate holds.
        buf[17..20].copy_from_slice(&[0xff; 3]);
        assert!(matches!(only(&buf), Packet::Remb(remb) if remb.rate == Bitrate::from_bps(u64::MAX)));
    }

    #[test]
    fn a_remb_is_malformed_when_it_is_cut_and_other_application_feedback_is_not_read() {
        let mut buf = [0; 24];
        write_remb(&mut buf, 1, Bitrate::from_kbps(500), &[2]).unwrap();
        let (mut cut, mut other) = (buf, buf);
        cut[16] = 2;
        assert!(matches!(only(&cut), Packet::Malformed));
        other[12] = b'X';
        assert!(matches!(only(&other), Packet::Other));
        assert!(matches!(only(&[0x8f, 206, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, b'R', b'E', b'M', b'B']), Packet::Malformed));
    }
}
