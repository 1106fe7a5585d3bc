//! Joins are traced, where there is a collector for that, and it harms nobody.

use std::fs;

use clap::Parser as _;
use load::rooms as load;
use opentelemetry_proto::tonic::trace::v1::Status;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::Value;
use webrtc::{Context, Direction, OfferOptions, Peer};
use wire::codec::Codec;

use crate::common::{Client, Collector, Publisher, Server, Trace, Viewer, Way, free_addr, said, wait_until};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN_ID: &str = "00f067aa0ba902b7";

#[test]
fn a_join_is_one_span_and_its_phases_follow_each_other_within_it() {
    let collector = Collector::start();
    let settings = ["traces.service_name=edge", "traces.headers=X-Scope-OrgID: 7"];
    let server = traced(&collector.url, &settings);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = watch(&server, "news", &[&format!("traceparent: 00-{TRACE_ID}-{SPAN_ID}-01"), "User-Agent: test"]);
    wait_until("both are told of", || {
        publisher.listen();
        viewer.pump();
        collector.traces().len() == 2
    });

    let traces = collector.traces();
    let [of_publisher, of_viewer] = ["WHIP join", "WHEP join"].map(|name| find(&traces, name));
    for trace in [of_publisher, of_viewer] {
        let Trace { join, phases } = trace;
        assert_eq!(trace.phases(), ["offer", "answer", "ice", "dtls"]);
        assert!(phases.iter().all(|phase| phase.trace_id == join.trace_id && phase.status == Some(Status::default())));
        let ends = phases.iter().map(|phase| phase.end_time_unix_nano);
        let begins = phases.iter().map(|phase| phase.start_time_unix_nano);
        assert!(begins.clone().skip(1).eq(ends.clone().take(3)), "{phases:?}");
        assert_eq!((begins.min(), ends.max()), (Some(join.start_time_unix_nano), Some(join.end_time_unix_nano)));
        assert_eq!((join.kind(), &join.status), (SpanKind::Server, &Some(Status::default())));
        let ice = &phases[2];
        assert_eq!(ice.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["first check"]);
        let check = ice.events[0].time_unix_nano;
        assert!((ice.start_time_unix_nano..=ice.end_time_unix_nano).contains(&check));
    }
    assert!(of_publisher.join.parent_span_id.is_empty(), "it belongs to nobody's trace");
    let ids = [&of_viewer.join.trace_id, &of_viewer.join.parent_span_id].map(|id| hex(id));
    assert_eq!(ids, [TRACE_ID, SPAN_ID]);
    let sessions: Value = serde_json::from_str(&server.ask("GET", "/api/sessions", &[], "").body).expect("JSON");
    let session = sessions.as_array().and_then(|all| all.iter().find(|session| session["role"] == "viewer"));
    let session = session.and_then(|session| session["id"].as_str()).expect("it is there");
    let expected = [
        ("client.address", "127.0.0.1"),
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("http.route", "/whep/{stream}"),
        ("millrace.join.outcome", "connected"),
        ("millrace.stream", "news"),
        ("session.id", session),
        ("user_agent.original", "test"),
    ];
    assert_eq!(of_viewer.said(), expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());

    assert!(collector.resources().iter().all(|resource| resource["service.name"] == "edge"));
    let head = collector.head();
    for line in ["post /v1/traces http/1.1", "content-type: application/x-protobuf", "x-scope-orgid: 7"] {
        assert!(head.lines().any(|found| found == line), "{line} is not in {head}");
    }
    wait_until("they are counted", || server.metric("millrace_traces_spans_sent_total") == 10.0);
    assert_eq!(server.metric("millrace_traces_spans_dropped_total"), 0.0);
}

