//! Batched UDP, with or without a worker around it.
//!
//! In: sockets that are readable, and outboxes full of datagrams.
//! Out: datagrams as they were sent, and runs handed to the kernel as few and as large as it takes them.
//! Cost: one system call per 64 received or 128 sent messages; a message is up to 64 datagrams. No allocation.
//! Source: udp(7), "UDP_SEGMENT" and "UDP_GRO"; recvmmsg(2), sendmmsg(2).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::{Outbox, Run};

use crate::sys::{self, BufferSide, Outgoing, RecvBuffers, SendBatch};

pub use crate::sys::{Multicast, Received, Refused};

/// How to set a socket up.
#[derive(Clone, Debug)]
pub struct Options {
    /// It sends and never receives; what ICMP says of its destinations is kept (`next_refusal`). GRO and the receive
    /// buffer's size are then of no use.
    pub send_only: bool,
    pub multicast: Multicast,
    /// The six upper bits of the traffic class of all that is sent (RFC 2474).
    pub dscp: u8,
    /// Hand several datagrams to the kernel as one, where it can (GSO).
    pub gso: bool,
    /// Take several datagrams from the kernel as one, where it can (GRO).
    pub gro: bool,
    /// Size of the socket's receive buffer. A datagram that finds it full is lost.
    pub receive_buffer_bytes: usize,
    /// Size of the socket's send buffer. While it is full, sending waits a little, then drops.
    pub send_buffer_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            send_only: false,
            multicast: Multicast::default(),
            dscp: 0,
            gso: true,
            gro: true,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 8 << 20,
        }
    }
}

/// A non-blocking UDP socket. An IPv6 one takes IPv6 alone, so both families can have the same port.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    local_addr: SocketAddr,
    /// Lowered for good when the kernel refuses to split.
    gso: AtomicBool,
    /// The kernel need not make fragments; lowered for good at the first datagram that is longer than its path takes.
    whole: AtomicBool,
    gro: bool,
    send_only: bool,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
}

