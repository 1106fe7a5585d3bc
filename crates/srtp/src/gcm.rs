//! AEAD_AES_128_GCM and AEAD_AES_256_GCM (RFC 7714).
//!
//! ```text
//! SRTP    header (authenticated) │ payload (encrypted) │ tag 16
//! SRTCP   header 8 (auth.)       │ rest (encrypted)    │ tag 16 │ E flag and index 4 (authenticated)
//! ```

use crate::aead::{AesGcm, NONCE_LEN, TAG_LEN};
use crate::kdf::{Label, derive};
use crate::keys::{KeyError, Master};
use crate::suite::{E_FLAG, PacketId, RTCP_HEADER_LEN, RTCP_WORD_LEN};

/// Both kinds of keys for one direction.
pub(crate) struct Gcm {
    rtp: SaltedKey,
    rtcp: SaltedKey,
}

impl Gcm {
    pub(crate) fn new(master: Master<'_>) -> Result<Self, KeyError> {
        let key = |key, salt| {
            // A session key is as long as the master key, and the beginning of the longest.
            let longest: [u8; 32] = derive(master, key)?;
            SaltedKey::new(&longest[..master.key.len()], derive(master, salt)?)
        };
        Ok(Gcm { rtp: key(Label::RtpKey, Label::RtpSalt)?, rtcp: key(Label::RtcpKey, Label::RtcpSalt)? })
    }

    /// `packet[..len]` is plain, and its first `header_len` bytes stay so.
    #[inline]
    pub(crate) fn seal_rtp(&self, packet: &mut [u8], header_len: usize, len: usize, id: PacketId) -> Option<usize> {
        let sealed_len = len + TAG_LEN;
        let (plain, tag) = packet.get_mut(..sealed_len)?.split_at_mut(len);
        let (header, payload) = plain.split_at_mut_checked(header_len)?;
        self.rtp.seal(id, header, payload, tag)?;
        Some(sealed_len)
    }

    /// Like `seal_rtp`, with the payload still elsewhere: it is encrypted on its way into the packet.
    #[inline]
    pub(crate) fn seal_rtp_from(
        &self,
        packet: &mut [u8],
        header_len: usize,
        payload: &[u8],
        id: PacketId,
    ) -> Option<usize> {
        let sealed_len = header_len + payload.len() + TAG_LEN;
        let (header, sealed) = packet.get_mut(..sealed_len)?.split_at_mut(header_len);
        let (ciphertext, tag) = sealed.split_at_mut(payload.len());
        self.rtp.seal_from(id, header, payload, ciphertext, tag)?;
        Some(sealed_len)
    }

    #[inline]
    pub(crate) fn open_rtp(&self, packet: &mut [u8], header_len: usize, id: PacketId) -> Option<usize> {
        let len = packet.len().checked_sub(TAG_LEN)?;
        let (sealed, tag) = packet.split_at_mut_checked(len)?;
        let (header, payload) = sealed.split_at_mut_checked(header_len)?;
        self.rtp.open(id, header, payload, tag)?;
        Some(len)
    }

    pub(crate) fn seal_rtcp(&self, packet: &mut [u8], len: usize, id: PacketId) -> Option<usize> {
        let sealed_len = len + TAG_LEN + RTCP_WORD_LEN;
        let (plain, trailer) = packet.get_mut(..sealed_len)?.split_at_mut(len);
        let (header, body) = plain.split_at_mut_checked(RTCP_HEADER_LEN)?;
        let (tag, word) = trailer.split_at_mut(TAG_LEN);
        word.copy_from_slice(&(E_FLAG | id.index as u32).to_be_bytes());
        self.rtcp.seal(id, &rtcp_aad(header, word), body, tag)?;
        Some(sealed_len)
    }

    pub(crate) fn open_rtcp(&self, packet: &mut [u8], id: PacketId, encrypted: bool) -> Option<usize> {
        let len = packet.len().checked_sub(TAG_LEN + RTCP_WORD_LEN)?;
        let (sealed, trailer) = packet.split_at_mut(len);
        let (tag, word) = trailer.split_at_mut(TAG_LEN);
        let (header, body) = sealed.split_at_mut_checked(RTCP_HEADER_LEN)?;
        if encrypted {
            self.rtcp.open(id, &rtcp_aad(header, word), body, tag)?;
            return Some(len);
        }
        // Unencrypted, the whole packet and the word are authenticated (RFC 7714 §9.3): bring them together, where the
        // tag was.
        let tag_copy: [u8; TAG_LEN] = tag.first_chunk().copied()?;
        tag[..RTCP_WORD_LEN].copy_from_slice(word);
        self.rtcp.open(id, packet.get(..len + RTCP_WORD_LEN)?, &mut [], &tag_copy)?;
        Some(len)
    }
}

/// What of an encrypted SRTCP packet is authenticated only (RFC 7714 §9.2).
fn rtcp_aad(header: &[u8], word: &[u8]) -> [u8; RTCP_HEADER_LEN + RTCP_WORD_LEN] {
    let mut aad = [0; RTCP_HEADER_LEN + RTCP_WORD_LEN];
    aad[..RTCP_HEADER_LEN].copy_from_slice(header);
    aad[RTCP_HEADER_LEN..].copy_from_slice(word);
    aad
}

/// A key and the salt that its nonces are mixed with.
pub(crate) struct SaltedKey {
    key: AesGcm,
    salt: [u8; NONCE_LEN],
}

impl SaltedKey {
    pub(crate) fn new(key: &[u8], salt: [u8; NONCE_LEN]) -> Result<Self, KeyError> {
        Ok(SaltedKey { key: AesGcm::new(key).ok_or(KeyError::Refused)?, salt })
    }

