//! The relay on a worker, with a socket for each allocation: what the kernel adds, and what a packet notices when all of
//! them end at once.
//!
//! In: how many. Out: the worker's CPU time for each, memory of both sides, and how long packets of another client took before
//! and meanwhile. The worker's clock is put forward, so nobody waits for ten minutes.
//! A five-tuple has our address, too: few sockets play many clients, by sending to many addresses of 127.0.0.0/8.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use engine::{Mailbox, Service, Socket, Worker, WorkerConfig, WorkerHandle};
use measure::percentiles::Percentiles;
use relay::relay::Relay;
use relay::settings::RelayAddress;
use wire::{DatagramRun, LinkEvent, Outbox, Product, Token, UdpOptions};

use super::client::{self, Clients, Step, Users, memory, settings};

/// Where relayed addresses are: where nobody else takes ports.
const RELAYED: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);

/// Sockets that play clients; each has a request under way.
const SOCKETS: usize = 64;

/// How often the other client sends, and how long before the end of all the others.
const INTERVAL: Duration = Duration::from_millis(1);
const QUIET: Duration = Duration::from_secs(1);

/// Descriptors that are for others: those of the engine (`engine::links`), and of this process.
const SPARE_FILES: u64 = 1_024 + SOCKETS as u64 + 64;

const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What was measured.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Costs {
    pub(super) count: usize,
    /// CPU time of the worker, for an allocation with a channel: two requests and a socket.
    pub(super) made_ns: f64,
    pub(super) made_per_second: f64,
    /// Of memory, for each: of this process, and of the kernel's objects (`Slab` of /proc/meminfo).
    pub(super) bytes: f64,
    pub(super) kernel_bytes: f64,
    /// CPU time of the worker for the end of each, when all are due at once, and how long that took.
    pub(super) ended_ns: f64,
    pub(super) end_ms: f64,
    /// How long packets of another client took, before and meanwhile.
    pub(super) before: Percentiles,
    pub(super) meanwhile: Percentiles,
}

/// A relay whose clock is ahead.
struct Ahead {
    relay: Relay,
    ahead: Duration,
    /// Allocations that are there.
    count: Arc<AtomicU64>,
}

/// Puts the clock forward.
#[derive(Debug)]
struct Forward {
    by: Duration,
    /// It is told of when that is done: what comes by a socket meanwhile may be read before.
    done: SyncSender<()>,
}

struct Scene {
    worker: WorkerHandle<Forward>,
    mailbox: Mailbox<Forward>,
    count: Arc<AtomicU64>,
    clients: Clients,
    sockets: Vec<UdpSocket>,
    port: u16,
    peer: UdpSocket,
}

/// As many as the limit of open files lets us have, `wanted` at most.
pub(super) fn measure(wanted: usize) -> Result<Costs> {
    let files_max = engine::sys::raise_open_files_max().context("raise the limit of open files")?;
    let count = wanted.min(files_max.saturating_sub(SPARE_FILES) as usize);
    ensure!(count > 0, "the limit of open files is {files_max}");
    let mut scene = Scene::start()?;
    let own = Own::begin(&mut scene)?;
    let (before, start) = (scene.now()?, Instant::now());
    for first in (0..count).step_by(SOCKETS) {
        scene.allocate(first..(first + SOCKETS).min(count))?;
    }
    let (made, after) = (start.elapsed(), scene.now()?);
    let each = |value: f64| value / count as f64;

    // Its channel is to be there when all the others are not.
    let quiet = own.send(&scene, |start| start.elapsed() < QUIET)?;
    scene.forward(Duration::from_secs(500))?;
    own.renew(&scene)?;
    let (begin, start) = (scene.now()?, Instant::now());
    scene.forward(Duration::from_secs(101))?;
    let meanwhile = own.send(&scene, |_| scene.count.load(Ordering::Relaxed) > 1)?;
    let (ended, end) = (start.elapsed(), scene.now()?);
    Ok(Costs {
        count,
        made_ns: each((after.cpu - before.cpu).as_nanos() as f64),
        made_per_second: count as f64 / made.as_secs_f64(),
        bytes: each(after.memory.0.saturating_sub(before.memory.0) as f64),
        kernel_bytes: each(after.memory.1.saturating_sub(before.memory.1) as f64),
        ended_ns: each((end.cpu - begin.cpu).as_nanos() as f64),
        end_ms: ended.as_secs_f64() * 1e3,
        before: quiet,
        meanwhile,
    })
}

/// What was used so far.
struct Now {
    cpu: Duration,
    memory: (u64, u64),
}

