//! What is served over HTTP: WHIP, WHEP, the API, the pump, the relay, metrics, and the pages.
//!
//! In: requests, and the control planes that answer them. Out: a router; every error is a problem document (RFC 9457), and
//! every answer has CORS headers, so that pages of other origins see what went wrong.
//! Source: RFC 9725 (WHIP), draft-ietf-wish-whep (WHEP), RFC 9110 (HTTP), the Fetch standard (CORS).

pub mod admin;
mod allocation_story;
mod api;
mod audit;
mod broadcast;
mod client;
mod connections;
mod cors;
mod guests;
mod live;
mod livekit;
mod metrics;
mod own;
mod pages;
mod problem;
mod pump;
mod reflect;
mod relay;
mod story;
mod viewer_story;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Version, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use rooms::spec::SessionId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::auth::{self, Auth, Bearer, Rights};
use crate::config::{IceServer, Origin};
use crate::door::{self, Door};
use crate::livekit::control::Control as LivekitControl;
use crate::livekit::routes as signalling;
use crate::plane::Plane;
use crate::pump::control::PumpControl;
use crate::reflect::control::Control as ReflectControl;
use crate::reflect::request::Query;
use crate::relay::control::RelayControl;
use crate::rooms::control::{DRAIN_RETRY_SECONDS, RoomsControl};
use crate::rooms::directory::Role;
use crate::rtsp::Rtsp;
use crate::tls::Certificates;
pub use admin::{Admin, Reloaded};
pub use client::Proxies;
pub use connections::{Connections, Entered, Limits};
pub(crate) use cors::allow_origin;
pub use metrics::{Metrics, MetricsSettings};
pub use problem::Problem;
pub(crate) use reflect::Granted;

/// Bytes of an offer, a fragment or a JSON document at most. Chromium's largest offers have some 10 KB.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Connections of a listener for metrics at a time.
const METRICS_CONNECTIONS_MAX: usize = 100;

/// What the handlers share.
pub struct App {
    /// What all products have in common.
    pub plane: Arc<Plane>,
    /// The rooms.
    pub rooms: Arc<RoomsControl>,
    /// Whether anybody can get into them.
    pub has_rooms: bool,
    /// Those of LiveKit's protocol, where there are any.
    pub livekit: Option<Arc<LivekitControl>>,
    /// The pump, where there is one.
    pub pump: Option<Arc<PumpControl>>,
    /// The relay, where there is one.
    pub relay: Option<Arc<RelayControl>>,
    /// The reflector, where there is one.
    pub reflect: Option<Arc<ReflectControl>>,
    /// Who may do what.
    pub auth: auth::Current,
    /// How long after its token a session ends; not set: it goes on.
    pub session_grace: Option<Duration>,
    /// Pages of which other origins may use this.
    pub cors_origins: Vec<Origin>,
    /// Who is believed to say for whom it asks.
    pub proxies: Proxies,
    /// What clients are told to use.
    pub ice_servers: Vec<IceServer>,
    /// The sockets of clients, and their limits.
    pub connections: Arc<Connections>,
    /// What is counted, as it is shown.
    pub metrics: Metrics,
    /// For its metrics.
    pub rtsp: Option<Arc<Rtsp>>,
    /// The same.
    pub door: Arc<Door>,
    /// The same, where there are any.
    pub certificates: Option<Arc<Certificates>>,
    /// What the dashboard has.
    pub admin: Admin,
}

/// Serves everything on a socket, until the other end of `closing` is dropped.
pub async fn serve(app: Arc<App>, listener: TcpListener, closing: oneshot::Receiver<()>) {
    app.connections.serve(listener, router(app.clone()), &app.proxies, closing).await;
}

/// All that is served over HTTP, for those who accept connections elsewhere.
#[derive(Clone)]
pub struct Site {
    app: Arc<App>,
    router: Router,
}

impl Site {
    /// The same for all of them.
    pub fn new(app: Arc<App>) -> Self {
        Site { router: router(app.clone()), app }
    }

    /// Whether an address is a reverse proxy's.
    pub(crate) fn believes(&self, ip: IpAddr) -> bool {
        self.app.proxies.has(ip)
    }

    /// Has the kernel end a connection whose client takes nothing.
    pub(crate) fn limit(&self, socket: &TcpStream) {
        self.app.connections.limit(socket);
    }

