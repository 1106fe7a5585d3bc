//! The JSON API: streams, statistics, and the choice of layers.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse};
use axum::{Extension, Json};
use rooms::spec::{LayerLimit, LayerStats, SessionId, SessionStats, TrackSpec};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::form_urlencoded;
use wire::codec::MediaKind;

use super::audit::Wanted;
use super::{App, InPath, Problem};
use crate::rooms::control::{ControlError, track_id};
use crate::rooms::directory::{DirectoryError, Role, Session, StreamView};
use crate::rooms::stories::Part;

/// Entries of one answer at most. They are copied under a lock that everybody needs.
const PAGE_MAX: usize = 1_000;

/// Which part of a list is wanted: `?after=NAME&limit=100`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page<T> {
    pub(super) after: Option<T>,
    limit: Option<usize>,
}

impl<T: DeserializeOwned> Page<T> {
    pub(super) fn read(uri: &Uri) -> Result<Self, Problem> {
        read_query(uri)
    }

    pub(super) fn count(&self) -> usize {
        page_count(self.limit)
    }
}

/// What stands behind the `?`. A misspelt name is said, and not ignored: a filter that is none shows everything.
pub(super) fn read_query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let read = Query::try_from_uri(uri).map_err(|error| Problem::new(error.status(), error.body_text()))?;
    Ok(read.0)
}

/// Entries of a part of a list, where so many are wanted.
pub(super) fn page_count(limit: Option<usize>) -> usize {
    limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX)
}

/// A list, or a part of it: then a link leads to the next (RFC 8288 §3), from wherever a proxy has this one.
pub(super) fn page<T: Display>(
    path: &str,
    entries: Vec<Value>,
    count: usize,
    last: Option<T>,
) -> impl IntoResponse + use<T> {
    let next = last.filter(|_| entries.len() == count);
    part(path, entries, count, next)
}

/// The same where another entry says where to go on: where some are left out, a part may be short and not the last.
pub(super) fn part<T: Display>(
    path: &str,
    entries: Vec<Value>,
    count: usize,
    next: Option<T>,
) -> impl IntoResponse + use<T> {
    let link = next.map(|last| {
        let last: String = form_urlencoded::byte_serialize(last.to_string().as_bytes()).collect();
        let between = if path.contains('?') { '&' } else { '?' };
        (header::LINK, format!("<{path}{between}after={last}&limit={count}>; rel=\"next\""))
    });
    (AppendHeaders(link), Json(Value::from(entries)))
}

/// `GET /api/streams`: those that the sender may watch, by name.
pub(super) async fn list_streams(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    let rights = app.rights(&headers)?;
    let wanted = Page::<String>::read(&uri)?;
    let (after, count) = (wanted.after.as_deref().unwrap_or_default(), wanted.count());
    let streams = app.rooms.streams(&rights.watchable(), after, count);
    let entries = streams.iter().map(stream_json).collect();
    Ok(page("streams", entries, count, streams.last().map(|stream| stream.name.clone())))
}

/// `DELETE /api/streams/{stream}`: ends it for everybody.
pub(super) async fn close_stream(
    State(app): State<Arc<App>>,
    InPath(stream): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "close streams")?;
    app.rooms.close_stream(&stream)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which sessions are wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedSessions {
    stream: Option<String>,
    worker: Option<u16>,
    after: Option<u64>,
    limit: Option<usize>,
}

/// The path of a list with the same filters.
pub(super) fn with_filters(path: &str, filters: &[(&str, Option<String>)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let given = filters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    query.extend_pairs(given);
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// `GET /api/sessions`: all of them, or those of a stream or a worker, the oldest first.
pub(super) async fn list_sessions(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "list sessions")?;
    let WantedSessions { stream, worker, after, limit } = read_query(&uri)?;
    let (after, count) = (SessionId(after.unwrap_or(0)), page_count(limit));
    let is_wanted = |session: &Session| {
        stream.as_ref().is_none_or(|stream| **stream == *session.name)
            && worker.is_none_or(|worker| worker == session.worker.0)
    };
    let (sessions, next) = app.rooms.sessions(after, count, is_wanted);
    let entries = sessions.iter().map(|(id, session)| session_json(*id, session)).collect();
    let path = with_filters("sessions", &[("stream", stream), ("worker", worker.map(|worker| worker.to_string()))]);
    Ok(part(&path, entries, count, next.map(|id| id.0)))
}

/// `GET /api/sessions/{session}`: one, with statistics.
pub(super) async fn show_session(
    State(app): State<Arc<App>>,
    InPath(session): InPath<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "list sessions")?;
    let id = session_id(&session)?;
    let mut value = session_json(id, &app.rooms.session(id)?);
    value["statistics"] = app.rooms.stats(id).await?.as_ref().map(stats_json).unwrap_or_default();
    Ok(Json(value))
}

fn session_id(text: &str) -> Result<SessionId, Problem> {
    let none = |_| ControlError::Directory(DirectoryError::NoSession);
    Ok(text.parse().map(SessionId).map_err(none)?)
}

