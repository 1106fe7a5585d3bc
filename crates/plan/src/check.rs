//! The model beside measured runs.
//!
//! In: a results directory of `millrace ab` with the number of viewers as its points. Out: for each size what the model
//! says a packet costs, what it did cost (the median of the rounds), and the error.
//! How: a stream's rate is taken from what arrived, so that the plan's load need not be known; the server's cores are
//! those that the plan gave it.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::costs::Costs;
use super::model::{PerPacket, Shape};
use ab::cell::{self, Cell};
use ab::plan;
use ab::record::{self, Machine, Record};
use measure::report::Table;

/// All sizes.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub subject: String,
    /// That the server had.
    pub cores: f64,
    pub sizes: Vec<Size>,
}

/// One number of viewers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    pub viewers: f64,
    pub rounds: usize,
    /// Of the rounds; `millrace ab` keeps what stays disturbed when it is repeated.
    pub disturbed: usize,
    /// CPU time of the server for each packet that arrived.
    pub measured_ns: f64,
    pub predicted_ns: f64,
    /// CPU time of the server in cores, of memory in bytes.
    pub measured_cores: f64,
    pub predicted_cores: f64,
    pub measured_bytes: f64,
    pub predicted_bytes: f64,
    /// Where it lies to the points of the model's curve.
    #[serde(skip)]
    pub reach: Ordering,
}

impl Size {
    /// By how much the prediction is over the measurement, as a share of it.
    pub fn error(&self) -> f64 {
        self.predicted_ns / self.measured_ns - 1.0
    }

    fn memory_error(&self) -> f64 {
        self.predicted_bytes / self.measured_bytes - 1.0
    }
}

/// Reads the results in `directory` and predicts each size of `subject`.
///
/// # Errors
/// When the results cannot be read, or have no run of the subject with viewers and packets.
pub fn check(costs: &Costs, directory: &Path, subject: &str) -> Result<Check> {
    let (records, machine) = (record::read(directory)?, record::read_machine(directory)?);
    let names: Vec<&str> = machine.subjects.iter().map(|subject| subject.name.as_str()).collect();
    let cores = cores(&machine);
    let sizes = sizes(costs, cores, &records, subject);
    ensure!(
        !sizes.is_empty() && cores >= 1.0,
        "no run of {subject:?} with viewers and packets in {}; its subjects: {}",
        directory.display(),
        names.join(", ")
    );
    Ok(Check { subject: subject.to_owned(), cores, sizes })
}

/// Those that the plan gave the server, or all.
fn cores(machine: &Machine) -> f64 {
    let pinned = plan::Plan::parse(&machine.plan).ok().and_then(|plan| plan.server_cpus);
    pinned.map_or(machine.cores, |cpus| cpus.0.len()) as f64
}

fn sizes(costs: &Costs, cores: f64, records: &[Record], subject: &str) -> Vec<Size> {
    let own = records.iter().filter(|record| record.subject == subject && record.point >= 1.0);
    let mut points: Vec<f64> = own.map(|record| record.point).collect();
    points.sort_unstable_by(f64::total_cmp);
    points.dedup();
    points.iter().filter_map(|&point| size(costs, cores, point, &Cell::of(records, subject, point))).collect()
}

