//! Who may use the relay: long-term credentials (RFC 8489 §9.2), of users that are known here, of users that control looks
//! up, and such as a web service hands out for a time.
//!
//! In: requests, and what was found of users. Out: who sent a request and how its answer is sealed, or the answer that it
//! gets instead.
//! Cost: before a request has proved anything one HMAC, of its nonce; nothing is remembered of it. With a nonce of ours two
//! to three more, and for a time-limited credential two for each secret; so many may fail at one address, and then only who
//! has an allocation there is heard.
//! Source: RFC 8489 §9.2.4, §14; draft-uberti-behave-turn-rest-00.
//!
//! A nonce is looked at before a name or a key is. It was given to an address, so who brings one is at that address:
//! everything dearer than a nonce waits for that, and so does every answer that is larger than its request, but for the
//! first 401. That goes to an Allocate that is whole and names a transport, and is no larger than 2.6 times the request
//! (as long as the realm has no more than 20 bytes); SHA-256 and hashed names are offered in it where there is room for
//! the offer, as it is in a request with FINGERPRINT or SOFTWARE, and always on a connection.

mod challenge;
mod credentials;
mod failures;
mod found;
mod generations;
mod nonce;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::{constant_time, hmac};
use wire::{Path, Token};

use crate::answer::Seal;
use crate::drops::DropReason;
use crate::limits::Limits;
use crate::message::{Class, Integrity, Message, Method};
use crate::spec::{FailedProof, ProofError};
use challenge::Challenge;
use credentials::Algorithm;
use failures::Failures;
use found::{Answers, Outcome};

pub use challenge::Reply;
pub(crate) use challenge::STALE_NONCE;
pub use credentials::{Credentials, Secret, UserKeys};
pub use found::{Found, Waiting};
pub use nonce::NonceKey;

/// A longer user name is none (RFC 8489 §14.3).
const USERNAME_LEN_MAX: usize = 508;

/// What decides about requests.
#[derive(Clone, Debug)]
pub struct AuthSettings {
    /// By which nonces are known; the same for all workers, and another one in each process.
    pub nonce_key: NonceKey,
    /// An older nonce is answered by a new one (438).
    pub nonce_age_max: Duration,
    /// Who is known without a question.
    pub credentials: Arc<Credentials>,
    /// Other users are asked for (`Authority::poll_lookup`).
    pub looks_up: bool,
    /// A time-limited credential that has expired is worth nothing any more. Otherwise it begins no allocation, but keeps
    /// what it has begun: a call outlasts it.
    pub strict_expiry: bool,
}

impl AuthSettings {
    /// The defaults: nobody is known.
    pub fn new(nonce_key: NonceKey) -> Self {
        AuthSettings {
            nonce_key,
            nonce_age_max: Duration::from_secs(3_600),
            credentials: Arc::default(),
            looks_up: false,
            strict_expiry: false,
        }
    }
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The link that it came on, by the name that we gave it.
    pub token: Token,
    /// The way it came.
    pub path: Path,
    /// Its address, as it is told.
    pub address: SocketAddr,
    /// The address is the sender's: there was a handshake (TCP, TLS, DTLS).
    pub is_proved: bool,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Verdict {
    /// It is from who it says.
    Granted(Granted),
    /// It is not, or does not say. This is the whole answer.
    Answer(Reply),
    /// It is not, and nothing is said.
    Silence(DropReason),
    /// Its user is looked up; it comes back from `Authority::handle_found`.
    Waits,
}

/// Whose request it is.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The user, for quotas and for what he owns. Of a time-limited credential the part behind the expiry.
    pub user: Arc<str>,
    /// What the answer is sealed with.
    pub seal: Seal,
}

/// Decides about the requests of one worker.
#[derive(Debug)]
pub struct Authority {
    realm: Arc<str>,
    /// An instant and the time since 1970 at it, by which nonces grow old: it is never set anew.
    epoch: (Instant, Duration),
    /// The same by which credentials expire.
    clock: (Instant, Duration),
    settings: AuthSettings,
    answers: Answers,
    failures: Failures,
}

impl Authority {
    /// One that has asked for nobody yet.
    pub fn new(realm: Arc<str>, epoch: (Instant, Duration), settings: AuthSettings) -> Self {
        let (answers, failures) = (Answers::default(), Failures::new(epoch.0));
        Authority { realm, epoch, clock: epoch, settings, answers, failures }
    }

