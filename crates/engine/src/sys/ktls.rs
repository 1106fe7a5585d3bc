//! Records of TLS that the kernel seals (kTLS; the kernel's Documentation/networking/tls.rst, include/uapi/linux/tls.h).
//!
//! In: a connection, and what its next record is sealed with. Out: a connection whose data is sealed as it is written or
//! sent from a file, and to which records of other kinds are sent by `send_record`. What comes is as it was.
//!
//! The module `tls` has to be there: the kernel loads it by itself for who may (CAP_NET_ADMIN), and else does not.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fmt, ptr};

use wire::{KernelKey, KernelStep, TlsKey, TlsVersion};

use super::check;
use super::socket::set;

/// What the kernel has of TLS. It is asked once, with connections to nobody: each kind of key is younger than TLS itself
/// (AES-256 and 1.3: Linux 5.1; ChaCha20: 5.11; new keys: 6.14), and what is refused for a connection costs time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTls {
    /// By `slot`.
    has: [bool; SLOTS],
    takes_keys: bool,
}

const SLOTS: usize = 6;

/// A firewall may drop what is sent by loopback. The start does not wait for as long as the kernel tries.
const PROBE_MAX: Duration = Duration::from_secs(1);

impl KernelTls {
    /// What a kernel has that has nothing.
    pub const NONE: KernelTls = KernelTls { has: [false; SLOTS], takes_keys: false };

    /// What this one has; for the whole of the process.
    ///
    /// # Errors
    /// It has nothing, and that is why.
    pub fn found() -> Result<Self, &'static io::Error> {
        static FOUND: OnceLock<io::Result<KernelTls>> = OnceLock::new();
        FOUND.get_or_init(KernelTls::probe).as_ref().copied()
    }

    fn probe() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let connect = || TcpStream::connect_timeout(&listener.local_addr()?, PROBE_MAX);
        attach(connect()?.as_fd())?;
        let (mut found, mut refused) = (KernelTls::NONE, None);
        for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
            for key in [TlsKey::Aes128Gcm([1; 16]), TlsKey::Aes256Gcm([1; 32]), TlsKey::ChaCha20Poly1305([1; 32])] {
                let (socket, key) = (connect()?, KernelKey { version, key, iv: [1; 12], seq: 0 });
                attach(socket.as_fd())?;
                match set_key(socket.as_fd(), &key) {
                    Ok(()) => found.has[slot(&key)] = true,
                    Err(error) => refused = Some(error),
                }
                if version == TlsVersion::Tls13 && found.has[slot(&key)] {
                    found.takes_keys = set_key(socket.as_fd(), &key).is_ok();
                }
            }
        }
        match refused {
            Some(error) if found == KernelTls::NONE => Err(error),
            _ => Ok(found),
        }
    }

    /// Whether it can seal with such a key.
    pub fn has(self, key: &KernelKey) -> bool {
        self.has[slot(key)]
    }

    /// Whether a connection of TLS 1.3 may have another key later.
    pub fn takes_keys(self) -> bool {
        self.takes_keys
    }
}

/// For people: "TLS 1.2 and 1.3, with ChaCha20; new keys".
impl fmt::Display for KernelTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305"];
        for (version, has) in ["TLS 1.2", "TLS 1.3"].iter().zip(self.has.chunks(names.len())) {
            let names: Vec<&str> = names.iter().zip(has).filter(|(_, has)| **has).map(|(name, _)| *name).collect();
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            write!(f, "{version} with {names}; ")?;
        }
        f.write_str(if self.takes_keys { "keys can be changed" } else { "keys cannot be changed" })
    }
}

fn slot(key: &KernelKey) -> usize {
    let suite = match key.key {
        TlsKey::Aes128Gcm(_) => 0,
        TlsKey::Aes256Gcm(_) => 1,
        TlsKey::ChaCha20Poly1305(_) => 2,
    };
    suite + if key.version == TlsVersion::Tls13 { SLOTS / 2 } else { 0 }
}

