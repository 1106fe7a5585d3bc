//! `millrace ab`: programs that do the same work, compared so that the machine's moods do not decide.
//!
//! In: a plan, as a file or as flags. Out: a table, and a directory with `machine.json`, `rounds.jsonl` and the logs.
//! How: alternating rounds (A B B A …), a warm-up after each start that is thrown away, CPU time by the kernel's
//! accounting of whole process trees, packets that arrived and not that were sent, and paired ratios (`compare`).
//! Whatever happens, no process that was started stays behind (`tree`).
#![forbid(unsafe_code)]

mod bench;
pub mod cell;
mod compare;
mod drive;
mod machine;
mod network;
mod outcome;
pub mod plan;
mod proc;
mod quiet;
mod ready;
pub mod record;
mod report;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod stop;
mod syscalls;
mod tree;
mod values;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args as ClapArgs;
use time::OffsetDateTime;

use bench::Bench;
use plan::Plan;
use quiet::CpuTimes;
use record::ROUNDS_FILE;
use stop::Stop;
use values::{Cpus, Judge, Ready, Span};

/// Compares servers under the same load, in alternating rounds.
#[derive(ClapArgs, Clone, Debug)]
pub struct Args {
    /// What else can be done with results.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Plan in TOML, with two subjects or more. What is typed beside it goes over what it says.
    #[arg(value_name = "PLAN.toml", required_unless_present_all = ["a", "b", "load", "ready"], conflicts_with_all = ["a", "b", "load", "ready", "cleanup"])]
    pub plan: Option<PathBuf>,
    /// Command that starts the first server, in the foreground.
    #[arg(long, value_name = "COMMAND")]
    pub a: Option<String>,
    /// Command that starts the second server.
    #[arg(long, value_name = "COMMAND")]
    pub b: Option<String>,
    /// Command that loads the server for {seconds} and prints what arrived, as one line of JSON.
    #[arg(long, value_name = "COMMAND")]
    pub load: Option<String>,
    /// How one sees that a server can be loaded: tcp:HOST:PORT, http:URL or log:TEXT.
    #[arg(long)]
    pub ready: Option<Ready>,
    /// Command that is run after each run of a server, whatever became of it.
    #[arg(long, value_name = "COMMAND")]
    pub cleanup: Option<String>,
    /// How often each is measured; 8 by default, and under 6 nothing can be proven.
    #[arg(long)]
    pub rounds: Option<u32>,
    /// How long the load runs after each start before it is measured; 4s by default.
    #[arg(long, value_name = "TIME")]
    pub warm_up: Option<Span>,
    /// How long the measured load runs: {seconds} in its command; 5s by default.
    #[arg(long, value_name = "TIME")]
    pub seconds: Option<Span>,
    /// Values for {point} in the commands, with commas between them.
    #[arg(long, value_delimiter = ',')]
    pub points: Option<Vec<f64>>,
    /// By what they are compared: cpu (per arrived packet), rate, p50, p99, memory or value:NAME.
    #[arg(long)]
    pub judge: Option<Judge>,
    /// CPUs of the servers, such as 0 or 0-2,5.
    #[arg(long, value_name = "CPUS")]
    pub server_cpus: Option<Cpus>,
    /// CPUs of the load.
    #[arg(long, value_name = "CPUS")]
    pub load_cpus: Option<Cpus>,
    /// Directory for the results; bench-results/PLAN-DATE by default.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Prints the summary as one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// What else can be done.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Joins kept results into one page, with their history.
    Report(report::Args),
}

/// Runs the comparison, keeps its results and prints what they come to. False when a run failed.
///
/// # Errors
/// When the plan is not sound, all runs fail, or a signal came. Nothing that was started is left then.
pub fn execute(args: &Args) -> anyhow::Result<bool> {
    if let Some(Command::Report(args)) = &args.command {
        return report::execute(args).map(|()| true);
    }
    let plan = plan_of(args)?;
    let directory = args.out.clone().unwrap_or_else(|| default_directory(&plan));
    make(&directory)?;
    let stop = Stop::on_signals()?;
    let (in_cgroup, counts_syscalls) = (tree::can_count(), syscalls::can_count());
    let machine = machine::describe(&plan, in_cgroup, counts_syscalls, machine::command_line())?;
    record::write_machine(&directory, &machine)?;
    let runs = plan.rounds as usize * plan.points.len() * plan.subjects.len();
    let seconds = plan.warm_up.0 + plan.seconds.0;
    say(&format!("{}: {runs} runs of {seconds} s and more, into {}", plan.name, directory.display()));
    let bench = Bench {
        plan: &plan,
        directory: &directory,
        stop,
        in_cgroup,
        counts_syscalls,
        machine: &CpuTimes::now,
        say: &say,
    };
    let failures = bench.run()?.failures;

    let text = report::write(&directory, args.json)?;
    std::io::stdout().write_all(text.as_bytes()).context("print the results")?;
    say(&format!("the page is {}", directory.join(report::PAGE_FILE).display()));
    Ok(failures.is_empty())
}

/// The plan from the file or the flags, with what was typed over it.
fn plan_of(args: &Args) -> anyhow::Result<Plan> {
    let mut plan = match (&args.plan, &args.a, &args.b, &args.load, &args.ready) {
        (Some(path), ..) => Plan::read(path)?,
        (None, Some(a), Some(b), Some(load), Some(ready)) => {
            Plan::of_flags([a, b], load, ready, args.cleanup.as_deref())?
        }
        _ => anyhow::bail!("a plan, or --a, --b, --load and --ready are needed"),
    };
    let typed: [(&str, Option<toml::Value>); 7] = [
        ("rounds", args.rounds.map(|rounds| i64::from(rounds).into())),
        ("warm_up", args.warm_up.map(|span| span.to_string().into())),
        ("seconds", args.seconds.map(|span| span.to_string().into())),
        ("points", args.points.clone().map(Into::into)),
        ("judge", args.judge.as_ref().map(|judge| judge.to_string().into())),
        ("server_cpus", args.server_cpus.as_ref().map(|cpus| cpus.to_string().into())),
        ("load_cpus", args.load_cpus.as_ref().map(|cpus| cpus.to_string().into())),
    ];
    for (key, value) in typed.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        plan.set(key, value)?;
    }
    Ok(plan)
}

fn default_directory(plan: &Plan) -> PathBuf {
    let now = OffsetDateTime::now_utc();
    let (hour, minute, second) = now.to_hms();
    Path::new("bench-results").join(format!("{}-{}-{hour:02}{minute:02}{second:02}", plan.name, now.date()))
}

/// Makes the directory for the results; one that has some already is left alone.
fn make(directory: &Path) -> anyhow::Result<()> {
    ensure!(!directory.join(ROUNDS_FILE).exists(), "{} has results already", directory.display());
    std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))
}

/// Progress. Whoever reads it may be gone, which is no reason to stop.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
