//! Numbers that nobody may guess: ports, reservation tokens, connection ids.
//!
//! In: a secret. Out: bytes, of which none tells anything about others. Cost: one HMAC-SHA-256 each.

use aws_lc_rs::hmac;

/// The same secret gives the same numbers.
pub(crate) struct Secret {
    key: hmac::Key,
    count: u64,
}

impl Secret {
    /// Numbers of a secret.
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Secret { key: hmac::Key::new(hmac::HMAC_SHA256, seed), count: 0 }
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

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}
