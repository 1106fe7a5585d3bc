//! Live byte streams, as HTTP carries them. No sockets, no clock.
#![forbid(unsafe_code)]

pub mod metacube;
