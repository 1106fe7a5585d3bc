//! A publisher of made-up VP8 video that remembers what it sent.

use std::time::{Duration, Instant};

use client::{Packet, Source};
use webrtc::{Direction, OfferOptions};
use wire::Seq;
use wire::codec::Codec;
use wire::rtcp;

use super::{Client, Server, Viewer, Way};

pub struct Publisher {
    pub client: Client,
    source: Source,
    /// Everything that was sent, in order.
    pub sent: Vec<SentPacket>,
    /// The last datagram as it went out, sealed.
    pub last_datagram: Vec<u8>,
    /// Packets whose index is among these never reach the network.
    pub loses: fn(usize) -> bool,
    /// Packets that were sent again because the server asked for them.
    pub resent: usize,
    pub keyframe_requests: usize,
    /// When the last keyframe was sent.
    pub keyframe_at: Instant,
    frame: u32,
    wants_keyframe: bool,
    next_at: Instant,
    /// Differs between publishers, so that their payloads do.
    id: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    pub payload: Vec<u8>,
    pub timestamp: u32,
    pub marker: bool,
    pub starts_keyframe: bool,
}

const FRAME_INTERVAL: Duration = Duration::from_millis(20);
const FRAME_TICKS: u32 = 1_800;

/// Extended sequence number of the first packet: numbers wrap soon.
const FIRST_SEQ: u64 = (1 << 16) + 65_400;

/// Payload sizes of a frame's packets: near enough to be evened out, but for the last.
const PACKET_SIZES: [usize; 4] = [1_000, 999, 970, 300];

impl SentPacket {
    fn to_rtp(&self) -> Packet<'_> {
        let SentPacket { timestamp, marker, .. } = *self;
        Packet { timestamp, marker, extensions: &[], payload: &self.payload }
    }
}

impl Publisher {
    pub fn join(server: &Server, stream: &str, way: Way, id: u8) -> Self {
        let video = [Codec::Vp8];
        let options =
            OfferOptions { direction: Direction::Send, audio: false, video: &video, rids: &[], stream, tcp: false };
        let client = Client::join(server, &format!("/whip/{stream}"), way, &options);
        Publisher {
            source: Source::new(&client.media[0], 0, FIRST_SEQ).expect("a stream"),
            client,
            sent: Vec::new(),
            last_datagram: Vec::new(),
            loses: |_| false,
            resent: 0,
            keyframe_requests: 0,
            keyframe_at: Instant::now(),
            frame: 0,
            wants_keyframe: true,
            next_at: Instant::now(),
            id,
        }
    }

    /// Takes part; sends a frame when one is due.
    pub fn pump(&mut self) {
        self.listen();
        if Instant::now() >= self.next_at {
            self.next_at = Instant::now() + FRAME_INTERVAL;
            self.send_frame();
        }
    }

    /// Takes part without sending media.
    pub fn listen(&mut self) {
        self.client.pump();
        while let Some(mut datagram) = self.client.next_media() {
            let link = self.client.link.as_mut().expect("media comes after the keys");
            let len = link.opener.open_rtcp(&mut datagram).expect("RTCP of the server");
            for packet in rtcp::packets(&datagram[..len]).expect("well-formed RTCP") {
                match packet {
                    rtcp::Packet::Pli { .. } => {
                        self.keyframe_requests += 1;
                        self.wants_keyframe = true;
                    }
                    rtcp::Packet::Nack(nack) => nack.lost().for_each(|seq| self.send_again(seq)),
                    _ => {}
                }
            }
        }
    }

    pub fn send_frame(&mut self) {
        let is_keyframe = std::mem::take(&mut self.wants_keyframe);
        if is_keyframe {
            self.keyframe_at = Instant::now();
        }
        for (index, size) in PACKET_SIZES.into_iter().enumerate() {
            // VP8: the S bit of the descriptor, then the P bit of the frame, which is 0 in keyframes (RFC 7741 §4).
            let mut payload = vec![self.frame as u8 ^ index as u8; size];
            payload[0] = if index == 0 { 0x10 } else { 0 };
            payload[1] = u8::from(!is_keyframe);
            payload[2] = self.id;
            payload[3..7].copy_from_slice(&(self.sent.len() as u32).to_be_bytes());
            let timestamp = self.frame.wrapping_mul(FRAME_TICKS);
            let marker = index + 1 == PACKET_SIZES.len();
            self.send(SentPacket { payload, timestamp, marker, starts_keyframe: is_keyframe && index == 0 });
        }
        self.frame += 1;
    }

    fn send(&mut self, packet: SentPacket) {
        let index = self.sent.len();
        let mut buf = [0; 1_500];
        let link = self.client.link.as_ref().expect("keys");
        let len = self.source.write(&mut buf, &packet.to_rtp(), &link.sealer).expect("room");
        self.last_datagram = buf[..len].to_vec();
        self.sent.push(packet);
        if !(self.loses)(index) {
            self.client.socket.send(&self.last_datagram);
        }
    }

    /// Answers a NACK.
    fn send_again(&mut self, seq: Seq) {
        let next = Seq(self.source.seq() as u16);
        let back = seq.distance_to(next) as usize;
        let packet = self.sent[self.sent.len() - back].to_rtp();
        let mut buf = [0; 1_500];
        let link = self.client.link.as_ref().expect("keys");
        let len = self.source.write_again(&mut buf, seq, &packet, &link.sealer).expect("room, and RTX is negotiated");
        self.client.socket.send(&buf[..len]);
        self.resent += 1;
    }

    /// Publishes until each viewer has got `count` more packets.
    pub fn play(&mut self, viewers: &mut [&mut Viewer], count: usize) {
        let wanted: Vec<usize> = viewers.iter().map(|viewer| viewer.received.len() + count).collect();
        super::wait_until("all viewers get their packets", || {
            self.pump();
            viewers.iter_mut().for_each(|viewer| viewer.pump());
            viewers.iter().zip(&wanted).all(|(viewer, wanted)| viewer.received.len() >= *wanted)
        });
    }

    /// Sends nothing more, and waits until each viewer has all that was sent.
    pub fn finish(&mut self, viewers: &mut [&mut Viewer]) {
        let last = self.sent.last().expect("something was sent").payload.clone();
        super::wait_until("all viewers get the last packet", || {
            self.listen();
            viewers.iter_mut().for_each(|viewer| viewer.pump());
            // A repair may have come after it.
            let has_it = |viewer: &Viewer| viewer.received.iter().rev().take(100).any(|packet| packet.payload == last);
            viewers.iter().all(|viewer| has_it(viewer))
        });
    }
    /// Sends nothing more, and waits until each viewer has all that was sent since its first packet, which it puts in order:
    /// repairs come after what was sent later.
    pub fn finish_with_repairs(&mut self, viewers: &mut [&mut Viewer]) {
        super::wait_until("all viewers get all packets", || {
            self.listen();
            viewers.iter_mut().for_each(|viewer| viewer.pump());
            let has_all = |viewer: &Viewer| {
                let first = viewer.received.first().expect("packets came");
                let start = self.sent.iter().position(|sent| sent.payload == first.payload).expect("one that was sent");
                viewer.received.len() >= self.sent.len() - start
            };
            viewers.iter().all(|viewer| has_all(viewer))
        });
        viewers.iter_mut().for_each(|viewer| viewer.sort());
    }
}
