//! From the configuration to what the relays of all workers are made of.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::ops::RangeInclusive;
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
use socket2::{Domain, Protocol, Type};
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
    let has_certificate = !config.tls.certificates.is_empty() || config.tls.self_signed;
    ensure!(
        has_certificate || relay.dtls_listen.is_empty(),
        "relay.dtls_listen: DTLS needs tls.certificates, or tls.self_signed"
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
        let ledger = LedgerSettings {
            user_allocations_max: Some(relay.allocations_per_user),
            allocations_max: Some(allocations_max),
            user_bandwidth: relay.bandwidth_per_user,
            bandwidth: relay.bandwidth_max,
        };
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
            reservations: Arc::new(Reservations::default()),
            ..Settings::new([0; 32], (now, since_1970))
        };
        let lists = lists(config, hosts, rooms);
        let own = own(config, listen, &relays, settings.opened.clone());
        let host = host_addresses().context("reading the host's addresses")?;
        let bound = relays.iter().map(|relay| relay.bind).collect();
        let mut source = RulesSource { lists, own, host: Vec::new(), relays: bound };
        source.host = source.of_interest(host);
        let rules = Arc::new(source.rules());
        Ok(Shared { settings: Settings { relays, rules, ..settings }, known, rules: source })
    }

    /// The same, with so many connections of clients to each worker at most.
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
        Ok(Settings { worker, ports, seed, ..self.settings.clone() })
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
    /// But for the host's addresses.
    own: Own,
    host: Vec<IpAddr>,
    /// Where allocations are.
    relays: Vec<IpAddr>,
}

impl RulesSource {
    /// The host has these addresses now. Returns the rules that hold then, where they are others.
    pub fn renew(&mut self, host: Vec<IpAddr>) -> Option<Rules> {
        let host = self.of_interest(host);
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
    fn of_interest(&self, host: Vec<IpAddr>) -> Vec<IpAddr> {
        let rules = Rules::new(&self.lists, &Own::default());
        host.into_iter().filter(|ip| rules.ports(*ip) != Ports::None || self.relays.contains(ip)).collect()
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

/// The operator's lists, and what is this server's own business: its clients reach its rooms wherever they are, also in a
/// private network.
fn lists(config: &Config, hosts: &[IpAddr], rooms: &[SocketAddr]) -> Lists {
    let relay = &config.relay;
    let at = |ip: IpAddr, ports: RangeInclusive<u16>| Peers::new(ip.into(), ports).ok();
    let mut allow = relay.allowed_peers.clone();
    for socket in rooms {
        let found = [socket.ip()].into_iter().chain(hosts.iter().copied()).chain(config.rtc.public_addresses.clone());
        // Whoever reaches it by another address needs none on loopback.
        let is_own = |ip: &IpAddr| *ip == socket.ip() || socket.ip().is_unspecified() && !ip.is_loopback();
        let is_outside = |ip: &IpAddr| config.rtc.public_addresses.contains(ip);
        let ips = found.filter(|ip| ip.is_ipv4() == socket.is_ipv4() && (is_own(ip) || is_outside(ip)));
        allow.extend(ips.filter(|ip| !ip.is_unspecified()).filter_map(|ip| at(ip, socket.port()..=socket.port())));
    }
    Lists { allow, deny: relay.denied_peers.clone() }
}

/// The sockets of a worker's rooms.
pub fn rooms_sockets(sockets: &[OpenSocket]) -> impl Iterator<Item = SocketAddr> {
    sockets.iter().filter(|socket| socket.token.owner == ROOMS).map(|socket| socket.local)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use relay::rules::Ports;

    use super::*;

    fn config(lines: &str) -> Config {
        let mut config = Config::default();
        config.apply_toml("test", &format!("[relay]\n{lines}\n")).expect("valid");
        config
    }

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    const HOSTS: [IpAddr; 3] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::new(192, 168, 1, 5)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5)),
    ];

