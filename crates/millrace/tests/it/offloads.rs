//! With and without GSO and GRO, the same arrives. The clients are the load generator's, which sends and receives in
//! batches itself.

use crate::common::{Server, kernel_drops};
use clap::Parser;
use load::rooms as load;

#[test]
fn with_gso_and_gro_everything_arrives_and_both_are_used() {
    everything_arrives(true, true);
}

#[test]
fn without_gso_everything_arrives() {
    everything_arrives(false, true);
}

#[test]
fn without_gro_everything_arrives() {
    everything_arrives(true, false);
}

#[test]
fn without_gso_and_gro_everything_arrives() {
    everything_arrives(false, false);
}

fn everything_arrives(gso: bool, gro: bool) {
    let server = Server::start(&[&format!("workers.gso={gso}"), &format!("workers.gro={gro}")]);
    let url = server.url();
    let words =
        ["load", "--url", &url, "--subscribers", "10", "--sample", "1", "--warm-up", "0.5", "--seconds", "2", "--json"];

    let drops_before = kernel_drops();
    let report = load::measure(&load::Args::parse_from(words)).expect("a report");

    assert_eq!((report.viewers, report.failed), (10, 0), "{report:?}");
    assert_eq!((report.damaged, report.duplicates), (0, 0), "{report:?}");
    assert!(report.lost == 0 || kernel_drops() > drops_before, "{report:?}");
    assert!(report.packets > 1_000 && report.decrypted >= report.packets, "{report:?}");
    assert_eq!(server.metric("millrace_worker_gso_sends_total") > 0.0, gso);
    assert_eq!(server.metric("millrace_worker_gro_batches_total") > 0.0, gro);
}
