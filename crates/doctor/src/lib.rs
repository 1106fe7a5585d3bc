//! What of a host will hurt the server, how that is known, and what mends it.
//!
//! In: what files of the kernel say, and what the server asks for. Out: findings, which are plain values. The checks read
//! nothing themselves, so each fault can be made up in a test.
#![forbid(unsafe_code)]

mod buffers;
mod certificates;
mod conntrack;
mod descriptors;
mod finding;
mod ports;

pub use buffers::buffer;
pub use certificates::certificate;
pub use conntrack::conntrack;
pub use descriptors::descriptors;
pub use finding::{Finding, Severity};
pub use ports::port;
