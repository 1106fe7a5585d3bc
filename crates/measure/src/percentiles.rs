//! How times are distributed.
//!
//! In: times. Out: milliseconds, as numbers, classes and words.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times from 1 µs to a minute, to three digits; what is longer counts as a minute.
#[derive(Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Times(Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are sound"))
    }
}

impl Times {
    /// Adds one, in nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns / 1_000);
    }

    /// Adds one.
    pub fn record(&mut self, time: Duration) {
        self.record_ns(time.as_nanos() as u64);
    }
}

/// What a distribution comes to, in milliseconds; all 0 without a value.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Percentiles {
    /// How many values there are.
    pub count: u64,
    /// The median.
    pub p50_ms: f64,
    /// Of ten values, nine are at most as large.
    pub p90_ms: f64,
    /// Of a hundred values, all but one.
    pub p99_ms: f64,
    /// Of a thousand values, all but one.
    pub p999_ms: f64,
    /// The largest.
    pub max_ms: f64,
    /// How many were at most so many milliseconds, and more than the bound before; bounds grow by a fifth each.
    pub histogram: Vec<(f64, u64)>,
}

/// The first bound of a histogram, in µs, and the factor from each to the next.
const BOUNDS_US: (u64, f64) = (100, 1.2);

impl Percentiles {
    /// Of all of them together.
    pub fn of_all<'a>(parts: impl Iterator<Item = &'a Times>) -> Self {
        let mut all = Times::default();
        for part in parts {
            all.0.add(&part.0).expect("all have the same bounds");
        }
        Percentiles::of(&all)
    }

    /// Of single values, in nanoseconds.
    pub fn of_ns(values: impl Iterator<Item = u64>) -> Self {
        let mut all = Times::default();
        values.for_each(|ns| all.record_ns(ns));
        Percentiles::of(&all)
    }

    /// Of those that were recorded.
    pub fn of(Times(histogram_us): &Times) -> Self {
        let at = |quantile: f64| histogram_us.value_at_quantile(quantile) as f64 / 1e3;
        Percentiles {
            count: histogram_us.len(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: histogram_us.max() as f64 / 1e3,
            histogram: histogram_us
                .iter_log(BOUNDS_US.0, BOUNDS_US.1)
                .map(|step| (step.value_iterated_to() as f64 / 1e3, step.count_since_last_iteration()))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Percentiles { count, p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = self;
        match count {
            0 => f.write_str("none measured"),
            _ => {
                write!(f, "p50 {p50_ms:.2}, p90 {p90_ms:.2}, p99 {p99_ms:.2}, p99.9 {p999_ms:.2}, max {max_ms:.2} ms")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_that_ends_behind_it() {
        let mut all = Times::default();
        for us in [90, 950, 1_000, 20_000] {
            all.record(Duration::from_micros(us));
        }
        let buckets = Percentiles::of(&all).histogram;
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 4);
        for ms in [0.09, 0.95, 20.0] {
            let fits = |(upper, _): &&(f64, u64)| ms <= *upper && *upper <= (ms * 1.21f64).max(0.1);
            assert_eq!(buckets.iter().filter(fits).count(), 1, "{ms}: {buckets:?}");
        }
        assert!(Percentiles::of(&Times::default()).histogram.is_empty());
    }
}
