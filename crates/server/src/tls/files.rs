//! Certificates and keys as files have them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use dtls::Identity;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::provider;
use crate::config::CertificateFiles;

/// A certificate with those above it, and its key.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    /// The same for DTLS. `None`: its key is none that there is code for.
    pub(super) identity: Option<Identity>,
}

fn identity(chain: &[CertificateDer<'_>], key: &PrivateKeyDer<'_>) -> Option<Identity> {
    Identity::new(chain.iter().map(AsRef::as_ref), key.secret_der()).ok()
}

/// Reads one certificate with those above it, and its key.
pub(super) fn read(files: &CertificateFiles, provider: &CryptoProvider) -> anyhow::Result<Pair> {
    let CertificateFiles { certificate, key } = files;
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| format!("certificate {}", certificate.display()))?;
    ensure!(!chain.is_empty(), "certificate {}: there is none in it", certificate.display());
    let of_key = || format!("key {}", key.display());
    let der = PrivateKeyDer::from_pem_file(key).with_context(of_key)?;
    let identity = identity(&chain, &der);
    // Also that the two belong together.
    let key = CertifiedKey::from_der(chain, der, provider);
    let key = key.with_context(|| format!("{} with certificate {}", of_key(), certificate.display()))?;
    Ok(Pair { key: Arc::new(key), identity })
}

/// A certificate that says of itself that it is right.
pub(super) fn self_signed(names: Vec<String>) -> anyhow::Result<Pair> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let chain = vec![made.cert.der().clone()];
    let identity = identity(&chain, &key);
    Ok(Pair { key: Arc::new(CertifiedKey::from_der(chain, key, &provider())?), identity })
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
