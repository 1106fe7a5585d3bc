//! The numbers that are checked in, and how today's compare with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use measure::report::Table;
use serde::{Deserialize, Serialize};

/// A count may grow by this share of itself; more is a regression.
const GROWTH_MAX: f64 = 0.03;

/// Instructions per unit of each case, and what decides how code is compiled, besides the code.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// As `rustc --version` prints it.
    pub rustc: String,
    pub arch: String,
    pub counts: BTreeMap<String, f64>,
}

const HEAD: &str = "\
# Instructions per unit (a packet, a report, a timer, …) of the packet path's parts, in an optimised build.
# Only our own code counts: AWS-LC, sha1 and the C library choose their code by the processor, so they are left out.
# `bench/counts` fails when one grows by more than 3 %. After a change that is meant: bench/counts --update
# With another compiler it only warns.

";

impl Baseline {
    /// What was counted here, with the compiler that cargo uses.
    ///
    /// # Errors
    /// When there is no rustc.
    pub fn here(counts: impl IntoIterator<Item = (String, f64)>) -> Result<Self> {
        let output = Command::new("rustc").arg("--version").output().context("run rustc --version")?;
        ensure!(output.status.success(), "rustc --version: {}", output.status);
        let rustc = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        // A tenth of an instruction is more than enough.
        let counts = counts.into_iter().map(|(name, count)| (name, (count * 10.0).round() / 10.0)).collect();
        Ok(Baseline { rustc, arch: std::env::consts::ARCH.to_owned(), counts })
    }

    pub fn parse(text: &str) -> Result<Self> {
        let baseline: Baseline = toml::from_str(text)?;
        let wrong = baseline.counts.iter().find(|(_, count)| **count <= 0.0 || count.is_nan());
        ensure!(wrong.is_none(), "{wrong:?} is no count over 0");
        Ok(baseline)
    }

    pub fn to_toml(&self) -> Result<String> {
        Ok(HEAD.to_owned() + &toml::to_string(self)?)
    }

    /// Holds today's counts against these.
    pub fn compare(&self, today: &Baseline) -> Report {
        let names: BTreeSet<&String> = self.counts.keys().chain(today.counts.keys()).collect();
        let row = |name: &String| {
            let [before, now] = [self, today].map(|counted| counted.counts.get(name).copied());
            Row { name: name.clone(), before, now }
        };
        let is_other = (&self.rustc, &self.arch) != (&today.rustc, &today.arch);
        let warning = is_other.then(|| {
            let (file, here) =
                (format!("{} on {}", self.rustc, self.arch), format!("{} on {}", today.rustc, today.arch));
            format!("warning: the numbers are of {file}, here is {here}: nothing is proved by them")
        });
        Report { rows: names.into_iter().map(row).collect(), warning }
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
    /// Of another toolchain than the file's.
    warning: Option<String>,
}

impl Report {
    /// False when a count grew too much, or the file does not name just the cases that there are. With another
    /// toolchain counts prove nothing, and it always passes.
    pub fn passes(&self) -> bool {
        let is_well = |verdict: &Verdict| matches!(verdict, Verdict::Held | Verdict::Shrank);
        self.warning.is_some() || self.verdicts().iter().all(is_well)
    }

    pub fn verdicts(&self) -> Vec<Verdict> {
        self.rows.iter().map(Row::verdict).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new("lrrr");
        table.head("instructions per unit".to_owned(), &["checked in", "now", "change"]);
        for row in &self.rows {
            let number = |count: Option<f64>| count.map_or_else(|| "–".to_owned(), |count| format!("{count:.1}"));
            let change = row.before.zip(row.now).map(|(before, now)| format!("{:+.1} %", (now / before - 1.0) * 100.0));
            let remark = match row.verdict() {
                Verdict::Held => "",
                Verdict::Grew => "GREW by more than 3 %",
                Verdict::Shrank => "shrank: bench/counts --update keeps it so",
                Verdict::Unknown => "not in both: bench/counts --update",
            };
            let (before, now) = (number(row.before), number(row.now));
            table.row([row.name.clone(), before, now, change.unwrap_or_default(), remark.to_owned()]);
        }
        self.warning.iter().for_each(|warning| table.text(warning.clone()));
        table.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(counts: &[(&str, f64)]) -> Baseline {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Baseline { rustc: "rustc 1.95.0".to_owned(), arch: "x86_64".to_owned(), counts }
    }

    fn both(fan_out: f64) -> Baseline {
        baseline(&[("fan-out", fan_out), ("parse", 40.0)])
    }

    #[test]
    fn what_is_written_can_be_read() {
        let baseline = Baseline { counts: both(812.3).counts, ..Baseline::here([]).unwrap() };
        assert_eq!(Baseline::parse(&baseline.to_toml().unwrap()).unwrap(), baseline);
        assert_eq!(Baseline::here([("a".to_owned(), 0.26)]).unwrap().counts["a"], 0.3);
    }

    #[test]
    fn a_count_may_grow_by_three_percent_and_no_more() {
        let compare = |now| both(1_000.0).compare(&both(now));
        assert!(compare(1_000.0).passes() && compare(1_029.0).passes() && compare(900.0).passes());
        let grown = compare(1_050.0);
        assert!(!grown.passes());
        assert_eq!(grown.verdicts(), [Verdict::Grew, Verdict::Held]);
        let text = grown.to_string();
        assert!(text.contains("1000.0") && text.contains("1050.0") && text.contains("+5.0 %"), "{text}");
    }

    #[test]
    fn with_another_compiler_growth_is_a_warning() {
        let other = Baseline { rustc: "rustc 1.96.0".to_owned(), ..both(1_500.0) };
        let report = both(1_000.0).compare(&other);
        assert!(report.passes());
        assert!(report.to_string().contains("warning: the numbers are of rustc 1.95.0"), "{report}");
    }

    #[test]
    fn the_file_names_just_the_cases_that_there_are() {
        let one = baseline(&[("fan-out", 1_000.0)]);
        assert!(!both(1_000.0).compare(&one).passes());
        assert!(!one.compare(&both(1_000.0)).passes());
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
