//! Answers to a peer's checks, once it is connected: by these it asks again and again whether we still want what it sends
//! (RFC 7675 §5.1).
//!
//! In: STUN datagrams from where a session is. Out: the answer to a check that its peer alone can have sent.
//! Cost: two HMACs of some hundred bytes; 40 bytes and a user name are kept.
//! Source: RFC 8445 §7.2.2 and §7.3.1, RFC 8489 §9.1 (short-term credentials).
//!
//! Everything else is the negotiator's: checks from elsewhere, over TCP, with attributes that mean something, or with
//! credentials of before or after a restart; answers; whatever somebody has forged; and one check in `PASS_AFTER`, so that
//! it knows where the peer is though it has missed something.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use srtp::HmacSha1;
use wire::stun::{COOKIE, fingerprint};

use crate::spec::IceCredentials;

/// So often the negotiator hears a check: more than once before it looks for another address of a peer that does not answer.
const PASS_AFTER: Duration = Duration::from_secs(10);

const HEADER_LEN: usize = 20;

/// Bytes of an integrity attribute with its header, and of a fingerprint.
const INTEGRITY_LEN: usize = 4 + srtp::HMAC_LEN;
const FINGERPRINT_LEN: usize = 8;

/// Of a check, up to its integrity: whatever is longer is the negotiator's.
const CHECK_MAX: usize = 512;

/// Of an answer that tells an IPv6 address.
const ANSWER_MAX: usize = HEADER_LEN + 24 + INTEGRITY_LEN + FINGERPRINT_LEN;

/// Attribute types (RFC 8489 §18.3, RFC 8445 §16.1). Those from 0x8000 on need not be understood.
mod attribute {
    pub const USERNAME: u16 = 0x0006;
    pub const MESSAGE_INTEGRITY: u16 = 0x0008;
    pub const XOR_MAPPED_ADDRESS: u16 = 0x0020;
    pub const PRIORITY: u16 = 0x0024;
    pub const USE_CANDIDATE: u16 = 0x0025;
    pub const FINGERPRINT: u16 = 0x8028;
    pub const ICE_CONTROLLED: u16 = 0x8029;
}

/// What a session's peer proves its checks by.
pub struct Consent {
    username: Box<str>,
    hmac: HmacSha1,
    /// When the negotiator heard one last.
    passed: Instant,
}

impl Consent {
    /// `None` where the password is longer than any of ours.
    pub fn new(now: Instant, credentials: IceCredentials) -> Option<Self> {
        let hmac = HmacSha1::new(credentials.password.as_bytes())?;
        Some(Consent { username: credentials.username, hmac, passed: now })
    }

    /// The answer to a check that came from `from`; `None` where it is for somebody else to say what it is.
    pub fn answer(&mut self, now: Instant, check: &[u8], from: SocketAddr) -> Option<Answer> {
        let at = self.find_integrity(check)?;
        let mut buf = [0; CHECK_MAX];
        let covered = buf.get_mut(..at)?;
        covered.copy_from_slice(check.get(..at)?);
        set_length(covered, INTEGRITY_LEN);
        if !self.hmac.verify(covered, check.get(at + 4..at + INTEGRITY_LEN)?) {
            return None;
        }
        if now.saturating_duration_since(self.passed) >= PASS_AFTER {
            self.passed = now;
            return None;
        }
        Some(self.write(check.get(8..HEADER_LEN)?, from))
    }

