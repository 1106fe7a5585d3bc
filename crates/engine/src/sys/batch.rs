//! Many UDP messages per system call: recvmmsg(2) and sendmmsg(2) with their control messages.
//!
//! A message is one datagram, or several of one size between the same two addresses: on the way out the kernel splits
//! it (GSO, `UDP_SEGMENT`), on the way in it has joined them (GRO, `UDP_GRO`).

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use wire::{DatagramRun, Gathered, LinkId, Path, Token};

use super::addr::{RawAddr, in_addr, in6_addr, ipv4, ipv6};
use super::check;
use super::fixed::Fixed;

/// Messages in one send call.
pub const MESSAGES_MAX: usize = 128;

/// Room for all control messages of one message: on receipt the local address (40 bytes with IPv6) and the segment size
/// (24), which a sender names as well, or the local address and what ICMP said of it (32).
pub(super) const CONTROL_BYTES: usize = 96;

/// The kernel wants control messages aligned like their header.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

/// What one header points at.
struct Parts {
    iovec: libc::iovec,
    addr: RawAddr,
    control: Control,
}

/// Headers and their parts, each header pointing at its own parts for as long as both live.
struct Headers {
    headers: Fixed<libc::mmsghdr>,
    parts: Fixed<Parts>,
}

// SAFETY: the raw pointers inside lead to `parts`, which moves along, and (in an iovec) to memory that the owner names
// anew before each call or owns itself.
unsafe impl Send for Headers {}

impl Headers {
    fn new(count: usize) -> Self {
        let parts = Fixed::from_fn(count, |_| Parts {
            iovec: libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 },
            addr: RawAddr::empty(),
            control: Control([0; CONTROL_BYTES]),
        });
        let headers = Fixed::from_fn(count, |index| {
            let parts = parts.ptr(index);
            // SAFETY: a message header is made of integers and raw pointers, for which zero is a value.
            let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
            // SAFETY: `parts` points at a live value; only addresses are taken.
            unsafe {
                header.msg_hdr.msg_name = (&raw mut (*parts).addr).cast();
                header.msg_hdr.msg_iov = &raw mut (*parts).iovec;
                header.msg_hdr.msg_control = (&raw mut (*parts).control).cast();
            }
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        Headers { headers, parts }
    }
}

/// Slots for one batch of received messages.
pub struct RecvBatch {
    headers: Headers,
    payload: Fixed<u8>,
    slot_bytes: usize,
    filled: usize,
}

/// One received message: datagrams of `segment_bytes` each, but for a last one that may be shorter.
#[derive(Debug)]
pub struct Received<'a> {
    /// Who sent it.
    pub remote: SocketAddr,
    /// Our address, on sockets that asked for it.
    pub local: Option<IpAddr>,
    /// Bytes of every datagram but the last.
    pub segment_bytes: NonZeroUsize,
    /// The message was longer than a slot, and its end is lost.
    pub truncated: bool,
    /// Where `data` begins in all that was received (`RecvBatch::received`).
    pub place: usize,
    /// Its payload. It may be changed in place.
    pub data: &'a mut [u8],
}

impl<'a> Received<'a> {
    /// How many datagrams it is; none when it is an empty one.
    pub fn datagram_count(&self) -> usize {
        self.data.len().div_ceil(self.segment_bytes.get())
    }

    /// Up to `count_max` of its datagrams from the one at `first` on, as a run of one link, which is known by `token`.
    pub fn into_run(self, token: Token, link: LinkId, first: usize, count_max: usize) -> DatagramRun<'a> {
        let Received { remote, local, segment_bytes: segment_size, place, data, .. } = self;
        let path = Path { link, remote, local };
        let len_of = |count: usize| segment_size.get().saturating_mul(count);
        let start = len_of(first).min(data.len());
        let data = &mut data[start..];
        let len = len_of(count_max).min(data.len());
        DatagramRun::new(token, path, segment_size, &mut data[..len]).at(place + start)
    }
}

