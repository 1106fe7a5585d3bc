//! One thread, its sockets, and the loop that feeds a service.
//!
//! In: a `WorkerConfig` and a service. Out: a running thread, and a `WorkerHandle` to talk to it.
//! Cost: a turn of the loop is one wait, one receive call per socket that is ready, one send call per 128 runs.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, panic};

use wire::{Datagram, Ecn, LinkId, Outbox};

use crate::counters::{Counters, CountersSnapshot};
use crate::mailbox::{Mailbox, Receiver, mailbox};
use crate::service::Service;
use crate::sys::{self, Epoll, Interest};
use crate::tcp::{self, TcpLinks};
use crate::udp::{Options, RecvBatch, SendQueue, UdpSocket};

/// What a worker is to be.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Name of the thread; the kernel shows its first 15 bytes.
    pub name: String,
    /// Core to stay on, counted from zero; `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// Addresses for UDP. Socket `n` is `LinkId(n)`. Port 0 takes any free one.
    pub udp: Vec<SocketAddr>,
    /// Addresses for TCP links, whose frames are datagrams (RFC 4571). Port 0 takes any free one.
    pub tcp: Vec<SocketAddr>,
    /// Use GSO where the kernel has it.
    pub gso: bool,
    /// Use GRO where the kernel has it.
    pub gro: bool,
    /// Size of the outbox. What the service writes beyond it waits for a flush.
    pub outbox_bytes: usize,
    /// Messages that the mailbox holds; a sender that finds it full gets its message back.
    pub mailbox_len: usize,
    /// Size of each UDP socket's send buffer and receive buffer.
    pub socket_buffer_bytes: usize,
    /// TCP links at one time, at most 65,536; a newcomer beyond that is turned away.
    pub tcp_links_max: usize,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            name: "worker".into(),
            cpu: None,
            udp: Vec::new(),
            tcp: Vec::new(),
            gso: true,
            gro: true,
            outbox_bytes: 512 * 1_024,
            mailbox_len: 4_096,
            socket_buffer_bytes: 8 << 20,
            tcp_links_max: 1_024,
        }
    }
}

/// Where workers come from.
pub struct Worker;

impl Worker {
    /// Opens all sockets of a worker on the caller's thread, so that an address that is taken is an error here, and all
    /// addresses are known before the worker runs.
    ///
    /// # Errors
    /// What the system says about a socket, with its address.
    pub fn bind<M: Send + 'static>(config: WorkerConfig) -> io::Result<BoundWorker<M>> {
        let options = Options {
            gso: config.gso,
            gro: config.gro,
            receive_buffer_bytes: config.socket_buffer_bytes,
            send_buffer_bytes: config.socket_buffer_bytes,
        };
        let udp = bind_all(&config.udp, "UDP", |addr| UdpSocket::bind(*addr, &options))?;
        let listeners = bind_all(&config.tcp, "TCP", sys::tcp_listener)?;
        let local_addrs = udp.iter().map(UdpSocket::local_addr).collect();
        let tcp_addrs = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let (mailbox, receiver) = mailbox(config.mailbox_len)?;
        Ok(BoundWorker { config, udp, listeners, local_addrs, tcp_addrs, mailbox, receiver })
    }
}

fn bind_all<T>(addrs: &[SocketAddr], kind: &str, bind: impl Fn(&SocketAddr) -> io::Result<T>) -> io::Result<Vec<T>> {
    let named = |addr, error: io::Error| io::Error::new(error.kind(), format!("{kind} address {addr}: {error}"));
    addrs.iter().map(|addr| bind(addr).map_err(|error| named(addr, error))).collect()
}

/// A worker whose sockets are open and whose thread does not run yet.
pub struct BoundWorker<M> {
    config: WorkerConfig,
    udp: Vec<UdpSocket>,
    listeners: Vec<TcpListener>,
    local_addrs: Vec<SocketAddr>,
    tcp_addrs: Vec<SocketAddr>,
    mailbox: Mailbox<M>,
    receiver: Receiver<M>,
}

