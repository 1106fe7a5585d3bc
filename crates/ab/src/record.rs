//! What is kept of a comparison: one line of JSON per measured run, and one object about the machine.
//!
//! In: a results directory. Out: `machine.json` as [`Machine`], `rounds.jsonl` as [`Record`]s in the order in which they
//! were measured; runs that were disturbed and repeated are among them. Runs that failed stand in `failures.jsonl`, if
//! there are any.
//! Units: seconds, bytes, packets and events, each for the measured time only; a value that is not known is `None`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The file of the machine and the plan, in a results directory.
pub const MACHINE_FILE: &str = "machine.json";
/// The file of the runs, in a results directory.
pub const ROUNDS_FILE: &str = "rounds.jsonl";
/// The file of the runs that failed, in a results directory.
pub const FAILURES_FILE: &str = "failures.jsonl";

/// One measured run of one subject under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the plan.
    pub plan: String,
    /// When the measured time began, RFC 3339 in UTC.
    pub time: String,
    /// Counts from 1. Subjects of the same round and point are a pair.
    pub round: u32,
    /// Counts from 0: the place in the round, before or after the other subjects.
    pub turn: u32,
    /// Name of the subject.
    pub subject: String,
    /// Where on the x axis, for instance how many viewers; 0 when the plan has one point only.
    pub point: f64,
    /// By what the run was disturbed. Such a run is repeated a few times; of several the last one counts.
    pub disturbed: Option<String>,
    /// Measured time in seconds.
    pub seconds: f64,
    /// What the receivers got.
    pub arrived: Arrived,
    /// What the server and all its children used.
    pub server: Usage,
    /// What the load and all its children used.
    pub load: Usage,
    /// Packets that were lost, by place.
    pub loss: Loss,
    /// From sender to receiver, as the load measured it.
    pub latency_ms: Option<Latency>,
    /// Whatever other numbers the load reported, and what the kernel counted beside the losses.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
}

/// What the receivers got, never what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrived {
    /// Datagrams, or whatever the load counts as a packet.
    pub packets: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// What a tree of processes used, by the kernel's accounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time outside the kernel.
    pub user_s: f64,
    /// CPU time inside the kernel.
    pub system_s: f64,
    /// Times that a thread went to sleep.
    pub voluntary_switches: u64,
    /// Times that a thread was taken off its CPU.
    pub involuntary_switches: u64,
    /// Counted in the warm-up, where the counting disturbs nothing, and scaled to the packets of the measured time.
    pub syscalls: Option<u64>,
    /// The most memory since the start, not only in the measured time.
    pub peak_memory_bytes: u64,
}

impl Usage {
    /// CPU time in seconds, inside and outside the kernel.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// Of different processes together.
    pub fn plus(&self, other: &Usage) -> Usage {
        self.with(other, |one, other| one + other, |one, other| one + other)
    }

    /// Counters only rise, so of two looks the larger is the later; what is gone is missing in the later one.
    pub fn most(&self, other: &Usage) -> Usage {
        self.with(other, f64::max, u64::max)
    }

    /// Between two looks; the peak of memory is the later one, for it never falls.
    pub fn since(&self, before: &Usage) -> Usage {
        let since = self.with(before, |now, before| (now - before).max(0.0), u64::saturating_sub);
        Usage { peak_memory_bytes: self.peak_memory_bytes.max(before.peak_memory_bytes), ..since }
    }

    fn with(&self, other: &Usage, times: fn(f64, f64) -> f64, counts: fn(u64, u64) -> u64) -> Usage {
        Usage {
            user_s: times(self.user_s, other.user_s),
            system_s: times(self.system_s, other.system_s),
            voluntary_switches: counts(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: counts(self.involuntary_switches, other.involuntary_switches),
            syscalls: None,
            peak_memory_bytes: counts(self.peak_memory_bytes, other.peak_memory_bytes),
        }
    }
}

/// Packets that were lost, by place. `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// At the server's sockets that were open before the load came: their receive buffers were full.
    pub listener: Option<u64>,
    /// At the server's sockets that were opened for the load, such as a TURN server's relayed addresses.
    pub relay: Option<u64>,
    /// At the load's sockets.
    pub client: Option<u64>,
    /// At network interfaces, the loopback's backlog among them.
    pub interface: Option<u64>,
}

/// Latency in milliseconds; 0 for what is not known of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// The median.
    #[serde(alias = "p50_ms")]
    pub p50: f64,
    /// Of ten packets, nine were at most as late.
    #[serde(alias = "p90_ms")]
    pub p90: f64,
    /// Of a hundred packets, all but one.
    #[serde(alias = "p99_ms")]
    pub p99: f64,
    /// Of a thousand packets, all but one.
    #[serde(alias = "p999_ms")]
    pub p999: f64,
    /// The latest.
    #[serde(alias = "max_ms")]
    pub max: f64,
    /// Upper bound of a class in milliseconds, and how many packets are in it; rising, empty classes left out.
    pub histogram: Vec<(f64, u64)>,
}

/// A run from which nothing was learned but that it failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// As in a [`Record`].
    pub round: u32,
    /// The place in the round.
    pub turn: u32,
    /// Name of the subject.
    pub subject: String,
    /// Where on the x axis.
    pub point: f64,
    /// What was wrong, in one line or more.
    pub error: String,
}

