//! The data plane as it is built at start: workers with their rooms and pumps, and a negotiator beside each.
//!
//! Sockets are bound first, on the caller's thread, so that an address that is taken is an error with its name; then the
//! control plane gets the ports; then the threads start.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use ::pump::pump::Pump;
use ::relay::relay::Relay;
use anyhow::Context as _;
use counters::Published;
use engine::sys::Beginning;
use engine::{BoundWorker, Mailbox, Receiver, Socket, SocketOptions, Worker, WorkerConfig, mailbox};
use rooms::batch::BatchPool;
use rooms::pacer::Burst;
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use webrtc::{Candidate, Context};
use wire::framing::Framing;
use wire::{LinkKind, ListenOptions, Strangers, StreamOptions, Token, UdpOptions, WorkerId};

use crate::config::{self, Config};
use crate::host::{addresses, host_addresses, links_max, ntp, port_of};
use crate::livekit;
use crate::livekit::control::Control as LivekitControl;
use crate::livekit::ice::IceServers;
use crate::owner::{RELAY, ROOMS};
use crate::plane::workers::Workers;
use crate::plane::{Plane, ProductControl, placement};
use crate::pump::control::PumpControl;
use crate::pump::setup;
use crate::random::random;
use crate::reflect::control::Control as ReflectControl;
use crate::reflect::source::{Around, Patience};
use crate::relay::control::RelayControl;
use crate::relay::setup as relay_setup;
use crate::relay::{handshakes, known};
use crate::report;
use crate::rooms::control::{NegotiatorEnd, RoomsControl};
use crate::rooms::directory;
use crate::rooms::negotiator::{self, Input, Negotiator, Notice};
use crate::rtsp;
use crate::supervisor::Watchdog;
use crate::tls::Certificates;
use crate::traces::Traces;
use crate::upgrade::{self, Sockets};
use crate::worker::{Message, Numbers, Products, Ways};

/// What waits in a negotiator's mailbox at most. A handshake datagram that would be in its last quarter is dropped, and its
/// sender repeats it: that is for requests and events.
const NEGOTIATOR_MAILBOX: usize = 8_192;
/// What waits in a worker's mailbox at most. Packets over that are dropped for the viewers there, and counted.
const WORKER_MAILBOX: usize = 8_192;
/// A peer whose checks are the only sign of life may miss one, and is not forgotten.
const CONSENTS_PER_IDLE_TIMEOUT: u32 = 6;
/// And is not taken for silent.
const CONSENT_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// How long a TCP connection may take to show by an ICE check that it belongs to a session. Clients check at once.
const STRANGER_AGE_MAX: Duration = Duration::from_secs(10);
/// What can wait until a worker wakes for something else: ICE checks (STUN, RFC 7983 §7), and RTCP that reports (RFC 5761 §4), also
/// of what was received (transport-wide feedback, REMB: format 15 of both feedback types, RFC 4585 §6.1). What asks for a packet
/// or a picture cannot, where it begins its datagram: behind a report nobody can tell it from that, as it is encrypted.
static CAN_WAIT: [Beginning; 5] = [
    Beginning(0..=3, 0..=255),
    Beginning(128..=191, 200..=204),
    Beginning(128..=191, 207..=207),
    Beginning(0x8f..=0x8f, 205..=206),
    Beginning(0xaf..=0xaf, 205..=206),
];
/// Packet batches that are kept for reuse, per worker.
const POOLED_BATCHES: usize = 256;

/// Workers whose sockets are open and whose threads do not run yet.
pub struct Machine {
    parts: Vec<Part>,
    /// What the workers' relays share; a server without them has none.
    relay: Option<relay_setup::Shared>,
    settings: Settings,
    context: Context,
    /// Open files that the process may have.
    files_max: u64,
}

struct Part {
    worker: BoundWorker<Message>,
    /// What another process may call its sockets, and their addresses as they are configured.
    wanted: Vec<(Option<String>, SocketAddr)>,
    inputs: Mailbox<Input>,
    receiver: Receiver<Input>,
    negotiator: negotiator::Settings,
}

