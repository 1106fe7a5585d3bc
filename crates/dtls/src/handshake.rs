//! A server's handshake behind the cookie, by dimpl.
//!
//! In: what a client sends, the time. Out: what to answer, until it is over.
//! Cost: some 0.3 ms in all, most of it a signature and a key exchange, and what dimpl takes; so it is not for a worker.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dimpl::{Config, Dtls, DtlsCertificate, NamedGroup, Output};

use crate::cookie::Numbers;
use crate::guard::guarded;
use crate::records::Records;

/// Bytes of a datagram at most: it fits through any path that carries IPv6, with tunnels on the way.
const MTU: usize = 1_200;

/// A flight that nobody answers is sent again after this, then after twice that, and so on, so often (RFC 6347 §4.2.4.1).
const FLIGHT_RTO: Duration = Duration::from_millis(500);
const FLIGHT_RETRIES: usize = 4;

/// Keys are exchanged with these: everybody knows one of them, and others cost ten times as much.
const GROUPS: [NamedGroup; 2] = [NamedGroup::X25519, NamedGroup::Secp256r1];

/// Steps of dimpl that one datagram may make it take; a handshake has no more than some dozen.
const STEPS_MAX: usize = 100;

/// Who the server is, and how it shakes hands.
#[derive(Clone)]
pub struct Identity {
    config: Arc<Config>,
    certificate: DtlsCertificate,
}

/// Why a certificate cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Its key is none that there is code for.
    #[error("its key is not ECDSA with P-256 or P-384")]
    NotEcdsa,
    /// There is none.
    #[error("there is no certificate")]
    Missing,
    /// There is no cryptography to be had.
    #[error("there is no cryptography")]
    NoCrypto,
}

/// Datagrams that are sent together.
pub type Flight = Vec<Box<[u8]>>;

/// A handshake that goes on.
pub struct Handshake {
    dtls: Dtls,
    timeout: Option<Instant>,
}

/// What a step of it has brought.
#[derive(Debug)]
pub enum Progress {
    /// It goes on with these datagrams for the client, if any.
    Answers(Flight),
    /// It is over.
    Done(Established),
}

/// A client whose handshake is over.
#[derive(Debug)]
pub struct Established {
    /// What protects its records from now on.
    pub records: Records,
    /// The last datagrams of the handshake: to be sent, and sent again while the client seems not to have got them.
    pub last_flight: Flight,
}

/// There will be no association.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandshakeError(String);

impl Identity {
    /// The certificate and those that vouch for it, the own one first, and its key; all of it DER, the key as PKCS #8 or SEC 1.
    ///
    /// # Errors
    /// When there is no certificate, or its key is of another kind than ECDSA.
    pub fn new<'a>(chain: impl IntoIterator<Item = &'a [u8]>, key: &[u8]) -> Result<Self, IdentityError> {
        let config = Config::builder()
            .mtu(MTU)
            .use_server_cookie(false)
            .require_client_certificate(false)
            .flight_start_rto(FLIGHT_RTO)
            .flight_retries(FLIGHT_RETRIES)
            .kx_groups(&GROUPS)
            .build()
            .map_err(|_| IdentityError::NoCrypto)?;
        let certificate: Vec<u8> = chain.into_iter().flatten().copied().collect();
        if certificate.is_empty() {
            return Err(IdentityError::Missing);
        }
        config.crypto_provider().key_provider.load_private_key(key).map_err(|_| IdentityError::NotEcdsa)?;
        let certificate = DtlsCertificate { certificate, private_key: key.to_vec() };
        Ok(Identity { config: Arc::new(config), certificate })
    }

    /// One that nobody vouches for.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn made_up() -> Result<Self, IdentityError> {
        let made = dimpl::certificate::generate_self_signed_certificate().map_err(|_| IdentityError::NoCrypto)?;
        Identity::new([&made.certificate[..]], &made.private_key)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

impl Handshake {
    /// One that begins with a ClientHello that has these numbers, and that `handle` gets first.
    pub fn new(identity: &Identity, now: Instant, numbers: Numbers) -> Self {
        let Identity { config, certificate } = identity.clone();
        let dtls = Dtls::new_12_after_cookie(config, certificate, now, numbers.record, numbers.message);
        Handshake { dtls, timeout: None }
    }

    /// Takes a datagram of the client, or none and lets time pass. After an error, or its end, there is nothing more to it.
    ///
    /// # Errors
    /// When there will be no association.
    pub fn handle(&mut self, now: Instant, datagram: Option<&[u8]>) -> Result<Progress, HandshakeError> {
        let step = || self.step(now, datagram);
        guarded(step).unwrap_or_else(|| Err(HandshakeError("dimpl panicked".to_owned())))
    }

    fn step(&mut self, now: Instant, datagram: Option<&[u8]>) -> Result<Progress, HandshakeError> {
        let failed = |error: dimpl::Error| HandshakeError(error.to_string());
        // What is sent again is not to be in one datagram with what is new: a client may drop it with what it knows.
        self.dtls.handle_timeout(now).map_err(failed)?;
        let (mut datagrams, _) = self.poll()?;
        let Some(datagram) = datagram else { return Ok(Progress::Answers(datagrams)) };
        self.dtls.handle_packet(datagram).map_err(failed)?;
        let (answers, is_connected) = self.poll()?;
        if !is_connected {
            datagrams.extend(answers);
            return Ok(Progress::Answers(datagrams));
        }
        let records = self.dtls.record_keys().as_ref().and_then(Records::new);
        let records = records.ok_or_else(|| HandshakeError("a suite that nobody was offered".to_owned()))?;
        Ok(Progress::Done(Established { records, last_flight: answers }))
    }

    /// What dimpl has to send, and whether it is connected now.
    fn poll(&mut self) -> Result<(Flight, bool), HandshakeError> {
        let (mut datagrams, mut is_connected, mut buf) = (Vec::new(), false, vec![0; 2 * MTU]);
        for _ in 0..STEPS_MAX {
            match self.dtls.poll_output(&mut buf) {
                Output::Packet(packet) => datagrams.push(packet.into()),
                Output::BufferTooSmall { needed } => buf.resize(needed, 0),
                Output::Connected => is_connected = true,
                Output::CloseNotify => return Err(HandshakeError("the client has ended it".to_owned())),
                Output::Timeout(at) => {
                    self.timeout = Some(at);
                    break;
                }
                _ => {}
            }
        }
        Ok((datagrams, is_connected))
    }

    /// When `handle` has something to do without a datagram.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
