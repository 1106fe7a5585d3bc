//! Rooms in LiveKit's client protocol. No sockets, no clock, no threads: messages and the time in, messages out.
//!
//! Messages are those of the crate `livekit-protocol`, re-exported as `proto`.
#![forbid(unsafe_code)]

pub use livekit_protocol as proto;

pub mod config;
pub mod join;
pub mod limits;
pub mod token;
