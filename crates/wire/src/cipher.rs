//! What may stand between a TCP connection and what it says, such as TLS: the seam that lets the engine carry it without
//! knowing it.
//!
//! In: bytes as the network has them, bytes as they are meant. Out: the other of the two. The handshake is over.

use std::fmt;
use std::net::SocketAddr;

/// One connection's protection, both ways. It is called in order: what is sealed first has to be sent first.
pub trait Cipher: fmt::Debug + Send {
    /// Opens whole records at the front of `buf`, where what comes of them is left: plain bytes, one behind the other. What
    /// is not whole stays as it is, and comes again with more behind it.
    ///
    /// # Errors
    /// What came is no record, or was changed on its way, or the other side gave up. Nothing more is opened; there may be
    /// something to tell it (`poll_output`).
    fn open(&mut self, buf: &mut [u8]) -> Result<Opened, CipherError>;

    /// Puts plain bytes behind what stands in `out`, as records; what it owes the other side, such as another key, before.
    ///
    /// # Errors
    /// No more can be sealed.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError>;

    /// Puts what it has to say by itself behind what stands in `out`: little, and never without end, whatever comes.
    fn poll_output(&mut self, out: &mut Vec<u8>);

    /// Says that this was all.
    fn end(&mut self, out: &mut Vec<u8>);
}

/// What became of received bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Plain bytes, at the front.
    pub plain: usize,
    /// Bytes that were opened, in all. Those behind are the beginning of a record.
    pub used: usize,
    /// Bytes that this record has, as far as those that are there tell; it is not to be opened before. More than there are.
    pub record_len: usize,
    /// The other side has said that this was all.
    pub has_ended: bool,
    /// There is something to say to it now (`poll_output`).
    pub has_output: bool,
}

/// A connection whose protection does not hold any more. There is nothing to do but to close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection's records are broken")]
pub struct CipherError;

/// The longest record, with what stands around it (RFC 8446 §5.2, RFC 5246 §6.2.3): 2^14 bytes, 2,048 and a header of 5.
pub const RECORD_MAX: usize = (1 << 14) + 2_048 + 5;

/// What was done on a connection before a worker adopted it.
#[derive(Debug, Default)]
pub struct Begun {
    /// Who it is, where the socket does not say it, as with a load balancer in front.
    pub remote: Option<SocketAddr>,
    /// What was read already, as it is meant: 64 KiB at most. It is handled as if it came first.
    pub received: Box<[u8]>,
    /// What the connection is under. `None`: it is plain.
    pub cipher: Option<Box<dyn Cipher>>,
    /// What came behind `received` and is not opened yet: 16 KiB at most. Without a cipher there is none.
    pub sealed: Box<[u8]>,
}
