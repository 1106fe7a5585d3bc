//! `[relay]`: the TURN server.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use relay::rules::Peers;
use wire::Bitrate;

use super::section::section;
use super::value::{Given, NOT_SHOWN, Secret, Wrong, any, between, quoted};
use super::{kbps, secs};
use crate::config::value::Setting;
use crate::random::unhex;

section! {
    /// A TURN server (RFC 8656): it carries packets between clients between which there is no other way.
    Relay as "relay" {
        /// Addresses and UDP ports that clients send to, such as `0.0.0.0:3478` and `[::]:3478`. Empty: there is no TURN server.
        listen: Vec<SocketAddr> = vec![], any;
        /// A client that asks for no family of addresses gets the one of its own, where the relay has an address of it; else
        /// the first one's of `addresses`. Browsers never ask.
        keep_family: bool = relay().keeps_family, any;
        /// Second address and port of this machine, both others than those of the first of `listen`, for clients who want to know
        /// how their NAT behaves (RFC 5780). The four combinations are listened on. Not set: such requests are answered 420.
        second_address: Option<SocketAddr> = None, any;
        /// Addresses and TCP ports that clients connect to, such as "0.0.0.0:3478". One that is `http.listen` too speaks both.
        tcp_listen: Vec<SocketAddr> = vec![], any;
        /// The same under TLS, such as "0.0.0.0:5349", with the certificates of `[tls]`. One that is `http.tls_listen` too, as
        /// "0.0.0.0:443", speaks both.
        tls_listen: Vec<SocketAddr> = vec![], any;
        /// Addresses and UDP ports for clients under DTLS 1.2 (RFC 7350), such as "0.0.0.0:5349". The first of the certificates of
        /// `[tls]` that has an ECDSA key (P-256 or P-384) is shown, whatever name a client asks for.
        dtls_listen: Vec<SocketAddr> = vec![], any;
        /// Load balancers whose connections to `tcp_listen` and `tls_listen` begin with whose they are (PROXY protocol, version
        /// 1 or 2). What others send is not read like that.
        proxy_protocol_from: Vec<IpNet> = vec![], any;
        /// What user names and passwords belong to (RFC 8489 §9.2); clients show it to nobody. The keys of users depend on it.
        realm: String = relay().realm.to_string(), realm;
        /// Who may use it, "name:password" each; instead of a password its key "0x…" (MD5 or SHA-256 over
        /// name:realm:password, in hexadecimal).
        users: Vec<RelayUser> = vec![], different_users;
        /// File of further users, which `millrace users` writes. It is read again when it changes.
        users_file: Option<String> = None, any;
        /// Redis with further users and secrets, as coturn keeps them (turn/realm/…): `redis://[user:password@]host[:port][/database]`,
        /// "rediss://…" for TLS, or "unix:///path". A user is looked up when he comes; while Redis is away those who are known
        /// go on, and others get an error (500).
        redis: Option<Secret> = None, redis;
        /// Shared secrets for time-limited credentials: the name is "until:who" (seconds since 1970), the password
        /// Base64(HMAC-SHA-1(secret, name)). Credentials are made with the first, and those of each are good.
        secrets: Vec<Secret> = vec![], secrets;
        /// For how long credentials hold that `POST /api/relay/credentials` makes, at most. Refreshes need them too, so longer
        /// than calls last.
        credential_lifetime: Duration = secs(43_200), between(secs(60), secs(604_800));
        /// A time-limited credential that is over is good for nothing any more: no refresh is granted, so that allocations end with
        /// their lifetimes. Otherwise it begins none, and calls outlast it.
        strict_expiry: bool = false, any;
        /// Where this relay is, as these clients are told: "turn:turn.example.org:3478?transport=udp". Empty: each address of
        /// `listen`, `tcp_listen` and `tls_listen`, as `addresses` have it from outside; what a certificate has is a name, so
        /// clients by TLS need this.
        uris: Vec<RelayUri> = vec![], any;
        /// Addresses of this machine on which allocations get their ports, one of a family at most; behind NAT with "=" and what
        /// peers reach it by: "10.0.0.5=203.0.113.7". Empty: those of `listen`, or where these are wildcards, those that this
        /// machine has towards its default routes.
        addresses: Vec<RelayAddress> = vec![], addresses;
        /// Ports for allocations. Each worker gets an equal part of them.
        ports: PortRange = PortRange::of(relay().ports), ports;
        /// Longest time for which an allocation is granted before it has to be refreshed (RFC 8656 §7.2).
        lifetime_max: Duration = relay().lifetime_max, between(secs(600), secs(86_400));
        /// Allocations of one user at most; further ones are refused (486). Of time-limited credentials the user is what stands
        /// behind the time.
        allocations_per_user: usize = 1_000, between(1, 10_000_000);
        /// Allocations of all users at most; further ones are refused (508, or 300 where there are `alternate_servers`).
        allocations_max: usize = 100_000, between(1, 10_000_000);
        /// Addresses that one allocation may permit at a time; further ones are refused (508). Each takes some 100 bytes.
        permissions_per_allocation: usize = relay().permissions_max, between(16, 16_384);
        /// Channels that one allocation may have at a time; further ones are refused (508). Each takes some 250 bytes.
        channels_per_allocation: usize = relay().channels_max, between(16, 16_384);
        /// Connections of clients by TCP and TLS on one worker at most, and associations by DTLS beside them. A newcomer beyond
        /// that takes the place of the oldest on which nobody has an allocation, or is closed.
        connections_max: usize = relay().connections_max, between(16, 1_000_000);
        /// Of those, on which nobody has an allocation, from one address (one /64 of IPv6) at most; the oldest makes room for the
        /// next. Behind a load balancer without PROXY protocol, where all come from its address, make it larger.
        strangers_per_source: usize = relay().strangers_per_source_max, between(1, 1_000_000);
        /// Connections to and from peers (`tcp_allocations`) on one worker at most, and half of them of one user; further ones are
        /// refused (508).
        peer_connections_max: usize = relay().peer_connections_of_all_max, between(16, 1_000_000);
        /// What all allocations of one user may carry, each way, IP and UDP headers counted; what is more is dropped. Not set: no
        /// limit.
        bandwidth_per_user: Option<Bitrate> = None, rate;
        /// What all allocations may carry, each way, likewise. Not set: no limit.
        bandwidth_max: Option<Bitrate> = None, rate;
        /// Peers that may be reached though they are refused otherwise, as the private networks are: a network or an address,
        /// and, as needed, ports: "10.1.0.0/16", "10.1.2.3:5000-5999", "[fd00::/64]:443". Of several that fit, also of
        /// `denied_peers`, the longest prefix counts, then the fewest ports, then the refusal.
        allowed_peers: Vec<Peers> = vec![], any;
        /// Peers that may not be reached. Refused in any case, unless allowed: loopback, link-local, multicast, private and
        /// shared networks, what maps to these, and this server's own addresses.
        denied_peers: Vec<Peers> = vec![], any;
        /// Clients may have the relay make TCP connections to peers, too (RFC 6062). Only who connects by TCP or TLS may ask.
        tcp_allocations: bool = relay().allows_tcp, any;
        /// A nonce is good for this long; a client then gets a new one (438) and goes on.
        nonce_age: Duration = secs(600), between(secs(10), secs(3_600));
        /// After SIGTERM, allocations may go on for this long, as calls do; no new ones begin meanwhile. Not set: as long as
        /// sessions may (`http.drain_timeout`).
        drain_timeout: Option<Duration> = None, drain_timeout;
        /// Where clients by UDP and TCP are sent (300, RFC 8489 §10) that find this server full or draining: to those of
        /// their own family, in turns. What is named twice gets twice as many.
        alternate_servers: Vec<SocketAddr> = vec![], any;
        /// The same for clients by TLS and DTLS. They expect the name there that they know this server by.
        tls_alternate_servers: Vec<SocketAddr> = vec![], any;
        /// Send every client to one of these, as coturn does, and not only those whom this server has no room for. Who is of a
        /// family or transport for which none is named is served here.
        redirect_all: bool = false, any;
    }
}

