//! The first request of a connection: a viewer's, who goes straight to a worker, or another.
//!
//! In: what came of it so far, and which paths are streams'. Out: a decision; of a viewer the request as axum would have it.
//! Whatever is not plainly a viewer's is left to HTTP, which has an answer to each mistake: so there is one that refuses.
//! Cost: one look at the head each time that more of it is there, `HEAD_MAX` bytes at most; a viewer's is copied once.
//! Source: RFC 9112 §3 (request line, Host), §5 (fields), §6 (bodies), RFC 9110 §14.2 (a range may be ignored).
//!
//! **Ranges** are ignored: the answer is 200, and says that there are none (`response`). Players ask for all from byte 0 on
//! to see whether they could seek, and for all behind byte N when they come back after their connection broke; both mean "go
//! on". With 416 they would give up. Safari takes a stream by byte ranges or not at all: it gets HLS.

use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use httparse::Status;
use reflect::spec::Join;
use thiserror::Error;
use url::form_urlencoded;

use super::sign::Signed;

/// Bytes of a viewer's request head. A longer one is HTTP's, which has a limit of its own.
pub const HEAD_MAX: usize = 8 * 1_024;

/// Header fields in it, likewise.
const FIELDS_MAX: usize = 100;

/// Furthest back that somebody can ask to begin. Nobody gets more than there is.
const BACK_MAX: Duration = Duration::from_secs(24 * 3_600);

/// What becomes of a connection.
#[derive(Debug)]
pub enum Decision {
    /// More has to come before that can be told. Never with `HEAD_MAX` bytes.
    Incomplete,
    /// HTTP answers it.
    Other,
    /// Somebody wants to watch a stream.
    Viewer(Box<Viewer>),
}

/// A request for a stream.
#[derive(Debug)]
pub struct Viewer {
    /// Line and fields, as handlers have them.
    pub parts: Parts,
    /// What stands behind the path.
    pub query: Query,
    /// Bytes of the head. What was read behind it is another request, which nobody answers: the connection ends with the
    /// stream.
    pub head_len: usize,
}

/// What a viewer asks for in a stream's URL, `?join=next&token=…`. Other keys are ignored: players and pages add theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// `join`: "newest", "next" or a number of seconds; where to begin, where that is not for the stream to say.
    pub join: Option<Join>,
    /// `token`: a bearer token, as players can send no header of their own.
    pub token: Option<String>,
    /// `expires`, `client` and `signature`.
    pub signed: Option<Signed>,
}

/// What is wrong with a query. The client's doing (400).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// No place to begin.
    #[error("join is none of \"newest\", \"next\" and a number of seconds, a day at most")]
    Join,
    /// No time.
    #[error("expires is no time in seconds since 1970")]
    Expires,
    /// No address.
    #[error("client is no address and no network")]
    Client,
    /// None that was ever made.
    #[error("signature is none: they have 43 letters, digits, - and _")]
    Signature,
    /// One without the other.
    #[error("expires and signature go together")]
    Alone,
}

