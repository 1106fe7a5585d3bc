//! Comparing cases fairly on a machine that is never quite quiet.
//!
//! In: cases that can be measured again and again. Out: their samples, round by round, and ratios of two cases with a
//! confidence interval.
//! How: every round measures every case once, in turn forwards and backwards (A B B A), so that a slow drift meets all
//! alike; the first rounds are thrown away; ratios are taken within a round, between neighbours in time.
//! Source: percentile bootstrap, Efron and Tibshirani, An Introduction to the Bootstrap, §13.3; signed ranks, Wilcoxon,
//! Individual Comparisons by Ranking Methods, Biometrics Bulletin 1 (1945).

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use wire::Random;

/// Resamples of one bootstrap.
const RESAMPLES: usize = 2_000;

/// Rounds that are thrown away: they fill caches and wake the processor.
const WARM_UP_ROUNDS: usize = 1;

/// Rounds that count, after those to warm up, with a bar that shows how far they are.
pub struct Rounds {
    count: usize,
    bar: ProgressBar,
}

impl Rounds {
    /// `cases` is how many are measured in each round, in all groups together.
    pub fn new(count: usize, cases: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} ({eta} left)");
        let bar = ProgressBar::new((cases * (WARM_UP_ROUNDS + count)) as u64);
        Rounds { count, bar: bar.with_style(style.expect("the template is sound")) }
    }

    /// Measures a group of cases side by side, and returns the samples of each, one a round that counts.
    ///
    /// # Errors
    /// The first that `measure` has.
    pub fn alternate<C, T, E>(
        &self,
        cases: &[C],
        name: impl Fn(&C) -> String,
        mut measure: impl FnMut(&C) -> Result<T, E>,
    ) -> Result<Vec<Vec<T>>, E> {
        let mut samples: Vec<Vec<T>> = cases.iter().map(|_| Vec::with_capacity(self.count)).collect();
        for round in 0..WARM_UP_ROUNDS + self.count {
            for case in turns(cases.len(), round) {
                self.bar.set_message(name(&cases[case]));
                let sample = measure(&cases[case])?;
                self.bar.inc(1);
                if round >= WARM_UP_ROUNDS {
                    samples[case].push(sample);
                }
            }
        }
        Ok(samples)
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The order of `cases` in a round: forwards in even rounds, backwards in odd ones.
pub fn turns(cases: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..cases).map(move |turn| if round.is_multiple_of(2) { turn } else { cases - 1 - turn })
}

/// A ratio and where it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Of the ratios of all pairs.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// How the case compares with the baseline; samples of the same index are a pair. `None` without pairs.
    pub fn of(case: &[f64], baseline: &[f64]) -> Option<Self> {
        let pairs: Vec<f64> = case.iter().zip(baseline).map(|(case, baseline)| case / baseline).collect();
        if pairs.is_empty() {
            return None;
        }
        // It starts where it always does, so that the same samples give the same interval.
        let mut random = Random::new(pairs.len() as u64);
        let mut resample = vec![0.0; pairs.len()];
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                resample.fill_with(|| pairs[(random.next_u64() % pairs.len() as u64) as usize]);
                median_of(&mut resample)
            })
            .collect();
        medians.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share) as usize];
        Some(Ratio { median: median(&pairs), low: at(0.025), high: at(0.975) })
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.low, self.high)
    }
}

/// Returns how probable it is that ratios lean to one side of 1 as much as these do, or more, when nothing but chance is
/// at work: the two-sided p of Wilcoxon's signed-rank test on their logarithms.
///
/// Exact for any number of pairs, with ties too; ratios of exactly 1 say nothing and are left out.
/// Cost: the cube of the number of pairs; 200 take about 10 ms.
pub fn signed_rank(ratios: &[f64]) -> f64 {
    let mut logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).filter(|log| *log != 0.0).collect();
    logs.sort_unstable_by(|one, other| one.abs().total_cmp(&other.abs()));
    // Equal sizes share the mean of their ranks; twice that is a whole number.
    let twice_ranks: Vec<usize> = logs
        .chunk_by(|one, other| one.abs() == other.abs())
        .scan(0, |below, ties| {
            let twice = 2 * *below + ties.len() + 1;
            *below += ties.len();
            Some(std::iter::repeat_n(twice, ties.len()))
        })
        .flatten()
        .collect();
    let total: usize = twice_ranks.iter().sum();
    let positive: usize = logs.iter().zip(&twice_ranks).filter(|(log, _)| **log > 0.0).map(|(_, rank)| rank).sum();

    // The share of all ways to give signs in which the positive ranks add up to each sum.
    let mut share = vec![0.0; total + 1];
    share[0] = 1.0;
    let mut reached = 0;
    for &rank in &twice_ranks {
        reached += rank;
        for sum in (0..=reached).rev() {
            let with = if sum >= rank { share[sum - rank] } else { 0.0 };
            share[sum] = (share[sum] + with) / 2.0;
        }
    }
    let leaning = |sum: usize| (2 * sum).abs_diff(total);
    let as_much = share.iter().enumerate().filter(|(sum, _)| leaning(*sum) >= leaning(positive));
    as_much.map(|(_, share)| share).sum::<f64>().min(1.0)
}

