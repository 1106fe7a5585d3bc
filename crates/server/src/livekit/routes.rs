//! Where clients and applications come in: `/rtc`, `/rtc/v1` and what tells why they are not let in, and the API.
//!
//! Every answer says that pages of any origin may read it, errors too: a browser that may not read a 404 takes the server
//! for unreachable. Who may do what is in the token.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use livekit::admin::{Refusal, Request as AdminRequest};
use livekit::join::Join;
use livekit::media::SessionId;
use livekit::output::ConnectionId;
use livekit::token::{Claims, TokenError};
use wire::{Budget, Rate};

use super::hub::{Hub, NotNow};
use super::queue::Outlet;
use super::socket::Signalling;
use super::stage::Stage;
use super::twirp;
use super::websocket::Asked;
use crate::traces::{self, Traces};

/// Bytes of a request to the API at most.
const BODY_BYTES_MAX: usize = 1 << 20;

/// How often the log says who was refused.
const TOLD: Rate = Rate { burst: 20, interval: Duration::from_secs(1) };

/// What the log has of a path, and of a reason, at most.
const TOLD_CHARS: usize = 200;

/// What a query says: a name and its value.
type Pair = (String, String);
type Pairs = Vec<Pair>;

/// Everything, for a router that has more.
pub fn routes(hub: Arc<Hub>, traces: Traces) -> Router {
    let budget = Arc::new(Mutex::new(Budget::new(Instant::now())));
    // Some clients that have the server's address with a slash at its end ask with two.
    paths("")
        .merge(paths("/"))
        .layer(middleware::from_fn_with_state(budget, tell_of_refusals))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(Extension(traces))
        .layer(middleware::from_fn(any_origin))
        .with_state(hub)
}

fn paths(before: &str) -> Router<Arc<Hub>> {
    let path = |path: &str| format!("{before}{path}");
    Router::new()
        .route(&path("/rtc"), get(join_v0))
        .route(&path("/rtc/validate"), get(validate_v0))
        .route(&path("/rtc/v1"), get(join_v1))
        .route(&path("/rtc/v1/validate"), get(validate_v1))
        .route(&path("/rtc/{*rest}"), get(nothing))
        .route(&path("/twirp/{service}/{method}"), post(call))
}

/// An answer in a few words, as clients of this protocol show them.
struct Plain(StatusCode, String);

impl IntoResponse for Plain {
    fn into_response(self) -> Response {
        let why = Extension(Why(self.1.clone()));
        (self.0, why, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.1).into_response()
    }
}

/// Goes with an answer, for the log.
#[derive(Clone)]
pub(super) struct Why(pub(super) String);

impl From<TokenError> for Plain {
    fn from(error: TokenError) -> Self {
        Plain(StatusCode::UNAUTHORIZED, error.to_string())
    }
}

impl From<NotNow> for Plain {
    fn from(why: NotNow) -> Self {
        let status = match why {
            NotNow::Refused(refused) => refused.status(),
            NotNow::Full | NotNow::Busy => 503,
        };
        Plain(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), why.to_string())
    }
}

async fn join_v0(
    hub: State<Arc<Hub>>,
    traces: Extension<Traces>,
    pairs: Query<Pairs>,
    headers: HeaderMap,
    asked: Option<Asked>,
) -> Result<Response, Plain> {
    join(hub, traces, pairs, &headers, asked, ("/rtc", read_v0))
}

async fn join_v1(
    hub: State<Arc<Hub>>,
    traces: Extension<Traces>,
    pairs: Query<Pairs>,
    headers: HeaderMap,
    asked: Option<Asked>,
) -> Result<Response, Plain> {
    join(hub, traces, pairs, &headers, asked, ("/rtc/v1", read_v1))
}

async fn validate_v0(hub: State<Arc<Hub>>, pairs: Query<Pairs>, headers: HeaderMap) -> Result<&'static str, Plain> {
    validate(&hub, &pairs, &headers, read_v0)
}

async fn validate_v1(hub: State<Arc<Hub>>, pairs: Query<Pairs>, headers: HeaderMap) -> Result<&'static str, Plain> {
    validate(&hub, &pairs, &headers, read_v1)
}

type Read = fn(Claims, &[Pair]) -> Result<Join, NotNow>;

fn read_v0(claims: Claims, pairs: &[Pair]) -> Result<Join, NotNow> {
    // The SDK for Go brings the request of v1 here.
    if !value(pairs, "join_request").is_empty() {
        return read_v1(claims, pairs);
    }
    Ok(Join::from_query(claims, pairs)?)
}

fn read_v1(claims: Claims, pairs: &[Pair]) -> Result<Join, NotNow> {
    Ok(Join::from_request(claims, value(pairs, "join_request"))?)
}

