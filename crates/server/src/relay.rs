//! The relay above its workers: who is told where it is, which allocations there are, and their end.

pub mod control;
pub mod issuer;
pub mod setup;