/// What runs: the control planes, and the threads that are not workers.
pub struct Running {
    /// What all products have in common.
    pub plane: Arc<Plane>,
    /// The rooms.
    pub rooms: Arc<RoomsControl>,
    /// Those of LiveKit's protocol, where there are any.
    pub livekit: Option<Arc<LivekitControl>>,
    /// The pump.
    pub pump: Arc<PumpControl>,
    /// The relay, where there is one.
    pub relay: Option<Arc<RelayControl>>,
    /// The reflector.
    pub reflect: Arc<ReflectControl>,
    /// The negotiators, and the thread that hears the workers.
    helpers: Vec<JoinHandle<()>>,
    watchdog: Watchdog,
}

/// What cannot be on this machine, as far as that can be told without a socket.
///
/// # Errors
/// What it is, by the names of the settings.
pub fn check(config: &Config) -> anyhow::Result<()> {
    let last = relay_setup::workers_count(config) - 1;
    port_of("workers.udp_port", config.workers.udp_port, last)?;
    setup::sockets(config, last)?;
    // What is on the disk may be in use.
    let pump = config::Pump { disk_cache: None, ..config.pump.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    setup::library(&Config { pump, ..config.clone() }).map(drop)
}

impl Machine {
    /// Binds the sockets of all workers, but for those that are there from before. The process may have `files_max` open files, all in all.
    ///
    /// # Errors
    /// When an address cannot be bound, or there is no randomness or cryptography to be had.
    pub(crate) fn bind(config: &Config, files_max: u64, before: &mut Sockets) -> anyhow::Result<Self> {
        relay_setup::check(config)?;
        let count = relay_setup::workers_count(config);
        let hosts = host_addresses(config)?;
        let allocations_max = relay_setup::allocations_max(config, files_max);
        let connections_max = relay_setup::connections_max(config, files_max);
        let links_max = tcp_links_max(config, count, files_max, allocations_max.saturating_add(connections_max));
        let (mut parts, mut listen) = (Vec::with_capacity(count), relay_setup::listen(config));
        relay_setup::probe(config)?;
        relay_setup::claim(config, &listen)?;
        for index in 0..count {
            let part = Part::bind(config, index, &hosts, links_max, (&listen, before))?;
            // Where the system chose the ports, the other workers have the same.
            listen = relay_setup::listening(part.worker.sockets());
            parts.push(part);
        }
        let rooms: Vec<SocketAddr> =
            parts.iter().flat_map(|part| relay_setup::rooms_sockets(part.worker.sockets())).collect();
        let relay = match listen.is_empty() {
            true => None,
            false => {
                let shared = relay_setup::Shared::new(config, allocations_max, &listen, &hosts, &rooms)?;
                Some(shared.with_connections(connections_max / count))
            }
        };
        Ok(Machine { parts, relay, settings: settings(config)?, context: Context::new()?, files_max })
    }

    /// One more reference to each socket of the workers, for another process; a relay's stay here.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn share(&mut self) -> anyhow::Result<Vec<upgrade::Socket>> {
        let mut sockets = Vec::new();
        for Part { worker, wanted, .. } in &mut self.parts {
            let descriptors = worker.share().context("sharing the sockets of a worker")?;
            for ((name, addr), (descriptor, patient)) in wanted.iter().zip(descriptors) {
                let Some(name) = name.clone() else { continue };
                let patient = patient.map(|descriptor| (patient_name(&name), descriptor));
                let named = [(name, descriptor)].into_iter().chain(patient);
                sockets.extend(named.map(|(name, descriptor)| upgrade::Socket { name, addr: *addr, descriptor }));
            }
        }
        Ok(sockets)
    }

    /// For clients of our own, as the demo's publisher.
    pub fn context(&self) -> Context {
        self.context.clone()
    }

    /// Starts the threads and the control planes above them. To be called on a runtime. Who shakes hands by DTLS shows one of
    /// these certificates.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn run(self, config: &Config, certificates: Option<&Arc<Certificates>>) -> anyhow::Result<Running> {
        let Machine { parts, relay, settings, context, files_max } = self;
        engine::sys::probe_sending(&config.reflect.sending()).context("reflect: connections to viewers")?;
        let count = parts.len();
        let peers: Vec<Mailbox<Message>> = parts.iter().map(|part| part.worker.mailbox()).collect();
        let pool = BatchPool::new(POOLED_BATCHES * parts.len());
        let (control, reports) = mailbox(report::MAILBOX).context("making a mailbox")?;
        let (mut running, mut senders, mut ends, mut bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (id, Part { worker, inputs, receiver, negotiator, .. }) in WorkerId::all(peers.len()).zip(parts) {
            let (settings, pump_settings, pool) = (settings.clone(), setup::pump_settings(config), pool.clone());
            let sending = config.reflect.sending();
            let numbers = Numbers::default();
            let relay_settings = relay.as_ref().map(|shared| shared.settings(config, id, count)).transpose()?;
            let ways = Ways {
                worker: id,
                workers: peers.clone(),
                negotiator: Some(inputs.clone()),
                control: control.clone(),
                numbers: numbers.clone(),
            };
            senders.push(setup::senders_of(worker.sockets()));
            let handle = worker.run(move || {
                let now = Instant::now();
                let rooms = Rooms::new(now, id, settings, pool);
                let relay = relay_settings.map(|settings| Relay::new(now, settings));
                Products::new(now, rooms, Pump::new(now, pump_settings), relay, ways).sending(sending)
            })?;
            running.push((handle, numbers));
            let counters = Published::default();
            ends.push(NegotiatorEnd { mailbox: inputs, counters: counters.clone() });
            bodies.push((negotiator, counters, receiver));
        }
        let placement = placement::Settings { busy_max: config.workers.busy_max, near_max: config.rooms.near_max };
        let plane = Plane::traced(Workers::new(running), placement, Traces::start(&config.traces)?);
        let library = setup::library(config)?;
        let pump = Arc::new(PumpControl::new(library, plane.clone(), senders, setup::control_settings(config)));
        pump.start_live(&config.pump.live)?;
        let rooms = Arc::new(RoomsControl::new(plane.clone(), ends, directory_settings(&config.rooms)));
        let relay = relay.map(|shared| {
            let users = Arc::new(Notify::new());
            let lookups = known::start(shared.known().clone(), &plane, users.clone())?;
            let control = RelayControl::new(plane.clone(), &shared, config).with_users(lookups, users);
            let Some(certificates) = certificates.filter(|_| !config.relay.dtls_listen.is_empty()) else {
                return anyhow::Ok((Arc::new(control), None));
            };
            let (handshakes, thread) = handshakes::start(&plane, certificates.clone())?;
            Ok((Arc::new(control.with_handshakes(handshakes)), Some(thread)))
        });
        let (relay, handshakes) = relay.transpose()?.unzip();
        let livekit = start_livekit(config, &rooms, relay.as_ref())?;
        let ca_file = config.pump.ca_file.as_deref().map(Path::new);
        let around = Around::new(ca_file, Some(pump.clone()), Patience::default()).context("pump.ca_file")?;
        let reflect = ReflectControl::new(plane.clone(), Some(around), viewers_max(files_max));
        let reflected = Some(reflect.clone());
        let listen = report::listen(
            reports,
            (Some(rooms.clone()), livekit.clone()),
            pump.clone(),
            relay.clone(),
            reflected,
            Handle::current(),
        );
        let mut helpers = vec![listen?];
        helpers.extend(handshakes.flatten());
        for (worker, (settings, counters, receiver)) in WorkerId::all(peers.len()).zip(bodies) {
            let (plane, notified, conferences) = (plane.clone(), rooms.clone(), livekit.clone());
            let send = move |message| plane.workers().take_from_negotiator(worker, message);
            let notify = move |notice| match (&conferences, notice) {
                (Some(livekit), Notice::Conference { session, notice }) => livekit.handle_notice(session, notice),
                (_, notice) => notified.handle_notice(notice),
            };
            let negotiator = Negotiator::new(Instant::now(), settings, context.clone(), send, notify);
            let name = format!("negotiator-{}", worker.0);
            let body = move || negotiator::run(negotiator, &receiver, &counters);
            helpers.push(thread::Builder::new().name(name).spawn(body).context("starting a negotiator")?);
        }
        let watchdog = Watchdog::asked_for();
        Ok(Running { plane, rooms, livekit, pump, relay, reflect, helpers, watchdog })
    }
}

