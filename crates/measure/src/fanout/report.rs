//! The results as a table, as lines of JSON and as a plot.

use std::fmt;
use std::fmt::Write as _;

use rooms::srtp::Profile;
use serde::Serialize;

use super::Options;
use super::schedulers::{Sample, Scheduler};
use crate::plot::{Chart, Scale, Series};
use crate::rounds::{Ratio, median};

/// One scheduler at one number of down tracks with one profile. Times are medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
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
pub struct Report {
    options: Options,
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(options: &Options) -> Self {
        Report { options: options.clone(), rows: Vec::new() }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Takes the samples of one group of cases that were measured side by side.
    pub(super) fn add(
        &mut self,
        profile: Profile,
        down_tracks: usize,
        schedulers: &[Scheduler],
        samples: &[Vec<Sample>],
    ) {
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
                datagram_bytes: self.options.datagram_bytes,
                burst: self.options.burst,
                threads: self.options.threads,
                rounds: own.len(),
                datagrams: own.iter().map(|sample| sample.datagrams).sum(),
                refused: own.iter().map(|sample| sample.refused).sum(),
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

    /// One object per row.
    ///
    /// # Errors
    /// When a number has no form in JSON, which none of ours is.
    pub fn json_lines(&self) -> serde_json::Result<String> {
        let mut lines = String::new();
        for row in &self.rows {
            lines += &serde_json::to_string(row)?;
            lines.push('\n');
        }
        Ok(lines)
    }

    /// For each profile, wall time of a packet write and CPU time of a datagram over the number of down tracks.
    pub fn svg(&self) -> String {
        let mut profiles: Vec<&str> = self.rows.iter().map(|row| row.profile).collect();
        profiles.dedup();
        let charts: Vec<Chart> = profiles
            .iter()
            .flat_map(|profile| {
                [
                    self.chart(profile, "CPU per datagram", "ns", |row| row.cpu_ns),
                    self.chart(profile, "wall time of one packet write", "µs", |row| row.wall_us_per_write),
                ]
            })
            .collect();
        crate::plot::svg(&self.heading(), &charts)
    }

    fn heading(&self) -> String {
        let Options { datagram_bytes, burst, threads, rounds, time, .. } = &self.options;
        format!(
            "{datagram_bytes}-byte datagrams, frames of {burst} packets, {threads} threads, {rounds} rounds of {time:?}; \
             sent on loopback to sockets that nobody reads"
        )
    }

    fn chart(&self, profile: &str, what: &str, unit: &str, value: fn(&Row) -> f64) -> Chart {
        let rows = || self.rows.iter().filter(|row| row.profile == profile);
        let mut schedulers: Vec<Scheduler> = Vec::new();
        for row in rows() {
            if !schedulers.contains(&row.scheduler) {
                schedulers.push(row.scheduler);
            }
        }
        let series = schedulers.iter().map(|&scheduler| Series {
            name: scheduler.name().to_owned(),
            dashed: scheduler.is_floor(),
            points: rows()
                .filter(|row| row.scheduler == scheduler)
                .map(|row| (row.down_tracks as f64, value(row)))
                .collect(),
        });
        Chart {
            title: format!("{profile}: {what}"),
            x_label: "down tracks".to_owned(),
            y_label: unit.to_owned(),
            x_scale: Scale::Log,
            y_scale: Scale::Log,
            series: series.collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading())?;
        writeln!(f, "wall: one packet to all down tracks; CPU: one datagram; ratios: median (95 % interval)")?;
        let mut group = None;
        for row in &self.rows {
            if group != Some((row.profile, row.down_tracks)) {
                group = Some((row.profile, row.down_tracks));
                writeln!(f)?;
                writeln!(
                    f,
                    "{:<28} {:>10} {:>8} {:>7} {:>7}  {:<19} {:<19} {:<19} {:<19} {:<19}",
                    format!("{} × {}", row.profile, row.down_tracks),
                    "wall µs",
                    "CPU ns",
                    "user",
                    "kernel",
                    "wall/serial",
                    "CPU/serial",
                    "CPU/sendto",
                    "CPU/GSO",
                    "CPU/(GSO+seal)"
                )?;
            }
            write_row(f, row)?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let ratio = |ratio: Option<Ratio>| ratio.map_or_else(|| "–".to_owned(), |ratio| ratio.to_string());
    let mut line = String::new();
    write!(
        line,
        "  {:<26} {:>10.2} {:>8.0} {:>7.0} {:>7.0}  {:<19} {:<19} {:<19} {:<19} {:<19}",
        row.scheduler.name(),
        row.wall_us_per_write,
        row.cpu_ns,
        row.user_ns,
        row.system_ns,
        ratio(row.wall_to_serial),
        ratio(row.cpu_to_serial),
        ratio(row.cpu_to_sendto_floor),
        ratio(row.cpu_to_gso_floor),
        ratio(row.cpu_to_floor),
    )?;
    writeln!(f, "{}", line.trim_end())?;
    if row.refused > 0 {
        writeln!(f, "    {} of {} datagrams were refused by the kernel", row.refused, row.refused + row.datagrams)?;
    }
    Ok(())
}

fn values(samples: &[Sample], value: fn(&Sample) -> f64) -> Vec<f64> {
    samples.iter().map(value).collect()
}

/// Per datagram, as everything here; a sample without any gives 0.
fn per_datagram(nanos: u128, sample: &Sample) -> f64 {
    nanos as f64 / sample.datagrams.max(1) as f64
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
    match profile {
        Profile::AeadAes128Gcm => "AES-128-GCM",
        Profile::AeadAes256Gcm => "AES-256-GCM",
        Profile::Aes128CmSha1_80 => "AES-CM + SHA-1",
    }
}
