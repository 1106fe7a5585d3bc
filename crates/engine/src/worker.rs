//! A worker from its configuration to its end; what its thread does meanwhile is in `event_loop`.
//!
//! In: a `WorkerConfig` and a service. Out: a running thread, and a `WorkerHandle` to talk to it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, panic};

use wire::{LinkId, ListenOptions, Token, UdpOptions};

use crate::counters::{Counters, CountersSnapshot};
use crate::event_loop::Loop;
use crate::links::{Body, Links, Listener, PatientSockets};
use crate::mailbox::{Mailbox, Receiver, mailbox};
use crate::service::Service;
use crate::sys::{self, Beginning};
use crate::udp::UdpSocket;

/// What a worker is to be.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Name of the thread; the kernel shows its first 15 bytes.
    pub name: String,
    /// Core to stay on, counted from zero; `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// Sockets that it has from the start. Its service may open others later (`wire::LinkRequest`).
    pub sockets: Vec<Socket>,
    /// Size of the outbox. What the service writes beyond it waits for a flush.
    pub outbox_bytes: usize,
    /// Messages that the mailbox holds; a sender that finds it full gets its message back.
    pub mailbox_len: usize,
    /// Where datagrams alone come more often than this, what came is looked at once in this time: many share one wake-up, as
    /// with the interrupt coalescing of network cards. What is due and can wait does so (`Service::poll_exact`). Connections have
    /// no part in it. Zero: at once.
    pub coalesce: Duration,
    /// For how long what can wait does (`Socket::with_patient`), where it comes often: up to `coalesce` longer. Zero: not at all.
    pub patience: Duration,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            name: "worker".into(),
            cpu: None,
            sockets: Vec::new(),
            outbox_bytes: 512 * 1_024,
            mailbox_len: 4_096,
            coalesce: Duration::ZERO,
            patience: Duration::ZERO,
        }
    }
}

/// A socket to be opened.
#[derive(Clone, Debug)]
pub struct Socket {
    /// What its owner calls it.
    pub token: Token,
    /// Its address. Port 0 takes any free one.
    pub addr: SocketAddr,
    /// What it is, and how it is set up.
    pub options: SocketOptions,
    /// It was opened elsewhere, and is set up anew.
    inherited: Option<Arc<OwnedFd>>,
    /// How what can wait begins.
    patient: &'static [Beginning],
    /// The socket for that, opened elsewhere too.
    patient_inherited: Option<Arc<OwnedFd>>,
}

/// What a socket is, and how it is set up.
#[derive(Clone, Debug)]
pub enum SocketOptions {
    /// Datagrams from and to anybody.
    Udp(UdpOptions),
    /// TCP connections.
    Listener(ListenOptions),
}

impl Socket {
    /// A UDP socket.
    pub fn udp(token: Token, addr: SocketAddr, options: UdpOptions) -> Self {
        Self::new(token, addr, SocketOptions::Udp(options))
    }

    /// A TCP listener.
    pub fn listener(token: Token, addr: SocketAddr, options: ListenOptions) -> Self {
        Self::new(token, addr, SocketOptions::Listener(options))
    }

    fn new(token: Token, addr: SocketAddr, options: SocketOptions) -> Self {
        Socket { token, addr, options, inherited: None, patient: &[], patient_inherited: None }
    }

    /// The same, whose datagrams that begin like one of these wake a worker that has patience (`WorkerConfig`) only after a
    /// silence, where the kernel can tell them apart. They are told of as all others, out of their order among those.
    pub fn with_patient(self, beginnings: &'static [Beginning]) -> Self {
        Socket { patient: beginnings, ..self }
    }

    /// The same, which another process has opened (`BoundWorker::share`): nothing is bound, and what waits in it is kept.
    pub fn inherit(self, descriptor: OwnedFd) -> Self {
        Socket { inherited: Some(Arc::new(descriptor)), ..self }
    }

    /// The same with what that process had for what can wait.
    pub fn inherit_patient(self, descriptor: OwnedFd) -> Self {
        Socket { patient_inherited: Some(Arc::new(descriptor)), ..self }
    }

