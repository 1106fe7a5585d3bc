//! AV1's temporal layers, which only dependency descriptors name, as a viewer gets them and as it limits them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rooms::batch::BatchPool;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, Event, ExtensionIds, LayerLimit, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec,
    UpTrackSpec, WorkerId,
};
use sim::media::l1t3;
use srtp::{Opener, Profile, Sealer, SessionKeys};
use wire::codec::Codec;
use wire::rtp::{HeaderWriter, RtpHeader, RtpPacket};
use wire::{Datagram, LinkId, Outbox, Path, Product, Seq};

const STREAM: StreamId = StreamId(1);
const PUBLISHER: SessionId = SessionId(1);
const VIEWER: SessionId = SessionId(2);
const PROFILE: Profile = Profile::AeadAes128Gcm;
/// The id of the dependency descriptor, to the publisher and to the viewer.
const UP_ID: u8 = 12;
const DOWN_ID: u8 = 5;
const FRAME: Duration = Duration::from_millis(33);
/// The templates of L1T3's frames behind the keyframe: 1 is layer 0, 2 is layer 1, 3 is layer 2.
const PATTERN: [u8; 4] = [3, 2, 3, 1];

#[test]
fn a_viewer_gets_the_temporal_layers_that_it_asked_for_with_their_descriptors() {
    let mut world = World::new();
    assert_eq!(world.publish(&[0]), [0]);
    assert_eq!(world.publish(&PATTERN), PATTERN);

    world.limit(0);
    assert_eq!(world.publish(&PATTERN), [1]);
    world.limit(1);
    assert_eq!(world.publish(&[3, 2, 3]), [0; 0], "layer 1 is not open before the next frame of layer 0");
    assert_eq!(world.publish(&[1, 3, 2, 3]), [1, 2]);
    world.limit(u8::MAX);
    assert_eq!(world.publish(&PATTERN), [2, 3, 1], "layer 1 opens layer 2 to who gets it");
    assert_eq!(world.publish(&PATTERN), PATTERN);
    assert_eq!(world.packets_without_layer(), 0);
}

#[test]
fn frames_whose_structure_is_missing_are_all_sent_and_counted() {
    let mut world = World::new();
    world.publish(&[0]);
    world.limit(0);
    world.publish(&[1]);
    // Templates of a structure that never came.
    assert_eq!(world.publish(&[23, 22, 23, 21]), [23, 22, 23, 21]);
    assert_eq!(world.packets_without_layer(), 4);
    // Its keyframe comes after all.
    world.offset = 20;
    assert_eq!(world.publish(&[20, 23, 22, 23, 21]), [20, 21]);
}

#[test]
fn the_frame_numbers_of_a_publisher_that_returns_go_on_behind_those_before() {
    let mut world = World::new();
    world.frame = u16::MAX - 3;
    world.publish(&[0, 1, 1, 1, 1, 1]);
    world.replace_publisher();
    world.frame = 40_000;
    assert_eq!(world.publish(&[0, 3, 2, 3, 1]), [0, 3, 2, 3, 1]);
    let steps = world.frames_seen.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    assert_eq!(steps.collect::<Vec<_>>(), [1, 1, 1, 1, 1, 64, 1, 1, 1, 1], "{:?}", world.frames_seen);
}

struct World {
    now: Instant,
    rooms: Rooms,
    out: Outbox,
    sealer: Sealer,
    opener: Opener,
    seq: u64,
    frame: u16,
    /// The first template id of the next structure.
    offset: u8,
    /// The frame numbers that came to the viewer.
    frames_seen: Vec<u16>,
}

fn publishes() -> UpTrackSpec {
    UpTrackSpec {
        track: 0,
        mid: "0".into(),
        payload_type: 45,
        rtx_payload_type: None,
        red_payload_type: None,
        ssrcs: vec![(7, None)],
        other_ssrcs: Vec::new(),
        extensions: ExtensionIds { dependency_descriptor: Some(UP_ID), ..ExtensionIds::default() },
    }
}

