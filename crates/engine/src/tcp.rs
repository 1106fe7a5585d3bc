//! Datagrams over TCP: each has its length before it (RFC 4571 §2), as ICE-TCP wants it (RFC 6544 §3).
//!
//! In: connections that a listener accepts, bytes that they bring. Out: the frames in them; the runs of an outbox, framed.
//! Cost: one read per 16 KiB or less, one write per link and flush. A link takes 272 KiB while it is open.
//! Source: RFC 4571 §2 (a 16-bit length in network byte order, then the packet).

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use wire::framing::{Frame, Framing};
use wire::{LinkId, LinkKind, Path, Run};

use crate::CountersSnapshot;
use crate::sys::{self, BufferSide, Epoll, Interest};
use crate::turns::Source;

/// Bytes that a link keeps of what it received. A longer frame ends the link; media and handshakes stay under 2 KiB.
const INBOX_BYTES: usize = 16 * 1_024;

/// Bytes that wait to be written to one link. A datagram that finds no room is dropped: it would come too late.
const BACKLOG_BYTES: usize = 256 * 1_024;

/// The kernel's send buffer for one link. Left alone it grows to megabytes, which are seconds of media.
const KERNEL_BUFFER_BYTES: usize = 128 * 1_024;

/// A link that brings nothing for this long is closed; ICE consent checks come every 5 s (RFC 7675 §5.1).
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A link whose peer acknowledges nothing for this long is closed by the kernel.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// How often silent links are looked for, and listeners that paused are opened again.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Connections accepted from one listener before others get their turn.
const ACCEPTS_MAX: usize = 16;

/// The most links of one worker.
const LINKS_MAX: usize = 1 << 16;

/// How links are divided into datagrams.
const FRAMING: Framing = Framing::Length16;

/// A worker's listeners and open connections.
pub(crate) struct TcpLinks {
    listeners: Vec<TcpListener>,
    /// No descriptors were left; the listeners are not watched until the next sweep.
    is_paused: bool,
    slots: Vec<Slot>,
    /// Slots without a link, the longest idle first.
    free: VecDeque<usize>,
    links_max: usize,
    /// Slots of links that were written to since the last flush.
    touched: Vec<usize>,
    /// Links that the service has not yet been told are gone.
    closed: Vec<LinkId>,
    next_sweep: Option<Instant>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    link: Option<Link>,
}

struct Link {
    stream: TcpStream,
    remote: SocketAddr,
    /// Empty while its frames are being handled.
    inbox: Inbox,
    backlog: VecDeque<u8>,
    /// It is in `touched`.
    is_touched: bool,
    /// The kernel had no room, and tells when it has.
    waits_for_room: bool,
    heard: Instant,
}

impl TcpLinks {
    pub(crate) fn new(listeners: Vec<TcpListener>, links_max: usize) -> Self {
        let links_max = links_max.min(LINKS_MAX);
        TcpLinks {
            listeners,
            is_paused: false,
            slots: Vec::new(),
            free: VecDeque::new(),
            links_max,
            touched: Vec::new(),
            closed: Vec::new(),
            next_sweep: None,
        }
    }

