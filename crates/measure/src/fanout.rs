//! `millrace bench fanout`: how to get one packet to many down tracks, on real work.
//!
//! In: numbers of down tracks, SRTP profiles, packet size, packets per frame.
//! Out: for each way of doing it, the wall time of one packet write (to all down tracks) and the CPU time of one
//! datagram, as medians over alternating rounds; ratios to the serial way and to what the kernel alone asks.
//! How: every datagram is written as the server writes it (header, extensions, SRTP) and sent by UDP to a socket on
//! loopback that nobody reads (see `sinks`).
//! Source: the comparison of schedulers in LiveKit's article on fan-out; their claim-by-counter takes two at a time.

pub(crate) mod cpu;
mod ours;
mod report;
mod schedulers;
pub(crate) mod sinks;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use rooms::srtp::Profile;

pub use report::{Report, Row};
pub use schedulers::Scheduler;

use schedulers::{Bench, Sample};
use sinks::Sinks;
use work::{Shape, Source, Track, datagram_len_min};

use crate::rounds::alternate;

/// Rounds that are thrown away: they fill caches and wake the processor.
const WARM_UP_ROUNDS: usize = 1;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    pub down_tracks: Vec<usize>,
    pub profiles: Vec<Profile>,
    pub schedulers: Vec<Scheduler>,
    /// Bytes of a finished datagram, SRTP tag included.
    pub datagram_bytes: usize,
    /// Packets of a frame, which arrive together.
    pub burst: usize,
    /// Rounds that count.
    pub rounds: usize,
    /// Of one scheduler in one round.
    pub time: Duration,
    pub threads: usize,
    /// Of each worker of ours.
    pub outbox_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            down_tracks: vec![1, 2, 5, 10, 100, 250, 500, 2_000],
            profiles: vec![Profile::AeadAes128Gcm, Profile::Aes128CmSha1_80],
            schedulers: Scheduler::ALL.to_vec(),
            datagram_bytes: 1_200,
            burst: 5,
            rounds: 6,
            time: Duration::from_millis(200),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            outbox_bytes: 256 << 10,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let datagram_bytes = datagram_len_min()..=wire::DATAGRAM_MAX;
        ensure!(!self.down_tracks.is_empty() && !self.down_tracks.contains(&0), "at least one down track");
        ensure!(!self.profiles.is_empty() && !self.schedulers.is_empty(), "at least one profile and one scheduler");
        ensure!(datagram_bytes.contains(&self.datagram_bytes), "a datagram has {datagram_bytes:?} bytes");
        ensure!(self.burst > 0 && self.rounds > 0 && self.threads > 0, "burst, rounds and threads are at least 1");
        ensure!(self.outbox_bytes >= wire::DATAGRAM_MAX, "an outbox holds at least {} bytes", wire::DATAGRAM_MAX);
        Ok(())
    }

    fn measurements(&self) -> usize {
        let groups = self.profiles.len() * self.down_tracks.len();
        groups * self.schedulers.len() * (WARM_UP_ROUNDS + self.rounds)
    }
}

/// Compares them all. It takes about `time` × rounds × schedulers × profiles × numbers of down tracks.
///
/// # Errors
/// When an option makes no sense, or a socket or thread is not to be had.
pub fn run(options: &Options) -> Result<Report> {
    options.check()?;
    let sinks = Sinks::bind(options.down_tracks.iter().copied().max().unwrap_or(0))?;
    let shape = Shape { datagram_len: options.datagram_bytes, burst: options.burst };
    let bench = Bench::new(shape, options.threads, options.outbox_bytes)?;
    let progress = ProgressBar::new(options.measurements() as u64);
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} ({eta} left)")?);

    let mut report = Report::new(options);
    for &profile in &options.profiles {
        for &down_tracks in &options.down_tracks {
            let mut source = Source::new(shape, profile);
            let tracks = (0..down_tracks).map(|index| Track::new(index, sinks.addr(index), profile));
            let tracks: Vec<Track> = tracks.collect::<Result<_, _>>()?;
            let samples: Vec<Vec<Sample>> =
                alternate(options.schedulers.len(), WARM_UP_ROUNDS, options.rounds, |index| {
                    let scheduler = options.schedulers[index];
                    progress.set_message(format!("{} × {down_tracks}", scheduler.name()));
                    let sample = bench.measure(scheduler, &mut source, &tracks, options.time);
                    progress.inc(1);
                    sample
                })?;
            report.add(profile, down_tracks, &options.schedulers, &samples);
        }
    }
    progress.finish_and_clear();
    Ok(report)
}

