//! The last ones of what there was, by number.
//!
//! Cost: a map lookup each; the memory of as many as are kept.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Those that came last, so many at most: for another one the first that came is forgotten.
#[derive(Debug)]
pub struct Kept<K, T> {
    max: usize,
    by_key: HashMap<K, T>,
    /// In the order in which they came.
    order: VecDeque<K>,
}

impl<K: Copy + Eq + Hash, T> Kept<K, T> {
    /// None yet.
    pub fn new(max: usize) -> Self {
        Kept { max, by_key: HashMap::new(), order: VecDeque::new() }
    }

    /// One that is there, or comes with this.
    pub fn entry(&mut self, key: K, make: impl FnOnce() -> T) -> &mut T {
        if !self.by_key.contains_key(&key) {
            if self.order.len() >= self.max
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_key.remove(&oldest);
            }
            self.order.push_back(key);
        }
        self.by_key.entry(key).or_insert_with(make)
    }

    /// One that is there.
    pub fn get(&self, key: &K) -> Option<&T> {
        self.by_key.get(key)
    }

    /// All of them, the last one first.
    pub fn latest(&self) -> impl Iterator<Item = (K, &T)> {
        self.order.iter().rev().filter_map(|key| Some((*key, self.by_key.get(key)?)))
    }
}
