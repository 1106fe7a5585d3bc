//! What /proc and the cgroup say about processes.
//!
//! In: process ids. Out: CPU time in seconds, switches, memory in bytes. A process that is gone counts as nothing.
//! Source: proc_pid_stat(5), proc_pid_status(5), cgroups(7), the kernel's cgroup-v2.rst.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::record::Usage;

/// The line of /proc/PID/stat, as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    pub state: char,
    pub parent: i32,
    pub group: i32,
    /// With children that were waited for.
    pub user_s: f64,
    pub system_s: f64,
}

impl Stat {
    pub fn of(pid: i32) -> Option<Stat> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The second field is the program's name in brackets, which may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
        let seconds = |field: usize| Some(number(field)? as f64 / TICKS_PER_SECOND);
        Some(Stat {
            state: fields.first()?.chars().next()?,
            parent: number(4)? as i32,
            group: number(5)? as i32,
            user_s: seconds(14)? + seconds(16)?,
            system_s: seconds(15)? + seconds(17)?,
        })
    }
}

/// The unit in which /proc counts CPU time, the same on all of Linux's common machines.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// All processes that there are.
pub fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What these processes used, by /proc.
pub fn used_by(pids: &[i32]) -> Usage {
    let mut used = Usage::default();
    for &pid in pids {
        let Some(stat) = Stat::of(pid) else { continue };
        used.user_s += stat.user_s;
        used.system_s += stat.system_s;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        used.peak_memory_bytes += field(&status, "VmHWM:") * 1024;
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            used.voluntary_switches += field(&status, "voluntary_ctxt_switches:");
            used.involuntary_switches += field(&status, "nonvoluntary_ctxt_switches:");
        }
    }
    used
}

/// What the descriptors of a process lead to.
pub fn open_files(pid: i32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok())
}

/// The number behind a name at a line's beginning; 0 when there is none.
pub fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Processes of the group, those that say that they are ours (`mark` in their environment), and all their children.
pub fn members_of(group: i32, mark: &str) -> Vec<i32> {
    let all: Vec<(i32, Stat)> = pids().into_iter().filter_map(|pid| Some((pid, Stat::of(pid)?))).collect();
    let marked = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let ours = |(pid, stat): &&(i32, Stat)| stat.group == group || marked(*pid);
    let mut members: BTreeSet<i32> = all.iter().filter(ours).map(|(pid, _)| *pid).collect();
    loop {
        let is_new = |(pid, stat): &&(i32, Stat)| members.contains(&stat.parent) && !members.contains(pid);
        let new: Vec<i32> = all.iter().filter(is_new).map(|(pid, _)| *pid).collect();
        if new.is_empty() {
            break;
        }
        members.extend(new);
    }
    let alive = |pid: &i32| all.iter().any(|(other, stat)| other == pid && !matches!(stat.state, 'Z' | 'X'));
    members.into_iter().filter(alive).collect()
}

/// A cgroup (version 2) of our own: it holds all that a command starts, whatever that does, and counts exactly.
#[derive(Debug)]
pub struct Cgroup {
    /// Its directory.
    pub path: PathBuf,
}

impl Cgroup {
    /// Makes one below our own; `None` where we may not.
    pub fn create(name: &str) -> Option<Cgroup> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = place(&mounts, &own)?.join(name);
        fs::create_dir(&path).ok()?;
        let cgroup = Cgroup { path };
        // What is asked of it later has to be there now.
        let sound = cgroup.cpu().is_some() && cgroup.path.join("cgroup.kill").exists();
        sound.then_some(cgroup)
    }

    /// User and system time in seconds.
    pub fn cpu(&self) -> Option<(f64, f64)> {
        let text = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        let seconds = |name| field(&text, name) as f64 / 1e6;
        text.contains("user_usec ").then(|| (seconds("user_usec "), seconds("system_usec ")))
    }

    /// The most memory, where the kernel counts it for this cgroup.
    pub fn peak_memory_bytes(&self) -> Option<u64> {
        fs::read_to_string(self.path.join("memory.peak")).ok()?.trim().parse().ok()
    }

    /// Processes in it and in cgroups that they made below it.
    pub fn members(&self) -> Vec<i32> {
        fn collect(path: &Path, members: &mut Vec<i32>) {
            let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
            for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    collect(&entry.path(), members);
                }
            }
        }
        let mut members = Vec::new();
        collect(&self.path, &mut members);
        members
    }

    /// Ends all that is in it at once.
    pub fn kill(&self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let below = fs::read_dir(&self.path).into_iter().flatten().flatten();
        for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let _ = fs::remove_dir(entry.path());
        }
        // A process that ends is no longer listed a moment before the kernel lets go of its cgroup.
        wait(BUSY_MAX, || !fs::remove_dir(&self.path).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy));
    }
}

/// How long the last process of a cgroup may take to vanish.
const BUSY_MAX: Duration = Duration::from_secs(2);

/// Our own directory in the tree of cgroups, version 2.
fn place(mountinfo: &str, own: &str) -> Option<PathBuf> {
    // "31 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw": root of the mount and mount point are 4th and 5th.
    let mount = mountinfo.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let below = path.strip_prefix(root.trim_end_matches('/'))?;
    Some(Path::new(point).join(below.trim_start_matches('/')))
}

/// Looks every 10 ms whether it holds, until it does, for so long at most.
pub fn wait(time_max: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + time_max;
    while !holds() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_name_may_hold_blanks_and_brackets() {
        let line = "7 (a) b (c) S 3 5 5 0 -1 0 0 0 0 0 150 250 50 50 20 0 1 0";
        let stat = Stat { state: 'S', parent: 3, group: 5, user_s: 2.0, system_s: 3.0 };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn a_field_is_found_by_its_name() {
        let status = "VmHWM:\t    1024 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "VmHWM:"), 1024);
        assert_eq!(field(status, "voluntary_ctxt_switches:"), 7);
        assert_eq!(field(status, "VmPeak:"), 0);
    }

    #[test]
    fn our_cgroup_lies_below_the_mount_also_in_a_container() {
        let mounts = "30 23 0:25 / /proc rw - proc proc rw\n31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(place(mounts, "1:cpu:/x\n0::/user/me"), Some("/sys/fs/cgroup/user/me".into()));
        assert_eq!(place(mounts, "0::/"), Some("/sys/fs/cgroup/".into()));
        let inside = "31 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(place(inside, "0::/docker/1/a"), Some("/sys/fs/cgroup/a".into()));
        assert_eq!(place("", "0::/"), None);
    }

    #[test]
    fn a_thread_that_slept_has_gone_to_sleep_and_what_is_gone_has_used_nothing() {
        std::thread::sleep(Duration::from_millis(1));
        let used = used_by(&[std::process::id() as i32]);
        assert!(used.peak_memory_bytes > 100_000 && used.voluntary_switches > 0, "{used:?}");
        assert_eq!(used_by(&[i32::MAX]), Usage::default());
    }
}
