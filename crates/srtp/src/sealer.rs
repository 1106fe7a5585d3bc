//! The outbound half of a session.

use crate::keys::{KeyError, Profile, SessionKeys};
use crate::suite::{E_FLAG, PacketId, RTCP_HEADER_LEN, Suite};

/// Where extended sequence numbers start in this project (see `wire::SeqExtender`); the wire starts at 0.
const FIRST_SEQ: u64 = 1 << 16;

/// The 48 bits of rollover counter and sequence number.
const INDEX_MASK: u64 = (1 << 48) - 1;

/// Seals what one session sends. It knows no streams: whoever numbers a stream's packets owns their numbers.
pub struct Sealer {
    profile: Profile,
    suite: Suite,
    /// Shared by all SSRCs of the session, so that no SSRC sees one twice. `E_FLAG` when they are used up.
    next_rtcp_index: u32,
}

impl Sealer {
    /// Derives our half of the session keys.
    ///
    /// # Errors
    /// When the cryptographic library refuses a key.
    pub fn new(keys: &SessionKeys) -> Result<Self, KeyError> {
        Ok(Sealer { profile: keys.profile(), suite: Suite::new(keys.profile(), keys.ours())?, next_rtcp_index: 0 })
    }

    /// Bytes that an RTP packet grows by.
    pub fn rtp_overhead(&self) -> usize {
        self.profile.rtp_overhead()
    }

    /// Bytes that an RTCP packet grows by.
    pub fn rtcp_overhead(&self) -> usize {
        self.profile.rtcp_overhead()
    }

    /// Seals `packet[..len]`, a whole RTP packet whose header with its extensions has `header_len` bytes, and returns
    /// its length on the wire. `packet` has `rtp_overhead` bytes more. Returns 0, and nothing may be sent, when it has
    /// not.
    ///
    /// `seq` is the extended sequence number, counted from 65,536. A number may be sealed a second time only for the
    /// very same bytes, header included: two packets under one number give an AES-GCM key away (RFC 7714 §10.1).
    #[inline]
    pub fn seal_rtp(&self, packet: &mut [u8], header_len: usize, len: usize, ssrc: u32, seq: u64) -> usize {
        let id = rtp_id(ssrc, seq);
        let sealed = self.suite.seal_rtp(packet, header_len, len, id);
        debug_assert!(sealed.is_some(), "{len} bytes with a header of {header_len} in a slot of {}", packet.len());
        sealed.unwrap_or(0)
    }

    /// Like `seal_rtp`, for a payload that lies elsewhere and is as it should be: `packet[..header_len]` is the header,
    /// and what follows it is overwritten. With AES-GCM this spares the copy.
    #[inline]
    pub fn seal_rtp_from(&self, packet: &mut [u8], header_len: usize, payload: &[u8], ssrc: u32, seq: u64) -> usize {
        let sealed = self.suite.seal_rtp_from(packet, header_len, payload, rtp_id(ssrc, seq));
        debug_assert!(sealed.is_some(), "{header_len} and {} bytes in a slot of {}", payload.len(), packet.len());
        sealed.unwrap_or(0)
    }

    /// Seals `packet[..len]`, a compound RTCP packet, and returns its length on the wire. `packet` has `rtcp_overhead`
    /// bytes more. Returns 0, and nothing may be sent, when it has not, or when the session's 2^31 indexes are used up
    /// (RFC 3711 §9.2), which takes 68 years at one packet a second.
    pub fn seal_rtcp(&mut self, packet: &mut [u8], len: usize) -> usize {
        let index = self.next_rtcp_index;
        if index >= E_FLAG || len < RTCP_HEADER_LEN {
            return 0;
        }
        let Some(ssrc) = packet.get(4..).and_then(|rest| rest.first_chunk()) else { return 0 };
        let id = PacketId { ssrc: u32::from_be_bytes(*ssrc), index: index.into() };
        self.next_rtcp_index += 1;
        let sealed = self.suite.seal_rtcp(packet, len, id);
        debug_assert!(sealed.is_some(), "{len} bytes in a slot of {}", packet.len());
        sealed.unwrap_or(0)
    }

    /// Jumps to the last SRTCP index but `left`.
    #[cfg(test)]
    pub(crate) fn use_up_rtcp_indexes(&mut self, left: u32) {
        self.next_rtcp_index = E_FLAG - left;
    }
}

fn rtp_id(ssrc: u32, seq: u64) -> PacketId {
    PacketId { ssrc, index: seq.wrapping_sub(FIRST_SEQ) & INDEX_MASK }
}