/// Tells what a connection wants by what came on it. `is_stream` says whether a path, as it was typed, is a stream's.
pub fn decide(received: &[u8], is_stream: impl FnOnce(&str) -> bool) -> Decision {
    let until_more = if received.len() < HEAD_MAX { Decision::Incomplete } else { Decision::Other };
    let method_len = received.len().min(METHOD.len());
    if received[..method_len] != METHOD[..method_len] {
        return Decision::Other;
    }
    let target = &received[method_len..];
    if target.first().is_some_and(|first| *first != b'/') {
        return Decision::Other;
    }
    let Some(path_len) = target.iter().position(|byte| b" ?\r\n".contains(byte)) else { return until_more };
    if !str::from_utf8(&target[..path_len]).is_ok_and(is_stream) {
        return Decision::Other;
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(received) {
        Ok(Status::Partial) => until_more,
        Ok(Status::Complete(head_len)) if head_len <= HEAD_MAX => match viewer(&head, head_len) {
            Some(viewer) => Decision::Viewer(Box::new(viewer)),
            None => Decision::Other,
        },
        Ok(Status::Complete(_)) | Err(_) => Decision::Other,
    }
}

/// The only one that goes to a worker.
const METHOD: &[u8] = b"GET ";

/// `None` where somebody else has to answer: what is read here is read there once more, and refused.
fn viewer(head: &httparse::Request<'_, '_>, head_len: usize) -> Option<Viewer> {
    let uri: Uri = head.path?.parse().ok()?;
    let query = Query::parse(uri.query().unwrap_or_default()).ok()?;
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for field in &*head.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get_all(header::CONTENT_LENGTH).iter().any(|length| length != "0");
    let version = if head.version? == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let hosts = headers.get_all(header::HOST).iter().count();
    if has_body || headers.contains_key(header::EXPECT) || hosts > 1 || hosts < usize::from(version == Version::HTTP_11)
    {
        return None;
    }
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::GET;
    parts.uri = uri;
    parts.version = version;
    parts.headers = headers;
    Some(Viewer { parts, query, head_len })
}

impl Query {
    /// Reads what stands behind the question mark.
    ///
    /// # Errors
    /// When a key that is ours has a value that it cannot have.
    pub fn parse(query: &str) -> Result<Self, QueryError> {
        let (mut join, mut token, mut expires, mut client, mut signature) = (None, None, None, None, None);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "join" => join = Some(parse_join(&value).ok_or(QueryError::Join)?),
                "token" => token = Some(value.into_owned()),
                "expires" => expires = Some(value.parse().map_err(|_| QueryError::Expires)?),
                "client" => client = Some(value.into_owned()),
                "signature" => signature = Some(value),
                _ => {}
            }
        }
        let signed = match (expires, signature) {
            (Some(expires), Some(signature)) => Some(Signed::new(expires, client, &signature)?),
            (None, None) => None,
            _ => return Err(QueryError::Alone),
        };
        Ok(Query { join, token, signed })
    }
}