fn session_json(id: SessionId, session: &Session) -> Value {
    let (now, now_1970) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let at = |at: Instant| {
        let since_1970 =
            (now_1970 + at.saturating_duration_since(now)).saturating_sub(now.saturating_duration_since(at));
        since_1970.as_secs()
    };
    json!({
        "id": id.0.to_string(),
        "stream": &*session.name,
        "role": <&str>::from(Part::from(session.role)),
        "connected": session.is_connected,
        "since": at(session.since),
        "worker": session.worker.0,
        "address": session.client.address,
        "subject": session.client.subject.as_deref(),
        "ends": session.client.ends_at.map(at),
    })
}

/// `POST /api/sessions/{session}/layer`: as the viewer could.
pub(super) async fn limit_session(
    State(app): State<Arc<App>>,
    InPath(session): InPath<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "limit sessions")?;
    let (layers, said) = read_layer_choice(&app, &headers, body).await?;
    app.rooms.limit(session_id(&session)?, layers)?;
    Ok((Extension(Wanted::of(&said)), StatusCode::NO_CONTENT))
}

/// `DELETE /api/sessions/{session}`: ends it, as its client could. A publisher takes its stream along.
pub(super) async fn close_session(
    State(app): State<Arc<App>>,
    InPath(session): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "close sessions")?;
    app.rooms.close(session_id(&session)?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /whip|whep/{stream}/{session}/stats`
pub(super) async fn stats(
    role: Role,
    State(app): State<Arc<App>>,
    InPath((stream, session)): InPath<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let session = app.session(&headers, role, &stream, &session)?;
    let stats = app.rooms.stats(session).await?;
    Ok(Json(stats.as_ref().map_or_else(|| json!({"connected": false}), stats_json)))
}

/// `null`, or nothing, is no limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerChoice {
    #[serde(default)]
    spatial_max: Option<u8>,
    #[serde(default)]
    temporal_max: Option<u8>,
}

/// `POST /whep/{stream}/{session}/layer`
pub(super) async fn limit_layers(
    State(app): State<Arc<App>>,
    InPath((stream, session)): InPath<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let session = app.session(&headers, Role::Viewer, &stream, &session)?;
    app.rooms.limit(session, read_layers(&app, &headers, body).await?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a viewer wants at most.
pub(super) async fn read_layers(app: &App, headers: &HeaderMap, body: Body) -> Result<LayerLimit, Problem> {
    Ok(read_layer_choice(app, headers, body).await?.0)
}

/// The same, and in which words.
async fn read_layer_choice(app: &App, headers: &HeaderMap, body: Body) -> Result<(LayerLimit, String), Problem> {
    let body = app.read_body(headers, body, "application/json").await?;
    let choice: LayerChoice = serde_json::from_str(&body).map_err(|error| {
        let detail = format!(r#"send {{"spatial_max": 0 to 255 or null, "temporal_max": 0 to 255 or null}}: {error}"#);
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let limit = LayerLimit {
        spatial_max: choice.spatial_max.unwrap_or(LayerLimit::NONE.spatial_max),
        temporal_max: choice.temporal_max.unwrap_or(LayerLimit::NONE.temporal_max),
    };
    Ok((limit, body))
}

fn stream_json(stream: &StreamView) -> Value {
    let tracks: Vec<Value> = stream.tracks.iter().enumerate().map(track_json).collect();
    json!({"name": &*stream.name, "state": <&str>::from(stream.state), "viewers": stream.viewers, "tracks": tracks})
}

fn track_json((index, track): (usize, &TrackSpec)) -> Value {
    let kind = match track.codec.kind() {
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
    };
    let rids: Vec<&str> = track.rids.iter().map(|rid| &**rid).collect();
    json!({"id": track_id(index, track), "kind": kind, "codec": track.codec.name(), "rids": rids})
}

pub(super) fn stats_json(stats: &SessionStats) -> Value {
    let layers: Vec<Value> = stats.layers.iter().map(layer_json).collect();
    json!({
        "connected": true,
        "packets_sent": stats.packets_sent,
        "bytes_sent": stats.bytes_sent,
        "packets_received": stats.packets_received,
        "bytes_received": stats.bytes_received,
        "packets_without_layer": stats.packets_without_layer,
        "packets_resent": stats.packets_resent,
        "packets_skipped": stats.packets_skipped,
        "nacks_received": stats.nacks_received,
        "keyframe_requests_received": stats.keyframe_requests_received,
        "loss": stats.loss,
        "round_trip_ms": stats.round_trip_ms,
        "estimate": stats.estimate.map(|rate| rate.bps()),
        "layers": layers,
    })
}

fn layer_json(layer: &LayerStats) -> Value {
    json!({
        "mid": &*layer.mid,
        "current": layer.current,
        "target": layer.target,
        "layer_count": layer.layer_count,
        "rid": layer.rid.as_deref(),
        "temporal_max": layer.temporal_max,
    })
}
