//! The data plane as it is built at start: workers with their rooms and pumps, and a negotiator beside each.
//!
//! Sockets are bound first, on the caller's thread, so that an address that is taken is an error with its name; then the
//! control plane gets the ports; then the threads start.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use ::pump::pump::Pump;
use anyhow::Context as _;
use engine::{BoundWorker, Mailbox, Receiver, Worker, WorkerConfig, WorkerHandle, mailbox};
use rooms::batch::BatchPool;
use rooms::pacer::Burst;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{Command, Event, WorkerId};
use tokio::runtime::Handle;
use webrtc::{Candidate, Context};
use wire::LinkId;

use crate::config::Config;
use crate::pump::control::PumpPort;
use crate::pump::part::{self, PumpPart};
use crate::pump::{outputs, setup};
use crate::random::random;
use crate::rooms::control::{Control, Meter, WorkerPort};
use crate::rooms::negotiator::{self, Input, Negotiator};
use crate::service::{Message, WorkerService};

/// What waits in a negotiator's mailbox at most. A handshake datagram over that is dropped, and its sender repeats it.
const NEGOTIATOR_MAILBOX: usize = 8_192;
/// What waits in a worker's mailbox at most. Packets over that are dropped for the viewers there, and counted.
const WORKER_MAILBOX: usize = 8_192;
/// A peer whose checks are the only sign of life may miss one, and is not forgotten.
const CONSENTS_PER_IDLE_TIMEOUT: u32 = 6;
/// Packet batches that are kept for reuse, per worker.
const POOLED_BATCHES: usize = 256;

/// Workers whose sockets are open and whose threads do not run yet.
pub struct Machine {
    parts: Vec<Part>,
    settings: Settings,
    context: Context,
}

struct Part {
    worker: BoundWorker<Message>,
    inputs: Mailbox<Input>,
    receiver: Receiver<Input>,
    negotiator: negotiator::Settings,
}

/// The running threads. They end when it is stopped.
pub struct Running {
    workers: Vec<Arc<WorkerHandle<Message>>>,
    /// The negotiators, and the pump's librarian.
    helpers: Vec<JoinHandle<()>>,
}

impl Machine {
    /// Binds the sockets of all workers.
    ///
    /// # Errors
    /// When an address cannot be bound, or there is no randomness or cryptography to be had.
    pub fn bind(config: &Config) -> anyhow::Result<Self> {
        let count = match config.workers.count {
            0 => thread::available_parallelism().map_or(1, usize::from),
            count => usize::from(count),
        };
        let hosts = host_addresses(config)?;
        let parts = (0..count).map(|index| Part::bind(config, index, &hosts)).collect::<anyhow::Result<_>>()?;
        Ok(Machine { parts, settings: settings(config)?, context: Context::new()? })
    }

    /// For clients of our own, as the demo's publisher.
    pub fn context(&self) -> Context {
        self.context.clone()
    }

    /// Starts the threads and returns them with the control plane above them. To be called on a runtime.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn run(self, config: &Config) -> anyhow::Result<(Arc<Control>, Running)> {
        let Machine { parts, settings, context } = self;
        let mailboxes: Vec<Mailbox<Message>> = parts.iter().map(|part| part.worker.mailbox()).collect();
        let pool = BatchPool::new(POOLED_BATCHES * parts.len());
        let (mut workers, mut bodies, mut ports, mut pump_ports) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (pump_events, pump_heard) = mailbox(setup::LIBRARIAN_MAILBOX).context("making a mailbox")?;
        for (index, Part { worker, inputs, receiver, negotiator }) in parts.into_iter().enumerate() {
            let (settings, pool, peers, events) = (settings.clone(), pool.clone(), mailboxes.clone(), inputs.clone());
            let (pump_settings, pump_events) = (setup::pump_settings(config), pump_events.clone());
            let senders = worker.senders().collect();
            let handle = Arc::new(worker.run(move || {
                let now = Instant::now();
                let rooms = Rooms::new(now, WorkerId(index as u16), settings, pool);
                let pump = Pump::new(now, pump_settings);
                let pump = PumpPart::new(now, index, pump, move |event: part::Event| pump_events.send(event));
                WorkerService::new(rooms, peers, move |event| events.send(Input::Event(event)).map_err(event_of), pump)
            })?);
            pump_ports.push(pump_port(mailboxes[index].clone(), senders, handle.clone()));
            let counters = Arc::new(negotiator::Counters::default());
            ports.push(port(mailboxes[index].clone(), inputs, handle.clone(), counters.clone()));
            bodies.push((negotiator, counters, mailboxes[index].clone(), receiver));
            workers.push(handle);
        }
        drop(pump_events);
        let (library, pump_settings) = (setup::library(config)?, setup::control_settings(config));
        let (pump, librarian) = setup::start(library, pump_ports, pump_settings, pump_heard, Handle::current())?;
        pump.set_outputs(config)?;
        pump.start_live(&config.pump.live)?;
        let control = Control::new(ports, config.rooms.reconnect_grace);
        let control = Arc::new(control.with_busy_max(config.workers.busy_max).with_pump(pump));
        let mut helpers = vec![librarian];
        for (index, (settings, counters, worker, receiver)) in bodies.into_iter().enumerate() {
            let send = move |command| worker.send(Message::Command(command)).map_err(command_of);
            let control = control.clone();
            let notify = move |notice| control.handle_notice(notice);
            let negotiator = Negotiator::new(settings, context.clone(), send, notify).with_counters(counters);
            let name = format!("negotiator-{index}");
            let body = move || negotiator::run(negotiator, &receiver);
            helpers.push(thread::Builder::new().name(name).spawn(body).context("starting a negotiator")?);
        }
        Ok((control, Running { workers, helpers }))
    }
}

