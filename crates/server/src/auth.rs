//! Who may do what: bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519), signed with HS256 or EdDSA.
//!
//! In: the `Authorization` header of a request. Out: `Rights`, or a `Refusal` that names what is wrong with the token.
//!
//! Beside the registered claims `exp` (needed), `nbf`, `iss`, `aud` and `sub`, a token has one claim of ours:
//! `"millrace": {"publish": ["studio", "event-*"], "watch": ["*"], "admin": false}`. A name ends in `*` to stand for
//! all names that begin so. Who may publish a stream may watch it; an admin may do everything.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::config::{self, Config, ReflectStream};

/// How far the clocks of who signs and who checks may be apart: a token holds for so long after its `exp` and before its
/// `nbf`.
const LEEWAY_SECONDS: u64 = 5;

/// Checks tokens against the configured keys.
pub struct Auth {
    /// Without keys everyone may do everything (`auth.dev`).
    keys: Option<Vec<(Algorithm, DecodingKey)>>,
    validation: Validation,
    /// By which tokens without a subject are told apart.
    hashes: RandomState,
}

/// The keys that count now: others may take their place while the server runs.
pub struct Current(RwLock<Arc<Auth>>);

impl Current {
    /// As they are.
    pub fn get(&self) -> Arc<Auth> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on these count. Sessions go on.
    pub fn replace(&self, auth: Auth) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Who is told apart by a token without a subject stays the same.
        *current = Arc::new(Auth { hashes: current.hashes.clone(), ..auth });
    }
}

impl From<Auth> for Current {
    fn from(auth: Auth) -> Self {
        Current(RwLock::new(Arc::new(auth)))
    }
}

/// The claims of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Who it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    /// Seconds since 1970.
    pub exp: u64,
    /// Seconds since 1970 before which it does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    /// One audience or a list of them (RFC 7519 §4.1.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aud: Option<serde_json::Value>,
    /// What it allows.
    #[serde(default)]
    pub millrace: Rights,
}

/// What the bearer of a token may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    /// Streams that may be published, by name, or by beginning with a `*` at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<String>,
    /// Streams that may be watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch: Vec<String>,
    /// May do everything, also close streams of others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
}

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bearer {
    /// What it may do.
    pub rights: Rights,
    /// Who it is, by its token.
    pub subject: Option<String>,
    /// Tells its token from others where that does not say who it is.
    pub token: Option<u64>,
    /// Until when its token holds, in seconds since 1970. Without tokens that is never over.
    pub expires: Option<u64>,
}

/// Why a request is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Refusal {
    #[error("this needs a token: send the header \"Authorization: Bearer …\"")]
    NoToken,
    #[error("the Authorization header is not of the form \"Bearer …\"")]
    NotBearer,
    #[error("the token {0}")]
    BadToken(String),
    #[error("the token does not let its bearer {0}")]
    NotAllowed(String),
}

/// Why the keys of the configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum KeyError {
    #[error(
        "nobody could get in: set auth.hs256_secret (openssl rand -base64 32) or auth.eddsa_public_key, or for rooms alone livekit.keys (MILLRACE_LIVEKIT_KEYS=KEY:SECRET), or start with --dev to need no token"
    )]
    NoKey,
    #[error("auth.dev lets everyone do everything, and {0} says who may: leave one of them out")]
    DevWithKey(&'static str),
    #[error(
        "auth.eddsa_public_key: not an Ed25519 public key as PEM (make one with: openssl pkey -in key.pem -pubout)"
    )]
    BadPublicKey,
    #[error("not an Ed25519 private key as PEM (make one with: openssl genpkey -algorithm ed25519 -out key.pem)")]
    BadPrivateKey,
}

impl Auth {
    /// Takes the keys of a server. It may have none where somebody gets in without: who watches or joins shows something else, and
    /// only the API and streams that take tokens are closed to all.
    ///
    /// # Errors
    /// As `new`.
    pub fn of(config: &Config) -> Result<Self, KeyError> {
        let is_open = |stream: &ReflectStream| !stream.source.is_empty() || stream.push_token.is_some();
        match Auth::new(&config.auth) {
            Err(KeyError::NoKey) if config.reflect.streams.iter().any(is_open) || !config.livekit.keys.is_empty() => {
                Ok(Auth { keys: Some(Vec::new()), validation: validation(&config.auth), hashes: RandomState::new() })
            }
            other => other,
        }
    }

