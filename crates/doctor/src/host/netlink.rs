//! The network interfaces as the kernel lists them, with their queues.
//!
//! One request to dump all links, and its answer. What `/sys` says may be of another network namespace; this is of our own.
//! Source: rtnetlink(7), the kernel's uapi/linux/if_link.h.

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// As in "eth0".
    pub name: String,
    /// The kernel's number of it.
    pub index: u32,
    /// What packets wait in before they leave: "mq", "fq", "noqueue".
    pub qdisc: String,
    /// Packets that may wait there, where the qdisc asks.
    pub queue_len: u32,
    /// What kind of virtual interface it is: "veth", "bridge". `None`: a card, or what a hypervisor has for one.
    pub kind: Option<String>,
}

/// All interfaces of this network namespace.
///
/// # Errors
/// What the system says of the socket.
pub fn links() -> io::Result<Vec<Link>> {
    let mut socket = Socket::new(Domain::from(NETLINK), Type::RAW, Some(Protocol::from(ROUTE)))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut request = [0; HEADER + LINK_HEADER];
    request[..4].copy_from_slice(&((HEADER + LINK_HEADER) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    socket.write_all(&request)?;
    let (mut links, mut buf) = (Vec::new(), vec![0; 64 * 1_024]);
    loop {
        let len = socket.read(&mut buf)?;
        if len == 0 || take(&buf[..len], &mut links) {
            return Ok(links);
        }
    }
}

/// Takes the links in one datagram; true where it is the last.
fn take(mut messages: &[u8], links: &mut Vec<Link>) -> bool {
    while let Some(len) = number(messages, 0).map(|len| len as usize) {
        let (Some(kind), Some(message)) = (short(messages, 4), messages.get(HEADER..len)) else { return true };
        if kind != NEW_LINK {
            return true;
        }
        links.extend(link(message));
        messages = messages.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

fn link(message: &[u8]) -> Option<Link> {
    let mut link = Link { index: number(message, 4)?, ..Link::default() };
    for (kind, value) in attributes(message.get(LINK_HEADER..)?) {
        match kind {
            NAME => link.name = text(value),
            QDISC => link.qdisc = text(value),
            QUEUE_LEN => link.queue_len = number(value, 0)?,
            INFO => link.kind = attributes(value).find(|(kind, _)| *kind == INFO_KIND).map(|(_, value)| text(value)),
            _ => {}
        }
    }
    Some(link)
}

/// Type and value of each.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(short(bytes, 0)?);
        let found = (short(bytes, 2)? & !NESTED, bytes.get(4..len)?);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

const NETLINK: i32 = 16;
const ROUTE: i32 = 0;
const HEADER: usize = 16;
/// Family, type, index, flags, change.
const LINK_HEADER: usize = 16;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const NAME: u16 = 3;
const QDISC: u16 = 6;
const QUEUE_LEN: u16 = 13;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
/// A flag beside the type of attributes that have others in them.
const NESTED: u16 = 0x8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_queue() {
        let links = links().expect("anybody may ask");
        let loopback = links.iter().find(|link| link.name == "lo").expect("there is one");
        assert!(loopback.qdisc.starts_with("no"), "noqueue, or noop while it is down: {loopback:?}");
        assert_eq!((loopback.kind.as_deref(), loopback.index > 0), (None, true));
    }

    #[test]
    fn what_is_cut_anywhere_is_left() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = Vec::from((value.len() as u16 + 4).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let info = attribute(INFO_KIND, b"veth");
        let all = [attribute(NAME, b"v0\0"), attribute(QUEUE_LEN, &9_u32.to_ne_bytes()), attribute(INFO, &info)];
        let mut message = vec![0; HEADER + LINK_HEADER];
        message.extend(all.concat());
        let len = message.len() as u32;
        message[..4].copy_from_slice(&len.to_ne_bytes());
        message[4..6].copy_from_slice(&NEW_LINK.to_ne_bytes());
        let mut links = Vec::new();
        assert!(!take(&message, &mut links));
        let expected = Link { name: "v0".into(), queue_len: 9, kind: Some("veth".into()), ..Link::default() };
        assert_eq!(links, [expected]);
        for len in 0..message.len() {
            take(&message[..len], &mut links);
        }
    }
}
