//! Sees to it that each name has a certificate, and that it is renewed in time.

use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use counters::counters;
use instant_acme::{Account, Error, ExternalAccountKey, HttpClient, NewAccount, Problem};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::folder::Folder;
use crate::http::Client;
use crate::times::{self, PAUSE_AT_START, PAUSE_LIMITED, in_words};
use crate::validity::{self, Validity};
use crate::{Challenges, order};

/// A certificate takes a minute at most; a directory that hangs is not waited for.
const ATTEMPT_MAX: Duration = Duration::from_secs(300);

/// The time of day is looked at so often, whatever is due: it may have been set.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";
const ACCOUNT_UNKNOWN: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// What is wanted of whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A certificate each.
    pub names: Vec<String>,
    /// URL of the directory.
    pub directory: String,
    /// Whom the directory may write to, such as "mailto:admin@example.org".
    pub contact: Option<String>,
    /// The account of the directory's operator that this one belongs to (RFC 8555 §7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// Certificates that are trusted in addition when the directory is asked (PEM).
    pub ca_file: Option<PathBuf>,
    /// Where account and certificates are kept.
    pub folder: PathBuf,
}

/// An account that was made elsewhere.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its name.
    pub id: String,
    /// The key that goes with it.
    pub key: Vec<u8>,
}

impl Settings {
    /// Sees what can be seen without changing anything.
    ///
    /// # Errors
    /// When the file of trusted certificates cannot be read, or the folder is none.
    pub fn check(&self) -> anyhow::Result<()> {
        Client::new(self.ca_file.as_deref())?;
        let is_other = self.folder.exists() && !self.folder.is_dir();
        ensure!(!is_other, "folder {}: it is a file", self.folder.display());
        Ok(())
    }
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalAccount({:?}, …)", self.id)
    }
}

counters! {
    /// Certificates that a directory is asked for.
    pub struct Counters: "millrace_acme_" {
        /// Certificates that were obtained.
        counter obtained: u64 = "obtained_total",
        /// Certificates that were asked for in vain. Each is said in the log, with the reason.
        counter failures: u64 = "failures_total",
        /// Names that wait for a certificate after a failure.
        gauge failing: u64 = "failing",
    }
}

/// What others see of it.
#[derive(Debug, Default)]
struct Seen {
    obtained: AtomicU64,
    failures: AtomicU64,
    failing: AtomicU64,
    /// There is a new one.
    news: Notify,
}

/// Certificates for some names, from one directory.
pub struct Keeper {
    settings: Settings,
    folder: Folder,
    http: Arc<dyn HttpClient>,
    pub(crate) challenges: Arc<Challenges>,
    seen: Seen,
    /// The time of day.
    wall: fn() -> SystemTime,
}

/// What is to be done about one name.
struct Plan<'a> {
    name: &'a str,
    /// When a certificate is asked for.
    due: SystemTime,
    /// In a row.
    failures: u32,
    /// Certificates in a row that were to be renewed when they came: the clock is ahead.
    stale: u32,
    /// After a success nothing is asked for within this, whatever is due. It is over when the clock is set back.
    rest: Range<SystemTime>,
    /// Of the one that is there.
    kept: Option<Kept>,
}

struct Kept {
    certificate: CertificateDer<'static>,
    validity: Validity,
    /// When the directory is asked what it suggests.
    ask: SystemTime,
    /// What it suggested last.
    window: Option<Range<SystemTime>>,
}

/// The same client for each account that is opened.
struct Shared(Arc<dyn HttpClient>);

impl HttpClient for Shared {
    fn request(
        &self,
        request: hyper::Request<instant_acme::BodyWrapper<hyper::body::Bytes>>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<instant_acme::BytesResponse, Error>> + Send>> {
        self.0.request(request)
    }
}

impl Keeper {
    /// Sees that the folder can be used. Nothing is asked of anybody yet.
    ///
    /// # Errors
    /// When it cannot, or the file of trusted certificates.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let client = Client::new(settings.ca_file.as_deref())?;
        Keeper::with(settings, Arc::new(client), SystemTime::now)
    }

    pub(crate) fn with(
        settings: Settings,
        http: Arc<dyn HttpClient>,
        wall: fn() -> SystemTime,
    ) -> anyhow::Result<Self> {
        let folder = Folder::new(&settings.folder, &settings.directory);
        folder.make().with_context(|| format!("folder {}", settings.folder.display()))?;
        Ok(Keeper { settings, folder, http, challenges: Arc::default(), seen: Seen::default(), wall })
    }

