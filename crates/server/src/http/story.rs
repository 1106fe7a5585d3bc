//! What became of a session, as JSON: why did this viewer's picture stand still at 20:14?

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::routing::get;
use axum::{Json, Router};
use rooms::spec::SessionId;
use rooms::story::{Entry, Happened, Story};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{page_count, read_query};
use super::{App, InPath, Problem};
use crate::rooms::control::{ControlError, Told};
use crate::rooms::directory::DirectoryError;
use crate::rooms::stories::About;

/// The resources.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/api/sessions/{session}/story", get(tell)).route("/api/sessions/ended", get(list_ended))
}

/// `GET /api/sessions/{session}/story`: of one that is there, or has been lately.
async fn tell(
    State(app): State<Arc<App>>,
    InPath(session): InPath<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "read what became of a session")?;
    let id = session.parse().map_err(|_| ControlError::Directory(DirectoryError::NoSession))?;
    let id = SessionId(id);
    let told = match &app.livekit {
        Some(livekit) => livekit.story(id).await,
        None => None,
    };
    let Told { about, ended, story } = match told {
        Some(told) => told,
        None => app.rooms.story(id).await?,
    };
    let clock = Clock::now();
    let mut told = about_json(id, &about, &clock);
    told.insert("ended".into(), ended.map_or(Value::Null, |(at, why)| ended_json(at, why, &clock)));
    told.insert("forgotten".into(), story.as_ref().map_or(0, |story| story.forgotten()).into());
    told.insert("events".into(), story.map_or_else(Vec::new, |story| events(&story, &clock)).into());
    Ok(Json(told.into()))
}

/// Which of those that have ended are wanted: `?stream=NAME&limit=100`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    stream: Option<String>,
    limit: Option<usize>,
}

/// `GET /api/sessions/ended`: those of which it is still known what became of them, the last first.
async fn list_ended(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "list sessions")?;
    let wanted: Wanted = read_query(&uri)?;
    let clock = Clock::now();
    let ended = app.rooms.ended(wanted.stream.as_deref(), page_count(wanted.limit));
    let entries = ended.iter().map(|(id, about, at, why)| {
        let mut entry = about_json(*id, about, &clock);
        entry.insert("ended".into(), ended_json(*at, why, &clock));
        Value::from(entry)
    });
    Ok(Json(entries.collect()))
}

/// Tells times of day.
pub(super) struct Clock {
    now: Instant,
    unix_ms: u64,
}

impl Clock {
    pub(super) fn now() -> Self {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        Clock { now: Instant::now(), unix_ms }
    }

    /// So long before an instant, or before now, in the same.
    pub(super) fn ago(&self, before: Option<Instant>, time: Duration) -> f64 {
        (self.at(before.unwrap_or(self.now)) - time.as_secs_f64()).max(0.0)
    }

    /// In seconds since 1970, to the millisecond.
    pub(super) fn at(&self, at: Instant) -> f64 {
        let ago = self.now.saturating_duration_since(at).as_millis() as u64;
        self.unix_ms.saturating_sub(ago) as f64 / 1e3
    }
}

fn about_json(id: SessionId, about: &About, clock: &Clock) -> Map<String, Value> {
    let about = json!({
        "session": id.0.to_string(),
        "stream": &*about.stream,
        "role": <&str>::from(about.part),
        "address": about.address,
        "subject": about.subject.as_deref(),
        "since": clock.at(about.since),
    });
    match about {
        Value::Object(about) => about,
        _ => Map::new(),
    }
}

fn ended_json(at: Instant, why: &str, clock: &Clock) -> Value {
    json!({"at": clock.at(at), "why": why})
}

fn events(story: &Story, clock: &Clock) -> Vec<Value> {
    story.entries().map(|Entry { at, what }| event_json(clock.at(*at), what)).collect()
}

fn event_json(at: f64, what: &Happened) -> Value {
    match what {
        Happened::Path { remote, is_tcp } => {
            json!({"at": at, "event": "path", "remote": remote, "protocol": if *is_tcp { "tcp" } else { "udp" }})
        }
        Happened::Layer { track, from, to, temporal_max, why, .. } => json!({
            "at": at,
            "event": "layer",
            "track": track,
            "from": from,
            "to": to,
            "temporal_max": Some(*temporal_max).filter(|max| *max < u8::MAX),
            "why": <&str>::from(*why),
        }),
        Happened::Estimate(rate) => json!({"at": at, "event": "estimate", "bps": rate.bps()}),
        Happened::Asked(packets) => json!({"at": at, "event": "nack", "packets": packets}),
        Happened::Keyframes(count) => json!({"at": at, "event": "keyframe_request", "count": count}),
        Happened::FellBehind(packets) => json!({"at": at, "event": "fell_behind", "packets": packets}),
        Happened::Stalled { track, cause, .. } => {
            json!({"at": at, "event": "freeze", "track": track, "cause": <&str>::from(*cause)})
        }
        Happened::Moves { track, after, .. } => {
            json!({"at": at, "event": "moves", "track": track, "after_ms": after.as_millis() as u64})
        }
        Happened::Sends { track, layers, .. } => {
            let layers: Vec<u8> = (0..u8::BITS as u8).filter(|layer| layers >> layer & 1 == 1).collect();
            json!({"at": at, "event": "sends", "track": track, "layers": layers})
        }
        Happened::LosesUp(percent) => json!({"at": at, "event": "loses", "percent": percent}),
    }
}
