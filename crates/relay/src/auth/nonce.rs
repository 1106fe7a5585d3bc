//! Nonces that need no memory: when and for whom each was made stands in it, under an HMAC.
//!
//! ```text
//! [obMatJos2 + 4 characters: features]  16 characters: base64 of time (4 bytes, s since 1970) and HMAC (8 bytes)
//! ```
//! The HMAC is over the features, the time and the client's IP address. The port is left out: a data connection (RFC 6062
//! §4.3) comes from another one with the same nonce. Eight bytes are guessed once in 10^19 tries, and a guess is worth
//! no more than a question that is answered at length.
//! Source: RFC 8489 §9.2 (nonce cookie), §14.10, §18.1 (feature bits), §17.1 (nonces that need no state).

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::octets;

/// A nonce that tells of features begins so (RFC 8489 §9.2).
const COOKIE: &[u8; 9] = b"obMatJos2";
/// Features are 24 bits in base64.
const FEATURES_LEN: usize = 4;
const TIME_LEN: usize = 4;
const MAC_LEN: usize = 8;
/// Of time and HMAC in base64.
const STAMP_LEN: usize = (TIME_LEN + MAC_LEN) / 3 * 4;
/// Of the longest nonce.
pub(super) const NONCE_LEN_MAX: usize = COOKIE.len() + FEATURES_LEN + STAMP_LEN;

/// What a nonce tells its client that the server can do (RFC 8489 §18.1). What stands in a nonce cannot be taken out on
/// the way: who asks for less in an answer is found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    /// Keys may be made by SHA-256.
    pub(super) password_algorithms: bool,
    /// Names may be sent as hashes.
    pub(super) user_anonymity: bool,
}

impl Features {
    /// How long a nonce is that tells of them.
    pub(super) fn nonce_len(self) -> usize {
        if self == Features::default() { STAMP_LEN } else { NONCE_LEN_MAX }
    }

    fn bits(self) -> u8 {
        u8::from(self.password_algorithms) | u8::from(self.user_anonymity) << 1
    }

    /// Those that we would have written.
    fn of(bits: [u8; 3]) -> Option<Self> {
        let features = Features { password_algorithms: bits[2] & 1 != 0, user_anonymity: bits[2] & 2 != 0 };
        (features != Features::default() && bits == [0, 0, features.bits()]).then_some(features)
    }
}

/// What nonces are made with.
#[derive(Clone)]
pub struct NonceKey(hmac::Key);

impl fmt::Debug for NonceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonceKey")
    }
}

impl NonceKey {
    /// Takes random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        NonceKey(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Writes a nonce for who is at this address; returns its length.
    pub(super) fn write(
        &self,
        buf: &mut [u8; NONCE_LEN_MAX],
        features: Features,
        address: IpAddr,
        unix: Duration,
    ) -> usize {
        let mut at = 0;
        if features != Features::default() {
            buf[..COOKIE.len()].copy_from_slice(COOKIE);
            at = COOKIE.len();
            at += encode(&[0, 0, features.bits()], &mut buf[at..]);
        }
        let time = (unix.as_secs() as u32).to_be_bytes();
        let mut stamp = [0; TIME_LEN + MAC_LEN];
        stamp[..TIME_LEN].copy_from_slice(&time);
        stamp[TIME_LEN..].copy_from_slice(&self.mac(features, time, address));
        at + encode(&stamp, &mut buf[at..])
    }

