//! One UDP payload and the way it came.

use std::net::{IpAddr, SocketAddr};

/// One of a worker's sockets, or one of its TCP connections. The engine hands these out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// The way between us and one remote address: which socket, which remote, and which of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    pub link: LinkId,
    pub remote: SocketAddr,
    /// The address that the remote used for us, so that the answer leaves from it. `None`: the kernel chooses.
    pub local: Option<IpAddr>,
}

/// Explicit congestion notification bits of the IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    #[default]
    NotEct = 0,
    Ect1 = 1,
    Ect0 = 2,
    Ce = 3,
}

impl Ecn {
    /// Takes the two low bits of a traffic class octet.
    pub fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// A received datagram. The bytes may be changed in place (decryption).
#[derive(Debug)]
pub struct Datagram<'a> {
    pub path: Path,
    pub ecn: Ecn,
    pub data: &'a mut [u8],
}
