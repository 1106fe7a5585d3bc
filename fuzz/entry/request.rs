//! What the fuzz target of viewers' requests does with its bytes: a connection's first ones, as they come. Shared by the fuzz
//! target and by `crates/server/tests`, which replays the corpus.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{Method, Version};
use server::config::{Origin, Secret};
use server::reflect::access::{End, Visit};
use server::reflect::request::{Decision, HEAD_MAX, Query, Viewer, decide};
use server::reflect::response::{self, Body};
use server::reflect::sign::{UrlKeys, sign_url};

/// Prefixes of an input that are looked at.
const PREFIXES_MAX: usize = 16;

pub fn request(data: &[u8]) {
    let whole = decide(data, is_stream);
    let step = data.len().div_ceil(PREFIXES_MAX).max(1);
    for len in (0..data.len()).step_by(step) {
        match (decide(&data[..len], is_stream), &whole) {
            (Decision::Incomplete, _) => assert!(len < HEAD_MAX, "it is waited for without end"),
            (Decision::Other, Decision::Other) => {}
            (Decision::Viewer(early), Decision::Viewer(late)) => assert_eq!(early.head_len, late.head_len),
            (early, late) => panic!("{early:?} at {len} bytes, and then {late:?}"),
        }
    }
    if let Decision::Viewer(viewer) = whole {
        check_viewer(&viewer, data);
    }
    if let Ok(text) = str::from_utf8(data) {
        check_text(text);
    }
}

fn is_stream(path: &str) -> bool {
    path.starts_with("/live/")
}

fn check_viewer(viewer: &Viewer, data: &[u8]) {
    let Viewer { parts, head_len, .. } = viewer;
    assert!(*head_len <= data.len().min(HEAD_MAX));
    assert!(data[..*head_len].ends_with(b"\n") && is_stream(parts.uri.path()), "{parts:?}");
    assert!(parts.method == Method::GET && [Version::HTTP_10, Version::HTTP_11].contains(&parts.version));
    let end = End { sent_bytes: 9, age: Duration::from_secs(1), skips: 0, reason: "closed" };
    let line = Visit::new(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), UNIX_EPOCH, parts, 200, 0).line(&end);
    let text = line.strip_suffix('\n').expect("it ends a line");
    assert!(text.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{text:?}");
    // Three quoted fields, and no quotes in them.
    assert_eq!(text.matches('"').count(), 6, "{text}");
    let origin = parts.headers.get("origin").cloned();
    check_head(&response::head(Body::default(), &[Origin("https://a.example".to_owned())], origin, UNIX_EPOCH));
}

/// Anything as a query, as an address to be signed, and as a media type.
fn check_text(text: &str) {
    static KEYS: LazyLock<UrlKeys> =
        LazyLock::new(|| UrlKeys::new(&[Secret("0123456789abcdef0123456789abcdef".to_owned())]).expect("a key"));
    let anybody = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let now = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    if let Ok(Query { signed, .. }) = Query::parse(text) {
        assert!(KEYS.check("/live/news", signed.as_ref(), anybody, now(0)).is_err(), "nobody can guess a signature");
    }
    if let Ok(url) = sign_url(&KEYS, text, 100, None) {
        let (base, query) = url.split_once('?').expect("it has a query");
        let query = query.split('#').next().unwrap_or_default();
        let path = base.split_once("://").map_or(base, |(_, rest)| &rest[rest.find('/').expect("a path")..]);
        let path = path.strip_suffix("/index.m3u8").unwrap_or(path);
        // What the address had before may be wrong by itself.
        if let Ok(Query { signed, .. }) = Query::parse(query) {
            assert_eq!(KEYS.check(path, signed.as_ref(), anybody, now(100)), Ok(()), "{url}");
            assert!(KEYS.check(path, signed.as_ref(), anybody, now(101)).is_err());
        }
    }
    check_head(&response::head(Body { content_type: text, ..Body::default() }, &[Origin::any()], None, UNIX_EPOCH));
}

fn check_head(head: &[u8]) {
    let text = str::from_utf8(head).unwrap_or_default();
    assert!(text.is_empty() || text.find("\r\n\r\n") == Some(text.len() - 4), "{text}");
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n") && head.ends_with(b"\r\n\r\n"));
}
