//! Reflected streams by HTTP: who watches one on a connection that stays here, who pushes one, HLS, and the API.
//!
//! Viewers whose connection begins with their request are a worker's already (`door`).

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::{Body as _, Frame, SizeHint};
use reflect::spec::{Join, ViewerId};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::field::display;

use super::api::{Page, part};
use super::client::ClientAddress;
use super::connections::{Lasting, Stay};
use super::{App, InPath, Problem};
use crate::config::Secret;
use crate::reflect::control::{Admission, Control, Found, Refusal, StreamView, ViewerView};
use crate::reflect::request::Query;
use crate::reflect::response;
use crate::reflect::stream::{Stream, StreamHandle, WriteError};
use crate::rooms::control::{DRAIN_RETRY_SECONDS, OVERLOAD_RETRY_SECONDS};

/// How often it is told that somebody was refused who would push.
const REFUSALS_TOLD: Duration = Duration::from_secs(1);

/// Somebody who pushes and sends nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How Icecast's clients pushed before there was PUT.
const SOURCE: &str = "SOURCE";

/// What pushes a stream where a token is needed may be shown in either way.
const CHALLENGE: &str = r#"Basic realm="millrace", Bearer realm="millrace""#;

/// What can be done with a stream that is pushed, and with one that is not.
const ALLOWED: [&str; 2] = ["GET, HEAD, PUT, POST, OPTIONS", "GET, HEAD, OPTIONS"];

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/reflect/streams", get(list_streams))
        .route("/api/reflect/streams/{stream}/viewers", get(list_viewers))
        .route("/api/reflect/viewers/{viewer}", delete(end_viewer))
}

/// Answers requests for streams, wherever these are; all others are for those behind.
pub(super) async fn streams(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let found = app.reflect.as_ref().and_then(|reflect| Some((reflect, reflect.find(request.uri().path())?)));
    let Some((reflect, found)) = found else { return next.run(request).await };
    let answer = match found {
        Found::Stream(stream) => answer(&app, reflect, stream, request).await,
        Found::Below(stream, name) => below(&app, reflect, (&stream, &name), request).await,
    };
    answer.into_response()
}

/// A playlist, or a segment.
async fn below(
    app: &App,
    reflect: &Arc<Control>,
    (stream, name): (&Arc<Stream>, &str),
    request: Request,
) -> Result<Response, Problem> {
    // In this order: what goes over is no longer here before what takes its place is.
    let hls = stream.hls();
    if !stream.is_here() {
        return Err(Problem::unavailable("another process has this stream", 1));
    }
    let Some(hls) = hls else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "this stream has nothing of that name"));
    };
    if !is_read(request.method()) {
        return Err(not_allowed(ALLOWED[1]));
    }
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().rsplit_once('/').map_or("", |(above, _)| above);
    app.authorize_viewer(reflect, (stream, path), &parts, &query(&parts)?)?;
    let client = ClientAddress::of(app, &parts);
    let session = reflect.visit(stream, (client.ip, client.is_proxy), &parts)?;
    let answer = hls.answer(name, parts.uri.query()).await?;
    Ok(match session {
        Some(session) => answer.map(|body| session.count(body)),
        None => answer,
    })
}

fn query(parts: &Parts) -> Result<Query, Problem> {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    query.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}

fn is_read(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

fn not_allowed(allowed: &'static str) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this resource does not know the method").allowing(allowed)
}

async fn answer(
    app: &Arc<App>,
    reflect: &Arc<Control>,
    stream: Arc<Stream>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let is_pushed = stream.push_terms().0;
    match parts.method.as_str() {
        "GET" => watch(app, reflect, &stream, &parts),
        "HEAD" => {
            app.authorize_viewer(reflect, (&stream, parts.uri.path()), &parts, &query(&parts)?)?;
            let content = stream.content().ok_or(Refusal::NotReady)?;
            Ok((response::headers(content.as_body()), Body::new(Unsaid)).into_response())
        }
        "PUT" | "POST" | SOURCE if is_pushed => push(app, &stream, &parts, body).await,
        "PUT" | "POST" | SOURCE => {
            let says = "this stream comes from its own source, and is not pushed";
            Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, says).allowing(ALLOWED[1]))
        }
        _ => Err(not_allowed(ALLOWED[usize::from(!is_pushed)])),
    }
}

