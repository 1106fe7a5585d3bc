//! The operator's dashboard: the page `/admin`, and what of the API is there for it.
//!
//! In: numbers of all workers and control planes, once a second; what an admin asks for. Out: the last hour (`history`), each sample
//! as it is made (`events`), what the server is, what hurts its host, its log filter, and a drain.
//! Cost: `sample::Sampler::read` and one encoding a second, on a control thread.

mod checks;
mod feed;
mod history;
mod sample;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use rustix::system::uname;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::api::read_query;
use super::audit::Wanted;
use super::connections::Lasting;
use super::{App, Problem, pages};
use crate::config::Config;
use crate::rooms::control::DRAIN_RETRY_SECONDS;
use checks::Checks;
use feed::{Feed, NoPlace};
use history::{History, ROWS_MAX};
use sample::Sampler;

/// A sample is taken so often.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// Answers with parts of the history that are made at a time; who asks beyond that waits.
const PARTS_AT_ONCE: usize = 2;

/// What is written in the log, and how that changes while the server runs.
pub trait LogFilter: Send + Sync {
    /// As it is.
    fn current(&self) -> String;

    /// From now on it is this one.
    ///
    /// # Errors
    /// What is wrong with it.
    fn set(&self, filter: &str) -> Result<(), String>;
}

/// What the dashboard has of its own.
pub struct Admin {
    /// When it was made, and milliseconds since 1970 then: times of samples go on when somebody sets the clock.
    began: (Instant, u64),
    samples: Mutex<Samples>,
    feed: Feed,
    parts: Semaphore,
    checks: Option<Checks>,
    log_filter: Option<Arc<dyn LogFilter>>,
    drain: Notify,
    reloads: (mpsc::Sender<Reply>, Mutex<mpsc::Receiver<Reply>>),
}

/// Where the answer to a wish for a reload goes.
pub(crate) type Reply = oneshot::Sender<Result<Reloaded, String>>;

/// Wishes for a reload that wait at most.
const RELOADS_MAX: usize = 4;

/// A server that ends, or is replaced, takes no such wish any more.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// What has changed in the settings since they were read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// What holds now.
    pub taken: Vec<String>,
    /// What has changed since the server started, and takes a restart.
    pub restart: Vec<String>,
}

#[derive(Default)]
struct Samples {
    sampler: Sampler,
    /// From the first sample on.
    history: Option<History>,
}

impl Default for Admin {
    fn default() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Admin {
            began: (Instant::now(), since_1970.as_millis() as u64),
            samples: Mutex::default(),
            feed: Feed::default(),
            parts: Semaphore::new(PARTS_AT_ONCE),
            checks: None,
            log_filter: None,
            drain: Notify::new(),
            reloads: {
                let (sender, receiver) = mpsc::channel(RELOADS_MAX);
                (sender, Mutex::new(receiver))
            },
        }
    }
}

impl Admin {
    /// The same, which can look at the host as these settings need it.
    #[must_use]
    pub fn with_checks(self, config: Config) -> Self {
        Admin { checks: Some(Checks::new(config)), ..self }
    }

    /// The same, which can change what is logged.
    #[must_use]
    pub fn with_log_filter(self, log_filter: Option<Arc<dyn LogFilter>>) -> Self {
        Admin { log_filter, ..self }
    }

    /// Returns when somebody has asked for a drain.
    pub(crate) async fn drain_is_wanted(&self) {
        self.drain.notified().await;
    }

    /// Returns where the answer goes when somebody has asked for a reload. One asks for it at a time.
    pub(crate) async fn reload_is_wanted(&self) -> Reply {
        poll_fn(|context| {
            let mut wishes = self.reloads.1.lock().unwrap_or_else(PoisonError::into_inner);
            wishes.poll_recv(context).map(|reply| reply.expect("one end is here"))
        })
        .await
    }

    /// What is logged, where that can be changed.
    pub(crate) fn log_filter(&self) -> Option<&dyn LogFilter> {
        self.log_filter.as_deref()
    }

    /// Takes a sample. The first one makes room for all.
    pub fn sample(&self, app: &App) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let Samples { sampler, history } = &mut *samples;
        let reading = sampler.read(app);
        let history = history.get_or_insert_with(|| {
            let history = History::new(&reading);
            tracing::debug!(bytes = history.bytes(), "the dashboard's history has its place");
            history
        });
        let at_ms = self.began.1 + self.began.0.elapsed().as_millis() as u64;
        let (fields, mut text) = (history.fields().clone(), String::new());
        fields.write_sample(history.push(at_ms, &reading), &mut text);
        self.feed.tell(at_ms, &text);
    }

    /// Ends the answers that would go on for ever: the server ends.
    pub fn end(&self) {
        self.feed.end();
    }

    fn history<R>(&self, read: impl FnOnce(&History) -> R) -> Result<R, Problem> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let none = || Problem::unavailable("there is no sample yet", 1);
        samples.history.as_ref().map(read).ok_or_else(none)
    }
}

/// Takes samples until it is aborted.
pub async fn keep_sampling(app: Arc<App>) {
    let mut tick = interval(SAMPLE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // Where no token can be good nobody sees it.
        if !app.auth.get().is_closed() {
            app.admin.sample(&app);
        }
    }
}

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/admin", get(pages::admin))
        .route("/admin.js", get(pages::admin_script))
        .route("/admin.css", get(pages::admin_style))
        .route("/api/admin", get(show))
        .route("/api/admin/history", get(show_history))
        .route("/api/admin/events", get(follow))
        .route("/api/admin/doctor", get(examine))
        .route("/api/admin/log-filter", put(set_log_filter))
        .route("/api/admin/drain", post(drain))
        .route("/api/admin/reload", post(reload))
}

