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

    /// The same cipher as one whose records the kernel can seal. `None`: it cannot.
    fn handover(&mut self) -> Option<&mut dyn Handover> {
        None
    }
}

/// A cipher that lets the kernel seal what leaves (kTLS), and goes on to open what comes.
///
/// After `take_over` nothing is sealed here any more: what `Cipher` would put into `out`, its end too, is a `KernelStep`.
pub trait Handover {
    /// Puts what it owes the other side before the next data behind what stands in `out`, sealed here as ever.
    ///
    /// # Errors
    /// No more can be sealed.
    fn settle(&mut self, out: &mut Vec<u8>) -> Result<(), CipherError>;

    /// What the next record is to be sealed with. It owes nothing (`settle`).
    fn sending_key(&self) -> KernelKey;

    /// The kernel has the key. Whether it takes others later is `takes_keys`.
    fn take_over(&mut self, takes_keys: bool);

    /// What the kernel is to do before it is given data. A step that is taken here is done before the next is asked for.
    ///
    /// # Errors
    /// No more data can be sealed: a new key is due and the kernel takes none, or there is none. The end can still be told.
    fn poll_step(&mut self) -> Result<Option<KernelStep>, CipherError>;

    /// The kernel has taken so many bytes with one call.
    fn count_sealed(&mut self, bytes: usize);

    /// Says that this was all, with the next step.
    fn tell_end(&mut self);
}

/// What a kernel does for a cipher besides sealing data.
#[derive(Debug)]
pub enum KernelStep {
    /// Send a record of another kind than data.
    Record {
        /// Its content type (RFC 8446 §5.1).
        kind: u8,
        /// What it says; some bytes.
        content: Box<[u8]>,
    },
    /// Seal with another key from now on.
    Key(KernelKey),
}

/// How a kernel seals a direction of a connection of TLS.
#[derive(Clone)]
pub struct KernelKey {
    /// The version.
    pub version: TlsVersion,
    /// The suite, and its key.
    pub key: TlsKey,
    /// What nonces are made of: the four bytes of the salt first. With AES-GCM in TLS 1.2 the other eight are those of the
    /// next record, which stand in it, and count from there; in all other cases each record's number is mixed with them.
    pub iv: [u8; 12],
    /// The number of the next record.
    pub seq: u64,
}

/// Versions of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// What records are sealed with.
#[derive(Clone)]
pub enum TlsKey {
    /// AES-128-GCM.
    Aes128Gcm([u8; 16]),
    /// AES-256-GCM.
    Aes256Gcm([u8; 32]),
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305([u8; 32]),
}

impl fmt::Debug for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelKey").field("version", &self.version).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Its name alone.
impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsKey::Aes128Gcm(_) => "AES-128-GCM",
            TlsKey::Aes256Gcm(_) => "AES-256-GCM",
            TlsKey::ChaCha20Poly1305(_) => "ChaCha20-Poly1305",
        })
    }
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
