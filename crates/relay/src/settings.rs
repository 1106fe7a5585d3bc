//! What an operator may choose about the relay, and what the outside world hands in.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::WorkerId;

use crate::alternates::AlternateServers;
use crate::auth::{AuthSettings, NonceKey};
use crate::ledger::{Ledger, LedgerSettings};
use crate::limits::LimitSettings;
use crate::message::Family;
use crate::random;
use crate::reservation::Reservations;
use crate::rules::{Lists, Opened, Own, Rules};
use crate::spec::ClientTransport;

/// The limits and dials of one worker's relay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which of the products of a worker it is (`wire::Token::owner`).
    pub owner: u16,
    /// Which worker's it is: no two allocations of a server have the same number.
    pub worker: WorkerId,
    /// The realm of all users (RFC 8489 §14.9), of 127 bytes at most.
    pub realm: Arc<str>,
    /// The UDP sockets that clients send to, in the order of their tokens (`names::listener`). Every worker has them all.
    pub listeners: Vec<Listener>,
    /// Where relayed transport addresses are, one for each family at most; the first is that of clients who ask for none.
    pub relays: Vec<RelayAddress>,
    /// A client who asks for no family gets the one of its own address, where there is one. Browsers never ask.
    pub keeps_family: bool,
    /// The ports of relayed transport addresses: this worker's slice of them, which no other has.
    pub ports: RangeInclusive<u16>,
    /// The ports that all workers have together.
    pub ports_of_all: RangeInclusive<u16>,
    /// The lifetime of an allocation whose client asks for none, or for less (RFC 8656 §7.2).
    pub lifetime_default: Duration,
    /// Nobody gets more.
    pub lifetime_max: Duration,
    /// Allocations on one worker at most. A newcomer beyond that gets 508.
    pub allocations_max: usize,
    /// Addresses that one allocation permits at most, each of some 100 bytes. One beyond that gets 508.
    pub permissions_max: usize,
    /// Channels that one allocation has at most, each of some 250 bytes. One beyond that gets 508.
    pub channels_max: usize,
    /// Clients' connections on one worker at most. A newcomer beyond that is closed.
    pub connections_max: usize,
    /// Clients' associations by DTLS on one worker at most, each of some 2 KB and no descriptor. A newcomer beyond that is
    /// refused.
    pub associations_max: usize,
    /// Of each kind, on which nobody has an allocation, from one source (`wire::source_network`) at most. For a newcomer beyond that
    /// the oldest of them is closed, and the oldest of all where there is no place.
    pub strangers_per_source_max: usize,
    /// Bytes that wait for a client that reads its connection too slowly. Datagrams that find no room are dropped.
    pub backlog_max: usize,
    /// A connection on which nobody has an allocation is closed after so long, or twice that.
    pub unused_max: Duration,
    /// Allocations may be of TCP, with connections to peers (RFC 6062).
    pub allows_tcp: bool,
    /// Connections to and from peers that one TCP allocation has at most. One beyond that gets 508, or is closed.
    pub peer_connections_max: usize,
    /// Connections to and from peers on one worker at most, those under way among them; one user has half of them at most.
    pub peer_connections_of_all_max: usize,
    /// The second address for behaviour discovery (RFC 5780). Of the four combinations of its address and port with those
    /// of the first listener each has to be a listener. `None`: nothing is told of discovery.
    pub discovery: Option<SocketAddr>,
    /// Where newcomers are sent while the relay drains or has no room, or all of them. Where there is none for a client: 508
    /// instead, or it is served here.
    pub alternates: AlternateServers,
    /// Who may use it.
    pub auth: AuthSettings,
    /// How often requests that prove nothing are answered, and handshakes begin.
    pub limits: LimitSettings,
    /// Which peers may be reached. All workers have the same.
    pub rules: Arc<Rules>,
    /// Which relayed addresses are open. All workers share one, with the rules.
    pub opened: Arc<Opened>,
    /// Who has how much of the relay. All workers share one.
    pub ledger: Arc<Ledger>,
    /// What all workers share of reserved ports.
    pub reservations: Arc<Reservations>,
    /// Seed of what nobody may guess: ports, tokens, connection ids, who shares a budget with whom. It must be secret, and another one for each worker.
    pub seed: [u8; 32],
    /// An instant and the time since 1970 at it.
    pub epoch: (Instant, Duration),
}

