//! Ways to send that a session may choose by name: the address and port that it sends from, how far datagrams go, by which
//! interface, in which class.
//!
//! In: `[[pump.outputs]]`. Out: sockets for each worker, bound at its start; the link of a name and an address family.
//! A name has one socket per worker and family, however many sessions use it.

use std::net::{IpAddr, SocketAddr};

use engine::{OpenSocket, Socket};
use wire::{LinkId, Token, UdpOptions, Unicast};

use super::setup;
use crate::config::{Config, OutputConfig};
use crate::host::{addresses, port_of};
use crate::owner::PUMP;

/// The addresses that worker `index` sends from.
fn addresses_of(output: &OutputConfig, config: &Config, index: usize) -> anyhow::Result<Vec<SocketAddr>> {
    let port = port_of(&format!("pump.outputs {}", output.name), output.source_port, index)?;
    Ok(match output.source {
        Some(source) => vec![SocketAddr::new(source, port)],
        None => addresses(&config.pump.bind, port),
    })
}

/// The sockets of worker `index`, beside those that sessions use which name none. They are set up as `options` say where
/// the configuration says nothing else.
///
/// # Errors
/// When there is no such interface, or the ports do not suffice.
pub fn sockets(config: &Config, index: usize, options: &UdpOptions) -> anyhow::Result<Vec<Socket>> {
    let pump = &config.pump;
    let mut sockets = Vec::new();
    for (number, output) in (1..).zip(&pump.outputs) {
        let name = output.interface.as_deref();
        let hops = output.ttl.unwrap_or(pump.multicast_ttl);
        let multicast = setup::multicast(hops, name.or(pump.multicast_interface.as_deref()), pump.multicast_loop)?;
        let interface = match name {
            Some(_) => multicast.interface,
            None => 0,
        };
        let unicast = Unicast { hops: output.ttl, interface };
        let dscp = output.dscp.unwrap_or(pump.dscp);
        let addresses = addresses_of(output, config, index)?;
        let options = UdpOptions { multicast, unicast, dscp, ..options.clone() };
        let token = Token { owner: PUMP, number };
        sockets.extend(addresses.into_iter().map(|addr| Socket::udp(token, addr, options.clone())));
    }
    Ok(sockets)
}

/// Which of a worker's sockets belong to which name.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    names: Vec<String>,
}

impl Outputs {
    /// Those of the configuration.
    pub fn new(config: &Config) -> Self {
        Outputs { names: config.pump.outputs.iter().map(|output| output.name.clone()).collect() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The socket for an address among a worker's: one of an output's, or one for sessions that name none.
    pub(super) fn link(&self, senders: &[OpenSocket], name: Option<&str>, ip: IpAddr) -> Option<LinkId> {
        let number = match name {
            Some(name) => 1 + self.names.iter().position(|known| known == name)? as u32,
            None => 0,
        };
        let is_fit = |sender: &&OpenSocket| sender.token.number == number && sender.local.is_ipv4() == ip.is_ipv4();
        senders.iter().find(is_fit).map(|sender| sender.link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_family_have_a_socket() {
        let outputs = Outputs { names: vec!["a".into(), "b".into()] };
        let sender = |slot, number, local: &str| OpenSocket {
            token: Token { owner: PUMP, number },
            link: LinkId::datagrams(slot),
            local: local.parse().expect("an address"),
        };
        let senders = [
            sender(0, 1, "0.0.0.0:2"),
            sender(1, 0, "0.0.0.0:1"),
            sender(2, 0, "[::]:1"),
            sender(3, 2, "192.0.2.1:3"),
            sender(4, 1, "[::]:2"),
        ];
        let (v4, v6) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
        let link = |name, ip| outputs.link(&senders, name, ip).map(LinkId::slot);
        assert_eq!([link(None, v4), link(None, v6)], [Some(1), Some(2)]);
        assert_eq!([link(Some("a"), v4), link(Some("a"), v6)], [Some(0), Some(4)]);
        assert_eq!([link(Some("b"), v4), link(Some("b"), v6), link(Some("c"), v4)], [Some(3), None, None]);
        assert!(outputs.has("a") && !outputs.has("c"));
        assert_eq!(Outputs::default().link(&senders, None, v4), Some(LinkId::datagrams(1)));
    }
}
