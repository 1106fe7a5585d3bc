//! A configuration of coturn (`turnserver.conf`) as one of ours, and what of it has no counterpart.
//!
//! In: the text of the file. Out: TOML that `Config::load` takes, and a note for each line that means something else here, or
//! nothing, with the reason. Nothing is left out in silence, and no secret stands in a note.
//! Source: coturn's README.turnserver and examples/etc/turnserver.conf (4.17).

mod addresses;
mod options;
mod peers;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use addresses::Addresses;
use options::Meaning;
use peers::PeerRanges;

use crate::import::{Imported, Note, Settings, number, quoted};

/// What ours begins with.
const BEGINNING: &str = "# Made of a turnserver.conf by `millrace import coturn`. It has secrets in it.\n\
                         # millrace relay --config FILE runs it.\n";

/// Reads a file of coturn.
pub fn import(text: &str) -> Imported {
    let mut importer = Importer::default();
    for (number, line) in (1..).zip(text.lines()) {
        importer.read(number, line);
    }
    importer.finish()
}

/// What was read so far.
#[derive(Default)]
struct Importer {
    settings: Settings,
    addresses: Addresses,
    peers: PeerRanges,
    /// First and last port.
    ports: (Option<u16>, Option<u16>),
    certificate: Option<String>,
    key: Option<String>,
    has_certificate: bool,
    has_no_dtls: bool,
    has_no_tcp_relay: bool,
    notes: Vec<Note>,
}

/// A line's option, and what it is set to. As coturn has it: blanks or `=` stand between them, and quotes around the value
/// are taken off.
fn option(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let separates = |c: char| c == '=' || c == ' ' || c == '\t';
    let (name, value) = line.split_once(separates).unwrap_or((line, ""));
    let value = value.trim_start_matches(separates);
    let value = value.strip_prefix('"').map_or(value, |value| value.strip_suffix('"').unwrap_or(value));
    Some((name, value))
}

/// Whether a switch is on. One without a value is.
fn is_on(value: &str) -> bool {
    !(value.starts_with(['0', 'n', 'N', 'f', 'F']) || value.eq_ignore_ascii_case("off"))
}

impl Importer {
    fn read(&mut self, line: usize, text: &str) {
        let Some((name, value)) = option(text) else { return };
        let Some(meaning) = options::meaning(name) else {
            return self.note(line, name, "coturn has no such option, as far as is known here".to_owned());
        };
        let taken = match meaning {
            Meaning::None(reason) => Err(reason.to_owned()),
            Meaning::Switch(reason) => {
                if is_on(value) {
                    Err(reason.to_owned())
                } else {
                    Ok(())
                }
            }
            Meaning::Same => Ok(()),
            Meaning::Taken => self.take(line, name, value),
        };
        if let Err(reason) = taken {
            self.note(line, name, reason);
        }
    }

    fn note(&mut self, line: usize, option: &str, says: String) {
        self.notes.push(Note { line: Some(line), option: option.to_owned(), says });
    }

