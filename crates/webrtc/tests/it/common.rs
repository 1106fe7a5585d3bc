//! Two peers and a clock, joined by a network that may lose datagrams.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use srtp::SessionKeys;
use webrtc::{
    AnswerOptions, Candidate, ChannelEvent, Context, Direction, EndReason, Negotiated, OfferOptions, Output, Peer,
    Purpose, Remote,
};
use wire::codec::Codec;

pub const VIDEO: [Codec; 5] = [Codec::Vp8, Codec::Vp9, Codec::H264, Codec::H265, Codec::Av1];
pub const ALL: [Codec; 6] = [Codec::Opus, Codec::Vp8, Codec::Vp9, Codec::H264, Codec::H265, Codec::Av1];
pub const TRACKS: [Codec; 2] = [Codec::Opus, Codec::Vp8];
pub const WATCH: OfferOptions<'static> =
    OfferOptions { direction: Direction::Receive, audio: true, video: &VIDEO, rids: &[], stream: "test", tcp: false };
pub const PUBLISH: OfferOptions<'static> = OfferOptions { direction: Direction::Send, ..WATCH };
pub const TO_SEND: Purpose<'static> =
    Purpose::Send { tracks: &TRACKS, profiles: &[], chosen: &[], stream: "test", transport_cc: true };
pub const TO_RECEIVE: Purpose<'static> = Purpose::Receive { codecs: &ALL };

pub fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn udp(text: &str) -> Candidate {
    Candidate { addr: addr(text), tcp: false }
}

pub struct Side {
    pub peer: Peer,
    /// How the other side sees us.
    pub remote: Remote,
    pub connected: Option<(SessionKeys, Remote)>,
    pub ended: Option<EndReason>,
    pub moves: Vec<Remote>,
    pub channels: Vec<ChannelEvent>,
    pub deadline: Instant,
    pub sent: Vec<Vec<u8>>,
}

impl Side {
    fn new(peer: Peer, now: Instant, remote: Remote) -> Self {
        Side {
            peer,
            remote,
            connected: None,
            ended: None,
            moves: Vec::new(),
            channels: Vec::new(),
            deadline: now,
            sent: Vec::new(),
        }
    }

    /// Everything that the peer wants sent now.
    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        loop {
            match self.peer.poll() {
                Output::Transmit { data, .. } => {
                    self.sent.push(data.to_vec());
                    datagrams.push(data.to_vec());
                }
                Output::Connected { keys, remote } => assert!(self.connected.replace((keys, remote)).is_none()),
                Output::PathChanged(remote) => self.moves.push(remote),
                Output::Channel(event) => self.channels.push(event),
                Output::Ended(reason) => assert!(self.ended.replace(reason).is_none()),
                Output::Timeout(at) => {
                    self.deadline = at;
                    return datagrams;
                }
            }
        }
    }
}

pub struct Pair {
    pub server: Side,
    pub client: Side,
    pub answer: Negotiated,
    pub accepted: Negotiated,
    pub now: Instant,
    /// Share of datagrams that get lost, in percent.
    pub loss_percent: u64,
    random: u64,
}

impl Pair {
    pub fn new(offer: &OfferOptions<'_>, purpose: Purpose<'_>) -> Pair {
        let now = Instant::now();
        let candidates =
            [udp("127.0.0.1:7000"), Candidate { addr: addr("127.0.0.1:7001"), tcp: true }, udp("[::1]:7000")];
        let candidates = if offer.tcp { &candidates[1..2] } else { &candidates[..1] };
        let (mut client, text) = Peer::offer(&Context::new().unwrap(), now, offer).unwrap();
        let options = AnswerOptions { purpose, candidates };
        let (server, answer) = Peer::answer(&Context::new().unwrap(), now, &text, &options).unwrap();
        let accepted = client.accept_answer(&answer.sdp).unwrap();
        let server_at = Remote { addr: candidates[0].addr, tcp: offer.tcp };
        let client_at = Remote { addr: addr("127.0.0.1:9000"), tcp: offer.tcp };
        Pair {
            server: Side::new(server, now, server_at),
            client: Side::new(client, now, client_at),
            answer,
            accepted,
            now,
            loss_percent: 0,
            random: 1,
        }
    }

    pub fn connected(offer: &OfferOptions<'_>, purpose: Purpose<'_>) -> Pair {
        let mut pair = Pair::new(offer, purpose);
        pair.run_until(Duration::from_secs(10), Pair::is_connected);
        assert!(pair.is_connected(), "{:?} {:?}", pair.server.ended, pair.client.ended);
        pair
    }

    pub fn with_seed(mut self, loss_percent: u64, seed: u64) -> Pair {
        self.loss_percent = loss_percent;
        self.random = seed | 1;
        self
    }

    pub fn is_connected(&self) -> bool {
        self.server.connected.is_some() && self.client.connected.is_some()
    }

    /// Lets time pass until `done`, for at most `limit`.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Pair) -> bool) {
        let end = self.now + limit;
        while self.now < end && !done(self) {
            self.exchange();
            let next = self.server.deadline.min(self.client.deadline).min(end);
            self.now = next.max(self.now + Duration::from_millis(1));
            self.server.peer.handle_timeout(self.now);
            self.client.peer.handle_timeout(self.now);
        }
        self.exchange();
    }

    fn exchange(&mut self) {
        for _ in 0..100 {
            let (to_client, to_server) = (self.server.drain(), self.client.drain());
            if to_client.is_empty() && to_server.is_empty() {
                return;
            }
            for data in to_client {
                if !self.is_lost() {
                    let _ = self.client.peer.handle_datagram(self.now, self.server.remote, &data);
                }
            }
            for data in to_server {
                if !self.is_lost() {
                    let _ = self.server.peer.handle_datagram(self.now, self.client.remote, &data);
                }
            }
        }
        panic!("the peers never come to rest");
    }

    fn is_lost(&mut self) -> bool {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < self.loss_percent
    }
}