/// Lets the kernel seal what leaves by a connection from now on. What was written before leaves as it is. When that fails,
/// nothing has changed.
pub(crate) fn seal_in_kernel(socket: BorrowedFd<'_>, key: &KernelKey) -> io::Result<()> {
    attach(socket)?;
    set_key(socket, key)
}

/// Does what a cipher asks for. `WouldBlock`: nothing was done, as there is no room.
pub(crate) fn do_step(socket: BorrowedFd<'_>, step: &KernelStep) -> io::Result<()> {
    match step {
        KernelStep::Record { kind, content } => send_record(socket, *kind, content),
        KernelStep::Key(key) => set_key(socket, key),
    }
}

/// Bytes that a TCP connection has taken and the other side has not acknowledged (tcp(7), "SIOCOUTQ"). What waits to be
/// sealed, or is sealed and has found no room, is not among them.
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, during the call only.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

fn attach(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")
}

fn set_key(socket: BorrowedFd<'_>, key: &KernelKey) -> io::Result<()> {
    let version = match key.version {
        TlsVersion::Tls12 => libc::TLS_1_2_VERSION,
        TlsVersion::Tls13 => libc::TLS_1_3_VERSION,
    };
    let info = |cipher_type| libc::tls_crypto_info { version, cipher_type };
    let [s0, s1, s2, s3, rest @ ..] = key.iv;
    let (salt, rec_seq) = ([s0, s1, s2, s3], key.seq.to_be_bytes());
    let (level, name) = (libc::SOL_TLS, libc::TLS_TX);
    match key.key {
        TlsKey::Aes128Gcm(key) => {
            let info = info(libc::TLS_CIPHER_AES_GCM_128);
            set(socket, level, name, &libc::tls12_crypto_info_aes_gcm_128 { info, iv: rest, key, salt, rec_seq })
        }
        TlsKey::Aes256Gcm(key) => {
            let info = info(libc::TLS_CIPHER_AES_GCM_256);
            set(socket, level, name, &libc::tls12_crypto_info_aes_gcm_256 { info, iv: rest, key, salt, rec_seq })
        }
        TlsKey::ChaCha20Poly1305(secret) => {
            let info = info(libc::TLS_CIPHER_CHACHA20_POLY1305);
            let (iv, key, salt) = (key.iv, secret, []);
            set(socket, level, name, &libc::tls12_crypto_info_chacha20_poly1305 { info, iv, key, salt, rec_seq })
        }
    }
}

/// One control message with one byte, as `CMSG_SPACE` has it.
#[repr(C)]
struct RecordKind {
    header: libc::cmsghdr,
    kind: u8,
    padding: [u8; 7],
}

