//! What the numbers say, in sentences.

use super::suite::Run;
use crate::cell::{self, Cell};
use crate::compare::{Comparison, P_MAX, ROUNDS_MIN, Verdict};
use crate::plan::Plan;
use crate::record::Failure;
use crate::values::Judge;
use measure::rounds::Ratio;
use measure::text::thousands;

/// A sentence, and whether it is good news for the subject that stands first in the plan.
pub struct Sentence {
    pub text: String,
    pub tone: Tone,
}

/// How a comparison went for the first subject; the classes of a page are named so too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Tone {
    Good,
    Bad,
    Neutral,
}

impl Tone {
    /// Of a comparison of the first subject with another one.
    pub fn of(judge: &Judge, comparison: &Comparison) -> Tone {
        let is_less = comparison.ratio.median < 1.0;
        match (comparison.verdict, judge.less_is_better()) {
            (Verdict::Real, Some(less_is_better)) if is_less == less_is_better => Tone::Good,
            (Verdict::Real, Some(_)) => Tone::Bad,
            _ => Tone::Neutral,
        }
    }
}

/// The verdicts: the first subject beside each other one at the largest point that both have, or in each kind of work, and
/// its distance from the floor.
pub fn verdicts(run: &Run) -> Vec<Sentence> {
    let others = 1..run.subjects.len();
    let mut sentences: Vec<Sentence> = match run.has_jobs() {
        true => {
            run.points.iter().flat_map(|point| others.clone().filter_map(|other| verdict(run, other, *point))).collect()
        }
        false => {
            others.filter_map(|other| run.points.iter().rev().find_map(|point| verdict(run, other, *point))).collect()
        }
    };
    sentences.extend(floor_distance(run).map(|text| Sentence { text, tone: Tone::Neutral }));
    sentences
}

/// One subject beside the first, at a point.
fn verdict(run: &Run, other: usize, point: f64) -> Option<Sentence> {
    let (first_name, other_name, judge) = (&run.subjects[0], &run.subjects[other], run.judge());
    let comparison = run.cell(0, point).compare(&run.cell(other, point), |record| judge.of(record))?;
    let (at, label, rounds) = (at_point(run, point), judge.label(), comparison.rounds);
    let Ratio { median, low, high } = comparison.ratio;
    let (ratio, interval) = (number(median), format!("{}–{}", number(low), number(high)));
    let text = match comparison.verdict {
        Verdict::Real => {
            let less = if median < 1.0 { format!(": {} times less", number(1.0 / median)) } else { String::new() };
            format!("{first_name} has {ratio} times ({interval}) the {label} of {other_name}{at}{less}.")
        }
        Verdict::WithinNoise => format!(
            "{first_name} and {other_name} do not differ in {label}{at}: within noise, {interval} in {rounds} rounds."
        ),
        Verdict::TooFewRounds => format!(
            "{first_name} had {ratio} times ({interval}) the {label} of {other_name}{at}, but {rounds} round{} cannot tell \
             chance from a difference; {ROUNDS_MIN} are the least.",
            if rounds == 1 { "" } else { "s" }
        ),
    };
    Some(Sentence { text, tone: Tone::of(&judge, &comparison) })
}

fn at_point(run: &Run, point: f64) -> String {
    run.point_name(point)
        .map_or_else(String::new, |name| if run.has_jobs() { format!(" ({name})") } else { format!(" at {name}") })
}

/// How far the first subject is from what the bare kernel path costs.
fn floor_distance(run: &Run) -> Option<String> {
    let floor = run.floor.as_ref()?;
    let Some((user, kernel)) = floor.cost_us() else {
        return Some(format!("The physical floor ({}) could not be measured here.", floor.parts.join(" + ")));
    };
    let (cheapest, point) = run
        .points
        .iter()
        .filter_map(|&point| Some((run.cell(0, point).median(cell::cost_us)?, point)))
        .min_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!(
        "The physical floor on this machine is {} µs per packet ({}); {} is at {} times that{}.",
        number(user + kernel),
        floor.parts.join(" + "),
        run.subjects[0],
        number(cheapest / (user + kernel)),
        at_point(run, point)
    ))
}

/// A load that uses more of its CPUs' time than this is likely to be what is measured.
const LOAD_PERCENT_MAX: f64 = 85.0;