/// Who may use the relay.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayUser {
    /// What the client calls itself.
    pub name: String,
    /// How it proves that.
    pub secret: UserSecret,
}

/// What a user of the relay knows.
#[derive(Clone, PartialEq, Eq)]
pub enum UserSecret {
    /// A password.
    Password(String),
    /// MD5 over name:realm:password.
    Md5([u8; 16]),
    /// SHA-256 over the same.
    Sha256([u8; 32]),
}

impl fmt::Debug for RelayUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelayUser({:?}, …)", self.name)
    }
}

impl Setting for RelayUser {
    const KIND: &str = "\"name:password\", the name of 1 to 508 bytes; instead of the password 0x and the 32 or 64 \
         hexadecimal digits of its key";
    const HAS_COMMAS: bool = true;

    fn from_text(text: &str) -> Option<Self> {
        let (name, password) = text.split_once(':')?;
        let secret = match password.strip_prefix("0x") {
            Some(digits) if digits.len() == 32 => UserSecret::Md5(unhex(digits)?),
            Some(digits) => UserSecret::Sha256(unhex(digits)?),
            None => UserSecret::Password(password.to_owned()),
        };
        let fits = (1..=USER_BYTES_MAX).contains(&name.len()) && !password.is_empty();
        fits.then(|| RelayUser { name: name.to_owned(), secret })
    }

