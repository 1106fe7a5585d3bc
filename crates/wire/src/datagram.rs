//! UDP payloads and the way they came.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;

use crate::{LinkId, Token};

/// The way between us and one remote address: which link, which remote, and which of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The socket or connection.
    pub link: LinkId,
    /// The other end.
    pub remote: SocketAddr,
    /// The address that the remote used for us, so that the answer leaves from it. `None`: the kernel chooses.
    pub local: Option<IpAddr>,
}

/// A received datagram. The bytes may be changed in place (decryption).
#[derive(Debug)]
pub struct Datagram<'a> {
    /// The way it came.
    pub path: Path,
    /// Its payload.
    pub data: &'a mut [u8],
}

/// Received datagrams of one path, one behind the other: all of one size but for a last one that may be shorter. It is
/// what the kernel joined (GRO), or just one.
#[derive(Debug)]
#[non_exhaustive]
pub struct DatagramRun<'a> {
    /// What those who asked for the link call it.
    pub token: Token,
    /// The way they came.
    pub path: Path,
    /// Bytes of every datagram but the last.
    pub segment_size: NonZeroUsize,
    /// All bytes. They may be changed in place.
    pub data: &'a mut [u8],
    /// Where `data` begins in what was received.
    place: Option<usize>,
}

impl<'a> DatagramRun<'a> {
    /// Datagrams of `segment_size` bytes each, but for a last one that may be shorter.
    pub fn new(token: Token, path: Path, segment_size: NonZeroUsize, data: &'a mut [u8]) -> Self {
        DatagramRun { token, path, segment_size, data, place: None }
    }

    /// The same, with its place in what was received. For who receives, and flushes the outbox before he receives again.
    #[must_use]
    pub fn at(self, place: usize) -> Self {
        DatagramRun { place: Some(place), ..self }
    }

    /// Where `data` begins in what was received; `None` when it cannot be sent from there.
    pub fn place(&self) -> Option<usize> {
        self.place
    }

    /// How many datagrams it is; none when it is an empty one.
    pub fn datagram_count(&self) -> usize {
        self.data.len().div_ceil(self.segment_size.get())
    }

    /// The datagrams one by one; an empty one is left out.
    pub fn into_datagrams(self) -> impl Iterator<Item = Datagram<'a>> {
        let DatagramRun { path, segment_size, data, .. } = self;
        data.chunks_mut(segment_size.get()).map(move |data| Datagram { path, data })
    }
}
