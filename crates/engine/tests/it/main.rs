//! Workers as programs meet them: real sockets on loopback, and messages.
#![allow(clippy::unwrap_used)]

mod common;
mod descriptors;
mod echo;
mod framed_links;
mod kernel_losses;
mod narrow_path;
mod order;
mod patient;
mod relay;
mod senders;
mod streams;
mod tcp_links;
mod turns;
mod udp_links;
mod wake_ups;
