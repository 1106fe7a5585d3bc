//! The relay above its workers: who may use it and is told where it is, which allocations there are, and their end.

pub mod blocks;
pub mod control;
pub mod coturn;
pub mod handshakes;
pub mod issuer;
pub mod journal;
pub mod known;
pub mod lookup;
pub mod redis;
pub mod setup;
pub mod stories;
pub mod users;
