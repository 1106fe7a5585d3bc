//! What the runs of a plan come to.
//!
//! In: records. Out: for each point and subject the median over the rounds of what was measured, how it compares with the
//! first subject, and remarks on what makes the figures doubtful.

use serde::Serialize;

use super::cell::{self, Cell, Metric};
use super::compare::{Comparison, P_MAX, ROUNDS_MIN};
use super::outcome::LOST;
use super::plan::Plan;
use super::record::{Failure, Loss, Record};
use super::values::Judge;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub plan: String,
    /// What the points count.
    pub axis: Option<String>,
    /// By what subjects are compared, as the plan names it.
    pub judge: String,
    /// The subject that the others are compared with.
    pub baseline: String,
    pub points: Vec<Point>,
    /// What one should know before believing it.
    pub remarks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub point: f64,
    /// In the plan's order, without those that failed here in every round.
    pub subjects: Vec<Row>,
}

/// One subject at one point; all figures are medians over the rounds, but the losses, which are sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub subject: String,
    pub rounds: usize,
    pub packets_per_second: f64,
    pub bits_per_second: f64,
    /// CPU time of the server per packet that arrived.
    pub cpu_us_per_packet: f64,
    pub user_us_per_packet: f64,
    pub system_us_per_packet: f64,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub peak_memory_bytes: f64,
    /// Context switches of the server, per thousand packets that arrived.
    pub voluntary_per_1000: f64,
    pub involuntary_per_1000: f64,
    pub syscalls_per_packet: Option<f64>,
    /// CPU time of the load per second: near 1 for each of its threads, the load is what is measured.
    pub load_cpus: f64,
    pub loss: Loss,
    /// Packets that the load says it misses.
    pub lost: Option<f64>,
    /// What is judged by.
    pub judged: Option<f64>,
    /// `None` for the baseline itself, and where there is nothing to compare.
    pub against_baseline: Option<Comparison>,
}

impl Summary {
    /// Sums up the runs of a plan.
    pub fn of(plan: &Plan, records: &[Record], failures: &[Failure]) -> Summary {
        let cells = |point: f64| plan.subjects.iter().map(move |subject| Cell::of(records, &subject.name, point));
        let cells: Vec<Vec<Cell<'_>>> = plan.points.iter().map(|&point| cells(point).collect()).collect();
        let points = plan.points.iter().zip(&cells).map(|(&point, cells)| {
            let rows = plan.subjects.iter().zip(cells).enumerate().map(|(index, (subject, cell))| Row {
                subject: subject.name.clone(),
                against_baseline: cell.compare(&cells[0], |run| plan.judge.of(run)).filter(|_| index > 0),
                ..Row::of(cell, &plan.judge)
            });
            Point { point, subjects: rows.filter(|row| row.rounds > 0).collect() }
        });
        let points: Vec<Point> = points.collect();
        Summary {
            plan: plan.name.clone(),
            axis: plan.axis.clone(),
            judge: plan.judge.to_string(),
            baseline: plan.subjects[0].name.clone(),
            remarks: [failed(plan, failures), remarks(plan, &cells.into_iter().flatten().collect::<Vec<_>>(), &points)]
                .concat(),
            points,
        }
    }
}

impl Row {
    fn of(cell: &Cell<'_>, judge: &Judge) -> Row {
        let middle = |metric: Metric| cell.median(metric).unwrap_or_default();
        Row {
            rounds: cell.counted.len(),
            packets_per_second: middle(cell::rate),
            bits_per_second: middle(cell::bit_rate),
            cpu_us_per_packet: middle(cell::cost_us),
            user_us_per_packet: middle(cell::user_us),
            system_us_per_packet: middle(cell::kernel_us),
            p50_ms: cell.median(cell::p50),
            p99_ms: cell.median(cell::p99),
            peak_memory_bytes: middle(cell::memory_bytes),
            voluntary_per_1000: middle(cell::voluntary_switches),
            involuntary_per_1000: middle(cell::involuntary_switches),
            syscalls_per_packet: cell.median(cell::syscalls),
            load_cpus: middle(cell::load_cores),
            loss: Loss {
                listener: cell.sum(|run| run.loss.listener),
                relay: cell.sum(|run| run.loss.relay),
                client: cell.sum(|run| run.loss.client),
                interface: cell.sum(|run| run.loss.interface),
            },
            lost: cell.counted.values().filter_map(|run| run.values.get(LOST).copied()).reduce(|sum, lost| sum + lost),
            judged: cell.median(|run| judge.of(run)),
            ..Row::default()
        }
    }
}

/// Who failed where, and why the first time.
fn failed(plan: &Plan, failures: &[Failure]) -> Vec<String> {
    let mut remarks = Vec::new();
    for point in &plan.points {
        for subject in &plan.subjects {
            let here = || failures.iter().filter(|failure| failure.subject == subject.name && failure.point == *point);
            let Some(first) = here().next() else { continue };
            let count = match here().count() {
                1 => "once".to_owned(),
                count => format!("{count} times, and was given up there"),
            };
            let place = plan.place(" at ", *point);
            let error = first.error.lines().next().unwrap_or_default();
            remarks.push(format!("{} failed{place} {count}: {error}", subject.name));
        }
    }
    remarks
}

/// A load that uses more of its CPUs than this is likely to be what is measured.
const LOAD_SHARE_MAX: f64 = 0.95;

