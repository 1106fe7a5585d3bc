//! Receives datagrams with the kernel's own word on when each arrived.
//!
//! In: a socket. Out: datagrams, each with its time of arrival (nanoseconds since 1970), and with the local address that
//! it was sent to; how many the socket had no room for.
//! Cost: one system call per 64 messages; where the kernel joins datagrams (GRO), a message is several, which have one
//! time. The time is taken before the datagram is queued, so that a receiver that is late does not make the sender so.
//! Source: socket(7), SO_TIMESTAMPNS and SO_RXQ_OVFL; udp(7), UDP_GRO; ip(7), IP_PKTINFO.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use engine::sys::{self, BufferSide};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{Ipv4PacketInfo, ReceiveTimestampns, RxqOvfl, UdpGroSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, setsockopt};
use nix::sys::time::TimeSpec;

/// Messages of one call, and the room for each: the longest IP packet.
const MESSAGES: usize = 64;
const MESSAGE_BYTES: usize = 1 << 16;

/// One datagram.
pub(super) struct Arrival<'a> {
    pub(super) at_ns: u64,
    /// The address that it was sent to; of sockets on a wildcard address.
    pub(super) local: Option<Ipv4Addr>,
    pub(super) datagram: &'a [u8],
}

/// Opens a socket; for a group it joins that, on the interface that the route leads to.
pub(super) fn open(addr: SocketAddrV4, buffer_bytes: usize) -> Result<UdpSocket> {
    let is_group = addr.ip().is_multicast();
    let socket = if is_group { sys::group_socket(&addr.into()) } else { sys::udp_socket(&addr.into()) };
    let socket = socket.with_context(|| format!("bind {addr}"))?;
    setsockopt(&socket, ReceiveTimestampns, &true).context("ask for times of arrival")?;
    setsockopt(&socket, RxqOvfl, &1).context("ask for the number of drops")?;
    if addr.ip().is_unspecified() {
        setsockopt(&socket, Ipv4PacketInfo, &true).context("ask for local addresses")?;
    }
    sys::set_buffer_bytes(socket.as_fd(), BufferSide::Receive, buffer_bytes).context("set the receive buffer")?;
    // Without GRO every message is one datagram.
    let _ = setsockopt(&socket, UdpGroSegment, &true);
    if is_group {
        let joined = sys::join_group(socket.as_fd(), (*addr.ip()).into(), None, 0);
        joined.with_context(|| format!("join {}", addr.ip()))?;
    }
    Ok(socket)
}

/// Nanoseconds since 1970, by the clock of the kernel's times of arrival.
pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Room for one call.
pub(super) struct Batch {
    slots: Vec<Box<[u8]>>,
}

/// What one call gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) messages: usize,
    /// Messages that the socket has dropped since it was opened, as far as these messages tell.
    pub(super) dropped: Option<u32>,
}

impl Filled {
    /// Whether there may be more.
    pub(super) fn is_full(&self) -> bool {
        self.messages == MESSAGES
    }
}

impl Batch {
    pub(super) fn new() -> Self {
        Batch { slots: (0..MESSAGES).map(|_| vec![0; MESSAGE_BYTES].into()).collect() }
    }

