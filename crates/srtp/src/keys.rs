//! The keys that one DTLS handshake gives, and which half is whose (RFC 5764 §4.2).

use std::fmt;

/// SRTP protection profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// RFC 7714 §14.2, with a key of 128 bits.
    AeadAes128Gcm,
    /// The same with a key of 256 bits.
    AeadAes256Gcm,
    /// RFC 5764 §4.1.2: AES in counter mode, 80 bits of HMAC-SHA1. Mandatory to implement.
    Aes128CmSha1_80,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 3] = [Profile::AeadAes128Gcm, Profile::AeadAes256Gcm, Profile::Aes128CmSha1_80];

    /// Bytes of a master key.
    pub const fn key_len(self) -> usize {
        match self {
            Profile::AeadAes128Gcm | Profile::Aes128CmSha1_80 => 16,
            Profile::AeadAes256Gcm => 32,
        }
    }

    /// Bytes of a master salt.
    pub const fn salt_len(self) -> usize {
        match self {
            Profile::AeadAes128Gcm | Profile::AeadAes256Gcm => 12,
            Profile::Aes128CmSha1_80 => 14,
        }
    }

    /// Bytes that the TLS exporter has to give for this profile.
    pub const fn material_len(self) -> usize {
        2 * (self.key_len() + self.salt_len())
    }

    /// Bytes that an RTP packet grows by.
    pub const fn rtp_overhead(self) -> usize {
        match self {
            Profile::AeadAes128Gcm | Profile::AeadAes256Gcm => 16,
            Profile::Aes128CmSha1_80 => 10,
        }
    }

    /// Bytes that a compound RTCP packet grows by: the tag, and the word with the E flag and the index.
    pub const fn rtcp_overhead(self) -> usize {
        self.rtp_overhead() + 4
    }
}

/// Why no SRTP context can be made of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// More or fewer bytes than the profile takes.
    #[error("{got} bytes of keying material, {profile:?} takes {wanted}")]
    Length {
        /// Whose keys they should be.
        profile: Profile,
        /// Bytes that there are.
        got: usize,
        /// Bytes that the profile takes.
        wanted: usize,
    },
    /// By aws-lc.
    #[error("the cryptographic library refuses the key")]
    Refused,
}

/// Keys from one DTLS handshake (RFC 5764 §4.2).
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKeys {
    profile: Profile,
    /// The exporter's bytes, as many as the profile takes: client key, server key, client salt, server salt.
    material: Box<[u8]>,
    /// Whether we were the DTLS client, so that the first key is ours.
    pub is_client: bool,
}

impl SessionKeys {
    /// Takes the exporter's bytes.
    ///
    /// # Errors
    /// `KeyError::Length` when there are more or fewer than the profile takes.
    pub fn new(profile: Profile, material: &[u8], is_client: bool) -> Result<Self, KeyError> {
        let (got, wanted) = (material.len(), profile.material_len());
        if got != wanted {
            return Err(KeyError::Length { profile, got, wanted });
        }
        Ok(SessionKeys { profile, material: material.into(), is_client })
    }

    /// Made-up keys for tests and benchmarks: what the client has, and what the server has.
    pub fn made_up_pair(profile: Profile, seed: u8) -> (SessionKeys, SessionKeys) {
        let material: Box<[u8]> =
            (0..profile.material_len()).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        let client = SessionKeys { profile, material, is_client: true };
        let server = SessionKeys { is_client: false, ..client.clone() };
        (client, server)
    }

    /// What the handshake chose.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// The master key and salt for what we send.
    pub(crate) fn ours(&self) -> Master<'_> {
        self.half(self.is_client)
    }

    /// The master key and salt for what the peer sends.
    pub(crate) fn theirs(&self) -> Master<'_> {
        self.half(!self.is_client)
    }

    fn half(&self, of_client: bool) -> Master<'_> {
        let (keys, salts) = self.material.split_at(2 * self.profile.key_len());
        let (client_key, server_key) = keys.split_at(self.profile.key_len());
        let (client_salt, server_salt) = salts.split_at(self.profile.salt_len());
        match of_client {
            true => Master { key: client_key, salt: client_salt },
            false => Master { key: server_key, salt: server_salt },
        }
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// One direction's master key and master salt.
#[derive(Clone, Copy)]
pub(crate) struct Master<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) salt: &'a [u8],
}
