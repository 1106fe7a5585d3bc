//! Webhooks: what happens in rooms, told to who runs the application.
//!
//! In: events of the hub. Out: for each URL, one after the other, a POST with the event as JSON and a token whose `sha256`
//! is the body's, signed with the first API key. What is not taken is sent again after one, two and four seconds, and then
//! given up and counted; meanwhile `WAITING_MAX` events wait, and further ones are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use livekit::proto::WebhookEvent;
use livekit::token::{Claims, Keys};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::settings::Settings;

/// Events that wait for one URL.
pub const WAITING_MAX: usize = 1000;
/// Within this a URL has to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Of an answer; nobody reads it.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long the token of a webhook holds.
const TOKEN_HOLDS_SECONDS: u64 = 300;
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Where events for one URL are put.
pub type Inlet = mpsc::Sender<Arc<WebhookEvent>>;

/// Tells one URL.
pub struct Teller {
    url: Uri,
    events: mpsc::Receiver<Arc<WebhookEvent>>,
    keys: Arc<Keys>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    given_up: Arc<AtomicU64>,
}

/// All of them.
pub struct Webhooks {
    /// Where each one's events are put.
    pub inlets: Vec<Inlet>,
    /// Each is to be run.
    pub tellers: Vec<Teller>,
    /// How many events were given up, of all.
    pub given_up: Arc<AtomicU64>,
}

impl Webhooks {
    /// One for each URL of the settings.
    ///
    /// # Errors
    /// When a URL is none, or there is no API key.
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let keys = Arc::new(Keys::new(settings.keys.iter().cloned())?);
        let (client, given_up) = (client()?, Arc::new(AtomicU64::new(0)));
        let mut webhooks = Webhooks { inlets: Vec::new(), tellers: Vec::new(), given_up };
        for text in &settings.webhook_urls {
            let url: Uri = text.parse().with_context(|| format!("webhook {text:?}"))?;
            ensure!(matches!(url.scheme_str(), Some("http" | "https")), "webhook {text:?} is no http or https URL");
            let (inlet, events) = mpsc::channel(WAITING_MAX);
            let (keys, client, given_up) = (keys.clone(), client.clone(), webhooks.given_up.clone());
            webhooks.inlets.push(inlet);
            webhooks.tellers.push(Teller { url, events, keys, client, given_up });
        }
        Ok(webhooks)
    }
}

fn client() -> anyhow::Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(https))
}

impl Teller {
    /// Tells of each event, until nobody has any more.
    pub async fn run(mut self) {
        while let Some(event) = self.events.recv().await {
            let Ok(body) = serde_json::to_vec(&*event) else { continue };
            let mut pauses = PAUSES.into_iter();
            while let Err(error) = self.tell(&body).await {
                tracing::debug!(url = %self.url, event = %event.event, %error, "a webhook was not taken");
                let Some(pause) = pauses.next() else {
                    self.given_up.fetch_add(1, Ordering::Relaxed);
                    break;
                };
                sleep(pause).await;
            }
        }
    }

    async fn tell(&self, body: &[u8]) -> anyhow::Result<()> {
        let request = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/webhook+json")
            .header(AUTHORIZATION, sign(&self.keys, body))
            .body(Full::new(Bytes::copy_from_slice(body)))?;
        let told = async {
            let answer = self.client.request(request).await?;
            let status = answer.status();
            // A connection whose answer is read to its end is used again.
            let _nobody_reads_it = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            ensure!(status.is_success(), "{status}");
            Ok(())
        };
        timeout(ANSWER_TIME, told).await?
    }
}

/// A token that says whose this body is.
pub fn sign(keys: &Keys, body: &[u8]) -> String {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    keys.sign(Claims {
        exp: unix + TOKEN_HOLDS_SECONDS,
        nbf: Some(unix),
        sha256: STANDARD.encode(digest::digest(&digest::SHA256, body)),
        ..Claims::default()
    })
}
