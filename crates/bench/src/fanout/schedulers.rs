//! The ways to get one packet to all down tracks, and the floors under them.
//!
//! Every thread has a socket of its own, whatever the scheduler: what differs is only who writes what, and when.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Serialize;
use wire::DATAGRAM_MAX;

use super::ours;
use super::work::{Frame, Shape, Source, Track};
use measure::cpu::{Spent, Stopwatch};

/// Down tracks that a thread takes from the counter at a time, as LiveKit does.
const CLAIM: usize = 2;

/// Who writes which packet for which down track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// One thread writes packet by packet, down track by down track.
    Serial,
    /// Down tracks are split evenly among threads; all wait for all after each packet.
    Pool,
    /// A task for each packet and down track on a work-stealing pool; the packet is done when all are.
    TaskPerTrack,
    /// Threads take two down tracks at a time from a counter until none is left; all wait for all after each packet.
    ClaimByCounter,
    /// Each worker owns its down tracks and writes a whole frame for one before it turns to the next; GSO, no waiting.
    Ours,
    /// What ours writes, never sent: the cost in user space.
    WriteOnly,
    /// The same payloads, sealed and no more: what the cryptographic library asks at least.
    SealFloor,
    /// The same bytes, ready made, by `sendto`.
    SendtoFloor,
    /// The same bytes, ready made, by `sendmmsg` with GSO: what the kernel asks at least.
    GsoFloor,
}

impl Scheduler {
    pub const ALL: [Scheduler; 9] = [
        Scheduler::Serial,
        Scheduler::Pool,
        Scheduler::TaskPerTrack,
        Scheduler::ClaimByCounter,
        Scheduler::Ours,
        Scheduler::WriteOnly,
        Scheduler::SealFloor,
        Scheduler::SendtoFloor,
        Scheduler::GsoFloor,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Scheduler::Serial => "serial",
            Scheduler::Pool => "pre-assigned pool",
            Scheduler::TaskPerTrack => "task per down track",
            Scheduler::ClaimByCounter => "claim by counter",
            Scheduler::Ours => "millrace",
            Scheduler::WriteOnly => "millrace, not sent",
            Scheduler::SealFloor => "sealing alone",
            Scheduler::SendtoFloor => "sendto alone",
            Scheduler::GsoFloor => "GSO sends alone",
        }
    }

    /// Whether it is there to be compared with, and no way to serve viewers.
    pub fn is_floor(self) -> bool {
        use Scheduler::{GsoFloor, SealFloor, SendtoFloor, WriteOnly};
        matches!(self, WriteOnly | SealFloor | SendtoFloor | GsoFloor)
    }
}

/// What one scheduler did in one measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) spent: Spent,
    pub(super) tally: Tally,
}

/// Datagrams that the kernel took (or, unsent, that were written), and those that it refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) refused: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.sent += other.sent;
        self.refused += other.refused;
    }
}

/// Everything that stays the same from one measurement to the next.
pub(super) struct Bench {
    pub(super) shape: Shape,
    pub(super) threads: usize,
    pub(super) outbox_bytes: usize,
    pool: ThreadPool,
    lanes: Vec<Mutex<Lane>>,
}

impl Bench {
    pub(super) fn new(shape: Shape, threads: usize, outbox_bytes: usize) -> Result<Self> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("pool-{index}")).build();
        Ok(Bench {
            shape,
            threads,
            outbox_bytes,
            pool: pool.context("start the pool's threads")?,
            lanes: (0..threads).map(|_| Lane::bind().map(Mutex::new)).collect::<Result<_>>()?,
        })
    }

    /// Lets one scheduler send frames of `source` to `tracks` for `time`.
    pub(super) fn measure(
        &self,
        scheduler: Scheduler,
        source: &mut Source,
        tracks: &[Track],
        time: Duration,
    ) -> Result<Sample> {
        let run = Run { bench: self, tracks, time };
        match scheduler {
            Scheduler::Serial => run.in_pool(|| run.each_packet(source, |frame, packet| run.serial(frame, packet))),
            Scheduler::Pool => run.in_pool(|| run.each_packet(source, |frame, packet| run.pool(frame, packet))),
            Scheduler::TaskPerTrack => {
                run.in_pool(|| run.each_packet(source, |frame, packet| run.task_per_track(frame, packet)))
            }
            Scheduler::ClaimByCounter => {
                run.in_pool(|| run.each_packet(source, |frame, packet| run.claim(frame, packet)))
            }
            Scheduler::SealFloor => run.in_pool(|| run.seal_floor(source.next_frame())),
            Scheduler::SendtoFloor => run.in_pool(|| run.sendto_floor()),
            Scheduler::Ours => ours::fan_out(self, source, tracks, time, true),
            Scheduler::WriteOnly => ours::fan_out(self, source, tracks, time, false),
            Scheduler::GsoFloor => ours::floor(self, tracks, time),
        }
    }

    /// The lane of the pool's thread that asks.
    fn lane(&self) -> MutexGuard<'_, Lane> {
        let thread = rayon::current_thread_index().unwrap_or(0);
        self.lanes[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one thread needs to write and send a datagram. No other takes the lock.
struct Lane {
    socket: UdpSocket,
    buf: [u8; DATAGRAM_MAX],
    tally: Tally,
}

impl Lane {
    fn bind() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a sending socket on 127.0.0.1")?;
        Ok(Lane { socket, buf: [0; DATAGRAM_MAX], tally: Tally::default() })
    }

    #[inline]
    fn write_and_send(&mut self, track: &Track, frame: &Frame, packet: usize) {
        let len = track.write(frame, packet, &mut self.buf);
        self.send(track.path.remote, len);
    }

    fn send(&mut self, to: SocketAddr, len: usize) {
        match self.socket.send_to(&self.buf[..len], to) {
            Ok(_) => self.tally.sent += 1,
            Err(_) => self.tally.refused += 1,
        }
    }
}

