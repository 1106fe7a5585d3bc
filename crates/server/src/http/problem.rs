//! Errors as problem documents (RFC 9457), and which error has which status.

use std::fmt;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::auth::Refusal;
use crate::rooms::control::{ControlError, DRAIN_RETRY_SECONDS, OVERLOAD_RETRY_SECONDS, WAITING_RETRY_SECONDS};
use crate::rooms::directory::DirectoryError;
use crate::rooms::negotiator::NegotiationError;

/// An answer that says what went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    detail: String,
    retry_after_seconds: Option<u32>,
    /// For `WWW-Authenticate` (RFC 6750 §3).
    challenge: Option<&'static str>,
    /// For `Allow` (RFC 9110 §15.5.6).
    allowed: Option<&'static str>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status.as_u16(), self.detail)
    }
}

impl Problem {
    /// An answer with a status, and what went wrong in words.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Problem { status, detail: detail.into(), retry_after_seconds: None, challenge: None, allowed: None }
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What went wrong, in words.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// 403; `action` is what the token does not allow.
    pub fn forbidden(action: &str) -> Self {
        Refusal::NotAllowed(action.to_owned()).into()
    }

    /// 503, with the time after which another try makes sense.
    pub fn unavailable(detail: impl Into<String>, retry_after_seconds: u32) -> Self {
        let retry_after_seconds = Some(retry_after_seconds);
        Problem { retry_after_seconds, ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// The same, with the time after which another try makes sense.
    #[must_use]
    pub fn to_be_tried_again(self, seconds: u32) -> Self {
        Problem { retry_after_seconds: Some(seconds), ..self }
    }

    /// The same, with what a client has to show.
    #[must_use]
    pub fn challenging(self, challenge: &'static str) -> Self {
        Problem { challenge: Some(challenge), ..self }
    }

    /// The same, with the methods that there are.
    #[must_use]
    pub fn allowing(self, methods: &'static str) -> Self {
        Problem { allowed: Some(methods), ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(challenge) = self.challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(allowed) = self.allowed {
            headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (status, challenge) = match refusal {
            Refusal::NoToken => (StatusCode::UNAUTHORIZED, r#"Bearer realm="millrace""#),
            Refusal::NotBearer | Refusal::BadToken(_) => {
                (StatusCode::UNAUTHORIZED, r#"Bearer realm="millrace", error="invalid_token""#)
            }
            Refusal::NotAllowed(_) => (StatusCode::FORBIDDEN, r#"Bearer realm="millrace", error="insufficient_scope""#),
        };
        Problem { challenge: Some(challenge), ..Problem::new(status, refusal.to_string()) }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let detail = error.to_string();
        match error {
            ControlError::Draining => Problem::unavailable(detail, DRAIN_RETRY_SECONDS),
            ControlError::Busy => Problem::unavailable(detail, 1),
            ControlError::Directory(DirectoryError::Overloaded) => Problem::unavailable(detail, OVERLOAD_RETRY_SECONDS),
            ControlError::Directory(error) => {
                let retry_after_seconds = match error {
                    DirectoryError::TooManyWaiting => Some(WAITING_RETRY_SECONDS),
                    DirectoryError::StreamFull | DirectoryError::TooManySessions => Some(OVERLOAD_RETRY_SECONDS),
                    _ => None,
                };
                Problem { retry_after_seconds, ..Problem::new(directory_status(error), detail) }
            }
            ControlError::Negotiation(NegotiationError::Overloaded { retry_after_seconds }) => {
                Problem::unavailable(detail, retry_after_seconds)
            }
            ControlError::NoTrack { .. } => Problem::new(StatusCode::NOT_FOUND, detail),
            ControlError::Negotiation(error) => Problem::new(negotiation_status(&error), detail),
        }
    }
}

fn directory_status(error: DirectoryError) -> StatusCode {
    match error {
        DirectoryError::BadName => StatusCode::BAD_REQUEST,
        DirectoryError::NoStream | DirectoryError::NoSession => StatusCode::NOT_FOUND,
        DirectoryError::TooManyStreams | DirectoryError::StreamFull | DirectoryError::Overloaded => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        DirectoryError::TooManyWaiting | DirectoryError::TooManySessions => StatusCode::TOO_MANY_REQUESTS,
    }
}

fn negotiation_status(error: &NegotiationError) -> StatusCode {
    use webrtc::Error;
    match error {
        NegotiationError::Sdp(error) => match error {
            Error::NoCodec { .. } | Error::CodecNotOffered { .. } | Error::NoMedia(_) => StatusCode::NOT_ACCEPTABLE,
            // It can be read, and asks for what this server does not do.
            Error::NotBundled | Error::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Error::TooManyRestarts { .. } => StatusCode::TOO_MANY_REQUESTS,
            Error::SetUp(_) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        },
        NegotiationError::Overloaded { .. } => StatusCode::SERVICE_UNAVAILABLE,
        NegotiationError::NoSession => StatusCode::NOT_FOUND,
        NegotiationError::EtagMismatch => StatusCode::PRECONDITION_FAILED,
        NegotiationError::SessionExists => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