impl UdpSocket {
    /// Binds `addr`. On a wildcard address received messages name the local address that was asked.
    pub fn bind(addr: SocketAddr, options: &Options) -> io::Result<Self> {
        let socket = sys::udp_socket(&addr)?;
        let fd = socket.as_fd();
        let send_only = options.send_only;
        if send_only {
            sys::set_refusals(fd, &addr)?;
        } else {
            sys::set_packet_info(fd, &addr, addr.ip().is_unspecified())?;
        }
        sys::set_multicast(fd, &addr, &options.multicast)?;
        if options.dscp != 0 {
            sys::set_dscp(fd, &addr, options.dscp)?;
        }
        let receive_bytes = if send_only { REFUSALS_BYTES } else { options.receive_buffer_bytes };
        let receive_buffer_bytes = sys::set_buffer_bytes(fd, BufferSide::Receive, receive_bytes)?;
        let send_buffer_bytes = sys::set_buffer_bytes(fd, BufferSide::Send, options.send_buffer_bytes)?;
        let whole = sys::set_dont_fragment(fd, &addr, true).is_ok();
        let gso = options.gso && sys::udp_has_gso(fd);
        let gro = options.gro && !send_only && sys::set_gro(fd).is_ok();
        let local_addr = socket.local_addr()?;
        let (gso, whole) = (gso.into(), whole.into());
        Ok(UdpSocket { socket, local_addr, gso, whole, gro, send_only, receive_buffer_bytes, send_buffer_bytes })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Whether several datagrams leave as one message; false once the kernel has refused.
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Whether several datagrams may arrive as one message.
    pub fn gro(&self) -> bool {
        self.gro
    }

    pub fn is_send_only(&self) -> bool {
        self.send_only
    }

    /// Takes the oldest thing that ICMP said about a destination; `None` when there is nothing. Only for a socket that
    /// just sends.
    pub fn next_refusal(&self) -> io::Result<Option<Refused>> {
        sys::next_refusal(self.as_fd())
    }

    /// What the kernel granted, its bookkeeping included.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// What the kernel granted, its bookkeeping included.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    fn lower_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    /// Lets the kernel make fragments from now on; false when it does already.
    fn allow_fragments(&self) -> bool {
        let was_whole = self.whole.swap(false, Ordering::Relaxed);
        was_whole && sys::set_dont_fragment(self.as_fd(), &self.local_addr, false).is_ok()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Receive buffer of a socket that just sends. What ICMP says lies there; over that it is dropped.
const REFUSALS_BYTES: usize = 64 << 10;

/// Messages in one receive call where the kernel joins datagrams, and the room for each: the longest IP packet, and 33
/// cache lines more. With slots a power of two apart, the first lines of all would compete for one set of the cache.
const GRO_SLOTS: usize = 64;
const GRO_SLOT_BYTES: usize = (1 << 16) + 33 * 64;

/// The same without GRO: a message is one datagram, and one that is longer is cut off and counted.
const PLAIN_SLOTS: usize = 256;
const PLAIN_SLOT_BYTES: usize = 2_048;

/// Room for one batch of received messages; serves any number of sockets in turn.
pub struct RecvBatch {
    buffers: RecvBuffers,
    is_full: bool,
}

impl RecvBatch {
    /// With `gro` it takes 4 MiB of address space, of which only what is filled becomes memory.
    pub fn new(gro: bool) -> Self {
        let (slots, slot_bytes) = if gro { (GRO_SLOTS, GRO_SLOT_BYTES) } else { (PLAIN_SLOTS, PLAIN_SLOT_BYTES) };
        RecvBatch { buffers: RecvBuffers::new(slots, slot_bytes), is_full: false }
    }

    /// Receives what is there, up to one batch, and returns the number of messages.
    pub fn fill(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.is_full = false;
        let count = self.buffers.fill(socket.as_fd())?;
        self.is_full = count == self.buffers.slots();
        Ok(count)
    }

    /// Whether the last `fill` used every slot, so that the socket may hold more.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The messages of the last `fill`, in the order of arrival.
    pub fn messages(&mut self) -> impl Iterator<Item = Received<'_>> {
        self.buffers.messages()
    }
}

/// For how long one flush waits for a full socket, all in all. Then it drops: media that is later than this is late.
const STALL_MAX: Duration = Duration::from_millis(2);

/// Pause after ENOBUFS: a queue below the socket is full, and nothing tells when it has room again.
const NO_BUFFERS_PAUSE: Duration = Duration::from_micros(200);

/// Refusals in a row, with no GSO send accepted in between, until EINVAL counts as the socket's own fault. One remote
/// alone can cause it (by a small path MTU), and must not make the sends to all others dearer.
const REFUSALS_MAX: u32 = 64;

/// Attempts for one message when errors may be those of others.
const RETRIES_MAX: u32 = 3;

/// Running totals of what a `SendQueue` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Datagrams and bytes that the kernel took.
    pub datagrams: u64,
    pub bytes: u64,
    /// System calls.
    pub calls: u64,
    /// Messages of several datagrams that the kernel took.
    pub gso_sends: u64,
    /// Messages that the kernel would not split; they were sent again datagram by datagram.
    pub gso_refused: u64,
    /// Times that a socket was full.
    pub would_block: u64,
    /// Datagrams dropped because the socket stayed full.
    pub dropped_full: u64,
    /// Datagrams that the kernel refused, for their address or size.
    pub dropped_refused: u64,
}

/// Hands runs to the kernel. Serves any number of sockets in turn.
#[derive(Default)]
pub struct SendQueue {
    batch: SendBatch,
    stats: SendStats,
    refusals_in_row: u32,
    /// The last flush ended with drops, so the next does not wait again before something went through.
    is_stalled: bool,
    /// Errors that the next calls meet instead of the kernel.
    #[cfg(test)]
    faults: std::collections::VecDeque<i32>,
}

impl SendQueue {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn stats(&self) -> &SendStats {
        &self.stats
    }