    /// Where the integrity attribute of a check stands whose every attribute is known here.
    fn find_integrity(&self, check: &[u8]) -> Option<usize> {
        let (header, attributes) = check.split_first_chunk::<HEADER_LEN>()?;
        let &[0, 1, length_high, length_low, cookie0, cookie1, cookie2, cookie3, ..] = header else { return None };
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        if [cookie0, cookie1, cookie2, cookie3] != COOKIE || length != attributes.len() {
            return None;
        }
        let (mut at, mut integrity, mut is_named) = (HEADER_LEN, None, false);
        while at < check.len() {
            let &[kind_high, kind_low, len_high, len_low] = check.get(at..)?.first_chunk()?;
            let len = usize::from(u16::from_be_bytes([len_high, len_low]));
            let value = check.get(at + 4..)?.get(..len)?;
            match u16::from_be_bytes([kind_high, kind_low]) {
                attribute::FINGERPRINT => {}
                _ if integrity.is_some() => return None,
                attribute::USERNAME if value == self.username.as_bytes() => is_named = true,
                attribute::MESSAGE_INTEGRITY if len == srtp::HMAC_LEN && is_named => integrity = Some(at),
                attribute::PRIORITY | attribute::USE_CANDIDATE => {}
                attribute::ICE_CONTROLLED | ..0x8000 => return None,
                _ => {}
            }
            at += 4 + len.next_multiple_of(4);
        }
        integrity.filter(|_| at == check.len())
    }

    fn write(&self, transaction: &[u8], from: SocketAddr) -> Answer {
        let mut answer = Answer::default();
        answer.put(&[1, 1, 0, 0]);
        answer.put(&COOKIE);
        answer.put(transaction);
        match from.ip() {
            IpAddr::V4(ip) => answer.put_address(1, from.port(), &ip.octets()),
            IpAddr::V6(ip) => answer.put_address(2, from.port(), &ip.octets()),
        }
        set_length(answer.bytes_mut(), INTEGRITY_LEN);
        let mac = self.hmac.sign(answer.bytes());
        answer.put_attribute(attribute::MESSAGE_INTEGRITY, &mac);
        set_length(answer.bytes_mut(), FINGERPRINT_LEN);
        let fingerprint = fingerprint(answer.bytes());
        answer.put_attribute(attribute::FINGERPRINT, &fingerprint.to_be_bytes());
        answer
    }
}

/// Has the header of a message say that `more` bytes follow what there is.
fn set_length(message: &mut [u8], more: usize) {
    let length = (message.len() + more - HEADER_LEN) as u16;
    message[2..4].copy_from_slice(&length.to_be_bytes());
}

/// An answer as it goes out. Its lengths are multiples of four, so nothing is padded.
pub struct Answer {
    buf: [u8; ANSWER_MAX],
    len: usize,
}

impl Default for Answer {
    fn default() -> Self {
        Answer { buf: [0; ANSWER_MAX], len: 0 }
    }
}