    fn open(&self, links: &mut Links) -> io::Result<OpenSocket> {
        let Socket { token, addr, .. } = *self;
        let inherited = self.inherited.as_ref().map(|descriptor| descriptor.try_clone()).transpose()?;
        let (kind, body) = match (&self.options, inherited) {
            (SocketOptions::Udp(options), None) => ("UDP", UdpSocket::bind(addr, options).map(Body::Udp)),
            (SocketOptions::Udp(options), Some(fd)) => ("UDP", UdpSocket::adopt(fd, options).map(Body::Udp)),
            (SocketOptions::Listener(options), None) => ("TCP", Listener::bind(&addr, options).map(Body::Listener)),
            (SocketOptions::Listener(options), Some(fd)) => ("TCP", Listener::adopt(fd, options).map(Body::Listener)),
        };
        let opened = body.and_then(|body| links.open(Instant::now(), token, body));
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{kind} address {addr}: {error}"));
        let (link, local) = opened.map_err(named)?;
        if let SocketOptions::Udp(options) = &self.options
            && let Err(error) = self.open_patient(links, link, options)
        {
            tracing::info!(%error, %local, "what could wait is heard at once");
        }
        Ok(OpenSocket { token, link, local })
    }

    /// A second socket for what can wait. Of a process that has none, none is opened: it may go on with the first.
    fn open_patient(&self, links: &mut Links, link: LinkId, options: &UdpOptions) -> io::Result<()> {
        let is_wanted = !links.patient.patience.is_zero() && !self.patient.is_empty() && self.inherited.is_none();
        let second = match (&self.patient_inherited, links.udp(link)) {
            (Some(descriptor), Some((_, first))) => {
                first.adopt_beside(descriptor.try_clone()?, self.patient, options)?
            }
            (None, Some((_, first))) if is_wanted => first.beside(self.patient, options)?,
            _ => return Ok(()),
        };
        links.add_patient(link, second)
    }
}

/// A socket that a worker has from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSocket {
    /// What its owner calls it.
    pub token: Token,
    /// The link that it is.
    pub link: LinkId,
    /// Its address, with the port that the system chose.
    pub local: SocketAddr,
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
        let mut links = Links::new()?;
        links.patient = PatientSockets::new(config.patience);
        let sockets = config.sockets.iter().map(|socket| socket.open(&mut links)).collect::<io::Result<_>>()?;
        let (mailbox, receiver) = mailbox(config.mailbox_len)?;
        Ok(BoundWorker { config, links, sockets, mailbox, receiver })
    }
}

/// A worker whose sockets are open and whose thread does not run yet.
pub struct BoundWorker<M> {
    config: WorkerConfig,
    links: Links,
    sockets: Vec<OpenSocket>,
    mailbox: Mailbox<M>,
    receiver: Receiver<M>,
}

impl<M: Send + 'static> BoundWorker<M> {
    /// The sockets of the configuration, in its order.
    pub fn sockets(&self) -> &[OpenSocket] {
        &self.sockets
    }

    /// One more reference to each of these, for another process (`Socket::inherit`), and to what it has for what can wait
    /// (`Socket::inherit_patient`).
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn share(&mut self) -> io::Result<Vec<(OwnedFd, Option<OwnedFd>)>> {
        let links = &mut self.links;
        self.sockets.iter().map(|socket| Ok((links.share(socket.link)?, links.share_patient(socket.link)?))).collect()
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
        let WorkerConfig { name, cpu, outbox_bytes, coalesce, .. } = self.config;
        let (published, stop) = (Arc::clone(&counters), Arc::clone(&is_stopping));
        let mut event_loop = Loop::new(outbox_bytes, coalesce, self.links, self.receiver, published, stop)?;
        let (started, start) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(name).spawn(move || {
            prepare_thread(cpu);
            event_loop.counters.thread_id.store(sys::thread_id(), Ordering::Relaxed);
            // The other end waits for it, or nobody cares.
            started.send(()).ok();
            let mut service = make();
            event_loop.run(&mut service)
        })?;
        // It fails only when the thread has died, which `stop` reports.
        start.recv().ok();
        Ok(WorkerHandle { sockets: self.sockets, mailbox: self.mailbox, counters, is_stopping, thread: Some(thread) })
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
    sockets: Vec<OpenSocket>,
    mailbox: Mailbox<M>,
    counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<M> WorkerHandle<M> {
    /// The sockets of the configuration, in its order.
    pub fn sockets(&self) -> &[OpenSocket] {
        &self.sockets
    }

    /// Takes messages for the worker.
    pub fn mailbox(&self) -> Mailbox<M> {
        self.mailbox.clone()
    }

    /// What the worker has done up to its last turn.
    pub fn counters(&self) -> CountersSnapshot {
        self.counters.published.load()
    }

    /// CPU time that the worker has used, the kernel's share included.
    pub fn cpu_time(&self) -> Option<Duration> {
        sys::thread_cpu_time(self.counters.thread_id.load(Ordering::Relaxed))
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