impl Scene {
    fn start() -> Result<Self> {
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let token = Token { owner: 0, number: relay::names::listener(0) };
        let options = UdpOptions::default();
        let config = WorkerConfig { sockets: vec![Socket::udp(token, listen, options)], ..WorkerConfig::default() };
        let bound = Worker::bind(config).context("bind the relay's socket")?;
        let listen = bound.sockets()[0].local;
        let count = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&count);
        let mailbox = bound.mailbox();
        let worker = bound.run(move || {
            let now = Instant::now();
            let relay = Relay::new(now, settings(now, listen, RelayAddress::of(RELAYED.into())));
            Ahead { relay, ahead: Duration::ZERO, count: shown }
        })?;
        let mut scene = Scene {
            worker,
            mailbox,
            count,
            clients: Clients::new(Users::Many),
            sockets: (0..SOCKETS).map(|_| bound_socket()).collect::<Result<_>>()?,
            port: listen.port(),
            peer: bound_socket()?,
        };
        let answer = scene.exchange(&scene.sockets[0], scene.server(0), &scene.clients.first())?;
        scene.clients.take_nonce(&answer)?;
        Ok(scene)
    }

    /// Our address as a client sees it.
    fn server(&self, client: usize) -> SocketAddr {
        let [high, low] = ((client / SOCKETS) as u16).to_be_bytes();
        (Ipv4Addr::new(127, 78, high, low), self.port).into()
    }

    fn exchange(&self, socket: &UdpSocket, server: SocketAddr, request: &[u8]) -> Result<Vec<u8>> {
        socket.send_to(request, server)?;
        receive(socket)
    }

    /// One step of many clients, one of each socket, and the next when all are answered.
    fn allocate(&self, clients: std::ops::Range<usize>) -> Result<()> {
        let peer = self.peer.local_addr()?;
        for step in [Step::Allocate, Step::Bind(peer)] {
            for client in clients.clone() {
                let request = self.clients.request(client, step);
                self.sockets[client % SOCKETS].send_to(&request, self.server(client))?;
            }
            for client in clients.clone() {
                Clients::check(step, &receive(&self.sockets[client % SOCKETS])?)?;
            }
        }
        Ok(())
    }

    fn now(&self) -> Result<Now> {
        Ok(Now { cpu: self.worker.cpu_time().context("the worker's CPU time")?, memory: memory()? })
    }

    fn forward(&self, by: Duration) -> Result<()> {
        let (done, is_done) = mpsc::sync_channel(1);
        self.mailbox.send(Forward { by, done }).ok().context("the worker takes no message")?;
        is_done.recv_timeout(ANSWER_MAX).context("the worker does not put its clock forward")
    }
}

fn bound_socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a socket")?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(socket)
}

fn receive(socket: &UdpSocket) -> Result<Vec<u8>> {
    let mut buf = [0; 1_500];
    let len = socket.recv(&mut buf).context("no answer")?;
    Ok(buf[..len].to_vec())
}

/// The other client, who goes on.
struct Own {
    socket: UdpSocket,
    server: SocketAddr,
    number: usize,
}

impl Own {
    fn begin(scene: &mut Scene) -> Result<Self> {
        let own = Own { socket: bound_socket()?, server: (Ipv4Addr::LOCALHOST, scene.port).into(), number: 0 };
        own.ask(scene, Step::Allocate)?;
        own.ask(scene, Step::Bind(scene.peer.local_addr()?))?;
        Ok(own)
    }

    fn ask(&self, scene: &Scene, step: Step) -> Result<()> {
        let request = scene.clients.request(self.number, step);
        Clients::check(step, &scene.exchange(&self.socket, self.server, &request)?)
    }

    fn renew(&self, scene: &Scene) -> Result<()> {
        self.ask(scene, Step::Refresh)?;
        self.ask(scene, Step::Bind(scene.peer.local_addr()?))
    }

    /// Sends a packet each `INTERVAL` while that holds; how long each took to its peer.
    fn send(&self, scene: &Scene, goes_on: impl Fn(Instant) -> bool) -> Result<Percentiles> {
        let (start, mut due, mut times) = (Instant::now(), Instant::now(), Vec::new());
        let data = client::channel_data(&[7; 120]);
        while goes_on(start) {
            due += INTERVAL;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = Instant::now();
            self.socket.send_to(&data, self.server)?;
            receive(&scene.peer)?;
            times.push(sent.elapsed().as_nanos() as u64);
        }
        Ok(Percentiles::of_ns(times.into_iter()))
    }
}

impl Ahead {
    fn behind(&self, at: Option<Instant>) -> Option<Instant> {
        at.map(|at| at.checked_sub(self.ahead).unwrap_or(at))
    }
}

impl Service for Ahead {
    type Message = Forward;

    fn handle_message(&mut self, _now: Instant, Forward { by, done }: Forward, _out: &mut Outbox) {
        self.ahead += by;
        // Whoever waits no longer has given up.
        let _ = done.send(());
    }
}

impl Product for Ahead {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        self.relay.handle_run(now + self.ahead, run, out);
    }

    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        self.relay.handle_link(now + self.ahead, token, event, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.relay.handle_timeout(now + self.ahead, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.behind(self.relay.poll_timeout())
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let has_more = self.relay.poll_transmit(now + self.ahead, out);
        while self.relay.poll_event().is_some() {}
        self.count.store(self.relay.counters().allocations.total(), Ordering::Relaxed);
        has_more
    }
}
