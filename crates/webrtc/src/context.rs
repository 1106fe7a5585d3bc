//! What all peer connections of the process share: the certificate, DTLS settings, and the way to the keys.
//!
//! str0m gets its DTLS from a provider of ours, which drives dimpl; a session without str0m (`Association`) has the same by
//! itself. When the handshake yields SRTP keys, they stay in the session's `Seam`, and who asked hears `Connected` once more,
//! which is nothing new.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use srtp::{Profile, SessionKeys};
use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion,
    SrtpProfile as DimplProfile,
};
use str0m::crypto::{CryptoError, CryptoProvider, Fingerprint};

use crate::Error;
use crate::gate::{self, Gate, Held};

/// The largest DTLS datagram: what fits every path (IPv6 minimum MTU, 1,280, less IPv6 and UDP headers, rounded down).
const DTLS_MTU: usize = 1_200;

/// When an unanswered DTLS flight goes out again for the first time; doubles after that. RFC 6347 §4.2.4.1 says 1 s
/// for want of knowledge, but here ICE has just measured that the path answers.
const FLIGHT_RTO: Duration = Duration::from_millis(250);

/// How often a flight is repeated: with doubling, for longer than the handshake's deadline.
const FLIGHT_RETRIES: usize = 8;

/// When an unfinished handshake is given up.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);

/// The certificate and settings that every peer connection shares. Cheap to clone; make one per process.
#[derive(Clone)]
pub struct Context {
    pub(crate) crypto: Arc<CryptoProvider>,
    pub(crate) certificate: Arc<DtlsCert>,
    /// Of the certificate, as descriptions have it.
    pub(crate) fingerprint: Arc<str>,
}

impl Context {
    /// Makes a certificate (ECDSA P-256), and on first use checks the cryptography, which takes about a millisecond.
    pub fn new() -> Result<Self, Error> {
        let provider = Provider::shared()?;
        let certificate =
            provider.generate_certificate().ok_or_else(|| Error::SetUp("no certificate could be made".into()))?;
        let crypto = CryptoProvider { dtls_provider: provider, ..str0m::crypto::from_feature_flags() };
        let bytes = crypto.sha256_provider.sha256(&certificate.certificate).to_vec();
        let fingerprint = Fingerprint { hash_func: "sha-256".into(), bytes }.to_string().into();
        Ok(Context { crypto: Arc::new(crypto), certificate: Arc::new(certificate), fingerprint })
    }

    /// DTLS without str0m, and what it shares with us.
    pub(crate) fn dtls(&self, now: Instant) -> Result<(Instance, Arc<Seam>), Error> {
        let seam = Arc::<Seam>::default();
        Ok((Provider::shared()?.instance(&self.certificate, now, seam.clone()), seam))
    }

    /// Runs `build`, which makes one str0m session, and returns it with what that and its DTLS share with us.
    pub(crate) fn with_seam<T>(&self, build: impl FnOnce() -> T) -> (T, Arc<Seam>) {
        let seam = Arc::<Seam>::default();
        NEXT_SEAM.with(|next| *next.borrow_mut() = Some(seam.clone()));
        let built = build();
        NEXT_SEAM.with(|next| *next.borrow_mut() = None);
        (built, seam)
    }
}

/// What passes between a session and its DTLS beside str0m.
#[derive(Debug, Default)]
pub(crate) struct Seam {
    /// Where the session's keys appear when DTLS is done.
    pub keys: OnceLock<Result<SessionKeys, CertificateRefused>>,
    /// Data channels were negotiated.
    lets_data_in: AtomicBool,
    /// What comes by them waits.
    holds_data: AtomicBool,
}

impl Seam {
    /// From now on str0m gets the peer's SCTP.
    pub fn let_data_in(&self) {
        self.lets_data_in.store(true, Ordering::Relaxed);
    }

    /// From now on packets with data wait, or all that do go on.
    pub fn hold_data(&self, on: bool) {
        self.holds_data.store(on, Ordering::Relaxed);
    }
}

