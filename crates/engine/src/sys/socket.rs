//! Sockets with the options that std has no names for.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use wire::{Bitrate, Multicast, Unicast};

use super::addr::RawAddr;
use super::check;

/// Connections that wait to be accepted; more are turned away by the kernel.
const LISTEN_BACKLOG: libc::c_int = 1_024;

/// One of the two buffers that a socket has in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSide {
    /// For what leaves.
    Send,
    /// For what comes.
    Receive,
}

/// A non-blocking UDP socket bound to `addr`. An IPv6 one takes IPv6 alone (RFC 3493 §5.3).
pub fn udp_socket(addr: &SocketAddr) -> io::Result<UdpSocket> {
    bound(addr, libc::SOCK_DGRAM, &[]).map(UdpSocket::from)
}

/// The same, beside others of the same user that ask for the same address in this way (`SO_REUSEPORT`).
pub fn shared_udp_socket(addr: &SocketAddr) -> io::Result<UdpSocket> {
    bound(addr, libc::SOCK_DGRAM, &[libc::SO_REUSEPORT]).map(UdpSocket::from)
}

/// A non-blocking TCP listener on `addr`. An IPv6 one takes IPv6 alone. A restart need not wait for old connections to be
/// forgotten.
pub fn tcp_listener(addr: &SocketAddr) -> io::Result<TcpListener> {
    listen(bound(addr, libc::SOCK_STREAM, &[libc::SO_REUSEADDR])?)
}

/// The same, beside others of the same user that ask for the same address in this way (`SO_REUSEPORT`).
pub fn shared_tcp_listener(addr: &SocketAddr) -> io::Result<TcpListener> {
    listen(bound(addr, libc::SOCK_STREAM, &[libc::SO_REUSEADDR, libc::SO_REUSEPORT])?)
}

fn listen(fd: OwnedFd) -> io::Result<TcpListener> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::listen(fd.as_raw_fd(), LISTEN_BACKLOG) })?;
    Ok(fd.into())
}

/// A non-blocking TCP connection to `to`, from `from` where that is given; a port of it may be that of a shared listener and
/// of other connections. It is under way: when the descriptor is writable, it is there or has failed.
pub fn tcp_connect(to: &SocketAddr, from: Option<&SocketAddr>) -> io::Result<TcpStream> {
    let fd = match from {
        Some(from) if from.port() == 0 => bound(from, libc::SOCK_STREAM, &[])?,
        Some(from) => bound(from, libc::SOCK_STREAM, &[libc::SO_REUSEADDR, libc::SO_REUSEPORT])?,
        None => socket(to, libc::SOCK_STREAM)?,
    };
    let mut raw = RawAddr::empty();
    let len = raw.set(to);
    // SAFETY: `raw` is at least `len` bytes long, and the kernel reads it during the call only.
    match check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), len) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(fd.into()),
    }
}

/// Lets a socket send no faster than `rate` (`SO_MAX_PACING_RATE`).
pub fn set_pacing(fd: BorrowedFd<'_>, rate: Bitrate) -> io::Result<()> {
    let bytes_per_second: u64 = rate.bps() / 8;
    set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second)
}

/// Sends up to `len` bytes of a file, from `at` on, and returns how many were taken; 0 at the file's end.
pub fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<usize> {
    let mut offset = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel reads and writes `offset` during the call only.
    let sent = unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &mut offset, len) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Asks for a buffer of `bytes`, beyond the system's maximum where the process may (CAP_NET_ADMIN), and returns what
/// was got. The kernel's own bookkeeping takes about half of that.
pub fn set_buffer_bytes(fd: BorrowedFd<'_>, side: BufferSide, bytes: usize) -> io::Result<usize> {
    let (forced, plain) = match side {
        BufferSide::Send => (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        BufferSide::Receive => (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
    };
    let asked = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set(fd, libc::SOL_SOCKET, forced, &asked).is_err() {
        set(fd, libc::SOL_SOCKET, plain, &asked)?;
    }
    buffer_bytes(fd, side)
}

/// The size of a buffer, the kernel's own bookkeeping included.
pub fn buffer_bytes(fd: BorrowedFd<'_>, side: BufferSide) -> io::Result<usize> {
    let name = match side {
        BufferSide::Send => libc::SO_SNDBUF,
        BufferSide::Receive => libc::SO_RCVBUF,
    };
    Ok(int(fd, libc::SOL_SOCKET, name)?.unsigned_abs() as usize)
}

/// Whether it is a socket that accepts connections.
pub fn is_listener(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? != 0)
}

/// Whether it is a UDP socket.
pub fn is_udp(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_UDP)
}

