//! `--fill`: viewers come step by step, and after each step is counted whether all that is asked for is held, until it is not.
//!
//! In: a run that has begun, and how many come at a time. Out: what each step saw, how many were well, and what broke.

use std::fmt;

use anyhow::Result;
use measure::report::Table;
use serde::Serialize;

use super::Run;
use super::report::{Limits, Report};

/// What is asked for where nothing is said: one packet in a hundred, a fifth of a second, one viewer in a hundred.
const LIMITS: Limits =
    Limits { max_loss: Some(0.01), max_p99: Some(200.0), max_frozen: Some(0.01), may_be_silent: false };

/// What became of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Filled {
    /// Viewers of the last step that held all that was asked for.
    pub well: u32,
    /// Viewers of the step that did not, if there was one.
    pub broke_at: Option<u32>,
    /// What was not held with these, in words.
    pub broke: Vec<String>,
    /// What was counted, with more viewers each time; of a step of which a join failed there is none.
    pub steps: Vec<Report>,
}

/// Lets `step` viewers more come, and counts, until something is not held or all viewers are there.
///
/// # Errors
/// When nobody can publish, or a load thread does not answer.
pub(super) fn step_by_step(run: &Run<'_>, step: u32) -> Result<Filled> {
    let (limits, mut filled) = (run.args.limits.or(&LIMITS), Filled::default());
    run.publish_all()?;
    while filled.well < run.args.subscribers {
        let viewers = filled.well.saturating_add(step).min(run.args.subscribers);
        let broke = match run.watch(filled.well, viewers - filled.well, None, "joining") {
            Ok(()) => {
                let mut report = run.window(viewers, || Ok(()))?;
                let mut broke = report.failures(&limits);
                if !broke.is_empty() {
                    // What disturbs the machine for a moment is not too many viewers.
                    report = run.window(viewers, || Ok(()))?;
                    broke = report.failures(&limits);
                }
                filled.steps.push(report);
                broke
            }
            Err(error) => vec![format!("{error:#}")],
        };
        if !broke.is_empty() {
            (filled.broke_at, filled.broke) = (Some(viewers), broke);
            break;
        }
        filled.well = viewers;
    }
    Ok(filled)
}

impl fmt::Display for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new("rrrrrrrrr");
        let names = ["packets/s", "Mbit/s", "lost %", "p50 ms", "p99 ms", "frozen", "server CPU", "load CPU"];
        table.head("viewers".into(), &names);
        for step in &self.steps {
            let server_cpu = step.server_cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.of_a_core(step.seconds));
            table.row([
                step.viewers.to_string(),
                format!("{:.0}", step.packets_per_second),
                format!("{:.0}", step.mbit_per_second),
                format!("{:.3}", step.loss * 100.0),
                format!("{:.1}", step.latency.p50_ms),
                format!("{:.1}", step.latency.p99_ms),
                step.viewers_with_freezes.to_string(),
                server_cpu,
                step.load_cpu.of_a_core(step.seconds),
            ]);
        }
        table.fmt(f)?;
        match self.broke_at {
            None => writeln!(f, "{} viewers were well, and nothing broke", self.well),
            Some(viewers) => writeln!(f, "{} viewers were well; with {viewers}: {}", self.well, self.broke.join("; ")),
        }
    }
}
