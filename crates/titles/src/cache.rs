//! The chunks in memory that all titles share.
//!
//! In: chunks with their size. Out: chunks by key. At most so many bytes are kept; a chunk that had to go and that a
//! session still holds is found again, and counted, while it is held.
//! Cost: one lock and two hash look-ups, per chunk of about a second of a stream.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use pump::chunk::Chunk;
use quick_cache::sync::Cache as Quick;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use crate::error::Error;
use crate::flight::lock;

/// Of which state of which title, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub title: u128,
    pub number: u32,
}

/// What a chunk takes beside its packets and what was seen in them, in bytes: the parts of fixed size.
const FIXED_BYTES: usize = 512;

/// A chunk, and what it takes.
#[derive(Clone, Debug)]
struct Cached {
    chunk: Arc<Chunk>,
    bytes: u64,
}

pub(crate) struct Cache {
    chunks: Quick<Key, Cached, ByBytes, DefaultHashBuilder, Watch>,
    left: Arc<Left>,
}

/// What the cache says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub cached_bytes: u64,
    pub cached_chunks: u64,
    pub held_bytes: u64,
    pub held_chunks: u64,
    pub evictions: u64,
}

impl Cache {
    /// `chunk_bytes` is about what a chunk takes, for the size of the table.
    pub fn new(bytes_max: usize, chunk_bytes: usize) -> Result<Cache, Error> {
        let left = Arc::new(Left::default());
        let options = OptionsBuilder::new()
            // One shard: each has its own share of the bytes, and a chunk is large. Locks are short and seldom here.
            .shards(1)
            .estimated_items_capacity((bytes_max / chunk_bytes.max(1)).clamp(16, 1 << 20))
            .weight_capacity(bytes_max as u64)
            .build()
            .map_err(|error| Error::Settings { what: format!("cache_bytes: {error}") })?;
        let watch = Watch { left: left.clone() };
        let chunks = Quick::with_options(options, ByBytes, DefaultHashBuilder::default(), watch);
        Ok(Cache { chunks, left })
    }

    /// The chunk, from the cache or from a session that still holds it.
    pub fn get(&self, key: Key) -> Option<Arc<Chunk>> {
        if let Some(cached) = self.chunks.get(&key) {
            return Some(cached.chunk);
        }
        let cached = self.left.take(key)?;
        self.chunks.insert(key, cached.clone());
        Some(cached.chunk)
    }

    /// `read_bytes` were allocated for its packets.
    pub fn insert(&self, key: Key, chunk: &Arc<Chunk>, read_bytes: usize) {
        let seen = size_of_val(chunk.marks()) + size_of_val(chunk.pictures());
        let bytes = (read_bytes.max(chunk.bytes().len()) + seen + FIXED_BYTES) as u64;
        self.chunks.insert(key, Cached { chunk: chunk.clone(), bytes });
        // The one that was there before, if any, did not leave: it was replaced.
        if self.chunks.contains_key(&key) {
            self.left.forget(key);
        }
    }

    pub fn held(&self) -> Held {
        let (left_bytes, left_chunks) = self.left.held();
        let (cached_bytes, cached_chunks) = (self.chunks.weight(), self.chunks.len() as u64);
        Held {
            cached_bytes,
            cached_chunks,
            held_bytes: cached_bytes + left_bytes,
            held_chunks: cached_chunks + left_chunks,
            evictions: self.left.evictions.load(Ordering::Relaxed),
        }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Cached> for ByBytes {
    fn weight(&self, _: &Key, cached: &Cached) -> u64 {
        cached.bytes
    }
}

#[derive(Clone)]
struct Watch {
    left: Arc<Left>,
}

impl Lifecycle<Key, Cached> for Watch {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), key: Key, cached: Cached) {
        self.left.evictions.fetch_add(1, Ordering::Relaxed);
        self.left.note(key, &cached);
    }
}

/// Chunks that left the cache and may be held still.
#[derive(Default)]
struct Left {
    chunks: Mutex<Leavers>,
    evictions: AtomicU64,
}

#[derive(Default)]
struct Leavers {
    by_key: HashMap<Key, (Weak<Chunk>, u64)>,
    /// At this many those that are held no more are looked for, so that this costs little per chunk.
    tidy_at: usize,
}

/// Leavers that are kept without looking whether anybody holds them.
const TIDY_MIN: usize = 64;