/// `GET /api/admin`: what this server is.
async fn show(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "look at the server")?;
    let up = app.admin.began.0.elapsed();
    Ok(not_kept(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "host": uname().nodename().to_str().unwrap_or_default(),
        "workers": app.plane.workers().count(),
        "up_seconds": up.as_secs(),
        "draining": app.plane.is_draining(),
        "products": {
            "rooms": app.has_rooms,
            "livekit": app.livekit.is_some(),
            "pump": app.pump.is_some(),
            "relay": app.relay.is_some(),
            "reflect": app.reflect.as_ref().is_some_and(|reflect| reflect.has_streams()),
        },
        "log_filter": app.admin.log_filter.as_ref().map(|filter| filter.current()),
        "doctor": app.admin.checks.is_some(),
    }))))
}

/// Which part of the last hour is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedHistory {
    /// Samples later than this, in milliseconds since 1970.
    after: Option<u64>,
    /// In seconds.
    step: Option<u64>,
    limit: Option<usize>,
}

/// One in four seconds: an hour is one answer.
const STEP_USUAL: u64 = 4;

/// `GET /api/admin/history`
async fn show_history(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "look at the server")?;
    let WantedHistory { after, step, limit } = read_query(&uri)?;
    let (step, count) = (step.unwrap_or(STEP_USUAL), limit.unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX));
    let _turn = app.admin.parts.acquire().await;
    let part = app.admin.history(|history| history.part(after.unwrap_or(0), step, count))?;
    let next = part.last_ms().filter(|_| part.has_more);
    let link =
        next.map(|last| (header::LINK, format!("<history?step={step}&after={last}&limit={count}>; rel=\"next\"")));
    let made = tokio::task::spawn_blocking(move || part.json()).await;
    let text = made.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(not_kept((AppendHeaders(link), [(header::CONTENT_TYPE, "application/json")], text)))
}

/// `GET /api/admin/events`
async fn follow(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    lasting: Option<Extension<Lasting>>,
) -> Result<Response, Problem> {
    app.authorize_admin(&headers, "look at the server")?;
    let expires = app.bearer(&headers)?.expires;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = |at| Duration::from_secs(at).saturating_sub(since_1970);
    let ends = expires.and_then(|at| tokio::time::Instant::now().checked_add(left(at)));
    let fields = app.admin.history(|history| history.fields().json())?;
    let place = app.admin.feed.enter()?;
    let stay = lasting.map(|Extension(lasting)| lasting.watch());
    // Keys can change meanwhile.
    let may = move || app.authorize_admin(&headers, "look at the server").is_ok();
    let body = place.body(&fields, stay, ends, may);
    Ok(not_kept(([(header::CONTENT_TYPE, "text/event-stream")], body)).into_response())
}

/// `GET /api/admin/doctor`: what `millrace doctor --json` prints, but for ports.
async fn examine(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "look at the host")?;
    let checks = app.admin.checks.as_ref();
    let checks = checks.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "this server does not look at its host"))?;
    let findings = checks.findings().await?;
    Ok(not_kept(([(header::CONTENT_TYPE, "application/json")], findings)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedFilter {
    filter: String,
}

/// `PUT /api/admin/log-filter`: as `log.filter`, until the server is started anew.
async fn set_log_filter(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "change what is logged")?;
    let body = app.read_body(&headers, body, "application/json").await?;
    let wrong = |error| Problem::new(StatusCode::BAD_REQUEST, format!(r#"send {{"filter": text}}: {error}"#));
    let WantedFilter { filter } = serde_json::from_str(&body).map_err(wrong)?;
    let log_filter = app.admin.log_filter.as_ref();
    let none = || Problem::new(StatusCode::NOT_FOUND, "this server's log cannot be changed while it runs");
    let refused = |says| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{filter:?}: {says}"));
    log_filter.ok_or_else(none)?.set(&filter).map_err(refused)?;
    Ok((Extension(Wanted::of(&filter)), StatusCode::NO_CONTENT))
}

/// `POST /api/admin/drain`: as SIGUSR1, nobody new is taken, and the server ends with the last of those who are there.
async fn drain(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "drain the server")?;
    app.admin.drain.notify_one();
    Ok(StatusCode::ACCEPTED)
}

/// `POST /api/admin/reload`: as SIGHUP. Says which settings hold now, and which have changed and take a restart.
async fn reload(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "reload the settings")?;
    let busy = || Problem::unavailable("the server does not take it now", 1);
    let (reply, answer) = oneshot::channel();
    app.admin.reloads.0.try_send(reply).map_err(|_| busy())?;
    let answered = timeout(RELOAD_TIMEOUT, answer).await.map_err(|_| busy())?;
    let reloaded = answered.map_err(|_| busy())?;
    let Reloaded { taken, restart } = reloaded.map_err(|says| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, says))?;
    Ok(not_kept(Json(json!({"taken": taken, "restart": restart}))))
}

fn not_kept<T: IntoResponse>(answer: T) -> impl IntoResponse {
    (AppendHeaders([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]), answer)
}

impl From<NoPlace> for Problem {
    fn from(none: NoPlace) -> Self {
        Problem::unavailable(none.to_string(), DRAIN_RETRY_SECONDS)
    }
}