    /// Takes an option that has a counterpart. The error says why it was not taken, or what is another way.
    fn take(&mut self, line: usize, name: &str, value: &str) -> Result<(), String> {
        match name {
            "listening-ip" | "listening-port" | "tls-listening-port" | "alt-listening-port" | "aux-server"
            | "relay-ip" | "external-ip" | "no-udp" | "no-tcp" | "no-tls" | "rfc5780" | "no-rfc5780" => {
                return self.addresses.take(line, name, value);
            }
            "allowed-peer-ip" | "denied-peer-ip" | "allow-loopback-peers" => return self.peers.take(name, value),
            "min-port" => self.ports.0 = Some(number(value)?),
            "max-port" => self.ports.1 = Some(number(value)?),
            "no-dtls" => self.has_no_dtls = is_on(value),
            "cert" => self.certificate = Some(value.to_owned()),
            "pkey" => self.key = Some(value.to_owned()),
            "realm" => self.settings.set("relay", "realm", quoted(value))?,
            "user" => self.settings.push("relay", "users", quoted(value))?,
            "static-auth-secret" => self.settings.push("relay", "secrets", quoted(value))?,
            "redis-userdb" => self.settings.set("relay", "redis", quoted(&addresses::redis_url(value)?))?,
            "user-quota" => self.set_unless_0("allocations_per_user", number(value)?)?,
            "total-quota" => self.set_unless_0("allocations_max", number(value)?)?,
            "max-bps" => {
                self.set_bandwidth("bandwidth_per_user", value)?;
                return Err(
                    "coturn counts each allocation by itself; relay.bandwidth_per_user is for all of a user".into()
                );
            }
            "bps-capacity" => self.set_bandwidth("bandwidth_max", value)?,
            "stale-nonce" => match number::<u64>(if value.is_empty() { "600" } else { value })? {
                0 => return Err("a nonce is not good for ever here: relay.nonce_age is an hour at most".into()),
                seconds => {
                    self.settings.set("relay", "nonce_age", quoted(&format!("{}s", seconds.clamp(10, 3_600))))?
                }
            },
            "max-allocate-lifetime" => {
                let seconds: u64 = number(value)?;
                self.settings.set("relay", "lifetime_max", quoted(&format!("{}s", seconds.clamp(600, 86_400))))?;
            }
            "alternate-server" | "udp-alternate-server" => {
                let server = addresses::with_port(value, 3_478).ok_or("left out: it is no address")?;
                self.settings.set("relay", "redirect_all", "true".into())?;
                self.settings.push("relay", "alternate_servers", quoted(&server.to_string()))?;
            }
            "tls-alternate-server" => {
                let server = addresses::with_port(value, 5_349).ok_or("left out: it is no address")?;
                self.settings.set("relay", "redirect_all", "true".into())?;
                self.settings.push("relay", "tls_alternate_servers", quoted(&server.to_string()))?;
            }
            "relay-threads" | "cpus" => {
                let count: u16 = number(value)?;
                if count > 0 {
                    self.settings.set("workers", "count", count.to_string())?;
                }
            }
            "prometheus-port" => {
                let port: u16 = number(value)?;
                self.settings.set("http", "metrics_listen", quoted(&format!("0.0.0.0:{port}")))?;
            }
            "prometheus" if is_on(value) => {
                let listen = quoted("0.0.0.0:9641");
                self.settings.set_first("http", "metrics_listen", listen)?;
            }
            "channel-lifetime" if number::<u32>(value)? != 600 => return Err(options::LIFETIMES.into()),
            "permission-lifetime" if number::<u32>(value)? != 300 => return Err(options::LIFETIMES.into()),
            "rest-api-separator" if value != ":" => {
                return Err("the time and the user stand with a colon between them here, and with nothing else".into());
            }
            "no-tcp-relay" => self.has_no_tcp_relay = is_on(value),
            "keep-address-family" => self.settings.set("relay", "keep_family", is_on(value).to_string())?,
            "allocation-default-address-family" if value == "keep" => {
                self.settings.set("relay", "keep_family", "true".into())?
            }
            "allocation-default-address-family" if value != "ipv4" => {
                return Err("who asks for no family gets the first of relay.addresses: name the IPv6 one first".into());
            }
            _ => {}
        }
        Ok(())
    }

    /// 0 is no limit there, and the default here.
    fn set_unless_0(&mut self, key: &'static str, count: u32) -> Result<(), String> {
        if count > 0 { self.settings.set("relay", key, count.min(10_000_000).to_string()) } else { Ok(()) }
    }

    /// Bytes a second there, bits here.
    fn set_bandwidth(&mut self, key: &'static str, value: &str) -> Result<(), String> {
        match number::<u64>(value)? {
            0 => Ok(()),
            bytes => {
                let bps = bytes.saturating_mul(8).clamp(10_000, 1_000_000_000_000);
                self.settings.set("relay", key, quoted(&format!("{bps}bps")))
            }
        }
    }

