//! RTCP: a checked compound, views of the packets in it, and writers for them.
//!
//! In: one plain (decrypted) datagram, or a caller's buffer.
//! Out: the packets one by one, borrowed; or the bytes of one packet.
//! Cost: headers are read twice, once to check the whole compound; no copy, no allocation.
//! Source: RFC 3550 §6, RFC 4585 §6 (feedback), RFC 5104 §4.3.1 (FIR), RFC 5506 (reduced size: any packet may come
//! first), draft-holmer-rmcat-transport-wide-cc-extensions-01, draft-alvestrand-rmcat-remb-03.

mod feedback;
mod report;
mod transport;
mod write;

pub use feedback::{Fir, Nack, Remb};
use feedback::{REMB_NAME, parse_remb};
pub use report::{Bye, ReceiverReport, ReportBlock, SenderInfo, SenderReport};
pub use transport::{Arrivals, STATUS_COUNT_MAX, TransportFeedback, write_transport_feedback};
pub use write::{
    write_bye, write_nack, write_pli, write_receiver_report, write_remb, write_sdes_cname, write_sender_report,
};

const HEADER_LEN: usize = 4;

const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const SDES: u8 = 202;
const BYE: u8 = 203;
/// Transport layer feedback (RFC 4585 §6.2).
const RTPFB: u8 = 205;
/// Payload-specific feedback (RFC 4585 §6.3).
const PSFB: u8 = 206;

const FORMAT_NACK: u8 = 1;
const FORMAT_TRANSPORT: u8 = 15;
const FORMAT_PLI: u8 = 1;
const FORMAT_FIR: u8 = 4;
/// Application layer feedback (RFC 4585 §6.4), of which only REMB is known.
const FORMAT_APPLICATION: u8 = 15;

/// What is wrong with a compound. The sender's doing, so never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum RtcpError {
    #[error("{got} bytes left, shorter than a packet's 4-byte header")]
    Truncated { got: usize },
    #[error("version {got}, not 2")]
    Version { got: u8 },
    #[error("length field says {said} bytes, compound has {got} left")]
    Length { said: usize, got: usize },
    #[error("padding of {said} bytes, where {got} follow the header")]
    Padding { said: u8, got: usize },
}