/// The peer has no certificate that dimpl could verify: it knows ECDSA and, as we have it, RSA, and asks for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CertificateRefused;

thread_local! {
    /// The seam of the DTLS instance that str0m is about to ask for. str0m names no session when it asks, but asks
    /// on the thread that builds the session, before `build` returns.
    static NEXT_SEAM: RefCell<Option<Arc<Seam>>> = const { RefCell::new(None) };
    /// What time it is for str0m, which tells it to dimpl only when a timer is due. By an older one dimpl would repeat flights
    /// as soon as they are sent.
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs `call`, which calls str0m, at that time.
pub(crate) fn at<T>(now: Instant, call: impl FnOnce() -> T) -> T {
    NOW.set(Some(now));
    let result = call();
    NOW.set(None);
    result
}

#[derive(Debug)]
struct Provider {
    config: Arc<dimpl::Config>,
}

impl Provider {
    /// The one provider. str0m wants a static reference, so it is never freed.
    fn shared() -> Result<&'static Provider, Error> {
        static PROVIDER: OnceLock<Result<Provider, Error>> = OnceLock::new();
        let made = PROVIDER.get_or_init(|| {
            let config = dimpl::Config::builder()
                .mtu(DTLS_MTU)
                // DTLS begins where the peer has proved its address (`reach`), so the cookie would be a wasted round trip.
                .use_server_cookie(false)
                .flight_start_rto(FLIGHT_RTO)
                .flight_retries(FLIGHT_RETRIES)
                .handshake_timeout(HANDSHAKE_MAX)
                .build()
                .map_err(|error| Error::SetUp(error.to_string()))?;
            Ok(Provider { config: Arc::new(config) })
        });
        made.as_ref().map_err(Error::clone)
    }

    fn instance(&self, certificate: &DtlsCert, now: Instant, seam: Arc<Seam>) -> Instance {
        // Always DTLS 1.2: as a 1.3 server, dimpl takes the client's first profile, which is AES-CM for Chromium.
        let dtls = dimpl::Dtls::new_12(self.config.clone(), certificate.clone(), now);
        Instance { dtls, seam, gate: Gate::default(), held: Held::default(), told: now }
    }
}

impl DtlsProvider for Provider {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        dimpl::certificate::generate_self_signed_certificate().ok()
    }

    fn new_dtls(
        &self,
        certificate: &DtlsCert,
        now: Instant,
        _version: DtlsVersion,
        _mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let seam = NEXT_SEAM
            .with(|next| next.borrow_mut().take())
            .ok_or_else(|| CryptoError::Other("a session is built through Context::with_seam".into()))?;
        Ok(Box::new(self.instance(certificate, now, seam)))
    }
}

/// The DTLS of one session.
#[derive(Debug)]
pub(crate) struct Instance {
    dtls: dimpl::Dtls,
    seam: Arc<Seam>,
    gate: Gate,
    held: Held,
    /// The time that dimpl was told last.
    told: Instant,
}

impl Instance {
    fn tell_time(&mut self) -> Result<(), DtlsImplError> {
        match NOW.get() {
            Some(now) if now > self.told => self.handle_timeout(now),
            _ => Ok(()),
        }
    }
}

