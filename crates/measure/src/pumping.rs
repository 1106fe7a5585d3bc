//! `millrace bench pump`: how to send thousands of paced streams from one machine, each datagram on time.
//!
//! In: numbers of streams, rates, datagrams per send. Out: for each way, CPU per stream and second and per datagram, user
//! space and kernel apart, how late bursts were, and ratios to the bare loop, as medians over alternating rounds.
//! How: titles of a constant rate lie in memory; every datagram is sent by UDP to sockets on loopback that nobody reads,
//! or over a pair of virtual cards into a namespace that drops (`namespace`).
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

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use wheel::Lateness;
use wire::Bitrate;

pub use report::{Report, Row};

use namespace::{Namespace, RECEIVERS_MAX};
use scene::{Content, Scene};
use window::{Measured, Tally, Window};

use crate::fanout::cpu::Spent;
use crate::fanout::sinks::Sinks;
use crate::rounds::alternate;

/// Before it is counted every case runs for this time, or for that of a measurement when that is shorter.
const WARM_UP_MAX: Duration = Duration::from_millis(700);

/// Datagrams of one send at most; a burst is less smooth than its length.
const BURST_MAX: u8 = 7;

/// How streams get their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A task with a ticker for each stream, one `sendto` per datagram.
    Naive,
    /// A scheduler per core that serves all its streams at each wake-up, one `sendto` per datagram.
    Together,
    /// The server's pump on an engine worker.
    Ours,
    /// A timing wheel, ready-made bytes and GSO: what the kernel asks at least.
    Floor,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Naive, Way::Together, Way::Ours, Way::Floor];

    pub fn name(self) -> &'static str {
        match self {
            Way::Naive => "task per stream",
            Way::Together => "synchronised",
            Way::Ours => "millrace",
            Way::Floor => "floor: bare loop",
        }
    }

    /// Whether several datagrams can be one send.
    fn has_bursts(self) -> bool {
        matches!(self, Way::Ours | Way::Floor)
    }
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    pub streams: Vec<usize>,
    /// Streams take them in turn.
    pub rates: Vec<Bitrate>,
    /// Datagrams per send, for the ways that can.
    pub bursts: Vec<u8>,
    pub ways: Vec<Way>,
    /// Rounds that count; one to warm up goes before.
    pub rounds: usize,
    /// Of one case in one round.
    pub time: Duration,
    /// Deadlines are served to the next whole tick.
    pub tick: Duration,
    /// Of the naive and the synchronised way.
    pub threads: usize,
    /// Of ours and the floor.
    pub workers: usize,
    /// Sends over virtual cards into a namespace that drops.
    pub netns: bool,
    pub reference: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            streams: vec![50, 1_000, 3_500],
            rates: vec![Bitrate::from_kbps(4_500)],
            bursts: vec![1, 2, 4, 7],
            ways: Way::ALL.to_vec(),
            rounds: 3,
            time: Duration::from_secs(2),
            tick: pump::spec::Settings::default().tick,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            workers: 1,
            netns: false,
            reference: false,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let rates = Bitrate::from_kbps(100)..=Bitrate::from_kbps(200_000);
        ensure!(!self.streams.is_empty() && !self.streams.contains(&0), "at least one stream");
        ensure!(self.streams.iter().all(|&count| count <= RECEIVERS_MAX), "at most {RECEIVERS_MAX} streams");
        ensure!(!self.rates.is_empty() && !self.ways.is_empty(), "at least one rate and one way");
        let are_rates = self.rates.iter().all(|rate| rates.contains(rate));
        ensure!(are_rates, "a rate is between {} and {}", rates.start(), rates.end());
        let are_bursts = self.bursts.iter().all(|burst| (1..=BURST_MAX).contains(burst));
        ensure!(!self.bursts.is_empty() && are_bursts, "a send has 1 to {BURST_MAX} datagrams");
        ensure!(self.rounds > 0 && self.threads > 0 && self.workers > 0, "rounds, threads and workers are at least 1");
        ensure!(!self.time.is_zero() && self.time <= Duration::from_secs(600), "a round takes 10 minutes at most");
        let ticks = Duration::from_micros(10)..=Duration::from_millis(100);
        ensure!(ticks.contains(&self.tick), "a tick is between {:?} and {:?}", ticks.start(), ticks.end());
        Ok(())
    }

    /// The cases of one number of streams: each way, with each burst that it can have.
    fn cases(&self) -> Vec<Case<'_>> {
        let cases = self.ways.iter().flat_map(|&way| {
            let bursts = if way.has_bursts() { &self.bursts[..] } else { &[1] };
            bursts.iter().map(move |&burst| Case { options: self, way, burst })
        });
        cases.collect()
    }

    fn warm_up(&self) -> Duration {
        self.time.min(WARM_UP_MAX)
    }
}