    /// Decides about a request other than Binding. `owner` is who has the allocation of its five-tuple: he goes on whatever
    /// others do at his address, or in its name.
    pub fn judge(
        &mut self,
        now: Instant,
        client: &Client,
        owner: Option<&str>,
        request: &Message<'_>,
        limits: &mut Limits,
    ) -> Verdict {
        let (Class::Request, Some(method)) = (request.class, request.method) else {
            return Verdict::Silence(DropReason::UnexpectedStun);
        };
        let refusal = match self.prove(now, client, owner, request, limits) {
            Ok(granted) => return Verdict::Granted(granted),
            Err(refusal) => refusal,
        };
        if let Refusal::Unproved(error) = refusal {
            self.failures.note(now, client.address, request.username, error);
        }
        let code = match refusal {
            Refusal::Unproved(ProofError::TooManyAttempts) => return Verdict::Silence(DropReason::AttemptsSpent),
            Refusal::Unauthorized | Refusal::Unproved(_) => challenge::UNAUTHORIZED,
            Refusal::OldNonce | Refusal::NoNonce => challenge::STALE_NONCE,
            Refusal::BadRequest => challenge::BAD_REQUEST,
            Refusal::Unavailable => challenge::SERVER_ERROR,
            Refusal::Waits => return Verdict::Waits,
        };
        let address = client.path.remote.ip();
        let challenge = Challenge {
            request,
            method,
            is_proved: client.is_proved || matches!(refusal, Refusal::Unproved(_)),
            realm: &self.realm,
            features: self.settings.credentials.features(self.settings.looks_up),
            nonces: &self.settings.nonce_key,
            address,
            unix: since_1970(self.epoch, now),
        };
        let Some(offer) = challenge.fitting(code) else { return Verdict::Silence(DropReason::NotAnswered) };
        match refusal {
            // Who brings a nonce of ours is at his address. A flood in the name of that address keeps nobody from a new one.
            Refusal::OldNonce => {}
            // Whoever completed a handshake to be asked for credentials got that far by other limits.
            Refusal::Unauthorized if client.is_proved => {}
            Refusal::Unproved(_) | Refusal::Unavailable if !limits.take_attempt(now, address) => {
                return Verdict::Silence(DropReason::AttemptsSpent);
            }
            Refusal::Unproved(_) | Refusal::Unavailable => {}
            _ if limits.take(now, address) => {}
            _ => return Verdict::Silence(DropReason::UnauthenticatedBudgetSpent),
        }
        challenge.write(code, offer).map_or(Verdict::Silence(DropReason::NotAnswered), Verdict::Answer)
    }

    /// The steps of RFC 8489 §9.2.4, the nonce first.
    fn prove(
        &mut self,
        now: Instant,
        client: &Client,
        owner: Option<&str>,
        request: &Message<'_>,
        limits: &mut Limits,
    ) -> Result<Granted, Refusal> {
        let integrity = request.integrity().ok_or(Refusal::Unauthorized)?;
        let (Some(realm), Some(nonce)) = (request.realm, request.nonce) else { return Err(Refusal::BadRequest) };
        let is_named = request.username.is_some() || request.userhash.is_some();
        if request.is_malformed || !is_named || request.username.is_some_and(|name| name.len() > USERNAME_LEN_MAX) {
            return Err(Refusal::BadRequest);
        }
        let address = client.path.remote.ip();
        let (features, age) =
            self.settings.nonce_key.read(nonce, address, since_1970(self.epoch, now)).ok_or(Refusal::NoNonce)?;
        if age > self.settings.nonce_age_max {
            return Err(Refusal::OldNonce);
        }
        let algorithm = Algorithm::of(request, features).ok_or(Refusal::BadRequest)?;
        if realm != self.realm.as_bytes() {
            return Err(Refusal::Unproved(ProofError::WrongRealm));
        }
        let name = self.name(request).ok_or(Refusal::Unproved(ProofError::UnknownUser))?;
        let is_owner = owner.is_some_and(|owner| *owner == *name || owner == credentials::user_part(&name));
        if !is_owner && !limits.may_attempt(now, address) {
            return Err(Refusal::Unproved(ProofError::TooManyAttempts));
        }
        let proved_by = |keys: &UserKeys| {
            let key = keys.key(algorithm).ok_or(Refusal::Unproved(ProofError::NoKey))?;
            integrity.proved_by(request, key)
        };
        if let Some(keys) = self.settings.credentials.user(&name) {
            return proved_by(keys).map(|seal| Granted { user: name, seal });
        }
        if let Some(expiry) = self.settings.credentials.expiry(&name) {
            let is_in_time = self.is_in_time(now, expiry, request);
            for password in is_in_time.then(|| self.settings.credentials.passwords(&name)).into_iter().flatten() {
                if let Ok(seal) = proved_by(&UserKeys::of_password(&name, &self.realm, &password, algorithm)) {
                    return Ok(Granted { user: credentials::user_part(&name).into(), seal });
                }
            }
            // A number alone may be a time, and somebody's name as well, such as a telephone's.
            if name.contains(':') || !self.settings.looks_up {
                let error = if is_in_time { ProofError::WrongPassword } else { ProofError::Expired };
                return Err(Refusal::Unproved(error));
            }
        }
        let tried_at = (!is_owner).then_some(address);
        let keys = self.look_up(now, client, request, &name, tried_at, limits)?;
        let seal = proved_by(&keys)?;
        if self.answers.has_proved(&name, address) {
            limits.give_attempt_back(now, address);
        }
        Ok(Granted { user: name, seal })
    }

