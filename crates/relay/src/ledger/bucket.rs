//! A token bucket that threads share: one number, changed by compare and swap.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wire::Bitrate;

/// As much as passes in this time may come at once: a keyframe is no fault.
const BURST_NS: u64 = 500_000_000;

/// A run of datagrams as one receive brings it passes at any rate.
const BURST_BYTES_MIN: u64 = 128 << 10;

const NS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Bucket {
    /// Bits a second; `None`: all that come.
    rate_bps: Option<u64>,
    burst_ns: u64,
    /// When nothing of it is used any more; ns since the ledger began.
    full_at_ns: AtomicU64,
}

impl Bucket {
    pub(super) fn new(rate: Option<Bitrate>) -> Self {
        let rate_bps = rate.map(|rate| rate.bps().max(1));
        let burst_ns = rate_bps.map_or(0, |bps| BURST_NS.max(ns(BURST_BYTES_MIN, bps)));
        Bucket { rate_bps, burst_ns, full_at_ns: AtomicU64::new(0) }
    }

    /// Takes for `count` datagrams of `size` bytes; returns for how many there was enough.
    pub(super) fn take(&self, now_ns: u64, count: usize, size: usize) -> usize {
        let Some(bps) = self.rate_bps else { return count };
        let each_ns = ns(size as u64, bps).max(1);
        let mut full_at_ns = self.full_at_ns.load(Relaxed);
        loop {
            // Clocks of workers differ by what they read at the begin of a turn; nobody's is set back.
            let from_ns = full_at_ns.max(now_ns);
            let room_ns = (now_ns + self.burst_ns).saturating_sub(from_ns);
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
        let Some(bps) = self.rate_bps else { return 0 };
        let cost_ns = ns(bytes as u64, bps);
        let add = |full_at_ns: u64| Some(full_at_ns.max(now_ns) + cost_ns);
        let before_ns = self.full_at_ns.fetch_update(Relaxed, Relaxed, add).unwrap_or_default();
        (before_ns.max(now_ns) + cost_ns).saturating_sub(now_ns + self.burst_ns)
    }

    /// Gives back what was taken for `count` datagrams that did not go.
    pub(super) fn give_back(&self, count: usize, size: usize) {
        if let Some(bps) = self.rate_bps.filter(|_| count > 0) {
            self.full_at_ns.fetch_sub(count as u64 * ns(size as u64, bps).max(1), Relaxed);
        }
    }
}

/// How long so many bytes take.
fn ns(bytes: u64, bps: u64) -> u64 {
    // 128 KiB are 10^15 bit-nanoseconds.
    bytes * 8 * NS_PER_SECOND / bps
}
