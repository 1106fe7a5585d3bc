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

    /// All of these and of others, the last one first, by when each came.
    pub fn latest_with<'a, At: Ord>(
        &'a self,
        others: &'a Self,
        at: impl Fn(&T) -> At,
    ) -> impl Iterator<Item = (K, &'a T)> {
        let (mut these, mut others) = (self.latest().peekable(), others.latest().peekable());
        std::iter::from_fn(move || match (these.peek(), others.peek()) {
            (Some((_, one)), Some((_, other))) if at(one) < at(other) => others.next(),
            (None, _) => others.next(),
            _ => these.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_those_of_two_stand_in_one_order() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (mut odd, mut even) = (Kept::new(3), Kept::new(2));
        for number in 0..10 {
            let kept = if number % 2 == 1 { &mut odd } else { &mut even };
            kept.entry(number, || at(number));
        }
        odd.entry(9, || panic!("it is there"));
        assert!(odd.get(&3).is_none() && odd.get(&5).is_some());
        let all = odd.latest_with(&even, |at| *at).map(|(number, _)| number);
        assert_eq!(all.collect::<Vec<_>>(), [9, 8, 7, 6, 5]);
    }
}
