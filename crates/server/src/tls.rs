//! Certificates, for HTTPS and TURN over TLS alike: read from files, read again when these change.
//!
//! In: PEM files, the names that clients ask for (SNI). Out: rustls' configuration, one for each set of protocols (ALPN).
//! Where the files are obtained from a directory (`acme`), this asks for them, and answers when the directory comes.
//! Connections that are there keep what they have; newcomers get what was read last. Files that are no good are logged, and
//! change nothing.
//! Source: RFC 8446, RFC 6066 §3 (SNI), RFC 7301 (ALPN), RFC 6125 (names of certificates).

mod files;

use std::fmt;
use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime};

use acme::Keeper;
use anyhow::{Context as _, ensure};
use dtls::Identity;
use engine::sys::KernelTls;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, client};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::config::{CertificateFiles, Config};
use crate::guard;
use files::{Pair, Stamps, read, self_signed};

/// How often files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// After a panic of a library over what a directory has said.
const PAUSE: Duration = Duration::from_secs(3_600);

/// What several settings together must be, so that `millrace check` refuses what the server would.
///
/// # Errors
/// What does not fit, by the names of the settings.
pub fn check(config: &Config) -> anyhow::Result<()> {
    let is_wanted = config.http.tls_listen.is_some() || !config.relay.tls_listen.is_empty();
    let is_obtained = config.acme.settings()?.is_some();
    let is_had = is_obtained || !config.tls.certificates.is_empty() || config.tls.self_signed;
    ensure!(
        is_had || !is_wanted,
        "http.tls_listen, relay.tls_listen: TLS needs tls.certificates, acme.domains, or tls.self_signed"
    );
    ensure!(
        is_wanted || !is_obtained,
        "acme.domains: the directory has to be answered, by http.tls_listen or relay.tls_listen"
    );
    Ok(())
}

/// Says in the log who seals the records of files that are sent over TLS, which nothing changes while the server runs.
pub fn tell_who_seals() {
    match KernelTls::found() {
        Ok(kernel) => tracing::info!(%kernel, "files over TLS are sealed by the kernel"),
        Err(error) => {
            tracing::info!(%error, "files over TLS are sealed by the server: no TLS in the kernel, or its module not loaded")
        }
    }
}

/// Where certificates come from. Of several that fit a name the first is used, in this order.
#[derive(Default)]
pub struct Sources {
    /// Files that have to be there.
    pub files: Vec<CertificateFiles>,
    /// What is obtained, once it has been.
    pub keeper: Option<Keeper>,
    /// One that nobody vouches for, for these names and addresses: browsers warn, and go on when they are told to.
    pub self_signed: Option<Vec<String>>,
}

/// All certificates, as they were read last.
pub struct Certificates {
    files: Vec<CertificateFiles>,
    keeper: Option<Keeper>,
    /// What the keeper obtains.
    obtained: Vec<CertificateFiles>,
    self_signed: Option<Pair>,
    /// As the files were when they were read last, also in vain.
    seen: Mutex<Stamps>,
    current: RwLock<Arc<[Pair]>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).field("obtained", &self.obtained).finish()
    }
}

impl Certificates {
    /// Reads them. Of several that fit a name the first is used, and the first of all for who asks for no name or for one that
    /// none has.
    ///
    /// # Errors
    /// When a file cannot be read, or has no certificate or no key, or the two do not belong together.
    pub fn new(sources: Sources) -> anyhow::Result<Arc<Self>> {
        let Sources { files, keeper, self_signed: names } = sources;
        let obtained = keeper.iter().flat_map(Keeper::files).map(files::obtained).collect();
        let self_signed = names.map(self_signed).transpose().context("making a certificate")?;
        let (seen, current) = (Mutex::default(), RwLock::new(Vec::new().into()));
        let certificates = Certificates { files, keeper, obtained, self_signed, seen, current };
        // What changes from now on is read again.
        certificates.has_changed();
        certificates.read_all()?;
        Ok(Arc::new(certificates))
    }

    /// Those in files alone.
    ///
    /// # Errors
    /// As `new`.
    pub fn read(files: &[CertificateFiles]) -> anyhow::Result<Arc<Self>> {
        Certificates::new(Sources { files: files.to_vec(), ..Sources::default() })
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
        // A directory wants nothing else.
        let challenge = self.keeper.as_ref().map(|_| &acme::ALPN);
        let protocols = protocols.iter().chain(challenge);
        config.alpn_protocols = protocols.map(|name| name.as_bytes().to_vec()).collect();
        // Who comes back needs no signature, and nothing is kept for him here.
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        // Records are our own (`tls`).
        config.enable_secret_extraction = true;
        Ok(Arc::new(config))
    }

