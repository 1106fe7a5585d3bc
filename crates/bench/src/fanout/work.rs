//! What is sent: frames of one publisher, and the down tracks that each packet is written for.
//!
//! The work per packet and down track is that of the server: a header with two extensions, and the payload sealed on its
//! way from the shared frame into the datagram (`wire::rtp`, `srtp`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use srtp::{KeyError, Profile, Sealer, SessionKeys};
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{LinkId, Path, Seq};

use super::Args;

/// Fixed header, and one block with abs-send-time and the transport-wide sequence number.
const HEADER_LEN: usize = 24;

/// Frames that are sent in turn, so that the source is a log of recent packets and not one hot cache line.
const FRAMES: usize = 8;

const ABS_SEND_TIME_ID: u8 = 2;
const TRANSPORT_CC_ID: u8 = 3;
const PAYLOAD_TYPE: u8 = 96;

/// One frame's packets, all of one size, as the publisher sent them.
#[derive(Debug, Default)]
pub(super) struct Frame {
    payloads: Vec<u8>,
    payload_len: usize,
    pub(super) timestamp: u32,
    abs_send_time: [u8; 3],
}

impl Frame {
    pub(super) fn packet_count(&self) -> usize {
        self.payloads.len() / self.payload_len.max(1)
    }

    pub(super) fn payload(&self, packet: usize) -> &[u8] {
        &self.payloads[packet * self.payload_len..][..self.payload_len]
    }
}

/// Makes frames without end.
#[derive(Debug)]
pub(super) struct Source {
    frames: Vec<Frame>,
    count: u32,
}

impl Source {
    pub(super) fn new(args: &Args, profile: Profile) -> Self {
        let payload_len = args.size - HEADER_LEN - profile.rtp_overhead();
        let frames = (0..FRAMES).map(|frame| Frame {
            payloads: (0..args.burst * payload_len).map(|i| (i * 7 + frame) as u8).collect(),
            payload_len,
            ..Frame::default()
        });
        Source { frames: frames.collect(), count: 0 }
    }

    /// The next frame, a thirtieth of a second of the 90 kHz clock after the one before.
    pub(super) fn next_frame(&mut self) -> &Frame {
        self.count = self.count.wrapping_add(1);
        let frame = &mut self.frames[self.count as usize % FRAMES];
        frame.timestamp = self.count.wrapping_mul(3_000);
        let [_, abs_send_time @ ..] = self.count.wrapping_mul((1 << 18) / 30).to_be_bytes();
        frame.abs_send_time = abs_send_time;
        frame
    }
}

/// The smallest datagram that `Source` can fill.
pub(super) const DATAGRAM_LEN_MIN: usize = HEADER_LEN + 16 + 1;

/// One viewer's copy of the stream: a session with keys of its own, and where it goes.
pub(super) struct Track {
    pub(super) path: Path,
    pub(super) keys: SessionKeys,
    ssrc: u32,
    sealer: Sealer,
    /// Extended sequence number of the next packet. One thread at a time writes it, so a load and a store will do.
    next_seq: AtomicU64,
}

impl Track {
    pub(super) fn new(index: usize, remote: SocketAddr, profile: Profile) -> Result<Self, KeyError> {
        let (_, ours) = SessionKeys::made_up_pair(profile, index as u8);
        Ok(Track {
            path: Path { link: LinkId::datagrams(0), remote, local: None },
            ssrc: 1 + index as u32,
            sealer: Sealer::new(&ours)?,
            keys: ours,
            next_seq: AtomicU64::new(1 << 16),
        })
    }

    /// Writes the finished datagram for one packet of the frame and returns its length.
    #[inline]
    pub(super) fn write(&self, frame: &Frame, packet: usize, slot: &mut [u8]) -> usize {
        let seq = self.take_seq();
        let header = RtpHeader {
            payload_type: PAYLOAD_TYPE,
            marker: packet + 1 == frame.packet_count(),
            seq: Seq(seq as u16),
            timestamp: frame.timestamp,
            ssrc: self.ssrc,
        };
        let Some(mut writer) = HeaderWriter::new(slot, &header) else { return 0 };
        writer.extension(ABS_SEND_TIME_ID, &frame.abs_send_time);
        writer.extension(TRANSPORT_CC_ID, &(seq as u16).to_be_bytes());
        let header_len = writer.finish();
        self.sealer.seal_rtp_from(slot, header_len, frame.payload(packet), self.ssrc, seq)
    }

    /// Seals the packet under whatever stands in the slot as its header.
    #[inline]
    pub(super) fn seal(&self, frame: &Frame, packet: usize, slot: &mut [u8]) -> usize {
        self.sealer.seal_rtp_from(slot, HEADER_LEN, frame.payload(packet), self.ssrc, self.take_seq())
    }

    fn take_seq(&self) -> u64 {
        let seq = self.next_seq.load(Ordering::Relaxed);
        self.next_seq.store(seq + 1, Ordering::Relaxed);
        seq
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn datagrams_have_the_size_that_was_asked_for_and_open_at_the_viewer() {
        for profile in Profile::ALL {
            let mut source = Source::new(&Args::parse_from(["", "--size", "1200", "--burst", "3"]), profile);
            let track = Track::new(5, ([127, 0, 0, 1], 9).into(), profile).unwrap();
            let (viewer, _) = SessionKeys::made_up_pair(profile, 5);
            let mut opener = srtp::Opener::new(&viewer).unwrap();
            let frame = source.next_frame();
            assert_eq!(frame.packet_count(), 3);
            for packet in 0..3 {
                let mut slot = [0; 1_500];
                let len = track.write(frame, packet, &mut slot);
                assert_eq!(len, 1_200);
                let plain_len = opener.open_rtp(&mut slot[..len]).unwrap();
                assert_eq!(&slot[HEADER_LEN..plain_len], frame.payload(packet));
            }
        }
    }
}
