//! What a worker's thread does, turn by turn.
//!
//! In: ready sockets and links, messages, the time. Out: calls of the service, and its outbox handed to the kernel.
//! Cost: a turn is one wait, one receive call per ready socket, one send call per socket and 128 runs; no allocation. What
//! many sockets have is received first, then handled, then sent. Each kind of work gets a bounded share of a turn, so that
//! none starves the others: UDP and messages first, then TCP, of which all connections together have one share.

#[cfg(test)]
mod tests;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wire::framing::Frame;
use wire::{CloseReason, DatagramRun, LinkEvent, LinkId, LinkKind, Outbox, Path};

use crate::counters::Counters;
use crate::egress::Egress;
use crate::links::{CONNECTIONS, EVENTS_MAX, Found, Links, READ_BUFFER_BYTES, Read};
use crate::mailbox::Receiver;
use crate::service::Service;
use crate::sys::{Interest, Ready};
use crate::udp::{RecvBatch, recv_batch};

/// The mailbox's token in the epoll set. Links have their numbers, of which none is as large.
const MAILBOX: u64 = u64::MAX;

/// Batches received from one socket before everything else gets its turn.
const RECEIVE_BATCHES_MAX: usize = 4;

/// Sockets whose messages are received before they are handled. With more the first ones would wait for the last.
const SOURCES_MAX: usize = 32;

/// Reads from one connection before everything else gets its turn.
const LINK_READS_MAX: usize = 4;

/// Bytes read from all connections, and written of what waits for room in them, before everything else gets its turn; and for
/// how many a connection counts with fewer, or that is accepted. What is read or written at once of one is not cut short.
const CONNECTION_BYTES_MAX: usize = 128 * 1_024;
const CONNECTION_BYTES_MIN: usize = 512;

/// Refusals taken from one socket before everything else gets its turn.
const REFUSALS_MAX: usize = 64;

/// Messages taken from the mailbox before everything else gets its turn.
const MESSAGES_MAX: usize = 256;

/// Full outboxes sent before new input gets its turn: about a millisecond of sending datagrams.
const FLUSHES_MAX: usize = 16;

/// For how long they are sent. A full outbox of files takes tens of milliseconds.
const FLUSHING_MAX: Duration = Duration::from_millis(2);

/// The most datagrams that a run is handed over with: as many as the kernel joins.
const RUN_SEGMENTS_MAX: usize = 64;

/// The loop of a worker. Each turn waits for work, then gives a bounded share to each kind of it.
pub(crate) struct Loop<M> {
    batch: RecvBatch,
    /// Whose messages these are, one socket after the other, and where each one's end.
    sources: Vec<(LinkId, usize)>,
    /// What was read from a connection last.
    buffer: Box<[u8]>,
    egress: Egress,
    /// The time that the service last asked for and was late for.
    last_due: Option<Instant>,
    /// See `WorkerConfig`.
    coalesce: Duration,
    /// When the present turn began.
    woke: Instant,
    /// When the last turn began for which datagrams or messages woke the worker that cannot wait.
    heard: Instant,
    /// The turn was such a one, came within `coalesce` of the last, and took all datagrams. Connections wait for nothing: of
    /// what they have, a turn takes a part.
    comes_often: bool,
    receiver: Receiver<M>,
    pub(crate) counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
}

