//! What a directory is shown that comes to see whether a name is ours (tls-alpn-01, RFC 8737).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Context as _;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// What the directory wants to speak (ALPN): nothing, once the handshake is over.
pub const ALPN: &str = "acme-tls/1";

/// The certificates that prove names, while a directory is to come.
#[derive(Debug, Default)]
pub struct Challenges {
    shown: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Challenges {
    /// What to show who asks for that name and wants to speak `ALPN`. `None`: nobody is expected.
    pub fn answer(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.lock().get(name).cloned()
    }

    /// Shows that this hash is known to who has the name, until what is returned is dropped.
    pub(crate) fn show(self: &Arc<Self>, name: &str, hash: &[u8]) -> anyhow::Result<Shown> {
        let key = certificate(name, hash).context("making a certificate to prove it by")?;
        self.lock().insert(name.to_owned(), Arc::new(key));
        Ok(Shown { challenges: self.clone(), name: name.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<CertifiedKey>>> {
        self.shown.lock().expect("nobody panics under this lock")
    }
}

/// Takes it away in the end.
pub(crate) struct Shown {
    challenges: Arc<Challenges>,
    name: String,
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.challenges.lock().remove(&self.name);
    }
}

fn certificate(name: &str, hash: &[u8]) -> anyhow::Result<CertifiedKey> {
    let mut wanted = CertificateParams::new(vec![name.to_owned()])?;
    wanted.distinguished_name = DistinguishedName::new();
    wanted.custom_extensions = vec![CustomExtension::new_acme_identifier(hash)];
    let key = KeyPair::generate()?;
    let made = wanted.self_signed(&key)?;
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    // Not `from_der`, which looks at the certificate, and takes none with what it does not know and must.
    Ok(CertifiedKey::new(vec![made.der().clone()], aws_lc_rs::sign::any_supported_type(&der)?))
}
