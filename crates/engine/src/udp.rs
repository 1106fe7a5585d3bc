//! Batched UDP, with or without a worker around it.
//!
//! In: sockets that are readable, and outboxes full of datagrams (`send`).
//! Out: datagrams as they were sent, and runs handed to the kernel as few and as large as it takes them.
//! Cost: one system call per 64 received or 128 sent messages; a message is up to 64 datagrams. No allocation.
//! Source: udp(7), "UDP_SEGMENT" and "UDP_GRO"; recvmmsg(2), sendmmsg(2).

mod send;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use wire::Fragments;

use self::send::Refusals;
use crate::sys::{self, BufferSide, Oversize};

pub use self::send::SendQueue;
pub use crate::sys::{Received, RecvBatch, Refused};
pub use wire::UdpOptions as Options;

use wire::Multicast;

/// A non-blocking UDP socket. An IPv6 one takes IPv6 alone, so both families can have the same port.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    local_addr: SocketAddr,
    is_shared: bool,
    /// The kernel can split, as far as it says.
    gso: bool,
    gso_refusals: Refusals,
    /// Until when the kernel is not asked to split.
    gso_lowered_until: Option<Instant>,
    /// No fragments are made; lowered for good at the first datagram that is said to be longer than its path takes, where
    /// that may be heard (`hear_too_long`).
    whole: bool,
    fragments: Fragments,
    /// The longest datagram that was sent.
    datagram_bytes_max: usize,
    /// What `new_drops` has told.
    drops: u32,
    /// It has received something since it was asked for that.
    pub(crate) may_have_dropped: bool,
    /// It stayed full for as long as a flush waits; no flush waits for it before something has gone through.
    stalled: bool,
    gro: bool,
    send_only: bool,
    refusals: bool,
    receive_buffer_bytes: usize,
}

impl UdpSocket {
    /// Binds `addr`. On a wildcard address received messages name the local address that was asked.
    ///
    /// # Errors
    /// What the system says of the address or an option.
    pub fn bind(addr: SocketAddr, options: &Options) -> io::Result<Self> {
        let socket = if options.reuse_port { sys::shared_udp_socket(&addr) } else { sys::udp_socket(&addr) }?;
        let local_addr = if addr.port() == 0 { socket.local_addr()? } else { addr };
        Self::set_up(socket, local_addr, options, false)
    }

    /// Takes a bound UDP socket that was opened elsewhere.
    ///
    /// # Errors
    /// `InvalidInput` when it is another socket, and what the system says.
    pub fn adopt(descriptor: OwnedFd, options: &Options) -> io::Result<Self> {
        if !sys::is_udp(descriptor.as_fd())? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = std::net::UdpSocket::from(descriptor);
        socket.set_nonblocking(true)?;
        let addr = socket.local_addr()?;
        Self::set_up(socket, addr, options, true)
    }

    /// A second socket on this one's address, which gets what begins like one of these from now on. What is sent is sent by this
    /// one. What ICMP says is kept by this one alone, as nobody may look at the other for a while: about half of it comes to that,
    /// and is not heard.
    ///
    /// # Errors
    /// What the system says: that it cannot, or that this one is on a port with others.
    pub fn beside(&self, beginnings: &[sys::Beginning], options: &Options) -> io::Result<Self> {
        let second = sys::steered_udp_socket(self.as_fd(), &self.local_addr, beginnings)?;
        Self::set_up(second, self.local_addr, &Options { refusals: false, ..options.clone() }, false)
    }

