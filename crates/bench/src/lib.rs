//! `millrace bench`: ways of doing the same work, compared on this machine.
#![forbid(unsafe_code)]

pub mod allocations;
pub mod fanout;
pub mod floor;
pub mod pump;
pub mod reflect;
pub mod relay;
pub mod rooms;

mod comparison;
mod sinks;
