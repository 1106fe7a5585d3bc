//! How a client finds out what the NATs in front of it do (RFC 5780): answers to Binding that come from another address or port
//! than was asked, and say from where.
//!
//! In: the address that a client asked, and what it wants changed. Out: where the answer comes from, and what it names.
//! Only with a second address (`Settings::discovery`), and to who asks one of the four combinations of addresses and ports: an
//! answer is 2.8 times as long as the shortest request then. For others the attributes that ask for it are unknown.

use std::net::SocketAddr;

use wire::{LinkId, Path};

use crate::allocation::Client;
use crate::answer::Writer;
use crate::message::{Message, attribute};
use crate::settings::Settings;

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The way that the answer goes.
    pub(crate) path: Path,
    /// Where it comes from, and the address of which neither part is the same as in the one that was asked.
    named: Option<[SocketAddr; 2]>,
}

/// Attributes that are not understood where a client can find out nothing.
pub(crate) fn unknown(settings: &Settings, client: &Client, message: &Message<'_>) -> Option<u16> {
    let change = message.change.map(|_| attribute::CHANGE_REQUEST);
    let port = message.response_port.map(|_| attribute::RESPONSE_PORT);
    change.or(port).filter(|_| other(settings, client).is_none())
}

/// The address of which neither part is that of the one that a client asked; `None` when it did not ask one of the four
/// combinations. On a connection nothing can come from elsewhere.
fn other(settings: &Settings, client: &Client) -> Option<SocketAddr> {
    let (first, second) = (settings.listeners.first()?.addr, settings.discovery?);
    let asked = client.server;
    let (ips, ports) = ([first.ip(), second.ip()], [first.port(), second.port()]);
    let is_combination = ips.contains(&asked.ip()) && ports.contains(&asked.port());
    let ip = ips.into_iter().find(|ip| *ip != asked.ip())?;
    let port = ports.into_iter().find(|port| *port != asked.port())?;
    (is_combination && !client.is_proved()).then_some(SocketAddr::new(ip, port))
}

/// Where the answer to a Binding request comes from (RFC 5780 §6.1); `None` when it cannot come from there. `links` are those
/// of the listeners.
pub(crate) fn origin(
    settings: &Settings,
    links: &[Option<LinkId>],
    client: &Client,
    message: &Message<'_>,
) -> Option<Origin> {
    let asked = client.server;
    let Some(other) = other(settings, client) else { return Some(Origin { path: client.path, named: None }) };
    let (other_ip, other_port) = message.change.unwrap_or_default();
    let from = SocketAddr::new(
        if other_ip { other.ip() } else { asked.ip() },
        if other_port { other.port() } else { asked.port() },
    );
    let mut path = client.path;
    if from != asked {
        let index = settings.listeners.iter().position(|listener| {
            let ip = listener.addr.ip();
            let is_wildcard = ip.is_unspecified() && ip.is_ipv4() == from.is_ipv4();
            listener.addr.port() == from.port() && (ip == from.ip() || is_wildcard)
        });
        path = Path { link: links.get(index?).copied().flatten()?, local: Some(from.ip()), ..path };
    }
    if let Some(port) = message.response_port {
        path.remote.set_port(port);
    }
    Some(Origin { path, named: Some([from, other]) })
}

impl Origin {
    /// Says where it comes from (RFC 5780 §7.3, §7.4).
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        if let Some([from, other]) = self.named {
            writer.plain_address(attribute::RESPONSE_ORIGIN, from).plain_address(attribute::OTHER_ADDRESS, other);
        }
    }
}