impl DtlsInstance for Instance {
    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        let is_client = self.dtls.is_active();
        // It fails where a timer is due that str0m has not seen to; it will.
        let _ = self.tell_time();
        let holds = self.seam.holds_data.load(Ordering::Relaxed);
        if !holds && !self.held.is_empty() {
            return self.held.pop(buf).map_or(DtlsOutput::Connected, DtlsOutput::ApplicationData);
        }
        match self.dtls.poll_output(buf) {
            DtlsOutput::KeyingMaterial(material, profile) => {
                if let Some(profile) = known_profile(profile)
                    && let Ok(keys) = SessionKeys::new(profile, &material, is_client)
                {
                    // A second handshake on the association (renegotiation) does not exist in dimpl, so `set` succeeds.
                    let _ = self.seam.keys.set(Ok(keys));
                }
                DtlsOutput::Connected
            }
            // str0m would begin an SCTP association with whoever asks, so it hears of none that was not negotiated. dimpl gives
            // nothing of this before it has said that it is connected, and to say so again changes nothing.
            DtlsOutput::ApplicationData(packet)
                if !self.seam.lets_data_in.load(Ordering::Relaxed) || !self.gate.admits(packet) =>
            {
                DtlsOutput::Connected
            }
            DtlsOutput::ApplicationData(packet) if holds && gate::has_data(packet) => {
                self.held.push(packet);
                DtlsOutput::Connected
            }
            other => other,
        }
    }

    fn set_active(&mut self, active: bool) {
        self.dtls.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.tell_time()?;
        self.dtls.handle_packet(packet).inspect_err(|error| {
            if is_of_certificate(error) {
                // Where keys are, nothing of this comes any more.
                let _ = self.seam.keys.set(Err(CertificateRefused));
            }
        })
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.told = now;
        self.dtls.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.dtls.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.dtls.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.dtls.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.dtls.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.dtls.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.dtls.close()
    }
}

/// Whether the handshake failed for want of an ECDSA or RSA certificate. OpenSSL with another one sends none, since dimpl's
/// request does not name it; others send theirs all the same, and its signature is of an unknown kind.
fn is_of_certificate(error: &DtlsImplError) -> bool {
    use dimpl::{CertificateError, CryptoError};
    match error {
        DtlsImplError::CertificateError(CertificateError::NoClientCertificateReceived) => true,
        DtlsImplError::CryptoError(error) => matches!(
            error,
            CryptoError::UnsupportedSignatureAlgorithm(_)
                | CryptoError::SignatureAlgorithmMismatch { .. }
                | CryptoError::UnsupportedSignaturePair { .. }
                | CryptoError::UnsupportedSignatureVerification { .. }
                | CryptoError::UnsupportedPublicKeyAlgorithm
                | CryptoError::UnsupportedEcCurve
        ),
        _ => false,
    }
}

/// The profile that DTLS chose (RFC 5764 §4.1.2, RFC 7714 §14.2), where it is one of ours.
///
/// As DTLS server, we prefer AES-128-GCM, which costs less, then AES-256-GCM, then AES-CM
/// (`vendor/README.md`).
fn known_profile(profile: DimplProfile) -> Option<Profile> {
    match profile {
        DimplProfile::AEAD_AES_128_GCM => Some(Profile::AeadAes128Gcm),
        DimplProfile::AEAD_AES_256_GCM => Some(Profile::AeadAes256Gcm),
        DimplProfile::AES128_CM_SHA1_80 => Some(Profile::Aes128CmSha1_80),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use dimpl::{CertificateError, CryptoError, HashAlgorithm, SignatureAlgorithm};

    use super::*;

    #[test]
    fn no_certificate_and_one_of_another_kind_are_told_from_a_wrong_signature() {
        let signature = SignatureAlgorithm::DSA;
        let hash = HashAlgorithm::SHA256;
        let group = dimpl::NamedGroup::Secp256r1;
        for error in [
            DtlsImplError::CertificateError(CertificateError::NoClientCertificateReceived),
            DtlsImplError::CryptoError(CryptoError::UnsupportedSignatureAlgorithm(signature)),
            DtlsImplError::CryptoError(CryptoError::UnsupportedSignaturePair { signature, hash }),
            DtlsImplError::CryptoError(CryptoError::UnsupportedPublicKeyAlgorithm),
        ] {
            assert!(is_of_certificate(&error), "{error:?}");
        }
        let ecdsa = SignatureAlgorithm::ECDSA;
        let wrong = CryptoError::SignatureVerificationFailed { signature: ecdsa, hash, group };
        for error in [DtlsImplError::CryptoError(wrong), DtlsImplError::ReceiveQueueFull] {
            assert!(!is_of_certificate(&error), "{error:?}");
        }
    }
}
