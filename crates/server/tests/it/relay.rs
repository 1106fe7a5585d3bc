//! The relay's control plane and its part of the API, over workers that only pretend.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use engine::{Mailbox, Receiver, mailbox};
use relay::spec::{AllocationId, AllocationInfo, ClientTransport, Command, EndReason, Event, Traffic};
use serde_json::{Value, json};
use server::auth::{Auth, Claims, Rights, SigningKey, mint};
use server::config::{self, Config, Secret};
use server::http::{App, router};
use server::plane::workers::Workers;
use server::plane::{Plane, ProductControl, placement};
use server::relay::control::RelayControl;
use server::relay::setup::Shared;
use server::rooms::control::RoomsControl;
use server::worker::Message;
use tower::ServiceExt;
use wire::{Bitrate, WorkerId};

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The control plane of relays at 127.0.0.1:3478, with further settings.
pub fn control(plane: Arc<Plane>, settings: &str) -> RelayControl {
    let listen: SocketAddr = ([127, 0, 0, 1], 3_478).into();
    let mut config = Config::default();
    config.relay.listen = vec![listen];
    config.apply_toml("test", &format!("[relay]\n{settings}\n")).expect("valid");
    let shared = Shared::new(&config, 100, &[listen], &[listen.ip()], &[]).expect("an address");
    RelayControl::new(plane, &shared, &config)
}

#[test]
fn an_allocation_takes_a_place_at_its_worker_for_as_long_as_it_is_there() {
    let test = Harness::new("");
    for event in [Event::Began(info(7)), Event::Began(info(7)), Event::Began(info(9))] {
        test.relay.handle_event(WorkerId(0), event);
    }
    assert!(test.relay.count() == 2 && test.relay.has_receivers());
    let nobody = |_: WorkerId| true;
    assert_eq!(test.relay.plane().placement().find(None, nobody), Some(WorkerId(1)), "the other has more to do");

    for id in [7, 7, 8, 9] {
        test.relay.handle_event(WorkerId(0), Event::Ended(info(id), EndReason::Released, Default::default()));
    }
    assert!(test.relay.count() == 0 && !test.relay.has_receivers());
    test.relay.plane().placement().take(WorkerId(1), Bitrate::from_kbps(1));
    assert_eq!(
        test.relay.plane().placement().find(None, nobody),
        Some(WorkerId(0)),
        "all that was taken is given back"
    );
}

#[test]
fn when_the_hosts_clock_was_set_workers_are_told() {
    let test = Harness::new("");
    // An hour has passed, and the clock has not seen it.
    let later = Instant::now() + Duration::from_secs(3_600);
    for now in [later, later + Duration::from_millis(100), later + Duration::from_millis(10_500)] {
        test.relay.handle_timeout(now);
    }
    for worker in &test.workers {
        let told: Vec<_> = std::iter::from_fn(|| worker.try_recv()).collect();
        let clocks = told.iter().filter_map(|message| match message {
            Message::Relay(Command::Clock(at, since_1970)) => Some((*at, *since_1970)),
            _ => None,
        });
        let clocks: Vec<_> = clocks.collect();
        assert_eq!(clocks.len(), 2, "ten seconds later it is off by ten again: {told:?}");
        let (at, since_1970) = clocks[0];
        let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        assert!(at == later && here.abs_diff(since_1970) < Duration::from_secs(60));
    }
}

