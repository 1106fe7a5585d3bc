//! What the fuzz target of the HTTP server does with its bytes: requests, one after the other, to the router with a real
//! negotiator behind it and a worker that only pretends. Shared by the fuzz target and by `crates/server/tests`.
//!
//! Requests stand between zero bytes: a line with method and path, a line for each header, an empty line, the body. LAST in
//! a path is the session that was opened last.

use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use engine::mailbox;
use rooms::spec::{Command, Event};
use server::auth::Auth;
use server::config::{self, Origin};
use server::http::{App, router};
use server::plane::workers::Posted;
use server::plane::workers::Workers;
use server::plane::{Plane, placement};
use server::rooms::control::{NegotiatorEnd, RoomsControl};
use server::rooms::directory;
use server::rooms::negotiator::{Negotiator, Settings};
use server::worker::Message;
use tower::ServiceExt;
use webrtc::{Candidate, Context};

/// What waits for the worker, and for the negotiator, at most.
const MAILBOX: usize = 100;

/// Requests of one input that are sent.
const REQUESTS_MAX: usize = 16;

pub fn http(data: &[u8]) {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));
    RUNTIME.block_on(async {
        let rooms = rooms();
        let auth = Auth::new(&config::Auth { dev: true, ..config::Auth::default() }).expect("no key needed");
        let service = App { cors_origins: vec![Origin::any()], ..App::new(rooms, auth) };
        let router = router(Arc::new(service));
        let mut last = "/whip/a/none".to_owned();
        for text in data.split(|byte| *byte == 0).take(REQUESTS_MAX) {
            let Some(request) = request(text, &last) else { continue };
            let is_head = request.method() == Method::HEAD;
            let path = request.uri().path().to_owned();
            let response = router.clone().oneshot(request).await.expect("an answer");
            if let Some(location) = response.headers().get(header::LOCATION) {
                let (parent, _) = path.rsplit_once('/').expect("a path");
                last = format!("{parent}/{}", location.to_str().expect("text"));
            }
            check(response, is_head, &path).await;
        }
    });
}

fn request(text: &[u8], last: &str) -> Option<Request<Body>> {
    let end = text.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = end.map_or((text, &[][..]), |end| (&text[..end], &text[end + 2..]));
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = str::from_utf8(lines.next()?).ok()?;
    let (method, path) = first.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(path.replace("LAST", last));
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    request.body(Body::from(body.to_vec())).ok()
}

/// Every answer can be read by pages of other origins but those of metrics and, without tokens, of administration (which has
/// tests of its own); every error is a problem document, and none is our own mistake.
async fn check(response: Response<Body>, is_head: bool, path: &str) {
    let (parts, body) = response.into_parts();
    assert_ne!(parts.status, StatusCode::INTERNAL_SERVER_ERROR);
    if !path.starts_with("/api/") && !path.starts_with("/pump/") {
        let is_open = parts.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        assert_eq!(is_open, path != "/metrics", "{parts:?}");
    }
    let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
    if parts.status == StatusCode::CREATED {
        assert!(parts.headers.contains_key(header::LOCATION) && parts.headers.contains_key(header::ETAG), "{parts:?}");
        assert!(body.starts_with(b"v=0\r\n"));
    }
    if parts.status.as_u16() >= 400 && !is_head {
        assert_eq!(parts.headers[header::CONTENT_TYPE], "application/problem+json", "{parts:?} {body:?}");
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(problem["status"], parts.status.as_u16());
    }
}

/// Rooms with one worker and its negotiator, each on a thread that ends with them.
fn rooms() -> Arc<RoomsControl> {
    static CONTEXT: LazyLock<Context> = LazyLock::new(|| Context::new().expect("a certificate"));
    let (commands, worker) = mailbox(MAILBOX).expect("a mailbox");
    let (inputs, requests) = mailbox(MAILBOX).expect("a mailbox");
    let plane = Plane::new(Workers::pretended(vec![commands]), placement::Settings::default());
    let ends = vec![NegotiatorEnd { mailbox: inputs, counters: Default::default() }];
    let settings =
        directory::Settings { reconnect_grace: Duration::from_secs(10), sessions_max: 1_000, ..Default::default() };
    let rooms = Arc::new(RoomsControl::new(plane, ends, settings));
    let (tells, answers) = (Arc::downgrade(&rooms), Arc::downgrade(&rooms));
    thread::spawn(move || {
        let candidates = vec![Candidate { addr: ([192, 0, 2, 1], 7_000).into(), tcp: false }];
        let settings = Settings { candidates, ..Settings::default() };
        let notify = |notice| tells.upgrade().is_some_and(|rooms| rooms.handle_notice(notice));
        let mut negotiator =
            Negotiator::new(Instant::now(), settings, CONTEXT.clone(), |_: Message| Posted::Sent, notify);
        while let Ok(input) = requests.recv_timeout(None) {
            negotiator.handle(Instant::now(), input);
        }
    });
    thread::spawn(move || {
        while let Ok(message) = worker.recv_timeout(None) {
            answer(&answers, &message);
        }
    });
    rooms
}

/// Answers questions, as a worker does.
fn answer(rooms: &Weak<RoomsControl>, message: &Message) {
    let event = match message {
        Message::Command(Command::Inspect { token, .. }) => Event::Stats { token: *token, stats: None },
        _ => return,
    };
    if let Some(rooms) = rooms.upgrade() {
        rooms.handle_event(event);
    }
}
