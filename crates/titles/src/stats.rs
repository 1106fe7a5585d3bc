//! What a library counts.

use std::sync::Mutex;

use counters::{Cell, Value, counters};
use strum::VariantArray as _;

use crate::error::ErrorKind;
use crate::flight::lock;

counters! {
    /// A library's numbers since it was made.
    pub struct Stats: "millrace_library_" {
        /// Parts of titles that were there when asked for.
        counter hits: u64 = "hits_total",
        /// Parts of titles that had to be waited for.
        counter misses: u64 = "misses_total",
        /// Parts of titles that had to be waited for, and were on their way already.
        counter joined: u64 = "joined_total",
        /// Bytes in the memory cache.
        gauge cached_bytes: u64 = "cached_bytes",
        /// Parts of titles in the memory cache.
        gauge cached_chunks: u64 = "cached_parts",
        /// Bytes in memory, the cache and what sessions hold beside it.
        gauge held_bytes: u64 = "held_bytes",
        /// Parts of titles in memory, the cache and what sessions hold beside it.
        gauge held_chunks: u64 = "held_parts",
        /// Parts of titles that left the memory cache for others.
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
        /// Times that a title's parts ceased to come.
        counter troubles: u64 = "troubles_total",
        /// Parts of titles that were given up, as others of their titles came.
        counter holes: u64 = "holes_total",
        /// Requests to the next origin, as one has failed.
        counter failovers: u64 = "failovers_total",
        /// Panics of libraries, each of which ended a request or a connection to an origin.
        counter panics: u64 = "panics_total",
        /// Requests that an origin sent elsewhere.
        counter redirects: u64 = "redirects_total",
        /// Parts of titles that were on disk.
        counter disk_hits: u64 = "disk_hits_total",
        /// Parts of titles that were written to disk.
        counter disk_writes: u64 = "disk_writes_total",
        /// Bytes in the disk cache.
        gauge disk_bytes: u64 = "disk_bytes",
        /// Parts of titles that left the disk cache for others.
        counter disk_evictions: u64 = "disk_evictions_total",
        /// Files of the disk cache that were not what was written. They are removed.
        counter disk_damaged: u64 = "disk_damaged_total",
        /// Failed requests, reads and openings, by kind. A request that was tried again and then came counts, too.
        counter errors: ErrorCounts = "errors_total",
    }
}

/// How often each kind of error was met, in the order of the kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts(pub [u64; ErrorKind::VARIANTS.len()]);

impl Cell for ErrorCounts {
    const WORDS: usize = ErrorKind::VARIANTS.len();

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.0.iter().for_each(|count| word(*count));
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        ErrorCounts(std::array::from_fn(|_| word()))
    }

    fn value(&self) -> Value<'_> {
        Value::ByLabel("kind", ErrorKind::VARIANTS.iter().map(|kind| (kind.into(), self.0[*kind as usize])).collect())
    }
}

/// What all of a library's threads count into, some times for each part of a title.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Stats>);

impl Counts {
    pub fn count(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut lock(&self.0));
    }

    pub fn error(&self, kind: ErrorKind) {
        self.count(|stats| stats.errors.0[kind as usize] += 1);
    }

    /// One more request under way, until what it returns is dropped.
    pub fn enter(&self) -> UnderWay<'_> {
        self.count(|stats| stats.fetching += 1);
        UnderWay(self)
    }

    pub fn read(&self) -> Stats {
        lock(&self.0).clone()
    }
}

pub(crate) struct UnderWay<'a>(&'a Counts);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.count(|stats| stats.fetching -= 1);
    }
}
