//! The results as a table, as lines of JSON and as a plot.

use std::fmt;

use serde::Serialize;
use srtp::Profile;

use super::schedulers::{Sample, Scheduler};
use super::{Args, PROFILES};
use measure::plot::{self, Figure, Line};
use measure::report::Table;
use measure::rounds::{Ratio, median};
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
    pub rounds: usize,
    /// In all rounds; refused ones are those that the kernel did not take.
    pub datagrams: u64,
    pub refused: u64,
    /// Microseconds of wall time for one packet to all down tracks.
    pub wall_us_per_write: f64,
    /// Nanoseconds of CPU time per datagram, on all threads, in user space and kernel.
    pub cpu_ns: f64,
    pub user_ns: f64,
    pub system_ns: f64,
    pub wall_to_serial: Option<Ratio>,
    pub cpu_to_serial: Option<Ratio>,
    pub cpu_to_sendto_floor: Option<Ratio>,
    pub cpu_to_gso_floor: Option<Ratio>,
    /// To the sum of GSO sends alone and sealing alone: the distance from what nobody can do without.
    pub cpu_to_floor: Option<Ratio>,
}

/// What `run` found out.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) args: Args,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Takes the samples of all schedulers, which were measured side by side.
    pub(super) fn add(&mut self, profile: Profile, down_tracks: usize, samples: &[Vec<Sample>]) {
        let Args { size, burst, ref schedulers, .. } = self.args;
        let threads = self.args.threads();
        let samples_of = |wanted: Scheduler| {
            let index = schedulers.iter().position(|&scheduler| scheduler == wanted)?;
            samples.get(index)
        };
        for (&scheduler, own) in schedulers.iter().zip(samples) {
            let ratio_to = |baseline, value: fn(&Sample) -> f64| {
                Ratio::of(&values(own, value), &values(samples_of(baseline)?, value))
            };
            let floor = || {
                let sealing = values(samples_of(Scheduler::SealFloor)?, cpu_ns);
                let sending = values(samples_of(Scheduler::GsoFloor)?, cpu_ns);
                Some(sealing.iter().zip(&sending).map(|(sealing, sending)| sealing + sending).collect::<Vec<_>>())
            };
            self.rows.push(Row {
                profile: profile_name(profile),
                down_tracks,
                scheduler,
                datagram_bytes: size,
                burst,
                threads,
                rounds: own.len(),
                datagrams: own.iter().map(|sample| sample.tally.sent).sum(),
                refused: own.iter().map(|sample| sample.tally.refused).sum(),
                wall_us_per_write: median(&values(own, wall_ns)) * down_tracks as f64 / 1e3,
                cpu_ns: median(&values(own, cpu_ns)),
                user_ns: median(&values(own, user_ns)),
                system_ns: median(&values(own, system_ns)),
                wall_to_serial: ratio_to(Scheduler::Serial, wall_ns),
                cpu_to_serial: ratio_to(Scheduler::Serial, cpu_ns),
                cpu_to_sendto_floor: ratio_to(Scheduler::SendtoFloor, cpu_ns),
                cpu_to_gso_floor: ratio_to(Scheduler::GsoFloor, cpu_ns),
                cpu_to_floor: floor().and_then(|floor| Ratio::of(&values(own, cpu_ns), &floor)),
            });
        }
    }

    /// For each profile, wall time of a packet write and CPU time of a datagram over the number of down tracks.
    pub fn svg(&self) -> String {
        let mut profiles: Vec<&str> = self.rows.iter().map(|row| row.profile).collect();
        profiles.dedup();
        let charts = profiles.iter().flat_map(|profile| {
            [
                self.chart(profile, "CPU per datagram", "ns", |row| row.cpu_ns),
                self.chart(profile, "wall time of one packet write", "µs", |row| row.wall_us_per_write),
            ]
        });
        plot::svg(&self.heading(), charts.collect())
    }

    fn heading(&self) -> String {
        let Args { size, burst, rounds, seconds, .. } = &self.args;
        format!(
            "{size}-byte datagrams, frames of {burst} packets, {} threads, {rounds} rounds of {seconds:?}; sent on \
             loopback to sockets that nobody reads",
            self.args.threads()
        )
    }

    fn chart(&self, profile: &str, what: &str, unit: &str, value: fn(&Row) -> f64) -> Figure {
        let rows = self.rows.iter().filter(|row| row.profile == profile);
        let points = rows.map(|row| {
            let line = if row.scheduler.is_floor() { Line::Dashed } else { Line::Solid };
            (row.scheduler.name(), line, row.down_tracks as f64, value(row))
        });
        Figure::of_lines(format!("{profile}: {what}"), "down tracks", unit, points)
    }
}

const NAMES: [&str; 9] =
    ["wall µs", "CPU ns", "user", "kernel", "wall/serial", "CPU/serial", "CPU/sendto", "CPU/GSO", "CPU/(GSO+seal)"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new("lrrrr");
        table.text(self.heading());
        table.text("wall: one packet to all down tracks; CPU: one datagram; ratios: median (95 % interval)");
        let group = |row: &Row| (row.profile, row.down_tracks);
        for rows in self.rows.chunk_by(|one, other| group(one) == group(other)) {
            table.text("");
            table.head(format!("{} × {}", rows[0].profile, rows[0].down_tracks), &NAMES);
            rows.iter().for_each(|row| row.write(&mut table));
        }
        table.fmt(f)
    }
}

impl Row {
    fn write(&self, table: &mut Table) {
        table.row([
            format!("  {}", self.scheduler.name()),
            format!("{:.2}", self.wall_us_per_write),
            format!("{:.0}", self.cpu_ns),
            format!("{:.0}", self.user_ns),
            format!("{:.0}", self.system_ns),
            ratio(self.wall_to_serial),
            ratio(self.cpu_to_serial),
            ratio(self.cpu_to_sendto_floor),
            ratio(self.cpu_to_gso_floor),
            ratio(self.cpu_to_floor),
        ]);
        if self.refused > 0 {
            let all = self.refused + self.datagrams;
            table.text(format!("    {} of {all} datagrams were refused by the kernel", self.refused));
        }
    }
}

fn values(samples: &[Sample], value: fn(&Sample) -> f64) -> Vec<f64> {
    samples.iter().map(value).collect()
}

/// Per datagram, as everything here; a sample without any gives 0.
fn per_datagram(nanos: u128, sample: &Sample) -> f64 {
    nanos as f64 / sample.tally.sent.max(1) as f64
}

fn wall_ns(sample: &Sample) -> f64 {
    per_datagram(sample.spent.wall.as_nanos(), sample)
}

fn cpu_ns(sample: &Sample) -> f64 {
    user_ns(sample) + system_ns(sample)
}

fn user_ns(sample: &Sample) -> f64 {
    per_datagram(sample.spent.user.as_nanos(), sample)
}

fn system_ns(sample: &Sample) -> f64 {
    per_datagram(sample.spent.system.as_nanos(), sample)
}

fn profile_name(profile: Profile) -> &'static str {
    PROFILES.iter().find(|other| other.2 == profile).map_or("", |(_, shown, _)| shown)
}
