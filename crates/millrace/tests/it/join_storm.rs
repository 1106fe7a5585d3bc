//! A hundred viewers who join at once cost those who watch already no packet.

use crate::common::{Server, kernel_drops, wait_until};
use clap::Parser;
use load::rooms as load;

#[test]
fn a_hundred_joins_at_once_lose_no_packet_of_the_hundred_who_watch() {
    let server = Server::start(&[]);
    let url = server.url();
    let words = ["load", "--url", &url, "--subscribers", "100", "--joiners", "100", "--join-rate", "1000", "--json"];
    // Long enough for the handshakes of all on a busy machine.
    let quiet = ["--publishers", "3", "--bitrate", "300k", "--sample", "0.2", "--warm-up", "1", "--seconds", "10"];

    let drops_before = kernel_drops();
    let report = load::measure(&load::Args::parse_from(words.iter().chain(&quiet))).expect("a report");

    assert_eq!((report.viewers, report.failed), (200, 0), "{report:?}");
    assert!(report.lost == 0 || kernel_drops() > drops_before, "{report:?}");
    assert_eq!(report.damaged, 0, "{report:?}");
    assert!(report.viewer_kbps[0] > 0.0, "everybody got something: {report:?}");
    wait_until("nothing is left of those who left", || {
        ["millrace_rooms_sessions", "millrace_rooms_streams", "millrace_handshake_handshakes"]
            .iter()
            .all(|gauge| server.metric(gauge) == 0.0)
    });
}

#[test]
fn a_load_of_which_a_join_fails_leaves_no_session_behind() {
    let server = Server::start(&[]);
    let url = server.url();
    // With "-10" behind it, it is one byte too long.
    let name = "x".repeat(62);
    let words = ["load", "--url", &url, "--publishers", "11", "--name", &name, "--bitrate", "100k", "--json"];

    let error = load::measure(&load::Args::parse_from(words)).expect_err("the last has no good name");

    assert!(format!("{error:#}").contains(": 400: "), "{error:#}");
    // Those that only fall silent are kept for longer than a test waits.
    wait_until("nothing is left of them", || {
        ["millrace_rooms_sessions", "millrace_handshake_sessions"].iter().all(|gauge| server.metric(gauge) == 0.0)
    });
}

#[test]
fn who_comes_and_goes_costs_those_who_stay_no_packet() {
    let server = Server::start(&[]);
    let url = server.url();
    // Long enough for the handshake of who stays, on a busy machine.
    let words = ["load", "--url", &url, "--subscribers", "20", "--joiners", "40", "--stay", "3", "--json"];
    let quiet = ["--join-rate", "100", "--bitrate", "300k", "--sample", "1", "--warm-up", "1", "--seconds", "2"];

    let drops_before = kernel_drops();
    let report = load::measure(&load::Args::parse_from(words.iter().chain(&quiet))).expect("a report");

    assert_eq!((report.viewers, report.failed), (60, 0), "{report:?}");
    assert!(report.lost == 0 || kernel_drops() > drops_before, "{report:?}");
    assert_eq!(report.damaged, 0, "{report:?}");
    wait_until("nothing is left of those who left", || server.metric("millrace_rooms_sessions") == 0.0);
}
