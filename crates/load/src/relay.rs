//! `millrace load relay`: clients of a TURN server and their peers, thousands on one core.
//!
//! In: a server's address and credentials. Out: round trips, loss, order and their times as the clients saw them, how many
//! allocations were made and freed, and the server's CPU time for each.
//! Everything is real: 401 and nonces, MESSAGE-INTEGRITY of both sides, channels or permissions, refreshes, TLS. Clients and
//! their peers are on the same threads. What a client sends at once leaves as one message that the kernel splits (GSO), and
//! so does what a peer sends back: on loopback it reaches a receiver with GRO whole, as a network card would join it at
//! best. With --no-gso each datagram goes its own way, as from clients that send one at a time.
//! Cost: some 0.4 µs of CPU for a round trip of a flood; the kernel's way for each datagram otherwise.

mod args;
mod client;
mod connection;
mod dialog;
mod job;
mod payload;
mod report;
mod seen;
mod service;
mod strangers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use engine::{Mailbox, Socket, Worker, WorkerConfig, WorkerHandle};
use wire::{LinkId, Token, UdpOptions};

pub use args::{Args, Transport};
pub use connection::tls_config;
pub use report::Report;

use dialog::Credentials;
use job::{CLIENTS, Job, Message, PEERS, SHARED, Setup, Totals};
use payload::Payload;
use service::RelayLoad;
use strangers::Strangers;

use crate::clients::{Addresses, Coming, wait_for_all};

/// How long all allocations together may take.
const SET_UP_MAX: Duration = Duration::from_secs(60);

/// How long stragglers have, and how long it takes to free all allocations at most.
const STRAGGLERS: Duration = Duration::from_millis(500);
const FREE_MAX: Duration = Duration::from_secs(5);

/// Descriptors for everything that is no client and no peer.
const SPARE_FILES: usize = 64;

/// A thread has these networks of 127.0.0.0/8: one for its clients, from this number on, and one for its peers.
const CLIENTS_NETWORK: u8 = 1;
const PEERS_NETWORK: u8 = 128;

/// One socket for all of a thread: it has to hold what comes while the thread does something else.
const SHARED_BUFFER_BYTES: usize = 64 << 20;

/// Runs the load and prints the report. False when the asked-for quality was not held.
///
/// # Errors
/// When no client gets an allocation, or a socket cannot be had.
pub fn run(args: &Args) -> Result<bool> {
    let report = measure(args)?;
    args.common.basics.print(&report, &report.failures(args.max_loss, args.max_p99))
}

/// Runs the load.
///
/// # Errors
/// As `run`.
pub fn measure(args: &Args) -> Result<Report> {
    args.check()?;
    let run = Run::start(args)?;
    let report = run.measure();
    // Whatever came of it: the server is to be as it was before.
    run.free();
    report
}

/// The threads that play clients and peers.
struct Run<'a> {
    args: &'a Args,
    workers: Vec<(WorkerHandle<Message>, Mailbox<Message>)>,
}

impl<'a> Run<'a> {
    fn start(args: &'a Args) -> Result<Self> {
        let files_max = engine::sys::raise_open_files_max().context("raise the limit of open files")?;
        let sockets =
            if args.is_on_loopback() { 0 } else { args.clients + args.peers * usize::from(args.common.threads) };
        let connections = if args.transport == Transport::Udp { 0 } else { args.clients };
        let needed = (sockets.max(connections) + SPARE_FILES) as u64;
        ensure!(files_max >= needed, "{needed} open files are needed, the limit is {files_max}");
        let workers = (0..args.common.threads).map(|thread| start(args, thread)).collect::<Result<_>>()?;
        Ok(Run { args, workers })
    }

    fn measure(&self) -> Result<Report> {
        let common = &self.args.common;
        self.set_up()?;
        self.tell_all(|| Message::Go);
        thread::sleep(common.warm_up);
        self.tell_all(|| Message::Reset);
        // Another server has no such page.
        let api = common.basics.api().ok().filter(|_| common.server_pid.is_none());
        let (stopped, counted) = {
            let ((), counted) = common.count(api.as_ref(), || Ok(()))?;
            self.tell_all(|| Message::Stop);
            (self.totals()?, counted)
        };
        thread::sleep(STRAGGLERS);
        Ok(Report::new(self.args.clients, self.args.bytes_of_each(), &stopped, &self.totals()?, &counted))
    }

    /// Makes all allocations.
    fn set_up(&self) -> Result<()> {
        let progress = self.args.common.progress(self.args.clients as u64, "allocating");
        self.tell_all(|| Message::SetUp);
        wait_for_all(&progress, SET_UP_MAX, "no client got an allocation", || {
            let totals = self.totals()?;
            let sum = |count: fn(&Totals) -> usize| totals.iter().map(count).sum();
            let why = totals.iter().flat_map(|part| part.failures.keys()).next().cloned();
            Ok(Coming { waiting: sum(|part| part.setting_up), there: sum(|part| part.ready), why })
        })
    }

