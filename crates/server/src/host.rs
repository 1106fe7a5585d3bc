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
