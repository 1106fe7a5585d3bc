//! Counting by valgrind's callgrind, and what of it is ours.
//!
//! In: a case, which this program runs under callgrind. Out: instructions per unit.
//! How: callgrind counts inside of `region::counted_region`; its output has a cost for each function. Kept are functions
//! of this program that were written in Rust. Left out are the cryptography in C and assembly (AWS-LC), the crate
//! `sha1`, and the C library: these choose their code by the processor's features, and a count must not depend on the
//! model; valgrind hides some of them besides. So a count of sealing is that of our code around it.
//! Source: "Callgrind Format Specification" in valgrind's manual.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cases::Case;

/// The function in which callgrind counts.
const REGION: &str = "*counted_region*";

/// Crates whose code depends on the processor.
const FOREIGN: [&str; 2] = ["sha1::", "cpufeatures::"];

/// Runs one case under callgrind; instructions of our own code per unit.
///
/// # Errors
/// When valgrind is not there, the case fails, or nothing was counted.
pub fn count(case: Case, extra: f64) -> Result<f64> {
    let program = std::env::current_exe().context("find this program")?;
    let name = program.file_name().context("find this program's name")?.to_string_lossy().into_owned();
    let out_file = std::env::temp_dir().join(format!("millrace-counts-{}.out", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--collect-atstart=no"]);
    valgrind.arg(format!("--toggle-collect={REGION}"));
    valgrind.arg(format!("--callgrind-out-file={}", out_file.display()));
    valgrind.arg(&program).args(["--case", &case.name(), "--extra", &extra.to_string()]);
    let output = valgrind.output().context("run valgrind")?;
    let profile = std::fs::read_to_string(&out_file);
    std::fs::remove_file(&out_file).ok();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} under valgrind: {}\n{said}", case.name(), output.status);
    let units = String::from_utf8_lossy(&output.stdout);
    let units: f64 = units.trim().parse().with_context(|| format!("{} said {units:?}", case.name()))?;
    let profile = profile.with_context(|| format!("read what callgrind wrote\n{said}"))?;
    let instructions = own_instructions(&profile, &name)?;
    ensure!(instructions > 0 && units > 0.0, "{}: nothing was counted", case.name());
    Ok(instructions as f64 / units)
}

/// The sum of what our functions cost by themselves, without those that they call.
fn own_instructions(profile: &str, program: &str) -> Result<u64> {
    let (mut total, mut is_program, mut is_ours, mut is_call) = (0, false, false, false);
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_program = object.rsplit('/').next() == Some(program);
        } else if let Some(function) = line.strip_prefix("fn=") {
            is_ours = is_program && is_own_function(function);
        } else if line.starts_with("calls=") {
            // The next line is what the called function cost, which is counted there.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            let Some(cost) = cost else { bail!("callgrind wrote a line that is no cost: {line:?}") };
            total += if is_ours && !is_call { cost } else { 0 };
            is_call = false;
        }
    }
    Ok(total)
}

/// Names from Rust have a path, the C library's and AWS-LC's have none.
fn is_own_function(name: &str) -> bool {
    name.contains("::") && !FOREIGN.iter().any(|foreign| name.contains(foreign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_functions_of_ours_cost_by_themselves_is_added_up() {
        let profile = "\
version: 1
events: Ir

ob=/target/release/counts
fl=/src/region.rs
fn=counts::region::counted_region
16 40
cfn=rooms::rooms::Rooms::poll_transmit
calls=1 20
17 900
fi=/src/inlined.rs
3 2
fn=rooms::rooms::Rooms::poll_transmit
20 100
21 7
cob=/usr/lib/libc.so.6
cfn=memcpy
calls=3 0
21 60
fn=aws_lc_0_39_0_aes_gcm_seal
1 700
fn=sha1::compress
1 30

ob=/usr/lib/libc.so.6
fn=memcpy
0 60

totals: 939
";
        assert_eq!(own_instructions(profile, "counts").unwrap(), 40 + 2 + 100 + 7);
        assert_eq!(own_instructions(profile, "another").unwrap(), 0);
    }

    #[test]
    fn a_line_that_is_no_cost_is_an_error() {
        assert!(own_instructions("ob=counts\nfn=a::b\n12 many\n", "counts").is_err());
    }
}
