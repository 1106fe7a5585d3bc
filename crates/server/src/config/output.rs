//! A way to send that sessions choose by name.
//!
//! In: a name, then keys and values. Out: the way; `None` when one of them does not fit.

use std::net::IpAddr;

/// A way to send, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputConfig {
    /// What sessions call it.
    pub name: String,
    /// Address to send from; `None`: those of `pump.bind`. With source-specific multicast it is what receivers ask for.
    pub source: Option<IpAddr>,
    /// Port of the first worker; the second has the next one. 0: any.
    pub source_port: u16,
    /// Routers that datagrams may pass, plus one. `None`: as the system has it, and `pump.multicast_ttl` for groups.
    pub ttl: Option<u8>,
    /// `None`: `pump.dscp`.
    pub dscp: Option<u8>,
    /// Interface that datagrams leave by; `None`: as the routing table says.
    pub interface: Option<String>,
}

impl OutputConfig {
    /// `None` when the name is empty or would have to be quoted.
    pub fn new(name: &str) -> Option<Self> {
        Some(OutputConfig { name: plain_name(name)?, ..OutputConfig::default() })
    }

    /// Sets one of its keys. `None` when there is no such key, or the value does not fit.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Option<Self> {
        match key {
            "source" => self.source = Some(value.parse().ok()?),
            "source_port" => self.source_port = value.parse().ok()?,
            "ttl" => self.ttl = Some(value.parse().ok().filter(|ttl| *ttl > 0)?),
            "dscp" => self.dscp = Some(value.parse().ok().filter(|dscp| *dscp < 64)?),
            "interface" => self.interface = Some(value.to_owned()).filter(|name| !name.is_empty()),
            _ => return None,
        }
        Some(self)
    }

    /// Keys and values that are set, the name first.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![("name", self.name.clone())];
        pairs.extend(self.source.map(|source| ("source", source.to_string())));
        pairs.extend((self.source_port != 0).then(|| ("source_port", self.source_port.to_string())));
        pairs.extend(self.ttl.map(|ttl| ("ttl", ttl.to_string())));
        pairs.extend(self.dscp.map(|dscp| ("dscp", dscp.to_string())));
        pairs.extend(self.interface.clone().map(|name| ("interface", name)));
        pairs
    }
}

/// A name that need not be quoted, in a URL neither.
pub(super) fn plain_name(name: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_fine = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    is_fine.then(|| name.to_owned())
}

/// Longest name.
const NAME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_read_and_written() {
        let all =
            [("source", "192.0.2.1"), ("source_port", "4000"), ("ttl", "8"), ("dscp", "34"), ("interface", "eth1")];
        let mut output = OutputConfig::new("iptv").expect("a name");
        for (key, value) in all {
            output = output.with(key, value).expect(key);
        }
        let pairs = output.pairs();
        assert_eq!(pairs[0], ("name", "iptv".to_owned()));
        assert!(pairs[1..].iter().zip(all).all(|((key, value), (one, other))| *key == one && value == other));
        for (key, value) in [("ttl", "0"), ("ttl", "256"), ("dscp", "64"), ("source", "host"), ("color", "red")] {
            assert_eq!(OutputConfig::default().with(key, value), None, "{key}");
        }
        assert_eq!(OutputConfig::new("a b"), None);
    }
}
