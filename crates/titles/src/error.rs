//! Why a title or a chunk cannot be had, and whose fault it is.

use std::io;
use std::sync::Arc;

use pump::title::TitleError;
use strum::{IntoStaticStr, VariantArray};

/// Why a title or a chunk cannot be had. One error is told to all who wait for the same thing.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Error {
    /// No source has it.
    #[error("there is no title {location:?}")]
    NotFound { location: String },
    /// It may not be asked for.
    #[error("{location:?} is refused: {reason}")]
    Refused { location: String, reason: Refusal },
    /// It is no transport stream that can be played.
    #[error("{location:?} cannot be played: {error}")]
    Title { location: String, error: TitleError },
    /// It is not what it was when it was opened. Opening it again gives what it is now.
    #[error("{location:?} has changed since it was opened")]
    Changed { location: String },
    /// The caller's mistake.
    #[error("the title has {count} chunks, and no chunk {index}")]
    NoChunk { index: u64, count: u32 },
    /// Not from `Library::open` of this library.
    #[error("the title is not of this library")]
    UnknownTitle,
    /// A file cannot be read.
    #[error("{what}: {error}")]
    Io { what: String, error: Arc<io::Error> },
    /// What the last origin said.
    #[error("{url}: {error}")]
    Http { url: String, error: HttpError },
    /// A library cannot be made of these settings.
    #[error("{what}")]
    Settings { what: String },
    /// The runtime is about to end.
    #[error("stopped before it was done")]
    Stopped,
}

/// Why a location is not even looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no name.
    #[error("it is no plain name or path inside the folder")]
    Path,
    /// No file system has it.
    #[error("a part of it is longer than 255 bytes, or all of it than 4096")]
    TooLong,
    /// By a link, or by dots.
    #[error("it leads out of the folder")]
    Outside,
    /// A folder, a socket or a device.
    #[error("it is no file")]
    NoFile,
    /// `Settings::allow_paths` is not set.
    #[error("absolute paths are not allowed")]
    PathsNotAllowed,
    /// `Settings::allow_urls` is not set.
    #[error("URLs are not allowed")]
    UrlsNotAllowed,
    /// It cannot be asked for.
    #[error("it is no http or https URL")]
    Url,
}

/// What went wrong with a request to an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum HttpError {
    /// There was none within `connect_timeout`, or none at all.
    #[error("no connection: {0}")]
    Connect(String),
    /// It was there, and broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// No response, or no more of it, within `stall_timeout`.
    #[error("nothing came for {ms} ms")]
    Stalled { ms: u64 },
    /// A library did, over the request or its answer.
    #[error("a library panicked")]
    Panicked,
    /// Not all within `fetch_timeout`.
    #[error("not done within {ms} ms, {got} bytes came")]
    Slow { ms: u64, got: u64 },
    /// Neither 200, 206 nor a redirect.
    #[error("status {0}")]
    Status(u16),
    /// 200: the origin has no range requests, or not for this title.
    #[error("the origin ignored the range")]
    RangeIgnored,
    /// The origin sent other bytes than those it was asked for.
    #[error("asked for {asked} and got {got:?}")]
    WrongRange { asked: String, got: String },
    /// The body ended before, or its length said so from the start.
    #[error("{got} bytes instead of {expected}")]
    Truncated { expected: u64, got: u64 },
    /// The title is longer or shorter than it was, or than on the origin before.
    #[error("the title has {got} bytes here instead of {expected}")]
    OtherLength { expected: u64, got: u64 },
    /// ETag or Last-Modified.
    #[error("the title has changed")]
    Changed,
    /// They may go round in circles.
    #[error("more than {0} redirects")]
    Redirects(u32),
    /// It leads to no http or https URL.
    #[error("a redirect to {0:?}")]
    BadRedirect(String),
}

/// Kinds of errors, for counting. Their names are a label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorKind {
    /// No source has the title, or an origin says 404.
    NotFound,
    /// `Error::Refused`.
    Refused,
    /// `Error::Title`.
    Title,
    /// The title is not what it was.
    Changed,
    /// The caller's mistakes.
    Request,
    /// `Error::Io`.
    Io,
    /// `HttpError::Connect`.
    Connect,
    /// `HttpError::Connection`.
    Connection,
    /// `HttpError::Stalled`.
    Stalled,
    /// `HttpError::Panicked`.
    Panicked,
    /// `HttpError::Slow`.
    Slow,
    /// `HttpError::Status`.
    Status,
    /// `HttpError::RangeIgnored`.
    RangeIgnored,
    /// `HttpError::WrongRange`.
    WrongRange,
    /// `HttpError::Truncated`.
    Truncated,
    /// `HttpError::OtherLength`.
    OtherLength,
    /// Too many of them, or one that leads nowhere.
    Redirect,
}

impl Error {
    /// Of which kind it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::Refused { .. } => ErrorKind::Refused,
            Error::Title { .. } => ErrorKind::Title,
            Error::Changed { .. } => ErrorKind::Changed,
            Error::NoChunk { .. } | Error::UnknownTitle | Error::Settings { .. } | Error::Stopped => ErrorKind::Request,
            Error::Io { .. } => ErrorKind::Io,
            Error::Http { error, .. } => error.kind(),
        }
    }

    /// The title is not there any more, or is another one. An origin may say so for a moment, as while files are moved.
    pub fn is_gone(&self) -> bool {
        use HttpError::Status;
        matches!(self, Error::Changed { .. } | Error::NotFound { .. } | Error::Http { error: Status(404 | 410), .. })
    }

    /// It may be had later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Io { .. } | Error::Http { .. }) && !self.is_gone()
    }

    pub(crate) fn io(what: impl Into<String>, error: io::Error) -> Error {
        Error::Io { what: what.into(), error: Arc::new(error) }
    }
}

impl HttpError {
    /// Of which kind it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            HttpError::Connect(_) => ErrorKind::Connect,
            HttpError::Connection(_) => ErrorKind::Connection,
            HttpError::Stalled { .. } => ErrorKind::Stalled,
            HttpError::Panicked => ErrorKind::Panicked,
            HttpError::Slow { .. } => ErrorKind::Slow,
            HttpError::Status(404 | 410) => ErrorKind::NotFound,
            HttpError::Status(_) => ErrorKind::Status,
            HttpError::RangeIgnored => ErrorKind::RangeIgnored,
            HttpError::WrongRange { .. } => ErrorKind::WrongRange,
            HttpError::Truncated { .. } => ErrorKind::Truncated,
            HttpError::OtherLength { .. } => ErrorKind::OtherLength,
            HttpError::Changed => ErrorKind::Changed,
            HttpError::Redirects(_) | HttpError::BadRedirect(_) => ErrorKind::Redirect,
        }
    }
}