/// LiveKit's rooms, where there are any.
fn start_livekit(
    config: &Config,
    rooms: &Arc<RoomsControl>,
    relay: Option<&Arc<RelayControl>>,
) -> anyhow::Result<Option<Arc<LivekitControl>>> {
    let Some(settings) = livekit::settings(config) else { return Ok(None) };
    livekit::weak_keys(config).for_each(|weak| tracing::warn!("{weak}"));
    let ice = IceServers { fixed: config.rtc.ice_servers.clone(), relay: relay.cloned() };
    let started = LivekitControl::start(rooms.clone(), &settings, config.rooms.sessions_max, ice);
    started.context("[livekit]").map(Some)
}

impl Running {
    fn products(&self) -> impl Iterator<Item = &dyn ProductControl> {
        let relay = self.relay.as_deref().map(|relay| relay as &dyn ProductControl);
        let livekit = self.livekit.as_deref().map(|livekit| livekit as &dyn ProductControl);
        [&*self.rooms as &dyn ProductControl, &*self.pump, &*self.reflect].into_iter().chain(relay).chain(livekit)
    }

    /// Does what is due. To be called a few times a second.
    pub fn handle_timeout(&self, now: Instant) {
        self.plane.handle_timeout(now);
        self.products().for_each(|product| product.handle_timeout(now));
        if self.is_whole() {
            self.watchdog.note(now);
        }
    }

