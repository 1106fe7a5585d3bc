//! SRTP and SRTCP: what leaves is sealed, what comes in is opened, both in place. And HMAC-SHA1, for who proves checks by it.
//!
//! In: whole RTP and RTCP packets, and the keys that one DTLS handshake gave (RFC 5764 §4.2).
//! Out: the same bytes protected, or the plain bytes; an `SrtpError` for what is not the peer's own or not new.
//! Cost: no allocation per packet; key schedules and HMAC states are made once per session. A `Sealer` has no state
//! per stream, so that all down tracks of a session share one.
//! Source: RFC 3711 (key derivation, AES-CM with HMAC-SHA1-80, replay), RFC 7714 (AES-GCM), RFC 6188 §3 (256-bit key
//! derivation).
//!
//! Extended sequence numbers count from 65,536 + the first number, here as everywhere (see `wire::SeqExtender`), so the
//! rollover counter on the wire is one less than their upper bits.

#![forbid(unsafe_code)]

mod aead;
mod cm;
mod gcm;
mod hmac_sha1;
mod kdf;
mod keys;
mod opener;
mod sealer;
mod suite;
#[cfg(test)]
mod tests;
mod window;

pub use hmac_sha1::{HMAC_LEN, HmacSha1};
pub use keys::{KeyError, Profile, SessionKeys};
pub use opener::{Opener, SSRCS_MAX, SrtpError};
pub use sealer::Sealer;
pub use window::Window;
