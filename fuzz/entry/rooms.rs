//! What the fuzz targets of the forwarding unit do with their bytes. Shared by the fuzz targets and by
//! `crates/rooms/tests`, which replays the corpora. Keys are known, so that the fuzzer reaches behind authentication.
//!
//! The bytes are records: what to do, two bytes of length, and the bytes to do it with.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rooms::batch::BatchPool;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, ExtensionIds, LayerLimit, PeerSpec, RedSpec, SessionId, StreamId, StreamSpec, TrackSpec,
    UpTrackSpec, WorkerId,
};
use srtp::{Opener, Profile, Sealer, SessionKeys, SrtpError};
use wire::codec::Codec;
use wire::rtcp::{self, ReportBlock};
use wire::rtp::{self, HeaderWriter, Kind, RtpHeader, RtpPacket};
use wire::{CloseReason, Datagram, LinkEvent, LinkId, Outbox, Path, Product, Seq, SeqExtender, Token};

/// Records of one input that are looked at.
const RECORDS_MAX: usize = 300;

fn records(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let next = move || {
        let [action, high, low, rest @ ..] = data else { return None };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (bytes, rest) = rest.split_at(rest.len().min(len));
        data = rest;
        Some((*action, bytes))
    };
    std::iter::from_fn(next).take(RECORDS_MAX)
}

/// The first byte chooses the profile. What was not sealed or was changed on the way must not open, what was sealed
/// opens once, as it was.
pub fn srtp(data: &[u8]) {
    let [which, rest @ ..] = data else { return };
    let profile = Profile::ALL[usize::from(*which) % Profile::ALL.len()];
    let (ours, theirs) = SessionKeys::made_up_pair(profile, 7);
    let (mut sealer, mut opener) = (Sealer::new(&ours).expect("keys"), Opener::new(&theirs).expect("keys"));
    let mut rtp_ssrcs = HashSet::new();
    for (action, bytes) in records(rest) {
        let parameter = action >> 4;
        match action % 8 {
            0 => assert!(opener.open_rtp(&mut bytes.to_vec()).is_err(), "nobody can guess a tag"),
            1 => assert!(opener.open_rtcp(&mut bytes.to_vec()).is_err(), "nobody can guess a tag"),
            2 | 3 => {
                let Ok(header) = RtpPacket::parse_header(bytes) else { continue };
                let seq = ((1 + u64::from(parameter)) << 16) + u64::from(header.seq().0);
                let sealed = seal_rtp(&sealer, bytes, seq).expect("a good header");
                if action % 8 == 3 {
                    let damaged = damaged(&sealed, bytes);
                    assert!(opener.open_rtp(&mut damaged.clone()).is_err(), "{damaged:?}");
                }
                let mut packet = sealed.clone();
                match opener.open_rtp(&mut packet) {
                    Ok(len) => {
                        assert_eq!(&packet[..len], bytes);
                        rtp_ssrcs.insert(header.ssrc());
                        assert_eq!(opener.open_rtp(&mut sealed.clone()), Err(SrtpError::Replayed));
                    }
                    // A first packet counts from 0 (RFC 3711 §3.3.1).
                    Err(error) => assert!(parameter > 0 || rtp_ssrcs.contains(&header.ssrc()), "{error}"),
                }
            }
            _ => {
                let Some(sealed) = seal_rtcp(&mut sealer, bytes) else { continue };
                if action % 2 == 1 {
                    let damaged = damaged(&sealed, bytes);
                    assert!(opener.open_rtcp(&mut damaged.clone()).is_err(), "{damaged:?}");
                }
                let mut packet = sealed.clone();
                match opener.open_rtcp(&mut packet) {
                    Ok(len) => {
                        assert_eq!(&packet[..len], bytes);
                        assert_eq!(opener.open_rtcp(&mut sealed.clone()), Err(SrtpError::Replayed));
                    }
                    Err(error) => assert!(bytes[0] >> 6 != 2, "{error}"),
                }
            }
        }
    }
}

fn seal_rtp(sealer: &Sealer, plain: &[u8], seq: u64) -> Option<Vec<u8>> {
    let header = RtpPacket::parse_header(plain).ok()?;
    let mut packet = plain.to_vec();
    packet.resize(plain.len() + sealer.rtp_overhead(), 0);
    let len = sealer.seal_rtp(&mut packet, header.header_len(), plain.len(), header.ssrc(), seq);
    assert_eq!(len, packet.len());
    Some(packet)
}