impl<M: Send + 'static> BoundWorker<M> {
    /// UDP addresses; the one at `n` is that of `LinkId(n)`.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Addresses on which TCP links are accepted.
    pub fn tcp_addrs(&self) -> &[SocketAddr] {
        &self.tcp_addrs
    }

    /// What the kernel granted for the smallest of the UDP receive buffers; 0 without a UDP socket.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.udp.iter().map(UdpSocket::receive_buffer_bytes).min().unwrap_or(0)
    }

    /// Takes messages already; they are handled when the worker runs.
    pub fn mailbox(&self) -> Mailbox<M> {
        self.mailbox.clone()
    }

    /// Starts the thread, which makes the service with `make` and runs it.
    pub fn run<S: Service<Message = M>>(
        self,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> io::Result<WorkerHandle<M>> {
        let counters = Arc::new(Counters::new());
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (name, cpu) = (self.config.name.clone(), self.config.cpu);
        let mut turns = Turns::new(
            self.config,
            self.udp,
            self.listeners,
            self.receiver,
            Arc::clone(&counters),
            Arc::clone(&is_stopping),
        )?;
        let (started, start) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(name).spawn(move || {
            prepare_thread(cpu);
            turns.counters.thread_id.store(sys::thread_id(), Ordering::Relaxed);
            // The other end waits for it, or nobody cares.
            started.send(()).ok();
            let mut service = make();
            turns.run(&mut service)
        })?;
        // It fails only when the thread has died, which `stop` reports.
        start.recv().ok();
        Ok(WorkerHandle {
            local_addrs: self.local_addrs,
            tcp_addrs: self.tcp_addrs,
            mailbox: self.mailbox,
            counters,
            is_stopping,
            thread: Some(thread),
        })
    }
}

fn prepare_thread(cpu: Option<usize>) {
    if let Err(error) = sys::set_timer_slack(Duration::from_nanos(1)) {
        tracing::warn!(%error, "timers of this worker may be late by 50 µs");
    }
    if let Some(cpu) = cpu
        && let Err(error) = sys::pin_to_cpu(cpu)
    {
        tracing::warn!(%error, cpu, "worker is not bound to its core");
    }
}

/// A running worker. Dropping it stops the worker.
#[derive(Debug)]
pub struct WorkerHandle<M> {
    local_addrs: Vec<SocketAddr>,
    tcp_addrs: Vec<SocketAddr>,
    mailbox: Mailbox<M>,
    counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<M> WorkerHandle<M> {
    /// UDP addresses; the one at `n` is that of `LinkId(n)`.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Addresses on which TCP links are accepted.
    pub fn tcp_addrs(&self) -> &[SocketAddr] {
        &self.tcp_addrs
    }

    pub fn mailbox(&self) -> Mailbox<M> {
        self.mailbox.clone()
    }

    /// What the worker has done up to its last turn.
    pub fn counters(&self) -> CountersSnapshot {
        self.counters.load()
    }

    /// The kernel's number for the worker's thread.
    pub fn thread_id(&self) -> i32 {
        self.counters.thread_id.load(Ordering::Relaxed)
    }

    /// CPU time that the worker has used, the kernel's share included.
    pub fn cpu_time(&self) -> Option<Duration> {
        sys::thread_cpu_time(self.thread_id())
    }

    /// Whether the thread has ended, by `stop` or by failure.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the worker after its present turn and waits for its thread. Messages still in the mailbox are dropped.
    ///
    /// # Errors
    /// What ended the thread before, if something did.
    ///
    /// # Panics
    /// With the service's panic, if it had one.
    pub fn stop(mut self) -> io::Result<()> {
        match self.join() {
            Some(Ok(result)) => result,
            Some(Err(payload)) => panic::resume_unwind(payload),
            None => Ok(()),
        }
    }

    fn join(&mut self) -> Option<thread::Result<io::Result<()>>> {
        let thread = self.thread.take()?;
        self.is_stopping.store(true, Ordering::Release);
        self.mailbox.nudge();
        Some(thread.join())
    }
}

impl<M> Drop for WorkerHandle<M> {
    fn drop(&mut self) {
        if let Some(Err(_)) = self.join() {
            tracing::error!("worker had panicked");
        }
    }
}

/// Where an event comes from, and its token in the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Mailbox,
    Udp(usize),
    Listener(usize),
    Link(LinkId),
}

