//! The cookie of a DTLS server: a client shows that it receives where it says it is, before anything is kept of it.
//!
//! In: a datagram of somebody unknown, and the time. Out: whether it is a ClientHello with a cookie of ours; else what to
//! answer, which is shorter than what came.
//! Cost: an HMAC, and no memory.
//! Source: RFC 6347 §4.2.1 (cookies), §4.1 (records), §4.2.2 (handshake messages).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};

/// Bytes of a cookie.
const COOKIE_LEN: usize = 20;

/// For how long a cookie is good, at least; at most twice as long.
const AGE_MAX: Duration = Duration::from_secs(30);

const RECORD_HEADER_LEN: usize = 13;
const MESSAGE_HEADER_LEN: usize = 12;
const RANDOM_LEN: usize = 32;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const HELLO_VERIFY_REQUEST: u8 = 3;

/// Makes cookies, and knows them again.
#[derive(Debug)]
pub struct Cookies {
    key: Key,
}

/// What somebody unknown has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// A ClientHello with a cookie of ours.
    Verified {
        /// The number of its record.
        record_seq: u64,
        /// The client's random bytes, which say whether it is one that was there before.
        random: [u8; RANDOM_LEN],
    },
    /// A ClientHello without one: this is to be answered (HelloVerifyRequest).
    Ask(Vec<u8>),
    /// Something else, or a ClientHello in pieces.
    Nothing,
}

impl Cookies {
    /// The secret is another one for each process, and nobody else's.
    pub fn new(secret: [u8; 32]) -> Self {
        Cookies { key: Key::new(HMAC_SHA256, &secret) }
    }

    /// Looks at a datagram from there. `now` is counted from any fixed time.
    pub fn check(&self, now: Duration, from: SocketAddr, datagram: &[u8]) -> Hello {
        let Some(hello) = ClientHello::parse(datagram) else { return Hello::Nothing };
        let slot = now.as_secs() / AGE_MAX.as_secs();
        let is_ours = |slot| verify_slices_are_equal(hello.cookie, &self.cookie(slot, from, &hello)).is_ok();
        if is_ours(slot) || slot.checked_sub(1).is_some_and(is_ours) {
            return Hello::Verified { record_seq: hello.record_seq, random: hello.random };
        }
        Hello::Ask(hello.verify_request(datagram, &self.cookie(slot, from, &hello)))
    }

    /// A cookie is for one address and one ClientHello, for a while.
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
        *context.sign().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
    }
}

/// A ClientHello in one piece, alone in its record.
struct ClientHello<'a> {
    record_seq: u64,
    random: [u8; RANDOM_LEN],
    before_cookie: &'a [u8],
    cookie: &'a [u8],
    behind_cookie: &'a [u8],
}

