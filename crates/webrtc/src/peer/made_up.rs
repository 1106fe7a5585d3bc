//! What str0m believes of addresses: ours are made up, since they do not matter to it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use str0m::Candidate as IceCandidate;
use str0m::net::{DatagramRecv, Protocol, Receive, TcpType};

use super::Remote;
use crate::Error;

/// A datagram as str0m takes it.
pub(super) fn input(now: Instant, remote: Remote, data: &[u8]) -> Option<str0m::Input<'_>> {
    let contents = DatagramRecv::try_from(data).ok()?;
    let proto = if remote.tcp { Protocol::Tcp } else { Protocol::Udp };
    let destination = made_up_address(remote.addr.is_ipv6());
    Some(str0m::Input::Receive(now, Receive { proto, source: remote.addr, destination, contents }))
}

/// Addresses for documentation (RFC 5737, RFC 3849), which nobody has.
pub(super) fn made_up_address(is_ipv6: bool) -> SocketAddr {
    match is_ipv6 {
        true => (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into(),
        false => (Ipv4Addr::new(192, 0, 2, 1), 9).into(),
    }
}

pub(super) fn made_up_candidates(is_server: bool, tcp: bool) -> Result<Vec<IceCandidate>, Error> {
    let tcp_type = if is_server { TcpType::Passive } else { TcpType::Active };
    let mut candidates = Vec::with_capacity(4);
    for is_ipv6 in [false, true] {
        let addr = made_up_address(is_ipv6);
        candidates.push(IceCandidate::builder().udp().host(addr).build());
        if tcp {
            candidates.push(IceCandidate::builder().tcp().host(addr).tcptype(tcp_type).build());
        }
    }
    candidates.into_iter().collect::<Result<_, _>>().map_err(|error| Error::SetUp(error.to_string()))
}
