//! RTSP 1.0 as a server needs it: requests out of a TCP stream, the headers that matter, responses.
//!
//! In: what has arrived of a connection, header values. Out: borrowed requests and fields; responses as bytes.
//! Cost: one pass over a request's head for each call, and its size is limited; nothing is allocated by reading.
//! Source: RFC 2326 §4 to §12; §10.12 (interleaved data); RFC 2250 and RFC 3551 §6 (MPEG-TS is payload type 33).

mod fields;
mod response;
mod sdp;
mod transport;

pub use fields::{Npt, Range, Start, scale_permille, session_id, title_of};
pub use response::{Response, Status};
pub use sdp::{Description, Extent};
pub use transport::{Way, ways};

use std::str::FromStr;

/// Bytes of a request's head at most: request line, headers, and the empty line behind them.
pub const HEAD_MAX: usize = 8 * 1024;

/// Bytes of a request's body at most.
pub const BODY_MAX: usize = 8 * 1024;

/// Bytes before a channel's data.
pub const FRAME_HEADER_LEN: usize = 4;

/// What stands at the front of a connection's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A request, whole.
    Request(Request<'a>),
    /// Data of a channel between the requests (§10.12).
    Interleaved {
        /// The channel's number.
        channel: u8,
        /// What came on it.
        data: &'a [u8],
    },
}

/// Why nothing after it can be found in the stream: the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum RtspError {
    /// A head or a body that is longer than what is taken.
    #[error("more than {max} bytes")]
    TooLong { max: usize },
    /// The first line is another protocol's, or none.
    #[error("no request line: method, URI and RTSP/1.0")]
    RequestLine,
    /// RFC 7826, mostly.
    #[error("RTSP version other than 1.0")]
    Version,
    /// A line that is no header.
    #[error("a header without name, colon or plain text")]
    Header,
    /// Nobody knows where the next request begins.
    #[error("a Content-Length that is no number")]
    ContentLength,
}

/// The methods of §10; those that a client never sends to a server of titles are `Other`. They are case-sensitive (§4.1 by way
/// of RFC 2068 §5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Method {
    /// What can be asked.
    Options,
    /// What a title is.
    Describe,
    /// How to send it.
    Setup,
    /// From where to where, and at which speed.
    Play,
    /// Send nothing for now.
    Pause,
    /// Send nothing more.
    Teardown,
    /// Tell something of the session; keep it alive.
    GetParameter,
    /// Change something of the session; keep it alive.
    SetParameter,
    /// Any other.
    Other,
}

/// One request, whose head was checked line by line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is asked.
    pub method: Method,
    /// As it was sent: absolute, or "*".
    pub uri: &'a str,
    headers: &'a str,
    /// What stands behind the headers.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The value of the first header of that name, without the spaces around it.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All headers in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.headers.lines().filter_map(header_of)
    }

    /// The request's number (§12.17); every request has one.
    pub fn cseq(&self) -> Option<u32> {
        digits(self.header("CSeq")?)
    }
}

/// What stands before a channel's data between the responses (§10.12).
pub fn frame_header(channel: u8, len: u16) -> [u8; FRAME_HEADER_LEN] {
    let [high, low] = len.to_be_bytes();
    [b'$', channel, high, low]
}

/// Finds the first item of `buf`, and how many bytes it takes. `None`: more bytes are needed, which is never said of
/// `HEAD_MAX + BODY_MAX` bytes, nor of interleaved data's 65,539.
///
/// # Errors
/// When what is there cannot become a request.
pub fn next_item(buf: &[u8]) -> Result<Option<(Item<'_>, usize)>, RtspError> {
    if let [b'$', channel, rest @ ..] = buf {
        let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let data = rest.get(..usize::from(u16::from_be_bytes(*len)));
        return Ok(data.map(|data| (Item::Interleaved { channel: *channel, data }, 4 + data.len())));
    }
    // Empty lines before a request are let pass (§4.1 by way of RFC 2068 §4.1), but they count.
    let blank = buf.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let head = &buf[blank..buf.len().min(HEAD_MAX).max(blank)];
    let Some(head_len) = head_len(head) else {
        return if buf.len() >= HEAD_MAX { Err(RtspError::TooLong { max: HEAD_MAX }) } else { Ok(None) };
    };
    let text = str::from_utf8(&head[..head_len]).map_err(|_| RtspError::Header)?;
    let (line, headers) = text.split_once('\n').ok_or(RtspError::RequestLine)?;
    let (method, uri) = request_line(line)?;
    if headers.lines().any(|line| !line.is_empty() && header_of(line).is_none()) {
        return Err(RtspError::Header);
    }
    let mut request = Request { method, uri, headers, body: &[] };
    let body_len = match request.header("Content-Length") {
        None => 0,
        Some(value) => digits::<usize>(value).ok_or(RtspError::ContentLength)?,
    };
    if body_len > BODY_MAX {
        return Err(RtspError::TooLong { max: BODY_MAX });
    }
    let start = blank + head_len;
    let Some(body) = buf.get(start..start + body_len) else { return Ok(None) };
    request.body = body;
    Ok(Some((Item::Request(request), start + body_len)))
}

