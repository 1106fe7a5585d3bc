//! Packets whose headers we write ourselves, and connections from an address of our choice.
//!
//! In: who a packet is to seem to come from. Out: an IPv4 packet (raw(7)), for which the process needs CAP_NET_RAW.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, bind, connect as connect_to, sendto,
    setsockopt, socket,
};

/// A socket that sends IPv4 packets with any source.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// IPv4 protocols (RFC 790).
const ICMP: u8 = 1;
const UDP: u8 = 17;

impl Socket {
    /// # Errors
    /// When the process may not.
    pub fn open() -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let opened = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw);
        opened.map(Socket).context("a raw socket (needs root)")
    }

    /// Sends a UDP datagram over IPv4 as if `from` had. False when the system does not take it.
    pub fn send_datagram(&self, from: SocketAddr, to: SocketAddr, data: &[u8]) -> bool {
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { return false };
        let udp = [&udp_header(from.port(), to.port(), data.len()), data].concat();
        self.send(*from.ip(), *to.ip(), UDP, &udp)
    }

    /// Sends an ICMP message (RFC 792) as if `viewer` had, who got a datagram of the server's: that nobody listens there, or
    /// that it was longer than 68 bytes, which some link takes at most.
    pub fn send_unreachable(&self, server: SocketAddr, viewer: SocketAddr, is_too_long: bool) -> bool {
        let (SocketAddr::V4(server), SocketAddr::V4(viewer)) = (server, viewer) else { return false };
        let quoted_len = 1_200;
        let quoted = [
            &ip_header(*server.ip(), *viewer.ip(), UDP, 8 + quoted_len)[..],
            &udp_header(server.port(), viewer.port(), quoted_len),
        ];
        let (code, mtu) = if is_too_long { (4, 68_u16) } else { (3, 0) };
        let mut icmp = [&[3, code, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &quoted.concat()].concat();
        let sum = checksum(&icmp).to_be_bytes();
        icmp[2..4].copy_from_slice(&sum);
        self.send(*viewer.ip(), *server.ip(), ICMP, &icmp)
    }

    fn send(&self, from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> bool {
        let packet = [&ip_header(from, to, protocol, payload.len()), payload].concat();
        let [a, b, c, d] = to.octets();
        sendto(self.0.as_raw_fd(), &packet, &SockaddrIn::new(a, b, c, d, 0), MsgFlags::empty()).is_ok()
    }
}

/// The header of an IPv4 packet (RFC 791 §3.1). A raw socket fills the checksum in; in a quoted packet nobody looks at it.
fn ip_header(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload_len: usize) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(20 + payload_len as u16).to_be_bytes());
    (header[8], header[9]) = (64, protocol);
    header[12..16].copy_from_slice(&from.octets());
    header[16..].copy_from_slice(&to.octets());
    header
}

/// The header of a UDP datagram (RFC 768) without a checksum, which IPv4 may leave out.
fn udp_header(from: u16, to: u16, len: usize) -> [u8; 8] {
    let mut header = [0; 8];
    for (at, value) in [from, to, 8 + len as u16].into_iter().enumerate() {
        header[2 * at..2 * at + 2].copy_from_slice(&value.to_be_bytes());
    }
    header
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// How long a connection may take to be there or to be told of something.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Connects from an address of ours. What is read from it does not wait.
pub fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let SocketAddr::V4(to) = to else { return Err(io::ErrorKind::Unsupported.into()) };
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let [a, b, c, d] = from.octets();
    // With a port of its own from here on, no other connection of this machine could have that, whatever its address.
    setsockopt(&socket, IpBindAddressNoPort, &true)?;
    bind(socket.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0))?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
    connect_to(stream.as_raw_fd(), &SockaddrIn::from(to))?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_datagram_comes_from_whom_it_says() {
        let Ok(raw) = Socket::open() else {
            return crate::skip::skip("datagrams that seem to come from others: a raw socket needs root");
        };
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let from = "127.0.0.9:4321".parse().expect("an address");
        assert!(raw.send_datagram(from, receiver.local_addr().expect("bound"), b"forged"));
        let mut buf = [0; 100];
        assert_eq!(receiver.recv_from(&mut buf).expect("it arrives"), (6, from));
        assert_eq!(&buf[..6], b"forged");
    }

    #[test]
    fn the_checksum_of_a_message_with_its_checksum_is_zero() {
        let mut message = [3, 3, 0, 0, 1, 2, 3, 4, 5];
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        assert_eq!(checksum(&message), 0);
    }
}
