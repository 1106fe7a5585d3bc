//! Results directories, read and put in order: one suite for each plan, and in it a cell for each subject at each point.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::ab::record::{self, Failure, Machine, Record};
use crate::ab::values::Judge;
use crate::rounds::Ratio;

/// What the bare kernel path costs, in a results directory; written by whoever measured it beside the subjects.
pub const FLOOR_FILE: &str = "floor.json";

/// All results of one plan.
pub struct Suite {
    pub name: String,
    /// The results that are shown in full.
    pub newest: Run,
    /// Those before, oldest first.
    pub older: Vec<Run>,
}

/// One results directory.
pub struct Run {
    pub machine: Machine,
    pub records: Vec<Record>,
    pub failures: Vec<Failure>,
    pub floor: Option<Floor>,
    /// The subjects' names in the plan's order; the first one is compared with the others.
    pub subjects: Vec<String>,
    /// Places on the x axis, rising.
    pub points: Vec<f64>,
}

/// The physical floor of a suite: the sum of some ways, each of which `millrace bench floor` measured.
#[derive(Clone, Debug, Deserialize)]
pub struct Floor {
    /// Which rows add up to one packet's work, such as `gso 8` and `seal gcm128`.
    pub parts: Vec<String>,
    rows: Vec<FloorRow>,
}

/// A line of `millrace bench floor --json`. Nanoseconds of CPU time per packet; absent where the machine cannot.
#[derive(Clone, Debug, Deserialize)]
struct FloorRow {
    path: String,
    segments: Option<u64>,
    user_ns: Option<f64>,
    kernel_ns: Option<f64>,
}

impl Suite {
    /// Reads all directories, and puts those of one plan together.
    pub fn read_all(directories: &[PathBuf]) -> anyhow::Result<Vec<Suite>> {
        let mut by_name: BTreeMap<String, Vec<Run>> = BTreeMap::new();
        for directory in directories {
            let run = Run::read(directory)?;
            by_name.entry(run.name()).or_default().push(run);
        }
        let suites = by_name.into_iter().filter_map(|(name, mut runs)| {
            runs.sort_by(|one, other| one.machine.date.cmp(&other.machine.date));
            Some(Suite { name, newest: runs.pop()?, older: runs })
        });
        Ok(suites.collect())
    }
}

impl Run {
    fn read(directory: &Path) -> anyhow::Result<Run> {
        let machine = record::read_machine(directory)?;
        let records = record::read(directory)?;
        let path = directory.join(FLOOR_FILE);
        let floor = match std::fs::read_to_string(&path) {
            Ok(text) => Some(serde_json::from_str(&text).with_context(|| path.display().to_string())?),
            Err(_) => None,
        };
        Ok(Run { failures: record::read_failures(directory)?, ..Run::new(machine, records, floor) })
    }

    pub fn new(machine: Machine, mut records: Vec<Record>, floor: Option<Floor>) -> Run {
        // Round 0 is the warm-up, whoever kept it.
        records.retain(|record| record.round > 0);
        let mut subjects: Vec<String> = machine.subjects.iter().map(|subject| subject.name.clone()).collect();
        for record in &records {
            if !subjects.contains(&record.subject) {
                subjects.push(record.subject.clone());
            }
        }
        let mut points: Vec<f64> =
            records.iter().map(|record| record.point).filter(|point| point.is_finite()).collect();
        points.sort_unstable_by(f64::total_cmp);
        points.dedup();
        Run { machine, records, failures: Vec::new(), floor, subjects, points }
    }

    fn name(&self) -> String {
        let named = Some(&self.machine.plan_name).filter(|name| !name.is_empty());
        let name = named.or_else(|| self.records.first().map(|record| &record.plan));
        name.filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| "ab".into())
    }

    /// What the points count, such as `viewers`.
    pub fn axis(&self) -> &str {
        self.machine.axis.as_deref().unwrap_or("point")
    }

    /// "100 viewers"; empty when there is one point only.
    pub fn point_name(&self, point: f64) -> String {
        if self.has_axis() { format!("{} {}", crate::plot::short(point), self.axis()) } else { String::new() }
    }

    /// Whether there is anything to lay an axis through.
    pub fn has_axis(&self) -> bool {
        self.points.len() > 1 || self.machine.axis.is_some()
    }

    pub fn judge(&self) -> Judge {
        self.machine.judge.parse().unwrap_or_default()
    }

    /// All runs of a subject at a point.
    pub fn cell(&self, subject: usize, point: f64) -> Cell<'_> {
        let name = &self.subjects[subject];
        let here = |record: &&Record| record.subject == *name && record.point == point;
        let all: Vec<&Record> = self.records.iter().filter(here).collect();
        let mut counted: BTreeMap<u32, &Record> = BTreeMap::new();
        for record in &all {
            // Of a repeated run the last one counts.
            counted.insert(record.round, record);
        }
        Cell { all, counted }
    }

    /// Every subject that has runs at this point, with them.
    pub fn cells(&self, point: f64) -> impl Iterator<Item = (usize, Cell<'_>)> {
        let cells = (0..self.subjects.len()).map(move |subject| (subject, self.cell(subject, point)));
        cells.filter(|(_, cell)| !cell.counted.is_empty())
    }
}

/// One subject at one point.
pub struct Cell<'a> {
    /// In the order in which they were measured, disturbed and repeated ones too.
    pub all: Vec<&'a Record>,
    /// Those that count, by round.
    pub counted: BTreeMap<u32, &'a Record>,
}

