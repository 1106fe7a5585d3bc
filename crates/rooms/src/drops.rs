//! Why a packet went no further, and how often.

use crate::srtp::SrtpError;

/// One reason for each early return. The names are stable: they are the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The peer uses more SSRCs than a session may.
    TooManySsrcs,
    MalformedRtp,
    MalformedRtcp,
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
    OutboxFull,
    MailboxFull,
    EventQueueFull,
}

impl DropReason {
    /// All reasons, in the order of their index.
    pub const ALL: [DropReason; 23] = {
        use DropReason::*;
        [
            UnknownProtocol,
            UnknownPeer,
            NotAPublisher,
            NotAuthentic,
            Replayed,
            MalformedSrtp,
            TooManySsrcs,
            MalformedRtp,
            MalformedRtcp,
            UnknownSsrc,
            Padding,
            Duplicate,
            TooOld,
            TemporalLayer,
            BeforeSwitch,
            BehindHistory,
            NotForwarding,
            DatagramTooLarge,
            NackForUnknownPacket,
            ResendBudgetSpent,
            OutboxFull,
            MailboxFull,
            EventQueueFull,
        ]
    };

    /// The metric's label.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::UnknownProtocol => "unknown_protocol",
            DropReason::UnknownPeer => "unknown_peer",
            DropReason::NotAPublisher => "not_a_publisher",
            DropReason::NotAuthentic => "not_authentic",
            DropReason::Replayed => "replayed",
            DropReason::MalformedSrtp => "malformed_srtp",
            DropReason::TooManySsrcs => "too_many_ssrcs",
            DropReason::MalformedRtp => "malformed_rtp",
            DropReason::MalformedRtcp => "malformed_rtcp",
            DropReason::UnknownSsrc => "unknown_ssrc",
            DropReason::Padding => "padding",
            DropReason::Duplicate => "duplicate",
            DropReason::TooOld => "too_old",
            DropReason::TemporalLayer => "temporal_layer",
            DropReason::BeforeSwitch => "before_switch",
            DropReason::BehindHistory => "behind_history",
            DropReason::NotForwarding => "not_forwarding",
            DropReason::DatagramTooLarge => "datagram_too_large",
            DropReason::NackForUnknownPacket => "nack_for_unknown_packet",
            DropReason::ResendBudgetSpent => "resend_budget_spent",
            DropReason::OutboxFull => "outbox_full",
            DropReason::MailboxFull => "mailbox_full",
            DropReason::EventQueueFull => "event_queue_full",
        }
    }
}

impl From<SrtpError> for DropReason {
    fn from(error: SrtpError) -> Self {
        match error {
            SrtpError::Truncated { .. } | SrtpError::Version { .. } => DropReason::MalformedSrtp,
            SrtpError::Replayed => DropReason::Replayed,
            SrtpError::NotAuthentic => DropReason::NotAuthentic,
            SrtpError::TooManySsrcs => DropReason::TooManySsrcs,
        }
    }
}

/// How often each reason was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropCounters([u64; DropReason::ALL.len()]);

impl DropCounters {
    pub fn add(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    pub fn count(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().zip(self.0)
    }

    /// Adds another worker's counts to these.
    pub fn merge(&mut self, other: &DropCounters) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_an_index_and_a_name_of_its_own() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert_eq!(DropReason::ALL.into_iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
    }

    #[test]
    fn counters_count_and_merge() {
        let mut counters = DropCounters::default();
        counters.add(DropReason::EventQueueFull);
        let mut sum = counters.clone();
        sum.merge(&counters);
        assert_eq!(sum.count(DropReason::EventQueueFull), 2);
        assert_eq!(sum.iter().map(|(_, count)| count).sum::<u64>(), 2);
    }
}
