//! Links: what connects a worker with the outside. UDP sockets, listeners, TCP connections.
//!
//! In: `LinkRequest`, a plain value by which a product asks for links to be opened, watched and closed.
//! Out: `LinkEvent`, by which it hears what became of them. Who asked is named by a `Token`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::framing::Framing;
use crate::{Begun, Bitrate};

/// What passes through a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A UDP socket: datagrams from and to anybody.
    Datagrams,
    /// A TCP connection whose bytes are divided into datagrams, all from and to one remote.
    Framed,
    /// A TCP connection as it is: bytes in order.
    Stream,
    /// A TCP listener, which only brings other links.
    Listener,
}

/// One link of a worker. Numbers are the engine's to give, and none is given twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LinkId {
    /// Kind in the two upper bits, slot below.
    place: u32,
    generation: u32,
}

const SLOT_BITS: u32 = 30;

impl LinkId {
    /// The link of one kind that is at a slot of the worker's table in the slot's `generation`-th use.
    ///
    /// # Panics
    /// When the slot needs more than 30 bits.
    pub const fn new(kind: LinkKind, slot: u32, generation: u32) -> Self {
        assert!(slot < 1 << SLOT_BITS, "a slot has 30 bits");
        LinkId { place: (kind as u32) << SLOT_BITS | slot, generation }
    }

    /// The first UDP socket at a slot: what a simulation or a test calls its sockets.
    pub const fn datagrams(slot: u32) -> Self {
        LinkId::new(LinkKind::Datagrams, slot, 0)
    }

    /// What passes through it.
    pub const fn kind(self) -> LinkKind {
        match self.place >> SLOT_BITS {
            0 => LinkKind::Datagrams,
            1 => LinkKind::Framed,
            2 => LinkKind::Stream,
            _ => LinkKind::Listener,
        }
    }

    /// Where it is in the worker's table.
    pub const fn slot(self) -> usize {
        (self.place & ((1 << SLOT_BITS) - 1)) as usize
    }

    /// The how many-th use of the slot it is.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// All of it in one number, for the kernel to keep.
    pub const fn to_bits(self) -> u64 {
        (self.place as u64) << 32 | self.generation as u64
    }

    /// The link whose number that is.
    pub const fn from_bits(bits: u64) -> Self {
        LinkId { place: (bits >> 32) as u32, generation: bits as u32 }
    }
}

impl Hash for LinkId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_bits());
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({}.{})", self.kind(), self.slot(), self.generation)
    }
}

/// What those who asked for a link call it. It comes with all that is heard of the link; a connection that a listener
/// accepts has the listener's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token {
    /// Which of the products of a worker asked.
    pub owner: u16,
    /// Its own name for the link.
    pub number: u32,
}

/// What became of a link.
#[derive(Debug)]
pub enum LinkEvent<'a> {
    /// It is open: asked for, or accepted by a listener.
    Opened {
        /// The link.
        link: LinkId,
        /// Our address, with the port that the system chose.
        local: SocketAddr,
        /// The other end, where there is just one.
        remote: Option<SocketAddr>,
    },
    /// What was asked for cannot be had.
    Failed {
        /// What the system says.
        error: io::Error,
    },
    /// A byte stream has brought these. They may be changed in place, and are gone afterwards.
    Bytes {
        /// The link.
        link: LinkId,
        /// What came, in order.
        bytes: &'a mut [u8],
    },
    /// The other side of a byte stream sends no more. It may still read, and gets what is written; to close the link is for
    /// the product, which hears no more of it otherwise.
    InputEnded {
        /// The link.
        link: LinkId,
    },
    /// Of what was written for a byte stream since the last flush, the last bytes were not taken: they are the writer's to
    /// write again after `Writable`, which follows when there is room. Until then nothing more is taken. It is told before
    /// the call that follows the flush. A flush follows each `poll_transmit`: what was written before or in one is taken if
    /// nothing was heard when the next call begins, and who closes earlier cuts off what is not taken.
    Unsent {
        /// The link.
        link: LinkId,
        /// How many.
        bytes: usize,
    },
    /// A byte stream has room again.
    Writable {
        /// The link.
        link: LinkId,
    },
    /// A byte stream is no link of ours any more, as was asked for; nothing more is heard of it. What was taken of it and not
    /// sent, or not told, is here.
    Released {
        /// The link that it was.
        link: LinkId,
        /// The connection.
        descriptor: OwnedFd,
        /// What waited until the kernel has room. It comes before whatever else is sent.
        unsent: Box<[u8]>,
        /// What came and was told to nobody: `Begun::received` of who takes it up.
        unread: Box<[u8]>,
    },
    /// The network says that a datagram did not get there.
    Refused {
        /// The UDP socket that it left from.
        link: LinkId,
        /// Where it was to go.
        remote: SocketAddr,
    },
    /// It is gone, as each link that was opened is once. Nothing more is heard of it, and what is sent to it is dropped.
    Closed {
        /// The link.
        link: LinkId,
        /// The other end, where there was just one.
        remote: Option<SocketAddr>,
        /// Why.
        reason: CloseReason,
    },
}

