//! WHIP into LiveKit's rooms, and WHEP out of them: `/whip/ROOM/IDENTITY` and `/whep/ROOM/IDENTITY`.
//!
//! The exchange is that of `broadcast`. A token is LiveKit's, for this room and whoever publishes; or one of ours, in which
//! "ROOM/IDENTITY" names participants.
//! Source: RFC 9725 §4.2 to §4.6, draft-ietf-wish-whep §4.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, patch, post};
use livekit::token::{Claims, TokenError, VideoGrant};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::broadcast::{SDP, created, fragment_of, patched, wanted_tracks};
use super::client::ClientAddress;
use super::{App, InPath, Problem, api};
use crate::auth::{Refusal, bearer_token};
use crate::livekit::control::Control;
use crate::livekit::guests::{Guest, GuestError, Place};
use crate::livekit::hub::NotNow;
use crate::rooms::control::{ControlError, OVERLOAD_RETRY_SECONDS, Opened};
use crate::rooms::directory::Role;
use crate::traces::{Asked, Join};

/// The endpoint and its resources, beside those of `broadcast`: there the second part of a path is a session's, here an identity.
pub(super) fn routes(endpoint: &str, role: Role) -> Router<Arc<App>> {
    let open = move |state, path, query, client, headers, body| open(role, state, path, query, client, headers, body);
    let amend = move |state, path, headers, body| amend(role, state, path, headers, body);
    let close = move |state, path, headers| close(role, state, path, headers);
    let stats = move |state, path, headers| stats(role, state, path, headers);
    let routes = Router::new()
        .route(endpoint, post(open))
        .route(&format!("{endpoint}/{{key}}"), patch(amend).delete(close))
        .route(&format!("{endpoint}/{{key}}/stats"), get(stats));
    match role {
        Role::Publisher => routes,
        Role::Viewer => routes.route(&format!("{endpoint}/{{key}}/layer"), post(limit).patch(limit)),
    }
}

type Named = InPath<(String, String, String)>;

async fn open(
    role: Role,
    State(app): State<Arc<App>>,
    InPath((room, identity)): InPath<(String, String)>,
    RawQuery(query): RawQuery,
    ClientAddress { ip: client, .. }: ClientAddress,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (name, route) = match role {
        Role::Publisher => ("WHIP join", "/whip/{room}/{identity}"),
        Role::Viewer => ("WHEP join", "/whep/{room}/{identity}"),
    };
    let asked = Asked { name, method: "POST", route, headers: &headers, client, phase: "offer" };
    let mut join = app.plane.traces().begin(&asked);
    join.set("millrace.room", || room.clone());
    let place = Place { role, room, identity };
    match let_in(&app, &place, query, &headers, body, &mut join).await {
        Ok((control, Opened { session, key, answer })) => {
            join.answer(StatusCode::CREATED);
            control.follow(session, join);
            created(&app, &format!("{}/{key}", encoded(&place.identity)), answer)
        }
        Err(problem) => {
            join.refuse(problem.status(), problem.detail());
            Err(problem)
        }
    }
}

async fn let_in<'a>(
    app: &'a App,
    place: &Place,
    query: Option<String>,
    headers: &HeaderMap,
    body: Body,
    join: &mut Join,
) -> Result<(&'a Control, Opened), Problem> {
    let (control, claims) = app.admit(headers, place)?;
    if app.plane.is_draining() {
        return Err(ControlError::Draining.into());
    }
    let offer = app.read_body(headers, body, SDP).await?;
    join.enter("answer");
    let opened = match place.role {
        Role::Publisher => control.guests().publish(claims, offer).await,
        Role::Viewer => {
            let tracks: Vec<&str> = query.iter().flat_map(|query| wanted_tracks(query)).collect();
            control.guests().watch(claims, &place.identity, &tracks, offer).await
        }
    };
    Ok((control, opened?))
}

async fn amend(
    role: Role,
    State(app): State<Arc<App>>,
    path: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (control, guest) = app.guest(&headers, role, path)?;
    let (fragment, if_match) = fragment_of(&app, &headers, body).await?;
    patched(control.patch(&guest, fragment, if_match).await?)
}

