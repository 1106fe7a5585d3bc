//! Feedback that asks for something: packets again (NACK), keyframes (FIR).

use super::split_ssrcs;
use crate::Seq;

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

#[cfg(test)]
mod tests {
    use super::super::{Packet, packets, write_nack, write_pli};
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
}
