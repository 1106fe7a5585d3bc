//! The results as a table, as lines of JSON and as a plot.

use serde::Serialize;
use wheel::Lateness;

use super::scene::Scene;
use super::{Args, Case, Way};
use crate::comparison::{Costs, Options, Sample, middle, ratio_to, samples_of};
use measure::plot::{self, Figure, Line};
use measure::report::Table;
use measure::rounds::Ratio;
use measure::text::ratio;

/// One case at one number of streams. Times are medians over the rounds; lateness is of all rounds together.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub way: Way,
    pub streams: usize,
    /// Bits per second; streams take them in turn.
    pub rates_bps: Vec<u64>,
    /// Datagrams per send.
    pub burst: u8,
    pub tick_us: u64,
    pub threads: usize,
    #[serde(flatten)]
    pub costs: Costs,
    /// Datagrams that were due; one way or the other a few more or less are sent at the ends of a round.
    pub due: f64,
    /// Milliseconds of CPU time for one second of one stream, on all threads, in user space and kernel.
    pub cpu_ms_per_stream_second: f64,
    /// Cores in use.
    pub cores: f64,
    /// How long after its time a burst was sent.
    pub lateness_us: Quantiles,
    /// How late a thread beside it was that never sleeps.
    pub reference_us: Option<Quantiles>,
    /// CPU per datagram, to the bare loop with the same burst.
    pub cpu_to_floor: Option<Ratio>,
    pub cpu_to_naive: Option<Ratio>,
}

/// Microseconds, to a factor of two. `max` is the upper end of the last bucket that has any.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Quantiles {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Quantiles {
    /// Of all samples together.
    fn of(samples: &[Sample], part: fn(&Sample) -> &Lateness) -> Self {
        let mut all = Lateness::default();
        samples.iter().for_each(|sample| all.merge(part(sample)));
        let at = |share| all.quantile(share).as_nanos() as f64 / 1e3;
        Quantiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// A row for each case; they were measured side by side.
pub(super) fn rows(args: &Args, scene: &Scene, cases: &[Case<'_>], samples: &[Vec<Sample>]) -> Vec<Row> {
    let of = |way, burst| samples_of(cases, samples, |case| case.way == way && case.burst == burst);
    let streams = scene.streams.len();
    let row = |(case, own): (&Case<'_>, &Vec<Sample>)| Row {
        way: case.way,
        streams,
        rates_bps: args.rates.iter().map(|rate| rate.bps()).collect(),
        burst: case.burst,
        tick_us: args.tick_us,
        threads: if case.way.has_bursts() { args.workers } else { args.threads() },
        costs: Costs::of(own),
        due: own.iter().map(|sample| scene.due(sample.spent.wall)).sum(),
        cpu_ms_per_stream_second: middle(own, cores) * 1e3 / streams as f64,
        cores: middle(own, cores),
        lateness_us: Quantiles::of(own, |sample| &sample.lateness),
        reference_us: args.reference.then(|| Quantiles::of(own, |sample| &sample.reference)),
        cpu_to_floor: ratio_to(of(Way::Floor, case.burst), own, Sample::cpu_ns),
        cpu_to_naive: ratio_to(of(Way::Naive, 1), own, Sample::cpu_ns),
    };
    cases.iter().zip(samples).map(row).collect()
}

/// Cost and lateness over the number of streams.
pub(super) fn svg(args: &Args, rows: &[Row]) -> String {
    let charts = vec![
        chart(rows, "CPU per stream and second", "ms", |row| row.cpu_ms_per_stream_second),
        chart(rows, "CPU per datagram", "ns", |row| row.costs.cpu_ns),
        chart(rows, "lateness, median", "µs", |row| row.lateness_us.p50),
        chart(rows, "lateness, 99th percentile", "µs", |row| row.lateness_us.p99),
    ];
    plot::svg(&heading(args), charts)
}

fn chart(rows: &[Row], title: &str, unit: &str, value: fn(&Row) -> f64) -> Figure {
    let points = rows.iter().map(|row| {
        let line = if row.way == Way::Floor { Line::Dashed } else { Line::Solid };
        (line_name(row.way, row.burst), line, row.streams as f64, value(row))
    });
    Figure::of_lines(title.to_owned(), "streams", unit, points)
}

fn heading(args: &Args) -> String {
    let Args { rates, netns, options: Options { rounds, seconds, .. }, .. } = args;
    let rates: Vec<String> = rates.iter().map(ToString::to_string).collect();
    let sink = if *netns { "over veth, whose other end drops" } else { "on loopback to sockets that nobody reads" };
    let (rates, tick) = (rates.join(" and "), args.tick());
    format!("streams of {rates}, tick {tick:?}, {rounds} rounds of {seconds:?}; {sink}")
}

const NAMES: [&str; 10] =
    ["CPU ms", "CPU ns", "user", "kernel", "cores", "late p50", "p99", "max", "CPU/floor", "CPU/naive"];

pub(super) fn table(args: &Args, rows: &[Row]) -> Table {
    let mut table = Table::new("lrrrrrrrr");
    table.text(heading(args));
    table.text("CPU: ms per stream and second, ns per datagram; late: µs; ratios: median (95 % interval)");
    for rows in rows.chunk_by(|one, other| one.streams == other.streams) {
        table.text("");
        table.head(format!("{} streams", rows[0].streams), &NAMES);
        rows.iter().for_each(|row| row.write(&mut table));
    }
    table
}

impl Row {
    fn write(&self, table: &mut Table) {
        let [cpu, user, kernel] = self.costs.cells();
        table.row([
            format!("  {}", line_name(self.way, self.burst)),
            format!("{:.3}", self.cpu_ms_per_stream_second),
            cpu,
            user,
            kernel,
            format!("{:.2}", self.cores),
            format!("{:.0}", self.lateness_us.p50),
            format!("{:.0}", self.lateness_us.p99),
            format!("{:.0}", self.lateness_us.max),
            ratio(self.cpu_to_floor),
            ratio(self.cpu_to_naive),
        ]);
        self.costs.write_refused(table);
        let share = self.costs.datagrams as f64 / self.due.max(1.0);
        if share < KEPT_UP {
            table.text(format!("    it does not keep up: {:.1} % of what was due", share * 100.0));
        }
        if let Some(Quantiles { p50, p99, max, .. }) = self.reference_us {
            table.text(format!(
                "    a thread that never sleeps was late by {p50:.0} (p50), {p99:.0} (p99), {max:.0} µs (max)"
            ));
        }
    }
}

/// Whoever sends less than this of what is due falls behind; at the ends of a round a little may be missing.
const KEPT_UP: f64 = 0.98;

fn line_name(way: Way, burst: u8) -> String {
    match way.has_bursts() {
        true => format!("{way}, {burst}"),
        false => way.to_string(),
    }
}

fn cores(sample: &Sample) -> f64 {
    sample.spent.cpu.total() / sample.spent.wall.as_secs_f64().max(1e-9)
}
