//! What one client says to a TURN server before and behind its messages: Allocate, ChannelBind or CreatePermission, Refresh.
//!
//! In: which step is next, the server's answers, the time. Out: requests, to be sent as they are, again while no answer
//! comes, and with the server's realm and nonce when it asks for them.
//! Cost: some allocations and one HMAC for each request, and one for each answer.
//! Source: RFC 8656 §7 to §12, RFC 8489 §6.2.1 and §9.2; for names and passwords of a day draft-uberti-behave-turn-rest-00.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stun_types::attribute::{ErrorCode, Nonce, Realm, Username};
use stun_types::message::{
    IntegrityAlgorithm, IntegrityKey, LongTermKeyCredentials, Message, MessageClass, MessageType, MessageWriteVec,
    Method, StunWriteError,
};
use stun_types::prelude::{MessageWrite as _, MessageWriteExt as _};
use turn_types::AddressFamily;
use turn_types::attribute::{ChannelNumber, Lifetime, RequestedAddressFamily, RequestedTransport, XorPeerAddress};
use turn_types::message::{ALLOCATE, CHANNEL_BIND, CREATE_PERMISSION, REFRESH};
use wire::Random;

/// The channel of each client; the first that there is (RFC 8656 §12).
pub(super) const CHANNEL: u16 = 0x4000;

/// REQUESTED-TRANSPORT's UDP.
pub(super) const UDP: u8 = 17;

/// How long credentials of a shared secret are good for, in seconds.
const DAY: u64 = 86_400;

/// How long an answer is waited for first; twice as long each further time (RFC 8489 §6.2.1).
const WAIT: Duration = Duration::from_millis(500);

/// How often a request is sent at most.
const TRIES_MAX: u32 = 6;

/// How often a server may ask for another nonce in a row.
const NONCES_MAX: u32 = 3;

const SHA1: IntegrityAlgorithm = IntegrityAlgorithm::Sha1;

/// Who all clients of a thread are.
pub(super) struct Credentials {
    user: String,
    password: String,
    /// The key of the realm that was asked for last.
    key: Option<(String, IntegrityKey)>,
}

impl Credentials {
    pub(super) fn of_password(user: &str, password: &str) -> Self {
        Credentials { user: user.to_owned(), password: password.to_owned(), key: None }
    }

    /// Good for a day from `now_s` on, in seconds since 1970.
    pub(super) fn of_secret(user: &str, secret: &str, now_s: u64) -> Self {
        let user = format!("{}:{user}", now_s + DAY);
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
        let password = STANDARD.encode(hmac::sign(&key, user.as_bytes()));
        Credentials { user, password, key: None }
    }

    fn key(&mut self, realm: &str) -> &IntegrityKey {
        let Credentials { user, password, key } = self;
        if key.as_ref().is_none_or(|(known, _)| known != realm) {
            let credentials = LongTermKeyCredentials::new(user.clone(), password.clone(), realm.to_owned());
            *key = Some((realm.to_owned(), credentials.make_key(SHA1)));
        }
        &key.as_ref().expect("it was just made").1
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An allocation of the family that peers have: IPv4 is what nobody needs to ask for.
    Allocate {
        is_ipv6: bool,
    },
    /// A channel to a peer.
    Bind(SocketAddr),
    /// A permission for a peer.
    Permit(SocketAddr),
    Refresh,
    /// No allocation any more.
    Free,
}

impl Step {
    /// What RFC 8656 calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Step::Allocate { .. } => "Allocate",
            Step::Bind(_) => "ChannelBind",
            Step::Permit(_) => "CreatePermission",
            Step::Refresh | Step::Free => "Refresh",
        }
    }
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The step is done.
    Done,
    /// The request is to be sent again, as it is now.
    Again,
    /// The server refuses, by this code.
    Refused(u16),
    /// It is no answer to what was asked.
    NotOurs,
}

/// A request that waits for its answer.
struct Pending {
    step: Step,
    transaction: u128,
    bytes: Vec<u8>,
    tries: u32,
    again_at: Instant,
}

/// One client's side of it.
#[derive(Default)]
pub(super) struct Dialog {
    /// What the server told.
    realm: String,
    nonce: String,
    /// Nonces that it asked for since it agreed to something.
    nonces: u32,
    pending: Option<Pending>,
}

