//! Whether the process may have as many files open as its settings ask for.

use crate::{Files, Finding, Severity};

/// Open files without which workers, titles and HTTP hardly fit.
const LEAST: u64 = 1_024;

/// Looks at the limit up to which the server raises its own, the hard one.
pub fn descriptors(soft: u64, hard: u64, files: Files) -> Finding {
    let Files { needed, wanted } = files;
    let mend = |count: u64| Some(format!("ulimit -n {count}, or with systemd: LimitNOFILE={count}"));
    let (severity, says, mend) = match hard {
        hard if hard < LEAST => {
            (Severity::Fault, format!("{hard} open files are too few to serve with"), mend(needed.max(LEAST)))
        }
        hard if hard < needed => (
            Severity::Warning,
            format!("the settings allow clients who take {needed} open files, and the system allows {hard}"),
            mend(needed),
        ),
        hard if hard < wanted => (
            Severity::Note,
            format!("of {wanted} files that would be open with all the media over TCP that is allowed, {hard} may be"),
            mend(wanted),
        ),
        _ => (Severity::Ok, format!("{wanted} files may be open"), None),
    };
    let seen = format!("getrlimit(RLIMIT_NOFILE): {soft}, up to {hard}");
    Finding { check: "descriptors", severity, says, seen, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_open_files_are_a_warning_and_very_few_a_fault() {
        let at = |soft, hard| descriptors(soft, hard, Files { needed: 12_000, wanted: 50_000 }).severity;
        assert_eq!(at(256, 256), Severity::Fault);
        assert_eq!(at(1_024, 4_096), Severity::Warning);
        assert_eq!(at(1_024, 20_000), Severity::Note);
        assert_eq!(at(1_024, 60_000), Severity::Ok, "the server raises the soft one");
    }
}
