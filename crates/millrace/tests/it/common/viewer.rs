//! A viewer that decrypts and keeps all that it gets.

use webrtc::{Direction, Media, OfferOptions};
use wire::Seq;
use wire::codec::Codec;
use wire::rtp::{self, Kind, RtpPacket};

use super::{Client, Publisher, Server, Way};

pub struct Viewer {
    pub client: Client,
    pub media: Media,
    /// Media packets in the order of their arrival.
    pub received: Vec<Received>,
    /// Retransmissions: the original's number and its payload.
    pub repaired: Vec<(Seq, Vec<u8>)>,
    /// Drops arriving media packets when their place in the order of arrival, from 0 on, is among these, as a bad network
    /// would.
    pub loses: fn(usize) -> bool,
    /// What was dropped so.
    pub lost: Vec<Seq>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub seq: Seq,
    pub timestamp: u32,
    pub marker: bool,
    pub payload: Vec<u8>,
}

impl Viewer {
    pub fn join(server: &Server, stream: &str, way: Way) -> Self {
        let video = [Codec::Vp8];
        let options =
            OfferOptions { direction: Direction::Receive, audio: false, video: &video, rids: &[], stream, tcp: false };
        let client = Client::join(server, &format!("/whep/{stream}"), way, &options);
        let media = client.media[0].clone();
        Viewer { client, media, received: Vec::new(), repaired: Vec::new(), loses: |_| false, lost: Vec::new() }
    }

    pub fn pump(&mut self) {
        self.client.pump();
        while let Some(mut datagram) = self.client.next_media() {
            let link = self.client.link.as_mut().expect("media comes after the keys");
            if rtp::classify(&datagram) == Kind::Rtcp {
                link.opener.open_rtcp(&mut datagram).expect("RTCP of the server");
                continue;
            }
            let len = link.opener.open_rtp(&mut datagram).expect("a packet of the server, for the first time");
            self.take(&RtpPacket::parse(&datagram[..len]).expect("well-formed RTP"));
        }
    }

    fn take(&mut self, packet: &RtpPacket<'_>) {
        let (ssrc, rtx_ssrc) = self.media.rx[0];
        let (seq, payload) = (packet.seq(), packet.payload());
        if Some(packet.ssrc()) == rtx_ssrc {
            // RFC 4588 §4: the original's number stands before the payload.
            let (original, payload) = payload.split_first_chunk().expect("a number");
            self.repaired.push((Seq(u16::from_be_bytes(*original)), payload.to_vec()));
            return;
        }
        assert_eq!(packet.ssrc(), ssrc, "the answer names the SSRC");
        assert_eq!(packet.payload_type(), self.media.payload_type);
        if (self.loses)(self.received.len() + self.lost.len()) {
            self.lost.push(seq);
            return;
        }
        let (timestamp, marker) = (packet.timestamp(), packet.marker());
        self.received.push(Received { seq, timestamp, marker, payload: payload.to_vec() });
    }

    /// Puts what came late, as a repair or by another way, where it belongs.
    pub fn sort(&mut self) {
        let first = self.received.first().expect("packets came").seq;
        self.received.sort_by_key(|packet| first.distance_to(packet.seq));
    }

    /// Asserts that what came from `from` on is all that `publisher` sent since its first packet here: the same bytes, in
    /// order, numbered without a hole, and beginning with a keyframe.
    pub fn assert_whole(&self, from: usize, publisher: &Publisher) {
        let received = &self.received[from..];
        let first = received.first().expect("packets came");
        let start = publisher.sent.iter().position(|sent| sent.payload == first.payload).expect("one that was sent");
        let sent = &publisher.sent[start..];
        assert!(sent[0].starts_keyframe, "the first packet starts a keyframe");
        assert_eq!(received.len(), sent.len(), "all packets since the first came, each once");
        for (index, (one, other)) in received.iter().zip(sent).enumerate() {
            let expected = Received {
                seq: Seq(first.seq.0.wrapping_add(index as u16)),
                timestamp: first.timestamp.wrapping_add(other.timestamp.wrapping_sub(sent[0].timestamp)),
                marker: other.marker,
                payload: other.payload.clone(),
            };
            assert_eq!(*one, expected, "packet {index} of {}", received.len());
        }
    }
}
