//! What the process as a whole is, and takes. Of numbers that cannot be had there is no sample.

use std::fs;
use std::time::SystemTime;

use nix::sys::resource::{UsageWho, getrusage};

use super::{Page, label};

/// All of it; the process has run since `started`.
pub(super) fn write(page: &mut Page, started: SystemTime) {
    page.family("millrace_build_info", "gauge", "1, with the version of the server.");
    page.sample("millrace_build_info", &label("version", env!("CARGO_PKG_VERSION")), 1.0);
    let name = "millrace_process_start_time_seconds";
    page.family(name, "gauge", "When the process began, in seconds since 1970.");
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    page.sample(name, "", since.as_secs_f64());
    let name = "millrace_process_cpu_seconds_total";
    page.family(name, "counter", "CPU time of the process in seconds, by where it was spent.");
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        for (mode, time) in [("user", usage.user_time()), ("system", usage.system_time())] {
            page.sample(name, &label("mode", mode), time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
        }
    }
    page.family("millrace_process_resident_bytes", "gauge", "Bytes of the process's memory that are in RAM.");
    if let Some(bytes) = resident_bytes() {
        page.sample("millrace_process_resident_bytes", "", bytes as f64);
    }
    page.family(
        "millrace_process_open_fds",
        "gauge",
        "File descriptors that the process has open, sockets among them.",
    );
    if let Some(count) = open_fds() {
        page.sample("millrace_process_open_fds", "", count);
    }
    page.family("millrace_process_max_fds", "gauge", "File descriptors that the process may have open.");
    if let Ok(max) = engine::sys::open_files_max() {
        page.sample("millrace_process_max_fds", "", max as f64);
    }
}

/// The line "VmRSS: 1234 kB" of proc_pid_status(5).
pub(in crate::http) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"))?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The size of the folder of descriptors is their number since Linux 6.2. Before it is zero, and they are counted: that takes
/// some 25 ms of 20,000, no more often than a page is made, and finds the one by which it reads, too.
fn open_fds() -> Option<f64> {
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64),
        count => Some(count as f64),
    }
}
