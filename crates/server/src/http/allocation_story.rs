//! What became of an allocation, as JSON: why was this call through the relay silent?

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::routing::get;
use axum::{Json, Router};
use relay::spec::AllocationId;
use relay::story::{Entry, Flow, Happened};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{page_count, read_query};
use super::relay::{relay, traffic_json};
use super::story::Clock;
use super::{App, InPath, Problem};
use crate::relay::control::RelayError;
use crate::relay::stories::Told;

/// The resources.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/relay/allocations/{allocation}/story", get(tell))
        .route("/api/relay/allocations/ended", get(list_ended))
}

/// `GET /api/relay/allocations/{allocation}/story`: of one that is there, or has been lately.
async fn tell(
    State(app): State<Arc<App>>,
    InPath(allocation): InPath<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "read what became of an allocation")?;
    let id = allocation.parse().map_err(|_| RelayError::NoAllocation)?;
    let told = relay(&app)?.story(AllocationId(id)).await?;
    let clock = Clock::now();
    let mut story = about_json(&told, &clock);
    story.insert("refreshes".into(), told.story.refreshes.into());
    story.insert("refused".into(), told.story.refused.into());
    story.insert("forgotten".into(), told.story.forgotten.into());
    let events = told.story.entries().iter().map(|entry| event_json(entry, &clock));
    story.insert("events".into(), events.collect());
    Ok(Json(story.into()))
}

/// Which of those that have ended are wanted: `?user=NAME&limit=100`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    user: Option<String>,
    limit: Option<usize>,
}

/// `GET /api/relay/allocations/ended`: those of which it is still known what became of them, the last first.
async fn list_ended(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "list allocations")?;
    let wanted: Wanted = read_query(&uri)?;
    let clock = Clock::now();
    let ended = relay(&app)?.ended(wanted.user.as_deref(), page_count(wanted.limit));
    Ok(Json(ended.iter().map(|told| Value::from(about_json(told, &clock))).collect()))
}

fn about_json(told: &Told, clock: &Clock) -> Map<String, Value> {
    let Told { worker, info, ended, .. } = told;
    let since = clock.ago(ended.map(|(at, _)| at), info.age);
    let about = json!({
        "allocation": info.id.0.to_string(),
        "user": &*info.user,
        "worker": worker.0,
        "client": info.client,
        "server": info.server,
        "transport": <&str>::from(info.transport),
        "relayed": info.relayed,
        "since": since,
        "expires_in": ended.is_none().then_some(info.expires_in.as_secs()),
        "ended": ended.map(|(at, why)| json!({"at": clock.at(at), "why": <&str>::from(why)})),
        "sent": traffic_json(info.sent),
        "received": traffic_json(info.received),
        "dropped": info.dropped,
    });
    match about {
        Value::Object(about) => about,
        _ => Map::new(),
    }
}

fn event_json(Entry { at, what }: &Entry, clock: &Clock) -> Value {
    let at = clock.at(*at);
    match *what {
        Happened::Began(lifetime) => json!({"at": at, "event": "began", "lifetime": lifetime.as_secs()}),
        Happened::Permitted(peer) => json!({"at": at, "event": "permitted", "peer": peer}),
        Happened::Bound { channel, peer } => json!({"at": at, "event": "bound", "channel": channel, "peer": peer}),
        Happened::Connects(peer) => json!({"at": at, "event": "connects", "peer": peer}),
        Happened::NotConnected => json!({"at": at, "event": "not_connected"}),
        Happened::Refused { method, code, peer } => {
            json!({"at": at, "event": "refused", "request": <&str>::from(method), "code": code, "peer": peer})
        }
        Happened::GaveBack(family) => json!({"at": at, "event": "gave_back", "family": <&str>::from(family)}),
        Happened::Denied { permissions, channels } => {
            json!({"at": at, "event": "denied", "permissions": permissions, "channels": channels})
        }
        Happened::Flows(Flow { sent, received }) => {
            json!({"at": at, "event": "flows", "sent": sent, "received": received})
        }
        Happened::OverBandwidth(packets) => json!({"at": at, "event": "over_bandwidth", "packets": packets}),
    }
}
