//! Where coturn listens and relays.

use std::net::{IpAddr, SocketAddr};

use super::{is_on, wildcards};
use crate::import::{Note, number};

const PORT: u16 = 3_478;
const TLS_PORT: u16 = 5_349;

#[derive(Default)]
pub(super) struct Addresses {
    listening: Vec<IpAddr>,
    port: Option<u16>,
    tls_port: Option<u16>,
    second_port: Option<u16>,
    aux: Vec<SocketAddr>,
    relay: Vec<(usize, IpAddr)>,
    /// Line, outside, inside.
    external: Vec<(usize, IpAddr, Option<IpAddr>)>,
    has_no_tcp: bool,
    has_no_tls: bool,
    /// Behaviour discovery is wanted (RFC 5780).
    discovers: bool,
}

/// Where clients are listened to.
#[derive(Default)]
pub(super) struct Listening {
    pub(super) udp: Vec<SocketAddr>,
    pub(super) tcp: Vec<SocketAddr>,
    /// Where there are certificates.
    pub(super) tls: Vec<SocketAddr>,
    /// For behaviour discovery.
    pub(super) second: Option<SocketAddr>,
}

impl Addresses {
    pub(super) fn take(&mut self, line: usize, name: &str, value: &str) -> Result<(), String> {
        let ip = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| format!("left out: {text:?} is no IP address"));
        match name {
            "listening-ip" => self.listening.push(ip(value)?),
            "listening-port" => self.port = Some(number(value)?),
            "tls-listening-port" => self.tls_port = Some(number(value)?),
            "alt-listening-port" => self.second_port = Some(number(value)?),
            "rfc5780" => self.discovers = is_on(value),
            "no-rfc5780" => self.discovers &= !is_on(value),
            "no-tcp" => self.has_no_tcp = is_on(value),
            "no-tls" => self.has_no_tls = is_on(value),
            "no-udp" if is_on(value) => {
                return Err("clients may always come by UDP (relay.listen); close the port to them elsewhere".into());
            }
            "aux-server" => self.aux.push(with_port(value, PORT).ok_or("left out: it is no address")?),
            "relay-ip" => self.relay.push((line, ip(value)?)),
            "external-ip" => {
                let (outside, inside) = match value.split_once('/') {
                    Some((outside, inside)) => (ip(outside)?, Some(ip(inside)?)),
                    None => (ip(value)?, None),
                };
                self.external.push((line, outside, inside));
            }
            _ => {}
        }
        Ok(())
    }

    /// Where clients come in, and the addresses of allocations as the settings have them.
    pub(super) fn finish(&self, notes: &mut Vec<Note>) -> (Listening, Vec<String>) {
        let or = |port: Option<u16>, usual| port.filter(|port| *port != 0).unwrap_or(usual);
        let at = |port: u16| {
            let own = self.listening.iter().map(|ip| SocketAddr::new(*ip, port));
            if self.listening.is_empty() { wildcards(port).into() } else { own.collect::<Vec<_>>() }
        };
        let mut udp = at(or(self.port, PORT));
        udp.extend(&self.aux);
        let mut tls = at(or(self.tls_port, TLS_PORT));
        for listen in [&mut udp, &mut tls] {
            listen.sort_unstable();
            listen.dedup();
        }
        let tcp = if self.has_no_tcp { Vec::new() } else { udp.clone() };
        if self.has_no_tls {
            tls.clear();
        }
        let second = self.second(&udp, notes);
        (Listening { udp, tcp, tls, second }, self.relayed(notes))
    }

    /// Another address of the first one's family, and another port.
    fn second(&self, listen: &[SocketAddr], notes: &mut Vec<Note>) -> Option<SocketAddr> {
        let first = listen.first().filter(|_| self.discovers)?;
        let is_other = |ip: &&IpAddr| ip.is_ipv4() == first.is_ipv4() && **ip != first.ip();
        let other = self.listening.iter().find(is_other).filter(|_| !first.ip().is_unspecified());
        if other.is_none() {
            let says = "it takes two addresses of a family (listening-ip): set relay.second_address";
            notes.push(Note { line: None, option: "rfc5780".into(), says: says.into() });
        }
        let port = self.second_port.filter(|port| *port != 0).unwrap_or(first.port().saturating_add(1));
        other.map(|ip| SocketAddr::new(*ip, port))
    }

    fn relayed(&self, notes: &mut Vec<Note>) -> Vec<String> {
        let mut note = |line, option: &str, says: String| {
            notes.push(Note { line: Some(line), option: option.to_owned(), says });
        };
        // What is bound, of each family one.
        let listening = self.listening.iter().filter(|ip| !ip.is_unspecified());
        let mut bound: Vec<IpAddr> = Vec::new();
        for (line, ip) in &self.relay {
            match bound.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) {
                true => note(*line, "relay-ip", "left out: allocations have one address of a family".into()),
                false => bound.push(*ip),
            }
        }
        let mut addresses: Vec<String> = Vec::new();
        for is_v4 in [true, false] {
            let of_family = |ip: &&IpAddr| ip.is_ipv4() == is_v4;
            let outside = self.external.iter().filter(|(_, outside, _)| outside.is_ipv4() == is_v4);
            let bind = bound.iter().find(of_family).copied();
            let mapped = outside.clone().find(|(_, _, inside)| bind.is_none() || inside.is_none() || *inside == bind);
            for (line, ..) in outside.filter(|entry| Some(*entry) != mapped) {
                note(
                    *line,
                    "external-ip",
                    "left out: allocations have one address of a family, and this is not its".into(),
                );
            }
            match (bind, mapped) {
                (bind, Some((line, outside, inside))) => {
                    match bind.or(*inside).or_else(|| listening.clone().find(of_family).copied()) {
                        Some(bind) => addresses.push(format!("{bind}={outside}")),
                        None => note(
                            *line,
                            "external-ip",
                            format!(
                                "name the address of this machine that is seen as {outside}: relay.addresses = [\"ADDRESS={outside}\"]"
                            ),
                        ),
                    }
                }
                (Some(bind), None) => addresses.push(bind.to_string()),
                (None, None) => {}
            }
        }
        addresses
    }
}

/// An address with a port, or that port.
pub(super) fn with_port(text: &str, port: u16) -> Option<SocketAddr> {
    let ip = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    text.parse().ok().or_else(|| Some(SocketAddr::new(ip.parse().ok()?, port)))
}

/// The URL of what stands there as `ip=… dbname=… password=… port=…`.
pub(super) fn redis_url(text: &str) -> Result<String, String> {
    let value = |keys: &[&str]| {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| keys.contains(key)).map(|(_, value)| value).next_back()
    };
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let scheme = if value(&["tls", "ssl"]).is_some_and(is_on) { "rediss" } else { "redis" };
    let host = value(&["ip", "host", "addr", "ipaddr", "hostaddr"]).unwrap_or("127.0.0.1");
    let port: u16 = number(value(&["port", "p"]).unwrap_or("6379"))?;
    let database: u16 = number(value(&["dbname", "db", "database"]).unwrap_or("0"))?;
    let mut url =
        url::Url::parse(&format!("{scheme}://{host}:{port}/{database}")).map_err(|_| "left out: no such host")?;
    // What has characters of its own in a URL is escaped.
    let is_set = url.set_username(value(&["user", "username"]).unwrap_or_default());
    let is_set = is_set.and_then(|()| url.set_password(value(&["password", "secret", "pwd", "pw"])));
    is_set.map(|()| url.to_string()).map_err(|()| "left out: it has no host".to_owned())
}
