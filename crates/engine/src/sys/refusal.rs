//! What ICMP says about datagrams that were sent: the error queue of ip(7), "IP_RECVERR".

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::addr::RawAddr;
use super::batch::{CONTROL_BYTES, Control, control_messages, control_value};
use super::check;

/// A destination that did not take a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The destination.
    pub remote: SocketAddr,
    /// What the kernel made of the ICMP message, such as ECONNREFUSED for "port unreachable".
    pub errno: i32,
    /// It is the kernel's own word, and no ICMP message.
    pub is_local: bool,
}

/// Takes the oldest refusal of a socket that keeps them (`set_refusals`); `None` when there is none. Never waits.
pub fn next_refusal(fd: BorrowedFd<'_>) -> io::Result<Option<Refused>> {
    loop {
        let mut addr = RawAddr::empty();
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: a message header is made of integers and raw pointers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_name = (&raw mut addr).cast();
        header.msg_namelen = RawAddr::SIZE;
        header.msg_iov = ptr::null_mut();
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the header points at an address and at control bytes of the lengths that it names, both live until the
        // end of this turn of the loop; it asks for no payload.
        let got = unsafe {
            libc::recvmsg(fd.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) as libc::c_int
        };
        match check(got) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // One whose address cannot be read is of no use.
        if let Some(remote) = addr.read() {
            let (errno, is_local) = read_error(&header).unwrap_or_default();
            return Ok(Some(Refused { remote, errno, is_local }));
        }
    }
}

fn read_error(header: &libc::msghdr) -> Option<(i32, bool)> {
    let is_error = |cmsg: &&libc::cmsghdr| {
        matches!(
            (cmsg.cmsg_level, cmsg.cmsg_type),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        )
    };
    let cmsg = control_messages(header).find(is_error)?;
    control_value(cmsg)
        .map(|error: libc::sock_extended_err| (error.ee_errno as i32, error.ee_origin == libc::SO_EE_ORIGIN_LOCAL))
}
