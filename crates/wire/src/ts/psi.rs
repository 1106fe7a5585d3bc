//! Sections of program specific information (§2.4.4): gathered from packets, and checked.
//!
//! In: the packets of one PID, in order. Out: whole sections, each once per time it was sent.
//! Cost: one copy of each section into a buffer of 1 KiB; one table lookup per byte for the CRC.
//! Source: §2.4.4.1 (pointer field), §2.4.4.11 (lengths), Annex A (CRC).

mod tables;

pub use tables::{Pat, Pmt, PmtStream, rewrite_pat, rewrite_pmt, write_pat, write_pmt};

use crc::{CRC_32_MPEG_2, Crc};

use super::Packet;

/// Bytes of the largest section of a PAT or PMT (§2.4.4.4: section_length is at most 1,021). Private sections may be
/// longer; those are left out.
pub const SECTION_LEN_MAX: usize = 1_024;

/// Bytes of a long section's header, up to last_section_number.
const HEADER_LEN: usize = 8;
const CRC_LEN: usize = 4;

/// What is wrong with a section. The sender's doing, so never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum SectionError {
    /// The section's own length does not fit.
    #[error("{got} bytes, where the section says {said}")]
    Length { said: usize, got: usize },
    /// It is not one that can be checked.
    #[error("not of the long form with a CRC")]
    ShortForm,
    /// Some byte is another than was sent.
    #[error("the CRC does not fit the bytes")]
    Crc,
    /// It is another table.
    #[error("table id {got:#04x}, where {expected:#04x} was asked for")]
    TableId { expected: u8, got: u8 },
    /// It announces what comes.
    #[error("what it says holds only later: current_next_indicator is 0")]
    NotCurrent,
    /// What is in it does not fit its length.
    #[error("a field runs over the end of the section")]
    Truncated,
}

/// A whole section of the long form whose length and CRC were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    bytes: &'a [u8],
}

impl<'a> Section<'a> {
    /// Reads a section that fills `bytes`.
    ///
    /// # Errors
    /// When the length, the form or the CRC is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SectionError> {
        let got = bytes.len();
        let said = section_len(bytes).ok_or(SectionError::Length { said: 3, got })?;
        if said != got {
            return Err(SectionError::Length { said, got });
        }
        if bytes[1] & 0x80 == 0 || got < HEADER_LEN + CRC_LEN {
            return Err(SectionError::ShortForm);
        }
        // Over a section with its CRC, the CRC is zero (Annex A).
        if crc32(bytes) != 0 {
            return Err(SectionError::Crc);
        }
        Ok(Section { bytes })
    }

    /// Which table it is a section of.
    pub fn table_id(&self) -> u8 {
        self.bytes[0]
    }

    /// transport_stream_id of a PAT, program_number of a PMT.
    pub fn id(&self) -> u16 {
        u16::from_be_bytes([self.bytes[3], self.bytes[4]])
    }

    /// 5 bits.
    pub fn version(&self) -> u8 {
        self.bytes[5] >> 1 & 0x1f
    }

    /// False: what the section says holds only later (§2.4.4.5).
    pub fn is_current(&self) -> bool {
        self.bytes[5] & 1 != 0
    }

    /// What stands between header and CRC.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.bytes.len() - CRC_LEN]
    }
}

/// Bytes of the section that begins so, header included; `None` before its length is there.
fn section_len(bytes: &[u8]) -> Option<usize> {
    let &[_, high, low, ..] = bytes else { return None };
    Some(3 + usize::from(u16::from_be_bytes([high & 0x0f, low])))
}

/// Gathers the sections of one PID.
#[derive(Clone, Debug)]
pub struct SectionBuffer {
    buf: Box<[u8; SECTION_LEN_MAX]>,
    /// Bytes of the section that is being gathered; `None` while none is.
    len: Option<usize>,
    continuity: Option<u8>,
}

impl Default for SectionBuffer {
    fn default() -> Self {
        SectionBuffer { buf: Box::new([0; SECTION_LEN_MAX]), len: None, continuity: None }
    }
}

impl SectionBuffer {
    /// Takes the next packet of the PID, and hands each section that is whole now to `found`. A lost packet costs the
    /// section that it was in; a repeated one (§2.4.3.3) is left out.
    pub fn push(&mut self, packet: &Packet<'_>, mut found: impl FnMut(&[u8])) {
        if !packet.has_payload() || packet.transport_error() || packet.is_scrambled() {
            return;
        }
        let continuity = packet.continuity();
        // Some multiplexers never count the packets of their tables, so a repetition matters within a section only.
        if self.continuity == Some(continuity) && self.len.is_some() {
            return;
        }
        if self.continuity.is_some_and(|last| last.wrapping_add(1) & 0x0f != continuity) {
            self.len = None;
        }
        self.continuity = Some(continuity);
        let payload = packet.payload();
        if !packet.payload_unit_start() {
            self.take(payload, &mut found);
            return;
        }
        let Some((&pointer, rest)) = payload.split_first() else { return };
        let Some((tail, mut rest)) = rest.split_at_checked(pointer.into()) else {
            self.len = None;
            return;
        };
        self.take(tail, &mut found);
        // Table id 0xff is stuffing, up to the packet's end (§2.4.4.1).
        while rest.first().is_some_and(|table_id| *table_id != 0xff) {
            self.len = Some(0);
            rest = self.take(rest, &mut found);
        }
    }

