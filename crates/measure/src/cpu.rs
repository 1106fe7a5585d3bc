//! Wall time and CPU time between two instants, for the whole process or one thread.

use std::ops::Sub;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// What passed and what was spent. The kernel knows the sum of both CPU times exactly; where it accounts by ticks, it
/// splits the sum by sampling, so the parts of short measurements are rough.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl Spent {
    pub(crate) fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// What is left when a helper's CPU time is taken out; the wall time stays.
impl Sub for Spent {
    type Output = Spent;

    fn sub(self, helper: Spent) -> Spent {
        Spent {
            wall: self.wall,
            user: self.user.saturating_sub(helper.user),
            system: self.system.saturating_sub(helper.system),
        }
    }
}

/// Started at the beginning of a measurement.
pub(crate) struct Stopwatch {
    who: UsageWho,
    start: Instant,
    usage: Usage,
}

impl Stopwatch {
    pub(crate) fn start() -> Result<Self> {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    /// Of the calling thread alone, which has to stop it too.
    pub(crate) fn start_on_thread() -> Result<Self> {
        Self::of(UsageWho::RUSAGE_THREAD)
    }

    fn of(who: UsageWho) -> Result<Self> {
        Ok(Stopwatch { who, usage: usage(who)?, start: Instant::now() })
    }

    pub(crate) fn stop(&self) -> Result<Spent> {
        let (wall, now) = (self.start.elapsed(), usage(self.who)?);
        Ok(Spent {
            wall,
            user: duration(now.user_time() - self.usage.user_time()),
            system: duration(now.system_time() - self.usage.system_time()),
        })
    }
}

/// CPUs that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn usage(who: UsageWho) -> Result<Usage> {
    getrusage(who).context("read the CPU time that was used")
}

fn duration(time: TimeVal) -> Duration {
    let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
