//! `millrace load rooms --livekit`: publishers and viewers of one room, by LiveKit's signalling.

use crate::common::{Server, kernel_drops, wait_until};
use clap::Parser;
use load::rooms as load;

const JOIN: [&str; 6] = ["load", "--livekit", "--api-key", "devkey", "--api-secret", "secret"];

#[test]
fn each_viewer_gets_every_packet_of_every_publisher() {
    let server = Server::start(&[]);
    let url = server.url();
    let words = ["--url", &url, "--publishers", "3", "--subscribers", "8", "--bitrate", "300k", "--json"];
    let checked = ["--sample", "1", "--warm-up", "0", "--seconds", "2"];

    let drops_before = kernel_drops();
    let report = measure(&[&words[..], &checked].concat()).expect("a report");

    assert_eq!((report.publishers, report.viewers, report.failed), (3, 8, 0), "{report:?}");
    assert_eq!((report.silent, report.damaged), (0, 0), "{report:?}");
    assert!(report.lost == 0 || kernel_drops() > drops_before, "{report:?}");
    assert_eq!(report.decrypted, report.packets, "{report:?}");
    wait_until("nothing is left of those who left", || {
        ["millrace_rooms_sessions", "millrace_rooms_streams", "millrace_livekit_participants"]
            .iter()
            .all(|gauge| server.metric(gauge) == 0.0)
    });
}

#[test]
fn a_publisher_with_layers_is_watched_by_those_who_come_while_others_watch() {
    let server = Server::start(&[]);
    let url = server.url().replace("http://", "ws://");
    let words = ["--url", &url, "--simulcast", "--subscribers", "3", "--joiners", "4", "--join-rate", "10", "--json"];
    let checked = ["--sample", "1", "--warm-up", "0", "--seconds", "3"];

    let report = measure(&[&words[..], &checked].concat()).expect("a report");

    assert_eq!((report.publishers, report.viewers, report.failed), (1, 7, 0), "{report:?}");
    assert_eq!((report.silent, report.damaged), (0, 0), "{report:?}");
}

#[test]
fn who_has_no_key_of_the_server_is_told_so() {
    let server = Server::start(&["livekit.keys=other:a secret that nobody here knows"]);
    let error = measure(&["--url", &server.url(), "--json"]).expect_err("another key");
    assert!(format!("{error:#}").contains("401"), "{error:#}");
}

fn measure(words: &[&str]) -> anyhow::Result<load::Report> {
    load::measure(&load::Args::parse_from(JOIN.iter().chain(words)))
}
