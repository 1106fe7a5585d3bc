//! One direction of a connection: its key, and how many records it was used for.
//!
//! ```text
//! TLS 1.3   23 │ 3 3 │ length │ content, its type, zeros (encrypted) │ tag 16
//! TLS 1.2   type │ 3 3 │ length │ nonce 8, with AES-GCM │ content (encrypted) │ tag 16
//! ```
//!
//! Source: RFC 8446 §5.2 and §5.3 (TLS 1.3), RFC 5288 §3 and RFC 7905 §2 (TLS 1.2).

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use wire::{KernelKey, TlsKey, TlsVersion};

/// Bytes before each record.
pub(crate) const HEADER_LEN: usize = 5;

/// Bytes of content in one record at most (RFC 8446 §5.1).
pub(crate) const CONTENT_MAX: usize = 1 << 14;

/// Records that one AES-GCM key may seal (RFC 8446 §5.5 has 2^24.5, of 16 KiB each); then comes the next key.
const GCM_RECORDS_MAX: u64 = 1 << 24;

/// The same of TLS 1.2, which has no next key, and whose nonces are a count (RFC 5288 §3): who sees as many full records has a
/// chance of 2^-45 to tell them from noise, and of media's 2^-52.
const GCM_RECORDS_MAX_OF_TLS12: u64 = 1 << 32;

const TAG_LEN: usize = 16;
const IV_LEN: usize = 12;

/// Bytes of a nonce that stand in the record (RFC 5288 §3).
const EXPLICIT_LEN: usize = 8;

/// What a record carries (RFC 8446 §5.1).
pub(crate) mod content {
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const DATA: u8 = 23;
}

/// How records look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Tls13,
    Tls12Gcm,
    Tls12ChaCha,
}

/// Keys and count of one direction.
pub(crate) struct Protect {
    key: LessSafeKey,
    /// The same as bytes, for the kernel: it may be asked for at any time (`kernel_key`).
    raw: TlsKey,
    iv: [u8; IV_LEN],
    /// Of the next record.
    seq: u64,
    pub(crate) layout: Layout,
    records_max: u64,
}

/// A record that cannot be: its number ends the key, or it was changed on its way, or is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    Malformed,
    Changed,
    TooLong,
}