fn seal_rtcp(sealer: &mut Sealer, plain: &[u8]) -> Option<Vec<u8>> {
    let mut packet = plain.to_vec();
    packet.resize(plain.len() + sealer.rtcp_overhead(), 0);
    let len = sealer.seal_rtcp(&mut packet, plain.len());
    packet.truncate(len);
    (len > 0).then_some(packet)
}

/// One bit is another; which one the packet's last bytes say.
fn damaged(sealed: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut damaged = sealed.to_vec();
    let place = plain.iter().rev().take(3).fold(0, |place, byte| place << 8 | usize::from(*byte));
    damaged[place / 8 % sealed.len()] ^= 1 << (place % 8);
    damaged
}

/// Two workers, a publisher and a viewer on the first, a viewer on the second. The first byte chooses the codec, the
/// second the profile; records are datagrams of theirs and of strangers, time, and commands.
pub fn rooms(data: &[u8]) {
    let [codec, profile, rest @ ..] = data else { return };
    let mut world = World::new(*codec, *profile);
    world.turn();
    for (action, bytes) in records(rest) {
        world.act(action, bytes);
        world.turn();
    }
    world.pass(Duration::from_secs(1));
}

const STREAM: StreamId = StreamId(1);
/// So many ports belong to the publisher, and so many to each viewer.
const PORTS: u16 = 8;
const EXTENSIONS: ExtensionIds = ExtensionIds {
    mid: Some(1),
    rid: Some(2),
    repaired_rid: Some(3),
    transport_cc: Some(4),
    dependency_descriptor: Some(5),
    audio_level: Some(6),
    video_orientation: Some(8),
    playout_delay: Some(9),
    abs_send_time: Some(10),
    abs_capture_time: Some(11),
    color_space: Some(12),
    video_content_type: Some(13),
};

/// SSRC, payload type, MID, and the extension with the RID where there is one.
type Lane = (u32, u8, &'static [u8], Option<(u8, &'static [u8])>);

/// What the publisher sends.
const LANES: [Lane; 7] = [
    (0x11, 111, b"0", None),
    (0x21, 96, b"1", Some((2, b"q"))),
    (0x22, 96, b"1", Some((2, b"h"))),
    (0x31, 98, b"2", None),
    (0x41, 97, b"1", Some((3, b"q"))),
    (0x32, 99, b"2", None),
    (0x11, 63, b"0", None),
];

struct World {
    now: Instant,
    workers: [Rooms; 2],
    out: Outbox,
    profile: Profile,
    codec: Codec,
    publisher: Party,
    viewers: [Party; 2],
    lanes: [u64; LANES.len()],
    timestamp: u32,
    sessions: u64,
}

/// A peer's end of its session.
struct Party {
    session: SessionId,
    path: Path,
    sealer: Sealer,
    opener: Opener,
    /// Of what the publisher sends or a viewer gets, by SSRC.
    seqs: HashMap<u32, SeqExtender>,
    /// What came, by SSRC and number, and the newest number by SSRC.
    received: HashSet<(u32, u64)>,
    newest: HashMap<u32, u16>,
    feedback_count: u8,
}

impl Party {
    /// The peer, and what the server knows of it.
    fn new(session: u64, profile: Profile, port: u16) -> (Party, PeerSpec) {
        let (ours, theirs) = SessionKeys::made_up_pair(profile, session as u8);
        let (sealer, opener) = (Sealer::new(&ours).expect("keys"), Opener::new(&ours).expect("keys"));
        let (session, path) = (SessionId(session), path(port));
        let (seqs, received, newest) = (HashMap::new(), HashSet::new(), HashMap::new());
        let party = Party { session, path, sealer, opener, seqs, received, newest, feedback_count: 0 };
        (party, PeerSpec { session, path, keys: theirs, cname: None })
    }

