//! TLS of servers (RFC 8446, RFC 5246): the handshake by rustls, the records afterwards by our own code.
//!
//! In: what a connection brings. Out: answers, until the handshake is over; then a `Records`, which is the `wire::Cipher`
//! that a worker or a task carries on with, and what came behind the handshake.
//! No sockets, no clock; the certificates and whatever else there is to decide are rustls' `ServerConfig`.
//!
//! Why not rustls to the end: it keeps its own buffers, and takes memory from the heap for each record; here a record is
//! opened where it was received and sealed where it waits, and an idle connection keeps two keys. The same keys are what
//! kTLS wants.
#![forbid(unsafe_code)]

mod handshake;
mod protect;
mod records;
#[cfg(test)]
mod tests;

pub use handshake::{Established, Handshake, HandshakeError};
pub use records::Records;
