//! What the server will ask of the host, as its settings say.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// All of it.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Threads that forward media.
    pub workers: usize,
    /// Each of them stays on a core of its own.
    pub pins: bool,
    /// Buffer of each socket and direction.
    pub socket_buffer_bytes: usize,
    /// Several packets in one call, as far as the kernel can.
    pub gso: bool,
    /// The same of what comes.
    pub gro: bool,
    /// Open files.
    pub files: Files,
    /// Addresses that it binds, each once.
    pub listens: Vec<Listen>,
    /// The server that is asked about runs, and has these addresses: they are not tried.
    pub has_addresses: bool,
    /// UDP ports that media or relayed packets come to and leave from. None: the system chooses them.
    pub media_ports: Vec<RangeInclusive<u16>>,
    /// Where clients are told to come, if that is not one of the host's own addresses.
    pub public_addresses: Vec<IpAddr>,
    /// A STUN server to ask for the host's address as others see it.
    pub stun: Option<String>,
}

/// How many files may be open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// With fewer, clients are refused that the settings allow.
    pub needed: u64,
    /// The same with all media over TCP that the settings allow.
    pub wanted: u64,
}

/// An address that is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The setting that names it.
    pub setting: &'static str,
    /// UDP, or else TCP.
    pub is_udp: bool,
    /// Where.
    pub addr: SocketAddr,
    /// An IPv6 one takes no IPv4.
    pub only_v6: bool,
}