/// Lets somebody in, and goes on by WebSocket. Who asks for none has come to the wrong place.
fn join(
    State(hub): State<Arc<Hub>>,
    Extension(traces): Extension<Traces>,
    Query(pairs): Query<Pairs>,
    headers: &HeaderMap,
    asked: Option<Asked>,
    (route, read): (&'static str, Read),
) -> Result<Response, Plain> {
    let asked = asked.ok_or_else(|| Plain(StatusCode::NOT_FOUND, "this is for WebSockets".to_owned()))?;
    let request = traces::Asked { name: "LiveKit join", method: "GET", route, headers, client: None, phase: "admit" };
    let mut traced = traces.begin(&request);
    let (connection, outlet) = admit(&hub, &traces, &pairs, headers, read, &mut traced).inspect_err(|plain| {
        let Plain(status, why) = plain;
        std::mem::take(&mut traced).refuse(*status, why);
    })?;
    let signalling = Signalling { hub, connection, outlet };
    Ok(asked.answer(|socket| signalling.serve(socket)))
}

fn admit(
    hub: &Hub,
    traces: &Traces,
    pairs: &[Pair],
    headers: &HeaderMap,
    read: Read,
    traced: &mut traces::Join,
) -> Result<(ConnectionId, Outlet), Plain> {
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let join = read(claims(hub, pairs, headers)?, pairs)?.by(agent);
    traced.set("millrace.room", || join.room().to_owned());
    let resumes = join.reconnect.is_some();
    let follow = |session: Option<SessionId>| {
        let mut traced = std::mem::take(traced);
        traced.answer(StatusCode::SWITCHING_PROTOCOLS);
        // Who comes back has its peer connections; for others a join is over when the one on which the client counts is there.
        match session.filter(|_| !resumes) {
            Some(session) => traces.follow(Stage::spec_id(session), "describe", traced, || true),
            None => traced.succeed(),
        }
    };
    Ok(hub.join_then(join, follow)?)
}

/// Says why somebody is not let in. Browsers do not tell a page what the answer to a WebSocket was.
fn validate(hub: &Hub, pairs: &[Pair], headers: &HeaderMap, read: Read) -> Result<&'static str, Plain> {
    let join = read(claims(hub, pairs, headers)?, pairs)?;
    hub.check(&join)?;
    Ok("success")
}

fn claims(hub: &Hub, pairs: &[Pair], headers: &HeaderMap) -> Result<Claims, TokenError> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = header.and_then(|header| header.strip_prefix("Bearer "));
    let token = bearer.or_else(|| Some(value(pairs, "access_token")).filter(|token| !token.is_empty()));
    hub.verify(token.ok_or(TokenError::Missing)?.trim())
}

fn value<'a>(pairs: &'a [Pair], key: &str) -> &'a str {
    pairs.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
}

async fn nothing() -> Plain {
    Plain(StatusCode::NOT_FOUND, "there is nothing here".to_owned())
}

/// One call of the API.
async fn call(
    State(hub): State<Arc<Hub>>,
    Path((service, method)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let form = twirp::Form::of(headers.get(header::CONTENT_TYPE));
    let answer = || -> Result<_, twirp::Error> {
        let form = form.ok_or(twirp::Error::BAD_TYPE)?;
        let request = twirp::read(&service, &method, form, &body)?;
        let claims = claims(&hub, &[], &headers)?;
        let grant = claims.video.unwrap_or_default();
        let line = request.changes().then(|| Line::of(&method, &request, claims.iss));
        let answer = hub.admin(&grant, request);
        if let Some(line) = line.filter(|_| !matches!(answer, Err(Refusal::NotAllowed))) {
            line.write(answer.as_ref().map_or_else(|refusal| refusal.twirp().1, |_| 200));
        }
        Ok((form, answer?))
    };
    match answer() {
        Ok((form, answer)) => twirp::write(form, &answer),
        Err(error) => twirp::Error::into_response(error),
    }
}

/// What the log has of a call that changes something, as of requests to our own API (`http::audit`): only of who may ask for it.
struct Line {
    action: String,
    room: Option<String>,
    participant: Option<String>,
    by: String,
}

impl Line {
    fn of(method: &str, request: &AdminRequest, by: String) -> Self {
        let room = match request {
            AdminRequest::CreateRoom(request) => Some(&*request.name),
            request => request.room(),
        };
        let [room, participant] = [room, request.identity()].map(|text| text.map(told));
        Line { action: method.to_owned(), room, participant, by }
    }

    fn write(self, result: u16) {
        let Line { action, room, participant, by } = self;
        tracing::info!(target: "audit", action, room, participant, by, result, "an application's request");
    }
}

/// It may be as long as whoever asks likes.
fn told(text: &str) -> String {
    text.chars().take(TOLD_CHARS).collect()
}

/// The log says who was refused and why, not what was asked for beside that: a token may stand there.
async fn tell_of_refusals(State(budget): State<Arc<Mutex<Budget>>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    if let Some(Why(why)) = response.extensions().get()
        && budget.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now(), TOLD)
    {
        let [path, why] = [&path, why].map(|text| told(text));
        tracing::info!(path, status = response.status().as_u16(), why, "a request of LiveKit's protocol is refused");
    }
    response
}

/// Lets pages of any origin read the answer.
async fn any_origin(request: Request, next: Next) -> Response {
    let is_options = request.method() == Method::OPTIONS;
    let mut response = if is_options { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    if is_options {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("Authorization, Content-Type"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    }
    response
}