    /// Gives all allocations back, as far as the server lets us.
    fn free(&self) {
        self.tell_all(|| Message::Free);
        let end = Instant::now() + FREE_MAX;
        while Instant::now() < end
            && let Ok(totals) = self.totals()
            && totals.iter().any(|part| part.ready > 0)
        {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for (_, mailbox) in &self.workers {
            // A full mailbox means that the thread is far behind; the report will show it.
            let _ = mailbox.send(message());
        }
    }

    fn totals(&self) -> Result<Vec<Totals>> {
        let (reply, totals) = mpsc::sync_channel(self.workers.len());
        self.tell_all(|| Message::Report(reply.clone()));
        let wait = Duration::from_secs(10);
        (0..self.workers.len()).map(|_| totals.recv_timeout(wait).context("a load thread does not answer")).collect()
    }
}

impl Args {
    fn bytes_of_each(&self) -> usize {
        if self.allocate { 0 } else { self.length }
    }

    fn job(&self) -> Job {
        match self.rate {
            _ if self.allocate => Job::Allocate,
            None => Job::Flood { in_flight: self.in_flight },
            Some(rate) => Job::Paced { interval_ns: 1e9 / rate, tick_ns: self.tick().as_nanos() as u64 },
        }
    }

    fn credentials(&self) -> Credentials {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        match &self.secret {
            Some(secret) => Credentials::of_secret(&self.user, secret, now_s),
            None => Credentials::of_password(&self.user, &self.password),
        }
    }

    /// The sockets of one thread: clients', then peers'.
    fn sockets_of(&self, thread: u8) -> Vec<Socket> {
        let gso = !self.no_gso;
        let shared = Some(SHARED_BUFFER_BYTES);
        let options = UdpOptions { gso, receive_buffer_bytes: shared, send_buffer_bytes: shared, ..Default::default() };
        let own = UdpOptions { gso, receive_buffer_bytes: None, send_buffer_bytes: None, ..Default::default() };
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let (at, options, are_shared) = match self.is_on_loopback() {
            true => (any, options, true),
            false => (self.from.unwrap_or(any), own, false),
        };
        let rows = [
            (CLIENTS, if self.transport == Transport::Udp { self.clients_of(thread) } else { 0 }),
            (PEERS, self.peers),
        ];
        let row = |(owner, count): (u16, usize)| {
            let numbers: Vec<u32> = match are_shared && count > 0 {
                true => vec![SHARED],
                false => (0..count as u32).collect(),
            };
            let options = options.clone();
            numbers.into_iter().map(move |number| Socket::udp(Token { owner, number }, (at, 0).into(), options.clone()))
        };
        rows.into_iter().flat_map(row).collect()
    }
}

fn start(args: &Args, thread: u8) -> Result<(WorkerHandle<Message>, Mailbox<Message>)> {
    let name = format!("load-{thread}");
    let config = WorkerConfig { name, sockets: args.sockets_of(thread), ..WorkerConfig::default() };
    let bound = Worker::bind(config).context("binding the sockets of clients and peers")?;
    let mailbox = bound.mailbox();
    let of = |owner| bound.sockets().iter().filter(move |socket| socket.token.owner == owner);
    let links: Vec<LinkId> = of(CLIENTS).map(|socket| socket.link).collect();
    let peers: Vec<SocketAddr> = match (of(PEERS).next(), args.is_on_loopback()) {
        (Some(socket), true) => {
            let addresses = Addresses { run: PEERS_NETWORK + thread };
            (0..args.peers).map(|peer| (addresses.of(peer), socket.local.port()).into()).collect()
        }
        _ => of(PEERS).map(|socket| socket.local).collect(),
    };
    ensure!(!peers.iter().any(|peer| peer.ip().is_unspecified()), "--from says where clients and peers are");
    let transport = match args.transport {
        Transport::Udp => job::Transport::Udp,
        Transport::Tcp => job::Transport::Stream(None),
        Transport::Tls => job::Transport::Stream(Some(connection::tls_config()?)),
    };
    let has_strangers = args.strangers > 0.0 && thread == 0;
    let strangers =
        links.first().filter(|_| has_strangers).map(|link| Strangers::new(args.strangers, *link, args.server));
    let setup = Setup {
        strangers,
        server: args.server,
        transport,
        credentials: args.credentials(),
        indications: args.indications,
        sink: args.sink,
        payload: Payload::new(args.length),
        job: args.job(),
        count: args.clients_of(thread),
        links,
        addresses: args.is_on_loopback().then_some(Addresses { run: CLIENTS_NETWORK + thread }),
        peers,
        seed: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64) + u64::from(thread),
    };
    let handle = bound.run(move || RelayLoad::new(Instant::now(), setup))?;
    Ok((handle, mailbox))
}

#[cfg(test)]
mod tests;
