//! What LiveKit's rooms have of the API, beside their own: tokens, lists and ends for those who may do everything.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use livekit::admin::{Refusal, Request as Admin};
use livekit::proto::{DeleteRoomRequest, RoomParticipantIdentity};
use livekit::token::{Claims, VideoGrant};
use livekit::view::{ParticipantView, RoomView};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Page, page, stats_json};
use super::{App, InPath, Problem, pages};
use crate::livekit::control::Control;
use crate::livekit::stage::Stage;

/// How long a token holds for somebody who has not joined yet; the server gives new ones to who has.
const TOKEN_SECONDS: u64 = 3600;

/// Where there are such rooms.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/room/{room}", get(pages::room))
        .route("/api/livekit/tokens", post(make_token))
        .route("/api/livekit/rooms", get(list_rooms))
        .route("/api/livekit/rooms/{room}", delete(close_room))
        .route("/api/livekit/rooms/{room}/participants", get(list_participants))
        .route("/api/livekit/rooms/{room}/participants/{identity}", get(show_participant).delete(remove_participant))
}

/// `GET /api/livekit/rooms`: all of them, the oldest first. Their own RoomService has more of each.
async fn list_rooms(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "list rooms")?;
    let wanted = Page::<u64>::read(&uri)?;
    let (after, count) = (wanted.after.unwrap_or(0), wanted.count());
    let rooms = control(&app)?.hub().rooms_behind(after, count);
    let room_json = |room: &RoomView| {
        json!({
            "id": room.number.to_string(),
            "name": room.name,
            "since": room.created.as_secs(),
            "participants": room.participants,
            "tracks": room.tracks,
        })
    };
    let entries = rooms.iter().map(room_json).collect();
    Ok(page("rooms", entries, count, rooms.last().map(|room| room.number)))
}

/// `GET /api/livekit/rooms/{room}/participants`: who is there, the first to come first.
async fn list_participants(
    State(app): State<Arc<App>>,
    InPath(room): InPath<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "list participants")?;
    let wanted = Page::<u64>::read(&uri)?;
    let (after, count) = (wanted.after.unwrap_or(0), wanted.count());
    let found = control(&app)?.hub().participants_behind(&room, after, count).ok_or(Refusal::NoSuchRoom)?;
    let entries = found.iter().map(participant_json).collect();
    Ok(page("participants", entries, count, found.last().map(|participant| participant.number)))
}

/// `GET /api/livekit/rooms/{room}/participants/{identity}`: one, with statistics of its sessions.
async fn show_participant(
    State(app): State<Arc<App>>,
    InPath((room, identity)): InPath<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    app.authorize_admin(&headers, "list participants")?;
    let control = control(&app)?;
    let found = control.hub().participant(&room, &identity).ok_or(Refusal::NoSuchParticipant)?;
    let mut value = participant_json(&found);
    let mut sessions = Vec::new();
    for session in found.sessions {
        let inspected = control.inspect(session).await;
        let statistics = inspected.as_ref().map(|(_, stats)| stats_json(stats));
        let id = Stage::spec_id(session).0.to_string();
        sessions.push(json!({"id": id, "worker": inspected.map(|(worker, _)| worker.0), "statistics": statistics}));
    }
    value["sessions"] = sessions.into();
    Ok(Json(value))
}

fn participant_json(participant: &ParticipantView) -> Value {
    json!({
        "id": participant.number.to_string(),
        "identity": participant.identity,
        "name": participant.name,
        "state": participant.state,
        "since": participant.joined.as_secs(),
        "publishes": participant.publishes,
        "gets": participant.gets,
        "sdk": participant.client.0,
        "version": participant.client.1,
    })
}

/// `DELETE /api/livekit/rooms/{room}`: everybody leaves.
async fn close_room(
    State(app): State<Arc<App>>,
    InPath(room): InPath<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "close rooms")?;
    let grant = VideoGrant { room_create: true, ..VideoGrant::default() };
    control(&app)?.hub().admin(&grant, Admin::DeleteRoom(DeleteRoomRequest { room }))?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /api/livekit/rooms/{room}/participants/{identity}`: it leaves.
async fn remove_participant(
    State(app): State<Arc<App>>,
    InPath((room, identity)): InPath<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    app.authorize_admin(&headers, "remove participants")?;
    let grant = VideoGrant { room_admin: true, room: room.clone(), ..VideoGrant::default() };
    let who = RoomParticipantIdentity { room, identity, ..RoomParticipantIdentity::default() };
    control(&app)?.hub().admin(&grant, Admin::RemoveParticipant(who))?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = StatusCode::from_u16(refusal.twirp().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Problem::new(status, refusal.to_string())
    }
}

/// For whom a token is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    room: String,
    identity: String,
    #[serde(default)]
    name: String,
}

/// `POST /api/livekit/tokens`: a token to join a room, publish and watch, for who may do everything: where no token is needed
/// (`auth.dev`) that is everybody whom `own` lets in.
async fn make_token(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<impl IntoResponse, Problem> {
    app.authorize_admin(&headers, "make tokens for rooms")?;
    let body = app.read_body(&headers, body, "application/json").await?;
    let wanted: Wanted = serde_json::from_str(&body).map_err(|error| {
        let form = r#"{"room": text, "identity": text, "name": text}"#;
        Problem::new(StatusCode::BAD_REQUEST, format!("send {form}: {error}"))
    })?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let claims = Claims::to_join(&wanted.room, &wanted.identity, &wanted.name, since_1970.as_secs() + TOKEN_SECONDS);
    let token = control(&app)?.hub().sign(claims);
    let not_kept = AppendHeaders([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]);
    Ok((not_kept, Json(json!({ "token": token }))))
}

fn control(app: &App) -> Result<&Control, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "this server has no such rooms (see livekit.keys)");
    app.livekit.as_deref().ok_or_else(none)
}