impl RecvBatch {
    /// Room for so many messages in one call, each of up to `slot_bytes`; a longer one is cut off and marked.
    ///
    /// # Panics
    /// When there is no room for anything.
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        assert!(slots > 0 && slot_bytes > 0, "a batch has room");
        let mut headers = Headers::new(slots);
        let payload = Fixed::new(vec![0_u8; slots * slot_bytes].into());
        for index in 0..slots {
            let iov_base = payload.ptr(index * slot_bytes).cast();
            headers.parts.get_mut(index).iovec = libc::iovec { iov_base, iov_len: slot_bytes };
        }
        let mut batch = RecvBatch { headers, payload, slot_bytes, filled: slots };
        batch.clear();
        batch
    }

    /// Lets go of all messages.
    pub fn clear(&mut self) {
        for index in 0..self.filled {
            let header = &mut self.headers.headers.get_mut(index).msg_hdr;
            header.msg_namelen = RawAddr::SIZE;
            header.msg_controllen = CONTROL_BYTES as _;
            header.msg_flags = 0;
        }
        self.filled = 0;
    }

    /// Receives behind the messages that there are, as many as there is room for, and returns how many came. `Ok(0)`: the
    /// socket is drained, or the batch full.
    pub fn fill(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        let (fd, first) = (socket.as_fd().as_raw_fd(), self.filled);
        if self.is_full() {
            return Ok(0);
        }
        let count = (self.headers.headers.len() - first) as libc::c_uint;
        // By `syscall`, as in `SendBatch::send`.
        // SAFETY: `new` pointed every header at its own parts and every iovec at its own slot, each with its length.
        // Those rows never move or shrink, the fields are private, and `&mut self` excludes readers.
        let got = unsafe {
            let (headers, no_timeout) = (self.headers.headers.ptr(first), ptr::null_mut::<libc::timespec>());
            libc::syscall(libc::SYS_recvmmsg, fd, headers, count, libc::MSG_DONTWAIT, no_timeout)
        };
        match check(got as libc::c_int) {
            Ok(got) => self.filled += got as usize,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(self.filled - first)
    }

    /// How many messages there are.
    pub fn message_count(&self) -> usize {
        self.filled
    }

    /// Bytes of some messages together.
    pub fn len_bytes(&self, messages: Range<usize>) -> usize {
        messages.map(|index| self.headers.headers.get(index).msg_len as usize).sum()
    }

    /// Whether every slot is used, so that the last socket may hold more.
    pub fn is_full(&self) -> bool {
        self.filled == self.headers.headers.len()
    }

    /// All slots, one behind the other.
    pub fn received(&self) -> &[u8] {
        self.payload.as_slice()
    }

    /// One message, in the order in which they were received.
    pub fn message(&mut self, index: usize) -> Option<Received<'_>> {
        if index >= self.filled {
            return None;
        }
        let header = self.headers.headers.get(index);
        let remote = self.headers.parts.get(index).addr.read()?;
        let (local, segment_bytes) = read_control(&header.msg_hdr);
        let place = index * self.slot_bytes;
        let len = (header.msg_len as usize).min(self.slot_bytes);
        Some(Received {
            remote,
            local,
            segment_bytes: NonZeroUsize::new(segment_bytes.unwrap_or(len)).unwrap_or(NonZeroUsize::MIN),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            place,
            data: &mut self.payload.as_mut_slice()[place..place + len],
        })
    }
}

/// What the control messages of one received message said: our address, and the size of its datagrams.
fn read_control(header: &libc::msghdr) -> (Option<IpAddr>, Option<usize>) {
    let (mut local, mut segment_bytes) = (None, None);
    for cmsg in control_messages(header) {
        match (cmsg.cmsg_level, cmsg.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let bytes: Option<libc::c_int> = control_value(cmsg);
                segment_bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // `ipi_spec_dst` is our own address even when the datagram was sent to a group.
                let info: Option<libc::in_pktinfo> = control_value(cmsg);
                local = info.map(|info| ipv4(info.ipi_spec_dst).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let info: Option<libc::in6_pktinfo> = control_value(cmsg);
                local = info.map(|info| ipv6(info.ipi6_addr).into());
            }
            _ => {}
        }
    }
    (local, segment_bytes)
}

