//! AES_CM_128_HMAC_SHA1_80 (RFC 3711 §4): AES in counter mode, then the first 80 bits of an HMAC-SHA1.
//!
//! ```text
//! SRTP    header (authenticated) │ payload (encrypted) │ tag 10, which also covers the rollover counter
//! SRTCP   header 8 (auth.)       │ rest (encrypted)    │ E flag and index 4 (authenticated) │ tag 10
//! ```

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::hmac_sha1::{HMAC_LEN, HmacSha1};
use crate::kdf::{Label, derive};
use crate::keys::{KeyError, Master};
use crate::suite::{E_FLAG, PacketId, RTCP_HEADER_LEN, RTCP_WORD_LEN};

pub(crate) const TAG_LEN: usize = 10;

const KEY_LEN: usize = 16;
const SALT_LEN: usize = 14;

/// Both kinds of keys for one direction.
pub(crate) struct Cm {
    rtp: KeySet,
    rtcp: KeySet,
}

impl Cm {
    pub(crate) fn new(master: Master<'_>) -> Result<Self, KeyError> {
        let keys = |key, auth, salt| KeySet::new(&derive(master, key)?, &derive(master, auth)?, derive(master, salt)?);
        Ok(Cm {
            rtp: keys(Label::RtpKey, Label::RtpAuth, Label::RtpSalt)?,
            rtcp: keys(Label::RtcpKey, Label::RtcpAuth, Label::RtcpSalt)?,
        })
    }

    /// `packet[..len]` is plain, and its first `header_len` bytes stay so.
    pub(crate) fn seal_rtp(&self, packet: &mut [u8], header_len: usize, len: usize, id: PacketId) -> Option<usize> {
        let sealed_len = len + TAG_LEN;
        let packet = packet.get_mut(..sealed_len)?;
        self.rtp.apply_keystream(id, packet.get_mut(header_len..len)?)?;
        let tag = self.rtp.rtp_tag(packet, len, id)?;
        packet[len..].copy_from_slice(&tag);
        Some(sealed_len)
    }

    /// Like `seal_rtp`, with the payload still elsewhere.
    pub(crate) fn seal_rtp_from(
        &self,
        packet: &mut [u8],
        header_len: usize,
        payload: &[u8],
        id: PacketId,
    ) -> Option<usize> {
        let len = header_len + payload.len();
        packet.get_mut(header_len..len)?.copy_from_slice(payload);
        self.seal_rtp(packet, header_len, len, id)
    }

    pub(crate) fn open_rtp(&self, packet: &mut [u8], header_len: usize, id: PacketId) -> Option<usize> {
        let len = packet.len().checked_sub(TAG_LEN)?;
        let said: [u8; TAG_LEN] = packet.last_chunk().copied()?;
        let tag = self.rtp.rtp_tag(packet, len, id)?;
        verify_slices_are_equal(&tag, &said).ok()?;
        self.rtp.apply_keystream(id, packet.get_mut(header_len..len)?)?;
        Some(len)
    }

    pub(crate) fn seal_rtcp(&self, packet: &mut [u8], len: usize, id: PacketId) -> Option<usize> {
        let authenticated_len = len + RTCP_WORD_LEN;
        let sealed_len = authenticated_len + TAG_LEN;
        let packet = packet.get_mut(..sealed_len)?;
        self.rtcp.apply_keystream(id, packet.get_mut(RTCP_HEADER_LEN..len)?)?;
        packet[len..authenticated_len].copy_from_slice(&(E_FLAG | id.index as u32).to_be_bytes());
        let tag = self.rtcp.tag(&packet[..authenticated_len])?;
        packet[authenticated_len..].copy_from_slice(&tag);
        Some(sealed_len)
    }

    pub(crate) fn open_rtcp(&self, packet: &mut [u8], id: PacketId, encrypted: bool) -> Option<usize> {
        let authenticated_len = packet.len().checked_sub(TAG_LEN)?;
        let len = authenticated_len.checked_sub(RTCP_WORD_LEN)?;
        let (authenticated, said) = packet.split_at_mut_checked(authenticated_len)?;
        verify_slices_are_equal(&self.rtcp.tag(authenticated)?, said).ok()?;
        let body = authenticated.get_mut(RTCP_HEADER_LEN..len)?;
        if encrypted {
            self.rtcp.apply_keystream(id, body)?;
        }
        Some(len)
    }
}

/// Session keys made ready: the AES key schedule, and the HMAC's states.
struct KeySet {
    cipher: EncryptingKey,
    auth: HmacSha1,
    salt: [u8; SALT_LEN],
}

