//! The numbers that are checked in, and how today's compare with them.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A count may grow by this share of itself; more is a regression.
const GROWTH_MAX: f64 = 0.03;

/// What decides how code is compiled, besides the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// As `rustc --version` prints it.
    pub rustc: String,
    pub arch: String,
}

impl Toolchain {
    /// The one that cargo uses here.
    ///
    /// # Errors
    /// When there is no rustc.
    pub fn here() -> Result<Self> {
        let output = Command::new("rustc").arg("--version").output().context("run rustc --version")?;
        ensure!(output.status.success(), "rustc --version: {}", output.status);
        let rustc = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(Toolchain { rustc, arch: std::env::consts::ARCH.to_owned() })
    }
}

/// Instructions per unit of each case, and what compiled them.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    pub toolchain: Toolchain,
    pub counts: Vec<(String, f64)>,
}

/// The file's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rustc: String,
    arch: String,
    counts: toml::Table,
}

const HEAD: &str = "\
# Instructions per unit (a packet, a report, a timer, …) of the packet path's parts, in an optimised build.
# Only our own code counts: AWS-LC, sha1 and the C library choose their code by the processor, so they are left out.
# `bench/counts` fails when one grows by more than 3 %. After a change that is meant: bench/counts --update
# With another compiler it only warns.
";

impl Baseline {
    pub fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text)?;
        let counts = file.counts.into_iter().map(|(name, value)| {
            let count = value.as_float().or_else(|| value.as_integer().map(|count| count as f64));
            let count = count.filter(|count| *count > 0.0);
            let count = count.with_context(|| format!("counts.{name} is a number over 0, not {value}"))?;
            Ok((name, count))
        });
        let toolchain = Toolchain { rustc: file.rustc, arch: file.arch };
        Ok(Baseline { toolchain, counts: counts.collect::<Result<_>>()? })
    }

    pub fn to_toml(&self) -> String {
        let Toolchain { rustc, arch } = &self.toolchain;
        let mut text = format!("{HEAD}\nrustc = \"{rustc}\"\narch = \"{arch}\"\n\n[counts]\n");
        for (name, count) in &self.counts {
            text += &format!("{name} = {count:.1}\n");
        }
        text
    }

    /// Holds today's counts against these.
    pub fn compare(&self, toolchain: &Toolchain, counts: &[(String, f64)]) -> Report {
        let was = |name: &str| self.counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count);
        let mut rows: Vec<Row> =
            counts.iter().map(|(name, now)| Row { name: name.clone(), before: was(name), now: Some(*now) }).collect();
        let is_gone = |name: &str| !counts.iter().any(|(known, _)| known == name);
        let gone = self.counts.iter().filter(|(name, _)| is_gone(name));
        rows.extend(gone.map(|(name, before)| Row { name: name.clone(), before: Some(*before), now: None }));
        let other = (*toolchain != self.toolchain).then(|| (self.toolchain.clone(), toolchain.clone()));
        Report { rows, other_toolchain: other }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Held,
    /// By more than is allowed.
    Grew,
    /// By as much the other way: the file can be made stricter.
    Shrank,
    /// Nothing to compare with, or a number without a case.
    Unknown,
}

#[derive(Clone, Debug)]
struct Row {
    name: String,
    before: Option<f64>,
    now: Option<f64>,
}

impl Row {
    fn verdict(&self) -> Verdict {
        match (self.before, self.now) {
            (Some(before), Some(now)) if now > before * (1.0 + GROWTH_MAX) => Verdict::Grew,
            (Some(before), Some(now)) if now < before * (1.0 - GROWTH_MAX) => Verdict::Shrank,
            (Some(_), Some(_)) => Verdict::Held,
            _ => Verdict::Unknown,
        }
    }
}

/// Today's counts beside those that are checked in.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
    /// What the file was made with, and what is here, where they differ.
    other_toolchain: Option<(Toolchain, Toolchain)>,
}

