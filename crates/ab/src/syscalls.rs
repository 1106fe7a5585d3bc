//! Counts a server's system calls with `perf`, where that is installed and allowed.
//!
//! In: processes. Out: their calls per second between start and stop. The kernel's tracepoint slows every call down by some 100 ns, so
//! this is done in the warm-up and never while CPU time is measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::proc::{open_files, wait};
use super::tree::{Guard, Start, Tree};

const EVENT: &str = "raw_syscalls:sys_enter";

/// Whether calls can be counted here.
pub fn can_count() -> bool {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x,", "-e", EVENT, "true"]).stdin(Stdio::null()).stdout(Stdio::null());
    perf.output().is_ok_and(|output| count_in(&String::from_utf8_lossy(&output.stderr)).is_some())
}

/// A count that goes on.
pub struct Counter {
    perf: Tree,
    output: PathBuf,
    since: Instant,
}

impl Counter {
    /// Counts the calls of these processes and of those that they start from now on; returns when it counts.
    pub fn start(pids: &[i32], output: &Path, guard: &mut Guard) -> anyhow::Result<Counter> {
        let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
        let command = format!("exec perf stat -x, -e {EVENT} -p {}", pids.join(","));
        let _ = std::fs::remove_file(output);
        let start = Start { command: &command, cpus: None, log: output, piped: false, in_cgroup: false };
        let mut perf = Tree::start(&start, guard)?;
        wait(TIME_MAX, || perf.exited().is_some() || perf.members().into_iter().any(counts));
        Ok(Counter { perf, output: output.to_owned(), since: Instant::now() })
    }

    /// Ends the count and returns the calls per second; `None` when perf did not count.
    pub fn stop(mut self) -> Option<f64> {
        let seconds = self.since.elapsed().as_secs_f64();
        // perf tells on SIGINT only.
        for pid in self.perf.members() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
        wait(TIME_MAX, || self.perf.exited().is_some());
        let text = std::fs::read_to_string(&self.output).ok();
        let _ = std::fs::remove_file(&self.output);
        Some(count_in(&text?)? as f64 / seconds)
    }
}

/// How long perf may take to begin and to end.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Whether perf has opened its counters.
fn counts(perf: i32) -> bool {
    open_files(perf).any(|link| link.contains("perf_event"))
}

/// perf's line: the count, the unit, the event, and how long it was counted.
fn count_in(text: &str) -> Option<u64> {
    match text.lines().find(|line| line.contains(EVENT))?.split(',').next()? {
        // None of the processes ran.
        "<not counted>" => Some(0),
        count => count.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_first_field() {
        assert_eq!(count_in("# started on\n\n29,,raw_syscalls:sys_enter,1000,100.00,,\n"), Some(29));
        assert_eq!(count_in("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), Some(0));
        assert_eq!(count_in("<not supported>,,raw_syscalls:sys_enter,0,0.00,,\n"), None);
        assert_eq!(count_in(""), None);
    }

    #[test]
    fn calls_are_counted_where_that_is_possible() {
        if !can_count() {
            crate::skip::skip("system calls are not counted: perf, or the right to it, is missing");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (log, mut guard) = (directory.path().join("log"), Guard::start("", Path::new("/dev/null")).unwrap());
        let command = "while :; do : > /dev/null; done";
        let start = Start { command, cpus: None, log: &log, piped: false, in_cgroup: false };
        let tree = Tree::start(&start, &mut guard).unwrap();
        let counter = Counter::start(&tree.members(), &directory.path().join("perf"), &mut guard).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(counter.stop().unwrap() > 10.0);
    }
}