impl KeySet {
    fn new(key: &[u8; KEY_LEN], auth: &[u8; HMAC_LEN], salt: [u8; SALT_LEN]) -> Result<Self, KeyError> {
        let key = UnboundCipherKey::new(&AES_128, key).map_err(|_| KeyError::Refused)?;
        let cipher = EncryptingKey::ctr(key).map_err(|_| KeyError::Refused)?;
        Ok(KeySet { cipher, auth: HmacSha1::new(auth).ok_or(KeyError::Refused)?, salt })
    }

    /// Encrypts or decrypts. The block counter has 16 bits (RFC 3711 §4.1.1), more than the largest datagram needs.
    fn apply_keystream(&self, id: PacketId, data: &mut [u8]) -> Option<()> {
        let mut iv = [0; 16];
        iv[..SALT_LEN].copy_from_slice(&self.salt);
        for (byte, id) in iv[4..SALT_LEN].iter_mut().zip(id.bytes()) {
            *byte ^= id;
        }
        self.cipher.less_safe_encrypt(data, EncryptionContext::Iv128((&iv).into())).ok().map(drop)
    }

    /// The tag over `packet[..len]` and the rollover counter, which is put behind them for that: into the tag's place.
    fn rtp_tag(&self, packet: &mut [u8], len: usize, id: PacketId) -> Option<[u8; TAG_LEN]> {
        let authenticated = packet.get_mut(..len + 4)?;
        authenticated[len..].copy_from_slice(&id.roc().to_be_bytes());
        self.tag(authenticated)
    }

    fn tag(&self, authenticated: &[u8]) -> Option<[u8; TAG_LEN]> {
        self.auth.sign(authenticated).first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hex;
    use super::*;

    #[test]
    fn keystream_is_that_of_rfc_3711_b_2() {
        let key: [u8; KEY_LEN] = hex("2B7E151628AED2A6ABF7158809CF4F3C").try_into().unwrap();
        let salt: [u8; SALT_LEN] = hex("F0F1F2F3F4F5F6F7F8F9FAFBFCFD").try_into().unwrap();
        let keys = KeySet::new(&key, &[0; HMAC_LEN], salt).unwrap();
        let mut stream = vec![0; 0xff02 * 16];
        keys.apply_keystream(PacketId { ssrc: 0, index: 0 }, &mut stream).unwrap();
        let blocks = |first: usize, count: usize| stream[first * 16..][..count * 16].to_vec();
        assert_eq!(
            blocks(0, 3),
            hex("E03EAD0935C95E80E166B16DD92B4EB4D23513162B02D0F72A43A2FE4A5F97AB41E95B3BB0A2E8DD477901E4FCA894C0")
        );
        assert_eq!(
            blocks(0xfeff, 3),
            hex("EC8CDF7398607CB0F2D21675EA9EA1E4362B7C3C6773516318A077D7FC5073AE6A2CC3787889374FBEB4C81B17BA6C44")
        );
    }

    /// Master key and salt of RFC 3711 B.3; the protected packets are what other implementations make of them.
    fn known() -> Cm {
        let (key, salt) = (hex("E1F97A0D3E018BE0D64FA32C06DE4139"), hex("0EC675AD498AFEEBB6960B3AABE6"));
        Cm::new(Master { key: &key, salt: &salt }).unwrap()
    }

    #[test]
    fn srtp_is_what_others_make_of_it() {
        let plain = hex("800f1234decafbadcafebabeabababababababababababababababab");
        let sealed = hex("800f1234decafbadcafebabe4e55dc4ce79978d88ca4d215949d2402b78d6acc99ea179b8dbb");
        let id = PacketId { ssrc: 0xcafe_babe, index: 0x1234 };
        let mut packet = plain.clone();
        packet.resize(sealed.len(), 0);
        assert_eq!(known().seal_rtp(&mut packet, 12, plain.len(), id), Some(sealed.len()));
        assert_eq!(packet, sealed);
        assert_eq!(known().open_rtp(&mut packet, 12, id), Some(plain.len()));
        assert_eq!(packet[..plain.len()], plain);
    }

    #[test]
    fn srtcp_is_what_others_make_of_it() {
        let plain = hex("81c8000bcafebabeabababababababababababababababab");
        let sealed = hex("81c8000bcafebabe7128035be487b9bdbef89041f977a5a880000001993e08cd54d6c1230798");
        let id = PacketId { ssrc: 0xcafe_babe, index: 1 };
        let mut packet = plain.clone();
        packet.resize(sealed.len(), 0);
        assert_eq!(known().seal_rtcp(&mut packet, plain.len(), id), Some(sealed.len()));
        assert_eq!(packet, sealed);
        assert_eq!(known().open_rtcp(&mut packet, id, true), Some(plain.len()));
        assert_eq!(packet[..plain.len()], plain);
    }
}
