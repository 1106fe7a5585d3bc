//! How late things happened, as counts per power of two.
//!
//! In: durations. Out: counts, their sum, quantiles (within a factor of two, interpolated). Cost: two additions.

use std::time::Duration;

use crate::{Cell, Value};

/// Number of buckets: one per bit length of a nanosecond count.
pub const BUCKETS: usize = 64;

/// A log2 histogram of nanoseconds. Bucket 0 counts what was exactly on time, bucket `b` what lies in `2^(b-1)..2^b`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    buckets: [u64; BUCKETS],
    sum_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { buckets: [0; BUCKETS], sum_ns: 0 }
    }
}

impl Lateness {
    /// Takes counts that were kept elsewhere, in the same buckets. Their sum is not known, and zero.
    pub fn from_buckets(buckets: [u64; BUCKETS]) -> Self {
        Lateness { buckets, sum_ns: 0 }
    }

    /// The bucket in which `late` is counted.
    pub fn bucket_of(late: Duration) -> usize {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        ((u64::BITS - nanos.leading_zeros()) as usize).min(BUCKETS - 1)
    }

    /// Counts one.
    pub fn record(&mut self, late: Duration) {
        self.buckets[Self::bucket_of(late)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(late.as_nanos() as u64);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Lateness) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// Counts per bucket; bucket `b` ends below `2^b` nanoseconds.
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.buckets
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all that was counted, in nanoseconds. It wraps after 584 years.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The lateness that the share `q` (0.0 to 1.0) of all did not exceed; zero when nothing was recorded.
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            if below + count >= rank {
                let (low, high) = bounds_ns(bucket);
                let share = (rank - below) as f64 / count as f64;
                return Duration::from_nanos(low + (share * (high - low) as f64) as u64);
            }
            below += count;
        }
        Duration::ZERO
    }
}

impl Cell for Lateness {
    const WORDS: usize = BUCKETS + 1;

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.buckets.iter().for_each(|count| word(*count));
        word(self.sum_ns);
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        Lateness { buckets: std::array::from_fn(|_| word()), sum_ns: word() }
    }

    fn value(&self) -> Value<'_> {
        Value::Times(self)
    }
}

/// The nanoseconds between which bucket `bucket` counts.
fn bounds_ns(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        _ => (1 << (bucket - 1), (1_u64 << (bucket - 1)).saturating_mul(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 1_023, 1_024].map(|n| Lateness::bucket_of(ns(n))), [0, 1, 2, 2, 3, 10, 11]);
        assert_eq!(Lateness::bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_rank() {
        let mut lateness = Lateness::default();
        for _ in 0..99 {
            lateness.record(ns(100));
        }
        lateness.record(ns(1_000_000));

        assert!((64..=128).contains(&lateness.quantile(0.5).as_nanos()));
        assert!((64..=128).contains(&lateness.quantile(0.99).as_nanos()));
        assert!((524_288..=1_048_576).contains(&lateness.quantile(1.0).as_nanos()));
    }

    #[test]
    fn an_empty_histogram_has_no_lateness() {
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn merging_adds_counts() {
        let (mut a, mut b) = (Lateness::default(), Lateness::default());
        a.record(ns(5));
        b.record(ns(5));
        b.record(ns(1 << 62));
        a.merge(&b);
        assert_eq!((a.count(), a.buckets()[3], a.sum_ns()), (3, 2, (1 << 62) + 10));
        assert!(a.quantile(1.0) > Duration::from_secs(1 << 32));
    }
}
