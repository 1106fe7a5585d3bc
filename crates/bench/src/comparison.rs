//! What all comparisons have in common: options, what a case gave in a round, and what its rounds come to.

use std::fmt;
use std::ops::AddAssign;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use serde::Serialize;
use wheel::Lateness;
use wire::DATAGRAM_MAX;

use measure::cpu::{Spent, Stopwatch};
use measure::report::{Table, print_rows};
use measure::rounds::{Ratio, median};
use measure::text;

/// Options of every comparison.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds that count, after one to warm up; each measures every case once, forwards and backwards in turn.
    #[arg(long, value_parser = at_least(1), default_value_t = 6)]
    pub(crate) rounds: usize,
    /// How long each case runs in each round.
    #[arg(long, default_value = "0.2", value_parser = round_time)]
    pub(crate) seconds: Duration,
    /// Prints one line of JSON per case instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Numbers from `min` on.
pub(crate) fn at_least(min: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(min..)
}

/// Bytes of a datagram, which has `min` of them at least.
pub(crate) fn datagram_bytes(min: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(min as u64..=DATAGRAM_MAX as u64)
}

fn round_time(text: &str) -> Result<Duration, String> {
    let time = Some(text::seconds(text)?).filter(|time| !time.is_zero() && *time <= ROUND_MAX);
    time.ok_or_else(|| "a round takes some time, and 10 minutes at most".into())
}

const ROUND_MAX: Duration = Duration::from_secs(600);

impl Options {
    /// Prints the table or the rows, and writes the plot where one is asked for.
    pub(crate) fn tell(
        &self,
        rows: &[impl Serialize],
        table: &impl fmt::Display,
        plot: Option<(&Path, String)>,
    ) -> Result<()> {
        print_rows(self.json, rows, table)?;
        plot.map_or(Ok(()), |(path, svg)| {
            std::fs::write(path, svg).with_context(|| format!("write the plot to {}", path.display()))
        })
    }
}

/// What a case, or one of its threads, gave in one round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) spent: Spent,
    /// Datagrams that the kernel took, or that were written and not to be sent; for sendfile TCP segments.
    pub(crate) sent: u64,
    /// Datagrams that the kernel did not take.
    pub(crate) refused: u64,
    /// Of paced streams: how long after its time each burst was sent.
    pub(crate) lateness: Lateness,
    /// Beside paced streams: how late a thread was that never sleeps.
    pub(crate) reference: Lateness,
}

impl Sample {
    pub(crate) fn wall_ns(&self) -> f64 {
        self.for_each(self.spent.wall.as_secs_f64())
    }

    pub(crate) fn cpu_ns(&self) -> f64 {
        self.for_each(self.spent.cpu.total())
    }

    pub(crate) fn user_ns(&self) -> f64 {
        self.for_each(self.spent.cpu.user)
    }

    pub(crate) fn system_ns(&self) -> f64 {
        self.for_each(self.spent.cpu.system)
    }

    /// Nanoseconds for each that was sent; with none, all of it.
    fn for_each(&self, seconds: f64) -> f64 {
        seconds * 1e9 / self.sent.max(1) as f64
    }
}

/// Joins what was done at the same time: it was spent once.
impl AddAssign for Sample {
    fn add_assign(&mut self, other: Sample) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.lateness.merge(&other.lateness);
        self.reference.merge(&other.reference);
    }
}

/// Adds to what `work` did what the whole process spent meanwhile.
pub(crate) fn spending(work: impl FnOnce() -> Result<Sample>) -> Result<Sample> {
    let stopwatch = Stopwatch::start()?;
    let sample = work()?;
    Ok(Sample { spent: stopwatch.stop()?, ..sample })
}

/// Lets each worker do `work` on a thread of its own while `meanwhile` measures, and joins what they did.
pub(crate) fn on_threads<W: Send>(
    workers: Vec<W>,
    work: impl Fn(W) -> Result<Sample> + Sync,
    meanwhile: impl FnOnce() -> Result<Sample>,
) -> Result<Sample> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || work(worker))).collect();
        let mut sample = meanwhile()?;
        for thread in threads {
            sample += thread.join().expect("a thread that is measured does not panic")?;
        }
        Ok(sample)
    })
}

/// What the rounds of a case come to; times are medians.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Costs {
    pub(crate) rounds: usize,
    /// In all rounds; refused ones are those that the kernel did not take.
    pub(crate) datagrams: u64,
    pub(crate) refused: u64,
    /// Nanoseconds of CPU time per datagram, on all threads, in user space and kernel.
    pub(crate) cpu_ns: f64,
    pub(crate) user_ns: f64,
    pub(crate) system_ns: f64,
}

impl Costs {
    pub(crate) fn of(samples: &[Sample]) -> Self {
        Costs {
            rounds: samples.len(),
            datagrams: samples.iter().map(|sample| sample.sent).sum(),
            refused: samples.iter().map(|sample| sample.refused).sum(),
            cpu_ns: middle(samples, Sample::cpu_ns),
            user_ns: middle(samples, Sample::user_ns),
            system_ns: middle(samples, Sample::system_ns),
        }
    }

    /// The three times as cells of a table.
    pub(crate) fn cells(&self) -> [String; 3] {
        [self.cpu_ns, self.user_ns, self.system_ns].map(|ns| format!("{ns:.0}"))
    }

    /// Says below a row what was refused.
    pub(crate) fn write_refused(&self, table: &mut Table) {
        let Costs { datagrams, refused, .. } = *self;
        if refused > 0 {
            table.text(format!("    {refused} of {} datagrams were refused by the kernel", refused + datagrams));
        }
    }
}

/// The samples of one of the cases that were measured side by side.
pub(crate) fn samples_of<'a, C>(
    cases: &[C],
    samples: &'a [Vec<Sample>],
    is_wanted: impl Fn(&C) -> bool,
) -> Option<&'a Vec<Sample>> {
    samples.get(cases.iter().position(is_wanted)?)
}

pub(crate) fn values(samples: &[Sample], value: fn(&Sample) -> f64) -> Vec<f64> {
    samples.iter().map(value).collect()
}

pub(crate) fn middle(samples: &[Sample], value: fn(&Sample) -> f64) -> f64 {
    median(&values(samples, value))
}

/// `None` where the baseline was not measured.
pub(crate) fn ratio_to(baseline: Option<&Vec<Sample>>, own: &[Sample], value: fn(&Sample) -> f64) -> Option<Ratio> {
    Ratio::of(&values(own, value), &values(baseline?, value))
}