impl Dialog {
    /// Begins a step; what was asked before is forgotten. The request is `bytes`.
    pub(super) fn ask(&mut self, now: Instant, step: Step, credentials: &mut Credentials, random: &mut Random) {
        let transaction = (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())) >> 32;
        let bytes = self.write(step, transaction, credentials).expect("all attributes fit, and come in their order");
        self.pending = Some(Pending { step, transaction, bytes, tries: 1, again_at: now + WAIT });
    }

    /// The request that is to be sent.
    pub(super) fn bytes(&self) -> &[u8] {
        self.pending.as_ref().map_or(&[], |pending| &pending.bytes)
    }

    pub(super) fn step(&self) -> Option<Step> {
        self.pending.as_ref().map(|pending| pending.step)
    }

    fn write(&self, step: Step, transaction: u128, credentials: &mut Credentials) -> Result<Vec<u8>, StunWriteError> {
        let kind = MessageType::from_class_method(MessageClass::Request, method(step));
        let mut message = Message::builder(kind, transaction.into(), MessageWriteVec::with_capacity(256));
        match step {
            Step::Allocate { is_ipv6 } => {
                message.add_attribute(&RequestedTransport::new(UDP))?;
                if is_ipv6 {
                    message.add_attribute(&RequestedAddressFamily::new(AddressFamily::IPV6))?;
                }
            }
            Step::Bind(peer) => {
                message.add_attribute(&ChannelNumber::new(CHANNEL))?;
                message.add_attribute(&XorPeerAddress::new(peer, transaction.into()))?;
            }
            Step::Permit(peer) => message.add_attribute(&XorPeerAddress::new(peer, transaction.into()))?,
            Step::Refresh => {}
            Step::Free => message.add_attribute(&Lifetime::new(0))?,
        }
        if !self.nonce.is_empty() {
            message.add_attribute(&Username::new(&credentials.user)?)?;
            message.add_attribute(&Realm::new(&self.realm)?)?;
            message.add_attribute(&Nonce::new(&self.nonce)?)?;
            message.add_message_integrity_with_key(credentials.key(&self.realm), SHA1)?;
        }
        Ok(message.finish())
    }

    /// Takes what the server sent.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        bytes: &[u8],
        credentials: &mut Credentials,
        random: &mut Random,
    ) -> Answer {
        let (Some(pending), Ok(message)) = (&self.pending, Message::from_bytes(bytes)) else { return Answer::NotOurs };
        let step = pending.step;
        if u128::from(message.transaction_id()) != pending.transaction || message.method() != method(step) {
            return Answer::NotOurs;
        }
        match message.class() {
            MessageClass::Success if self.is_of_who_knows(&message, credentials) => {
                (self.pending, self.nonces) = (None, 0);
                Answer::Done
            }
            MessageClass::Error => {
                let code = message.attribute::<ErrorCode>().map_or(0, |error| error.code());
                let nonce = message.attribute::<Nonce>().map(|nonce| nonce.nonce().to_owned());
                let is_first = code == 401 && self.nonce.is_empty();
                if let Ok(nonce) = nonce
                    && (is_first || code == 438)
                    && self.nonces < NONCES_MAX
                {
                    if let Ok(realm) = message.attribute::<Realm>() {
                        self.realm = realm.realm().to_owned();
                    }
                    (self.nonce, self.nonces) = (nonce, self.nonces + 1);
                    self.ask(now, step, credentials, random);
                    return Answer::Again;
                }
                self.pending = None;
                Answer::Refused(code)
            }
            _ => Answer::NotOurs,
        }
    }

    /// Whether the server that agrees knows the key; of one that asked for none nothing is expected.
    fn is_of_who_knows(&self, message: &Message<'_>, credentials: &mut Credentials) -> bool {
        self.nonce.is_empty() || message.validate_integrity_with_key(credentials.key(&self.realm)).is_ok()
    }

    /// Whether the request is to be sent again by now; `None` when it was sent often enough, or nothing is asked.
    pub(super) fn is_due(&mut self, now: Instant) -> Option<bool> {
        let pending = self.pending.as_mut()?;
        if now < pending.again_at {
            return Some(false);
        }
        if pending.tries >= TRIES_MAX {
            return None;
        }
        pending.again_at = now + WAIT * (1 << pending.tries);
        pending.tries += 1;
        Some(true)
    }
}

