//! What became of allocations, by the API, over workers that only pretend.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use relay::message::Method;
use relay::spec::{AllocationId, AllocationInfo, Command, EndReason, Event, Traffic};
use relay::story::{Flow, Happened, Story};
use serde_json::json;
use server::worker::Message;
use wire::WorkerId;

use crate::relay::{Harness, info};

fn story(at: Instant, entries: &[Happened]) -> Box<Story> {
    let mut story = Box::<Story>::default();
    entries.iter().for_each(|what| story.note(at, *what));
    (story.refreshes, story.refused) = (2, 3);
    story
}

#[tokio::test]
async fn of_an_allocation_that_is_there_its_worker_tells() {
    let test = Harness::new("");
    test.relay.handle_event(WorkerId(1), Event::Began(info(7)));
    let peer: SocketAddr = ([198, 51, 100, 1], 4_000).into();
    let entries = [
        Happened::Began(Duration::from_secs(600)),
        Happened::Permitted(peer.ip()),
        Happened::Bound { channel: 0x4000, peer },
        Happened::Refused { method: Method::CreatePermission, code: 403, peer: Some(peer) },
        Happened::Flows(Flow { sent: true, received: false }),
        Happened::OverBandwidth(12),
    ];
    let answer = async {
        let Message::Relay(Command::Story { token, id: AllocationId(7) }) = test.heard(1).await else {
            panic!("asked")
        };
        let told = Some((info(7), story(Instant::now(), &entries)));
        test.relay.handle_event(WorkerId(1), Event::Story { token, told });
    };
    let (mut told, ()) = tokio::join!(test.get("/api/relay/allocations/7/story"), answer);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let times: Vec<f64> = std::iter::once(told["since"].take())
        .chain(told["events"].as_array_mut().expect("a list").iter_mut().map(|event| event["at"].take()))
        .map(|at| at.as_f64().expect("a time"))
        .collect();
    assert!((4.0..60.0).contains(&(now - times[0])), "{times:?}: it is five seconds old");
    assert!(times[1..].iter().all(|at| (-1.0..60.0).contains(&(now - at))), "{times:?}");
    let expected = json!({
        "allocation": "7", "user": "alice", "worker": 1, "client": "192.0.2.1:5000", "server": "127.0.0.1:3478",
        "transport": "udp", "relayed": ["127.0.0.1:50000"], "since": null, "expires_in": 600, "ended": null,
        "sent": {"packets": 3, "bytes": 300}, "received": {"packets": 0, "bytes": 0}, "dropped": 4,
        "refreshes": 2, "refused": 3, "forgotten": 0,
        "events": [
            {"at": null, "event": "began", "lifetime": 600},
            {"at": null, "event": "permitted", "peer": "198.51.100.1"},
            {"at": null, "event": "bound", "channel": 0x4000, "peer": "198.51.100.1:4000"},
            {"at": null, "event": "refused", "request": "create_permission", "code": 403, "peer": "198.51.100.1:4000"},
            {"at": null, "event": "flows", "sent": true, "received": false},
            {"at": null, "event": "over_bandwidth", "packets": 12},
        ],
    });
    assert_eq!(told, expected);
}

#[tokio::test]
async fn what_has_ended_is_known_for_a_while_and_what_carried_nothing_or_was_brief_pushes_nothing_else_out() {
    let test = Harness::new("");
    let end = |info: AllocationInfo, reason| {
        test.relay.handle_event(WorkerId(0), Event::Began(info.clone()));
        test.relay.handle_event(WorkerId(0), Event::Ended(info, reason, story(Instant::now(), &[])));
    };
    let long = Duration::from_secs(60);
    end(AllocationInfo { age: long, ..info(1) }, EndReason::Blocked);
    for id in 2..=10_000 {
        let brief = AllocationInfo { user: "bob".into(), ..info(id) };
        let unused = AllocationInfo { sent: Traffic::default(), age: long, ..brief.clone() };
        end(if id % 2 == 0 { brief } else { unused }, EndReason::Released);
    }
    let told = test.get("/api/relay/allocations/1/story").await;
    assert_eq!(
        (&told["ended"]["why"], &told["expires_in"], &told["refreshes"]),
        (&json!("blocked"), &json!(null), &json!(2))
    );
    let ended = test.get("/api/relay/allocations/ended?limit=2").await;
    let ids = [&ended[0]["allocation"], &ended[1]["allocation"], &ended[2]];
    assert_eq!(ids, [&json!("10000"), &json!("9999"), &json!(null)]);
    let of_bob = test.get("/api/relay/allocations/ended?user=bob").await;
    assert_eq!(of_bob.as_array().map(Vec::len), Some(512));

    for id in ["9000", "77777", "x"] {
        let path = format!("/api/relay/allocations/{id}/story");
        assert_eq!(test.status("GET", &path).await, StatusCode::NOT_FOUND, "{id}");
    }
    assert_eq!(test.status("GET", "/api/relay/allocations/ended?users=bob").await, StatusCode::BAD_REQUEST);
    for path in ["/api/relay/allocations/1/story", "/api/relay/allocations/ended"] {
        let response = test.send("GET", path, None, "").await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn one_that_ends_while_it_is_asked_for_is_told_as_ended() {
    let test = Harness::new("");
    test.relay.handle_event(WorkerId(0), Event::Began(info(7)));
    let answer = async {
        let Message::Relay(Command::Story { token, .. }) = test.heard(0).await else { panic!("asked") };
        test.relay.handle_event(WorkerId(0), Event::Ended(info(7), EndReason::Expired, Box::default()));
        test.relay.handle_event(WorkerId(0), Event::Story { token, told: None });
    };
    let (told, ()) = tokio::join!(test.get("/api/relay/allocations/7/story"), answer);
    assert_eq!(told["ended"]["why"], "expired");
}

/// A worker looks at so many at a time.
#[tokio::test]
async fn a_worker_is_asked_for_more_until_there_are_enough_or_no_others() {
    let test = Harness::new("");
    let answer = async {
        let parts = [
            (0, 0, 3, vec![1], Some(20)),
            (0, 20, 2, vec![], Some(30)),
            (0, 30, 2, vec![31], None),
            (1, 0, 3, vec![], None),
        ];
        for (worker, from, wanted, ids, upto) in parts {
            let Message::Relay(Command::List { token, after, count, .. }) = test.heard(worker).await else {
                panic!("asked")
            };
            assert_eq!((after, count), (AllocationId(from), wanted));
            let (allocations, upto) = (ids.into_iter().map(info).collect(), upto.map(AllocationId));
            test.relay.handle_event(WorkerId(worker as u16), Event::Allocations { token, allocations, upto });
        }
    };
    let (list, ()) = tokio::join!(test.get("/api/relay/allocations?limit=3"), answer);
    let ids: Vec<_> = list.as_array().expect("a list").iter().map(|entry| entry["id"].clone()).collect();
    assert_eq!(ids, ["1", "31"]);
}