impl Source {
    pub(crate) fn token(self) -> u64 {
        match self {
            Source::Mailbox => 0,
            Source::Udp(index) => 1 << 32 | index as u64,
            Source::Listener(index) => 2 << 32 | index as u64,
            Source::Link(id) => 3 << 32 | u64::from(id.0),
        }
    }

    fn of(token: u64) -> Self {
        let index = token as u32;
        match token >> 32 {
            1 => Source::Udp(index as usize),
            2 => Source::Listener(index as usize),
            3 => Source::Link(LinkId(index)),
            _ => Source::Mailbox,
        }
    }
}

/// Descriptors that one wait reports; others that are ready are reported by the next.
const EVENTS_MAX: usize = 256;

/// Batches received from one socket before everything else gets its turn.
const RECEIVE_BATCHES_MAX: usize = 4;

/// Reads from one TCP link before everything else gets its turn.
const LINK_READS_MAX: usize = 4;

/// Messages taken from the mailbox before everything else gets its turn.
const MESSAGES_MAX: usize = 256;

/// Full outboxes sent before new input gets its turn: about a millisecond of sending.
const FLUSHES_MAX: usize = 16;

/// The loop of a worker. Each turn waits for work, then gives a bounded share to each kind of it.
struct Turns<M> {
    epoll: Epoll,
    batch: RecvBatch,
    egress: Egress,
    receiver: Receiver<M>,
    counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
}

impl<M: Send + 'static> Turns<M> {
    fn new(
        config: WorkerConfig,
        udp: Vec<UdpSocket>,
        listeners: Vec<TcpListener>,
        receiver: Receiver<M>,
        counters: Arc<Counters>,
        is_stopping: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EVENTS_MAX)?;
        epoll.add(receiver.as_fd(), Source::Mailbox.token(), Interest::Read)?;
        for (index, socket) in udp.iter().enumerate() {
            epoll.add(socket.as_fd(), Source::Udp(index).token(), Interest::Read)?;
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

    fn run<S: Service<Message = M>>(&mut self, service: &mut S) -> io::Result<()> {
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
            self.counters.record_lateness(late);
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
                for datagram in message.into_datagrams(LinkId(index as u32)) {
                    self.egress.make_room(&self.epoll);
                    service.handle_datagram(now, datagram, &mut self.egress.out);
                }
            }
            let is_full = self.batch.is_full();
            self.transmit(service, now);
            if !is_full {
                return;
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
                service.handle_datagram(now, Datagram { path, ecn: Ecn::NotEct, data }, &mut self.egress.out);
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
                service.handle_link_closed(now, link);
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
        self.counters.store(counts);
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

    /// Hands everything in the outbox to the kernel, row by row of runs that leave by the same link.
    fn flush(&mut self, epoll: &Epoll) {
        let mut rest = self.out.runs();
        while let Some(first) = rest.first() {
            let link = first.path.link;
            let count = rest.iter().take_while(|run| run.path.link == link).count();
            let (runs, others) = rest.split_at(count);
            rest = others;
            if let Some(socket) = self.udp.get(link.0 as usize) {
                self.queue.send_runs(socket, &self.out, runs);
            } else if tcp::is_tcp(link) {
                for run in runs {
                    self.tcp.send(run, self.out.bytes(run), &mut self.counts);
                }
            } else {
                self.counts.dropped_no_link += runs.iter().map(|run| run.segment_count() as u64).sum::<u64>();
            }
        }
        self.tcp.flush(epoll);
        self.out.clear();
    }
}