    /// Reads files again whenever they change, and obtains what there is to obtain, for ever. To be called on a runtime, once
    /// a directory can be answered. Returned is who does so.
    pub fn start(self: &Arc<Self>) -> [JoinHandle<()>; 2] {
        self.faults(SystemTime::now()).iter().for_each(|fault| tracing::warn!("{fault}"));
        [tokio::spawn(self.clone().watch()), tokio::spawn(self.clone().keep())]
    }

    /// Reads files again whenever they change, for ever.
    async fn watch(self: Arc<Self>) {
        let mut tick = tokio::time::interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.news() => {}
            }
            self.look_again();
        }
    }

    async fn news(&self) {
        match &self.keeper {
            Some(keeper) => keeper.news().await,
            None => pending().await,
        }
    }

    /// Obtains what there is to obtain, and renews it, for ever.
    async fn keep(self: Arc<Self>) {
        let Some(keeper) = &self.keeper else { return };
        // A library may panic over what a directory says. That is no reason to end.
        while guard::answering(keeper.run()).await.is_none() {
            sleep(PAUSE).await;
        }
    }

    /// Reads files again if they have changed. They are short, and looked at seldom.
    pub fn look_again(&self) {
        // What was no good is not tried again before something changes: a file that is half written will.
        if self.has_changed() {
            self.read_again();
        }
    }

    /// Reads files again, whether or not they seem to have changed.
    pub fn read_again(&self) {
        if self.files.is_empty() && self.obtained.is_empty() {
            return;
        }
        match self.read_all() {
            Ok(()) => {
                tracing::info!("certificates were read again");
                self.faults(SystemTime::now()).iter().for_each(|fault| tracing::warn!("{fault}"));
            }
            Err(error) => tracing::warn!("certificates stay as they are: {error:#}"),
        }
    }

    /// Since this was asked last.
    fn has_changed(&self) -> bool {
        let stamps = Stamps::of(self.files.iter().chain(&self.obtained));
        let mut seen = self.seen.lock().expect("nobody panics under this lock");
        std::mem::replace(&mut *seen, stamps.clone()) != stamps
    }

    fn read_all(&self) -> anyhow::Result<()> {
        let mut all = Vec::new();
        for files in &self.files {
            all.push(read(files, &provider())?);
        }
        // Of these there may be none yet.
        for files in self.obtained.iter().filter(|files| files.certificate.exists()) {
            match read(files, &provider()) {
                Ok(pair) => all.push(pair),
                Err(error) => tracing::warn!("what was obtained is not used: {error:#}"),
            }
        }
        all.extend(self.self_signed.clone());
        *self.current.write().expect("nobody panics under this lock") = all.into();
        Ok(())
    }

    /// What clients would not like about certificates, though they can be used: those that are out of date.
    pub fn faults(&self, now: SystemTime) -> Vec<String> {
        self.current().iter().filter_map(|pair| pair.fault(now)).collect()
    }

    /// Until when the certificates are good, each by its file.
    pub fn expiries(&self) -> Vec<(PathBuf, SystemTime)> {
        let all = self.current();
        let mut expiries: Vec<_> =
            all.iter().filter_map(|pair| Some((pair.file.clone()?, pair.validity?.until))).collect();
        // A file may stand twice in the settings.
        expiries.sort();
        expiries.dedup_by(|one, other| one.0 == other.0);
        expiries
    }

    /// What was counted about those that are obtained.
    pub fn counters(&self) -> acme::Counters {
        self.keeper.as_ref().map(Keeper::counters).unwrap_or_default()
    }

    fn current(&self) -> Arc<[Pair]> {
        self.current.read().expect("nobody panics under this lock").clone()
    }

    /// The one for a name, that a client can verify.
    fn choose(&self, name: Option<&str>, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let all = self.current();
        let can = |pair: &&Pair| pair.key.key.choose_scheme(hello.signature_schemes()).is_some();
        let named = name.and_then(|name| ServerName::try_from(name).ok());
        let fits = |pair: &&Pair| named.as_ref().is_some_and(|name| is_for(&pair.key, name));
        let mut usable = all.iter().filter(can);
        usable.clone().find(fits).or_else(|| usable.next()).map(|pair| pair.key.clone())
    }

    /// Whether there will be some that are not there yet.
    pub(crate) fn obtains(&self) -> bool {
        self.keeper.is_some()
    }

    /// The first one that can be shown by DTLS.
    pub fn identity(&self) -> Option<Identity> {
        self.current().iter().find_map(|pair| pair.identity.clone())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_challenge = hello.alpn().is_some_and(|names| names.eq([acme::ALPN.as_bytes()]));
        match (is_challenge, &self.keeper) {
            (true, Some(keeper)) => keeper.challenges().answer(hello.server_name()?),
            _ => self.choose(hello.server_name(), &hello),
        }
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let certificate = key.cert.first().and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
    certificate.is_some_and(|certificate| client::verify_server_name(&certificate, name).is_ok())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests;