/// Why a link is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The product asked for it.
    Asked,
    /// The other side ended a framed connection, or both did.
    Ended,
    /// The connection broke, or its socket failed.
    Failed,
    /// Nothing came for as long as `StreamOptions::silence_max`, or a frame did not end in half a minute. Where strangers are
    /// limited also: nothing was sent to it for so long.
    Silent,
    /// Nothing was sent to it for as long as `Strangers::age_max`, or a newcomer needed its place.
    Stranger,
    /// A frame was no frame, or longer than `StreamOptions::frame_max`.
    BadFrame,
}

/// What a product wants of its worker's links. Each open answers with `Opened` or `Failed`.
#[derive(Debug)]
pub enum LinkRequest {
    /// A UDP socket.
    OpenUdp {
        /// The asker's name for it.
        token: Token,
        /// Its address. Port 0 is any.
        addr: SocketAddr,
        /// When the port is taken, the next ones of this range are tried, and the first ones after the last; some dozens.
        /// `None`: that port or none. Who wants an even one (RFC 8656 §7.2) asks for one after the other: `Failed` says
        /// `AddrInUse`, and is told before anything else that happens afterwards.
        ports: Option<RangeInclusive<u16>>,
        /// How it is set up.
        options: UdpOptions,
    },
    /// A TCP listener. Each connection that it accepts is `Opened` with the same token.
    Listen {
        /// The asker's name for it.
        token: Token,
        /// Its address. Port 0 is any.
        addr: SocketAddr,
        /// How it is set up.
        options: ListenOptions,
    },
    /// A TCP connection.
    Connect {
        /// The asker's name for it.
        token: Token,
        /// The other end.
        to: SocketAddr,
        /// Our end, where it matters.
        from: Option<SocketAddr>,
        /// What holds for the connection.
        options: StreamOptions,
    },
    /// A descriptor that was opened elsewhere.
    Adopt {
        /// The asker's name for it.
        token: Token,
        /// The descriptor. It is the engine's from now on.
        descriptor: OwnedFd,
        /// What it is, and how it is set up.
        kind: Adopted,
    },
    /// No more of a link. What the same outbox has for it goes first, also what is written later; what was taken still
    /// leaves, and what a connection brings is dropped: `Closed` is told when both sides have ended it, after half a minute
    /// in any case, and at once to who asks again.
    Close {
        /// The link.
        link: LinkId,
    },
    /// Give a byte stream back, which goes on elsewhere: `Released`. What the same outbox has for it goes first, as far as
    /// the kernel takes it. One under a cipher, whose state nobody else has, is closed instead (`Close`).
    Release {
        /// The link.
        link: LinkId,
    },
    /// Tell when a byte stream has room: once, with `Writable`.
    WatchWritable {
        /// The link.
        link: LinkId,
    },
    /// Read from a TCP connection no more, or again. What comes meanwhile stays in the kernel, and slows its sender down;
    /// `StreamOptions::silence_max` begins anew afterwards. That the connection broke is told (`Closed`), and what was not
    /// read is then lost; that the other side ended it is told when what came before is read. Of a byte stream nothing more
    /// is heard after the call that asked for it, of a framed connection what was read already: 16 KiB and one frame at most.
    Read {
        /// The link.
        link: LinkId,
        /// Whether it is to be read from, as it is to begin with.
        is_on: bool,
    },
    /// Take no longer frames from a TCP connection than of so many bytes, their headers included: another
    /// `StreamOptions::frame_max`, for who is known by now, or not any more. It holds for frames that begin afterwards.
    LimitFrames {
        /// The link.
        link: LinkId,
        /// Bytes of the longest frame.
        bytes: usize,
    },
    /// Let a TCP connection send no faster than that. The kernel takes no less beyond what is on its way than leaves in 50 ms,
    /// whatever `StreamOptions::unsent_max` is.
    Pace {
        /// The link.
        link: LinkId,
        /// The rate.
        rate: Bitrate,
    },
}

