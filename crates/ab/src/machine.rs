//! What is written down about the machine and the compared programs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use engine::udp::{Options, UdpSocket};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::plan::{Plan, Subject};
use super::record::{self, Machine};

/// Looks at the machine and asks the subjects for their versions.
pub fn describe(plan: &Plan, in_cgroup: bool, counts_syscalls: bool, command: String) -> anyhow::Result<Machine> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.trim_start().strip_prefix(':'));
    let kernel = ["ostype", "osrelease"].map(|name| read(&format!("/proc/sys/kernel/{name}")).trim().to_owned());
    let subjects = plan.subjects.iter().map(|subject| {
        let version = subject.version.as_deref().map(|command| version(plan, subject, command)).transpose()?;
        Ok(record::Subject { name: subject.name.clone(), version, command: subject.command.clone() })
    });
    Ok(Machine {
        cpu: model.map_or("unknown", str::trim).to_owned(),
        cores: cpus.lines().filter(|line| line.starts_with("processor")).count(),
        memory_bytes: super::proc::field(&read("/proc/meminfo"), "MemTotal:") * 1024,
        kernel: kernel.join(" "),
        virtualised: virtualised(&cpus),
        date: OffsetDateTime::now_utc().replace_nanosecond(0)?.format(&Rfc3339)?,
        millrace_version: env!("CARGO_PKG_VERSION").to_owned(),
        features: features(in_cgroup, counts_syscalls),
        subjects: subjects.collect::<anyhow::Result<_>>()?,
        plan: plan.text.clone(),
        plan_name: plan.name.clone(),
        axis: plan.axis.clone(),
        jobs: plan.jobs.clone(),
        shown: plan.shown.clone(),
        judge: plan.judge.to_string(),
        command,
    })
}

/// What the vendor of the machine calls it, when the CPU says that a hypervisor is there.
fn virtualised(cpuinfo: &str) -> Option<String> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    flags.split_whitespace().any(|flag| flag == "hypervisor").then(|| {
        let vendor = fs::read_to_string("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
        match vendor.trim() {
            "" => "by an unnamed hypervisor".to_owned(),
            vendor => vendor.to_owned(),
        }
    })
}

fn features(in_cgroup: bool, counts_syscalls: bool) -> BTreeMap<String, String> {
    let yes_or_no = |holds: bool| if holds { "yes" } else { "no" };
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &Options::default());
    let memory = match super::proc::Cgroup::create(&format!("millrace-ab-{}-probe", std::process::id())) {
        Some(cgroup) if in_cgroup && cgroup.peak_memory_bytes().is_some() => "cgroup v2",
        _ => "sum of the processes' VmHWM",
    };
    let features = [
        ("gso", yes_or_no(socket.as_ref().is_ok_and(|socket| socket.gso()))),
        ("gro", yes_or_no(socket.as_ref().is_ok_and(|socket| socket.gro()))),
        ("cpu_time", if in_cgroup { "cgroup v2" } else { "sum over /proc, in ticks of 10 ms" }),
        ("peak_memory", memory),
        ("switches", "sum over the threads in /proc that live at the end"),
        (
            "syscalls",
            if counts_syscalls { "perf, in the warm-up" } else { "not counted: perf or its tracepoint is not there" },
        ),
    ];
    features.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The first line that the version's command prints, on either output.
fn version(plan: &Plan, subject: &Subject, command: &str) -> anyhow::Result<String> {
    let command = plan.fill(command, subject, plan.points[0], plan.seconds.0);
    let output = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("subject {}: run {command:?}", subject.name))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let failed =
        || format!("subject {}: its version's command {command:?} failed ({}): {line}", subject.name, output.status);
    ensure!(output.status.success() && !line.is_empty(), failed());
    Ok(line.to_owned())
}

/// How to do it again: this program's own command line, as the shell wants it.
pub fn command_line() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    }
    // No word of a command line has a zero in it.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypervisor_is_seen_by_the_cpu_s_flags() {
        assert_eq!(virtualised("flags\t\t: fpu vme de\n"), None);
        assert!(virtualised("flags\t\t: fpu hypervisor lahf\n").is_some());
    }
}