impl Running {
    /// Whether every thread still runs. One that does not has failed.
    pub fn is_whole(&self) -> bool {
        !self.workers.iter().any(|worker| worker.is_finished()) && !self.helpers.iter().any(JoinHandle::is_finished)
    }
}

impl Part {
    fn bind(config: &Config, index: usize, hosts: &[IpAddr]) -> anyhow::Result<Self> {
        let workers = &config.workers;
        let addresses = addresses(&workers.bind, port_of("workers.udp_port", workers.udp_port, index)?);
        let worker = Worker::bind(WorkerConfig {
            name: format!("worker-{index}"),
            cpu: workers.pin.then_some(index),
            udp: addresses.clone(),
            tcp: if workers.tcp { addresses } else { Vec::new() },
            gso: workers.gso,
            gro: workers.gro,
            mailbox_len: WORKER_MAILBOX,
            socket_buffer_bytes: workers.socket_buffer.0,
            senders: setup::senders(config, index)?,
            outputs: outputs::sockets(config, index)?,
            multicast: setup::multicast(
                config.pump.multicast_ttl as u8,
                config.pump.multicast_interface.as_deref(),
                config.pump.multicast_loop,
            )?,
            dscp: config.pump.dscp as u8,
            tcp_links_max: workers.tcp_links_max as usize,
            ..WorkerConfig::default()
        })
        .with_context(|| format!("binding the sockets of worker {index} (see workers.bind, workers.udp_port, pump.bind and pump.udp_port)"))?;
        let udp = candidates(worker.local_addrs(), hosts, &config.rtc.public_addresses, false);
        let tcp = candidates(worker.tcp_addrs(), hosts, &config.rtc.public_addresses, true);
        let negotiator = negotiator::Settings {
            candidates: udp.into_iter().chain(tcp).collect(),
            sessions_max: config.rooms.sessions_max as usize,
            consent_interval: config.rooms.idle_timeout / CONSENTS_PER_IDLE_TIMEOUT,
            ..negotiator::Settings::default()
        };
        let (inputs, receiver) = mailbox(NEGOTIATOR_MAILBOX).context("making a mailbox")?;
        Ok(Part { worker, inputs, receiver, negotiator })
    }
}

/// Where clients are told to find sockets bound to `bound`: at their own address, or for a wildcard at each of the
/// host's; at the public ones instead, where these are configured.
fn candidates(bound: &[SocketAddr], hosts: &[IpAddr], public: &[IpAddr], tcp: bool) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for socket in bound {
        let is_same_family = |ip: &&IpAddr| ip.is_ipv4() == socket.is_ipv4();
        let ips: Vec<IpAddr> = match (public.is_empty(), socket.ip().is_unspecified()) {
            (false, _) => public.iter().filter(is_same_family).copied().collect(),
            (true, true) => hosts.iter().filter(is_same_family).copied().collect(),
            (true, false) => vec![socket.ip()],
        };
        candidates.extend(ips.into_iter().map(|ip| Candidate { addr: SocketAddr::new(ip, socket.port()), tcp }));
    }
    candidates
}