/// What an adopted descriptor is.
#[derive(Debug)]
pub enum Adopted {
    /// A bound UDP socket.
    Udp(UdpOptions),
    /// A TCP socket that listens.
    Listener(ListenOptions),
    /// A TCP connection.
    Stream(StreamOptions),
    /// A TCP connection on which others have begun to speak.
    Begun(StreamOptions, Begun),
}

/// What becomes of datagrams that are longer than their path takes in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// They are lost.
    Never,
    /// They are lost, and go in fragments once the kernel or ICMP says that something was too long. For who makes his datagrams
    /// himself, and has them pass everywhere.
    WhenTold,
    /// They go in fragments. For who passes on what others make, and cannot make it shorter.
    Always,
}

/// How to set a UDP socket up.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// It sends and never receives. GRO and the receive buffer's size are then of no use.
    pub send_only: bool,
    /// Tell what ICMP says of its destinations (`LinkEvent::Refused`), which anybody can forge. Also what lets the kernel say
    /// that a queue below the socket dropped a datagram (ip(7), "IP_RECVERR"); it says that all was sent otherwise.
    pub refusals: bool,
    /// Other sockets, of other workers, may have the same address; the kernel spreads senders over them.
    pub reuse_port: bool,
    /// How datagrams to groups leave.
    pub multicast: Multicast,
    /// How datagrams to single hosts leave.
    pub unicast: Unicast,
    /// The six upper bits of the traffic class of all that is sent (RFC 2474).
    pub dscp: u8,
    /// What becomes of datagrams that are longer than their path takes in one piece.
    pub fragments: Fragments,
    /// Hand several datagrams to the kernel as one, where it can (GSO).
    pub gso: bool,
    /// Take several datagrams from the kernel as one, where it can (GRO).
    pub gro: bool,
    /// Size of the socket's receive buffer. A datagram that finds it full is lost. `None`: as the system has it.
    pub receive_buffer_bytes: Option<usize>,
    /// Size of the socket's send buffer. While it is full, sending waits a little, then drops. `None`: as the system has it.
    pub send_buffer_bytes: Option<usize>,
}

/// One socket for many remotes: both buffers have 8 MiB, beyond the system's maximum where the process may
/// (CAP_NET_ADMIN). Thousands of sockets of one remote each, as a relay has, want `None` for both: what is full of them counts
/// against the memory of all (`net.ipv4.udp_mem`).
impl Default for UdpOptions {
    fn default() -> Self {
        UdpOptions {
            send_only: false,
            refusals: false,
            reuse_port: false,
            multicast: Multicast::default(),
            unicast: Unicast::default(),
            dscp: 0,
            fragments: Fragments::WhenTold,
            gso: true,
            gro: true,
            receive_buffer_bytes: Some(8 << 20),
            send_buffer_bytes: Some(8 << 20),
        }
    }
}

impl UdpOptions {
    /// For a socket that only sends, and is told where nobody listens.
    pub fn sender() -> Self {
        UdpOptions { send_only: true, refusals: true, ..UdpOptions::default() }
    }
}

/// How datagrams to groups leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// Routers that one may pass, less one: 1 stays in the network (TTL, hop limit).
    pub hops: u8,
    /// Number of the interface; 0 leaves it to the routing table.
    pub interface: u32,
    /// Receivers on this host get them as well.
    pub is_looped: bool,
}