/// Where, of what and how it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the CPU.
    pub cpu: String,
    /// CPUs that the kernel has.
    pub cores: usize,
    /// All of its memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// By what the machine is virtualised; `None` when nothing tells of it.
    pub virtualised: Option<String>,
    /// When the comparison began, RFC 3339 in UTC.
    pub date: String,
    /// Of the program that compares.
    pub millrace_version: String,
    /// What the kernel can do (`gso`, `gro`), and from where the figures come (`cpu_time`, `peak_memory`, `syscalls`).
    pub features: BTreeMap<String, String>,
    /// In the plan's order; the first one is what the others are compared with.
    pub subjects: Vec<Subject>,
    /// The plan's text.
    pub plan: String,
    /// Name of the plan.
    #[serde(default)]
    pub plan_name: String,
    /// What the points count, such as `viewers`.
    #[serde(default)]
    pub axis: Option<String>,
    /// What the points are called, from 1 on, where they are no numbers.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// Which of the load's values are shown.
    #[serde(default)]
    pub shown: Vec<String>,
    /// By what the subjects are compared, as the plan names it.
    #[serde(default)]
    pub judge: String,
    /// How to repeat it.
    pub command: String,
}

/// One of the compared programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// As the plan names it.
    pub name: String,
    /// What the program said about itself; `None` when the plan does not ask.
    pub version: Option<String>,
    /// Starts it.
    pub command: String,
}

/// Adds one run to the results in `directory`.
pub fn append(directory: &Path, record: &Record) -> anyhow::Result<()> {
    append_line(&directory.join(ROUNDS_FILE), record)
}

/// Adds a run that failed to the results in `directory`.
pub fn append_failure(directory: &Path, failure: &Failure) -> anyhow::Result<()> {
    append_line(&directory.join(FAILURES_FILE), failure)
}

fn append_line(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(value)? + "\n";
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).with_context(|| format!("write {}", path.display()))
}

/// Reads all runs in `directory`, disturbed ones too.
/// An error names the line that is no record.
pub fn read(directory: &Path) -> anyhow::Result<Vec<Record>> {
    read_lines(&directory.join(ROUNDS_FILE))
}

/// Reads the runs in `directory` that failed.
pub fn read_failures(directory: &Path) -> anyhow::Result<Vec<Failure>> {
    let path = directory.join(FAILURES_FILE);
    if path.exists() { read_lines(&path) } else { Ok(Vec::new()) }
}

fn read_lines<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), index + 1))
        })
        .collect()
}

/// Writes what is known about the machine into `directory`.
pub fn write_machine(directory: &Path, machine: &Machine) -> anyhow::Result<()> {
    let path = directory.join(MACHINE_FILE);
    let text = serde_json::to_string_pretty(machine)? + "\n";
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Reads what is known about the machine.
pub fn read_machine(directory: &Path) -> anyhow::Result<Machine> {
    let path = directory.join(MACHINE_FILE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let records = [full(), Record { round: 2, latency_ms: None, disturbed: None, ..full() }];
        for record in &records {
            append(directory.path(), record).unwrap();
        }
        assert_eq!(read(directory.path()).unwrap(), records);
    }

    #[test]
    fn no_digit_of_a_number_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        // The nearest number to what is written, and not its neighbour 0.0013779999999999999.
        let record = Record { seconds: 0.001378, ..full() };
        append(directory.path(), &record).unwrap();
        assert_eq!(read(directory.path()).unwrap(), [record]);
    }

    #[test]
    fn the_names_in_a_line_are_what_a_reader_of_the_results_expects() {
        let line = serde_json::to_value(full()).unwrap();
        assert_eq!(line["arrived"]["packets"], 1000);
        assert_eq!(line["server"]["user_s"], 0.5);
        assert_eq!(line["loss"]["relay"], serde_json::Value::Null);
        assert_eq!(line["latency_ms"]["histogram"][1], serde_json::json!([4.0, 10]));
        assert_eq!(line["disturbed"], "steal 4.2 %");
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        let directory = tempfile::tempdir().unwrap();
        append(directory.path(), &full()).unwrap();
        let mut file = OpenOptions::new().append(true).open(directory.path().join(ROUNDS_FILE)).unwrap();
        file.write_all(b"{\"plan\": 7}\n").unwrap();
        let error = format!("{:#}", read(directory.path()).unwrap_err());
        assert!(error.contains("rounds.jsonl, line 2"), "{error}");
    }

    #[test]
    fn runs_that_failed_are_read_as_they_were_written_and_none_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_failures(directory.path()).unwrap(), []);
        let failure = Failure { round: 2, subject: "b".into(), error: "gone\nits log".into(), ..Failure::default() };
        append_failure(directory.path(), &failure).unwrap();
        assert_eq!(read_failures(directory.path()).unwrap(), [failure]);
    }

    #[test]
    fn the_machine_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let subject = Subject { name: "a".into(), version: Some("a 1.0".into()), command: "a --serve".into() };
        let features = BTreeMap::from([("gso".to_owned(), "yes".to_owned())]);
        let machine = Machine { cores: 2, features, subjects: vec![subject], ..Machine::default() };
        write_machine(directory.path(), &machine).unwrap();
        assert_eq!(read_machine(directory.path()).unwrap(), machine);
    }

    fn full() -> Record {
        let usage =
            Usage { user_s: 0.5, system_s: 1.5, syscalls: Some(7), peak_memory_bytes: 1 << 20, ..Usage::default() };
        Record {
            plan: "rooms".into(),
            time: "2026-01-31T12:00:00Z".into(),
            round: 1,
            turn: 1,
            subject: "a".into(),
            point: 100.0,
            disturbed: Some("steal 4.2 %".into()),
            seconds: 5.0,
            arrived: Arrived { packets: 1000, bytes: 1_200_000 },
            server: usage,
            load: Usage::default(),
            loss: Loss { listener: Some(3), relay: None, client: Some(0), interface: Some(0) },
            latency_ms: Some(Latency { p50: 1.0, histogram: vec![(2.0, 990), (4.0, 10)], ..Latency::default() }),
            values: BTreeMap::from([("joined".to_owned(), 100.0)]),
        }
    }
}
