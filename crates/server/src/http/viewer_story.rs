//! What became of a viewer of a reflected stream, as JSON: why did this player stop so often?

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::get;
use axum::{Json, Router};
use reflect::course::{After, Behind};
use reflect::spec::ViewerId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{page_count, read_query};
use super::reflect::reflect;
use super::story::Clock;
use super::{App, InPath, Problem};
use crate::reflect::stories::Told;

/// The resources.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/api/reflect/viewers/{viewer}/story", get(tell))
        .route("/api/reflect/viewers/ended", get(list_ended))
}

/// `GET /api/reflect/viewers/{viewer}/story`: of one who is here, or has been lately.
async fn tell(
    State(app): State<Arc<App>>,
    InPath(viewer): InPath<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "read what became of a viewer")?;
    let none = || Problem::new(StatusCode::NOT_FOUND, "there is no such viewer");
    let id = viewer.parse().map_err(|_| none())?;
    let told = reflect(&app)?.story(ViewerId(id)).await;
    let told = told.map_err(|busy| Problem::unavailable(busy.to_string(), 1))?.ok_or_else(none)?;
    let clock = Clock::now();
    let mut story = about_json(&told, &clock);
    let events = events(&told, &clock);
    // Of many skips here the first and the last are told; of who has another sender than a worker it is known how many there were.
    let here = told.course.skipped.map_or(0, |_| told.course.skips - told.course.skips_before);
    story.insert("forgotten".into(), here.saturating_sub(2).into());
    story.insert("events".into(), events.into());
    Ok(Json(story.into()))
}

/// Which of those who are gone are wanted: `?stream=NAME&limit=100`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    stream: Option<String>,
    limit: Option<usize>,
}

/// `GET /api/reflect/viewers/ended`: those of whom it is still known what became of them, the last first.
async fn list_ended(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "list viewers")?;
    let wanted: Wanted = read_query(&uri)?;
    let clock = Clock::now();
    let ended = reflect(&app)?.ended(wanted.stream.as_deref(), page_count(wanted.limit));
    Ok(Json(ended.iter().map(|told| Value::from(about_json(told, &clock))).collect()))
}

fn about_json(told: &Told, clock: &Clock) -> Map<String, Value> {
    let Told { id, stream, client, worker, is_hls, age, ended, sent_bytes, behind, course, .. } = told;
    let about = json!({
        "viewer": id.0.to_string(),
        "stream": &**stream,
        "address": client,
        "worker": worker.map(|worker| worker.0),
        "hls": is_hls,
        "since": clock.ago(ended.map(|(at, _)| at), *age),
        "ended": ended.map(|(at, why)| json!({"at": clock.at(at), "why": <&str>::from(why)})),
        "sent_bytes": sent_bytes,
        "behind_bytes": behind,
        "skips": course.skips,
        "full": worker.map(|_| course.full),
    });
    match about {
        Value::Object(about) => about,
        _ => Map::new(),
    }
}

fn events(told: &Told, clock: &Clock) -> Vec<Value> {
    let course = &told.course;
    let begun = clock.ago(told.ended.map(|(at, _)| at), told.age);
    let at = |after: After| begun + after.age().as_secs_f64();
    let behind = |event: &str, seen: Behind| {
        let seconds = (told.rate.bps() > 0).then(|| seen.bytes as f64 * 8.0 / told.rate.bps() as f64);
        (seen.after, json!({"at": at(seen.after), "event": event, "bytes": seen.bytes, "seconds": seconds}))
    };
    let skipped = |after: After, times: u32| (after, json!({"at": at(after), "event": "skipped", "times": times}));
    let (first, last) = course.skipped.unzip();
    let skips = course.skips - course.skips_before;
    let mut all: Vec<(After, Value)> = [
        course.came_over.map(|after| (after, json!({"at": at(after), "event": "came_over"}))),
        course.joined.map(|seen| behind("joined", seen)),
        first.map(|after| skipped(after, 1)),
        last.filter(|_| skips > 1).map(|after| skipped(after, skips)),
        course.most.map(|seen| behind("behind", seen)),
    ]
    .into_iter()
    .flatten()
    .collect();
    all.sort_by_key(|(after, _)| *after);
    all.into_iter().map(|(_, event)| event).collect()
}
