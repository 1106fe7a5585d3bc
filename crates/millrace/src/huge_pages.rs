//! Huge pages for the heap.
//!
//! Each viewer's state lies in a few places of its own, and each frame visits all of them for all viewers: with pages of
//! 4 KiB the processor's table of addresses (TLB) is too small from some hundred viewers on. Pages of 2 MiB save a tenth
//! of all CPU time at 2,000 viewers. glibc asks for them when it is told to before the process starts, and only then.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE_PAGES: &str = "glibc.malloc.hugetlb";
const MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Starts this program again in its place, with huge pages, where the kernel gives them to those who ask. Returns when
/// it does not, when they are asked for already (or `glibc.malloc.hugetlb=0` declines them), or when that fails.
pub fn ask_for() {
    let is_offered = std::fs::read_to_string(MODE).is_ok_and(|mode| mode.contains("[madvise]"));
    let tunables = std::env::var_os(TUNABLES).unwrap_or_default();
    let (true, Some(tunables)) = (is_offered, with_huge_pages(tunables)) else { return };
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let error = Command::new(program).arg0(name).args(arguments).env(TUNABLES, tunables).exec();
    eprintln!("millrace: note: no huge pages: {error}");
}

/// `None` when they say something about huge pages already.
fn with_huge_pages(mut tunables: OsString) -> Option<OsString> {
    if tunables.to_string_lossy().contains(HUGE_PAGES) {
        return None;
    }
    if !tunables.is_empty() {
        tunables.push(":");
    }
    tunables.push(format!("{HUGE_PAGES}=1"));
    Some(tunables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_already_stays() {
        let of = |before: &str| with_huge_pages(before.into()).map(|after| after.into_string().unwrap());
        assert_eq!(of("").as_deref(), Some("glibc.malloc.hugetlb=1"));
        assert_eq!(of("glibc.malloc.check=1").as_deref(), Some("glibc.malloc.check=1:glibc.malloc.hugetlb=1"));
        assert_eq!(of("glibc.malloc.hugetlb=0"), None);
    }
}
