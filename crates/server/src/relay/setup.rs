//! From the configuration to what the relays of all workers are made of.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use engine::{OpenSocket, Socket};
use relay::alternates::AlternateServers;
use relay::auth::{AuthSettings, NonceKey};
use relay::ledger::{Ledger, LedgerSettings};
use relay::reservation::Reservations;
use relay::rules::{Lists, Opened, Own, Peers, Ports, Rules};
use relay::settings::{Listener, RelayAddress, Settings};
use relay::spec::ClientTransport;
use socket2::{Domain, Protocol, SockRef, Type};
use wire::{Fragments, Token, UdpOptions, WorkerId};

use super::issuer::Issuer;
use super::known::Known;
use crate::config::{self, Config, RelayUri, Secret};
use crate::owner::{RELAY, ROOMS};
use crate::random::random;

/// How many workers there are to be.
pub(crate) fn workers_count(config: &Config) -> usize {
    match config.workers.count {
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => usize::from(count),
    }
}

/// What several settings together must be, so that `millrace check` refuses what the server would.
///
/// # Errors
/// What does not fit, by the names of the settings.
pub fn check(config: &Config) -> anyhow::Result<()> {
    let relay = &config.relay;
    if relay.listen.is_empty() {
        let others = relay.tcp_listen.len() + relay.tls_listen.len() + relay.dtls_listen.len();
        ensure!(
            others == 0,
            "relay.tcp_listen, relay.tls_listen, relay.dtls_listen: there is no relay without relay.listen"
        );
        return Ok(());
    }
    let has_users = !relay.users.is_empty() || !relay.secrets.is_empty();
    ensure!(
        has_users || relay.users_file.is_some() || relay.redis.is_some(),
        "relay.listen: nobody could use the relay; set relay.users or relay.secrets, relay.users_file or relay.redis"
    );
    Known::read(relay).context("relay.users_file")?;
    let is_twice = |(index, addr): &(usize, &SocketAddr)| addr.port() != 0 && relay.listen[..*index].contains(addr);
    if let Some((_, addr)) = relay.listen.iter().enumerate().find(is_twice) {
        bail!("relay.listen: got {addr} twice; allowed: each address once");
    }
    let is_known = |(index, addr): &(usize, &SocketAddr)| {
        addr.port() != 0 && (relay.listen.contains(addr) || relay.dtls_listen[..*index].contains(addr))
    };
    if let Some((_, addr)) = relay.dtls_listen.iter().enumerate().find(is_known) {
        bail!("relay.dtls_listen: got {addr} twice, or in relay.listen; allowed: each address once");
    }
    let has_certificate =
        !config.tls.certificates.is_empty() || config.tls.self_signed || !config.acme.domains.is_empty();
    ensure!(
        has_certificate || relay.dtls_listen.is_empty(),
        "relay.dtls_listen: DTLS needs tls.certificates, acme.domains, or tls.self_signed"
    );
    if let (Some(second), Some(first)) = (relay.second_address, relay.listen.first()) {
        let is_whole = |addr: &SocketAddr| !addr.ip().is_unspecified() && addr.port() != 0;
        let is_other = first.ip() != second.ip() && first.port() != second.port();
        ensure!(
            first.is_ipv4() == second.is_ipv4() && is_whole(first) && is_whole(&second) && is_other,
            "relay.second_address: got {second} beside {first}; allowed: another address and another port than those of the \
             first of relay.listen, of its family, none of them a wildcard"
        );
    }
    for address in relay.addresses.iter().filter(|it| it.bind != it.external && relay.second_address.is_some()) {
        let names = relay.listen.first().into_iter().chain(&relay.second_address).map(SocketAddr::ip);
        ensure!(
            !names.into_iter().any(|ip| ip == address.bind),
            "relay.second_address: {} is behind a NAT (relay.addresses), and clients would be told of it; allowed: addresses \
             that clients reach",
            address.bind
        );
    }
    let workers = workers_count(config);
    let parts = relay.ports.part(0, workers);
    ensure!(parts.is_some(), "relay.ports: {} has no two ports for each of {workers} workers", relay.ports);
    Ok(())
}

