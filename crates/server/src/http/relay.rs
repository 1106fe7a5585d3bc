//! The relay's part of the API: its allocations, credentials for clients, and the drain.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use relay::ledger::UserTotals;
use relay::spec::{AllocationId, AllocationInfo, Traffic};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wire::WorkerId;

use super::api::{Page, page, page_count, read_query, with_filters};
use super::{App, InPath, Problem};
use crate::auth::Bearer;
use crate::relay::blocks::Block;
use crate::relay::control::{RelayControl, RelayError};
use crate::relay::issuer;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/relay", get(show))
        .route("/api/relay/allocations", get(list))
        .route("/api/relay/allocations/{allocation}", delete(end))
        .route("/api/relay/users", get(list_users))
        .route("/api/relay/blocks", get(list_blocks))
        .route("/api/relay/blocks/{user}", put(block).delete(unblock))
        .route("/api/relay/credentials", post(make_credential))
        .route("/api/relay/drain", get(show_drain).post(start_drain).delete(end_drain))
}

pub(super) fn relay(app: &App) -> Result<&RelayControl, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "this server has no relay (see relay.listen)");
    app.relay.as_deref().ok_or_else(none)
}

/// `GET /api/relay`: where it listens, and how much there is.
async fn show(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "look at the relay")?;
    let relay = relay(&app)?;
    Ok(Json(json!({
        "listen": relay.listen(),
        "dtls_listen": relay.dtls_listen(),
        "tcp_listen": relay.tcp_listen(),
        "tls_listen": relay.tls_listen(),
        "allocations": relay.count(),
        "draining": relay.is_draining(),
    })))
}

/// Which allocations are wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedAllocations {
    user: Option<String>,
    worker: Option<u16>,
    after: Option<u64>,
    limit: Option<usize>,
}

/// `GET /api/relay/allocations`: all of them, or those of a user or a worker, by number.
async fn list(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "list allocations")?;
    let WantedAllocations { user, worker, after, limit } = read_query(&uri)?;
    let (after, count) = (AllocationId(after.unwrap_or(0)), page_count(limit));
    let of_user = user.as_deref().map(Arc::from);
    let found = relay(&app)?.allocations(of_user, worker.map(WorkerId), after, count).await?;
    let entries = found.iter().map(|(worker, info)| allocation_json(*worker, info)).collect();
    let path = with_filters("allocations", &[("user", user), ("worker", worker.map(|worker| worker.to_string()))]);
    Ok(page(&path, entries, count, found.last().map(|(_, info)| info.id.0)))
}

/// `GET /api/relay/users`: what those have and have used that have an allocation.
async fn list_users(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "list users")?;
    let wanted = Page::<String>::read(&uri)?;
    let count = wanted.count();
    let users = relay(&app)?.users(wanted.after.as_deref(), count);
    let user_json = |user: &UserTotals| {
        json!({
            "user": &*user.user,
            "allocations": user.allocations,
            "sent": traffic_json(user.sent),
            "received": traffic_json(user.received),
            "dropped": traffic_json(user.dropped),
        })
    };
    let last = users.last().map(|user| user.user.clone());
    Ok(page("users", users.iter().map(user_json).collect(), count, last))
}

/// `GET /api/relay/blocks`: users who are kept out, by name.
async fn list_blocks(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "list users")?;
    let wanted = Page::<String>::read(&uri)?;
    let (after, count) = (wanted.after.as_deref().unwrap_or_default(), wanted.count());
    let blocks = relay(&app)?.blocks(after, count);
    let block_json = |block: &Block| json!({"user": &*block.user, "seconds": block.left.map(|left| left.as_secs())});
    let last = blocks.last().map(|block| block.user.clone());
    Ok(page("blocks", blocks.iter().map(block_json).collect(), count, last))
}

/// For how long a user is to be kept out.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedBlock {
    #[serde(default)]
    seconds: Option<u64>,
}

/// `PUT /api/relay/blocks/{user}`: ends a user's allocations, and lets him have no others.
async fn block(
    State(app): State<Arc<App>>,
    InPath(user): InPath<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "block users")?;
    let wanted: WantedBlock = read_json(&app, &headers, body, r#"{"seconds": number}"#).await?;
    let time = wanted.seconds.map(|seconds| Duration::from_secs(seconds).min(BLOCK_TIME_MAX));
    relay(&app)?.block(&user, time)?;
    Ok(StatusCode::NO_CONTENT)
}

/// A hundred years: an instant cannot be as late as a number can.
const BLOCK_TIME_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// `DELETE /api/relay/blocks/{user}`: he may come again.
async fn unblock(
    State(app): State<Arc<App>>,
    InPath(user): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "unblock users")?;
    relay(&app)?.unblock(&user)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a body of JSON that may be left out.
