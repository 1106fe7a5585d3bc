//! What a peer connection says, and what it says no to. Plain values.

use std::net::SocketAddr;
use std::time::Instant;

use srtp::SessionKeys;

use crate::channels::ChannelEvent;

/// Where the other side is, and by which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Where datagrams come from and go to.
    pub addr: SocketAddr,
    /// Over a TCP connection, with RFC 4571 framing around each datagram; else UDP.
    pub tcp: bool,
}

/// What a peer connection wants its caller to do or know.
#[derive(Debug)]
pub enum Output {
    /// Send this datagram.
    Transmit {
        /// Where to; by which socket is the caller's to know.
        remote: Remote,
        /// STUN or DTLS, never media.
        data: Box<[u8]>,
    },
    /// ICE and DTLS are done. Comes once.
    Connected {
        /// Of both ways (RFC 5764 §4.2).
        keys: SessionKeys,
        /// Where to send media.
        remote: Remote,
    },
    /// Media goes to another address from now on: the other side wants it, or does not answer any more where it went. Only
    /// after `Connected`, only on the server's side, and not more often than `MOVES` says.
    PathChanged(Remote),
    /// From the data channels. Only where they were asked for.
    Channel(ChannelEvent),
    /// It is over. Comes once; the session is good for nothing any more.
    Ended(EndReason),
    /// Nothing to do before this time, unless a datagram comes.
    Timeout(Instant),
}

/// Why a peer connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The other side said goodbye (DTLS close_notify), or we did.
    Closed,
    /// DTLS was done without SRTP (RFC 5764 §4.1).
    NoSrtp,
    /// The other side has no certificate, or one that is neither ECDSA (RFC 8827 §6.5 wants it of everybody) nor RSA.
    CertificateRefused,
    /// str0m or dimpl panicked over what the peer sent.
    Panicked,
    /// Where media goes nobody answers any more (RFC 7675 §5.1).
    ConsentLapsed,
    /// The handshake failed, for instance over a certificate with another fingerprint.
    Failed(String),
}

/// What an accepted datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The peer is at an address that is proved, where media goes if it goes anywhere: an authenticated connectivity check,
    /// or an answer by which the address is proved anew (RFC 7675).
    Consent,
    /// An authenticated connectivity check from elsewhere.
    Check,
    /// The answer by which an address is proved.
    Proof,
    /// DTLS, or an answer that was not needed any more.
    Handshake,
}

/// Why a datagram went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Refused {
    #[error("neither STUN nor DTLS")]
    NotHandshake,
    #[error("malformed STUN")]
    Malformed,
    #[error("STUN with other credentials, or DTLS from an address that never proved itself")]
    NotAuthentic,
    #[error("DTLS from an address that is yet to be proved")]
    NotProved,
    #[error("DTLS that cannot be used")]
    BadDtls,
    #[error("the session is over")]
    Ended,
}

/// Where a test wants str0m to panic.
#[cfg(debug_assertions)]
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Whenever it is called for the session.
    Session,
    /// When it reads a datagram of which nothing is known yet.
    Parser,
}