/// One packet of a compound.
#[derive(Clone, Copy, Debug)]
pub enum Packet<'a> {
    /// RFC 3550 §6.4.1.
    SenderReport(SenderReport<'a>),
    /// RFC 3550 §6.4.2.
    ReceiverReport(ReceiverReport<'a>),
    /// Sources leave (RFC 3550 §6.6).
    Bye(Bye<'a>),
    /// Packets are wanted again (RFC 4585 §6.2.1).
    Nack(Nack<'a>),
    /// A keyframe is wanted, as pictures were lost (RFC 4585 §6.3.1).
    Pli {
        /// Who is asked.
        media_ssrc: u32,
    },
    /// A keyframe is wanted, whatever was lost (RFC 5104 §4.3.1).
    Fir(Fir<'a>),
    /// When each packet arrived (draft-holmer-rmcat-transport-wide-cc-extensions-01).
    TransportFeedback(TransportFeedback<'a>),
    /// What the receiver takes at most of all that it names (draft-alvestrand-rmcat-remb-03 §2).
    Remb(Remb<'a>),
    /// A type that nobody here reads, such as source descriptions.
    Other,
    /// A known type whose body does not hold what the type promises.
    Malformed,
}

/// Checks the versions, lengths and padding of a whole compound and returns its packets.
///
/// # Errors
/// When the packets do not fill the datagram exactly. A body that its type cannot be read from is no error, so that
/// the packets around it still count: it comes out as `Packet::Malformed`.
pub fn packets(compound: &[u8]) -> Result<Packets<'_>, RtcpError> {
    let mut rest = compound;
    loop {
        rest = RawPacket::split(rest)?.1;
        if rest.is_empty() {
            return Ok(Packets { rest: compound });
        }
    }
}

/// The packets of a checked compound, in order.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        // An error is the end here: an empty rest, as `packets` saw to the others.
        let (raw, rest) = RawPacket::split(self.rest).ok()?;
        self.rest = rest;
        Some(raw.read())
    }
}

/// One packet of which only the header was read.
#[derive(Clone, Copy, Debug)]
struct RawPacket<'a> {
    packet_type: u8,
    /// Report count, source count or feedback message type; 5 bits.
    count: u8,
    /// What follows the header, without padding.
    body: &'a [u8],
}

impl<'a> RawPacket<'a> {
    /// Splits the first packet off.
    fn split(data: &'a [u8]) -> Result<(Self, &'a [u8]), RtcpError> {
        let Some(&[first, packet_type, high, low]) = data.first_chunk() else {
            return Err(RtcpError::Truncated { got: data.len() });
        };
        if first >> 6 != 2 {
            return Err(RtcpError::Version { got: first >> 6 });
        }
        let said = HEADER_LEN + 4 * usize::from(u16::from_be_bytes([high, low]));
        let Some((packet, rest)) = data.split_at_checked(said) else {
            return Err(RtcpError::Length { said, got: data.len() });
        };
        let mut body = &packet[HEADER_LEN..];
        if first & 0x20 != 0 {
            let said = body.last().copied().unwrap_or(0);
            body = match body.len().checked_sub(said.into()) {
                Some(len) if said > 0 => &body[..len],
                _ => return Err(RtcpError::Padding { said, got: body.len() }),
            };
        }
        Ok((RawPacket { packet_type, count: first & 0x1f, body }, rest))
    }

    fn read(self) -> Packet<'a> {
        let RawPacket { packet_type, count, body } = self;
        let packet = match (packet_type, count) {
            (SENDER_REPORT, _) => SenderReport::parse(count, body).map(Packet::SenderReport),
            (RECEIVER_REPORT, _) => ReceiverReport::parse(count, body).map(Packet::ReceiverReport),
            (BYE, _) => Bye::parse(count, body).map(Packet::Bye),
            (RTPFB, FORMAT_NACK) => Nack::parse(body).map(Packet::Nack),
            (RTPFB, FORMAT_TRANSPORT) => TransportFeedback::parse(body).map(Packet::TransportFeedback),
            (PSFB, FORMAT_PLI) => split_ssrcs(body).map(|(_, media_ssrc, _)| Packet::Pli { media_ssrc }),
            (PSFB, FORMAT_FIR) => Fir::parse(body).map(Packet::Fir),
            (PSFB, FORMAT_APPLICATION) if body.get(8..12) == Some(&REMB_NAME) => parse_remb(body).map(Packet::Remb),
            _ => Some(Packet::Other),
        };
        packet.unwrap_or(Packet::Malformed)
    }
}

/// Splits a big-endian 32-bit number off the front.
fn split_u32(data: &[u8]) -> Option<(u32, &[u8])> {
    let (bytes, rest) = data.split_first_chunk()?;
    Some((u32::from_be_bytes(*bytes), rest))
}

/// Splits the sender's and the media's SSRC off a feedback packet's body (RFC 4585 §6.1).
fn split_ssrcs(body: &[u8]) -> Option<(u32, u32, &[u8])> {
    let (sender_ssrc, rest) = split_u32(body)?;
    let (media_ssrc, rest) = split_u32(rest)?;
    Some((sender_ssrc, media_ssrc, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver report without blocks, then a PLI.
    const COMPOUND: [u8; 20] = [0x80, 201, 0, 1, 0, 0, 0, 1, 0x81, 206, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];

    #[test]
    fn packets_come_in_the_order_of_the_compound() {
        let all: Vec<_> = packets(&COMPOUND).unwrap().collect();
        let [Packet::ReceiverReport(report), Packet::Pli { media_ssrc: 2 }] = all[..] else { panic!("{all:?}") };
        assert_eq!((report.ssrc, report.blocks().count()), (1, 0));
    }

    #[test]
    fn a_compound_that_ends_inside_a_packet_is_refused_whole() {
        for len in (0..COMPOUND.len()).filter(|len| *len != 8) {
            assert!(packets(&COMPOUND[..len]).is_err(), "{len}");
        }
        assert_eq!(packets(&COMPOUND[..18]).unwrap_err(), RtcpError::Length { said: 12, got: 10 });
        assert_eq!(packets(&[]).unwrap_err(), RtcpError::Truncated { got: 0 });
    }

    #[test]
    fn other_versions_are_refused() {
        let mut data = COMPOUND;
        data[8] = 0x41;
        assert_eq!(packets(&data).unwrap_err(), RtcpError::Version { got: 1 });
    }

    #[test]
    fn padding_is_cut_off_and_has_to_be_within_the_body() {
        let mut data = [0xa0, 201, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4];
        let Some(Packet::ReceiverReport(report)) = packets(&data).unwrap().next() else { panic!() };
        assert_eq!(report.ssrc, 1);
        for said in [0, 9] {
            data[11] = said;
            assert_eq!(packets(&data).unwrap_err(), RtcpError::Padding { said, got: 8 });
        }
    }

    #[test]
    fn a_known_type_with_a_short_body_is_malformed_and_its_neighbours_are_read() {
        let mut data = vec![0x81, 200, 0, 1, 0, 0, 0, 1];
        data.extend(COMPOUND);
        data.extend([0x80, 210, 0, 0]);
        let all: Vec<_> = packets(&data).unwrap().collect();
        assert!(matches!(all[..], [Packet::Malformed, Packet::ReceiverReport(_), Packet::Pli { .. }, Packet::Other]));
    }
}
