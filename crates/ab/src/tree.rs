//! A command with everything that it starts, from its start to the end of the last of its processes.
//!
//! In: a command for `sh -c`. Out: what its processes used, and their end on every path: when the owner is done (SIGTERM,
//! after 5 s SIGKILL), when it fails (`Drop`), and when the owner itself is killed (`guard.sh`, which reads a pipe).
//! A process belongs to the tree by cgroup; where we may make none, by process group, parent, or the variable
//! `MILLRACE_AB` in its environment.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::proc::{Cgroup, members_of, used_by, wait};
use super::record::Usage;
use super::values::Cpus;

/// How long a tree has after SIGTERM.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A running command.
#[derive(Debug)]
pub struct Tree {
    child: Child,
    group: i32,
    mark: String,
    cgroup: Option<Cgroup>,
    status: Option<ExitStatus>,
    /// What the command itself used, with the children that it waited for; known when it is over.
    last: Usage,
    ended: bool,
}

/// How a command is started.
pub struct Start<'a> {
    pub command: &'a str,
    /// `None`: where the kernel likes.
    pub cpus: Option<&'a Cpus>,
    /// Standard output and error are added to it.
    pub log: &'a Path,
    /// Standard output comes to us instead.
    pub piped: bool,
    /// Whether to make a cgroup, as `can_count` found out.
    pub in_cgroup: bool,
}

impl Tree {
    /// Starts the command.
    pub fn start(start: &Start<'_>, guard: &mut Guard) -> anyhow::Result<Tree> {
        let log = OpenOptions::new().create(true).append(true).open(start.log);
        let log = log.with_context(|| format!("open the log {}", start.log.display()))?;
        let name = unique_name();
        let cgroup = start.in_cgroup.then(|| Cgroup::create(&name).context("make a cgroup")).transpose()?;
        let mut command = Command::new("sh");
        match &cgroup {
            Some(cgroup) => command.args(["-c", ENTER, "sh"]).arg(&cgroup.path).arg(start.command),
            None => command.args(["-c", start.command]),
        };
        let stdout = if start.piped { Stdio::piped() } else { log.try_clone()?.into() };
        command.env("MILLRACE_AB", &name).process_group(0).stdin(Stdio::null()).stdout(stdout).stderr(log);
        let child = spawn_on(&mut command, start.cpus).with_context(|| format!("start {:?}", start.command))?;
        let (group, mark) = (child.id() as i32, format!("MILLRACE_AB={name}"));
        let tree = Tree { group, mark, cgroup, child, status: None, last: Usage::default(), ended: false };
        guard.watch(&tree)?;
        Ok(tree)
    }

    /// What the command writes, when it was started so.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// How the command itself ended; `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // As long as nobody has waited for it, /proc still tells what it used.
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            match waitid(Id::Pid(Pid::from_raw(self.group)), flags) {
                Ok(WaitStatus::StillAlive) => return None,
                _ => self.last = used_by(&[self.group]),
            }
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// All processes that live.
    pub fn members(&self) -> Vec<i32> {
        match &self.cgroup {
            Some(cgroup) => cgroup.members(),
            None => members_of(self.group, &self.mark),
        }
    }

    /// What all processes used since the start: CPU time by the cgroup, exactly; all else, or all without a cgroup, by
    /// those that live, the command itself, and for CPU time those of their children that they waited for.
    pub fn used(&self) -> Usage {
        let mut used = used_by(&self.members()).plus(&self.last);
        if let Some(cgroup) = &self.cgroup {
            if let Some((user_s, system_s)) = cgroup.cpu() {
                (used.user_s, used.system_s) = (user_s, system_s);
            }
            used.peak_memory_bytes = cgroup.peak_memory_bytes().unwrap_or(used.peak_memory_bytes);
        }
        used
    }

    /// Ends all processes, gently at first, and returns when the last is gone.
    pub fn end(&mut self, patience: Duration) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if !self.gone() {
            self.signal(Signal::SIGTERM);
        }
        wait(patience, || self.gone());
        wait(PATIENCE, || {
            let gone = self.gone();
            if !gone {
                self.signal(Signal::SIGKILL);
            }
            gone
        });
    }

    fn gone(&mut self) -> bool {
        self.exited().is_some() && self.members().is_empty()
    }

    fn signal(&self, signal: Signal) {
        if let (Signal::SIGKILL, Some(cgroup)) = (signal, &self.cgroup) {
            cgroup.kill();
        }
        // One by one and not the group as a whole: its number may belong to others once its last process is gone.
        for pid in self.members() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end(PATIENCE);
    }
}

/// Goes into the cgroup before it becomes the command, so that nothing is missed.
const ENTER: &str = r#"echo 0 > "$1/cgroup.procs" && exec sh -c "$2""#;

/// Whether commands can be run in cgroups of their own here.
pub fn can_count() -> bool {
    let Some(cgroup) = Cgroup::create(&unique_name()) else { return false };
    let mut enter = Command::new("sh");
    enter.args(["-c", ENTER, "sh"]).arg(&cgroup.path).arg("true").stderr(Stdio::null());
    enter.status().is_ok_and(|status| status.success())
}

fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("millrace-ab-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A child has the CPUs of the thread that starts it, so a thread is made that has these.
fn spawn_on(command: &mut Command, cpus: Option<&Cpus>) -> anyhow::Result<Child> {
    let Some(cpus) = cpus else { return Ok(command.spawn()?) };
    std::thread::scope(|scope| {
        let spawned = scope.spawn(|| {
            let mut set = CpuSet::new();
            for &cpu in &cpus.0 {
                set.set(cpu)?;
            }
            sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("there is no CPU {cpus}"))?;
            Ok(command.spawn()?)
        });
        spawned.join().expect("the thread does not panic")
    })
}