/// Options of `millrace bench fanout`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Numbers of down tracks (viewers) to measure at.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = Options::default().down_tracks)]
    pub down_tracks: Vec<usize>,
    /// SRTP profiles.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [ProfileName::Gcm128, ProfileName::CmSha1])]
    pub profiles: Vec<ProfileName>,
    /// Ways of sharing the work, and floors to compare them with.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WAY,…", default_values_t = Options::default().schedulers)]
    pub schedulers: Vec<Scheduler>,
    /// Bytes of each datagram, SRTP tag included.
    #[arg(long, value_name = "BYTES", default_value_t = Options::default().datagram_bytes)]
    pub size: usize,
    /// Packets of one video frame: they arrive together, and ours sends them together.
    #[arg(long, value_name = "PACKETS", default_value_t = Options::default().burst)]
    pub burst: usize,
    /// Rounds that count, after one to warm up; each measures every case once, forwards and backwards in turn.
    #[arg(long, default_value_t = Options::default().rounds)]
    pub rounds: usize,
    /// How long each case runs in each round.
    #[arg(long, default_value_t = Options::default().time.as_secs_f64())]
    pub seconds: f64,
    /// Threads that send; all cores unless given.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Kilobytes of each worker's outbox.
    #[arg(long, value_name = "KIB", default_value_t = Options::default().outbox_bytes >> 10)]
    pub outbox: usize,
    /// Writes a plot to this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Prints one line of JSON per case instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// An SRTP profile as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileName {
    #[value(name = "gcm128")]
    Gcm128,
    #[value(name = "gcm256")]
    Gcm256,
    #[value(name = "cm-sha1")]
    CmSha1,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Gcm128 => Profile::AeadAes128Gcm,
            ProfileName::Gcm256 => Profile::AeadAes256Gcm,
            ProfileName::CmSha1 => Profile::Aes128CmSha1_80,
        }
    }
}

impl Args {
    /// # Errors
    /// When a time is negative or not a number.
    pub fn options(&self) -> Result<Options> {
        let defaults = Options::default();
        Ok(Options {
            down_tracks: self.down_tracks.clone(),
            profiles: self.profiles.iter().map(|&name| name.into()).collect(),
            schedulers: self.schedulers.clone(),
            datagram_bytes: self.size,
            burst: self.burst,
            rounds: self.rounds,
            time: Duration::try_from_secs_f64(self.seconds).context("--seconds")?,
            threads: self.threads.unwrap_or(defaults.threads),
            outbox_bytes: self.outbox << 10,
        })
    }
}

/// The whole command: measures, prints the table or JSON lines, writes the plot.
///
/// # Errors
/// Those of `run`, and of writing the plot.
pub fn execute(args: &Args) -> Result<()> {
    let report = run(&args.options()?)?;
    if args.json {
        print!("{}", report.json_lines()?);
    } else {
        print!("{report}");
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, report.svg()).with_context(|| format!("write the plot to {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Options {
        Options {
            down_tracks: vec![1, 3],
            profiles: vec![Profile::AeadAes128Gcm],
            rounds: 2,
            time: Duration::from_millis(2),
            threads: 2,
            outbox_bytes: 4_000,
            ..Options::default()
        }
    }

    #[test]
    fn every_scheduler_sends_to_every_down_track_and_loses_nothing() {
        let report = run(&quick()).unwrap();
        assert_eq!(report.rows().len(), 2 * Scheduler::ALL.len());
        for row in report.rows() {
            assert!(row.datagrams > 0 && row.refused == 0, "{row:?}");
            let whole_writes = row.datagrams % row.down_tracks as u64 == 0;
            assert!(whole_writes || row.scheduler.is_floor(), "{row:?}");
            assert!(row.cpu_ns > 0.0 && row.wall_us_per_write > 0.0, "{row:?}");
            assert!(row.cpu_to_serial.is_some() && row.cpu_to_gso_floor.is_some(), "{row:?}");
        }
    }

    #[test]
    fn a_report_is_a_table_lines_of_json_and_a_plot() {
        let report = run(&quick()).unwrap();
        let table = report.to_string();
        assert!(table.contains("millrace") && table.contains("claim by counter"), "{table}");
        for line in report.json_lines().unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(row["cpu_ns"].as_f64().is_some_and(|cpu| cpu > 0.0), "{line}");
        }
        assert!(report.svg().starts_with("<svg"));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for broken in [
            Options { down_tracks: vec![], ..quick() },
            Options { down_tracks: vec![3, 0], ..quick() },
            Options { datagram_bytes: 20, ..quick() },
            Options { datagram_bytes: 9_000, ..quick() },
            Options { burst: 0, ..quick() },
            Options { threads: 0, ..quick() },
        ] {
            assert!(run(&broken).is_err(), "{broken:?}");
        }
    }
}
