//! The ways to get one packet to all down tracks, and the floors under them.
//!
//! Every thread has a socket of its own, whatever the scheduler: what differs is only who writes what, and when.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Serialize;
use wire::DATAGRAM_MAX;

use super::work::{Frame, Source, Track};
use super::{Args, floors, ours};
use crate::comparison::{Sample, spending};

/// Down tracks that a thread takes from the counter at a time, as LiveKit does.
const CLAIM: usize = 2;

/// Who writes which packet for which down track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Scheduler {
    /// One thread writes packet by packet, down track by down track.
    Serial,
    /// Down tracks are split evenly among threads; all wait for all after each packet.
    #[strum(to_string = "pre-assigned pool")]
    Pool,
    /// A task for each packet and down track on a work-stealing pool; the packet is done when all are.
    #[strum(to_string = "task per down track")]
    TaskPerTrack,
    /// Threads take two down tracks at a time from a counter until none is left; all wait for all after each packet.
    #[strum(to_string = "claim by counter")]
    ClaimByCounter,
    /// Each worker owns its down tracks and writes a whole frame for one before it turns to the next; GSO, no waiting.
    #[strum(to_string = "millrace")]
    Ours,
    /// What ours writes, never sent: the cost in user space.
    #[strum(to_string = "millrace, not sent")]
    WriteOnly,
    /// The same payloads, sealed and no more: what the cryptographic library asks at least.
    #[strum(to_string = "sealing alone")]
    SealFloor,
    /// The same bytes, ready made, by `sendmmsg` with GSO: what the kernel asks at least.
    #[strum(to_string = "GSO sends alone")]
    GsoFloor,
}

impl Scheduler {
    /// Whether it is there to be compared with, and no way to serve viewers.
    pub fn is_floor(self) -> bool {
        matches!(self, Scheduler::WriteOnly | Scheduler::SealFloor | Scheduler::GsoFloor)
    }
}

/// Everything that stays the same from one measurement to the next.
pub(super) struct Bench<'a> {
    pub(super) args: &'a Args,
    pub(super) threads: usize,
    pool: ThreadPool,
    lanes: Vec<Mutex<Lane>>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(args: &'a Args) -> Result<Self> {
        let threads = args.threads();
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|index| format!("pool-{index}")).build();
        Ok(Bench {
            args,
            threads,
            pool: pool.context("start the pool's threads")?,
            lanes: (0..threads).map(|_| Lane::bind().map(Mutex::new)).collect::<Result<_>>()?,
        })
    }

    /// Lets one scheduler send frames of `source` to `tracks` for one round.
    pub(super) fn measure(&self, scheduler: Scheduler, source: &mut Source, tracks: &[Track]) -> Result<Sample> {
        match scheduler {
            Scheduler::Serial => self.each_packet(source, tracks, Self::serial),
            Scheduler::Pool => self.each_packet(source, tracks, Self::pool),
            Scheduler::TaskPerTrack => self.each_packet(source, tracks, Self::task_per_track),
            Scheduler::ClaimByCounter => self.each_packet(source, tracks, Self::claim),
            Scheduler::Ours => ours::fan_out(self, source, tracks, true),
            Scheduler::WriteOnly => ours::fan_out(self, source, tracks, false),
            Scheduler::SealFloor => floors::seal(self, source.next_frame(), tracks),
            Scheduler::GsoFloor => floors::send(self, tracks),
        }
    }

    /// How long a round is.
    pub(super) fn time(&self) -> Duration {
        self.args.options.seconds
    }

    /// The down tracks of each thread that has any.
    pub(super) fn shares<'t>(&self, tracks: &'t [Track]) -> impl Iterator<Item = &'t [Track]> {
        let shares = (0..self.threads).map(move |thread| share(tracks, thread, self.threads));
        shares.filter(|share| !share.is_empty())
    }

    /// The lane of the pool's thread that asks.
    fn lane(&self) -> MutexGuard<'_, Lane> {
        let thread = rayon::current_thread_index().unwrap_or(0);
        self.lanes[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `fan_out` send one packet after the other, on one of the pool's threads.
    fn each_packet(
        &self,
        source: &mut Source,
        tracks: &[Track],
        fan_out: fn(&Self, &[Track], &Frame, usize),
    ) -> Result<Sample> {
        let mut sample = spending(|| {
            self.pool.install(|| {
                let start = Instant::now();
                while start.elapsed() < self.time() {
                    let frame = source.next_frame();
                    (0..frame.packet_count()).for_each(|packet| fan_out(self, tracks, frame, packet));
                }
            });
            Ok(Sample::default())
        })?;
        for lane in &self.lanes {
            sample += std::mem::take(&mut lane.lock().unwrap_or_else(PoisonError::into_inner).done);
        }
        Ok(sample)
    }

    fn serial(&self, tracks: &[Track], frame: &Frame, packet: usize) {
        let mut lane = self.lane();
        for track in tracks {
            lane.write_and_send(track, frame, packet);
        }
    }

    fn pool(&self, tracks: &[Track], frame: &Frame, packet: usize) {
        rayon::broadcast(|thread| {
            let mut lane = self.lane();
            for track in share(tracks, thread.index(), thread.num_threads()) {
                lane.write_and_send(track, frame, packet);
            }
        });
    }

    fn task_per_track(&self, tracks: &[Track], frame: &Frame, packet: usize) {
        rayon::scope(|scope| {
            for track in tracks {
                scope.spawn(move |_| self.lane().write_and_send(track, frame, packet));
            }
        });
    }

    fn claim(&self, tracks: &[Track], frame: &Frame, packet: usize) {
        let next = AtomicUsize::new(0);
        let claim = || tracks.chunks(CLAIM).nth(next.fetch_add(1, Ordering::Relaxed));
        let work = || {
            let mut lane = self.lane();
            while let Some(tracks) = claim() {
                tracks.iter().for_each(|track| lane.write_and_send(track, frame, packet));
            }
        };
        rayon::scope(|scope| {
            for _ in 0..self.threads.min(tracks.len()) {
                scope.spawn(|_| work());
            }
        });
    }
}

/// What one thread needs to write and send a datagram. No other takes the lock.
struct Lane {
    socket: UdpSocket,
    buf: [u8; DATAGRAM_MAX],
    done: Sample,
}

impl Lane {
    fn bind() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a sending socket on 127.0.0.1")?;
        Ok(Lane { socket, buf: [0; DATAGRAM_MAX], done: Sample::default() })
    }

    #[inline]
    fn write_and_send(&mut self, track: &Track, frame: &Frame, packet: usize) {
        let len = track.write(frame, packet, &mut self.buf);
        match self.socket.send_to(&self.buf[..len], track.path.remote) {
            Ok(_) => self.done.sent += 1,
            Err(_) => self.done.refused += 1,
        }
    }
}

/// One thread's part of the down tracks, all parts as equal as can be; the first threads have the larger ones.
fn share(tracks: &[Track], thread: usize, threads: usize) -> &[Track] {
    let bound = |thread: usize| (thread * tracks.len()).div_ceil(threads);
    &tracks[bound(thread)..bound(thread + 1)]
}
