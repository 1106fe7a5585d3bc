//! Load generators and benchmarks that measure what a receiver sees, and what it costs.
#![forbid(unsafe_code)]

pub mod ab;
pub mod capacity;
pub mod fanout;
pub mod floor;
pub mod load;
pub mod load_pump;
pub mod plot;
pub mod pumping;
pub mod rounds;
