//! What the numbers say, in sentences.

use super::suite::Run;
use crate::cell::{self, Cell, Metric};
use crate::compare::{Comparison, Verdict};
use crate::record::Failure;
use measure::text::thousands;

/// A sentence, and whether it is good news for the subject that stands first in the plan.
pub struct Sentence {
    pub text: String,
    pub tone: Tone,
}

/// How a comparison went for the first subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Neutral,
}

/// What is compared.
pub struct Aspect {
    pub name: &'static str,
    pub metric: Metric,
    less_is_better: bool,
}

pub const ASPECTS: [Aspect; 5] = [
    Aspect { name: "CPU per packet", metric: cell::cost_us, less_is_better: true },
    Aspect { name: "median latency", metric: cell::p50, less_is_better: true },
    Aspect { name: "p99 latency", metric: cell::p99, less_is_better: true },
    Aspect { name: "peak memory", metric: cell::memory_mib, less_is_better: true },
    Aspect { name: "arrived rate", metric: cell::rate, less_is_better: false },
];

impl Aspect {
    /// The first subject to another one.
    pub fn compare(&self, first: &Cell<'_>, other: &Cell<'_>) -> Option<Comparison> {
        first.compare(other, self.metric)
    }

    pub fn tone(&self, comparison: &Comparison) -> Tone {
        match comparison.verdict {
            Verdict::Real if (comparison.ratio.median < 1.0) == self.less_is_better => Tone::Good,
            Verdict::Real => Tone::Bad,
            _ => Tone::Neutral,
        }
    }
}

/// The verdicts: the first subject beside each other one at the largest point that both have, and its distance from the
/// floor.
pub fn verdicts(run: &Run) -> Vec<Sentence> {
    let mut sentences: Vec<Sentence> = (1..run.subjects.len()).filter_map(|other| verdict(run, other)).collect();
    sentences.extend(floor_distance(run).map(|text| Sentence { text, tone: Tone::Neutral }));
    sentences
}

fn verdict(run: &Run, other: usize) -> Option<Sentence> {
    let (first_name, other_name) = (&run.subjects[0], &run.subjects[other]);
    let aspect = &ASPECTS[0];
    let (point, comparison) = run
        .points
        .iter()
        .rev()
        .find_map(|&point| Some((point, aspect.compare(&run.cell(0, point), &run.cell(other, point))?)))?;
    let at = at_point(run, point);
    let ratio = comparison.ratio;
    let interval = format!("{}–{}", number(ratio.low), number(ratio.high));
    let noun = "CPU time per arrived packet";
    let text = match comparison.verdict {
        Verdict::Real if ratio.median < 1.0 => format!(
            "{first_name} uses {} ({interval}) of the {noun} that {other_name} uses{at}: {} times less.",
            number(ratio.median),
            number(1.0 / ratio.median)
        ),
        Verdict::Real => format!(
            "{first_name} uses {} times ({interval}) the {noun} that {other_name} uses{at}.",
            number(ratio.median)
        ),
        Verdict::WithinNoise => format!(
            "{first_name} and {other_name} do not differ in {noun}{at}: within noise, {interval} in {} rounds.",
            comparison.rounds
        ),
        Verdict::TooFewRounds => format!(
            "{first_name} used {} ({interval}) of {other_name}'s {noun}{at}, but {} round{} cannot tell chance from a difference.",
            number(ratio.median),
            comparison.rounds,
            if comparison.rounds == 1 { "" } else { "s" }
        ),
    };
    Some(Sentence { text, tone: aspect.tone(&comparison) })
}

fn at_point(run: &Run, point: f64) -> String {
    run.point_name(point).map_or_else(String::new, |name| format!(" at {name}"))
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

/// What one should know before quoting a figure.
pub fn caveats(run: &Run) -> Vec<String> {
    let mut caveats = Vec::new();
    let cells = || run.points.iter().flat_map(|&point| run.cells(point));
    let counted_runs = cells().map(|(_, cell)| cell.counted.len()).sum::<usize>();
    let disturbed = cells().map(|(_, cell)| cell.disturbed().count()).sum::<usize>();
    if disturbed > 0 {
        caveats.push(format!(
            "{disturbed} of {counted_runs} runs that count were disturbed by something else on the machine, and stayed so when \
             they were repeated (outlined in the plots)."
        ));
    }
    if !run.failures.is_empty() {
        let mut places: Vec<String> = run.failures.iter().map(|failure| failed(run, failure)).collect();
        places.dedup();
        caveats.push(format!(
            "{} runs failed, and are missing: {}. A subject that failed twice was not tried there again.",
            run.failures.len(),
            places.join("; ")
        ));
    }
    for &point in &run.points {
        let sizes: Vec<(String, f64)> = run
            .cells(point)
            .filter_map(|(subject, cell)| Some((run.subjects[subject].clone(), cell.median(cell::packet_bytes)?)))
            .collect();
        let least = sizes.iter().map(|size| size.1).fold(f64::MAX, f64::min);
        if sizes.iter().any(|(_, size)| *size > least * 1.15) {
            let list: Vec<String> = sizes.iter().map(|(name, size)| format!("{name} {size:.0}")).collect();
            caveats.push(format!(
                "The subjects' packets are not of one size (mean bytes{}: {}), so a cost per packet is not quite the same \
                 work.",
                at_point(run, point),
                list.join(", ")
            ));
            break;
        }
    }
    let busiest = cells().filter_map(|(_, cell)| cell.median(cell::load_cores)).fold(0.0, f64::max);
    if busiest > 0.85 {
        let percent = busiest * 100.0;
        caveats.push(format!("The load itself used up to {percent:.0} % of a core, so it may have been the limit."));
    }
    caveats
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