impl Settings {
    /// The defaults, with the clock and the seed that the caller brings. There are no addresses yet,
    /// and nobody is known.
    pub fn new(seed: [u8; 32], epoch: (Instant, Duration)) -> Self {
        Settings {
            owner: 0,
            worker: WorkerId(0),
            realm: Arc::from("millrace"),
            listeners: Vec::new(),
            relays: Vec::new(),
            keeps_family: false,
            ports: 49_152..=65_535,
            ports_of_all: 49_152..=65_535,
            lifetime_default: Duration::from_secs(600),
            lifetime_max: Duration::from_secs(3_600),
            allocations_max: 20_000,
            permissions_max: 256,
            channels_max: 128,
            connections_max: 20_000,
            associations_max: 20_000,
            strangers_per_source_max: 256,
            backlog_max: 256 * 1_024,
            unused_max: Duration::from_secs(60),
            allows_tcp: false,
            peer_connections_max: 64,
            peer_connections_of_all_max: 4_096,
            discovery: None,
            alternates: AlternateServers::default(),
            auth: AuthSettings::new(NonceKey::new(&random::derived(&seed, "nonces"))),
            limits: LimitSettings::default(),
            rules: Arc::new(Rules::new(&Lists::default(), &Own::default())),
            opened: Arc::default(),
            ledger: Arc::new(Ledger::new(epoch.0, LedgerSettings::default())),
            reservations: Arc::default(),
            seed,
            epoch,
        }
    }

    /// Where a datagram or a connection for a relayed address goes: what peers see of one of this server is bound here, behind a NAT that
    /// may not bring it back.
    #[inline]
    pub(crate) fn inside(&self, peer: SocketAddr) -> SocketAddr {
        let relay = self.relays.iter().find(|relay| relay.external == Some(peer.ip()));
        self.mapped(peer, relay.map(|relay| relay.bind))
    }

    /// What peers see of where a datagram or a connection came from.
    #[inline]
    pub(crate) fn outside(&self, source: SocketAddr) -> SocketAddr {
        let relay = self.relays.iter().find(|relay| relay.bind == source.ip());
        self.mapped(source, relay.and_then(|relay| relay.external))
    }

    fn mapped(&self, address: SocketAddr, ip: Option<IpAddr>) -> SocketAddr {
        match ip {
            Some(ip) if self.ports_of_all.contains(&address.port()) => SocketAddr::new(ip, address.port()),
            _ => address,
        }
    }

    /// Where relayed addresses of a family are.
    pub fn relay(&self, family: Family) -> Option<&RelayAddress> {
        self.relays.iter().find(|relay| Family::of(relay.bind) == family)
    }
}

/// A socket that clients send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its address.
    pub addr: SocketAddr,
    /// `Udp` or `Dtls`.
    pub transport: ClientTransport,
}

/// Where relayed transport addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayAddress {
    /// What is bound.
    pub bind: IpAddr,
    /// What clients are told instead, and peers see, behind a NAT that maps each port to the same one.
    pub external: Option<IpAddr>,
}

impl RelayAddress {
    /// What peers see.
    pub fn shown(&self) -> IpAddr {
        self.external.unwrap_or(self.bind)
    }

    /// That of an address without a NAT.
    pub fn of(bind: IpAddr) -> Self {
        RelayAddress { bind, external: None }
    }
}

/// On this host alone; for tests.
impl Default for RelayAddress {
    fn default() -> Self {
        RelayAddress::of(Ipv4Addr::LOCALHOST.into())
    }
}