    /// Sends all that is queued in `out`, whatever link it names, through `socket`. Everything is sent, or counted as
    /// dropped.
    pub fn send_outbox(&mut self, socket: &UdpSocket, out: &Outbox) {
        self.send_runs(socket, out, out.runs());
    }

    /// Sends `runs`, which are of `out`, through `socket`. Everything is sent, or counted as dropped.
    pub fn send_runs(&mut self, socket: &UdpSocket, out: &Outbox, runs: &[Run]) {
        let mut pieces = Pieces { out, runs, offset: 0, split_first: false, gso: socket.gso() };
        let mut waited = Duration::ZERO;
        let mut retries = 0;
        while !pieces.is_empty() {
            self.stats.calls += 1;
            match self.send(socket, pieces.clone()) {
                Ok(count) => {
                    retries = 0;
                    self.count_sent(pieces.by_ref().take(count));
                }
                Err(error) => match Refusal::of(&error, pieces.first_is_gso()) {
                    Refusal::Interrupted => {}
                    Refusal::Full => {
                        self.stats.would_block += 1;
                        if self.is_stalled || waited >= STALL_MAX {
                            self.is_stalled = true;
                            self.stats.dropped_full += pieces.map(|piece| datagram_count(&piece)).sum::<u64>();
                            return;
                        }
                        waited += wait_for_room(socket, &error, STALL_MAX - waited);
                    }
                    Refusal::TooLong if socket.allow_fragments() => {}
                    Refusal::Gso => {
                        self.stats.gso_refused += 1;
                        pieces.gso = false;
                        socket.lower_gso();
                    }
                    Refusal::GsoHere | Refusal::TooLong if pieces.first_is_gso() => {
                        self.stats.gso_refused += 1;
                        self.refusals_in_row += 1;
                        pieces.split_first = true;
                        if self.refusals_in_row >= REFUSALS_MAX {
                            socket.lower_gso();
                        }
                    }
                    // On a socket that keeps refusals the error may be that of an earlier message.
                    Refusal::Message if socket.send_only && retries < RETRIES_MAX => retries += 1,
                    Refusal::Message | Refusal::TooLong | Refusal::GsoHere => {
                        retries = 0;
                        self.stats.dropped_refused += pieces.next().map_or(0, |piece| datagram_count(&piece));
                    }
                },
            }
        }
    }

    fn send<'a>(&mut self, socket: &UdpSocket, messages: impl Iterator<Item = Outgoing<'a>>) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(errno) = self.faults.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.batch.send(socket.as_fd(), messages)
    }

    fn count_sent<'a>(&mut self, pieces: impl Iterator<Item = Outgoing<'a>>) {
        self.is_stalled = false;
        for piece in pieces {
            self.stats.datagrams += datagram_count(&piece);
            self.stats.bytes += piece.data.len() as u64;
            if piece.segment_bytes.is_some() {
                self.stats.gso_sends += 1;
                self.refusals_in_row = 0;
            }
        }
    }
}

fn datagram_count(piece: &Outgoing<'_>) -> u64 {
    piece.segment_bytes.map_or(1, |bytes| piece.data.len().div_ceil(bytes.into()) as u64)
}

/// Waits for at most `limit` and returns how long it was.
fn wait_for_room(socket: &UdpSocket, error: &io::Error, limit: Duration) -> Duration {
    let start = Instant::now();
    if error.raw_os_error() == Some(libc::ENOBUFS) {
        std::thread::sleep(limit.min(NO_BUFFERS_PAUSE));
    } else {
        // An error here shows again in the next send, where it is handled.
        sys::wait_writable(socket.as_fd(), Some(limit)).ok();
    }
    start.elapsed()
}

