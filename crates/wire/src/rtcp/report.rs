//! Sender and receiver reports (RFC 3550 §6.4).

use super::split_u32;

pub(super) const BLOCK_LEN: usize = 24;
pub(super) const SENDER_INFO_LEN: usize = 24;

/// What one receiver has of one stream (RFC 3550 §6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportBlock {
    /// Whose packets are reported on.
    pub ssrc: u32,
    /// Lost since the last report, in 256ths.
    pub fraction_lost: u8,
    /// Lost since the beginning; 24 bits, negative when there were duplicates.
    pub cumulative_lost: i32,
    /// Count of wraps in the high 16 bits, highest sequence number in the low 16.
    pub highest_seq: u32,
    /// Clock-rate units.
    pub jitter: u32,
    /// Middle 32 bits of the NTP time of the last sender report: 16.16 seconds; 0 without one.
    pub last_sr: u32,
    /// From the arrival of that report to this one, in 65,536ths of a second.
    pub delay_since_last_sr: u32,
}

impl ReportBlock {
    pub(super) fn from_bytes(bytes: &[u8; BLOCK_LEN]) -> Self {
        let words = bytes.as_chunks().0;
        let word = |index: usize| u32::from_be_bytes(words[index]);
        ReportBlock {
            ssrc: word(0),
            fraction_lost: bytes[4],
            cumulative_lost: (word(1) << 8) as i32 >> 8,
            highest_seq: word(2),
            jitter: word(3),
            last_sr: word(4),
            delay_since_last_sr: word(5),
        }
    }

    /// `cumulative_lost` saturates at what 24 bits hold.
    pub(super) fn to_bytes(self) -> [u8; BLOCK_LEN] {
        let lost = self.cumulative_lost.clamp(-0x80_0000, 0x7f_ffff) as u32 & 0xff_ffff;
        let words = [
            self.ssrc,
            u32::from(self.fraction_lost) << 24 | lost,
            self.highest_seq,
            self.jitter,
            self.last_sr,
            self.delay_since_last_sr,
        ];
        let mut bytes = [0; BLOCK_LEN];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The first `count` report blocks, or `None` when there are fewer. Profile-specific extensions may follow.
fn blocks(count: u8, data: &[u8]) -> Option<&[[u8; BLOCK_LEN]]> {
    data.as_chunks().0.get(..count.into())
}

/// What a sender says about its own stream (RFC 3550 §6.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderInfo {
    /// The sender.
    pub ssrc: u32,
    /// Wall clock: seconds since 1900, 32.32 fixed point.
    pub ntp: u64,
    /// The same instant in clock-rate units.
    pub rtp_timestamp: u32,
    /// RTP packets sent since the stream began; wraps.
    pub packet_count: u32,
    /// Payload bytes, without headers and padding.
    pub byte_count: u32,
}

/// What a peer sends and receives (RFC 3550 §6.4.1).
#[derive(Clone, Copy, Debug)]
pub struct SenderReport<'a> {
    /// What it sends.
    pub info: SenderInfo,
    blocks: &'a [[u8; BLOCK_LEN]],
}

impl<'a> SenderReport<'a> {
    pub(super) fn parse(count: u8, body: &'a [u8]) -> Option<Self> {
        let (ssrc, rest) = split_u32(body)?;
        let (ntp, rest) = rest.split_first_chunk()?;
        let (rtp_timestamp, rest) = split_u32(rest)?;
        let (packet_count, rest) = split_u32(rest)?;
        let (byte_count, rest) = split_u32(rest)?;
        let info = SenderInfo { ssrc, ntp: u64::from_be_bytes(*ntp), rtp_timestamp, packet_count, byte_count };
        Some(SenderReport { info, blocks: blocks(count, rest)? })
    }

    /// What it receives, one per source; at most 31.
    pub fn blocks(&self) -> impl Iterator<Item = ReportBlock> + use<'a> {
        self.blocks.iter().map(ReportBlock::from_bytes)
    }
}

/// What a peer that sends nothing receives (RFC 3550 §6.4.2).
#[derive(Clone, Copy, Debug)]
pub struct ReceiverReport<'a> {
    /// The reporter's own.
    pub ssrc: u32,
    blocks: &'a [[u8; BLOCK_LEN]],
}

