//! What the dashboard is told: the last hour, samples as they come, what is changed and who changed it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use engine::{Mailbox, Receiver, mailbox};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use server::auth::{Auth, Claims, Rights, SigningKey, mint};
use server::config::{self, Config, Secret};
use server::http::admin::LogFilter;
use server::http::{Admin, App, router};
use server::plane::workers::Workers;
use server::plane::{Plane, placement};
use server::rooms::control::RoomsControl;
use server::worker::Message;
use tower::ServiceExt;
use tracing::Subscriber;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const IN_AN_HOUR: Duration = Duration::from_secs(3_600);
const WORKERS: usize = 2;
/// As `feed::READERS_MAX`.
const READERS_MAX: usize = 32;

#[tokio::test]
async fn a_sample_has_the_numbers_of_metrics_and_events_have_the_same_form() {
    let test = Harness::new();
    assert_problem(test.get("/api/admin/history").await, StatusCode::SERVICE_UNAVAILABLE, "no sample yet").await;
    test.app.admin.sample(&test.app);
    for (worker, numbers) in test.app.plane.workers().numbers() {
        let mut counters = rooms::counters::Counters { sessions: 3, packets_out: 7, ..Default::default() };
        counters.drops.add(rooms::drops::DropReason::Replayed);
        counters.lateness.record(Duration::from_micros(900 + u64::from(worker.0)));
        numbers.rooms.store(&counters);
    }
    test.app.admin.sample(&test.app);

    let history = json_of(test.get("/api/admin/history?step=1").await).await;
    let (sample, fields) = (&history["samples"][1], &history["fields"]);
    let machine = |name: &str| number(&fields["machine"], &sample["machine"], name);
    assert_eq!((machine("rooms_sessions"), machine("rooms_packets_out_total")), (6, 14), "of both workers");
    assert_eq!(number(&fields["drops"], &sample["drops"], "rooms/replayed"), 2);
    assert_eq!(sample["workers"].as_array().map(Vec::len), Some(WORKERS));
    let late = number(&fields["worker"], &sample["workers"][0], "late_rooms_p99_us");
    assert!((450..=1_800).contains(&late), "{late} µs");
    let metrics = text_of(test.get("/metrics").await).await;
    assert!(metrics.contains("\nmillrace_rooms_packets_out_total{worker=\"1\"} 7\n"));
    assert!(machine("process_resident_bytes") > 1_000_000, "{sample}");

    let mut events = test.get("/api/admin/events").await;
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    assert_eq!(event(&mut events).await, format!("event: fields\ndata: {fields}\n\n"));
    let newest = event(&mut events).await;
    assert!(newest.starts_with(&format!("id: {}\ndata: ", sample["at"])), "{newest}");
    assert_eq!(data(&newest), *sample);
    test.app.admin.sample(&test.app);
    let next = data(&event(&mut events).await);
    assert_eq!(number(&fields["worker"], &next["workers"][0], "late_rooms_p99_us"), 0, "nothing was late since");
    test.app.admin.end();
    assert!(events.body_mut().frame().await.is_none(), "it ends with the server");
    assert_problem(test.get("/api/admin/events").await, StatusCode::SERVICE_UNAVAILABLE, "about to stop").await;
}

#[tokio::test]
async fn the_last_hour_comes_in_parts_of_which_each_leads_to_the_next() {
    let test = Harness::new();
    (0..10).for_each(|_| test.app.admin.sample(&test.app));
    // All of one millisecond, perhaps: a part goes on behind a time.
    let answer = test.get("/api/admin/history?step=5").await;
    assert_eq!(answer.headers()["cache-control"], "no-store");
    assert_eq!(json_of(answer).await["samples"].as_array().map(Vec::len), Some(2));
    let first = test.get("/api/admin/history?step=1&limit=4").await;
    let link = first.headers()["link"].to_str().expect("text").to_owned();
    let part = json_of(first).await;
    assert_eq!(part["samples"].as_array().map(Vec::len), Some(4));
    let last = &part["samples"][3]["at"];
    assert_eq!(link, format!("<history?step=1&after={last}&limit=4>; rel=\"next\""));
    assert_problem(test.get("/api/admin/history?steps=1").await, StatusCode::BAD_REQUEST, "steps").await;
}