    /// Where the certificates are, or will be, each with its key.
    pub fn files(&self) -> Vec<PathBuf> {
        self.settings.names.iter().map(|name| self.folder.certificate_file(name)).collect()
    }

    /// What to show the directory.
    pub fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// Waits until a file has been replaced.
    pub async fn news(&self) {
        self.seen.news.notified().await;
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Seen { obtained, failures, failing, .. } = &self.seen;
        Counters { obtained: read(obtained), failures: read(failures), failing: read(failing) }
    }

    /// Does it, for ever. Who begins anew goes on where it was.
    pub async fn run(&self) -> Infallible {
        let mut plans: Vec<Plan<'_>> = self.settings.names.iter().map(|name| self.plan(name)).collect();
        loop {
            for plan in &mut plans {
                self.ask_when(plan).await;
                let now = (self.wall)();
                if plan.due(now) <= now {
                    self.attempt(plan).await;
                }
            }
            let failing = plans.iter().filter(|plan| plan.failures > 0).count();
            self.seen.failing.store(failing as u64, Ordering::Relaxed);
            let now = (self.wall)();
            let due = plans.iter().flat_map(|plan| [Some(plan.due(now)), plan.kept.as_ref().map(|kept| kept.ask)]);
            let wait = due.flatten().min().map(|due| due.duration_since((self.wall)()).unwrap_or_default());
            sleep(wait.map_or(LOOK_INTERVAL, |wait| wait.min(LOOK_INTERVAL))).await;
        }
    }

