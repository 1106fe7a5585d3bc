//! In the steady state a packet on its way to 50 viewers, here or on another worker, takes no memory from the heap.

#[path = "../../../tests/support/allocations.rs"]
mod allocations;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use allocations::watched;
use rooms::batch::BatchPool;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, ExtensionIds, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, UpTrackSpec, WorkerId,
};
use rooms::srtp::{Profile, Sealer, SessionKeys};
use wire::codec::{Codec, MediaKind};
use wire::rtcp::{self, ReportBlock};
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{Datagram, Ecn, LinkId, Outbox, Path, Seq};

const VIEWERS: u16 = 50;
const STREAM: StreamId = StreamId(1);
const UP_SSRC: u32 = 1_000;
const MID: u8 = 1;
const TRANSPORT_CC: u8 = 3;
const FRAME: Duration = Duration::from_millis(33);
/// Frames before the watch: some 400 packets.
const WARM_UP: u32 = 60;
const FRAMES: u32 = 600;

#[test]
fn viewers_on_the_publishers_worker_cost_no_allocation_per_packet() {
    steady_state_allocates_nothing(&[VIEWERS, 0]);
}

#[test]
fn viewers_on_another_worker_cost_no_allocation_per_packet() {
    steady_state_allocates_nothing(&[VIEWERS, VIEWERS]);
}

fn steady_state_allocates_nothing(viewers: &[u16; 2]) {
    for profile in Profile::ALL {
        let mut world = World::new(viewers, profile);
        world.play(WARM_UP);

        let allocations = world.count_allocations(FRAMES);

        let count = u64::from(viewers[0] + viewers[1]);
        assert!(world.sent >= u64::from(5 * FRAMES) * count, "{} packets", world.sent);
        let resent: u64 = world.workers.iter().map(|rooms| rooms.counters().packets_resent).sum();
        assert!(resent >= u64::from(FRAMES / 6) * count, "{resent} packets were sent again");
        assert_eq!(allocations, 0, "{profile:?}");
    }
}

#[test]
fn the_watch_sees_an_allocation() {
    let (count, _) = watched(|| std::hint::black_box(Box::new(1)));
    assert_eq!(count, 1);
}

/// Two workers' rooms, a publisher on the first, and a clock. There is no network: what is sent has arrived.
struct World {
    now: Instant,
    workers: [Rooms; 2],
    out: Outbox,
    publisher: Publisher,
    viewers: HashMap<SocketAddr, Viewer>,
    /// Media packets sent to viewers.
    sent: u64,
    is_watched: bool,
    allocations: u64,
}

struct Publisher {
    sealer: Sealer,
    seq: u64,
    frame: u32,
}

struct Viewer {
    worker: usize,
    ssrc: u32,
    sealer: Sealer,
    /// The newest number that came.
    highest: Seq,
    /// Packets that came since the last feedback, by their transport-wide numbers.
    since_feedback: u16,
    transport_seq: u16,
    feedback_count: u8,
}

impl World {
    fn new(viewers: &[u16; 2], profile: Profile) -> Self {
        let now = Instant::now();
        let pool = BatchPool::new(16);
        let settings = Settings::new(1, (now, 100 << 32));
        let workers = [0, 1].map(|number| Rooms::new(now, WorkerId(number), settings.clone(), pool.clone()));
        let (ours, theirs) = SessionKeys::made_up_pair(profile, 0);
        let publisher = Publisher { sealer: Sealer::new(&ours).unwrap(), seq: 1 << 16, frame: 0 };
        let out = Outbox::new(512 * 1_024);
        let (sent, is_watched, allocations) = (0, false, 0);
        let mut world = World { now, workers, out, publisher, viewers: HashMap::new(), sent, is_watched, allocations };
        let tracks = vec![TrackSpec { kind: MediaKind::Video, codec: Codec::Vp8, clock_rate: 90_000, rids: vec![] }];
        world.command(0, Command::OpenStream(StreamSpec { id: STREAM, tracks: tracks.clone() }));
        world.command(1, Command::OpenStream(StreamSpec { id: STREAM, tracks }));
        let peer = PeerSpec { session: SessionId(0), path: publisher_path(), keys: theirs };
        world.command(0, Command::AddPublisher { stream: STREAM, peer, tracks: vec![up_track()] });
        if viewers[1] > 0 {
            world.command(0, Command::Feed { stream: STREAM, to: WorkerId(1), on: true });
        }
        for (worker, count) in viewers.iter().enumerate() {
            for number in 0..*count {
                world.add_viewer(worker, worker as u16 * 1_000 + number, profile);
            }
        }
        world
    }