/// What a failed send means for the first of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// A signal came: once more.
    Interrupted,
    /// The socket or a queue below it is full: wait a little.
    Full,
    /// This kernel or network card cannot split: never again on this socket.
    Gso,
    /// This message could not be split: send it datagram by datagram.
    GsoHere,
    /// It is longer than its path takes in one piece: the kernel is to make fragments.
    TooLong,
    /// Nothing is to be done for this message; others may well pass.
    Message,
}

impl Refusal {
    fn of(error: &io::Error, is_gso: bool) -> Self {
        match error.raw_os_error() {
            Some(libc::EINTR) => Refusal::Interrupted,
            Some(libc::EAGAIN | libc::ENOBUFS) => Refusal::Full,
            Some(libc::EIO) if is_gso => Refusal::Gso,
            Some(libc::EINVAL) if is_gso => Refusal::GsoHere,
            Some(libc::EMSGSIZE) => Refusal::TooLong,
            _ => Refusal::Message,
        }
    }
}

/// The messages that runs become: one for each run, or one for each datagram where the kernel does not split.
#[derive(Clone)]
struct Pieces<'a> {
    out: &'a Outbox,
    runs: &'a [Run],
    /// Bytes of the first run that are done.
    offset: usize,
    /// The first run goes datagram by datagram.
    split_first: bool,
    gso: bool,
}

