//! Which peers the relay may reach, and hear.
//!
//! In: what the operator allows and denies, by prefix and port, and which addresses are this server's own. Out: whether a
//! peer's address may be relayed to, for each port or for all of them.
//! Cost: a walk over the rules of one family, most specific first; who keeps `Ports` with a permission asks once.
//!
//! The most specific rule that fits decides: the longest prefix; of equal prefixes the narrower range of ports; of equal
//! ranges a denial. The operator's rules come before the ranges that are refused by default (`rules::ranges`), so `allow
//! 10.0.0.0/8` opens that network, while `allow 0.0.0.0/0` opens nothing that is refused by a longer prefix. Where no rule
//! fits, the peer is allowed.
//!
//! An IPv4-mapped address is the IPv4 address (RFC 4291 §2.5.5.2). Of the other forms that carry an IPv4 address both have
//! to be allowed, the form and what it carries: whoever denies a network need not list the ways around it.

mod opened;
mod own;
mod ranges;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

pub use opened::Opened;
pub use own::Own;

/// Any port that a peer may have; 0 is none (RFC 768), and is always refused.
const ALL_PORTS: RangeInclusive<u16> = 0..=u16::MAX;

/// What the operator's lists say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Peers that may be reached though they are refused by default, or by a less specific denial.
    pub allow: Vec<Peers>,
    /// Peers that may not be reached.
    pub deny: Vec<Peers>,
}

/// A line of a list: addresses, and ports at them.
///
/// As text `10.1.0.0/16`, `192.0.2.7:5000-5999`, `10.0.0.0/8:53`, `fd00::/8`, `[fd00::/8]:5000-5999`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    addresses: IpNet,
    ports: RangeInclusive<u16>,
}

/// Why a line of a list is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeersError {
    /// No address, or a prefix that its family does not have.
    #[error("{0:?} is neither an address nor a prefix such as 10.0.0.0/8")]
    Address(String),
    /// The prefix does not begin there: `10.0.0.5/8` is a slip of the pen, and says too much or too little.
    #[error("{0} is no prefix: its first address is {1}")]
    Boundary(IpNet, IpNet),
    /// No port or range of ports.
    #[error("{0:?} is neither a port nor a range such as 5000-5999")]
    Ports(String),
}

/// Which ports of an address are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ports {
    /// Every one, but 0.
    All,
    /// It depends: `Rules::allows` knows.
    Some,
    /// Not one.
    None,
}

/// All rules, ready to be asked. Workers share one.
#[derive(Clone, Debug)]
pub struct Rules {
    v4: Vec<Entry>,
    v6: Vec<Entry>,
    opened: Arc<Opened>,
}

/// A rule in its place.
#[derive(Clone, Debug)]
struct Entry {
    addresses: IpNet,
    ports: RangeInclusive<u16>,
    allows: bool,
    /// Only while a relayed address is there.
    is_relayed: bool,
    /// By which rules of one prefix are ordered, the narrowest first.
    width: u32,
}

/// The operator's own rules, whatever ports they name, come before those that nobody wrote.
const WIDTH_OF_DEFAULTS: u32 = 1 << 16 | 1;

impl Peers {
    /// Those ports of those addresses.
    ///
    /// # Errors
    /// When the prefix has bits set behind its length.
    pub fn new(addresses: IpNet, ports: RangeInclusive<u16>) -> Result<Self, PeersError> {
        let begins = addresses.trunc();
        if begins != addresses {
            return Err(PeersError::Boundary(addresses, begins));
        }
        Ok(Peers { addresses: canonical(addresses), ports })
    }
}

impl FromStr for Peers {
    type Err = PeersError;

    fn from_str(text: &str) -> Result<Self, PeersError> {
        let wrong = || PeersError::Address(text.into());
        // A colon separates a port where it cannot be part of an IPv6 address.
        let (addresses, ports) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']').ok_or_else(wrong)? {
                (addresses, "") => (addresses, None),
                (addresses, ports) => (addresses, Some(ports.strip_prefix(':').ok_or_else(wrong)?)),
            },
            None if text.matches(':').count() == 1 => {
                text.split_once(':').map(|(a, p)| (a, Some(p))).ok_or_else(wrong)?
            }
            None => (text, None),
        };
        let addresses = match addresses.parse() {
            Ok(prefix) => prefix,
            Err(_) => IpNet::from(addresses.parse::<IpAddr>().map_err(|_| wrong())?),
        };
        Peers::new(addresses, ports.map_or(Ok(ALL_PORTS), parse_ports)?)
    }
}

/// As it is read.
impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.ports.start(), self.ports.end());
        match self.addresses {
            addresses if self.ports == ALL_PORTS => return write!(f, "{addresses}"),
            IpNet::V4(addresses) => write!(f, "{addresses}:{first}")?,
            IpNet::V6(addresses) => write!(f, "[{addresses}]:{first}")?,
        }
        if first == last { Ok(()) } else { write!(f, "-{last}") }
    }
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, PeersError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(PeersError::Ports(text.into())),
    }
}

