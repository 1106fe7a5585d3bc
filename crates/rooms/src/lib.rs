//! The selective forwarding unit. No sockets, no clock, no threads: datagrams and commands in, datagrams and events out.
#![forbid(unsafe_code)]

pub mod bwe;
pub mod drops;
pub mod forward;
pub mod packet;
pub mod spec;
pub mod srtp;