/// Whether the kernel can split one send into datagrams (`UDP_SEGMENT`, Linux 4.18).
pub fn udp_has_gso(fd: BorrowedFd<'_>) -> bool {
    int(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok()
}

/// Lets the kernel join datagrams of one sender on receipt (`UDP_GRO`, Linux 5.0).
pub fn set_gro(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_UDP, libc::UDP_GRO, &ON)
}

/// Asks for the local address that each message was sent to.
pub fn set_packet_info(fd: BorrowedFd<'_>, addr: &SocketAddr) -> io::Result<()> {
    set_ip(fd, addr, (libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO), &ON)
}

/// Lets the kernel keep what ICMP says about single datagrams, for `next_refusal`. The next send then fails once, whomever
/// it is for.
pub fn set_refusals(fd: BorrowedFd<'_>, addr: &SocketAddr) -> io::Result<()> {
    set_ip(fd, addr, (libc::IP_RECVERR, libc::IPV6_RECVERR), &ON)
}

/// Lets the kernel drop whatever comes for a socket from now on. What ICMP says is still kept.
pub fn refuse_input(fd: BorrowedFd<'_>) -> io::Result<()> {
    // A socket filter (bpf(4)) of one instruction: take no bytes of a packet.
    let mut none = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &libc::sock_fprog { len: 1, filter: &mut none })
}

/// What becomes of datagrams that are longer than a link on their way takes in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversize {
    /// They are lost there; one that is too long for our own interface is refused (EMSGSIZE). What ICMP says of the path
    /// changes nothing, so nobody can forge it. Linux spares itself a number for each IPv4 datagram (RFC 6864 §4.1).
    Lost,
    /// They get there in fragments, made here or, of IPv4, on the way. Of IPv4 what ICMP says still changes nothing, as
    /// forged it could have everything cut into 552 bytes. For IPv6 the kernel believes it, down to 1,280 bytes
    /// (RFC 8201 §4), since nobody on the way makes fragments.
    Fragmented,
}

/// Sets what becomes of datagrams that are longer than their path takes.
pub fn set_oversize(fd: BorrowedFd<'_>, addr: &SocketAddr, oversize: Oversize) -> io::Result<()> {
    let (v4, v6) = (libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER);
    match (oversize, addr.is_ipv4()) {
        (Oversize::Lost, true) => set(fd, libc::IPPROTO_IP, v4, &libc::IP_PMTUDISC_PROBE),
        (Oversize::Lost, false) => set(fd, libc::IPPROTO_IPV6, v6, &libc::IPV6_PMTUDISC_PROBE),
        (Oversize::Fragmented, true) => set(fd, libc::IPPROTO_IP, v4, &libc::IP_PMTUDISC_OMIT),
        (Oversize::Fragmented, false) => set(fd, libc::IPPROTO_IPV6, v6, &libc::IPV6_PMTUDISC_WANT),
    }
}

/// Datagrams that the kernel dropped as they found no room in the socket's receive buffer, since it was opened; it wraps
/// (Linux 4.12).
pub fn receive_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // `SK_MEMINFO_DROPS` is the last of these.
    let mut values = [0_u32; 9];
    let mut size = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which is the array's length.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, (&raw mut values).cast(), &mut size)
    };
    check(result).map(|_| values[8])
}

/// The six upper bits of the traffic class of all that is sent (RFC 2474).
pub fn set_dscp(fd: BorrowedFd<'_>, addr: &SocketAddr, dscp: u8) -> io::Result<()> {
    set_ip(fd, addr, (libc::IP_TOS, libc::IPV6_TCLASS), &(libc::c_int::from(dscp & 0x3f) << 2))
}