/// Who asks behind another request, or by HTTP/2: the connection stays HTTP's.
fn watch(app: &App, reflect: &Arc<Control>, stream: &Arc<Stream>, parts: &Parts) -> Result<Response, Problem> {
    let query = query(parts)?;
    app.authorize_viewer(reflect, (stream, parts.uri.path()), parts, &query)?;
    let content = stream.content().ok_or(Refusal::NotReady)?;
    let client = ClientAddress::of(app, parts);
    let mut admission = reflect.admit(stream, client.ip, client.is_proxy)?;
    admission.note(parts, 0);
    let stay = parts.extensions.get::<Lasting>().map(Lasting::watch);
    let body = Body::new(Kept { body: admission.copy(query.join), _stay: stay });
    Ok((response::headers(content.as_body()), body).into_response())
}

/// A request that was read elsewhere, as far as it can be granted.
pub(crate) struct Granted {
    pub(crate) admission: Admission,
    /// Of the response.
    pub(crate) head: Box<[u8]>,
    pub(crate) join: Option<Join>,
}

impl App {
    /// Whether somebody may watch whose request was read elsewhere. `None`: HTTP has an answer to it.
    pub(super) fn grant(&self, parts: &Parts, query: &Query) -> Option<Granted> {
        let reflect = self.reflect.as_ref()?;
        let Found::Stream(stream) = reflect.find(parts.uri.path())? else { return None };
        self.authorize_viewer(reflect, (&stream, parts.uri.path()), parts, query).ok()?;
        let content = stream.content()?;
        let client = ClientAddress::of(self, parts);
        let mut admission = reflect.admit(&stream, client.ip, client.is_proxy).ok()?;
        let origin = parts.headers.get(header::ORIGIN).cloned();
        let head = response::head(content.as_body(), &self.cors_origins, origin, SystemTime::now());
        admission.note(parts, head.len());
        Some(Granted { admission, head, join: query.join })
    }

    /// Lets those through who may watch the stream at `path`: with a signed URL or a token, where there are keys for these.
    fn authorize_viewer(
        &self,
        reflect: &Control,
        (stream, path): (&Stream, &str),
        parts: &Parts,
        query: &Query,
    ) -> Result<(), Problem> {
        let Some(keys) = reflect.url_keys() else { return Ok(()) };
        let sent = parts.headers.get(header::AUTHORIZATION).map(|value| value.as_bytes().to_vec());
        let sent = query.token.as_ref().map(|token| format!("Bearer {token}").into_bytes()).or(sent);
        if let Some(sent) = sent.filter(|_| query.signed.is_none() && !self.auth.get().needs_no_token()) {
            let rights = self.auth.get().rights(Some(&sent))?;
            let may = rights.may_watch(stream.name());
            return if may { Ok(()) } else { Err(Problem::forbidden(&format!("watch {:?}", stream.name()))) };
        }
        let client = ClientAddress::of(self, parts).ip;
        let checked = keys.check(path, query.signed.as_ref(), client, SystemTime::now());
        checked.map_err(|error| Problem::new(StatusCode::FORBIDDEN, error.to_string()))
    }
}

/// `PUT`, `POST`: the stream, until it ends.
async fn push(app: &App, stream: &Arc<Stream>, parts: &Parts, body: Body) -> Result<Response, Problem> {
    let client = ClientAddress::of(app, parts).ip.map(display);
    let (handle, content_type) = begin_push(app, stream, parts).inspect_err(|problem| {
        // What pushes often does not say why it ended. Whoever likes can be refused: so not all are told of.
        if is_to_be_told(Instant::now()) {
            tracing::info!(stream = &**stream.name(), client, %problem, "push refused");
        }
    })?;
    let stay = parts.extensions.get::<Lasting>().map(Lasting::stay);
    tracing::info!(stream = &**stream.name(), client, content_type, "push begins");
    let name = stream.name().clone();
    let taking = async move {
        let _stay = stay;
        let pushed = take(Pushing(handle), body).await;
        match &pushed {
            Ok(()) => tracing::info!(stream = &*name, "push ends"),
            Err(problem) => tracing::info!(stream = &*name, %problem, "push breaks off"),
        }
        pushed
    };
    if parts.method.as_str() == SOURCE {
        // Who speaks so sends nothing before he has his answer.
        tokio::spawn(taking);
        return Ok(StatusCode::OK.into_response());
    }
    taking.await.map(|()| StatusCode::NO_CONTENT.into_response())
}

