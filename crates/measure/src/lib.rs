//! Load generators and benchmarks that measure what a receiver sees, and what it costs.
#![forbid(unsafe_code)]

pub mod ab;
pub mod capacity;
mod clients;
mod cpu;
pub mod fanout;
pub mod floor;
pub mod load;
pub mod load_pump;
mod percentiles;
mod plot;
pub mod pumping;
mod rounds;
mod sinks;
mod text;
