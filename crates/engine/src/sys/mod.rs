//! All unsafe code of the workspace: safe types over Linux system calls. Nothing in here knows a protocol or a policy.
//! Errors are what the system says, unless something else is said.
//!
//! Provides:
//! - `RecvBatch`, `SendBatch`: many UDP messages per call, with GSO, GRO, packet info and ECN (`batch`)
//! - `card_features`: what a network card does for the kernel (`card`)
//! - `clock_is_synchronized`: what the kernel says of its clock (`clock`)
//! - `Epoll`, `Ready`: waiting for descriptors, with nanosecond timeouts (`epoll`)
//! - `EventFd`: waking a thread that waits for descriptors (`eventfd`)
//! - `group_socket`, `join_group`: receiving what is sent to groups, also of one source (`group`)
//! - `FileSender`: sending parts of files to many connections (`pages`)
//! - `next_refusal`: what ICMP said about datagrams that were sent (`refusal`)
//! - `probe_sending`: whether TCP connections can be sent on in a certain way (`sending`)
//! - `steered_udp_socket`: a second socket on a UDP port, for what begins in certain ways (`steer`)
//! - `udp_socket`, `tcp_listener`, `tcp_connect` and their options; `send_file` (`socket`)
//! - `KernelTls`, `seal_in_kernel`, `do_step`, `unacknowledged`: TLS whose records the kernel seals (`ktls`)
//! - `thread_id`, `thread_cpu_time`, `set_nice`, `pin_to_cpu`, `set_timer_slack`, `open_files_max`,
//!   `raise_open_files_max` (`thread`)

mod addr;
mod batch;
mod card;
mod clock;
mod epoll;
mod eventfd;
mod fixed;
mod group;
mod ktls;
mod pages;
mod refusal;
mod sending;
mod socket;
mod steer;
mod thread;

pub use batch::{MESSAGES_MAX, Outgoing, Payload, Received, RecvBatch, SendBatch};
pub use card::{Feature, card_features};
pub use clock::clock_is_synchronized;
pub(crate) use epoll::is_broken;
pub use epoll::{Epoll, Interest, Ready, wait_readable, wait_writable};
pub use eventfd::EventFd;
pub use group::{group_socket, join_group};
pub use ktls::KernelTls;
pub(crate) use ktls::{do_step, seal_in_kernel, unacknowledged};
pub(crate) use pages::FileSender;
pub use refusal::Refused;
pub(crate) use refusal::next_refusal;
pub use sending::probe_sending;
pub(crate) use sending::set_sending;
#[cfg(test)]
pub(crate) use socket::refuse_gso;
pub use socket::{
    BufferSide, Oversize, send_file, set_buffer_bytes, set_multicast, set_pacing, tcp_connect, tcp_listener, udp_socket,
};
pub(crate) use socket::{
    buffer_bytes, is_listener, is_udp, receive_drops, refuse_input, set_dscp, set_gro, set_oversize, set_packet_info,
    set_refusals, set_tcp_user_timeout, set_unicast, set_unsent_max, shared_tcp_listener, shared_udp_socket,
    udp_has_gso,
};
pub use steer::Beginning;
pub(crate) use steer::{steer, steered_udp_socket};
pub(crate) use thread::pin_to_cpu;
pub use thread::{open_files_max, raise_open_files_max, set_nice, set_timer_slack, thread_cpu_time, thread_id};

use std::io;

/// Turns the -1 of a system call into the error that it stands for.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
