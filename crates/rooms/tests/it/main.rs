//! Rooms by a clock that is set, without a socket.
#![allow(clippy::unwrap_used)]

mod checks;
mod corpus;
mod members;
mod places;
mod reports;
mod sessions;
mod sound;
mod speakers;
mod temporal_layers;
mod turns;
mod what_passes;
mod world;
