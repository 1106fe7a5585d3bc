//! Whose request it is: the other end of its connection, or who stands behind a proxy that is believed.
//!
//! In: the connection's address and the request's header. Out: one address, which limits go by.
//! Source: RFC 7239 (Forwarded); X-Forwarded-For is what proxies agree on. Each proxy adds at the end, so the list is read
//! from there, and the first address that is no proxy's is the client's; what stands before it is anybody's word.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use ipnet::IpNet;

use super::App;
use crate::accept::household;
use crate::config::ForwardedBy;

/// Proxies one behind the other. What those that are further away have said is not read: then it is the last of these that asks.
const HOPS_MAX: usize = 32;

/// The other end of a connection, beside each of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote(pub IpAddr);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientAddress {
    /// Where it is; `None` where requests come by no connection, as in tests.
    pub ip: Option<IpAddr>,
    /// It is a proxy that is believed, and has not said for whom it asks.
    pub is_proxy: bool,
}

impl FromRequestParts<Arc<App>> for ClientAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Infallible> {
        Ok(ClientAddress::of(app, parts))
    }
}

impl ClientAddress {
    pub(super) fn of(app: &App, parts: &Parts) -> Self {
        let remote = parts.extensions.get::<Remote>().map(|remote| remote.0.to_canonical());
        let says_for_whom = parts.headers.contains_key(app.proxies.by.header());
        if let Some(ip) = remote.filter(|ip| says_for_whom && !app.proxies.has(*ip)) {
            app.connections.doubted.note(ip);
        }
        let ip = remote.map(|remote| app.proxies.client(remote, &parts.headers));
        ClientAddress { ip, is_proxy: ip.is_some_and(|ip| app.proxies.has(ip)) }
    }
}

/// Proxies that are believed when they say for whom they ask.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// Where they are.
    pub networks: Vec<IpNet>,
    /// How they say it.
    pub by: ForwardedBy,
}

impl Proxies {
    /// Whether an address is one of theirs.
    pub fn has(&self, ip: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&ip))
    }

    fn client(&self, remote: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = remote;
        // Bytes, as a client may have written any, and what its proxy has put behind them is none the worse.
        let lines = headers.get_all(self.by.header()).iter().rev();
        let said = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        // What nobody asks for is not even looked at: a line may have thousands of them, and be sent again by its number.
        for hop in said.take(HOPS_MAX) {
            if !self.has(client) {
                break;
            }
            // Who is hidden, or written in a way that nobody knows, stays behind the proxy that said so.
            let Some(before) = str::from_utf8(hop).ok().and_then(|hop| self.address(hop)) else { break };
            client = before;
        }
        client
    }

    fn address(&self, hop: &str) -> Option<IpAddr> {
        match self.by {
            ForwardedBy::XForwardedFor => address(hop.trim()),
            ForwardedBy::Forwarded => hop.split(';').find_map(|pair| {
                let (name, value) = pair.trim().split_once('=')?;
                name.eq_ignore_ascii_case("for").then(|| address(value.trim_matches('"')))?
            }),
        }
    }
}

/// Who says for whom it asks, and is not believed: somebody's proxy, which is to be configured, or anybody.
#[derive(Debug, Default)]
pub(super) struct Doubted {
    /// Who did so last, by its network: those behind a proxy ask all the time.
    last: Mutex<Option<IpAddr>>,
    has_warned: AtomicBool,
}

impl Doubted {
    /// It has said so.
    fn note(&self, ip: IpAddr) {
        *self.last.lock().expect("nobody panics under this lock") = Some(household(ip));
    }

    /// A client is refused for a limit of its own. If that is a proxy, all behind it are: then one line says what to do about
    /// it. Returns whether it was this time.
    pub(super) fn reach_limit(&self, ip: IpAddr) -> bool {
        let is_doubted = *self.last.lock().expect("nobody panics under this lock") == Some(household(ip));
        let is_said = is_doubted && !self.has_warned.swap(true, Ordering::Relaxed);
        if is_said {
            tracing::warn!(
                address = %ip,
                "an address that says for whom it asks, and is not believed, has reached a limit per client: if it is your \
                 proxy, add it to http.trusted_proxies"
            );
        }
        is_said
    }
}

