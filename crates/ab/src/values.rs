//! The types of a plan's values: how each is written, and what an error says is allowed.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::cell::{self, Metric};
use super::record::Record;

/// A time in seconds: `4s`, `500ms`, `2m`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Span(pub f64);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("", 1.0)];
        let (number, unit) = units
            .into_iter()
            .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
            .expect("every text ends in nothing");
        match number.trim().parse::<f64>() {
            Ok(number) if (0.0..=86_400.0).contains(&(number * unit)) => Ok(Span(number * unit)),
            _ => Err(format!("{text:?} is no time; a number with ms, s or m is allowed, such as 4s, up to a day")),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

/// CPUs by number: `0`, or `0-2,5`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Cpus(pub Vec<usize>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse::<usize>().ok()?);
            (first <= last && last < CPUS_MAX).then_some(first..=last)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        let ranges = ranges.ok_or_else(|| format!("{text:?} are no CPUs; numbers are allowed, such as 0 or 0-2,5"))?;
        Ok(Cpus(ranges.into_iter().flatten().collect()))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

/// The kernel's set of CPUs for sched_setaffinity(2) has room for so many.
const CPUS_MAX: usize = 1024;

/// How one sees that a server can be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum Ready {
    /// It accepts a TCP connection at `HOST:PORT`.
    Tcp(String),
    /// It answers a GET of this URL with a status under 400.
    Http(String),
    /// It has written this text to its standard output or error.
    Log(String),
}

impl FromStr for Ready {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let has_port = |addr: &str| {
            addr.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        match text.split_once(':') {
            Some(("tcp", addr)) if has_port(addr) => Ok(Ready::Tcp(addr.to_owned())),
            // Both `http:http://host/` and `http://host/`.
            Some(("http", rest)) if rest.starts_with("//") => Ok(Ready::Http(text.to_owned())),
            Some(("http", url)) if url.starts_with("http://") => Ok(Ready::Http(url.to_owned())),
            Some(("log", words)) if !words.is_empty() => Ok(Ready::Log(words.to_owned())),
            _ => Err(format!("{text:?}: tcp:HOST:PORT, http:URL (http:// only) and log:TEXT are allowed")),
        }
    }
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Tcp(addr) => write!(f, "tcp:{addr}"),
            Ready::Http(url) => f.write_str(url),
            Ready::Log(words) => write!(f, "log:{words}"),
        }
    }
}

/// By what subjects are compared: one of `JUDGES`, or `value:NAME`, a number of that name among the load's `values`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Judge(String);

/// How each judge but a value is written, what its number is, with the unit, and in short, where it is taken from, and
/// whether less of it is better.
const JUDGES: [(&str, &str, &str, Metric, bool); 5] = [
    ("cpu", "CPU µs per arrived packet", "CPU per packet", cell::cost_us, true),
    ("p50", "median latency, ms", "median latency", cell::p50, true),
    ("p99", "p99 latency, ms", "p99 latency", cell::p99, true),
    ("memory", "peak memory, bytes", "peak memory", cell::memory_bytes, true),
    ("rate", "arrived packets/s", "arrived rate", cell::rate, false),
];

impl Judge {
    /// All but values.
    pub fn known() -> impl Iterator<Item = Judge> {
        JUDGES.iter().map(|judge| Judge(judge.0.to_owned()))
    }

    /// The number by which a run is judged, when it has one.
    pub fn of(&self, record: &Record) -> Option<f64> {
        match self.value() {
            Some(name) => record.values.get(name).copied(),
            None => self.named().and_then(|judge| judge.3(record)),
        }
    }

    /// What the number is, with its unit.
    pub fn label(&self) -> &str {
        self.value().or_else(|| Some(self.named()?.1)).unwrap_or_default()
    }

    /// The same in short.
    pub fn name(&self) -> &str {
        self.value().or_else(|| Some(self.named()?.2)).unwrap_or_default()
    }

    /// `None` for a value, of which nobody knows.
    pub fn less_is_better(&self) -> Option<bool> {
        self.named().map(|judge| judge.4)
    }

    fn value(&self) -> Option<&str> {
        self.0.strip_prefix("value:")
    }

    fn named(&self) -> Option<&(&'static str, &'static str, &'static str, Metric, bool)> {
        JUDGES.iter().find(|judge| judge.0 == self.0)
    }
}

impl Default for Judge {
    fn default() -> Self {
        Judge("cpu".into())
    }
}

impl FromStr for Judge {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let judge = Judge(text.to_owned());
        let is_known = judge.named().is_some() || text.strip_prefix("value:").is_some_and(|name| !name.is_empty());
        is_known
            .then_some(judge)
            .ok_or_else(|| format!("{text:?}: cpu, rate, p50, p99, memory and value:NAME are allowed"))
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// TOML has numbers without quotes.
macro_rules! read_by_from_str {
    ($($type:ty),*) => {$(
        impl TryFrom<toml::Value> for $type {
            type Error = String;

            fn try_from(value: toml::Value) -> Result<Self, String> {
                match value {
                    toml::Value::String(text) => text.parse(),
                    toml::Value::Integer(_) | toml::Value::Float(_) => value.to_string().parse(),
                    _ => Err("a text or a number is allowed, such as \"4s\", \"0-2,5\" or 0".into()),
                }
            }
        }
    )*};
}

read_by_from_str!(Span, Cpus, Ready, Judge);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Arrived, Usage};

    #[test]
    fn times_have_units() {
        let seconds = |text: &str| text.parse::<Span>().map(|span| span.0).ok();
        assert_eq!(["4s", "500ms", "2m", "7"].map(seconds), [Some(4.0), Some(0.5), Some(120.0), Some(7.0)]);
        assert_eq!(["", "s", "-1s", "4h", "inf", "NaN", "90000s"].map(seconds), [None; 7]);
    }

    #[test]
    fn cpus_are_numbers_and_ranges() {
        assert_eq!("0-2,5".parse(), Ok(Cpus(vec![0, 1, 2, 5])));
        assert_eq!("3".parse::<Cpus>().unwrap().to_string(), "3");
        assert!(["", "2-1", "0-99999999", "a"].iter().all(|text| text.parse::<Cpus>().is_err()));
    }

    #[test]
    fn a_url_may_stand_for_itself() {
        assert_eq!("http://h:1/x".parse(), Ok(Ready::Http("http://h:1/x".into())));
        assert_eq!("http:http://h:1/x".parse(), Ok(Ready::Http("http://h:1/x".into())));
        assert!(["tcp:80", "tcp::80", "http:https://h", "log:", "udp:h:1"].iter().all(|t| t.parse::<Ready>().is_err()));
    }

    #[test]
    fn what_is_typed_is_what_is_shown() {
        for text in ["tcp:[::1]:80", "http://h:1/x", "log:it listens: now"] {
            assert_eq!(text.parse::<Ready>().unwrap().to_string(), text);
        }
        for text in ["cpu", "rate", "p50", "p99", "memory", "value:joined"] {
            assert_eq!(text.parse::<Judge>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_run_is_judged_by_what_arrived() {
        let arrived = Arrived { packets: 1000, bytes: 0 };
        let server = Usage { user_s: 0.5, system_s: 1.5, ..Usage::default() };
        let record = Record { seconds: 5.0, arrived, server, ..Record::default() };
        let judged = ["cpu", "rate", "p99", "value:x"].map(|judge| judge.parse::<Judge>().unwrap().of(&record));
        assert_eq!(judged, [Some(2000.0), Some(200.0), None, None]);
    }
}