    /// What a nonce told of features, and how old it is. `None` when it is none of ours, or was not for this address.
    pub(super) fn read(&self, nonce: &[u8], address: IpAddr, unix: Duration) -> Option<(Features, Duration)> {
        let (features, stamp) = match nonce.strip_prefix(COOKIE) {
            Some(rest) => {
                let (features, stamp) = rest.split_at_checked(FEATURES_LEN)?;
                (Features::of(decode(features)?)?, stamp)
            }
            None => (Features::default(), nonce),
        };
        let stamp: [u8; TIME_LEN + MAC_LEN] = decode(stamp)?;
        let (time, mac) = stamp.split_first_chunk()?;
        constant_time::verify_slices_are_equal(&self.mac(features, *time, address), mac).ok()?;
        let age_s = (unix.as_secs() as u32).wrapping_sub(u32::from_be_bytes(*time));
        Some((features, Duration::from_secs(age_s.into())))
    }

    fn mac(&self, features: Features, time: [u8; TIME_LEN], address: IpAddr) -> [u8; MAC_LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&[features.bits()]);
        context.update(&time);
        context.update(&octets(address));
        let tag = context.sign();
        std::array::from_fn(|index| tag.as_ref()[index])
    }
}

fn encode(bytes: &[u8], buf: &mut [u8]) -> usize {
    STANDARD.encode_slice(bytes, buf).expect("the buffer has room for the longest nonce")
}

/// So many bytes, no more and no fewer.
fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    // base64 wants room for whole groups of three before it looks at the end.
    let mut bytes = [0; 16];
    if text.len() != N / 3 * 4 {
        return None;
    }
    let len = STANDARD.decode_slice(text, &mut bytes).ok()?;
    (len == N).then(|| std::array::from_fn(|index| bytes[index]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const AGE: Duration = Duration::from_secs(601);
    const ALL: Features = Features { password_algorithms: true, user_anonymity: true };

    fn key() -> NonceKey {
        NonceKey::new(&[7; 32])
    }

    fn client() -> IpAddr {
        [9, 8, 7, 6].into()
    }

    fn read(nonce: &[u8], address: IpAddr, unix: Duration) -> Option<(Features, Duration)> {
        key().read(nonce, address, unix)
    }

    fn written(features: Features) -> Vec<u8> {
        let mut buf = [0; NONCE_LEN_MAX];
        let len = key().write(&mut buf, features, client(), NOW);
        buf[..len].to_vec()
    }

    #[test]
    fn a_nonce_is_good_for_its_address_and_tells_its_age() {
        for features in [Features::default(), ALL, Features { user_anonymity: false, ..ALL }] {
            let nonce = written(features);
            assert_eq!(nonce.len(), features.nonce_len());
            assert_eq!(read(&nonce, client(), NOW + AGE), Some((features, AGE)));
            assert_eq!(read(&nonce, [9, 8, 7, 5].into(), NOW), None);
            assert_eq!(NonceKey::new(&[8; 32]).read(&nonce, client(), NOW), None);
        }
    }

    #[test]
    fn a_mapped_address_is_the_same_client() {
        let mapped = "::ffff:9.8.7.6".parse().expect("an address");
        assert_eq!(read(&written(ALL), mapped, NOW), Some((ALL, Duration::ZERO)));
    }

    #[test]
    fn it_is_short_and_of_characters_that_need_no_quoting() {
        assert_eq!((written(Features::default()).len(), written(ALL).len()), (16, 29));
        assert!(written(ALL).starts_with(b"obMatJos2AAAD"));
        assert!(written(ALL).iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte)));
    }

    proptest! {
        #[test]
        fn a_changed_nonce_is_none(at in any::<prop::sample::Index>(), bits in 1_u8.., has_features in any::<bool>()) {
            let mut nonce = written(if has_features { ALL } else { Features::default() });
            let at = at.index(nonce.len());
            nonce[at] ^= bits;
            prop_assert_eq!(read(&nonce, client(), NOW), None);
        }

        #[test]
        fn any_bytes_may_be_looked_at(nonce in prop::collection::vec(any::<u8>(), 0..60), has_cookie in any::<bool>()) {
            let nonce = if has_cookie { [&COOKIE[..], &nonce].concat() } else { nonce };
            prop_assert_eq!(read(&nonce, client(), NOW), None);
        }
    }
}