impl Cell<'_> {
    /// The median over the rounds, and where it lies with 95 % confidence.
    pub fn estimate(&self, value: impl Fn(&Record) -> Option<f64>) -> Option<Ratio> {
        let values: Vec<f64> =
            self.counted.values().filter_map(|record| value(record)).filter(|v| v.is_finite()).collect();
        // The interval of a median is that of its ratio to one.
        Ratio::of(&values, &vec![1.0; values.len()])
    }

    pub fn median(&self, value: impl Fn(&Record) -> Option<f64>) -> Option<f64> {
        self.estimate(value).map(|estimate| estimate.median)
    }

    /// The numbers of both in the rounds that both have, in the order of the rounds.
    pub fn paired(&self, other: &Cell<'_>, value: impl Fn(&Record) -> Option<f64>) -> (Vec<f64>, Vec<f64>) {
        let pair = |(round, record): (&u32, &&Record)| Some((value(record)?, value(other.counted.get(round)?)?));
        self.counted.iter().filter_map(pair).unzip()
    }

    /// Packets in each class of latency over all rounds, by the class's upper bound in milliseconds, rising.
    pub fn histogram(&self) -> Vec<(f64, u64)> {
        let mut classes: Vec<(f64, u64)> = Vec::new();
        for record in self.counted.values() {
            classes.extend(record.latency_ms.iter().flat_map(|latency| &latency.histogram));
        }
        classes.retain(|(upper, count)| upper.is_finite() && *count > 0);
        classes.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        classes.dedup_by(|next, first| {
            let same = next.0 == first.0;
            if same {
                first.1 += next.1;
            }
            same
        });
        classes
    }
}

impl Floor {
    /// User space and kernel, in microseconds per packet. `None` when a part was not measured.
    pub fn cost_us(&self) -> Option<(f64, f64)> {
        let cost_of = |part: &String| {
            let row = self.rows.iter().find(|row| row.name() == *part)?;
            Some((row.user_ns? / 1e3, row.kernel_ns? / 1e3))
        };
        let costs: Option<Vec<(f64, f64)>> = self.parts.iter().map(cost_of).collect();
        costs.map(|costs| costs.iter().fold((0.0, 0.0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1)))
    }

    /// All measured ways: name, user space and kernel in nanoseconds.
    pub fn rows(&self) -> impl Iterator<Item = (String, Option<f64>, Option<f64>)> {
        self.rows.iter().map(|row| (row.name(), row.user_ns, row.kernel_ns))
    }
}

impl FloorRow {
    fn name(&self) -> String {
        match self.segments {
            Some(segments) => format!("{} {segments}", self.path),
            None => self.path.clone(),
        }
    }
}

/// A number of a run.
pub type Metric = fn(&Record) -> Option<f64>;

fn per_packet(record: &Record, amount: f64) -> Option<f64> {
    (record.arrived.packets > 0).then(|| amount / record.arrived.packets as f64)
}

/// CPU time of the server per packet that arrived, in microseconds; likewise the next two.
pub fn cost_us(record: &Record) -> Option<f64> {
    per_packet(record, record.server.cpu_s() * 1e6)
}

pub fn user_us(record: &Record) -> Option<f64> {
    per_packet(record, record.server.user_s * 1e6)
}

pub fn kernel_us(record: &Record) -> Option<f64> {
    per_packet(record, record.server.system_s * 1e6)
}

/// Packets that arrived per second.
pub fn rate(record: &Record) -> Option<f64> {
    (record.seconds > 0.0).then(|| record.arrived.packets as f64 / record.seconds)
}

/// Megabits that arrived per second.
pub fn mbit(record: &Record) -> Option<f64> {
    (record.seconds > 0.0).then(|| record.arrived.bytes as f64 * 8.0 / 1e6 / record.seconds)
}

/// Bytes of the mean packet.
pub fn packet_bytes(record: &Record) -> Option<f64> {
    per_packet(record, record.arrived.bytes as f64)
}

/// How busy the server was, in percent of one core.
pub fn busy(record: &Record) -> Option<f64> {
    (record.seconds > 0.0).then(|| record.server.cpu_s() / record.seconds * 100.0)
}

/// How busy the load was, in percent of one core.
pub fn load_busy(record: &Record) -> Option<f64> {
    (record.seconds > 0.0).then(|| record.load.cpu_s() / record.seconds * 100.0)
}

/// The most memory that the server had, in MiB.
pub fn memory_mib(record: &Record) -> Option<f64> {
    let bytes = record.server.peak_memory_bytes;
    (bytes > 0).then(|| bytes as f64 / f64::from(1 << 20))
}

pub fn p50(record: &Record) -> Option<f64> {
    record.latency_ms.as_ref().map(|latency| latency.p50)
}

pub fn p99(record: &Record) -> Option<f64> {
    record.latency_ms.as_ref().map(|latency| latency.p99)
}

/// System calls of the server per packet that arrived.
pub fn syscalls(record: &Record) -> Option<f64> {
    per_packet(record, record.server.syscalls? as f64)
}

/// Times that a thread of the server slept or was stopped, per thousand packets that arrived.
pub fn switches(record: &Record) -> Option<f64> {
    let switches = record.server.voluntary_switches + record.server.involuntary_switches;
    per_packet(record, switches as f64 * 1e3)
}
