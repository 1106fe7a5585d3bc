//! How the kernel sends what is written to a TCP connection: congestion control, class of service, mark.
//!
//! In: `wire::Sending`. Out: options of a socket, or which of them this kernel does not take, or not from this process.
//! Source: tcp(7), ip(7), socket(7); RFC 2474 (DSCP).

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use wire::Sending;

use super::socket::{self, set, set_dscp};

/// Bytes of a congestion control's name, and a zero (`TCP_CA_NAME_MAX`).
const NAME_BYTES: usize = 16;

/// Whether connections can be sent on like that: to be asked once, at the start.
///
/// # Errors
/// A sentence that says what the kernel does not take, and what can be done about it.
pub fn probe_sending(sending: &Sending) -> io::Result<()> {
    for addr in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))] {
        match socket::socket(&addr, libc::SOCK_STREAM) {
            Ok(socket) => set_all(socket.as_fd(), &addr, sending)?,
            // There may be no IPv6.
            Err(error) if addr.is_ipv4() => return Err(error),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Sets it for a connection.
pub(crate) fn set_sending(socket: &TcpStream, sending: &Sending) -> io::Result<()> {
    if *sending == Sending::default() {
        return Ok(());
    }
    set_all(socket.as_fd(), &socket.local_addr()?, sending)
}

fn set_all(fd: BorrowedFd<'_>, local: &SocketAddr, sending: &Sending) -> io::Result<()> {
    let Sending { congestion, dscp, mark } = sending;
    if let Some(name) = congestion {
        set_congestion(fd, name)
            .map_err(|error| about(&error, &format!("congestion control {name:?}"), of_congestion(&error)))?;
    }
    if *dscp != 0 {
        set_class(fd, local, *dscp).map_err(|error| about(&error, "class of service (DSCP)", ""))?;
    }
    if *mark != 0 {
        set(fd, libc::SOL_SOCKET, libc::SO_MARK, mark).map_err(|error| about(&error, "mark", of_mark(&error)))?;
    }
    Ok(())
}

fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut padded = [0_u8; NAME_BYTES];
    match padded.get_mut(..name.len()) {
        Some(room) if name.len() < NAME_BYTES => room.copy_from_slice(name.as_bytes()),
        _ => return Err(ErrorKind::NotFound.into()),
    }
    set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &padded)
}

/// A socket of IPv6 may carry IPv4, whose packets have a field of their own for it.
fn set_class(fd: BorrowedFd<'_>, local: &SocketAddr, dscp: u8) -> io::Result<()> {
    if let SocketAddr::V6(addr) = local
        && addr.ip().to_ipv4_mapped().is_some()
    {
        set_dscp(fd, &(Ipv4Addr::UNSPECIFIED, 0).into(), dscp)?;
    }
    set_dscp(fd, local, dscp)
}

fn about(error: &io::Error, what: &str, hint: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}{hint}"))
}

fn of_congestion(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => {
            "; see /proc/sys/net/ipv4/tcp_available_congestion_control for those that there are (modprobe tcp_NAME)"
        }
        ErrorKind::PermissionDenied => {
            "; add it to net.ipv4.tcp_allowed_congestion_control, or give the process CAP_NET_ADMIN"
        }
        _ => "",
    }
}

fn of_mark(error: &io::Error) -> &'static str {
    if error.kind() == ErrorKind::PermissionDenied { "; it needs CAP_NET_ADMIN" } else { "" }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::sys::socket::{int, name};

    /// One end of a connection to `listen`, by way of `to`.
    fn connection(listen: &str, to: impl FnOnce(SocketAddr) -> SocketAddr) -> Option<TcpStream> {
        let listener = TcpListener::bind(listen).ok()?;
        let _client = TcpStream::connect(to(listener.local_addr().ok()?)).ok()?;
        Some(listener.accept().expect("it connects").0)
    }

    #[test]
    fn packets_of_a_connection_have_their_class_whatever_its_socket_is() {
        let sending = Sending { dscp: 34, ..Sending::default() };
        let socket = connection("127.0.0.1:0", |addr| addr).expect("loopback can be bound");
        set_sending(&socket, &sending).expect("set");
        assert_eq!(int(socket.as_fd(), libc::IPPROTO_IP, libc::IP_TOS).expect("told"), 34 << 2);
        let Some(mapped) = connection("[::]:0", |addr| (Ipv4Addr::LOCALHOST, addr.port()).into()) else {
            return crate::skip::skip("classes of service by IPv6: there is none here");
        };
        set_sending(&mapped, &sending).expect("set");
        for (level, name) in [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)] {
            assert_eq!(int(mapped.as_fd(), level, name).expect("told"), 34 << 2);
        }
    }

    #[test]
    fn a_connection_has_the_congestion_control_that_is_named() {
        let socket = connection("127.0.0.1:0", |addr| addr).expect("loopback can be bound");
        let sending = |name: &str| Sending { congestion: Some(name.into()), ..Sending::default() };
        // Linux has it always, for all.
        set_sending(&socket, &sending("reno")).expect("set");
        let told = name::<NAME_BYTES>(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION).expect("told");
        assert_eq!(&told[..5], b"reno\0");
        assert!(probe_sending(&sending("reno")).is_ok() && probe_sending(&Sending::default()).is_ok());
        for unknown in ["", "no_such", "longer_than_a_name_is"] {
            let error = probe_sending(&sending(unknown)).expect_err("there is none");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().starts_with(&format!("congestion control {unknown:?}: ")), "{error}");
        }
    }

    #[test]
    fn a_mark_is_set_or_the_error_says_what_it_needs() {
        let socket = connection("127.0.0.1:0", |addr| addr).expect("loopback can be bound");
        match set_sending(&socket, &Sending { mark: 7, ..Sending::default() }) {
            Ok(()) => assert_eq!(int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK).expect("told"), 7),
            Err(error) => assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}"),
        }
    }
}
