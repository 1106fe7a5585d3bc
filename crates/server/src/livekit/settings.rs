//! What LiveKit's rooms are to be like.

use std::time::Duration;

use livekit::token::{Claims, Keys};

use crate::config::Config;

/// All settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// API keys and their secrets; the first signs what the server gives out.
    pub keys: Vec<(String, String)>,
    /// Whether who joins a room opens it, when it is not there.
    pub auto_create: bool,
    /// How long a room that nobody has joined stays open.
    pub empty_timeout: Duration,
    /// How long a room that everybody has left stays open.
    pub departure_timeout: Duration,
    /// Participants per room; 0 is as many as are possible.
    pub participants_max: u32,
    /// Whether an application may unmute somebody's track.
    pub remote_unmute: bool,
    /// From so many participants on, those who may not publish are not told of to others; 0 is never.
    pub livestream_from: usize,
    /// So many microphones of a room are heard at a time, the loudest; 0 is all.
    pub loudest: usize,
    /// Signalling connections at a time. Further ones are refused (503).
    pub connections_max: usize,
    /// Where webhooks go.
    pub webhook_urls: Vec<String>,
    /// Name of this machine and of its region, as clients are told.
    pub node: String,
    /// See `node`; may be empty.
    pub region: String,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            keys: Vec::new(),
            auto_create: true,
            empty_timeout: Duration::from_secs(300),
            departure_timeout: Duration::from_secs(20),
            participants_max: 0,
            remote_unmute: false,
            livestream_from: 500,
            loudest: 0,
            connections_max: 10_000,
            webhook_urls: Vec::new(),
            node: "millrace".to_owned(),
            region: String::new(),
        }
    }
}

/// What the configuration says. `None`: there are no such rooms, for want of a key or of rooms at all.
pub(crate) fn settings(config: &Config) -> Option<Settings> {
    let (livekit, keys) = (&config.livekit, keys(config));
    (!keys.is_empty() && !config.workers.bind.is_empty()).then(|| Settings {
        keys,
        auto_create: livekit.auto_create,
        empty_timeout: livekit.empty_timeout,
        departure_timeout: livekit.departure_timeout,
        participants_max: livekit.participants_max,
        remote_unmute: livekit.remote_unmute,
        livestream_from: livekit.livestream_from,
        loudest: livekit.loudest,
        connections_max: livekit.connections_max,
        webhook_urls: livekit.webhooks.iter().map(ToString::to_string).collect(),
        node: livekit.node.clone(),
        region: livekit.region.clone(),
    })
}

/// What is wrong with keys that work all the same, in words: whoever has a token of a key can try secrets on it for as long as he likes.
pub(crate) fn weak_keys(config: &Config) -> impl Iterator<Item = String> {
    let weak = config.livekit.keys.iter().filter(|key| !config.auth.dev && key.secret.len() < SECRET_BYTES);
    weak.map(|key| {
        format!("livekit.keys: the secret of {:?} has less than {SECRET_BYTES} bytes (openssl rand -base64 32)", key.id)
    })
}

/// Of a good secret, as LiveKit's server has it: those of what HS256 makes (RFC 7518 §3.2).
const SECRET_BYTES: usize = 32;

/// Signs a token with the first key. `None`: there is no key.
pub fn sign(config: &Config, claims: Claims) -> Option<String> {
    Some(Keys::new(keys(config)).ok()?.sign(claims))
}

fn keys(config: &Config) -> Vec<(String, String)> {
    let keys: Vec<_> = config.livekit.keys.iter().map(|key| (key.id.clone(), key.secret.clone())).collect();
    if keys.is_empty() && config.auth.dev { vec![DEV_KEY.map(str::to_owned).into()] } else { keys }
}

/// That of LiveKit's own server in its `--dev` mode, by which `lk --dev` signs.
const DEV_KEY: [&str; 2] = ["devkey", "secret"];

/// Codecs that may be published, the preferred of each kind first.
pub(crate) const CODECS: [&str; 7] =
    ["audio/opus", "audio/red", "video/VP8", "video/H264", "video/VP9", "video/AV1", "video/rtx"];
