//! A worker's links of every kind: one table, and an epoll set of which that of the TCP links is a part.
//!
//! In: what products ask for (`LinkRequest`) and write (`Outbox`), what the kernel reports. Out: what they hear of it
//! (`LinkEvent`), and what was counted.
//! Cost: a link is found by an index and a comparison. An idle connection takes less than a kilobyte, and so does a UDP
//! socket; what they keep beyond comes from a common pool (`buffers`).
//!
//! News is queued, and told before the next call of the service.

mod buffers;
mod connections;
mod listener;
mod open;
mod patient;
mod rest;
mod sealed;
mod strangers;
mod stream;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod udp;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use wire::framing::Framing;
use wire::{CloseReason, LinkEvent, LinkId, LinkKind, Outbox, Piece, RECORD_MAX, Run, RunBytes, Token};

use self::buffers::Buffers;
use self::connections::Connections;
use self::listener::Accepted;
pub(crate) use self::listener::Listener;
pub(crate) use self::patient::{Found, PatientSockets};
use self::sealed::Sealer;
use self::stream::{Got, Stream};
use self::table::Table;
use crate::CountersSnapshot;
use crate::sys::{self, Epoll, FileSender, Interest, KernelTls};
use crate::udp::{SendQueue, UdpSocket};

/// Connections accepted from one listener before others get their turn.
const ACCEPTS_MAX: usize = 16;

/// How often links that are overdue are looked for, and listeners that paused are opened again.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Slots looked at for overdue links before everything else gets its turn, and the pause before the next ones are: a relay has
/// a socket for each client.
const SWEEP_SLOTS: usize = 256;
const SWEEP_PAUSE: Duration = Duration::from_millis(1);

/// UDP sockets asked for what they dropped before everything else gets its turn, and the pause before the next ones are.
const DROPS_MAX: usize = 64;
const DROPS_PAUSE: Duration = Duration::from_millis(1);

/// Overdue links closed before everything else gets its turn.
const CLOSES_MAX: usize = 64;

/// Descriptors that one wait reports; others that are ready are reported by the next.
pub(crate) const EVENTS_MAX: usize = 256;

/// What stands for all TCP links in the worker's epoll set. Links have their numbers there, of which none is as large.
pub(crate) const CONNECTIONS: u64 = u64::MAX - 1;

/// Bytes of a connection's backlog that are for others than relayed datagrams, or an eighth of a small one: who is sent more
/// than it reads still gets answers to what it asks.
const SPARE_BYTES: usize = 4 * 1_024;

/// Bytes of one read from a connection.
const READ_MAX: usize = 16 * 1_024;

/// The longest frame that a connection may have: a length of 16 bits, and a header.
const FRAME_MAX: usize = (1 << 16) + 20;

/// Room for what one read brings, behind the longest beginning of a frame, and of a record under a cipher.
pub(crate) const READ_BUFFER_BYTES: usize = FRAME_MAX + RECORD_MAX + READ_MAX;

