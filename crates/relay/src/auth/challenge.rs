//! What is answered to a request that is not granted: short, and never sealed.
//!
//! Cost: how long it is says a sum; to write it takes one HMAC, for the nonce; no allocation.
//! Source: RFC 8489 §9.2.4.

use std::net::IpAddr;
use std::ops::Deref;
use std::time::Duration;

use super::credentials::OFFERED_ALGORITHMS;
use super::nonce::{Features, NONCE_LEN_MAX, NonceKey};
use crate::answer::{Code, Writer};
use crate::message::{Class, HEADER_LEN, Message, Method, attribute};

/// There is room for a realm of 127 bytes.
const REPLY_LEN_MAX: usize = 256;

// A reason says nothing that the code does not, and an answer to a stranger is as short as can be.
pub(super) const BAD_REQUEST: Code = (400, "");
pub(super) const UNAUTHORIZED: Code = (401, "");
pub(crate) const STALE_NONCE: Code = (438, "");
/// "The server has suffered a temporary error" (RFC 8489 §14.8).
pub(super) const SERVER_ERROR: Code = (500, "");

/// A whole answer.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The error that it tells.
    pub code: u16,
    bytes: [u8; REPLY_LEN_MAX],
    len: usize,
}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A request, and what an answer to it is made of.
pub(super) struct Challenge<'a> {
    pub(super) request: &'a Message<'a>,
    pub(super) method: Method,
    /// The client is at its address.
    pub(super) is_proved: bool,
    pub(super) realm: &'a str,
    /// What is offered where there is room.
    pub(super) features: Features,
    pub(super) nonces: &'a NonceKey,
    pub(super) address: IpAddr,
    pub(super) unix: Duration,
}

impl Challenge<'_> {
    /// What is to be said besides the code. `None`: nothing at all, as that would be larger than it may be. A 400 and a 500
    /// are shorter than whatever gets them; a 438 is no larger than a request with a nonce like ours.
    pub(super) fn fitting(&self, code: Code) -> Option<Offer> {
        if code == BAD_REQUEST || code == SERVER_ERROR {
            return Some(Offer(None));
        }
        let may_begin = self.method == Method::Allocate
            && matches!(self.request.requested_transport, Some(6 | 17))
            && !self.request.is_malformed;
        let request_len = self.request.bytes.len();
        let len_max = match (self.is_proved, may_begin) {
            (true, _) => REPLY_LEN_MAX,
            (false, true) => request_len * 26 / 10,
            (false, false) => request_len,
        };
        let mut offers = [self.features, Features::default()].into_iter();
        let fitting = offers.find(|features| self.len(*features) <= len_max.min(REPLY_LEN_MAX));
        // With a realm that the operator chose longer than fits nobody could begin otherwise.
        fitting.or(may_begin.then(Features::default)).map(|features| Offer(Some(features)))
    }

    /// Bytes of an answer that offers these.
    fn len(&self, features: Features) -> usize {
        let attribute = |len: usize| 4 + len.next_multiple_of(4);
        let algorithms = if features.password_algorithms { attribute(OFFERED_ALGORITHMS.len()) } else { 0 };
        let fingerprint = if self.has_fingerprint() { attribute(4) } else { 0 };
        HEADER_LEN
            + attribute(4)
            + attribute(self.realm.len())
            + attribute(features.nonce_len())
            + algorithms
            + fingerprint
    }

    /// An answer has one where its request has, unless every byte counts.
    fn has_fingerprint(&self) -> bool {
        self.request.has_fingerprint && self.is_proved
    }

    /// All of it.
    pub(super) fn write(&self, code: Code, Offer(features): Offer) -> Option<Reply> {
        let mut bytes = [0; REPLY_LEN_MAX];
        let mut writer = Writer::new(&mut bytes, Class::Error, self.method, self.request.transaction());
        writer.error(code);
        if let Some(features) = features {
            let mut nonce = [0; NONCE_LEN_MAX];
            let len = self.nonces.write(&mut nonce, features, self.address, self.unix);
            writer.attribute(attribute::REALM, self.realm.as_bytes());
            writer.attribute(attribute::NONCE, &nonce[..len]);
            if features.password_algorithms {
                writer.attribute(attribute::PASSWORD_ALGORITHMS, &OFFERED_ALGORITHMS);
            }
        }
        if self.has_fingerprint() {
            writer.fingerprint();
        }
        let len = writer.finish()?;
        debug_assert!(features.is_none_or(|features| self.len(features) == len), "the sum is right");
        Some(Reply { code: code.0, bytes, len })
    }
}

/// What stands beside the code: nothing, or what the client needs to try again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer(Option<Features>);
