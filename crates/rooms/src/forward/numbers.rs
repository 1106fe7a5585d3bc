//! Sequence numbers of one down track: what is left out closes up, what is missing stays a hole.
//!
//! In: extended sequence numbers in arrival order. Out: extended output numbers, in the same order.
//! Cost: O(1); 96 bytes.

use std::ops::Range;

use crate::drops::DropReason;

/// So many packets back it is known which were dropped. A later one has a place only where nothing was dropped since.
const WINDOW: u64 = 512;

#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// The first packet that has a place: the one at which the layer was switched to.
    first: u64,
    /// One more than the highest incoming number.
    next: u64,
    /// What is added to `next` for its output number; wraps.
    shift: u64,
    /// The highest number that was dropped; 0 for none.
    last_dropped: u64,
    /// Bit `seq % WINDOW`: that packet was dropped and has no output number.
    dropped: [u64; (WINDOW / 64) as usize],
}

impl Numbers {
    /// `first_output` is the number that the first packet gets.
    pub(super) fn new(first_output: u64) -> Self {
        Numbers { first: 0, next: 0, shift: first_output, last_dropped: 0, dropped: [0; 8] }
    }

    /// Goes on with another row of incoming numbers, in which `seq` comes next.
    pub(super) fn switch(&mut self, seq: u64) {
        let next_output = self.last().wrapping_add(1);
        *self = Numbers { first: seq, next: seq, ..Numbers::new(next_output.wrapping_sub(seq)) };
    }

    /// The next output number, for a packet that stands for none that came. Before the first one alone.
    pub(super) fn pad(&mut self) -> u64 {
        self.shift = self.shift.wrapping_add(1);
        self.last()
    }

    /// The last output number in use.
    pub(super) fn last(&self) -> u64 {
        self.next.wrapping_add(self.shift).wrapping_sub(1)
    }

    /// The incoming numbers that have a place, up to the highest.
    pub(super) fn span(&self) -> Range<u64> {
        self.first..self.next
    }

    /// Whether a higher number was there before.
    pub(super) fn is_late(&self, seq: u64) -> bool {
        seq < self.next
    }

    /// Packets that are missing before `seq`, which is not late.
    pub(super) fn gap(&self, seq: u64) -> u64 {
        seq - self.next
    }

    /// Gives `seq`, which is not late, the next output number, after as many as are missing before it.
    pub(super) fn forward(&mut self, seq: u64) -> u64 {
        self.mark(seq + 1, false);
        self.last()
    }

    /// Leaves out `seq`, which is not late; what is missing before it stays a hole.
    pub(super) fn drop(&mut self, seq: u64) {
        self.mark(seq, false);
        self.drop_before(seq + 1);
    }

    /// Leaves out all that is missing before `seq`, which is not late.
    pub(super) fn drop_before(&mut self, seq: u64) {
        if seq > self.next {
            self.shift = self.shift.wrapping_sub(seq - self.next);
            self.last_dropped = seq - 1;
            self.mark(seq, true);
        }
    }

    /// The output number that a late packet would have had.
    pub(super) fn late(&self, seq: u64) -> Result<u64, DropReason> {
        if seq < self.first {
            return Err(DropReason::BeforeSwitch);
        }
        if seq > self.last_dropped {
            return Ok(seq.wrapping_add(self.shift));
        }
        if self.next - seq > WINDOW {
            return Err(DropReason::BehindHistory);
        }
        if self.dropped[word(seq)] >> (seq % 64) & 1 == 1 {
            return Err(DropReason::TemporalLayer);
        }
        let drops = spans(seq, self.next).map(|(word, mask)| (self.dropped[word] & mask).count_ones());
        Ok(seq.wrapping_add(self.shift).wrapping_add(drops.sum::<u32>().into()))
    }

    /// Moves on to `next`, and notes for all before it whether they were dropped.
    fn mark(&mut self, next: u64, dropped: bool) {
        let start = self.next.max(next.saturating_sub(WINDOW));
        for (word, mask) in spans(start, next) {
            self.dropped[word] = if dropped { self.dropped[word] | mask } else { self.dropped[word] & !mask };
        }
        self.next = next;
    }
}

fn word(seq: u64) -> usize {
    (seq % WINDOW / 64) as usize
}

/// The words, and the bits in each, that stand for the numbers from `start` up to `end`.
fn spans(start: u64, end: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let len = (64 - at % 64).min(end.checked_sub(at)?);
        let mask = u64::MAX.checked_shr(64 - len as u32)? << (at % 64);
        let word = word(at);
        at += len;
        Some((word, mask))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(seq: u64) -> Numbers {
        let mut numbers = Numbers::new(70_000);
        numbers.switch(seq);
        numbers
    }

    #[test]
    fn what_is_dropped_closes_up_and_what_is_missing_stays_a_hole() {
        let mut numbers = started(100);
        assert_eq!(numbers.forward(100), 70_000);
        numbers.drop_before(102);
        assert_eq!(numbers.forward(104), 70_003);
        assert_eq!(numbers.late(103), Ok(70_002));
        assert_eq!(numbers.late(101), Err(DropReason::TemporalLayer));
        assert_eq!(numbers.late(100), Ok(70_000));
        assert_eq!(numbers.late(99), Err(DropReason::BeforeSwitch));
    }

    #[test]
    fn what_is_missing_before_a_dropped_packet_keeps_its_place() {
        let mut numbers = started(100);
        numbers.drop(103);
        assert_eq!(numbers.forward(104), 70_003);
        assert_eq!(numbers.late(102), Ok(70_002));
        assert_eq!(numbers.late(103), Err(DropReason::TemporalLayer));
    }

    #[test]
    fn numbers_are_known_for_the_window_and_not_beyond() {
        let mut numbers = started(1_000);
        for seq in (1_000..1_000 + WINDOW).step_by(2) {
            numbers.forward(seq);
            numbers.drop_before(seq + 2);
        }
        assert_eq!(numbers.late(1_000), Ok(70_000));
        numbers.forward(1_000 + WINDOW);
        assert_eq!(numbers.late(1_000), Err(DropReason::BehindHistory));
        assert_eq!(numbers.late(1_002), Ok(70_001));
    }

    #[test]
    fn where_nothing_is_dropped_a_late_packet_has_a_place_however_far_behind() {
        let mut numbers = started(1_000);
        numbers.drop(1_001);
        numbers.forward(9_000);
        assert_eq!(numbers.late(1_002), Ok(70_001));
        assert_eq!([1_000, 1_001].map(|seq| numbers.late(seq)), [Err(DropReason::BehindHistory); 2]);
        numbers.drop(9_001);
        assert_eq!(numbers.late(1_002), Err(DropReason::BehindHistory));
        assert_eq!(numbers.late(8_999), Ok(70_000 + 7_998));
    }

    #[test]
    fn a_jump_longer_than_the_window_forgets_all_drops() {
        let mut numbers = started(0);
        numbers.drop_before(600);
        assert_eq!(numbers.forward(5_000), 70_000 + 4_400);
        assert_eq!(numbers.late(4_600), Ok(70_000 + 4_000));
    }
}
