//! The cookie: a client shows that it receives where it says it is, before anything is kept of it.
//!
//! In: a datagram of somebody unknown, and the time. Out: whether it is a ClientHello with a cookie of ours; else what to
//! answer, which is shorter than what came.
//! Cost: an HMAC for a cookie that may be ours, another for an answer, where there is to be one, and no memory.
//! Source: RFC 6347 §4.2.1 (cookies), §4.1 (records), §4.2.2 (handshake messages).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};

use crate::record::{HEADER_LEN, Header, content};

/// Bytes of a cookie.
const COOKIE_LEN: usize = 20;

/// For how long a cookie is good, at least; at most twice as long. It comes back at once, or with the first repetitions.
const AGE_MAX: Duration = Duration::from_secs(5);

/// How far a client may have counted: it has sent a hello or two, and repeated them. What is beyond that was not counted, and
/// the handshake counts on from there, in numbers of 16 and 48 bits.
const RECORD_MAX: u64 = u32::MAX as u64;
const MESSAGE_MAX: u16 = 255;

const MESSAGE_HEADER_LEN: usize = 12;
const RANDOM_LEN: usize = 32;

const CLIENT_HELLO: u8 = 1;
const HELLO_VERIFY_REQUEST: u8 = 3;

/// Bytes of the body of a HelloVerifyRequest: a version, the cookie and its length.
const VERIFY_BODY_LEN: usize = 2 + 1 + COOKIE_LEN;

/// Bytes of a HelloVerifyRequest in its record.
pub const HELLO_VERIFY_LEN: usize = HEADER_LEN + MESSAGE_HEADER_LEN + VERIFY_BODY_LEN;

/// Bytes of an alert in its record.
pub const ALERT_LEN: usize = HEADER_LEN + 2;

/// An alert's two bytes: fatal, protocol_version (RFC 5246 §7.2.2).
const PROTOCOL_VERSION: [u8; 2] = [2, 70];

/// Bytes of the shortest ClientHello: a version, random bytes, and four vectors with nothing in them.
const HELLO_LEN_MIN: usize = HEADER_LEN + MESSAGE_HEADER_LEN + 2 + RANDOM_LEN + 1 + 1 + 2 + 1;

const _: () = assert!(HELLO_VERIFY_LEN < HELLO_LEN_MIN, "who forges an address gets less than he sends");

/// Makes cookies, and knows them again.
pub struct Cookies {
    key: Key,
}

/// What somebody unknown has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello {
    /// A ClientHello with a cookie of ours: a handshake may begin with it.
    Verified(Numbers),
    /// A ClientHello without one: this is the answer (HelloVerifyRequest).
    Unverified([u8; HELLO_VERIFY_LEN]),
    /// A ClientHello of who knows DTLS 1.0 alone: this says so (protocol_version), and he need not wait.
    TooOld([u8; ALERT_LEN]),
    /// One of these two, and there is to be no answer.
    NotAnswered,
    /// Something else, or a ClientHello in pieces, or with a number that nobody counts up to.
    None,
}

/// How far a client has counted by the time of its ClientHello; the server counts on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Of the record.
    pub record: u64,
    /// Of the handshake message.
    pub message: u16,
}

impl Cookies {
    /// The secret is nobody else's.
    pub fn new(secret: &[u8; 32]) -> Self {
        Cookies { key: Key::new(HMAC_SHA256, secret) }
    }