/// Where clients are listened to by UDP: where the settings say, what discovery needs in addition, and at the end those for
/// DTLS.
pub fn listen(config: &Config) -> Vec<SocketAddr> {
    let relay = &config.relay;
    let mut listen = relay.listen.clone();
    if let (Some(second), Some(first)) = (relay.second_address, relay.listen.first().copied()) {
        let others = [(first.ip(), second.port()), (second.ip(), first.port()), (second.ip(), second.port())];
        let others: Vec<_> = others.map(SocketAddr::from).into_iter().filter(|addr| !listen.contains(addr)).collect();
        listen.extend(others);
    }
    listen.extend(if listen.is_empty() { &[][..] } else { &relay.dtls_listen });
    listen
}

/// Sees to it that nobody has these addresses: workers share theirs (SO_REUSEPORT), and would share it with others, too.
///
/// # Errors
/// When one is taken, or cannot be bound.
pub fn claim(config: &Config, listen: &[SocketAddr]) -> anyhow::Result<()> {
    for (index, addr) in listen.iter().enumerate() {
        let bind = || {
            let socket = socket2::Socket::new(Domain::for_address(*addr), Type::DGRAM, Some(Protocol::UDP))?;
            if addr.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.bind(&(*addr).into())
        };
        let setting = if is_dtls(config, listen, index) { "relay.dtls_listen" } else { "relay.listen" };
        bind().with_context(|| format!("{setting} {addr}"))?;
    }
    Ok(())
}

/// Binds a port that nobody has, and lets who knows of it bind it, too: with `SO_REUSEPORT` from the start, another server
/// that holds its ports in this way would have it as well.
fn hold_port(addr: SocketAddr) -> io::Result<OwnedFd> {
    let socket = engine::sys::udp_socket(&addr)?;
    let options = SockRef::from(&socket);
    options.set_reuse_port(true)?;
    // Nobody reads it.
    options.set_recv_buffer_size(1)?;
    Ok(socket.into())
}

/// Whether that is one of those for DTLS.
fn is_dtls(config: &Config, listen: &[SocketAddr], index: usize) -> bool {
    index + config.relay.dtls_listen.len() >= listen.len()
}

/// Sees to it that this host has the addresses on which allocations get their ports. The system decides: an address that may
/// come later can be bound beforehand where `net.ipv4.ip_nonlocal_bind` is set, as it is beside VRRP.
///
/// # Errors
/// When one cannot be bound.
pub fn probe(config: &Config) -> anyhow::Result<()> {
    for (index, address) in config.relay.addresses.iter().enumerate() {
        let bound = UdpSocket::bind((address.bind, 0));
        bound.with_context(|| {
            format!(
                "relay.addresses[{index}]: allocations cannot be had at {}, which has to be an address of this machine (behind \
                 NAT, \"OWN=PUBLIC\")",
                address.bind
            )
        })?;
    }
    Ok(())
}

/// Allocations that there may be: each has a descriptor, and half of those that the process may have are for others.
pub fn allocations_max(config: &Config, files_max: u64) -> usize {
    let wanted = config.relay.allocations_max;
    if config.relay.listen.is_empty() {
        return 0;
    }
    let allowed = usize::try_from(files_max / 2).unwrap_or(usize::MAX).min(wanted);
    if allowed < wanted {
        tracing::info!(allowed, wanted, files_max, "open files allow fewer allocations");
    }
    allowed
}

/// Connections of clients that there may be, of all workers together: a quarter of the descriptors. Their allocations have
/// others (`allocations_max`).
pub fn connections_max(config: &Config, files_max: u64) -> usize {
    let has_any = !config.relay.tcp_listen.is_empty() || !config.relay.tls_listen.is_empty();
    if has_any { usize::try_from(files_max / 4).unwrap_or(usize::MAX) } else { 0 }
}

