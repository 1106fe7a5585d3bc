//! MPEG transport streams: packets, adaptation fields, clocks, tables, PES headers; and their writers, in place.
//!
//! In: rows of 188-byte packets, or a caller's buffer. Out: borrowed views, packets written or changed in place.
//! Cost: one look at four bytes per packet; what is deeper is read when it is asked for. No copy but of table sections,
//! which are gathered from their packets. No allocation.
//! Source: ISO/IEC 13818-1 (ITU-T H.222.0) §2.4.3 (packets, adaptation fields, PES), §2.4.4 (tables), RFC 2250 (RTP).

mod adaptation;
mod clock;
mod pes;
mod psi;
mod rtp;
mod sync;
mod write;

pub use adaptation::Adaptation;
pub use clock::{Pcr, Timestamp};
pub use pes::{PesHeader, shift_timestamps, write_pes_header};
pub use psi::{
    Pat, Pmt, PmtStream, SECTION_LEN_MAX, Section, SectionBuffer, SectionError, crc32, rewrite_pat, rewrite_pmt,
    write_pat, write_pmt,
};
pub use rtp::{RTP_CLOCK_HZ, RTP_PAYLOAD_TYPE, datagram_packets, write_rtp_header};
pub use sync::{Layout, Packets, Spacing};
pub use write::{
    AdaptationSpec, PacketSpec, section_packets, set_continuity, set_discontinuity, set_pcr, set_pid, write_null,
    write_packet, write_pcr_only,
};

/// Bytes of a packet (§2.4.3.2).
pub const PACKET_LEN: usize = 188;

/// The first byte of every packet.
pub const SYNC_BYTE: u8 = 0x47;

/// Packets in a full datagram: as many as an Ethernet frame holds, with RTP as without (RFC 2250 §2).
pub const DATAGRAM_PACKETS: usize = 7;

/// Bytes of a full datagram, without an RTP header.
pub const DATAGRAM_LEN: usize = DATAGRAM_PACKETS * PACKET_LEN;

/// Packet identifier, 13 bits (§2.4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(u16);

impl Pid {
    /// Where the table of programs is.
    pub const PAT: Pid = Pid(0);
    /// Where the table of conditional access is.
    pub const CAT: Pid = Pid(1);
    /// Packets that only fill up a rate.
    pub const NULL: Pid = Pid(0x1fff);

    /// Different values there are.
    pub const COUNT: usize = 1 << 13;

    /// `None` when the number has more than 13 bits.
    pub const fn new(number: u16) -> Option<Self> {
        if number < Self::COUNT as u16 { Some(Pid(number)) } else { None }
    }

    /// Takes the low 13 bits of two bytes, as they stand in headers and tables.
    pub const fn from_bytes(high: u8, low: u8) -> Self {
        Pid(u16::from_be_bytes([high & 0x1f, low]))
    }

    /// Its 13 bits.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// What is wrong with a packet. The sender's doing, so never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum TsError {
    /// Too few bytes.
    #[error("{got} bytes, shorter than a packet's 188")]
    Truncated { got: usize },
    /// It does not begin here.
    #[error("the first byte is {first:#04x}, not the sync byte 0x47")]
    Sync { first: u8 },
    /// Neither payload nor adaptation field.
    #[error("adaptation_field_control is 0, which is reserved")]
    Control,
    /// The adaptation field is longer than the packet.
    #[error("adaptation field of {said} bytes, where at most 183 fit")]
    AdaptationLength { said: u8 },
    /// A datagram ends within a packet.
    #[error("{got} bytes of payload are no whole packets")]
    PartialPacket { got: usize },
}

/// A packet whose header was checked; no accessor fails.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8; PACKET_LEN],
}

impl<'a> Packet<'a> {
    /// Reads the packet at the start of `data`.
    ///
    /// # Errors
    /// When it is too short, without the sync byte, of the reserved kind, or its adaptation field is longer than it.
    #[inline]
    pub fn parse(data: &'a [u8]) -> Result<Self, TsError> {
        let bytes = data.first_chunk::<PACKET_LEN>().ok_or(TsError::Truncated { got: data.len() })?;
        if bytes[0] != SYNC_BYTE {
            return Err(TsError::Sync { first: bytes[0] });
        }
        match bytes[3] >> 4 & 3 {
            0 => Err(TsError::Control),
            2 | 3 if usize::from(bytes[4]) > PACKET_LEN - 5 => Err(TsError::AdaptationLength { said: bytes[4] }),
            _ => Ok(Packet { bytes }),
        }
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8; PACKET_LEN] {
        self.bytes
    }