    fn shown(given: Given<'_>) -> String {
        let text = match given {
            Given::Text(text) => Some(text),
            Given::Value(value) => value.as_str(),
        };
        match text.and_then(|text| text.split_once(':')) {
            Some((name, _)) if !name.is_empty() => format!("an entry of {name:?}, which is not shown"),
            _ => NOT_SHOWN.to_owned(),
        }
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&format!("{}:(not shown)", self.name)))
    }

    fn is_secret(&self) -> bool {
        true
    }
}

/// Longest name of a user (RFC 8489 §14.3: less than 509 bytes).
const USER_BYTES_MAX: usize = 508;

/// An address on which allocations get their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayAddress {
    /// Of this machine.
    pub bind: IpAddr,
    /// What peers reach it by.
    pub external: IpAddr,
}

impl Setting for RelayAddress {
    const KIND: &str = "an IP address such as \"192.0.2.1\", or two with \"=\" between them, \"10.0.0.5=203.0.113.7\"";

    fn from_text(text: &str) -> Option<Self> {
        let (bind, external) = text.split_once('=').unwrap_or((text, text));
        let (bind, external): (IpAddr, IpAddr) = (bind.trim().parse().ok()?, external.trim().parse().ok()?);
        let is_host = |ip: IpAddr| !ip.is_unspecified() && !ip.is_multicast();
        let fits = bind.is_ipv4() == external.is_ipv4() && is_host(bind) && is_host(external);
        fits.then_some(RelayAddress { bind, external })
    }

    fn to_toml(&self) -> Option<String> {
        let RelayAddress { bind, external } = self;
        Some(quoted(&if bind == external { bind.to_string() } else { format!("{bind}={external}") }))
    }
}

/// Where a relay is (RFC 7065), or a STUN server (RFC 7064).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayUri(pub String);

impl Setting for RelayUri {
    const KIND: &str = "\"turn:host:port?transport=udp\", or with turns, stun or stuns, or tcp";