#[tokio::test]
async fn only_so_many_follow_and_who_takes_nothing_holds_up_nobody() {
    let test = Harness::new();
    test.app.admin.sample(&test.app);
    let mut readers = Vec::new();
    for _ in 0..READERS_MAX {
        let reader = test.get("/api/admin/events").await;
        assert_eq!(reader.status(), StatusCode::OK);
        readers.push(reader);
    }
    let refused = test.get("/api/admin/events").await;
    assert!(refused.headers().contains_key("retry-after"));
    assert_problem(refused, StatusCode::SERVICE_UNAVAILABLE, "32 readers").await;
    // None of them reads; each then has the newest, and what it missed is nowhere.
    (0..1_000).for_each(|_| test.app.admin.sample(&test.app));
    for reader in &mut readers {
        event(reader).await;
        assert!(event(reader).await.starts_with("id: "));
        let nothing = tokio::time::timeout(Duration::from_millis(1), reader.body_mut().frame()).await;
        assert!(nothing.is_err(), "nothing waited");
    }
    readers.pop();
    assert_eq!(test.get("/api/admin/events").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn all_of_it_is_for_admins_and_the_page_is_for_everybody() {
    let test = Harness::new();
    test.app.admin.sample(&test.app);
    let other = token(Rights { watch: vec!["*".to_owned()], ..Rights::default() });
    let paths = [
        ("GET", "/api/admin"),
        ("GET", "/api/admin/history"),
        ("GET", "/api/admin/events"),
        ("GET", "/api/admin/doctor"),
        ("PUT", "/api/admin/log-filter"),
        ("POST", "/api/admin/drain"),
        ("GET", "/api/sessions/1"),
        ("POST", "/api/sessions/1/layer"),
    ];
    for (method, path) in paths {
        assert_eq!(test.send(method, path, None, "").await.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(test.send(method, path, Some(&other), "").await.status(), StatusCode::FORBIDDEN, "{path}");
    }
    for (path, content_type) in [("/admin", "text/html"), ("/admin.js", "text/javascript"), ("/admin.css", "text/css")]
    {
        let page = test.send("GET", path, None, "").await;
        assert_eq!(page.status(), StatusCode::OK, "{path}");
        assert!(page.headers()["content-type"].to_str().expect("text").starts_with(content_type), "{path}");
        let policy = page.headers()["content-security-policy"].to_str().expect("text");
        assert!(policy.contains("default-src 'self'") && !policy.contains("unsafe"), "{policy}");
    }
    let about = json_of(test.get("/api/admin").await).await;
    assert_eq!(
        (&about["workers"], &about["draining"], &about["log_filter"]),
        (&json!(2), &json!(false), &json!("info"))
    );
    assert_eq!(about["products"]["relay"], false);
}

#[tokio::test]
async fn the_host_is_looked_at_without_a_fault_for_ports_that_the_server_has() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut config = Config::default();
    config.http.listen = held.local_addr().expect("an address");
    config.workers.bind.clear();
    let test = Harness::with(Admin::default().with_checks(config));
    let findings = json_of(test.get("/api/admin/doctor").await).await;
    let checks: Vec<_> = findings.as_array().expect("a list").iter().map(|finding| &finding["check"]).collect();
    assert!(checks.contains(&&json!("descriptors")) && !checks.contains(&&json!("ports")), "{checks:?}");
}

#[tokio::test]
async fn what_an_admin_changes_is_a_line_and_what_a_stranger_tries_is_none() {
    let page = Page::default();
    let _writing = tracing::subscriber::set_default(writing(&page));
    let test = Harness::new();
    let filter = test.send("PUT", "/api/admin/log-filter", Some(&admin()), r#"{"filter": "debug"}"#).await;
    assert_eq!(filter.status(), StatusCode::NO_CONTENT);
    assert_eq!(json_of(test.get("/api/admin").await).await["log_filter"], "debug");
    let wrong = test.send("PUT", "/api/admin/log-filter", Some(&admin()), r#"{"filter": "no=such=thing"}"#).await;
    assert_problem(wrong, StatusCode::UNPROCESSABLE_ENTITY, "no=such=thing").await;
    test.send("DELETE", "/api/sessions/7", Some(&admin()), "").await;
    test.send("DELETE", "/api/sessions/8", None, "").await;
    test.send("DELETE", "/api/sessions/9", Some(&token(Rights::default())), "").await;
    assert_eq!(test.send("POST", "/api/admin/drain", Some(&admin()), "").await.status(), StatusCode::ACCEPTED);

    let text = page.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(" audit: ")).collect();
    let [set, refused, closed, drained] = lines[..] else { panic!("{text}") };
    assert!(set.ends_with(r#"action=PUT on="/api/admin/log-filter" wanted="debug" by="ops" result=204"#), "{set}");
    assert!(refused.ends_with("result=422") && drained.contains("/api/admin/drain"), "{text}");
    assert!(closed.ends_with(r#"action=DELETE on="/api/sessions/7" by="ops" result=404"#), "{closed}");
}

#[tokio::test]
async fn who_does_not_wait_for_the_answer_has_a_line_all_the_same() {
    let page = Page::default();
    let _writing = tracing::subscriber::set_default(writing(&page));
    let test = Harness::new();
    let (token, path) = (admin(), "/api/admin/reload");
    let mut request = std::pin::pin!(test.send("POST", path, Some(&token), ""));
    assert!(request.as_mut().now_or_never().is_none(), "nobody answers here");
    assert!(!page.text().contains(" audit: "));
    request.set(test.send("POST", path, None, ""));
    let text = page.text();
    assert!(text.trim_end().ends_with(r#"action=POST on="/api/admin/reload" by="ops""#), "{text}");
}

#[tokio::test]
async fn an_events_reader_has_no_more_samples_once_its_key_is_another() {
    let test = Harness::new();
    test.app.admin.sample(&test.app);
    let mut events = test.get("/api/admin/events").await;
    event(&mut events).await;
    event(&mut events).await;
    let keys = config::Auth { hs256_secret: Some(Secret("another".repeat(6))), ..config::Auth::default() };
    test.app.auth.replace(Auth::new(&keys).expect("a key"));
    test.app.admin.sample(&test.app);
    assert!(events.body_mut().frame().await.is_none());
}

struct Harness {
    app: Arc<App>,
    _workers: Vec<Receiver<Message>>,
}

impl Harness {
    fn new() -> Self {
        Harness::with(Admin::default().with_log_filter(Some(Arc::new(Filter(Mutex::new("info".to_owned()))))))
    }

    fn with(admin: Admin) -> Self {
        let (mailboxes, workers): (Vec<Mailbox<Message>>, _) =
            (0..WORKERS).map(|_| mailbox(100).expect("a mailbox")).unzip();
        let plane = Plane::new(Workers::pretended(mailboxes), placement::Settings::default());
        let rooms = Arc::new(RoomsControl::new(plane, Vec::new(), Default::default()));
        let keys = config::Auth { hs256_secret: Some(Secret(SECRET.to_owned())), ..config::Auth::default() };
        let app = App { admin, ..App::new(rooms, Auth::new(&keys).expect("a key")) };
        Harness { app: Arc::new(app), _workers: workers }
    }

    async fn send(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        router(self.app.clone()).oneshot(request).await.expect("an answer")
    }

    async fn get(&self, path: &str) -> Response<Body> {
        self.send("GET", path, Some(&admin()), "").await
    }
}

struct Filter(Mutex<String>);

impl LogFilter for Filter {
    fn current(&self) -> String {
        self.0.lock().expect("nobody panics").clone()
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        *self.0.lock().expect("nobody panics") = filter.to_owned();
        Ok(())
    }
}

fn admin() -> String {
    token(Rights::all())
}

fn token(millrace: Rights) -> String {
    let exp = std::time::SystemTime::now() + IN_AN_HOUR;
    let exp = exp.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let claims = Claims { sub: Some("ops".to_owned()), exp, millrace, ..Claims::default() };
    mint(&claims, SigningKey::Hs256(SECRET)).expect("a token")
}

fn number(names: &Value, numbers: &Value, name: &str) -> u64 {
    let at = names.as_array().expect("names").iter().position(|other| other == name).expect("such a number");
    numbers[at].as_u64().expect("a number")
}

async fn event(response: &mut Response<Body>) -> String {
    let frame = response.body_mut().frame().await.expect("it goes on").expect("it cannot fail");
    String::from_utf8(frame.into_data().expect("data").into()).expect("text")
}

fn data(event: &str) -> Value {
    serde_json::from_str(event.split("data: ").nth(1).expect("data")).expect("JSON")
}

async fn text_of(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 24).await.expect("a body");
    String::from_utf8(bytes.into()).expect("UTF-8")
}

async fn json_of(response: Response<Body>) -> Value {
    assert_eq!(response.status(), StatusCode::OK);
    serde_json::from_str(&text_of(response).await).expect("JSON")
}

async fn assert_problem(response: Response<Body>, status: StatusCode, detail: &str) {
    assert_eq!(response.status(), status);
    let text = text_of(response).await;
    assert!(text.contains(detail), "{text} lacks {detail:?}");
}

fn writing(page: &Page) -> impl Subscriber + Send + Sync + use<> {
    let writer = page.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish()
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panics").clone()).expect("text")
    }
}

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
