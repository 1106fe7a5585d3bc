//! Several workers' relays on as many threads, without a kernel: what they cost each other by what they share.
//!
//! In: how many threads, how many clients each has, and whether all are one user's. Out: CPU time of a packet when one worker is
//! alone and when all are busy, and from that how many times one worker's packets they carry where each has a core.
//! The time is that of the threads, so it holds where others take the cores at times. But when they hardly ever ran at once it
//! says nothing: how much of its core each had is told, too.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use engine::sys::{thread_cpu_time, thread_id};
use measure::rounds::median;

use super::alone::Alone;
use super::client::{Clients, Users};

/// Clients of each worker: enough that their state is not in the nearest cache.
const CLIENTS: usize = 500;

/// Packets of one round and thread, half of them each way; and rounds.
const PACKETS: usize = 400_000;
const ROUNDS: usize = 5;

/// What was measured.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Costs {
    pub(super) workers: usize,
    /// For a packet, with a user of his own for each few clients.
    pub(super) users: Pair,
    /// The same when one user has all clients of all workers.
    pub(super) one_user: Pair,
}

/// CPU time for a packet, in ns.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Pair {
    pub(super) alone_ns: f64,
    pub(super) together_ns: f64,
    /// The share of a core that each thread had when all worked.
    pub(super) core_share: f64,
}

/// What a thread gave in a round.
#[derive(Clone, Copy, Debug)]
struct Sample {
    packet_ns: f64,
    core_share: f64,
}

impl Pair {
    /// How many times the packets of one worker so many carry.
    pub(super) fn times(&self, workers: usize) -> f64 {
        workers as f64 * self.alone_ns / self.together_ns
    }
}

pub(super) fn measure(workers: usize, packets: usize) -> Result<Costs> {
    Ok(Costs { workers, users: pair(workers, packets, Users::Many)?, one_user: pair(workers, packets, Users::One)? })
}

/// As many packets as are measured for people.
pub(super) fn measure_all(workers: usize) -> Result<Costs> {
    measure(workers, PACKETS)
}

fn pair(workers: usize, packets: usize, users: Users) -> Result<Pair> {
    let mut all: Vec<Worker> =
        Alone::of_workers(workers, users).into_iter().map(Worker::begin).collect::<Result<_>>()?;
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.extend(flood(&mut all[..1], packets)?);
        together.extend(flood(&mut all, packets)?);
    }
    let middle = |samples: &[Sample], pick: fn(&Sample) -> f64| median(&samples.iter().map(pick).collect::<Vec<_>>());
    let packet = |samples| middle(samples, |sample| sample.packet_ns);
    let core_share = middle(&together, |sample| sample.core_share);
    Ok(Pair { alone_ns: packet(&alone), together_ns: packet(&together), core_share })
}

/// Lets all of these work at once.
fn flood(workers: &mut [Worker], packets: usize) -> Result<Vec<Sample>> {
    let barrier = Arc::new(Barrier::new(workers.len()));
    thread::scope(|scope| {
        let threads = workers.iter_mut().map(|worker| {
            let barrier = Arc::clone(&barrier);
            scope.spawn(move || worker.flood(packets, &barrier))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

struct Worker(Alone);

impl Worker {
    /// Its clients have allocations and channels.
    fn begin(mut alone: Alone) -> Result<Self> {
        let mut clients = Clients::new(alone.users);
        alone.begin(&mut clients, CLIENTS)?;
        Ok(Worker(alone))
    }

    fn flood(&mut self, packets: usize, barrier: &Barrier) -> Result<Sample> {
        let thread = thread_id();
        barrier.wait();
        let (start, relayed) = (Instant::now(), self.0.relayed());
        let before = thread_cpu_time(thread).context("the CPU time of this thread")?;
        for client in 0..packets / 2 {
            self.0.relay_both_ways(client % CLIENTS);
        }
        let after = thread_cpu_time(thread).context("the CPU time of this thread")?;
        ensure!(self.0.relayed() - relayed == packets as u64, "not all were relayed");
        let cpu_ns = (after - before).as_nanos() as f64;
        let core_share = cpu_ns / start.elapsed().as_nanos() as f64;
        Ok(Sample { packet_ns: cpu_ns / packets as f64, core_share })
    }
}