    /// Takes what was sent to it: it must be authentic, and no number may come twice, which would break GCM.
    fn receive(&mut self, datagram: &[u8]) {
        let mut packet = datagram.to_vec();
        match rtp::classify(datagram) {
            Kind::Rtp => {
                let header = RtpPacket::parse_header(datagram).expect("RTP").header();
                let seq = self.seqs.entry(header.ssrc).or_default().extend(header.seq);
                assert!(self.received.insert((header.ssrc, seq)), "{header:?} came twice");
                match self.opener.open_rtp(&mut packet) {
                    Ok(len) => {
                        RtpPacket::parse(&packet[..len]).expect("RTP");
                        self.newest.insert(header.ssrc, header.seq.0);
                    }
                    // It came too late for the window of this opener.
                    Err(SrtpError::Replayed) => {}
                    Err(error) => panic!("{header:?}: {error}"),
                }
            }
            Kind::Rtcp => {
                let len = self.opener.open_rtcp(&mut packet).expect("authentic RTCP");
                let is_good = |packet| !matches!(packet, rtcp::Packet::Malformed);
                assert!(rtcp::packets(&packet[..len]).expect("RTCP").all(is_good));
            }
            kind => panic!("{kind:?} goes out"),
        }
    }
}

fn path(port: u16) -> Path {
    Path { link: LinkId::datagrams(port.into()), remote: SocketAddr::from(([192, 0, 2, 1], port)), local: None }
}

impl World {
    fn new(codec: u8, profile: u8) -> Self {
        let now = Instant::now();
        let pool = BatchPool::new(4);
        let settings = Settings::new(1, (now, 100 << 32));
        let workers = [0, 1].map(|number| Rooms::new(now, WorkerId(number), settings.clone(), pool.clone()));
        let codecs = [Codec::Vp8, Codec::Vp9, Codec::H264, Codec::H265, Codec::Av1];
        let codec = codecs[usize::from(codec) % codecs.len()];
        let profile = Profile::ALL[usize::from(profile) % Profile::ALL.len()];
        let viewers = [1, 2].map(|number| Party::new(number, profile, number as u16 * PORTS).0);
        let publisher = Party::new(0, profile, 0).0;
        let lanes = [(1 << 16) + 65_530; LANES.len()];
        let out = Outbox::new(64 * 1_024);
        let mut world =
            World { now, workers, out, profile, codec, publisher, viewers, lanes, timestamp: 0, sessions: 2 };
        world.open();
        world
    }

    fn open(&mut self) {
        for worker in 0..2 {
            let video = TrackSpec { codec: self.codec, profile: Default::default(), rids: Vec::new() };
            let simulcast = TrackSpec { rids: vec!["q".into(), "h".into()], ..video.clone() };
            let audio = TrackSpec { codec: Codec::Opus, profile: Default::default(), rids: Vec::new() };
            let spec = StreamSpec { id: STREAM, tracks: vec![audio, simulcast, video] };
            self.command(worker, Command::OpenStream(spec));
        }
        self.add_publisher();
        self.command(0, Command::Mirror { stream: STREAM, to: WorkerId(1), on: true });
        (0..2).for_each(|viewer| self.add_viewer(viewer));
    }

    fn command(&mut self, worker: usize, command: Command) {
        self.workers[worker].handle_command(self.now, command, &mut self.out);
    }

    fn add_publisher(&mut self) {
        self.sessions += 1;
        let (party, peer) = Party::new(self.sessions, self.profile, 0);
        self.publisher = party;
        let track = |track: u8, payload_type, ssrcs: &[(u32, Option<u32>)]| UpTrackSpec {
            track,
            mid: track.to_string().into(),
            payload_type,
            rtx_payload_type: (track > 0).then_some(payload_type + 1),
            red_payload_type: (track == 0).then_some(63),
            ssrcs: ssrcs.to_vec(),
            other_ssrcs: Vec::new(),
            extensions: EXTENSIONS,
        };
        let tracks = vec![track(0, 111, &[(0x11, None)]), track(1, 96, &[]), track(2, 98, &[(0x31, Some(0x32))])];
        let session = peer.session;
        self.command(0, Command::AddSession(peer));
        self.command(0, Command::Publish { session, stream: STREAM, tracks });
    }

