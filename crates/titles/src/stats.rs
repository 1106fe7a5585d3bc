//! What a library counts.

use std::sync::atomic::{AtomicU64, Ordering};

use counters::{Cell, Value, counters};

use crate::error::ErrorKind;

counters! {
    /// A library's numbers since it was made.
    pub struct Stats: "millrace_library_" {
        /// Parts of titles that were there when asked for.
        counter hits: u64 = "hits_total",
        /// Parts that had to be waited for.
        counter misses: u64 = "misses_total",
        /// Of these: parts that were on their way already.
        counter joined: u64 = "joined_total",
        /// Bytes in the memory cache.
        gauge cached_bytes: u64 = "cached_bytes",
        /// Parts in the memory cache.
        gauge cached_chunks: u64 = "cached_parts",
        /// Bytes in memory, the cache and what sessions hold beside it.
        gauge held_bytes: u64 = "held_bytes",
        /// Parts in memory, the cache and what sessions hold beside it.
        gauge held_chunks: u64 = "held_parts",
        /// Parts that left the memory cache for others.
        counter evictions: u64 = "evictions_total",
        /// Titles that are known, played or not.
        gauge titles: u64 = "titles",
        /// Titles whose head was read.
        counter probes: u64 = "probes_total",
        /// Reads of local files.
        counter reads: u64 = "reads_total",
        /// Requests to origins, those that failed included.
        counter fetches: u64 = "fetches_total",
        /// Bytes that came from origins.
        counter fetched_bytes: u64 = "fetched_bytes_total",
        /// Requests to origins under way.
        gauge fetching: u64 = "fetching",
        /// Requests to an origin that had been asked before.
        counter retries: u64 = "retries_total",
        /// Requests to the next origin.
        counter failovers: u64 = "failovers_total",
        /// Requests that an origin sent elsewhere.
        counter redirects: u64 = "redirects_total",
        /// Parts that were on disk.
        counter disk_hits: u64 = "disk_hits_total",
        /// Parts that were written to disk.
        counter disk_writes: u64 = "disk_writes_total",
        /// Bytes in the disk cache.
        gauge disk_bytes: u64 = "disk_bytes",
        /// Parts that left the disk cache for others.
        counter disk_evictions: u64 = "disk_evictions_total",
        /// Files of the disk cache that were not what was written. They are removed.
        counter disk_damaged: u64 = "disk_damaged_total",
        /// Failed requests, reads and openings, by kind. A request that was tried again and then came counts, too.
        counter errors: ErrorCounts = "errors_total",
    }
}

/// How often each kind of error was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts([u64; ErrorKind::ALL.len()]);

impl Cell for ErrorCounts {
    const WORDS: usize = ErrorKind::ALL.len();

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.0.iter().for_each(|count| word(*count));
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        ErrorCounts(std::array::from_fn(|_| word()))
    }

    fn value(&self) -> Value<'_> {
        Value::ByLabel("kind", ErrorKind::ALL.iter().map(|kind| (kind.label(), self.0[*kind as usize])).collect())
    }
}

impl Stats {
    /// How often one kind of error was met.
    pub fn errors_of(&self, kind: ErrorKind) -> u64 {
        self.errors.0[kind as usize]
    }

    /// How often any was.
    pub fn errors_in_all(&self) -> u64 {
        self.errors.0.iter().sum()
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
            errors: ErrorCounts(std::array::from_fn(|index| self.errors[index].read())),
            ..Stats::default()
        }
    }
}
