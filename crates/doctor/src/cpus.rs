//! Whether each worker has a core, as fast as it can be.

use crate::{Finding, Severity};

/// Looks at the cores' time that the process may have, by the control group that says least (`cpu.max`).
pub fn quota(workers: usize, quota: Option<(f64, String)>) -> Finding {
    let (severity, says, seen, mend) = match quota {
        Some((cores, file)) if cores < workers as f64 => (
            Severity::Warning,
            format!("{workers} workers have the time of {cores:.1} cores, and all stop when that is used up"),
            format!("{file}: {cores:.2} cores"),
            Some(match (cores as usize).max(1) {
                count if count < workers => {
                    format!("set workers.count = {count}, or with systemd: CPUQuota={workers}00%")
                }
                _ => format!("with systemd: CPUQuota={workers}00%; of a container: its runtime's limit of processors"),
            }),
        ),
        Some((cores, file)) => {
            (Severity::Ok, "the quota is large enough".to_owned(), format!("{file}: {cores:.2}"), None)
        }
        None => (Severity::Ok, "no quota holds".to_owned(), "cpu.max: none".to_owned(), None),
    };
    Finding { check: "quota", severity, says, seen, mend }
}

/// Looks at the cores that the process may run on.
pub fn affinity(workers: usize, pins: bool, allowed: &[usize]) -> Finding {
    let list = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let missing = (0..workers).find(|core| !allowed.contains(core));
    let (severity, says, mend) = match missing {
        _ if allowed.len() < workers => (
            Severity::Warning,
            format!("{workers} workers share {} cores", allowed.len()),
            Some(format!("set workers.count = {}", allowed.len())),
        ),
        Some(core) if pins => (
            Severity::Warning,
            format!("workers.pin: core {core} is not among those that the process may run on"),
            Some("set workers.pin = false".to_owned()),
        ),
        _ => (Severity::Ok, "each worker may have a core".to_owned(), None),
    };
    Finding { check: "cores", severity, says, seen: format!("/proc/self/status: Cpus_allowed_list: {list}"), mend }
}

/// Looks at how cores are clocked: by a governor, over a driver. `None`: nobody does.
pub fn governor(found: Option<(String, String, String)>) -> Finding {
    // These drivers leave the choice to the processor, and "powersave" is the name for that.
    let chooses = |driver: &str| ["intel_pstate", "amd-pstate-epp"].contains(&driver);
    let (severity, says, seen, mend) = match found {
        Some((governor, driver, file)) if governor == "powersave" && !chooses(&driver) => (
            Severity::Warning,
            "cores stay at their lowest clock",
            format!("{file}: {governor}, driver {driver}"),
            Some("echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor".to_owned()),
        ),
        Some((governor, driver, file)) => {
            (Severity::Ok, "cores are clocked as they are needed", format!("{file}: {governor}, driver {driver}"), None)
        }
        None => (Severity::Ok, "cores are clocked by the processor", "cpufreq/scaling_governor: none".to_owned(), None),
    };
    Finding { check: "governor", severity, says: says.to_owned(), seen, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_below_the_workers_is_a_warning() {
        let at = |cores: f64| quota(2, Some((cores, "/sys/fs/cgroup/cpu.max".to_owned())));
        assert_eq!(at(1.5).severity, Severity::Warning);
        assert!(at(0.5).mend.is_some_and(|mend| mend.starts_with("set workers.count = 1,")));
        assert_eq!(at(2.0).severity, Severity::Ok);
        assert_eq!(quota(2, None).severity, Severity::Ok);
    }

    #[test]
    fn fewer_cores_than_workers_are_a_warning_and_so_is_one_that_is_pinned_elsewhere() {
        assert_eq!(affinity(2, false, &[0, 1]).severity, Severity::Ok);
        assert_eq!(affinity(2, false, &[1]).severity, Severity::Warning);
        assert_eq!(affinity(2, false, &[2, 3]).severity, Severity::Ok);
        assert_eq!(affinity(2, true, &[2, 3]).severity, Severity::Warning);
    }

    #[test]
    fn powersave_is_slow_unless_the_processor_chooses() {
        let at = |governor: &str, driver: &str| {
            super::governor(Some((governor.to_owned(), driver.to_owned(), "scaling_governor".to_owned()))).severity
        };
        assert_eq!(at("powersave", "acpi-cpufreq"), Severity::Warning);
        assert_eq!(at("powersave", "intel_pstate"), Severity::Ok);
        assert_eq!(at("schedutil", "acpi-cpufreq"), Severity::Ok);
        assert_eq!(super::governor(None).severity, Severity::Ok);
    }
}
