//! What is known about one media packet, worked out once where it arrives and read by every down track.

use std::time::{Duration, Instant};

use srtp::Window;
use wire::codec::PayloadInfo;

/// What was lost may come again for so long: publishers are asked, logs keep it, and viewers are answered.
pub const REPAIRED_FOR: Duration = Duration::from_secs(2);

/// Which packets of a layer came, of the last 8,128: `REPAIRED_FOR` at 4,000 a second, which is 38 Mbit/s.
pub type Arrived = Window<128>;

/// One RTP packet of one layer, without its bytes.
#[derive(Clone, Copy, Debug)]
pub struct PacketMeta {
    /// Extended sequence number of the layer's own SSRC, as the publisher counts.
    pub seq: u64,
    /// RTP timestamp in clock-rate units, as the publisher counts.
    pub timestamp: u32,
    /// When the publisher's datagram was received.
    pub arrival: Instant,
    /// The RTP header's marker bit: of video, the last packet of a frame.
    pub marker: bool,
    /// What the codec's payload header says.
    pub payload: PayloadInfo,
}

/// The layer of its stream that a packet belongs to, since the layer's last start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerStart {
    /// Index of the track in the stream.
    pub track: u8,
    /// Index of the layer in the track.
    pub layer: u8,
    /// Changes when the publisher starts the layer anew, with other sequence numbers and timestamps.
    pub epoch: u32,
}

/// A pair of clocks from a sender report (RFC 3550 §6.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderClock {
    /// NTP timestamp, 32.32 fixed-point seconds.
    pub ntp: u64,
    /// The RTP timestamp of the same instant.
    pub rtp: u32,
}