fn remarks(plan: &Plan, cells: &[Cell<'_>], points: &[Point]) -> Vec<String> {
    let mut remarks = Vec::new();
    let disturbed = || cells.iter().flat_map(Cell::disturbed);
    if let Some(last) = disturbed().max_by_key(|run| (run.round, run.turn)) {
        let repeats = if plan.repeats > 0 { format!(", also after {} repeats", plan.repeats) } else { String::new() };
        remarks.push(format!(
            "{} of {} runs that count were disturbed{repeats}; the last one by {}. The intervals are wider for it, and a \
             quieter machine would tell more.",
            disturbed().count(),
            cells.iter().map(|cell| cell.counted.len()).sum::<usize>(),
            last.disturbed.as_deref().unwrap_or_default(),
        ));
    }
    if (plan.rounds as usize) < ROUNDS_MIN {
        let rounds = if plan.rounds == 1 { "1 round proves".into() } else { format!("{} rounds prove", plan.rounds) };
        remarks.push(format!("{rounds} nothing, whatever the difference; {ROUNDS_MIN} are the least."));
    }
    let rows = || points.iter().flat_map(|point| &point.subjects);
    let comparisons = rows().filter(|row| row.against_baseline.is_some()).count();
    if comparisons > 1 {
        remarks.push(format!(
            "Of {comparisons} comparisons between equal subjects, chance alone would call {:.1} different at most.",
            comparisons as f64 * P_MAX
        ));
    }
    if rows().all(|row| row.judged.is_none()) {
        remarks.push(format!("The load reports nothing to judge by: the plan asks for {}.", plan.judge));
    }
    let cpus = plan.load_cpus.as_ref().map_or(1.0, |cpus| cpus.0.len() as f64);
    let saturated = rows().find(|row| plan.load_cpus.is_some() && row.load_cpus > LOAD_SHARE_MAX * cpus);
    if let Some(row) = saturated {
        remarks.push(format!(
            "The load used all of its CPU time against {}: the rate, and perhaps the loss, are the load's.",
            row.subject
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Verdict;
    use crate::record::{Arrived, Usage};

    const PLAN: &str = "name = \"p\"\npoints = [1, 2]\naxis = \"viewers\"\n\
        [[subject]]\nname = \"a\"\ncommand = \"x\"\nready = \"log:x\"\n\
        [[subject]]\nname = \"b\"\ncommand = \"x\"\nready = \"log:x\"\n[load]\ncommand = \"x\"\n";

    #[test]
    fn runs_of_the_same_round_and_point_are_pairs_in_whatever_order_they_were_made() {
        let plan = Plan::parse(PLAN).unwrap();
        let mut records = Vec::new();
        for round in 1..=8 {
            for point in [1.0, 2.0] {
                // The machine is slower from round to round, b always by half.
                let cost = f64::from(round) * point;
                records.push(run(round, "b", point, 1.5 * cost));
                records.push(run(round, "a", point, cost));
            }
        }
        let summary = Summary::of(&plan, &records, &[]);
        for point in &summary.points {
            let comparison = point.subjects[1].against_baseline.unwrap();
            assert_eq!(comparison.verdict, Verdict::Real);
            assert!((comparison.ratio.median - 1.5).abs() < 1e-9);
            assert_eq!(point.subjects[0].against_baseline, None);
        }
        assert_eq!(summary.points[1].subjects[0].cpu_us_per_packet, 9000.0);
        assert_eq!(summary.remarks.len(), 1, "{:?}", summary.remarks);
    }

    #[test]
    fn a_disturbed_run_that_was_repeated_does_not_count_and_one_that_was_not_is_remarked_on() {
        let plan = Plan::parse(PLAN).unwrap();
        let disturbed = |record| Record { disturbed: Some("steal 9.0 %".into()), ..record };
        let records = [disturbed(run(1, "a", 1.0, 50.0)), run(1, "a", 1.0, 1.0), disturbed(run(1, "b", 1.0, 1.0))];
        let summary = Summary::of(&plan, &records, &[]);
        assert_eq!(summary.points[0].subjects[0].cpu_us_per_packet, 1000.0);
        assert!(summary.remarks[0].starts_with("1 of 2 runs") && summary.remarks[0].contains("steal 9.0 %"));
    }

    #[test]
    fn a_subject_that_failed_is_remarked_on_and_has_no_figures_where_it_never_ran() {
        let plan = Plan::parse(PLAN).unwrap();
        let failure = |round| Failure {
            round,
            subject: "b".into(),
            point: 2.0,
            error: "round 1, subject b: gone\nits log".into(),
            ..Failure::default()
        };
        let records = [run(1, "a", 1.0, 1.0), run(1, "b", 1.0, 1.0), run(1, "a", 2.0, 1.0)];
        let summary = Summary::of(&plan, &records, &[failure(1), failure(2)]);
        let expected = "b failed at 2 viewers 2 times, and was given up there: round 1, subject b: gone";
        assert_eq!(summary.remarks[0], expected);
        let subjects = |point: usize| summary.points[point].subjects.iter().map(|row| row.subject.as_str());
        assert!(subjects(0).eq(["a", "b"]) && subjects(1).eq(["a"]));
    }

    #[test]
    fn losses_are_summed_up_by_place_and_unknown_ones_stay_unknown() {
        let plan = Plan::parse(PLAN).unwrap();
        let lossy = |round, listener| Record {
            loss: Loss { listener: Some(listener), ..Loss::default() },
            values: [(LOST.to_owned(), 2.0)].into(),
            ..run(round, "a", 1.0, 1.0)
        };
        let row = &Summary::of(&plan, &[lossy(1, 3), lossy(2, 4)], &[]).points[0].subjects[0];
        assert_eq!((row.loss.listener, row.loss.relay, row.lost), (Some(7), None, Some(4.0)));
    }

    fn run(round: u32, subject: &str, point: f64, cpu_s: f64) -> Record {
        let server = Usage { user_s: cpu_s, ..Usage::default() };
        let arrived = Arrived { packets: 1000, bytes: 1000 };
        Record { round, subject: subject.into(), point, seconds: 1.0, arrived, server, ..Record::default() }
    }
}
