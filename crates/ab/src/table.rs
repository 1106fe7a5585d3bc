//! A summary for the terminal: a column for each subject, a block for each point.

use super::compare::{Comparison, Verdict};
use super::record::Loss;
use super::summary::{Point, Row, Summary};
use super::values::Judge;
use measure::report::Table;
use measure::text::thousands;

/// Returns the table.
pub fn table(summary: &Summary) -> String {
    let judge: Judge = summary.judge.parse().unwrap_or_default();
    let label = judge.label();
    let mut text = String::new();
    for point in &summary.points {
        text += &block(summary, point, label);
        text.push('\n');
    }
    for remark in &summary.remarks {
        text += &format!("Note: {remark}\n");
    }
    text
}

fn block(summary: &Summary, point: &Point, label: &str) -> String {
    let title = match (summary.points.len(), &summary.axis) {
        (1, _) => summary.plan.clone(),
        (_, Some(axis)) => format!("{} {axis}", point.point),
        (_, None) => format!("point {}", point.point),
    };
    let mut table = Table::new("");
    let mut line = |name: &str, figure: &dyn Fn(&Row) -> Option<String>| {
        let figures: Vec<Option<String>> = point.subjects.iter().map(figure).collect();
        if figures.iter().any(Option::is_some) {
            let figures = figures.into_iter().map(|figure| figure.unwrap_or_else(|| "–".to_owned()));
            table.cells(std::iter::once(name.to_owned()).chain(figures).collect());
        }
    };
    line(&title, &|row| Some(row.subject.clone()));
    line("  arrived packets/s", &|row| Some(thousands(row.packets_per_second)));
    line("  arrived Mbit/s", &|row| Some(format!("{:.1}", row.bits_per_second / 1e6)));
    line("  CPU µs per packet", &|row| Some(format!("{:.3}", row.cpu_us_per_packet)));
    line("    user + system", &|row| Some(format!("{:.3} + {:.3}", row.user_us_per_packet, row.system_us_per_packet)));
    if !matches!(&*summary.judge, "cpu" | "rate") {
        line(&format!("  {label}"), &|row| row.judged.map(|judged| format!("{judged:.3}")));
    }
    let against = match &*summary.judge {
        "cpu" => format!("    against {}", summary.baseline),
        _ => format!("    {} to {}", summary.judge, summary.baseline),
    };
    line(&against, &|row| row.against_baseline.map(|comparison| comparison.to_string()));
    line("    p (signed ranks)", &|row| row.against_baseline.map(|comparison| format!("{:.3}", comparison.p)));
    line("  latency p50 / p99, ms", &|row| Some(format!("{:.2} / {:.2}", row.p50_ms?, row.p99_ms?)));
    line("  peak memory, MiB", &|row| Some(format!("{:.1}", row.peak_memory_bytes / f64::from(1 << 20))));
    line("  switches per 1000", &|row| {
        Some(format!("{:.1} + {:.1} involuntary", row.voluntary_per_1000, row.involuntary_per_1000))
    });
    line("  system calls per packet", &|row| row.syscalls_per_packet.map(|calls| format!("{calls:.3}")));
    line("  load's CPUs", &|row| Some(format!("{:.2}", row.load_cpus)));
    line("  lost, says the load", &|row| row.lost.map(|lost| format!("{lost:.0}")));
    line("  lost at", &|row| Some(places(&row.loss)));
    let verdicts = point.subjects.iter().filter_map(|row| sentence(summary, row, row.against_baseline?, label));
    verdicts.for_each(|verdict| table.text(verdict));
    table.to_string()
}

/// The verdict in words.
fn sentence(summary: &Summary, row: &Row, comparison: Comparison, label: &str) -> Option<String> {
    let (subject, baseline) = (&row.subject, &summary.baseline);
    match comparison.verdict {
        Verdict::Real => Some(format!("  → {subject} has {comparison} the {label} of {baseline}")),
        Verdict::WithinNoise => Some(format!("  → {subject} and {baseline} are {comparison} ({label})")),
        Verdict::TooFewRounds => None,
    }
}

/// Only places with losses, for there are mostly none.
fn places(loss: &Loss) -> String {
    let Loss { listener, relay, client, interface } = *loss;
    let places = [("listener", listener), ("relay", relay), ("client", client), ("interface", interface)];
    let named: Vec<String> = places
        .iter()
        .filter(|(_, lost)| lost.is_none_or(|lost| lost > 0))
        .map(|(place, lost)| lost.map_or(format!("{place} ?"), |lost| format!("{place} {lost}")))
        .collect();
    if named.is_empty() { "no place".into() } else { named.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_the_verdict_and_leaves_out_what_nobody_knows() {
        let comparison = Comparison::of(&[2.0; 8], &[1.0; 8]);
        let a = Row { subject: "a".into(), packets_per_second: 1_234_567.0, ..Row::default() };
        let b = Row { subject: "b".into(), against_baseline: comparison, p99_ms: None, ..Row::default() };
        let summary = Summary {
            plan: "rooms".into(),
            axis: Some("viewers".into()),
            judge: "cpu".into(),
            baseline: "a".into(),
            points: vec![Point { point: 10.0, subjects: vec![a, b] }, Point { point: 20.0, subjects: Vec::new() }],
            remarks: vec!["It rained.".into()],
        };
        let text = table(&summary);
        for part in [
            "10 viewers  ",
            "1,234,567",
            "against a",
            "2.000× (2.000–2.000)",
            "0.008",
            "→ b has 2.000× (2.000–2.000) the CPU",
            "Note: It",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("latency") && !text.contains("system calls"), "{text}");
    }

    #[test]
    fn losses_are_named_by_place_when_there_are_any() {
        let none = Loss { listener: Some(0), relay: Some(0), client: Some(0), interface: Some(0) };
        assert_eq!(places(&none), "no place");
        assert_eq!(places(&Loss { listener: Some(3), client: None, ..none }), "listener 3, client ?");
    }
}