/// One measurement of a scheduler that sends datagram by datagram.
#[derive(Clone, Copy)]
struct Run<'a> {
    bench: &'a Bench,
    tracks: &'a [Track],
    time: Duration,
}

impl Run<'_> {
    /// Runs `work` on one of the pool's threads and says what it cost.
    fn in_pool(&self, work: impl FnOnce() + Send) -> Result<Sample> {
        let stopwatch = Stopwatch::start()?;
        self.bench.pool.install(work);
        let spent = stopwatch.stop()?;
        let mut tally = Tally::default();
        for lane in &self.bench.lanes {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            tally += std::mem::take(&mut lane.tally);
        }
        Ok(Sample { spent, tally })
    }

    fn each_packet(&self, source: &mut Source, mut fan_out: impl FnMut(&Frame, usize)) {
        let start = Instant::now();
        while start.elapsed() < self.time {
            let frame = source.next_frame();
            for packet in 0..frame.packet_count() {
                fan_out(frame, packet);
            }
        }
    }

    fn serial(&self, frame: &Frame, packet: usize) {
        let mut lane = self.bench.lane();
        for track in self.tracks {
            lane.write_and_send(track, frame, packet);
        }
    }

    fn pool(&self, frame: &Frame, packet: usize) {
        rayon::broadcast(|thread| {
            let mut lane = self.bench.lane();
            for track in share(self.tracks, thread.index(), thread.num_threads()) {
                lane.write_and_send(track, frame, packet);
            }
        });
    }

    fn task_per_track(&self, frame: &Frame, packet: usize) {
        rayon::scope(|scope| {
            for track in self.tracks {
                scope.spawn(move |_| self.bench.lane().write_and_send(track, frame, packet));
            }
        });
    }

    fn claim(&self, frame: &Frame, packet: usize) {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut lane = self.bench.lane();
            while let Some(rest) = self.tracks.get(next.fetch_add(CLAIM, Ordering::Relaxed)..) {
                if rest.is_empty() {
                    return;
                }
                for track in rest.iter().take(CLAIM) {
                    lane.write_and_send(track, frame, packet);
                }
            }
        };
        rayon::scope(|scope| {
            for _ in 0..self.bench.threads.min(self.tracks.len()) {
                scope.spawn(|_| work());
            }
        });
    }

    fn seal_floor(&self, frame: &Frame) {
        rayon::broadcast(|thread| {
            let mut lane = self.bench.lane();
            let mut out = vec![0; self.bench.outbox_bytes];
            let mut slots = 0..0;
            let tracks = share(self.tracks, thread.index(), thread.num_threads());
            let start = Instant::now();
            while start.elapsed() < self.time && !tracks.is_empty() {
                for track in tracks {
                    for packet in 0..frame.packet_count() {
                        if slots.is_empty() {
                            slots = 0..out.len() / DATAGRAM_MAX;
                        }
                        let slot = slots.next().unwrap_or(0) * DATAGRAM_MAX;
                        track.seal(frame, packet, &mut out[slot..slot + DATAGRAM_MAX]);
                        lane.tally.sent += 1;
                    }
                }
            }
        });
    }

    fn sendto_floor(&self) {
        rayon::broadcast(|thread| {
            let mut lane = self.bench.lane();
            let tracks = share(self.tracks, thread.index(), thread.num_threads());
            let start = Instant::now();
            while start.elapsed() < self.time && !tracks.is_empty() {
                for track in tracks {
                    for _ in 0..self.bench.shape.burst {
                        lane.send(track.path.remote, self.bench.shape.datagram_len);
                    }
                }
            }
        });
    }
}

/// One thread's part of the down tracks, all parts as equal as can be; the first threads have the larger ones.
pub(super) fn share(tracks: &[Track], thread: usize, threads: usize) -> &[Track] {
    let bound = |thread: usize| (thread * tracks.len()).div_ceil(threads);
    &tracks[bound(thread)..bound(thread + 1)]
}