    /// Whether a time-limited credential is good for a request. Every method but Allocate needs an allocation of the same user,
    /// which the credential began.
    fn is_in_time(&self, now: Instant, expiry: u64, request: &Message<'_>) -> bool {
        let may_be_late = !self.settings.strict_expiry && request.method != Some(Method::Allocate);
        may_be_late || since_1970(self.clock, now).as_secs() < expiry
    }

    /// Who it says that it is from.
    fn name(&self, request: &Message<'_>) -> Option<Arc<str>> {
        match (request.username, request.userhash) {
            (Some(name), _) => Some(str::from_utf8(name).ok()?.into()),
            (None, Some(hash)) => self.settings.credentials.by_hash(&hash).cloned(),
            (None, None) => None,
        }
    }

    /// The keys of a user whom control knows. To ask for a stranger takes a try where he is.
    fn look_up(
        &mut self,
        now: Instant,
        client: &Client,
        request: &Message<'_>,
        name: &Arc<str>,
        tried_at: Option<IpAddr>,
        limits: &mut Limits,
    ) -> Result<UserKeys, Refusal> {
        if !self.settings.looks_up || name.is_empty() {
            return Err(Refusal::Unproved(ProofError::UnknownUser));
        }
        let may_ask = || tried_at.is_none_or(|address| limits.take_attempt(now, address));
        match self.answers.find(now, name, tried_at, may_ask) {
            Outcome::Keys(keys) => Ok(keys),
            Outcome::Nobody => Err(Refusal::Unproved(ProofError::UnknownUser)),
            Outcome::Asked if self.answers.wait(name, client, request) => Err(Refusal::Waits),
            Outcome::Asked | Outcome::Unavailable => Err(Refusal::Unavailable),
        }
    }

    /// Takes what was found of a user. Returns the requests that waited for it, to be handled as if they came now.
    pub fn handle_found(&mut self, now: Instant, user: &Arc<str>, found: Found) -> Vec<Waiting> {
        self.answers.handle_found(now, user, found)
    }

    /// The next user who is to be looked up.
    pub fn poll_lookup(&mut self) -> Option<Arc<str>> {
        self.answers.poll_lookup()
    }

    /// The next proof that failed, and is to be told.
    pub fn poll_failure(&mut self) -> Option<FailedProof> {
        self.failures.poll()
    }

    /// Knows these users and secrets from now on, and no others.
    pub fn replace(&mut self, credentials: Arc<Credentials>) {
        self.settings.credentials = credentials;
    }

    /// Takes another instant and the time since 1970 at it: the host's clock was set.
    pub fn set_clock(&mut self, clock: (Instant, Duration)) {
        self.clock = clock;
    }
}

fn since_1970((then, unix): (Instant, Duration), now: Instant) -> Duration {
    unix + now.saturating_duration_since(then)
}

/// Why a request is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It has nothing that could prove it.
    Unauthorized,
    /// Its proof is none, but it brought a nonce that was given to its address.
    Unproved(ProofError),
    /// Its nonce was given to its address, a while ago.
    OldNonce,
    /// Its nonce is none of ours, or another address's.
    NoNonce,
    /// It lacks something, or something in it is wrong.
    BadRequest,
    /// Its user could not be looked up.
    Unavailable,
    /// Its user is being looked up.
    Waits,
}

impl<'a> Message<'a> {
    /// The stronger of the attributes that may prove it, and what it is made by.
    fn integrity(&self) -> Option<Proof<'a>> {
        let sha256 = self.integrity_sha256.map(|integrity| Proof { integrity, seal: Seal::sha256 });
        sha256.or(self.integrity.map(|integrity| Proof { integrity, seal: Seal::sha1 }))
    }
}

/// An integrity attribute of a kind.
struct Proof<'a> {
    integrity: Integrity<'a>,
    seal: fn(&[u8]) -> Seal,
}

impl Proof<'_> {
    /// The seal of the answer, when the request was sealed with this key.
    fn proved_by(&self, request: &Message<'_>, key: &[u8]) -> Result<Seal, Refusal> {
        let seal = (self.seal)(key);
        let (Seal::Sha1(key) | Seal::Sha256(key)) = &seal;
        let mut context = hmac::Context::with_key(key);
        context.update(&request.bytes[..2]);
        context.update(&self.integrity.covered_length().to_be_bytes());
        context.update(&request.bytes[4..self.integrity.at]);
        // TURN truncates no HMAC: one that is shorter is not equal.
        constant_time::verify_slices_are_equal(context.sign().as_ref(), self.integrity.mac)
            .map(|()| seal)
            .map_err(|_| Refusal::Unproved(ProofError::WrongPassword))
    }
}

/// The bytes of an address, the same for an IPv4 address and its mapped form.
fn octets(address: IpAddr) -> [u8; 16] {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
