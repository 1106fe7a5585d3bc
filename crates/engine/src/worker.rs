//! A worker from its configuration to its end; what its thread does meanwhile is in `turns`.
//!
//! In: a `WorkerConfig` and a service. Out: a running thread, and a `WorkerHandle` to talk to it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, panic};

use wire::LinkId;

use crate::counters::{Counters, CountersSnapshot};
use crate::mailbox::{Mailbox, Receiver, mailbox};
use crate::service::Service;
use crate::sys;
use crate::turns::Turns;
use crate::udp::{Multicast, Options, UdpSocket, Unicast};

/// What a worker is to be.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Name of the thread; the kernel shows its first 15 bytes.
    pub name: String,
    /// Core to stay on, counted from zero; `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// Addresses for UDP. Socket `n` is `LinkId::datagrams(n)`. Port 0 takes any free one.
    pub udp: Vec<SocketAddr>,
    /// Sockets that only send, each with the address that it sends from. The one at `n` is `LinkId::datagrams(udp.len() + n)`.
    pub senders: Vec<SocketAddr>,
    /// How datagrams to groups leave from `senders`.
    pub multicast: Multicast,
    /// The six upper bits of the traffic class of all that leaves from `senders`.
    pub dscp: u8,
    /// More sockets that only send, each in a way of its own. They are numbered behind `senders`.
    pub outputs: Vec<Output>,
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
            senders: Vec::new(),
            multicast: Multicast::default(),
            dscp: 0,
            outputs: Vec::new(),
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

/// A socket that only sends, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The address that it sends from. Port 0 takes any free one.
    pub addr: SocketAddr,
    pub multicast: Multicast,
    pub unicast: Unicast,
    /// The six upper bits of the traffic class.
    pub dscp: u8,
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
            receive_buffer_bytes: Some(config.socket_buffer_bytes),
            send_buffer_bytes: Some(config.socket_buffer_bytes),
            ..Options::default()
        };
        let mut udp = bind_all(&config.udp, "UDP", |addr| UdpSocket::bind(*addr, &options))?;
        let listeners = bind_all(&config.tcp, "TCP", sys::tcp_listener)?;
        let local_addrs = udp.iter().map(UdpSocket::local_addr).collect();
        let options =
            Options { send_only: true, refusals: true, multicast: config.multicast, dscp: config.dscp, ..options };
        udp.extend(bind_all(&config.senders, "UDP", |addr| UdpSocket::bind(*addr, &options))?);
        for output in &config.outputs {
            let Output { addr, multicast, unicast, dscp } = *output;
            let options = Options { multicast, unicast, dscp, ..options.clone() };
            udp.extend(bind_all(&[addr], "UDP", |addr| UdpSocket::bind(*addr, &options))?);
        }
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
    /// UDP addresses; the one at `n` is that of `LinkId::datagrams(n)`.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Addresses on which TCP links are accepted.
    pub fn tcp_addrs(&self) -> &[SocketAddr] {
        &self.tcp_addrs
    }

    /// The links that only send, each with its address.
    pub fn senders(&self) -> impl Iterator<Item = (LinkId, SocketAddr)> {
        let links = self.udp.iter().enumerate().filter(|(_, socket)| socket.is_send_only());
        links.map(|(index, socket)| (LinkId::datagrams(index as u32), socket.local_addr()))
    }

    /// What the kernel granted for the smallest of the UDP receive buffers; 0 without a UDP socket that receives.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.udp.iter().filter(|socket| !socket.is_send_only()).map(UdpSocket::receive_buffer_bytes).min().unwrap_or(0)
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
        let counters = Arc::<Counters>::default();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut turns = Turns::new(
            &self.config,
            self.udp,
            self.listeners,
            self.receiver,
            Arc::clone(&counters),
            Arc::clone(&is_stopping),
        )?;
        let WorkerConfig { name, cpu, .. } = self.config;
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
    /// UDP addresses; the one at `n` is that of `LinkId::datagrams(n)`.
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
        self.counters.published.load()
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