    /// The second viewer takes no retransmissions.
    fn add_viewer(&mut self, viewer: usize) {
        self.sessions += 1;
        let (party, peer) = Party::new(self.sessions, self.profile, (1 + viewer as u16) * PORTS);
        self.viewers[viewer] = party;
        let track = |track: u8| DownTrackSpec {
            track,
            mid: track.to_string().into(),
            ssrc: 0x100 + u32::from(track),
            payload_type: 96 + 2 * track,
            rtx: (viewer == 0 && track > 0).then_some((0x200 + u32::from(track), 97 + 2 * track)),
            red: (track == 0).then_some(RedSpec { payload_type: 63, is_preferred: viewer == 0 }),
            extensions: EXTENSIONS,
        };
        let (session, tracks) = (peer.session, (0..3).map(track).collect());
        self.command(viewer, Command::AddSession(peer));
        self.command(viewer, Command::Watch { session, stream: STREAM, tracks });
    }

    fn act(&mut self, action: u8, bytes: &[u8]) {
        let viewer = usize::from(action >> 7);
        match action & 0xf {
            0 => self.deliver(0, self.publisher.path, bytes.to_vec()),
            1 => self.deliver(viewer, self.viewers[viewer].path, bytes.to_vec()),
            2 => self.deliver(viewer, path(9_999), bytes.to_vec()),
            3 => self.publish_plain(bytes),
            4 => {
                if let Some(sealed) = seal_rtcp(&mut self.publisher.sealer, bytes) {
                    self.deliver(0, self.publisher.path, sealed);
                }
            }
            5 => self.report(viewer, bytes),
            6 => self.feedback(viewer, bytes),
            7 => self.pass(Duration::from_millis(bytes.iter().map(|byte| u64::from(*byte)).sum())),
            8 => self.control(viewer, bytes),
            _ => self.publish(bytes),
        }
    }

    fn deliver(&mut self, worker: usize, path: Path, mut data: Vec<u8>) {
        let datagram = Datagram { path, data: &mut data };
        self.workers[worker].handle_datagram(self.now, datagram, &mut self.out);
    }

    /// Any plain packet, sealed as the publisher's.
    fn publish_plain(&mut self, plain: &[u8]) {
        let Ok(header) = RtpPacket::parse_header(plain) else { return };
        let seq = self.publisher.seqs.entry(header.ssrc()).or_default().extend(header.seq());
        if let Some(sealed) = seal_rtp(&self.publisher.sealer, plain, seq) {
            self.deliver(0, self.publisher.path, sealed);
        }
    }

    /// The next packet of a lane: which one, then how it goes on, then a dependency descriptor behind its length, then
    /// the payload.
    fn publish(&mut self, bytes: &[u8]) {
        let [lane, how, descriptor_len, rest @ ..] = bytes else { return };
        let (descriptor, payload) = rest.split_at(rest.len().min(usize::from(*descriptor_len)));
        let lane = usize::from(*lane) % LANES.len();
        let (ssrc, payload_type, mid, rid) = LANES[lane];
        let step = [1, 1, 1, 0, 2, 17, 300, 5_000][usize::from(how >> 5)];
        let row = LANES.iter().position(|other| other.0 == ssrc).expect("its own");
        let seq = self.lanes[row] + step;
        self.lanes[row] = seq;
        let timestamp = self.timestamp.wrapping_add(u32::from(how >> 1 & 3) * 3_000);
        self.timestamp = timestamp;
        let header = RtpHeader { payload_type, marker: how & 1 != 0, seq: Seq(seq as u16), timestamp, ssrc };
        let mut plain = vec![0; 2_048 + payload.len()];
        let mut writer = HeaderWriter::new(&mut plain, &header).expect("room");
        writer.extension(1, mid);
        if let Some((id, rid)) = rid {
            writer.extension(id, rid);
        }
        writer.extension(4, &(seq as u16).to_be_bytes());
        if !descriptor.is_empty() {
            writer.extension(5, descriptor);
        }
        let header_len = writer.finish();
        plain.truncate(header_len);
        plain.extend_from_slice(payload);
        self.publisher.seqs.entry(ssrc).or_default().extend(header.seq);
        self.publish_plain(&plain);
    }

    /// Any compound packet, sealed as a viewer's.
    fn report(&mut self, viewer: usize, plain: &[u8]) {
        let Some(sealed) = seal_rtcp(&mut self.viewers[viewer].sealer, plain) else { return };
        self.deliver(viewer, self.viewers[viewer].path, sealed);
    }