    /// Appends to the section that is being gathered, and returns what is behind its end.
    fn take<'a>(&mut self, data: &'a [u8], found: &mut impl FnMut(&[u8])) -> &'a [u8] {
        let Some(mut len) = self.len else { return &[] };
        let mut rest = data;
        while let Some((&byte, behind)) = rest.split_first().filter(|_| len < 3) {
            self.buf[len] = byte;
            (len, rest) = (len + 1, behind);
        }
        self.len = Some(len);
        let Some(whole) = section_len(&self.buf[..len]) else { return &[] };
        if whole > SECTION_LEN_MAX {
            self.len = None;
            return &[];
        }
        let (part, behind) = rest.split_at(rest.len().min(whole - len));
        self.buf[len..len + part.len()].copy_from_slice(part);
        len += part.len();
        self.len = Some(len);
        if len == whole {
            self.len = None;
            found(&self.buf[..whole]);
        }
        behind
    }
}

/// The CRC-32 of Annex A: polynomial 0x04c11db7, not reflected, begun with ones, not inverted.
pub fn crc32(data: &[u8]) -> u32 {
    static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_MPEG_2);
    CRC.checksum(data)
}

#[cfg(test)]
mod tests {
    use super::super::{PACKET_LEN, Pid, section_packets};
    use super::*;

    /// A long section with a body of `len` bytes and a right CRC.
    fn section(len: usize, fill: u8) -> Vec<u8> {
        let length = (len + 9) as u16;
        let mut bytes = vec![0x42, 0xb0 | (length >> 8) as u8, length as u8, 0, 7, 0xc3, 0, 0];
        bytes.resize(8 + len, fill);
        bytes.extend(crc32(&bytes).to_be_bytes());
        bytes
    }

    fn packets(section: &[u8], continuity: u8) -> Vec<[u8; PACKET_LEN]> {
        let mut packets = Vec::new();
        section_packets(section, Pid::new(0x50).unwrap(), continuity, |packet| packets.push(*packet));
        packets
    }

    fn gathered(packets: &[[u8; PACKET_LEN]]) -> Vec<Vec<u8>> {
        let mut buffer = SectionBuffer::default();
        let mut sections = Vec::new();
        for packet in packets {
            buffer.push(&Packet::parse(packet).unwrap(), |section| sections.push(section.to_vec()));
        }
        sections
    }

    #[test]
    fn the_crc_is_that_of_the_catalogues_check_word() {
        assert_eq!(crc32(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn sections_of_every_length_come_out_of_their_packets() {
        for len in [0, 1, 160, 170, 171, 172, 184, 300, 355, 356, 1_012] {
            let bytes = section(len, 0x47);
            let sections = gathered(&packets(&bytes, 14));
            assert_eq!(sections, std::slice::from_ref(&bytes), "{len}");
            let parsed = Section::parse(&bytes).unwrap();
            assert_eq!((parsed.id(), parsed.version(), parsed.body().len()), (7, 1, len));
            assert!(parsed.is_current());
        }
    }

    #[test]
    fn sections_share_packets() {
        let (first, second, third) = (section(200, 1), section(10, 2), section(3, 3));
        let mut one = packets(&first, 0);
        let tail_len = first.len() - 183;
        // The second packet says with its pointer where the next section begins.
        let mut payload = vec![tail_len as u8];
        payload.extend(&first[183..]);
        payload.extend(&second);
        payload.extend(&third);
        payload.resize(184, 0xff);
        one[1][1] |= 0x40;
        one[1][4..].copy_from_slice(&payload);
        assert_eq!(gathered(&one), [first, second, third]);
    }

    #[test]
    fn a_lost_packet_costs_its_section_and_a_repeated_one_nothing() {
        let bytes = section(500, 5);
        let three = packets(&bytes, 0);
        let (first, second, last) = (three[0], three[1], three[2]);
        assert_eq!(gathered(&[first, last]), Vec::<Vec<u8>>::new());
        assert_eq!(gathered(&[first, first, second, second, last]), [bytes]);
    }

    #[test]
    fn a_damaged_section_is_refused() {
        let bytes = section(20, 1);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Section::parse(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(Section::parse(&bytes[..31]).unwrap_err(), SectionError::Length { said: 32, got: 31 });
        assert_eq!(Section::parse(&[0x70, 0x70, 0]).unwrap_err(), SectionError::ShortForm);
        assert_eq!(Section::parse(&[]).unwrap_err(), SectionError::Length { said: 3, got: 0 });
    }
}
