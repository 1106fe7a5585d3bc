//! Numbers that nobody may guess: ports, reservation tokens, connection ids.
//!
//! In: a secret, and what for. Out: bytes, of which none tells anything about others. Cost: one HMAC-SHA-256 each.

use aws_lc_rs::hmac;

/// The same secret gives the same numbers.
pub(crate) struct Secret {
    key: hmac::Key,
    count: u64,
}

impl Secret {
    /// Numbers of a secret, for one purpose.
    pub(crate) fn new(seed: &[u8; 32], purpose: &str) -> Self {
        Secret { key: hmac::Key::new(hmac::HMAC_SHA256, &derived(seed, purpose)), count: 0 }
    }

    /// The next eight bytes.
    pub(crate) fn bytes(&mut self) -> [u8; 8] {
        self.count += 1;
        let mac = hmac::sign(&self.key, &self.count.to_be_bytes());
        *mac.as_ref().first_chunk().expect("a MAC of SHA-256 has 32 bytes")
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes())
    }
}

/// The secret of one purpose. Who gets to know it, as he may that of numbers that need not be secret (`wire::Random`), knows
/// nothing of the others.
pub(crate) fn derived(seed: &[u8; 32], purpose: &str) -> [u8; 32] {
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, seed), purpose.as_bytes());
    *mac.as_ref().first_chunk().expect("a MAC of SHA-256 has 32 bytes")
}

/// The seed of numbers that need not be secret, or of hashes.
pub(crate) fn seed(seed: &[u8; 32], purpose: &str) -> u64 {
    Secret::new(seed, purpose).number()
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}
