//! Which packets of one SSRC were here already (RFC 3711 §3.3.2).
//!
//! In: packet indexes or extended sequence numbers, in any order. Out: whether one is new. Cost: O(1); 136 bytes with the
//! ordinary 16 words.
//! Source: the ring of words is RFC 6479's, so that moving on clears whole words and shifts nothing.

use std::ops::Range;

const WORD_BITS: u64 = 64;

/// The newest index and the ones before it that were seen, in so many words, a power of two.
#[derive(Debug)]
pub struct Window<const WORDS: usize = 16> {
    /// One more than the newest index; 0 when nothing was seen.
    next: u64,
    seen: [u64; WORDS],
}

impl<const WORDS: usize> Default for Window<WORDS> {
    fn default() -> Self {
        Window { next: 0, seen: [0; WORDS] }
    }
}

impl<const WORDS: usize> Window<WORDS> {
    /// How far back a packet may still come in, counted from the newest. What is older is taken for a replay. With 16 words
    /// that is 960 packets: a retransmission under its own number may be late by a second of high-rate video.
    pub const SIZE: u64 = (WORDS as u64 - 1) * WORD_BITS;

    /// The newest index that was accepted.
    pub fn newest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Whether `index` is neither seen nor too old to tell.
    pub fn is_new(&self, index: u64) -> bool {
        if index >= self.next {
            return true;
        }
        let (word, bit) = Self::place(index);
        !self.is_too_old(index) && self.seen[word] & bit == 0
    }

    /// Whether `index` is so far behind the newest that it is not known any more.
    pub fn is_too_old(&self, index: u64) -> bool {
        self.next.saturating_sub(index) > Self::SIZE
    }

    /// Whether one of `indexes`, which are not new, was not seen; what is too old to tell is left out.
    pub fn lacks_some(&self, indexes: Range<u64>) -> bool {
        let mut at = indexes.start.max(self.next.saturating_sub(Self::SIZE));
        while at < indexes.end {
            let count = (WORD_BITS - at % WORD_BITS).min(indexes.end - at);
            let (word, first) = Self::place(at);
            let mask = u64::MAX >> (WORD_BITS - count) << first.trailing_zeros();
            if self.seen[word] & mask != mask {
                return true;
            }
            at += count;
        }
        false
    }

    /// Remembers `index`, which is authentic and `is_new`.
    pub fn accept(&mut self, index: u64) {
        if index >= self.next {
            // The words between the newest so far and this one held indexes that are now too old.
            let newest_word = self.next.saturating_sub(1) / WORD_BITS;
            let steps = (index / WORD_BITS).saturating_sub(newest_word).min(WORDS as u64);
            for step in 1..=steps {
                self.seen[((newest_word + step) % WORDS as u64) as usize] = 0;
            }
            self.next = index + 1;
        }
        let (word, bit) = Self::place(index);
        self.seen[word] |= bit;
    }

    fn place(index: u64) -> (usize, u64) {
        ((index / WORD_BITS % WORDS as u64) as usize, 1 << (index % WORD_BITS))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const WINDOW: u64 = Window::<16>::SIZE;

    #[test]
    fn each_index_is_new_once() {
        let mut window: Window = Window::default();
        for index in [5, 3, 4, 1_000, 999, 1_000 - WINDOW + 1, 5_000, 4_990] {
            assert!(window.is_new(index), "{index}");
            window.accept(index);
            assert!(!window.is_new(index) && !window.is_too_old(index), "{index}");
        }
    }

    #[test]
    fn what_is_older_than_the_window_is_not_new() {
        let mut window: Window = Window::default();
        window.accept(10_000);
        assert!(window.is_new(10_001 - WINDOW));
        assert!(!window.is_new(10_000 - WINDOW) && window.is_too_old(10_000 - WINDOW));
    }

    fn agrees_with_a_set<const WORDS: usize>(steps: &[(bool, u64)]) -> Result<(), TestCaseError> {
        let size = Window::<WORDS>::SIZE;
        let (mut window, mut set, mut newest) = (Window::<WORDS>::default(), HashSet::new(), 0_u64);
        for &(forward, distance) in steps {
            let index = if forward { newest + distance % 200 } else { newest.saturating_sub(distance) };
            let expected = !set.contains(&index) && (set.is_empty() || index + size > newest);
            prop_assert_eq!(window.is_new(index), expected, "index {} newest {}", index, newest);
            if expected {
                window.accept(index);
                set.insert(index);
                newest = newest.max(index);
                prop_assert_eq!(window.newest(), Some(newest));
                let (start, end) = (newest.saturating_sub(distance), newest + 1);
                let known = start.max(end.saturating_sub(size))..end;
                let lacks_some = known.clone().any(|index| !set.contains(&index));
                prop_assert_eq!(window.lacks_some(start..end), lacks_some, "{:?}", known);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_set(steps in prop::collection::vec((any::<bool>(), 0_u64..3_000), 1..400)) {
            agrees_with_a_set::<16>(&steps)?;
            agrees_with_a_set::<32>(&steps)?;
        }
    }
}
