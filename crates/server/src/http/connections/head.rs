//! What has to be refused of a request's head, and the library takes.
//!
//! Proxies that read such a head in another way than we do would send somebody else's request as a part of it, or to another
//! host's pages (request smuggling).
//! Source: RFC 9112 §3.2 (Host), §6.1 and §6.3 (Transfer-Encoding). HTTP/2 has neither field, or needs none.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use hyper::{Request, Version};

/// Status and reason of what is wrong. The connection is to end behind the answer: nobody knows where the next request begins.
pub(super) fn fault<B>(request: &Request<B>) -> Option<(StatusCode, &'static str)> {
    if request.version() > Version::HTTP_11 {
        return None;
    }
    host_fault(request.headers(), request.version()).or_else(|| coding_fault(request.headers()))
}

fn host_fault(headers: &HeaderMap, version: Version) -> Option<(StatusCode, &'static str)> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let says = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => "there is more than one Host field",
        (None, None) if version == Version::HTTP_11 => "the Host field is missing",
        (Some(host), None) if !is_host(host.as_bytes()) => "the Host field names no host",
        _ => return None,
    };
    Some((StatusCode::BAD_REQUEST, says))
}

/// A name or address with or without a port, or nothing, which is of a target without an authority.
fn is_host(value: &[u8]) -> bool {
    value.is_empty() || !value.contains(&b'@') && Authority::try_from(value).is_ok()
}

/// Chunks are the only coding that is understood, and stand once.
fn coding_fault(headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let lines = headers.get_all(header::TRANSFER_ENCODING).iter();
    let codings: Vec<&[u8]> =
        lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).collect();
    let chunked = codings.iter().filter(|coding| coding.eq_ignore_ascii_case(b"chunked")).count();
    match (codings.len(), chunked) {
        (0, _) | (1, 1) => None,
        (_, 0 | 1) => Some((StatusCode::NOT_IMPLEMENTED, "of transfer codings there is chunked alone")),
        _ => Some((StatusCode::BAD_REQUEST, "the transfer coding chunked stands more than once")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(version: Version, fields: &[(&str, &str)]) -> Option<u16> {
        let request = Request::builder().version(version);
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        fault(&request.body(()).expect("a request")).map(|(status, _)| status.as_u16())
    }

    #[test]
    fn a_host_is_said_once() {
        let of = |hosts: &[&str]| {
            let fields: Vec<_> = hosts.iter().map(|host| ("Host", *host)).collect();
            [Version::HTTP_10, Version::HTTP_11].map(|version| status(version, &fields))
        };
        for host in ["", "a.example", "a.example:8080", "192.0.2.7:80", "[2001:db8::1]:443"] {
            assert_eq!(of(&[host]), [None; 2], "{host}");
        }
        for hosts in [&["a", "b"][..], &["a", "a"], &["a/b"], &["user@a"], &["a b"], &["a, b"]] {
            assert_eq!(of(hosts), [Some(400); 2], "{hosts:?}");
        }
        assert_eq!(of(&[]), [None, Some(400)], "players of HTTP/1.0 say none");
        assert_eq!(status(Version::HTTP_2, &[]), None);
    }

    #[test]
    fn chunks_are_the_only_coding_and_stand_once() {
        let of = |codings: &[&str]| {
            let codings = codings.iter().map(|coding| ("Transfer-Encoding", *coding));
            status(Version::HTTP_11, &[("Host", "a")].into_iter().chain(codings).collect::<Vec<_>>())
        };
        assert_eq!([of(&[]), of(&["chunked"]), of(&["Chunked "])], [None; 3]);
        for twice in [&["chunked", "chunked"][..], &["chunked, chunked"], &["chunked", "gzip", "chunked"]] {
            assert_eq!(of(twice), Some(400), "{twice:?}");
        }
        for other in [&["gzip", "chunked"][..], &["gzip, chunked"], &["identity"], &["chunked", "identity"], &[""]] {
            assert_eq!(of(other), Some(501), "{other:?}");
        }
    }
}
