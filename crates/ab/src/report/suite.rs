//! Results directories, read and put in order: one suite for each plan, and in it a cell for each subject at each point.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::cell::Cell;
use crate::record::{self, Failure, Machine, Record};
use crate::values::Judge;

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
    /// All measured ways.
    pub rows: Vec<FloorRow>,
}

/// A line of `millrace bench floor --json`. Nanoseconds of CPU time per packet; absent where the machine cannot.
#[derive(Clone, Debug, Deserialize)]
pub struct FloorRow {
    path: String,
    segments: Option<u64>,
    pub user_ns: Option<f64>,
    pub kernel_ns: Option<f64>,
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

    pub fn new(machine: Machine, records: Vec<Record>, floor: Option<Floor>) -> Run {
        let subjects = machine.subjects.iter().map(|subject| subject.name.clone()).collect();
        let mut points: Vec<f64> =
            records.iter().map(|record| record.point).filter(|point| point.is_finite()).collect();
        points.sort_unstable_by(f64::total_cmp);
        points.dedup();
        Run { machine, records, failures: Vec::new(), floor, subjects, points }
    }

    pub fn name(&self) -> String {
        let named = Some(&self.machine.plan_name).filter(|name| !name.is_empty());
        let name = named.or_else(|| self.records.first().map(|record| &record.plan));
        name.filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| "ab".into())
    }

    /// What the points count, such as `viewers`.
    pub fn axis(&self) -> &str {
        self.machine.axis.as_deref().unwrap_or("point")
    }

    /// "100 viewers"; nothing when there is one point only.
    pub fn point_name(&self, point: f64) -> Option<String> {
        let name = || format!("{} {}", measure::plot::short(point), self.axis());
        self.has_axis().then(|| self.job(point).map_or_else(name, str::to_owned))
    }

    /// What stands for a point in a table.
    pub fn point_text(&self, point: f64) -> String {
        self.job(point).map_or_else(|| measure::plot::short(point), str::to_owned)
    }

    fn job(&self, point: f64) -> Option<&str> {
        crate::plan::job(&self.machine.jobs, point)
    }

    /// Whether points are kinds of work: then no line leads from one to the next.
    pub fn has_jobs(&self) -> bool {
        !self.machine.jobs.is_empty()
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
        Cell::of(&self.records, &self.subjects[subject], point)
    }

    /// Every subject that has runs at this point, with them.
    pub fn cells(&self, point: f64) -> impl Iterator<Item = (usize, Cell<'_>)> {
        let cells = (0..self.subjects.len()).map(move |subject| (subject, self.cell(subject, point)));
        cells.filter(|(_, cell)| !cell.counted.is_empty())
    }
}

impl Floor {
    /// User space and kernel, in microseconds per packet. `None` when a part was not measured.
    pub fn cost_us(&self) -> Option<(f64, f64)> {
        self.parts.iter().try_fold((0.0, 0.0), |(user, kernel), part| {
            let row = self.rows.iter().find(|row| row.name() == *part)?;
            Some((user + row.user_ns? / 1e3, kernel + row.kernel_ns? / 1e3))
        })
    }
}

impl FloorRow {
    pub fn name(&self) -> String {
        match self.segments {
            Some(segments) => format!("{} {segments}", self.path),
            None => self.path.clone(),
        }
    }
}
