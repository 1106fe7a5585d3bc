//! What a worker's thread does, turn by turn.
//!
//! In: ready sockets and links, messages, the time. Out: calls of the service, and its outbox handed to the kernel.
//! Cost: a turn is one wait, one receive call per ready socket, one send call per 128 runs; no allocation. Each kind of
//! work gets a bounded share of a turn, so that none starves the others.

use std::io;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::{CloseReason, DatagramRun, Ecn, LinkEvent, LinkId, LinkKind, Outbox, Token};

use crate::counters::{Counters, CountersSnapshot};
use crate::mailbox::Receiver;
use crate::service::Service;
use crate::sys::{Epoll, Interest};
use crate::tcp::TcpLinks;
use crate::udp::{RecvBatch, SendQueue, UdpSocket};
use crate::worker::WorkerConfig;

/// Where an event comes from, and its token in the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Mailbox,
    Udp(usize),
    Listener(usize),
    Link(LinkId),
}

/// Who asked for the links, as long as they are the configuration's.
const TOKEN: Token = Token { owner: 0, number: 0 };

impl Source {
    pub(crate) fn token(self) -> u64 {
        match self {
            // No slot is as large.
            Source::Mailbox => u64::MAX,
            Source::Udp(index) => LinkId::datagrams(index as u32).to_bits(),
            Source::Listener(index) => LinkId::new(LinkKind::Listener, index as u32, 0).to_bits(),
            Source::Link(id) => id.to_bits(),
        }
    }

    fn of(token: u64) -> Self {
        let link = LinkId::from_bits(token);
        match link.kind() {
            _ if token == u64::MAX => Source::Mailbox,
            LinkKind::Datagrams => Source::Udp(link.slot()),
            LinkKind::Listener => Source::Listener(link.slot()),
            LinkKind::Framed | LinkKind::Stream => Source::Link(link),
        }
    }
}

/// Descriptors that one wait reports; others that are ready are reported by the next.
const EVENTS_MAX: usize = 256;

/// Batches received from one socket before everything else gets its turn.
const RECEIVE_BATCHES_MAX: usize = 4;

/// Reads from one TCP link before everything else gets its turn.
const LINK_READS_MAX: usize = 4;

/// Refusals taken from one socket before everything else gets its turn.
const REFUSALS_MAX: usize = 64;

/// Messages taken from the mailbox before everything else gets its turn.
const MESSAGES_MAX: usize = 256;

/// Full outboxes sent before new input gets its turn: about a millisecond of sending.
const FLUSHES_MAX: usize = 16;

/// The loop of a worker. Each turn waits for work, then gives a bounded share to each kind of it.
pub(crate) struct Turns<M> {
    epoll: Epoll,
    batch: RecvBatch,
    egress: Egress,
    receiver: Receiver<M>,
    pub(crate) counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
}

