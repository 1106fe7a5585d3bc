//! What of a host will hurt the server, how that is known, and what mends it.
//!
//! In: what the server asks for (`Wants`), and what the kernel says (`host` reads it). Out: findings, which are plain values.
//! The checks themselves read nothing, so each fault can be made up in a test.
#![forbid(unsafe_code)]

mod buffers;
mod certificates;
mod clock;
mod conntrack;
mod cpus;
mod descriptors;
mod examine;
mod finding;
mod host;
mod interrupts;
mod nat;
mod offloads;
mod pages;
mod ports;
mod queues;
mod splitting;
mod wants;

pub use certificates::certificate;
pub use examine::examine;
pub use finding::{Finding, Severity};
pub use wants::{Files, Listen, Wants};

use buffers::buffer;
use interrupts::interrupts;
use nat::nat;
use offloads::offloads;
use queues::queue;
use splitting::splitting;