    /// Whether anybody is sent anything.
    pub fn has_receivers(&self) -> bool {
        self.products().any(|product| product.has_receivers())
    }

    /// Whether rooms or pump send anybody anything.
    pub fn has_sessions(&self) -> bool {
        let livekit = self.livekit.as_ref().is_some_and(|livekit| livekit.has_receivers());
        self.rooms.has_receivers() || self.pump.has_receivers() || livekit
    }

    /// Whether the relay has allocations.
    pub fn has_allocations(&self) -> bool {
        self.relay.as_ref().is_some_and(|relay| relay.has_receivers())
    }

    /// Ends all sessions but who watches reflected streams, and what is played for these.
    pub(crate) fn close_others(&self) {
        self.rooms.close_all();
        if let Some(livekit) = &self.livekit {
            livekit.close_all();
        }
        self.pump.close_clients();
    }

    /// Ends all sessions.
    pub fn close_all(&self) {
        self.products().for_each(|product| product.close_all());
    }

    /// Whether every thread still runs. One that does not has failed.
    pub fn is_whole(&self) -> bool {
        self.plane.workers().is_whole() && !self.helpers.iter().any(JoinHandle::is_finished)
    }
}

impl Part {
    fn bind(
        config: &Config,
        index: usize,
        hosts: &[IpAddr],
        links_max: usize,
        (relay_listen, before): (&[SocketAddr], &mut Sockets),
    ) -> anyhow::Result<Self> {
        let workers = &config.workers;
        let addresses = addresses(&workers.bind, port_of("workers.udp_port", workers.udp_port, index)?);
        let mut sockets = rooms_sockets(workers, &addresses, links_max);
        sockets.extend(setup::sockets(config, index)?);
        sockets.extend(relay_setup::sockets(config, relay_listen));
        let wanted: Vec<_> = sockets.iter().map(|socket| (shared_name(socket), socket.addr)).collect();
        let inherit = |(mut socket, (name, addr)): (Socket, &(Option<String>, SocketAddr))| {
            let Some(name) = name else { return socket };
            if let Some(descriptor) = before.take(name, *addr) {
                socket = socket.inherit(descriptor);
            }
            match before.take(&patient_name(name), *addr) {
                Some(descriptor) => socket.inherit_patient(descriptor),
                None => socket,
            }
        };
        let sockets = sockets.into_iter().zip(&wanted).map(inherit).collect();
        let worker = Worker::bind(WorkerConfig {
            name: format!("worker-{index}"),
            cpu: workers.pin.then_some(index),
            sockets,
            mailbox_len: WORKER_MAILBOX,
            // Sockets of allocations have the system's buffers, which are for some 90 datagrams.
            coalesce: if relay_listen.is_empty() { workers.coalesce } else { Duration::ZERO },
            patience: workers.patience,
            ..WorkerConfig::default()
        })
        .with_context(|| format!("binding the sockets of worker {index} (see workers.bind, workers.udp_port, pump.bind, pump.udp_port and relay.listen)"))?;
        let bound = |kind| {
            let own = worker.sockets().iter().filter(|socket| socket.token.owner == ROOMS);
            own.filter(move |socket| socket.link.kind() == kind).map(|socket| socket.local).collect::<Vec<_>>()
        };
        let udp = candidates(&bound(LinkKind::Datagrams), hosts, &config.rtc.public_addresses, false);
        let tcp = candidates(&bound(LinkKind::Listener), hosts, &config.rtc.public_addresses, true);
        let negotiator = negotiator::Settings {
            candidates: udp.into_iter().chain(tcp).collect(),
            sessions_max: config.rooms.sessions_max,
            consent_interval: (config.rooms.idle_timeout / CONSENTS_PER_IDLE_TIMEOUT).min(CONSENT_INTERVAL_MAX),
            transport_cc_for_layers: config.rooms.transport_cc_for_layers,
            ..negotiator::Settings::default()
        };
        let (inputs, receiver) = mailbox(NEGOTIATOR_MAILBOX).context("making a mailbox")?;
        Ok(Part { worker, wanted, inputs, receiver, negotiator })
    }
}

