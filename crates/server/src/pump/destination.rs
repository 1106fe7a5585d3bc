//! Where sessions may send to.
//!
//! In: "udp://host:port" or "rtp://host:port", and the prefixes that an operator allows. Out: addresses, or why not.
//! Names are asked of the system's resolver, on a control thread, once per session; what is sent goes to the address
//! that was checked.
//! Source: RFC 6890 (special addresses), RFC 4291 §2.7 and RFC 5771 (multicast).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

/// How long a name may take to be resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A destination as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// With an RTP header before each datagram (RFC 2250); else the packets alone.
    pub is_rtp: bool,
    /// A name, or an address without brackets.
    pub host: String,
    /// Parity goes to those two and four above it.
    pub port: u16,
}

/// Why nothing may be sent there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum DestinationError {
    #[error("a destination is udp://host:port or rtp://host:port, not {0:?}")]
    Syntax(String),
    #[error("{0} is not known")]
    Unknown(String),
    #[error("pump.destinations does not allow {0}")]
    NotAllowed(IpAddr),
    #[error("the pump has no socket for {0} (see pump.bind)")]
    NoSocket(IpAddr),
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let parse = || {
            let (scheme, rest) = text.split_once("://")?;
            let is_rtp = match scheme {
                "udp" => false,
                "rtp" => true,
                _ => return None,
            };
            let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':')?;
            let host = match host.strip_prefix('[') {
                Some(address) => address.strip_suffix(']').filter(|address| address.contains(':'))?,
                // multicat and VLC have the group behind an @.
                None => Some(host.strip_prefix('@').unwrap_or(host)).filter(|host| !host.contains(':'))?,
            };
            let clean = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte));
            let port = port.parse().ok().filter(|port| *port != 0)?;
            (clean && !host.is_empty()).then(|| Destination { is_rtp, host: host.to_owned(), port })
        };
        parse().ok_or_else(|| DestinationError::Syntax(text.to_owned()))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_rtp { "rtp" } else { "udp" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl Destination {
    /// The first of its addresses that `may` allows.
    ///
    /// # Errors
    /// When the name is not known, or what `may` says about the first address.
    pub async fn resolve(
        &self,
        may: impl Fn(IpAddr) -> Result<(), DestinationError>,
    ) -> Result<SocketAddr, DestinationError> {
        let unknown = || DestinationError::Unknown(self.host.clone());
        let lookup = tokio::net::lookup_host((self.host.as_str(), self.port));
        let found = tokio::time::timeout(RESOLVE_TIMEOUT, lookup).await.map_err(|_| unknown())?;
        let mut refusal = unknown();
        for (index, addr) in found.map_err(|_| unknown())?.enumerate() {
            match may(addr.ip()) {
                Ok(()) => return Ok(addr),
                Err(error) if index == 0 => refusal = error,
                Err(_) => {}
            }
        }
        Err(refusal)
    }
}

/// What lies here is allowed only by a prefix that lies here as well: loopback, private and shared networks, link-local
/// addresses, groups; and networks whose routers send to IPv4 addresses: NAT64 (RFC 6052, RFC 8215), 6to4, Teredo.
const SPECIAL: [&str; 16] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "2002::/16",
    "2001::/32",
];

/// What nobody may send to: "this network", which Linux takes for itself, the future, and addresses that stand for IPv4
/// ones.
const NEVER: [&str; 4] = ["0.0.0.0/8", "240.0.0.0/4", "::/128", "::ffff:0:0/96"];

/// The destinations that an operator allows.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    prefixes: Vec<(IpNet, Option<usize>)>,
    special: Vec<IpNet>,
    never: Vec<IpNet>,
}

impl Allowed {
    /// Networks: each is for what is special only as far as it lies within it.
    pub fn new(prefixes: &[IpNet]) -> Self {
        let read = |list: &[&str]| list.iter().filter_map(|text| text.parse().ok()).collect();
        let special: Vec<IpNet> = read(&SPECIAL);
        let within = |prefix: &IpNet| special.iter().position(|special| special.contains(prefix));
        let prefixes = prefixes.iter().map(|prefix| (*prefix, within(prefix))).collect();
        Allowed { prefixes, special, never: read(&NEVER) }
    }

