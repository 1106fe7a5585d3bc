//! Writers: each puts one RTCP packet at the start of a caller's buffer and returns its length, a multiple of four.
//! All return `None` where the buffer has no room or a count does not fit its field; the buffer's content is then
//! unspecified. A compound is written packet behind packet.

use super::feedback::REMB_NAME;
use super::report::SENDER_INFO_LEN;
use super::{
    BYE, FORMAT_APPLICATION, FORMAT_NACK, FORMAT_PLI, HEADER_LEN, PSFB, RECEIVER_REPORT, RTPFB, ReportBlock, SDES,
    SENDER_REPORT, SenderInfo,
};
use crate::{Bitrate, Seq};

/// Type of the SDES item that holds the CNAME (RFC 3550 §6.5.1).
const SDES_CNAME: u8 = 1;

/// The largest report, source or SSRC count that five bits hold.
const COUNT_MAX: usize = 31;

/// Fills a buffer from the front and ends it with the packet's header.
pub(super) struct PacketWriter<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> PacketWriter<'a> {
    /// Leaves room for the header, which `finish` writes.
    pub(super) fn new(buf: &'a mut [u8]) -> Self {
        PacketWriter { buf, len: HEADER_LEN }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.buf.get_mut(self.len..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    pub(super) fn put_u32(&mut self, value: u32) -> Option<()> {
        self.put(&value.to_be_bytes())
    }

    /// Adds zero bytes up to the next 32-bit boundary.
    pub(super) fn align(&mut self) -> Option<()> {
        let missing = self.len.next_multiple_of(4) - self.len;
        self.put(&[0; 3][..missing])
    }

    /// Bytes that may still be written.
    pub(super) fn room(&self) -> usize {
        self.buf.len().saturating_sub(self.len)
    }

    /// Writes the header before an aligned body and returns the packet's length.
    pub(super) fn finish(self, packet_type: u8, count: u8) -> Option<usize> {
        debug_assert!(self.len.is_multiple_of(4) && count <= COUNT_MAX as u8);
        let words = u16::try_from(self.len / 4 - 1).ok()?;
        let [high, low] = words.to_be_bytes();
        *self.buf.first_chunk_mut()? = [0x80 | count, packet_type, high, low];
        Some(self.len)
    }
}

/// Writes a sender report with up to 31 blocks (RFC 3550 §6.4.1).
pub fn write_sender_report(buf: &mut [u8], info: &SenderInfo, blocks: &[ReportBlock]) -> Option<usize> {
    let mut bytes = [0; SENDER_INFO_LEN];
    bytes[..4].copy_from_slice(&info.ssrc.to_be_bytes());
    bytes[4..12].copy_from_slice(&info.ntp.to_be_bytes());
    bytes[12..16].copy_from_slice(&info.rtp_timestamp.to_be_bytes());
    bytes[16..20].copy_from_slice(&info.packet_count.to_be_bytes());
    bytes[20..].copy_from_slice(&info.byte_count.to_be_bytes());
    write_report(buf, SENDER_REPORT, &bytes, blocks)
}

/// Writes a receiver report with up to 31 blocks (RFC 3550 §6.4.2).
pub fn write_receiver_report(buf: &mut [u8], ssrc: u32, blocks: &[ReportBlock]) -> Option<usize> {
    write_report(buf, RECEIVER_REPORT, &ssrc.to_be_bytes(), blocks)
}

fn write_report(buf: &mut [u8], packet_type: u8, head: &[u8], blocks: &[ReportBlock]) -> Option<usize> {
    if blocks.len() > COUNT_MAX {
        return None;
    }
    let mut packet = PacketWriter::new(buf);
    packet.put(head)?;
    for block in blocks {
        packet.put(&block.to_bytes())?;
    }
    packet.finish(packet_type, blocks.len() as u8)
}

/// Writes a source description with one CNAME of up to 255 bytes (RFC 3550 §6.5.1).
pub fn write_sdes_cname(buf: &mut [u8], ssrc: u32, cname: &str) -> Option<usize> {
    let mut packet = PacketWriter::new(buf);
    packet.put_u32(ssrc)?;
    packet.put(&[SDES_CNAME, u8::try_from(cname.len()).ok()?])?;
    packet.put(cname.as_bytes())?;
    packet.put(&[0])?;
    packet.align()?;
    packet.finish(SDES, 1)
}

/// Writes a goodbye for up to 31 sources (RFC 3550 §6.6).
pub fn write_bye(buf: &mut [u8], ssrcs: &[u32]) -> Option<usize> {
    if ssrcs.len() > COUNT_MAX {
        return None;
    }
    let mut packet = PacketWriter::new(buf);
    for ssrc in ssrcs {
        packet.put_u32(*ssrc)?;
    }
    packet.finish(BYE, ssrcs.len() as u8)
}

/// Writes a NACK (RFC 4585 §6.2.1). `lost` stands in sending order; across a wrap that is still one order. Numbers
/// within 16 of each other share a field.
pub fn write_nack(
    buf: &mut [u8],
    sender_ssrc: u32,
    media_ssrc: u32,
    lost: impl IntoIterator<Item = Seq>,
) -> Option<usize> {
    let mut packet = feedback(buf, sender_ssrc, media_ssrc)?;
    let mut lost = lost.into_iter().peekable();
    while let Some(first) = lost.next() {
        let mut following = 0_u16;
        while let Some(seq) = lost.next_if(|seq| (0..=16).contains(&first.distance_to(*seq))) {
            // A repetition of `first` has distance 0 and needs no bit.
            following |= 1_u16.checked_shl((first.distance_to(seq) as u32).wrapping_sub(1)).unwrap_or(0);
        }
        packet.put(&first.0.to_be_bytes())?;
        packet.put(&following.to_be_bytes())?;
    }
    packet.finish(RTPFB, FORMAT_NACK)
}

/// Writes a picture loss indication (RFC 4585 §6.3.1).
pub fn write_pli(buf: &mut [u8], sender_ssrc: u32, media_ssrc: u32) -> Option<usize> {
    feedback(buf, sender_ssrc, media_ssrc)?.finish(PSFB, FORMAT_PLI)
}

/// Writes what the receiver takes at most of the media with these SSRCs (draft-alvestrand-rmcat-remb-03 §2.2). The rate is
/// cut to 18 significant bits.
pub fn write_remb(buf: &mut [u8], sender_ssrc: u32, rate: Bitrate, ssrcs: &[u32]) -> Option<usize> {
    let shift = (u64::BITS - rate.bps().leading_zeros()).saturating_sub(18);
    let [.., first, second, third] = (rate.bps() >> shift).to_be_bytes();
    let mut packet = feedback(buf, sender_ssrc, 0)?;
    packet.put(&REMB_NAME)?;
    packet.put(&[u8::try_from(ssrcs.len()).ok()?, (shift as u8) << 2 | first, second, third])?;
    for ssrc in ssrcs {
        packet.put_u32(*ssrc)?;
    }
    packet.finish(PSFB, FORMAT_APPLICATION)
}

/// Starts a feedback packet (RFC 4585 §6.1).
pub(super) fn feedback(buf: &mut [u8], sender_ssrc: u32, media_ssrc: u32) -> Option<PacketWriter<'_>> {
    let mut packet = PacketWriter::new(buf);
    packet.put_u32(sender_ssrc)?;
    packet.put_u32(media_ssrc)?;
    Some(packet)
}