/// What a process and the next call a socket of their workers. `None`: it is not shared.
fn shared_name(socket: &Socket) -> Option<String> {
    let kind = match &socket.options {
        SocketOptions::Udp(_) => "UDP",
        SocketOptions::Listener(_) => "TCP",
    };
    (socket.token.owner != RELAY).then(|| format!("worker {kind} {} {}", socket.token.owner, socket.token.number))
}

/// What they call the one beside it, for what can wait.
fn patient_name(name: &str) -> String {
    format!("{name} patient")
}

/// TCP connections that one listener may have, so that HTTP finds descriptors whatever comes to the workers' ports. The relay
/// has so many.
fn tcp_links_max(config: &Config, workers: usize, files_max: u64, relay: usize) -> usize {
    let listeners = workers * addresses(&config.workers.bind, 0).len();
    let rtsp = config.pump.rtsp_listen.map_or(0, |_| rtsp::Limits::default().connections_max);
    let (wanted, others) = (config.workers.tcp_links_max, config.http.connections_max + rtsp + relay);
    let links_max = links_max(files_max, listeners, others).min(wanted);
    if listeners > 0 && config.workers.tcp && links_max < wanted {
        tracing::info!(
            links_max,
            wanted,
            files_max,
            others,
            "open files allow fewer TCP connections per worker's address"
        );
    }
    links_max
}

/// Viewers of reflected streams: each has a descriptor, and a quarter of those that the process may have are for others.
fn viewers_max(files_max: u64) -> usize {
    usize::try_from(files_max / 4 * 3).unwrap_or(usize::MAX)
}