    /// Looks at a datagram from there. `now` is counted from any fixed time. `may_answer` is asked whether there is an answer
    /// for it where it needs one, before that is made.
    pub fn check(&self, now: Duration, from: SocketAddr, datagram: &[u8], may_answer: impl FnOnce() -> bool) -> Hello {
        let Some(hello) = ClientHello::parse(datagram) else { return Hello::None };
        // Versions count down. DTLS 1.3 calls itself 1.2 here.
        if hello.before_cookie[..2] > [0xfe, 0xfd][..] {
            return if may_answer() { Hello::TooOld(alert(datagram, PROTOCOL_VERSION)) } else { Hello::NotAnswered };
        }
        let slot = now.as_secs() / AGE_MAX.as_secs();
        // It says itself when it was made, so that there is one to compare it with.
        let made = |slot: &u64| hello.cookie.len() == COOKIE_LEN && hello.cookie[0] == *slot as u8;
        let made_in = [Some(slot), slot.checked_sub(1)].into_iter().flatten().find(made);
        let is_ours = |slot| verify_slices_are_equal(hello.cookie, &self.cookie(slot, from, &hello)).is_ok();
        if made_in.is_some_and(is_ours) {
            return Hello::Verified(hello.numbers);
        }
        if !may_answer() {
            return Hello::NotAnswered;
        }
        Hello::Unverified(hello.verify_request(datagram, self.cookie(slot, from, &hello)))
    }

    /// A cookie is for one address and for what a client must not change when it comes back, for a while. Its first byte says
    /// for which.
    fn cookie(&self, slot: u64, from: SocketAddr, hello: &ClientHello<'_>) -> [u8; COOKIE_LEN] {
        let mut context = Context::with_key(&self.key);
        context.update(&slot.to_be_bytes());
        match from.ip() {
            IpAddr::V4(ip) => context.update(&ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => context.update(&ip.octets()),
        }
        context.update(&from.port().to_be_bytes());
        context.update(hello.before_cookie);
        context.update(hello.behind_cookie);
        let mut cookie = *context.sign().as_ref().first_chunk().expect("a MAC of SHA-256 has 32 bytes");
        cookie[0] = slot as u8;
        cookie
    }
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookies(…)")
    }
}

/// A ClientHello in one piece, alone in its datagram.
struct ClientHello<'a> {
    numbers: Numbers,
    /// Version, random bytes and session id.
    before_cookie: &'a [u8],
    cookie: &'a [u8],
    /// Cipher suites and compression methods. What follows, the extensions, may be others the next time.
    behind_cookie: &'a [u8],
}

impl<'a> ClientHello<'a> {
    fn parse(datagram: &'a [u8]) -> Option<Self> {
        let header = Header::read(datagram)?;
        if header.content != content::HANDSHAKE || header.epoch != 0 || header.len != datagram.len() {
            return None;
        }
        let (message, body) = datagram[HEADER_LEN..].split_first_chunk::<MESSAGE_HEADER_LEN>()?;
        let [CLIENT_HELLO, a, b, c, number_high, number_low, ..] = *message else { return None };
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // The fragment begins at its beginning, and is all of it.
        let is_whole = message[6..9] == [0; 3] && message[9..12] == message[1..4] && length == body.len();
        if !is_whole {
            return None;
        }
        let (before_cookie, rest) = split_vector(body, 2 + RANDOM_LEN, 1)?;
        let (cookie, rest) = split_vector(rest, 0, 1)?;
        let (suites, behind) = split_vector(rest, 0, 2)?;
        let (compression, _) = split_vector(behind, 0, 1)?;
        let numbers = Numbers { record: header.seq, message: u16::from_be_bytes([number_high, number_low]) };
        if numbers.record > RECORD_MAX || numbers.message > MESSAGE_MAX {
            return None;
        }
        let behind_cookie = &rest[..suites.len() + compression.len()];
        Some(ClientHello { numbers, before_cookie, cookie: &cookie[1..], behind_cookie })
    }

