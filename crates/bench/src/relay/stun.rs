//! The little of STUN that the bare relay understands.
//!
//! In: requests, whoever sends them. Out: what they ask, and answers that agree.
//! Source: RFC 8489 §5 and §14.2; RFC 8656 §18 for the attributes.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

const MAGIC_COOKIE: u32 = 0x2112_a442;
const HEADER_BYTES: usize = 20;

const CHANNEL_NUMBER: u16 = 0x000c;
const LIFETIME: u16 = 0x000d;
const XOR_PEER_ADDRESS: u16 = 0x0012;
const XOR_RELAYED_ADDRESS: u16 = 0x0016;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Allocate,
    Bind {
        channel: u16,
        peer: SocketAddrV4,
    },
    /// Refresh with a lifetime of nothing.
    Free,
    /// Whatever else: it is agreed to.
    Other,
}

/// Reads a request; `None` when it is none.
pub(super) fn read(bytes: &[u8]) -> Option<Request> {
    let kind = u16::from_be_bytes(*bytes.first_chunk()?);
    // The two bits of the class are those of an indication or an answer.
    if bytes.len() < HEADER_BYTES || kind & 0x0110 != 0 {
        return None;
    }
    Some(match kind {
        0x0003 => Request::Allocate,
        0x0004 if attribute(bytes, LIFETIME) == Some(&[0; 4]) => Request::Free,
        0x0009 => {
            let [high, low] = *attribute(bytes, CHANNEL_NUMBER)?.first_chunk()?;
            let [_, 1, port_high, port_low, a, b, c, d] = *attribute(bytes, XOR_PEER_ADDRESS)?.first_chunk()? else {
                return None;
            };
            let port = u16::from_be_bytes([port_high, port_low]) ^ (MAGIC_COOKIE >> 16) as u16;
            let ip = Ipv4Addr::from_bits(u32::from_be_bytes([a, b, c, d]) ^ MAGIC_COOKIE);
            Request::Bind { channel: u16::from_be_bytes([high, low]), peer: SocketAddrV4::new(ip, port) }
        }
        _ => Request::Other,
    })
}

fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut rest = bytes.get(HEADER_BYTES..)?;
    loop {
        let [high, low, len_high, len_low] = *rest.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let value = rest.get(4..4 + len)?;
        if u16::from_be_bytes([high, low]) == wanted {
            return Some(value);
        }
        rest = rest.get(4 + len.next_multiple_of(4)..)?;
    }
}

/// Agrees to a request, for ten minutes.
pub(super) fn answer(request: &[u8], client: SocketAddr, relayed: Option<SocketAddr>) -> Vec<u8> {
    let mut answer = request[..HEADER_BYTES].to_vec();
    answer[0] |= 1;
    let lifetime = attribute(request, LIFETIME).unwrap_or(&[0, 0, 2, 88]);
    add(&mut answer, LIFETIME, lifetime);
    for (kind, addr) in [(XOR_RELAYED_ADDRESS, relayed), (XOR_MAPPED_ADDRESS, Some(client))] {
        if let Some(SocketAddr::V4(addr)) = addr {
            let port = (addr.port() ^ (MAGIC_COOKIE >> 16) as u16).to_be_bytes();
            let ip = (addr.ip().to_bits() ^ MAGIC_COOKIE).to_be_bytes();
            add(&mut answer, kind, &[&[0, 1][..], &port, &ip].concat());
        }
    }
    let len = (answer.len() - HEADER_BYTES) as u16;
    answer[2..4].copy_from_slice(&len.to_be_bytes());
    answer
}

fn add(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(kind.to_be_bytes());
    message.extend((value.len() as u16).to_be_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}