async fn read_json<T: Default + DeserializeOwned>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    form: &str,
) -> Result<T, Problem> {
    if headers.get(header::CONTENT_TYPE).is_none() {
        return Ok(T::default());
    }
    let body = app.read_body(headers, body, "application/json").await?;
    let wrong = |error| Problem::new(StatusCode::BAD_REQUEST, format!("send nothing, or {form}: {error}"));
    serde_json::from_str(&body).map_err(wrong)
}

/// `DELETE /api/relay/allocations/{allocation}`
async fn end(
    State(app): State<Arc<App>>,
    InPath(allocation): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "end allocations")?;
    let id = allocation.parse().map_err(|_| RelayError::NoAllocation)?;
    relay(&app)?.delete(AllocationId(id))?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /api/relay/drain`: whether allocations begin, and how many are left.
async fn show_drain(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "look at the relay")?;
    let relay = relay(&app)?;
    Ok(Json(json!({"draining": relay.is_draining(), "allocations": relay.count()})))
}

/// `POST /api/relay/drain`: no allocation begins any more.
async fn start_drain(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "drain the relay")?;
    relay(&app)?.start_drain();
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /api/relay/drain`: they begin again.
async fn end_drain(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "end a drain")?;
    relay(&app)?.end_drain()?;
    Ok(StatusCode::NO_CONTENT)
}

/// What may be said of the credential that is wanted.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// In seconds.
    #[serde(default)]
    ttl: Option<Value>,
}

impl Wanted {
    /// For how long; it may be more than anybody gets.
    fn lifetime(self) -> Result<Option<Duration>, Problem> {
        let Some(ttl) = self.ttl else { return Ok(None) };
        let seconds = ttl.as_u64().filter(|seconds| LIFETIMES.contains(seconds)).ok_or_else(|| {
            let (least, most) = (LIFETIMES.start(), LIFETIMES.end());
            let detail = format!("ttl: got {ttl}; allowed: a whole number of seconds from {least} to {most}");
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
        })?;
        Ok(Some(Duration::from_secs(seconds)))
    }
}

/// Lifetimes of credentials, in seconds. With less nobody would get as far as his first allocation when a clock is a bit off.
const LIFETIMES: RangeInclusive<u64> = 60..=604_800;

/// `POST /api/relay/credentials`: a time-limited credential, for whose token lets it publish or watch anything. The answer
/// has the names of draft-uberti-behave-turn-rest-00.
async fn make_credential(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Problem> {
    let bearer = app.bearer(&headers)?;
    if !bearer.rights.admin && bearer.rights.watchable().is_empty() {
        return Err(Problem::forbidden("use the relay (it may neither publish nor watch anything)"));
    }
    let wanted: Wanted = read_json(&app, &headers, body, r#"{"ttl": seconds}"#).await?;
    let who = name_of(&bearer)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let made = relay(&app)?.credential(&who, wanted.lifetime()?, now)?;
    let answer = json!({
        "username": made.username,
        "password": made.password,
        "ttl": made.lifetime.as_secs(),
        "uris": made.uris,
    });
    Ok((AppendHeaders([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]), Json(answer)))
}

/// What quotas go by: the token's subject, or the token where it names none.
fn name_of(bearer: &Bearer) -> Result<String, Problem> {
    match (&bearer.subject, bearer.token) {
        (Some(subject), _) if issuer::is_name(subject) => Ok(subject.clone()),
        (Some(_), _) => {
            let detail = "the subject of the token is no name of a user: empty, too long, or with control characters";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail))
        }
        (None, Some(token)) => Ok(format!("token-{token:016x}")),
        (None, None) => Ok("anybody".to_owned()),
    }
}

pub(super) fn traffic_json(traffic: Traffic) -> Value {
    json!({"packets": traffic.packets, "bytes": traffic.bytes})
}

fn allocation_json(worker: WorkerId, info: &AllocationInfo) -> Value {
    json!({
        "id": info.id.0.to_string(),
        "user": &*info.user,
        "worker": worker.0,
        "client": info.client,
        "server": info.server,
        "transport": <&str>::from(info.transport),
        "relayed": info.relayed,
        "age": info.age.as_secs(),
        "expires_in": info.expires_in.as_secs(),
        "permissions": info.permissions,
        "channels": info.channels,
        "sent": traffic_json(info.sent),
        "received": traffic_json(info.received),
        "dropped": info.dropped,
    })
}

impl From<RelayError> for Problem {
    fn from(error: RelayError) -> Self {
        let detail = error.to_string();
        match error {
            RelayError::Busy => Problem::unavailable(detail, 1),
            RelayError::Stopping => Problem::new(StatusCode::CONFLICT, detail),
            RelayError::TooManyBlocks => Problem::new(StatusCode::CONFLICT, detail),
            RelayError::NoAllocation | RelayError::NoBlock | RelayError::NoSecret => {
                Problem::new(StatusCode::NOT_FOUND, detail)
            }
        }
    }
}