impl<M: Send + 'static> Loop<M> {
    pub(crate) fn new(
        outbox_bytes: usize,
        coalesce: Duration,
        links: Links,
        receiver: Receiver<M>,
        counters: Arc<Counters>,
        is_stopping: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        links.epoll.add(receiver.as_fd(), MAILBOX, Interest::READ)?;
        let egress = Egress { out: Outbox::new(outbox_bytes), links };
        let buffer = vec![0; READ_BUFFER_BYTES].into();
        let (batch, sources) = (recv_batch(true), Vec::with_capacity(SOURCES_MAX));
        let (last_due, woke, comes_often) = (None, Instant::now(), false);
        let heard = woke;
        Ok(Loop {
            batch,
            sources,
            buffer,
            egress,
            last_due,
            coalesce,
            woke,
            heard,
            comes_often,
            receiver,
            counters,
            is_stopping,
        })
    }

    pub(crate) fn run<S: Service<Message = M>>(&mut self, service: &mut S) -> io::Result<()> {
        let mut now = Instant::now();
        let mut has_more = self.transmit(service, now);
        while !self.is_stopping.load(Ordering::Acquire) {
            self.publish();
            self.wait(service, now, has_more)?;
            self.woke = Instant::now();
            has_more = self.turn(service, self.woke)?;
            now = Instant::now();
            self.egress.links.counts.busy += now.duration_since(self.woke);
        }
        self.publish();
        Ok(())
    }

    /// Waits until there is work, or just looks when there is some already.
    fn wait(&mut self, service: &impl Service, now: Instant, has_more: bool) -> io::Result<()> {
        let links = &mut self.egress.links;
        if has_more || links.connections.has_rest() {
            return links.epoll.wait(Some(Duration::ZERO));
        }
        let left = |deadline: Option<Instant>| deadline.map(|deadline| deadline.saturating_duration_since(now));
        let rest = (self.woke + self.coalesce).saturating_duration_since(now);
        let rest = left(service.poll_exact()).map_or(rest, |left| left.min(rest));
        if self.comes_often && !rest.is_zero() && self.receiver.is_empty() {
            thread::sleep(rest);
            links.counts.sleeps += 1;
            return links.epoll.wait(Some(Duration::ZERO));
        }
        let look = links.patient.next_look(now, service.is_awaited(now));
        let deadlines = [service.poll_timeout(), service.poll_wake(), links.next_sweep(), look];
        let left = left(deadlines.into_iter().flatten().min());
        if left.is_some_and(|left| left.is_zero()) {
            return links.epoll.wait(Some(Duration::ZERO));
        }
        if !self.receiver.fall_asleep() {
            return links.epoll.wait(Some(Duration::ZERO));
        }
        links.epoll.wait(left)?;
        self.receiver.wake_up(false);
        links.counts.sleeps += 1;
        Ok(())
    }

    /// Handles what is ready, bounded; true when more is known to wait.
    fn turn<S: Service<Message = M>>(&mut self, service: &mut S, now: Instant) -> io::Result<bool> {
        self.egress.links.counts.turns += 1;
        let mut has_connections = self.egress.links.connections.has_rest();
        let (mut is_called, mut is_drained) = (false, self.egress.links.epoll.ready_count() < EVENTS_MAX);
        for index in 0..self.egress.links.epoll.ready_count() {
            match self.egress.links.epoll.ready(index) {
                Some(Ready { token: MAILBOX, .. }) => {
                    is_called = true;
                    self.receiver.wake_up(true);
                }
                Some(Ready { token: CONNECTIONS, .. }) => has_connections = true,
                Some(Ready { token, failed, .. }) => {
                    let link = LinkId::from_bits(token);
                    if failed {
                        self.take_refusals(service, link);
                    }
                    if !self.egress.links.patient.wake(link) {
                        is_called = true;
                        is_drained &= self.receive(service, now, link) != Found::More;
                    }
                }
                None => break,
            }
        }
        let is_behind = self.look_at_patient(service, now);
        let is_soon = now - self.heard < 2 * self.coalesce;
        self.comes_often = is_called && is_drained && is_soon && !is_behind && !has_connections;
        if is_called {
            self.heard = now;
        }
        let has_received = self.handle_received(service);
        if has_received && (has_connections || !self.receiver.is_empty()) {
            self.transmit(service, now);
        }
        let mut has_more = self.take_messages(service);
        if has_connections {
            has_more |= self.handle_connections(service, now)?;
        }
        let now = Instant::now();
        self.egress.links.sweep(now);
        self.egress.links.count_drops(now);
        Ok(self.transmit(service, now) | has_more | is_behind)
    }

    /// Receives what waits in patient sockets whose time has come; true when there is more.
    fn look_at_patient(&mut self, service: &mut impl Service, now: Instant) -> bool {
        let (mut is_behind, is_awaited) = (false, service.is_awaited(now));
        for index in 0..self.egress.links.patient.len() {
            let Some(link) = self.egress.links.patient.due(now, index, is_awaited) else { continue };
            let found = self.receive(service, now, link);
            self.egress.links.end_look(now, link, found);
            is_behind |= found == Found::More;
        }
        is_behind
    }

    /// Handles listeners and connections that are ready, bounded; true when some of them had no turn.
    fn handle_connections(&mut self, service: &mut impl Service, now: Instant) -> io::Result<bool> {
        self.egress.links.connections.look()?;
        let mut bytes = 0;
        while bytes < CONNECTION_BYTES_MAX
            && let Some(ready) = self.egress.links.connections.next()
        {
            bytes += self.handle_connection(service, now, ready).max(CONNECTION_BYTES_MIN);
        }
        Ok(self.egress.links.connections.has_rest())
    }

    /// Handles what a listener or a connection has. It may be gone since the kernel said so; then there is nothing. Returns
    /// the bytes that were read and written.
    fn handle_connection(&mut self, service: &mut impl Service, now: Instant, ready: Ready) -> usize {
        let links = &mut self.egress.links;
        let link = LinkId::from_bits(ready.token);
        if link.kind() == LinkKind::Listener {
            return links.accept(now, link) * CONNECTION_BYTES_MIN;
        }
        let written = if ready.writable || ready.failed { links.handle_writable(now, link) } else { 0 };
        let read = if ready.readable || ready.failed { self.read_link(service, link) } else { 0 };
        written + read
    }

    /// Receives what one UDP socket has, behind what others had. A batch that is full is handled.
    fn receive(&mut self, service: &mut impl Service, now: Instant, link: LinkId) -> Found {
        let mut found = Found::Nothing;
        for _ in 0..RECEIVE_BATCHES_MAX {
            if !self.egress.prepare(service, now, 1, &[]) {
                return Found::More;
            }
            let Some((_, socket)) = self.egress.links.udp(link) else { return found };
            if socket.is_send_only() {
                return found;
            }
            let (filled, keeps_refusals) = (self.batch.fill(socket), socket.keeps_refusals());
            let counts = &mut self.egress.links.counts;
            counts.receive_calls += 1;
            match filled {
                Ok(0) => return found,
                Ok(_) => self.sources.push((link, self.batch.message_count())),
                // It is what ICMP said, told once, and taken next turn; what was received is still there.
                Err(_) if keeps_refusals => continue,
                Err(error) => {
                    tracing::debug!(%error, "receive");
                    counts.receive_errors += 1;
                    return found;
                }
            }
            let is_drained = !self.batch.is_full();
            found = found.max(if is_drained { Found::Something } else { Found::Much });
            if is_drained && self.sources.len() < SOURCES_MAX {
                return found;
            }
            self.handle_received(service);
            self.transmit(service, now);
            if is_drained {
                return found;
            }
        }
        Found::More
    }

    /// Hands the service what was received; false when that is nothing.
    fn handle_received(&mut self, service: &mut impl Service) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        let (now, mut first) = (Instant::now(), 0);
        for place in 0..self.sources.len() {
            let (link, end) = self.sources[place];
            self.egress.links.expect_drops(now, link, end - first, self.batch.len_bytes(first..end));
            let link = self.egress.links.patient.named(link);
            (first..end).for_each(|index| self.handle_message(service, now, link, index));
            first = end;
        }
        self.sources.clear();
        self.egress.let_go_of(self.batch.received());
        self.batch.clear();
        true
    }

    /// Hands the service one message of a batch, as one run if the outbox has room for as many answers.
    fn handle_message(&mut self, service: &mut impl Service, now: Instant, link: LinkId, index: usize) {
        let count_max = self.egress.out.datagrams_max().min(RUN_SEGMENTS_MAX);
        let mut first = 0;
        loop {
            self.egress.prepare(service, now, count_max, self.batch.received());
            // It may be closed meanwhile.
            let Some((token, _)) = self.egress.links.udp(link) else { return };
            let Some(message) = self.batch.message(index) else { return };
            let (counts, count) = (&mut self.egress.links.counts, message.datagram_count());
            if message.truncated {
                return counts.truncated += 1;
            }
            if first == 0 {
                counts.datagrams_in += count as u64;
                counts.bytes_in += message.data.len() as u64;
                counts.gro_batches += u64::from(count > 1);
            }
            service.handle_run(now, message.into_run(token, link, first, count_max), &mut self.egress.out);
            first += count_max;
            if first >= count {
                return;
            }
        }
    }

    /// Hands the service what ICMP said about destinations of one socket.
    fn take_refusals(&mut self, service: &mut impl Service, link: LinkId) {
        let now = Instant::now();
        for _ in 0..REFUSALS_MAX {
            self.egress.prepare(service, now, 1, &[]);
            let Some((token, socket)) = self.egress.links.udp(link) else { return };
            match socket.next_refusal() {
                // A datagram that was too long for the path is no refusal.
                Ok(Some(refused)) if refused.errno == libc::EMSGSIZE => {
                    socket.hear_too_long(refused.is_local);
                    self.egress.links.counts.icmp_too_long += u64::from(!refused.is_local);
                }
                Ok(Some(refused)) if refused.is_local => {}
                Ok(Some(refused)) => {
                    let counts = &mut self.egress.links.counts;
                    match refused.errno {
                        libc::ECONNREFUSED => counts.icmp_port_unreachable += 1,
                        _ => counts.icmp_unreachable += 1,
                    }
                    let event = LinkEvent::Refused { link, remote: refused.remote };
                    service.handle_link(now, token, event, &mut self.egress.out);
                }
                Ok(None) => return socket.clear_error(),
                Err(error) => return tracing::debug!(%error, "reading what ICMP said"),
            }
        }
    }

    /// Hands the service what one connection has brought. Returns how many bytes that were.
    fn read_link(&mut self, service: &mut impl Service, link: LinkId) -> usize {
        let now = Instant::now();
        let mut bytes = 0;
        for _ in 0..LINK_READS_MAX {
            // Who was not told yet that it is open is not to hear what it brings.
            if !self.egress.prepare(service, now, 1, &[]) {
                break;
            }
            let links = &mut self.egress.links;
            let Some(read) = links.read(now, link, &mut self.buffer) else { return bytes };
            bytes += read.len;
            if read.framing.is_some() {
                self.handle_frames(service, now, link, &read);
            } else {
                links.counts.stream_bytes_in += read.len as u64;
                let event = LinkEvent::Bytes { link, bytes: &mut self.buffer[..read.len] };
                service.handle_link(now, read.token, event, &mut self.egress.out);
            }
            self.egress.let_go_of(&self.buffer);
            if !read.is_full {
                return bytes;
            }
        }
        self.egress.links.come_back_to(link);
        bytes
    }

    /// Hands the service the frames that were read, and keeps the beginning of the next. After what is no frame the link is
    /// closed.
    fn handle_frames(&mut self, service: &mut impl Service, now: Instant, link: LinkId, read: &Read) {
        let Some(framing) = read.framing else { return };
        let path = Path { link, remote: read.remote, local: None };
        let mut start = 0;
        loop {
            let links = &mut self.egress.links;
            let rest = &self.buffer[start..read.len];
            match framing.next_frame(rest, read.frame_max) {
                Frame::Datagram { range, end } => {
                    let (first, last) = (start + range.start, start + range.end);
                    start += end;
                    let Some(len) = NonZeroUsize::new(range.len()) else { continue };
                    self.egress.prepare(service, now, 1, &self.buffer);
                    let links = &mut self.egress.links;
                    // It may be closed meanwhile.
                    if !links.is_open(link) {
                        return;
                    }
                    links.counts.tcp_datagrams_in += 1;
                    links.counts.tcp_bytes_in += range.len() as u64;
                    let data = &mut self.buffer[first..last];
                    let run = DatagramRun::new(read.token, path, len, data).at(first);
                    service.handle_run(now, run, &mut self.egress.out);
                }
                Frame::Incomplete { len } => return links.keep(link, rest, len),
                Frame::Invalid => {
                    links.counts.tcp_frame_errors += 1;
                    return links.close(link, CloseReason::BadFrame);
                }
            }
        }
    }

    /// Hands the service messages from other threads; true when there are more.
    fn take_messages<S: Service<Message = M>>(&mut self, service: &mut S) -> bool {
        let now = Instant::now();
        for _ in 0..MESSAGES_MAX {
            let Some(message) = self.receiver.try_recv() else { return false };
            self.egress.links.counts.messages += 1;
            self.egress.prepare(service, now, 1, &[]);
            service.handle_message(now, message, &mut self.egress.out);
        }
        !self.receiver.is_empty()
    }

    /// Lets the service do what is due, tells it what became of links, and sends what it has ready, bounded; true when there
    /// is more.
    fn transmit(&mut self, service: &mut impl Service, began: Instant) -> bool {
        let mut now = began;
        for _ in 0..FLUSHES_MAX {
            self.handle_timeout(service, now);
            self.egress.prepare(service, now, 1, &[]);
            let has_more = service.poll_transmit(now, &mut self.egress.out);
            self.egress.flush(&[]);
            // Who hears something may have something to say.
            if !has_more && !self.egress.links.has_news() {
                return false;
            }
            // A full outbox takes a while. What is due by now is not to wait for all of them.
            now = Instant::now();
            if now - began > FLUSHING_MAX {
                break;
            }
        }
        true
    }

    /// Lets the service do what is due. It may do it when it is asked for more, later too: its lateness counts once.
    fn handle_timeout(&mut self, service: &mut impl Service, now: Instant) {
        let Some(due) = service.poll_timeout().filter(|due| *due <= now) else { return };
        if self.last_due.replace(due) != Some(due) {
            self.egress.links.counts.lateness.record(now - due);
            self.egress.links.counts.timeouts += 1;
        }
        self.egress.prepare(service, now, 1, &[]);
        service.handle_timeout(now, &mut self.egress.out);
    }

    fn publish(&mut self) {
        let counts = &mut self.egress.links.counts;
        counts.mailbox_full = self.receiver.refused();
        self.counters.published.store(counts);
    }
}
