//! Packets in datagrams: plain, or behind an RTP header (RFC 2250 §2).

use super::{PACKET_LEN, SYNC_BYTE, TsError};
use crate::Seq;
use crate::rtp::{FIXED_HEADER_LEN, HeaderWriter, RtpHeader, RtpPacket};

/// The static payload type MP2T (RFC 3551 §6).
pub const RTP_PAYLOAD_TYPE: u8 = 33;

/// Ticks of an RTP timestamp per second.
pub const RTP_CLOCK_HZ: u64 = 90_000;

/// Writes the RTP header of a datagram of whole packets and returns its length; `None` when `buf` has no room.
///
/// `timestamp` is the time at which the first byte is due (RFC 2250 §2), in 90 kHz. `discontinuity` sets the marker:
/// the timestamp does not continue that of the datagram before.
#[inline]
pub fn write_rtp_header(buf: &mut [u8], seq: Seq, timestamp: u32, ssrc: u32, discontinuity: bool) -> Option<usize> {
    let header = RtpHeader { payload_type: RTP_PAYLOAD_TYPE, marker: discontinuity, seq, timestamp, ssrc };
    HeaderWriter::new(buf, &header).map(HeaderWriter::finish)
}

/// The packets of a datagram, with the RTP header where it has one: a sync byte is no RTP version.
///
/// # Errors
/// When it begins with neither, or what it carries are no whole packets.
#[inline]
pub fn datagram_packets(datagram: &[u8]) -> Result<(Option<RtpHeader>, &[[u8; PACKET_LEN]]), TsError> {
    let (header, payload) = match datagram.first() {
        Some(&SYNC_BYTE) => (None, datagram),
        Some(first) if datagram.len() >= FIXED_HEADER_LEN => {
            let packet = RtpPacket::parse(datagram).map_err(|_| TsError::Sync { first: *first })?;
            (Some(packet.header()), packet.payload())
        }
        _ => return Err(TsError::Truncated { got: datagram.len() }),
    };
    let (packets, rest) = payload.as_chunks();
    match rest {
        [] => Ok((header, packets)),
        _ => Err(TsError::PartialPacket { got: payload.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DATAGRAM_LEN, DATAGRAM_PACKETS};
    use super::*;

    #[test]
    fn a_datagram_of_seven_packets_is_read_with_and_without_rtp() {
        let mut datagram = [SYNC_BYTE; 12 + DATAGRAM_LEN];
        assert_eq!(write_rtp_header(&mut datagram, Seq(9), 90_000, 7, true), Some(12));
        let (header, packets) = datagram_packets(&datagram).unwrap();
        let expected = RtpHeader { payload_type: 33, marker: true, seq: Seq(9), timestamp: 90_000, ssrc: 7 };
        assert_eq!((header, packets.len()), (Some(expected), DATAGRAM_PACKETS));
        let (header, packets) = datagram_packets(&datagram[12..]).unwrap();
        assert_eq!((header, packets.len()), (None, DATAGRAM_PACKETS));
    }

    #[test]
    fn what_carries_no_whole_packets_is_refused() {
        assert_eq!(datagram_packets(&[SYNC_BYTE; 189]).unwrap_err(), TsError::PartialPacket { got: 189 });
        assert_eq!(datagram_packets(&[0; 188]).unwrap_err(), TsError::Sync { first: 0 });
        assert_eq!(datagram_packets(&[0x80; 11]).unwrap_err(), TsError::Truncated { got: 11 });
        assert_eq!(datagram_packets(&[]).unwrap_err(), TsError::Truncated { got: 0 });
    }
}
