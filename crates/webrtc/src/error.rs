//! Why an offer, an answer or a fragment was not taken.

use wire::codec::{Codec, MediaKind};

/// What is wrong with the other side's text, or what it cannot do. The sender's doing, so never a panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Error {
    #[error("{got} bytes, more than the {max} that are read")]
    TooLong { got: usize, max: usize },
    #[error("line {line}: {what}")]
    Syntax { line: usize, what: &'static str },
    #[error("more than {max} {what}")]
    TooMany { what: &'static str, max: usize },
    #[error("{what} is missing")]
    Missing { what: &'static str },
    #[error("{what} is not valid: {why}")]
    Invalid { what: &'static str, why: &'static str },
    #[error("media sections are not in one BUNDLE group (RFC 8843)")]
    NotBundled,
    #[error("no {kind:?} codec in media section {mid} is one that this server passes on")]
    NoCodec { kind: MediaKind, mid: String },
    #[error("the stream's {codec:?} was not offered, or not in the stream's profile")]
    CodecNotOffered { codec: Codec },
    #[error("no media section to {0}")]
    NoMedia(&'static str),
    #[error("the answer does not fit the offer: {0}")]
    AnswerMismatch(&'static str),
    #[error("too many ICE restarts; one in {seconds} s is taken")]
    TooManyRestarts { seconds: u64 },
    #[error("DTLS or ICE could not be set up: {0}")]
    SetUp(String),
}
