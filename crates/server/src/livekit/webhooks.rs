//! Webhooks: what happens in rooms, told to who runs the application.
//!
//! In: events of the hub. Out: for each URL a POST with the event as JSON and a token whose `sha256` is the body's, signed with
//! the first API key. Those of one room are told one after the other, and no room waits for another's: so many as `AT_ONCE` are told
//! at a time. What is not taken is sent again after one, two and four seconds, and then given up and counted; meanwhile
//! `WAITING_MAX` events wait twice, in the way here and behind their room's, and further ones are dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Request, Uri};
use livekit::proto::WebhookEvent;
use livekit::token::{Claims, Keys};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::{Budget, Rate};

use super::settings::Settings;
use crate::https::{self, Client};

/// Events that wait for one URL.
pub const WAITING_MAX: usize = 1000;
/// Rooms whose events one URL is told at a time.
const AT_ONCE: usize = 32;
/// How often the log says that an event was given up.
const TOLD: Rate = Rate { burst: 1, interval: Duration::from_secs(10) };
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
    events: mpsc::Receiver<Arc<WebhookEvent>>,
    way: Arc<Way>,
}

/// How one URL is told.
struct Way {
    url: Uri,
    keys: SharedKeys,
    client: Client,
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
    /// Of these the first signs what is told.
    pub keys: SharedKeys,
}

/// Keys that may change.
#[derive(Clone)]
pub struct SharedKeys(Arc<RwLock<Keys>>);

impl SharedKeys {
    fn new(keys: Keys) -> Self {
        SharedKeys(Arc::new(RwLock::new(keys)))
    }

    /// These from now on, and no others.
    pub fn set(&self, keys: Keys) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn sign(&self, body: &[u8]) -> String {
        sign(&self.0.read().unwrap_or_else(PoisonError::into_inner), body)
    }
}

impl Webhooks {
    /// One for each URL of the settings.
    ///
    /// # Errors
    /// When a URL is none, or there is no API key.
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let keys = SharedKeys::new(Keys::new(settings.keys.iter().cloned())?);
        let (client, given_up) = (https::client()?, Arc::new(AtomicU64::new(0)));
        let mut webhooks = Webhooks { inlets: Vec::new(), tellers: Vec::new(), given_up, keys: keys.clone() };
        for text in &settings.webhook_urls {
            let url: Uri = text.parse().with_context(|| format!("webhook {text:?}"))?;
            ensure!(matches!(url.scheme_str(), Some("http" | "https")), "webhook {text:?} is no http or https URL");
            let (inlet, events) = mpsc::channel(WAITING_MAX);
            let (keys, client, given_up) = (keys.clone(), client.clone(), webhooks.given_up.clone());
            webhooks.inlets.push(inlet);
            webhooks.tellers.push(Teller { events, way: Arc::new(Way { url, keys, client, given_up }) });
        }
        Ok(webhooks)
    }
}

impl Teller {
    /// Tells of each event, until nobody has any more.
    pub async fn run(self) {
        let Teller { mut events, way } = self;
        // By the room: what waits behind the event that is told.
        let mut waiting: HashMap<String, VecDeque<Arc<WebhookEvent>>> = HashMap::new();
        let (mut count, mut budget) = (0, Budget::new(Instant::now()));
        let mut told: JoinSet<(Arc<WebhookEvent>, bool)> = JoinSet::new();
        let begin = |told: &mut JoinSet<_>, event: Arc<WebhookEvent>| {
            let way = way.clone();
            told.spawn(async move {
                let is_taken = way.deliver(&event).await;
                (event, is_taken)
            });
        };
        loop {
            let has_room = count < WAITING_MAX && told.len() < AT_ONCE;
            tokio::select! {
                Some(Ok((event, is_taken))) = told.join_next() => {
                    if !is_taken && budget.take(Instant::now(), TOLD) {
                        tracing::warn!(url = %way.url, event = %event.event, "a webhook was given up");
                    }
                    let room = room_of(&event);
                    match waiting.get_mut(room).and_then(VecDeque::pop_front) {
                        Some(next) => {
                            count -= 1;
                            begin(&mut told, next);
                        }
                        None => _ = waiting.remove(room),
                    }
                }
                Some(event) = events.recv(), if has_room => match waiting.get_mut(room_of(&event)) {
                    Some(behind) => {
                        count += 1;
                        behind.push_back(event);
                    }
                    None => {
                        waiting.insert(room_of(&event).to_owned(), VecDeque::new());
                        begin(&mut told, event);
                    }
                },
                else => return,
            }
        }
    }
}

fn room_of(event: &WebhookEvent) -> &str {
    event.room.as_ref().map_or("", |room| &room.name)
}

impl Way {
    /// Tells of one event until it is taken, or was told often enough. Returns whether it was taken.
    async fn deliver(&self, event: &WebhookEvent) -> bool {
        let Ok(body) = serde_json::to_vec(event) else { return true };
        let mut pauses = PAUSES.into_iter();
        while let Err(error) = self.tell(&body).await {
            tracing::debug!(url = %self.url, event = %event.event, %error, "a webhook was not taken");
            let Some(pause) = pauses.next() else {
                self.given_up.fetch_add(1, Ordering::Relaxed);
                return false;
            };
            sleep(pause).await;
        }
        true
    }

    async fn tell(&self, body: &[u8]) -> anyhow::Result<()> {
        let request = Request::post(&self.url)
            .header(CONTENT_TYPE, "application/webhook+json")
            .header(AUTHORIZATION, self.keys.sign(body))
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