/// `None` without packets.
fn size(costs: &Costs, cores: f64, viewers: f64, runs: &Cell<'_>) -> Option<Size> {
    let (packets_per_second, bits_per_second) = (runs.median(cell::rate)?, runs.median(cell::bit_rate)?);
    let shape = Shape::with_packets(&costs.rooms, bits_per_second / viewers, packets_per_second / viewers);
    let per_core = viewers / cores;
    let predicted_ns = PerPacket::of(&costs.rooms, &shape, per_core).total_ns();
    Some(Size {
        viewers,
        rounds: runs.counted.len(),
        disturbed: runs.disturbed().count(),
        measured_ns: runs.median(cell::cost_us)? * 1e3,
        predicted_ns,
        measured_cores: runs.median(cell::cores)?,
        predicted_cores: predicted_ns * packets_per_second / 1e9,
        measured_bytes: runs.median(cell::memory_bytes).unwrap_or_default(),
        predicted_bytes: costs.rooms.memory.bytes(viewers, per_core, cores),
        reach: costs.rooms.packets.user().reach(per_core),
    })
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check { subject, cores, sizes } = self;
        let mut table = Table::new("rrrrrrrr");
        table.text(format!(
            "{subject} on {cores} cores: the server's CPU time per packet that arrived, and its memory\n"
        ));
        let names = ["rounds", "measured ns", "predicted ns", "error", "measured MB", "predicted MB", "error"];
        table.head("viewers".to_owned(), &names);
        for size in sizes {
            let reach = match size.reach {
                Ordering::Equal => None,
                Ordering::Less => Some("fewer than in the costs".to_owned()),
                Ordering::Greater => Some("extrapolated".to_owned()),
            };
            let disturbed = (size.disturbed > 0).then(|| format!("{} disturbed", size.disturbed));
            table.row([
                size.viewers.to_string(),
                size.rounds.to_string(),
                format!("{:.0}", size.measured_ns),
                format!("{:.0}", size.predicted_ns),
                format!("{:+.1} %", size.error() * 100.0),
                format!("{:.1}", size.measured_bytes / 1e6),
                format!("{:.1}", size.predicted_bytes / 1e6),
                format!("{:+.1} %", size.memory_error() * 100.0),
                reach.into_iter().chain(disturbed).collect::<Vec<_>>().join(", "),
            ]);
        }
        let worst = sizes.iter().map(|size| size.error().abs()).fold(0.0, f64::max);
        table.text(format!("\nlargest error of the CPU time: {:.1} %", worst * 100.0));
        table.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use ab::record::{Arrived, Subject, Usage};

    fn run(round: u32, viewers: f64, cpu_ns_per_packet: f64) -> Record {
        let packets = (viewers * 180.0 * 5.0) as u64;
        let cpu_s = cpu_ns_per_packet * packets as f64 / 1e9;
        Record {
            round,
            subject: "millrace".to_owned(),
            point: viewers,
            seconds: 5.0,
            arrived: Arrived { packets, bytes: (viewers * 1.5e6 / 8.0 * 5.0) as u64 },
            server: Usage {
                user_s: cpu_s / 2.0,
                system_s: cpu_s / 2.0,
                peak_memory_bytes: 50_000_000,
                ..Usage::default()
            },
            ..Record::default()
        }
    }

    fn kept_in(directory: &Path, runs: &[Record]) {
        let subjects = vec![Subject { name: "millrace".to_owned(), ..Subject::default() }];
        let machine = Machine { cores: 2, subjects, ..Machine::default() };
        record::write_machine(directory, &machine).unwrap();
        for run in runs {
            record::append(directory, run).unwrap();
        }
    }

    /// What the built-in costs say of 500 viewers on two cores at the measured rate: the curve's own point.
    fn at_500(costs: &Costs) -> f64 {
        let point = costs.rooms.packets.curve.iter().find(|point| point.viewers_per_core == 250.0).unwrap();
        point.user_ns + point.kernel_ns
    }

    #[test]
    fn the_error_is_that_of_the_median_of_the_rounds() {
        let directory = tempfile::tempdir().unwrap();
        let costs = Costs::built_in().unwrap();
        let truth = at_500(&costs);
        // Repeated, so that it does not count.
        let disturbed = Record { disturbed: Some("steal".to_owned()), ..run(1, 500.0, truth * 9.0) };
        let other = Record { subject: "another".to_owned(), ..run(1, 500.0, truth * 7.0) };
        let of_500 = [run(1, 500.0, truth * 0.8), run(2, 500.0, truth * 0.7), run(3, 500.0, truth * 3.0)];
        let still_disturbed = Record { disturbed: Some("steal".to_owned()), ..run(1, 4_000.0, truth) };
        let runs = [&[disturbed, other], &of_500[..], &[still_disturbed]].concat();
        kept_in(directory.path(), &runs);

        let check = check(&costs, directory.path(), "millrace").unwrap();
        let counts: Vec<_> = check.sizes.iter().map(|size| (size.viewers, size.rounds, size.disturbed)).collect();
        assert_eq!(counts, [(500.0, 3, 0), (4_000.0, 1, 1)]);
        let size = check.sizes[0];
        assert!((size.predicted_ns - truth).abs() < 1e-6, "{size:?}");
        assert!((size.error() - 0.25).abs() < 1e-3, "{}", size.error());
        let text = check.to_string();
        assert!(text.contains("+25.0 %") && text.contains("extrapolated, 1 disturbed"), "{text}");
    }

    #[test]
    fn a_server_that_was_pinned_had_no_more_cores_than_that() {
        let plan = r#"
            server_cpus = "0,2"
            [[subject]]
            name = "millrace"
            command = "millrace serve"
            ready = "tcp:127.0.0.1:8080"
            [[subject]]
            name = "another"
            command = "another"
            ready = "tcp:127.0.0.1:8081"
            [load]
            command = "millrace load rooms"
        "#;
        let machine = Machine { cores: 8, plan: plan.to_owned(), ..Machine::default() };
        assert_eq!(cores(&machine), 2.0);
        assert_eq!(cores(&Machine { plan: String::new(), ..machine }), 8.0);
    }

    #[test]
    fn results_without_a_run_of_the_subject_are_an_error_that_names_those_there_are() {
        let directory = tempfile::tempdir().unwrap();
        kept_in(directory.path(), &[run(1, 500.0, 2_000.0)]);
        let error = check(&Costs::built_in().unwrap(), directory.path(), "ours").unwrap_err().to_string();
        assert!(error.contains("\"ours\"") && error.contains("subjects: millrace"), "{error}");
    }

    #[test]
    fn a_directory_without_results_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(check(&Costs::built_in().unwrap(), directory.path(), "millrace").is_err());
    }
}
