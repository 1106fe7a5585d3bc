//! The pages, which are part of the binary.

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::Problem;

/// Nothing from elsewhere is loaded; media comes from the peer connection, from here, or out of hls.js (blob).
const POLICY: &str = "default-src 'self'; img-src 'self' data:; media-src 'self' blob: mediastream:; \
                      object-src 'none'; base-uri 'none'; frame-ancestors 'self'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

pub(super) async fn nothing() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing here")
}

/// That of a meeting, whatever its name.
pub(super) async fn room() -> Response {
    answer(HTML, include_str!("../../../../web/dist/room.html"))
}

/// The dashboard, for whom there is data only with a token.
pub(super) async fn admin() -> Response {
    answer(HTML, include_str!("../../../../web/dist/admin.html"))
}

pub(super) async fn admin_script() -> Response {
    answer(SCRIPT, include_str!("../../../../web/dist/admin.js"))
}

pub(super) async fn admin_style() -> Response {
    answer(STYLE, include_str!("../../../../web/dist/admin.css"))
}

pub(super) async fn page(method: Method, uri: Uri) -> Response {
    let (content_type, content) = match uri.path() {
        "/" | "/index.html" => (HTML, include_str!("../../../../web/dist/index.html")),
        "/app.js" => (SCRIPT, include_str!("../../../../web/dist/app.js")),
        "/hls.js" => (SCRIPT, include_str!("../../../../web/dist/hls.js")),
        "/livekit.js" => (SCRIPT, include_str!("../../../../web/dist/livekit.js")),
        "/room.js" => (SCRIPT, include_str!("../../../../web/dist/room.js")),
        "/room.css" => (STYLE, include_str!("../../../../web/dist/room.css")),
        "/style.css" => (STYLE, include_str!("../../../../web/dist/style.css")),
        _ => return nothing().await.into_response(),
    };
    if method != Method::GET && method != Method::HEAD {
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this is a page: GET it");
        return ([(header::ALLOW, "GET, HEAD")], problem).into_response();
    }
    answer(content_type, content)
}

fn answer(content_type: &'static str, content: &'static str) -> Response {
    let mut response = content.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A new binary brings new pages under the same names.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