/// All links of one worker.
pub(crate) struct Links {
    /// UDP sockets, the mailbox, and one entry for all TCP links.
    pub(crate) epoll: Epoll,
    pub(crate) connections: Connections,
    pub(crate) patient: PatientSockets,
    /// What the worker counts.
    pub(crate) counts: CountersSnapshot,
    table: Table<Link>,
    queue: SendQueue,
    buffers: Buffers,
    files: FileSender,
    /// Framed links that were written to since the last flush.
    touched: Vec<LinkId>,
    /// What products have not heard yet.
    news: VecDeque<(Token, LinkEvent<'static>)>,
    /// Listeners that are left alone until the next sweep, as no descriptors were left.
    paused: Vec<LinkId>,
    /// Links that are not to stay as they are for ever.
    impatient: usize,
    /// What the kernel seals in place of the worker.
    kernel_tls: KernelTls,
    /// Open files that the process may have.
    files_max: u64,
    next_sweep: Option<Instant>,
    /// Slots that the present round of `sweep` has looked at.
    swept: usize,
    /// UDP sockets that have received much at once since they were asked for what they dropped; no others can have dropped
    /// anything. Each that is open stands there once.
    received: VecDeque<LinkId>,
    /// When to ask them.
    next_drops: Option<Instant>,
}

struct Link {
    token: Token,
    body: Body,
}

/// What is behind a link.
pub(crate) enum Body {
    Udp(UdpSocket),
    Listener(Listener),
    Stream(Stream),
}

/// What a connection has brought, and how it is to be read.
pub(crate) struct Read {
    pub(crate) token: Token,
    pub(crate) remote: SocketAddr,
    /// `None`: it is a byte stream.
    pub(crate) framing: Option<Framing>,
    pub(crate) frame_max: usize,
    /// Bytes in the buffer.
    pub(crate) len: usize,
    /// There may be more.
    pub(crate) is_full: bool,
}

impl Links {
    pub(crate) fn new() -> io::Result<Self> {
        let (epoll, connections) = (Epoll::new(EVENTS_MAX)?, Connections::new()?);
        epoll.add(connections.epoll.as_fd(), CONNECTIONS, Interest::READ)?;
        Ok(Links {
            epoll,
            connections,
            patient: PatientSockets::default(),
            counts: CountersSnapshot::default(),
            table: Table::new(),
            queue: SendQueue::default(),
            buffers: Buffers::default(),
            files: FileSender::default(),
            touched: Vec::new(),
            news: VecDeque::new(),
            paused: Vec::new(),
            impatient: 0,
            kernel_tls: KernelTls::found().unwrap_or(KernelTls::NONE),
            files_max: sys::open_files_max()?,
            next_sweep: None,
            swept: 0,
            received: VecDeque::new(),
            next_drops: None,
        })
    }

    /// A UDP socket, and what those who asked for it call it.
    #[inline]
    pub(crate) fn udp(&mut self, id: LinkId) -> Option<(Token, &mut UdpSocket)> {
        match self.table.get_mut(id)? {
            Link { token, body: Body::Udp(socket) } => Some((*token, socket)),
            _ => None,
        }
    }

    /// The oldest of what products have not heard yet. It is to be told at once: who hears of room may write again.
    pub(crate) fn poll_news(&mut self) -> Option<(Token, LinkEvent<'static>)> {
        let news = self.news.pop_front();
        if let Some((_, LinkEvent::Writable { link })) = news
            && let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(link)
        {
            stream.end_announcement();
        }
        news
    }

    /// Whether there is something that products have not heard yet.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Whether a connection is there, and nobody has closed it.
    pub(crate) fn is_open(&self, id: LinkId) -> bool {
        matches!(self.table.get(id), Some(Link { body: Body::Stream(stream), .. }) if stream.is_open())
    }

    /// Accepts what waits at one listener, bounded. Returns how many connections that were, those that are turned away too.
    pub(crate) fn accept(&mut self, now: Instant, id: LinkId) -> usize {
        for accepted in 0..ACCEPTS_MAX {
            let Some(Link { token, body: Body::Listener(listener) }) = self.table.get(id) else { return accepted };
            match listener.accept() {
                Accepted::Connection(socket, remote, options) => {
                    let token = *token;
                    if !self.has_place(id, remote) {
                        self.counts.tcp_refused += 1;
                        continue;
                    }
                    let stream = Stream::new(now, socket, remote, options, Some(id));
                    if stream.and_then(|stream| self.open(now, token, Body::Stream(stream))).is_ok() {
                        self.counts.tcp_accepted += 1;
                    } else {
                        self.counts.tcp_refused += 1;
                    }
                }
                Accepted::Aborted => {}
                Accepted::Nobody => return accepted,
                Accepted::Trouble(error) => {
                    self.counts.tcp_refused += 1;
                    tracing::warn!(%error, listener = %listener.local_addr(), "newcomers wait");
                    self.pause(now, id);
                    return accepted;
                }
            }
        }
        ACCEPTS_MAX
    }

