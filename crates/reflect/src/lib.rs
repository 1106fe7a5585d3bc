//! Live streams to very many HTTP viewers. No sockets, no clock, no threads.
//!
//! A stream is bytes in one file in memory (`backlog`) that all workers send from. A viewer is a position in it.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod coalesce;
pub mod window;