    /// The answer has the numbers of what it answers.
    fn verify_request(&self, datagram: &[u8], cookie: [u8; COOKIE_LEN]) -> [u8; HELLO_VERIFY_LEN] {
        let mut all = [0; HELLO_VERIFY_LEN];
        let (header, message) = all.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&datagram[..HEADER_LEN]);
        header[HEADER_LEN - 2..].copy_from_slice(&((MESSAGE_HEADER_LEN + VERIFY_BODY_LEN) as u16).to_be_bytes());
        message[0] = HELLO_VERIFY_REQUEST;
        (message[3], message[11]) = (VERIFY_BODY_LEN as u8, VERIFY_BODY_LEN as u8);
        message[4..6].copy_from_slice(&self.numbers.message.to_be_bytes());
        // It says DTLS 1.0, whatever comes of it.
        message[12..15].copy_from_slice(&[0xfe, 0xff, COOKIE_LEN as u8]);
        message[15..].copy_from_slice(&cookie);
        all
    }
}

/// An alert that has the number of the record that it answers.
fn alert(datagram: &[u8], says: [u8; 2]) -> [u8; ALERT_LEN] {
    let mut all = [0; ALERT_LEN];
    all[..HEADER_LEN].copy_from_slice(&datagram[..HEADER_LEN]);
    (all[0], all[HEADER_LEN - 2], all[HEADER_LEN - 1]) = (content::ALERT, 0, says.len() as u8);
    all[HEADER_LEN..].copy_from_slice(&says);
    all
}

