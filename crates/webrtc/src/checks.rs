//! Connectivity checks as bytes: what is authentic in one session, and what we answer and ask.
//!
//! In: datagrams that say they are STUN, from anybody. Out: messages of the peer's; our own, sealed.
//! Cost: some 2 µs for each HMAC; nothing is kept.
//! Source: RFC 8445 §7.2.2 and §7.3.1, RFC 8489 §9.1 (short-term credentials).

use std::net::SocketAddr;

use str0m::IceCreds;
use str0m::crypto::Sha1HmacProvider;
use str0m::ice::StunMessage;

use crate::Error;
use crate::guard::guarded;
use crate::peer::Refused;
use crate::random;
use crate::reach::Transaction;

/// The longest user fragment of a peer: what str0m writes as a user name, less ours and a colon, in characters.
pub(crate) const UFRAG_MAX: usize = 128 - random::UFRAG_LEN - 1;

/// The priority of a peer-reflexive candidate of ours (RFC 8445 §5.1.2): what we would be, were we one.
const PRIORITY: u32 = (110 << 24) | (65_535 << 8) | 255;

/// Room for a check of ours, with the longest user name, or for an answer.
const BYTES_MAX: usize = 512;

/// The credentials of one ICE session, and what is proved by them.
pub(crate) struct Checks {
    pub local: IceCreds,
    /// `None` before there is an answer.
    pub remote: Option<IceCreds>,
    /// What the ids of our own requests begin with.
    pub tag: [u8; 4],
    hmac: &'static dyn Sha1HmacProvider,
    /// For tests: str0m seems to panic over whatever it reads.
    #[cfg(debug_assertions)]
    pub has_fault: bool,
}

impl Checks {
    pub fn new(local: IceCreds, hmac: &'static dyn Sha1HmacProvider) -> Self {
        Checks {
            local,
            remote: None,
            tag: [0; 4],
            hmac,
            #[cfg(debug_assertions)]
            has_fault: false,
        }
    }

    /// Reads a message, and takes it if its sender knows the password. Who names a session need not be its peer, so nothing is
    /// changed by this, also where str0m panics.
    pub fn read<'a>(&self, data: &'a [u8]) -> Result<StunMessage<'a>, Refused> {
        let read = guarded(|| {
            #[cfg(debug_assertions)]
            assert!(!self.has_fault, "a fault, injected");
            let message = StunMessage::parse(data).map_err(|_| Refused::Malformed)?;
            self.is_authentic(&message).then_some(message).ok_or(Refused::NotAuthentic)
        });
        read.unwrap_or(Err(Refused::Malformed))
    }

    fn is_authentic(&self, message: &StunMessage<'_>) -> bool {
        let Some(remote) = &self.remote else { return false };
        let password = if message.is_binding_request() {
            let is_ours = |(local, other)| local == self.local.ufrag && other == remote.ufrag;
            if !message.split_username().is_some_and(is_ours) {
                return false;
            }
            &self.local.pass
        } else if message.is_successful_binding_response() || message.is_failed_binding_response() {
            &remote.pass
        } else {
            return false;
        };
        message.verify(password.as_bytes(), |key, payloads| self.hmac.sha1_hmac(key, payloads))
    }

    /// Names a new request. What is behind the tag nobody can guess.
    pub fn transaction(&self) -> Result<Transaction, Error> {
        let mut transaction = random::random()?;
        transaction[..4].copy_from_slice(&self.tag);
        Ok(transaction)
    }

    /// A check of ours.
    pub fn request(&self, transaction: Transaction) -> Option<Box<[u8]>> {
        let remote = self.remote.as_ref()?;
        let username = format!("{}:{}", remote.ufrag, self.local.ufrag);
        self.write(&check(&username, transaction, false)?, &remote.pass)
    }

    /// A check as the peer might send it that controls, and nominates.
    pub fn made_up(&self) -> Option<Box<[u8]>> {
        let username = format!("{}:{}", self.local.ufrag, self.remote.as_ref()?.ufrag);
        self.write(&check(&username, self.transaction().ok()?, true)?, &self.local.pass)
    }

    /// The answer to a check, which says where it came from.
    pub fn answer(&self, check: &StunMessage<'_>, from: SocketAddr) -> Option<Box<[u8]>> {
        self.write(&StunMessage::binding_reply(check.trans_id(), from), &self.local.pass)
    }

    /// The answer to a check whose sender does not control, as it should with a lite agent (RFC 8445 §7.3.1.1).
    pub fn role_conflict(&self, check: &StunMessage<'_>) -> Option<Box<[u8]>> {
        self.write(&StunMessage::binding_role_conflict_reply(check.trans_id()), &self.local.pass)
    }

    fn write(&self, message: &StunMessage<'_>, password: &str) -> Option<Box<[u8]>> {
        let mut buf = [0; BYTES_MAX];
        let hmac = |key: &[u8], payloads: &[&[u8]]| self.hmac.sha1_hmac(key, payloads);
        let len = message.to_bytes(Some(password.as_bytes()), &mut buf, hmac).ok()?;
        Some(buf.get(..len)?.into())
    }
}

fn check(username: &str, transaction: Transaction, is_controlling: bool) -> Option<StunMessage<'_>> {
    // A message of no more than a header, since str0m makes an id by drawing or by reading one.
    let header = [&[0, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &transaction].concat();
    let id = StunMessage::parse(&header).ok()?.trans_id();
    // Never zero, which libjuice takes for none at all.
    let tie_breaker = u64::from_be_bytes(random::random().ok()?) | 1;
    Some(StunMessage::binding_request(username, id, is_controlling, tie_breaker, PRIORITY, is_controlling))
}

#[cfg(test)]
impl Checks {
    /// A check as the peer might send it that does not nominate.
    pub fn made_up_without_nomination(&self) -> Option<Box<[u8]>> {
        let username = format!("{}:{}", self.local.ufrag, self.remote.as_ref()?.ufrag);
        let id = check(&username, self.transaction().ok()?, true)?.trans_id();
        self.write(&StunMessage::binding_request(&username, id, true, 1, PRIORITY, false), &self.local.pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;

    #[test]
    fn a_check_with_the_longest_user_fragment_can_be_written() {
        let hmac = Context::new().unwrap().crypto.sha1_hmac_provider;
        let mut checks = Checks::new(random::credentials().unwrap(), hmac);
        for (len, is_written) in [(UFRAG_MAX, true), (UFRAG_MAX + 1, false)] {
            checks.remote = Some(IceCreds { ufrag: "u".repeat(len), pass: "p".repeat(256) });
            assert_eq!(checks.request([1; 12]).is_some(), is_written, "{len}");
        }
    }
}
