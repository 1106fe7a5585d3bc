//! Lets pages of other origins in (the Fetch standard, "CORS protocol"), and answers OPTIONS (RFC 9725 §4.2, §4.6).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{App, Problem, own};
use crate::config::Origin;

/// Headers of answers that pages may read.
const EXPOSED: &str = "Location, ETag, Link, Accept-Patch, Accept-Post, Retry-After, WWW-Authenticate";

pub(super) async fn cors(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let is_options = request.method() == Method::OPTIONS;
    let takes_offers = ["/whip/", "/whep/"].iter().any(|prefix| request.uri().path().starts_with(prefix));
    let is_for_own = app.auth.get().needs_no_token() && own::is_for_own(request.uri().path());
    let is_allowed = if is_for_own { own::check(request.uri(), request.headers(), &app.cors_origins) } else { Ok(()) };
    let mut response = match is_allowed {
        _ if is_options => StatusCode::NO_CONTENT.into_response(),
        Ok(()) => next.run(request).await,
        Err(why) => Problem::new(StatusCode::FORBIDDEN, why).into_response(),
    };
    let headers = response.headers_mut();
    if is_options {
        if takes_offers {
            headers.insert("accept-post", HeaderValue::from_static("application/sdp"));
            headers.insert("accept-patch", HeaderValue::from_static(super::broadcast::FRAGMENT));
        }
        headers
            .insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS"));
        let allowed = HeaderValue::from_static("Authorization, Content-Type, If-Match");
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    }
    if is_for_own {
        headers.append(VARY, HeaderValue::from_static("Origin"));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        origin.filter(|_| is_allowed.is_ok()).map(|origin| headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin));
    } else {
        allow_origin(headers, &app.cors_origins, origin);
    }
    response
}

pub(crate) fn allow_origin(headers: &mut HeaderMap, allowed: &[Origin], origin: Option<HeaderValue>) {
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    if allowed.iter().any(Origin::is_any) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        return;
    }
    // The answer differs from origin to origin, which caches must know.
    headers.append(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin.filter(|origin| allowed.iter().any(|known| known.0.as_bytes() == origin.as_bytes())) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
}
