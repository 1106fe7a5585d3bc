//! What a load prints: its result, and when it measures.
//!
//! In: lines of standard output. Out: a [`Line`]: the result, a mark, or nothing of interest.
//! The result is the last line that is a JSON object. A load that first joins or warms up can say when it measures, by a
//! line `{"mark":"begin"}` and one `{"mark":"end"}`; the server's CPU time is then taken between them. Without them it is
//! taken from the load's start to its end.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::record::{Arrived, Latency};

/// What a load says about its measured time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub arrived: Arrived,
    /// `None`: as long as it ran.
    pub seconds: Option<f64>,
    #[serde(alias = "latency")]
    pub latency_ms: Option<Latency>,
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    /// What else there is; its numbers become values.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// One line of standard output.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    Begin,
    End,
    /// An object, perhaps the result; only the last one counts.
    Object(Value),
    Other,
}

impl Line {
    pub fn of(text: &str) -> Line {
        match serde_json::from_str(text.trim()) {
            Ok(Value::Object(fields)) => match fields.get("mark").and_then(Value::as_str) {
                Some("begin") => Line::Begin,
                Some("end") => Line::End,
                _ => Line::Object(Value::Object(fields)),
            },
            _ => Line::Other,
        }
    }
}

impl Outcome {
    /// Reads a result, in the form of which `millrace ab --help` tells or as `millrace load rooms` prints it.
    ///
    /// # Errors
    /// When a field is missing, or of another type; the error names it.
    pub fn read(result: Value) -> anyhow::Result<Outcome> {
        let mut outcome: Outcome =
            serde_json::from_value(result).map_err(|error| anyhow::anyhow!("the load's result: {error}"))?;
        let mut values = numbers_of(std::mem::take(&mut outcome.others));
        values.append(&mut outcome.values);
        // Who measured none may say so in zeros.
        let latency_ms = outcome.latency_ms.filter(|latency| *latency != Latency::default());
        Ok(Outcome { values, latency_ms, ..outcome })
    }
}

/// Name among the values of the packets that should have come, as the load sees it.
pub const LOST: &str = "lost";

/// Numbers at the top but the rate, and those of percentiles one level below: `lost`, `join_p99_ms` and so on.
fn numbers_of(fields: BTreeMap<String, Value>) -> BTreeMap<String, f64> {
    let mut numbers = BTreeMap::new();
    for (name, value) in fields.into_iter().filter(|(name, _)| name != "packets_per_second") {
        for (inner, value) in value.as_object().into_iter().flatten() {
            numbers.extend(value.as_f64().map(|number| (format!("{name}_{inner}"), number)));
        }
        numbers.extend(value.as_f64().map(|number| (name, number)));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_needs_packets_and_bytes_and_no_more() {
        let outcome = Outcome::read(json!({"packets": 5, "bytes": 500})).unwrap();
        assert_eq!(outcome, Outcome { arrived: Arrived { packets: 5, bytes: 500 }, ..Outcome::default() });
        let error = Outcome::read(json!({"packets": 5})).unwrap_err().to_string();
        assert!(error.contains("missing field `bytes`"), "{error}");
    }

    #[test]
    fn a_full_result_keeps_everything() {
        let result = json!({"packets": 5, "bytes": 500, "seconds": 2.5, "lost": 1, "values": {"joined": 3},
                            "latency_ms": {"p50": 1.0, "p99": 2.0, "histogram": [[1.0, 4], [2.0, 1]]}});
        let outcome = Outcome::read(result).unwrap();
        assert_eq!(outcome.seconds, Some(2.5));
        assert_eq!(outcome.values, BTreeMap::from([("joined".to_owned(), 3.0), ("lost".to_owned(), 1.0)]));
        let histogram = vec![(1.0, 4), (2.0, 1)];
        assert_eq!(outcome.latency_ms, Some(Latency { p50: 1.0, p99: 2.0, histogram, ..Latency::default() }));
    }

    #[test]
    fn the_report_of_load_rooms_is_understood_as_it_is() {
        let load_cpu = measure::cpu::CpuTime { user: 1.0, system: 0.5 };
        let report = load::rooms::Report { viewers_wanted: 10, seconds: 4.0, load_cpu, ..Default::default() };
        let outcome = Outcome::read(serde_json::to_value(&report).unwrap()).unwrap();
        assert_eq!((outcome.arrived, outcome.seconds, outcome.latency_ms), (Arrived::default(), Some(4.0), None));
        assert_eq!((outcome.values["viewers_wanted"], outcome.values["load_cpu_user"]), (10.0, 1.0));
        let latency = json!({"count": 1, "p50_ms": 1, "p90_ms": 2, "p99_ms": 3, "p999_ms": 4, "max_ms": 5});
        let report = json!({"packets": 8, "bytes": 1_000_000, "seconds": 2.0, "latency": latency, "lost": 3});
        let outcome = Outcome::read(report).unwrap();
        assert_eq!((outcome.values[LOST], outcome.latency_ms.unwrap().p99), (3.0, 3.0));
    }

    #[test]
    fn lines_are_marks_objects_or_of_no_interest() {
        assert_eq!(Line::of(r#" {"mark":"begin"}"#), Line::Begin);
        assert_eq!(Line::of(r#"{"mark": "end"}"#), Line::End);
        assert_eq!(Line::of(r#"{"packets":1}"#), Line::Object(json!({"packets": 1})));
        assert_eq!(["", "[1]", "joined 5", "{"].map(Line::of), [const { Line::Other }; 4]);
    }
}
