//! SRTP and SRTCP (RFC 3711, RFC 7714).

/// Keys from one DTLS handshake (RFC 5764 §4.2).
#[derive(Clone)]
pub struct SessionKeys {
    pub profile: Profile,
    /// The exporter's bytes: client key, server key, client salt, server salt.
    pub material: Box<[u8]>,
    /// Whether we were the DTLS client, so that the first key is ours.
    pub is_client: bool,
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionKeys").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// SRTP protection profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    AeadAes128Gcm,
    AeadAes256Gcm,
    Aes128CmSha1_80,
}