    /// Whether a listener may have one more connection, from there. The stranger who has come first of the same source, where
    /// that has enough, or else of all, makes room if that is what it takes.
    fn has_place(&mut self, id: LinkId, remote: SocketAddr) -> bool {
        let source = Some(remote.ip());
        // Each time, so that neither queue grows by those who are strangers no more.
        let (oldest_of_source, oldest) = (self.oldest_stranger(id, source), self.oldest_stranger(id, None));
        let Some(listener) = self.listener_mut(id) else { return false };
        let makes_room = match (listener.has_enough_of(remote.ip()), listener.is_full()) {
            (true, _) => oldest_of_source,
            (false, true) => oldest,
            (false, false) => return true,
        };
        if let Some(link) = makes_room {
            self.close(link, CloseReason::Stranger);
        }
        makes_room.is_some()
    }

    /// The stranger who came to a listener first, of all or of one source.
    fn oldest_stranger(&mut self, listener: LinkId, of: Option<IpAddr>) -> Option<LinkId> {
        loop {
            let oldest = self.listener_mut(listener)?.strangers.oldest(of)?;
            if matches!(self.table.get(oldest), Some(Link { body: Body::Stream(stream), .. }) if stream.is_stranger) {
                return Some(oldest);
            }
            self.listener_mut(listener)?.strangers.pass_over_oldest(of);
        }
    }

    fn listener_mut(&mut self, id: LinkId) -> Option<&mut Listener> {
        match self.table.get_mut(id) {
            Some(Link { body: Body::Listener(listener), .. }) => Some(listener),
            _ => None,
        }
    }

    /// A connection of this listener, from there, is no stranger any more.
    fn settle_stranger(&mut self, listener: Option<LinkId>, remote: SocketAddr) {
        debug_assert!(self.counts.tcp_strangers > 0, "it was counted");
        self.counts.tcp_strangers -= 1;
        if let Some(listener) = listener.and_then(|id| self.listener_mut(id)) {
            listener.strangers.settle(remote.ip());
        }
    }

    /// Leaves a listener alone until the next sweep.
    fn pause(&mut self, now: Instant, id: LinkId) {
        self.paused.push(id);
        self.next_sweep.get_or_insert(now + SWEEP_INTERVAL);
        self.watch(id, Interest::NOTHING);
    }

    /// Reads from a connection into `buffer`. `None` when there is nothing new, or what came does not end a frame.
    pub(crate) fn read(&mut self, now: Instant, id: LinkId, buffer: &mut [u8]) -> Option<Read> {
        let Link { token, body: Body::Stream(stream) } = self.table.get_mut(id)? else { return None };
        if stream.is_connecting() {
            return None;
        }
        if stream.is_paused {
            // It was ready before it was paused, or it is broken, which the kernel would tell for ever.
            if sys::is_broken(stream.as_fd()) {
                self.close(id, CloseReason::Failed);
            }
            return None;
        }
        let is_closing = stream.is_closing();
        let got = stream.read(now, buffer, READ_MAX, &mut self.buffers);
        let (has_answer, framing) = (stream.has_backlog() && !stream.interest.write, stream.options.framing);
        match got {
            Got::Bytes { .. } if is_closing => {}
            Got::Bytes { len, is_full } => {
                let (remote, frame_max) = (stream.remote, stream.frame_max.min(FRAME_MAX));
                let read = Read { token: *token, remote, framing, frame_max, len, is_full };
                // What the cipher has to say by itself.
                if has_answer {
                    self.watch_as_wanted(id);
                }
                return Some(read);
            }
            Got::Nothing if has_answer => self.watch_as_wanted(id),
            Got::Nothing => {}
            Got::End if is_closing && stream.is_all_out() => self.close(id, CloseReason::Asked),
            // Who only reads on still gets what is written for it.
            Got::End if (is_closing || stream.kind() == LinkKind::Stream) && !stream.has_input_ended => {
                stream.has_input_ended = true;
                if !is_closing {
                    self.news.push_back((*token, LinkEvent::InputEnded { link: id }));
                }
                self.watch_as_wanted(id);
            }
            Got::End => self.close(id, CloseReason::Ended),
            Got::Failure => self.close(id, CloseReason::Failed),
        }
        None
    }

