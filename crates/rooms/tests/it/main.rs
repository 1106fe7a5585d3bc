//! Rooms by a clock that is set, without a socket.

mod corpus;
mod sessions;
mod temporal_layers;
mod turns;
mod world;
