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
use super::values::Format;
use crate::load::Percentiles;

/// What a load says about its measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub arrived: Arrived,
    /// `None`: as long as it ran.
    pub seconds: Option<f64>,
    pub latency_ms: Option<Latency>,
    pub values: BTreeMap<String, f64>,
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
    /// Reads a result. Without a format it is `millrace load`'s when it has that form's bit rate.
    ///
    /// # Errors
    /// When a field is missing, or of another type; the error names it.
    pub fn read(result: Value, format: Option<Format>) -> anyhow::Result<Outcome> {
        let is_ours = result.get("mbit_per_second").is_some() && result.get("bytes").is_none();
        match format.unwrap_or(if is_ours { Format::Millrace } else { Format::Plain }) {
            Format::Plain => serde_json::from_value::<Plain>(result).map(Plain::outcome),
            Format::Millrace => {
                let numbers = numbers_of(&result);
                serde_json::from_value::<Millrace>(result).map(|report| report.outcome(numbers))
            }
        }
        .map_err(|error| anyhow::anyhow!("the load's result: {error}"))
    }
}

/// The plain form.
#[derive(Deserialize)]
struct Plain {
    packets: u64,
    bytes: u64,
    seconds: Option<f64>,
    /// Packets that should have come, as the load sees it.
    lost: Option<f64>,
    latency_ms: Option<Latency>,
    #[serde(default)]
    values: BTreeMap<String, f64>,
}

impl Plain {
    fn outcome(self) -> Outcome {
        let mut values = self.values;
        values.extend(self.lost.map(|lost| (LOST.to_owned(), lost)));
        let arrived = Arrived { packets: self.packets, bytes: self.bytes };
        Outcome { arrived, seconds: self.seconds, latency_ms: self.latency_ms, values }
    }
}

/// Name among the values of the packets that the load misses.
pub const LOST: &str = "lost";

/// What `millrace load rooms --json` prints, as far as it has a place of its own in a record.
#[derive(Deserialize)]
struct Millrace {
    packets: u64,
    seconds: f64,
    mbit_per_second: f64,
    latency: Percentiles,
}

impl Millrace {
    fn outcome(self, values: BTreeMap<String, f64>) -> Outcome {
        let bytes = (self.mbit_per_second * 1e6 / 8.0 * self.seconds).round() as u64;
        let Percentiles { count, p50_ms: p50, p90_ms: p90, p99_ms: p99, p999_ms: p999, max_ms: max, histogram } =
            self.latency;
        let latency_ms = (count > 0).then_some(Latency { p50, p90, p99, p999, max, histogram });
        let arrived = Arrived { packets: self.packets, bytes };
        Outcome { arrived, seconds: Some(self.seconds), latency_ms, values }
    }
}

/// All numbers at the top, and those of percentiles one level below: `lost`, `join_p99_ms` and so on.
fn numbers_of(result: &Value) -> BTreeMap<String, f64> {
    const WITH_A_PLACE: [&str; 4] = ["packets", "seconds", "packets_per_second", "latency"];
    let mut numbers = BTreeMap::new();
    let fields = result.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| !WITH_A_PLACE.contains(&name.as_str())) {
        if let Some(number) = value.as_f64() {
            numbers.insert(name.clone(), number);
        }
        for (inner, value) in value.as_object().into_iter().flatten() {
            numbers.extend(value.as_f64().map(|number| (format!("{name}_{inner}"), number)));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_needs_packets_and_bytes_and_no_more() {
        let outcome = Outcome::read(json!({"packets": 5, "bytes": 500}), None).unwrap();
        assert_eq!(outcome, Outcome { arrived: Arrived { packets: 5, bytes: 500 }, ..Outcome::default() });
        let error = Outcome::read(json!({"packets": 5}), None).unwrap_err().to_string();
        assert!(error.contains("missing field `bytes`"), "{error}");
    }

    #[test]
    fn a_full_result_keeps_everything() {
        let result = json!({"packets": 5, "bytes": 500, "seconds": 2.5, "lost": 1, "values": {"joined": 3},
                            "latency_ms": {"p50": 1.0, "p99": 2.0, "histogram": [[1.0, 4], [2.0, 1]]}});
        let outcome = Outcome::read(result, None).unwrap();
        assert_eq!(outcome.seconds, Some(2.5));
        assert_eq!(outcome.values, BTreeMap::from([("joined".to_owned(), 3.0), ("lost".to_owned(), 1.0)]));
        let histogram = vec![(1.0, 4), (2.0, 1)];
        assert_eq!(outcome.latency_ms, Some(Latency { p50: 1.0, p99: 2.0, histogram, ..Latency::default() }));
    }

    #[test]
    fn the_report_of_load_rooms_is_understood_as_it_is() {
        let report = crate::load::Report::new(
            &[],
            10,
            std::time::Duration::from_secs(4),
            None,
            crate::load::CpuTime { user: 1.0, system: 0.5 },
        );
        let outcome = Outcome::read(serde_json::to_value(&report).unwrap(), None).unwrap();
        assert_eq!((outcome.seconds, outcome.latency_ms), (Some(4.0), None));
        assert_eq!((outcome.values["viewers_wanted"], outcome.values["load_cpu_user"]), (10.0, 1.0));
    }

    #[test]
    fn bytes_come_from_the_bit_rate_where_only_that_is_told() {
        let latency = json!({"count": 1, "p50_ms": 1, "p90_ms": 2, "p99_ms": 3, "p999_ms": 4, "max_ms": 5});
        let report = json!({"packets": 8, "seconds": 2.0, "mbit_per_second": 4.0, "latency": latency, "lost": 3});
        let outcome = Outcome::read(report, None).unwrap();
        assert_eq!(outcome.arrived, Arrived { packets: 8, bytes: 1_000_000 });
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