    /// Two zero bytes, SSRC, index; all of it mixed with the salt (RFC 7714 §8.1 and §9.1).
    #[inline]
    fn nonce(&self, id: PacketId) -> [u8; NONCE_LEN] {
        let mut nonce = self.salt;
        for (byte, id) in nonce[2..].iter_mut().zip(id.bytes()) {
            *byte ^= id;
        }
        nonce
    }

    #[inline]
    fn seal(&self, id: PacketId, aad: &[u8], in_out: &mut [u8], tag: &mut [u8]) -> Option<()> {
        self.key.seal(self.nonce(id), aad, in_out, tag)
    }

    #[inline]
    fn seal_from(&self, id: PacketId, aad: &[u8], plain: &[u8], ciphertext: &mut [u8], tag: &mut [u8]) -> Option<()> {
        self.key.seal_from(self.nonce(id), aad, plain, ciphertext, tag)
    }

    #[inline]
    fn open(&self, id: PacketId, aad: &[u8], in_out: &mut [u8], tag: &[u8]) -> Option<()> {
        self.key.open(self.nonce(id), aad, in_out, tag)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::Suite;
    use super::super::tests::hex;
    use super::*;

    const KEY_128: &str = "000102030405060708090a0b0c0d0e0f";
    const KEY_256: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const RTP: &str = concat!(
        "8040f17b8041f8d35501a0b2",
        "47616c6c696120657374206f6d6e69732064697669736120696e207061727465732074726573"
    );
    const RTP_ID: PacketId = PacketId { ssrc: 0x5501_a0b2, index: 0xf17b };
    const RTCP: &str = concat!(
        "81c8000d4d617273",
        "4e5450314e545032525450200000042a0000e9304c756e61deadbeefdeadbeefdeadbeefdeadbeefdeadbeef"
    );
    const RTCP_ID: PacketId = PacketId { ssrc: 0x4d61_7273, index: 0x5d4 };

    /// The vectors name session keys, so derivation is left out; the salt is "Quid pro quo".
    fn suite(key: &str) -> Suite {
        let salted = || SaltedKey::new(&hex(key), *b"Quid pro quo").unwrap();
        Suite::Gcm(Gcm { rtp: salted(), rtcp: salted() })
    }

    fn rtp_is(key: &str, sealed: &str) {
        let (plain, sealed) = (hex(RTP), hex(sealed));
        let mut packet = plain.clone();
        packet.resize(plain.len() + TAG_LEN, 0);
        assert_eq!(suite(key).seal_rtp(&mut packet, 12, plain.len(), RTP_ID), Some(sealed.len()));
        assert_eq!(packet, sealed);
        assert_eq!(suite(key).open_rtp(&mut packet, 12, RTP_ID), Some(plain.len()));
        assert_eq!(packet[..plain.len()], plain);
    }

    #[test]
    fn srtp_128_is_that_of_rfc_7714_16_1() {
        rtp_is(
            KEY_128,
            "8040f17b8041f8d35501a0b2f24de3a3fb34de6cacba861c9d7e4bcabe633bd50d294e6f42a5f47a51c7d19b36de3adf8833899d7f27beb16a9152cf765ee4390cce",
        );
    }

    #[test]
    fn srtp_256_is_that_of_rfc_7714_16_2() {
        rtp_is(
            KEY_256,
            "8040f17b8041f8d35501a0b232b1de78a822fe12ef9f78fa332e33aab18012389a58e2f3b50b2a0276ffae0f1ba63799b87b7aa3db36dfffd6b0f9bb7878d7a76c13",
        );
    }

    fn rtcp_is(key: &str, sealed: &str) {
        let (plain, sealed) = (hex(RTCP), hex(sealed));
        let mut packet = plain.clone();
        packet.resize(sealed.len(), 0);
        assert_eq!(suite(key).seal_rtcp(&mut packet, plain.len(), RTCP_ID), Some(sealed.len()));
        assert_eq!(packet, sealed);
        rtcp_opens(key, packet, true);
    }

    fn rtcp_opens(key: &str, mut packet: Vec<u8>, encrypted: bool) {
        let plain = hex(RTCP);
        let flag = if encrypted { E_FLAG } else { 0 };
        assert_eq!(suite(key).rtcp_word(&packet), Some(flag | 0x5d4));
        assert_eq!(suite(key).open_rtcp(&mut packet, RTCP_ID, encrypted), Some(plain.len()));
        assert_eq!(packet[..plain.len()], plain);
    }

    #[test]
    fn srtcp_128_is_that_of_rfc_7714_17_1() {
        rtcp_is(
            KEY_128,
            "81c8000d4d61727363e94885dcdab67ca727d7662f6b7e997ff5c0f76c06f32dc676a5f1730d6fda4ce09b4686303ded0bb9275bc84aa45896cf4d2fc5abf87245d9eade800005d4",
        );
    }

    #[test]
    fn srtcp_256_is_that_of_rfc_7714_17_2() {
        rtcp_is(
            KEY_256,
            "81c8000d4d617273d50ae4d1f5ce5d304ba297e47d470c282c3ece5dbffe0a50a2eaa5c1110555be8415f658c61de0476f1b6fad1d1eb30c4446839f57ff6f6cb26ac3be800005d4",
        );
    }

    #[test]
    fn unencrypted_srtcp_128_is_that_of_rfc_7714_17_3() {
        rtcp_opens(
            KEY_128,
            hex(
                "81c8000d4d6172734e5450314e545032525450200000042a0000e9304c756e61deadbeefdeadbeefdeadbeefdeadbeefdeadbeef841dd9683dd78ec92ae58790125f62b3000005d4",
            ),
            false,
        );
    }
}
