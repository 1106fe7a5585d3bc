//! What control tells a worker about sessions and streams, and what it hears back. Plain values: they cross threads.

use std::sync::Arc;

use wire::codec::{Codec, MediaKind};
use wire::{Bitrate, Path};

pub use wire::WorkerId;

pub use crate::counters::Counters;
use srtp::SessionKeys;

/// One peer connection, unique in the process for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// One publication, unique in the process for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// The tracks of a stream, and the layers of each, as negotiated. At most `TRACKS_MAX` and `LAYERS_MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    pub id: StreamId,
    pub tracks: Vec<TrackSpec>,
}

/// One audio or video track. Its layers stand from the smallest picture to the largest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackSpec {
    pub kind: MediaKind,
    pub codec: Codec,
    /// Units of the RTP timestamp per second.
    pub clock_rate: u32,
    /// One RID per simulcast layer (RFC 8851), smallest picture first; empty without simulcast, which is one layer.
    pub rids: Vec<Arc<str>>,
}

impl TrackSpec {
    pub fn layer_count(&self) -> usize {
        self.rids.len().max(1)
    }
}

/// Header extension ids that were negotiated for one media section (RFC 8285); `None` where an extension was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtensionIds {
    pub mid: Option<u8>,
    pub rid: Option<u8>,
    pub repaired_rid: Option<u8>,
    pub audio_level: Option<u8>,
    pub abs_send_time: Option<u8>,
    pub transport_cc: Option<u8>,
    pub video_orientation: Option<u8>,
    pub playout_delay: Option<u8>,
    pub dependency_descriptor: Option<u8>,
}

/// A session whose handshake is done.
#[derive(Clone, Debug)]
pub struct PeerSpec {
    pub session: SessionId,
    pub path: Path,
    pub keys: SessionKeys,
}

/// What a publisher sends for one track of its stream.
#[derive(Clone, Debug)]
pub struct UpTrackSpec {
    /// Index into `StreamSpec::tracks`.
    pub track: u8,
    pub mid: Arc<str>,
    pub payload_type: u8,
    pub rtx_payload_type: Option<u8>,
    /// SSRC and RTX SSRC per layer where the SDP names them; otherwise both are learned from MID and RID extensions.
    pub ssrcs: Vec<(u32, Option<u32>)>,
    pub extensions: ExtensionIds,
}

/// What a viewer receives for one track of a stream.
#[derive(Clone, Debug)]
pub struct DownTrackSpec {
    /// Index into `StreamSpec::tracks`.
    pub track: u8,
    pub mid: Arc<str>,
    pub ssrc: u32,
    pub payload_type: u8,
    /// SSRC and payload type for retransmissions (RFC 4588), where the viewer takes them.
    pub rtx: Option<(u32, u8)>,
    pub extensions: ExtensionIds,
}

/// What control asks of a worker's rooms.
#[derive(Debug)]
pub enum Command {
    /// Makes the stream known on this worker. Comes before any publisher or viewer of it.
    OpenStream(StreamSpec),
    /// Forgets the stream and ends the sessions that publish or watch it here.
    CloseStream(StreamId),
    /// A peer is here, connected. It ends with the last stream that it publishes or watches.
    AddSession(PeerSpec),
    /// The session publishes the stream from now on. A second publisher of a stream takes the place of the first.
    Publish {
        session: SessionId,
        stream: StreamId,
        tracks: Vec<UpTrackSpec>,
    },
    /// The session watches the stream from now on. Watched anew, it begins anew.
    Watch {
        session: SessionId,
        stream: StreamId,
        tracks: Vec<DownTrackSpec>,
    },
    /// ICE nominated another path for the session.
    MovePath {
        session: SessionId,
        path: Path,
    },
    /// The peer proved that it is there and wants our packets (RFC 7675).
    Consent {
        session: SessionId,
    },
    RemoveSession(SessionId),
    /// Sends a copy of each packet of the stream to another worker too, or stops doing so.
    Feed {
        stream: StreamId,
        to: WorkerId,
        on: bool,
    },
    /// What a viewer may get of its video tracks at most.
    Limit {
        session: SessionId,
        layers: LayerLimit,
    },
    /// Asks for one `Event::Stats` about the session.
    Inspect {
        session: SessionId,
        token: u64,
    },
}

/// What a viewer asked for by hand. The bandwidth estimate may still choose less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerLimit {
    /// Highest layer, counted from the smallest picture.
    pub spatial_max: u8,
    /// Highest temporal layer.
    pub temporal_max: u8,
}

impl LayerLimit {
    pub const NONE: LayerLimit = LayerLimit { spatial_max: u8::MAX, temporal_max: u8::MAX };
}

/// What a worker's rooms tell control.
#[derive(Debug)]
pub enum Event {
    /// The session is gone from the worker.
    SessionEnded { session: SessionId, reason: EndReason },
    /// Answers `Command::Inspect`.
    Stats { token: u64, stats: Option<SessionStats> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Nothing came from the peer for the idle time.
    Silent,
    /// Its stream was closed.
    StreamClosed,
    /// Another publisher took the stream over.
    Replaced,
    /// Its TCP connection is gone.
    LinkClosed,
    /// The worker has `sessions_max` sessions already.
    Full,
    /// The handshake gave keys that do not fit their profile.
    BadKeys,
}

/// A session's counters, for people and for the API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionStats {
    pub packets_sent: u64,
    pub bytes_sent: u64,
    pub packets_received: u64,
    pub bytes_received: u64,
    /// Of a publisher: packets whose temporal layer is not known, for want of the structure that their dependency
    /// descriptor refers to.
    pub packets_without_layer: u64,
    pub packets_resent: u64,
    pub packets_skipped: u64,
    pub nacks_received: u64,
    pub keyframe_requests_received: u64,
    /// Share of packets lost on the way to the peer, 0 to 1, by its last report.
    pub loss: f32,
    pub round_trip_ms: Option<f32>,
    pub estimate: Option<Bitrate>,
    /// For each video track: the layer sent now and the one aimed at.
    pub layers: Vec<LayerStats>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerStats {
    pub mid: Arc<str>,
    pub current: Option<u8>,
    pub target: Option<u8>,
    pub layer_count: u8,
    pub rid: Option<Arc<str>>,
    pub temporal_max: u8,
}