    fn from_text(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once(':')?;
        let (host, transport) = rest.split_once("?transport=").unwrap_or((rest, "udp"));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        let fits = ["turn", "turns", "stun", "stuns"].contains(&scheme)
            && ["udp", "tcp"].contains(&transport)
            && (scheme.starts_with("turn") || !rest.contains('?'));
        (fits && !host.is_empty() && host.bytes().all(is_plain)).then(|| RelayUri(text.to_owned()))
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl PortRange {
    /// From the first to the last.
    pub const fn new(first: u16, last: u16) -> Self {
        PortRange { first, last }
    }

    /// The same as standard ranges have it.
    pub fn of(range: RangeInclusive<u16>) -> Self {
        PortRange::new(*range.start(), *range.end())
    }

    /// How many there are.
    pub fn count(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// One of `count` parts, which begins with an even port and ends with an odd one: pairs stay whole (RFC 8656 §7.2).
    /// `None` when there are too few ports.
    pub fn part(self, index: usize, count: usize) -> Option<RangeInclusive<u16>> {
        let first = usize::from(self.first).next_multiple_of(2);
        let pairs = (usize::from(self.last) + 1).saturating_sub(first) / 2 / count;
        let begin = first + 2 * pairs * index;
        let end = begin + 2 * pairs;
        (pairs > 0).then(|| u16::try_from(begin).ok().zip(u16::try_from(end - 1).ok())).flatten().map(|(a, b)| a..=b)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl Setting for PortRange {
    const KIND: &str = "ports such as \"49152-65535\"";

    fn from_text(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = PortRange { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? };
        (range.first <= range.last).then_some(range)
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl Setting for Peers {
    const KIND: &str = "a network or an address, and, as needed, ports: \"10.0.0.0/8\", \"10.1.2.3:5000-5999\", \
         \"[2001:db8::/32]:443\"";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

/// It stands in every answer that asks for a credential (RFC 8489 §14.9).
fn realm(realm: &String) -> Result<(), String> {
    let is_fine = (1..=REALM_BYTES_MAX).contains(&realm.len()) && !realm.bytes().any(|byte| byte.is_ascii_control());
    if is_fine { Ok(()) } else { Err(format!("got {realm:?}; allowed: 1 to {REALM_BYTES_MAX} bytes of text")) }
}

/// With more the answer that asks for a credential were longer than it may be.
const REALM_BYTES_MAX: usize = 64;

#[allow(clippy::ptr_arg, reason = "it is called with the setting itself")]
fn different_users(users: &Vec<RelayUser>) -> Result<(), Wrong> {
    let is_twice = |(index, user): &(usize, &RelayUser)| users[..*index].iter().any(|other| other.name == user.name);
    match users.iter().enumerate().find(is_twice) {
        Some((index, user)) => {
            Err(Wrong::at(index, format!("got two users named {:?}; allowed: a name each", user.name)))
        }
        None => Ok(()),
    }
}

#[allow(clippy::ptr_arg, reason = "it is called with the setting itself")]
fn secrets(secrets: &Vec<Secret>) -> Result<(), Wrong> {
    match secrets.iter().map(|Secret(text)| text.len()).enumerate().find(|(_, len)| *len < SECRET_BYTES_MIN) {
        Some((index, len)) => Err(Wrong::at(
            index,
            format!("got {len} bytes; allowed: {SECRET_BYTES_MIN} bytes or more (try: openssl rand -base64 32)"),
        )),
        None if secrets.len() > SECRETS_MAX => {
            Err(format!("got {}; allowed: {SECRETS_MAX} at most", secrets.len()).into())
        }
        None => Ok(()),
    }
}

fn redis(url: &Option<Secret>) -> Result<(), String> {
    let is_url = url.as_ref().is_none_or(|Secret(url)| redis::Client::open(url.as_str()).is_ok());
    // It may have a password in it.
    if is_url { Ok(()) } else { Err("got no such URL; allowed: redis://, rediss:// or unix://".to_owned()) }
}

/// Who has seen one credential may try secrets at leisure.
const SECRET_BYTES_MIN: usize = 16;

/// Each is tried for every request that begins an allocation.
const SECRETS_MAX: usize = 8;

#[allow(clippy::ptr_arg, reason = "it is called with the setting itself")]
fn addresses(addresses: &Vec<RelayAddress>) -> Result<(), Wrong> {
    let is_twice = |(index, each): &(usize, &RelayAddress)| {
        addresses[..*index].iter().any(|other| other.bind.is_ipv4() == each.bind.is_ipv4())
    };
    match addresses.iter().enumerate().find(is_twice) {
        Some((index, each)) => Err(Wrong::at(
            index,
            format!("got {} beside another of its family; allowed: one of IPv4, one of IPv6", each.bind),
        )),
        None => Ok(()),
    }
}

/// What the relay does where nobody says; neither the seed nor the clock is a setting.
fn relay() -> relay::settings::Settings {
    relay::settings::Settings::new([0; 32], (Instant::now(), Duration::ZERO))
}

/// Port 0 is none, and those below 1024 are other services'.
fn ports(range: &PortRange) -> Result<(), String> {
    if range.first >= PORT_MIN && range.part(0, 1).is_some() {
        return Ok(());
    }
    Err(format!("got {range}; allowed: an even port and the one above it, or more, from {PORT_MIN} to 65535"))
}

const PORT_MIN: u16 = 1_024;

fn drain_timeout(timeout: &Option<Duration>) -> Result<(), String> {
    timeout.map_or(Ok(()), |timeout| between(secs(0), secs(86_400))(&timeout))
}

/// Less carries no sound.
fn rate(rate: &Option<Bitrate>) -> Result<(), String> {
    rate.map_or(Ok(()), |rate| between(kbps(10), kbps(1_000_000_000))(&rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_ports_are_equal_whole_pairs_and_have_none_in_common() {
        for (range, count, expected) in [
            (PortRange::new(49_152, 65_535), 2, vec![49_152..=57_343, 57_344..=65_535]),
            (PortRange::new(1_025, 1_032), 1, vec![1_026..=1_031]),
            (PortRange::new(2_000, 2_010), 2, vec![2_000..=2_003, 2_004..=2_007]),
        ] {
            let parts: Vec<_> = (0..count).filter_map(|index| range.part(index, count)).collect();
            assert_eq!(parts, expected, "{range}");
        }
        assert_eq!(PortRange::new(2_000, 2_002).part(0, 2), None);
    }

    #[test]
    fn users_have_a_password_or_its_key() {
        let secret = |text: &str| RelayUser::from_text(text).map(|user| (user.name, user.secret));
        let password = |text: &str| UserSecret::Password(text.to_owned());
        assert!(secret("alice:open:sesame") == Some(("alice".to_owned(), password("open:sesame"))));
        let md5 = format!("alice:0x{}", "0f".repeat(16));
        assert!(secret(&md5) == Some(("alice".to_owned(), UserSecret::Md5([15; 16]))));
        let sha256 = format!("alice:0x{}", "aB".repeat(32));
        assert!(secret(&sha256) == Some(("alice".to_owned(), UserSecret::Sha256([0xab; 32]))));
        for text in ["alice", "alice:", ":secret", "alice:0x12", &format!("a:0x{}", "zz".repeat(16))] {
            assert!(secret(text).is_none(), "{text}");
        }
    }
}