/// Bytes up to the empty line, and with it. A line may end in LF alone (§4).
fn head_len(buf: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        let line = start + buf[start..].iter().position(|byte| *byte == b'\n')?;
        if matches!(buf[start..line], [] | [b'\r']) {
            return Some(line + 1);
        }
        start = line + 1;
    }
}

fn request_line(line: &str) -> Result<(Method, &str), RtspError> {
    let mut words = line.strip_suffix('\r').unwrap_or(line).split(' ');
    let (Some(method), Some(uri), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(RtspError::RequestLine);
    };
    let is_plain = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain(method) || !is_plain(uri) {
        return Err(RtspError::RequestLine);
    }
    match version.strip_prefix("RTSP/") {
        Some("1.0") => Ok((method.parse().unwrap_or(Method::Other), uri)),
        Some(_) => Err(RtspError::Version),
        None => Err(RtspError::RequestLine),
    }
}

/// A number of digits and nothing else.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Name and value. A line that begins with a space would go on with the header before it; nobody sends that.
fn header_of(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_text = value.chars().all(|character| character == '\t' || !character.is_control());
    (is_name && is_text).then(|| (name, value.trim_matches([' ', '\t'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAY: &[u8] = b"PLAY rtsp://host/a.ts RTSP/1.0\r\nCSeq: 4\r\nsession:  abc \r\n\r\n";

    fn request(buf: &[u8]) -> (Request<'_>, usize) {
        match next_item(buf) {
            Ok(Some((Item::Request(request), len))) => (request, len),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_found_as_soon_as_it_is_whole() {
        for len in 0..PLAY.len() {
            assert_eq!(next_item(&PLAY[..len]), Ok(None), "{len}");
        }
        let both = [PLAY, b"OPTIONS"].concat();
        let (request, len) = request(&both);
        assert_eq!((request.method, request.uri, len), (Method::Play, "rtsp://host/a.ts", PLAY.len()));
        assert_eq!((request.cseq(), request.header("Session")), (Some(4), Some("abc")));
        assert_eq!(request.header("Range"), None);
    }

    #[test]
    fn a_body_belongs_to_its_request() {
        let text = b"\r\n\r\nSET_PARAMETER * RTSP/1.0\nCSeq: 1\nContent-Length: 3\n\nabcdef";
        assert_eq!(next_item(&text[..text.len() - 4]), Ok(None));
        let (request, len) = request(text);
        assert_eq!((request.method, request.body, len), (Method::SetParameter, &b"abc"[..], text.len() - 3));
    }

    #[test]
    fn interleaved_data_stands_between_requests() {
        let buf = [&[b'$', 1, 0, 3, 7, 8, 9][..], PLAY].concat();
        for len in 0..7 {
            assert_eq!(next_item(&buf[..len]), Ok(None));
        }
        assert_eq!(next_item(&buf), Ok(Some((Item::Interleaved { channel: 1, data: &[7, 8, 9] }, 7))));
        assert_eq!(request(&buf[7..]).1, PLAY.len());
    }

    #[test]
    fn what_cannot_become_a_request_is_an_error() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", RtspError::RequestLine),
            ("PLAY  rtsp://h RTSP/1.0\r\n\r\n", RtspError::RequestLine),
            ("PLAY RTSP/1.0\r\n\r\n", RtspError::RequestLine),
            ("PLAY * RTSP/2.0\r\n\r\n", RtspError::Version),
            ("PLAY * RTSP/1.0\r\nCSeq 1\r\n\r\n", RtspError::Header),
            ("PLAY * RTSP/1.0\r\n: 1\r\n\r\n", RtspError::Header),
            ("PLAY * RTSP/1.0\r\nA: x\ry\r\n\r\n", RtspError::Header),
            ("PLAY * RTSP/1.0\r\nContent-Length: -1\r\n\r\n", RtspError::ContentLength),
            ("PLAY * RTSP/1.0\r\nContent-Length: 99999999999999999999\r\n\r\n", RtspError::ContentLength),
            ("PLAY * RTSP/1.0\r\nContent-Length: 8193\r\n\r\n", RtspError::TooLong { max: BODY_MAX }),
        ] {
            assert_eq!(next_item(text.as_bytes()), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_head_without_end_is_too_long() {
        for byte in [b'a', b'\n', b'\r'] {
            let long = vec![byte; HEAD_MAX];
            assert_eq!(next_item(&long[1..]), Ok(None));
            assert_eq!(next_item(&long), Err(RtspError::TooLong { max: HEAD_MAX }));
        }
    }

    #[test]
    fn numbers_of_requests_are_digits() {
        for (value, expected) in [("7", Some(7)), ("", None), ("+7", None), ("4294967296", None), ("7 8", None)] {
            let text = format!("OPTIONS * RTSP/1.0\r\nCSeq: {value}\r\n\r\n");
            assert_eq!(request(text.as_bytes()).0.cseq(), expected, "{value}");
        }
    }
}