/// The sockets that clients of one worker send to.
pub fn sockets(config: &Config, listen: &[SocketAddr]) -> Vec<Socket> {
    let workers = &config.workers;
    let buffer_bytes = Some(workers.socket_buffer.0);
    let options = UdpOptions {
        reuse_port: true,
        gso: workers.gso,
        gro: workers.gro,
        receive_buffer_bytes: buffer_bytes,
        send_buffer_bytes: buffer_bytes,
        // Peers' datagrams may be longer than their clients' paths take.
        fragments: Fragments::Always,
        ..UdpOptions::default()
    };
    let token = |index| Token { owner: RELAY, number: relay::names::listener(index) };
    listen.iter().enumerate().map(|(index, addr)| Socket::udp(token(index), *addr, options.clone())).collect()
}

/// Where a worker's sockets for clients are, in the order of their settings.
pub fn listening(sockets: &[OpenSocket]) -> Vec<SocketAddr> {
    sockets.iter().filter(|socket| socket.token.owner == RELAY).map(|socket| socket.local).collect()
}

/// What the relays of all workers have in common.
pub struct Shared {
    settings: Settings,
    known: Known,
    rules: RulesSource,
}

impl Shared {
    /// `listen` is where workers listen, `hosts` are the host's addresses as clients find it, `rooms` the sockets of all
    /// workers' rooms. There are `allocations_max` allocations at most.
    ///
    /// # Errors
    /// When there is no address to relay on, no randomness, or no file of users where one is named.
    pub fn new(
        config: &Config,
        allocations_max: usize,
        listen: &[SocketAddr],
        hosts: &[IpAddr],
        rooms: &[SocketAddr],
    ) -> anyhow::Result<Self> {
        let relay = &config.relay;
        let (now, since_1970) = clock();
        let relays = relay_addresses(config, hosts);
        ensure!(!relays.is_empty(), "relay.addresses: this machine has no address to relay on; name one");
        let known = Known::read(relay).context("relay.users_file")?;
        let ledger = LedgerSettings { allocations_max: Some(allocations_max), ..ledger_settings(relay) };
        let settings = Settings {
            owner: RELAY,
            realm: relay.realm.as_str().into(),
            listeners: listen.iter().enumerate().map(|(index, addr)| listener(config, listen, index, *addr)).collect(),
            ports_of_all: relay.ports.first..=relay.ports.last,
            lifetime_max: relay.lifetime_max,
            allocations_max,
            permissions_max: relay.permissions_per_allocation,
            channels_max: relay.channels_per_allocation,
            connections_max: relay.connections_max,
            associations_max: relay.connections_max,
            strangers_per_source_max: relay.strangers_per_source,
            peer_connections_of_all_max: relay.peer_connections_max,
            allows_tcp: relay.tcp_allocations,
            keeps_family: relay.keep_family,
            discovery: relay.second_address,
            alternates: AlternateServers {
                plain: relay.alternate_servers.clone(),
                secured: relay.tls_alternate_servers.clone(),
                take_all: relay.redirect_all,
            },
            auth: AuthSettings {
                nonce_age_max: relay.nonce_age,
                credentials: Arc::new(known.credentials()),
                looks_up: relay.redis.is_some(),
                strict_expiry: relay.strict_expiry,
                ..AuthSettings::new(NonceKey::new(&random().context("reading random numbers")?))
            },
            ledger: Arc::new(Ledger::new(now, ledger)),
            reservations: Arc::new(Reservations::held_by(hold_port)),
            ..Settings::new([0; 32], (now, since_1970))
        };
        let rooms = rooms_peers(config, hosts, rooms);
        let own = own(config, listen, &relays, settings.opened.clone());
        let host = host_addresses().context("reading the host's addresses")?;
        let bound = relays.iter().map(|relay| relay.bind).collect();
        let lists = lists(relay, &rooms);
        let mut source = RulesSource { lists, rooms, own, found: host, host: Vec::new(), relays: bound };
        source.host = source.of_interest();
        let rules = Arc::new(source.rules());
        Ok(Shared { settings: Settings { relays, rules, ..settings }, known, rules: source })
    }