    /// Has the listeners watched.
    pub(crate) fn register(&self, epoll: &Epoll) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            epoll.add(listener.as_fd(), Source::Listener(index).token(), Interest::Read)?;
        }
        Ok(())
    }

    /// Accepts what waits at one listener.
    pub(crate) fn accept(&mut self, now: Instant, index: usize, epoll: &Epoll, counts: &mut CountersSnapshot) {
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.listeners.get(index) else { return };
            match listener.accept() {
                Ok((stream, remote)) => {
                    if self.open(now, stream, remote, epoll).is_ok() {
                        counts.tcp_accepted += 1;
                        counts.tcp_links += 1;
                    } else {
                        counts.tcp_refused += 1;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Out of descriptors or memory. The connection stays in the queue, and would wake us again at once.
                Err(error) if is_shortage(&error) => {
                    counts.tcp_refused += 1;
                    return self.pause(now, epoll);
                }
                // That connection failed before it was accepted; the next may be well.
                Err(_) => {}
            }
        }
    }

    /// Leaves the listeners alone until the next sweep.
    fn pause(&mut self, now: Instant, epoll: &Epoll) {
        self.is_paused = true;
        self.next_sweep.get_or_insert(now + SWEEP_INTERVAL);
        self.watch_listeners(epoll, Interest::Nothing);
    }

    fn open(&mut self, now: Instant, stream: TcpStream, remote: SocketAddr, epoll: &Epoll) -> io::Result<()> {
        if self.slots.len() - self.free.len() >= self.links_max {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sys::set_tcp_user_timeout(stream.as_fd(), UNACKNOWLEDGED_MAX)?;
        sys::set_buffer_bytes(stream.as_fd(), BufferSide::Send, KERNEL_BUFFER_BYTES)?;
        let index = self.free.pop_front().unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let id = self.id(index);
        if let Err(error) = epoll.add(stream.as_fd(), Source::Link(id).token(), Interest::Read) {
            self.free.push_back(index);
            return Err(error);
        }
        self.slots[index].link = Some(Link {
            stream,
            remote,
            inbox: Inbox { buf: vec![0; INBOX_BYTES].into(), start: 0, end: 0 },
            backlog: VecDeque::with_capacity(BACKLOG_BYTES),
            is_touched: false,
            waits_for_room: false,
            heard: now,
        });
        self.next_sweep.get_or_insert(now + SWEEP_INTERVAL);
        Ok(())
    }

    /// Reads once from a link, and lends what it has received so far; `end_read` takes it back. `None` when there is
    /// nothing new.
    pub(crate) fn begin_read(&mut self, now: Instant, id: LinkId) -> Option<(Path, Inbox)> {
        let index = self.index(id)?;
        let link = self.slots[index].link.as_mut()?;
        match link.inbox.fill(&mut link.stream) {
            Ok(0) => self.close(index),
            Ok(_) => {
                link.heard = now;
                let path = Path { link: id, remote: link.remote, local: None };
                return Some((path, std::mem::take(&mut link.inbox)));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.close(index),
        }
        None
    }

    /// Takes back what `begin_read` lent. A frame that can never be whole ends the link.
    pub(crate) fn end_read(&mut self, id: LinkId, inbox: Inbox, counts: &mut CountersSnapshot) {
        let Some(index) = self.index(id) else { return };
        if inbox.is_hopeless() {
            counts.tcp_frame_errors += 1;
            self.close(index);
        } else if let Some(link) = &mut self.slots[index].link {
            link.inbox = inbox;
        }
    }

    /// Queues the datagrams of one run, `bytes`, each as a frame.
    pub(crate) fn send(&mut self, run: &Run, bytes: &[u8], counts: &mut CountersSnapshot) {
        let index = self.index(run.path.link);
        let Some((index, link)) = index.and_then(|index| Some((index, self.slots[index].link.as_mut()?))) else {
            counts.dropped_no_link += run.segment_count() as u64;
            return;
        };
        for datagram in bytes.chunks(run.segment_size()) {
            let room = BACKLOG_BYTES - link.backlog.len();
            let wrapping = FRAMING.wrap(datagram.len());
            let Some(wrapping) = wrapping.filter(|it| it.header().len() + datagram.len() <= room) else {
                counts.dropped_tcp_full += 1;
                continue;
            };
            link.backlog.extend(wrapping.header());
            link.backlog.extend(datagram);
            counts.tcp_datagrams_out += 1;
            counts.tcp_bytes_out += datagram.len() as u64;
        }
        if !link.is_touched {
            link.is_touched = true;
            self.touched.push(index);
        }
    }

    /// Writes what was queued on every link since the last flush.
    pub(crate) fn flush(&mut self, epoll: &Epoll) {
        while let Some(index) = self.touched.pop() {
            let Some(link) = &mut self.slots[index].link else { continue };
            link.is_touched = false;
            if !link.waits_for_room {
                self.write(index, epoll);
            }
        }
    }

    /// The kernel has room for a link again.
    pub(crate) fn handle_writable(&mut self, id: LinkId, epoll: &Epoll) {
        if let Some(index) = self.index(id) {
            self.write(index, epoll);
        }
    }

    /// When `sweep` next has work.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        self.next_sweep
    }

    /// Closes silent links, and opens paused listeners again.
    pub(crate) fn sweep(&mut self, now: Instant, epoll: &Epoll) {
        if self.next_sweep.is_none_or(|at| now < at) {
            return;
        }
        for index in 0..self.slots.len() {
            let link = self.slots[index].link.as_ref();
            if link.is_some_and(|link| now.saturating_duration_since(link.heard) >= SILENCE_MAX) {
                self.close(index);
            }
        }
        if std::mem::take(&mut self.is_paused) {
            self.watch_listeners(epoll, Interest::Read);
        }
        let has_links = self.slots.len() > self.free.len();
        self.next_sweep = has_links.then_some(now + SWEEP_INTERVAL);
    }

    /// A link that is gone, if the service has not been told yet.
    pub(crate) fn poll_closed(&mut self, counts: &mut CountersSnapshot) -> Option<LinkId> {
        let id = self.closed.pop()?;
        counts.tcp_closed += 1;
        counts.tcp_links -= 1;
        Some(id)
    }

    fn write(&mut self, index: usize, epoll: &Epoll) {
        let id = self.id(index);
        let Some(link) = &mut self.slots[index].link else { return };
        let written = link.write_backlog();
        let must_wait = !link.backlog.is_empty();
        if must_wait != link.waits_for_room {
            link.waits_for_room = must_wait;
            let interest = if must_wait { Interest::ReadWrite } else { Interest::Read };
            if epoll.modify(link.stream.as_fd(), Source::Link(id).token(), interest).is_err() {
                self.close(index);
                return;
            }
        }
        if written.is_err() {
            self.close(index);
        }
    }

    fn close(&mut self, index: usize) {
        let id = self.id(index);
        let slot = &mut self.slots[index];
        // Closing the descriptor also takes it out of the epoll set.
        if slot.link.take().is_some() {
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push_back(index);
            self.closed.push(id);
        }
    }

    fn watch_listeners(&self, epoll: &Epoll, interest: Interest) {
        for (index, listener) in self.listeners.iter().enumerate() {
            if let Err(error) = epoll.modify(listener.as_fd(), Source::Listener(index).token(), interest) {
                tracing::error!(%error, "listener cannot be paused or resumed");
            }
        }
    }

    fn id(&self, index: usize) -> LinkId {
        LinkId::new(LinkKind::Framed, index as u32, self.slots[index].generation)
    }

    /// The slot of an open link; `None` for one that is gone.
    fn index(&self, id: LinkId) -> Option<usize> {
        let index = id.slot();
        let slot = self.slots.get(index)?;
        (slot.link.is_some() && self.id(index) == id).then_some(index)
    }
}

impl Link {
    /// Writes until all is written or the kernel has no room.
    fn write_backlog(&mut self) -> io::Result<()> {
        while !self.backlog.is_empty() {
            let (first, second) = self.backlog.as_slices();
            let slices = [io::IoSlice::new(first), io::IoSlice::new(second)];
            match self.stream.write_vectored(&slices) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.backlog.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// What a link has received and not yet handled.
#[derive(Default)]
pub(crate) struct Inbox {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Reads once, behind what is there. `Ok(0)`: the other side has ended the connection.
    fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        self.buf.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let count = stream.read(&mut self.buf[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// The next whole frame. Empty ones are skipped.
    pub(crate) fn next_frame(&mut self) -> Option<&mut [u8]> {
        while let Frame::Datagram { range, end } = self.first_frame() {
            let (from, to) = (self.start + range.start, self.start + range.end);
            self.start += end;
            if from < to {
                return Some(&mut self.buf[from..to]);
            }
        }
        None
    }

    /// Whether the frame that has begun is longer than the buffer.
    fn is_hopeless(&self) -> bool {
        matches!(self.first_frame(), Frame::TooLong { .. } | Frame::Invalid)
    }

    fn first_frame(&self) -> Frame {
        FRAMING.next_frame(&self.buf[self.start..self.end], self.buf.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut bytes: &[u8], chunk: usize) -> (Vec<Vec<u8>>, Inbox) {
        let mut inbox = Inbox { buf: vec![0; 64].into(), start: 0, end: 0 };
        let mut found = Vec::new();
        while !bytes.is_empty() && !inbox.is_hopeless() {
            let count = inbox.fill(&mut &bytes[..chunk.min(bytes.len())]).expect("a slice can be read");
            bytes = &bytes[count..];
            while let Some(frame) = inbox.next_frame() {
                found.push(frame.to_vec());
            }
        }
        (found, inbox)
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        for len in [1_u16, 0, 62, 7] {
            bytes.extend(len.to_be_bytes());
            bytes.extend(vec![len as u8; len.into()]);
        }
        for chunk in 1..=7 {
            let (found, inbox) = frames(&bytes, chunk);
            assert_eq!(found, [vec![1; 1], vec![62; 62], vec![7; 7]], "in pieces of {chunk}");
            assert!(!inbox.is_hopeless());
        }
    }

    #[test]
    fn a_frame_longer_than_the_buffer_is_hopeless() {
        let (found, inbox) = frames(&[0, 63, 1, 2, 3], 5);
        assert_eq!(found, [[]; 0] as [[u8; 0]; 0]);
        assert!(inbox.is_hopeless());
    }

    #[test]
    fn a_link_that_stays_silent_is_closed_after_30_seconds() {
        let listener = sys::tcp_listener(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound");
        let addr = listener.local_addr().expect("it is bound");
        let mut links = TcpLinks::new(vec![listener], 8);
        let (epoll, mut counts) = (Epoll::new(8).expect("epoll"), CountersSnapshot::default());
        links.register(&epoll).expect("register");
        let start = Instant::now();
        let client = TcpStream::connect(addr).expect("connect");
        links.accept(start, 0, &epoll, &mut counts);
        assert_eq!((counts.tcp_links, links.next_sweep()), (1, Some(start + SWEEP_INTERVAL)));

        links.sweep(start + SILENCE_MAX - Duration::from_millis(1), &epoll);
        assert_eq!(links.poll_closed(&mut counts), None);
        links.sweep(start + SILENCE_MAX * 2, &epoll);
        assert!(links.poll_closed(&mut counts).is_some_and(|link| link.kind() == LinkKind::Framed));
        assert_eq!((counts.tcp_links, counts.tcp_closed, links.next_sweep()), (0, 1, None));
        drop(client);
    }

    #[test]
    fn listeners_that_ran_out_of_descriptors_open_again_at_the_next_sweep() {
        let listener = sys::tcp_listener(&([127, 0, 0, 1], 0).into()).expect("loopback can be bound");
        let addr = listener.local_addr().expect("it is bound");
        let mut links = TcpLinks::new(vec![listener], 8);
        let mut epoll = Epoll::new(8).expect("epoll");
        links.register(&epoll).expect("register");
        let start = Instant::now();
        links.pause(start, &epoll);
        let client = TcpStream::connect(addr).expect("connect");

        epoll.wait(Some(Duration::from_millis(5))).expect("wait");
        assert_eq!(epoll.ready_count(), 0);
        links.sweep(start + SWEEP_INTERVAL, &epoll);
        epoll.wait(Some(Duration::from_secs(10))).expect("wait");
        assert_eq!(epoll.ready_count(), 1);
        drop(client);
    }
}
