//! The end of a server's life: the first signal drains, the second one ends.

use std::thread::spawn;

use crate::common::{Server, wait_until};
use clap::Parser;
use load::rooms as load;

#[test]
fn the_first_signal_refuses_newcomers_and_the_second_ends_at_once() {
    // Its viewers would stay for longer than anything here takes, and it would wait for them.
    let mut server = Server::start(&["http.drain_timeout=120s"]);
    let url = server.url();
    spawn(move || {
        let words = ["load", "--url", &url, "--subscribers", "2", "--seconds", "120", "--json"];
        // Its server goes away, which is what this test is about.
        load::measure(&load::Args::parse_from(words)).ok();
    });
    let connected = "millrace_sessions{role=\"viewer\",state=\"connected\"} 2";
    wait_until("both viewers are connected", || server.ask("GET", "/metrics", &[], "").body.contains(connected));

    server.terminate();
    wait_until("the server drains", || server.ask("GET", "/healthz", &[], "").status == 503);
    let refused = server.ask("POST", "/whep/load0", &["Content-Type: application/sdp"], "");
    assert_eq!((refused.status, refused.header("retry-after")), (503, "5"));
    let sent = || server.metric("millrace_rooms_packets_out_total");
    let before = sent();
    wait_until("its viewers get more", || sent() > before + 100.0);
    assert!(server.ended().is_none(), "it waits for its viewers");

    server.terminate();
    wait_until("it ends", || server.ended().is_some());
    assert_eq!(server.ended().and_then(|status| status.code()), Some(0));
}

#[test]
fn without_viewers_the_first_signal_ends_it() {
    let mut server = Server::start(&[]);
    server.terminate();
    wait_until("it ends", || server.ended().is_some());
    assert_eq!(server.ended().and_then(|status| status.code()), Some(0));
}