/// The host's addresses at which a client may find it. Loopback is among them when HTTP listens there, or nothing else is.
fn host_addresses(config: &Config) -> anyhow::Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs().context("reading the host's addresses")?;
    let all = || interfaces.iter().filter(|interface| !interface.is_link_local()).map(|interface| interface.ip());
    let mut addresses: Vec<IpAddr> = all().filter(|ip| !ip.is_loopback()).collect();
    if config.http.listen.ip().is_loopback() || addresses.is_empty() {
        addresses.extend(all().filter(IpAddr::is_loopback));
    }
    addresses.truncate(HOST_ADDRESSES_MAX);
    Ok(addresses)
}

/// More addresses than this make an answer long and ICE slow.
const HOST_ADDRESSES_MAX: usize = 8;

/// The port of worker `index`, where the first one's is `first`; 0 is any.
pub(crate) fn port_of(key: &str, first: u16, index: usize) -> anyhow::Result<u16> {
    match first {
        0 => Ok(0),
        _ => u16::try_from(usize::from(first) + index)
            .with_context(|| format!("{key}: {first} and {} workers need ports beyond 65535", index + 1)),
    }
}

/// Those that this machine can have: IPv6 is left out where there is none.
pub(crate) fn addresses(bind: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let usable = bind.iter().filter(|ip| ip.is_ipv4() || has_ipv6());
    usable.map(|ip| SocketAddr::new(*ip, port)).collect()
}

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind("[::1]:0").is_ok()
}

fn settings(config: &Config) -> anyhow::Result<Settings> {
    let seed = u64::from_ne_bytes(random().context("reading random numbers")?);
    let rooms = &config.rooms;
    Ok(Settings {
        idle_timeout: rooms.idle_timeout,
        keyframe_interval_min: rooms.keyframe_interval_min,
        keyframe_age_max: rooms.keyframe_age_max,
        equal_size_padding: rooms.equal_size_padding,
        burst: Burst { packets: rooms.burst_packets as usize, rate_min: rooms.burst_rate_min },
        resend_share: rooms.resend_share,
        estimate_start: rooms.estimate_start,
        estimate_max: rooms.estimate_max,
        sessions_max: rooms.sessions_max as usize,
        ..Settings::new(seed, (Instant::now(), ntp(SystemTime::now())))
    })
}

/// A time as NTP has it: 32.32 fixed-point seconds since 1900, which begin anew in 2036 (RFC 5905 §6).
pub fn ntp(at: SystemTime) -> u64 {
    let since_1970 = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
    ((since_1970.as_secs() + SECONDS_1900_TO_1970) << 32) + fraction
}

pub(crate) const SECONDS_1900_TO_1970: u64 = 2_208_988_800;

fn port(
    worker: Mailbox<Message>,
    negotiator: Mailbox<Input>,
    handle: Arc<WorkerHandle<Message>>,
    counters: Arc<negotiator::Counters>,
) -> WorkerPort {
    WorkerPort {
        command: Box::new(move |command| worker.send(Message::Command(command)).map_err(command_of)),
        request: Box::new(move |request| negotiator.send(Input::Request(request)).is_ok()),
        meter: Box::new(move || Meter {
            engine: handle.counters(),
            cpu_time: handle.cpu_time(),
            negotiator: counters.snapshot(),
        }),
    }
}

fn pump_port(
    worker: Mailbox<Message>,
    senders: Vec<(LinkId, SocketAddr)>,
    handle: Arc<WorkerHandle<Message>>,
) -> PumpPort {
    PumpPort {
        command: Box::new(move |command| worker.send(Message::Pump(command)).map_err(pump_command_of)),
        senders,
        busy_ns: Box::new(move || handle.counters().busy_ns),
    }
}

/// What a full mailbox gave back.
fn command_of(message: Message) -> Command {
    match message {
        Message::Command(command) => command,
        Message::Post(_) | Message::Pump(_) => unreachable!("a mailbox gives back what it was given"),
    }
}

fn pump_command_of(message: Message) -> ::pump::spec::Command {
    match message {
        Message::Pump(command) => command,
        Message::Command(_) | Message::Post(_) => unreachable!("a mailbox gives back what it was given"),
    }
}

fn event_of(input: Input) -> Event {
    match input {
        Input::Event(event) => event,
        Input::Request(_) => unreachable!("a mailbox gives back what it was given"),
    }
}
