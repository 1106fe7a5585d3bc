//! The relay without an engine: no socket, no kernel, a clock that is set.
//!
//! In: how many allocations. Out: CPU time of making, refreshing and ending them, and what they take of memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use engine::sys::{thread_cpu_time, thread_id};
use relay::relay::Relay;
use relay::settings::{RelayAddress, Settings};
use wire::{CloseReason, DatagramRun, LinkEvent, LinkId, LinkRequest, Outbox, Path, Product as _, Token};

use super::client::{Clients, Step, Users, channel_data, memory, settings};

/// Where clients send to, where they all are, and where peers are.
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 3_478);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PEERS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// Allocations at most: each client has a port at one address, and each relayed address one at another.
pub(super) const COUNT_MAX: usize = 60_000;

/// Bytes that are relayed in a packet.
const PAYLOAD_BYTES: usize = 120;

/// How often it is asked what is due when nothing is.
const IDLE_TURNS: u32 = 100_000;

/// What was measured: CPU time of one thread.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Costs {
    pub(super) count: usize,
    /// For an allocation with a channel: two requests.
    pub(super) made_ns: f64,
    /// Of memory, for each.
    pub(super) bytes: f64,
    pub(super) refreshed_ns: f64,
    /// For a turn in which nothing is due.
    pub(super) idle_turn_ns: f64,
    /// For the end of each, when all are due at once.
    pub(super) ended_ns: f64,
    /// Turns that this took, and how long the longest was; so long a packet may wait.
    pub(super) end_turns: usize,
    pub(super) end_turn_max_us: f64,
    /// From the first to the last, by the clock.
    pub(super) end_ms: f64,
}

/// A relay, and an engine that is none.
pub(super) struct Alone {
    relay: Relay,
    out: Outbox,
    now: Instant,
    pub(super) users: Users,
    thread: i32,
    /// The sockets that it has asked for, by which they are closed.
    sockets: Vec<(Token, LinkId)>,
    answer: Vec<u8>,
    /// What a client sends, and what its peer does.
    data: [Vec<u8>; 2],
}

pub(super) fn measure(count: usize) -> Result<Costs> {
    let mut clients = Clients::new(Users::Many);
    let mut alone = Alone::of_workers(1, Users::Many).remove(0);
    let (before, _) = memory()?;
    let made = alone.begin(&mut clients, count)?;
    let (after, _) = memory()?;
    ensure!(
        alone.relay.counters().allocations.total() == count as u64,
        "{} allocations",
        alone.relay.counters().allocations.total()
    );
    let mut refreshed = Duration::ZERO;
    for client in 0..count {
        refreshed += alone.ask(&clients, client, Step::Refresh)?;
    }
    let idle = alone.time(|alone| {
        for _ in 0..IDLE_TURNS {
            alone.turn();
        }
    })?;
    let each = |time: Duration| time.as_nanos() as f64 / count as f64;
    let end = alone.end_all()?;
    Ok(Costs {
        count,
        made_ns: each(made),
        bytes: after.saturating_sub(before) as f64 / count as f64,
        refreshed_ns: each(refreshed),
        idle_turn_ns: idle.as_nanos() as f64 / f64::from(IDLE_TURNS),
        ended_ns: each(end.cpu),
        end_turns: end.turns,
        end_turn_max_us: end.longest.as_nanos() as f64 / 1e3,
        end_ms: end.wall.as_secs_f64() * 1e3,
    })
}

fn listener() -> Token {
    Token { owner: 0, number: relay::names::listener(0) }
}

#[derive(Default)]
struct End {
    cpu: Duration,
    longest: Duration,
    turns: usize,
    wall: Duration,
}

impl Alone {
    /// Relays that share what those of one server do.
    pub(super) fn of_workers(count: usize, users: Users) -> Vec<Self> {
        let now = Instant::now();
        let relayed = RelayAddress::of(Ipv4Addr::new(203, 0, 113, 1).into());
        let settings = settings(now, SERVER.into(), relayed);
        (0..count).map(|_| Alone::new(now, settings.clone(), users)).collect()
    }

    fn new(now: Instant, settings: Settings, users: Users) -> Self {
        let mut relay = Relay::new(now, settings);
        let mut out = Outbox::new(512 << 10);
        let opened = LinkEvent::Opened { link: LinkId::datagrams(0), local: SERVER.into(), remote: None };
        relay.handle_link(now, listener(), opened, &mut out);
        let data = [channel_data(&[7; PAYLOAD_BYTES]), vec![7; PAYLOAD_BYTES]];
        Alone { relay, out, now, users, thread: thread_id(), sockets: Vec::new(), answer: Vec::new(), data }
    }

