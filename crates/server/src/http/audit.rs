//! A line in the log for whatever somebody changes who administers the server: what, on what, who, from where, and what came of it.
//!
//! In: requests to the API that change something, and their answers. Out: events of the target `audit`, level `info`, so
//! `log.filter` can leave them out, or leave out all else. Who shows no admin's token has changed nothing and writes nothing:
//! else whoever likes could fill the log.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use tracing::field::display;

use super::App;
use super::client::ClientAddress;

/// Where what changes something is an admin's. Credentials for the relay are a client's own.
const PARTS: [&str; 2] = ["/api/", "/pump/"];
const OF_CLIENTS: &str = "/api/relay/credentials";

/// What a handler adds to the line of its request: what a body asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted(pub(super) String);

/// More of a path is not written, …
const ON_MAX: usize = 1_000;

/// … or of a body.
const WANTED_BYTES_MAX: usize = 1_000;

impl Wanted {
    /// As it was sent, up to a length.
    pub(super) fn of(body: &str) -> Self {
        Wanted(body.chars().take(WANTED_BYTES_MAX).filter(|c| !c.is_control()).collect())
    }
}

/// The line of a request of an admin, which is written when this is let go: also where whoever asked does not wait for the
/// answer, as what was asked for may have been done.
struct Line {
    action: Method,
    on: String,
    from: Option<IpAddr>,
    by: Option<String>,
    wanted: Option<Wanted>,
    /// The status of the answer; `None`: there was none.
    result: Option<u16>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Line { action, on, by, result, .. } = self;
        let (from, wanted) = (self.from.map(display), self.wanted.as_ref().map(|wanted| &*wanted.0));
        tracing::info!(target: "audit", %action, on, wanted, from, by, result, "an admin's request");
    }
}

pub(super) async fn audit(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
    let path = request.uri().path();
    if !changes || path == OF_CLIENTS || !PARTS.iter().any(|part| path.starts_with(part)) {
        return next.run(request).await;
    }
    let (action, on) = (request.method().clone(), path.chars().take(ON_MAX).collect::<String>());
    let (parts, body) = request.into_parts();
    let from = ClientAddress::of(&app, &parts).ip;
    let bearer = app.bearer(&parts.headers).ok().filter(|bearer| bearer.rights.admin);
    let mut line = bearer.map(|bearer| Line { action, on, from, by: bearer.subject, wanted: None, result: None });
    let response = next.run(Request::from_parts(parts, body)).await;
    if let Some(line) = &mut line {
        line.wanted = response.extensions().get().cloned();
        line.result = Some(response.status().as_u16());
    }
    response
}
