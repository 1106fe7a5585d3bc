//! What a WebRTC publisher sends behind its handshake, without socket and clock: one `Source` for each stream.
//!
//! In: payloads with their time. Out: sealed RTP packets, retransmissions and sender reports, in the caller's buffer.
//! Cost: a packet is written and sealed in place, nothing is allocated.
//! Source: RFC 3550 (RTP, sender reports), RFC 4588 (retransmissions), RFC 3711 and RFC 7714 (SRTP).
//!
//! The handshake of a client is `webrtc::Peer`'s. Load, the demo and the end-to-end tests publish by this; `sim` does
//! not: it is a second opinion about what the rooms do.
#![forbid(unsafe_code)]

use srtp::Sealer;
use webrtc::Media;
use wire::Seq;
use wire::rtcp::{self, SenderInfo};
use wire::rtp::{HeaderWriter, RtpHeader};

/// Extended sequence number of a stream's first packet, as everywhere (see `wire::SeqExtender`).
pub const SEQ_FIRST: u64 = 1 << 16;

/// The most that a sender report takes before it is sealed.
const REPORT_BYTES_MAX: usize = 200;

/// One RTP stream that is sent, and that of its retransmissions.
#[derive(Clone, Debug)]
pub struct Source {
    payload_type: u8,
    ssrc: u32,
    /// Payload type and SSRC of retransmissions, where they were agreed on.
    rtx: Option<(u8, u32)>,
    /// Extended numbers of the next packet, and of the next retransmission.
    seq: u64,
    rtx_seq: u64,
    packet_count: u32,
    byte_count: u32,
}

/// One packet, but for what its stream knows.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// In units of the codec's clock.
    pub timestamp: u32,
    /// Whether a frame ends with it.
    pub marker: bool,
    /// Header extensions by their ids; one without an id was not agreed on, and is left out.
    pub extensions: &'a [(Option<u8>, &'a [u8])],
    /// What the codec made.
    pub payload: &'a [u8],
}

impl Source {
    /// The stream of a section that sends, or of one of its simulcast layers; numbers begin at `seq`, which is extended.
    /// `None` when the answer has no such stream.
    pub fn new(media: &Media, layer: usize, seq: u64) -> Option<Self> {
        let &(ssrc, rtx_ssrc) = media.tx.get(layer)?;
        let rtx = media.rtx_payload_type.zip(rtx_ssrc);
        let payload_type = media.payload_type;
        Some(Source { payload_type, ssrc, rtx, seq, rtx_seq: seq, packet_count: 0, byte_count: 0 })
    }

    /// The SSRC by which the server asks for packets and keyframes.
    pub fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// Extended number of the next packet.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Writes the next packet into `buf` and seals it, for which `buf` has `Profile::rtp_overhead` bytes more. Returns its
    /// length on the wire, or `None` when it does not fit.
    pub fn write(&mut self, buf: &mut [u8], packet: &Packet<'_>, sealer: &Sealer) -> Option<usize> {
        let len = seal(buf, (self.payload_type, self.ssrc, self.seq), packet, &[], sealer)?;
        self.seq += 1;
        self.packet_count = self.packet_count.wrapping_add(1);
        self.byte_count = self.byte_count.wrapping_add(packet.payload.len() as u32);
        Some(len)
    }

    /// Writes packet `original` once more, as a retransmission. `None` also when none were agreed on.
    pub fn write_again(
        &mut self,
        buf: &mut [u8],
        original: Seq,
        packet: &Packet<'_>,
        sealer: &Sealer,
    ) -> Option<usize> {
        let (payload_type, ssrc) = self.rtx?;
        // RFC 4588 §4: the original's number stands before its payload.
        let len = seal(buf, (payload_type, ssrc, self.rtx_seq), packet, &original.0.to_be_bytes(), sealer)?;
        self.rtx_seq += 1;
        Some(len)
    }

    /// Writes a sender report (RFC 3550 §6.4.1) into `buf` and seals it: at the NTP time `ntp` the stream's clock shows
    /// `rtp_timestamp`.
    pub fn write_report(&self, buf: &mut [u8], ntp: u64, rtp_timestamp: u32, sealer: &mut Sealer) -> Option<usize> {
        let Source { ssrc, packet_count, byte_count, .. } = *self;
        let info = SenderInfo { ssrc, ntp, rtp_timestamp, packet_count, byte_count };
        let len = rtcp::write_sender_report(buf.get_mut(..REPORT_BYTES_MAX)?, &info, &[])?;
        Some(sealer.seal_rtcp(buf, len))
    }
}

fn seal(
    buf: &mut [u8],
    (payload_type, ssrc, seq): (u8, u32, u64),
    packet: &Packet<'_>,
    before: &[u8],
    sealer: &Sealer,
) -> Option<usize> {
    let Packet { timestamp, marker, extensions, payload } = *packet;
    let header = RtpHeader { payload_type, marker, seq: Seq(seq as u16), timestamp, ssrc };
    let mut writer = HeaderWriter::new(buf, &header)?;
    for (id, value) in extensions.iter().filter_map(|(id, value)| Some(((*id)?, value))) {
        writer.extension(id, value);
    }
    let header_len = writer.finish();
    let payload_at = header_len + before.len();
    let len = payload_at + payload.len();
    buf.get_mut(header_len..payload_at)?.copy_from_slice(before);
    buf.get_mut(payload_at..len)?.copy_from_slice(payload);
    Some(sealer.seal_rtp(buf, header_len, len, ssrc, seq)).filter(|len| *len > 0)
}

