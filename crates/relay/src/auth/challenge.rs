//! What is answered to a request that is not granted: short, and never sealed.
//!
//! Cost: one HMAC, for the nonce; no allocation.
//! Source: RFC 8489 §9.2.4.

use std::net::IpAddr;
use std::ops::Deref;
use std::time::Duration;

use super::credentials::OFFERED_ALGORITHMS;
use super::nonce::{Features, NONCE_LEN_MAX, NonceKey};
use crate::answer::{Code, Writer};
use crate::message::{Class, Message, Method, attribute};

/// There is room for a realm of 127 bytes.
const REPLY_LEN_MAX: usize = 256;

// A reason says nothing that the code does not, and an answer to a stranger is as short as can be.
const BAD_REQUEST: Code = (400, "");
const UNAUTHORIZED: Code = (401, "");
const STALE_NONCE: Code = (438, "");
const SERVER_ERROR: Code = (500, "");

/// A whole answer.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
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
    /// 401, with what the client needs to try again.
    pub(super) fn unauthorized(&self) -> Option<Reply> {
        self.with_nonce(UNAUTHORIZED)
    }

    /// 438, with what the client needs to try again. Of a request with a nonce like ours it is no larger than that.
    pub(super) fn stale_nonce(&self) -> Option<Reply> {
        self.with_nonce(STALE_NONCE)
    }

    /// 400. Whoever gets it has sent more than that.
    pub(super) fn bad_request(&self) -> Option<Reply> {
        self.write(BAD_REQUEST, None)
    }

    /// 500: "the server has suffered a temporary error" (RFC 8489 §14.8).
    pub(super) fn unavailable(&self) -> Option<Reply> {
        self.write(SERVER_ERROR, None)
    }

    fn with_nonce(&self, code: Code) -> Option<Reply> {
        let may_begin = self.method == Method::Allocate
            && matches!(self.request.requested_transport, Some(6 | 17))
            && !self.request.is_malformed;
        let request_len = self.request.bytes.len();
        let len_max = match (self.is_proved, may_begin) {
            (true, _) => REPLY_LEN_MAX,
            (false, true) => request_len * 26 / 10,
            (false, false) => request_len,
        };
        let fitting = |features| self.write(code, Some(features)).filter(|reply| reply.len <= len_max);
        let short = || fitting(Features::default());
        // With a realm that the operator chose longer than fits nobody could begin otherwise.
        let at_least = || self.write(code, Some(Features::default())).filter(|_| may_begin);
        fitting(self.features).or_else(short).or_else(at_least)
    }

    fn write(&self, code: Code, features: Option<Features>) -> Option<Reply> {
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
        let len = writer.finish()?;
        Some(Reply { bytes, len })
    }
}