#[test]
fn a_join_that_fails_says_why() {
    let collector = Collector::start();
    let server = traced(&collector.url, &[]);
    let refused = server.ask("POST", "/whep/nothing", &["Content-Type: application/sdp"], &offer());
    assert_eq!(refused.status, 404);
    let _publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let answered = server.ask("POST", "/whep/news", &["Content-Type: application/sdp"], &offer());
    assert_eq!(answered.status, 201, "{}", answered.body);
    assert_eq!(server.ask("DELETE", &answered.location("/whep/news"), &[], "").status, 200);
    wait_until("all are told of", || collector.traces().len() == 3);

    let traces = collector.traces();
    let of = |stream: &str| {
        let found =
            traces.iter().find(|trace| trace.join.name == "WHEP join" && trace.said()["millrace.stream"] == stream);
        found.expect("it is traced")
    };
    let (refused, left) = (of("nothing"), of("news"));
    assert_eq!((refused.phases(), left.phases()), (vec!["offer", "answer"], vec!["offer", "answer", "ice"]));
    for (trace, kind, outcome, why) in
        [(refused, "404", "refused", "nobody publishes"), (left, "asked", "asked", "before it was connected")]
    {
        let last = trace.phases.last().expect("a phase");
        for span in [&trace.join, last] {
            let status = span.status.as_ref().expect("a status");
            assert!(status.code() == StatusCode::Error && status.message.contains(why), "{status:?}");
            assert_eq!(said(&span.attributes)["error.type"], kind);
        }
        assert_eq!(trace.said()["millrace.join.outcome"], outcome);
        let before = &trace.phases[..trace.phases.len() - 1];
        assert!(before.iter().all(|phase| phase.status == Some(Status::default())));
        assert_eq!(last.end_time_unix_nano, trace.join.end_time_unix_nano);
    }
}

#[test]
fn who_says_whether_it_is_traced_is_heard_and_what_waits_at_the_end_is_sent() {
    let collector = Collector::start();
    let mut server = traced(&collector.url, &["traces.sample=0", "http.drain_timeout=0s"]);
    let _publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let parent = |flags: &str| format!("traceparent: 00-{TRACE_ID}-{SPAN_ID}-{flags}");
    let _not = watch(&server, "news", &[&parent("00")]);
    let _garbled = watch(&server, "news", &["traceparent: 00-nonsense"]);
    let _traced = watch(&server, "news", &[&parent("01")]);
    let refused = server.ask("POST", "/whep/nothing", &[&parent("01"), "Content-Type: application/sdp"], &offer());
    assert_eq!(refused.status, 404);
    server.terminate();
    wait_until("it has ended", || server.ended().is_some());

    let traces = collector.traces();
    assert_eq!(
        traces.iter().map(|trace| trace.said()["millrace.stream"].clone()).collect::<Vec<_>>(),
        ["news", "nothing"]
    );
    assert!(traces.iter().all(|trace| hex(&trace.join.trace_id) == TRACE_ID));
}

#[test]
fn a_join_by_livekit_s_protocol_is_traced_until_its_client_is_connected() {
    let collector = Collector::start();
    let server = traced(&collector.url, &[]);
    let url = server.url();
    let words = ["load", "--livekit", "--api-key", "devkey", "--api-secret", "secret", "--url", &url, "--json"];
    let few = ["--publishers", "1", "--subscribers", "1", "--warm-up", "0", "--seconds", "1"];
    load::measure(&load::Args::parse_from(words.iter().chain(&few))).expect("a report");
    let forged = words.map(|word| if word == "secret" { "another" } else { word });
    load::measure(&load::Args::parse_from(forged.iter().chain(&few))).expect_err("another secret");
    wait_until("all are told of", || collector.traces().len() >= 3);

    let traces = collector.traces();
    let (well, refused): (Vec<_>, Vec<_>) = traces.iter().partition(|trace| trace.phases.len() > 1);
    assert_eq!(well.len(), 2);
    for trace in well {
        assert_eq!(
            (trace.join.name.as_str(), trace.phases()),
            ("LiveKit join", vec!["admit", "describe", "ice", "dtls"])
        );
        assert_eq!(
            (&trace.said()["millrace.join.outcome"][..], &trace.join.status),
            ("connected", &Some(Status::default()))
        );
        assert!(!trace.said()["millrace.room"].is_empty() && !trace.said()["session.id"].is_empty());
    }
    assert_eq!((refused[0].phases(), &refused[0].said()["error.type"][..]), (vec!["admit"], "401"));
}