/// A way with its burst.
#[derive(Clone, Copy, Debug)]
struct Case<'a> {
    options: &'a Options,
    way: Way,
    burst: u8,
}

impl std::ops::Deref for Case<'_> {
    type Target = Options;

    fn deref(&self) -> &Options {
        self.options
    }
}

impl Case<'_> {
    fn measure(&self, scene: &Scene) -> Result<Sample> {
        let sample = match self.way {
            Way::Naive => naive::run(scene, self),
            Way::Together => together::run(scene, self),
            Way::Ours => ours::run(scene, self),
            Way::Floor => floor::run(scene, self),
        };
        sample.with_context(|| format!("measure {} × {}", self.way.name(), scene.streams.len()))
    }

    /// To be called when all streams are about to begin.
    fn window(&self) -> Window {
        window::window(self.warm_up(), self.time, self.reference)
    }
}

/// What one case gave in one round.
#[derive(Clone, Debug)]
struct Sample {
    spent: Spent,
    /// Datagrams: sent, refused by the kernel, and due.
    sent: u64,
    refused: u64,
    due: f64,
    lateness: Lateness,
    reference: Option<Lateness>,
}

impl Sample {
    fn new(scene: &Scene, measured: Measured, tally: Tally) -> Self {
        Sample {
            spent: measured.spent,
            sent: tally.sent,
            refused: tally.refused,
            due: scene.due(measured.spent.wall),
            lateness: tally.lateness,
            reference: measured.reference,
        }
    }
}

/// Where streams go.
enum Receivers {
    Loopback(Sinks),
    Behind(Namespace),
}

impl Receivers {
    fn addr(&self, index: usize) -> SocketAddr {
        match self {
            Receivers::Loopback(sinks) => sinks.addr(index),
            Receivers::Behind(namespace) => namespace.addr(index),
        }
    }
}

/// Compares them all. It takes about (`time` + 0.7 s) × rounds × cases × numbers of streams.
///
/// With `netns` the calling thread stays in the namespace.
///
/// # Errors
/// When an option makes no sense, or a socket, thread or namespace is not to be had.
pub fn run(options: &Options) -> Result<Report> {
    options.check()?;
    let streams_max = options.streams.iter().copied().max().unwrap_or(0);
    let receivers = if options.netns {
        Receivers::Behind(Namespace::enter()?)
    } else {
        Receivers::Loopback(Sinks::bind(streams_max)?)
    };
    let lasts = options.warm_up() + options.time;
    let contents = options.rates.iter().map(|&rate| Content::make(rate, lasts).map(Arc::new));
    let contents: Vec<Arc<Content>> = contents.collect::<Result<_>>()?;
    let cases = options.cases();
    let warm_up_rounds = 1;
    let count = cases.len() * options.streams.len() * (warm_up_rounds + options.rounds);
    let progress = ProgressBar::new(count as u64);
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} ({eta} left)")?);

    let mut report = Report::new(options);
    for &streams in &options.streams {
        let scene = Scene::new(&contents, (0..streams).map(|index| receivers.addr(index)));
        let samples = alternate(cases.len(), warm_up_rounds, options.rounds, |index| {
            let case = &cases[index];
            progress.set_message(format!("{} × {streams}, burst {}", case.way.name(), case.burst));
            let sample = case.measure(&scene);
            progress.inc(1);
            sample
        })?;
        report.add(streams, &cases, &samples);
    }
    progress.finish_and_clear();
    Ok(report)
}

