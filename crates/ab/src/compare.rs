//! Whether two subjects differ, and by how much.
//!
//! In: one number per round of each, those of the same round measured one after the other. Out: the median of the
//! rounds' ratios, a 95 % interval (bootstrap), p (signed ranks), and a verdict.
//! A difference is only called real when the interval leaves out 1, and p is under 0.05, and there were rounds enough to
//! tell. With 5 rounds p cannot fall under 0.05, however large the difference is; 6 are the least, and 8 a good start.

use std::fmt;

use serde::Serialize;

use measure::rounds::{Ratio, signed_rank};

/// Fewer rounds prove nothing: all 6 on one side has a p of 2 / 2^6 = 0.031, all 5 of 0.063.
pub const ROUNDS_MIN: usize = 6;
/// How often two equal subjects may be called different, at most.
pub const P_MAX: f64 = 0.05;

/// How one subject compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Of the subject to the baseline.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// How probable such a leaning is when nothing but chance is at work.
    pub p: f64,
    /// Rounds in which both have a number.
    pub rounds: usize,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Real,
    WithinNoise,
    TooFewRounds,
}

impl Comparison {
    /// Compares samples of the same rounds. Rounds without a positive number on both sides are left out; `None` when
    /// there are no others.
    pub fn of(subject: &[f64], baseline: &[f64]) -> Option<Self> {
        let sound = |value: f64| value.is_finite() && value > 0.0;
        let (subject, baseline): (Vec<f64>, Vec<f64>) =
            subject.iter().zip(baseline).filter(|(subject, baseline)| sound(**subject) && sound(**baseline)).unzip();
        let ratio = Ratio::of(&subject, &baseline)?;
        let ratios: Vec<f64> = subject.iter().zip(&baseline).map(|(subject, baseline)| subject / baseline).collect();
        let (p, rounds) = (signed_rank(&ratios), ratios.len());
        let leaves_out_1 = ratio.low > 1.0 || ratio.high < 1.0;
        let verdict = match () {
            () if rounds < ROUNDS_MIN => Verdict::TooFewRounds,
            () if leaves_out_1 && p < P_MAX => Verdict::Real,
            () => Verdict::WithinNoise,
        };
        Some(Comparison { ratio, p, rounds, verdict })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { median, low, high } = self.ratio;
        let decimals = if high - low < 0.02 { 3 } else { 2 };
        match self.verdict {
            Verdict::Real => write!(f, "{median:.decimals$}× ({low:.decimals$}–{high:.decimals$})"),
            Verdict::WithinNoise => write!(f, "within noise: {low:.decimals$}–{high:.decimals$}"),
            Verdict::TooFewRounds => {
                write!(f, "{low:.decimals$}–{high:.decimals$}, too few rounds to tell")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::rounds::turns;
    use wire::Random;

    #[test]
    fn equal_subjects_are_within_noise() {
        let [a, b] = alternating(&mut Lab::new(1), [1.0, 1.0], 8);
        let comparison = Comparison::of(&b, &a).unwrap();
        assert_eq!(comparison.verdict, Verdict::WithinNoise);
        assert!(comparison.to_string().starts_with("within noise: 0.9"), "{comparison}");
    }

    #[test]
    fn a_slowdown_of_5_percent_is_found_in_8_rounds() {
        assert!(found(Lab::new, 1.05, 8) > 0.95);
    }

    #[test]
    fn subjects_3_percent_apart_are_told_apart_and_the_size_is_right() {
        assert!(found(Lab::new, 1.03, 12) > 0.9);
        let [a, b] = alternating(&mut Lab::new(3), [1.0, 1.03], 30);
        let Ratio { median, low, high } = Comparison::of(&b, &a).unwrap().ratio;
        assert!(low < 1.03 && 1.03 < high && (median - 1.03).abs() < 0.01, "{median} ({low}–{high})");
    }

    /// Experiments for each kind of machine; 2 % of them are 60.
    const EXPERIMENTS: u64 = 3_000;

    #[test]
    fn equal_subjects_are_called_different_no_more_often_than_promised() {
        type Machine = fn(u64) -> Lab;
        let machines: [(&str, Machine); 6] = [
            ("quiet", Lab::new),
            ("bimodal", |seed| Lab { slow_mode: 0.4, ..Lab::new(seed) }),
            ("outliers", |seed| Lab { outliers: 0.1, ..Lab::new(seed) }),
            ("drifting", |seed| Lab { drift: 0.01, ..Lab::new(seed) }),
            ("drifting fast", |seed| Lab { drift: 0.05, ..Lab::new(seed) }),
            ("wandering", |seed| Lab { wander: 0.02, ..Lab::new(seed) }),
        ];
        for (name, machine) in machines {
            for rounds in [ROUNDS_MIN, 8, 12] {
                let different = (0..EXPERIMENTS).filter(|seed| {
                    let [a, b] = alternating(&mut machine(*seed), [1.0, 1.0], rounds);
                    let ratios: Vec<f64> = b.iter().zip(&a).map(|(b, a)| b / a).collect();
                    // The interval takes long, and is only asked where the ranks see something.
                    signed_rank(&ratios) < P_MAX && Comparison::of(&b, &a).unwrap().verdict == Verdict::Real
                });
                let share = different.count() as f64 / EXPERIMENTS as f64;
                assert!(share <= P_MAX, "{name}, {rounds} rounds: {share}");
            }
        }
    }

    #[test]
    fn a_drift_that_fools_sequential_blocks_does_not_fool_alternating_rounds() {
        let (mut fooled_blocks, mut fooled_rounds) = (0, 0);
        for seed in 0..200 {
            let machine = || Lab { drift: 0.01, ..Lab::new(seed) };
            let [a, b] = blocks(&mut machine(), [1.0, 1.0], 8);
            fooled_blocks += usize::from(Comparison::of(&b, &a).unwrap().verdict == Verdict::Real);
            let [a, b] = alternating(&mut machine(), [1.0, 1.0], 8);
            fooled_rounds += usize::from(Comparison::of(&b, &a).unwrap().verdict == Verdict::Real);
        }
        assert!(fooled_blocks > 190 && fooled_rounds <= 10, "{fooled_blocks} and {fooled_rounds} of 200");
    }

    #[test]
    fn a_real_difference_is_found_while_the_machine_drifts() {
        assert!(found(|seed| Lab { drift: 0.01, ..Lab::new(seed) }, 1.05, 12) > 0.9);
    }

    #[test]
    fn two_modes_of_the_machine_are_no_difference_and_hide_a_large_one_no_more_than_they_must() {
        let machine = |seed| Lab { slow_mode: 0.4, ..Lab::new(seed) };
        assert!(found(machine, 1.0, 8) < 0.05);
        assert!(found(machine, 2.0, 8) > 0.9);
    }

    #[test]
    fn one_wild_run_neither_makes_nor_hides_a_difference() {
        let [a, mut b] = alternating(&mut Lab::new(5), [1.0, 1.0], 8);
        b[3] *= 10.0;
        assert_eq!(Comparison::of(&b, &a).unwrap().verdict, Verdict::WithinNoise);
        let [a, mut b] = alternating(&mut Lab::new(5), [1.0, 1.1], 12);
        b[3] *= 10.0;
        let comparison = Comparison::of(&b, &a).unwrap();
        assert_eq!(comparison.verdict, Verdict::Real);
        assert!(comparison.ratio.median < 1.15, "{comparison}");
    }

    #[test]
    fn fewer_than_6_rounds_prove_nothing_however_large_the_difference() {
        let [a, b] = alternating(&mut Lab::new(6), [1.0, 3.0], 5);
        let comparison = Comparison::of(&b, &a).unwrap();
        assert_eq!(comparison.verdict, Verdict::TooFewRounds);
        assert!(comparison.to_string().ends_with("too few rounds to tell"), "{comparison}");
        let [a, b] = alternating(&mut Lab::new(6), [1.0, 3.0], ROUNDS_MIN);
        assert_eq!(Comparison::of(&b, &a).unwrap().verdict, Verdict::Real);
    }

    #[test]
    fn rounds_without_a_number_are_left_out() {
        assert_eq!(Comparison::of(&[0.0, f64::NAN], &[1.0, 1.0]), None);
        let comparison = Comparison::of(&[2.0, 0.0, 2.0], &[1.0, 1.0, 1.0]).unwrap();
        assert_eq!((comparison.rounds, comparison.ratio.median), (2, 2.0));
    }

    /// The share of 300 experiments in which subjects of costs 1 and `cost` are called different.
    fn found(machine: impl Fn(u64) -> Lab, cost: f64, rounds: usize) -> f64 {
        let different = (0..300).filter(|seed| {
            let [a, b] = alternating(&mut machine(*seed), [1.0, cost], rounds);
            Comparison::of(&b, &a).unwrap().verdict == Verdict::Real
        });
        different.count() as f64 / 300.0
    }

    /// As `millrace ab` measures: A B B A ….
    fn alternating(lab: &mut Lab, costs: [f64; 2], rounds: usize) -> [Vec<f64>; 2] {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for case in turns(2, round) {
                samples[case].push(lab.measure(costs[case]));
            }
        }
        samples
    }

    /// As one should not measure: A A A … B B B ….
    fn blocks(lab: &mut Lab, costs: [f64; 2], rounds: usize) -> [Vec<f64>; 2] {
        costs.map(|cost| (0..rounds).map(|_| lab.measure(cost)).collect())
    }

    /// A machine with moods, each of which may be absent.
    struct Lab {
        random: Random,
        /// Relative noise of each run, 1.5 % as on a fairly quiet machine.
        noise: f64,
        /// How much slower each run is than the one before.
        drift: f64,
        /// The size of a step, up or down, from run to run.
        wander: f64,
        /// Cost that is added in about half of the runs.
        slow_mode: f64,
        /// Share of the runs that take two to five times as long.
        outliers: f64,
        /// How slow the machine is by now.
        mood: f64,
    }

    impl Lab {
        fn new(seed: u64) -> Self {
            let random = Random::new(seed.wrapping_mul(0x1234_5678_9abc_def1));
            Lab { random, noise: 0.015, drift: 0.0, wander: 0.0, slow_mode: 0.0, outliers: 0.0, mood: 1.0 }
        }

        fn measure(&mut self, cost: f64) -> f64 {
            self.mood *= (self.drift + self.wander * self.normal()).exp();
            let mode = if self.random.unit() < 0.5 { 1.0 } else { 1.0 + self.slow_mode };
            let outlier = if self.random.unit() < self.outliers { 2.0 + 3.0 * self.random.unit() } else { 1.0 };
            cost * self.mood * mode * outlier * (self.noise * self.normal()).exp()
        }

        /// Box and Muller.
        fn normal(&mut self) -> f64 {
            let radius = (-2.0 * (1.0 - self.random.unit()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.random.unit()).cos()
        }
    }
}