    /// Takes the keys from the configuration.
    ///
    /// # Errors
    /// Without any key, unless everyone may do everything, and then with one; and when the public key is none.
    pub fn new(config: &config::Auth) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        if let Some(secret) = &config.hs256_secret {
            keys.push((Algorithm::HS256, DecodingKey::from_secret(secret.0.as_bytes())));
        }
        if let Some(pem) = &config.eddsa_public_key {
            keys.push((Algorithm::EdDSA, DecodingKey::from_ed_der(&ed25519_public_key(pem)?)));
        }
        let names = [
            ("auth.hs256_secret", config.hs256_secret.is_some()),
            ("auth.eddsa_public_key", config.eddsa_public_key.is_some()),
        ];
        match (config.dev, names.iter().find(|(_, is_set)| *is_set)) {
            (false, None) => return Err(KeyError::NoKey),
            (true, Some((name, _))) => return Err(KeyError::DevWithKey(name)),
            _ => {}
        }
        let (keys, hashes) = ((!config.dev).then_some(keys), RandomState::new());
        Ok(Auth { keys, validation: validation(config), hashes })
    }

    /// Whether everyone may do everything (`auth.dev`).
    pub fn needs_no_token(&self) -> bool {
        self.keys.is_none()
    }

    /// Whether no token can be good, so that nobody may administer the server.
    pub fn is_closed(&self) -> bool {
        self.keys.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns what the sender of a request may do; `authorization` is the header's value.
    ///
    /// # Errors
    /// When there is no token, or none that holds.
    pub fn rights(&self, authorization: Option<&[u8]>) -> Result<Rights, Refusal> {
        Ok(self.bearer(authorization)?.rights)
    }

    /// Returns who sends a request.
    ///
    /// # Errors
    /// As `rights`.
    pub fn bearer(&self, authorization: Option<&[u8]>) -> Result<Bearer, Refusal> {
        let Some(keys) = &self.keys else { return Ok(Bearer { rights: Rights::all(), ..Bearer::default() }) };
        let token = bearer_token(authorization)?;
        let header = jsonwebtoken::decode_header(token).map_err(|error| bad_token(error.kind()))?;
        let (algorithm, key) = keys
            .iter()
            .find(|(algorithm, _)| *algorithm == header.alg)
            .ok_or_else(|| Refusal::BadToken(format!("is signed with {:?}, which is not accepted here", header.alg)))?;
        let mut validation = self.validation.clone();
        validation.algorithms = vec![*algorithm];
        let claims =
            jsonwebtoken::decode::<Claims>(token, key, &validation).map_err(|error| bad_token(error.kind()))?;
        let Claims { sub, exp, millrace, .. } = claims.claims;
        // What is signed, as one signature may be written in several ways.
        let signed = token.rsplit_once('.').map(|(signed, _)| self.hashes.hash_one(signed));
        let token = signed.filter(|_| sub.is_none());
        Ok(Bearer { rights: millrace, subject: sub, token, expires: Some(exp) })
    }
}

impl Rights {
    /// Those of somebody who may do everything.
    pub fn all() -> Self {
        Rights { admin: true, ..Rights::default() }
    }

    /// Whether a stream may be published.
    pub fn may_publish(&self, stream: &str) -> bool {
        self.admin || self.publish.iter().any(|pattern| covers(pattern, stream))
    }

    /// Whether somebody may publish in a room as this participant. A name that means participants of rooms has a "/", so one
    /// that was given for streams means none of them.
    pub fn may_publish_in(&self, room: &str, identity: &str) -> bool {
        self.admin || self.publish.iter().any(|pattern| covers_in(pattern, room, identity))
    }

    /// Whether somebody may watch this participant of a room.
    pub fn may_watch_in(&self, room: &str, identity: &str) -> bool {
        self.may_publish_in(room, identity) || self.watch.iter().any(|pattern| covers_in(pattern, room, identity))
    }

    /// The names of streams that may be watched, of which some end in `*`.
    pub fn watchable(&self) -> Vec<&str> {
        let all = self.admin.then_some("*").into_iter();
        all.chain(self.publish.iter().chain(&self.watch).map(String::as_str)).collect()
    }

