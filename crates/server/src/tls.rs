//! Certificates, for HTTPS and TURN over TLS alike: read from files, read again when these change.
//!
//! In: PEM files, the names that clients ask for (SNI). Out: rustls' configuration, one for each set of protocols (ALPN).
//! Connections that are there keep what they have; newcomers get what was read last. Files that are no good are logged, and
//! change nothing.
//! Source: RFC 8446, RFC 6066 §3 (SNI), RFC 7301 (ALPN), RFC 6125 (names of certificates).

mod files;

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, client};

use crate::config::{CertificateFiles, Config};
use dtls::Identity;
use files::{Pair, Stamps, read, self_signed};

/// How often files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What several settings together must be, so that `millrace check` refuses what the server would.
///
/// # Errors
/// What does not fit, by the names of the settings.
pub fn check(config: &Config) -> anyhow::Result<()> {
    let is_wanted = config.http.tls_listen.is_some() || !config.relay.tls_listen.is_empty();
    let is_had = !config.tls.certificates.is_empty() || config.tls.self_signed;
    ensure!(is_had || !is_wanted, "http.tls_listen, relay.tls_listen: TLS needs tls.certificates, or tls.self_signed");
    Ok(())
}

/// All certificates, as they were read last.
#[derive(Debug)]
pub struct Certificates {
    files: Vec<CertificateFiles>,
    /// As the files were when they were read last, also in vain.
    seen: Mutex<Stamps>,
    current: RwLock<Arc<[Pair]>>,
}

impl Certificates {
    /// Reads them. Of several that fit a name the first is used, and the first of all for who asks for no name or for one that
    /// none has.
    ///
    /// # Errors
    /// When a file cannot be read, or has no certificate or no key, or the two do not belong together.
    pub fn read(files: &[CertificateFiles]) -> anyhow::Result<Arc<Self>> {
        // What changes from now on is read again.
        let seen = Mutex::new(Stamps::of(files));
        let current = RwLock::new(read_all(files)?);
        Ok(Arc::new(Certificates { files: files.to_vec(), seen, current }))
    }

    /// One that nobody vouches for, for these names and addresses: browsers warn, and go on when they are told to.
    ///
    /// # Errors
    /// When a name is none.
    pub fn self_signed(names: Vec<String>) -> anyhow::Result<Arc<Self>> {
        let pair = self_signed(names).context("making a certificate")?;
        let current = RwLock::new([pair].into());
        Ok(Arc::new(Certificates { files: Vec::new(), seen: Mutex::default(), current }))
    }

    /// What a server does that speaks these protocols, most wanted first. Who names none of them, and names some, is refused.
    ///
    /// # Errors
    /// What rustls says; there is nothing that it could.
    pub fn config(self: &Arc<Self>, protocols: &[&str]) -> anyhow::Result<Arc<ServerConfig>> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        // Who comes back needs no signature, and nothing is kept for him here.
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        // Records are our own (`tls`).
        config.enable_secret_extraction = true;
        Ok(Arc::new(config))
    }

    /// Reads files again whenever they change, for ever.
    pub async fn watch(self: Arc<Self>) {
        let mut tick = tokio::time::interval(LOOK_INTERVAL);
        loop {
            tick.tick().await;
            self.look_again();
        }
    }

    /// Reads files again if they have changed. They are short, and looked at seldom.
    pub fn look_again(&self) {
        let stamps = Stamps::of(&self.files);
        // What was no good is not tried again before something changes: a file that is half written will.
        let before = std::mem::replace(&mut *self.seen.lock().expect("nobody panics under this lock"), stamps.clone());
        if stamps != before {
            self.read_again();
        }
    }

    /// Reads files again, whether or not they seem to have changed.
    pub fn read_again(&self) {
        if self.files.is_empty() {
            return;
        }
        match read_all(&self.files) {
            Ok(certificates) => {
                *self.current.write().expect("nobody panics under this lock") = certificates;
                tracing::info!("certificates were read again");
            }
            Err(error) => tracing::warn!("certificates stay as they are: {error:#}"),
        }
    }

    /// The one for a name, that a client can verify.
    fn choose(&self, name: Option<&str>, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let all = self.current.read().expect("nobody panics under this lock").clone();
        let can = |pair: &&Pair| pair.key.key.choose_scheme(hello.signature_schemes()).is_some();
        let named = name.and_then(|name| ServerName::try_from(name).ok());
        let fits = |pair: &&Pair| named.as_ref().is_some_and(|name| is_for(&pair.key, name));
        let mut usable = all.iter().filter(can);
        usable.clone().find(fits).or_else(|| usable.next()).map(|pair| pair.key.clone())
    }

    /// The first one that can be shown by DTLS.
    pub fn identity(&self) -> Option<Identity> {
        let all = self.current.read().expect("nobody panics under this lock").clone();
        all.iter().find_map(|pair| pair.identity.clone())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), &hello)
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let certificate = key.cert.first().and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
    certificate.is_some_and(|certificate| client::verify_server_name(&certificate, name).is_ok())
}

fn read_all(files: &[CertificateFiles]) -> anyhow::Result<Arc<[Pair]>> {
    let all = files.iter().map(|files| read(files, &provider()));
    all.collect::<anyhow::Result<Vec<_>>>().map(Into::into)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests;
