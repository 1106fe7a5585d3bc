//! The pump by a clock that is set, without a socket.
#![allow(clippy::unwrap_used)]

mod clip;
mod common;
mod continuing;
mod control;
mod corpus;
mod fec;
mod first_chunk;
mod index;
mod interleaved;
mod live;
mod measures;
mod monitor;
mod pids;
mod playing;
mod proof_drift;
mod repair;
mod trick;