impl<M: Send + 'static> Turns<M> {
    pub(crate) fn new(
        config: &WorkerConfig,
        udp: Vec<UdpSocket>,
        listeners: Vec<TcpListener>,
        receiver: Receiver<M>,
        counters: Arc<Counters>,
        is_stopping: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EVENTS_MAX)?;
        epoll.add(receiver.as_fd(), Source::Mailbox.token(), Interest::Read)?;
        for (index, socket) in udp.iter().enumerate() {
            // Errors are reported in any case.
            let interest = if socket.is_send_only() { Interest::Nothing } else { Interest::Read };
            epoll.add(socket.as_fd(), Source::Udp(index).token(), interest)?;
        }
        let tcp = TcpLinks::new(listeners, config.tcp_links_max);
        tcp.register(&epoll)?;
        let batch = RecvBatch::new(udp.iter().any(UdpSocket::gro));
        let egress = Egress {
            out: Outbox::new(config.outbox_bytes),
            udp,
            tcp,
            queue: SendQueue::new(),
            counts: CountersSnapshot::default(),
        };
        Ok(Turns { epoll, batch, egress, receiver, counters, is_stopping })
    }

    pub(crate) fn run<S: Service<Message = M>>(&mut self, service: &mut S) -> io::Result<()> {
        let mut now = Instant::now();
        let mut has_more = self.transmit(service, now);
        while !self.is_stopping.load(Ordering::Acquire) {
            self.publish();
            self.wait(service, now, has_more)?;
            let woke = Instant::now();
            has_more = self.turn(service, woke);
            now = Instant::now();
            self.egress.counts.busy_ns += now.duration_since(woke).as_nanos() as u64;
        }
        self.publish();
        Ok(())
    }

    /// Waits until there is work, or just looks when there is some already.
    fn wait(&mut self, service: &impl Service, now: Instant, has_more: bool) -> io::Result<()> {
        let deadline = service.poll_timeout().into_iter().chain(self.egress.tcp.next_sweep()).min();
        let is_due = deadline.is_some_and(|deadline| deadline <= now);
        if has_more || is_due || !self.receiver.fall_asleep() {
            return self.epoll.wait(Some(Duration::ZERO));
        }
        self.epoll.wait(deadline.map(|deadline| deadline - now))?;
        self.receiver.wake_up(false);
        self.egress.counts.sleeps += 1;
        Ok(())
    }

    /// Handles what is ready, bounded; true when more is known to wait.
    fn turn<S: Service<Message = M>>(&mut self, service: &mut S, now: Instant) -> bool {
        self.egress.counts.turns += 1;
        for index in 0..self.epoll.ready_count() {
            let Some(ready) = self.epoll.ready(index) else { break };
            match Source::of(ready.token) {
                Source::Mailbox => self.receiver.wake_up(true),
                Source::Udp(index) => self.receive(service, index),
                Source::Listener(index) => {
                    self.egress.tcp.accept(now, index, &self.epoll, &mut self.egress.counts);
                }
                Source::Link(id) => {
                    if ready.writable {
                        self.egress.tcp.handle_writable(id, &self.epoll);
                    }
                    self.read_link(service, id);
                }
            }
        }
        let has_messages = self.take_messages(service);
        let now = Instant::now();
        if let Some(late) = service.poll_timeout().and_then(|at| now.checked_duration_since(at)) {
            self.egress.counts.lateness.record(late);
            self.egress.counts.timeouts += 1;
            self.egress.make_room(&self.epoll);
            service.handle_timeout(now, &mut self.egress.out);
        }
        self.egress.tcp.sweep(now, &self.epoll);
        self.transmit(service, now) | has_messages
    }

    /// Hands the service what one UDP socket has received.
    fn receive(&mut self, service: &mut impl Service, index: usize) {
        for _ in 0..RECEIVE_BATCHES_MAX {
            let Some(socket) = self.egress.udp.get(index) else { return };
            if socket.is_send_only() {
                return self.take_refusals(service, index);
            }
            self.egress.counts.receive_calls += 1;
            if let Err(error) = self.batch.fill(socket) {
                tracing::debug!(%error, "receive");
                self.egress.counts.receive_errors += 1;
                return;
            }
            let now = Instant::now();
            for message in self.batch.messages() {
                let counts = &mut self.egress.counts;
                if message.truncated {
                    counts.truncated += 1;
                    continue;
                }
                let count = message.datagram_count() as u64;
                counts.datagrams_in += count;
                counts.bytes_in += message.data.len() as u64;
                counts.gro_batches += u64::from(count > 1);
                let count_max = self.egress.out.datagrams_max();
                for run in message.into_runs(TOKEN, LinkId::datagrams(index as u32), count_max) {
                    self.egress.make_room_for(run.datagram_count(), &self.epoll);
                    service.handle_run(now, run, &mut self.egress.out);
                }
            }
            let is_full = self.batch.is_full();
            self.transmit(service, now);
            if !is_full {
                return;
            }
        }
    }

    /// Hands the service what ICMP said about destinations of one socket.
    fn take_refusals(&mut self, service: &mut impl Service, index: usize) {
        let now = Instant::now();
        for _ in 0..REFUSALS_MAX {
            let Some(socket) = self.egress.udp.get(index) else { return };
            match socket.next_refusal() {
                // A datagram that was too long for the path is no refusal.
                Ok(Some(refused)) if refused.errno == libc::EMSGSIZE => {}
                Ok(Some(refused)) => {
                    let link = LinkId::datagrams(index as u32);
                    self.egress.make_room(&self.epoll);
                    let event = LinkEvent::Refused { link, remote: refused.remote };
                    service.handle_link(now, TOKEN, event, &mut self.egress.out);
                }
                Ok(None) => return,
                Err(error) => return tracing::debug!(%error, "reading what ICMP said"),
            }
        }
    }

    /// Hands the service what one TCP link has received.
    fn read_link(&mut self, service: &mut impl Service, id: LinkId) {
        let now = Instant::now();
        for _ in 0..LINK_READS_MAX {
            let Some((path, mut inbox)) = self.egress.tcp.begin_read(now, id) else { break };
            while let Some(data) = inbox.next_frame() {
                self.egress.counts.tcp_datagrams_in += 1;
                self.egress.counts.tcp_bytes_in += data.len() as u64;
                self.egress.make_room(&self.epoll);
                let Some(segment_size) = NonZeroUsize::new(data.len()) else { continue };
                let run = DatagramRun::new(TOKEN, path, Ecn::NotEct, segment_size, data);
                service.handle_run(now, run, &mut self.egress.out);
            }
            self.egress.tcp.end_read(id, inbox, &mut self.egress.counts);
        }
    }

    /// Hands the service messages from other threads; true when there are more.
    fn take_messages<S: Service<Message = M>>(&mut self, service: &mut S) -> bool {
        let now = Instant::now();
        for _ in 0..MESSAGES_MAX {
            let Some(message) = self.receiver.try_recv() else { return false };
            self.egress.counts.messages += 1;
            self.egress.make_room(&self.epoll);
            service.handle_message(now, message, &mut self.egress.out);
        }
        !self.receiver.is_empty()
    }

    /// Sends what the service has ready, bounded; true when there is more.
    fn transmit(&mut self, service: &mut impl Service, now: Instant) -> bool {
        let mut has_more = true;
        for _ in 0..FLUSHES_MAX {
            if has_more {
                self.egress.make_room(&self.epoll);
                has_more = service.poll_transmit(now, &mut self.egress.out);
            }
            self.egress.flush(&self.epoll);
            while let Some(link) = self.egress.tcp.poll_closed(&mut self.egress.counts) {
                self.egress.make_room(&self.epoll);
                let event = LinkEvent::Closed { link, reason: CloseReason::Ended };
                service.handle_link(now, TOKEN, event, &mut self.egress.out);
            }
            if !has_more {
                break;
            }
        }
        has_more
    }

    fn publish(&mut self) {
        let (counts, sent) = (&mut self.egress.counts, self.egress.queue.stats());
        counts.datagrams_out = sent.datagrams;
        counts.bytes_out = sent.bytes;
        counts.send_calls = sent.calls;
        counts.gso_sends = sent.gso_sends;
        counts.gso_refused = sent.gso_refused;
        counts.send_would_block = sent.would_block;
        counts.dropped_socket_full = sent.dropped_full;
        counts.dropped_refused = sent.dropped_refused;
        counts.mailbox_full = self.receiver.refused();
        self.counters.published.store(counts);
    }
}

