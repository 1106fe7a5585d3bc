//! Which relayed transport addresses there are, on all workers.
//!
//! Cost: a bit for each port, transport and family; one atomic operation when a socket opens or closes, and one to ask.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit for each, by transport (UDP, TCP), family (IPv4, IPv6) and port: each family has one address.
#[derive(Debug)]
pub struct Opened([[Box<[AtomicU64]>; 2]; 2]);

const WORDS: usize = 1 << 16 >> 6;

impl Default for Opened {
    fn default() -> Self {
        Opened([(); 2].map(|()| [(); 2].map(|()| (0..WORDS).map(|_| AtomicU64::new(0)).collect())))
    }
}

impl Opened {
    /// One is open from now on, or no more.
    pub(crate) fn set(&self, address: SocketAddr, is_tcp: bool, is_open: bool) {
        let (word, bit) = self.place(address, is_tcp);
        if is_open {
            word.fetch_or(bit, Relaxed);
        } else {
            word.fetch_and(!bit, Relaxed);
        }
    }

    /// Whether it is.
    pub(super) fn has(&self, address: SocketAddr, is_tcp: bool) -> bool {
        let (word, bit) = self.place(address, is_tcp);
        word.load(Relaxed) & bit != 0
    }

    fn place(&self, address: SocketAddr, is_tcp: bool) -> (&AtomicU64, u64) {
        let port = address.port();
        let words = &self.0[usize::from(is_tcp)][usize::from(address.is_ipv6())];
        (&words[usize::from(port >> 6)], 1 << (port & 63))
    }
}
