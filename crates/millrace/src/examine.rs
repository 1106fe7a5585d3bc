//! Looks at the host as these settings need it, and prints what will hurt.

use anyhow::Context as _;
use clap::Args;
use doctor::{Finding, Severity};
use server::config::Config;

use crate::args::Settings;

pub const EXAMPLES: &str = "\
Examples:
  millrace doctor --config millrace.toml
  millrace doctor --set workers.count=8 --json
  millrace doctor --stun stun.example.org:3478        is this host behind a NAT that clients are not told of?

The exit status is 0 where nothing is worse than a note, 1 with warnings or faults, 2 where it could not look. It changes
nothing. docs/doctor.md says what each finding means.";

/// Looks at the host.
#[derive(Args)]
pub struct Doctor {
    #[command(flatten)]
    pub settings: Settings,
    /// Asks this STUN server for the host's address as others see it; eight seconds at most.
    #[arg(long, value_name = "HOST:PORT")]
    stun: Option<String>,
    /// Prints all that was looked at as one JSON list.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// `false`: there are warnings or faults.
    pub fn run(&self, config: &Config) -> anyhow::Result<bool> {
        server::relay::setup::check(config)?;
        server::tls::check(config)?;
        let mut findings = server::examine::examine(config, self.stun.clone(), false)?;
        let text = if self.json {
            serde_json::to_string(&findings).context("writing JSON")? + "\n"
        } else {
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
            in_words(&findings)
        };
        crate::say(&text)?;
        Ok(findings.iter().all(|finding| finding.severity <= Severity::Note))
    }
}

/// What is worth knowing, the worst first; of the rest only what it is about.
fn in_words(findings: &[Finding]) -> String {
    let (told, fine): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| finding.severity > Severity::Ok);
    let mut text: String = told.into_iter().map(line).collect();
    let mut checks: Vec<(&str, usize)> = Vec::new();
    for finding in fine {
        match checks.iter_mut().find(|(check, _)| *check == finding.check) {
            Some((_, count)) => *count += 1,
            None => checks.push((finding.check, 1)),
        }
    }
    let times = |(check, count): &(&str, usize)| match count {
        1 => (*check).to_owned(),
        count => format!("{check} ({count})"),
    };
    text += &format!("ok       {}\n", checks.iter().map(times).collect::<Vec<_>>().join(", "));
    text
}

fn line(finding: &Finding) -> String {
    let Finding { check, severity, says, seen, mend } = finding;
    let severity = format!("{severity:?}").to_lowercase();
    let mend = mend.iter().map(|mend| format!("         mend: {mend}\n")).collect::<String>();
    format!("{severity:8} {check}: {says}\n         seen: {seen}\n{mend}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fine_is_named_in_one_line() {
        let finding = |check, severity, mend: Option<&str>| Finding {
            check,
            severity,
            says: "it is small".to_owned(),
            seen: "/proc/x: 1".to_owned(),
            mend: mend.map(str::to_owned),
        };
        let all = [
            finding("buffers", Severity::Warning, Some("sysctl -w x=2")),
            finding("ports", Severity::Ok, None),
            finding("ports", Severity::Ok, None),
            finding("clock", Severity::Ok, None),
        ];
        let expected = "warning  buffers: it is small\n         seen: /proc/x: 1\n         mend: sysctl -w x=2\n\
                        ok       ports (2), clock\n";
        assert_eq!(in_words(&all), expected);
    }
}
