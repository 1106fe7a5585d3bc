//! `millrace bench fanout`: how to get one packet to many down tracks, on real work.
//!
//! In: numbers of down tracks, SRTP profiles, packet size, packets per frame.
//! Out: for each way of doing it, the wall time of one packet write (to all down tracks) and the CPU time of one
//! datagram, as medians over alternating rounds; ratios to the serial way and to what the kernel alone asks.
//! How: every datagram is written as the server writes it (header, extensions, SRTP) and sent by UDP to a socket on
//! loopback that nobody reads (see `sinks`).
//! Source: the comparison of schedulers in LiveKit's article on fan-out; their claim-by-counter takes two at a time.

mod floors;
mod ours;
mod report;
mod schedulers;
mod work;

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use srtp::Profile;

use report::Row;
use schedulers::{Bench, Scheduler};
use work::{DATAGRAM_LEN_MIN, Source, Track};

use crate::comparison::{Options, at_least, datagram_bytes};
use crate::sinks::Sinks;
use measure::cpu;
use measure::rounds::Rounds;

/// Options of `millrace bench fanout`.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Numbers of down tracks (viewers) to measure at.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = at_least(1), default_values_t = [1, 2, 5, 10, 100, 250, 500, 2_000])]
    down_tracks: Vec<usize>,
    /// SRTP profiles.
    #[arg(long, value_delimiter = ',', value_parser = profile(), default_values = ["gcm128", "cm-sha1"])]
    profiles: Vec<Profile>,
    /// Ways of sharing the work, and floors to compare them with.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WAY,…", default_values_t = Scheduler::value_variants())]
    schedulers: Vec<Scheduler>,
    /// Bytes of each datagram, SRTP tag included.
    #[arg(long, value_name = "BYTES", value_parser = datagram_bytes(DATAGRAM_LEN_MIN), default_value_t = 1_200)]
    size: usize,
    /// Packets of one video frame: they arrive together, and ours sends them together.
    #[arg(long, value_name = "PACKETS", value_parser = at_least(1), default_value_t = 5)]
    burst: usize,
    #[command(flatten)]
    options: Options,
    /// Threads that send; all cores unless given.
    #[arg(long, value_parser = at_least(1))]
    threads: Option<usize>,
    /// Kilobytes of each worker's outbox, which holds a datagram at least.
    #[arg(long, value_name = "KIB", value_parser = at_least(2), default_value_t = 256)]
    outbox: usize,
    /// Writes a plot to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// SRTP profiles: as they are typed, and as they are shown.
const PROFILES: [(&str, &str, Profile); 3] = [
    ("gcm128", "AES-128-GCM", Profile::AeadAes128Gcm),
    ("gcm256", "AES-256-GCM", Profile::AeadAes256Gcm),
    ("cm-sha1", "AES-CM + SHA-1", Profile::Aes128CmSha1_80),
];

fn profile() -> impl TypedValueParser<Value = Profile> {
    let of = |typed: String| PROFILES.into_iter().find(|profile| profile.0 == typed).expect("one of those allowed").2;
    PossibleValuesParser::new(PROFILES.map(|profile| profile.0)).map(of)
}

impl Args {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(cpu::cores)
    }

    /// Of each worker of ours.
    fn outbox_bytes(&self) -> usize {
        self.outbox << 10
    }
}

/// The whole command: measures, prints the table or JSON lines, writes the plot.
///
/// # Errors
/// When an option makes no sense, a socket or thread is not to be had, or the plot cannot be written.
pub fn execute(args: &Args) -> Result<()> {
    let rows = run(args)?;
    let plot = args.svg.as_deref().map(|path| (path, report::svg(args, &rows)));
    args.options.tell(&rows, &report::table(args, &rows), plot)
}

/// Compares them all. It takes about `seconds` × rounds × schedulers × profiles × numbers of down tracks.
fn run(args: &Args) -> Result<Vec<Row>> {
    let sinks = Sinks::bind(args.down_tracks.iter().copied().max().unwrap_or(0))?;
    let bench = Bench::new(args)?;
    let groups = args.profiles.len() * args.down_tracks.len();
    let rounds = Rounds::new(args.options.rounds, groups * args.schedulers.len());

    let mut rows = Vec::new();
    for &profile in &args.profiles {
        for &down_tracks in &args.down_tracks {
            let mut source = Source::new(args, profile);
            let tracks = (0..down_tracks).map(|index| Track::new(index, sinks.addr(index), profile));
            let tracks: Vec<Track> = tracks.collect::<Result<_, _>>()?;
            let name = |scheduler: &Scheduler| format!("{scheduler} × {down_tracks}");
            let measure = |scheduler: &Scheduler| bench.measure(*scheduler, &mut source, &tracks);
            let samples = rounds.alternate(&args.schedulers, name, measure)?;
            rows.extend(report::rows(args, profile, down_tracks, &samples));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use measure::report::json_lines;

    use super::*;

    fn quick() -> Args {
        Args {
            down_tracks: vec![1, 3],
            profiles: vec![Profile::AeadAes128Gcm],
            options: Options { rounds: 2, seconds: Duration::from_millis(2), json: false },
            threads: Some(2),
            outbox: 4,
            ..Args::parse_from([""])
        }
    }

    #[test]
    fn every_scheduler_sends_to_every_down_track_and_loses_nothing() {
        let rows = run(&quick()).unwrap();
        assert_eq!(rows.len(), 2 * Scheduler::value_variants().len());
        for row in &rows {
            assert!(row.costs.datagrams > 0 && row.costs.refused == 0, "{row:?}");
            let whole_writes = row.costs.datagrams % row.down_tracks as u64 == 0;
            assert!(whole_writes || row.scheduler.is_floor(), "{row:?}");
            assert!(row.costs.cpu_ns > 0.0 && row.wall_us_per_write > 0.0, "{row:?}");
            assert!(row.cpu_to_serial.is_some() && row.cpu_to_gso_floor.is_some(), "{row:?}");
        }
    }

    #[test]
    fn a_report_is_a_table_lines_of_json_and_a_plot() {
        let (args, rows) = (quick(), run(&quick()).unwrap());
        let table = report::table(&args, &rows).to_string();
        assert!(table.contains("millrace") && table.contains("claim by counter"), "{table}");
        for line in json_lines(&rows).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(row["cpu_ns"].as_f64().is_some_and(|cpu| cpu > 0.0), "{line}");
        }
        assert!(report::svg(&args, &rows).starts_with("<svg"));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let broken = [
            ["--down-tracks", ""],
            ["--down-tracks", "3,0"],
            ["--size", "20"],
            ["--size", "9000"],
            ["--burst", "0"],
            ["--threads", "0"],
            ["--outbox", "1"],
        ];
        for broken in broken {
            assert!(Args::try_parse_from([&[""], &broken[..]].concat()).is_err(), "{broken:?}");
        }
    }
}
