//! The pump as clients and receivers meet it: real workers and sockets, and the HTTP API without one.

mod change;
pub mod harness;
mod limits;
mod live;
mod source;

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use harness::{Harness, Receiver, assert_continues, eventually, nowhere, packets};
use serde_json::{Value, json};
use wire::ts::PACKET_LEN;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_packet_of_a_title_arrives_and_none_before_its_time() {
    let test = Harness::start(|_| {});
    let title = test.title("a.ts", 75);
    for scheme in ["udp", "rtp"] {
        let receiver = Receiver::bind();
        let asked = Instant::now();
        let id = test.open(json!({"title": "a.ts", "destination": receiver.url(scheme), "burst": 1})).await;
        let received = receiver.until_quiet_after(title.len() / PACKET_LEN);

        assert_eq!(packets(&received), harness::padded(&title), "{scheme}");
        let count = received.len() as u32;
        for (index, (at, _)) in received.iter().enumerate() {
            let due = Duration::from_secs(3) * index as u32 / count;
            let passed = at.duration_since(asked) + Duration::from_millis(60);
            assert!(passed >= due, "datagram {index} of {count} came after {passed:?}");
        }
        let ended = test.until_ended(id).await;
        assert_eq!((&ended["state"], &ended["reason"]), (&json!("ended"), &json!("all was sent")));
        assert_eq!(ended["statistics"]["datagrams"], json!(count));
        assert_eq!(ended["statistics"]["underruns"], json!(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_pauses_goes_on_seeks_and_stops_when_told() {
    let test = Harness::start(|_| {});
    test.title("long.ts", 1_000);
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "long.ts", "destination": receiver.url("udp")})).await;
    let mut received = receiver.take(100);

    assert_eq!(test.patch(id, json!({"paused": true})).await, StatusCode::OK);
    let paused = test.until(id, |session| session["statistics"]["activity"] == "paused").await;
    received.extend(receiver.take_what_is_there());
    assert_eq!(received.len() as u64, paused["statistics"]["datagrams"].as_u64().expect("a count"));
    assert!(receiver.take_what_is_there().is_empty(), "nothing is sent while it is paused");

    assert_eq!(test.patch(id, json!({"seek": 30, "paused": false})).await, StatusCode::OK);
    received.extend(receiver.take(100));
    let playing = test.get(id).await;
    let position = playing["position"].as_f64().expect("a position");
    assert!((29.0..39.9).contains(&position), "{position}");
    assert_continues(&packets(&received));

    assert_eq!(test.delete(id).await, StatusCode::NO_CONTENT);
    let ended = test.until_ended(id).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("ended"), &json!("closed")));
    assert_eq!(test.delete(id).await, StatusCode::CONFLICT);
    assert_eq!(test.patch(id, json!({"paused": true})).await, StatusCode::CONFLICT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_goes_on_without_a_gap_until_it_is_stopped() {
    let test = Harness::start(|_| {});
    let title = test.title("short.ts", 25);
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "short.ts", "destination": receiver.url("udp"), "loop": true})).await;
    let received = receiver.take(title.len() / PACKET_LEN / 7 * 5 / 2);

    assert_continues(&packets(&received));
    assert_eq!(test.delete(id).await, StatusCode::NO_CONTENT);
    test.until_ended(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_of_a_title_is_sent_when_that_is_asked_for() {
    let test = Harness::start(|_| {});
    let title = test.title("part.ts", 500);
    let receiver = Receiver::bind();
    let request = json!({"title": "part.ts", "destination": receiver.url("udp"), "start": 10, "end": 11});
    let id = test.open(request).await;
    let ended = test.until_ended(id).await;
    let received = packets(&receiver.take_what_is_there());

    let start = title.windows(7 * PACKET_LEN).step_by(PACKET_LEN).position(|part| received.starts_with(part));
    let seconds = start.expect("it is of the title") as f64 * 20.0 / (title.len() / PACKET_LEN) as f64;
    assert!((9.0..=10.1).contains(&seconds), "the picture before 10 s, not {seconds}");
    assert!((10.5..=11.5).contains(&ended["position"].as_f64().expect("a position")), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_part_makes_nobody_else_late() {
    let test = Harness::start(|_| {});
    let title = test.title("fine.ts", 100);
    test.origin_title("slow.ts", title.clone(), 2);
    let (slow, fine) = (Receiver::bind(), Receiver::bind());
    let late = test.open(json!({"title": "slow.ts", "destination": slow.url("udp")})).await;
    let others = test.open(json!({"title": "fine.ts", "destination": fine.url("udp")})).await;

    let ended = test.until_ended(others).await;
    assert_eq!((&ended["statistics"]["underruns"], &ended["reason"]), (&json!(0), &json!("all was sent")));
    let starved = test.until(late, |session| session["statistics"]["activity"] == "starved").await;
    assert!(starved["statistics"]["underruns"].as_u64() >= Some(1), "{starved}");

    test.release_origin();
    let ended = test.until_ended(late).await;
    assert_eq!(ended["reason"], json!("all was sent"));
    assert_eq!(packets(&fine.take_what_is_there()), harness::padded(&title));
    // The clock goes on behind the gap, so references differ; everything else is there.
    let received = packets(&slow.take_what_is_there());
    assert_eq!(received.len(), harness::padded(&title).len(), "{ended}\n{}", test.metrics().await);
    assert_continues(&received);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_would_wait_too_long_for_an_origin_is_told_to_try_again() {
    let test = Harness::start(|settings| settings.read_timeout = Duration::from_millis(300));
    let title = test.title("fine.ts", 500);
    test.origin_title("slow.ts", title, 2);
    let receiver = Receiver::bind();
    let open = |start: u32| {
        json!({"title": "slow.ts", "destination": receiver.url("udp"), "start": start, "paused": true}).to_string()
    };
    // A busy machine may need more than one try.
    let is_opened = |start| {
        let test = &test;
        async move { test.send("POST", "/pump/sessions", &open(start)).await.status == StatusCode::CREATED }
    };
    eventually("its beginning is there", || is_opened(0)).await;
    let id =
        test.send("GET", "/pump/sessions", "").await.body[0]["id"].as_str().expect("an id").parse().expect("a number");

    let refused = test.send("POST", "/pump/sessions", &open(15)).await;
    assert_eq!((refused.status, refused.retry_after.as_deref()), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
    assert_eq!(test.patch(id, json!({"seek": 15})).await, StatusCode::SERVICE_UNAVAILABLE);
    test.release_origin();
    eventually("all of it is there", || is_opened(15)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_fails_for_a_while_costs_no_packet() {
    let test = Harness::start(|_| {});
    let title = test.title("whole.ts", 100);
    test.origin_title("fails.ts", title.clone(), 4);
    test.fail_origin(Some(StatusCode::SERVICE_UNAVAILABLE));
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "fails.ts", "destination": receiver.url("udp")})).await;
    // On a busy machine it may have been starved before.
    let there = json!(4 * harness::CHUNK_PACKETS);
    let is_starved =
        |session: &Value| session["statistics"]["activity"] == "starved" && session["statistics"]["packet"] == there;
    let starved = test.until(id, |session| is_starved(session) && session["trouble"].is_object()).await;
    assert!(starved["trouble"]["error"].as_str().is_some_and(|error| error.contains("503")), "{starved}");
    eventually("the session is counted as starved", || async {
        let metrics = test.metrics().await;
        let starved = metrics.lines().filter(|line| line.starts_with("millrace_pump_worker_starved{"));
        !metrics.contains("millrace_library_troubles_total 0")
            && starved.filter(|line| line.ends_with(" 1")).count() == 1
    })
    .await;

    test.release_origin();
    test.fail_origin(None);
    let ended = test.until_ended(id).await;
    assert_eq!((&ended["reason"], &ended["trouble"]), (&json!("all was sent"), &json!(null)));
    assert_eq!(ended["statistics"]["lost_packets"], json!(0));
    assert!(ended["statistics"]["underruns"].as_u64() >= Some(1), "{ended}");
    let received = packets(&receiver.take_what_is_there());
    assert_eq!(received.len(), harness::padded(&title).len());
    assert_continues(&received);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_waits_for_its_title_as_long_as_it_says() {
    let test = Harness::start(|_| {});
    let title = test.title("whole.ts", 250);
    test.origin_title("dead.ts", title, 2);
    test.fail_origin(Some(StatusCode::INTERNAL_SERVER_ERROR));
    let receiver = Receiver::bind();
    let request = json!({"title": "dead.ts", "destination": receiver.url("udp"), "starved_timeout": 1});
    let ended = test.until_ended(test.open(request).await).await;
    let reason = ended["reason"].as_str().expect("a reason");
    assert!(reason.contains("starved_timeout") && reason.contains("500"), "{ended}");
    assert_eq!(ended["statistics"]["packet"], json!(2 * harness::CHUNK_PACKETS), "what was there is sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_there_of_a_title_that_is_gone_is_sent_once() {
    let test = Harness::start(|_| {});
    let title = test.title("whole.ts", 250);
    test.origin_title("gone.ts", title.clone(), 4);
    test.fail_origin(Some(StatusCode::NOT_FOUND));
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "gone.ts", "destination": receiver.url("udp"), "loop": true})).await;
    let ended = test.until_ended(id).await;
    assert!(ended["reason"].as_str().is_some_and(|reason| reason.contains("404")), "{ended}");
    let received = packets(&receiver.take_what_is_there());
    assert_eq!(received, &title[..4 * harness::CHUNK_PACKETS * PACKET_LEN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_destination_refuses_ends_and_others_go_on() {
    let test = Harness::start(|settings| settings.limits.refused_timeout = Some(Duration::from_millis(300)));
    let title = test.title("a.ts", 100);
    let fine = Receiver::bind();
    let (_kept, nowhere) = nowhere();
    let id = test.open(json!({"title": "a.ts", "destination": nowhere, "loop": true})).await;
    test.open(json!({"title": "a.ts", "destination": fine.url("udp")})).await;

    let ended = test.until_ended(id).await;
    assert_eq!(ended["reason"], json!("nobody listens at the destination"));
    let received = fine.until_quiet_after(title.len() / PACKET_LEN);
    assert_eq!(packets(&received), harness::padded(&title), "no datagram fell to another's refusal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_sessions_are_taken_than_there_is_bandwidth_for() {
    let test = Harness::start(|settings| settings.limits.bandwidth_max = wire::Bitrate::from_kbps(5_000));
    test.title("a.ts", 250);
    let receiver = Receiver::bind();
    let request = json!({"title": "a.ts", "destination": receiver.url("udp")});
    let (first, _second) = (test.open(request.clone()).await, test.open(request.clone()).await);
    let refused = test.send("POST", "/pump/sessions", &request.to_string()).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.retry_after.as_deref(), Some("10"));
    assert!(refused.body["detail"].as_str().is_some_and(|detail| detail.contains("bandwidth")));

    test.delete(first).await;
    test.until_ended(first).await;
    test.open(request).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_requests_are_answered_with_what_is_wrong() {
    let test = Harness::start(|_| {});
    test.title("a.ts", 50);
    std::fs::write(test.media().join("noise.ts"), [7; 5_000]).expect("written");
    std::fs::write(test.media().join("empty.ts"), []).expect("written");
    let to = |destination: &str| json!({"title": "a.ts", "destination": destination}).to_string();
    let title = |name: &str| json!({"title": name, "destination": "udp://127.0.0.1:9"}).to_string();
    let with = |key: &str, value: serde_json::Value| {
        let mut request = json!({"title": "a.ts", "destination": "udp://127.0.0.1:9"});
        request[key] = value;
        request.to_string()
    };
    for (body, status, detail) in [
        ("{".to_owned(), StatusCode::BAD_REQUEST, "EOF"),
        (to("http://127.0.0.1:9"), StatusCode::BAD_REQUEST, "udp://host:port"),
        (to("udp://192.0.2.1:9"), StatusCode::FORBIDDEN, "pump.destinations does not allow 192.0.2.1"),
        (to("udp://10.0.0.1:9"), StatusCode::FORBIDDEN, "10.0.0.1"),
        (to("udp://239.1.1.1:9"), StatusCode::FORBIDDEN, "239.1.1.1"),
        (to("udp://no-such-host.invalid:9"), StatusCode::UNPROCESSABLE_ENTITY, "not known"),
        (title("none.ts"), StatusCode::NOT_FOUND, "none.ts"),
        (title("../a.ts"), StatusCode::FORBIDDEN, "refused"),
        (title("/etc/passwd"), StatusCode::FORBIDDEN, "absolute paths"),
        (title("noise.ts"), StatusCode::UNPROCESSABLE_ENTITY, "no transport stream"),
        (with("start", json!(100)), StatusCode::UNPROCESSABLE_ENTITY, "nothing lies between"),
        (title(""), StatusCode::FORBIDDEN, "no plain name"),
        (title(&"a".repeat(256)), StatusCode::FORBIDDEN, "255 bytes"),
        (title("empty.ts"), StatusCode::UNPROCESSABLE_ENTITY, "no transport stream"),
        (with("rename", json!({"256": 17})), StatusCode::UNPROCESSABLE_ENTITY, "32 to 8190"),
        (with("rename", json!({"256": 8192})), StatusCode::BAD_REQUEST, "32 to 8190"),
        (with("rename", json!({"256": 257})), StatusCode::UNPROCESSABLE_ENTITY, "another PID 257"),
        (with("pad", json!("1Mbps")), StatusCode::UNPROCESSABLE_ENTITY, "pad is 1000000 bit/s, and the title has 2"),
        (with("burst", json!(0)), StatusCode::BAD_REQUEST, "burst is 1 to 7"),
        (with("colour", json!(1)), StatusCode::BAD_REQUEST, "unknown field"),
    ] {
        let answer = test.send("POST", "/pump/sessions", &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert!(answer.body["detail"].as_str().is_some_and(|text| text.contains(detail)), "{body}: {}", answer.body);
    }
    for (method, path, status) in [
        ("GET", "/pump/sessions/77", StatusCode::NOT_FOUND),
        ("GET", "/pump/sessions/x", StatusCode::NOT_FOUND),
        ("DELETE", "/pump/sessions/77", StatusCode::NOT_FOUND),
        ("PUT", "/pump/sessions", StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "/pump/titles", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        assert_eq!(test.send(method, path, "").await.status, status, "{method} {path}");
    }
    assert_eq!(test.send("GET", "/pump/sessions", "").await.body, json!([]), "nothing was opened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pad_below_a_title_from_an_origin_is_said_while_it_plays() {
    let test = Harness::start(|_| {});
    let title = test.title("film.ts", 150);
    test.origin_title("remote.ts", title, usize::MAX / 1_000_000);
    let receiver = Receiver::bind();
    let request = json!({"title": "remote.ts", "destination": receiver.url("udp"), "pad": "1Mbps"});
    let id = test.open(request).await;
    let said = test.until(id, |session| session["trouble"]["error"].is_string()).await;
    assert!(said["trouble"]["error"].as_str().is_some_and(|error| error.contains("pad")), "{said}");
    assert!(said["statistics"]["pad_late_ms"].as_f64().is_some_and(|late| late > 100.0), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_admins_may_use_the_pump() {
    let test = Harness::with_tokens();
    for (method, path) in [("GET", "/pump/sessions"), ("POST", "/pump/sessions"), ("GET", "/pump/titles")] {
        assert_eq!(test.send(method, path, "").await.status, StatusCode::UNAUTHORIZED);
        assert_eq!(test.send_as(false, method, path, "").await.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(test.send_as(true, "GET", "/pump/sessions", "").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn titles_and_metrics_tell_what_is_there() {
    let test = Harness::start(|_| {});
    let bytes = test.title("shows/one.ts", 50).len();
    eventually("the folder is looked through", || async {
        let titles = test.send("GET", "/pump/titles", "").await.body;
        titles[0]["name"] == "shows/one.ts" && titles[0]["bytes"] == json!(bytes)
    })
    .await;
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "shows/one.ts", "destination": receiver.url("udp")})).await;
    test.until_ended(id).await;
    // A worker's numbers are published a moment after what they tell of.
    eventually("the last packet is counted", || async {
        let page = test.metrics().await;
        let sent = page.lines().filter(|line| line.starts_with("millrace_pump_datagrams_total"));
        let sent = sent.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        sent.sum::<usize>() == bytes.div_ceil(7 * PACKET_LEN)
            && ["millrace_pump_sessions{state=\"playing\"} 0", "millrace_pump_bandwidth_bps 0"]
                .iter()
                .all(|line| page.contains(line))
    })
    .await;
    let page = test.metrics().await;
    for line in [
        "millrace_pump_lateness_seconds_bucket{worker=\"0\",le=\"+Inf\"}",
        "millrace_pump_underruns_total{worker=\"1\"} 0",
        "millrace_library_titles 1",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_drains_takes_no_newcomers() {
    let test = Harness::start(|_| {});
    test.title("a.ts", 250);
    let receiver = Receiver::bind();
    let request = json!({"title": "a.ts", "destination": receiver.url("udp")});
    let id = test.open(request.clone()).await;
    test.start_drain();
    let refused = test.send("POST", "/pump/sessions", &request.to_string()).await;
    assert_eq!((refused.status, refused.retry_after.as_deref()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
    assert_eq!(test.get(id).await["state"], json!("open"), "who is there goes on");
}
