//! What this host has: addresses to be found at and to bind, and the time of day.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use anyhow::Context as _;

use crate::config::Config;

/// The host's addresses at which a client may find it. Loopback is among them when HTTP listens there, or nothing else is.
pub(crate) fn host_addresses(config: &Config) -> anyhow::Result<Vec<IpAddr>> {
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

/// Connections that each of `listeners` may have where `files` may be open and `others` are for other connections: these
/// may not take the descriptors of HTTP, of titles and of what else there is, nor the other way round.
pub(crate) fn links_max(files: u64, listeners: usize, others: usize) -> usize {
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let reserved = others.saturating_add(FILES_RESERVED).min(files / 2);
    ((files - reserved) / listeners.max(1)).max(1)
}

/// Open files that are no connections: sockets of workers, titles, parts in the disk cache.
const FILES_RESERVED: usize = 1_024;

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind("[::1]:0").is_ok()
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
        assert_eq!(links_max(1_024, 2, 10_000), 256, "half, where there are few");
        assert_eq!([links_max(0, 0, 0), links_max(3, 4, 0)], [1, 1]);
        assert!(links_max(u64::MAX, 4, 20_000) > 1_000_000);
    }
}