    /// Has a connection's turn come again where it has something left that the kernel knows nothing of.
    pub(crate) fn come_back_to(&mut self, id: LinkId) {
        if let Some(Link { body: Body::Stream(stream), .. }) = self.table.get(id)
            && stream.has_unread()
        {
            self.connections.come_back_to(id);
        }
    }

    /// Keeps what was read and is no whole frame, until as many bytes as it has are there.
    pub(crate) fn keep(&mut self, id: LinkId, rest: &[u8], frame_len: usize) {
        if let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id) {
            stream.keep(rest, frame_len, &mut self.buffers);
        }
    }

    /// Sends the datagrams of runs, all by one link: those of a framed one are queued, each as a frame.
    fn send_runs(&mut self, id: LinkId, (out, received): (&Outbox, &[u8]), runs: &[Run]) {
        let stream = match self.table.get_mut(id).map(|link| &mut link.body) {
            Some(Body::Udp(socket)) => {
                return self.queue.send_runs(socket, (out, received), runs, &mut self.counts);
            }
            Some(Body::Stream(stream)) if stream.is_open() => stream,
            _ => return self.counts.dropped_no_link += runs.iter().map(|run| run.segment_count() as u64).sum::<u64>(),
        };
        // Datagrams have no place in a byte stream.
        let Some(framing) = stream.options.framing else { return };
        for run in runs {
            let bytes = out.run_bytes(run, received);
            // What was received and goes on as it is leaves room for what answers.
            let is_relayed = matches!(bytes, RunBytes::Gathered(_));
            let backlog_max = stream.options.backlog_max;
            let spare = if is_relayed { SPARE_BYTES.min(backlog_max / 8) } else { 0 };
            for index in 0..run.segment_count() {
                let parts = bytes.datagram(run, index);
                if stream.queue_frame(framing, parts, backlog_max - spare, &mut self.buffers) {
                    self.counts.tcp_datagrams_out += 1;
                    self.counts.tcp_bytes_out += parts.map(<[u8]>::len).iter().sum::<usize>() as u64;
                } else {
                    self.counts.dropped_tcp_full += 1;
                }
            }
        }
        if !std::mem::replace(&mut stream.is_touched, true) {
            self.touched.push(id);
        }
        let (listener, remote) = (stream.listener, stream.remote);
        if stream.answer() {
            self.settle_stranger(listener, remote);
        }
    }

    /// Hands all datagrams and pieces of an outbox to the kernel, row by row of what leaves by the same link. `received` is what
    /// is being handled.
    pub(crate) fn send(&mut self, out: &Outbox, received: &[u8]) {
        self.queue.begin_flush();
        for runs in out.runs().chunk_by(|one, next| one.path.link == next.path.link) {
            let [first, ..] = runs else { continue };
            self.send_runs(first.path.link, (out, received), runs);
        }
        self.flush_frames();
        self.send_pieces(out);
    }

