//! Which ports of a relayed address are in use.
//!
//! In: a random number, and what kind of port is wanted. Out: a free one, near a random place, so that nobody can tell which
//! comes next. Cost: a bit per port; a walk over words of 64 ports, where most are in use.
//! Source: RFC 8656 §7.2 (ports at random), §18.7 (EVEN-PORT).

use std::ops::RangeInclusive;

/// Ports of one address, of a worker's slice.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    count: u32,
    /// A bit for each port that may be given away.
    free: Box<[u64; WORDS]>,
    /// How many of these there are.
    free_count: u32,
}

/// What kind of port is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Any.
    Any,
    /// An even one.
    Even,
    /// An even one, and the one behind it, which is taken as well.
    Pair,
}

const WORDS: usize = 1 << 16 >> 6;

/// The bits of even ports.
const EVEN: u64 = 0x5555_5555_5555_5555;

impl Ports {
    /// All ports of a range are free, but for port 0, which is none.
    pub(crate) fn new(range: RangeInclusive<u16>) -> Self {
        let (first, last) = ((*range.start()).max(1), *range.end());
        let mut ports = Ports {
            first,
            count: u32::from(last).saturating_sub(u32::from(first)) + u32::from(first <= last),
            free: Box::new([0; WORDS]),
            free_count: 0,
        };
        (first..=last).for_each(|port| ports.set(port, true));
        ports
    }

    /// Takes the first port of that kind from a random one on.
    pub(crate) fn take(&mut self, wanted: Wanted, random: u64) -> Option<u16> {
        if self.count == 0 {
            return None;
        }
        let start = u32::from(self.first) + (random % u64::from(self.count)) as u32;
        let (word, bit) = ((start >> 6) as usize, start & 63);
        // The word in which it begins is looked at twice: the part behind the start first, and all of it last.
        let from_start = (word, self.fits(word, wanted) & (u64::MAX << bit));
        let behind = (1..=WORDS).map(|step| (word + step) % WORDS).map(|word| (word, self.fits(word, wanted)));
        let (word, fits) = std::iter::once(from_start).chain(behind).find(|(_, fits)| *fits != 0)?;
        let port = (word << 6) as u16 | fits.trailing_zeros() as u16;
        self.set(port, false);
        if wanted == Wanted::Pair {
            self.set(port | 1, false);
        }
        Some(port)
    }

    /// The ports of a word at which what is wanted begins.
    fn fits(&self, word: usize, wanted: Wanted) -> u64 {
        let free = self.free[word];
        match wanted {
            Wanted::Any => free,
            Wanted::Even => free & EVEN,
            Wanted::Pair => free & (free >> 1) & EVEN,
        }
    }

    /// A port is free again.
    pub(crate) fn give_back(&mut self, port: u16) {
        self.set(port, true);
    }

    /// How many are free.
    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn set(&mut self, port: u16, is_free: bool) {
        let (word, bit) = (usize::from(port >> 6), 1 << (port & 63));
        match (self.free[word] & bit != 0, is_free) {
            (false, true) => self.free_count += 1,
            (true, false) => self.free_count -= 1,
            _ => return,
        }
        self.free[word] ^= bit;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_are_even_and_whole() {
        let mut ports = Ports::new(4_999..=5_006);
        let mut taken: Vec<_> = (0..9).filter_map(|random| ports.take(Wanted::Pair, random)).collect();
        taken.sort_unstable();
        assert_eq!(taken, [5_000, 5_002, 5_004]);
        assert_eq!(ports.take(Wanted::Even, 0), Some(5_006));
        assert_eq!((ports.take(Wanted::Even, 0), ports.take(Wanted::Any, 3)), (None, Some(4_999)));
        assert_eq!(ports.take(Wanted::Any, 0), None);
        ports.give_back(5_003);
        assert_eq!((ports.take(Wanted::Pair, 0), ports.take(Wanted::Any, 7)), (None, Some(5_003)));
    }

    #[test]
    fn a_range_without_ports_has_none() {
        assert_eq!(Ports::new(0..=0).take(Wanted::Any, 0), None);
        assert_eq!(Ports::new(RangeInclusive::new(9, 8)).take(Wanted::Any, 0), None);
        assert_eq!(Ports::new(65_535..=65_535).take(Wanted::Any, 9), Some(65_535));
    }

    proptest! {
        #[test]
        fn each_port_is_given_once(first in 1_u16.., len in 0_u16..300, randoms in prop::collection::vec(any::<u64>(), 400)) {
            let last = first.saturating_add(len);
            let mut ports = Ports::new(first..=last);
            let mut taken: Vec<_> = randoms.iter().filter_map(|random| ports.take(Wanted::Any, *random)).collect();
            taken.sort_unstable();
            prop_assert_eq!(taken, (first..=last).collect::<Vec<_>>());
            prop_assert_eq!(ports.free_count(), 0);
        }
    }
}