/// The control messages behind a header of our own that the kernel filled.
pub(super) fn control_messages(header: &libc::msghdr) -> impl Iterator<Item = &libc::cmsghdr> {
    // SAFETY: `header` is one of our own, so its control pointer and length describe bytes that the kernel filled and that
    // live as long; the macros walk only inside of them.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    std::iter::from_fn(move || {
        // SAFETY: as above; a pointer that is not null is a whole control message header.
        let cmsg = unsafe { next.as_ref() }?;
        // SAFETY: `cmsg` came from the same header.
        next = unsafe { libc::CMSG_NXTHDR(header, cmsg) };
        Some(cmsg)
    })
}

/// The value behind a control message's header; `None` when the message is too short for one. `T` is what the kernel
/// writes for this kind: integers only.
pub(super) fn control_value<T: Copy>(cmsg: &libc::cmsghdr) -> Option<T> {
    // SAFETY: it only computes with sizes.
    let needed = unsafe { libc::CMSG_LEN(size_of::<T>() as libc::c_uint) } as usize;
    if cmsg.cmsg_len < needed {
        return None;
    }
    // SAFETY: the value lies behind the header, inside of the length that was just checked, and any bits are a value.
    Some(unsafe { libc::CMSG_DATA(cmsg).cast::<T>().read_unaligned() })
}

/// One message to send: `data` as one datagram, or as several of `segment_bytes` each.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where to, and from which address of ours.
    pub path: &'a Path,
    /// All of it.
    pub data: Payload<'a>,
    /// Bytes of every datagram but the last, which may be shorter.
    pub segment_bytes: Option<u16>,
}

/// Where the bytes of a message lie.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// In one place.
    Whole(&'a [u8]),
    /// Some datagrams of a run whose bytes are gathered.
    Gathered {
        /// The run.
        run: Gathered<'a>,
        /// The first of them.
        first: usize,
        /// How many.
        count: usize,
        /// Bytes in all.
        len: usize,
    },
}

impl Outgoing<'_> {
    /// Bytes in all.
    pub fn len_bytes(&self) -> usize {
        match self.data {
            Payload::Whole(bytes) => bytes.len(),
            Payload::Gathered { len, .. } => len,
        }
    }

    /// How many datagrams it is.
    pub fn datagram_count(&self) -> usize {
        match (self.data, self.segment_bytes) {
            (_, None) => 1,
            (Payload::Whole(bytes), Some(segment)) => bytes.len().div_ceil(segment.into()),
            (Payload::Gathered { count, .. }, Some(_)) => count,
        }
    }

    /// Pieces of memory that it is made of, at most.
    fn slices_max(&self) -> usize {
        match self.data {
            Payload::Whole(_) => 1,
            Payload::Gathered { count, .. } => 2 * count,
        }
    }
}

/// Pieces of memory in one send call: one for each of the most messages, and room for several whose bytes are gathered,
/// which have up to 128 each.
const SLICES_MAX: usize = 1_024;

/// Room for the headers of one batch of messages to send. It holds no payload.
pub struct SendBatch {
    headers: Headers,
    slices: Slices,
}

/// What the messages of one call are made of.
struct Slices(Fixed<libc::iovec>);

// SAFETY: the raw pointers inside are written anew before each call, and lead nowhere else.
unsafe impl Send for Slices {}

impl Default for SendBatch {
    fn default() -> Self {
        let slices = Fixed::from_fn(SLICES_MAX, |_| libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 });
        SendBatch { headers: Headers::new(MESSAGES_MAX), slices: Slices(slices) }
    }
}