/// Takes so many bytes, and behind them a vector whose length is told by so many (RFC 5246 §4.3); and what is left.
fn split_vector(bytes: &[u8], before: usize, length_len: usize) -> Option<(&[u8], &[u8])> {
    let length = bytes.get(before..before + length_len)?;
    let len = length.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
    bytes.split_at_checked(before + length_len + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7);
    const NOW: Duration = Duration::from_secs(10_000);

    /// A ClientHello with that cookie and extensions, with that number of its own and of its record.
    fn hello_with(number: u8, cookie: &[u8], extensions: &[u8]) -> Vec<u8> {
        let before = [&[0xfe, 0xfd][..], &[9; RANDOM_LEN], &[2, 1, 1]].concat();
        let body = [&before[..], &[cookie.len() as u8], cookie, &[0, 2, 0xc0, 0x2b, 1, 0], extensions].concat();
        let len = body.len() as u8;
        let message = [1, 0, 0, len, 0, number, 0, 0, 0, 0, 0, len];
        let header = [22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, number, 0, len + 12];
        [&header[..], &message, &body].concat()
    }

    fn hello(number: u8, cookie: &[u8]) -> Vec<u8> {
        hello_with(number, cookie, &[])
    }

    fn verified(number: u8) -> Hello {
        Hello::Verified(Numbers { record: number.into(), message: number.into() })
    }

    /// The cookie that somebody is asked to come back with.
    fn asked(cookies: &Cookies, now: Duration, from: SocketAddr) -> Vec<u8> {
        let hello = hello(0, &[]);
        let Hello::Unverified(answer) = cookies.check(now, from, &hello, || true) else { panic!("it has none") };
        assert!(answer.len() < hello.len() && answer[..11] == hello[..11], "{answer:?}");
        assert_eq!((answer[13], answer[27]), (HELLO_VERIFY_REQUEST, COOKIE_LEN as u8));
        answer[28..].to_vec()
    }

    #[test]
    fn who_comes_back_with_his_cookie_is_known_and_nobody_else() {
        let cookies = Cookies::new(&[1; 32]);
        let cookie = asked(&cookies, NOW, FROM);
        assert_eq!(cookies.check(NOW, FROM, &hello(5, &cookie), || true), verified(5));
        assert_eq!(
            cookies.check(NOW, FROM, &hello_with(1, &cookie, &[0, 0]), || true),
            verified(1),
            "extensions may change"
        );
        let elsewhere = [SocketAddr::new(FROM.ip(), 8), SocketAddr::new([127, 0, 0, 2].into(), 7)];
        let changed = |at: usize| {
            let mut other = hello(1, &cookie);
            other[at] ^= 1;
            other
        };
        let (random, last_of_cookie, suite) = (30, 13 + 12 + 34 + 3 + COOKIE_LEN, hello(1, &cookie).len() - 3);
        for (from, datagram) in [
            (elsewhere[0], hello(1, &cookie)),
            (elsewhere[1], hello(1, &cookie)),
            (FROM, changed(random)),
            (FROM, changed(last_of_cookie)),
            (FROM, changed(suite)),
            (FROM, hello(1, &cookie[..19])),
            (FROM, hello(1, &[0; COOKIE_LEN])),
        ] {
            assert!(matches!(cookies.check(NOW, from, &datagram, || true), Hello::Unverified(_)), "{datagram:?}");
        }
        let others = Cookies::new(&[2; 32]);
        assert!(matches!(others.check(NOW, FROM, &hello(1, &cookie), || true), Hello::Unverified(_)));
    }

    #[test]
    fn a_cookie_is_good_for_a_while() {
        let cookies = Cookies::new(&[1; 32]);
        let cookie = asked(&cookies, NOW, FROM);
        let check = |later| cookies.check(NOW + later, FROM, &hello(1, &cookie), || true);
        assert_eq!(check(AGE_MAX), verified(1));
        assert!(matches!(check(2 * AGE_MAX), Hello::Unverified(_)));
        assert!(matches!(cookies.check(NOW - AGE_MAX, FROM, &hello(1, &cookie), || true), Hello::Unverified(_)));
    }

    #[test]
    fn where_no_answer_is_left_who_has_a_cookie_is_known_and_others_hear_nothing() {
        let cookies = Cookies::new(&[1; 32]);
        let cookie = asked(&cookies, NOW, FROM);
        let check = |hello: &[u8]| cookies.check(NOW, FROM, hello, || false);
        assert_eq!(check(&hello(1, &cookie)), verified(1));
        let mut old = hello(3, &[]);
        old[26] = 0xff;
        for hello in [hello(1, &[]), hello(1, &cookie[1..]), hello(1, &[0; COOKIE_LEN]), old] {
            assert_eq!(check(&hello), Hello::NotAnswered);
        }
    }

    #[test]
    fn who_knows_1_0_alone_is_told_that_it_is_too_old() {
        let mut hello = hello(3, &[]);
        hello[26] = 0xff;
        let Hello::TooOld(alert) = Cookies::new(&[1; 32]).check(NOW, FROM, &hello, || true) else { panic!("it is") };
        assert_eq!(alert, [21, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 3, 0, 2, 2, 70]);
    }

    #[test]
    fn who_has_counted_too_far_for_a_handshake_is_not_known() {
        let cookies = Cookies::new(&[1; 32]);
        let cookie = asked(&cookies, NOW, FROM);
        let (record, message) = (5..11, 17..19);
        for (place, is_known) in
            [(10..11, true), (18..19, true), (record, false), (message, false), (7..8, true), (6..7, false)]
        {
            let mut hello = hello(0, &cookie);
            hello[place.clone()].fill(0xff);
            let checked = cookies.check(NOW, FROM, &hello, || true);
            assert_eq!(matches!(checked, Hello::Verified(_)), is_known, "{place:?}: {checked:?}");
            assert!(is_known || checked == Hello::None);
        }
    }

    #[test]
    fn what_is_no_whole_hello_is_answered_by_nothing() {
        let cookies = Cookies::new(&[1; 32]);
        let whole = hello(0, &[]);
        for len in 0..whole.len() {
            assert_eq!(cookies.check(NOW, FROM, &whole[..len], || true), Hello::None, "{len}");
        }
        assert_eq!(cookies.check(NOW, FROM, &[&whole[..], &[0]].concat(), || true), Hello::None, "it is not alone");
        // Another type, version, epoch, message, offset, length, and vectors that are longer than all of it.
        for (at, byte) in
            [(0, 23), (1, 3), (4, 1), (13, 2), (21, 1), (24, 1), (16, 1), (59, 200), (62, 9), (64, 9), (67, 9)]
        {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            assert_eq!(cookies.check(NOW, FROM, &wrong, || true), Hello::None, "{at}");
        }
    }
}
