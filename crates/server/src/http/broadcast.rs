//! WHIP and WHEP: the same exchange, once for who sends and once for who receives.
//!
//! POST to the endpoint opens a session and names its resource; PATCH there trickles candidates or restarts ICE, DELETE
//! ends it, and GET on `…/stats` tells how it is doing (that one is ours).
//! Source: RFC 9725 §4.2 to §4.6, draft-ietf-wish-whep §4.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};

use super::client::ClientAddress;
use super::{App, InPath, Problem, api};
use crate::config::IceServer;
use crate::rooms::client::Client;
use crate::rooms::control::{ControlError, Opened};
use crate::rooms::directory::{DirectoryError, Role};
use crate::rooms::negotiator::{Answer, Patched};
use crate::traces::{Asked, Join};

/// Media type of trickle fragments (RFC 8840 §9).
pub(super) const FRAGMENT: &str = "application/trickle-ice-sdpfrag";
/// Media type of offers and answers (RFC 9725 §4.2).
pub(super) const SDP: &str = "application/sdp";

/// The endpoint and its resources. Other methods are refused with 405 (RFC 9725 §4.2).
pub(super) fn routes(endpoint: &str, role: Role) -> Router<Arc<App>> {
    let open = move |state, path, query, client, headers, body| open(role, state, path, query, client, headers, body);
    let amend = move |state, path, headers, body| amend(role, state, path, headers, body);
    let close = move |state, path, headers| close(role, state, path, headers);
    let stats = move |state, path, headers| api::stats(role, state, path, headers);
    Router::new()
        .route(endpoint, post(open))
        .route(&format!("{endpoint}/{{session}}"), patch(amend).delete(close))
        .route(&format!("{endpoint}/{{session}}/stats"), get(stats))
}

async fn open(
    role: Role,
    State(app): State<Arc<App>>,
    InPath(stream): InPath<String>,
    RawQuery(query): RawQuery,
    client: ClientAddress,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (name, route) = match role {
        Role::Publisher => ("WHIP join", "/whip/{stream}"),
        Role::Viewer => ("WHEP join", "/whep/{stream}"),
    };
    let asked = Asked { name, method: "POST", route, headers: &headers, client: client.ip, phase: "offer" };
    let mut join = app.plane.traces().begin(&asked);
    join.set("millrace.stream", || stream.clone());
    match admit(role, &app, &stream, query, client, &headers, body, &mut join).await {
        Ok(Opened { session, key, answer }) => {
            join.answer(StatusCode::CREATED);
            app.rooms.follow(session, join);
            created(&app, &format!("{stream}/{key}"), answer)
        }
        Err(problem) => {
            join.refuse(problem.status(), problem.detail());
            Err(problem)
        }
    }
}

async fn admit(
    role: Role,
    app: &App,
    stream: &str,
    query: Option<String>,
    ClientAddress { ip: address, is_proxy }: ClientAddress,
    headers: &HeaderMap,
    body: Body,
    join: &mut Join,
) -> Result<Opened, Problem> {
    let bearer = app.authorize(headers, role, stream)?;
    let offer = app.read_body(headers, body, SDP).await?;
    join.enter("answer");
    let (ends_at, subject) = (app.end_of(&bearer), bearer.subject.map(Arc::from));
    let client = Client { address, is_proxy, subject, token: bearer.token, ends_at };
    let opened = match role {
        Role::Publisher => app.rooms.publish(stream, &offer, client).await,
        Role::Viewer => {
            let tracks: Vec<&str> = query.iter().flat_map(|query| wanted_tracks(query)).collect();
            app.rooms.watch(stream, &offer, &tracks, client).await
        }
    };
    use DirectoryError::{TooManySessions, TooManyWaiting};
    if let (Err(ControlError::Directory(TooManyWaiting | TooManySessions)), Some(ip)) = (&opened, address) {
        app.connections.doubted.reach_limit(ip);
    }
    Ok(opened?)
}

/// The answer to an offer that was taken. `location` is from where the request went to (RFC 9110 §10.2.2, RFC 3986 §5.2), which may
/// be below a path that only a proxy knows.
pub(super) fn created(app: &App, location: &str, answer: Answer) -> Result<Response, Problem> {
    let mut response = (StatusCode::CREATED, answer.sdp).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(SDP));
    headers.insert(header::LOCATION, header_value(location)?);
    headers.insert(header::ETAG, etag(&answer.etag)?);
    headers.insert("accept-patch", HeaderValue::from_static(FRAGMENT));
    for server in &app.ice_servers {
        headers.append(header::LINK, header_value(&link(server))?);
    }
    Ok(response)
}

/// The tracks that a viewer wants: "track=audio1&track=video2".
pub(super) fn wanted_tracks(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter_map(|pair| pair.strip_prefix("track="))
}

async fn amend(
    role: Role,
    State(app): State<Arc<App>>,
    InPath((stream, session)): InPath<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let session = app.session(&headers, role, &stream, &session)?;
    let (fragment, if_match) = fragment_of(&app, &headers, body).await?;
    patched(app.rooms.patch(session, fragment, if_match).await?)
}

/// A fragment, and which ICE session it is for.
pub(super) async fn fragment_of(app: &App, headers: &HeaderMap, body: Body) -> Result<(String, String), Problem> {
    let fragment = app.read_body(headers, body, FRAGMENT).await?;
    // RFC 9725 §4.3.1: which ICE session is meant must be said, since fragments of an old one may come late.
    let if_match = headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok()).ok_or_else(|| {
        let detail = "say by If-Match which ICE session is meant: its ETag, or \"*\" to restart ICE";
        Problem::new(StatusCode::PRECONDITION_REQUIRED, detail)
    })?;
    Ok((fragment, if_match.to_owned()))
}

/// The answer to a fragment that was taken.
pub(super) fn patched(patched: Patched) -> Result<Response, Problem> {
    let Some(fragment) = patched.fragment else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let mut response = (StatusCode::OK, fragment).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(FRAGMENT));
    headers.insert(header::ETAG, etag(&patched.etag)?);
    Ok(response)
}

async fn close(
    role: Role,
    State(app): State<Arc<App>>,
    InPath((stream, session)): InPath<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let session = app.session(&headers, role, &stream, &session)?;
    app.rooms.close(session)?;
    Ok(StatusCode::OK.into_response())
}

fn etag(tag: &str) -> Result<HeaderValue, Problem> {
    header_value(&format!("\"{tag}\""))
}

/// A server for the client's ICE agent (RFC 9725 §4.6).
fn link(server: &IceServer) -> String {
    match &server.login {
        None => format!("<{}>; rel=\"ice-server\"", server.url),
        Some((user, credential)) => format!(
            "<{}>; rel=\"ice-server\"; username=\"{user}\"; credential=\"{credential}\"; credential-type=\"password\"",
            server.url
        ),
    }
}

/// What we put into headers was looked at before, so what cannot be written is our mistake.
fn header_value(text: &str) -> Result<HeaderValue, Problem> {
    let detail = "the answer has a header that cannot be written";
    HeaderValue::from_str(text).map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
}
