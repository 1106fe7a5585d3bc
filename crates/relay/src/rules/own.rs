//! The server's own addresses, as peers.
//!
//! Whoever relays to the server itself passes by its firewall, and comes with an address that its services trust. So all of
//! its addresses are refused, at every port but those that a rule names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};

use super::{ALL_PORTS, Entry, Opened, Peers};

/// What belongs to this server.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// The host's addresses, and those by which it is known outside (behind a NAT). Loopback is refused anyway.
    pub addresses: Vec<IpAddr>,
    /// Where its own sockets listen: the relay's, HTTP's, the metrics'. An unspecified address stands for all of the host's.
    /// They stay refused where a whole network is allowed.
    pub sockets: Vec<SocketAddr>,
    /// Where relayed addresses are. Clients reach each other by these, and nobody else who listens at such a port: a peer is
    /// allowed there while it is one of
    pub relayed: Vec<Peers>,
    /// those that are open, on whatever worker.
    pub opened: Arc<Opened>,
}

impl Own {
    /// What of it is refused, and what is not.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let addresses = self.addresses.iter().map(|address| address.to_canonical());
        let hosts = addresses.map(|address| Entry::by_default(IpNet::from(address), ALL_PORTS));
        let sockets = self.sockets.iter().flat_map(|socket| {
            let port = socket.port();
            self.places(socket.ip()).into_iter().map(move |place| Entry::written(place, port..=port, false))
        });
        let relayed = self.relayed.iter().map(|Peers { addresses, ports }| {
            let entry = Entry::written(*addresses, ports.clone(), true);
            Entry { is_relayed: true, ..entry }
        });
        hosts.chain(sockets).chain(relayed).collect()
    }

    /// Where a socket that is bound to this address is reached.
    fn places(&self, bound: IpAddr) -> Vec<IpNet> {
        if !bound.is_unspecified() {
            return vec![IpNet::from(bound.to_canonical())];
        }
        let mut places: Vec<IpNet> = self.addresses.iter().map(|address| IpNet::from(address.to_canonical())).collect();
        let loopback = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
        let loopback_itself = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        places.push(loopback.into());
        places.extend(loopback_itself.map(IpNet::from));
        places
    }
}
