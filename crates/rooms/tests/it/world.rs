//! One worker's rooms with sessions of made-up keys, on a clock that stands. What is sent has arrived.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use rooms::batch::BatchPool;
use rooms::pacer::Burst;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{Command, DownTrackSpec, Event, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, WorkerId};
use sim::bare::{Source, path, up_track};
use srtp::{Profile, SessionKeys};
use wire::codec::Codec;
use wire::rtp::{Kind, RtpPacket, classify};
use wire::{Bitrate, Datagram, LinkEvent, Outbox, Product, Token};

/// Packets of a frame.
pub const PACKETS: usize = 3;

pub struct World {
    pub now: Instant,
    pub rooms: Rooms,
    pub out: Outbox,
    sources: HashMap<SessionId, Source>,
}

/// The peer's half of a session's keys, and ours.
pub fn keys(session: SessionId) -> (SessionKeys, SessionKeys) {
    SessionKeys::made_up_pair(Profile::AeadAes128Gcm, session.0 as u8)
}

/// Where a session's peer is.
pub fn addr(session: SessionId) -> SocketAddr {
    path(1 + (session.0 / 50_000) as u8, 1_000 + (session.0 % 50_000) as u16).remote
}

/// A media packet, as who gets it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    pub ssrc: u32,
    pub seq: u16,
    pub transport_number: Option<u16>,
}

/// The media packets that went to a session, in their order.
pub fn media_to(session: SessionId, sent: &[(SocketAddr, Vec<u8>)]) -> Vec<Media> {
    let media = sent.iter().filter(|(to, data)| *to == addr(session) && classify(data) == Kind::Rtp);
    let parsed = media.map(|(_, data)| {
        let header = RtpPacket::parse_header(data).expect("a header");
        let number = header.extension(3).and_then(|value| value.first_chunk().copied());
        Media { ssrc: header.ssrc(), seq: header.seq().0, transport_number: number.map(u16::from_be_bytes) }
    });
    parsed.collect()
}

impl World {
    /// A worker that knows `streams`, of one VP8 track each.
    pub fn new(streams: &[StreamId]) -> Self {
        World::with(streams, |_| ())
    }

    /// The same with other settings.
    pub fn with(streams: &[StreamId], change: impl FnOnce(&mut Settings)) -> Self {
        let now = Instant::now();
        // Where no time passes nothing is paced.
        let burst = Burst { packets: 64, rate_min: Bitrate::from_kbps(1_000_000_000) };
        let mut settings = Settings { burst, ..Settings::new(1, (now, 100 << 32)) };
        change(&mut settings);
        let rooms = Rooms::new(now, WorkerId(0), settings, BatchPool::new(1));
        let mut world = World { now, rooms, out: Outbox::new(512 * 1_024), sources: HashMap::new() };
        for id in streams {
            let track = TrackSpec { codec: Codec::Vp8, profile: Default::default(), rids: Vec::new() };
            world.command(Command::OpenStream(StreamSpec { id: *id, tracks: vec![track] }));
        }
        world
    }

    /// What control has to know, but for stories.
    pub fn poll_event(&mut self) -> Option<Event> {
        std::iter::from_fn(|| self.rooms.poll_event()).find(|event| !matches!(event, Event::StoryEnded { .. }))
    }

    pub fn command(&mut self, command: Command) {
        self.rooms.handle_command(self.now, command, &mut self.out);
    }

    pub fn add_session(&mut self, session: SessionId) {
        let peer_path = wire::Path { remote: addr(session), ..path(0, 0) };
        self.command(Command::AddSession(PeerSpec { session, path: peer_path, keys: keys(session).1, cname: None }));
    }

    /// A session that stays.
    pub fn add_member(&mut self, session: SessionId) {
        let peer_path = wire::Path { remote: addr(session), ..path(0, 0) };
        self.command(Command::AddMember(PeerSpec { session, path: peer_path, keys: keys(session).1, cname: None }));
    }

    /// A TCP connection begins.
    pub fn open(&mut self, path: wire::Path) {
        let opened = LinkEvent::Opened { link: path.link, local: path.remote, remote: Some(path.remote) };
        self.rooms.handle_link(self.now, Token::default(), opened, &mut self.out);
    }

    /// The session publishes the stream.
    pub fn publish(&mut self, session: SessionId, stream: StreamId) {
        self.sources.insert(session, Source::new(&keys(session).0).expect("keys that fit"));
        self.command(Command::Publish { session, stream, tracks: vec![up_track()] });
    }

    pub fn watch(&mut self, session: SessionId, stream: StreamId, track: DownTrackSpec) {
        self.command(Command::Watch { session, stream, tracks: vec![track] });
    }

    /// A frame arrives from a publisher; the first has to be a keyframe.
    pub fn frame(&mut self, publisher: SessionId, is_keyframe: bool) {
        for mut datagram in self.next_frame(publisher, is_keyframe) {
            self.receive(publisher, &mut datagram);
        }
    }

    /// A frame that a publisher has yet to send.
    pub fn next_frame(&mut self, publisher: SessionId, is_keyframe: bool) -> [Vec<u8>; PACKETS] {
        let source = self.sources.get_mut(&publisher).expect("a publisher");
        source.next_frame(PACKETS, is_keyframe).try_into().expect("so many packets")
    }

    /// A datagram arrives from a session's peer.
    pub fn receive(&mut self, from: SessionId, data: &mut [u8]) {
        let path = wire::Path { remote: addr(from), ..path(0, 0) };
        self.rooms.handle_datagram(self.now, Datagram { path, data }, &mut self.out);
    }

    /// What one turn of the rooms writes, and whether there is more.
    pub fn turn(&mut self) -> (Vec<(SocketAddr, Vec<u8>)>, bool) {
        let has_more = self.rooms.poll_transmit(self.now, &mut self.out);
        let sent = self.out.datagrams().map(|(path, datagram)| (path.remote, datagram.to_vec())).collect();
        self.out.clear();
        (sent, has_more)
    }

    /// Everything that the rooms have to send.
    pub fn drain(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut sent = Vec::new();
        loop {
            let (more, has_more) = self.turn();
            sent.extend(more);
            if !has_more {
                return sent;
            }
        }
    }
}
