//! Load generators and benchmarks that measure what a receiver sees, and what it costs.
//!
//! A module for each command: `load` and `load_pump` play clients; `fanout`, `pumping` and `floor` compare ways of doing
//! the same work on this machine; `ab` compares whole servers; `capacity` predicts. Below them is what several share.
#![forbid(unsafe_code)]

pub mod ab;
pub mod capacity;
pub mod fanout;
pub mod floor;
pub mod load;
pub mod load_pump;
pub mod pumping;

mod clients;
mod cpu;
mod percentiles;
mod plot;
mod rounds;
mod sinks;
mod text;