/// What one should know before quoting a figure.
pub fn remarks(run: &Run) -> Vec<String> {
    let mut remarks = Vec::new();
    let cells: Vec<Cell<'_>> = run.points.iter().flat_map(|&point| run.cells(point).map(|(_, cell)| cell)).collect();
    if !run.failures.is_empty() {
        let mut places: Vec<String> = run.failures.iter().map(|failure| failed(run, failure)).collect();
        places.dedup();
        remarks.push(format!(
            "{} runs failed, and are missing: {}. A subject that failed twice was not tried there again.",
            run.failures.len(),
            places.join("; ")
        ));
    }
    let disturbed = || cells.iter().flat_map(Cell::disturbed);
    if let Some(last) = disturbed().max_by_key(|record| (record.round, record.turn)) {
        remarks.push(format!(
            "{} of {} runs that count were disturbed by something else on the machine, and stayed so when they were repeated \
             (outlined in the plots); the last one by {}. The intervals are wider for it, and a quieter machine would tell more.",
            disturbed().count(),
            cells.iter().map(|cell| cell.counted.len()).sum::<usize>(),
            last.disturbed.as_deref().unwrap_or_default(),
        ));
    }
    let judge = run.judge();
    let is_compared = |cell: &Cell<'_>, first: &Cell<'_>| first.compare(cell, |record| judge.of(record)).is_some();
    let compared = |&point: &f64| {
        run.cells(point).filter(|(index, cell)| *index > 0 && is_compared(cell, &run.cell(0, point))).count()
    };
    let comparisons: usize = run.points.iter().map(compared).sum();
    if comparisons > 1 {
        remarks.push(format!(
            "Of {comparisons} comparisons between equal subjects, chance alone would call {:.1} different at most.",
            comparisons as f64 * P_MAX
        ));
    }
    if cells.iter().all(|cell| cell.median(|record| judge.of(record)).is_none()) {
        remarks.push(format!("The load reports nothing to judge by: the plan asks for {judge}."));
    }
    remarks.extend(run.points.iter().find_map(|&point| unequal(run, point)));
    let busiest = cells.iter().filter_map(|cell| cell.median(cell::load_cores)).fold(0.0, f64::max);
    let load_cpus = Plan::parse(&run.machine.plan).ok().and_then(|plan| plan.load_cpus).map_or(1, |cpus| cpus.0.len());
    let percent = busiest / load_cpus as f64 * 100.0;
    if percent > LOAD_PERCENT_MAX {
        remarks.push(format!(
            "The load itself used up to {percent:.0} % of its CPU time, so it may have been the limit: the rate, and perhaps \
             the loss, are then the load's."
        ));
    }
    remarks
}

/// That packets differ in size at a point.
fn unequal(run: &Run, point: f64) -> Option<String> {
    let size = |(subject, cell): (usize, Cell<'_>)| Some((&run.subjects[subject], cell.median(cell::packet_bytes)?));
    let sizes: Vec<(&String, f64)> = run.cells(point).filter_map(size).collect();
    let least = sizes.iter().map(|size| size.1).fold(f64::MAX, f64::min);
    let list: Vec<String> = sizes.iter().map(|(name, size)| format!("{name} {size:.0}")).collect();
    sizes.iter().any(|(_, size)| *size > least * 1.15).then(|| {
        format!(
            "The subjects' packets are not of one size (mean bytes{}: {}), so a cost per packet is not quite the same work.",
            at_point(run, point),
            list.join(", ")
        )
    })
}

fn failed(run: &Run, failure: &Failure) -> String {
    let reason = failure.error.lines().next().unwrap_or_default();
    // The place stands before the reason already.
    let reason = reason.split_once(": ").map_or(reason, |(_, reason)| reason);
    format!("{}{} ({reason})", failure.subject, at_point(run, failure.point))
}

/// What to look for in the plots of single runs.
pub const ROUNDS: &str = "Rounds alternate between the subjects, forwards and backwards; lines that move together show the \
                          machine's moods, not a difference.";

/// Three significant digits, as people write them.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    match () {
        () if !value.is_finite() => "–".into(),
        () if magnitude >= 1e6 => format!("{:.2}M", value / 1e6),
        () if magnitude >= 1_000.0 => thousands(value),
        () if magnitude >= 100.0 => format!("{value:.0}"),
        () if magnitude >= 10.0 => format!("{value:.1}"),
        () if magnitude >= 0.095 || value == 0.0 => format!("{value:.2}"),
        () => format!("{value:.3}"),
    }
}