    /// The same, with so many connections of clients to each worker at most. Those by DTLS need no descriptors.
    #[must_use]
    pub fn with_connections(mut self, max: usize) -> Self {
        self.settings.connections_max = self.settings.connections_max.min(max);
        self
    }

    /// An instant and the time since 1970 at it, as workers know them.
    pub fn epoch(&self) -> (Instant, Duration) {
        self.settings.epoch
    }

    /// What its rules are made of.
    pub fn rules(&self) -> &RulesSource {
        &self.rules
    }

    /// Who has how much.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.settings.ledger
    }

    /// Who is known without a question.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Those of one of `count` workers.
    ///
    /// # Errors
    /// When there are too few ports, or no randomness.
    pub fn settings(&self, config: &Config, worker: WorkerId, count: usize) -> anyhow::Result<Settings> {
        let ports =
            config.relay.ports.part(worker.index(), count).context("relay.ports: too few for so many workers")?;
        let seed = random().context("reading random numbers")?;
        let limits = self.settings.limits.with_workers(count);
        Ok(Settings { worker, ports, seed, limits, ..self.settings.clone() })
    }

    /// Where clients find it by UDP, or by DTLS, as this host has it.
    pub fn listen(&self, transport: ClientTransport) -> impl Iterator<Item = SocketAddr> {
        let listeners = self.settings.listeners.iter().filter(move |listener| listener.transport == transport);
        listeners.map(|listener| listener.addr)
    }

    /// What makes credentials for clients, where there is a secret.
    pub fn issuer(&self, config: &Config) -> Option<Issuer> {
        let secret = config.relay.secrets.first()?;
        let uris = match config.relay.uris.as_slice() {
            [] => self.uris(&config.relay),
            uris => uris.iter().map(|RelayUri(uri)| uri.clone()).collect(),
        };
        Some(Issuer::new(&secret.0, config.relay.credential_lifetime, uris))
    }

    /// What clients are told who are not told anything else: wherever they may come in, UDP first.
    fn uris(&self, relay: &config::Relay) -> Vec<String> {
        let udp = self.listen(ClientTransport::Udp).take(relay.listen.len()).map(|addr| ("turn", addr, "udp"));
        let dtls = self.listen(ClientTransport::Dtls).map(|addr| ("turns", addr, "udp"));
        let tcp = relay.tcp_listen.iter().map(|addr| ("turn", *addr, "tcp"));
        let tls = relay.tls_listen.iter().map(|addr| ("turns", *addr, "tcp"));
        let uri =
            |(scheme, listener, transport)| Some(format!("{scheme}:{}?transport={transport}", self.outside(listener)?));
        udp.chain(tcp).chain(tls).chain(dtls).filter_map(uri).collect()
    }

    /// Where a listener is reached from outside: a wildcard at the relay's own address of that family.
    fn outside(&self, listener: SocketAddr) -> Option<SocketAddr> {
        let relay = self.settings.relays.iter().find(|relay| relay.bind.is_ipv4() == listener.is_ipv4());
        let ip = match relay {
            Some(relay) if listener.ip().is_unspecified() || listener.ip() == relay.bind => relay.shown(),
            _ if listener.ip().is_unspecified() => return None,
            _ => listener.ip(),
        };
        Some(SocketAddr::new(ip, listener.port()))
    }
}

fn listener(config: &Config, listen: &[SocketAddr], index: usize, addr: SocketAddr) -> Listener {
    let transport = if is_dtls(config, listen, index) { ClientTransport::Dtls } else { ClientTransport::Udp };
    Listener { addr, transport }
}