#[test]
fn who_comes_into_a_room_by_whip_and_whep_is_traced_too() {
    let collector = Collector::start();
    let server = traced(&collector.url, &[]);
    let mut publisher = Publisher::join(&server, "meeting/camera", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "meeting/camera", Way::Udp4);
    wait_until("both are told of", || {
        publisher.listen();
        viewer.pump();
        collector.traces().len() == 2
    });
    for trace in collector.traces() {
        assert_eq!(trace.phases(), ["offer", "answer", "ice", "dtls"]);
        assert_eq!(trace.said()["millrace.room"], "meeting");
        assert!(trace.said()["http.route"].ends_with("/{room}/{identity}"));
    }
}

#[test]
fn a_collector_that_is_down_or_talks_nonsense_harms_nobody_and_is_told_of_once() {
    let nonsense = Collector::answering("these are not the spans\r\n\r\n");
    for url in [format!("http://{}", free_addr()), nonsense.url.clone()] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let settings = [&format!("traces.endpoint={url}"), "log.filter=error,server=info"];
        let server = Server::start_with_files_and_log(1_024, &log, &settings.map(|setting| setting as &str));
        let lines =
            |what: &str| fs::read_to_string(&log).expect("text").lines().filter(|line| line.contains(what)).count();
        let dropped = || server.metric("millrace_traces_spans_dropped_total");
        let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
        wait_until("its spans are given up", || dropped() == 5.0);
        let mut viewer = Viewer::join(&server, "news", Way::Udp4);
        publisher.play(&mut [&mut viewer], 50);
        publisher.finish(&mut [&mut viewer]);
        viewer.assert_whole(0, &publisher);
        wait_until("its spans are given up, too", || dropped() == 10.0);
        assert_eq!(lines("the collector of traces"), 1);
    }
    let requests = nonsense.requests();
    assert!(requests >= 6 && requests.is_multiple_of(3), "each is sent three times: {requests}");
}

#[test]
fn a_collector_that_was_down_gets_what_comes_when_it_is_back() {
    let collector = Collector::answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let settings = [&format!("traces.endpoint={}", collector.url), "log.filter=error,server=info"];
    let server = Server::start_with_files_and_log(1_024, &log, &settings.map(|setting| setting as &str));
    let has_said = |what: &str| fs::read_to_string(&log).expect("text").contains(what);
    let _publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    wait_until("its spans are dropped", || server.metric("millrace_traces_spans_dropped_total") == 5.0);
    assert!(has_said("the collector of traces does not take them"));

    collector.mend();
    let _viewer = Viewer::join(&server, "news", Way::Udp4);
    wait_until("it is told of", || !collector.traces().is_empty());
    wait_until("the log says so", || has_said("the collector of traces takes them again"));
    assert_eq!(collector.traces().iter().map(|trace| trace.join.name.clone()).collect::<Vec<_>>(), ["WHEP join"]);
}

#[test]
fn without_a_collector_there_is_no_thread_for_it() {
    let collector = Collector::start();
    for (server, threads) in [(Server::start(&[]), 0), (traced(&collector.url, &[]), 1)] {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
        let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        assert_eq!(names.filter(|name| name.starts_with("OpenTelemetry")).count(), threads);
    }
}

fn traced(url: &str, settings: &[&str]) -> Server {
    let endpoint = format!("traces.endpoint={url}");
    Server::start(&[&[endpoint.as_str()], settings].concat())
}

/// A viewer whose request has these lines in its head, too.
fn watch(server: &Server, stream: &str, headers: &[&str]) -> Client {
    Client::join_with(server, &format!("/whep/{stream}"), Way::Udp4, &to_watch(), headers)
}

fn to_watch() -> OfferOptions<'static> {
    OfferOptions {
        direction: Direction::Receive,
        audio: false,
        video: &[Codec::Vp8],
        rids: &[],
        stream: "",
        tcp: false,
    }
}

fn offer() -> String {
    let context = Context::new().expect("a certificate");
    Peer::offer(&context, std::time::Instant::now(), &to_watch()).expect("an offer").1
}

fn find<'a>(traces: &'a [Trace], name: &str) -> &'a Trace {
    traces.iter().find(|trace| trace.join.name == name).expect("it is traced")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