/// Sets how datagrams to groups leave.
pub fn set_multicast(fd: BorrowedFd<'_>, addr: &SocketAddr, multicast: &Multicast) -> io::Result<()> {
    let Multicast { hops, interface, is_looped } = *multicast;
    set_ip(fd, addr, (libc::IP_MULTICAST_TTL, libc::IPV6_MULTICAST_HOPS), &libc::c_int::from(hops))?;
    set_ip(fd, addr, (libc::IP_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP), &libc::c_int::from(is_looped))?;
    if interface == 0 {
        return Ok(());
    }
    let index = libc::c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    if addr.is_ipv6() {
        return set(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &index);
    }
    let any = libc::in_addr { s_addr: 0 };
    let request = libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex: index };
    set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
}

/// Sets how datagrams to single hosts leave.
pub fn set_unicast(fd: BorrowedFd<'_>, addr: &SocketAddr, unicast: &Unicast) -> io::Result<()> {
    if let Some(hops) = unicast.hops {
        set_ip(fd, addr, (libc::IP_TTL, libc::IPV6_UNICAST_HOPS), &libc::c_int::from(hops))?;
    }
    if unicast.interface != 0 {
        // In network byte order, alone among the options.
        set_ip(fd, addr, (libc::IP_UNICAST_IF, libc::IPV6_UNICAST_IF), &unicast.interface.to_be())?;
    }
    Ok(())
}

/// Ends a connection whose peer has acknowledged nothing of what was sent for `limit` (RFC 5482).
pub fn set_tcp_user_timeout(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let limit_ms = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &limit_ms)
}

/// Lets the kernel take no more of a TCP connection's bytes while it has so many that it has not sent yet.
pub fn set_unsent_max(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// Makes the kernel refuse GSO on an IPv4 socket, as it does for some network cards: it cannot leave a checksum out
/// (`SO_NO_CHECK`) and split at the same time.
#[cfg(test)]
pub fn refuse_gso(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, &ON)
}

/// A socket with these options on, bound to `addr`.
pub(super) fn bound(addr: &SocketAddr, kind: libc::c_int, options: &[libc::c_int]) -> io::Result<OwnedFd> {
    let fd = socket(addr, kind)?;
    for option in options {
        set(fd.as_fd(), libc::SOL_SOCKET, *option, &ON)?;
    }
    bind(fd.as_fd(), addr)?;
    Ok(fd)
}

pub(super) fn socket(addr: &SocketAddr, kind: libc::c_int) -> io::Result<OwnedFd> {
    let domain = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointer is passed.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })?;
    // SAFETY: the call succeeded, so the descriptor is open, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if addr.is_ipv6() {
        set(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &ON)?;
    }
    Ok(fd)
}

fn bind(fd: BorrowedFd<'_>, addr: &SocketAddr) -> io::Result<()> {
    let mut raw = RawAddr::empty();
    let len = raw.set(addr);
    // SAFETY: `raw` is at least `len` bytes long, and the kernel reads it during the call only.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), len) }).map(drop)
}

/// Sets an option of IP, of which both families have one of their own, IPv4 first.
fn set_ip<T: Copy>(
    fd: BorrowedFd<'_>,
    addr: &SocketAddr,
    (v4, v6): (libc::c_int, libc::c_int),
    value: &T,
) -> io::Result<()> {
    let (level, name) = if addr.is_ipv4() { (libc::IPPROTO_IP, v4) } else { (libc::IPPROTO_IPV6, v6) };
    set(fd, level, name, value)
}

/// What switches an option on, and off.
pub(super) const ON: libc::c_int = 1;
pub(super) const OFF: libc::c_int = 0;

/// `T` is what the kernel reads for this option: integers, and pointers to what lives as long as `value`.
pub(super) fn set<T: Copy>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is as long as is said, and the kernel reads it during the call only.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), size) };
    check(result).map(drop)
}

pub(super) fn int(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which is the value's length.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut size) };
    check(result).map(|_| value)
}

