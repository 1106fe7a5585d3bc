//! Sessions that are changed while they play: other speeds, other ends, pauses from the start, leases.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use pump::spec::RtpPoint;
use serde_json::{Value, json};
use wire::ts::{PACKET_LEN, Packet, datagram_packets};

use super::harness::{Harness, OUTPUT, Received, Receiver, assert_continues, eventually, packets};

fn seconds(session: &Value) -> f64 {
    session["position"].as_f64().expect("a position")
}

/// PIDs in datagrams, without null packets and tables.
fn streams(received: &[Received]) -> Vec<u16> {
    let bytes = packets(received);
    let pids =
        bytes.as_chunks::<PACKET_LEN>().0.iter().map(|packet| Packet::parse(packet).expect("a packet").pid().number());
    let mut pids: Vec<u16> = pids.filter(|pid| (0x100..0x200).contains(pid)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_opened_paused_waits_to_be_resumed() {
    let test = Harness::start(|_| {});
    let title = test.title("a.ts", 50);
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "a.ts", "destination": receiver.url("udp"), "paused": true})).await;
    let waiting = test.until(id, |session| session["statistics"]["activity"] == "paused").await;
    assert_eq!((&waiting["paused"], &waiting["position"]), (&json!(true), &json!(0.0)));
    assert!(receiver.take_what_is_there().is_empty());
    assert_eq!(test.patch(id, json!({"paused": false})).await, StatusCode::OK);
    test.until_ended(id).await;
    assert_eq!(packets(&receiver.take_what_is_there()), super::harness::padded(&title));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_another_speed_there_are_pictures_alone_and_time_runs_faster() {
    let test = Harness::start(|_| {});
    test.title("long.ts", 2_500);
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "long.ts", "destination": receiver.url("udp"), "start": 10})).await;
    let mut received = receiver.take(50);
    assert_eq!(streams(&received), [0x100, 0x101]);

    let changed = test.send("PATCH", &format!("/pump/sessions/{id}"), r#"{"scale": 8}"#).await;
    assert_eq!((changed.status, &changed.body["scale"]), (StatusCode::OK, &json!(8.0)));
    // What was sent before comes first.
    let start = Instant::now();
    loop {
        let fast = receiver.take(200);
        let is_alone = streams(&fast) == [0x100];
        received.extend(fast);
        if is_alone {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "only pictures are sent");
    }
    let reached = test.until(id, |session| seconds(session) > 40.0).await;
    assert!(seconds(&reached) < 90.0 && reached["statistics"]["underruns"] == 0, "{reached}");
    assert_eq!(test.patch(id, json!({"scale": 1})).await, StatusCode::OK);

    // It goes on from where it is, with all streams.
    let start = Instant::now();
    loop {
        let next = receiver.take(100);
        let is_whole = streams(&next) == [0x100, 0x101];
        received.extend(next);
        if is_whole {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    let normal = test.get(id).await;
    assert_eq!(normal["scale"], json!(1.0));
    assert!(seconds(&normal) > 39.0, "{normal}");
    test.delete(id).await;
    test.until_ended(id).await;
    received.extend(receiver.take_what_is_there());
    assert_continues(&packets(&received));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backwards_a_session_comes_to_its_start_and_goes_on_normally() {
    let test = Harness::start(|_| {});
    test.title("long.ts", 1_000);
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "long.ts", "destination": receiver.url("udp"), "start": 5})).await;
    assert_eq!(test.patch(id, json!({"seek": 20, "scale": -2})).await, StatusCode::OK);
    let back = test.until(id, |session| (6.0..15.0).contains(&seconds(session))).await;
    assert_eq!(back["scale"], json!(-2.0));
    let normal = test.until(id, |session| session["scale"] == json!(1.0)).await;
    assert!((4.0..20.0).contains(&seconds(&normal)), "{normal}");
    let playing = test.until(id, |session| seconds(session) > 6.0).await;
    assert_eq!((&playing["state"], &playing["scale"]), (&json!("open"), &json!(1.0)));
    assert_continues(&packets(&receiver.take(1_000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwards_a_session_comes_to_its_end_or_begins_anew() {
    let test = Harness::start(|_| {});
    test.title("long.ts", 500);
    let receiver = Receiver::bind();
    for (is_looped, end) in [(false, None), (false, Some(10)), (true, None)] {
        let request = json!({"title": "long.ts", "destination": receiver.url("udp"), "loop": is_looped, "end": end});
        let id = test.open(request).await;
        let changed = test.send("PATCH", &format!("/pump/sessions/{id}"), r#"{"scale": 100}"#).await;
        assert_eq!((changed.status, &changed.body["scale"]), (StatusCode::OK, &json!(32.0)), "the fastest there is");
        if is_looped {
            // Until its beginning is there it says where it was.
            test.until(id, |session| session["scale"] == json!(1.0) && seconds(session) < 19.0).await;
            test.delete(id).await;
        }
        let ended = test.until_ended(id).await;
        let reason = if is_looped { "closed" } else { "all was sent" };
        assert_eq!(ended["reason"], json!(reason), "{ended}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_title_without_pictures_that_stand_alone_stays_at_normal_speed() {
    let test = Harness::start(|_| {});
    let sample = pump::sample::Sample { group: u32::MAX, pictures: 500, ..pump::sample::Sample::default() };
    std::fs::write(test.media().join("one.ts"), sample.make()).expect("written");
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "one.ts", "destination": receiver.url("udp")})).await;
    test.until(id, |session| seconds(session) > 1.0).await;
    let changed = test.send("PATCH", &format!("/pump/sessions/{id}"), r#"{"scale": 4}"#).await;
    assert_eq!((changed.status, &changed.body["scale"]), (StatusCode::OK, &json!(1.0)));
    test.delete(id).await;
    test.until_ended(id).await;
    let received = packets(&receiver.take_what_is_there());
    assert_eq!(received[..], sample.make()[..received.len()], "nothing was interrupted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_session_moves() {
    let test = Harness::start(|_| {});
    test.title("long.ts", 1_000);
    let receiver = Receiver::bind();
    let request = json!({"title": "long.ts", "destination": receiver.url("udp"), "hold": true, "paused": true});
    let id = test.open(request).await;
    assert_eq!(test.patch(id, json!({"end": 1.5})).await, StatusCode::OK);
    assert_eq!(test.patch(id, json!({"seek": 2})).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(test.patch(id, json!({"paused": false})).await, StatusCode::OK);
    let is_held = |session: &Value| seconds(session) > 0.5 && session["statistics"]["activity"] == "paused";
    let held = test.until(id, is_held).await;
    assert!((1.2..1.8).contains(&seconds(&held)), "{held}");
    assert_eq!((&held["state"], &held["scale"]), (&json!("open"), &json!(1.0)), "it stays at its end");
    assert_eq!(test.patch(id, json!({"seek": 30, "end": 31})).await, StatusCode::OK);
    test.until(id, |session| seconds(session) > 30.0).await;
    assert_continues(&packets(&receiver.take(400)));
    test.delete(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_nobody_asks_for_ends_with_its_lease() {
    let test = Harness::start(|_| {});
    test.title("a.ts", 2_500);
    let receiver = Receiver::bind();
    let request = |lease: Value| json!({"title": "a.ts", "destination": receiver.url("udp"), "lease": lease});
    let (left, kept, free) = (
        test.open(request(json!(1))).await,
        test.open(request(json!(600))).await,
        test.open(request(Value::Null)).await,
    );
    let state = |id: u64| {
        let test = &test;
        async move {
            let all = test.send("GET", "/pump/sessions", "").await.body;
            let all = all.as_array().expect("a list").clone();
            all.into_iter().find(|session| session["id"] == json!(id.to_string())).expect("it is listed")
        }
    };
    eventually("it ends", || async {
        test.tick();
        state(left).await["state"] == "ended"
    })
    .await;
    assert_eq!(state(left).await["reason"], json!("nobody asked for it within its lease"));
    assert_eq!((&state(kept).await["state"], &state(free).await["state"]), (&json!("open"), &json!("open")));
    // An empty change is enough, too.
    assert_eq!(test.patch(kept, json!({})).await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_session_begins_and_goes_on_is_told_with_its_rtp_numbers() {
    let test = Harness::start(|_| {});
    test.title("long.ts", 1_000);
    let receiver = Receiver::bind();
    let id = test.open(json!({"title": "long.ts", "destination": receiver.url("rtp"), "paused": true})).await;
    let session = pump::spec::SessionId(id);
    let point = |(_, bytes): &Received| {
        let header = datagram_packets(bytes).expect("packets").0.expect("RTP");
        RtpPoint { seq: header.seq.0, timestamp: header.timestamp }
    };
    for (change, at) in [(json!({}), 0.0), (json!({"seek": 20}), 20.0), (json!({"seek": 3, "scale": 4}), 3.0)] {
        test.patch(id, json!({"paused": true})).await;
        test.until(id, |session| session["statistics"]["activity"] == "paused").await;
        receiver.take_what_is_there();
        test.patch(id, change).await;
        // Who asks before it begins is told of the first one.
        let (started, _) = tokio::join!(test.pump().started(session), test.patch(id, json!({"paused": false})));
        let started = started.expect("it is open").expect("it plays");
        assert_eq!(started.rtp, Some(point(&receiver.take(1)[0])));
        assert!((started.at.as_secs_f64() - at).abs() < 0.6, "{started:?} for {at}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_sent_by_the_output_that_it_names() {
    let test = Harness::start(|_| {});
    test.title("a.ts", 250);
    let receiver = Receiver::bind();
    let request = |output: Value| json!({"title": "a.ts", "destination": receiver.url("udp"), "output": output});
    for (output, is_marked) in [(Value::Null, false), (json!(OUTPUT), true)] {
        let id = test.open(request(output)).await;
        receiver.take(20);
        let from = receiver.last_from().expect("it came from somewhere");
        assert_eq!(from.ip() == std::net::Ipv4Addr::new(127, 0, 0, 2), is_marked, "{from}");
        test.delete(id).await;
        test.until_ended(id).await;
        receiver.take_what_is_there();
    }
    let refused = test.send("POST", "/pump/sessions", &request(json!("none")).to_string()).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.body["detail"].as_str().is_some_and(|detail| detail.contains("no output \"none\"")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_faster_and_tells_how_it_is_sent() {
    let test = Harness::start(|_| {});
    test.title("a.ts", 1_000);
    let receiver = Receiver::bind();
    let request = json!({"title": "a.ts", "destination": receiver.url("rtp"), "burst_start": 1, "monitor": true});
    let asked = Instant::now();
    // It is kept, as its port would soon be another test's.
    let other = Receiver::bind();
    let id = test.open(request).await;
    test.until(id, |session| seconds(session) > 0.0).await;
    // It begins later, so that the other cannot be ahead of it by less than what it did faster.
    let even = test.open(json!({"title": "a.ts", "destination": other.url("udp")})).await;
    let playing = test.until(id, |session| seconds(session) > 2.5).await;
    assert!(asked.elapsed() > Duration::from_millis(1_400), "no more than a second early: {playing}");
    // How far it would be had it never waited for a chunk: on a busy machine it may have, even while it was faster.
    let reached = async |id| {
        let session = test.get(id).await;
        seconds(&session) + session["statistics"]["starved_ms"].as_f64().expect("a time") / 1e3
    };
    eventually("it is ahead of the other by about a second", || async {
        reached(id).await - reached(even).await > 0.7
    })
    .await;
    let statistics = &playing["statistics"];
    assert!(statistics["delay_factor_ms"].as_f64().is_some_and(|factor| factor > 1.0), "{statistics}");
    let bursts = statistics["lateness"].as_array().expect("a list").iter();
    let bursts: u64 = bursts.map(|bucket| bucket["bursts"].as_u64().expect("a count")).sum();
    assert!(bursts > 150, "{statistics}");
    assert_eq!((&statistics["lost_packets"], &statistics["continuity_errors"]), (&json!(0), &json!(0)));
    let monitor = &statistics["monitor"];
    assert_eq!((&monitor["lost_packets"], &monitor["tr_101_290"]["1.4_continuity"]), (&json!(0), &json!(0)));
    assert!(monitor["references"].as_u64().is_some_and(|count| count > 50), "{monitor}");
    let page = test.metrics().await;
    for name in ["tr101290_priority1_total", "delay_factor_max_seconds", "pcr_jitter_max_seconds", "lost_packets_total"]
    {
        assert!(page.contains(&format!("\nmillrace_pump_{name}{{worker=\"0\"}} ")), "{name} is not in\n{page}");
    }
}
