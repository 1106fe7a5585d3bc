//! Receiving what is sent to groups (multicast), from any source or from one.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

use super::addr::RawAddr;
use super::socket::{bound, set};

/// A non-blocking UDP socket that gets what is sent to the group and port, and to no other group; others on this host may
/// have the same. **Join the group afterwards.**
pub fn group_socket(group: &SocketAddr) -> io::Result<UdpSocket> {
    bound(group, libc::SOCK_DGRAM, &[libc::SO_REUSEADDR]).map(UdpSocket::from)
}

/// Joins a group on an interface, by its number (0: as the routing table says): with a source, only for what that one
/// sends (IGMPv3, MLDv2; RFC 3678 §5.1).
///
/// # Errors
/// What the kernel says; `InvalidInput` when group and source are not of one family.
pub fn join_group(fd: BorrowedFd<'_>, group: IpAddr, source: Option<IpAddr>, interface: u32) -> io::Result<()> {
    let level = if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let gr_group = storage(group);
    match source {
        None => {
            let request = libc::group_req { gr_interface: interface, gr_group };
            set(fd, level, libc::MCAST_JOIN_GROUP, &request)
        }
        Some(source) if source.is_ipv4() != group.is_ipv4() => Err(io::ErrorKind::InvalidInput.into()),
        Some(source) => {
            let request =
                libc::group_source_req { gsr_interface: interface, gsr_group: gr_group, gsr_source: storage(source) };
            set(fd, level, libc::MCAST_JOIN_SOURCE_GROUP, &request)
        }
    }
}

/// An address without a port, in the kernel's widest form.
fn storage(ip: IpAddr) -> libc::sockaddr_storage {
    let mut addr = RawAddr::empty();
    addr.set(&SocketAddr::new(ip, 0));
    // SAFETY: it is plain integers, for which zero is a value.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    // SAFETY: the storage is as long and as aligned as any address (POSIX), and nobody else has it.
    unsafe { (&raw mut storage).cast::<RawAddr>().write(addr) };
    storage
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::sys::wait_readable;

    const LOOPBACK: u32 = 1;

    /// What arrives of one datagram that is sent to the group from `from`, by loopback.
    fn received(group: &str, source: Option<&str>, from: &str) -> Option<Vec<u8>> {
        let ip: IpAddr = group.parse().expect("a group");
        let socket = group_socket(&SocketAddr::new(ip, 0)).expect("bound");
        join_group(socket.as_fd(), ip, source.map(|ip| ip.parse().expect("an address")), LOOPBACK).expect("joined");
        let to = SocketAddr::new(ip, socket.local_addr().expect("bound").port());
        let from = SocketAddr::new(from.parse().expect("an address"), 0);
        let sender = UdpSocket::bind(from).expect("bound");
        let multicast = wire::Multicast { interface: LOOPBACK, ..Default::default() };
        crate::sys::set_multicast(sender.as_fd(), &from, &multicast).expect("set");
        sender.send_to(b"hello", to).expect("sent");
        wait_readable(socket.as_fd(), Some(Duration::from_millis(300))).expect("waited");
        let mut buf = [0; 16];
        let len = socket.recv(&mut buf).ok()?;
        Some(buf[..len].to_vec())
    }

    #[test]
    fn a_member_of_a_group_gets_what_is_sent_to_it() {
        assert_eq!(received("239.255.77.1", None, "127.0.0.1").as_deref(), Some(&b"hello"[..]));
    }

    #[test]
    fn of_one_source_nothing_else_is_got() {
        assert_eq!(received("232.1.77.1", Some("127.0.0.1"), "127.0.0.1").as_deref(), Some(&b"hello"[..]));
        assert_eq!(received("232.1.77.2", Some("127.0.0.9"), "127.0.0.1"), None);
    }

    #[test]
    fn groups_of_ipv6_are_joined_too() {
        // Many a host has no IPv6, or sends no groups of it by loopback; joining is all that can be looked at there.
        let Ok(sender) = UdpSocket::bind("[::1]:0") else { return };
        let group: SocketAddr = "[ff35::77:4]:9".parse().expect("an address");
        let socket = group_socket(&"[ff35::77:4]:0".parse().expect("an address")).expect("bound");
        join_group(socket.as_fd(), group.ip(), Some("::1".parse().expect("an address")), LOOPBACK).expect("joined");
        let multicast = wire::Multicast { interface: LOOPBACK, ..Default::default() };
        crate::sys::set_multicast(sender.as_fd(), &group, &multicast).expect("set");
        if sender.send_to(b"?", group).is_err() {
            return;
        }
        assert_eq!(received("ff15::77:1", None, "::1").as_deref(), Some(&b"hello"[..]));
        assert_eq!(received("ff35::77:2", Some("::1"), "::1").as_deref(), Some(&b"hello"[..]));
        assert_eq!(received("ff35::77:3", Some("2001:db8::9"), "::1"), None);
    }

    #[test]
    fn a_source_of_the_other_family_is_an_error() {
        let socket = group_socket(&"239.255.77.2:0".parse().expect("an address")).expect("bound");
        let group = "239.255.77.2".parse().expect("a group");
        let joined = join_group(socket.as_fd(), group, Some("::1".parse().expect("an address")), LOOPBACK);
        assert_eq!(joined.expect_err("of two families").kind(), io::ErrorKind::InvalidInput);
    }
}
