//! Responses, as text.
//!
//! Source: RFC 2326 §7, §11 (status codes), §12.17 (CSeq).

use std::fmt::Write as _;

/// Outcome of a request (§7.1.1): its three digits, and its name for people.
#[expect(missing_docs, reason = "the names are those of §7.1.1")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "title_case")]
pub enum Status {
    #[strum(serialize = "OK")]
    Ok = 200,
    BadRequest = 400,
    Forbidden = 403,
    NotFound = 404,
    MethodNotAllowed = 405,
    NotAcceptable = 406,
    UnsupportedMediaType = 415,
    ParameterNotUnderstood = 451,
    NotEnoughBandwidth = 453,
    SessionNotFound = 454,
    #[strum(serialize = "Method Not Valid in This State")]
    MethodNotValidInThisState = 455,
    InvalidRange = 457,
    #[strum(serialize = "Aggregate Operation Not Allowed")]
    AggregateNotAllowed = 459,
    UnsupportedTransport = 461,
    InternalServerError = 500,
    NotImplemented = 501,
    BadGateway = 502,
    ServiceUnavailable = 503,
    #[strum(serialize = "RTSP Version Not Supported")]
    VersionNotSupported = 505,
    OptionNotSupported = 551,
}

impl Status {
    /// The three digits.
    pub fn code(self) -> u16 {
        self as u16
    }
}

/// A response to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The outcome.
    pub status: Status,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Response {
    /// Says nothing but the outcome.
    pub fn new(status: Status) -> Self {
        Response { status, headers: Vec::new(), body: String::new() }
    }

    /// Adds a header. Whatever would end its line is left out of the value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        let mut value = value.to_string();
        value.retain(|character| !character.is_control());
        self.headers.push((name, value));
        self
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Adds a body and what is said of it.
    #[must_use]
    pub fn with_body(self, content_type: &str, body: String) -> Self {
        let with = self.with("Content-Type", content_type).with("Content-Length", body.len());
        Response { body, ..with }
    }

    /// Writes it as the answer to request `cseq`; one that had no number is answered without.
    pub fn to_text(&self, cseq: Option<u32>) -> String {
        let (code, reason) = (self.status.code(), <&str>::from(self.status));
        let mut text = format!("RTSP/1.0 {code} {reason}\r\n");
        // Writing to a string cannot fail.
        let _ = cseq.map(|cseq| write!(text, "CSeq: {cseq}\r\n"));
        for (name, value) in &self.headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text + "\r\n" + &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_its_number_headers_and_body() {
        let response = Response::new(Status::Ok).with("Session", "a\r\nb").with_body("text/plain", "hi".to_owned());
        let text =
            "RTSP/1.0 200 OK\r\nCSeq: 9\r\nSession: ab\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(response.to_text(Some(9)), text);
        assert_eq!(Response::new(Status::BadRequest).to_text(None), "RTSP/1.0 400 Bad Request\r\n\r\n");
    }
}
