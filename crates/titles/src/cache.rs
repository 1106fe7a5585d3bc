//! The chunks in memory that all titles share.
//!
//! In: chunks with their size. Out: chunks by key. At most so many bytes are kept; a chunk that had to go and that a
//! session still holds is found again, and counted, while it is held.
//! Cost: one lock and two hash look-ups, per chunk of about a second of a stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use pump::chunk::Chunk;
use quick_cache::sync::Cache as Quick;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use crate::error::Error;
use crate::flight::lock;
use crate::stats::Stats;

/// Of which state of which title, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub title: u128,
    pub number: u32,
}

/// What a chunk takes beside what it holds, in bytes: the parts of fixed size.
const FIXED_BYTES: usize = 512;

pub(crate) struct Cache {
    chunks: Quick<Key, Arc<Chunk>, ByBytes, DefaultHashBuilder, Arc<Mutex<Left>>>,
    left: Arc<Mutex<Left>>,
}

impl Cache {
    /// `chunk_bytes` is about what a chunk takes, for the size of the table.
    pub fn new(bytes_max: usize, chunk_bytes: usize) -> Result<Cache, Error> {
        let left = Arc::<Mutex<Left>>::default();
        let options = OptionsBuilder::new()
            // One shard: each has its own share of the bytes, and a chunk is large. Locks are short and seldom here.
            .shards(1)
            .estimated_items_capacity((bytes_max / chunk_bytes.max(1)).clamp(16, 1 << 20))
            .weight_capacity(bytes_max as u64)
            .build()
            .map_err(|error| Error::Settings { what: format!("cache_bytes: {error}") })?;
        let chunks = Quick::with_options(options, ByBytes, DefaultHashBuilder::default(), left.clone());
        Ok(Cache { chunks, left })
    }

    /// The chunk, from the cache or from a session that still holds it.
    pub fn get(&self, key: Key) -> Option<Arc<Chunk>> {
        if let Some(chunk) = self.chunks.get(&key) {
            return Some(chunk);
        }
        let chunk = lock(&self.left).chunks.remove(&key)?.upgrade()?;
        self.chunks.insert(key, chunk.clone());
        Some(chunk)
    }

    pub fn insert(&self, key: Key, chunk: &Arc<Chunk>) {
        self.chunks.insert(key, chunk.clone());
        // The one that was there before, if any, did not leave: it was replaced.
        if self.chunks.contains_key(&key) {
            lock(&self.left).chunks.remove(&key);
        }
    }

    /// Adds what it holds to what was counted.
    pub fn held(&self, counted: Stats) -> Stats {
        let (cached_bytes, cached_chunks) = (self.chunks.weight(), self.chunks.len() as u64);
        let mut left = lock(&self.left);
        left.tidy();
        let left_bytes: u64 = left.chunks.values().filter_map(Weak::upgrade).map(|chunk| weight(&chunk)).sum();
        Stats {
            cached_bytes,
            cached_chunks,
            held_bytes: cached_bytes + left_bytes,
            held_chunks: cached_chunks + left.chunks.len() as u64,
            evictions: left.evictions,
            ..counted
        }
    }
}

fn weight(chunk: &Chunk) -> u64 {
    (chunk.held_bytes() + FIXED_BYTES) as u64
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Arc<Chunk>> for ByBytes {
    fn weight(&self, _: &Key, chunk: &Arc<Chunk>) -> u64 {
        weight(chunk)
    }
}

/// Chunks that left the cache and may be held still.
#[derive(Default)]
struct Left {
    chunks: HashMap<Key, Weak<Chunk>>,
    /// At this many those that are held no more are looked for, so that this costs little per chunk.
    tidy_at: usize,
    evictions: u64,
}

/// Leavers that are kept without looking whether anybody holds them.
const TIDY_MIN: usize = 64;

impl Lifecycle<Key, Arc<Chunk>> for Arc<Mutex<Left>> {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), key: Key, chunk: Arc<Chunk>) {
        let mut left = lock(self);
        left.evictions += 1;
        if Arc::strong_count(&chunk) > 1 {
            left.chunks.insert(key, Arc::downgrade(&chunk));
            if left.chunks.len() >= left.tidy_at.max(TIDY_MIN) {
                left.tidy();
            }
        }
    }
}

impl Left {
    fn tidy(&mut self) {
        self.chunks.retain(|_, chunk| chunk.strong_count() > 0);
        self.tidy_at = self.chunks.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pump::title::Title;

    use super::*;

    const PACKETS: u32 = 14;
    const READ: usize = PACKETS as usize * 188;

    /// A chunk of null packets.
    fn chunk(number: u32, packets: u32) -> Arc<Chunk> {
        let mut packet = [0xff; 188];
        packet[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
        let bytes = packet.repeat(packets as usize);
        let title = Title::probe(&packet.repeat(10), 1 << 30, PACKETS).unwrap();
        Arc::new(Chunk::scan(&title, number, bytes))
    }

    fn key(number: u32) -> Key {
        Key { title: 1, number }
    }

    fn stats(cache: &Cache) -> Stats {
        cache.held(Stats::default())
    }

    #[test]
    fn a_chunk_that_left_and_is_held_is_found_and_counted_until_it_is_let_go() {
        let cache = Cache::new(4 * (READ + 1_000), READ).unwrap();
        let first = chunk(0, PACKETS);
        cache.insert(key(0), &first);
        for number in 1..50 {
            cache.insert(key(number), &chunk(number, PACKETS));
        }

        let held = stats(&cache);
        assert!(held.evictions >= 45, "{held:?}");
        assert_eq!(held.held_chunks, held.cached_chunks + 1);
        assert!(held.held_bytes > held.cached_bytes);
        assert!(Arc::ptr_eq(&cache.get(key(0)).unwrap(), &first));

        for number in 50..100 {
            cache.insert(key(number), &chunk(number, PACKETS));
        }
        drop(first);
        let held = stats(&cache);
        assert_eq!(held.held_bytes, held.cached_bytes);
        assert!(cache.get(key(0)).is_none());
    }

    #[test]
    fn a_chunk_that_is_larger_than_the_cache_is_handed_out_and_not_kept() {
        let cache = Cache::new(1_000, READ).unwrap();
        let held = chunk(0, PACKETS);

        cache.insert(key(0), &held);

        assert_eq!(stats(&cache).cached_bytes, 0);
        assert_eq!(stats(&cache).held_chunks, 1);
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
                prop_assert!(found.as_ref().is_none_or(|found| found.number == number));
                let chunk = found.or_else(|| is_insert.then(|| chunk(number, packets)));
                let Some(chunk) = chunk else { continue };
                cache.insert(key(number), &chunk);
                if holds {
                    held.push(chunk);
                } else {
                    drop(chunk);
                    held.pop();
                }
                let now = stats(&cache);
                prop_assert!(now.cached_bytes <= bytes_max as u64);
                // Nothing is forgotten that is in memory, and nothing counted that is not.
                held.sort_by_key(|chunk| chunk.number);
                held.dedup_by_key(|chunk| chunk.number);
                prop_assert!(now.held_chunks >= held.len() as u64);
                prop_assert!(now.held_chunks <= now.cached_chunks + held.len() as u64);
            }
            drop(held);
            prop_assert_eq!(stats(&cache).held_bytes, stats(&cache).cached_bytes);
        }
    }
}