/// A shell that runs the subject's cleanup when this goes, which is after the trees are gone. It outlives us when we are
/// killed, and ends what we left behind.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    /// It ends when this is closed, by whatever.
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts one for a run; what the cleanup prints goes to the log.
    pub fn start(cleanup: &str, log: &Path) -> anyhow::Result<Guard> {
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("guard.sh"), "millrace-ab-guard", cleanup]).arg(log);
        // Our standard output and error may be pipes whose readers wait for the last writer.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().context("start the guard")?;
        let pipe = child.stdin.take();
        Ok(Guard { child, pipe })
    }

    fn watch(&mut self, tree: &Tree) -> anyhow::Result<()> {
        let mut lines = format!("group {}\nmark {}\n", tree.group, tree.mark);
        if let Some(cgroup) = &tree.cgroup {
            lines += &format!("cgroup {}\n", cgroup.path.display());
        }
        self.tell(&lines).context("the guard is gone")
    }

    fn tell(&mut self, lines: &str) -> std::io::Result<()> {
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(lines.as_bytes()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.tell("done\n");
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_tree_ends_with_all_its_processes_also_those_that_left_their_group() {
        for in_cgroup in ways() {
            let directory = tempfile::tempdir().unwrap();
            let mut guard = Guard::start("", Path::new("/dev/null")).unwrap();
            let command = "sleep 600 & setsid sleep 600 & (setsid -f sleep 600); wait";
            let mut tree = start(command, directory.path(), in_cgroup, &mut guard);
            wait_until("4 processes", || tree.members().len() == 4);
            let members = tree.members();
            tree.end(PATIENCE);
            assert!(members.iter().all(|pid| !alive(*pid)), "{members:?}");
            let cgroup = tree.cgroup.as_ref().map(|cgroup| cgroup.path.clone());
            drop(tree);
            assert!(cgroup.is_none_or(|path| !path.exists()), "the cgroup is gone too");
        }
    }

    #[test]
    fn who_does_not_hear_sigterm_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let mut guard = Guard::start("", Path::new("/dev/null")).unwrap();
        let mut tree = start("trap '' TERM; echo up; while :; do sleep 1; done", directory.path(), false, &mut guard);
        wait_until("the trap", || std::fs::read_to_string(directory.path().join("log")).unwrap().contains("up"));
        let members = tree.members();
        tree.end(Duration::from_millis(100));
        assert!(members.iter().all(|pid| !alive(*pid)), "{members:?}");
    }

    #[test]
    fn a_guard_whose_owner_vanishes_ends_the_tree_and_cleans_up() {
        for in_cgroup in ways() {
            let directory = tempfile::tempdir().unwrap();
            let cleaned = directory.path().join("cleaned");
            let mut guard = Guard::start(&format!("touch {}", cleaned.display()), Path::new("/dev/null")).unwrap();
            let command = "sleep 600 & (setsid -f sleep 600); wait";
            let mut tree = start(command, directory.path(), in_cgroup, &mut guard);
            wait_until("3 processes", || tree.members().len() == 3);
            let members = tree.members();
            // What the kernel does when we are killed.
            drop(guard.pipe.take());
            wait_until("the end", || tree.exited().is_some() && members.iter().all(|pid| !alive(*pid)));
            wait_until("the cleanup", || cleaned.exists());
        }
    }

    #[test]
    fn a_tree_runs_on_its_cpus_and_its_cpu_time_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let mut guard = Guard::start("", Path::new("/dev/null")).unwrap();
        let log = directory.path().join("log");
        let command =
            "grep Cpus_allowed_list /proc/self/status; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 600";
        let cpus = Cpus(vec![0]);
        let start = Start { command, cpus: Some(&cpus), log: &log, piped: false, in_cgroup: can_count() };
        let tree = Tree::start(&start, &mut guard).unwrap();
        wait_until("CPU time", || tree.used().user_s > 0.05);
        assert!(std::fs::read_to_string(&log).unwrap().ends_with("\t0\n"));
        assert!(tree.used().peak_memory_bytes > 100_000);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let cpus = Cpus(vec![1000]);
        let start = Start { command: "true", cpus: Some(&cpus), log: &log, piped: false, in_cgroup: false };
        let error = Tree::start(&start, &mut Guard::start("", Path::new("/dev/null")).unwrap()).unwrap_err();
        assert!(format!("{error:#}").contains("there is no CPU 1000"), "{error:#}");
    }

    /// Without cgroups, and with them where we may.
    fn ways() -> impl Iterator<Item = bool> {
        if !can_count() {
            crate::skip::skip("trees in cgroups: we may make none");
        }
        [false, true].into_iter().filter(|in_cgroup| !in_cgroup || can_count())
    }

    fn start(command: &str, directory: &Path, in_cgroup: bool, guard: &mut Guard) -> Tree {
        let log = directory.join("log");
        Tree::start(&Start { command, cpus: None, log: &log, piped: false, in_cgroup }, guard).unwrap()
    }

    fn alive(pid: i32) -> bool {
        crate::proc::Stat::of(pid).is_some_and(|stat| stat.state != 'Z')
    }

    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < deadline, "{what} did not come");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