impl<'a> ClientHello<'a> {
    fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (header, rest) = datagram.split_first_chunk::<RECORD_HEADER_LEN>()?;
        let [HANDSHAKE, 0xfe, 0xfd | 0xff, 0, 0, seq @ .., len_high, len_low] = header else { return None };
        let record = rest.get(..usize::from(u16::from_be_bytes([*len_high, *len_low])))?;
        let (message, body) = record.split_first_chunk::<MESSAGE_HEADER_LEN>()?;
        let [CLIENT_HELLO, a, b, c, ..] = *message else { return None };
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // The fragment begins at its beginning, and is all of it.
        let is_whole = message[6..9] == [0; 3] && message[9..12] == message[1..4] && length == body.len();
        if !is_whole {
            return None;
        }
        let session_id = 2 + RANDOM_LEN;
        let cookie = session_id + 1 + usize::from(*body.get(session_id)?);
        let cookie_len = usize::from(*body.get(cookie)?);
        let mut record_seq = [0; 8];
        record_seq[2..].copy_from_slice(seq);
        Some(ClientHello {
            record_seq: u64::from_be_bytes(record_seq),
            random: *body.get(2..)?.first_chunk()?,
            before_cookie: &body[..cookie],
            cookie: body.get(cookie + 1..cookie + 1 + cookie_len)?,
            behind_cookie: &body[cookie + 1 + cookie_len..],
        })
    }

    /// The answer has the record number of what it answers.
    fn verify_request(&self, datagram: &[u8], cookie: &[u8; COOKIE_LEN]) -> Vec<u8> {
        const BODY_LEN: u8 = 3 + COOKIE_LEN as u8;
        let header = &datagram[..RECORD_HEADER_LEN - 2];
        let length = [0, MESSAGE_HEADER_LEN as u8 + BODY_LEN];
        let message = [HELLO_VERIFY_REQUEST, 0, 0, BODY_LEN, 0, 0, 0, 0, 0, 0, 0, BODY_LEN];
        // It is that of DTLS 1.0, whatever comes of it.
        [header, &length, &message, &[0xfe, 0xff, COOKIE_LEN as u8], cookie].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7);
    const NOW: Duration = Duration::from_secs(10_000);

    /// A ClientHello with that cookie, in a record with that number.
    fn hello(seq: u8, cookie: &[u8]) -> Vec<u8> {
        let body =
            [&[0xfe, 0xfd][..], &[9; RANDOM_LEN], &[2, 1, 1], &[cookie.len() as u8], cookie, &[0, 2, 0xc0, 0x2b]];
        let body = body.concat();
        let len = body.len() as u8;
        let message = [1, 0, 0, len, 0, seq, 0, 0, 0, 0, 0, len];
        [&[22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, seq, 0, len + 12][..], &message, &body].concat()
    }

    fn verified(record_seq: u64) -> Hello {
        Hello::Verified { record_seq, random: [9; RANDOM_LEN] }
    }

    /// The cookie that somebody is asked to come back with.
    fn asked(cookies: &Cookies, now: Duration, from: SocketAddr) -> Vec<u8> {
        let hello = hello(0, &[]);
        let Hello::Ask(answer) = cookies.check(now, from, &hello) else { panic!("it has none") };
        assert!(answer.len() <= hello.len() && answer[..11] == hello[..11], "{answer:?}");
        assert_eq!((answer[13], answer[27]), (HELLO_VERIFY_REQUEST, COOKIE_LEN as u8));
        answer[28..].to_vec()
    }

    #[test]
    fn who_comes_back_with_his_cookie_is_known_and_nobody_else() {
        let cookies = Cookies::new([1; 32]);
        let cookie = asked(&cookies, NOW, FROM);
        assert_eq!(cookies.check(NOW, FROM, &hello(5, &cookie)), verified(5));
        let elsewhere = SocketAddr::new(FROM.ip(), 8);
        let mut other = hello(1, &cookie);
        *other.last_mut().expect("a suite") ^= 1;
        for (from, datagram) in [(elsewhere, hello(1, &cookie)), (FROM, other), (FROM, hello(1, &cookie[..19]))] {
            assert!(matches!(cookies.check(NOW, from, &datagram), Hello::Ask(_)));
        }
        let others = Cookies::new([2; 32]);
        assert!(matches!(others.check(NOW, FROM, &hello(1, &cookie)), Hello::Ask(_)));
    }

    #[test]
    fn a_cookie_is_good_for_a_while() {
        let cookies = Cookies::new([1; 32]);
        let cookie = asked(&cookies, NOW, FROM);
        let check = |later| cookies.check(NOW + later, FROM, &hello(1, &cookie));
        assert_eq!(check(AGE_MAX), verified(1));
        assert!(matches!(check(2 * AGE_MAX), Hello::Ask(_)));
    }

    #[test]
    fn what_is_no_whole_hello_is_answered_by_nothing() {
        let cookies = Cookies::new([1; 32]);
        let whole = hello(0, &[]);
        for len in 0..whole.len() {
            assert_eq!(cookies.check(NOW, FROM, &whole[..len]), Hello::Nothing, "{len}");
        }
        // Another type, version, epoch, message, offset, length, and a session id that is longer than all of it.
        for (at, byte) in [(0, 23), (1, 3), (4, 1), (13, 2), (21, 1), (24, 1), (16, 1), (59, 200)] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            assert_eq!(cookies.check(NOW, FROM, &wrong), Hello::Nothing, "{at}");
        }
    }
}