/// The middle value, or the mean of the middle two; 0 for none.
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

/// The same, of values that need not stay in order.
fn median_of(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match &*values {
        [] => 0.0,
        sorted if sorted.len() % 2 == 1 => sorted[sorted.len() / 2],
        sorted => (sorted[sorted.len() / 2 - 1] + sorted[sorted.len() / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn rounds_go_forwards_and_backwards_and_the_first_are_thrown_away() {
        let mut order = Vec::new();
        let samples = Rounds::new(2, 2).alternate(&[0, 1], usize::to_string, |case| {
            order.push(*case);
            Ok::<_, Infallible>(order.len())
        });
        let samples = samples.unwrap();
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        assert_eq!(samples, [[4, 5], [3, 6]]);
    }

    #[test]
    fn a_drift_that_meets_both_alike_does_not_show_in_the_ratio() {
        let baseline: Vec<f64> = (0..12).map(|round| 100.0 + 50.0 * f64::from(round)).collect();
        let case: Vec<f64> = baseline.iter().map(|sample| sample * 0.5).collect();
        assert_eq!(Ratio::of(&case, &baseline), Some(Ratio { median: 0.5, low: 0.5, high: 0.5 }));
    }

    #[test]
    fn the_interval_holds_the_median_and_grows_with_the_noise() {
        let baseline = [100.0; 9];
        let case = [80.0, 95.0, 99.0, 100.0, 101.0, 102.0, 105.0, 120.0, 140.0];
        let ratio = Ratio::of(&case, &baseline).unwrap();
        assert_eq!(ratio.median, 1.01);
        assert!(ratio.low < 1.0 && ratio.high > 1.02, "{ratio}");
    }

    #[test]
    fn signed_ranks_have_the_probabilities_of_the_tables() {
        // The lowest that n pairs can reach is 2 / 2^n: all on one side.
        assert_eq!(signed_rank(&[1.1, 1.2, 1.3, 1.4, 1.5]), 2.0 / 32.0);
        assert_eq!(signed_rank(&[0.9, 0.8, 0.7, 0.6, 0.5, 0.4]), 2.0 / 64.0);
        // n = 8, smaller sum of ranks 3 and 4: 0.0195 and 0.0391 in the tables, so 3 is the limit for 0.025.
        assert_eq!(signed_rank(&[1.1, 1.2, 0.75, 1.4, 1.5, 1.6, 1.7, 1.8]), 10.0 / 256.0);
        assert_eq!(signed_rank(&[1.1, 0.85, 1.25, 1.4, 1.5, 1.6, 1.7, 1.8]), 6.0 / 256.0);
    }

    #[test]
    fn signed_ranks_see_nothing_in_what_is_even() {
        assert_eq!(signed_rank(&[]), 1.0);
        assert_eq!(signed_rank(&[1.0; 8]), 1.0);
        assert_eq!(signed_rank(&[0.5, 2.0, 0.25, 4.0]), 1.0);
    }

    #[test]
    fn ties_share_their_ranks() {
        // Three equal ranks: 2 of the 8 ways are all on one side.
        assert_eq!(signed_rank(&[1.5, 1.5, 1.5]), 2.0 / 8.0);
        assert_eq!(signed_rank(&[1.5, 1.5, 1.0 / 1.5]), 1.0);
    }

    #[test]
    fn nothing_has_no_ratio() {
        assert_eq!(Ratio::of(&[], &[]), None);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