    /// A demodulator or a link before us could not correct the packet.
    pub fn transport_error(&self) -> bool {
        self.bytes[1] & 0x80 != 0
    }

    /// A PES packet begins with the payload, or a section begins in it.
    pub fn payload_unit_start(&self) -> bool {
        self.bytes[1] & 0x40 != 0
    }

    /// Its PID.
    #[inline]
    pub fn pid(&self) -> Pid {
        Pid::from_bytes(self.bytes[1], self.bytes[2])
    }

    /// The payload is encrypted (transport_scrambling_control is not 0).
    pub fn is_scrambled(&self) -> bool {
        self.bytes[3] & 0xc0 != 0
    }

    /// 4 bits; counts the packets of a PID that have a payload.
    pub fn continuity(&self) -> u8 {
        self.bytes[3] & 0x0f
    }

    /// Whether something follows header and adaptation field.
    pub fn has_payload(&self) -> bool {
        self.bytes[3] & 0x10 != 0
    }

    /// The adaptation field, where there is one.
    #[inline]
    pub fn adaptation(&self) -> Option<Adaptation<'a>> {
        if self.bytes[3] & 0x20 == 0 {
            return None;
        }
        Some(Adaptation::new(&self.bytes[5..5 + usize::from(self.bytes[4])]))
    }

    /// What follows header and adaptation field; empty when there is no payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        match self.bytes[3] >> 4 & 3 {
            1 => &self.bytes[4..],
            3 => &self.bytes[5 + usize::from(self.bytes[4])..],
            _ => &[],
        }
    }

    /// The program clock reference, when the packet carries one.
    #[inline]
    pub fn pcr(&self) -> Option<Pcr> {
        // One test sends nearly all packets away: most have no adaptation field.
        if self.bytes[3] & 0x20 == 0 { None } else { self.adaptation()?.pcr() }
    }

    /// The discontinuity indicator; false without an adaptation field.
    #[inline]
    pub fn discontinuity(&self) -> bool {
        self.adaptation().is_some_and(|field| field.discontinuity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(head: &[u8]) -> [u8; PACKET_LEN] {
        let mut bytes = [0xff; PACKET_LEN];
        bytes[..head.len()].copy_from_slice(head);
        bytes
    }

    #[test]
    fn the_header_fields_are_where_clause_2_4_3_2_puts_them() {
        let bytes = packet(&[0x47, 0x41, 0x00, 0x1a]);
        let packet = Packet::parse(&bytes).unwrap();
        assert!(packet.payload_unit_start() && !packet.transport_error() && !packet.is_scrambled());
        assert_eq!((packet.pid().number(), packet.continuity(), packet.payload().len()), (0x100, 10, 184));
        assert!(packet.adaptation().is_none() && packet.pcr().is_none());
    }

    #[test]
    fn an_adaptation_field_of_length_0_is_one_stuffing_byte() {
        let bytes = packet(&[0x47, 0, 5, 0x30, 0]);
        let packet = Packet::parse(&bytes).unwrap();
        let field = packet.adaptation().unwrap();
        assert!(!field.discontinuity() && field.pcr().is_none());
        assert_eq!(packet.payload().len(), 183);
    }

    #[test]
    fn a_packet_of_adaptation_field_alone_has_no_payload() {
        let bytes = packet(&[0x47, 0, 5, 0x20, 183, 0]);
        assert!(Packet::parse(&bytes).unwrap().payload().is_empty());
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        assert_eq!(Packet::parse(&[0x47; 187]).unwrap_err(), TsError::Truncated { got: 187 });
        assert_eq!(Packet::parse(&packet(&[0x48])).unwrap_err(), TsError::Sync { first: 0x48 });
        assert_eq!(Packet::parse(&packet(&[0x47, 0, 0, 0x0f])).unwrap_err(), TsError::Control);
        let too_long = packet(&[0x47, 0, 0, 0x30, 184]);
        assert_eq!(Packet::parse(&too_long).unwrap_err(), TsError::AdaptationLength { said: 184 });
    }
}
