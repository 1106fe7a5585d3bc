//! `millrace bench pump`: how to send thousands of paced streams from one machine, each datagram on time.
//!
//! In: numbers of streams, rates, datagrams per send. Out: for each way, CPU per stream and second and per datagram, user
//! space and kernel apart, how late bursts were, and ratios to the bare loop, as medians over alternating rounds.
//! How: titles of a constant rate lie in memory; every datagram is sent by UDP to sockets on loopback that nobody reads,
//! or over a pair of virtual cards whose other end drops (`namespace`).
//! CPU is the whole process's, so that runtimes pay for all their threads. Lateness is that of a burst, from its time
//! until its turn; it falls into buckets of powers of two, and is interpolated between.
//! Source: the three steps in Comcast's talks on their pump: a timer for each stream, schedulers that wake for all
//! streams together, and a wheel over which streams are spread.

mod floor;
mod naive;
mod namespace;
mod ours;
mod reference;
mod report;
mod scene;
mod together;
mod window;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum, value_parser};
use serde::Serialize;
use wire::Bitrate;

use namespace::RECEIVERS_MAX;
use report::Row;
use scene::{Content, Scene};
use window::Window;

use crate::comparison::{Options, Sample, at_least};
use crate::sinks::Sinks;
use measure::cpu;
use measure::rounds::Rounds;

/// Before it is counted every case runs for this time, or for that of a measurement when that is shorter.
const WARM_UP_MAX: Duration = Duration::from_millis(700);

/// Datagrams of one send at most; a burst is less smooth than its length.
const BURST_MAX: i64 = 7;

/// How streams get their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// A task with a ticker for each stream, one `sendto` per datagram.
    #[strum(to_string = "task per stream")]
    Naive,
    /// A scheduler per core that serves all its streams at each wake-up, one `sendto` per datagram.
    #[strum(to_string = "synchronised")]
    Together,
    /// The server's pump on an engine worker.
    #[strum(to_string = "millrace")]
    Ours,
    /// A timing wheel, ready-made bytes and GSO: what the kernel asks at least.
    #[strum(to_string = "floor: bare loop")]
    Floor,
}

impl Way {
    /// Whether several datagrams can be one send.
    fn has_bursts(self) -> bool {
        matches!(self, Way::Ours | Way::Floor)
    }
}

/// Options of `millrace bench pump`.
#[derive(Clone, Debug, Parser)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("3")))]
#[command(mut_arg("seconds", |seconds| seconds.default_value("2")))]
pub struct Args {
    /// Numbers of streams to measure at.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(1..=RECEIVERS_MAX as u64), default_values_t = [50, 1_000, 3_500])]
    streams: Vec<usize>,
    /// Rate of each stream, nulls included; of several, streams take one in turn.
    #[arg(long = "rate", value_name = "RATE,…", value_delimiter = ',', value_parser = rate, default_value = "4.5Mbps")]
    rates: Vec<Bitrate>,
    /// Datagrams per send, 1 to 7, for the ways that can send several at once.
    #[arg(long = "burst", value_name = "N,…", value_delimiter = ',', value_parser = value_parser!(u8).range(1..=BURST_MAX), default_values_t = [1, 2, 4, 7])]
    bursts: Vec<u8>,
    /// Ways of sending, and the floor to compare them with.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WAY,…", default_values_t = Way::value_variants())]
    ways: Vec<Way>,
    #[command(flatten)]
    options: Options,
    /// Microseconds between two looks at the wheel: fewer are smoother, and cost more.
    #[arg(long = "tick", value_name = "µs", value_parser = value_parser!(u64).range(10..=100_000), default_value_t = pump::spec::Settings::default().tick.as_micros() as u64)]
    tick_us: u64,
    /// Threads of the naive and the synchronised way; all cores unless given.
    #[arg(long, value_parser = at_least(1))]
    threads: Option<usize>,
    /// Workers of ours and of the floor.
    #[arg(long, value_parser = at_least(1), default_value_t = 1)]
    workers: usize,
    /// Sends over a pair of virtual cards, whose other end drops, and not to sockets on loopback. Needs root.
    #[arg(long)]
    netns: bool,
    /// Lets a thread spin beside the senders, to show how late the machine alone makes it. It takes a core.
    #[arg(long)]
    reference: bool,
    /// Writes a title of the first rate to this file, --seconds long, and measures nothing: for other senders.
    #[arg(long, value_name = "FILE", conflicts_with = "svg")]
    write_title: Option<PathBuf>,
    /// Writes a plot to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A rate that a stream may have.
fn rate(text: &str) -> Result<Bitrate> {
    let (rate, allowed) = (text.parse()?, Bitrate::from_kbps(100)..=Bitrate::from_kbps(200_000));
    ensure!(allowed.contains(&rate), "a rate is between {} and {}", allowed.start(), allowed.end());
    Ok(rate)
}

impl Args {
    /// Deadlines are served to the next whole tick.
    fn tick(&self) -> Duration {
        Duration::from_micros(self.tick_us)
    }

    /// Of the naive and the synchronised way.
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(cpu::cores)
    }

    /// The cases of one number of streams: each way, with each burst that it can have.
    fn cases(&self) -> Vec<Case<'_>> {
        let cases = self.ways.iter().flat_map(|&way| {
            let bursts = if way.has_bursts() { &self.bursts[..] } else { &[1] };
            bursts.iter().map(move |&burst| Case { args: self, way, burst })
        });
        cases.collect()
    }

    fn warm_up(&self) -> Duration {
        self.options.seconds.min(WARM_UP_MAX)
    }
}

