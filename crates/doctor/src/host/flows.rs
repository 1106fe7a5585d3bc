//! Whether the kernel follows flows (conntrack): datagrams from a port of the server's show it.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::ops::RangeInclusive;

use super::{number, text};

/// Flows that are followed now, in this network namespace.
pub const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
/// Flows that may be.
pub const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// Others begin at the same time. So many of ours are not made up by them.
const FLOWS: u64 = 16;
/// Some may end meanwhile.
const TRIES: usize = 3;
/// Of the server's ports so many are tried; a server that runs has the first.
const PORTS_MAX: usize = 64;

/// Ports from which programs of this host send by themselves, too (ip_sysctl of the kernel).
const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Of these ranges those from which nobody but the server sends: answers to others would find no way back through a firewall that
/// lets in what belongs to a flow.
pub fn of_server_alone(ports: &[RangeInclusive<u16>]) -> Vec<RangeInclusive<u16>> {
    let range = text(LOCAL_PORTS).unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u16>().ok());
    let (Some(first), Some(last)) = (ends.next(), ends.next()) else { return ports.to_vec() };
    ports.iter().filter(|ports| *ports.end() < first || *ports.start() > last).cloned().collect()
}

/// Whether flows from one of these UDP ports are followed, or from any where there are none: from the first that is free, empty
/// datagrams go to sockets of our own, over loopback. `None`: it cannot be tried, as none is free.
pub fn is_followed(ports: &[RangeInclusive<u16>]) -> Option<bool> {
    number(COUNT)?;
    let any = ports.is_empty().then_some(0);
    let mut ports = any.into_iter().chain(ports.iter().cloned().flatten()).take(PORTS_MAX);
    let from = ports.find_map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok())?;
    for _ in 0..TRIES {
        let to = (0..FLOWS).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<Vec<_>>>().ok()?;
        let before = number(COUNT)?;
        for socket in &to {
            from.send_to(&[], socket.local_addr().ok()?).ok()?;
        }
        if number(COUNT)? >= before + FLOWS {
            return Some(true);
        }
    }
    Some(false)
}