/// Sends a record of another kind than data, behind all that was written before: as a whole, or not at all.
fn send_record(socket: BorrowedFd<'_>, kind: u8, content: &[u8]) -> io::Result<()> {
    // SAFETY: no pointer is passed; it is arithmetic.
    let (len, space) = unsafe { (libc::CMSG_LEN(1), libc::CMSG_SPACE(1)) };
    debug_assert_eq!(space as usize, size_of::<RecordKind>(), "there is nothing behind it");
    // SAFETY: zeros are a valid value of both, which have integers and pointers alone.
    let (mut control, mut message): (RecordKind, libc::msghdr) = unsafe { std::mem::zeroed() };
    control.header.cmsg_len = len as _;
    control.header.cmsg_level = libc::SOL_TLS;
    control.header.cmsg_type = libc::TLS_SET_RECORD_TYPE;
    control.kind = kind;
    let mut part = libc::iovec { iov_base: content.as_ptr().cast_mut().cast(), iov_len: content.len() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(&mut control).cast();
    message.msg_controllen = space as _;
    // SAFETY: the message points at `part`, that at `content`, and at `control`, all of which outlive the call; the kernel
    // writes to none of them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(sent) if sent == content.len() => Ok(()),
        Ok(_) => Err(ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// As include/uapi/linux/tls.h has them.
    #[test]
    fn what_the_kernel_reads_lies_where_it_looks_for_it() {
        macro_rules! layout {
            ($info:ident) => {{
                use libc::$info as Info;
                let salt = offset_of!(Info, salt);
                [offset_of!(Info, iv), offset_of!(Info, key), salt, offset_of!(Info, rec_seq), size_of::<Info>()]
            }};
        }
        assert_eq!(layout!(tls12_crypto_info_aes_gcm_128), [4, 12, 28, 32, 40]);
        assert_eq!(layout!(tls12_crypto_info_aes_gcm_256), [4, 12, 44, 48, 56]);
        assert_eq!(layout!(tls12_crypto_info_chacha20_poly1305), [4, 16, 48, 48, 56]);
        assert_eq!((libc::TLS_1_2_VERSION, libc::TLS_1_3_VERSION), (0x0303, 0x0304));
        let ciphers = [libc::TLS_CIPHER_AES_GCM_128, libc::TLS_CIPHER_AES_GCM_256, libc::TLS_CIPHER_CHACHA20_POLY1305];
        assert_eq!(ciphers, [51, 52, 54]);
        assert_eq!((libc::SOL_TLS, libc::TCP_ULP), (282, 31));
        assert_eq!((libc::TLS_TX, libc::TLS_SET_RECORD_TYPE), (1, 1));
        assert_eq!((size_of::<RecordKind>(), offset_of!(RecordKind, kind)), (24, 16));
    }

    #[test]
    fn a_kernel_without_tls_says_so_and_a_connection_goes_on_as_it_was() {
        use std::io::{Read as _, Write as _};

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback can be bound");
        let mut one = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let mut other = listener.accept().expect("it connects").0;
        let (version, key) = (TlsVersion::Tls13, TlsKey::Aes128Gcm([7; 16]));
        let key = KernelKey { version, key, iv: [7; 12], seq: 3 };
        let found = KernelTls::found();
        assert_eq!(seal_in_kernel(one.as_fd(), &key).is_ok(), found.is_ok_and(|found| found.has(&key)));
        if let Err(error) = found {
            println!("no TLS here: {error}");
            one.write_all(b"plain").expect("written");
            let mut bytes = [0; 5];
            other.read_exact(&mut bytes).expect("it comes");
            assert_eq!(&bytes, b"plain");
        }
    }

    #[test]
    fn what_the_other_side_has_acknowledged_does_not_count() {
        use std::io::{Read as _, Write as _};

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback can be bound");
        let mut one = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
        let mut other = listener.accept().expect("it connects").0;
        one.set_nonblocking(true).expect("set");
        while one.write(&[7; 100_000]).is_ok() {}
        assert!(unacknowledged(one.as_fd()).expect("told") > 0);
        one.set_nonblocking(false).expect("set");
        one.shutdown(std::net::Shutdown::Write).expect("it is open");
        other.read_to_end(&mut Vec::new()).expect("all of it");
        // Its end acknowledges all that came before.
        drop(other);
        assert_eq!(one.read(&mut [0]).expect("the end"), 0);
        assert_eq!(unacknowledged(one.as_fd()).expect("told"), 0);
    }

    #[test]
    fn what_the_kernel_has_is_told() {
        let mut some = KernelTls::NONE;
        assert_eq!(some.to_string(), "TLS 1.2 with nothing; TLS 1.3 with nothing; keys cannot be changed");
        (some.has[0], some.has[3], some.has[5], some.takes_keys) = (true, true, true, true);
        let told = "TLS 1.2 with AES-128-GCM; TLS 1.3 with AES-128-GCM, ChaCha20-Poly1305; keys can be changed";
        assert_eq!(some.to_string(), told);
    }
}
