//! CPU time of processes, and of this one or one of its threads between two instants.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

/// What passed and what was spent. The kernel knows the sum of both CPU times exactly; where it accounts by ticks, it
/// splits the sum by sampling, so the parts of short measurements are rough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Time that passed.
    pub wall: Duration,
    /// Of this process, or of one thread.
    pub cpu: CpuTime,
}

/// Started at the beginning of a measurement.
pub struct Stopwatch {
    who: UsageWho,
    start: Instant,
    before: CpuTime,
}

impl Stopwatch {
    /// Of this whole process, from now on.
    ///
    /// # Errors
    /// When the kernel does not say what was used, as in all that is measured here.
    pub fn start() -> Result<Self> {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    /// Of the calling thread alone, which has to stop it too.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_on_thread() -> Result<Self> {
        Self::of(UsageWho::RUSAGE_THREAD)
    }

    fn of(who: UsageWho) -> Result<Self> {
        Ok(Stopwatch { who, before: CpuTime::of(who)?, start: Instant::now() })
    }

    /// What was used since the start.
    ///
    /// # Errors
    /// As `start`.
    pub fn stop(&self) -> Result<Spent> {
        Ok(Spent { wall: self.start.elapsed(), cpu: CpuTime::of(self.who)?.since(self.before) })
    }
}

/// CPU time of a process, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CpuTime {
    /// Outside the kernel.
    pub user: f64,
    /// Inside the kernel.
    pub system: f64,
}

impl CpuTime {
    /// Between an earlier look and this one, or what is left without a helper's. Neither part is less than nothing.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime { user: (self.user - earlier.user).max(0.0), system: (self.system - earlier.system).max(0.0) }
    }

    /// Inside and outside the kernel.
    pub fn total(self) -> f64 {
        self.user + self.system
    }

    /// As a share of one core over so many seconds, in words.
    pub fn of_a_core(self, seconds: f64) -> String {
        format!("{:.1} % of a core", self.total() / seconds.max(1e-9) * 100.0)
    }

    /// What this process has used.
    pub fn own() -> CpuTime {
        CpuTime::of(UsageWho::RUSAGE_SELF).unwrap_or_default()
    }

    fn of(who: UsageWho) -> Result<CpuTime> {
        let usage = getrusage(who).context("read the CPU time that was used")?;
        let [user, system] =
            [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
        Ok(CpuTime { user, system })
    }

    /// What a process has used (proc_pid_stat(5), fields 14 and 15, in ticks of 10 ms).
    pub fn of_process(pid: u32) -> Option<CpuTime> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in brackets, which may hold anything.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        Some(CpuTime { user: ticks()? / 100.0, system: ticks()? / 100.0 })
    }
}

/// CPUs that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
