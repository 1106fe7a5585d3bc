//! From the configuration to what the pump is made of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use engine::{Mailbox, OpenSocket, Receiver, Socket, Worker, WorkerConfig, WorkerHandle};
use nix::net::if_::if_nametoindex;
use pump::pump::Pump;
use pump::spec::{self, TICK_STRICT};
use rooms::batch::BatchPool;
use rooms::rooms::Rooms;
use titles::Library;
use tokio::runtime::Handle;
use wire::{Multicast, Token, UdpOptions, WorkerId};

use super::control::{PumpControl, Senders, Settings};
use super::destination::Allowed;
use super::outputs::{self, Outputs};
use super::sessions::Limits;
use crate::config::Config;
use crate::host::{addresses, ntp, port_of};
use crate::owner::PUMP;
use crate::plane::workers::Workers;
use crate::plane::{Plane, placement};
use crate::report;
use crate::worker::{Message, Numbers, Products, Report, Ways};

/// How long a client waits for what has to be read of a title: long enough for an origin that is asked twice, and shorter
/// than clients usually wait themselves.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// What a worker's pump may do.
pub fn pump_settings(config: &Config) -> spec::Settings {
    let pump = &config.pump;
    spec::Settings {
        tick: if pump.strict { TICK_STRICT } else { spec::Settings::default().tick },
        burst: pump.burst,
        read_ahead: pump.read_ahead,
        late_max: pump.late_max,
        starved_timeout: pump.starved_timeout,
        sessions_max: pump.sessions_max,
    }
}

/// What the control plane may do.
pub fn control_settings(config: &Config) -> Settings {
    let pump = &config.pump;
    Settings {
        limits: Limits {
            bandwidth_max: pump.bandwidth_max,
            sessions_max: pump.sessions_max,
            refused_timeout: Some(pump.refused_timeout),
        },
        outputs: Outputs::new(config),
        destinations: Some(Allowed::new(&pump.destinations)),
        read_timeout: READ_TIMEOUT,
    }
}

/// All titles. Needs a runtime.
///
/// # Errors
/// When a folder or file of the settings cannot be read.
pub fn library(config: &Config) -> anyhow::Result<Library> {
    let pump = &config.pump;
    let settings = titles::Settings {
        media: pump.media.as_ref().map(Into::into),
        origins: pump.origins.clone(),
        allow_urls: pump.allow_urls,
        ca_file: pump.ca_file.as_ref().map(Into::into),
        cache_bytes: pump.cache.0,
        disk_cache: pump.disk_cache.as_ref().map(Into::into),
        disk_cache_bytes: pump.disk_cache_size.0 as u64,
        ..titles::Settings::default()
    };
    Library::new(settings).context("reading the titles of [pump]")
}

/// How datagrams to groups leave.
///
/// # Errors
/// When there is no such interface.
pub fn multicast(hops: u8, interface: Option<&str>, is_looped: bool) -> anyhow::Result<Multicast> {
    Ok(Multicast { hops, interface: interface_index(interface)?, is_looped })
}

/// The kernel's number of an interface; 0 is none.
///
/// # Errors
/// When there is no such interface.
pub(super) fn interface_index(name: Option<&str>) -> anyhow::Result<u32> {
    let index = |name| if_nametoindex(name).with_context(|| format!("this host has no interface {name:?}"));
    name.map_or(Ok(0), index)
}

/// The sockets that worker `index`'s pump sends from.
///
/// # Errors
/// When there is no such interface, or the ports do not suffice.
pub fn sockets(config: &Config, index: usize) -> anyhow::Result<Vec<Socket>> {
    let (workers, pump) = (&config.workers, &config.pump);
    let buffer_bytes = Some(workers.socket_buffer.0);
    let options = UdpOptions {
        multicast: multicast(pump.multicast_ttl, pump.multicast_interface.as_deref(), pump.multicast_loop)?,
        dscp: pump.dscp,
        gso: workers.gso,
        receive_buffer_bytes: buffer_bytes,
        send_buffer_bytes: buffer_bytes,
        ..UdpOptions::sender()
    };
    let mut sockets = senders(addresses(&pump.bind, port_of("pump.udp_port", pump.udp_port, index)?), &options);
    sockets.extend(outputs::sockets(config, index, &options)?);
    Ok(sockets)
}

/// The sockets for sessions that ask for no output.
pub fn senders(addresses: Vec<SocketAddr>, options: &UdpOptions) -> Vec<Socket> {
    let token = Token { owner: PUMP, number: 0 };
    addresses.into_iter().map(|addr| Socket::udp(token, addr, options.clone())).collect()
}

/// Those of a worker's sockets that its pump sends from.
pub fn senders_of(sockets: &[OpenSocket]) -> Senders {
    sockets.iter().filter(|socket| socket.token.owner == PUMP).copied().collect()
}

/// A worker that only pumps, its numbers, and the sockets that it sends from.
pub type PumpWorker = ((WorkerHandle<Message>, Numbers), Senders);

/// Starts a worker that only pumps, the one of number `index`.
///
/// # Errors
/// When a socket cannot be had, or the thread.
pub fn start_worker(
    index: usize,
    config: WorkerConfig,
    settings: spec::Settings,
    control: Mailbox<Report>,
) -> anyhow::Result<PumpWorker> {
    let worker = Worker::bind(config).context("opening the sockets to send from")?;
    let senders = senders_of(worker.sockets());
    let numbers = Numbers::default();
    let number = WorkerId(index as u16);
    let ways = Ways { worker: number, workers: Vec::new(), negotiator: None, control, numbers: numbers.clone() };
    let handle = worker.run(move || {
        let now = Instant::now();
        let clock = (now, ntp(SystemTime::now()));
        let rooms = Rooms::new(now, number, rooms::settings::Settings::new(0, clock), BatchPool::new(0));
        Products::new(now, rooms, Pump::new(now, settings), None, ways)
    })?;
    Ok(((handle, numbers), senders))
}

/// The control plane of workers that only pump, and the thread that hears them. The thread ends with the last worker.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(
    library: Library,
    workers: Vec<PumpWorker>,
    settings: Settings,
    reports: Receiver<Report>,
    runtime: Handle,
) -> anyhow::Result<Arc<PumpControl>> {
    let (handles, senders) = workers.into_iter().unzip();
    let plane = Plane::new(Workers::new(handles), placement::Settings::default());
    let control = Arc::new(PumpControl::new(library, plane, senders, settings));
    report::listen(reports, (None, None), control.clone(), None, None, runtime)?;
    Ok(control)
}