    #[test]
    fn a_relay_that_nobody_could_use_is_none_and_none_that_is_not_asked_for_is_one() {
        check(&Config::default()).expect("there is no relay");
        let wrong = |lines: &str| check(&config(lines)).expect_err(lines).to_string();
        assert!(wrong(r#"listen = ["0.0.0.0:3478"]"#).contains("relay.users or relay.secrets"));
        let users = r#"users = ["alice:secret"]"#;
        let twice = format!("{users}\nlisten = [\"0.0.0.0:3478\", \"0.0.0.0:3478\"]");
        assert!(wrong(&twice).contains("relay.listen: got 0.0.0.0:3478 twice"));
        let mut few = config(&format!("{users}\nlisten = [\"0.0.0.0:3478\"]\nports = \"50000-50005\""));
        few.workers.count = 4;
        assert!(check(&few).expect_err("too few").to_string().contains("relay.ports: 50000-50005 has no two ports"));
        few.workers.count = 3;
        check(&few).expect("two each");
    }

    #[test]
    fn allocations_are_where_it_listens_or_where_clients_find_this_host() {
        let shown = |lines: &str| {
            let addresses = relay_addresses(&config(lines), &HOSTS);
            addresses.iter().map(|it| (it.bind.to_string(), it.shown().to_string())).collect::<Vec<_>>()
        };
        let same = |ip: &str| (ip.to_owned(), ip.to_owned());
        assert_eq!(shown(r#"listen = ["10.0.0.5:3478"]"#), [same("10.0.0.5")]);
        assert_eq!(shown(r#"listen = ["0.0.0.0:3478"]"#), [same("192.168.1.5")]);
        let early = |lines: &str| relay_addresses(&config(lines), &HOSTS[..1]).len();
        assert_eq!([r#"listen = ["0.0.0.0:3478"]"#, r#"listen = ["127.0.0.1:3478"]"#].map(early), [0, 1]);
        assert_eq!(shown(r#"listen = ["[::]:3478", "0.0.0.0:3478"]"#), [same("192.168.1.5"), same("2001:db8::5")]);
        let mapped = r#"listen = ["0.0.0.0:3478"]
            addresses = ["10.0.0.5=203.0.113.7"]"#;
        assert_eq!(shown(mapped), [("10.0.0.5".to_owned(), "203.0.113.7".to_owned())]);
    }

    #[test]
    fn rooms_and_relays_of_one_server_reach_each_other_and_nothing_else_of_it() {
        let config = config(r#"listen = ["0.0.0.0:3478"]"#);
        let (listen, rooms) = ([addr("0.0.0.0:3478")], [addr("0.0.0.0:20000")]);
        let shared = Shared::new(&config, 100, &listen, &HOSTS, &rooms).expect("addresses");
        for (peer, is_allowed) in [
            ("192.168.1.5:20000", true),
            ("127.0.0.1:20000", false),
            ("192.168.1.5:50000", false),
            ("127.0.0.1:50000", false),
            ("192.168.1.5:8080", false),
            ("192.168.1.5:3478", false),
            ("192.168.1.6:20000", false),
            ("9.9.9.9:5000", true),
        ] {
            assert_eq!(shared.settings.rules.allows(addr(peer)), is_allowed, "{peer}");
        }
        let relayed = shared.settings.rules.ports("192.168.1.5".parse().expect("an address"));
        assert_eq!(relayed, Ports::Some, "a relayed address is allowed once it is there");
        for ip in ["127.0.0.1", "127.0.0.2", "::1", "2002:7f00::", "2002:7f00:1::", "::ffff:127.0.0.1", "0.0.0.0"] {
            assert_eq!(shared.settings.rules.ports(ip.parse().expect("an address")), Ports::None, "{ip}");
        }
        let at_loopback = Shared::new(&config, 100, &listen, &HOSTS, &[addr("127.0.0.1:20000")]).expect("addresses");
        assert!(at_loopback.settings.rules.allows(addr("127.0.0.1:20000")), "rooms are there and nowhere else");
    }

    /// HTTP, its metrics, RTSP, TURN and Redis: who may use the relay does not get there, by UDP or by TCP, at whatever address
    /// of the host, and also where a rule allows its networks.
    #[test]
    fn no_service_of_this_host_is_reached_through_its_relay() {
        let mut config = config(
            r#"listen = ["0.0.0.0:3478"]
            tls_listen = ["0.0.0.0:5349"]
            redis = "redis://:password@10.0.0.9/2"
            allowed_peers = ["10.0.0.0/8", "127.0.0.0/8", "192.168.0.0/16", "2001:db8::/32"]
            tcp_allocations = true"#,
        );
        config.http.listen = addr("0.0.0.0:8080");
        config.http.metrics_listen = Some(addr("192.168.1.5:50001"));
        config.pump.rtsp_listen = Some(addr("[::]:554"));
        let shared =
            Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[addr("0.0.0.0:20000")]).expect("addresses");
        let rules = shared.rules().clone().renew(HOSTS.to_vec()).expect("others than this host has");
        for service in [
            "192.168.1.5:8080",
            "127.0.0.1:8080",
            "127.5.5.5:8080",
            "192.168.1.5:50001",
            "192.168.1.5:5349",
            "127.0.0.1:3478",
            "[2001:db8::5]:554",
            "[::1]:554",
            "10.0.0.9:6379",
            "192.168.1.5:22",
            "[::ffff:192.168.1.5]:8080",
            "[2002:c0a8:105::]:8080",
            "[64:ff9b::192.168.1.5]:22",
            "[2001:db8::5]:22",
        ] {
            assert!(!rules.allows(addr(service)), "{service}");
        }
        for peer in ["10.0.0.9:6380", "10.0.0.8:6379", "192.168.1.6:8080", "127.0.0.1:5000"] {
            assert!(rules.allows(addr(peer)), "{peer}: the rules say so");
        }
    }

    #[test]
    fn a_rule_for_loopback_opens_it_but_for_where_this_server_listens() {
        let tcp = "tcp_listen = [\"127.0.0.1:3479\"]\ntls_listen = [\"0.0.0.0:5349\"]";
        let config = config(&format!("listen = [\"127.0.0.1:3478\"]\n{tcp}\nallowed_peers = [\"127.0.0.0/8\"]"));
        let shared = Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[]).expect("addresses");
        let allowed = ["127.0.0.1:5000", "127.0.0.1:3478", "127.0.0.1:8080", "127.9.9.9:8080"]
            .map(|peer| shared.settings.rules.allows(addr(peer)));
        assert_eq!(allowed, [true, false, false, true], "HTTP is at 127.0.0.1:8080");
        for peer in ["127.0.0.1:3479", "127.0.0.1:5349"] {
            assert!(!shared.settings.rules.allows(addr(peer)), "{peer}");
        }
    }

    #[test]
    fn an_address_that_the_host_gets_later_is_refused_from_then_on() {
        let config = config(r#"listen = ["0.0.0.0:3478"]"#);
        let shared = Shared::new(&config, 100, &[addr("0.0.0.0:3478")], &HOSTS, &[]).expect("addresses");
        let mut source = shared.rules().clone();
        let (ssh, elsewhere) = (addr("9.9.9.9:22"), addr("9.9.9.8:22"));
        assert!(shared.settings.rules.allows(ssh));
        let later: Vec<IpAddr> = vec![ssh.ip()];
        let rules = source.renew(later.clone()).expect("others");
        assert!(!rules.allows(ssh) && rules.allows(elsewhere) && !rules.allows(addr("9.9.9.9:50000")));
        assert!(source.renew(later).is_none(), "nothing has changed");
        assert!(source.renew(Vec::new()).expect("others").allows(ssh));
    }

    #[test]
    fn addresses_that_nobody_may_reach_anyway_make_no_other_rules() {
        let shared = |lines: &str| {
            let config = config(&format!("listen = [\"0.0.0.0:3478\"]\n{lines}"));
            Shared::new(&config, 100, &[addr("0.0.0.0:3478")], &HOSTS, &[]).expect("addresses")
        };
        let later =
            || ["127.0.0.1", "fe80::42:1", "172.17.0.1", "::1"].map(|ip| ip.parse().expect("an address")).to_vec();
        let mut source = shared("").rules().clone();
        source.renew(Vec::new());
        assert!(source.renew(later()).is_none());
        let mut source = shared("allowed_peers = [\"172.16.0.0/12\"]").rules().clone();
        source.renew(Vec::new());
        let rules = source.renew(later()).expect("one of them could be reached");
        assert!(!rules.allows(addr("172.17.0.1:22")) && rules.allows(addr("172.17.0.2:22")));
    }

    #[test]
    fn clients_are_told_where_the_relay_is_from_outside() {
        let uris = |lines: &str| {
            let config = config(&format!("secrets = [\"a secret of some length\"]\n{lines}"));
            let shared = Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[]).expect("addresses");
            shared.issuer(&config).expect("a secret").make("alice", None, std::time::Duration::ZERO).uris
        };
        let wildcards = r#"listen = ["0.0.0.0:3478", "[::]:3478"]"#;
        assert_eq!(uris(wildcards), ["turn:192.168.1.5:3478?transport=udp", "turn:[2001:db8::5]:3478?transport=udp"]);
        let mapped = "listen = [\"10.0.0.5:3478\"]\naddresses = [\"10.0.0.5=203.0.113.7\"]";
        assert_eq!(uris(mapped), ["turn:203.0.113.7:3478?transport=udp"]);
        let all = "listen = [\"0.0.0.0:3478\"]\ntcp_listen = [\"0.0.0.0:3478\"]\ntls_listen = [\"192.168.1.5:443\", \"[::]:443\"]";
        let expected = ["turn:192.168.1.5:3478?transport=udp", "turn:192.168.1.5:3478?transport=tcp"];
        assert_eq!(uris(all), [&expected[..], &["turns:192.168.1.5:443?transport=tcp"]].concat());
        let named = "listen = [\"10.0.0.5:3478\"]\nuris = [\"turn:turn.example.org:3478\"]";
        assert_eq!(uris(named), ["turn:turn.example.org:3478"]);
    }

    #[test]
    fn clients_by_dtls_have_sockets_of_their_own_behind_the_others() {
        let by = |listen: &str, dtls: &str| {
            let mut config = config(&format!("users = [\"a:b\"]\nlisten = [{listen}]\ndtls_listen = [{dtls}]"));
            config.tls.self_signed = true;
            config
        };
        let mut config = by(r#""192.0.2.1:3478""#, r#""192.0.2.1:5349""#);
        check(&config).expect("another port");
        let sockets = listen(&config);
        let shared = Shared::new(&config, 100, &sockets, &HOSTS, &[]).expect("addresses");
        let [udp, dtls] = [ClientTransport::Udp, ClientTransport::Dtls].map(|by| shared.listen(by).collect::<Vec<_>>());
        assert_eq!((udp, dtls), (vec![addr("192.0.2.1:3478")], vec![addr("192.0.2.1:5349")]));
        assert!(!shared.settings.rules.allows(addr("192.0.2.1:5349")), "it is this server's own");
        config.tls.self_signed = false;
        assert!(
            check(&config).expect_err("no certificate").to_string().starts_with("relay.dtls_listen: DTLS needs tls.")
        );
        let twice = by(r#""192.0.2.1:3478""#, r#""192.0.2.1:3478""#);
        assert!(
            check(&twice).expect_err("twice").to_string().starts_with("relay.dtls_listen: got 192.0.2.1:3478 twice")
        );
        let alone = by("", r#""192.0.2.1:5349""#);
        assert!(check(&alone).expect_err("alone").to_string().ends_with("there is no relay without relay.listen"));
        assert!(listen(&alone).is_empty());
    }

    #[test]
    fn limits_and_dials_reach_every_worker() {
        let lines = "listen = [\"127.0.0.1:0\"]\nstrict_expiry = true\nconnections_max = 17\nstrangers_per_source = 18\n\
                     peer_connections_max = 19";
        let config = config(lines);
        let shared = Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[]).expect("addresses");
        let worker = shared.settings(&config, WorkerId(1), 2).expect("ports");
        let counts = [worker.connections_max, worker.strangers_per_source_max, worker.peer_connections_of_all_max];
        assert!(counts == [17, 18, 19] && worker.auth.strict_expiry, "{counts:?}");
    }

    #[test]
    fn discovery_has_four_addresses_and_none_twice() {
        let second = |listen: &str, second: &str| {
            config(&format!("users = [\"a:b\"]\nlisten = [{listen}]\nsecond_address = \"{second}\""))
        };
        let good = second(r#""192.0.2.1:3478", "192.0.2.1:3479""#, "192.0.2.2:3479");
        check(&good).expect("another address and port");
        let expected = ["192.0.2.1:3478", "192.0.2.1:3479", "192.0.2.2:3478", "192.0.2.2:3479"].map(addr);
        assert_eq!(listen(&good), expected);
        for (first, other) in [
            (r#""0.0.0.0:3478""#, "192.0.2.2:3479"),
            (r#""192.0.2.1:3478""#, "192.0.2.1:3479"),
            (r#""192.0.2.1:3478""#, "192.0.2.2:3478"),
            (r#""192.0.2.1:3478""#, "[2001:db8::1]:3479"),
            (r#""192.0.2.1:0""#, "192.0.2.2:3479"),
        ] {
            let error = check(&second(first, other)).expect_err(other).to_string();
            assert!(error.starts_with("relay.second_address: got "), "{error}");
        }
        let mut behind_nat = good;
        behind_nat.apply_toml("test", "[relay]\naddresses = [\"192.0.2.2=203.0.113.2\"]").expect("valid");
        let error = check(&behind_nat).expect_err("clients do not reach it").to_string();
        assert!(error.starts_with("relay.second_address: 192.0.2.2 is behind a NAT"), "{error}");
    }

    #[test]
    fn allocations_leave_half_of_the_open_files_to_others() {
        let config = config("listen = [\"127.0.0.1:0\"]\nallocations_max = 10000");
        assert_eq!([1_024, 20_000, u64::MAX].map(|files| allocations_max(&config, files)), [512, 10_000, 10_000]);
        assert_eq!(allocations_max(&Config::default(), 1_024), 0, "there is no relay");
    }

    #[test]
    fn an_address_that_this_machine_lacks_is_named_with_its_setting() {
        let config = |address: &str| config(&format!("listen = [\"127.0.0.1:0\"]\naddresses = [\"{address}\"]"));
        probe(&config("127.0.0.1=203.0.113.7")).expect("loopback is here");
        let error = probe(&config("192.0.2.77")).expect_err("nobody has it").to_string();
        assert!(error.starts_with("relay.addresses[0]: allocations cannot be had at 192.0.2.77"), "{error}");
    }

    #[test]
    fn connections_of_clients_leave_three_quarters_of_the_open_files_to_others() {
        let udp = config("listen = [\"127.0.0.1:0\"]");
        assert_eq!(connections_max(&udp, 1_024), 0);
        let tcp = config("listen = [\"127.0.0.1:0\"]\ntcp_listen = [\"127.0.0.1:0\"]");
        let max = connections_max(&tcp, 1_024);
        assert_eq!(max, 256);
        let each = |max| {
            let shared =
                Shared::new(&tcp, 100, &tcp.relay.listen, &HOSTS, &[]).expect("addresses").with_connections(max);
            shared.settings.connections_max
        };
        assert_eq!([max / 2, 1 << 20].map(each), [128, 20_000]);
    }

    #[test]
    fn an_address_that_somebody_has_is_not_shared_with_him() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("bound");
        claim(&Config::default(), &[taken]).expect("it is free again");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let error = claim(&Config::default(), &[socket.local_addr().expect("bound")]).expect_err("it is taken");
        assert!(error.to_string().starts_with("relay.listen 127.0.0.1:"), "{error}");
    }
}