/// The sockets of a worker's rooms: UDP, and TCP for ICE (RFC 6544), whose datagrams have their lengths before them.
fn rooms_sockets(workers: &config::Workers, addresses: &[SocketAddr], links_max: usize) -> Vec<Socket> {
    let token = Token { owner: ROOMS, number: 0 };
    let buffer_bytes = Some(workers.socket_buffer.0);
    let udp = UdpOptions {
        // Also what lets the kernel tell of datagrams that a queue below the socket drops.
        refusals: true,
        gso: workers.gso,
        gro: workers.gro,
        receive_buffer_bytes: buffer_bytes,
        send_buffer_bytes: buffer_bytes,
        ..UdpOptions::default()
    };
    let listen = ListenOptions {
        links_max,
        stream: StreamOptions {
            framing: Some(Framing::Length16),
            // Left alone it grows to megabytes, which are seconds of media.
            send_buffer_bytes: Some(128 * 1_024),
            // ICE consent checks come every 5 s (RFC 7675 §5.1).
            silence_max: Some(Duration::from_secs(30)),
            unacknowledged_max: Some(Duration::from_secs(15)),
            // Nobody is answered whose check is not authentic (RFC 8445 §7.3).
            strangers: Some(Strangers { age_max: STRANGER_AGE_MAX, per_source_max: workers.tcp_strangers_max }),
            ..StreamOptions::default()
        },
        ..ListenOptions::default()
    };
    let udp = addresses.iter().map(|addr| Socket::udp(token, *addr, udp.clone()).with_patient(&CAN_WAIT));
    let tcp = addresses.iter().filter(|_| workers.tcp).map(|addr| Socket::listener(token, *addr, listen.clone()));
    udp.chain(tcp).collect()
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

/// As the header extension has it: 12 bits for the least and 12 for the most, in 10 ms. Only nothing is held back exactly:
/// a player that needs more than the least takes it.
fn playout_delay(least: Duration) -> [u8; 3] {
    let least = u32::try_from(least.as_millis() / 10).unwrap_or(u32::MAX).min(0xfff);
    let most = if least == 0 { 0 } else { 0xfff };
    let [_, high, middle, low] = (least << 12 | most).to_be_bytes();
    [high, middle, low]
}

/// Limits of streams and sessions.
pub(crate) fn directory_settings(rooms: &config::Rooms) -> directory::Settings {
    directory::Settings {
        reconnect_grace: rooms.reconnect_grace,
        sessions_max: rooms.sessions_max,
        waiting_per_client: rooms.waiting_per_client,
        sessions_per_client: rooms.sessions_per_client,
        sessions_per_token: rooms.sessions_per_token,
        viewers_per_stream: rooms.viewers_per_stream,
    }
}

fn settings(config: &Config) -> anyhow::Result<Settings> {
    let seed = u64::from_ne_bytes(random().context("reading random numbers")?);
    let rooms = &config.rooms;
    Ok(Settings {
        idle_timeout: rooms.idle_timeout,
        keyframe_interval_min: rooms.keyframe_interval_min,
        keyframe_age_max: rooms.keyframe_age_max,
        log_bytes_max: rooms.log_max.0,
        gather: rooms.gather,
        gather_sound: rooms.gather_sound,
        gather_speakers: rooms.gather_speakers,
        equal_size_padding: rooms.equal_size_padding,
        burst: Burst { packets: rooms.burst_packets, rate_min: rooms.burst_rate_min },
        playout_delay: rooms.playout_delay.map(playout_delay),
        resend_share: rooms.resend_share,
        pause: rooms.pause,
        estimate_start: rooms.estimate_start,
        estimate_max: rooms.estimate_max,
        sessions_max: rooms.sessions_max,
        ..Settings::new(seed, (Instant::now(), ntp(SystemTime::now())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_ice_checks_can_wait_and_what_asks_for_something_cannot() {
        let can_wait = |first: u8, second: u8| {
            CAN_WAIT.iter().any(|Beginning(firsts, seconds)| firsts.contains(&first) && seconds.contains(&second))
        };
        // A Binding request and its answer; sender and receiver reports with and without blocks, SDES, BYE, XR; feedback of what
        // came, and REMB, also with padding.
        let patient = [
            (0, 1),
            (1, 1),
            (0x80, 200),
            (0x81, 201),
            (0x9f, 201),
            (0x81, 202),
            (0x81, 203),
            (0x80, 207),
            (0x8f, 205),
            (0xaf, 205),
            (0x8f, 206),
        ];
        assert!(patient.iter().all(|&(first, second)| can_wait(first, second)));
        // NACK, PLI, FIR; media with and without the marker bit; DTLS; a channel of TURN.
        let urgent =
            [(0x81, 205), (0xa1, 205), (0x81, 206), (0x84, 206), (0x80, 96), (0x90, 0x80 | 96), (22, 254), (64, 0)];
        assert!(!urgent.iter().any(|&(first, second)| can_wait(first, second)));
    }

    #[test]
    fn a_playout_delay_is_told_in_hundredths_of_a_second() {
        for (ms, expected) in [(0, [0, 0, 0]), (400, [0x02, 0x8f, 0xff]), (100_000, [0xff, 0xff, 0xff])] {
            assert_eq!(playout_delay(Duration::from_millis(ms)), expected, "{ms} ms");
        }
    }
}
