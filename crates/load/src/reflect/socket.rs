//! What viewers do with sockets: read with the time of arrival, or have what came thrown away.
//!
//! In: a connection. Out: bytes, and when the last of them arrived, by the kernel's word: nanoseconds since 1970. So this
//! program's own lateness is not in the numbers.
//! Cost: a system call each; what is thrown away is not copied.
//! Source: tcp(7), MSG_TRUNC; socket(7), SO_TIMESTAMPNS.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::sockopt::{Linger, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recv, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;

/// Nanoseconds since 1970, by the clock of the kernel's times of arrival.
pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Asks for times of arrival, or for none any more.
pub(super) fn set_timed(socket: &TcpStream, is_timed: bool) -> io::Result<()> {
    Ok(setsockopt(socket, ReceiveTimestampns, &is_timed)?)
}

/// Lets a connection end at once when it is closed, as that of a player whose machine is turned off.
pub(super) fn end_at_once(socket: &TcpStream) {
    // If not, it ends as others do.
    let _ = setsockopt(socket, Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 });
}

/// Reads; `None` when there is nothing, 0 bytes at the end.
pub(super) fn read_timed(socket: &TcpStream, buf: &mut [u8]) -> io::Result<Option<(usize, u64)>> {
    let mut control = cmsg_space!(TimeSpec);
    let mut slices = [IoSliceMut::new(buf)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::MSG_DONTWAIT);
    let message = match message {
        Ok(message) => message,
        Err(errno) => return unless_empty(errno.into()),
    };
    let at_ns = message.cmsgs().into_iter().flatten().find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(at) => Some(at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64),
        _ => None,
    });
    Ok(Some((message.bytes, at_ns.unwrap_or_else(now_ns))))
}

/// The same without a time.
pub(super) fn read(socket: &TcpStream, buf: &mut [u8]) -> io::Result<Option<usize>> {
    recv(socket.as_raw_fd(), buf, MsgFlags::MSG_DONTWAIT)
        .map_or_else(|errno| unless_empty(errno.into()), |len| Ok(Some(len)))
}

/// Throws away what came, as much as `buf` is long; what stands in there afterwards means nothing.
pub(super) fn discard(socket: &TcpStream, buf: &mut [u8]) -> io::Result<Option<usize>> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
    recv(socket.as_raw_fd(), buf, flags).map_or_else(|errno| unless_empty(errno.into()), |len| Ok(Some(len)))
}

fn unless_empty<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}