impl Protect {
    /// `None`: a version or suite that there is no code for, which nobody was offered.
    pub(crate) fn new(version: ProtocolVersion, (seq, secrets): (u64, ConnectionTrafficSecrets)) -> Option<Self> {
        let (algorithm, raw, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                (&AES_128_GCM, TlsKey::Aes128Gcm(key.as_ref().try_into().ok()?), key, iv)
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                (&AES_256_GCM, TlsKey::Aes256Gcm(key.as_ref().try_into().ok()?), key, iv)
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&CHACHA20_POLY1305, TlsKey::ChaCha20Poly1305(key.as_ref().try_into().ok()?), key, iv)
            }
            _ => return None,
        };
        let is_gcm = algorithm != &CHACHA20_POLY1305;
        let layout = match (version, is_gcm) {
            (ProtocolVersion::TLSv1_3, _) => Layout::Tls13,
            (ProtocolVersion::TLSv1_2, true) => Layout::Tls12Gcm,
            (ProtocolVersion::TLSv1_2, false) => Layout::Tls12ChaCha,
            _ => return None,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).ok()?);
        let records_max = match layout {
            Layout::Tls13 if is_gcm => GCM_RECORDS_MAX,
            Layout::Tls12Gcm => GCM_RECORDS_MAX_OF_TLS12,
            Layout::Tls13 | Layout::Tls12ChaCha => u64::MAX,
        };
        Some(Protect { key, raw, iv: iv.as_ref().try_into().ok()?, seq, layout, records_max })
    }

    /// Whether nothing more can be sealed under the key.
    pub(crate) fn is_used_up(&self) -> bool {
        self.seq >= self.records_max
    }

    /// Whether just what tells of the next key can be.
    pub(crate) fn is_nearly_used_up(&self) -> bool {
        self.seq + 1 >= self.records_max
    }

    /// What the kernel seals the next record with.
    ///
    /// AES-GCM of TLS 1.2: the kernel counts the nonce that stands in the record up from what it is given, where we have
    /// mixed it with the record's number. One nonce twice would give the key's secrets away, so the kernel counts in the
    /// other half of all numbers: ours differ from `iv` in their lower 32 bits alone (`GCM_RECORDS_MAX_OF_TLS12`), the
    /// kernel's in the first.
    pub(crate) fn kernel_key(&self) -> KernelKey {
        let version = if self.layout == Layout::Tls13 { TlsVersion::Tls13 } else { TlsVersion::Tls12 };
        let mut iv = self.iv;
        if self.layout == Layout::Tls12Gcm {
            iv[IV_LEN - EXPLICIT_LEN] ^= 0x80;
        }
        KernelKey { version, key: self.raw.clone(), iv, seq: self.seq }
    }

    /// So many bytes were sealed elsewhere, with one call. How they were cut is not told; what a key may seal is a matter of
    /// bytes more than of records, and the limits are those of full ones.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.seq = self.seq.saturating_add(bytes.div_ceil(CONTENT_MAX).max(1) as u64);
    }

    #[cfg(test)]
    pub(crate) fn allow(&mut self, records: u64) {
        self.records_max = self.seq + records;
    }

    /// Bytes of a record behind its header at most (RFC 8446 §5.2, RFC 5246 §6.2.3).
    pub(crate) fn body_max(&self) -> usize {
        CONTENT_MAX + if self.layout == Layout::Tls13 { 256 } else { 2_048 }
    }

    /// Puts a record behind what stands in `out`. `plain` has `CONTENT_MAX` bytes at most.
    pub(crate) fn seal(&mut self, content: u8, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
        debug_assert!(plain.len() <= CONTENT_MAX && !self.is_used_up(), "it is the caller's to see to");
        let nonce = self.nonce();
        let (outer, before, behind) = match self.layout {
            Layout::Tls13 => (content::DATA, &[][..], &[content][..]),
            Layout::Tls12Gcm => (content, &nonce[IV_LEN - EXPLICIT_LEN..], &[][..]),
            Layout::Tls12ChaCha => (content, &[][..], &[][..]),
        };
        let body_len = before.len() + plain.len() + behind.len() + TAG_LEN;
        let header = header(outer, body_len);
        out.reserve(HEADER_LEN + body_len);
        out.extend_from_slice(&header);
        out.extend_from_slice(before);
        let start = out.len();
        out.extend_from_slice(plain);
        out.extend_from_slice(behind);
        let aad = self.aad(outer, header, plain.len());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(aad.bytes()), &mut out[start..]).ok()?;
        out.extend_from_slice(tag.as_ref());
        self.seq += 1;
        Some(())
    }

    /// Opens a whole record in place. Returns what it carries, and where that lies.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(u8, std::ops::Range<usize>), RecordError> {
        let (header, body) = record.split_first_chunk_mut::<HEADER_LEN>().ok_or(RecordError::Malformed)?;
        let explicit_len = if self.layout == Layout::Tls12Gcm { EXPLICIT_LEN } else { 0 };
        let len = body.len().checked_sub(explicit_len + TAG_LEN).ok_or(RecordError::Malformed)?;
        let (explicit, sealed) = body.split_at_mut(explicit_len);
        let mut nonce = self.nonce();
        nonce[IV_LEN - explicit_len..].copy_from_slice(explicit);
        if explicit_len > 0 {
            // The other side chooses its part; the salt is mixed with nothing.
            nonce[..IV_LEN - EXPLICIT_LEN].copy_from_slice(&self.iv[..IV_LEN - EXPLICIT_LEN]);
        }
        let aad = self.aad(header[0], *header, len);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let plain = self.key.open_in_place(nonce, Aad::from(aad.bytes()), sealed).map_err(|_| RecordError::Changed)?;
        self.seq = self.seq.checked_add(1).ok_or(RecordError::Changed)?;
        let start = HEADER_LEN + explicit_len;
        let (content, len) = match self.layout {
            // The last byte that is not zero says what it is.
            Layout::Tls13 => {
                let last = plain.iter().rposition(|byte| *byte != 0).ok_or(RecordError::Malformed)?;
                (plain[last], last)
            }
            Layout::Tls12Gcm | Layout::Tls12ChaCha => (header[0], plain.len()),
        };
        if len > CONTENT_MAX {
            return Err(RecordError::TooLong);
        }
        Ok((content, start..start + len))
    }

    /// The number of the record, mixed with the key's own bytes (RFC 8446 §5.3). AES-GCM of TLS 1.2 leaves the choice to us,
    /// and this is as good there.
    fn nonce(&self) -> [u8; IV_LEN] {
        let mut nonce = self.iv;
        for (byte, seq) in nonce[IV_LEN - 8..].iter_mut().zip(self.seq.to_be_bytes()) {
            *byte ^= seq;
        }
        nonce
    }

    /// What is authenticated besides: the header; in TLS 1.2 (RFC 5246 §6.2.3.3) with the number before it, and the length
    /// of the content.
    fn aad(&self, outer: u8, header: [u8; HEADER_LEN], len: usize) -> Additional {
        if self.layout == Layout::Tls13 {
            return Additional::Header(header);
        }
        let mut all = [0; 13];
        all[..8].copy_from_slice(&self.seq.to_be_bytes());
        all[8..].copy_from_slice(&[outer, 3, 3, (len >> 8) as u8, len as u8]);
        Additional::Numbered(all)
    }
}

enum Additional {
    Header([u8; HEADER_LEN]),
    Numbered([u8; 13]),
}

impl Additional {
    fn bytes(&self) -> &[u8] {
        match self {
            Additional::Header(bytes) => bytes,
            Additional::Numbered(bytes) => bytes,
        }
    }
}

/// All versions call themselves 1.2 here (RFC 8446 §5.1).
fn header(content: u8, body_len: usize) -> [u8; HEADER_LEN] {
    [content, 3, 3, (body_len >> 8) as u8, body_len as u8]
}
