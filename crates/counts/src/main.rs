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

use baseline::{Baseline, Toolchain, Verdict};
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
    println!("{}", region.units());
    Ok(true)
}

fn update(cli: &Cli) -> Result<bool> {
    let counts = count_all()?;
    let baseline = Baseline { toolchain: Toolchain::here()?, counts };
    std::fs::write(&cli.file, baseline.to_toml()).with_context(|| format!("write {}", cli.file.display()))?;
    print!("{}", baseline.to_toml());
    Ok(true)
}

fn compare(cli: &Cli) -> Result<bool> {
    let text = std::fs::read_to_string(&cli.file).with_context(|| format!("read {}", cli.file.display()))?;
    let baseline = Baseline::parse(&text).with_context(|| format!("read {}", cli.file.display()))?;
    let report = baseline.compare(&Toolchain::here()?, &count_all()?);
    print!("{report}");
    Ok(report.passes())
}

/// Instructions per unit of every case.
fn count_all() -> Result<Vec<(String, f64)>> {
    Case::MEASURED.iter().map(|case| Ok((case.name(), callgrind::count(*case, 0.0)?))).collect()
}

/// Counts two cases twice, and once more with 5 % added.
fn prove() -> Result<bool> {
    let toolchain = Toolchain::here()?;
    let turn = callgrind::count(Case::IdleLoop, 0.0)?;
    for case in [Case::FanOutGcm128, Case::RtpParse] {
        let before = callgrind::count(case, 0.0)?;
        let baseline = Baseline { toolchain: toolchain.clone(), counts: vec![(case.name(), before)] };
        let again = callgrind::count(case, 0.0)?;
        let unchanged = baseline.compare(&toolchain, &[(case.name(), again)]);
        let slower = callgrind::count(case, 0.05 * before / turn)?;
        let slowed = baseline.compare(&toolchain, &[(case.name(), slower)]);
        println!("the same build again:\n{unchanged}\nwith 5 % more instructions:\n{slowed}");
        ensure!(unchanged.passes(), "the same build counts {before:.1} and then {again:.1} for {}", case.name());
        ensure!(slowed.verdicts() == [Verdict::Grew], "5 % more was not found: {before:.1} and {slower:.1}");
    }
    println!("Proved: an unchanged build passes, and one that is 5 % slower fails.");
    Ok(true)
}