/// The way out: the outbox and what it is flushed to.
struct Egress {
    out: Outbox,
    udp: Vec<UdpSocket>,
    tcp: TcpLinks,
    queue: SendQueue,
    counts: CountersSnapshot,
}

impl Egress {
    /// Flushes when there is no room for another datagram.
    fn make_room(&mut self, epoll: &Epoll) {
        if !self.out.has_room() {
            self.flush(epoll);
        }
    }

    /// Flushes when there is no room for as many datagrams.
    fn make_room_for(&mut self, count: usize, epoll: &Epoll) {
        if !self.out.has_room_for(count) {
            self.flush(epoll);
        }
    }

    /// Hands everything in the outbox to the kernel, row by row of runs that leave by the same link.
    fn flush(&mut self, epoll: &Epoll) {
        let mut rest = self.out.runs();
        while let Some(first) = rest.first() {
            let link = first.path.link;
            let count = rest.iter().take_while(|run| run.path.link == link).count();
            let (runs, others) = rest.split_at(count);
            rest = others;
            let socket = self.udp.get(link.slot()).filter(|_| link.kind() == LinkKind::Datagrams);
            if let Some(socket) = socket {
                self.queue.send_runs(socket, &self.out, runs);
            } else {
                for run in runs {
                    self.tcp.send(run, self.out.bytes(run), &mut self.counts);
                }
            }
        }
        self.tcp.flush(epoll);
        self.out.clear();
    }
}
