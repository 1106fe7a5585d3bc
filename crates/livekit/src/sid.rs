//! Names that the server gives: `RM_`, `PA_`, `TR_` and so on, with twelve letters and digits behind.
//!
//! They differ for as long as the process runs, and from those of other processes by the seed. They are names and no
//! secrets: who knows one needs a token all the same.

/// Letters and digits that are not taken for one another.
const DIGITS: &[u8; 57] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Gives names.
#[derive(Debug)]
pub(crate) struct Sids {
    state: u64,
}

impl Sids {
    pub(crate) fn new(seed: u64) -> Self {
        Sids { state: seed }
    }

    pub(crate) fn next(&mut self, prefix: &str) -> String {
        let mut number = self.scrambled();
        let mut name = String::with_capacity(prefix.len() + 12);
        name.push_str(prefix);
        for _ in 0..12 {
            name.push(char::from(DIGITS[(number % 57) as usize]));
            number /= 57;
        }
        name
    }

    /// SplitMix64: each of the 2^64 numbers once, before any comes again.
    fn scrambled(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_keep_their_prefix() {
        let mut sids = Sids::new(7);
        let names: std::collections::HashSet<_> = (0..10_000).map(|_| sids.next("PA_")).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.starts_with("PA_") && name.len() == 15));
    }
}
