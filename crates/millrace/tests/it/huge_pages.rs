//! The heap lies in huge pages where the kernel gives them to those who ask: the allocator has to be built to.

use crate::common::Server;
use crate::skip::skip;

#[test]
fn the_heap_asks_for_huge_pages() {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !mode.contains("[madvise]") {
        return skip("huge pages: the kernel gives them to all, or to nobody");
    }
    let server = Server::start(&[]);
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", server.pid())).expect("what the server has mapped");
    let mut flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    assert!(flags.any(|flags| flags.split(' ').any(|flag| flag == "hg")), "nothing was asked for (madvise(2))");
}
