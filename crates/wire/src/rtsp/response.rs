//! Responses, as text.
//!
//! Source: RFC 2326 §7, §11 (status codes), §12.17 (CSeq).

use std::fmt::Write as _;

/// Outcome of a request (§7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200
    Ok,
    /// 400
    BadRequest,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 406
    NotAcceptable,
    /// 451
    ParameterNotUnderstood,
    /// 453
    NotEnoughBandwidth,
    /// 454
    SessionNotFound,
    /// 455
    MethodNotValidInThisState,
    /// 457
    InvalidRange,
    /// 459
    AggregateNotAllowed,
    /// 461
    UnsupportedTransport,
    /// 500
    InternalServerError,
    /// 501
    NotImplemented,
    /// 502
    BadGateway,
    /// 503
    ServiceUnavailable,
    /// 505
    VersionNotSupported,
    /// 551
    OptionNotSupported,
}

impl Status {
    /// The three digits.
    pub fn code(self) -> u16 {
        self.line().0
    }

    fn line(self) -> (u16, &'static str) {
        match self {
            Status::Ok => (200, "OK"),
            Status::BadRequest => (400, "Bad Request"),
            Status::Forbidden => (403, "Forbidden"),
            Status::NotFound => (404, "Not Found"),
            Status::MethodNotAllowed => (405, "Method Not Allowed"),
            Status::NotAcceptable => (406, "Not Acceptable"),
            Status::ParameterNotUnderstood => (451, "Parameter Not Understood"),
            Status::NotEnoughBandwidth => (453, "Not Enough Bandwidth"),
            Status::SessionNotFound => (454, "Session Not Found"),
            Status::MethodNotValidInThisState => (455, "Method Not Valid in This State"),
            Status::InvalidRange => (457, "Invalid Range"),
            Status::AggregateNotAllowed => (459, "Aggregate Operation Not Allowed"),
            Status::UnsupportedTransport => (461, "Unsupported Transport"),
            Status::InternalServerError => (500, "Internal Server Error"),
            Status::NotImplemented => (501, "Not Implemented"),
            Status::BadGateway => (502, "Bad Gateway"),
            Status::ServiceUnavailable => (503, "Service Unavailable"),
            Status::VersionNotSupported => (505, "RTSP Version Not Supported"),
            Status::OptionNotSupported => (551, "Option Not Supported"),
        }
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

    /// Adds a body and what is said of it.
    #[must_use]
    pub fn with_body(self, content_type: &str, body: String) -> Self {
        let with = self.with("Content-Type", content_type).with("Content-Length", body.len());
        Response { body, ..with }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// What stands behind the headers.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Writes it as the answer to request `cseq`; one that had no number is answered without.
    pub fn to_text(&self, cseq: Option<u32>) -> String {
        let (code, reason) = self.status.line();
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