    /// Whether a stream may be watched.
    pub fn may_watch(&self, stream: &str) -> bool {
        self.may_publish(stream) || self.watch.iter().any(|pattern| covers(pattern, stream))
    }
}

/// With what `mint` signs.
pub enum SigningKey<'a> {
    /// A secret that both sides have.
    Hs256(&'a str),
    /// PKCS #8 in PEM ("-----BEGIN PRIVATE KEY-----").
    EdDsaPem(&'a str),
}

/// Makes a token.
///
/// # Errors
/// When the private key is none.
pub fn mint(claims: &Claims, key: SigningKey<'_>) -> Result<String, KeyError> {
    let (algorithm, key) = match key {
        SigningKey::Hs256(secret) => (Algorithm::HS256, EncodingKey::from_secret(secret.as_bytes())),
        SigningKey::EdDsaPem(pem) => {
            let der = pem_content(pem, "PRIVATE KEY").ok_or(KeyError::BadPrivateKey)?;
            (Algorithm::EdDSA, EncodingKey::from_ed_der(&der))
        }
    };
    jsonwebtoken::encode(&Header::new(algorithm), claims, &key).map_err(|_| KeyError::BadPrivateKey)
}

fn validation(config: &config::Auth) -> Validation {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.leeway = LEEWAY_SECONDS;
    validation.validate_nbf = true;
    let mut required = vec!["exp"];
    if let Some(issuer) = &config.issuer {
        validation.set_issuer(&[issuer]);
        required.push("iss");
    }
    match &config.audience {
        Some(audience) => {
            validation.set_audience(&[audience]);
            required.push("aud");
        }
        // A token for several services is fine where no audience is asked for.
        None => validation.validate_aud = false,
    }
    validation.set_required_spec_claims(&required);
    validation
}

/// The token of an `Authorization` header (RFC 6750 §2.1).
///
/// # Errors
/// `NoToken`, `NotBearer`.
pub(crate) fn bearer_token(authorization: Option<&[u8]>) -> Result<&str, Refusal> {
    let token = |authorization| {
        let text: &str = std::str::from_utf8(authorization).ok()?;
        let (scheme, token) = text.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    };
    token(authorization.ok_or(Refusal::NoToken)?).ok_or(Refusal::NotBearer)
}

fn bad_token(kind: &ErrorKind) -> Refusal {
    Refusal::BadToken(match kind {
        ErrorKind::ExpiredSignature => "has expired (exp)".to_owned(),
        ErrorKind::ImmatureSignature => "is not valid yet (nbf)".to_owned(),
        ErrorKind::InvalidSignature => "is signed with another key".to_owned(),
        ErrorKind::InvalidIssuer => "is from another issuer (iss)".to_owned(),
        ErrorKind::InvalidAudience => "is for another audience (aud)".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) => format!("lacks the claim {claim}"),
        ErrorKind::Json(error) => format!("cannot be read: {error}"),
        _ => "is not a JSON Web Token that can be checked here".to_owned(),
    })
}

/// Whether a name of a token means a stream. Names are compared as they are; only a `*` at the end is special.
fn covers(pattern: &str, stream: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => stream.starts_with(prefix),
        None => pattern == stream,
    }
}

/// The same of a participant: "ROOM/IDENTITY", each as a name of a stream.
fn covers_in(pattern: &str, room: &str, identity: &str) -> bool {
    pattern.split_once('/').is_some_and(|(rooms, identities)| covers(rooms, room) && covers(identities, identity))
}

/// The 32 bytes of a SubjectPublicKeyInfo for Ed25519 (RFC 8410 §4), which is a fixed head and the key.
fn ed25519_public_key(pem: &str) -> Result<[u8; 32], KeyError> {
    const HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let der = pem_content(pem, "PUBLIC KEY").ok_or(KeyError::BadPublicKey)?;
    let key = der.strip_prefix(&HEAD).ok_or(KeyError::BadPublicKey)?;
    key.try_into().map_err(|_| KeyError::BadPublicKey)
}

/// What stands between the BEGIN and END lines of a label (RFC 7468).
fn pem_content(pem: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = pem.split_once(&format!("-----BEGIN {label}-----"))?;
    let (content, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let content: String = content.split_ascii_whitespace().collect();
    STANDARD.decode(content).ok()
}
