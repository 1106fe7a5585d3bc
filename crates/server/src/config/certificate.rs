//! Which files a certificate is in.

use std::path::PathBuf;

/// Two PEM files that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and those above it up to one that clients know.
    pub certificate: PathBuf,
    /// Its key, not encrypted.
    pub key: PathBuf,
}
