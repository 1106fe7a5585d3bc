//! Where clients are sent whom this server does not take (ALTERNATE-SERVER, RFC 8489 §10).
//!
//! In: a client's transport and address. Out: the next server for such, of its own family: each of them in turn, so one that is
//! named twice gets twice as many.

use std::net::SocketAddr;

use crate::message::Family;
use crate::spec::ClientTransport;

/// The other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternateServers {
    /// For clients by UDP and TCP.
    pub plain: Vec<SocketAddr>,
    /// For those by TLS and DTLS, who take the name that they know this server by for the other's, too.
    pub secured: Vec<SocketAddr>,
    /// They take all newcomers, and not only those for whom there is no room here.
    pub take_all: bool,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Alternates {
    /// For plain and secured transports, each for IPv4 and IPv6.
    turns: [[Turn; 2]; 2],
}

#[derive(Debug)]
struct Turn {
    servers: Vec<SocketAddr>,
    next: usize,
}

impl Alternates {
    /// Begins anywhere: many servers and workers begin at a time, and not all with the same one.
    pub(crate) fn new(settings: &AlternateServers, mut random: impl FnMut() -> u64) -> Self {
        let mut turn = |servers: &[SocketAddr], family| {
            let servers: Vec<_> = servers.iter().copied().filter(|server| Family::of(server.ip()) == family).collect();
            Turn { next: random() as usize % servers.len().max(1), servers }
        };
        let turns = [&settings.plain, &settings.secured]
            .map(|servers| [Family::V4, Family::V6].map(|family| turn(servers, family)));
        Alternates { turns }
    }

    /// Where the next one goes who comes like this. `None`: there is no such server.
    pub(crate) fn next(&mut self, transport: ClientTransport, family: Family) -> Option<SocketAddr> {
        let is_secured = matches!(transport, ClientTransport::Tls | ClientTransport::Dtls);
        let turn = &mut self.turns[usize::from(is_secured)][usize::from(family == Family::V6)];
        let server = turn.servers.get(turn.next).copied()?;
        turn.next = (turn.next + 1) % turn.servers.len();
        Some(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_among_those_of_the_same_transport_and_family() {
        let servers = |list: &[&str]| list.iter().map(|text| text.parse().expect("an address")).collect();
        let settings = AlternateServers {
            plain: servers(&["192.0.2.1:3478", "[2001:db8::1]:3478", "192.0.2.2:3478", "192.0.2.2:3478"]),
            secured: servers(&["192.0.2.1:5349"]),
            take_all: false,
        };
        let mut alternates = Alternates::new(&settings, || 0);
        let mut next = |transport, family| alternates.next(transport, family).map(|server| server.to_string());
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.extend(next(ClientTransport::Udp, Family::V4));
            assert_eq!(next(ClientTransport::Udp, Family::V6).as_deref(), Some("[2001:db8::1]:3478"));
            assert_eq!(next(ClientTransport::Tls, Family::V4).as_deref(), Some("192.0.2.1:5349"));
            assert_eq!(next(ClientTransport::Dtls, Family::V6), None);
        }
        assert_eq!(seen, ["192.0.2.1:3478", "192.0.2.2:3478", "192.0.2.2:3478", "192.0.2.1:3478"]);
        let mut later = Alternates::new(&settings, || 2);
        assert_eq!(later.next(ClientTransport::Tcp, Family::V4), Some(settings.plain[3]));
    }
}