/// Once in `REFUSALS_TOLD`.
fn is_to_be_told(now: Instant) -> bool {
    static NEXT: Mutex<Option<Instant>> = Mutex::new(None);
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = next.is_none_or(|at| now >= at);
    if is_due {
        *next = Some(now + REFUSALS_TOLD);
    }
    is_due
}

/// The stream for who may push it and can, and what they say of its content.
fn begin_push<'a>(
    app: &App,
    stream: &Arc<Stream>,
    parts: &'a Parts,
) -> Result<(StreamHandle, Option<&'a str>), Problem> {
    authorize(app, stream, &parts.headers)?;
    let has_body = parts.headers.contains_key(header::TRANSFER_ENCODING)
        || parts.headers.contains_key(header::CONTENT_LENGTH)
        || parts.version == Version::HTTP_2;
    if !has_body {
        return Err(Problem::new(StatusCode::LENGTH_REQUIRED, "send the stream in chunks, or say its length"));
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let handle = stream.claim(Instant::now(), content_type.filter(|it| !is_of_forms(it)));
    let handle = handle.map_err(|occupied| Problem::new(StatusCode::CONFLICT, occupied.to_string()))?;
    Ok((handle, content_type))
}

/// What clients send that were told nothing.
fn is_of_forms(content_type: &str) -> bool {
    content_type.starts_with("application/x-www-form-urlencoded")
        || content_type.starts_with("application/octet-stream")
}

/// A source, until it is dropped: also when its connection breaks.
struct Pushing(StreamHandle);

impl Drop for Pushing {
    fn drop(&mut self) {
        self.0.break_off();
    }
}

async fn take(pushing: Pushing, mut body: Body) -> Result<(), Problem> {
    loop {
        let frame = timeout(SILENCE_MAX, poll_fn(|context| Pin::new(&mut body).poll_frame(context))).await;
        let nothing = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, format!("nothing came for {SILENCE_MAX:?}"));
        let Some(frame) = frame.map_err(nothing)? else { return Ok(()) };
        let broken = |error| Problem::new(StatusCode::BAD_REQUEST, format!("the body breaks off: {error}"));
        if let Ok(bytes) = frame.map_err(broken)?.into_data() {
            pushing.0.write(&bytes).await?;
        }
    }
}

/// Lets those through who may push a stream.
fn authorize(app: &App, stream: &Stream, headers: &HeaderMap) -> Result<(), Problem> {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| token(value.as_bytes()));
    let wrong = |says: &str| Problem::new(StatusCode::UNAUTHORIZED, says).challenging(CHALLENGE);
    if let (_, Some(Secret(expected))) = stream.push_terms() {
        let sent = sent.ok_or_else(|| wrong("who sends this stream has to show its token"))?;
        let is_it = verify_slices_are_equal(sent.as_bytes(), expected.as_bytes()).is_ok();
        return if is_it { Ok(()) } else { Err(wrong("that is not the token of this stream")) };
    }
    if sent.is_none() && !app.auth.get().needs_no_token() {
        return Err(wrong("who sends this stream has to show a token"));
    }
    let bearer = sent.map(|token| format!("Bearer {token}"));
    let rights = app.auth.get().rights(bearer.as_deref().map(str::as_bytes))?;
    if rights.may_publish(stream.name()) {
        return Ok(());
    }
    Err(Problem::forbidden(&format!("publish {:?}", stream.name())))
}

/// A bearer's token (RFC 6750), or the password of Basic (RFC 7617), which has a user name before it.
fn token(authorization: &[u8]) -> Option<String> {
    let (scheme, value) = str::from_utf8(authorization).ok()?.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.to_owned());
    }
    let login = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(value).ok())??;
    Some(String::from_utf8(login).ok()?.split_once(':')?.1.to_owned())
}