impl Default for Multicast {
    fn default() -> Self {
        Multicast { hops: 1, interface: 0, is_looped: true }
    }
}

/// How datagrams to single hosts leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unicast {
    /// Routers that one may pass, plus one (TTL, hop limit). `None`: as the system has it.
    pub hops: Option<u8>,
    /// Number of the interface; 0 leaves it to the routing table.
    pub interface: u32,
}

/// How to set a TCP listener up.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Other listeners, of other workers, may have the same address; the kernel spreads newcomers over them.
    pub reuse_port: bool,
    /// Connections of this listener at one time; a newcomer beyond that is turned away.
    pub links_max: usize,
    /// What holds for each connection.
    pub stream: StreamOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { reuse_port: false, links_max: 10_000, stream: StreamOptions::default() }
    }
}

/// What holds for a TCP connection.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// How its bytes are divided into datagrams; `None`: they are not, it is a byte stream.
    pub framing: Option<Framing>,
    /// Bytes of the longest frame that may come, its header included. A longer one ends the link.
    pub frame_max: usize,
    /// Bytes that wait in the engine until the kernel has room. A datagram, or a piece that was copied
    /// (`Outbox::push_bytes`), that finds no room there goes no further.
    pub backlog_max: usize,
    /// Size of the kernel's send buffer. `None`: it grows as the system lets it, to megabytes.
    pub send_buffer_bytes: Option<usize>,
    /// Bytes that the kernel takes beyond what is on its way (tcp(7), "TCP_NOTSENT_LOWAT"). `None`: as many as the buffer has.
    pub unsent_max: Option<u32>,
    /// A link that brings nothing for this long, or with framing no whole frame, is closed, within a second or so.
    pub silence_max: Option<Duration>,
    /// A link whose peer acknowledges nothing of what was sent for this long is closed by the kernel.
    pub unacknowledged_max: Option<Duration>,
    /// What holds for strangers among the connections of a listener. `None`: they are as welcome as others.
    pub strangers: Option<Strangers>,
    /// How the kernel sends what is written.
    pub sending: Sending,
}

/// How the kernel sends what is written to a TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Name of its congestion control (tcp(7), "TCP_CONGESTION"), such as "bbr". `None`: the system's.
    pub congestion: Option<Arc<str>>,
    /// Class of service of each packet (DSCP, RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Mark of each packet, for the routing table and the firewall (socket(7), "SO_MARK"). 0: none.
    pub mark: u32,
}

/// Limits for connections to which nothing was sent yet: a product that answers nobody but whom it knows has not been shown
/// who is there. When a listener has all the connections that it may have, the oldest stranger makes room for a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strangers {
    /// Who is a stranger for this long is closed, within a second or so, whatever he sends.
    pub age_max: Duration,
    /// At one listener from one source at one time (`source_network`); for a newcomer beyond that the oldest of them is closed.
    pub per_source_max: usize,
}

/// The part of an address that one customer of a network has: all of an IPv4 address, 64 bits of an IPv6 address (RFC 6177).
pub fn source_network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            framing: None,
            frame_max: 16 * 1_024,
            backlog_max: 256 * 1_024,
            send_buffer_bytes: None,
            unsent_max: None,
            silence_max: None,
            unacknowledged_max: None,
            strangers: None,
            sending: Sending::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_ipv4_address_or_64_bits_of_an_ipv6_address() {
        let network = |ip: &str| source_network(ip.parse().expect("an address")).to_string();
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    #[test]
    fn a_link_is_known_by_its_number() {
        let kinds = [LinkKind::Datagrams, LinkKind::Framed, LinkKind::Stream, LinkKind::Listener];
        for kind in kinds {
            for (slot, generation) in [(0, 0), (7, 1), ((1 << SLOT_BITS) - 1, u32::MAX)] {
                let link = LinkId::new(kind, slot, generation);
                assert_eq!((link.kind(), link.slot(), link.generation()), (kind, slot as usize, generation));
                assert_eq!(LinkId::from_bits(link.to_bits()), link);
            }
        }
        assert_eq!(format!("{:?}", LinkId::new(LinkKind::Stream, 3, 9)), "Stream(3.9)");
    }
}