impl Left {
    fn note(&self, key: Key, cached: &Cached) {
        if Arc::strong_count(&cached.chunk) == 1 {
            return;
        }
        let mut leavers = lock(&self.chunks);
        leavers.by_key.insert(key, (Arc::downgrade(&cached.chunk), cached.bytes));
        if leavers.by_key.len() >= leavers.tidy_at.max(TIDY_MIN) {
            leavers.tidy();
        }
    }

    fn forget(&self, key: Key) {
        lock(&self.chunks).by_key.remove(&key);
    }

    fn take(&self, key: Key) -> Option<Cached> {
        let (chunk, bytes) = lock(&self.chunks).by_key.remove(&key)?;
        Some(Cached { chunk: chunk.upgrade()?, bytes })
    }

    fn held(&self) -> (u64, u64) {
        let mut leavers = lock(&self.chunks);
        leavers.tidy();
        let bytes = leavers.by_key.values().map(|(_, bytes)| bytes).sum();
        (bytes, leavers.by_key.len() as u64)
    }
}

impl Leavers {
    fn tidy(&mut self) {
        self.by_key.retain(|_, (chunk, _)| chunk.strong_count() > 0);
        self.tidy_at = self.by_key.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pump::title::{Title, TitleOptions};

    use super::*;

    const PACKETS: u32 = 14;
    const READ: usize = PACKETS as usize * 188;

    /// A chunk of null packets.
    fn chunk(number: u32, packets: u32) -> Arc<Chunk> {
        let mut packet = [0xff; 188];
        packet[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
        let options = TitleOptions { chunk_packets: PACKETS, ..TitleOptions::default() };
        let bytes = packet.repeat(packets as usize);
        let title = Title::probe(&packet.repeat(10), 1 << 30, &options).unwrap();
        Arc::new(Chunk::scan(&title, number, bytes))
    }

    fn key(number: u32) -> Key {
        Key { title: 1, number }
    }

    #[test]
    fn a_chunk_that_left_and_is_held_is_found_and_counted_until_it_is_let_go() {
        let cache = Cache::new(4 * (READ + 1_000), READ).unwrap();
        let first = chunk(0, PACKETS);
        cache.insert(key(0), &first, READ);
        for number in 1..50 {
            cache.insert(key(number), &chunk(number, PACKETS), READ);
        }

        let held = cache.held();
        assert!(held.evictions >= 45, "{held:?}");
        assert_eq!(held.held_chunks, held.cached_chunks + 1);
        assert!(held.held_bytes > held.cached_bytes);
        assert!(Arc::ptr_eq(&cache.get(key(0)).unwrap(), &first));

        for number in 50..100 {
            cache.insert(key(number), &chunk(number, PACKETS), READ);
        }
        drop(first);
        let held = cache.held();
        assert_eq!(held.held_bytes, held.cached_bytes);
        assert!(cache.get(key(0)).is_none());
    }

    #[test]
    fn a_chunk_that_is_larger_than_the_cache_is_handed_out_and_not_kept() {
        let cache = Cache::new(1_000, READ).unwrap();
        let held = chunk(0, PACKETS);

        cache.insert(key(0), &held, READ);

        assert_eq!(cache.held().cached_bytes, 0);
        assert_eq!(cache.held().held_chunks, 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_cache_never_has_more_bytes_than_it_may(
            bytes_max in 0_usize..60_000,
            steps in prop::collection::vec((0_u32..24, 0_u32..=PACKETS, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let cache = Cache::new(bytes_max, READ).unwrap();
            let mut held: Vec<Arc<Chunk>> = Vec::new();
            for (number, packets, is_insert, holds) in steps {
                let found = cache.get(key(number));
                prop_assert!(found.as_ref().is_none_or(|found| found.number() == number));
                let chunk = found.or_else(|| is_insert.then(|| chunk(number, packets)));
                let Some(chunk) = chunk else { continue };
                cache.insert(key(number), &chunk, packets as usize * 188);
                if holds {
                    held.push(chunk);
                } else {
                    drop(chunk);
                    held.pop();
                }
                let now = cache.held();
                prop_assert!(now.cached_bytes <= bytes_max as u64);
                // Nothing is forgotten that is in memory, and nothing counted that is not.
                held.sort_by_key(|chunk| chunk.number());
                held.dedup_by_key(|chunk| chunk.number());
                prop_assert!(now.held_chunks >= held.len() as u64);
                prop_assert!(now.held_chunks <= now.cached_chunks + held.len() as u64);
            }
            drop(held);
            prop_assert_eq!(cache.held().held_bytes, cache.held().cached_bytes);
        }
    }
}