    /// The reflector, while it has streams.
    pub(crate) fn reflect(&self) -> Option<&Arc<ReflectControl>> {
        self.app.reflect.as_ref().filter(|reflect| reflect.has_streams())
    }

    /// Whether somebody at `remote` may watch whose request was read elsewhere. `None`: it is to be answered here.
    pub(crate) fn grant(&self, remote: IpAddr, mut parts: Parts, query: &Query) -> Option<Granted> {
        parts.extensions.insert(client::Remote(remote));
        self.app.grant(&parts, query)
    }

    /// Waits for a place for a connection. `None`: its client has as many as it may have.
    pub(crate) async fn enter(&self, remote: IpAddr) -> Option<Entered> {
        self.app.connections.enter(remote, &self.app.proxies).await
    }

    /// Serves a connection that has a place, until it or the other end of `is_open` ends.
    pub(crate) async fn welcome<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: (S, Version),
        remote: IpAddr,
        entered: Entered,
        is_open: watch::Receiver<()>,
    ) {
        self.app.connections.welcome(stream, remote, self.router.clone(), entered, is_open).await;
    }
}

/// Everything under one roof.
pub fn router(app: Arc<App>) -> Router {
    let rooms = if app.has_rooms { rooms_routes() } else { Router::new().fallback(pages::nothing) };
    rooms
        .merge(if app.livekit.is_some() { guests_routes() } else { Router::new() })
        .merge(admin::routes())
        .merge(pump::routes())
        .merge(relay::routes())
        .merge(allocation_story::routes())
        .merge(reflect::routes())
        .merge(viewer_story::routes())
        .merge(if app.livekit.is_some() { livekit::routes() } else { Router::new() })
        .route("/healthz", get(health))
        .route("/ping", get(ping))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), audit::audit))
        .layer(middleware::from_fn_with_state(app.clone(), reflect::streams))
        .layer(middleware::from_fn_with_state(app.clone(), cors::cors))
        .merge(if app.metrics.settings.is_apart { Router::new() } else { metrics::routes() })
        .with_state(app.clone())
        .merge(
            app.livekit.as_ref().map_or_else(Router::new, |control| {
                signalling::routes(control.hub().clone(), app.plane.traces().clone())
            }),
        )
}

/// What is served of the rooms, and the pages that show them.
fn rooms_routes() -> Router<Arc<App>> {
    Router::new()
        .merge(broadcast::routes("/whip/{stream}", Role::Publisher))
        .merge(broadcast::routes("/whep/{stream}", Role::Viewer))
        .route("/whep/{stream}/{session}/layer", post(api::limit_layers).patch(api::limit_layers))
        .route("/api/streams", get(api::list_streams))
        .route("/api/streams/{stream}", delete(api::close_stream))
        .route("/api/sessions", get(api::list_sessions))
        .route("/api/sessions/{session}", get(api::show_session).delete(api::close_session))
        .route("/api/sessions/{session}/layer", post(api::limit_session))
        .merge(story::routes())
        .fallback(pages::page)
}

/// Ways into LiveKit's rooms, and out of them.
fn guests_routes() -> Router<Arc<App>> {
    Router::new()
        .merge(guests::routes("/whip/{stream}/{session}", Role::Publisher))
        .merge(guests::routes("/whep/{stream}/{session}", Role::Viewer))
}

/// Serves `/metrics` alone on a socket of its own, until the server ends.
pub async fn serve_metrics(app: Arc<App>, listener: TcpListener) {
    // Whoever is let in here has few connections of his own, and takes none from the others.
    let limits = Limits { connections_max: METRICS_CONNECTIONS_MAX, ..app.connections.limits().clone() };
    let (_open, closing) = oneshot::channel();
    Arc::new(Connections::new(limits)).serve(listener, metrics_router(app.clone()), &app.proxies, closing).await;
}

/// `/metrics` alone.
pub fn metrics_router(app: Arc<App>) -> Router {
    metrics::routes().fallback(pages::nothing).with_state(app)
}

/// Whether a load balancer should send new sessions here.
async fn health(State(app): State<Arc<App>>) -> Response {
    if app.plane.is_draining() {
        return Problem::unavailable("the server is about to stop", DRAIN_RETRY_SECONDS).into_response();
    }
    "ok\n".into_response()
}

