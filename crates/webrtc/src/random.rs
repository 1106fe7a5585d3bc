//! Numbers that nobody can guess: ICE credentials, SSRCs and transaction ids.
//!
//! str0m would draw them from a generator that is not cryptographic and that all sessions of a thread share: who sees some
//! answers could work out its state, and so the passwords of others.

use std::collections::HashSet;

use str0m::IceCreds;

use crate::Error;

/// All characters that credentials may have (RFC 8839 §5.4), one for six bits.
const ICE_CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// So many random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::SetUp("the system has no random numbers".into()))?;
    Ok(bytes)
}

/// What a description is numbered with: below 2^62 (RFC 8829 §5.2.1).
pub(crate) fn session_number() -> Result<u64, Error> {
    Ok(u64::from_be_bytes(random()?) >> 2)
}

/// A user fragment of 72 bits and a password of 144 (RFC 8445 §5.3 wants 24 and 128).
pub(crate) fn credentials() -> Result<IceCreds, Error> {
    Ok(IceCreds { ufrag: ice_chars(&random::<UFRAG_LEN>()?), pass: ice_chars(&random::<24>()?) })
}

/// Characters of a user fragment.
pub(crate) const UFRAG_LEN: usize = 12;

fn ice_chars(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(ICE_CHARS[usize::from(byte % 64)])).collect()
}

/// SSRCs for a session, no two alike: packets of two streams under one number and one key would share a nonce.
pub(crate) fn ssrcs() -> Result<impl Iterator<Item = u32>, Error> {
    let mut given = HashSet::new();
    let bytes = random::<{ 4 * SSRCS_MAX }>()?;
    let (numbers, _) = bytes.as_chunks::<4>();
    let distinct: Vec<u32> = numbers
        .iter()
        .map(|bytes| u32::from_be_bytes(*bytes))
        .filter(|ssrc| *ssrc > 0 && given.insert(*ssrc))
        .collect();
    Ok(distinct.into_iter())
}

/// SSRCs of one session at most: those of its tracks and their retransmissions, with room for any that came twice.
const SSRCS_MAX: usize = 2 * crate::SECTIONS_MAX + 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_as_long_as_they_should_be_and_never_the_same() {
        let (one, other) = (credentials().unwrap(), credentials().unwrap());
        assert_eq!((one.ufrag.len(), one.pass.len()), (12, 24));
        assert!(one.ufrag != other.ufrag && one.pass != other.pass);
        assert!(one.pass.bytes().all(|byte| ICE_CHARS.contains(&byte)));
    }

    #[test]
    fn the_ssrcs_of_a_session_are_distinct_and_enough_for_all_of_its_tracks() {
        let drawn: Vec<u32> = ssrcs().unwrap().collect();
        assert!(drawn.len() >= 2 * crate::SECTIONS_MAX);
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), drawn.len());
    }
}
