//! What the settings ask of the host before anything is opened: addresses, ports, open files, threads.
//!
//! In: a `Config`. Out: plain values, for who looks whether the host has it (`millrace doctor`).

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::config::Config;
use crate::host::{FILES_RESERVED, addresses, port_of};
use crate::relay::setup as relay_setup;
use crate::rtsp;

/// An address that the server binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The setting that names it.
    pub setting: &'static str,
    /// UDP, or else TCP.
    pub is_udp: bool,
    /// Where.
    pub addr: SocketAddr,
    /// An IPv6 one takes no IPv4: HTTP's do.
    pub only_v6: bool,
}

/// Threads that forward media.
pub fn workers_count(config: &Config) -> usize {
    relay_setup::workers_count(config)
}

/// Addresses that are bound at the start, each once; those whose ports the system chooses are left out.
///
/// # Errors
/// When there are too few ports for all workers.
pub fn listens(config: &Config) -> anyhow::Result<Vec<Address>> {
    let (http, relay, workers) = (&config.http, &config.relay, &config.workers);
    let of_http = |setting, addr| Address { setting, is_udp: false, addr, only_v6: false };
    let own = |setting, is_udp| move |addr: &SocketAddr| Address { setting, is_udp, addr: *addr, only_v6: true };
    let mut all = vec![of_http("http.listen", http.listen)];
    all.extend(http.tls_listen.map(|addr| of_http("http.tls_listen", addr)));
    all.extend(http.metrics_listen.map(|addr| of_http("http.metrics_listen", addr)));
    all.extend(config.pump.rtsp_listen.map(|addr| of_http("pump.rtsp_listen", addr)));
    all.extend(relay.tcp_listen.iter().map(own("relay.tcp_listen", false)));
    all.extend(relay.tls_listen.iter().map(own("relay.tls_listen", false)));
    all.extend(relay.dtls_listen.iter().map(own("relay.dtls_listen", true)));
    all.extend(relay_setup::listen(config).iter().map(own("relay.listen", true)));
    for index in 0..workers_count(config) {
        let media = addresses(&workers.bind, port_of("workers.udp_port", workers.udp_port, index)?);
        all.extend(media.iter().map(own("workers.udp_port", true)));
        all.extend(media.iter().filter(|_| workers.tcp).map(own("workers.udp_port", false)));
        let pump = addresses(&config.pump.bind, port_of("pump.udp_port", config.pump.udp_port, index)?);
        all.extend(pump.iter().map(own("pump.udp_port", true)));
    }
    let mut once: Vec<Address> = Vec::new();
    for address in all.into_iter().filter(|address| address.addr.port() != 0) {
        if !once.iter().any(|other| (other.is_udp, other.addr) == (address.is_udp, address.addr)) {
            once.push(address);
        }
    }
    Ok(once)
}

/// UDP ports of rooms, the pump and the relay, its allocations' among them.
///
/// # Errors
/// As `listens`.
pub fn media_ports(config: &Config) -> anyhow::Result<Vec<RangeInclusive<u16>>> {
    let mut ports: Vec<_> = listens(config)?.iter().filter(|at| at.is_udp).map(|at| at.addr.port()).collect();
    ports.sort_unstable();
    let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
    for port in ports {
        match ranges.last_mut() {
            Some(last) if port <= last.end().saturating_add(1) => *last = *last.start()..=port,
            _ => ranges.push(port..=port),
        }
    }
    let relay = &config.relay;
    ranges.extend((!relay.listen.is_empty()).then_some(relay.ports.first..=relay.ports.last));
    Ok(ranges)
}

/// Open files without which clients are refused that the settings allow, and those with which workers' listeners have all the
/// connections that they may, too.
pub fn open_files(config: &Config) -> (u64, u64) {
    let rtsp = config.pump.rtsp_listen.map_or(0, |_| rtsp::Limits::default().connections_max);
    let others = config.http.connections_max + rtsp + FILES_RESERVED;
    // Half of all may be allocations'.
    let allocations = relay_setup::allocations_max(config, u64::MAX);
    let needed = others.saturating_add(allocations).max(allocations.saturating_mul(2));
    let listeners = workers_count(config) * addresses(&config.workers.bind, 0).len() * usize::from(config.workers.tcp);
    let wanted = needed.saturating_add(listeners.saturating_mul(config.workers.tcp_links_max));
    (needed as u64, wanted as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &str) -> Config {
        let mut config = Config::default();
        config.apply_toml("test.toml", settings).expect("settings");
        config
    }

    #[test]
    fn each_address_is_named_once_and_none_that_the_system_chooses() {
        let config = config(
            "[http]\nlisten = \"127.0.0.1:8080\"\n[workers]\ncount = 2\nbind = [\"127.0.0.1\"]\nudp_port = 20000\n\
             [relay]\nlisten = [\"127.0.0.1:3478\"]\ntcp_listen = [\"127.0.0.1:8080\"]\n",
        );
        let listens = listens(&config).expect("enough ports");
        let names: Vec<_> = listens.iter().map(|at| (at.setting, at.is_udp, at.addr.port())).collect();
        let expected = [
            ("http.listen", false, 8_080),
            ("relay.listen", true, 3_478),
            ("workers.udp_port", true, 20_000),
            ("workers.udp_port", false, 20_000),
            ("workers.udp_port", true, 20_001),
            ("workers.udp_port", false, 20_001),
        ];
        assert_eq!(names, expected);
        assert_eq!(media_ports(&config).expect("enough ports"), [3_478..=3_478, 20_000..=20_001, 49_152..=65_535]);
    }

    #[test]
    fn allocations_take_half_of_all_files() {
        let rooms = config("[workers]\ncount = 2\nbind = [\"127.0.0.1\"]\ntcp_links_max = 500\n");
        assert_eq!(open_files(&rooms), (11_024, 12_024));
        let relay = config("[relay]\nlisten = [\"127.0.0.1:3478\"]\nallocations_max = 50000\n[workers]\ntcp = false\n");
        assert_eq!(open_files(&relay), (100_000, 100_000));
    }
}
