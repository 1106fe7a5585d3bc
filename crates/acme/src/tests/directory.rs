//! A directory in memory: what it is asked, and how it answers. Signatures are not looked at; Pebble does that.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};

use super::wall;
use crate::Challenges;

/// What it does with requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Mood {
    /// What it should.
    #[default]
    Fine,
    /// Nobody is there.
    Away,
    /// It says that it has been asked too often.
    Limits,
    /// It finds nobody who has the name.
    Doubts(&'static str),
}

#[derive(Default)]
pub(super) struct State {
    pub(super) mood: Mood,
    pub(super) life: Duration,
    /// How much later it is for us than for it.
    pub(super) behind: Duration,
    /// When certificates are to be renewed, counted from their beginning.
    pub(super) window: Option<(Duration, Duration)>,
    /// Accounts that it knows.
    pub(super) accounts: Vec<String>,
    /// Each by its name and time, and whether it replaces another one.
    pub(super) orders: Vec<(String, SystemTime, bool)>,
    pub(super) requests: usize,
    made: BTreeMap<String, String>,
    from: Option<SystemTime>,
    refused: bool,
    /// Of the server that runs.
    pub(super) challenges: Option<Arc<Challenges>>,
}

pub(super) struct Directory {
    state: Mutex<State>,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

type Answer = (u16, Option<String>, Value);

impl Directory {
    pub(super) fn new(life: Duration) -> Arc<Self> {
        let mut wanted = CertificateParams::default();
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(wanted, key).expect("a certificate");
        let state = State { life, ..State::default() };
        Arc::new(Directory { state: Mutex::new(state), issuer })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let mut state = self.state();
        state.requests += 1;
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let part = |name: &str| -> Value {
            let text = message[name].as_str().unwrap_or_default();
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).expect("base64");
            serde_json::from_slice(&bytes).unwrap_or_default()
        };
        let (protected, payload) = (part("protected"), part("payload"));
        if let Some(account) = protected["kid"].as_str()
            && !state.accounts.iter().any(|known| known == account)
        {
            return problem("accountDoesNotExist", "who?");
        }
        let (what, name) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        let url = |what: &str| format!("https://acme.test/{what}/{name}");
        match (method.as_str(), what) {
            ("GET", "directory") => (200, None, self.directory(state.window.is_some())),
            ("HEAD", _) => (200, None, Value::Null),
            ("GET", "renewal") => {
                let (start, end) = state.window.expect("it is in the directory");
                let at = |after| rfc3339(state.from.expect("there is a certificate") + after);
                (200, None, json!({ "suggestedWindow": { "start": at(start), "end": at(end) } }))
            }
            (_, "account") => {
                let account = format!("https://acme.test/accounts/{}", state.accounts.len());
                state.accounts.push(account.clone());
                (201, Some(account), json!({ "status": "valid" }))
            }
            (_, "new") if state.mood == Mood::Limits => problem("rateLimited", "too many"),
            (_, "new") => {
                let name = payload["identifiers"][0]["value"].as_str().expect("a name").to_owned();
                let replaces = payload["replaces"].clone();
                state.orders.push((name.clone(), wall(), !replaces.is_null()));
                state.refused = false;
                let order = order(&name, "pending", &replaces);
                (201, Some(format!("https://acme.test/order/{name}")), order)
            }
            (_, "authorization") => {
                let refused = json!({ "type": "urn:ietf:params:acme:error:connection", "detail": "nobody answers" });
                let error = if state.refused { refused } else { Value::Null };
                let challenge = json!({ "type": "tls-alpn-01", "url": url("challenge"), "token": "token",
                    "status": "pending", "error": error });
                let of = json!({ "type": "dns", "value": name });
                (200, None, json!({ "identifier": of, "status": "pending", "challenges": [challenge] }))
            }
            (_, "challenge") => {
                let challenges = state.challenges.as_ref().expect("a server runs");
                assert!(challenges.answer(name).is_some(), "it is shown what it comes for");
                state.refused = state.mood == Mood::Doubts(leak(name));
                let challenge = json!({ "type": "tls-alpn-01", "url": url("challenge"), "token": "token",
                    "status": "processing" });
                (200, None, challenge)
            }
            (_, "order") => {
                let status = match state.made.contains_key(name) {
                    true => "valid",
                    false if state.refused => "invalid",
                    false => "ready",
                };
                (200, None, order(name, status, &Value::Null))
            }
            (_, "finalize") => {
                let request = BASE64_URL_SAFE_NO_PAD.decode(payload["csr"].as_str().expect("a request"));
                state.from = Some(wall());
                let pem = self.certificate(
                    name,
                    &request.expect("base64"),
                    wall() - state.behind..wall() - state.behind + state.life,
                );
                state.made.insert(name.to_owned(), pem);
                (200, None, order(name, "processing", &Value::Null))
            }
            (_, "certificate") => (200, None, Value::String(state.made.remove(name).expect("it was made"))),
            _ => panic!("{method} {path}"),
        }
    }

    fn directory(&self, has_windows: bool) -> Value {
        let mut all = json!({ "newNonce": "https://acme.test/nonce", "newAccount": "https://acme.test/account",
            "newOrder": "https://acme.test/new" });
        if has_windows {
            all["renewalInfo"] = "https://acme.test/renewal".into();
        }
        all
    }

    fn certificate(&self, name: &str, request: &[u8], valid: std::ops::Range<SystemTime>) -> String {
        let mut wanted = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (wanted.not_before, wanted.not_after) = (valid.start.into(), valid.end.into());
        wanted.use_authority_key_identifier_extension = true;
        wanted.signed_by(&Requested::new(request), &self.issuer).expect("a certificate").pem()
    }
}

fn leak(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}

fn order(name: &str, status: &str, replaces: &Value) -> Value {
    json!({ "status": status, "authorizations": [format!("https://acme.test/authorization/{name}")],
        "finalize": format!("https://acme.test/finalize/{name}"), "replaces": replaces,
        "certificate": format!("https://acme.test/certificate/{name}") })
}

fn problem(which: &str, detail: &str) -> Answer {
    (403, None, json!({ "type": format!("urn:ietf:params:acme:error:{which}"), "detail": detail }))
}

/// To the second.
fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).expect("later");
    x509_cert::der::DateTime::from_unix_duration(since).expect("a time").to_string()
}

/// The key that a certificate is asked for: a point on P-256, behind what says so.
struct Requested(Vec<u8>);

impl Requested {
    fn new(request: &[u8]) -> Self {
        // The curve's name, and the beginning of a string of bits of 66 bytes.
        const BEFORE: [u8; 14] = [0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 0x03, 0x42, 0, 0x04];
        let at = request.windows(BEFORE.len()).position(|window| window == BEFORE).expect("a key") + 13;
        Requested(request[at..at + 65].to_vec())
    }
}

impl PublicKeyData for Requested {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// As it is asked.
pub(super) struct Line(pub(super) Arc<Directory>);

impl HttpClient for Line {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let directory = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.expect("it is there").to_bytes();
            if directory.state().mood == Mood::Away {
                directory.state().requests += 1;
                return Err(Error::Other("connection refused".into()));
            }
            let (status, location, value) = directory.answer(&head.method, head.uri.path(), &body);
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let mut response =
                Response::builder().status(status).header("Replay-Nonce", "n").header("Retry-After", "0");
            if let Some(location) = location {
                response = response.header("Location", location);
            }
            Ok(response.body(Full::new(Bytes::from(text))).expect("an answer").into())
        })
    }
}
