//! What this host has: addresses to be found at and to bind, and the time of day.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::SystemTime;

use anyhow::Context as _;

use crate::config::Config;

/// The host's addresses at which a client may find it: those that it has towards its default routes, and without one those of
/// its interfaces. Others, of containers and private networks, are nobody's business. Loopback is among them when HTTP
/// listens there, or nothing else is.
pub(crate) fn host_addresses(config: &Config) -> anyhow::Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs().context("reading the host's addresses")?;
    let own = interfaces.iter().filter(|interface| !interface.is_link_local()).map(|interface| interface.ip());
    let routed = ELSEWHERE.iter().filter_map(|elsewhere| address_towards(*elsewhere));
    Ok(choose(&own.collect::<Vec<_>>(), &routed.collect::<Vec<_>>(), config.http.listen.ip()))
}

fn choose(own: &[IpAddr], routed: &[IpAddr], listen: IpAddr) -> Vec<IpAddr> {
    let from = if routed.is_empty() { own } else { routed };
    let mut addresses: Vec<IpAddr> = from.iter().filter(|ip| !ip.is_loopback()).copied().collect();
    if listen.is_loopback() || addresses.is_empty() {
        addresses.extend(own.iter().filter(|ip| ip.is_loopback()));
    }
    addresses.truncate(HOST_ADDRESSES_MAX);
    addresses
}

/// Addresses to which nobody has a route of its own: a root name server's. Nothing is sent there.
const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)), IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30))];

/// The source of what would go there, by the routing table. To connect a UDP socket sends nothing.
fn address_towards(elsewhere: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if elsewhere.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((elsewhere, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
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

/// Connections that each of `listeners` may have where `files` may be open and `others` are for other connections: these
/// may not take the descriptors of HTTP, of titles and of what else there is, nor the other way round.
pub(crate) fn links_max(files: u64, listeners: usize, others: usize) -> usize {
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let reserved = others.saturating_add(FILES_RESERVED).min(files / 4 * 3);
    ((files - reserved) / listeners.max(1)).max(1)
}

/// Open files that are no connections: sockets of workers, titles, parts in the disk cache.
pub(crate) const FILES_RESERVED: usize = 1_024;

fn has_ipv6() -> bool {
    UdpSocket::bind("[::1]:0").is_ok()
}

/// A time as NTP has it: 32.32 fixed-point seconds since 1900, which begin anew in 2036 (RFC 5905 §6).
pub fn ntp(at: SystemTime) -> u64 {
    let since_1970 = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let fraction = (u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000;
    ((since_1970.as_secs() + SECONDS_1900_TO_1970) << 32) + fraction
}

pub(crate) const SECONDS_1900_TO_1970: u64 = 2_208_988_800;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_links_leave_descriptors_to_everybody_else() {
        assert_eq!(links_max(20_000, 4, 10_000), (20_000 - 10_000 - 1_024) / 4);
        assert_eq!(links_max(1_024, 2, 10_000), 128, "a quarter, where there are few");
        assert_eq!([links_max(0, 0, 0), links_max(3, 4, 0)], [1, 1]);
        assert!(links_max(u64::MAX, 4, 20_000) > 1_000_000);
    }

    fn chosen(own: &[&str], routed: &[&str], listen: &str) -> Vec<String> {
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect::<Vec<IpAddr>>();
        let chosen = choose(&ips(own), &ips(routed), listen.parse().expect("an address"));
        chosen.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn candidates_are_what_leads_out_and_loopback_where_that_is_all_or_asked_for() {
        let own = ["127.0.0.1", "192.0.2.1", "172.17.0.1", "10.8.0.1", "::1", "2001:db8::1", "fd00::1"];
        let routed = ["192.0.2.1", "2001:db8::1"];
        assert_eq!(chosen(&own, &routed, "0.0.0.0"), routed);
        assert_eq!(chosen(&own, &routed, "127.0.0.1"), ["192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"]);
        assert_eq!(chosen(&["127.0.0.1", "10.0.0.1"], &[], "0.0.0.0"), ["10.0.0.1"], "no default route");
        assert_eq!(chosen(&["127.0.0.1"], &[], "0.0.0.0"), ["127.0.0.1"]);
        assert_eq!(chosen(&["127.0.0.1"], &["127.0.0.1"], "0.0.0.0"), ["127.0.0.1"]);
    }

    #[test]
    fn an_address_towards_elsewhere_is_one_of_this_host() {
        let interfaces = if_addrs::get_if_addrs().expect("addresses");
        for found in ELSEWHERE.iter().filter_map(|elsewhere| address_towards(*elsewhere)) {
            assert!(interfaces.iter().any(|interface| interface.ip() == found), "{found}");
        }
    }
}