/// One of each family: those of the settings, or else where it listens, or else where clients find this host. That is nowhere
/// before there is a network: loopback is for who listens there.
fn relay_addresses(config: &Config, hosts: &[IpAddr]) -> Vec<RelayAddress> {
    let relay = &config.relay;
    if !relay.addresses.is_empty() {
        let external = |bind, external| if bind == external { None } else { Some(external) };
        let addresses = relay.addresses.iter();
        return addresses.map(|it| RelayAddress { bind: it.bind, external: external(it.bind, it.external) }).collect();
    }
    let first = |is_v4: bool| {
        let listens: Vec<IpAddr> = relay.listen.iter().map(SocketAddr::ip).filter(|ip| ip.is_ipv4() == is_v4).collect();
        let hosts = || hosts.iter().copied().filter(|ip| ip.is_ipv4() == is_v4);
        let own = || hosts().find(|ip| !ip.is_loopback());
        let named = listens.iter().copied().find(|ip| !ip.is_unspecified());
        named.or_else(|| if listens.is_empty() { None } else { own() })
    };
    [true, false].into_iter().filter_map(first).map(RelayAddress::of).collect()
}

/// What rules are made of. The host may get other addresses while the server runs, and nobody may reach it by these.
#[derive(Clone, Debug)]
pub struct RulesSource {
    lists: Lists,
    /// Which the lists allow whatever the operator says.
    rooms: Vec<Peers>,
    /// But for the host's addresses.
    own: Own,
    /// All that the host has.
    found: Vec<IpAddr>,
    /// And those that the rules are for.
    host: Vec<IpAddr>,
    /// Where allocations are.
    relays: Vec<IpAddr>,
}

impl RulesSource {
    /// The operator's lists are these now. Returns the rules that hold then, where they are others.
    pub fn change(&mut self, relay: &config::Relay) -> Option<Rules> {
        let lists = lists(relay, &self.rooms);
        if lists == self.lists {
            return None;
        }
        self.lists = lists;
        self.host = self.of_interest();
        Some(self.rules())
    }

    /// The host has these addresses now. Returns the rules that hold then, where they are others.
    pub fn renew(&mut self, host: Vec<IpAddr>) -> Option<Rules> {
        self.found = host;
        let host = self.of_interest();
        if host == self.host {
            return None;
        }
        let is_gone = |ip: &&IpAddr| self.host.contains(*ip) && !host.contains(*ip);
        for ip in self.relays.iter().filter(is_gone) {
            tracing::warn!(%ip, "the host has lost an address of allocations: further ones are refused (508)");
        }
        self.host = host;
        Some(self.rules())
    }

    /// Those of the host's addresses at which peers could be reached if they were others', and those of allocations. The rest is
    /// refused anyway, and comes and goes with every container.
    fn of_interest(&self) -> Vec<IpAddr> {
        let rules = Rules::new(&self.lists, &Own::default());
        let is_of_interest = |ip: &&IpAddr| rules.ports(**ip) != Ports::None || self.relays.contains(ip);
        self.found.iter().filter(is_of_interest).copied().collect()
    }

    fn rules(&self) -> Rules {
        let mut own = self.own.clone();
        own.addresses.extend(&self.host);
        // It is refused as a network, which a rule for it opens.
        own.addresses.retain(|ip| !ip.is_loopback());
        own.addresses.sort_unstable();
        own.addresses.dedup();
        Rules::new(&self.lists, &own)
    }
}

