//! Rooms by a clock that is set, without a socket.

mod corpus;
mod temporal_layers;
