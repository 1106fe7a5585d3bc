//! What a viewer is answered before the stream.
//!
//! In: what the stream is, and whose page asks. Out: fields for an answer of HTTP's, or a whole head for a worker to send.
//!
//! The body ends with the connection (RFC 9112 §6.3), also for who speaks HTTP/1.1: with chunks it would not be the bytes of
//! the file that all viewers are sent. There are no byte ranges of what has no end (RFC 9110 §14.3), and nothing of it is
//! kept. A browser takes what somebody pushes for what it says it is, and nothing else (nosniff). There is no metadata
//! between the bytes (`icy-metaint`): whoever asks for it gets the stream as it is.

use std::time::SystemTime;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::config::Origin;
use crate::http::allow_origin;

/// What follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Body<'a> {
    /// The stream's media type. Empty: nobody knows.
    pub content_type: &'a str,
    /// Its framing, "metacube"; `None`: it is as its source sent it.
    pub content_encoding: Option<&'static str>,
}

/// For a stream of which nobody says what it is.
const UNKNOWN: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Of each answer with a stream in it.
// What a source calls a page is not to run as one of this server's.
const FIELDS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::ACCEPT_RANGES, HeaderValue::from_static("none")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::SERVER, HeaderValue::from_static("millrace")),
];

/// Fields of an answer with a stream of that type, to which HTTP adds what it has to.
pub fn headers(body: Body<'_>) -> HeaderMap {
    let Body { content_type, content_encoding } = body;
    let content_type = HeaderValue::from_str(content_type).ok().filter(|it| !it.is_empty());
    let first = (header::CONTENT_TYPE, content_type.unwrap_or(UNKNOWN));
    let encoding = content_encoding.map(|it| (header::CONTENT_ENCODING, HeaderValue::from_static(it)));
    std::iter::once(first).chain(encoding).chain(FIELDS).collect()
}

/// The head of an answer whose body is all that follows. `origin` is what the request says of its page.
pub fn head(body: Body<'_>, allowed: &[Origin], origin: Option<HeaderValue>, now: SystemTime) -> Box<[u8]> {
    let mut headers = headers(body);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
        headers.insert(header::DATE, date);
    }
    allow_origin(&mut headers, allowed, origin);
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in &headers {
        push_capitalized(name.as_str(), &mut head);
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

/// As everybody writes them: old players look for "Content-Type" as it stands here.
fn push_capitalized(name: &str, out: &mut Vec<u8>) {
    let mut is_first = true;
    for byte in name.bytes() {
        out.push(if is_first { byte.to_ascii_uppercase() } else { byte });
        is_first = byte == b'-';
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn lines(content_type: &str, allowed: &[Origin], origin: Option<&'static str>) -> Vec<String> {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let body = Body { content_type, content_encoding: Some("metacube") };
        let head = head(body, allowed, origin.map(HeaderValue::from_static), now);
        let text = String::from_utf8(head.into()).expect("text");
        let fields = text.strip_suffix("\r\n\r\n").expect("an empty line").split("\r\n");
        fields.map(str::to_owned).collect()
    }

    #[test]
    fn the_body_is_all_that_follows() {
        let lines = lines("video/mp2t", &[Origin::any()], None);
        assert_eq!(lines[0], "HTTP/1.1 200 OK");
        for expected in [
            "Content-Type: video/mp2t",
            "Content-Encoding: metacube",
            "Connection: close",
            "Cache-Control: no-store",
            "Accept-Ranges: none",
            "X-Content-Type-Options: nosniff",
            "Access-Control-Allow-Origin: *",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:?}");
        }
        let says_length = |line: &String| line.starts_with("Content-Length") || line.starts_with("Transfer-Encoding");
        assert!(!lines.iter().any(says_length), "{lines:?}");
    }

    #[test]
    fn pages_of_origins_that_are_named_may_read_it_and_no_others() {
        let allowed = [Origin("https://a.example".to_owned())];
        let says = |origin, field: &str| lines("a/b", &allowed, origin).iter().any(|line| line == field);
        assert!(says(Some("https://a.example"), "Access-Control-Allow-Origin: https://a.example"));
        assert!(says(Some("https://b.example"), "Vary: Origin"));
        assert!(!lines("a/b", &allowed, Some("https://b.example")).iter().any(|line| line.contains("Allow-Origin")));
    }

    #[test]
    fn a_type_that_is_none_breaks_no_head() {
        for wrong in ["", "video/mp2t\r\nSet-Cookie: a=b", "\0"] {
            let body = Body { content_type: wrong, ..Body::default() };
            assert_eq!(headers(body)[header::CONTENT_TYPE], "application/octet-stream", "{wrong:?}");
        }
    }
}
