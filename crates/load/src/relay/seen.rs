//! Which messages of one client came back: in order, late, or twice.
//!
//! In: their numbers as they arrive. Out: what to make of each.
//! Cost: 136 bytes for each client. Of what comes more than 1,024 numbers late it is not known whether it came before: it counts as
//! twice.

/// Numbers that are remembered, behind the highest.
const REMEMBERED: u32 = 1_024;
const WORDS: usize = (REMEMBERED / 64) as usize;

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Higher than all before.
    InOrder,
    /// After a higher one.
    Late,
    /// Not for the first time.
    Again,
}

/// The numbers of one client that came.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The number behind the highest.
    next: u32,
    /// A bit for each of the last numbers, by what they leave when divided.
    came: [u64; WORDS],
}

impl Seen {
    /// The number behind the highest that came: those below it are here, late, or lost.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Takes a number.
    pub(super) fn note(&mut self, seq: u32) -> Arrival {
        let (word, bit) = ((seq % REMEMBERED / 64) as usize, 1_u64 << (seq % 64));
        if seq >= self.next {
            if seq - self.next >= REMEMBERED {
                self.came = [0; WORDS];
            } else {
                (self.next..seq).for_each(|skipped| self.forget(skipped));
            }
            self.next = seq + 1;
            self.came[word] |= bit;
            return Arrival::InOrder;
        }
        if self.next - seq > REMEMBERED || self.came[word] & bit != 0 {
            return Arrival::Again;
        }
        self.came[word] |= bit;
        Arrival::Late
    }

    fn forget(&mut self, seq: u32) {
        self.came[(seq % REMEMBERED / 64) as usize] &= !(1 << (seq % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::Arrival::{Again, InOrder, Late};
    use super::*;

    #[test]
    fn each_number_counts_once() {
        let mut seen = Seen::default();
        let arrivals = [0, 1, 4, 2, 2, 4, 3, 5].map(|seq| seen.note(seq));
        assert_eq!(arrivals, [InOrder, InOrder, InOrder, Late, Again, Again, Late, InOrder]);
        assert_eq!(seen.next(), 6);
    }

    #[test]
    fn a_number_that_takes_the_place_of_an_old_one_is_not_taken_for_it() {
        let mut seen = Seen::default();
        (0..REMEMBERED).for_each(|seq| assert_eq!(seen.note(seq), InOrder));
        assert_eq!(seen.note(REMEMBERED + 5), InOrder);
        assert_eq!([REMEMBERED, REMEMBERED, REMEMBERED + 1].map(|seq| seen.note(seq)), [Late, Again, Late]);
        assert_eq!(seen.note(REMEMBERED * 9), InOrder);
        assert_eq!([REMEMBERED * 9 - 1, REMEMBERED * 8 - 1].map(|seq| seen.note(seq)), [Late, Again]);
    }
}