#[tokio::test]
async fn a_drain_is_told_once_to_each_worker_and_may_be_ended() {
    let test = Harness::new("");
    test.relay.handle_event(WorkerId(0), Event::Began(info(7)));
    let told = || {
        let told = test.workers.iter().map(|worker| match (worker.try_recv(), worker.try_recv()) {
            (Some(Message::Relay(Command::Drain(is_draining))), None) => Some(is_draining),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    for (method, is_draining) in [("POST", true), ("DELETE", false)] {
        for _ in 0..2 {
            assert_eq!(test.status(method, "/api/relay/drain").await, StatusCode::NO_CONTENT);
        }
        assert_eq!(told(), [Some(is_draining); 2]);
        let expected = json!({"draining": is_draining, "allocations": 1});
        assert_eq!(test.get("/api/relay/drain").await, expected);
    }

    test.relay.plane().start_drain();
    test.relay.handle_timeout(Instant::now());
    assert_eq!(told(), [Some(true); 2]);
    assert_eq!(test.status("DELETE", "/api/relay/drain").await, StatusCode::CONFLICT, "the server stops");
    assert_eq!(test.get("/api/relay").await["draining"], true);
}

#[tokio::test]
async fn allocations_of_all_workers_are_listed_by_number_in_parts_and_can_be_ended() {
    let test = Harness::new("");
    for (worker, id) in [(0, 1), (1, 2), (0, 3), (1, 5)] {
        test.relay.handle_event(WorkerId(worker), Event::Began(info(id)));
    }
    let answer = async {
        for (worker, ids) in [(0, vec![3]), (1, vec![2, 5])] {
            let message = test.heard(worker).await;
            let Message::Relay(Command::List { token, user, after, count }) = message else { panic!("{message:?}") };
            assert_eq!(user.as_deref(), Some("a&b"));
            assert_eq!((after, count), (AllocationId(1), 2));
            let allocations = ids.into_iter().map(info).collect();
            test.relay.handle_event(WorkerId(worker as u16), Event::Allocations { token, allocations, upto: None });
        }
    };
    let (response, ()) = tokio::join!(test.ask("GET", "/api/relay/allocations?user=a%26b&after=1&limit=2"), answer);
    assert_eq!(response.headers()["link"], "<allocations?user=a%26b&after=3&limit=2>; rel=\"next\"");
    let list = json_of(response).await;
    let expected = json!({
        "id": "2", "user": "alice", "worker": 1, "client": "192.0.2.1:5000", "server": "127.0.0.1:3478", "transport": "udp",
        "relayed": ["127.0.0.1:50000"], "age": 5, "expires_in": 600, "permissions": 1, "channels": 2,
        "sent": {"packets": 3, "bytes": 300}, "received": {"packets": 0, "bytes": 0}, "dropped": 4,
    });
    assert_eq!((&list[0], &list[1]["id"], list.as_array().map(Vec::len)), (&expected, &json!("3"), Some(2)));

    assert_eq!(test.status("DELETE", "/api/relay/allocations/5").await, StatusCode::NO_CONTENT);
    let told = test.workers[1].try_recv();
    assert!(matches!(told, Some(Message::Relay(Command::Delete(AllocationId(5))))), "{told:?}");
    for path in ["allocations?users=alice", "allocations?after=x", "users?name=alice", "blocks?from=1"] {
        assert_eq!(test.status("GET", &format!("/api/relay/{path}")).await, StatusCode::BAD_REQUEST, "{path}");
    }
    for path in ["/api/relay/allocations/6", "/api/relay/allocations/x"] {
        assert_eq!(test.status("DELETE", path).await, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn users_are_blocked_for_a_time_or_until_they_are_not_and_workers_hear_of_it() {
    let test = Harness::new("");
    let told = || {
        let told = test.workers.iter().map(|worker| match worker.try_recv() {
            Some(Message::Relay(Command::Block(blocked))) => blocked.0.len(),
            other => panic!("{other:?}"),
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(test.status("PUT", "/api/relay/blocks/eve%2F1%20").await, StatusCode::NO_CONTENT);
    assert_eq!(told(), [1, 1]);
    let hour = test.send("PUT", "/api/relay/blocks/bob", Some(&admin()), r#"{"seconds": 3600}"#).await;
    assert_eq!((hour.status(), told()), (StatusCode::NO_CONTENT, vec![2, 2]));
    let wrong = test.send("PUT", "/api/relay/blocks/bob", Some(&admin()), r#"{"hours": 1}"#).await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    let blocks = test.get("/api/relay/blocks").await;
    assert_eq!((&blocks[0]["user"], &blocks[1]), (&json!("bob"), &json!({"user": "eve/1 ", "seconds": null})));
    assert!(blocks[0]["seconds"].as_u64().is_some_and(|left| (3_500..=3_600).contains(&left)), "{blocks}");
    let first = test.ask("GET", "/api/relay/blocks?limit=1").await;
    assert_eq!(first.headers()["link"], "<blocks?after=bob&limit=1>; rel=\"next\"");
    assert_eq!(test.get("/api/relay/blocks?after=bob").await.as_array().map(Vec::len), Some(1));

    assert_eq!(test.status("DELETE", "/api/relay/blocks/bob").await, StatusCode::NO_CONTENT);
    assert_eq!((told(), test.status("DELETE", "/api/relay/blocks/bob").await), (vec![1, 1], StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn who_may_publish_or_watch_gets_a_credential_for_the_relay() {
    let test = Harness::new("secrets = [\"a secret of some length\", \"an older one of some length\"]");
    let of = |claims: Claims| {
        let exp = since_1970().as_secs() + 60;
        mint(&Claims { exp, ..claims }, SigningKey::Hs256(SECRET)).expect("a secret")
    };
    let watch = Rights { watch: vec!["*".to_owned()], ..Rights::default() };
    let alice = of(Claims { sub: Some("alice".to_owned()), millrace: watch.clone(), ..Claims::default() });
    let ask = |token: &str, body: &'static str| {
        let token = token.to_owned();
        let test = &test;
        async move { test.send("POST", "/api/relay/credentials", Some(&token), body).await }
    };
    let response = ask(&alice, "").await;
    assert_eq!(
        (response.status(), &response.headers()["cache-control"]),
        (StatusCode::OK, &"no-store".parse().unwrap())
    );
    let made = json_of(response).await;
    let (until, who) = made["username"].as_str().and_then(|name| name.split_once(':')).expect("until:who");
    let until: u64 = until.parse().expect("seconds");
    let (now, twelve_hours) = (since_1970().as_secs(), 12 * 3_600);
    assert!((now + twelve_hours - 40..=now + twelve_hours).contains(&until), "{until}");
    assert_eq!((who, made["ttl"].as_u64()), ("alice", Some(twelve_hours)));
    assert_eq!(made["uris"], json!(["turn:127.0.0.1:3478?transport=udp"]));
    assert_eq!(made["password"].as_str().map(str::len), Some(28), "20 bytes in Base64");

    assert_eq!(json_of(ask(&alice, r#"{"ttl": 90}"#).await).await["ttl"], 90);
    assert_eq!(json_of(ask(&alice, r#"{"ttl": 604800}"#).await).await["ttl"], twelve_hours, "the most that there is");
    for ttl in ["0", "59", "-1", "60.5", "604801", "1e30", "99999999999999999999", "\"3600\"", "true", "[60]"] {
        let body = format!("{{\"ttl\": {ttl}}}").leak();
        let response = ask(&alice, body).await;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{ttl}");
        let detail = json_of(response).await["detail"].to_string();
        assert!(detail.contains("from 60 to 604800"), "{ttl}: {detail}");
    }
    assert_eq!(json_of(ask(&alice, r#"{"ttl": null}"#).await).await["ttl"], twelve_hours);
    assert_eq!(ask(&alice, r#"{"time": 90}"#).await.status(), StatusCode::BAD_REQUEST);
    let without_subject = of(Claims { millrace: watch.clone(), ..Claims::default() });
    let name = json_of(ask(&without_subject, "").await).await["username"].as_str().expect("a name").to_owned();
    assert!(name.contains(":token-"), "{name}");
    let bad_name = of(Claims { sub: Some("a\nb".to_owned()), millrace: watch, ..Claims::default() });
    assert_eq!(ask(&bad_name, "").await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(ask(&of(Claims::default()), "").await.status(), StatusCode::FORBIDDEN);
    assert_eq!(test.send("POST", "/api/relay/credentials", None, "").await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn only_an_admin_sees_allocations_and_without_a_relay_there_is_nothing_to_see() {
    let test = Harness::new("secrets = [\"a secret of some length\"]");
    let exp = since_1970().as_secs() + 60;
    let claims =
        Claims { exp, millrace: Rights { watch: vec!["*".to_owned()], ..Rights::default() }, ..Claims::default() };
    let token = mint(&claims, SigningKey::Hs256(SECRET)).expect("a secret");
    for (method, path) in [
        ("GET", "/api/relay"),
        ("GET", "/api/relay/allocations"),
        ("GET", "/api/relay/users"),
        ("DELETE", "/api/relay/allocations/1"),
        ("GET", "/api/relay/drain"),
        ("GET", "/api/relay/blocks"),
        ("PUT", "/api/relay/blocks/eve"),
        ("DELETE", "/api/relay/blocks/eve"),
        ("POST", "/api/relay/drain"),
        ("DELETE", "/api/relay/drain"),
    ] {
        assert_eq!(test.send(method, path, Some(&token), "").await.status(), StatusCode::FORBIDDEN, "{method} {path}");
        assert_eq!(test.send(method, path, None, "").await.status(), StatusCode::UNAUTHORIZED, "{method} {path}");
    }
    assert_eq!(test.get("/api/relay/users").await, json!([]));
    assert_eq!(
        test.get("/api/relay").await,
        json!({
            "listen": ["127.0.0.1:3478"], "dtls_listen": [], "tcp_listen": [], "tls_listen": [],
            "allocations": 0, "draining": false,
        })
    );

    let none = Harness::without_relay();
    for path in ["/api/relay", "/api/relay/allocations", "/api/relay/users"] {
        assert_eq!(none.status("GET", path).await, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(Harness::new("").status("POST", "/api/relay/credentials").await, StatusCode::NOT_FOUND, "no secret");
}

pub fn info(id: u64) -> AllocationInfo {
    AllocationInfo {
        id: AllocationId(id),
        user: "alice".into(),
        client: ([192, 0, 2, 1], 5_000).into(),
        server: ([127, 0, 0, 1], 3_478).into(),
        transport: ClientTransport::Udp,
        relayed: vec![([127, 0, 0, 1], 50_000).into()],
        age: Duration::from_millis(5_900),
        expires_in: Duration::from_secs(600),
        permissions: 1,
        channels: 2,
        sent: Traffic { packets: 3, bytes: 300 },
        received: Traffic::default(),
        dropped: 4,
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// An admin's token.
pub fn admin() -> String {
    let exp = since_1970().as_secs() + 60;
    let claims = Claims { exp, millrace: Rights::all(), ..Claims::default() };
    mint(&claims, SigningKey::Hs256(SECRET)).expect("a secret")
}

async fn json_of(response: Response<Body>) -> Value {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Two workers that only have mailboxes, and the API above them.
pub struct Harness {
    pub relay: Arc<RelayControl>,
    app: Arc<App>,
    workers: Vec<Receiver<Message>>,
}

impl Harness {
    pub fn new(settings: &str) -> Self {
        Harness::with(settings, true)
    }

    fn without_relay() -> Self {
        Harness::with("", false)
    }

    fn with(settings: &str, has_relay: bool) -> Self {
        let (mailboxes, workers): (Vec<Mailbox<Message>>, _) = (0..2).map(|_| mailbox(100).expect("a mailbox")).unzip();
        let plane = Plane::new(Workers::pretended(mailboxes), placement::Settings::default());
        let rooms = Arc::new(RoomsControl::new(plane.clone(), Vec::new(), Default::default()));
        let keys = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), ..config::Auth::default() };
        let relay = Arc::new(control(plane, settings));
        let app = App { relay: has_relay.then(|| relay.clone()), ..App::new(rooms, Auth::new(&keys).expect("a key")) };
        Harness { relay, app: Arc::new(app), workers }
    }

    /// What a worker is told next.
    pub async fn heard(&self, worker: usize) -> Message {
        loop {
            match self.workers[worker].try_recv() {
                Some(message) => return message,
                None => tokio::task::yield_now().await,
            }
        }
    }

    pub async fn send(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        router(self.app.clone()).oneshot(request).await.expect("an answer")
    }

    /// What an admin is answered.
    async fn ask(&self, method: &str, path: &str) -> Response<Body> {
        self.send(method, path, Some(&admin()), "").await
    }

    pub async fn status(&self, method: &str, path: &str) -> StatusCode {
        self.ask(method, path).await.status()
    }

    pub async fn get(&self, path: &str) -> Value {
        let response = self.ask("GET", path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        json_of(response).await
    }
}