/// Reads where a viewer begins: "newest", "next", or seconds back from now.
pub fn parse_join(text: &str) -> Option<Join> {
    match text {
        "newest" => Some(Join::Newest),
        "next" => Some(Join::Next),
        seconds => {
            let back = Duration::from_secs(u64::from(seconds.parse::<u32>().ok()?));
            (back <= BACK_MAX).then_some(Join::Back(back))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_news(path: &str) -> bool {
        path == "/live/news"
    }

    fn is_viewer(received: &str) -> bool {
        match decide(received.as_bytes(), is_news) {
            Decision::Viewer(_) => true,
            Decision::Other => false,
            Decision::Incomplete => panic!("{received} is whole"),
        }
    }

    #[test]
    fn a_viewer_is_told_when_his_head_is_whole_and_not_before() {
        let head = "GET /live/news?join=30&x=y HTTP/1.1\r\nHost: a.example:8080\r\nUser-Agent: VLC/3.0\r\n\
                    Range: bytes=0-\r\nIcy-MetaData: 1\r\n\r\n";
        for len in 0..head.len() {
            let decision = decide(&head.as_bytes()[..len], is_news);
            assert!(matches!(decision, Decision::Incomplete), "{len}: {decision:?}");
        }
        let Decision::Viewer(viewer) = decide(format!("{head}GET / HT").as_bytes(), is_news) else { panic!("whole") };
        assert_eq!((viewer.head_len, viewer.parts.version), (head.len(), Version::HTTP_11));
        assert_eq!((viewer.parts.uri.path(), &viewer.parts.method), ("/live/news", &Method::GET));
        assert_eq!(
            (&viewer.parts.headers["host"], viewer.parts.headers.len()),
            (&"a.example:8080".parse().unwrap(), 4)
        );
        assert_eq!(viewer.query.join, Some(Join::Back(Duration::from_secs(30))));
    }

    #[test]
    fn the_oldest_players_are_viewers_too() {
        let Decision::Viewer(viewer) = decide(b"GET /live/news HTTP/1.0\n\n", is_news) else { panic!("a viewer") };
        assert_eq!((viewer.parts.version, viewer.head_len), (Version::HTTP_10, 25));
        assert_eq!(viewer.query, Query::default());
    }

    #[test]
    fn other_requests_wait_for_nothing() {
        for begin in
            ["P", "GE\r", "get /live/news", "GET  ", "GET http://a/live/news", "\r\nGET /live/news", "\x16\x03\x01"]
        {
            assert!(matches!(decide(begin.as_bytes(), is_news), Decision::Other), "{begin:?}");
        }
        for begin in
            ["GET /live/new ", "GET /live/news/?", "GET /live/n%65ws ", "GET /\r", "GET /live/news/index.m3u8 HT"]
        {
            assert!(matches!(decide(begin.as_bytes(), is_news), Decision::Other), "{begin:?}");
        }
        assert!(matches!(decide(b"GET /live/\xff ", |_| panic!("no text")), Decision::Other));
    }

    #[test]
    fn what_is_odd_is_for_http_to_answer() {
        let with = |line: &str, fields: &str| is_viewer(&format!("GET {line}\r\nHost: a\r\n{fields}\r\n"));
        assert!(with("/live/news HTTP/1.1", "Content-Length: 0\r\n"));
        assert!(with("/live/news?a=%zz HTTP/1.1", "Connection: Upgrade\r\nUpgrade: h2c\r\n"));
        for field in [
            "Content-Length: 1",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Host: a",
            "A : b",
            " folded",
            "A",
        ] {
            assert!(!with("/live/news HTTP/1.1", &format!("{field}\r\n")), "{field}");
        }
        for line in ["/live/news HTTP/2.0", "/live/news HTP/1.1", "/live/news?join=soon HTTP/1.1", "/live/news"] {
            assert!(!with(line, ""), "{line}");
        }
        assert!(!is_viewer("GET /live/news HTTP/1.1\r\n\r\n"), "a request of HTTP/1.1 names its host");
        assert!(with("/live/news HTTP/1.1", &"A: b\r\n".repeat(FIELDS_MAX - 1)));
        assert!(!with("/live/news HTTP/1.1", &"A: b\r\n".repeat(FIELDS_MAX)));
    }

    #[test]
    fn a_head_has_a_length_that_it_may_have() {
        let head = |len: usize| {
            let line = "GET /live/news HTTP/1.1\r\nHost: a\r\nA: ";
            format!("{line}{}\r\n\r\n", "a".repeat(len - line.len() - 4))
        };
        assert!(is_viewer(&head(HEAD_MAX)) && !is_viewer(&head(HEAD_MAX + 1)));
        let endless = head(2 * HEAD_MAX);
        let at = |len: usize| decide(&endless.as_bytes()[..len], is_news);
        assert!(matches!((at(HEAD_MAX - 1), at(HEAD_MAX)), (Decision::Incomplete, Decision::Other)));
        let path = format!("GET /{}", "a".repeat(HEAD_MAX));
        assert!(matches!(decide(path.as_bytes(), is_news), Decision::Other));
    }

    #[test]
    fn queries_say_where_to_begin_and_who_asks() {
        let join = |text| Query::parse(text).map(|query| query.join);
        assert_eq!(join(""), Ok(None));
        assert_eq!(join("join=newest"), Ok(Some(Join::Newest)));
        assert_eq!(join("a=b&join=next&"), Ok(Some(Join::Next)));
        assert_eq!(join("join=0"), Ok(Some(Join::Back(Duration::ZERO))));
        assert_eq!(["join=", "join=-1", "join=86401", "join=1s"].map(join), [Err(QueryError::Join); 4]);
        assert_eq!(Query::parse("token=a%2Eb+c").expect("fits").token.as_deref(), Some("a.b c"));
        let wrong = |text| Query::parse(text).expect_err("it is wrong");
        assert_eq!(wrong("expires=1"), QueryError::Alone);
        assert_eq!(wrong("signature=AAAA"), QueryError::Alone);
        assert_eq!(wrong("expires=soon&signature=A"), QueryError::Expires);
        assert_eq!(wrong("expires=1&signature=A"), QueryError::Signature);
        let signature = "A".repeat(43);
        assert_eq!(wrong(&format!("expires=1&client=here&signature={signature}")), QueryError::Client);
        assert!(Query::parse(&format!("expires=1&client=10.0.0.0%2F8&signature={signature}")).is_ok());
    }
}