    /// # Errors
    /// `NotAllowed`.
    pub fn check(&self, ip: IpAddr) -> Result<(), DestinationError> {
        let kind = self.special.iter().position(|special| special.contains(&ip));
        let is_never = self.never.iter().any(|prefix| prefix.contains(&ip));
        let is_allowed = self.prefixes.iter().any(|(prefix, within)| *within == kind && prefix.contains(&ip));
        if is_allowed && !is_never { Ok(()) } else { Err(DestinationError::NotAllowed(ip)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::network;

    fn allows(prefixes: &[&str], ip: &str) -> bool {
        let prefixes: Vec<IpNet> = prefixes.iter().map(|text| network(text).expect("a prefix")).collect();
        Allowed::new(&prefixes).check(ip.parse().expect("an address")).is_ok()
    }

    #[test]
    fn destinations_are_read_and_written() {
        for text in ["udp://192.0.2.1:5000", "rtp://[2001:db8::1]:5004", "udp://box-7.example.org:1"] {
            let destination: Destination = text.parse().expect(text);
            assert_eq!(destination.to_string(), text);
            assert_eq!(destination.is_rtp, text.starts_with("rtp"));
        }
        assert_eq!("udp://@239.1.2.3:5000".parse::<Destination>().expect("a group").host, "239.1.2.3");
        for text in [
            "",
            "udp://",
            "udp://host",
            "udp://host:0",
            "udp://host:70000",
            "udp://:5000",
            "tcp://host:5000",
            "udp://2001:db8::1:5000",
            "udp://[host]:5000",
            "udp://a b:1",
            "udp://host:1/path",
            "host:5000",
        ] {
            assert_eq!(text.parse::<Destination>(), Err(DestinationError::Syntax(text.to_owned())));
        }
    }

    #[test]
    fn nothing_is_allowed_unless_it_is_listed() {
        assert!(!allows(&[], "192.0.2.1"));
        assert!(allows(&["192.0.2.0/24"], "192.0.2.1"));
        assert!(!allows(&["192.0.2.0/24"], "192.0.3.1"));
        assert!(allows(&["2001:db8::/32"], "2001:db8:1::9"));
        assert!(!allows(&["2001:db8::/32"], "2001:db9::9"));
        assert!(allows(&["198.51.100.7"], "198.51.100.7"));
    }

    #[test]
    fn everything_does_not_mean_loopback_private_networks_or_groups() {
        let everything = ["0.0.0.0/0", "::/0"];
        assert!(allows(&everything, "192.0.2.1") && allows(&everything, "2001:db8::1"));
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "239.1.2.3",
            "::1",
            "fd00::1",
            "fe80::1",
            "ff0e::1",
            "0.0.0.0",
            "255.255.255.255",
            "::",
            "::ffff:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "2002:a00:1::1",
            "2001:0:a00:1::1",
            "fec0::1",
        ] {
            assert!(!allows(&everything, ip), "{ip}");
        }
    }

    #[test]
    fn special_addresses_are_allowed_by_prefixes_of_their_kind() {
        assert!(allows(&["127.0.0.0/8"], "127.0.0.1"));
        assert!(allows(&["10.20.0.0/16"], "10.20.0.1") && !allows(&["10.20.0.0/16"], "10.21.0.1"));
        assert!(allows(&["239.0.0.0/8"], "239.255.0.1") && allows(&["ff00::/8"], "ff0e::7"));
        assert!(allows(&["::1"], "::1") && allows(&["fe80::/10"], "fe80::1"));
        assert!(!allows(&["0.0.0.0/8"], "0.0.0.0") && !allows(&["255.255.255.255"], "255.255.255.255"));
    }

    #[tokio::test]
    async fn the_first_allowed_address_of_a_name_is_taken() {
        let destination: Destination = "udp://localhost:5000".parse().expect("a destination");
        let v4 = destination.resolve(|ip| Allowed::new(&["127.0.0.0/8".parse().expect("a prefix")]).check(ip)).await;
        assert_eq!(v4, Ok("127.0.0.1:5000".parse().expect("an address")));
        assert!(matches!(
            destination.resolve(|ip| Allowed::new(&[]).check(ip)).await,
            Err(DestinationError::NotAllowed(_))
        ));
    }
}
