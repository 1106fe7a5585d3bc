//! RTP packets: a checked view of one, a writer for its header, and telling it from what shares its port.
//!
//! In: one datagram, or a caller's buffer of at least a datagram.
//! Out: fields and slices of the datagram; a header written in place.
//! Cost: one pass over the fixed fields on construction, no copy, no allocation.
//! Source: RFC 3550 §5 (packet), RFC 8285 (header extensions), RFC 5761 §4 and RFC 7983 §7 (one port for all).

use crate::Seq;

mod write;

pub use write::{HeaderWriter, pad};

/// Bytes of the fixed header: what a packet has without CSRCs and extensions.
pub const FIXED_HEADER_LEN: usize = 12;

/// "Defined by profile" of the one-byte form (RFC 8285 §4.2).
const ONE_BYTE_PROFILE: u16 = 0xbede;
/// The same of the two-byte form (RFC 8285 §4.3); its low four bits are the application's.
const TWO_BYTE_PROFILE: u16 = 0x1000;

/// What a datagram on a shared port is, by its first two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// RFC 8489: first byte 0 to 3.
    Stun,
    /// RFC 9147: first byte 20 to 63.
    Dtls,
    /// ChannelData (RFC 8656 §12): first byte 64 to 79.
    TurnChannel,
    /// First byte 128 to 191, and no RTCP. May be SRTP, which looks the same.
    Rtp,
    /// First byte 128 to 191, second 192 to 223. May be SRTCP.
    Rtcp,
    /// Anything else, QUIC too; or fewer than two bytes.
    Unknown,
}

/// Tells what a datagram is (RFC 7983 §7, RFC 5761 §4). Only the first two bytes are looked at.
#[inline]
pub fn classify(datagram: &[u8]) -> Kind {
    match *datagram {
        [128..=191, 192..=223, ..] => Kind::Rtcp,
        [128..=191, _, ..] => Kind::Rtp,
        [0..=3, ..] => Kind::Stun,
        [20..=63, ..] => Kind::Dtls,
        [64..=79, ..] => Kind::TurnChannel,
        _ => Kind::Unknown,
    }
}

/// What is wrong with an RTP packet. The sender's doing, so never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum RtpError {
    #[error("{got} bytes, where the header takes {needed}")]
    Truncated { needed: usize, got: usize },
    #[error("version {got}, not 2")]
    Version { got: u8 },
    #[error("padding of {said} bytes, where {got} follow the header")]
    Padding { said: u8, got: usize },
}

/// The fields of the fixed header that a forwarder decides about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtpHeader {
    /// 7 bits.
    pub payload_type: u8,
    /// Of video: the last packet of a frame. Of audio: the first after silence.
    pub marker: bool,
    /// Goes up by one with each packet of the SSRC; wraps.
    pub seq: Seq,
    /// Clock-rate units.
    pub timestamp: u32,
    /// The source; numbers and timestamps count for each on its own.
    pub ssrc: u32,
}

/// One RTP packet whose lengths were checked; no accessor fails.
#[derive(Clone, Copy, Debug)]
pub struct RtpPacket<'a> {
    fixed: &'a [u8; FIXED_HEADER_LEN],
    header_len: usize,
    extension_profile: u16,
    extension_block: &'a [u8],
    payload: &'a [u8],
}

impl<'a> RtpPacket<'a> {
    /// Reads a whole plain packet.
    ///
    /// # Errors
    /// When the header does not fit, the version is not 2, or the padding is empty or longer than what follows the header.
    #[inline]
    pub fn parse(data: &'a [u8]) -> Result<Self, RtpError> {
        let packet = RtpPacket::parse_header(data)?;
        if packet.fixed[0] & 0x20 == 0 {
            return Ok(packet);
        }
        let got = packet.payload.len();
        let said = packet.payload.last().copied().unwrap_or(0);
        match got.checked_sub(said.into()) {
            Some(len) if said > 0 => Ok(RtpPacket { payload: &packet.payload[..len], ..packet }),
            _ => Err(RtpError::Padding { said, got }),
        }
    }