    /// Adds what several lines make together.
    fn push_all(&mut self, option: &str, key: &'static str, values: impl IntoIterator<Item = String>) {
        for value in values {
            if let Err(says) = self.settings.push("relay", key, quoted(&value)) {
                self.notes.push(Note { line: None, option: option.to_owned(), says: format!("{value}: {says}") });
            }
        }
    }

    fn finish(mut self) -> Imported {
        let (listening, addresses) = self.addresses.finish(&mut self.notes);
        let (allowed, denied) = self.peers.finish();
        self.push_all("listening-ip", "listen", listening.udp.iter().map(ToString::to_string));
        self.push_all("listening-ip", "tcp_listen", listening.tcp.iter().map(ToString::to_string));
        let second =
            listening.second.map(|second| self.settings.set("relay", "second_address", quoted(&second.to_string())));
        let tcp_relay =
            (!self.has_no_tcp_relay).then(|| self.settings.set("relay", "tcp_allocations", "true".to_owned()));
        for (option, set) in [("rfc5780", second), ("no-tcp-relay", tcp_relay)] {
            if let Some(Err(says)) = set {
                self.notes.push(Note { line: None, option: option.to_owned(), says });
            }
        }
        self.push_all("relay-ip", "addresses", addresses);
        self.push_all("allowed-peer-ip", "allowed_peers", allowed.iter().map(ToString::to_string));
        self.push_all("denied-peer-ip", "denied_peers", denied.iter().map(ToString::to_string));
        if let (first, last) = self.ports
            && (first.is_some() || last.is_some())
        {
            let ports = format!("{}-{}", first.unwrap_or(49_152).max(1_024), last.unwrap_or(u16::MAX));
            if let Err(says) = self.settings.set("relay", "ports", quoted(&ports)) {
                self.notes.push(Note { line: None, option: "min-port".to_owned(), says });
            }
        }
        if let (Some(certificate), Some(key)) = (self.certificate.take(), self.key.take()) {
            let files = format!("{{ certificate = {}, key = {} }}", quoted(&certificate), quoted(&key));
            self.has_certificate = true;
            match self.settings.push("tls", "certificates", files) {
                Ok(()) => self.push_all("listening-ip", "tls_listen", listening.tls.iter().map(ToString::to_string)),
                Err(says) => self.notes.push(Note { line: None, option: "cert".to_owned(), says }),
            }
        }
        self.finish_missing();
        let toml = self.settings.toml(&["relay", "tls", "http", "workers"]);
        Imported { toml: format!("{BEGINNING}{toml}"), notes: self.notes }
    }

    /// What coturn does where nothing is said, and is another way here.
    fn finish_missing(&mut self) {
        let mut missing = |option: &str, says: &str| {
            self.notes.push(Note { line: None, option: option.to_owned(), says: says.to_owned() });
        };
        if !self.settings.has("relay", "realm") {
            missing(
                "realm",
                "coturn takes the host's domain then; set relay.realm to it, as keys and secrets depend on it",
            );
        }
        if !["users", "secrets", "redis"].iter().any(|key| self.settings.has("relay", key)) {
            missing(
                "user",
                "there is nobody in this file who may use the relay; set relay.users, users_file, secrets or redis",
            );
        }
        if self.has_certificate && !self.has_no_dtls {
            missing("dtls", options::DTLS);
        }
        if !self.settings.has("relay", "allowed_peers") {
            missing(
                "allowed-peer-ip",
                "coturn relays into private networks unless told otherwise; here relay.allowed_peers has to name them",
            );
        }
    }
}

/// All addresses of a host.
fn wildcards(port: u16) -> [SocketAddr; 2] {
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)].map(|ip| SocketAddr::new(ip, port))
}