    /// Makes so many allocations with a channel each; the CPU time that it took.
    pub(super) fn begin(&mut self, clients: &mut Clients, count: usize) -> Result<Duration> {
        self.exchange(0, &clients.first())?;
        clients.take_nonce(&self.answer)?;
        self.sockets.reserve(count);
        let mut made = Duration::ZERO;
        for client in 0..count {
            for step in [Step::Allocate, Step::Bind(Alone::peer(client))] {
                made += self.ask(clients, client, step)?;
            }
        }
        Ok(made)
    }

    /// Each client's own.
    fn peer(client: usize) -> SocketAddr {
        (PEERS, 1_024 + client as u16).into()
    }

    /// Relays one packet of a client to its peer, and one back.
    pub(super) fn relay_both_ways(&mut self, client: usize) {
        let (token, link) = self.sockets[client];
        let from_peer = Path { link, remote: Alone::peer(client), local: None };
        for (token, path, data) in [(listener(), Alone::path(client), 0), (token, from_peer, 1)] {
            let data = &mut self.data[data];
            let len = NonZeroUsize::new(data.len()).unwrap_or(NonZeroUsize::MIN);
            self.relay.handle_run(self.now, DatagramRun::new(token, path, len, data).at(0), &mut self.out);
        }
        if !self.out.has_room_for(2) {
            self.out.clear();
        }
    }

    /// Packets that were relayed.
    pub(super) fn relayed(&self) -> u64 {
        self.relay.counters().packets_to_peers + self.relay.counters().packets_to_clients
    }

    /// Sends a client's request and checks the answer; the CPU time between the two.
    fn ask(&mut self, clients: &Clients, client: usize, step: Step) -> Result<Duration> {
        let request = clients.request(client, step);
        let time = self.exchange(client, &request)?;
        Clients::check(step, &self.answer)?;
        Ok(time)
    }

    fn exchange(&mut self, client: usize, request: &[u8]) -> Result<Duration> {
        let mut data = request.to_vec();
        self.answer.clear();
        self.time(|alone| {
            let len = NonZeroUsize::new(data.len()).unwrap_or(NonZeroUsize::MIN);
            let run = DatagramRun::new(listener(), Alone::path(client), len, &mut data).at(0);
            alone.relay.handle_run(alone.now, run, &mut alone.out);
            alone.turn();
        })
    }

    /// How a client is reached.
    fn path(client: usize) -> Path {
        Path { link: LinkId::datagrams(0), remote: (CLIENTS, 1_024 + client as u16).into(), local: None }
    }

    /// The CPU time of some work.
    fn time(&mut self, work: impl FnOnce(&mut Self)) -> Result<Duration> {
        let spent = |alone: &Alone| thread_cpu_time(alone.thread).context("the CPU time of this thread");
        let before = spent(self)?;
        work(self);
        Ok(spent(self)?.saturating_sub(before))
    }

    /// What a worker does when it is woken: what is due, what is asked for, what control hears.
    fn turn(&mut self) {
        let Alone { relay, out, now, .. } = self;
        if relay.poll_timeout().is_some_and(|due| due <= *now) {
            relay.handle_timeout(*now, out);
        }
        loop {
            let has_more = self.relay.poll_transmit(self.now, &mut self.out);
            if !self.flush() && !has_more {
                break;
            }
        }
        while self.relay.poll_event().is_some() {}
    }

    /// Takes what was sent, and does what is asked for at once; true when there was any.
    fn flush(&mut self) -> bool {
        for (_, datagram) in self.out.datagrams() {
            self.answer.clear();
            self.answer.extend(datagram);
        }
        self.out.clear();
        let requests: Vec<LinkRequest> = self.out.take_requests().collect();
        for request in &requests {
            let (token, event) = match request {
                LinkRequest::OpenUdp { token, addr, .. } => {
                    let link = LinkId::datagrams(self.sockets.len() as u32 + 1);
                    self.sockets.push((*token, link));
                    (*token, LinkEvent::Opened { link, local: *addr, remote: None })
                }
                LinkRequest::Close { link } => {
                    let (token, link) = self.sockets[link.slot() - 1];
                    (token, LinkEvent::Closed { link, remote: None, reason: CloseReason::Asked })
                }
                _ => continue,
            };
            self.relay.handle_link(self.now, token, event, &mut self.out);
        }
        !requests.is_empty()
    }

    /// Lets the time of all allocations come at once. A turn takes as long on the relay's clock as it took.
    fn end_all(&mut self) -> Result<End> {
        self.now += Duration::from_secs(700);
        let (begin, mut end) = (self.now, End::default());
        while let Some(due) = self.relay.poll_timeout() {
            self.now = self.now.max(due);
            let spent = self.time(Alone::turn)?;
            self.now += spent;
            end.cpu += spent;
            end.longest = end.longest.max(spent);
            end.turns += 1;
        }
        end.wall = self.now - begin;
        Ok(end)
    }
}
