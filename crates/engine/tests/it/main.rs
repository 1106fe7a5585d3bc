//! Workers as programs meet them: real sockets on loopback, and messages.

mod common;
mod echo;
mod senders;
mod tcp_links;
mod wake_ups;
