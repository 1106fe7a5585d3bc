//! `millrace load reflect`: viewers of one HTTP stream, thousands on one core, that measure what they see.
//!
//! In: a stream's URL. Out: what came of how many bytes, latency, times until the first byte and the first picture, stalls,
//! and what was wrong with the bytes; the server's CPU.
//! The stream is made here unless told otherwise, so every byte is known. Arrivals have the kernel's times, so that this
//! program's own lateness is not in the numbers. Viewers can be slow, deaf, or come and go.
//! Cost: two system calls for what one viewer gets at once; bytes that nobody looks at are not copied.

mod args;
mod check;
mod crowd;
mod report;
mod socket;
mod source;
mod stream;
mod target;
mod totals;
mod viewer;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

pub use args::{Args, Limits, Slow};
pub use check::Faults;
pub use report::Report;

use crowd::{Crowd, Setup};
use stream::Stream;
use target::Target;
use totals::Totals;

use crate::clients::{Coming, wait_for_all};

/// How long all have to be there, beside the time in which they come.
const JOIN_MAX: Duration = Duration::from_secs(20);

/// A stream that others make flows when it has flown for so long.
const FLOWS: Duration = Duration::from_secs(1);

/// Descriptors for everything that is no viewer.
const SPARE_FILES: u64 = 64;

/// Runs the load and prints the report. False when the asked-for quality was not held.
///
/// # Errors
/// When the server has no stream, or a socket cannot be had.
pub fn run(args: &Args) -> Result<bool> {
    let report = measure(args)?;
    args.common.basics.print(&report, &report.failures(&args.limits))
}

/// Runs the load.
///
/// # Errors
/// As `run`.
pub fn measure(args: &Args) -> Result<Report> {
    args.check()?;
    let files_max = engine::sys::raise_open_files_max().context("raise the limit of open files")?;
    let needed = (args.viewers + args.passing()) as u64 + SPARE_FILES;
    ensure!(files_max >= needed, "{needed} open files are needed, the limit is {files_max}");
    let (target, stream) = (args.target()?, args.made_stream()?);
    let _source = args.start_source(&stream)?;
    // By then there has been a packet to begin at, and what is around it.
    let span = stream.as_ref().map_or(FLOWS, |_| args.interval.mul_f64(1.5));
    target.wait_for_stream(span, args.wait + span)?;
    let setups = setups(args, &target, stream.as_ref());
    let crowds = setups.into_iter().map(Crowd::start).collect::<Result<Vec<_>>>()?;
    join(args, &crowds)?;
    thread::sleep(args.common.warm_up);
    crowds.iter().try_for_each(Crowd::count)?;
    // Another server has no such page.
    let api = args.common.basics.api().ok().filter(|_| args.common.server_pid.is_none());
    let ((), counted) = args.common.count(api.as_ref(), || Ok(()))?;
    Ok(Report::new(args.viewers, &totals(&crowds)?, &counted))
}

/// Who plays whom: viewers take turns among the threads.
fn setups(args: &Args, target: &Target, stream: Option<&Arc<Stream>>) -> Vec<Setup> {
    let (threads, roles) = (args.common.threads, args.roles());
    let share = |per_second: f64| per_second / f64::from(threads);
    let setup = |thread: u8| {
        let mut numbers = 0..;
        let mut from = || args.address_of(target, thread, numbers.next().unwrap_or(0));
        let own = roles.iter().skip(thread.into()).step_by(threads.into());
        let staying = own.map(|role| (*role, from())).collect();
        let passing = args.passing().div_ceil(threads.into());
        Setup {
            target: target.clone(),
            stream: stream.cloned(),
            is_source: args.is_source(),
            staying,
            passing: (0..passing).map(|_| from()).collect(),
            joins_per_second: share(args.joins_per_second()),
            passing_per_second: share(args.churn),
            read_every: args.read_every.map(Duration::from_millis),
            receive_buffer: args.receive_buffer(),
            stall: Duration::from_millis(args.stall),
        }
    };
    (0..threads).map(setup).collect()
}

/// Lets all viewers come, and waits until they are there.
fn join(args: &Args, crowds: &[Crowd]) -> Result<()> {
    let progress = args.common.progress(args.viewers as u64, "joining");
    crowds.iter().try_for_each(Crowd::join)?;
    let coming = Duration::try_from_secs_f64(args.viewers as f64 / args.joins_per_second()).context("--join-rate")?;
    wait_for_all(&progress, coming + JOIN_MAX, "nobody gets the stream", || {
        let totals = totals(crowds)?;
        let sum = |count: fn(&Totals) -> usize| totals.iter().map(count).sum();
        let why = totals.iter().flat_map(|part| part.failures.keys()).next().cloned();
        Ok(Coming { waiting: sum(|part| part.waiting), there: sum(|part| part.watching), why })
    })
}

fn totals(crowds: &[Crowd]) -> Result<Vec<Totals>> {
    crowds.iter().map(Crowd::totals).collect()
}

#[cfg(test)]
mod tests;
