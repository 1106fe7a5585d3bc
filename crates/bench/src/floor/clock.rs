//! The CPU time of one thread's work.
//!
//! In: work that counts what it did. Out: what that cost its thread, user space and kernel apart.
//! How: the sum is the thread's own clock, exact to the nanosecond; the kernel splits it by what its timer tick met, so
//! the parts of one short measurement are rough, and the median of many is better.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use engine::sys::{thread_cpu_time, thread_id};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// What one measurement gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Datagrams; for sendfile TCP segments.
    pub(super) units: f64,
    pub(super) cpu_ns: f64,
    pub(super) user_ns: f64,
}

/// Runs `work` on a thread of its own; it returns how many units it did.
pub(super) fn on_own_thread(work: impl FnOnce() -> Result<f64> + Send) -> Result<Sample> {
    thread::scope(|scope| {
        let measured = scope.spawn(|| -> Result<Sample> {
            let (cpu_before, before) = (cpu_time()?, split()?);
            let units = work()?;
            let (cpu, after) = (cpu_time()? - cpu_before, split()?);
            let (user, system) = (after.0 - before.0, after.1 - before.1);
            let cpu_ns = cpu.as_nanos() as f64;
            Ok(Sample { units, cpu_ns, user_ns: cpu_ns * share(user, system) })
        });
        measured.join().expect("a measurement does not panic")
    })
}

fn cpu_time() -> Result<Duration> {
    thread_cpu_time(thread_id()).context("read the thread's CPU time")
}

/// User and system time of this thread, as the kernel divides it.
fn split() -> Result<(TimeVal, TimeVal)> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).context("read the thread's user and system time")?;
    Ok((usage.user_time(), usage.system_time()))
}

/// User time as a share of both; all of it when the kernel knows of neither.
fn share(user: TimeVal, system: TimeVal) -> f64 {
    let (user, system) = (user.num_microseconds() as f64, system.num_microseconds() as f64);
    if user + system > 0.0 { user / (user + system) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_work_counted_comes_back_with_its_price() {
        let sample = on_own_thread(|| Ok(2.0)).unwrap();
        assert_eq!(sample.units, 2.0);
        assert!(sample.cpu_ns >= sample.user_ns && sample.user_ns >= 0.0, "{sample:?}");
    }

    #[test]
    fn the_share_of_user_time_is_of_both() {
        assert_eq!(share(TimeVal::microseconds(30), TimeVal::microseconds(90)), 0.25);
        assert_eq!(share(TimeVal::zero(), TimeVal::zero()), 1.0);
    }

    #[test]
    fn an_error_of_the_work_comes_back() {
        assert!(on_own_thread(|| anyhow::bail!("no socket")).is_err());
    }
}
