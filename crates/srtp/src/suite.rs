//! What one direction of one session is protected with, whichever the profile.

use crate::cm::Cm;
use crate::gcm::Gcm;
use crate::keys::{KeyError, Master, Profile};

/// The E flag of SRTCP: the packet is encrypted. The other 31 bits of its word are the index.
pub(crate) const E_FLAG: u32 = 1 << 31;

/// Bytes of the word with the E flag and the SRTCP index.
pub(crate) const RTCP_WORD_LEN: usize = 4;

/// Bytes of an RTCP packet that stay readable: its first header and the sender's SSRC.
pub(crate) const RTCP_HEADER_LEN: usize = 8;

/// Which packet it is, as far as the cipher wants to know; each value may be used for one packet alone.
#[derive(Clone, Copy)]
pub(crate) struct PacketId {
    pub(crate) ssrc: u32,
    /// 48 bits: rollover counter and sequence number for RTP; the 31-bit SRTCP index for RTCP.
    pub(crate) index: u64,
}

impl PacketId {
    /// SSRC and 48-bit index one behind the other, as both kinds of initialisation vector hold them (RFC 3711 §4.1.1,
    /// RFC 7714 §8.1 and §9.1).
    pub(crate) fn bytes(self) -> [u8; 10] {
        let mut bytes = [0; 10];
        bytes[..4].copy_from_slice(&self.ssrc.to_be_bytes());
        bytes[4..].copy_from_slice(&self.index.to_be_bytes()[2..]);
        bytes
    }

    /// The rollover counter (RFC 3711 §3.3.1).
    pub(crate) fn roc(self) -> u32 {
        (self.index >> 16) as u32
    }
}

/// Session keys of one direction. `None` from any of its functions: too short, or not authentic.
pub(crate) enum Suite {
    Gcm(Gcm),
    Cm(Box<Cm>),
}

impl Suite {
    pub(crate) fn new(profile: Profile, master: Master<'_>) -> Result<Self, KeyError> {
        match profile {
            Profile::AeadAes128Gcm | Profile::AeadAes256Gcm => Ok(Suite::Gcm(Gcm::new(master)?)),
            Profile::Aes128CmSha1_80 => Ok(Suite::Cm(Box::new(Cm::new(master)?))),
        }
    }

    #[inline]
    pub(crate) fn seal_rtp(&self, packet: &mut [u8], header_len: usize, len: usize, id: PacketId) -> Option<usize> {
        match self {
            Suite::Gcm(gcm) => gcm.seal_rtp(packet, header_len, len, id),
            Suite::Cm(cm) => cm.seal_rtp(packet, header_len, len, id),
        }
    }

    #[inline]
    pub(crate) fn seal_rtp_from(
        &self,
        packet: &mut [u8],
        header_len: usize,
        payload: &[u8],
        id: PacketId,
    ) -> Option<usize> {
        match self {
            Suite::Gcm(gcm) => gcm.seal_rtp_from(packet, header_len, payload, id),
            Suite::Cm(cm) => cm.seal_rtp_from(packet, header_len, payload, id),
        }
    }

    #[inline]
    pub(crate) fn open_rtp(&self, packet: &mut [u8], header_len: usize, id: PacketId) -> Option<usize> {
        match self {
            Suite::Gcm(gcm) => gcm.open_rtp(packet, header_len, id),
            Suite::Cm(cm) => cm.open_rtp(packet, header_len, id),
        }
    }

    pub(crate) fn seal_rtcp(&self, packet: &mut [u8], len: usize, id: PacketId) -> Option<usize> {
        match self {
            Suite::Gcm(gcm) => gcm.seal_rtcp(packet, len, id),
            Suite::Cm(cm) => cm.seal_rtcp(packet, len, id),
        }
    }

    pub(crate) fn open_rtcp(&self, packet: &mut [u8], id: PacketId, encrypted: bool) -> Option<usize> {
        match self {
            Suite::Gcm(gcm) => gcm.open_rtcp(packet, id, encrypted),
            Suite::Cm(cm) => cm.open_rtcp(packet, id, encrypted),
        }
    }

    /// The word with the E flag and the index, wherever this profile puts it.
    pub(crate) fn rtcp_word(&self, packet: &[u8]) -> Option<u32> {
        let word = match self {
            Suite::Gcm(_) => packet.last_chunk()?,
            Suite::Cm(_) => packet.get(..packet.len().checked_sub(crate::cm::TAG_LEN)?)?.last_chunk()?,
        };
        Some(u32::from_be_bytes(*word))
    }
}
