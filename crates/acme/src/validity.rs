//! From when until when a certificate is good, and by which name its directory knows it.

use std::time::{Duration, SystemTime};

use instant_acme::CertificateIdentifier;
use rustls::pki_types::{CertificateDer, Der};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

/// From when until when a certificate is good (RFC 5280 §4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// notBefore
    pub from: SystemTime,
    /// notAfter
    pub until: SystemTime,
}

impl Validity {
    /// That of a certificate. `None`: it is none.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
        let validity = certificate.tbs_certificate().validity();
        let at = |time: x509_cert::time::Time| SystemTime::UNIX_EPOCH.checked_add(time.to_unix_duration());
        Some(Validity { from: at(validity.not_before)?, until: at(validity.not_after)? })
    }

    /// Whether it is good at that time.
    pub fn holds(&self, now: SystemTime) -> bool {
        (self.from..self.until).contains(&now)
    }

    /// How long it is good, all in all.
    pub fn life(&self) -> Duration {
        self.until.duration_since(self.from).unwrap_or_default()
    }
}

/// What a directory calls a certificate (RFC 9773 §4.1). `None`: it does not say who made it.
pub(crate) fn identifier(certificate: &CertificateDer<'_>) -> Option<CertificateIdentifier<'static>> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let certificate = certificate.tbs_certificate();
    let (_, authority) = certificate.get_extension::<AuthorityKeyIdentifier>().ok()??;
    let authority = authority.key_identifier?;
    let (authority, serial) = (Der::from_slice(authority.as_bytes()), certificate.serial_number().as_bytes());
    Some(CertificateIdentifier::new(authority, Der::from_slice(serial)).into_owned())
}