fn path(port: u16) -> Path {
    Path { link: LinkId::datagrams(port.into()), remote: SocketAddr::from(([192, 0, 2, 1], port)), local: None }
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let settings = Settings::new(1, (now, 100 << 32));
        let mut rooms = Rooms::new(now, WorkerId(0), settings, BatchPool::new(1));
        let mut out = Outbox::new(64 * 1_024);
        let (up, up_there) = SessionKeys::made_up_pair(PROFILE, 1);
        let (down, down_there) = SessionKeys::made_up_pair(PROFILE, 2);
        let video = TrackSpec { codec: Codec::Av1, profile: Default::default(), rids: Vec::new() };
        let watches = DownTrackSpec {
            track: 0,
            mid: "0".into(),
            ssrc: 8,
            payload_type: 41,
            rtx: None,
            red: None,
            extensions: ExtensionIds { dependency_descriptor: Some(DOWN_ID), ..ExtensionIds::default() },
        };
        let peer = |session, path, keys| PeerSpec { session, path, keys, cname: None };
        for command in [
            Command::OpenStream(StreamSpec { id: STREAM, tracks: vec![video] }),
            Command::AddSession(peer(PUBLISHER, path(1), up_there)),
            Command::Publish { session: PUBLISHER, stream: STREAM, tracks: vec![publishes()] },
            Command::AddSession(peer(VIEWER, path(2), down_there)),
            Command::Watch { session: VIEWER, stream: STREAM, tracks: vec![watches] },
        ] {
            rooms.handle_command(now, command, &mut out);
        }
        let (sealer, opener) = (Sealer::new(&up).expect("keys"), Opener::new(&down).expect("keys"));
        World { now, rooms, out, sealer, opener, seq: 1 << 16, frame: 0, offset: 0, frames_seen: Vec::new() }
    }

    fn replace_publisher(&mut self) {
        let (up, keys) = SessionKeys::made_up_pair(PROFILE, 3);
        self.sealer = Sealer::new(&up).expect("keys");
        let session = SessionId(3);
        for command in [
            Command::AddSession(PeerSpec { session, path: path(1), keys, cname: None }),
            Command::Publish { session, stream: STREAM, tracks: vec![publishes()] },
        ] {
            self.rooms.handle_command(self.now, command, &mut self.out);
        }
        self.seq = 1 << 16;
    }

    fn limit(&mut self, temporal_max: u8) {
        let layers = LayerLimit { temporal_max, ..LayerLimit::NONE };
        self.rooms.handle_command(self.now, Command::Limit { session: VIEWER, layers }, &mut self.out);
    }

    /// Sends frames of these templates, a packet each, and returns the templates of those that the viewer gets. The
    /// first template of a structure is a keyframe's.
    fn publish(&mut self, templates: &[u8]) -> Vec<u8> {
        let mut arrived = Vec::new();
        for template in templates {
            let mut datagram = self.packet(*template);
            let datagram = Datagram { path: path(1), data: &mut datagram };
            self.rooms.handle_datagram(self.now, datagram, &mut self.out);
            self.rooms.poll_transmit(self.now, &mut self.out);
            arrived.extend(self.receive());
            self.now += FRAME;
            self.rooms.handle_timeout(self.now, &mut self.out);
        }
        arrived
    }

    fn packet(&mut self, template: u8) -> Vec<u8> {
        (self.seq, self.frame) = (self.seq + 1, self.frame.wrapping_add(1));
        let timestamp = self.seq as u32 * 3_000;
        let header = RtpHeader { payload_type: 45, marker: true, seq: Seq(self.seq as u16), timestamp, ssrc: 7 };
        let mut packet = vec![0; 200];
        let mut writer = HeaderWriter::new(&mut packet, &header).expect("room");
        let [high, low] = self.frame.to_be_bytes();
        let is_key = template == self.offset;
        let structure = if is_key { l1t3(self.offset) } else { Vec::new() };
        assert!(writer.extension(UP_ID, &[&[0xc0 | template, high, low], &structure[..]].concat()));
        let header_len = writer.finish();
        // W = 1, N in keyframes; then a frame OBU.
        packet[header_len..header_len + 3].copy_from_slice(&[if is_key { 0x18 } else { 0x10 }, 0x30, template]);
        let plain_len = header_len + 3;
        packet.truncate(plain_len + self.sealer.rtp_overhead());
        let len = self.sealer.seal_rtp(&mut packet, header_len, plain_len, 7, self.seq);
        packet.truncate(len);
        packet
    }

    /// The templates of the packets that were sent to the viewer, whose payloads must be the same frames'.
    fn receive(&mut self) -> Vec<u8> {
        let mut templates = Vec::new();
        for (_, datagram) in self.out.datagrams().filter(|(to, _)| to.remote == path(2).remote) {
            let mut packet = datagram.to_vec();
            if packet[1] & 0x7f != 41 {
                continue;
            }
            let len = self.opener.open_rtp(&mut packet).expect("authentic");
            let packet = RtpPacket::parse(&packet[..len]).expect("RTP");
            let descriptor = packet.extension(DOWN_ID).expect("a descriptor");
            let template = descriptor[0] & 0x3f;
            assert_eq!(packet.payload().last(), Some(&template));
            assert_eq!(descriptor.len() > 3, template.is_multiple_of(10), "a keyframe has its structure");
            self.frames_seen.push(u16::from_be_bytes([descriptor[1], descriptor[2]]));
            templates.push(template);
        }
        self.out.clear();
        templates
    }

    fn packets_without_layer(&mut self) -> u64 {
        let inspect = Command::Inspect { session: PUBLISHER, token: 1 };
        self.rooms.handle_command(self.now, inspect, &mut self.out);
        let events = std::iter::from_fn(|| self.rooms.poll_event());
        let mut stats = events.filter_map(|event| match event {
            Event::Stats { stats, .. } => stats,
            _ => None,
        });
        stats.next().expect("statistics").packets_without_layer
    }
}
