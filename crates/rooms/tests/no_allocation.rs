//! In the steady state a packet on its way to 50 viewers, here or on another worker, takes no memory from the heap.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/allocations.rs"]
mod allocations;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use allocations::watched;
use rooms::batch::BatchPool;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{Command, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, WorkerId};
use sim::bare::{FRAME_MS, Sink, Source, down_track, path, up_track};
use srtp::{Profile, SessionKeys};
use wire::codec::Codec;
use wire::{Datagram, Outbox, Path, Product};

const VIEWERS: u16 = 50;
const STREAM: StreamId = StreamId(1);
const FRAME: Duration = Duration::from_millis(FRAME_MS as u64);
/// Frames before the watch: 5 s, in which the logs have grown to what they hold.
const WARM_UP: u32 = 150;
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
    publisher: Source,
    /// With the worker that each is on.
    viewers: HashMap<SocketAddr, (usize, Sink)>,
    /// Media packets sent to viewers.
    sent: u64,
    is_watched: bool,
    allocations: u64,
}

impl World {
    fn new(viewers: &[u16; 2], profile: Profile) -> Self {
        let now = Instant::now();
        let pool = BatchPool::new(16);
        let settings = Settings::new(1, (now, 100 << 32));
        let workers = [0, 1].map(|number| Rooms::new(now, WorkerId(number), settings.clone(), pool.clone()));
        let (ours, theirs) = SessionKeys::made_up_pair(profile, 0);
        let publisher = Source::new(&ours).unwrap();
        let out = Outbox::new(512 * 1_024);
        let (sent, is_watched, allocations) = (0, false, 0);
        let mut world = World { now, workers, out, publisher, viewers: HashMap::new(), sent, is_watched, allocations };
        let tracks = vec![TrackSpec { codec: Codec::Vp8, profile: Default::default(), rids: vec![] }];
        world.command(0, Command::OpenStream(StreamSpec { id: STREAM, tracks: tracks.clone() }));
        world.command(1, Command::OpenStream(StreamSpec { id: STREAM, tracks }));
        let peer = PeerSpec { session: SessionId(0), path: path(1, 9), keys: theirs, cname: None };
        world.command(0, Command::AddSession(peer));
        world.command(0, Command::Publish { session: SessionId(0), stream: STREAM, tracks: vec![up_track()] });
        if viewers[1] > 0 {
            world.command(0, Command::Mirror { stream: STREAM, to: WorkerId(1), on: true });
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
        let (path, ssrc) = (path(2, number), 2_000 + u32::from(number));
        let session = SessionId(1 + u64::from(number));
        self.command(worker, Command::AddSession(PeerSpec { session, path, keys: theirs, cname: None }));
        self.command(worker, Command::Watch { session, stream: STREAM, tracks: vec![down_track(ssrc)] });
        self.viewers.insert(path.remote, (worker, Sink::new(&ours, ssrc).unwrap()));
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
            let is_keyframe = self.publisher.frame.is_multiple_of(100);
            for mut datagram in self.publisher.next_frame(if is_keyframe { 30 } else { 5 }, is_keyframe) {
                self.handle(0, path(1, 9), &mut datagram);
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
        let frame = self.publisher.frame;
        let report = |(addr, (worker, viewer)): (&SocketAddr, &mut (usize, Sink))| {
            (addr.port(), *worker, viewer.report(frame, &[4, 2]))
        };
        let reports: Vec<_> = self.viewers.iter_mut().map(report).collect();
        for (port, worker, mut datagram) in reports {
            self.handle(worker, path(2, port), &mut datagram);
        }
        self.turn();
    }

    fn handle(&mut self, worker: usize, path: Path, data: &mut [u8]) {
        let World { now, workers, out, .. } = self;
        let datagram = Datagram { path, data };
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
            if let Some((_, viewer)) = self.viewers.get_mut(&path.remote) {
                self.sent += u64::from(viewer.take(datagram));
            }
        }
        self.out.clear();
    }
}
