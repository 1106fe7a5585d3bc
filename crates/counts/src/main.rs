//! `bench/counts`: how many instructions the parts of the packet path take, against the numbers that are checked in.
//!
//! In: bench/counts.toml; this very program, which valgrind's callgrind runs once per case. Out: a table, and exit
//! status 1 when a count has grown by more than 3 %.
//! How: callgrind counts only inside of `region::counted_region`, and of what it counts there only our own code is kept
//! (see `callgrind`). So a count depends on the compiler and on the locked dependencies, but on no clock, no other
//! load and no processor model.
//! Cost: about a second per case.
#![forbid(unsafe_code)]

mod baseline;
mod callgrind;
mod cases;
mod pumping;
mod region;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use baseline::{Baseline, Verdict};
use cases::Case;
use region::Region;

/// Counts instructions of the packet path's parts and compares them with those that are checked in.
#[derive(Parser)]
#[command(name = "bench/counts", version)]
struct Cli {
    /// The numbers to compare with.
    #[arg(long, value_name = "FILE", default_value = "bench/counts.toml")]
    file: PathBuf,
    /// Writes today's numbers to the file instead of comparing.
    #[arg(long)]
    update: bool,
    /// Shows that the comparison works: an unchanged build passes, and one made 5 % slower by added instructions fails.
    #[arg(long, conflicts_with = "update")]
    prove: bool,
    /// Runs one case and prints how many units it did: what callgrind watches.
    #[arg(long, value_enum, hide = true)]
    case: Option<Case>,
    /// Turns of an idle loop that are added to each unit of the case.
    #[arg(long, hide = true, default_value_t = 0.0)]
    extra: f64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.case {
        Some(case) => run_case(case, cli.extra),
        None if cli.update => update(&cli),
        None if cli.prove => prove(),
        None => compare(&cli),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("counts: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run_case(case: Case, extra: f64) -> Result<bool> {
    let mut region = Region::new(extra);
    case.run(&mut region)?;
    println!("{}", region.units);
    Ok(true)
}

fn update(cli: &Cli) -> Result<bool> {
    let text = count_all()?.to_toml()?;
    std::fs::write(&cli.file, &text).with_context(|| format!("write {}", cli.file.display()))?;
    print!("{text}");
    Ok(true)
}

fn compare(cli: &Cli) -> Result<bool> {
    let text = std::fs::read_to_string(&cli.file).with_context(|| format!("read {}", cli.file.display()))?;
    let baseline = Baseline::parse(&text).with_context(|| format!("read {}", cli.file.display()))?;
    let report = baseline.compare(&count_all()?);
    print!("{report}");
    Ok(report.passes())
}

fn count_all() -> Result<Baseline> {
    let counts = Case::measured().map(|case| Ok((case.name(), callgrind::count(case, 0.0)?)));
    Baseline::here(counts.collect::<Result<Vec<_>>>()?)
}

/// Counts two cases twice, and once more with 5 % added.
fn prove() -> Result<bool> {
    let turn = callgrind::count(Case::IdleLoop, 0.0)?;
    for case in [Case::FanOutGcm128, Case::RtpParse] {
        let count = |extra| Baseline::here([(case.name(), callgrind::count(case, extra)?)]);
        let before = count(0.0)?;
        let unchanged = before.compare(&count(0.0)?);
        let slowed = before.compare(&count(0.05 * before.counts[&case.name()] / turn)?);
        println!("the same build again:\n{unchanged}\nwith 5 % more instructions:\n{slowed}");
        ensure!(unchanged.passes(), "the same build counts otherwise");
        ensure!(slowed.verdicts() == [Verdict::Grew], "5 % more was not found");
    }
    println!("Proved: an unchanged build passes, and one that is 5 % slower fails.");
    Ok(true)
}
