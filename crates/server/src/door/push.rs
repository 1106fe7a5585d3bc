//! Who pushes a stream without a word of its length: Icecast's clients, whose stream ends with the connection.
//!
//! In: the first request of a connection. Out: where in its head a length is to be said, so that HTTP reads on to the end.
//! Source: RFC 9112 §6.3 (a request without a length has no body), and what Icecast's clients do all the same.

use httparse::{EMPTY_HEADER, Request, Status};

/// Longer than any stream.
pub(super) const LENGTH: &[u8] = b"Content-Length: 9223372036854775807\r\n";

/// Bytes of a head that is looked at.
const HEAD_MAX: usize = 8 * 1_024;

const FIELDS_MAX: usize = 100;

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

/// Looks at what came of a request.
pub(super) fn length(received: &[u8], is_stream: impl Fn(&str) -> bool) -> Length {
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
    // The last line is empty, and may lack its CR.
    let last = if received[..len].ends_with(b"\r\n") { 2 } else { 1 };
    if says("content-length") || says("transfer-encoding") { Length::Fine } else { Length::Lacks(len - last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Length {
        length(text.as_bytes(), |path| path == "/live/x")
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
}
