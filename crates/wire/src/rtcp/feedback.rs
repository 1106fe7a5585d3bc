//! Feedback that asks for something: packets again (NACK), a keyframe (PLI, FIR).

use super::split_ssrcs;
use crate::Seq;

/// The packets that a receiver misses (RFC 4585 §6.2.1).
#[derive(Clone, Copy, Debug)]
pub struct Nack<'a> {
    /// Who misses them.
    pub sender_ssrc: u32,
    /// Whose packets they are.
    pub media_ssrc: u32,
    pairs: &'a [[u8; 4]],
}

impl<'a> Nack<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (sender_ssrc, media_ssrc, rest) = split_ssrcs(body)?;
        Some(Nack { sender_ssrc, media_ssrc, pairs: rest.as_chunks().0 })
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

/// Picture loss indication: a keyframe, please (RFC 4585 §6.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pli {
    /// Who asks.
    pub sender_ssrc: u32,
    /// Who is asked.
    pub media_ssrc: u32,
}

impl Pli {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let (sender_ssrc, media_ssrc, _) = split_ssrcs(body)?;
        Some(Pli { sender_ssrc, media_ssrc })
    }
}

/// Full intra request: a keyframe, please, from each of several streams (RFC 5104 §4.3.1).
#[derive(Clone, Copy, Debug)]
pub struct Fir<'a> {
    /// Who asks. Whom it asks stands in each entry.
    pub sender_ssrc: u32,
    entries: &'a [[u8; 8]],
}

impl<'a> Fir<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (sender_ssrc, _, rest) = split_ssrcs(body)?;
        Some(Fir { sender_ssrc, entries: rest.as_chunks().0 })
    }

    /// The streams asked, each with the request's running number: an equal one is a repetition.
    pub fn requests(&self) -> impl Iterator<Item = (u32, u8)> + use<'a> {
        self.entries.iter().map(|&[a, b, c, d, number, ..]| (u32::from_be_bytes([a, b, c, d]), number))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Packet, packets, write_fir, write_nack, write_pli};
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
        let mut buf = [0; 20];
        assert_eq!(write_pli(&mut buf, 1, 2), Some(12));
        assert_eq!(buf[..12], [0x81, 206, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(write_fir(&mut buf, 1, 2, 9), Some(20));
        assert_eq!(buf, [0x84, 206, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 9, 0, 0, 0]);
    }
}
