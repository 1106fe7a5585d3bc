//! One direction's key, and how its records look.
//!
//! ```text
//! AES-GCM    header 13 │ nonce 8 │ content (encrypted) │ tag 16
//! ChaCha20   header 13 │ content (encrypted) │ tag 16
//! ```
//!
//! Source: RFC 6347 §4.1.2 (what is authenticated), RFC 5288 §3 (AES-GCM), RFC 7905 §2 (ChaCha20-Poly1305).

use std::fmt;
use std::ops::Range;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use dimpl::crypto::Dtls12CipherSuite;

use crate::record::{HEADER_LEN, Header};

pub(crate) const TAG_LEN: usize = 16;
const IV_LEN: usize = 12;

/// Bytes of a nonce that stand in the record of AES-GCM; those before them are the key's own.
const EXPLICIT_LEN: usize = 8;
const SALT_LEN: usize = IV_LEN - EXPLICIT_LEN;

/// There are no other keys than those of the handshake.
const EPOCH: u64 = 1;

/// What opens, or seals, and never both.
pub(crate) struct Protect {
    key: LessSafeKey,
    iv: [u8; IV_LEN],
    /// The nonce stands in the record.
    is_explicit: bool,
}

impl Protect {
    /// `None`: a suite that there is no code for, which nobody was offered.
    pub(crate) fn new(suite: Dtls12CipherSuite, key: &[u8], iv: &[u8]) -> Option<Self> {
        let algorithm = match suite {
            Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256 => &AES_128_GCM,
            Dtls12CipherSuite::ECDHE_ECDSA_AES256_GCM_SHA384 => &AES_256_GCM,
            Dtls12CipherSuite::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256 => &CHACHA20_POLY1305,
            _ => return None,
        };
        let is_explicit = algorithm != &CHACHA20_POLY1305;
        let mut whole = [0; IV_LEN];
        let given = if is_explicit { &mut whole[..SALT_LEN] } else { &mut whole[..] };
        if given.len() != iv.len() {
            return None;
        }
        given.copy_from_slice(iv);
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
        Some(Protect { key, iv: whole, is_explicit })
    }

    /// Where what a record carries begins in it.
    #[inline]
    pub(crate) fn content_at(&self) -> usize {
        if self.is_explicit { HEADER_LEN + EXPLICIT_LEN } else { HEADER_LEN }
    }

    /// Makes a record of the first `len` bytes at `content_at`, and of what is free before and behind them. `None`: there is
    /// not so much room. No number may be used twice.
    #[inline]
    pub(crate) fn seal(&self, content: u8, seq: u64, buf: &mut [u8], len: usize) -> Option<usize> {
        let at = self.content_at();
        let record = buf.get_mut(..at + len + TAG_LEN)?;
        let numbered = (EPOCH << 48 | seq).to_be_bytes();
        let body_len = u16::try_from(record.len() - HEADER_LEN).ok()?;
        record[..3].copy_from_slice(&[content, 0xfe, 0xfd]);
        record[3..11].copy_from_slice(&numbered);
        record[11..HEADER_LEN].copy_from_slice(&body_len.to_be_bytes());
        if self.is_explicit {
            record[HEADER_LEN..at].copy_from_slice(&numbered);
        }
        let nonce = self.nonce(numbered, numbered);
        let (plain, tag_place) = record[at..].split_at_mut(len);
        let aad = aad(numbered, content, len);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(aad), plain).ok()?;
        tag_place.copy_from_slice(tag.as_ref());
        Some(at + len + TAG_LEN)
    }

    /// Opens a record in place. Returns where what it carries lies. `None`: it was changed on its way, or is nobody's.
    #[inline]
    pub(crate) fn open(&self, header: &Header, record: &mut [u8]) -> Option<Range<usize>> {
        let at = self.content_at();
        let len = record.len().checked_sub(at + TAG_LEN)?;
        let numbered = *record[3..].first_chunk()?;
        let explicit = *record[HEADER_LEN..].first_chunk()?;
        let nonce = self.nonce(numbered, explicit);
        let aad = aad(numbered, header.content, len);
        self.key.open_in_place(nonce, Aad::from(aad), &mut record[at..]).ok()?;
        Some(at..at + len)
    }

    fn nonce(&self, numbered: [u8; 8], explicit: [u8; 8]) -> Nonce {
        let mut nonce = self.iv;
        if self.is_explicit {
            nonce[SALT_LEN..].copy_from_slice(&explicit);
        } else {
            nonce[SALT_LEN..].iter_mut().zip(numbered).for_each(|(byte, number)| *byte ^= number);
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl fmt::Debug for Protect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protect(…)")
    }
}

fn aad(numbered: [u8; 8], content: u8, len: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&numbered);
    aad[8..].copy_from_slice(&[content, 0xfe, 0xfd, (len >> 8) as u8, len as u8]);
    aad
}