impl<'a> ReceiverReport<'a> {
    pub(super) fn parse(count: u8, body: &'a [u8]) -> Option<Self> {
        let (ssrc, rest) = split_u32(body)?;
        Some(ReceiverReport { ssrc, blocks: blocks(count, rest)? })
    }

    /// One per source that is received; at most 31.
    pub fn blocks(&self) -> impl Iterator<Item = ReportBlock> + use<'a> {
        self.blocks.iter().map(ReportBlock::from_bytes)
    }
}

/// Sources that leave (RFC 3550 §6.6). The reason that may follow is not read.
#[derive(Clone, Copy, Debug)]
pub struct Bye<'a> {
    ssrcs: &'a [[u8; 4]],
}

impl<'a> Bye<'a> {
    pub(super) fn parse(count: u8, body: &'a [u8]) -> Option<Self> {
        Some(Bye { ssrcs: body.as_chunks().0.get(..count.into())? })
    }

    /// Who leaves, at most 31.
    pub fn ssrcs(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.ssrcs.iter().map(|ssrc| u32::from_be_bytes(*ssrc))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Packet, packets, write_bye, write_receiver_report, write_sdes_cname, write_sender_report};
    use super::*;

    fn only(data: &[u8]) -> Packet<'_> {
        packets(data).unwrap().next().unwrap()
    }

    const BLOCK: ReportBlock = ReportBlock {
        ssrc: 2,
        fraction_lost: 0x40,
        cumulative_lost: -1,
        highest_seq: 0x0001_0005,
        jitter: 3,
        last_sr: 4,
        delay_since_last_sr: 5,
    };

    #[test]
    fn a_receiver_report_is_laid_out_as_in_rfc_3550() {
        let mut buf = [0; 32];
        assert_eq!(write_receiver_report(&mut buf, 1, &[BLOCK]), Some(32));
        assert_eq!(buf[..16], [0x81, 201, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 0x40, 0xff, 0xff, 0xff]);
        assert_eq!(buf[16..], [0, 1, 0, 5, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5]);
        let Packet::ReceiverReport(report) = only(&buf) else { panic!() };
        assert!(report.blocks().eq([BLOCK]));
    }

    #[test]
    fn a_sender_report_is_laid_out_as_in_rfc_3550() {
        let info =
            SenderInfo { ssrc: 1, ntp: 0x0102_0304_0506_0708, rtp_timestamp: 9, packet_count: 10, byte_count: 11 };
        let mut buf = [0; 28];
        assert_eq!(write_sender_report(&mut buf, &info, &[]), Some(28));
        assert_eq!(buf[..16], [0x80, 200, 0, 6, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(buf[16..], [0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 11]);
    }

    #[test]
    fn lost_packets_saturate_at_24_bits() {
        for (lost, kept) in [(i32::MAX, 0x7f_ffff), (i32::MIN, -0x80_0000), (-5, -5)] {
            let block = ReportBlock { cumulative_lost: lost, ..BLOCK };
            assert_eq!(ReportBlock::from_bytes(&block.to_bytes()).cumulative_lost, kept);
        }
    }

    #[test]
    fn the_32nd_block_or_source_has_no_place() {
        let mut buf = [0; 1_500];
        assert!(write_receiver_report(&mut buf, 1, &[BLOCK; 31]).is_some());
        assert_eq!(write_receiver_report(&mut buf, 1, &[BLOCK; 32]), None);
        assert!(write_bye(&mut buf, &[7; 31]).is_some());
        assert_eq!(write_bye(&mut buf, &[7; 32]), None);
    }

    #[test]
    fn an_sdes_chunk_ends_with_one_to_four_zero_bytes() {
        for (cname, len) in [("", 12), ("a", 12), ("ab", 16), ("abcde", 16), ("abcdef", 20)] {
            let mut buf = [0xff; 20];
            assert_eq!(write_sdes_cname(&mut buf, 1, cname), Some(len), "{cname}");
            let head = [0x81, 202, 0, len as u8 / 4 - 1, 0, 0, 0, 1, 1, cname.len() as u8];
            let text = [&head, cname.as_bytes()].concat();
            assert_eq!(buf[..text.len()], text);
            assert!(buf[text.len()..len].iter().all(|byte| *byte == 0));
            assert!(matches!(only(&buf[..len]), Packet::Other));
        }
    }
}