async fn close(
    role: Role,
    State(app): State<Arc<App>>,
    InPath((room, identity, key)): Named,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let place = Place { role, room, identity };
    let (control, _) = app.admit(&headers, &place)?;
    control.guests().close(&place, &key)?;
    Ok(StatusCode::OK)
}

async fn stats(
    role: Role,
    State(app): State<Arc<App>>,
    path: Named,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let (control, guest) = app.guest(&headers, role, path)?;
    let stats = control.stats(&guest).await?;
    Ok(Json(stats.as_ref().map_or_else(|| json!({"connected": false}), api::stats_json)))
}

async fn limit(
    State(app): State<Arc<App>>,
    path: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (control, guest) = app.guest(&headers, Role::Viewer, path)?;
    control.limit(&guest, api::read_layers(&app, &headers, body).await?)?;
    Ok(StatusCode::NO_CONTENT)
}

impl App {
    /// Lets those through who may publish, or watch, this participant; with whom they come as.
    fn admit(&self, headers: &HeaderMap, place: &Place) -> Result<(&Arc<Control>, Claims), Problem> {
        let control = self.livekit.as_ref().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "nothing is here"))?;
        let Place { role, room, identity } = place;
        let header = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let token = bearer_token(header).map_err(|_| TokenError::UnknownKey);
        match token.and_then(|token| control.hub().verify(token)) {
            Ok(claims) => match may(&claims, place) {
                Ok(()) => Ok((control, claims)),
                Err(action) => Err(Problem::forbidden(action)),
            },
            // It may be one of ours.
            Err(TokenError::UnknownKey | TokenError::Malformed) => {
                let bearer = self.bearer(headers)?;
                let (may, what) = match role {
                    Role::Publisher => (bearer.rights.may_publish_in(room, identity), "publish"),
                    Role::Viewer => (bearer.rights.may_watch_in(room, identity), "watch"),
                };
                if !may {
                    return Err(Problem::forbidden(&format!("{what} \"{room}/{identity}\"")));
                }
                let video = VideoGrant { room_join: true, room: room.clone(), ..VideoGrant::default() };
                let sub = if *role == Role::Publisher { identity.clone() } else { bearer.subject.unwrap_or_default() };
                Ok((control, Claims { sub, video: Some(video), ..Claims::default() }))
            }
            Err(error) => Err(Refusal::BadToken(error.to_string()).into()),
        }
    }

    /// Finds the guest of a URL for those who may publish, or watch, there.
    fn guest(
        &self,
        headers: &HeaderMap,
        role: Role,
        InPath((room, identity, key)): Named,
    ) -> Result<(&Arc<Control>, Guest), Problem> {
        let place = Place { role, room, identity };
        let (control, _) = self.admit(headers, &place)?;
        Ok((control, control.guests().find(&place, &key)?))
    }
}

/// Whether a token of LiveKit's is one for this; what it does not allow otherwise.
fn may(claims: &Claims, Place { role, room, identity }: &Place) -> Result<(), &'static str> {
    let video = claims.video.as_ref().filter(|video| video.room_join && video.room == *room);
    let Some(permission) = video.map(VideoGrant::permission) else { return Err("join this room") };
    match role {
        Role::Publisher if claims.sub != *identity => Err("publish as another participant than its own (sub)"),
        Role::Publisher if !permission.can_publish => Err("publish"),
        Role::Viewer if !permission.can_subscribe => Err("subscribe"),
        Role::Publisher | Role::Viewer => Ok(()),
    }
}

/// As a part of a path (RFC 3986 §2.1).
fn encoded(identity: &str) -> String {
    form_urlencoded::byte_serialize(identity.as_bytes()).collect::<String>().replace('+', "%20")
}

impl From<GuestError> for Problem {
    fn from(error: GuestError) -> Self {
        let detail = error.to_string();
        match error {
            GuestError::Control(error) => error.into(),
            GuestError::NotNow(NotNow::Full | NotNow::Busy) => Problem::unavailable(detail, OVERLOAD_RETRY_SECONDS),
            GuestError::NotNow(NotNow::Refused(refused)) => {
                let status = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::BAD_REQUEST);
                Problem::new(status, detail)
            }
            GuestError::MayNotPublish(_) => Problem::new(StatusCode::FORBIDDEN, detail),
            GuestError::NothingThere | GuestError::NoTrack(_) => Problem::new(StatusCode::NOT_FOUND, detail),
        }
    }
}
