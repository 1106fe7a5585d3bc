//! UDP sockets that are opened at run time, on an address or on the first free port of a range.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use wire::UdpOptions;

use crate::udp::UdpSocket;

/// Ports that are tried for one socket. Who finds none there asks again, from another port on.
const PORTS_MAX: usize = 64;

/// Binds `addr`, or the next port of `ports` that is free.
pub(super) fn bind(
    addr: SocketAddr,
    ports: Option<RangeInclusive<u16>>,
    options: &UdpOptions,
) -> io::Result<UdpSocket> {
    let mut bound = UdpSocket::bind(addr, options);
    let mut others = ports.into_iter().flat_map(|ports| following(addr.port(), ports)).take(PORTS_MAX);
    while bound.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        && let Some(port) = others.next()
    {
        bound = UdpSocket::bind(SocketAddr::new(addr.ip(), port), options);
    }
    bound
}

/// The ports behind `first`, and then those from the beginning.
fn following(first: u16, ports: RangeInclusive<u16>) -> impl Iterator<Item = u16> {
    let [first, start, end] = [first, *ports.start(), *ports.end()].map(u32::from);
    let (behind, before) = ((first + 1).max(start)..=end, start..first.min(end + 1));
    behind.chain(before).map(|port| port as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_of_a_range_is_tried_once() {
        let all = |first, ports| following(first, ports).collect::<Vec<u16>>();
        assert_eq!(all(5, 3..=7), [6, 7, 3, 4]);
        assert_eq!(all(7, 3..=7), [3, 4, 5, 6]);
        assert_eq!(all(65_535, 65_534..=65_535), [65_534]);
        assert_eq!(all(9, 3..=4), [3, 4]);
        assert_eq!(all(1, 3..=4), [3, 4]);
        assert_eq!(all(1, RangeInclusive::new(4, 3)), []);
    }

    #[test]
    fn the_next_free_port_of_a_range_is_taken() {
        let options = UdpOptions { receive_buffer_bytes: None, send_buffer_bytes: None, ..UdpOptions::default() };
        let first = bind(([127, 0, 0, 1], 0).into(), None, &options).expect("loopback can be bound");
        let taken = first.local_addr();
        let error = bind(taken, Some(taken.port()..=taken.port()), &options).expect_err("it is taken");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let ports = taken.port().saturating_sub(20)..=taken.port().saturating_add(20);
        let other = bind(taken, Some(ports.clone()), &options).expect("one of forty ports is free").local_addr().port();
        assert!(ports.contains(&other) && other != taken.port());
    }
}
