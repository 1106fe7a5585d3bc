//! Limits that change while sessions are sent.

use axum::http::StatusCode;
use serde_json::json;
use server::pump::destination::Allowed;
use server::pump::sessions::Limits;
use wire::Bitrate;

use super::harness::{Harness, Receiver};

fn limits(kbps: u64, sessions_max: usize) -> Limits {
    Limits { bandwidth_max: Bitrate::from_kbps(kbps), sessions_max, refused_timeout: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_that_send_to_where_nothing_may_be_sent_any_more_and_others_go_on() {
    let test = Harness::start(|_| {});
    test.title("long.ts", 1_000);
    let (near, far) = (Receiver::bind(), Receiver::bind());
    let ask = |destination: String| json!({"title": "long.ts", "destination": destination});
    let there = far.url("udp").replace("127.0.0.1", "127.0.0.3");
    let kept = test.open(ask(near.url("udp"))).await;
    let denied = test.open(ask(there.clone())).await;

    let network = |text: &str| server::config::network(text).expect("a network");
    test.pump().set_limits(limits(100_000, 100), Allowed::new(&[network("127.0.0.1")]));
    let ended = test.until_ended(denied).await;
    assert_eq!(ended["reason"], "pump.destinations does not allow its destination any more");
    let refused = test.send("POST", "/pump/sessions", &ask(there.clone()).to_string()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.body);
    near.take(10);
    assert_eq!(test.get(kept).await["state"], "open");

    test.pump().set_limits(limits(100_000, 100), Allowed::new(&[network("127.0.0.0/8")]));
    test.open(ask(there)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_or_more_sessions_and_less_or_more_bandwidth_hold_for_newcomers() {
    let test = Harness::start(|settings| settings.limits = limits(100_000, 1));
    test.title("long.ts", 1_000);
    let receiver = Receiver::bind();
    let ask = json!({"title": "long.ts", "destination": receiver.url("udp")}).to_string();
    let open = async || test.send("POST", "/pump/sessions", &ask).await.status;
    let anywhere = || Allowed::new(&[server::config::network("127.0.0.0/8").expect("a network")]);
    assert_eq!([open().await, open().await], [StatusCode::CREATED; 2], "one at each worker");
    assert_eq!(open().await, StatusCode::SERVICE_UNAVAILABLE);

    test.pump().set_limits(limits(100_000, 2), anywhere());
    assert_eq!([open().await, open().await], [StatusCode::CREATED; 2], "workers have room for them, too");
    let sessions = test.send("GET", "/pump/sessions", "").await.body;
    let is_open = |session: &serde_json::Value| session["state"] == "open";
    assert!(sessions.as_array().is_some_and(|all| all.len() == 4 && all.iter().all(is_open)), "{sessions}");

    test.pump().set_limits(limits(1_000, 100), anywhere());
    assert_eq!(open().await, StatusCode::SERVICE_UNAVAILABLE, "they take more already");
    test.pump().set_limits(limits(100_000, 100), anywhere());
    assert_eq!(open().await, StatusCode::CREATED);
}
