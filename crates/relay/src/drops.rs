//! Why a datagram went no further, and how often.

use counters::counts_by;
use strum::{IntoStaticStr, VariantArray};

/// One reason for each early return. The names are stable: they are the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum DropReason {
    /// The first byte is neither that of a STUN message nor of ChannelData.
    UnknownProtocol,
    /// By its first byte a STUN message, but none.
    MalformedStun,
    /// ChannelData that is shorter than it says.
    MalformedChannelData,
    /// An answer, or an indication that clients do not send.
    UnexpectedStun,
    /// More answers were due to a source that has proved nothing than its share.
    UnauthenticatedBudgetSpent,
    /// Too many have failed to prove who they are at its address.
    AttemptsSpent,
    /// A request that proved nothing, and is none that gets an answer for that.
    NotAnswered,
    /// Data of a client without an allocation.
    NoAllocation,
    /// ChannelData of a channel that is not bound.
    NoChannel,
    /// Data to or from a peer that the client has not permitted.
    NoPermission,
    /// Data to or from an address that the operator does not allow.
    ForbiddenPeer,
    /// Data to a peer of a family that the allocation has no address of, or that is reached by TCP.
    WrongFamily,
    /// A record of DTLS without a single byte.
    Empty,
    /// The user, or all users together, are over their bandwidth.
    BandwidthSpent,
    /// By DTLS, and from somebody who has shaken hands with nobody, or whose hands are being shaken and who sends no such thing.
    NoAssociation,
    /// A datagram of DTLS that is none, or ends in the middle of a record.
    MalformedDtls,
    /// A record that was changed on its way, or is somebody else's.
    NotAuthentic,
    /// A record that was there before, or is too old to tell.
    Replayed,
    /// A source begins more handshakes than it may, or one brings more datagrams.
    HandshakeBudgetSpent,
    /// A datagram of a handshake finds no room on its way to who shakes hands.
    EventQueueFull,
    /// Data that does not fit a datagram with what stands around it.
    TooLong,
    /// Something came to a link that is not in use any more.
    StaleLink,
    /// There was no room on the way out.
    OutboxFull,
}

counts_by! {
    /// How often each reason was met.
    pub struct DropCounters: "reason" of DropReason
}