impl Pieces<'_> {
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn first_is_gso(&self) -> bool {
        self.clone().next().is_some_and(|piece| piece.segment_bytes.is_some())
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Outgoing<'a>;

    fn next(&mut self) -> Option<Outgoing<'a>> {
        let (run, others) = self.runs.split_first()?;
        let rest = self.out.bytes(run).get(self.offset..)?;
        let as_one = self.gso && !self.split_first && rest.len() > run.segment_size();
        let len = if as_one { rest.len() } else { rest.len().min(run.segment_size()) };
        self.offset += len;
        if self.offset == run.len_bytes() {
            (self.runs, self.offset, self.split_first) = (others, 0, false);
        }
        let segment_bytes = as_one.then_some(run.segment_size() as u16);
        Some(Outgoing { path: &run.path, data: &rest[..len], segment_bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use wire::{LinkId, Path};

    use super::*;

    const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

    fn bind(ip: IpAddr, gso: bool, gro: bool) -> UdpSocket {
        let options = Options { gso, gro, ..Options::default() };
        UdpSocket::bind((ip, 0).into(), &options).expect("loopback can be bound")
    }

    fn path_to(socket: &UdpSocket) -> Path {
        Path { link: LinkId(0), remote: socket.local_addr(), local: None }
    }

    /// Datagrams of the given lengths, each filled with its number.
    fn outbox(path: &Path, lens: &[usize]) -> Outbox {
        let mut out = Outbox::new(1 << 20);
        for (number, len) in lens.iter().enumerate() {
            assert!(out.push(path, &vec![number as u8; *len]));
        }
        out
    }

    /// What arrives until `count` datagrams are there: the number of datagrams in each message, and the datagrams.
    fn receive(socket: &UdpSocket, count: usize) -> (Vec<usize>, Vec<Vec<u8>>) {
        let mut batch = RecvBatch::new(socket.gro());
        let (mut shape, mut found) = (Vec::new(), Vec::new());
        while found.len() < count {
            let readable = sys::wait_readable(socket.as_fd(), Some(Duration::from_secs(5))).expect("poll");
            assert!(readable, "{} of {count} arrived", found.len());
            batch.fill(socket).expect("receive");
            for message in batch.messages() {
                assert!(!message.truncated);
                shape.push(message.datagram_count());
                found.extend(message.into_datagrams(LinkId(0)).map(|datagram| datagram.data.to_vec()));
            }
        }
        (shape, found)
    }

    fn sent(out: &Outbox) -> Vec<Vec<u8>> {
        out.datagrams().map(|(_, bytes)| bytes.to_vec()).collect()
    }

    #[test]
    fn eight_datagrams_for_one_receiver_leave_and_arrive_as_one_message() {
        for ip in LOOPBACKS {
            let (a, b) = (bind(ip, true, true), bind(ip, true, true));
            let out = outbox(&path_to(&b), &[1_200; 8]);
            let mut queue = SendQueue::new();
            queue.send_outbox(&a, &out);

            let expected = SendStats { datagrams: 8, bytes: 9_600, calls: 1, gso_sends: 1, ..SendStats::default() };
            assert_eq!(*queue.stats(), expected);
            assert_eq!(receive(&b, 8), (vec![8], sent(&out)));
        }
    }

    #[test]
    fn the_same_bytes_arrive_with_and_without_gso_and_gro() {
        let lens = [1_200, 1_200, 700, 30, 30, 30, 1_400, 1];
        for ip in LOOPBACKS {
            for (gso, gro) in [(true, true), (true, false), (false, true), (false, false)] {
                let (a, b) = (bind(ip, gso, gro), bind(ip, gso, gro));
                assert_eq!((a.gso(), b.gro()), (gso, gro));
                let out = outbox(&path_to(&b), &lens);
                let mut queue = SendQueue::new();
                queue.send_outbox(&a, &out);

                assert_eq!(receive(&b, lens.len()).1, sent(&out), "{ip}, GSO {gso}, GRO {gro}");
                assert_eq!(queue.stats().gso_sends, if gso { 3 } else { 0 });
            }
        }
    }

    #[test]
    fn many_receivers_are_served_by_few_calls() {
        let (a, b, c) =
            (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        let mut out = Outbox::new(1 << 20);
        for _ in 0..100 {
            for receiver in [&b, &c] {
                out.push(&path_to(receiver), &[5; 100]);
                out.push(&path_to(receiver), &[6; 100]);
            }
        }
        let mut queue = SendQueue::new();
        queue.send_outbox(&a, &out);

        assert_eq!((queue.stats().calls, queue.stats().gso_sends), (2, 200));
        assert_eq!((receive(&b, 200).1.len(), receive(&c, 200).1.len()), (200, 200));
    }

    #[test]
    fn a_kernel_that_refuses_to_split_gets_every_datagram_by_itself() {
        let (a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        sys::refuse_gso(a.as_fd()).expect("option");
        let out = outbox(&path_to(&b), &[500, 500, 200, 900]);
        let mut queue = SendQueue::new();

        queue.send_outbox(&a, &out);
        assert_eq!(receive(&b, 4).1, sent(&out));
        assert_eq!((queue.stats().gso_refused, queue.stats().gso_sends, a.gso()), (1, 0, true));

        for _ in 1..REFUSALS_MAX {
            queue.send_outbox(&a, &out);
            assert_eq!(receive(&b, 4).1, sent(&out));
        }
        assert_eq!((queue.stats().gso_refused, a.gso()), (REFUSALS_MAX.into(), false));
        queue.send_outbox(&a, &out);
        assert_eq!(receive(&b, 4).1, sent(&out));
        assert_eq!(queue.stats().gso_refused, REFUSALS_MAX.into(), "it is not tried any more");
    }

    #[test]
    fn after_eio_a_socket_never_asks_for_a_split_again() {
        let (a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        let out = outbox(&path_to(&b), &[500, 500, 200]);
        let mut queue = SendQueue { faults: [libc::EIO].into(), ..SendQueue::new() };
        queue.send_outbox(&a, &out);

        assert_eq!(receive(&b, 3).1, sent(&out));
        assert_eq!((queue.stats().gso_refused, queue.stats().gso_sends, a.gso()), (1, 0, false));
    }

    #[test]
    fn a_datagram_longer_than_its_path_takes_is_sent_in_fragments_from_then_on() {
        let (a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        let out = outbox(&path_to(&b), &[500, 500, 200]);
        let mut queue = SendQueue { faults: [libc::EMSGSIZE].into(), ..SendQueue::new() };
        assert!(a.whole.load(Ordering::Relaxed));
        queue.send_outbox(&a, &out);
        assert_eq!(receive(&b, 3).1, sent(&out));
        assert_eq!((queue.stats().gso_refused, queue.stats().gso_sends, queue.stats().dropped_refused), (0, 1, 0));
        assert!(!a.whole.load(Ordering::Relaxed));

        // With fragments allowed it is the split that was refused, and at last the datagram.
        queue.faults = [libc::EMSGSIZE, libc::EMSGSIZE].into();
        queue.send_outbox(&a, &out);
        assert_eq!(receive(&b, 2).1, sent(&out)[1..]);
        assert_eq!((queue.stats().gso_refused, queue.stats().dropped_refused), (1, 1));
    }

    #[test]
    fn a_socket_that_is_full_for_a_moment_loses_nothing() {
        let (a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        let out = outbox(&path_to(&b), &[500, 500, 200]);
        let mut queue = SendQueue { faults: [libc::EAGAIN, libc::ENOBUFS, libc::EINTR].into(), ..SendQueue::new() };
        queue.send_outbox(&a, &out);

        assert_eq!(receive(&b, 3).1, sent(&out));
        assert_eq!((queue.stats().would_block, queue.stats().dropped_full), (2, 0));
    }

    #[test]
    fn a_socket_that_stays_full_is_waited_for_once_and_its_drops_are_counted() {
        let (a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        let out = outbox(&path_to(&b), &[500, 500, 200, 900]);
        let mut queue = SendQueue { faults: [libc::ENOBUFS; 100].into(), ..SendQueue::new() };
        queue.send_outbox(&a, &out);
        let calls = queue.stats().calls;
        assert!((2..=12).contains(&calls), "{calls} calls in two milliseconds");
        assert_eq!((queue.stats().dropped_full, queue.stats().datagrams), (4, 0));

        queue.send_outbox(&a, &out);
        assert_eq!((queue.stats().dropped_full, queue.stats().calls), (8, calls + 1));

        queue.faults.clear();
        queue.send_outbox(&a, &out);
        assert_eq!(receive(&b, 4).1, sent(&out));
    }

    #[test]
    fn what_the_kernel_refuses_is_counted_and_the_rest_is_sent() {
        let (a, b) = (bind(LOOPBACKS[0], true, true), bind(LOOPBACKS[0], true, true));
        let nowhere = Path { remote: ([255, 255, 255, 255], 9).into(), ..path_to(&b) };
        let mut out = Outbox::new(1 << 20);
        out.push(&path_to(&b), &[1; 10]);
        out.push(&nowhere, &[2; 10]);
        out.push(&nowhere, &[2; 10]);
        out.push(&path_to(&b), &[3; 10]);
        let mut queue = SendQueue::new();
        queue.send_outbox(&a, &out);

        assert_eq!(receive(&b, 2).1, [[1; 10], [3; 10]]);
        assert_eq!((queue.stats().datagrams, queue.stats().dropped_refused), (2, 2));
    }

    #[test]
    fn on_a_wildcard_address_the_answer_leaves_from_the_address_that_was_asked() {
        // All of 127.0.0.0/8 is ours; without packet info the answer would leave from 127.0.0.1.
        let asked = Ipv4Addr::new(127, 0, 0, 77);
        let (a, b) = (bind(LOOPBACKS[0], true, true), bind(Ipv4Addr::UNSPECIFIED.into(), true, true));
        let question = Path { remote: (asked, b.local_addr().port()).into(), ..path_to(&b) };
        let mut queue = SendQueue::new();
        queue.send_outbox(&a, &outbox(&question, &[10, 10]));

        let paths = paths_of(&b);
        assert_eq!(paths, [Path { link: LinkId(4), remote: a.local_addr(), local: Some(asked.into()) }]);
        queue.send_outbox(&b, &outbox(&paths[0], &[20, 20]));
        assert_eq!(paths_of(&a), [Path { link: LinkId(4), remote: question.remote, local: None }]);
        assert_eq!(queue.stats().gso_sends, 2);
    }

    #[test]
    fn on_an_ipv6_wildcard_address_the_local_address_is_known_and_used() {
        let (a, b) = (bind(LOOPBACKS[1], true, true), bind(Ipv6Addr::UNSPECIFIED.into(), true, true));
        let question = Path { remote: (Ipv6Addr::LOCALHOST, b.local_addr().port()).into(), ..path_to(&b) };
        let mut queue = SendQueue::new();
        queue.send_outbox(&a, &outbox(&question, &[10, 10]));

        let paths = paths_of(&b);
        assert_eq!(paths, [Path { link: LinkId(4), remote: a.local_addr(), local: Some(LOOPBACKS[1]) }]);
        queue.send_outbox(&b, &outbox(&paths[0], &[20, 20]));
        assert_eq!(receive(&a, 2).0, [2]);
    }

    #[test]
    fn both_families_can_have_the_same_port() {
        // Another test may hold just this port in one family, so there are a few attempts.
        let is_shared = (0..10).any(|_| {
            let v6 = bind(Ipv6Addr::UNSPECIFIED.into(), true, true);
            let same = (Ipv4Addr::UNSPECIFIED, v6.local_addr().port());
            UdpSocket::bind(same.into(), &Options::default()).is_ok()
        });
        assert!(is_shared);
    }

    #[test]
    fn a_datagram_longer_than_its_slot_is_marked() {
        let (a, b) = (bind(LOOPBACKS[0], true, false), bind(LOOPBACKS[0], true, false));
        a.socket.send_to(&[7; PLAIN_SLOT_BYTES + 1], b.local_addr()).expect("send");
        let mut batch = RecvBatch::new(false);
        assert!(sys::wait_readable(b.as_fd(), Some(Duration::from_secs(5))).expect("poll"));
        assert_eq!(batch.fill(&b).expect("receive"), 1);
        assert!(batch.messages().all(|message| message.truncated));
    }

    #[test]
    fn the_buffers_that_were_got_are_known() {
        let socket = bind(LOOPBACKS[0], true, true);
        assert!(socket.receive_buffer_bytes() >= 100_000 && socket.send_buffer_bytes() >= 100_000);
    }

    #[test]
    fn each_error_of_a_send_has_its_remedy() {
        let of = |errno, is_gso| Refusal::of(&io::Error::from_raw_os_error(errno), is_gso);
        assert_eq!([of(libc::EIO, true), of(libc::EINVAL, true)], [Refusal::Gso, Refusal::GsoHere]);
        assert_eq!([of(libc::EAGAIN, true), of(libc::ENOBUFS, false)], [Refusal::Full; 2]);
        assert_eq!([of(libc::EMSGSIZE, true), of(libc::EMSGSIZE, false)], [Refusal::TooLong; 2]);
        for errno in [libc::EIO, libc::EINVAL, libc::EPERM, libc::ECONNREFUSED, libc::EHOSTUNREACH] {
            assert_eq!(of(errno, false), Refusal::Message);
        }
        assert_eq!(of(libc::EINTR, true), Refusal::Interrupted);
    }

    fn paths_of(socket: &UdpSocket) -> Vec<Path> {
        let mut batch = RecvBatch::new(socket.gro());
        assert!(sys::wait_readable(socket.as_fd(), Some(Duration::from_secs(5))).expect("poll"));
        batch.fill(socket).expect("receive");
        let mut paths: Vec<_> = batch
            .messages()
            .flat_map(|message| message.into_datagrams(LinkId(4)))
            .map(|datagram| datagram.path)
            .collect();
        paths.dedup();
        paths
    }
}
