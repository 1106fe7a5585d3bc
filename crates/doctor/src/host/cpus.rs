//! How much of the processor the process may have.

use std::path::Path;

use super::{list, number, text};

/// The least quota of the control groups that the process is in, in cores, and the file that says so.
pub fn quota() -> Option<(f64, String)> {
    let groups = text("/proc/self/cgroup")?;
    let quotas = groups.lines().flat_map(folders).filter_map(|folder| of_folder(&folder));
    quotas.min_by(|one, other| one.0.total_cmp(&other.0))
}

/// The folders of a control group and of those above it, by a line of `/proc/self/cgroup`, where they have to do with CPUs.
fn folders(line: &str) -> Vec<String> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let roots: &[&str] = match controllers {
        "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
        _ if controllers.split(',').any(|name| name == "cpu") => &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"],
        _ => &[],
    };
    let below = |root: &&str| {
        let all = Path::new(path).ancestors().map(move |path| format!("{root}{}", path.display()));
        all.map(|folder| folder.trim_end_matches('/').to_owned()).collect::<Vec<_>>()
    };
    roots.iter().flat_map(below).collect()
}

fn of_folder(folder: &str) -> Option<(f64, String)> {
    let (v2, v1) = (format!("{folder}/cpu.max"), format!("{folder}/cpu.cfs_quota_us"));
    if let Some(text) = text(&v2) {
        return Some((of_max(&text)?, v2));
    }
    // -1 is no quota.
    let (quota, period) = (number(&v1)?, number(&format!("{folder}/cpu.cfs_period_us"))?);
    Some((quota as f64 / period as f64, v1))
}

/// "150000 100000" is one and a half.
fn of_max(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

/// The cores that the process may run on.
pub fn allowed() -> Option<Vec<usize>> {
    let status = text("/proc/self/status")?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list(cpus.trim())).filter(|cpus| !cpus.is_empty())
}

/// How the first of these cores is clocked: its governor, and the driver below that.
pub fn governor(cpus: &[usize]) -> Option<(String, String, String)> {
    let folder = format!("/sys/devices/system/cpu/cpu{}/cpufreq", cpus.first()?);
    let file = format!("{folder}/scaling_governor");
    Some((text(&file)?, text(&format!("{folder}/scaling_driver"))?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_looked_for_in_all_groups_above() {
        assert_eq!(
            folders("0::/a/b")[..3],
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(str::to_owned)
        );
        assert!(folders("1:cpu,cpuacct:/x").contains(&"/sys/fs/cgroup/cpu/x".to_owned()));
        assert!(folders("5:devices:/").is_empty());
    }

    #[test]
    fn a_quota_is_a_share_of_time() {
        assert_eq!(of_max("150000 100000"), Some(1.5));
        assert_eq!(of_max("max 100000"), None);
    }
}
