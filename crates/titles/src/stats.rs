//! What a library counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ErrorKind;

/// A library's numbers since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Chunks that were there when asked for.
    pub hits: u64,
    /// Chunks that were not, and had to be waited for; `joined` of them by someone who was not the first.
    pub misses: u64,
    pub joined: u64,
    /// In the cache: at most `cache_bytes`.
    pub cached_bytes: u64,
    pub cached_chunks: u64,
    /// In memory: the cache, and chunks that left it and that sessions still hold.
    pub held_bytes: u64,
    pub held_chunks: u64,
    pub evictions: u64,
    /// Titles that are known, played or not.
    pub titles: u64,
    /// Probes of titles.
    pub probes: u64,
    /// Reads of local files.
    pub reads: u64,
    /// Requests to origins, those that failed included, and the bytes that came.
    pub fetches: u64,
    pub fetched_bytes: u64,
    /// Requests to an origin that had been asked before, and to the next origin.
    pub retries: u64,
    pub failovers: u64,
    pub redirects: u64,
    /// Requests under way.
    pub fetching: u64,
    pub disk_hits: u64,
    pub disk_writes: u64,
    pub disk_bytes: u64,
    pub disk_evictions: u64,
    /// Files of the disk cache that were not what was written. They are removed.
    pub disk_damaged: u64,
    /// Failures of requests, reads and openings, by kind. A request that was tried again and then came counts, too.
    pub errors: [u64; ErrorKind::ALL.len()],
}

impl Stats {
    pub fn errors_of(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize]
    }

    /// All kinds, with their names in metrics.
    pub fn errors_by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ErrorKind::ALL.iter().map(|kind| (kind.label(), self.errors_of(*kind)))
    }
}

/// The counters behind `Stats`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub hits: Count,
    pub misses: Count,
    pub joined: Count,
    pub probes: Count,
    pub reads: Count,
    pub fetches: Count,
    pub fetched_bytes: Count,
    pub retries: Count,
    pub failovers: Count,
    pub redirects: Count,
    pub fetching: Count,
    errors: [Count; ErrorKind::ALL.len()],
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// One more, until what it returns is dropped.
    pub fn enter(&self) -> Entered<'_> {
        self.add(1);
        Entered(self)
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) struct Entered<'a>(&'a Count);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    pub fn error(&self, kind: ErrorKind) {
        self.errors[kind as usize].add(1);
    }

    pub fn read(&self) -> Stats {
        Stats {
            hits: self.hits.read(),
            misses: self.misses.read(),
            joined: self.joined.read(),
            probes: self.probes.read(),
            reads: self.reads.read(),
            fetches: self.fetches.read(),
            fetched_bytes: self.fetched_bytes.read(),
            retries: self.retries.read(),
            failovers: self.failovers.read(),
            redirects: self.redirects.read(),
            fetching: self.fetching.read(),
            errors: std::array::from_fn(|index| self.errors[index].read()),
            ..Stats::default()
        }
    }
}