/// Now, and the time since 1970.
pub fn clock() -> (Instant, Duration) {
    (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The host's addresses, in order.
///
/// # Errors
/// What the system says.
pub fn host_addresses() -> io::Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs()?;
    let mut host: Vec<_> = interfaces.iter().map(|interface| interface.ip()).collect();
    host.sort_unstable();
    host.dedup();
    Ok(host)
}

/// What belongs to this server besides the host's addresses: those by which it is known, and where it listens.
fn own(config: &Config, listen: &[SocketAddr], relays: &[RelayAddress], opened: Arc<Opened>) -> Own {
    let addresses = relays.iter().map(RelayAddress::shown).chain(config.rtc.public_addresses.iter().copied()).collect();
    let http = [Some(config.http.listen), config.http.tls_listen, config.http.metrics_listen, config.pump.rtsp_listen];
    let turn = listen.iter().chain(&config.relay.tcp_listen).chain(&config.relay.tls_listen);
    let sockets = turn.copied().chain(http.into_iter().flatten()).chain(redis(config)).collect();
    // What is on loopback is nobody's business, whatever ports it has.
    let relayed = relays.iter().flat_map(|relay| [relay.bind, relay.shown()]).filter(|ip| !ip.is_loopback());
    let ports = config.relay.ports.first..=config.relay.ports.last;
    let relayed = relayed.filter_map(|ip| Peers::new(ip.into(), ports.clone()).ok()).collect();
    Own { addresses, sockets, relayed, opened }
}

/// Where Redis is, as far as that can be found out: it takes the relay's word for what others have to prove.
fn redis(config: &Config) -> Vec<SocketAddr> {
    let client = config.relay.redis.as_ref().and_then(|Secret(url)| redis::Client::open(url.as_str()).ok());
    let addr = client.map(|client| client.get_connection_info().addr().clone());
    match addr {
        Some(redis::ConnectionAddr::Tcp(host, port) | redis::ConnectionAddr::TcpTls { host, port, .. }) => {
            let found = (host.as_str(), port).to_socket_addrs();
            found.map(Iterator::collect).unwrap_or_else(|error| {
                tracing::warn!(host, %error, "where Redis is cannot be found out: no rule keeps clients of the relay from it");
                Vec::new()
            })
        }
        _ => Vec::new(),
    }
}

/// What is this server's own business: its clients reach its rooms wherever they are, also in a private network.
fn rooms_peers(config: &Config, hosts: &[IpAddr], rooms: &[SocketAddr]) -> Vec<Peers> {
    let at = |ip: IpAddr, ports: RangeInclusive<u16>| Peers::new(ip.into(), ports).ok();
    let mut allow = Vec::new();
    for socket in rooms {
        let found = [socket.ip()].into_iter().chain(hosts.iter().copied()).chain(config.rtc.public_addresses.clone());
        // Whoever reaches it by another address needs none on loopback.
        let is_own = |ip: &IpAddr| *ip == socket.ip() || socket.ip().is_unspecified() && !ip.is_loopback();
        let is_outside = |ip: &IpAddr| config.rtc.public_addresses.contains(ip);
        let ips = found.filter(|ip| ip.is_ipv4() == socket.is_ipv4() && (is_own(ip) || is_outside(ip)));
        allow.extend(ips.filter(|ip| !ip.is_unspecified()).filter_map(|ip| at(ip, socket.port()..=socket.port())));
    }
    allow
}

/// The operator's lists, and these peers beside.
fn lists(relay: &config::Relay, rooms: &[Peers]) -> Lists {
    Lists { allow: [relay.allowed_peers.as_slice(), rooms].concat(), deny: relay.denied_peers.clone() }
}

/// How much there is for users; as many allocations as there are.
pub fn ledger_settings(relay: &config::Relay) -> LedgerSettings {
    LedgerSettings {
        user_allocations_max: Some(relay.allocations_per_user),
        allocations_max: None,
        user_bandwidth: relay.bandwidth_per_user,
        bandwidth: relay.bandwidth_max,
    }
}

/// The sockets of a worker's rooms.
pub fn rooms_sockets(sockets: &[OpenSocket]) -> impl Iterator<Item = SocketAddr> {
    sockets.iter().filter(|socket| socket.token.owner == ROOMS).map(|socket| socket.local)
}
