//! One ring of slots, and a bitmap that finds the next occupied one in at most three words.

/// Slots of one level. With 64 words of 64 bits one summary word covers the whole bitmap.
pub(crate) const SLOTS: u64 = 4_096;

/// No node: an empty slot, or the end of the free list.
pub(crate) const NONE: u32 = u32::MAX;

/// First node of each slot's list, with the occupancy bits kept beside.
#[derive(Debug)]
pub(crate) struct Level {
    heads: Box<[u32; SLOTS as usize]>,
    words: [u64; 64],
    /// Bit `w` is set when `words[w]` is not zero.
    summary: u64,
}

impl Level {
    pub(crate) fn new() -> Self {
        Level { heads: Box::new([NONE; SLOTS as usize]), words: [0; 64], summary: 0 }
    }

    /// The first node of the slot that serves tick `tick`, or `NONE`.
    pub(crate) fn head(&self, tick: u64) -> u32 {
        self.heads[slot(tick)]
    }

    pub(crate) fn set_head(&mut self, tick: u64, head: u32) {
        let slot = slot(tick);
        self.heads[slot] = head;
        let (word, bit) = (slot / 64, 1_u64 << (slot % 64));
        if head == NONE {
            self.words[word] &= !bit;
        } else {
            self.words[word] |= bit;
        }
        let summary_bit = 1_u64 << word;
        if self.words[word] == 0 {
            self.summary &= !summary_bit;
        } else {
            self.summary |= summary_bit;
        }
    }

    /// The first tick at or after `from`, within one turn of the ring, whose slot is occupied.
    pub(crate) fn next_occupied(&self, from: u64) -> Option<u64> {
        let start = slot(from);
        let (word, bit) = (start / 64, start % 64);
        let here = self.words[word] & (u64::MAX << bit);
        let found = if here != 0 {
            word * 64 + here.trailing_zeros() as usize
        } else {
            // Rotated so that the word after `word` comes first, and `word` itself, with its lower bits, last.
            let rotated = self.summary.rotate_right(word as u32 + 1);
            if rotated == 0 {
                return None;
            }
            let next = (word + 1 + rotated.trailing_zeros() as usize) % 64;
            next * 64 + self.words[next].trailing_zeros() as usize
        };
        Some(from + (found as u64).wrapping_sub(from) % SLOTS)
    }
}

fn slot(tick: u64) -> usize {
    (tick % SLOTS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_occupied_slot_is_found_from_everywhere() {
        for occupied in [0, 1, 63, 64, 65, 2_000, 4_095] {
            let mut level = Level::new();
            assert_eq!(level.next_occupied(occupied), None);
            level.set_head(occupied, 7);
            for from in 0..SLOTS {
                let expected = if from <= occupied { occupied } else { occupied + SLOTS };
                assert_eq!(level.next_occupied(from), Some(expected), "{occupied} from {from}");
            }
            level.set_head(occupied, NONE);
            assert_eq!(level.next_occupied(0), None);
        }
    }

    #[test]
    fn the_nearest_of_many_is_found() {
        let mut level = Level::new();
        for tick in [10, 12, 100, 4_000] {
            level.set_head(tick, 1);
        }
        let found: Vec<_> = [11, 13, 101, 4_001].into_iter().filter_map(|from| level.next_occupied(from)).collect();
        assert_eq!(found, [12, 100, 4_000, SLOTS + 10]);
    }
}
