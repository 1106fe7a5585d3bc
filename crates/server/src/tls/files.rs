//! Certificates and keys as files have them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::provider;
use crate::config::CertificateFiles;

/// Reads one certificate with those above it, and its key.
pub(super) fn read(files: &CertificateFiles, provider: &CryptoProvider) -> anyhow::Result<CertifiedKey> {
    let CertificateFiles { certificate, key } = files;
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| format!("certificate {}", certificate.display()))?;
    ensure!(!chain.is_empty(), "certificate {}: there is none in it", certificate.display());
    let of_key = || format!("key {}", key.display());
    let der = PrivateKeyDer::from_pem_file(key).with_context(of_key)?;
    // Also that the two belong together.
    let pair = CertifiedKey::from_der(chain, der, provider);
    pair.with_context(|| format!("{} with certificate {}", of_key(), certificate.display()))
}

/// A certificate that says of itself that it is right.
pub(super) fn self_signed(names: Vec<String>) -> anyhow::Result<CertifiedKey> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    Ok(CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider())?)
}

/// What changes when files do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps(Vec<Option<Stamp>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamps {
    /// As they are now. A link is followed, as what renews certificates likes to change links.
    pub(super) fn of(files: &[CertificateFiles]) -> Self {
        let paths = files.iter().flat_map(|files| [&files.certificate, &files.key]);
        Stamps(paths.map(|path| Stamp::of(path)).collect())
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Stamp { inode: metadata.ino(), len: metadata.len(), modified: metadata.modified().ok() })
    }
}
