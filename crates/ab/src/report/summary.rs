//! A run as one object of JSON: for each point and subject the median over the rounds of what was measured, how it compares
//! with the first subject, and remarks on what makes the figures doubtful.

use serde_json::{Map, Value, json};

use super::suite::Run;
use super::words::remarks;
use crate::cell::{self, Cell, FIGURES, PLACES, missed};

/// Returns the object. Losses are sums over the rounds; what is not known is null.
pub fn json(run: &Run) -> Value {
    let points = run.points.iter().map(|&point| {
        let subjects = run.cells(point).map(|(index, cell)| subject(run, point, index, &cell));
        json!({ "point": point, "subjects": subjects.collect::<Vec<_>>() })
    });
    json!({
        "plan": run.name(),
        "axis": run.machine.axis,
        "judge": run.judge().to_string(),
        "baseline": run.subjects.first(),
        "points": points.collect::<Vec<_>>(),
        "remarks": remarks(run),
    })
}

fn subject(run: &Run, point: f64, index: usize, cell: &Cell<'_>) -> Value {
    let judge = run.judge();
    let loss: Map<String, Value> =
        PLACES.iter().map(|(name, place)| (name.to_string(), json!(cell.sum(place)))).collect();
    let against = cell.compare(&run.cell(0, point), |record| judge.of(record)).filter(|_| index > 0);
    let mut subject = json!({
        "subject": run.subjects[index],
        "rounds": cell.counted.len(),
        "cpu_us_per_packet": cell.median(cell::cost_us),
        "loss": loss,
        "lost": cell.sum(missed),
        "judged": cell.median(|record| judge.of(record)),
        "against_baseline": against,
    });
    for figure in &FIGURES {
        subject[figure.key] = json!(cell.median(figure.metric));
    }
    subject
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::LOST;
    use crate::record::{Arrived, Failure, Loss, Machine, Record, Subject, Usage};

    #[test]
    fn runs_of_the_same_round_and_point_are_pairs_in_whatever_order_they_were_made() {
        let mut records = Vec::new();
        for round in 1..=8 {
            for point in [1.0, 2.0] {
                // The machine is slower from round to round, b always by half.
                let cost = f64::from(round) * point;
                records.push(run(round, "b", point, 1.5 * cost));
                records.push(run(round, "a", point, cost));
            }
        }
        let summary = json(&kept(records));
        for point in [0, 1] {
            let subjects = &summary["points"][point]["subjects"];
            let comparison = &subjects[1]["against_baseline"];
            assert_eq!(comparison["verdict"], "real");
            assert!((comparison["median"].as_f64().unwrap() - 1.5).abs() < 1e-9);
            assert_eq!(subjects[0]["against_baseline"], Value::Null);
        }
        assert_eq!(summary["points"][1]["subjects"][0]["cpu_us_per_packet"], 9000.0);
        assert_eq!(summary["remarks"].as_array().unwrap().len(), 1, "{summary}");
    }

    #[test]
    fn a_disturbed_run_that_was_repeated_does_not_count_and_one_that_was_not_is_remarked_on() {
        let disturbed = |record| Record { disturbed: Some("steal 9.0 %".into()), ..record };
        let records = vec![disturbed(run(1, "a", 1.0, 50.0)), run(1, "a", 1.0, 1.0), disturbed(run(1, "b", 1.0, 1.0))];
        let summary = json(&kept(records));
        assert_eq!(summary["points"][0]["subjects"][0]["cpu_us_per_packet"], 1000.0);
        let remark = summary["remarks"][0].as_str().unwrap();
        assert!(remark.starts_with("1 of 2 runs") && remark.contains("steal 9.0 %"), "{remark}");
    }

    #[test]
    fn a_subject_that_failed_is_remarked_on_and_has_no_figures_where_it_never_ran() {
        let failure = |round| Failure {
            round,
            subject: "b".into(),
            point: 2.0,
            error: "round 1, subject b: gone\nits log".into(),
            ..Failure::default()
        };
        let records = vec![run(1, "a", 1.0, 1.0), run(1, "b", 1.0, 1.0), run(1, "a", 2.0, 1.0)];
        let summary = json(&Run { failures: vec![failure(1), failure(2)], ..kept(records) });
        let expected = "2 runs failed, and are missing: b at 2 viewers (gone). ";
        assert!(summary["remarks"][0].as_str().unwrap().starts_with(expected), "{summary}");
        let subjects = |point: usize| summary["points"][point]["subjects"].as_array().unwrap().len();
        assert_eq!((subjects(0), subjects(1)), (2, 1));
    }

    #[test]
    fn losses_are_summed_up_by_place_and_unknown_ones_stay_unknown() {
        let lossy = |round, listener| Record {
            loss: Loss { listener: Some(listener), ..Loss::default() },
            values: [(LOST.to_owned(), 2.0)].into(),
            ..run(round, "a", 1.0, 1.0)
        };
        let row = &json(&kept(vec![lossy(1, 3), lossy(2, 4)]))["points"][0]["subjects"][0];
        assert_eq!(
            (&row["loss"]["listener"], &row["loss"]["relay"], &row["lost"]),
            (&json!(7), &Value::Null, &json!(4))
        );
    }

    fn kept(records: Vec<Record>) -> Run {
        let subjects = ["a", "b"].map(|name| Subject { name: name.into(), ..Subject::default() }).into();
        Run::new(Machine { axis: Some("viewers".into()), subjects, ..Machine::default() }, records, None)
    }

    fn run(round: u32, subject: &str, point: f64, cpu_s: f64) -> Record {
        let server = Usage { user_s: cpu_s, ..Usage::default() };
        let arrived = Arrived { packets: 1000, bytes: 1000 };
        Record { round, subject: subject.into(), point, seconds: 1.0, arrived, server, ..Record::default() }
    }
}
