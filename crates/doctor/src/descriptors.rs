//! Whether the process may have as many files open as its settings ask for.

use crate::{Finding, Severity};

/// Open files without which workers, titles and HTTP hardly fit.
const LEAST: u64 = 1_024;

/// Looks at the limit up to which the server raises its own, the hard one, where `wanted` may be open at once.
pub fn descriptors(soft: u64, hard: u64, wanted: u64) -> Finding {
    let mend = || Some(format!("ulimit -Hn {wanted}; with systemd: LimitNOFILE={wanted}"));
    let (severity, says, mend) = match hard {
        hard if hard < LEAST => (Severity::Fault, format!("{hard} open files are too few to serve with"), mend()),
        hard if hard < wanted => {
            (Severity::Warning, format!("settings allow {wanted} open files, the system {hard}"), mend())
        }
        _ => (Severity::Ok, format!("{wanted} files may be open"), None),
    };
    Finding { check: "descriptors", severity, says, seen: format!("getrlimit(RLIMIT_NOFILE): {soft}, {hard}"), mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_open_files_are_a_warning_and_very_few_a_fault() {
        assert_eq!(descriptors(256, 256, 12_000).severity, Severity::Fault);
        assert_eq!(descriptors(1_024, 4_096, 12_000).severity, Severity::Warning);
        assert_eq!(descriptors(1_024, 20_000, 12_000).severity, Severity::Ok, "the server raises the soft one");
    }
}