/// Options of `millrace bench pump`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Numbers of streams to measure at.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = Options::default().streams)]
    pub streams: Vec<usize>,
    /// Rate of each stream, nulls included; of several, streams take one in turn.
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', default_value = "4.5Mbps")]
    pub rate: Vec<Bitrate>,
    /// Datagrams per send, 1 to 7, for the ways that can send several at once.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = Options::default().bursts)]
    pub burst: Vec<u8>,
    /// Ways of sending, and the floor to compare them with.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WAY,…", default_values_t = Options::default().ways)]
    pub ways: Vec<Way>,
    /// Rounds that count, after one to warm up; each measures every case once, forwards and backwards in turn.
    #[arg(long, default_value_t = Options::default().rounds)]
    pub rounds: usize,
    /// How long each case runs in each round.
    #[arg(long, default_value_t = Options::default().time.as_secs_f64())]
    pub seconds: f64,
    /// Microseconds between two looks at the wheel: fewer are smoother, and cost more.
    #[arg(long, value_name = "µs", default_value_t = Options::default().tick.as_micros() as u64)]
    pub tick: u64,
    /// Threads of the naive and the synchronised way; all cores unless given.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Workers of ours and of the floor.
    #[arg(long, default_value_t = Options::default().workers)]
    pub workers: usize,
    /// Sends over a pair of virtual cards into a network namespace that drops, and not to sockets on loopback. Needs root.
    #[arg(long)]
    pub netns: bool,
    /// Lets a thread spin beside the senders, to show how late the machine alone makes it. It takes a core.
    #[arg(long)]
    pub reference: bool,
    /// Writes a title of the first rate to this file, --seconds long, and measures nothing: for other senders.
    #[arg(long, value_name = "FILE", conflicts_with = "svg")]
    pub write_title: Option<PathBuf>,
    /// Writes a plot to this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Prints one line of JSON per case instead of the table.
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// # Errors
    /// When a time is negative or not a number.
    pub fn options(&self) -> Result<Options> {
        Ok(Options {
            streams: self.streams.clone(),
            rates: self.rate.clone(),
            bursts: self.burst.clone(),
            ways: self.ways.clone(),
            rounds: self.rounds,
            time: Duration::try_from_secs_f64(self.seconds).context("--seconds")?,
            tick: Duration::from_micros(self.tick),
            threads: self.threads.unwrap_or(Options::default().threads),
            workers: self.workers,
            netns: self.netns,
            reference: self.reference,
        })
    }
}

/// The whole command: measures, prints the table or JSON lines, writes the plot.
///
/// # Errors
/// Those of `run`, and of writing the plot.
pub fn execute(args: &Args) -> Result<()> {
    if let Some(path) = &args.write_title {
        let options = args.options()?;
        options.check()?;
        let title = scene::title(options.rates[0], options.time);
        return std::fs::write(path, title).with_context(|| format!("write the title to {}", path.display()));
    }
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
            streams: vec![5],
            rates: vec![Bitrate::from_kbps(4_500), Bitrate::from_kbps(1_000)],
            bursts: vec![1, 4],
            rounds: 2,
            time: Duration::from_millis(60),
            threads: 2,
            workers: 2,
            ..Options::default()
        }
    }

    #[test]
    fn every_way_sends_what_is_due_and_nothing_is_refused() {
        let report = run(&Options { reference: true, ..quick() }).unwrap();
        assert_eq!(report.rows().len(), 2 + 2 * 2);
        for row in report.rows() {
            assert!(row.datagrams > 0 && row.refused == 0 && row.due > 0.0, "{row:?}");
            // A busy machine sends what it owes when it can, but nothing sends ahead of its time.
            assert!((row.datagrams as f64) < row.due * 4.0 + 100.0, "{row:?}");
            assert!(row.lateness_us.p50 <= row.lateness_us.p99 && row.lateness_us.p99 <= row.lateness_us.max);
            assert_eq!(row.cpu_to_floor.is_some(), row.way.has_bursts() || row.burst == 1, "{row:?}");
            // In so short a time the thread that spins may have all of the CPU, so what is spent may come to nothing.
            assert!(row.reference_us.is_some() && row.cpu_ns >= 0.0, "{row:?}");
        }
    }

    #[test]
    fn a_report_is_a_table_lines_of_json_and_a_plot() {
        let report = run(&Options { rounds: 1, ..quick() }).unwrap();
        let table = report.to_string();
        assert!(table.contains("millrace") && table.contains("task per stream"), "{table}");
        for line in report.json_lines().unwrap().lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(row["cpu_ns"].as_f64().is_some_and(|cpu| cpu > 0.0), "{line}");
        }
        assert!(report.svg().starts_with("<svg"));
    }

    #[test]
    fn a_title_for_other_senders_has_the_rate_and_the_length() {
        use clap::Parser;

        #[derive(Parser)]
        struct Typed {
            #[command(flatten)]
            args: Args,
        }

        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let typed = ["bench", "--write-title", path, "--rate", "2M", "--seconds", "3"];
        execute(&Typed::try_parse_from(typed).unwrap().args).unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes.len().abs_diff(3 * 2_000_000 / 8) < 50_000, "{}", bytes.len());
        assert!(bytes.chunks_exact(188).all(|packet| packet[0] == 0x47));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for broken in [
            Options { streams: vec![], ..quick() },
            Options { streams: vec![3, 0], ..quick() },
            Options { streams: vec![70_000], ..quick() },
            Options { rates: vec![Bitrate::ZERO], ..quick() },
            Options { bursts: vec![8], ..quick() },
            Options { bursts: vec![], ..quick() },
            Options { workers: 0, ..quick() },
            Options { tick: Duration::ZERO, ..quick() },
            Options { time: Duration::ZERO, ..quick() },
        ] {
            assert!(run(&broken).is_err(), "{broken:?}");
        }
    }
}
