//! The ends of a session without network and clock, for who counts what rooms cost: frames of one video track as a
//! publisher sends them, and a viewer that reports what came.
//!
//! In: which frame is next; the datagrams that rooms sent. Out: sealed datagrams.

use rooms::spec::{DownTrackSpec, ExtensionIds, UpTrackSpec};
use srtp::{KeyError, Sealer, SessionKeys};
use wire::rtcp::{self, ReportBlock};
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{LinkId, Path, Seq};

/// Time from one frame to the next, in milliseconds.
pub const FRAME_MS: u32 = 33;

/// What a publisher sends under.
pub const SSRC: u32 = 1_000;
const TRANSPORT_CC: u8 = 3;

fn extensions() -> ExtensionIds {
    ExtensionIds { mid: Some(1), transport_cc: Some(TRANSPORT_CC), ..ExtensionIds::default() }
}

/// What the publisher negotiated.
pub fn up_track() -> UpTrackSpec {
    let (payload_type, rtx_payload_type, ssrcs) = (96, Some(97), vec![(SSRC, None)]);
    let (other_ssrcs, extensions) = (Vec::new(), extensions());
    UpTrackSpec {
        track: 0,
        mid: "0".into(),
        payload_type,
        rtx_payload_type,
        red_payload_type: None,
        ssrcs,
        other_ssrcs,
        extensions,
    }
}

/// What a viewer negotiated.
pub fn down_track(ssrc: u32) -> DownTrackSpec {
    let rtx = Some((ssrc + 10_000, 97));
    DownTrackSpec { track: 0, mid: "0".into(), ssrc, payload_type: 96, rtx, red: None, extensions: extensions() }
}

/// The path of a peer by its last byte and port.
pub fn path(host: u8, port: u16) -> Path {
    Path { link: LinkId::datagrams(0), remote: ([192, 0, 2, host], port).into(), local: None }
}

/// A publisher of VP8.
pub struct Source {
    sealer: Sealer,
    seq: u64,
    /// The number of the next frame.
    pub frame: u32,
}

impl Source {
    /// # Errors
    /// When the keys do not fit their profile.
    pub fn new(keys: &SessionKeys) -> Result<Self, KeyError> {
        Ok(Source { sealer: Sealer::new(keys)?, seq: 1 << 16, frame: 0 })
    }

    /// The next frame in `count` packets, of sizes that rooms even out.
    pub fn next_frame(&mut self, count: usize, is_keyframe: bool) -> Vec<Vec<u8>> {
        let packets = (0..count).map(|index| self.packet(index, index + 1 == count, is_keyframe)).collect();
        self.frame += 1;
        packets
    }

    fn packet(&mut self, index: usize, marker: bool, is_keyframe: bool) -> Vec<u8> {
        let (seq, timestamp) = (Seq(self.seq as u16), self.frame * 90 * FRAME_MS);
        let header = RtpHeader { payload_type: 96, marker, seq, timestamp, ssrc: SSRC };
        let mut buf = vec![0; 1_400];
        let mut writer = HeaderWriter::new(&mut buf, &header).expect("room for a header");
        writer.extension(TRANSPORT_CC, &seq.0.to_be_bytes());
        let header_len = writer.finish();
        // A picture id (RFC 7741 §4.2), then the frame's first byte, whose last bit is 0 in keyframes.
        let starts = if index == 0 { 0x90 } else { 0x80 };
        let [high, low] = (0x8000 | self.frame as u16).to_be_bytes();
        let descriptor = [starts, 0x80, high, low, u8::from(!is_keyframe)];
        buf[header_len..header_len + 5].copy_from_slice(&descriptor);
        let len = header_len + 1_000 - index % 3;
        let len = self.sealer.seal_rtp(&mut buf, header_len, len, SSRC, self.seq);
        buf.truncate(len);
        self.seq += 1;
        buf
    }
}

/// A viewer, which reads headers only.
pub struct Sink {
    /// Under which it is sent media; its retransmissions come under another, and are not looked at.
    pub ssrc: u32,
    sealer: Sealer,
    /// The newest number that came.
    highest: Seq,
    /// Packets that came since the last report, by their transport-wide numbers from `transport_seq` on.
    since_report: u16,
    transport_seq: u16,
    report_count: u8,
}

impl Sink {
    /// # Errors
    /// When the keys do not fit their profile.
    pub fn new(keys: &SessionKeys, ssrc: u32) -> Result<Self, KeyError> {
        let sealer = Sealer::new(keys)?;
        Ok(Sink { ssrc, sealer, highest: Seq(0), since_report: 0, transport_seq: 0, report_count: 0 })
    }

    /// Takes a datagram. Returns whether it was media that was sent for the first time.
    pub fn take(&mut self, datagram: &[u8]) -> bool {
        if (192..=223).contains(&datagram[1]) {
            return false;
        }
        self.since_report += 1;
        let is_first = datagram[8..12] == self.ssrc.to_be_bytes();
        if is_first {
            self.highest = Seq(u16::from_be_bytes([datagram[2], datagram[3]]));
        }
        is_first
    }

    /// A receiver report and transport-wide feedback in one compound: all came just now, `frame` frames after the start.
    /// Then a NACK for packets that many back from the newest.
    pub fn report(&mut self, frame: u32, lost: &[u16]) -> Vec<u8> {
        let mut buf = vec![0; 1_400];
        let block = ReportBlock { ssrc: self.ssrc, highest_seq: self.highest.0.into(), ..ReportBlock::default() };
        let mut len = rtcp::write_receiver_report(&mut buf, 1, &[block]).expect("room for a report");
        // In units of 250 µs.
        let arrivals = vec![Some(i64::from(frame * FRAME_MS * 4)); self.since_report.into()];
        let (base, count) = (self.transport_seq, self.report_count);
        let feedback = rtcp::write_transport_feedback(&mut buf[len..1_300], 1, self.ssrc, base, count, &arrivals);
        len += feedback.map_or(0, |(len, _)| len);
        self.transport_seq = base.wrapping_add(self.since_report);
        self.report_count = count.wrapping_add(1);
        self.since_report = 0;
        if !lost.is_empty() {
            let lost = lost.iter().map(|back| Seq(self.highest.0.wrapping_sub(*back)));
            len += rtcp::write_nack(&mut buf[len..], 1, self.ssrc, lost).expect("room for a NACK");
        }
        let len = self.sealer.seal_rtcp(&mut buf, len);
        buf.truncate(len);
        buf
    }
}