/// "192.0.2.1", "2001:db8::1", and both with a port ("192.0.2.1:80", "[2001:db8::1]:80") or in brackets alone.
fn address(text: &str) -> Option<IpAddr> {
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse().ok().map(|addr: SocketAddr| addr.ip());
    text.parse().ok().or_else(with_port).or_else(in_brackets).map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn client<T: AsRef<[u8]>>(by: ForwardedBy, remote: &str, lines: &[T]) -> String {
        let networks = ["127.0.0.0/8", "10.0.0.0/8"].map(|network| network.parse().expect("a network")).to_vec();
        let mut headers = HeaderMap::new();
        for line in lines {
            let value = HeaderValue::from_bytes(line.as_ref()).expect("a line");
            headers.append(HeaderName::from_static(by.header()), value);
        }
        Proxies { networks, by }.client(remote.parse().expect("an address"), &headers).to_string()
    }

    #[test]
    fn a_proxy_is_believed_and_nobody_else() {
        let by = |remote, lines: &[&str]| client(ForwardedBy::XForwardedFor, remote, lines);
        assert_eq!(by("192.0.2.9", &["198.51.100.1"]), "192.0.2.9", "who is no proxy speaks for itself");
        assert_eq!(by("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(by("127.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(by("127.0.0.1", &["203.0.113.7, 198.51.100.1"]), "198.51.100.1", "the client wrote the first");
        assert_eq!(by("127.0.0.1", &["203.0.113.7", "198.51.100.1, 10.0.0.3"]), "198.51.100.1", "by two proxies");
        assert_eq!(by("127.0.0.1", &["198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(by("127.0.0.1", &["2001:db8::1"]), "2001:db8::1");
        assert_eq!(by("127.0.0.1", &["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(by("127.0.0.1", &["::ffff:198.51.100.1"]), "198.51.100.1");
        assert_eq!(by("127.0.0.1", &["198.51.100.1, unknown"]), "127.0.0.1", "who is hidden is the proxy");
    }

    #[test]
    fn the_header_of_the_standard_is_read_where_it_is_chosen() {
        let by = |remote, lines: &[&str]| client(ForwardedBy::Forwarded, remote, lines);
        assert_eq!(by("127.0.0.1", &["for=198.51.100.1;proto=https"]), "198.51.100.1");
        assert_eq!(by("127.0.0.1", &["for=203.0.113.7, proto=http;For=\"[2001:db8::1]:4711\""]), "2001:db8::1");
        assert_eq!(by("127.0.0.1", &["for=_hidden"]), "127.0.0.1");
        assert_eq!(by("192.0.2.9", &["for=198.51.100.1"]), "192.0.2.9");
    }

    #[test]
    fn what_a_client_wrote_hides_nothing_of_what_its_proxy_has_put_behind_it() {
        let by = |line: &[u8]| client(ForwardedBy::XForwardedFor, "127.0.0.1", &[line]);
        assert_eq!(by(b"\xff\xfe, 198.51.100.1"), "198.51.100.1");
        assert_eq!(by(b"\xff,198.51.100.1, 10.0.0.3"), "198.51.100.1");
        assert_eq!(by(b"198.51.100.1, \xe9"), "127.0.0.1", "the proxy's own word is unknown");
        let by = |line: &[u8]| client(ForwardedBy::Forwarded, "127.0.0.1", &[line]);
        assert_eq!(by(b"for=\xff, for=198.51.100.1"), "198.51.100.1");
    }

    #[test]
    fn so_many_proxies_one_behind_the_other_are_believed_and_no_more() {
        let by = |proxies: usize| {
            let line = "198.51.100.1".to_owned() + &", 10.0.0.3".repeat(proxies);
            client(ForwardedBy::XForwardedFor, "127.0.0.1", &[line])
        };
        assert_eq!(
            [0, 1, 31, 32, 4_000].map(by),
            ["198.51.100.1"; 3].into_iter().chain(["10.0.0.3"; 2]).collect::<Vec<_>>()[..]
        );
    }

    #[test]
    fn a_proxy_that_nobody_named_is_told_of_once_and_only_when_it_is_in_the_way() {
        let [proxy, other] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().expect("an address"));
        let doubted = Doubted::default();
        assert!(!doubted.reach_limit(proxy), "it has said nothing");
        doubted.note(proxy);
        assert!(!doubted.reach_limit(other));
        assert_eq!([(); 3].map(|()| doubted.reach_limit(proxy)), [true, false, false]);
    }
}