impl Report {
    /// False when a count grew too much, or the file does not name just the cases that there are. With another
    /// toolchain counts prove nothing, and it always passes.
    pub fn passes(&self) -> bool {
        let is_well = |verdict: &Verdict| matches!(verdict, Verdict::Held | Verdict::Shrank);
        self.other_toolchain.is_some() || self.verdicts().iter().all(is_well)
    }

    pub fn verdicts(&self) -> Vec<Verdict> {
        self.rows.iter().map(Row::verdict).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22} {:>12} {:>12} {:>8}", "instructions per unit", "checked in", "now", "change")?;
        for row in &self.rows {
            let number = |count: Option<f64>| count.map_or_else(|| "–".to_owned(), |count| format!("{count:.1}"));
            let change = row.before.zip(row.now).map(|(before, now)| (now / before - 1.0) * 100.0);
            let change = change.map_or_else(String::new, |change| format!("{change:+.1} %"));
            let remark = match row.verdict() {
                Verdict::Held => "",
                Verdict::Grew => "GREW by more than 3 %",
                Verdict::Shrank => "shrank: bench/counts --update keeps it so",
                Verdict::Unknown => "not in both: bench/counts --update",
            };
            let line =
                format!("{:<22} {:>12} {:>12} {change:>8}  {remark}", row.name, number(row.before), number(row.now));
            writeln!(f, "{}", line.trim_end())?;
        }
        if let Some((file, here)) = &self.other_toolchain {
            writeln!(
                f,
                "warning: the numbers are of {} on {}, here is {} on {}: nothing is proved by them",
                file.rustc, file.arch, here.rustc, here.arch
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolchain() -> Toolchain {
        Toolchain { rustc: "rustc 1.95.0".to_owned(), arch: "x86_64".to_owned() }
    }

    fn counts(fan_out: f64, parse: f64) -> Vec<(String, f64)> {
        vec![("fan-out".to_owned(), fan_out), ("parse".to_owned(), parse)]
    }

    fn baseline() -> Baseline {
        Baseline { toolchain: toolchain(), counts: counts(1_000.0, 40.0) }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let baseline = Baseline { counts: counts(812.3, 41.5), ..baseline() };
        assert_eq!(Baseline::parse(&baseline.to_toml()).unwrap(), baseline);
    }

    #[test]
    fn a_count_may_grow_by_three_percent_and_no_more() {
        let compare = |now| baseline().compare(&toolchain(), &counts(now, 40.0));
        assert!(compare(1_000.0).passes() && compare(1_029.0).passes() && compare(900.0).passes());
        let grown = compare(1_050.0);
        assert!(!grown.passes());
        assert_eq!(grown.verdicts(), [Verdict::Grew, Verdict::Held]);
        let text = grown.to_string();
        assert!(text.contains("1000.0") && text.contains("1050.0") && text.contains("+5.0 %"), "{text}");
    }

    #[test]
    fn with_another_compiler_growth_is_a_warning() {
        let other = Toolchain { rustc: "rustc 1.96.0".to_owned(), ..toolchain() };
        let report = baseline().compare(&other, &counts(1_500.0, 40.0));
        assert!(report.passes());
        assert!(report.to_string().contains("warning: the numbers are of rustc 1.95.0"), "{report}");
    }

    #[test]
    fn the_file_names_just_the_cases_that_there_are() {
        assert!(!baseline().compare(&toolchain(), &counts(1_000.0, 40.0)[..1]).passes());
        let one = Baseline { counts: counts(1_000.0, 40.0)[..1].to_vec(), ..baseline() };
        assert!(!one.compare(&toolchain(), &counts(1_000.0, 40.0)).passes());
    }

    #[test]
    fn a_file_that_is_wrong_is_refused() {
        for text in [
            "",
            "rustc = 1",
            "rustc = \"a\"\narch = \"b\"\n[counts]\nparse = \"many\"\n",
            "rustc = \"a\"\narch = \"b\"\n[counts]\nparse = 0\n",
        ] {
            assert!(Baseline::parse(text).is_err(), "{text}");
        }
    }
}