    /// The same with such a socket that was opened elsewhere.
    ///
    /// # Errors
    /// `InvalidInput` when it is of another address, and what the system says.
    pub fn adopt_beside(&self, second: OwnedFd, beginnings: &[sys::Beginning], options: &Options) -> io::Result<Self> {
        let second = Self::adopt(second, &Options { refusals: false, ..options.clone() })?;
        if second.local_addr != self.local_addr {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sys::steer(second.as_fd(), beginnings)?;
        Ok(second)
    }

    /// What a socket has anyway when it is new is not set: a relay opens thousands.
    fn set_up(socket: std::net::UdpSocket, addr: SocketAddr, options: &Options, is_adopted: bool) -> io::Result<Self> {
        let fd = socket.as_fd();
        let send_only = options.send_only;
        if options.refusals {
            sys::set_refusals(fd, &addr)?;
        }
        if send_only {
            // Refusals need the room that nobody would make. What is there already goes as well, an error first.
            sys::refuse_input(fd)?;
            socket.take_error()?;
            while socket.recv(&mut []).is_ok() {}
        } else if addr.ip().is_unspecified() {
            sys::set_packet_info(fd, &addr)?;
        }
        if is_adopted || options.multicast != Multicast::default() {
            sys::set_multicast(fd, &addr, &options.multicast)?;
        }
        sys::set_unicast(fd, &addr, &options.unicast)?;
        if options.dscp != 0 {
            sys::set_dscp(fd, &addr, options.dscp)?;
        }
        let receive_bytes = if send_only { Some(REFUSALS_BYTES) } else { options.receive_buffer_bytes };
        for (side, bytes) in [(BufferSide::Receive, receive_bytes), (BufferSide::Send, options.send_buffer_bytes)] {
            if let Some(bytes) = bytes {
                sys::set_buffer_bytes(fd, side, bytes)?;
            }
        }
        let receive_buffer_bytes = sys::buffer_bytes(fd, BufferSide::Receive)?;
        let oversize = if options.fragments == Fragments::Always { Oversize::Fragmented } else { Oversize::Lost };
        let whole = sys::set_oversize(fd, &addr, oversize).is_ok() && oversize == Oversize::Lost;
        let gso = options.gso && *HAS_GSO.get_or_init(|| sys::udp_has_gso(fd));
        let gro = options.gro && !send_only && sys::set_gro(fd).is_ok();
        Ok(UdpSocket {
            socket,
            local_addr: addr,
            // Where it was opened somebody may have it still.
            is_shared: is_adopted,
            gso,
            gso_refusals: Refusals::default(),
            gso_lowered_until: None,
            whole,
            fragments: options.fragments,
            datagram_bytes_max: 0,
            drops: 0,
            may_have_dropped: false,
            stalled: false,
            gro,
            send_only,
            refusals: options.refusals,
            receive_buffer_bytes,
        })
    }

    /// Whether somebody else may have it too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Somebody else has it from now on, too.
    pub(crate) fn share(&mut self) {
        self.is_shared = true;
    }

    /// Its address, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Whether several datagrams leave as one message; false for a while when the kernel has refused.
    pub fn gso(&self) -> bool {
        self.gso && self.gso_lowered_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Whether several datagrams may arrive as one message.
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// Whether what comes for it is dropped.
    pub fn is_send_only(&self) -> bool {
        self.send_only
    }

    /// Whether what ICMP says of its destinations is kept.
    pub fn keeps_refusals(&self) -> bool {
        self.refusals
    }

    /// Takes the oldest thing that ICMP said about a destination; `None` when there is nothing.
    ///
    /// # Errors
    /// What recvmsg(2) says.
    pub fn next_refusal(&self) -> io::Result<Option<Refused>> {
        sys::next_refusal(self.as_fd())
    }

    /// Takes the error of a socket that keeps no refusals, or found no room for one. While it has one it is reported as ready.
    pub(crate) fn clear_error(&self) {
        self.socket.take_error().ok();
    }

    /// What the kernel granted, its bookkeeping included.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Whether the receive buffer may have had no room, when so many messages of so many bytes in all were found there. Who
    /// receives takes all that is there, or comes again for it.
    pub(crate) fn may_have_been_full(&self, messages: usize, bytes: usize) -> bool {
        messages * MESSAGE_OVERHEAD_MAX + 2 * bytes >= self.receive_buffer_bytes / 2
    }

    fn lower_gso(&mut self) {
        self.gso_refusals = Refusals::default();
        self.gso_lowered_until = Some(Instant::now() + GSO_PAUSE);
    }

    /// Somebody says that a datagram was longer than its path takes: lets fragments be made from now on; false when nothing
    /// changes. The kernel is right (`is_local`), but anybody can forge ICMP, so that is believed only where some datagram
    /// was longer than what passes everywhere. Media of 1,200 bytes is not.
    pub(crate) fn hear_too_long(&mut self, is_local: bool) -> bool {
        let header_bytes = if self.local_addr.is_ipv4() { 20 + 8 } else { 40 + 8 };
        let is_believed = is_local || self.datagram_bytes_max + header_bytes > PATH_BYTES_MIN;
        if self.fragments == Fragments::Never || !is_believed || !std::mem::take(&mut self.whole) {
            return false;
        }
        sys::set_oversize(self.as_fd(), &self.local_addr, Oversize::Fragmented).is_ok()
    }

    /// Datagrams that found no room in the receive buffer since this was asked last. What a socket does not want is not
    /// among them.
    pub(crate) fn new_drops(&mut self) -> u32 {
        if self.send_only {
            return 0;
        }
        let Ok(drops) = sys::receive_drops(self.as_fd()) else { return 0 };
        drops.wrapping_sub(std::mem::replace(&mut self.drops, drops))
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the kernel counts for a message in a receive buffer, beside twice its bytes, at most: its own bookkeeping, and a page
/// of a network card's.
const MESSAGE_OVERHEAD_MAX: usize = 4_096;

/// Whether the kernel can split, which is no matter of one socket.
static HAS_GSO: OnceLock<bool> = OnceLock::new();

/// The longest IP packet that passes everywhere: of IPv6 by RFC 8200 §5, of IPv4 in practice.
const PATH_BYTES_MIN: usize = 1_280;

/// When the kernel that refused to split is asked again: routes and cards change.
const GSO_PAUSE: Duration = Duration::from_secs(60);

/// Receive buffer of a socket that just sends. What ICMP says lies there; over that it is dropped.
const REFUSALS_BYTES: usize = 64 << 10;

/// Messages in one receive call where the kernel joins datagrams, and the room for each: the longest IP packet, and 33
/// cache lines more. With slots a power of two apart, the first lines of all would compete for one set of the cache.
const GRO_SLOTS: usize = 64;
const GRO_SLOT_BYTES: usize = (1 << 16) + 33 * 64;

/// The same without GRO: a message is one datagram, and one that is longer is cut off and counted.
const PLAIN_SLOTS: usize = 256;
const PLAIN_SLOT_BYTES: usize = 2_048;

/// Room for one batch of received messages of any number of sockets in turn. With `gro` it takes 4 MiB of address space, of
/// which only what is filled becomes memory.
pub fn recv_batch(gro: bool) -> RecvBatch {
    if gro { RecvBatch::new(GRO_SLOTS, GRO_SLOT_BYTES) } else { RecvBatch::new(PLAIN_SLOTS, PLAIN_SLOT_BYTES) }
}
