//! What LiveKit's rooms have of the API, beside their own: tokens for those who may do everything.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::{get, post};
use axum::{Json, Router};
use livekit::token::Claims;
use serde::Deserialize;
use serde_json::json;

use super::{App, Problem, pages};
use crate::livekit::control::Control;

/// How long a token holds for somebody who has not joined yet; the server gives new ones to who has.
const TOKEN_SECONDS: u64 = 3600;

/// Where there are such rooms.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/room/{room}", get(pages::room)).route("/api/livekit/tokens", post(make_token))
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