/// `GET /api/reflect/streams`: all of them, by name.
async fn list_streams(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Json<Value>, Problem> {
    app.rights(&headers)?;
    Ok(Json(reflect(&app)?.streams().iter().map(stream_json).collect()))
}

/// `GET /api/reflect/streams/{stream}/viewers`: those who watch it, the first first.
async fn list_viewers(
    State(app): State<Arc<App>>,
    InPath(stream): InPath<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "list viewers")?;
    let wanted = Page::<u64>::read(&uri)?;
    let (after, count) = (ViewerId(wanted.after.unwrap_or(0)), wanted.count());
    let viewers = reflect(&app)?.viewers(&stream, after, count);
    let (viewers, next) = viewers.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "there is no such stream"))?;
    Ok(part("viewers", viewers.iter().map(viewer_json).collect(), count, next.map(|id| id.0)))
}

/// `DELETE /api/reflect/viewers/{viewer}`: ends his connection.
async fn end_viewer(
    State(app): State<Arc<App>>,
    InPath(viewer): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "end viewers")?;
    let (reflect, id) = (reflect(&app)?, viewer.parse().ok().map(ViewerId));
    if id.is_some_and(|id| reflect.end_viewer(id)) {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::new(StatusCode::NOT_FOUND, "there is no such viewer"))
}

pub(super) fn reflect(app: &App) -> Result<&Control, Problem> {
    app.reflect.as_deref().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "this server reflects nothing"))
}

fn stream_json(stream: &StreamView) -> Value {
    let totals = &stream.totals;
    json!({
        "name": &*stream.name,
        "path": &*stream.path,
        "hls": stream.has_hls.then(|| format!("{}/index.m3u8", stream.path)),
        "content_type": stream.content_type,
        "live": stream.has_source,
        "rate": stream.rate.bps(),
        "received_bytes": stream.received_bytes,
        "viewers": stream.viewers,
        "viewers_begun": totals.begun,
        "viewers_gone": {"sent_bytes": totals.sent_bytes, "skips": totals.skips},
    })
}

fn viewer_json(viewer: &ViewerView) -> Value {
    json!({
        "id": viewer.id.0.to_string(),
        "address": viewer.client,
        "worker": viewer.worker.map(|worker| worker.0),
        "hls": viewer.is_hls,
        "seconds": viewer.age.as_secs(),
    })
}

/// What nobody is sent, and has no length (RFC 9110 §9.3.2).
struct Unsaid;

impl hyper::body::Body for Unsaid {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}

/// A body for which its connection is kept.
struct Kept {
    body: Body,
    _stay: Option<Stay>,
}

impl hyper::body::Body for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let says = refusal.to_string();
        match refusal {
            Refusal::NotReady => Problem::unavailable(says, 1),
            Refusal::Draining => Problem::unavailable(says, DRAIN_RETRY_SECONDS),
            Refusal::Busy | Refusal::Full | Refusal::StreamFull | Refusal::Bandwidth => {
                Problem::unavailable(says, OVERLOAD_RETRY_SECONDS)
            }
            Refusal::ClientFull => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, says).to_be_tried_again(OVERLOAD_RETRY_SECONDS)
            }
        }
    }
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        let says = error.to_string();
        let status = match error {
            WriteError::Ended => StatusCode::NOT_FOUND,
            WriteError::Superseded => StatusCode::CONFLICT,
            WriteError::Trouble(_) => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Problem::new(status, says)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_bearers_or_a_password() {
        let of = |text: &str| token(text.as_bytes());
        assert_eq!(of("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(of("bearer  abc "), Some("abc".to_owned()));
        // "source:hackme", as Icecast's clients send it, and "a:b:c".
        assert_eq!(of("Basic c291cmNlOmhhY2ttZQ=="), Some("hackme".to_owned()));
        assert_eq!(of("basic YTpiOmM="), Some("b:c".to_owned()));
        for wrong in ["", "Basic", "Basic !", "Basic YWJj", "Digest abc"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
