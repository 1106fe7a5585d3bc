//! Certificates from a directory (ACME, RFC 8555): obtained, kept in a folder, and renewed in time.
//!
//! In: the names, and where the directory is. Out: a file for each name, with key and certificates, which is replaced as a
//! whole; and what to show a directory that comes to see whether a name is ours (`Challenges`).
//! A name has a certificate of its own, so that one that has gone elsewhere takes no other with it. One is asked for at a
//! time. After a failure there is a pause, which doubles, and is kept over a restart; what is there is used meanwhile.
//! Names are proved by tls-alpn-01 (RFC 8737): a handshake at port 443, which is listened to anyway. Wildcards cannot be.
//! Source: RFC 8555, RFC 8737, RFC 9773 (when directories want certificates to be renewed).
#![forbid(unsafe_code)]

mod challenges;
mod folder;
mod http;
mod keeper;
mod order;
#[cfg(test)]
mod tests;
mod times;
mod validity;

pub use challenges::{ALPN, Challenges};
pub use keeper::{Counters, ExternalAccount, Keeper, Settings};
pub use times::in_words;
pub use validity::Validity;

/// Where directories come to (RFC 8737 §3).
pub const PORT: u16 = 443;

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = instant_acme::LetsEncrypt::Production.url();
