//! Live streams to very many HTTP viewers. No sockets, no clock, no threads.
//!
//! A stream is bytes in one file in memory (`backlog`) that all workers send from. A viewer is a position in it.
//! `reflect::Reflect` is all of one worker; `spec` says what control tells it and hears back.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod coalesce;
pub mod counters;
pub mod course;
mod feed;
pub mod hls;
pub mod moved;
pub mod reflect;
pub mod spec;
mod stream;
mod viewer;
pub mod window;
