//! DTLS 1.2 of servers (RFC 6347), as one who is open to everybody has to do it.
//!
//! In: datagrams. Out: before anything is kept of a client, a cookie that it has to bring back (`Cookies`); then its handshake,
//! by dimpl (`Handshake`); then `Records`, which open and seal in place.
//! No sockets, no clock.
//!
//! Why not dimpl to the end: it queues and copies each record, and a worker is to do neither. The handshake costs some tenths
//! of a millisecond and takes memory from the heap, so it is done on another thread than the records are.
#![forbid(unsafe_code)]

mod cookie;
mod guard;
mod handshake;
mod protect;
mod record;
mod records;
#[cfg(test)]
mod tests;

pub use cookie::{ALERT_LEN, Cookies, HELLO_VERIFY_LEN, Hello, Numbers};
pub use guard::is_guarded;
pub use handshake::{Established, Flight, Handshake, HandshakeError, Identity, IdentityError, Progress};
pub use record::{HEADER_LEN, Header};
pub use records::{Carried, OVERHEAD_MAX, RecordError, Records};
