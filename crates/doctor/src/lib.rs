//! What of a host will hurt the server, how that is known, and what mends it.
//!
//! In: what the server asks for, and what the kernel says (`host` reads it). Out: findings, which are plain values. The checks
//! themselves read nothing, so each fault can be made up in a test.
#![forbid(unsafe_code)]

mod buffers;
mod certificates;
mod clock;
mod conntrack;
mod cpus;
mod descriptors;
mod finding;
pub mod host;
mod interrupts;
mod nat;
mod offloads;
mod pages;
mod ports;
mod queues;
mod splitting;
mod wants;

pub use buffers::buffer;
pub use certificates::certificate;
pub use clock::{AVAILABLE, clocksource, synchronized};
pub use conntrack::conntrack;
pub use cpus::{affinity, governor, quota};
pub use descriptors::descriptors;
pub use finding::{Finding, Severity};
pub use interrupts::interrupts;
pub use nat::nat;
pub use offloads::offloads;
pub use pages::huge_pages;
pub use ports::{held, is_ours, port};
pub use queues::queue;
pub use splitting::splitting;
pub use wants::{Files, Listen, Wants};
