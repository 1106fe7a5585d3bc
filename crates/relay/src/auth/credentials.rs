//! Keys of users, and the secrets from which passwords for a time are made.
//!
//! Source: RFC 8489 §9.2.2 (keys), §14.4 (hashed names), §18.5 (algorithms); draft-uberti-behave-turn-rest-00 §2.2: the
//! name is `expiry:user`, the password base64(HMAC-SHA1(secret, name)).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

use super::nonce::Features;
use crate::message::Message;

/// So many secrets are tried; those behind them are not known. Two are enough to change one for another.
const SECRET_COUNT_MAX: usize = 8;

/// As PASSWORD-ALGORITHMS has them (RFC 8489 §14.11): SHA-256, then MD5, both without parameters.
pub(super) const OFFERED_ALGORITHMS: [u8; 8] = [0, 2, 0, 0, 0, 1, 0, 0];

/// What makes a key of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    /// The one that the request says its key was made by; MD5 when it says nothing. `None` when that is none of ours, or
    /// somebody took away what was offered with the nonce.
    pub(super) fn of(request: &Message<'_>, features: Features) -> Option<Self> {
        let (chosen, offered) = (request.password_algorithm, request.password_algorithms);
        let may_choose = match (chosen, offered) {
            (None, None) => true,
            _ if !features.password_algorithms => true,
            (chosen, offered) => chosen.is_some() && offered == Some(&OFFERED_ALGORITHMS),
        };
        let chosen = match chosen {
            None | Some([0, 1, 0, 0]) => Algorithm::Md5,
            Some([0, 2, 0, 0]) => Algorithm::Sha256,
            Some(_) => return None,
        };
        may_choose.then_some(chosen)
    }
}

/// The keys of a long-term credential (RFC 8489 §9.2.2); a request says which it uses.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserKeys {
    /// MD5 over `user:realm:password`.
    pub md5: Option<[u8; 16]>,
    /// SHA-256 over the same.
    pub sha256: Option<[u8; 32]>,
}

/// Keys are never written anywhere.
impl fmt::Debug for UserKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (md5, sha256) = (self.md5.is_some(), self.sha256.is_some());
        write!(f, "UserKeys {{ md5: {md5}, sha256: {sha256} }}")
    }
}

impl UserKeys {
    /// Both keys of a password.
    pub fn new(user: &str, realm: &str, password: &str) -> Self {
        let md5 = Self::of_password(user, realm, password, Algorithm::Md5).md5;
        UserKeys { md5, ..Self::of_password(user, realm, password, Algorithm::Sha256) }
    }

    /// One of them.
    pub(super) fn of_password(user: &str, realm: &str, password: &str, algorithm: Algorithm) -> Self {
        let parts = [user, ":", realm, ":", password];
        match algorithm {
            Algorithm::Md5 => {
                let hash = parts.iter().fold(Md5::new(), |hash, part| hash.chain_update(part));
                UserKeys { md5: Some(hash.finalize().into()), sha256: None }
            }
            Algorithm::Sha256 => UserKeys { md5: None, sha256: Some(sha256(&parts)) },
        }
    }

    pub(super) fn key(&self, algorithm: Algorithm) -> Option<&[u8]> {
        match algorithm {
            Algorithm::Md5 => self.md5.as_ref().map(<[u8; 16]>::as_slice),
            Algorithm::Sha256 => self.sha256.as_ref().map(<[u8; 32]>::as_slice),
        }
    }
}

fn sha256(parts: &[&str]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part.as_bytes()));
    let hash = context.finish();
    std::array::from_fn(|index| hash.as_ref()[index])
}

/// A secret that a web service shares with the relay, to hand out passwords for a time.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// Takes it as it is.
    pub fn new(secret: &[u8]) -> Self {
        Secret(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret))
    }

    /// The password of a name.
    pub fn password(&self, name: &str) -> String {
        STANDARD.encode(hmac::sign(&self.0, name.as_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Who is known without a question. Workers share one.
#[derive(Default)]
pub struct Credentials {
    users: HashMap<Arc<str>, UserKeys>,
    by_hash: HashMap<[u8; 32], Arc<str>>,
    secrets: Vec<Secret>,
    /// Not every user has a key of SHA-256.
    lacks_sha256: bool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ users: {}, secrets: {} }}", self.users.len(), self.secrets.len())
    }
}

impl Credentials {
    /// These users, with keys for this realm, and whoever has a password that one of the secrets made.
    pub fn new(
        realm: &str,
        users: impl IntoIterator<Item = (Arc<str>, UserKeys)>,
        secrets: impl IntoIterator<Item = Secret>,
    ) -> Self {
        let users: HashMap<Arc<str>, UserKeys> = users.into_iter().collect();
        let by_hash = users.keys().map(|name| (sha256(&[name, ":", realm]), name.clone())).collect();
        let lacks_sha256 = users.values().any(|keys| keys.sha256.is_none());
        let secrets = secrets.into_iter().take(SECRET_COUNT_MAX).collect();
        Credentials { users, by_hash, secrets, lacks_sha256 }
    }

    /// What may be offered to every user: whoever is chosen by a hash or by a key of SHA-256 has to be found so.
    pub(super) fn features(&self, looks_up: bool) -> Features {
        Features {
            password_algorithms: !looks_up && !self.lacks_sha256,
            user_anonymity: !looks_up && self.secrets.is_empty(),
        }
    }

    pub(super) fn user(&self, name: &str) -> Option<&UserKeys> {
        self.users.get(name)
    }

    pub(super) fn by_hash(&self, hash: &[u8; 32]) -> Option<&Arc<str>> {
        self.by_hash.get(hash)
    }

    /// When a name expires that has the form of a time-limited one, in seconds since 1970. `None`: it has not, or there are
    /// no secrets.
    pub(super) fn expiry(&self, name: &str) -> Option<u64> {
        let expiry = name.split(':').next().filter(|_| !self.secrets.is_empty())?;
        expiry.bytes().all(|digit| digit.is_ascii_digit()).then(|| expiry.parse().ok())?
    }

    /// The password of a name by each secret.
    pub(super) fn passwords(&self, name: &str) -> impl Iterator<Item = String> {
        self.secrets.iter().map(move |secret| secret.password(name))
    }
}

/// The user of a time-limited name; all of a name that is a time alone.
pub(super) fn user_part(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, user)| user)
}
