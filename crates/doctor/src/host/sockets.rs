//! What the kernel grants to the server's sockets.

use std::os::fd::AsFd as _;

use engine::sys::{BufferSide, set_buffer_bytes, udp_socket};
use engine::udp::UdpSocket;
use wire::UdpOptions;

/// What is got of a buffer of `bytes`, by the server's own way to ask. `None`: there is no socket.
pub fn granted_bytes(side: BufferSide, bytes: usize) -> Option<u64> {
    let socket = udp_socket(&([127, 0, 0, 1], 0).into()).ok()?;
    // The kernel doubles what it grants, for its own bookkeeping.
    set_buffer_bytes(socket.as_fd(), side, bytes).ok().map(|doubled| doubled as u64 / 2)
}

/// Whether the kernel can split and join datagrams (GSO, GRO).
pub fn splits_and_joins() -> Option<(bool, bool)> {
    let options = UdpOptions { receive_buffer_bytes: None, send_buffer_bytes: None, ..UdpOptions::default() };
    let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), &options).ok()?;
    Some((socket.gso(), socket.gro()))
}

/// Open files that this process may have: as it is, and as it may raise that.
pub fn open_files() -> Option<(u64, u64)> {
    let soft = engine::sys::open_files_max().ok()?;
    Some((soft, engine::sys::raise_open_files_max().unwrap_or(soft)))
}
