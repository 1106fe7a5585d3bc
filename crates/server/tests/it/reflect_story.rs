//! What became of viewers of reflected streams, by the API, over workers that only pretend.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use reflect::course::{After, Behind, Course};
use reflect::spec::{Command, EndReason, EndedViewer, Event, StreamId, ViewerId, ViewerNow};
use serde_json::{Value, json};
use server::auth::Auth;
use server::config::{self, Secret};
use server::http::{App, router};
use server::rooms::control::RoomsControl;
use server::worker::Message;
use tower::ServiceExt as _;
use wire::WorkerId;

use crate::reflect::Harness;
use crate::relay::{SECRET, admin};

const SETTINGS: &str =
    "[reflect]\nviewers_per_client = 100000\n[[reflect.streams]]\nname = \"a\"\n[[reflect.streams]]\nname = \"b\"\n";

const WORKER: WorkerId = WorkerId(0);

/// A control plane of one stream, of which something came, and the API above it.
struct Test {
    reflect: Harness,
    app: Arc<App>,
}

impl Test {
    async fn new() -> Self {
        let reflect = Harness::new(1, SETTINGS);
        reflect.push("/live/a").await;
        reflect.push("/live/b").await;
        let rooms = Arc::new(RoomsControl::new(reflect.plane.clone(), Vec::new(), Default::default()));
        let keys = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), ..config::Auth::default() };
        let auth = Auth::new(&keys).expect("a key");
        let app = App { reflect: Some(reflect.control.clone()), ..App::new(rooms, auth) };
        Test { reflect, app: Arc::new(app) }
    }

    async fn ask(&self, path: &str, token: Option<&str>) -> (StatusCode, Value) {
        let request = Request::builder().uri(path);
        let request = token
            .into_iter()
            .fold(request, |request, token| request.header("authorization", format!("Bearer {token}")));
        let response = router(self.app.clone()).oneshot(request.body(Body::empty()).expect("a request")).await;
        let response = response.expect("an answer");
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
        (status, serde_json::from_slice(&bytes).expect("JSON"))
    }

    async fn get(&self, path: &str) -> Value {
        let (status, value) = self.ask(path, Some(&admin())).await;
        assert_eq!(status, StatusCode::OK, "{path}: {value}");
        value
    }

    /// What the worker is asked for.
    async fn asked(&self) -> (u64, ViewerId) {
        loop {
            match self.reflect.workers[0].try_recv() {
                Some(Message::Reflect(Command::Story { token, viewer })) => return (token, viewer),
                Some(_) => {}
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Somebody comes, and his connection is closed.
    fn serve(&self) {
        self.reflect.serve("/live/a");
        while self.reflect.workers[0].try_recv().is_some() {}
    }

    fn end(&self, viewer: u64, age: Duration, course: Course) {
        self.serve();
        let (id, stream, reason) = (ViewerId(viewer), StreamId(1 << 16), EndReason::Lagged);
        let ended = EndedViewer { id, stream, reason, sent_bytes: 7, course, age };
        self.reflect.control.handle_event(WORKER, Event::ViewerEnded(ended));
    }
}

fn course() -> Course {
    let after = |seconds| After::new(Duration::from_secs(seconds));
    Course {
        joined: Some(Behind { after: after(1), bytes: 1_000 }),
        most: Some(Behind { after: after(5), bytes: 9_000 }),
        full: 12,
        skips: 5,
        skipped: Some((after(5), after(8))),
        ..Course::default()
    }
}

/// Takes the times out of events: seconds since he came.
fn times(story: &mut Value) -> Vec<f64> {
    let since = story["since"].take().as_f64().expect("a time");
    let events = story["events"].as_array_mut().expect("a list");
    events.iter_mut().map(|event| (event["at"].take().as_f64().expect("a time") - since).round()).collect()
}

#[tokio::test]
async fn of_a_viewer_who_is_here_his_worker_tells() {
    let test = Test::new().await;
    test.serve();
    let answer = async {
        let (token, viewer) = test.asked().await;
        assert_eq!(viewer, ViewerId(1));
        let now = ViewerNow { sent_bytes: 700, behind: 80, course: course(), age: Duration::from_secs(9) };
        test.reflect.control.handle_event(WORKER, Event::Story { token, told: Some(now) });
    };
    let (mut told, ()) = tokio::join!(test.get("/api/reflect/viewers/1/story"), answer);
    assert_eq!(times(&mut told), [1.0, 5.0, 5.0, 8.0]);
    // The rate of a stream is measured by the clock.
    for index in [0, 2] {
        told["events"][index]["seconds"].take();
    }
    let expected = json!({
        "viewer": "1", "stream": "a", "address": "192.0.2.1", "worker": 0, "hls": false, "since": null, "ended": null,
        "sent_bytes": 700, "behind_bytes": 80, "skips": 5, "full": 12, "forgotten": 3,
        "events": [
            {"at": null, "event": "joined", "bytes": 1_000, "seconds": null},
            {"at": null, "event": "skipped", "times": 1},
            {"at": null, "event": "behind", "bytes": 9_000, "seconds": null},
            {"at": null, "event": "skipped", "times": 5},
        ],
    });
    assert_eq!(told, expected);
}

#[tokio::test]
async fn who_is_gone_is_known_for_a_while_and_who_was_here_briefly_pushes_nobody_else_out() {
    let test = Test::new().await;
    test.end(1, Duration::from_secs(60), course());
    for viewer in 2..=6_000 {
        test.end(viewer, Duration::from_secs(1), Course::default());
    }
    let told = test.get("/api/reflect/viewers/1/story").await;
    assert_eq!(
        (&told["ended"]["why"], &told["sent_bytes"], &told["behind_bytes"]),
        (&json!("lagged"), &json!(7), &json!(null))
    );
    assert_eq!(told["events"].as_array().map(Vec::len), Some(4));
    let ended = test.get("/api/reflect/viewers/ended?limit=2").await;
    assert_eq!([&ended[0]["viewer"], &ended[1]["viewer"], &ended[2]], [&json!("6000"), &json!("5999"), &json!(null)]);
    let all = test.get("/api/reflect/viewers/ended?limit=1000").await;
    assert_eq!(all[512]["viewer"], "1", "the last first");
    assert_eq!(test.get("/api/reflect/viewers/ended?stream=a").await.as_array().map(Vec::len), Some(513));
    assert_eq!(test.get("/api/reflect/viewers/ended?stream=b").await, json!([]));
    for viewer in ["5000", "77777", "x"] {
        let path = format!("/api/reflect/viewers/{viewer}/story");
        assert_eq!(test.ask(&path, Some(&admin())).await.0, StatusCode::NOT_FOUND, "{viewer}");
    }
    for path in ["/api/reflect/viewers/1/story", "/api/reflect/viewers/ended"] {
        assert_eq!(test.ask(path, None).await.0, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn a_list_looks_at_so_many_viewers_and_says_where_it_goes_on() {
    let test = Test::new().await;
    (0..10_001).for_each(|_| test.serve());
    test.reflect.serve("/live/b");
    let none = test.get("/api/reflect/streams/b/viewers").await;
    assert_eq!(none, json!([]), "the others were looked at");
    let his = test.get("/api/reflect/streams/b/viewers?after=10000").await;
    assert_eq!((his.as_array().map(Vec::len), &his[0]["id"]), (Some(1), &json!("10002")));
    let first = test.get("/api/reflect/streams/a/viewers").await;
    assert_eq!((first.as_array().map(Vec::len), &first[999]["id"]), (Some(1_000), &json!("1000")));
}
