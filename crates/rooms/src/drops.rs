//! Why a packet went no further, and how often.

use counters::{Cell, Value};
use srtp::SrtpError;

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $label:literal,)+) => {
        /// One reason for each early return. The names are stable: they are the label of a metric.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $reason,)+
        }

        impl DropReason {
            /// All reasons, in the order of their index.
            pub const ALL: [DropReason; [$($label),+].len()] = [$(DropReason::$reason),+];

            /// The metric's label.
            pub fn name(self) -> &'static str {
                match self {
                    $(DropReason::$reason => $label,)+
                }
            }
        }
    };
}

reasons! {
    /// The first byte belongs to no protocol that we speak (RFC 7983).
    UnknownProtocol = "unknown_protocol",
    /// Nobody with this address has a session here.
    UnknownPeer = "unknown_peer",
    /// Media from somebody who only watches.
    NotAPublisher = "not_a_publisher",
    /// SRTP or SRTCP that was not sealed with the session's keys, or was changed on the way.
    NotAuthentic = "not_authentic",
    /// SRTP or SRTCP that came before, or is too old to tell.
    Replayed = "replayed",
    /// SRTP or SRTCP too short to hold what it must.
    MalformedSrtp = "malformed_srtp",
    /// The peer uses more SSRCs than a session may.
    TooManySsrcs = "too_many_ssrcs",
    /// The plain packet is no RTP.
    MalformedRtp = "malformed_rtp",
    /// The plain packet is no RTCP.
    MalformedRtcp = "malformed_rtcp",
    /// No track is known under this SSRC, MID, RID or payload type.
    UnknownSsrc = "unknown_ssrc",
    /// Padding without media, sent to probe the path.
    Padding = "padding",
    /// The packet is there already.
    Duplicate = "duplicate",
    /// The packet came later than the receive window remembers.
    TooOld = "too_old",
    /// The viewer does not get this temporal layer now.
    TemporalLayer = "temporal_layer",
    /// The packet was sent before the one at which the down track switched to its layer.
    BeforeSwitch = "before_switch",
    /// The packet came so late that its number in the output is not known any more.
    BehindHistory = "behind_history",
    /// The down track forwards no layer now.
    NotForwarding = "not_forwarding",
    /// Larger than what a datagram of ours may hold.
    DatagramTooLarge = "datagram_too_large",
    /// A viewer asked for a packet that is not remembered, was just sent again, or never was.
    NackForUnknownPacket = "nack_for_unknown_packet",
    /// A viewer asked for more retransmissions than its share.
    ResendBudgetSpent = "resend_budget_spent",
    /// Another worker's mailbox had no room for packets of a stream that is watched there.
    MailboxFull = "mailbox_full",
    /// The negotiator's mailbox had no room for a STUN or DTLS datagram; its sender repeats it.
    EventQueueFull = "event_queue_full",
    /// A STUN or DTLS datagram of ours was too long, or found no room on its way out; it is sent again when nobody answers.
    OutboxFull = "outbox_full",
}

impl From<SrtpError> for DropReason {
    fn from(error: SrtpError) -> Self {
        match error {
            SrtpError::Malformed(_) => DropReason::MalformedSrtp,
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
        DropReason::ALL.into_iter().zip(self.0)
    }
}

impl Cell for DropCounters {
    const WORDS: usize = DropReason::ALL.len();

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.iter().for_each(|(_, count)| word(count));
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        DropCounters(std::array::from_fn(|_| word()))
    }

    fn value(&self) -> Value<'_> {
        Value::ByLabel("reason", self.iter().map(|(reason, count)| (reason.name(), count)).collect())
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