/// Reads an option that is a name.
#[cfg(test)]
pub(super) fn name<const BYTES: usize>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<[u8; BYTES]> {
    let mut value = [0; BYTES];
    let mut size = BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which is the array's length.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut size) };
    check(result).map(|_| value)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Instant;

    use super::*;
    use crate::sys::wait_writable;

    /// How long the kernel may take. Far more than it does.
    const PATIENCE: Duration = Duration::from_secs(40);

    /// As a TURN server has it: peers connect to its address, and it connects to others from there (RFC 6062).
    #[test]
    fn connections_leave_from_the_address_of_a_shared_listener() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = shared_tcp_listener(&any).expect("loopback can be bound");
        let from = listener.local_addr().expect("it is bound");
        let peers = [(); 2].map(|()| std::net::TcpListener::bind(any).expect("loopback can be bound"));
        for peer in peers {
            let to = peer.local_addr().expect("it is bound");
            let _connection = tcp_connect(&to, Some(&from)).expect("the address is shared");
            assert_eq!(peer.accept().expect("it came").1, from);
        }
        assert_ne!(tcp_connect(&from, Some(&any)).expect("a port is free").local_addr().expect("bound"), from);
    }

    #[test]
    fn hops_and_interface_of_what_goes_to_single_hosts_are_set() {
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            let addr: SocketAddr = addr.parse().expect("an address");
            let Ok(socket) = udp_socket(&addr) else {
                crate::skip::skip(&format!("hops and interface of datagrams: there is no {addr} here"));
                continue;
            };
            let fd = socket.as_fd();
            set_unicast(fd, &addr, &Unicast { hops: Some(9), interface: 1 }).expect("set");
            let (level, hops, interface) = match addr {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_UNICAST_IF),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, libc::IPV6_UNICAST_IF),
            };
            assert_eq!(int(fd, level, hops).expect("told"), 9);
            assert_eq!(u32::from_be(int(fd, level, interface).expect("told").cast_unsigned()), 1);
            assert!(set_unicast(fd, &addr, &Unicast { hops: None, interface: u32::MAX >> 1 }).is_err(), "no such one");
        }
    }

    #[test]
    fn what_icmp_says_of_an_ipv4_path_changes_nothing_whether_fragments_are_made_or_not() {
        let socket = udp_socket(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound");
        let addr = socket.local_addr().expect("bound");
        let modes = [(Oversize::Lost, libc::IP_PMTUDISC_PROBE), (Oversize::Fragmented, libc::IP_PMTUDISC_OMIT)];
        for (oversize, expected) in modes {
            set_oversize(socket.as_fd(), &addr, oversize).expect("set");
            let mode = int(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER).expect("told");
            assert_eq!(mode, expected, "neither believes a cached path MTU (ip(7))");
        }
    }

    #[test]
    fn datagrams_that_find_no_room_are_told() {
        let [a, b] = [(); 2].map(|()| udp_socket(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound"));
        set_buffer_bytes(b.as_fd(), BufferSide::Receive, 4_096).expect("set");
        let to = b.local_addr().expect("bound");
        for _ in 0..100 {
            a.send_to(&[7; 1_000], to).expect("sent");
        }
        // The kernel may deliver them later, on another thread of its own.
        let (start, drops) = (Instant::now(), || receive_drops(b.as_fd()).expect("told") as usize);
        while drops() == 0 {
            assert!(start.elapsed() < PATIENCE, "some find no room");
        }
        let mut got = 0;
        while got + drops() < 100 {
            assert!(start.elapsed() < PATIENCE, "{got} arrived, {} did not", drops());
            got += usize::from(b.recv(&mut [0; 1_000]).is_ok());
        }
        assert_eq!(got + drops(), 100);
    }

    #[test]
    fn the_kernel_takes_no_more_than_is_sent_soon() {
        let listener = tcp_listener(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound");
        // What is accepted has this, too, and reads nothing.
        set_buffer_bytes(listener.as_fd(), BufferSide::Receive, 8_192).expect("set");
        let mut stream = tcp_connect(&listener.local_addr().expect("bound"), None).expect("connect");
        assert!(wait_writable(stream.as_fd(), Some(PATIENCE)).expect("poll"));
        set_unsent_max(stream.as_fd(), 128 * 1_024).expect("set");
        let mut written = 0;
        while let Ok(len) = stream.write(&[0; 16_384]) {
            written += len;
        }
        assert!((128 * 1_024..320 * 1_024).contains(&written), "{written}");
    }

    #[test]
    fn a_connection_is_paced_in_bytes_per_second() {
        let listener = tcp_listener(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound");
        let stream = tcp_connect(&listener.local_addr().expect("bound"), None).expect("connect");
        set_pacing(stream.as_fd(), Bitrate::from_kbps(8_000)).expect("set");
        assert_eq!(int(stream.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE).expect("told"), 1_000_000);
    }
}