impl Rules {
    /// The operator's lists, before what is refused by default and this server's own addresses.
    pub fn new(lists: &Lists, own: &Own) -> Self {
        let by_list = |peers: &[Peers], allows| {
            let entries = peers.iter().map(|peers| Entry::written(peers.addresses, peers.ports.clone(), allows));
            entries.collect::<Vec<_>>()
        };
        let defaults = ranges::refused().map(|addresses| Entry::by_default(addresses, ALL_PORTS));
        let mut all: Vec<Entry> = defaults.chain(own.entries()).collect();
        all.extend(by_list(&lists.allow, true));
        all.extend(by_list(&lists.deny, false));
        all.sort_by_key(|entry| (Reverse(entry.addresses.prefix_len()), entry.width, entry.allows));
        let (v4, v6) = all.into_iter().partition(|entry| matches!(entry.addresses, IpNet::V4(_)));
        Rules { v4, v6, opened: own.opened.clone() }
    }

    /// Whether the relay may send to this peer, and take what it sends.
    pub fn allows(&self, peer: SocketAddr) -> bool {
        self.decide(peer, false)
    }

    /// The same for connections.
    pub fn allows_by_tcp(&self, peer: SocketAddr) -> bool {
        self.decide(peer, true)
    }

    fn decide(&self, peer: SocketAddr, is_tcp: bool) -> bool {
        peer.port() != 0 && forms(peer.ip()).all(|form| self.decides(SocketAddr::new(form, peer.port()), is_tcp))
    }

    /// Which ports of this address it may send to: for permissions, which are for an address and not for a port (RFC 8656
    /// §9).
    pub fn ports(&self, peer: IpAddr) -> Ports {
        forms(peer).map(|form| self.ports_of(form)).max().unwrap_or(Ports::None)
    }

    fn decides(&self, peer: SocketAddr, is_tcp: bool) -> bool {
        match self.fitting(peer.ip()).find(|entry| entry.ports.contains(&peer.port())) {
            Some(Entry { is_relayed: true, .. }) => self.opened.has(peer, is_tcp),
            Some(entry) => entry.allows,
            None => true,
        }
    }

    fn ports_of(&self, address: IpAddr) -> Ports {
        // Ports of which no rule has said anything so far: the most specific one comes first. Port 0 is none.
        let mut left = vec![1..=u16::MAX];
        let (mut allows, mut refuses) = (false, false);
        for entry in self.fitting(address) {
            let rest: Vec<_> = left.iter().flat_map(|ports| without(ports, &entry.ports)).collect();
            if rest != left {
                allows |= entry.allows;
                refuses |= !entry.allows;
            }
            left = rest;
            if left.is_empty() || allows && refuses {
                break;
            }
        }
        match (allows || !left.is_empty(), refuses) {
            (true, true) => Ports::Some,
            (true, false) => Ports::All,
            (false, _) => Ports::None,
        }
    }

    fn fitting(&self, address: IpAddr) -> impl Iterator<Item = &Entry> {
        let entries = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        entries.iter().filter(move |entry| entry.addresses.contains(&address))
    }
}

impl Entry {
    /// As somebody wrote it.
    fn written(addresses: IpNet, ports: RangeInclusive<u16>, allows: bool) -> Self {
        let width = u32::from(*ports.end()) - u32::from(*ports.start()) + 1;
        Entry { addresses, ports, allows, is_relayed: false, width }
    }

    /// A refusal that any rule for the same prefix undoes.
    fn by_default(addresses: IpNet, ports: RangeInclusive<u16>) -> Self {
        Entry { addresses, ports, allows: false, is_relayed: false, width: WIDTH_OF_DEFAULTS }
    }
}

/// What is left of a range without another.
fn without(ports: &RangeInclusive<u16>, taken: &RangeInclusive<u16>) -> impl Iterator<Item = RangeInclusive<u16>> {
    let (first, last) = (*ports.start(), *ports.end());
    let below = taken.start().checked_sub(1).map(|end| first..=end.min(last));
    let above = taken.end().checked_add(1).map(|start| start.max(first)..=last);
    [below, above].into_iter().flatten().filter(|part| !part.is_empty())
}

/// A prefix of IPv4-mapped addresses is one of IPv4 addresses.
fn canonical(addresses: IpNet) -> IpNet {
    let IpNet::V6(v6) = addresses else { return addresses };
    match (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
        (Some(v4), Some(len)) => Ipv4Net::new(v4, len).map_or(addresses, IpNet::V4),
        _ => addresses,
    }
}

/// The address itself, and the IPv4 addresses that it carries.
fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let address = address.to_canonical();
    let carried = match address {
        IpAddr::V4(_) => [None; 2],
        IpAddr::V6(v6) => ranges::carried(v6),
    };
    [Some(address)].into_iter().chain(carried.map(|v4| v4.map(IpAddr::V4))).flatten()
}
