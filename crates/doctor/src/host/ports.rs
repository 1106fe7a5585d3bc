//! Binds addresses as the server would, for a moment. Nobody is listened to, so no client notices.

use std::io;

use socket2::{Domain, Socket, Type};

use crate::wants::Listen;

/// Whether an address is to be had now.
///
/// # Errors
/// What the system says.
pub fn bind(listen: &Listen) -> io::Result<()> {
    let kind = if listen.is_udp { Type::DGRAM } else { Type::STREAM };
    let socket = Socket::new(Domain::for_address(listen.addr), kind, None)?;
    if listen.addr.is_ipv6() {
        socket.set_only_v6(listen.only_v6)?;
    }
    if !listen.is_udp {
        // Connections of a process before may still be closing.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&listen.addr.into())
}