#[cfg(test)]
mod tests {
    use srtp::{Opener, Profile, SessionKeys};
    use webrtc::Direction;
    use wire::codec::Codec;
    use wire::rtp::RtpPacket;

    use super::*;

    #[test]
    fn packets_are_numbered_and_come_out_as_they_went_in() {
        let mut link = Link::new();
        let mut source = Source::new(&media(), 0, SEQ_FIRST + 65_535).unwrap();
        for (seq, extension) in [(65_535, 1), (0, 2)] {
            let packet = Packet {
                timestamp: 7,
                marker: true,
                extensions: &[(Some(3), &[extension]), (None, b"x")],
                payload: b"a part of a frame",
            };
            let len = source.write(&mut link.buf, &packet, &link.sealer).unwrap();
            let plain = link.open(len);
            let read = RtpPacket::parse(&plain).unwrap();
            assert_eq!((read.ssrc(), read.payload_type(), read.seq()), (11, 96, Seq(seq)));
            assert_eq!((read.timestamp(), read.marker(), read.payload()), (7, true, packet.payload));
            assert_eq!(read.extension(3), Some(&[extension][..]));
        }
        assert_eq!(source.seq(), SEQ_FIRST + 65_537);
    }

    #[test]
    fn a_retransmission_is_a_stream_of_its_own_and_begins_with_the_original_s_number() {
        let mut link = Link::new();
        let mut source = Source::new(&media(), 0, SEQ_FIRST).unwrap();
        let packet = Packet { timestamp: 7, marker: false, extensions: &[], payload: b"lost" };
        let len = source.write_again(&mut link.buf, Seq(0x1234), &packet, &link.sealer).unwrap();
        let plain = link.open(len);
        let read = RtpPacket::parse(&plain).unwrap();
        assert_eq!((read.ssrc(), read.payload_type(), read.seq()), (12, 97, Seq(0)));
        assert_eq!(read.payload(), b"\x12\x34lost");
        assert_eq!(source.seq(), SEQ_FIRST, "the stream itself has sent nothing");

        let without = webrtc::Media { rtx_payload_type: None, ..media() };
        let mut source = Source::new(&without, 0, SEQ_FIRST).unwrap();
        assert_eq!(source.write_again(&mut link.buf, Seq(1), &packet, &link.sealer), None);
        assert!(Source::new(&without, 1, SEQ_FIRST).is_none(), "there is one layer only");
    }

    #[test]
    fn a_report_counts_what_was_sent_and_nothing_twice() {
        let mut link = Link::new();
        let mut source = Source::new(&media(), 0, SEQ_FIRST).unwrap();
        let packet = Packet { timestamp: 7, marker: false, extensions: &[], payload: b"seven b" };
        source.write(&mut link.buf, &packet, &link.sealer).unwrap();
        source.write(&mut link.buf, &packet, &link.sealer).unwrap();
        source.write_again(&mut link.buf, Seq(0), &packet, &link.sealer).unwrap();
        let len = source.write_report(&mut link.buf, 5 << 32, 99, &mut link.sealer).unwrap();
        let len = link.opener.open_rtcp(&mut link.buf[..len]).unwrap();
        let Some(rtcp::Packet::SenderReport(report)) = rtcp::packets(&link.buf[..len]).unwrap().next() else {
            panic!("no sender report");
        };
        let wanted = SenderInfo { ssrc: 11, ntp: 5 << 32, rtp_timestamp: 99, packet_count: 2, byte_count: 14 };
        assert_eq!(report.info, wanted);
    }

    #[test]
    fn what_does_not_fit_is_not_sent() {
        let link = Link::new();
        let mut source = Source::new(&media(), 0, SEQ_FIRST).unwrap();
        let packet = Packet { timestamp: 7, marker: false, extensions: &[], payload: &[0; 20] };
        assert_eq!(source.write(&mut [0; 31], &packet, &link.sealer), None);
        assert_eq!(source.seq(), SEQ_FIRST, "its number is still free");
    }

    /// Both ends of a session's keys.
    struct Link {
        sealer: Sealer,
        opener: Opener,
        buf: [u8; 1_500],
    }

    impl Link {
        fn new() -> Self {
            let (client, server) = SessionKeys::made_up_pair(Profile::AeadAes128Gcm, 1);
            Link { sealer: Sealer::new(&client).unwrap(), opener: Opener::new(&server).unwrap(), buf: [0; 1_500] }
        }

        fn open(&mut self, len: usize) -> Vec<u8> {
            let len = self.opener.open_rtp(&mut self.buf[..len]).unwrap();
            self.buf[..len].to_vec()
        }
    }

    fn media() -> Media {
        Media {
            mid: "0".into(),
            direction: Direction::Send,
            track: 0,
            codec: Codec::Vp8,
            payload_type: 96,
            rtx_payload_type: Some(97),
            red: None,
            fmtp: String::new(),
            extensions: Vec::new(),
            tx: vec![(11, Some(12))],
            rx: Vec::new(),
            rids: Vec::new(),
            transport_cc: false,
            reduced_size: true,
        }
    }
}