fn method(step: Step) -> Method {
    match step {
        Step::Allocate { .. } => ALLOCATE,
        Step::Bind(_) => CHANNEL_BIND,
        Step::Permit(_) => CREATE_PERMISSION,
        Step::Refresh | Step::Free => REFRESH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server's answer to a request.
    fn answer(request: &[u8], error: Option<u16>, key: Option<&IntegrityKey>) -> Vec<u8> {
        let request = Message::from_bytes(request).unwrap();
        let mut message = match error {
            None => Message::builder_success(&request, MessageWriteVec::new()),
            Some(_) => Message::builder_error(&request, MessageWriteVec::new()),
        };
        if let Some(code) = error {
            message.add_attribute(&ErrorCode::new(code, "no").unwrap()).unwrap();
            message.add_attribute(&Realm::new("there").unwrap()).unwrap();
            message.add_attribute(&Nonce::new("once").unwrap()).unwrap();
        }
        if let Some(key) = key {
            message.add_message_integrity_with_key(key, SHA1).unwrap();
        }
        message.finish()
    }

    fn credentials() -> (Credentials, IntegrityKey) {
        let key = LongTermKeyCredentials::new("user".into(), "pass".into(), "there".into()).make_key(SHA1);
        (Credentials::of_password("user", "pass"), key)
    }

    #[test]
    fn a_server_that_asks_who_it_is_hears_it_and_is_believed_if_it_knows_the_key_too() {
        let (now, mut random, (mut own, key)) = (Instant::now(), Random::new(1), credentials());
        let mut dialog = Dialog::default();
        dialog.ask(now, Step::Allocate { is_ipv6: false }, &mut own, &mut random);
        let first = dialog.bytes().to_vec();
        assert_eq!(dialog.handle(now, &answer(&first, Some(401), None), &mut own, &mut random), Answer::Again);
        let second = dialog.bytes().to_vec();
        assert!(Message::from_bytes(&second).unwrap().validate_integrity_with_key(&key).is_ok());
        for (other, what) in [
            (answer(&first, None, Some(&key)), "to what was asked before"),
            (answer(&second, None, None), "of one who does not know the key"),
            (vec![0; 30], "no message"),
        ] {
            assert_eq!(dialog.handle(now, &other, &mut own, &mut random), Answer::NotOurs, "{what}");
        }
        assert_eq!(dialog.handle(now, &answer(&second, None, Some(&key)), &mut own, &mut random), Answer::Done);
        assert_eq!(dialog.step(), None);
    }

    #[test]
    fn a_refusal_ends_the_step_and_a_stale_nonce_does_not_until_there_are_too_many() {
        let (now, mut random, (mut own, _)) = (Instant::now(), Random::new(1), credentials());
        let mut dialog = Dialog::default();
        dialog.ask(now, Step::Refresh, &mut own, &mut random);
        let mut tell = |code| {
            let refusal = answer(dialog.bytes(), Some(code), None);
            dialog.handle(now, &refusal, &mut own, &mut random)
        };
        assert_eq!(
            [401, 438, 438, 438].map(&mut tell),
            [Answer::Again, Answer::Again, Answer::Again, Answer::Refused(438)]
        );
        for code in [401, 486] {
            dialog.ask(now, Step::Allocate { is_ipv6: false }, &mut own, &mut random);
            let refusal = answer(dialog.bytes(), Some(code), None);
            assert_eq!(dialog.handle(now, &refusal, &mut own, &mut random), Answer::Refused(code));
        }
    }

    #[test]
    fn who_has_peers_of_ipv6_asks_for_an_allocation_of_that_family() {
        let (now, mut random, (mut own, _)) = (Instant::now(), Random::new(1), credentials());
        let mut dialog = Dialog::default();
        for is_ipv6 in [false, true] {
            dialog.ask(now, Step::Allocate { is_ipv6 }, &mut own, &mut random);
            let message = Message::from_bytes(dialog.bytes()).unwrap();
            let family = message.attribute::<RequestedAddressFamily>().ok().map(|it| it.family());
            assert_eq!(family, is_ipv6.then_some(AddressFamily::IPV6));
        }
    }

    #[test]
    fn a_request_is_sent_six_times() {
        let (mut now, mut random, (mut own, _)) = (Instant::now(), Random::new(1), credentials());
        let mut dialog = Dialog::default();
        assert_eq!(dialog.is_due(now), None);
        dialog.ask(now, Step::Refresh, &mut own, &mut random);
        let (start, mut sent) = (now, 1);
        while let Some(is_due) = dialog.is_due(now) {
            sent += u32::from(is_due);
            now += Duration::from_millis(100);
        }
        assert_eq!((sent, now - start), (6, Duration::from_millis(500 * 63)));
    }

    #[test]
    fn a_secret_gives_a_name_that_ends_and_its_password() {
        let own = Credentials::of_secret("alice", "north", 1_000_000);
        assert_eq!(own.user, "1086400:alice");
        // printf 1086400:alice | openssl dgst -sha1 -hmac north -binary | base64
        assert_eq!(own.password, "ltY2mBR6FtGBiVBc/HjL8Ek+nlg=");
    }
}
