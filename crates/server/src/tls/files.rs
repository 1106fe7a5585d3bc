//! Certificates and keys as files have them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use acme::{Validity, in_words};
use anyhow::{Context as _, ensure};
use dtls::Identity;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::provider;
use crate::config::CertificateFiles;

/// A certificate with those above it, its key, and what is to be known of it.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: Arc<CertifiedKey>,
    /// The same for DTLS. `None`: its key is none that there is code for.
    pub(super) identity: Option<Identity>,
    /// Where it was read; of one that was made here there is no file.
    pub(super) file: Option<PathBuf>,
    /// `None`: it cannot be told, though TLS takes it.
    pub(super) validity: Option<Validity>,
}

impl Pair {
    /// Sees that the two belong together, too.
    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
        file: Option<PathBuf>,
    ) -> Result<Self, rustls::Error> {
        let identity = Identity::new(chain.iter().map(AsRef::as_ref), key.secret_der()).ok();
        let validity = chain.first().and_then(Validity::of);
        let key = Arc::new(CertifiedKey::from_der(chain, key, provider)?);
        Ok(Pair { key, identity, file, validity })
    }

    /// What clients would not like about it.
    pub(super) fn fault(&self, now: SystemTime) -> Option<String> {
        let (file, validity) = (self.file.as_ref()?.display(), self.validity?);
        let far = |from, to: SystemTime| in_words(to.duration_since(from).unwrap_or_default());
        if now >= validity.until {
            return Some(format!("certificate {file} has been out of date for {}", far(validity.until, now)));
        }
        (now < validity.from).then(|| format!("certificate {file} is not good for another {}", far(now, validity.from)))
    }
}

/// Reads one certificate with those above it, and its key.
pub(super) fn read(files: &CertificateFiles, provider: &CryptoProvider) -> anyhow::Result<Pair> {
    let CertificateFiles { certificate, key } = files;
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| format!("certificate {}", certificate.display()))?;
    ensure!(!chain.is_empty(), "certificate {}: there is none in it", certificate.display());
    let of_key = || format!("key {}", key.display());
    let der = PrivateKeyDer::from_pem_file(key).with_context(of_key)?;
    let pair = Pair::new(chain, der, provider, Some(certificate.clone()));
    pair.with_context(|| format!("{} with certificate {}", of_key(), certificate.display()))
}

/// A certificate that says of itself that it is right.
pub(super) fn self_signed(names: Vec<String>) -> anyhow::Result<Pair> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    Ok(Pair::new(vec![made.cert.der().clone()], key, &provider(), None)?)
}

/// A certificate that was obtained is in one file with its key.
pub(super) fn obtained(file: PathBuf) -> CertificateFiles {
    CertificateFiles { key: file.clone(), certificate: file }
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
    pub(super) fn of<'a>(files: impl Iterator<Item = &'a CertificateFiles>) -> Self {
        let paths = files.flat_map(|files| [&files.certificate, &files.key]);
        Stamps(paths.map(|path| Stamp::of(path)).collect())
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Stamp { inode: metadata.ino(), len: metadata.len(), modified: metadata.modified().ok() })
    }
}