/// A way with its burst.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    args: &'a Args,
    way: Way,
    burst: u8,
}

impl Case<'_> {
    fn measure(&self, scene: &Scene) -> Result<Sample> {
        let sample = match self.way {
            Way::Naive => naive::run(scene, self),
            Way::Together => together::run(scene, self),
            Way::Ours => ours::run(scene, self),
            Way::Floor => floor::run(scene, self),
        };
        sample.with_context(|| format!("measure {} × {}", self.way, scene.streams.len()))
    }

    /// To be called when all streams are about to begin.
    fn window(&self) -> Window {
        // It begins as soon as streams that begin now have come into step.
        let begin = Instant::now() + self.args.warm_up();
        Window { begin, end: begin + self.args.options.seconds, has_reference: self.args.reference }
    }
}

/// The whole command: measures, prints the table or JSON lines, writes the plot.
///
/// # Errors
/// When an option makes no sense, a socket, thread or namespace is not to be had, or a file cannot be written.
pub fn execute(args: &Args) -> Result<()> {
    if let Some(path) = &args.write_title {
        let title = scene::title(args.rates[0], args.options.seconds);
        return std::fs::write(path, title).with_context(|| format!("write the title to {}", path.display()));
    }
    let rows = run(args)?;
    let plot = args.svg.as_deref().map(|path| (path, report::svg(args, &rows)));
    args.options.tell(&rows, &report::table(args, &rows), plot)
}

/// Compares them all. It takes about (`seconds` + 0.7) × rounds × cases × numbers of streams.
///
/// With `netns` the calling thread stays in the namespace.
fn run(args: &Args) -> Result<Vec<Row>> {
    let streams_max = args.streams.iter().copied().max().unwrap_or(0);
    let sinks = Sinks::bind(if args.netns { 0 } else { streams_max })?;
    if args.netns {
        namespace::enter()?;
    }
    let receiver = |index| if args.netns { namespace::addr(index) } else { sinks.addr(index) };
    let lasts = args.warm_up() + args.options.seconds;
    let contents = args.rates.iter().map(|&rate| Content::make(rate, lasts).map(Arc::new));
    let contents: Vec<Arc<Content>> = contents.collect::<Result<_>>()?;
    let cases = args.cases();
    let rounds = Rounds::new(args.options.rounds, cases.len() * args.streams.len());

    let mut rows = Vec::new();
    for &streams in &args.streams {
        let scene = Scene::new(&contents, (0..streams).map(receiver));
        let name = |case: &Case<'_>| format!("{} × {streams}, burst {}", case.way, case.burst);
        let samples = rounds.alternate(&cases, name, |case| case.measure(&scene))?;
        rows.extend(report::rows(args, &scene, &cases, &samples));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use measure::report::json_lines;

    use super::*;

    fn quick() -> Args {
        Args {
            streams: vec![5],
            rates: vec![Bitrate::from_kbps(4_500), Bitrate::from_kbps(1_000)],
            bursts: vec![1, 4],
            options: Options { rounds: 2, seconds: Duration::from_millis(60), json: false },
            threads: Some(2),
            workers: 2,
            ..Args::parse_from([""])
        }
    }

    #[test]
    fn every_way_sends_what_is_due_and_nothing_is_refused() {
        let rows = run(&Args { reference: true, ..quick() }).unwrap();
        assert_eq!(rows.len(), 2 + 2 * 2);
        for row in &rows {
            assert!(row.costs.datagrams > 0 && row.costs.refused == 0 && row.due > 0.0, "{row:?}");
            // A busy machine sends what it owes when it can, but nothing sends ahead of its time.
            assert!((row.costs.datagrams as f64) < row.due * 4.0 + 100.0, "{row:?}");
            assert!(row.lateness_us.p50 <= row.lateness_us.p99 && row.lateness_us.p99 <= row.lateness_us.max);
            assert_eq!(row.cpu_to_floor.is_some(), row.way.has_bursts() || row.burst == 1, "{row:?}");
            // In so short a time the thread that spins may have all of the CPU, so what is spent may come to nothing.
            assert!(row.reference_us.is_some() && row.costs.cpu_ns >= 0.0, "{row:?}");
        }
    }

    #[test]
    fn a_report_is_a_table_lines_of_json_and_a_plot() {
        let (args, rows) = (quick(), run(&quick()).unwrap());
        let table = report::table(&args, &rows).to_string();
        assert!(table.contains("millrace") && table.contains("task per stream"), "{table}");
        for line in json_lines(&rows).unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(row["cpu_ns"].as_f64().is_some_and(|cpu| cpu > 0.0), "{line}");
        }
        assert!(report::svg(&args, &rows).starts_with("<svg"));
    }

    #[test]
    fn a_title_for_other_senders_has_the_rate_and_the_length() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let typed = ["bench", "--write-title", path, "--rate", "2M", "--seconds", "3"];
        execute(&Args::parse_from(typed)).unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes.len().abs_diff(3 * 2_000_000 / 8) < 50_000, "{}", bytes.len());
        assert!(bytes.chunks_exact(188).all(|packet| packet[0] == 0x47));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let broken = [
            ["--streams", ""],
            ["--streams", "3,0"],
            ["--streams", "70000"],
            ["--rate", "0"],
            ["--rate", "1G"],
            ["--burst", "8"],
            ["--workers", "0"],
            ["--tick", "0"],
            ["--seconds", "0"],
        ];
        for broken in broken {
            assert!(Args::try_parse_from([&[""], &broken[..]].concat()).is_err(), "{broken:?}");
        }
    }
}
