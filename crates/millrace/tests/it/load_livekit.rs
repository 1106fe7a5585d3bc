//! `millrace load rooms --livekit`: publishers and viewers of one room, by LiveKit's signalling.

use crate::common::{Server, Service, kernel_drops, wait_until};
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
fn of_many_microphones_the_loudest_are_heard_where_so_many_are_asked_for() {
    let words = ["--microphones", "--publishers", "30", "--subscribers", "2", "--speakers", "2", "--json"];
    let checked = ["--sample", "1", "--warm-up", "0", "--seconds", "1"];
    let server = Server::start(&["livekit.loudest=2"]);
    let report = measure(&[&["--url", &server.url()], &words[..], &checked].concat()).expect("a report");
    assert_eq!((report.publishers, report.viewers, report.failed, report.damaged), (30, 2, 0, 0), "{report:?}");
    // Somebody else begins to speak each two seconds: it takes a minute until all were heard.
    assert!(report.packets > 0 && report.silent > 0, "{report:?}");
    let [asked, not] = [true, false].map(|may_be_silent| load::Limits { may_be_silent, ..load::Limits::default() });
    assert_eq!((report.failures(&asked).len(), report.failures(&not).len()), (0, 1), "{report:?}");
}

#[test]
fn the_log_says_who_came_published_and_left_to_those_who_ask_for_it_and_who_was_refused_to_all() {
    for (filter, says_names) in [("info", false), ("info,server::livekit=debug", true)] {
        let server = Service::start(&[&format!("log.filter={filter}")]);
        let url = format!("http://{}", server.addr);
        let words = ["--url", &url, "--subscribers", "1", "--warm-up", "0", "--seconds", "1", "--json"];
        measure(&words).expect("a report");
        let forged = ["load", "--livekit", "--api-key", "devkey", "--api-secret", "another"];
        load::measure(&load::Args::parse_from(forged.iter().chain(&words))).expect_err("another secret");

        wait_until("who was refused is told of", || server.has_said("a request of LiveKit's protocol is refused"));
        let events = ["room_started", "participant_joined", "track_published", "track_unpublished", "participant_left"];
        let all = || events.iter().all(|event| server.has_said(&format!("event={event} room=")));
        match says_names {
            true => wait_until("all of it is told", all),
            false => assert!(!events.iter().any(|event| server.has_said(event))),
        }
    }
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
fn a_room_is_filled_until_something_is_not_held_that_was_asked_for() {
    let server = Server::start(&[]);
    let url = server.url();
    let words = ["--url", &url, "--fill", "2", "--subscribers", "4", "--bitrate", "300k", "--warm-up", "0", "--json"];
    let fill = |limits: &[&str]| {
        let args = args(&[&words[..], &["--sample", "1", "--seconds", "1"], limits].concat());
        load::fill(&args, args.fill.expect("so many at a time")).expect("what became of it")
    };

    let filled = fill(&["--max-loss", "1", "--max-p99", "20000", "--max-frozen", "1"]);
    assert_eq!((filled.well, filled.broke_at, filled.broke.len()), (4, None, 0), "{filled:?}");
    assert_eq!(filled.steps.iter().map(|step| step.viewers).collect::<Vec<_>>(), [2, 4]);

    let filled = fill(&["--max-p99", "0"]);
    assert_eq!((filled.well, filled.broke_at, filled.steps.len()), (0, Some(2), 1), "{filled:?}");
    assert!(filled.broke[0].contains("--max-p99"), "{filled:?}");
}

#[test]
fn who_has_no_key_of_the_server_is_told_so() {
    let server = Server::start(&["livekit.keys=other:a secret that nobody here knows"]);
    let error = measure(&["--url", &server.url(), "--json"]).expect_err("another key");
    assert!(format!("{error:#}").contains("401"), "{error:#}");
}

fn measure(words: &[&str]) -> anyhow::Result<load::Report> {
    load::measure(&args(words))
}

fn args(words: &[&str]) -> load::Args {
    load::Args::parse_from(JOIN.iter().chain(words))
}
