//! Which live input to receive.
//!
//! In: `udp://@239.1.1.1:5000` and the like. Out: the input; `None` when that is none.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::duration;
use super::output::plain_name;

/// Shortest and longest delay.
const DELAY: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(5);

/// From arrival to departure unless told otherwise: the longest time between references that the standard allows, and as
/// much again for what comes late.
const DELAY_DEFAULT: Duration = Duration::from_millis(250);

/// A live input, as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveInput {
    /// Sessions name it `live/NAME`.
    pub name: String,
    /// The sender is expected to use RTP. Both are understood in any case.
    pub is_rtp: bool,
    /// Address and port to receive at; a group (multicast) is joined.
    pub addr: SocketAddr,
    /// Interface on which a group is joined. `None`: as the routing table says.
    pub interface: Option<String>,
    /// The only sender that is listened to; of a group, the only one whose datagrams are asked for (SSM).
    pub source: Option<IpAddr>,
    /// How long after its arrival a packet leaves.
    pub delay: Duration,
}

impl LiveInput {
    /// Reads a URL: `udp://` or `rtp://`, then `@` and a group, or an address of this machine (none: all of IPv4), then a
    /// port. A source may stand before the `@`, and options behind a `?`: `?interface=eth0&delay=300ms`.
    pub fn new(name: &str, url: &str) -> Option<Self> {
        let (url, options) = url.split_once('?').unwrap_or((url, ""));
        let mut options = options.split('&').filter(|option| !option.is_empty());
        options.try_fold(LiveInput::at(name, url)?, |input, option| {
            let (key, value) = option.split_once('=')?;
            input.with(key, value)
        })
    }

    fn at(name: &str, url: &str) -> Option<Self> {
        let name = plain_name(name)?;
        let (scheme, rest) = url.split_once("://")?;
        let is_rtp = match scheme {
            "udp" => false,
            "rtp" => true,
            _ => return None,
        };
        let (source, at) = rest.rsplit_once('@').unwrap_or(("", rest));
        let addr = match at.strip_prefix(':') {
            Some(port) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port.parse().ok()?),
            None => at.parse().ok()?,
        };
        let input = LiveInput { name, is_rtp, addr, interface: None, source: None, delay: DELAY_DEFAULT };
        match source {
            "" => Some(input),
            source => input.with_source(source.trim_start_matches('[').trim_end_matches(']').parse().ok()?),
        }
    }

    /// Listens to one sender; `None` when it is of another family, or there is another one.
    fn with_source(self, source: IpAddr) -> Option<Self> {
        let fits = source.is_ipv4() == self.addr.is_ipv4() && !source.is_multicast();
        let is_one = self.source.is_none_or(|other| other == source);
        (fits && is_one).then_some(LiveInput { source: Some(source), ..self })
    }

    /// Sets one of the keys beside name and URL.
    pub fn with(self, key: &str, text: &str) -> Option<Self> {
        match key {
            "interface" if !text.is_empty() => Some(LiveInput { interface: Some(text.to_owned()), ..self }),
            "source" => self.with_source(text.parse().ok()?),
            "delay" => duration(text).filter(|delay| DELAY.contains(delay)).map(|delay| LiveInput { delay, ..self }),
            _ => None,
        }
    }

    /// Keys beside name and URL that are set.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let interface = self.interface.clone().map(|interface| ("interface", interface));
        let source = self.source.map(|source| ("source", source.to_string()));
        let delay = (self.delay != DELAY_DEFAULT).then(|| ("delay", format!("{}ms", self.delay.as_millis())));
        interface.into_iter().chain(source).chain(delay).collect()
    }
}

/// The URL.
impl fmt::Display for LiveInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.addr.ip().is_multicast() { "@" } else { "" };
        write!(f, "{}://{at}{}", if self.is_rtp { "rtp" } else { "udp" }, self.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_inputs_are_read_as_players_write_them() {
        for (url, addr, source, shown) in [
            ("udp://@239.1.1.1:5000", "239.1.1.1:5000", None, "udp://@239.1.1.1:5000"),
            ("rtp://239.1.1.1:5004", "239.1.1.1:5004", None, "rtp://@239.1.1.1:5004"),
            ("udp://10.0.0.9@232.1.1.1:5000", "232.1.1.1:5000", Some("10.0.0.9"), "udp://@232.1.1.1:5000"),
            ("udp://@:5000", "0.0.0.0:5000", None, "udp://0.0.0.0:5000"),
            ("udp://127.0.0.1:6000", "127.0.0.1:6000", None, "udp://127.0.0.1:6000"),
            ("udp://@232.1.1.1:5000?source=10.0.0.9", "232.1.1.1:5000", Some("10.0.0.9"), "udp://@232.1.1.1:5000"),
            ("rtp://[2001:db8::5]@[ff3e::1]:7000", "[ff3e::1]:7000", Some("2001:db8::5"), "rtp://@[ff3e::1]:7000"),
        ] {
            let input = LiveInput::new("a", url).unwrap_or_else(|| panic!("{url}"));
            assert_eq!(input.addr, addr.parse().expect("an address"), "{url}");
            assert_eq!(input.source, source.map(|source| source.parse().expect("an address")), "{url}");
            assert_eq!(input.to_string(), shown);
        }
        for (name, url) in [
            ("a", "http://239.1.1.1:5000"),
            ("a", "udp://239.1.1.1"),
            ("a", "udp://239.1.1.1:5000?ttl=3"),
            ("a", "udp://239.1.1.1:5000?delay"),
            ("a", "udp://host:5000"),
            ("a", "udp://::1@239.1.1.1:5000"),
            ("a", "udp://239.2.2.2@239.1.1.1:5000"),
            ("", "udp://@239.1.1.1:5000"),
            ("a/b", "udp://@239.1.1.1:5000"),
        ] {
            assert_eq!(LiveInput::new(name, url), None, "{name} {url}");
        }
    }

    #[test]
    fn options_have_to_fit() {
        let input = || LiveInput::new("a", "udp://@239.1.1.1:5000").expect("an input");
        let whole = input().with("source", "10.0.0.1").and_then(|input| input.with("delay", "1s"));
        let whole = whole.and_then(|input| input.with("interface", "lo")).expect("they fit");
        let text = |text: &str| text.to_owned();
        assert_eq!(
            whole.options(),
            [("interface", text("lo")), ("source", text("10.0.0.1")), ("delay", text("1000ms"))]
        );
        assert_eq!(input().options(), []);
        for (key, value) in [("source", "::1"), ("delay", "1ms"), ("delay", "1h"), ("colour", "red"), ("interface", "")]
        {
            assert_eq!(input().with(key, value), None, "{key} {value}");
        }
    }
}
