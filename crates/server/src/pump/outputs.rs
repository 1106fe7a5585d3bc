//! Ways to send that a session may choose by name: the address and port that it sends from, how far datagrams go, by which
//! interface, in which class.
//!
//! In: `[[pump.outputs]]`. Out: sockets for each worker, bound at its start; the link of a name and an address family.
//! A name has one socket per worker and family, however many sessions use it.

use std::net::{IpAddr, SocketAddr};

use engine::Output;
use engine::udp::Unicast;
use wire::LinkId;

use super::setup;
use crate::config::{Config, OutputConfig};
use crate::machine::{addresses, port_of};

/// The addresses that worker `index` sends from.
fn addresses_of(output: &OutputConfig, config: &Config, index: usize) -> anyhow::Result<Vec<SocketAddr>> {
    let port = port_of(&format!("pump.outputs {}", output.name), output.source_port, index)?;
    Ok(match output.source {
        Some(source) => vec![SocketAddr::new(source, port)],
        None => addresses(&config.pump.bind, port),
    })
}

/// The sockets of worker `index`, beside those of `setup::senders`.
///
/// # Errors
/// When there is no such interface, or the ports do not suffice.
pub fn sockets(config: &Config, index: usize) -> anyhow::Result<Vec<Output>> {
    let pump = &config.pump;
    let mut sockets = Vec::new();
    for output in &pump.outputs {
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
        sockets.extend(addresses.into_iter().map(|addr| Output { addr, multicast, unicast, dscp }));
    }
    Ok(sockets)
}

/// Which of a worker's sockets belong to which name.
#[derive(Clone, Debug, Default)]
pub(super) struct Outputs {
    /// A name, and how many sockets it has.
    names: Vec<(String, usize)>,
}

impl Outputs {
    /// # Errors
    /// When the ports do not suffice.
    pub(super) fn new(config: &Config) -> anyhow::Result<Self> {
        let count = |output: &OutputConfig| Ok((output.name.clone(), addresses_of(output, config, 0)?.len()));
        Ok(Outputs { names: config.pump.outputs.iter().map(count).collect::<anyhow::Result<_>>()? })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|(known, _)| known == name)
    }

    /// The socket for an address among a worker's, of which the last ones belong to outputs; the first ones to sessions
    /// that name none.
    pub(super) fn link(&self, senders: &[(LinkId, SocketAddr)], name: Option<&str>, ip: IpAddr) -> Option<LinkId> {
        let all: usize = self.names.iter().map(|(_, count)| count).sum();
        let (mut own, mut rest) = senders.split_at_checked(senders.len().checked_sub(all)?)?;
        if let Some(name) = name {
            let before = self.names.iter().take_while(|(known, _)| known != name).map(|(_, count)| count).sum();
            let (_, count) = self.names.iter().find(|(known, _)| known == name)?;
            rest = rest.get(before..)?;
            own = rest.get(..*count)?;
        }
        own.iter().find(|(_, addr)| addr.is_ipv4() == ip.is_ipv4()).map(|(link, _)| *link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_family_have_a_socket() {
        let outputs = Outputs { names: vec![("a".into(), 2), ("b".into(), 1)] };
        let addrs = ["0.0.0.0:1", "[::]:1", "0.0.0.0:2", "[::]:2", "192.0.2.1:3"];
        let senders: Vec<(LinkId, SocketAddr)> =
            (0..).map(LinkId::datagrams).zip(addrs.map(|addr| addr.parse().expect("an address"))).collect();
        let (v4, v6) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]));
        let link = |name, ip| outputs.link(&senders, name, ip).map(LinkId::slot);
        assert_eq!([link(None, v4), link(None, v6)], [Some(0), Some(1)]);
        assert_eq!([link(Some("a"), v4), link(Some("a"), v6)], [Some(2), Some(3)]);
        assert_eq!([link(Some("b"), v4), link(Some("b"), v6), link(Some("c"), v4)], [Some(4), None, None]);
        assert!(outputs.has("a") && !outputs.has("c"));
        assert_eq!(Outputs::default().link(&senders, None, v4), Some(LinkId::datagrams(0)));
    }
}