    fn add_viewer(&mut self, worker: usize, number: u16, profile: Profile) {
        let (ours, theirs) = SessionKeys::made_up_pair(profile, 1 + (number % 200) as u8);
        let (path, ssrc) = (viewer_path(number), 2_000 + u32::from(number));
        let peer = PeerSpec { session: SessionId(1 + u64::from(number)), path, keys: theirs };
        self.command(worker, Command::AddViewer { stream: STREAM, peer, tracks: vec![down_track(ssrc)] });
        let sealer = Sealer::new(&ours).unwrap();
        let highest = Seq(0);
        let viewer = Viewer { worker, ssrc, sealer, highest, since_feedback: 0, transport_seq: 0, feedback_count: 0 };
        self.viewers.insert(path.remote, viewer);
    }

    fn command(&mut self, worker: usize, command: Command) {
        self.workers[worker].handle_command(self.now, command, &mut self.out);
        self.out.clear();
    }

    fn count_allocations(&mut self, frames: u32) -> u64 {
        self.is_watched = true;
        self.sent = 0;
        self.play(frames);
        self.allocations
    }

    fn play(&mut self, frames: u32) {
        for _ in 0..frames {
            for mut datagram in self.publisher.frame() {
                self.handle(0, publisher_path(), &mut datagram);
            }
            self.turn();
            // In small steps, so that bursts which are held back go out on time.
            for _ in 0..11 {
                self.now += FRAME / 11;
                self.turn();
            }
            if self.publisher.frame.is_multiple_of(3) {
                self.report();
            }
        }
    }

    /// Each viewer says what came, and asks for two packets again.
    fn report(&mut self) {
        // In units of 250 µs, as the feedback counts.
        let ticks = i64::from(self.publisher.frame) * 33 * 4;
        let reports: Vec<_> = self.viewers.iter_mut().map(|(addr, viewer)| (*addr, viewer.report(ticks))).collect();
        for (addr, (worker, mut datagram)) in reports {
            let path = Path { link: LinkId(0), remote: addr, local: None };
            self.handle(worker, path, &mut datagram);
        }
        self.turn();
    }

    fn handle(&mut self, worker: usize, path: Path, data: &mut [u8]) {
        let World { now, workers, out, .. } = self;
        let datagram = Datagram { path, ecn: Ecn::NotEct, data };
        self.allocations +=
            watched(|| workers[worker].handle_datagram(*now, datagram, out)).0 * u64::from(self.is_watched);
    }

    /// One turn of each worker, as the engine does it.
    fn turn(&mut self) {
        for index in 0..self.workers.len() {
            let World { now, workers, out, .. } = self;
            let (count, ()) = watched(|| {
                if workers[index].poll_timeout().is_some_and(|at| at <= *now) {
                    workers[index].handle_timeout(*now, out);
                }
            });
            self.allocations += count * u64::from(self.is_watched);
            while {
                let World { now, workers, out, .. } = self;
                let (count, more) = watched(|| workers[index].poll_transmit(*now, out));
                self.allocations += count * u64::from(self.is_watched);
                self.take_sent();
                more
            } {}
            let World { now, workers, out, .. } = self;
            let (count, ()) = watched(|| {
                while let Some((to, post)) = workers[index].poll_post() {
                    workers[usize::from(to.0)].handle_post(*now, post, out);
                }
            });
            self.allocations += count * u64::from(self.is_watched);
            assert!(self.workers[index].poll_event().is_none(), "nobody is told to go");
        }
    }

    /// Viewers take what is in the outbox; they read headers only.
    fn take_sent(&mut self) {
        for (path, datagram) in self.out.datagrams() {
            let is_rtcp = (192..=223).contains(&datagram[1]);
            if let Some(viewer) = self.viewers.get_mut(&path.remote).filter(|_| !is_rtcp) {
                viewer.since_feedback += 1;
                if datagram[8..12] == viewer.ssrc.to_be_bytes() {
                    viewer.highest = Seq(u16::from_be_bytes([datagram[2], datagram[3]]));
                    self.sent += 1;
                }
            }
        }
        self.out.clear();
    }
}