    /// A report about what came: which track, how far back the lost packets begin and which they are, the base of the
    /// feedback, and when its packets arrived.
    fn feedback(&mut self, viewer: usize, bytes: &[u8]) {
        let [track, back, lost, fraction, high, low, arrivals @ ..] = bytes else { return };
        let party = &mut self.viewers[viewer];
        let ssrc = 0x100 + u32::from(track % 3);
        let newest = Seq(party.newest.get(&ssrc).copied().unwrap_or_default());
        let mut buf = vec![0; 4_096];
        let block =
            ReportBlock { ssrc, fraction_lost: *fraction, highest_seq: newest.0.into(), ..ReportBlock::default() };
        let mut len = rtcp::write_receiver_report(&mut buf, 1, &[block]).expect("room");
        let first = newest.plus(u16::from(*back).wrapping_neg());
        let seqs = (0..8).filter(|bit| lost >> bit & 1 != 0).map(|bit| first.plus(bit));
        len += rtcp::write_nack(&mut buf[len..], 1, ssrc, seqs).unwrap_or(0);
        let mut ticks = 0;
        let mut arrival = |byte: &u8| {
            ticks += i64::from(*byte as i8) * 4;
            (*byte != 0xff).then_some(ticks)
        };
        let arrivals: Vec<_> = arrivals.iter().map(&mut arrival).collect();
        let base = u16::from_be_bytes([*high, *low]);
        let count = party.feedback_count;
        party.feedback_count = count.wrapping_add(1);
        if let Some((more, _)) = rtcp::write_transport_feedback(&mut buf[len..], 1, ssrc, base, count, &arrivals) {
            len += more;
        }
        self.report(viewer, &buf[..len]);
    }

    fn control(&mut self, viewer: usize, bytes: &[u8]) {
        let [what, rest @ ..] = bytes else { return };
        let [first, second] = [0, 1].map(|index| rest.get(index).copied().unwrap_or_default());
        let session = self.viewers[viewer].session;
        match what % 8 {
            0 => {
                let layers = LayerLimit { spatial_max: first, temporal_max: second };
                self.command(viewer, Command::Limit { session, layers });
            }
            1 => {
                let path = path((1 + viewer as u16) * PORTS + u16::from(first) % PORTS);
                self.viewers[viewer].path = path;
                self.command(viewer, Command::MovePath { session, path });
            }
            2 => self.command(0, Command::Mirror { stream: STREAM, to: WorkerId(1), on: first % 2 == 0 }),
            3 => {
                self.command(viewer, Command::RemoveSession(session));
                self.take_sent();
                self.add_viewer(viewer);
            }
            4 => self.add_publisher(),
            5 => {
                let Path { link, remote, .. } = self.viewers[viewer].path;
                let closed = LinkEvent::Closed { link, remote: Some(remote), reason: CloseReason::Ended };
                self.workers[viewer].handle_link(self.now, Token::default(), closed, &mut self.out);
            }
            6 => self.command(viewer, Command::Inspect { session, token: 1 }),
            _ => {
                (0..2).for_each(|worker| self.command(worker, Command::CloseStream(STREAM)));
                self.take_sent();
                self.open();
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        for _ in 0..4 {
            self.now += time / 4;
            for worker in 0..2 {
                if self.workers[worker].poll_timeout().is_some_and(|at| at <= self.now) {
                    self.workers[worker].handle_timeout(self.now, &mut self.out);
                }
            }
            self.turn();
        }
    }

    /// One turn of each worker, as the engine does it.
    fn turn(&mut self) {
        self.take_sent();
        for worker in 0..2 {
            let rests = (0..1_000).any(|_| {
                let more = self.workers[worker].poll_transmit(self.now, &mut self.out);
                self.take_sent();
                !more
            });
            assert!(rests, "the worker never comes to rest");
            while let Some((to, post)) = self.workers[worker].poll_post() {
                self.workers[usize::from(to.0)].handle_post(self.now, post, &mut self.out);
            }
            self.take_sent();
            while self.workers[worker].poll_event().is_some() {}
        }
    }

    fn take_sent(&mut self) {
        for (path, datagram) in self.out.datagrams() {
            let party = match path.remote.port() / PORTS {
                0 => &mut self.publisher,
                viewer => &mut self.viewers[usize::from(viewer) - 1],
            };
            party.receive(datagram);
        }
        self.out.clear();
    }
}