    /// As the folder has it.
    fn plan<'a>(&self, name: &'a str) -> Plan<'a> {
        let now = (self.wall)();
        let kept = self.folder.certificate(name).and_then(|certificate| Kept::new(certificate, now));
        let mut plan = Plan { name, due: now, failures: 0, stale: 0, rest: now..now, kept };
        if let Some(kept) = &plan.kept {
            plan.due = times::renewal(&kept.validity, chance());
        }
        if let Some((failures, at)) = self.folder.failures(name) {
            plan.failures = failures;
            let pause = times::pause(failures, chance()).min(PAUSE_AT_START);
            // One that was written in the future says nothing.
            plan.due = plan.due.max((at + pause).min(now + pause));
            let (wait, file) = (plan.due.duration_since(now).unwrap_or_default(), self.folder.failures_file(name));
            tracing::warn!(
                "no certificate for {name} could be had before: it is tried in {}; to try at once, remove {} and start anew",
                in_words(wait),
                file.display(),
            );
        }
        plan
    }

    /// Asks the directory when it wants a certificate to be renewed, where that is due (RFC 9773). If it does not say, that
    /// is no trouble.
    async fn ask_when(&self, plan: &mut Plan<'_>) {
        let now = (self.wall)();
        let Some(kept) = plan.kept.as_mut().filter(|kept| kept.ask <= now) else { return };
        let asked = timeout(ATTEMPT_MAX, self.suggestion(&kept.certificate)).await;
        let (suggestion, again) = match asked {
            Ok(Ok((window, again))) => (Some(window), again),
            Ok(Err(error)) => {
                tracing::debug!("when to renew the certificate for {} is not known: {error:#}", plan.name);
                (None, Duration::MAX)
            }
            Err(_) => (None, Duration::MAX),
        };
        kept.ask = now + times::ask_after(again);
        // The chance is taken once.
        if suggestion.is_some() && kept.window != suggestion {
            let window = suggestion.clone().expect("it was looked at");
            kept.window = suggestion;
            let suggested = times::suggested(&kept.validity, &window, now, chance());
            if plan.failures == 0 {
                plan.due = times::renewal(&kept.validity, chance()).min(suggested);
            }
        }
    }

    async fn suggestion(&self, certificate: &CertificateDer<'_>) -> anyhow::Result<(Range<SystemTime>, Duration)> {
        let identifier = validity::identifier(certificate).context("it does not say who made it")?;
        let Some(account) = self.known_account().await? else { bail!("there is no account") };
        let (info, again) = account.renewal_info(&identifier).await?;
        let (start, end) = (info.suggested_window.start.into(), info.suggested_window.end.into());
        ensure!(start < end, "the time ends before it begins");
        Ok((start..end, again))
    }

    async fn attempt(&self, plan: &mut Plan<'_>) {
        let obtained = match timeout(ATTEMPT_MAX, self.obtain(plan)).await {
            Ok(obtained) => obtained,
            Err(_) => Err(anyhow::anyhow!("it takes longer than {}", in_words(ATTEMPT_MAX))),
        };
        let now = (self.wall)();
        match obtained {
            Ok(kept) => {
                count(&self.seen.obtained);
                let left = kept.validity.until.duration_since(now).unwrap_or_default();
                tracing::info!("a certificate for {} was obtained, good for {}", plan.name, in_words(left));
                plan.due = times::renewal(&kept.validity, chance());
                plan.rest = now..now + times::rest(&kept.validity, plan.stale);
                plan.stale = if plan.due <= now { plan.stale.saturating_add(1) } else { 0 };
                if plan.stale > 0 {
                    tracing::warn!("the certificate for {} is to be renewed already: is the clock right?", plan.name);
                }
                (plan.kept, plan.failures) = (Some(kept), 0);
                self.seen.news.notify_one();
            }
            Err(error) => {
                count(&self.seen.failures);
                plan.failures = plan.failures.saturating_add(1);
                let mut pause = times::pause(plan.failures, chance());
                if is_problem(&error, RATE_LIMITED) {
                    pause = pause.max(PAUSE_LIMITED);
                }
                plan.due = now + pause;
                tracing::warn!("no certificate for {}: {error:#}; it is tried again in {}", plan.name, in_words(pause));
                if is_problem(&error, ACCOUNT_UNKNOWN) && self.folder.drop_account().is_ok() {
                    tracing::warn!("the directory does not know the account any more: there will be another one");
                }
            }
        }
    }

    async fn obtain(&self, plan: &Plan<'_>) -> anyhow::Result<Kept> {
        let name = plan.name;
        let keeping = || format!("keeping it in {}", self.settings.folder.display());
        // Nothing is asked for that could not be kept.
        self.folder.note_failures(name, plan.failures.saturating_add(1), (self.wall)()).with_context(keeping)?;
        let account = self.account().await.context("the account")?;
        let replaced = plan.kept.as_ref().and_then(|kept| validity::identifier(&kept.certificate));
        let pem = order::obtain(&account, name, replaced, &self.challenges).await?;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).context("reading what was sent")?;
        let kept = Kept::new(certificate, (self.wall)()).context("what was sent is no certificate")?;
        ensure!(kept.validity.holds((self.wall)()), "what was sent is out of date, or this machine's clock is wrong");
        self.folder.keep_certificate(name, &pem).with_context(keeping)?;
        self.folder.forget_failures(name).with_context(keeping)?;
        Ok(kept)
    }

    /// The account that is kept.
    async fn known_account(&self) -> anyhow::Result<Option<Account>> {
        let Some(credentials) = self.folder.account().context("reading it")? else { return Ok(None) };
        let builder = Account::builder_with_http(Box::new(Shared(self.http.clone())));
        Ok(Some(builder.from_credentials(credentials).await.context("asking the directory")?))
    }

    /// The same, or a new one, which is kept.
    async fn account(&self) -> anyhow::Result<Account> {
        if let Some(account) = self.known_account().await? {
            return Ok(account);
        }
        let contact: Vec<&str> = self.settings.contact.as_deref().into_iter().collect();
        // Who starts this has agreed.
        let wanted = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self.settings.external_account.as_ref();
        let external = external.map(|account| ExternalAccountKey::new(account.id.clone(), &account.key));
        let builder = Account::builder_with_http(Box::new(Shared(self.http.clone())));
        let created = builder.create(&wanted, self.settings.directory.clone(), external.as_ref()).await;
        let (account, credentials) = created.context("asking for one")?;
        self.folder.keep_account(&credentials).context("keeping it")?;
        tracing::info!(directory = self.settings.directory, "an account was made");
        Ok(account)
    }
}

impl Plan<'_> {
    /// When a certificate is asked for, as it is seen now.
    fn due(&self, now: SystemTime) -> SystemTime {
        if self.rest.contains(&now) { self.due.max(self.rest.end) } else { self.due }
    }
}

impl Kept {
    fn new(certificate: CertificateDer<'static>, now: SystemTime) -> Option<Self> {
        let validity = Validity::of(&certificate)?;
        Some(Kept { certificate, validity, ask: now, window: None })
    }
}

/// Whether a directory has said that.
fn is_problem(error: &anyhow::Error, which: &str) -> bool {
    let is = |problem: &Problem| problem.r#type.as_deref() == Some(which);
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(Error::Api(problem)) if is(problem)))
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// From 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    // Without chance it goes, too.
    aws_lc_rs::rand::fill(&mut bytes).ok();
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}