    /// Reads the header of a packet that is still encrypted. SRTP leaves the header clear and encrypts the padding
    /// (RFC 3711 §3.1), so `payload` is all that follows the header.
    ///
    /// # Errors
    /// When the header does not fit or the version is not 2.
    #[inline]
    pub fn parse_header(data: &'a [u8]) -> Result<Self, RtpError> {
        let got = data.len();
        let Some(fixed) = data.first_chunk() else {
            return Err(RtpError::Truncated { needed: FIXED_HEADER_LEN, got });
        };
        if fixed[0] >> 6 != 2 {
            return Err(RtpError::Version { got: fixed[0] >> 6 });
        }
        let mut header_len = FIXED_HEADER_LEN + 4 * usize::from(fixed[0] & 0x0f);
        let mut extension_profile = 0;
        let mut extension_block: &[u8] = &[];
        if fixed[0] & 0x10 != 0 {
            let start = header_len + 4;
            let Some(&[profile_high, profile_low, words_high, words_low]) =
                data.get(header_len..).and_then(<[u8]>::first_chunk)
            else {
                return Err(RtpError::Truncated { needed: start, got });
            };
            header_len = start + 4 * usize::from(u16::from_be_bytes([words_high, words_low]));
            let Some(block) = data.get(start..header_len) else {
                return Err(RtpError::Truncated { needed: header_len, got });
            };
            extension_profile = u16::from_be_bytes([profile_high, profile_low]);
            extension_block = block;
        }
        let Some(payload) = data.get(header_len..) else {
            return Err(RtpError::Truncated { needed: header_len, got });
        };
        Ok(RtpPacket { fixed, header_len, extension_profile, extension_block, payload })
    }

    /// The fixed fields together.
    #[inline]
    pub fn header(&self) -> RtpHeader {
        RtpHeader {
            payload_type: self.payload_type(),
            marker: self.marker(),
            seq: self.seq(),
            timestamp: self.timestamp(),
            ssrc: self.ssrc(),
        }
    }

    /// See `RtpHeader::marker`.
    #[inline]
    pub fn marker(&self) -> bool {
        self.fixed[1] & 0x80 != 0
    }

    /// 7 bits.
    #[inline]
    pub fn payload_type(&self) -> u8 {
        self.fixed[1] & 0x7f
    }

    /// See `RtpHeader::seq`.
    #[inline]
    pub fn seq(&self) -> Seq {
        Seq(u16::from_be_bytes([self.fixed[2], self.fixed[3]]))
    }

    /// Clock-rate units.
    #[inline]
    pub fn timestamp(&self) -> u32 {
        let [.., a, b, c, d, _, _, _, _] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// See `RtpHeader::ssrc`.
    #[inline]
    pub fn ssrc(&self) -> u32 {
        let [.., a, b, c, d] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Bytes before the payload, CSRCs and extensions included.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    /// What follows the header, without the padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header extensions in the order of the packet. Ends early at an element that runs over the block's end.
    #[inline]
    pub fn extensions(&self) -> Extensions<'a> {
        let form = match self.extension_profile {
            ONE_BYTE_PROFILE => Form::OneByte,
            profile if profile & 0xfff0 == TWO_BYTE_PROFILE => Form::TwoByte,
            _ => return Extensions { form: Form::OneByte, rest: &[] },
        };
        Extensions { form, rest: self.extension_block }
    }

    /// The value of the first extension with this id.
    #[inline]
    pub fn extension(&self, id: u8) -> Option<&'a [u8]> {
        self.extensions().find(|&(found, _)| found == id).map(|(_, value)| value)
    }
}

/// How the elements of an extension block begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    OneByte,
    TwoByte,
}

/// Iterates over header extensions as (id, value).
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    form: Form,
    rest: &'a [u8],
}

impl<'a> Iterator for Extensions<'a> {
    type Item = (u8, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (id, len, after) = match (self.form, self.rest) {
                // A zero byte is padding. Id 0 with a length, and id 15, end the block (RFC 8285 §4.2).
                (_, [0, after @ ..]) => {
                    self.rest = after;
                    continue;
                }
                (Form::OneByte, [0x01..=0x0f | 0xf0..=0xff, ..]) => return self.end(),
                (Form::OneByte, [head, after @ ..]) => (head >> 4, usize::from(head & 0x0f) + 1, after),
                (Form::TwoByte, [id, len, after @ ..]) => (*id, usize::from(*len), after),
                _ => return self.end(),
            };
            let Some((value, rest)) = after.split_at_checked(len) else { return self.end() };
            self.rest = rest;
            return Some((id, value));
        }
    }
}