    /// Receives what is there, up to one batch, and calls `each` with every datagram in the order of arrival.
    pub(super) fn fill(&mut self, socket: &UdpSocket, mut each: impl FnMut(Arrival<'_>)) -> io::Result<Filled> {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = self.slots.iter_mut().map(|slot| [IoSliceMut::new(slot)]).collect();
        // The kernel shortens the room for control messages to what it used, so it is made anew.
        let space = cmsg_space!(TimeSpec, nix::libc::in_pktinfo, i32, u32);
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(MESSAGES, Some(space));
        let received = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        let received = match received {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(Filled::default()),
            Err(errno) => return Err(errno.into()),
        };
        let mut filled = Filled::default();
        for message in received {
            filled.messages += 1;
            let (mut at_ns, mut local, mut segment_bytes) = (None, None, None);
            // What the kernel tells about a message.
            for control in message.cmsgs().into_iter().flatten() {
                match control {
                    ControlMessageOwned::ScmTimestampns(at) => {
                        at_ns = Some(at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64);
                    }
                    ControlMessageOwned::Ipv4PacketInfo(info) => {
                        local = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)));
                    }
                    ControlMessageOwned::UdpGroSegments(bytes) => segment_bytes = usize::try_from(bytes).ok(),
                    ControlMessageOwned::RxqOvfl(count) => filled.dropped = Some(count),
                    _ => {}
                }
            }
            let at_ns = at_ns.unwrap_or_else(now_ns);
            for data in message.iovs() {
                for datagram in data.chunks(segment_bytes.unwrap_or(data.len()).max(1)) {
                    each(Arrival { at_ns, local, datagram });
                }
            }
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use engine::sys;
    use engine::udp::{Options, SendQueue};
    use std::os::fd::AsFd;
    use wire::{LinkId, Outbox, Path};

    use super::*;

    const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

    fn port(socket: &UdpSocket) -> u16 {
        socket.local_addr().unwrap().port()
    }

    #[test]
    fn joined_datagrams_come_apart_with_their_time_and_the_address_that_they_were_sent_to() {
        let socket = open(ANY, 1 << 20).unwrap();
        // Whoever is the first on a machine to ask for times waits a moment for the kernel's workqueue to turn them on;
        // until then the time is that of the receiving.
        let mut attempts = 0;
        while !are_apart_and_timed(&socket) {
            attempts += 1;
            assert!(attempts < 500, "the times are never those of the arrival");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends three datagrams, and receives them later; true when their times are those of the sending.
    fn are_apart_and_timed(socket: &UdpSocket) -> bool {
        let mut sender = engine::udp::UdpSocket::bind(([127, 0, 0, 1], 0).into(), &Options::default()).unwrap();
        let mut out = Outbox::new(1 << 16);
        for (host, number) in [(7, 1_u8), (7, 2), (9, 3)] {
            let path =
                Path { link: LinkId::datagrams(0), remote: ([127, 3, 2, host], port(socket)).into(), local: None };
            assert!(out.push(&path, &[number; 1_316]));
        }
        let before = now_ns();
        SendQueue::default().send_outbox(&mut sender, &out, &mut engine::CountersSnapshot::default());
        let after = now_ns();

        let (mut batch, mut seen, mut is_timed) = (Batch::new(), Vec::new(), true);
        while seen.len() < 3 {
            assert!(sys::wait_readable(socket.as_fd(), Some(Duration::from_secs(5))).unwrap(), "{seen:?}");
            let filled = batch.fill(socket, |arrival| {
                is_timed &= (before..=after).contains(&arrival.at_ns);
                assert_eq!(arrival.datagram.len(), 1_316);
                seen.push((arrival.local.map(|local| local.octets()), arrival.datagram[0]));
            });
            assert_eq!(filled.unwrap().dropped, None);
        }
        assert_eq!(seen, [(Some([127, 3, 2, 7]), 1), (Some([127, 3, 2, 7]), 2), (Some([127, 3, 2, 9]), 3)]);
        is_timed
    }

    #[test]
    fn what_found_no_room_is_counted() {
        let socket = open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 1).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut batch = Batch::new();
        let mut dropped = None;
        for _ in 0..3 {
            for _ in 0..50 {
                sender.send_to(&[1; 1_316], socket.local_addr().unwrap()).unwrap();
            }
            dropped = batch.fill(&socket, |_| ()).unwrap().dropped.or(dropped);
        }
        assert!(dropped.is_some_and(|dropped| dropped > 0), "{dropped:?}");
    }

    #[test]
    fn an_empty_socket_gives_nothing() {
        assert_eq!(Batch::new().fill(&open(ANY, 1 << 20).unwrap(), |_| ()).unwrap(), Filled::default());
    }
}