/// Whether anybody is here, and how far away: nothing, as fast as can be.
async fn ping() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// The router adds `Allow` (RFC 9110 §15.5.6).
async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this resource does not know the method")
}

/// The named parts of a path; a path that is not UTF-8 is answered with a problem document like any other mistake.
struct InPath<T>(T);

impl<T, S> FromRequestParts<S> for InPath<T>
where
    Path<T>: FromRequestParts<S, Rejection = PathRejection>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(InPath(named)),
            Err(rejection) => Err(Problem::new(rejection.status(), rejection.body_text())),
        }
    }
}

impl App {
    /// Without a pump, a relay and RTSP, and with no page of another origin allowed.
    pub fn new(rooms: Arc<RoomsControl>, auth: Auth) -> Self {
        App {
            plane: rooms.plane().clone(),
            rooms,
            has_rooms: true,
            livekit: None,
            pump: None,
            relay: None,
            reflect: None,
            auth: auth.into(),
            session_grace: None,
            cors_origins: Vec::new(),
            proxies: Proxies::default(),
            ice_servers: Vec::new(),
            connections: Arc::new(Connections::new(Limits::default())),
            metrics: Metrics::default(),
            rtsp: None,
            certificates: None,
            admin: Admin::default(),
            door: Door::new(door::Limits::default()),
        }
    }

    fn bearer(&self, headers: &HeaderMap) -> Result<Bearer, Problem> {
        Ok(self.auth.get().bearer(headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()))?)
    }

    fn rights(&self, headers: &HeaderMap) -> Result<Rights, Problem> {
        Ok(self.bearer(headers)?.rights)
    }

    /// Lets those through who may publish, or watch, the stream.
    fn authorize(&self, headers: &HeaderMap, role: Role, stream: &str) -> Result<Bearer, Problem> {
        let bearer = self.bearer(headers)?;
        let (may, what) = match role {
            Role::Publisher => (bearer.rights.may_publish(stream), "publish"),
            Role::Viewer => (bearer.rights.may_watch(stream), "watch"),
        };
        if may { Ok(bearer) } else { Err(Problem::forbidden(&format!("{what} {stream:?}"))) }
    }

    /// Finds the session of a URL for those who may publish, or watch, its stream.
    fn session(&self, headers: &HeaderMap, role: Role, stream: &str, session: &str) -> Result<SessionId, Problem> {
        let bearer = self.authorize(headers, role, stream)?;
        let session = self.rooms.find(role, stream, session)?;
        if let Some(at) = self.end_of(&bearer) {
            self.rooms.renew(session, at);
        }
        Ok(session)
    }

    /// When a session ends that is asked for by this bearer; `None` where sessions do not end with their tokens.
    fn end_of(&self, bearer: &Bearer) -> Option<Instant> {
        let (grace, expires) = (self.session_grace?, bearer.expires?);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Instant::now().checked_add(Duration::from_secs(expires).saturating_sub(since_1970).checked_add(grace)?)
    }

    /// Lets those through who may do everything; `what` they want to do is for the others.
    fn authorize_admin(&self, headers: &HeaderMap, what: &str) -> Result<(), Problem> {
        if self.rights(headers)?.admin {
            return Ok(());
        }
        Err(Problem::forbidden(&format!("{what} (it lacks \"admin\")")))
    }

    /// Reads a body of a media type: up to `BODY_BYTES_MAX`, and whole within the time that a request has.
    async fn read_body(&self, headers: &HeaderMap, body: Body, media_type: &str) -> Result<String, Problem> {
        let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = sent.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case(media_type) {
            let detail = format!("the body must be {media_type}, by its Content-Type");
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let too_long =
            || Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have {BODY_BYTES_MAX} bytes at most"));
        // What says so beforehand need not be waited for.
        if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
            return Err(too_long());
        }
        let time = self.connections.limits().request_timeout;
        let Ok(read) = timeout(time, axum::body::to_bytes(body, BODY_BYTES_MAX)).await else {
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, format!("the body was not here after {time:?}")));
        };
        // Only a body that is too long is the sender's fault; of one that breaks off, nobody will read the answer.
        let bytes = read.map_err(|_| too_long())?;
        String::from_utf8(bytes.into()).map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))
    }
}
