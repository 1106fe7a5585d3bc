//! With which packets of a down track its MID goes.
//!
//! In: how many packets went out, and that the peer has reported on them. Out: whether the next one has the MID. Cost: a
//! comparison per packet.
//! Source: RFC 8843 §9.2; libwebrtc modules/rtp_rtcp/source/rtp_sender.cc (until a report acknowledges the SSRC).
//!
//! It goes with each retransmission, because nobody knows which of these rare ones comes through, and Firefox ignores an SSRC
//! that has not shown it.

/// So many packets have it at first, and in each second until the peer reports on the SSRC: then it knows that. All of the
/// first may be lost, where a queue is full with those of the tracks before.
const PACKETS: u64 = 20;

/// How far it goes with the packets of one track.
#[derive(Clone, Copy, Debug)]
pub struct MidShown {
    /// Packets before this one have it.
    until: u64,
    is_known: bool,
}

impl MidShown {
    /// The peer knows nothing yet.
    pub fn new() -> Self {
        MidShown { until: PACKETS, is_known: false }
    }

    /// Whether it goes with the packet that comes after so many.
    #[inline(always)]
    pub fn goes_with(self, packets: u64) -> bool {
        packets < self.until
    }

    /// The peer has reported on the SSRC.
    pub fn on_report(&mut self) {
        self.is_known = true;
    }

    /// Shows it again where the peer may not know it, after so many packets. Comes once a second.
    pub fn follow(&mut self, packets: u64) {
        if !self.is_known {
            self.until = packets + PACKETS;
        }
    }
}
