//! Why a packet went no further, and how often.

use counters::{Cell, Value};
use srtp::SrtpError;
use strum::{IntoStaticStr, VariantArray};

/// One reason for each early return. The names are stable: they are the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum DropReason {
    /// The first byte belongs to no protocol that we speak (RFC 7983).
    UnknownProtocol,
    /// Nobody with this address has a session here.
    UnknownPeer,
    /// Media from somebody who only watches.
    NotAPublisher,
    /// SRTP or SRTCP that was not sealed with the session's keys, or was changed on the way.
    NotAuthentic,
    /// SRTP or SRTCP that came before, or is too old to tell.
    Replayed,
    /// SRTP or SRTCP too short to hold what it must.
    MalformedSrtp,
    /// The plain packet is no RTP.
    MalformedRtp,
    /// The plain packet is no RTCP.
    MalformedRtcp,
    /// Redundant audio (RED) that is cut short, or whose primary is of another payload type.
    MalformedRed,
    /// No track is known under this SSRC, MID, RID or payload type.
    UnknownSsrc,
    /// Padding without media, sent to probe the path.
    Padding,
    /// The packet is there already.
    Duplicate,
    /// The packet came later than the receive window remembers.
    TooOld,
    /// The viewer does not get this temporal layer now.
    TemporalLayer,
    /// The viewer does not get this spatial layer now.
    SpatialLayer,
    /// The packet was sent before the one at which the down track switched to its layer.
    BeforeSwitch,
    /// The packet came so late that its number in the output is not known any more.
    BehindHistory,
    /// The down track forwards no layer now.
    NotForwarding,
    /// Larger than what a datagram of ours may hold.
    DatagramTooLarge,
    /// A viewer asked for a packet that is not remembered, was just sent again, or never was.
    NackForUnknownPacket,
    /// A viewer asked for more retransmissions than its share.
    ResendBudgetSpent,
    /// A viewer asked for more keyframes than its share.
    KeyframeBudgetSpent,
    /// A viewer's transport-wide feedback spoke of more packets in one compound than are remembered.
    FeedbackTooLong,
    /// Another worker's mailbox had no room for packets of a stream that is watched there.
    MailboxFull,
    /// The negotiator's mailbox had no room for a STUN or DTLS datagram; its sender repeats it.
    EventQueueFull,
    /// More STUN or DTLS datagrams came from a session's address than its share, while the negotiator was busy.
    HandshakeBudgetSpent,
    /// By its first byte STUN or DTLS, but neither a connectivity check, nor an answer to one, nor a record, or too long.
    MalformedHandshake,
    /// A STUN or DTLS datagram of ours was too long, or found no room on its way out; it is sent again when nobody answers.
    OutboxFull,
}

impl From<SrtpError> for DropReason {
    fn from(error: SrtpError) -> Self {
        match error {
            SrtpError::Malformed => DropReason::MalformedSrtp,
            SrtpError::Replayed => DropReason::Replayed,
            SrtpError::NotAuthentic => DropReason::NotAuthentic,
        }
    }
}

/// How often each reason was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropCounters([u64; DropReason::VARIANTS.len()]);

impl DropCounters {
    /// Counts one.
    pub fn add(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// How often that reason was met.
    pub fn count(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::VARIANTS.iter().copied().zip(self.0)
    }
}

impl Cell for DropCounters {
    const WORDS: usize = DropReason::VARIANTS.len();

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.iter().for_each(|(_, count)| word(count));
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        DropCounters(std::array::from_fn(|_| word()))
    }

    fn value(&self) -> Value<'_> {
        Value::ByLabel("reason", self.iter().map(|(reason, count)| (reason.into(), count)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_count_and_are_read_back() {
        let mut counters = DropCounters::default();
        counters.add(DropReason::EventQueueFull);
        let mut words = Vec::new();
        counters.put(&mut |word| words.push(word));
        let mut words = words.into_iter();
        let read = DropCounters::take(&mut || words.next().expect("a word per reason"));
        assert_eq!(read.count(DropReason::EventQueueFull), 1);
        assert_eq!(read.iter().map(|(_, count)| count).sum::<u64>(), 1);
    }
}
