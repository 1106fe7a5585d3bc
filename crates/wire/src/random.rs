//! Numbers that must differ but need not be secret.
//!
//! Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014), SplitMix64.

/// A small generator: the same seed gives the same numbers, on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number, any of all that there are.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// From 0 to below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_paper_s_generator() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next_u64());
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn shares_and_limits_are_kept() {
        let mut random = Random::new(1);
        assert!((0..1_000).all(|_| (0.0..1.0).contains(&random.unit()) && random.below(7) < 7));
        let hits = (0..1_000).filter(|_| random.chance(0.3)).count();
        assert!((250..350).contains(&hits), "{hits}");
    }
}
