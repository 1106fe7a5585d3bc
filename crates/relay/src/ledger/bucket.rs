//! A token bucket that threads share: one number, changed by compare and swap.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wire::Bitrate;

/// As much as passes in this time may come at once: a keyframe is no fault.
const BURST_NS: u64 = 500_000_000;

/// A run of datagrams as one receive brings it passes at any rate.
const BURST_BYTES_MIN: u64 = 128 << 10;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// As much as comes.
const UNLIMITED: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Bucket {
    /// Bits a second; `u64::MAX`: all that come. It may change, and then the burst a moment later.
    rate_bps: AtomicU64,
    burst_ns: AtomicU64,
    /// When nothing of it is used any more; ns since the ledger began.
    full_at_ns: AtomicU64,
}

impl Bucket {
    pub(super) fn new(rate: Option<Bitrate>) -> Self {
        let bucket =
            Bucket { rate_bps: AtomicU64::new(UNLIMITED), burst_ns: AtomicU64::new(0), full_at_ns: AtomicU64::new(0) };
        bucket.set(0, rate);
        bucket
    }

    /// From now on so much passes. What was used before holds up nothing for longer than the burst that there is now.
    pub(super) fn set(&self, now_ns: u64, rate: Option<Bitrate>) {
        let bps = rate.map_or(UNLIMITED, |rate| rate.bps().clamp(1, UNLIMITED - 1));
        let burst_ns = BURST_NS.max(ns(BURST_BYTES_MIN, bps));
        self.burst_ns.store(burst_ns, Relaxed);
        self.rate_bps.store(bps, Relaxed);
        self.full_at_ns.fetch_min(now_ns + burst_ns, Relaxed);
    }

    /// Bits a second, where that is limited.
    fn rate(&self) -> Option<u64> {
        Some(self.rate_bps.load(Relaxed)).filter(|bps| *bps != UNLIMITED)
    }

    /// Takes for `count` datagrams of `size` bytes; returns for how many there was enough.
    pub(super) fn take(&self, now_ns: u64, count: usize, size: usize) -> usize {
        let Some(bps) = self.rate() else { return count };
        let burst_ns = self.burst_ns.load(Relaxed);
        let each_ns = ns(size as u64, bps).max(1);
        let mut full_at_ns = self.full_at_ns.load(Relaxed);
        loop {
            // Clocks of workers differ by what they read at the begin of a turn; nobody's is set back.
            let from_ns = full_at_ns.max(now_ns);
            let room_ns = (now_ns + burst_ns).saturating_sub(from_ns);
            let fitting = (count as u64).min(room_ns / each_ns);
            if fitting == 0 {
                return 0;
            }
            let next_ns = from_ns + fitting * each_ns;
            match self.full_at_ns.compare_exchange_weak(full_at_ns, next_ns, Relaxed, Relaxed) {
                Ok(_) => return fitting as usize,
                Err(other_ns) => full_at_ns = other_ns,
            }
        }
    }

    /// Takes for bytes that go in any case, as those of a stream do; returns for how long nothing is to follow them, in ns.
    pub(super) fn charge(&self, now_ns: u64, bytes: usize) -> u64 {
        let Some(bps) = self.rate() else { return 0 };
        let cost_ns = ns(bytes as u64, bps);
        let add = |full_at_ns: u64| Some(full_at_ns.max(now_ns) + cost_ns);
        let before_ns = self.full_at_ns.fetch_update(Relaxed, Relaxed, add).unwrap_or_default();
        (before_ns.max(now_ns) + cost_ns).saturating_sub(now_ns + self.burst_ns.load(Relaxed))
    }

    /// Gives back what was taken for `count` datagrams that did not go.
    pub(super) fn give_back(&self, count: usize, size: usize) {
        if let Some(bps) = self.rate().filter(|_| count > 0) {
            let taken_ns = count as u64 * ns(size as u64, bps).max(1);
            // The rate may be another one than when it was taken.
            let give = |full_at_ns: u64| Some(full_at_ns.saturating_sub(taken_ns));
            self.full_at_ns.fetch_update(Relaxed, Relaxed, give).ok();
        }
    }
}

/// How long so many bytes take.
fn ns(bytes: u64, bps: u64) -> u64 {
    // 128 KiB are 10^15 bit-nanoseconds.
    bytes * 8 * NS_PER_SECOND / bps
}
