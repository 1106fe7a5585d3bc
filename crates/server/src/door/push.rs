//! Who pushes a stream without a word of its length: Icecast's clients, whose stream ends with the connection.
//!
//! In: the first request of a connection. Out: where in its head a length is to be said, so that HTTP reads on to the end.
//!
//! Behind a proxy that keeps its connections, what follows such a request is somebody else's next one, which would become a part
//! of the stream (request smuggling). So one that came by a proxy has no body, as its proxy takes it, unless its connection is for
//! it alone: a proxy says that itself and passes no client's word for it on.
//! Source: RFC 9112 §6.3 (a request without a length has no body), §9.3 and §9.6 (connections that persist, and those that do not),
//! and what Icecast's clients do all the same.

use httparse::{EMPTY_HEADER, Request, Status};

/// Longer than any stream.
pub(super) const LENGTH: &[u8] = b"Content-Length: 9223372036854775807\r\n";

/// Bytes of a head that is looked at.
const HEAD_MAX: usize = 8 * 1_024;

const FIELDS_MAX: usize = 100;

/// What proxies write into a request.
const OF_PROXIES: [&str; 4] = ["via", "forwarded", "x-forwarded-for", "x-real-ip"];

/// By what a stream is pushed.
const METHODS: [&[u8]; 3] = [b"PUT ", b"POST ", b"SOURCE "];

/// What is to be done about a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Nothing.
    Fine,
    /// More has to come before that can be told.
    NotYet,
    /// It is to be said here.
    Lacks(usize),
}

/// Looks at what came of a request. `is_proxy` says whether it is known that a proxy has sent it.
pub(super) fn length(received: &[u8], is_proxy: bool, is_stream: impl Fn(&str) -> bool) -> Length {
    let not_yet = if received.len() < HEAD_MAX { Length::NotYet } else { Length::Fine };
    let is_begun = |method: &&&[u8]| received.starts_with(method) || method.starts_with(received);
    let Some(method) = METHODS.iter().find(is_begun) else { return Length::Fine };
    let target = received.get(method.len()..).unwrap_or_default();
    let Some(end) = target.iter().position(|byte| b" ?\r\n".contains(byte)) else { return not_yet };
    if !str::from_utf8(&target[..end]).is_ok_and(is_stream) {
        return Length::Fine;
    }
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut request = Request::new(&mut fields);
    let Ok(parsed) = request.parse(received) else { return Length::Fine };
    let Status::Complete(len) = parsed else { return not_yet };
    let says = |name: &str| request.headers.iter().any(|field| field.name.eq_ignore_ascii_case(name));
    let is_by_proxy = is_proxy || OF_PROXIES.iter().any(|name| says(name));
    if says("content-length") || says("transfer-encoding") || (is_by_proxy && !is_alone(&request)) {
        return Length::Fine;
    }
    // The last line is empty, and may lack its CR.
    let last = if received[..len].ends_with(b"\r\n") { 2 } else { 1 };
    Length::Lacks(len - last)
}

/// Whether no other request follows on the connection.
fn is_alone(request: &Request<'_, '_>) -> bool {
    let fields = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("connection"));
    let words = || fields.clone().flat_map(|field| field.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let says = |word: &[u8]| words().any(|other| other.eq_ignore_ascii_case(word));
    says(b"close") || (request.version == Some(0) && !says(b"keep-alive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Length {
        length(text.as_bytes(), false, |path| path == "/live/x")
    }

    #[test]
    fn who_says_no_length_is_found_when_his_head_is_whole() {
        let head = "PUT /live/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
        for len in 0..head.len() {
            assert_eq!(of(&head[..len]), Length::NotYet, "{len}");
        }
        assert_eq!(of(&format!("{head}body")), Length::Lacks(head.len() - 2));
        assert_eq!(of("SOURCE /live/x?y HTTP/1.0\n\n"), Length::Lacks(26));
        for fine in [
            "GET /live/x HTTP/1.1\r\n\r\n",
            "PUT /live/y HTTP",
            "PUT /live/x HTTP/1.1\r\ncontent-length: 7\r\n\r\n",
            "POST /live/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "PUT /live/x ICE/1.0\r\n\r\n",
        ] {
            assert_eq!(of(fine), Length::Fine, "{fine}");
        }
    }
    #[test]
    fn who_comes_by_a_proxy_has_a_body_without_a_length_only_where_the_connection_is_for_him_alone() {
        let by = |is_proxy, line: &str, fields: &str| {
            let head = format!("PUT /live/x {line}\r\n{fields}\r\n");
            match length(head.as_bytes(), is_proxy, |path| path == "/live/x") {
                Length::NotYet => panic!("{head} is whole"),
                Length::Lacks(at) => at == head.len() - 2,
                Length::Fine => false,
            }
        };
        let of_proxies =
            ["Via: 1.1 cache\r\n", "X-Forwarded-For: 192.0.2.1\r\n", "x-real-ip: ::1\r\n", "Forwarded: for=a\r\n"];
        for (is_proxy, field) in of_proxies.map(|field| (false, field)).into_iter().chain([(true, "")]) {
            let of = |line, more: &str| by(is_proxy, line, &format!("{field}{more}"));
            assert!(
                !of("HTTP/1.1", "") && !of("HTTP/1.1", "Expect: 100-continue\r\nConnection: x, keep-alive\r\n"),
                "{field}"
            );
            assert!(!of("HTTP/1.0", "Connection: Keep-Alive\r\n"), "{field}");
            assert!(of("HTTP/1.1", "Connection: te, Close\r\n") && of("HTTP/1.0", ""), "{field}");
        }
        assert!(by(false, "HTTP/1.1", "Connection: keep-alive\r\n"), "nobody is between");
    }
}