impl<'a> Extensions<'a> {
    fn end(&mut self) -> Option<(u8, &'a [u8])> {
        self.rest = &[];
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 2, one CSRC, marker, payload type 96, a one-byte extension block, 3 bytes of payload.
    const PACKET: [u8; 31] = [
        0x91, 0xe0, 0x12, 0x34, 0, 0, 0x03, 0xe8, 0xde, 0xad, 0xbe, 0xef, // fixed header
        0, 0, 0, 9, // CSRC
        0xbe, 0xde, 0, 2, // extension header: two words
        0x10, 0xaa, 0x32, 1, 2, 3, 0, 0, // id 1: aa; id 3: 1 2 3; padding
        7, 8, 9,
    ];

    #[test]
    fn fields_are_where_rfc_3550_puts_them() {
        let packet = RtpPacket::parse(&PACKET).unwrap();
        let header =
            RtpHeader { payload_type: 96, marker: true, seq: Seq(0x1234), timestamp: 1_000, ssrc: 0xdead_beef };
        assert_eq!(packet.header(), header);
        assert_eq!(packet.header_len(), 28);
        assert_eq!(packet.payload(), [7, 8, 9]);
    }

    #[test]
    fn one_byte_elements_are_found_and_padding_is_skipped() {
        let packet = RtpPacket::parse(&PACKET).unwrap();
        let all: Vec<_> = packet.extensions().collect();
        assert_eq!(all, [(1, &[0xaa][..]), (3, &[1, 2, 3])]);
        assert_eq!(packet.extension(3), Some(&[1, 2, 3][..]));
        assert_eq!(packet.extension(2), None);
    }

    fn elements(profile: [u8; 2], block: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut data = vec![0x90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, profile[0], profile[1], 0, (block.len() / 4) as u8];
        data.extend(block);
        let packet = RtpPacket::parse(&data).unwrap();
        packet.extensions().map(|(id, value)| (id, value.to_vec())).collect()
    }

    #[test]
    fn two_byte_elements_may_be_empty_and_have_any_id() {
        let found = elements([0x10, 0x05], &[0, 200, 0, 15, 2, 8, 9, 0]);
        assert_eq!(found, [(200, vec![]), (15, vec![8, 9])]);
    }

    #[test]
    fn one_byte_id_15_and_id_0_with_a_length_end_the_block() {
        assert_eq!(elements([0xbe, 0xde], &[0x10, 1, 0xf0, 2, 0x20, 3, 0, 0]), [(1, vec![1])]);
        assert_eq!(elements([0xbe, 0xde], &[0x10, 1, 0x01, 2, 0x20, 3, 0, 0]), [(1, vec![1])]);
    }

    #[test]
    fn an_element_longer_than_the_block_is_not_given_out() {
        assert_eq!(elements([0xbe, 0xde], &[0x10, 1, 0x2f, 2]), [(1, vec![1])]);
        assert_eq!(elements([0x10, 0x00], &[1, 1, 7, 9]), [(1, vec![7])]);
    }

    #[test]
    fn an_unknown_extension_profile_has_no_elements() {
        assert_eq!(elements([0xab, 0xac], &[0x10, 1, 0, 0]), []);
    }

    #[test]
    fn a_packet_cut_anywhere_in_its_header_is_refused() {
        for len in 0..28 {
            assert!(matches!(RtpPacket::parse(&PACKET[..len]), Err(RtpError::Truncated { got, .. }) if got == len));
        }
        assert!(RtpPacket::parse(&PACKET[..28]).unwrap().payload().is_empty());
    }

    #[test]
    fn padding_of_zero_or_more_than_the_payload_is_refused() {
        let mut data = PACKET;
        data[0] |= 0x20;
        for (said, payload_len) in [(1, Some(2)), (3, Some(0)), (0, None), (4, None)] {
            data[30] = said;
            let parsed = RtpPacket::parse(&data);
            match payload_len {
                Some(len) => assert_eq!(parsed.unwrap().payload().len(), len),
                None => assert_eq!(parsed.unwrap_err(), RtpError::Padding { said, got: 3 }),
            }
        }
    }

    #[test]
    fn padding_is_not_looked_at_while_it_is_encrypted() {
        let mut data = PACKET;
        data[0] |= 0x20;
        data[30] = 200;
        let packet = RtpPacket::parse_header(&data).unwrap();
        assert_eq!(packet.payload().len(), 3);
    }

    #[test]
    fn other_versions_are_refused() {
        let mut data = PACKET;
        data[0] = 0x51;
        assert_eq!(RtpPacket::parse(&data).unwrap_err(), RtpError::Version { got: 1 });
    }

    #[test]
    fn kinds_follow_rfc_7983_and_rfc_5761() {
        let cases: [(&[u8], Kind); 13] = [
            (&[], Kind::Unknown),
            (&[0], Kind::Stun),
            (&[3, 200], Kind::Stun),
            (&[4, 0], Kind::Unknown),
            (&[19, 0], Kind::Unknown),
            (&[20, 0], Kind::Dtls),
            (&[63, 0], Kind::Dtls),
            (&[64, 0], Kind::TurnChannel),
            (&[80, 0], Kind::Unknown),
            (&[128, 191], Kind::Rtp),
            (&[128, 192], Kind::Rtcp),
            (&[191, 223], Kind::Rtcp),
            (&[191, 224], Kind::Rtp),
        ];
        for (datagram, kind) in cases {
            assert_eq!(classify(datagram), kind, "{datagram:?}");
        }
        assert_eq!(classify(&[128]), Kind::Unknown);
        assert_eq!(classify(&[192, 200]), Kind::Unknown);
    }
}
