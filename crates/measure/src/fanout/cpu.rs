//! Wall time and CPU time between two instants, for the whole process.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// What passed and what was spent. The kernel knows the sum of both CPU times exactly; where it accounts by ticks, it
/// splits the sum by sampling, so the parts of short measurements are rough.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub(super) wall: Duration,
    pub(super) user: Duration,
    pub(super) system: Duration,
}

/// Started at the beginning of a measurement.
pub(super) struct Stopwatch {
    start: Instant,
    usage: Usage,
}

impl Stopwatch {
    pub(super) fn start() -> Result<Self> {
        Ok(Stopwatch { usage: usage()?, start: Instant::now() })
    }

    pub(super) fn stop(&self) -> Result<Spent> {
        let (wall, now) = (self.start.elapsed(), usage()?);
        Ok(Spent {
            wall,
            user: duration(now.user_time() - self.usage.user_time()),
            system: duration(now.system_time() - self.usage.system_time()),
        })
    }
}

fn usage() -> Result<Usage> {
    getrusage(UsageWho::RUSAGE_SELF).context("read the process's CPU time")
}

fn duration(time: TimeVal) -> Duration {
    let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