    /// Writes the frames that were queued since the last flush.
    fn flush_frames(&mut self) {
        while let Some(id) = self.touched.pop() {
            let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id) else { continue };
            stream.is_touched = false;
            if !stream.is_sound() {
                self.close(id, CloseReason::Failed);
                continue;
            }
            // Who waits for room is told when there is some.
            if !stream.interest.write {
                self.write(id);
            }
        }
    }

    /// Writes the pieces of byte streams, as far as the kernel takes them.
    fn send_pieces(&mut self, out: &Outbox) {
        for pieces in out.pieces().chunk_by(|one, next| one.link == next.link) {
            let [first, ..] = pieces else { continue };
            let id = first.link;
            let (token, stream) = match self.table.get_mut(id) {
                Some(Link { token, body: Body::Stream(stream) }) if stream.is_open() => (token, stream),
                _ => {
                    self.counts.dropped_no_link += pieces.len() as u64;
                    continue;
                }
            };
            let len: usize = pieces.iter().map(Piece::len_bytes).sum();
            let stranger = stream.answer().then_some((stream.listener, stream.remote));
            let (was_unasked, token) = (stream.sealer() == Some(Sealer::Unasked), *token);
            let written = stream.write_pieces((out, pieces), self.kernel_tls, (&mut self.files, &mut self.buffers));
            let has_to_end = stream.has_to_end();
            match stream.sealer().filter(|_| was_unasked) {
                Some(Sealer::Kernel) => self.counts.tls_files_by_kernel += 1,
                Some(Sealer::Worker) => self.counts.tls_files_by_worker += 1,
                Some(Sealer::Unasked) | None => {}
            }
            if let Some((listener, remote)) = stranger {
                self.settle_stranger(listener, remote);
            }
            match written {
                Ok(unsent) => {
                    self.counts.stream_bytes_out += (len - unsent) as u64;
                    if unsent > 0 {
                        // Told first, before the writer is asked for more.
                        self.news.push_front((token, LinkEvent::Unsent { link: id, bytes: unsent }));
                    }
                    if has_to_end {
                        self.close_softly(Instant::now(), id);
                    }
                    self.watch_as_wanted(id);
                }
                Err(error) => {
                    tracing::debug!(%error, link = ?id, "write");
                    self.close(id, CloseReason::Failed);
                }
            }
        }
        if self.files.has_views() {
            self.next_sweep.get_or_insert_with(|| Instant::now() + SWEEP_INTERVAL);
        }
    }

    /// The kernel has room for a connection, or has answered one that was asked for. Returns how many bytes were written.
    pub(crate) fn handle_writable(&mut self, now: Instant, id: LinkId) -> usize {
        match self.table.get(id) {
            Some(Link { body: Body::Stream(stream), .. }) if stream.is_connecting() => {
                self.finish_connecting(now, id);
                0
            }
            Some(_) => self.write(id),
            None => 0,
        }
    }

    /// Writes what waits, and tells who waits for room. Returns how many bytes were written.
    fn write(&mut self, id: LinkId) -> usize {
        let Some(Link { token, body: Body::Stream(stream) }) = self.table.get_mut(id) else { return 0 };
        let Ok(written) = stream.write_backlog(&mut self.buffers) else {
            self.close(id, CloseReason::Failed);
            return 0;
        };
        if stream.is_closing() && !stream.has_backlog() {
            self.end_output(id);
            return written;
        }
        if stream.has_to_end() {
            self.close_softly(Instant::now(), id);
            return written;
        }
        if stream.announces_room() {
            self.news.push_back((*token, LinkEvent::Writable { link: id }));
        }
        self.watch_as_wanted(id);
        written
    }

    /// All that waited on a link that nobody wants has left.
    fn end_output(&mut self, id: LinkId) {
        let Some(Link { body: Body::Stream(stream), .. }) = self.table.get(id) else { return };
        if stream.end_output() {
            self.watch_as_wanted(id);
        } else {
            self.close(id, CloseReason::Asked);
        }
    }

    /// When `sweep` or `count_drops` next has work.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        [self.next_sweep, self.next_drops].into_iter().flatten().min()
    }

    /// Closes links that were silent or closing for too long, bounded, and opens paused listeners again.
    pub(crate) fn sweep(&mut self, now: Instant) {
        if self.next_sweep.is_none_or(|at| now < at) {
            return;
        }
        let mut pause = SWEEP_INTERVAL;
        if self.swept == 0 {
            self.files.forget();
            for id in std::mem::take(&mut self.paused) {
                self.watch(id, Interest::READ);
            }
        }
        if self.impatient > 0 {
            let slots = self.swept..self.swept + SWEEP_SLOTS;
            let overdue = self.table.part_mut(slots.clone()).filter_map(|(id, link)| match &mut link.body {
                Body::Stream(stream) => Some((id, stream.sweep(now)?)),
                Body::Udp(_) | Body::Listener(_) => None,
            });
            let overdue: Vec<_> = overdue.take(CLOSES_MAX).collect();
            if overdue.len() == CLOSES_MAX {
                pause = Duration::ZERO;
            } else if slots.end < self.table.slot_count() {
                (self.swept, pause) = (slots.end, SWEEP_PAUSE);
            } else {
                self.swept = 0;
            }
            for (id, reason) in overdue {
                self.close(id, reason);
            }
        }
        if self.impatient == 0 {
            self.swept = 0;
        }
        self.next_sweep = (self.impatient > 0 || self.files.has_views()).then_some(now + pause);
    }

    /// So many messages were received at once by a UDP socket, of so many bytes: something else may have found no room there.
    pub(crate) fn expect_drops(&mut self, now: Instant, id: LinkId, messages: usize, bytes: usize) {
        let Some(Link { body: Body::Udp(socket), .. }) = self.table.get_mut(id) else { return };
        if socket.may_have_been_full(messages, bytes) && !std::mem::replace(&mut socket.may_have_dropped, true) {
            self.received.push_back(id);
            self.next_drops.get_or_insert(now + SWEEP_INTERVAL);
        }
    }

    /// Counts what found no room in the receive buffers of UDP sockets, a second after much was received. A relay has
    /// thousands of them: they are asked a bounded share at a time.
    pub(crate) fn count_drops(&mut self, now: Instant) {
        if self.next_drops.take_if(|at| *at <= now).is_none() {
            return;
        }
        for _ in 0..DROPS_MAX {
            let Some(id) = self.received.pop_front() else { return };
            if let Some(Link { body: Body::Udp(socket), .. }) = self.table.get_mut(id) {
                socket.may_have_dropped = false;
                self.counts.dropped_receive_full += u64::from(socket.new_drops());
            }
        }
        self.next_drops = (!self.received.is_empty()).then_some(now + DROPS_PAUSE);
    }

    /// Takes a link out, and tells whose it was. Of a connection that is under way nobody knows yet: that one has failed.
    pub(crate) fn close(&mut self, id: LinkId, reason: CloseReason) {
        if reason != CloseReason::Failed
            && let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id)
        {
            stream.say_goodbye(&mut self.buffers);
        }
        let Some((token, remote, is_connecting)) = self.remove(id) else { return };
        if is_connecting {
            let is_late = reason == CloseReason::Silent;
            let error = if is_late { ErrorKind::TimedOut } else { ErrorKind::ConnectionAborted };
            return self.fail(token, error.into());
        }
        self.counts.tcp_strangers_closed += u64::from(reason == CloseReason::Stranger);
        self.news.push_back((token, LinkEvent::Closed { link: id, remote, reason }));
    }

    /// One more reference to a UDP socket or a listener, which stays here.
    pub(crate) fn share(&mut self, id: LinkId) -> io::Result<OwnedFd> {
        let link = self.table.get_mut(id).ok_or(ErrorKind::NotFound)?;
        if let Body::Udp(socket) = &mut link.body {
            socket.share();
        }
        link.body.as_fd().try_clone_to_owned()
    }

    /// Takes a link out. Returns whose it was, the other end of a connection, and whether that was under way.
    fn remove(&mut self, id: LinkId) -> Option<(Token, Option<SocketAddr>, bool)> {
        let Link { token, body } = self.table.remove(id)?;
        // Where somebody else may have the descriptor as well, closing ours would not end the watch.
        if body.is_shared() {
            self.set_of(body.kind()).remove(body.as_fd()).ok();
        }
        let Body::Stream(mut stream) = body else {
            let second = self.patient.take_second_of(id);
            second.and_then(|second| self.remove(second));
            return Some((token, None, false));
        };
        stream.release(&mut self.buffers);
        debug_assert!(
            self.counts.tcp_links > 0 && self.impatient >= usize::from(stream.is_impatient()),
            "it was counted"
        );
        self.impatient -= usize::from(stream.is_impatient());
        self.counts.tcp_links -= 1;
        self.counts.tcp_closed += u64::from(!stream.is_connecting());
        self.counts.tcp_strangers -= u64::from(stream.is_stranger);
        if let Some(listener) = stream.listener.and_then(|id| self.listener_mut(id)) {
            debug_assert!(listener.links > 0, "it was counted");
            listener.links -= 1;
            if stream.options.strangers.is_some() {
                listener.strangers.leave(stream.remote.ip(), stream.is_stranger);
            }
        }
        Some((token, Some(stream.remote), stream.is_connecting()))
    }

    /// What was asked for cannot be had.
    fn fail(&mut self, token: Token, error: io::Error) {
        tracing::debug!(%error, ?token, "a link cannot be opened");
        self.counts.links_failed += 1;
        self.news.push_back((token, LinkEvent::Failed { error }));
    }

    /// Has the kernel tell just what a connection needs to hear.
    fn watch_as_wanted(&mut self, id: LinkId) {
        let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id) else { return };
        let wanted = stream.wanted();
        if wanted == stream.interest {
            return;
        }
        stream.interest = wanted;
        if let Err(error) = self.connections.epoll.modify(stream.as_fd(), id.to_bits(), wanted) {
            tracing::error!(%error, link = ?id, "link cannot be watched");
            self.close(id, CloseReason::Failed);
        }
    }

    /// The epoll set that links of a kind are in.
    fn set_of(&self, kind: LinkKind) -> &Epoll {
        match kind {
            LinkKind::Datagrams => &self.epoll,
            LinkKind::Listener | LinkKind::Framed | LinkKind::Stream => &self.connections.epoll,
        }
    }

    fn watch(&self, id: LinkId, interest: Interest) {
        let Some(link) = self.table.get(id) else { return };
        if let Err(error) = self.set_of(id.kind()).modify(link.body.as_fd(), id.to_bits(), interest) {
            tracing::error!(%error, link = ?id, "listener cannot be paused or resumed");
        }
    }
}

impl Body {
    fn kind(&self) -> LinkKind {
        match self {
            Body::Udp(_) => LinkKind::Datagrams,
            Body::Listener(_) => LinkKind::Listener,
            Body::Stream(stream) => stream.kind(),
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Body::Udp(socket) => Ok(socket.local_addr()),
            Body::Listener(listener) => Ok(listener.local_addr()),
            Body::Stream(stream) => stream.socket().local_addr(),
        }
    }

    /// Whether somebody else may have the descriptor as well.
    fn is_shared(&self) -> bool {
        !matches!(self, Body::Udp(socket) if !socket.is_shared())
    }

    fn interest(&self) -> Interest {
        match self {
            // Errors are reported in any case.
            Body::Udp(socket) if socket.is_send_only() => Interest::NOTHING,
            Body::Udp(_) | Body::Listener(_) => Interest::READ,
            Body::Stream(stream) => stream.interest,
        }
    }
}

impl AsFd for Body {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Body::Udp(socket) => socket.as_fd(),
            Body::Listener(listener) => listener.as_fd(),
            Body::Stream(stream) => stream.as_fd(),
        }
    }
}
