//! Whether a run was disturbed: by the hypervisor (steal), or by programs that have no part in it.
//!
//! In: /proc/stat before and after, and what the run's own processes used. Out: `None`, or what the matter was.
//! What the kernel does for packets in its own threads (ksoftirqd) is the run's doing, and no disturbance.
//! Source: proc_stat(5). The kernel takes these times by ticks of 10 ms, so short runs are judged roughly.

use std::fs;

use super::proc::{Stat, TICKS_PER_SECOND, pids};
use super::values::Cpus;

/// What the CPUs did since the machine started, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTimes {
    pub total_s: f64,
    /// Neither idle, nor waiting for a disk, nor stolen.
    pub busy_s: f64,
    pub steal_s: f64,
    /// Of the kernel's threads for packets that were too many for an interrupt.
    pub ksoftirqd_s: f64,
}

impl CpuTimes {
    /// Reads /proc/stat, of some CPUs or of all.
    pub fn now(cpus: Option<&Cpus>) -> CpuTimes {
        let times = Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default(), cpus);
        let is_softirq = |pid: &i32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let cpu = name.strip_prefix("ksoftirqd/").and_then(|cpu| cpu.trim().parse().ok());
            cpu.is_some_and(|cpu| cpus.is_none_or(|cpus| cpus.0.contains(&cpu)))
        };
        // They are among the first processes that the kernel makes.
        let threads = pids().into_iter().filter(|pid| *pid < KERNEL_PID_MAX).filter(is_softirq).filter_map(Stat::of);
        CpuTimes { ksoftirqd_s: threads.map(|stat| stat.user_s + stat.system_s).sum(), ..times }
    }

    fn parse(text: &str, cpus: Option<&Cpus>) -> CpuTimes {
        let wanted = |name: &str| match cpus {
            None => name == "cpu",
            Some(cpus) => cpus.0.iter().any(|cpu| name.strip_prefix("cpu") == Some(&cpu.to_string())),
        };
        let mut times = CpuTimes::default();
        for line in text.lines() {
            let mut fields = line.split_whitespace();
            if !fields.next().is_some_and(wanted) {
                continue;
            }
            // user nice system idle iowait irq softirq steal; guest times are contained in user and nice.
            let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
            let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
            times.busy_s += at(0) + at(1) + at(2) + at(5) + at(6);
            times.steal_s += at(7);
            times.total_s += (0..8).map(at).sum::<f64>();
        }
        times
    }

    pub fn since(&self, before: &CpuTimes) -> CpuTimes {
        CpuTimes {
            total_s: (self.total_s - before.total_s).max(0.0),
            busy_s: (self.busy_s - before.busy_s).max(0.0),
            steal_s: (self.steal_s - before.steal_s).max(0.0),
            ksoftirqd_s: (self.ksoftirqd_s - before.ksoftirqd_s).max(0.0),
        }
    }

    /// Says by what a span was disturbed, in which the run's own processes used `own_s` seconds of CPU time. What steal and
    /// other programs may take is in percent of the CPUs' time.
    pub fn disturbed(&self, own_s: f64, steal_max: f64, others_max: f64) -> Option<String> {
        let parts = [
            ("steal", self.steal_s, steal_max),
            ("other programs", self.busy_s - own_s - self.ksoftirqd_s, others_max),
        ];
        let over = parts.into_iter().filter_map(|(name, seconds, max)| {
            let percent = if self.total_s > 0.0 { seconds.max(0.0) / self.total_s * 100.0 } else { 0.0 };
            (percent > max).then(|| format!("{name} {percent:.1} %"))
        });
        let by: Vec<String> = over.collect();
        (!by.is_empty()).then(|| by.join(", "))
    }
}

/// Kernel threads of CPU 0 to the last are made before any program; with 1024 CPUs some 10,000 processes.
const KERNEL_PID_MAX: i32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_cpus_count() {
        let text = "cpu  300 0 100 600 0 50 50 100 0 0\ncpu0 100 0 0 300 0 0 0 0 0 0\ncpu1 200 0 100 300 0 50 50 100 0 0\n\
                    cpu10 900 0 0 0 0 0 0 0 0 0\nintr 5\n";
        let all = CpuTimes { total_s: 12.0, busy_s: 5.0, steal_s: 1.0, ksoftirqd_s: 0.0 };
        assert_eq!(CpuTimes::parse(text, None), all);
        let first = CpuTimes { total_s: 4.0, busy_s: 1.0, ..CpuTimes::default() };
        assert_eq!(CpuTimes::parse(text, Some(&Cpus(vec![0]))), first);
        assert_eq!(CpuTimes::parse(text, Some(&Cpus(vec![0, 1]))).total_s, 12.0);
    }

    #[test]
    fn a_run_that_only_its_own_processes_load_is_not_disturbed() {
        let span = CpuTimes { total_s: 10.0, busy_s: 6.0, steal_s: 0.05, ksoftirqd_s: 0.7 };
        assert_eq!(span.disturbed(5.0, 1.0, 5.0), None);
        assert_eq!(CpuTimes::default().disturbed(0.0, 1.0, 5.0), None);
    }

    #[test]
    fn steal_and_other_programs_are_named_with_their_share() {
        let span = CpuTimes { total_s: 10.0, busy_s: 6.0, steal_s: 0.42, ksoftirqd_s: 0.0 };
        assert_eq!(span.disturbed(6.0, 1.0, 5.0).as_deref(), Some("steal 4.2 %"));
        assert_eq!(span.disturbed(5.0, 1.0, 5.0).as_deref(), Some("steal 4.2 %, other programs 10.0 %"));
    }

    #[test]
    fn the_machine_s_time_goes_on() {
        let before = CpuTimes::now(None);
        assert!(before.total_s > 0.0 && before.busy_s > 0.0);
        assert!(CpuTimes::now(None).since(&before).total_s >= 0.0);
    }
}