impl SendBatch {
    /// Sends the first of `messages`, at most `MESSAGES_MAX`, in one call. Returns how many the kernel took; an error
    /// is that of the first.
    pub fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        messages: impl Iterator<Item = Outgoing<'a>>,
    ) -> io::Result<usize> {
        let (mut count, mut slices) = (0, 0);
        for message in messages.take(MESSAGES_MAX) {
            if slices + message.slices_max() > SLICES_MAX {
                break;
            }
            slices = self.write_slices(count, slices, &message);
            self.write_header(count, &message);
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
        // By `syscall`: glibc's own calls ask before and after whether the thread is to be cancelled, which is two atomic
        // exchanges where there are several threads.
        if let Some(header) = self.one_plain(count) {
            // SAFETY: as below; one message of one slice, without control messages, is all that `sendto` has to know.
            let sent = unsafe {
                let iovec = *header.msg_iov;
                let (name, name_len) = (header.msg_name, header.msg_namelen);
                libc::syscall(libc::SYS_sendto, fd, iovec.iov_base, iovec.iov_len, flags, name, name_len)
            };
            return check(sent as libc::c_int).map(|_| 1);
        }
        // SAFETY: headers up to `count` were just written: they point at their own parts and at slices of their own, neither
        // of which ever moves, and these at payload that is borrowed for `'a`, which outlives this call. The kernel only
        // reads.
        let sent = unsafe { libc::syscall(libc::SYS_sendmmsg, fd, self.headers.headers.ptr(0), count, flags) };
        check(sent as libc::c_int).map(|sent| sent as usize)
    }

    /// The only message, if it is one datagram that lies in one place: the kernel need not read headers for it.
    fn one_plain(&self, count: usize) -> Option<&libc::msghdr> {
        let header = &self.headers.headers.get(0).msg_hdr;
        (count == 1 && header.msg_iovlen == 1 && header.msg_controllen == 0).then_some(header)
    }

    /// Points a message at its payload, by slices from `first` on. Returns the next free one.
    fn write_slices(&mut self, index: usize, first: usize, message: &Outgoing<'_>) -> usize {
        let mut next = first;
        let mut put = |bytes: &[u8]| {
            if !bytes.is_empty() {
                let slice = self.slices.0.get_mut(next);
                *slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                next += 1;
            }
        };
        match message.data {
            Payload::Whole(bytes) => put(bytes),
            Payload::Gathered { run, first, count, .. } => {
                (first..first + count).flat_map(|index| run.datagram(index)).for_each(put);
            }
        }
        let header = &mut self.headers.headers.get_mut(index).msg_hdr;
        (header.msg_iov, header.msg_iovlen) = (self.slices.0.ptr(first.min(SLICES_MAX - 1)), (next - first) as _);
        next
    }

    fn write_header(&mut self, index: usize, message: &Outgoing<'_>) {
        let parts = self.headers.parts.get_mut(index);
        let name_len = parts.addr.set(&message.path.remote);
        let mut control = ControlWriter { control: &mut parts.control, used: 0 };
        match (message.path.local, message.path.remote) {
            (Some(IpAddr::V4(local)), SocketAddr::V4(_)) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: in_addr(local),
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                control.put(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            (Some(IpAddr::V6(local)), SocketAddr::V6(_)) => {
                let info = libc::in6_pktinfo { ipi6_addr: in6_addr(local), ipi6_ifindex: 0 };
                control.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
            _ => {}
        }
        if let Some(segment_bytes) = message.segment_bytes {
            control.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment_bytes);
        }
        let control_len = control.used;
        let header = &mut self.headers.headers.get_mut(index).msg_hdr;
        (header.msg_namelen, header.msg_controllen) = (name_len, control_len as _);
    }
}

/// Writes control messages one behind the other.
struct ControlWriter<'a> {
    control: &'a mut Control,
    used: usize,
}

impl ControlWriter<'_> {
    fn put<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let size = size_of::<T>() as libc::c_uint;
        // SAFETY: both only compute with sizes.
        let (len, space) = unsafe { (libc::CMSG_LEN(size) as usize, libc::CMSG_SPACE(size) as usize) };
        assert!(self.used + space <= CONTROL_BYTES, "room for every control message that a sender names");
        // SAFETY: a header is made of integers, for which zero is a value.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        (header.cmsg_len, header.cmsg_level, header.cmsg_type) = (len as _, level, kind);
        // SAFETY: the assertion leaves `space` bytes from `used` on; the value lies behind the header, inside of them.
        unsafe {
            let start = self.control.0.as_mut_ptr().add(self.used);
            start.cast::<libc::cmsghdr>().write_unaligned(header);
            start.add(len - size_of::<T>()).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }
}