impl Publisher {
    /// The next frame: five packets, or thirty for a keyframe, sealed.
    fn frame(&mut self) -> Vec<Vec<u8>> {
        let is_keyframe = self.frame.is_multiple_of(100);
        let count = if is_keyframe { 30 } else { 5 };
        let mut datagrams = Vec::new();
        for index in 0..count {
            let header = RtpHeader {
                payload_type: 96,
                marker: index + 1 == count,
                seq: Seq(self.seq as u16),
                timestamp: self.frame * 2_970,
                ssrc: UP_SSRC,
            };
            let mut buf = vec![0; 1_400];
            let mut writer = HeaderWriter::new(&mut buf, &header).unwrap();
            writer.extension(TRANSPORT_CC, &(self.seq as u16).to_be_bytes());
            let header_len = writer.finish();
            // VP8 with a picture id (RFC 7741 §4.2); sizes that are evened out.
            let starts = if index == 0 { 0x90 } else { 0x80 };
            let picture_id = 0x8000 | self.frame as u16;
            let descriptor = [starts, 0x80, (picture_id >> 8) as u8, picture_id as u8, u8::from(!is_keyframe)];
            buf[header_len..header_len + 5].copy_from_slice(&descriptor);
            let len = header_len + 1_000 - index % 3;
            let len = self.sealer.seal_rtp(&mut buf, header_len, len, UP_SSRC, self.seq);
            buf.truncate(len);
            datagrams.push(buf);
            self.seq += 1;
        }
        self.frame += 1;
        datagrams
    }
}

impl Viewer {
    /// A compound packet with a receiver report, transport-wide feedback and a NACK, and the worker that it is for.
    fn report(&mut self, ticks: i64) -> (usize, Vec<u8>) {
        let mut buf = vec![0; 1_400];
        let block = ReportBlock { ssrc: self.ssrc, highest_seq: self.highest.0.into(), ..ReportBlock::default() };
        let mut len = rtcp::write_receiver_report(&mut buf, 1, &[block]).unwrap();
        let arrivals = vec![Some(ticks); self.since_feedback.into()];
        let (base, count) = (self.transport_seq, self.feedback_count);
        if let Some((more, _)) =
            rtcp::write_transport_feedback(&mut buf[len..1_300], 1, self.ssrc, base, count, &arrivals)
        {
            len += more;
        }
        self.transport_seq = base.wrapping_add(self.since_feedback);
        self.feedback_count = count.wrapping_add(1);
        self.since_feedback = 0;
        let lost = [Seq(self.highest.0.wrapping_sub(4)), Seq(self.highest.0.wrapping_sub(2))];
        len += rtcp::write_nack(&mut buf[len..], 1, self.ssrc, lost).unwrap();
        let len = self.sealer.seal_rtcp(&mut buf, len);
        buf.truncate(len);
        (self.worker, buf)
    }
}

fn publisher_path() -> Path {
    Path { link: LinkId(0), remote: ([192, 0, 2, 1], 9).into(), local: None }
}

fn viewer_path(number: u16) -> Path {
    Path { link: LinkId(0), remote: ([192, 0, 2, 2], number).into(), local: None }
}

fn extensions() -> ExtensionIds {
    ExtensionIds { mid: Some(MID), transport_cc: Some(TRANSPORT_CC), ..ExtensionIds::default() }
}

fn up_track() -> UpTrackSpec {
    let ssrcs = vec![(UP_SSRC, None)];
    let (payload_type, rtx_payload_type) = (96, Some(97));
    UpTrackSpec { track: 0, mid: "0".into(), payload_type, rtx_payload_type, ssrcs, extensions: extensions() }
}

fn down_track(ssrc: u32) -> DownTrackSpec {
    let rtx = Some((ssrc + 10_000, 97));
    DownTrackSpec { track: 0, mid: "0".into(), ssrc, payload_type: 96, rtx, extensions: extensions() }
}