impl Answer {
    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buf[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buf[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn put_attribute(&mut self, kind: u16, value: &[u8]) {
        self.put(&kind.to_be_bytes());
        self.put(&(value.len() as u16).to_be_bytes());
        self.put(value);
    }

    /// Where the check came from, with cookie and transaction over it (RFC 8489 §14.2).
    fn put_address(&mut self, family: u8, port: u16, ip: &[u8]) {
        let mut value = [0; 20];
        value[1] = family;
        value[2..4].copy_from_slice(&port.to_be_bytes());
        value[4..4 + ip.len()].copy_from_slice(ip);
        let mask = &self.buf[4..HEADER_LEN];
        value[2..4].iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        value[4..].iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        self.put_attribute(attribute::XOR_MAPPED_ADDRESS, &value[..4 + ip.len()]);
    }
}

#[cfg(test)]
mod tests {
    use stun_types::attribute::{AttributeType, RawAttribute, Username, XorMappedAddress};
    use stun_types::message::{
        BINDING, IntegrityAlgorithm, Message, MessageIntegrityCredentials, MessageWriteVec, ShortTermCredentials,
    };
    use stun_types::prelude::{MessageWrite as _, MessageWriteExt as _};

    use super::*;

    const PASSWORD: &str = "0123456789abcdefghijklmn";

    fn consent(now: Instant) -> Consent {
        Consent::new(now, IceCredentials { username: "ours:theirs".into(), password: PASSWORD.into() }).unwrap()
    }

    fn key(password: &str) -> MessageIntegrityCredentials {
        ShortTermCredentials::new(password.to_owned()).into()
    }

    /// As other code than ours writes it, with attributes of these types.
    fn check(username: &str, password: &str, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut check = Message::builder_request(BINDING, MessageWriteVec::new());
        check.add_attribute(&Username::new(username).unwrap()).unwrap();
        for (kind, value) in attributes {
            check.add_attribute(&RawAttribute::new(AttributeType::new(*kind), value)).unwrap();
        }
        check.add_message_integrity(&key(password), IntegrityAlgorithm::Sha1).unwrap();
        check.add_fingerprint().unwrap();
        check.finish()
    }

    /// A browser's: PRIORITY, USE-CANDIDATE, ICE-CONTROLLING and two that are Chromium's own.
    const USUAL: [(u16, &[u8]); 5] =
        [(0x24, &[1, 2, 3, 4]), (0x25, &[]), (0x802a, &[7; 8]), (0xc057, &[0, 1, 0, 10]), (0xc05c, &[1, 2, 3])];

    #[test]
    fn a_check_is_answered_as_other_code_reads_it() {
        let now = Instant::now();
        for from in ["192.0.2.7:4321", "[2001:db8::7]:65535"].map(|from| from.parse().unwrap()) {
            let check = check("ours:theirs", PASSWORD, &USUAL);
            let answer = consent(now).answer(now, &check, from).unwrap();
            // It has read the fingerprint, too.
            let message = Message::from_bytes(answer.bytes()).unwrap();
            assert!(message.is_response() && !message.has_class(stun_types::message::MessageClass::Error));
            let asked = Message::from_bytes(&check).unwrap().transaction_id();
            assert_eq!((message.transaction_id(), message.method()), (asked, BINDING));
            assert_eq!(message.attribute::<XorMappedAddress>().unwrap().addr(asked), from);
            assert_eq!(message.validate_integrity(&key(PASSWORD)).unwrap(), IntegrityAlgorithm::Sha1);
            assert!(message.has_attribute(AttributeType::new(attribute::FINGERPRINT)));
        }
    }

    fn is_answered(check: &[u8]) -> bool {
        let now = Instant::now();
        consent(now).answer(now, check, ([192, 0, 2, 7], 1).into()).is_some()
    }

    #[test]
    fn what_another_has_written_or_means_something_else_is_left_to_the_negotiator() {
        assert!(is_answered(&check("ours:theirs", PASSWORD, &[])));
        assert!(!is_answered(&check("ours:others", PASSWORD, &USUAL)), "from before a restart");
        assert!(!is_answered(&check("ours:theirs", "another", &USUAL)), "forged");
        assert!(!is_answered(&check("ours:theirs", PASSWORD, &[(0x8029, &[7; 8])])), "a conflict of roles");
        assert!(!is_answered(&check("ours:theirs", PASSWORD, &[(0x7f, &[])])), "it has to be understood");
        let long = vec![0; CHECK_MAX];
        assert!(!is_answered(&check("ours:theirs", PASSWORD, &[(0xc0ff, &long)])));
    }

    #[test]
    fn a_check_that_was_cut_or_changed_anywhere_is_not_answered() {
        let check = check("ours:theirs", PASSWORD, &USUAL);
        for len in 0..check.len() {
            assert!(!is_answered(&check[..len]), "{len}");
        }
        // The fingerprint behind the integrity proves nothing that is not proved.
        for at in 0..check.len() - FINGERPRINT_LEN {
            for bit in 0..8 {
                let mut changed = check.clone();
                changed[at] ^= 1 << bit;
                assert!(!is_answered(&changed), "{at}");
            }
        }
    }

    #[test]
    fn one_check_in_ten_seconds_is_the_negotiators() {
        let start = Instant::now();
        let mut consent = consent(start);
        let from = ([192, 0, 2, 7], 1).into();
        let mut left = Vec::new();
        for second in (0..60).step_by(2) {
            let now = start + Duration::from_secs(second);
            // What somebody else has written is no check.
            assert!(consent.answer(now, &check("ours:theirs", "another", &USUAL), from).is_none());
            if consent.answer(now, &check("ours:theirs", PASSWORD, &USUAL), from).is_none() {
                left.push(second);
            }
        }
        assert_eq!(left, [10, 20, 30, 40, 50]);
    }
}
