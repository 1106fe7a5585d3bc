//! The results as a table, as lines of JSON and as a plot.

use serde::Serialize;
use srtp::Profile;

use super::schedulers::Scheduler;
use super::{Args, PROFILES};
use crate::comparison::{Costs, Options, Sample, middle, ratio_to, samples_of, values};
use measure::plot::{self, Figure, Line};
use measure::report::Table;
use measure::rounds::Ratio;
use measure::text::ratio;

/// One scheduler at one number of down tracks with one profile. Times are medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub profile: &'static str,
    pub down_tracks: usize,
    pub scheduler: Scheduler,
    pub datagram_bytes: usize,
    pub burst: usize,
    pub threads: usize,
    #[serde(flatten)]
    pub costs: Costs,
    /// Microseconds of wall time for one packet to all down tracks.
    pub wall_us_per_write: f64,
    pub wall_to_serial: Option<Ratio>,
    pub cpu_to_serial: Option<Ratio>,
    pub cpu_to_gso_floor: Option<Ratio>,
    /// To the sum of GSO sends alone and sealing alone: the distance from what nobody can do without.
    pub cpu_to_floor: Option<Ratio>,
}

/// A row for each scheduler; they were measured side by side.
pub(super) fn rows(args: &Args, profile: Profile, down_tracks: usize, samples: &[Vec<Sample>]) -> Vec<Row> {
    let of = |wanted| samples_of(&args.schedulers, samples, |scheduler| *scheduler == wanted);
    let floor = of(Scheduler::SealFloor).zip(of(Scheduler::GsoFloor)).map(|(sealing, sending)| {
        let pairs = sealing.iter().zip(sending);
        pairs.map(|(sealing, sending)| sealing.cpu_ns() + sending.cpu_ns()).collect::<Vec<_>>()
    });
    let row = |(&scheduler, own): (&Scheduler, &Vec<Sample>)| Row {
        profile: PROFILES.iter().find(|known| known.2 == profile).map_or("", |(_, shown, _)| shown),
        down_tracks,
        scheduler,
        datagram_bytes: args.size,
        burst: args.burst,
        threads: args.threads(),
        costs: Costs::of(own),
        wall_us_per_write: middle(own, Sample::wall_ns) * down_tracks as f64 / 1e3,
        wall_to_serial: ratio_to(of(Scheduler::Serial), own, Sample::wall_ns),
        cpu_to_serial: ratio_to(of(Scheduler::Serial), own, Sample::cpu_ns),
        cpu_to_gso_floor: ratio_to(of(Scheduler::GsoFloor), own, Sample::cpu_ns),
        cpu_to_floor: floor.as_ref().and_then(|floor| Ratio::of(&values(own, Sample::cpu_ns), floor)),
    };
    args.schedulers.iter().zip(samples).map(row).collect()
}

/// For each profile, wall time of a packet write and CPU time of a datagram over the number of down tracks.
pub(super) fn svg(args: &Args, rows: &[Row]) -> String {
    let charts = rows.chunk_by(|one, other| one.profile == other.profile).flat_map(|rows| {
        [
            chart(rows, "CPU per datagram", "ns", |row| row.costs.cpu_ns),
            chart(rows, "wall time of one packet write", "µs", |row| row.wall_us_per_write),
        ]
    });
    plot::svg(&heading(args), charts.collect())
}

fn chart(rows: &[Row], what: &str, unit: &str, value: fn(&Row) -> f64) -> Figure {
    let points = rows.iter().map(|row| {
        let line = if row.scheduler.is_floor() { Line::Dashed } else { Line::Solid };
        (row.scheduler.to_string(), line, row.down_tracks as f64, value(row))
    });
    Figure::of_lines(format!("{}: {what}", rows[0].profile), "down tracks", unit, points)
}

fn heading(args: &Args) -> String {
    let Args { size, burst, options: Options { rounds, seconds, .. }, .. } = args;
    format!(
        "{size}-byte datagrams, frames of {burst} packets, {} threads, {rounds} rounds of {seconds:?}; sent on loopback to \
         sockets that nobody reads",
        args.threads()
    )
}

const NAMES: [&str; 8] =
    ["wall µs", "CPU ns", "user", "kernel", "wall/serial", "CPU/serial", "CPU/GSO", "CPU/(GSO+seal)"];

pub(super) fn table(args: &Args, rows: &[Row]) -> Table {
    let mut table = Table::new("lrrrr");
    table.text(heading(args));
    table.text("wall: one packet to all down tracks; CPU: one datagram; ratios: median (95 % interval)");
    let group = |row: &Row| (row.profile, row.down_tracks);
    for rows in rows.chunk_by(|one, other| group(one) == group(other)) {
        table.text("");
        table.head(format!("{} × {}", rows[0].profile, rows[0].down_tracks), &NAMES);
        rows.iter().for_each(|row| row.write(&mut table));
    }
    table
}

impl Row {
    fn write(&self, table: &mut Table) {
        let [cpu, user, kernel] = self.costs.cells();
        table.row([
            format!("  {}", self.scheduler),
            format!("{:.2}", self.wall_us_per_write),
            cpu,
            user,
            kernel,
            ratio(self.wall_to_serial),
            ratio(self.cpu_to_serial),
            ratio(self.cpu_to_gso_floor),
            ratio(self.cpu_to_floor),
        ]);
        self.costs.write_refused(table);
    }
}
