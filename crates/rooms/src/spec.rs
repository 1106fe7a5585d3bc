//! What control tells a worker about sessions and streams, and what it hears back. Plain values: they cross threads.

use std::fmt;
use std::sync::Arc;

use wire::codec::{Codec, Profile};
use wire::{Bitrate, Path};

pub use wire::WorkerId;

pub use crate::counters::Counters;
use crate::story::Story;
use srtp::SessionKeys;

/// One peer connection, unique in the process for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// One publication, unique in the process for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// The tracks of a stream, at most 8, and the layers of each, at most 4, as negotiated. Others are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// How control calls it.
    pub id: StreamId,
    /// Other specs name them by their index.
    pub tracks: Vec<TrackSpec>,
}

/// One audio or video track. Its layers stand from the smallest picture to the largest, as far as names tell: what they
/// carry tells more (`layer_order`), and `LayerLimit` and `LayerStats` count by that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackSpec {
    /// The only one of its packets.
    pub codec: Codec,
    /// Of the codec, as its publisher says.
    pub profile: Profile,
    /// One RID per simulcast layer (RFC 8851), smallest picture first; empty without simulcast, which is one layer.
    pub rids: Vec<Arc<str>>,
}

impl TrackSpec {
    /// How many layers it has, at least one.
    pub fn layer_count(&self) -> usize {
        self.rids.len().max(1)
    }

    /// Whether viewers may be sent one size of it or another: several streams, or one of a codec that has layers within.
    pub fn may_have_layers(&self) -> bool {
        self.layer_count() > 1 || matches!(self.codec, Codec::Vp9 | Codec::Av1)
    }
}

/// Header extension ids that were negotiated for one media section (RFC 8285); `None` where an extension was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtensionIds {
    /// RFC 8843 §15: which media section a packet belongs to.
    pub mid: Option<u8>,
    /// RFC 8852 §3.1: which simulcast layer.
    pub rid: Option<u8>,
    /// RFC 8852 §3.2: the same, of a retransmission.
    pub repaired_rid: Option<u8>,
    /// RFC 6464: how loud it is.
    pub audio_level: Option<u8>,
    /// Number over all packets of the session, for feedback.
    pub transport_cc: Option<u8>,
    /// How the camera is held (3GPP TS 26.114 §7.4.5).
    pub video_orientation: Option<u8>,
    /// How long the receiver may wait.
    pub playout_delay: Option<u8>,
    /// When a packet left us, in 2^-18 s modulo 64 s; for viewers without transport-wide feedback.
    pub abs_send_time: Option<u8>,
    /// When a frame was captured, by its publisher's clock.
    pub abs_capture_time: Option<u8>,
    /// Primaries, transfer, matrix and range of the picture, with HDR metadata.
    pub color_space: Option<u8>,
    /// Camera or screen.
    pub video_content_type: Option<u8>,
    /// What frame depends on which (AV1 RTP specification, appendix A).
    pub dependency_descriptor: Option<u8>,
}

/// A session whose handshake is done.
#[derive(Clone, Debug)]
pub struct PeerSpec {
    /// How control calls it.
    pub session: SessionId,
    /// Where its packets come from and ours go to.
    pub path: Path,
    /// For both directions.
    pub keys: SessionKeys,
    /// Our CNAME, at most 64 bytes, for a peer that takes whole compounds only, with a report in front and a source
    /// description (RFC 3550 §6.1); `None` where RTCP of reduced size was negotiated (RFC 5506 §5).
    pub cname: Option<Arc<str>>,
}

/// What a peer's checks say and are proved by (RFC 8445 §7.2.2).
#[derive(Clone, PartialEq, Eq)]
pub struct IceCredentials {
    /// Our user fragment, a colon and the peer's.
    pub username: Box<str>,
    /// Ours.
    pub password: Box<str>,
}

impl fmt::Debug for IceCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IceCredentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// What a publisher sends for one track of its stream.
#[derive(Clone, Debug)]
pub struct UpTrackSpec {
    /// Index into `StreamSpec::tracks`.
    pub track: u8,
    /// Identifies the media section.
    pub mid: Arc<str>,
    /// Of media.
    pub payload_type: u8,
    /// Of retransmissions (RFC 4588), where the publisher sends them.
    pub rtx_payload_type: Option<u8>,
    /// Of audio with redundancy (RFC 2198), where the publisher may send it.
    pub red_payload_type: Option<u8>,
    /// SSRC and RTX SSRC per layer where the SDP names them; otherwise both are learned from MID and RID extensions.
    pub ssrcs: Vec<(u32, Option<u32>)>,
    /// Further SSRCs that the SDP names in the section: what comes under these is not taken.
    pub other_ssrcs: Vec<u32>,
    /// As the publisher numbers them.
    pub extensions: ExtensionIds,
}

/// What a viewer receives for one track of a stream.
#[derive(Clone, Debug)]
pub struct DownTrackSpec {
    /// Index into `StreamSpec::tracks`.
    pub track: u8,
    /// Identifies the media section.
    pub mid: Arc<str>,
    /// Under which it is sent, in all layers.
    pub ssrc: u32,
    /// Of media.
    pub payload_type: u8,
    /// SSRC and payload type for retransmissions (RFC 4588), where the viewer takes them.
    pub rtx: Option<(u32, u8)>,
    /// For audio with redundancy, where the viewer takes it.
    pub red: Option<RedSpec>,
    /// As the viewer numbers them.
    pub extensions: ExtensionIds,
}

/// How a viewer takes audio with redundancy (RFC 2198).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedSpec {
    /// Instead of that of the codec.
    pub payload_type: u8,
    /// Rather than the codec alone; otherwise only while packets are lost.
    pub is_preferred: bool,
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
    /// A member of a conference is here, connected. It stays though it publishes and watches nothing.
    AddMember(PeerSpec),
    /// The session publishes the stream from now on. A second publisher of a stream takes the place of the first.
    Publish {
        /// Which session.
        session: SessionId,
        /// Which stream.
        stream: StreamId,
        /// What it sends.
        tracks: Vec<UpTrackSpec>,
    },
    /// The session publishes the stream no more, where it did; its viewers stay.
    Unpublish {
        /// Which session.
        session: SessionId,
        /// Which stream.
        stream: StreamId,
    },
    /// The session watches the stream from now on. Watched anew, it begins anew, under SSRCs that the session never had:
    /// with one that it had, nothing happens.
    Watch {
        /// Which session.
        session: SessionId,
        /// Which stream.
        stream: StreamId,
        /// What it receives.
        tracks: Vec<DownTrackSpec>,
    },
    /// The session watches the stream no more, where it did.
    Unwatch {
        /// Which session.
        session: SessionId,
        /// Which stream.
        stream: StreamId,
    },
    /// The session's peer hears of a track by its first packet: should nothing come of the stream, it is sent a few of padding.
    Announce {
        /// Which session.
        session: SessionId,
        /// Which stream, that it watches.
        stream: StreamId,
    },
    /// The session is sent nothing of the stream for now, or again: sound at once, pictures from a keyframe on. Its numbers go
    /// on without a gap.
    Pause {
        /// Which session.
        session: SessionId,
        /// Which stream, that it watches.
        stream: StreamId,
        /// Or again.
        on: bool,
    },
    /// `Event::Levels` and `Event::Layers` tell of the stream from now on, until it is closed.
    Observe {
        /// Which stream.
        stream: StreamId,
    },
    /// ICE nominated another path for the session.
    MovePath {
        /// Which session.
        session: SessionId,
        /// The new one.
        path: Path,
    },
    /// The peer proved that it is there and wants our packets (RFC 7675).
    Consent {
        /// Which session.
        session: SessionId,
    },
    /// The rooms answer the peer's checks from where it is, which are proved by these; `None`: the negotiator answers all of
    /// them, as at first.
    AnswerChecks {
        /// Which session.
        session: SessionId,
        /// Until its next restart.
        credentials: Option<IceCredentials>,
    },
    /// The session is over; nothing is heard of it any more.
    RemoveSession(SessionId),
    /// Sends a copy of each packet of the stream to another worker too, or stops doing so.
    Mirror {
        /// Which stream.
        stream: StreamId,
        /// Who gets copies.
        to: WorkerId,
        /// Or no more.
        on: bool,
    },
    /// What a viewer may get of the video of one stream at most, that it watches.
    LimitStream {
        /// Which session.
        session: SessionId,
        /// Which stream.
        stream: StreamId,
        /// At most.
        layers: LayerLimit,
        /// Which of its streams has its part of the bandwidth first: 1 comes before 2, and 0 behind all others.
        priority: u32,
    },
    /// What a viewer may get of its video tracks at most: of those that it has, and of those to come.
    Limit {
        /// Which session.
        session: SessionId,
        /// At most.
        layers: LayerLimit,
    },
    /// Asks for one `Event::Stats` about the session.
    Inspect {
        /// Which session.
        session: SessionId,
        /// Comes back with the answer.
        token: u64,
    },
    /// Asks for one `Event::Story` about the session.
    Tell {
        /// Which session.
        session: SessionId,
        /// Comes back with the answer.
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
    /// All that there is.
    pub const NONE: LayerLimit = LayerLimit { spatial_max: u8::MAX, temporal_max: u8::MAX };
}

/// What a worker's rooms tell control.
#[derive(Debug)]
pub enum Event {
    /// The session is gone from the worker.
    SessionEnded {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: EndReason,
    },
    /// How loud the streams were that could be heard, of those that are observed and published on this worker: every 100 ms.
    Levels(Vec<Level>),
    /// Of a stream that is observed and published on this worker other layers come than before.
    Layers {
        /// Which stream.
        stream: StreamId,
        /// Sizes of the picture of which something comes, one bit each, the smallest the lowest; of sound one.
        flowing: u8,
    },
    /// A member gets nothing of a stream's picture for want of bandwidth, or gets it again (`Settings::pause`): told within a second.
    Paused {
        /// Which session.
        session: SessionId,
        /// Which stream.
        stream: StreamId,
        /// Or again.
        on: bool,
    },
    /// Nothing comes from a member's peer, or something comes again (`silence`).
    Silent {
        /// Which session.
        session: SessionId,
        /// Or again.
        on: bool,
    },
    /// Answers `Command::Inspect`.
    Stats {
        /// The question's.
        token: u64,
        /// `None` when there is no such session.
        stats: Option<SessionStats>,
    },
    /// Answers `Command::Tell`.
    Story {
        /// The question's.
        token: u64,
        /// `None` when there is no such session.
        story: Option<Box<Story>>,
    },
    /// What became of a session that is gone from the worker.
    StoryEnded {
        /// Which session.
        session: SessionId,
        /// Up to its end.
        story: Box<Story>,
    },
}

/// How loud a stream was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Which stream.
    pub stream: StreamId,
    /// At its loudest, in dB below full scale (RFC 6464 §3): 0 to 126.
    pub level: u8,
}

/// Why a worker let go of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Nothing came from the peer for the idle time.
    Silent,
    /// Its stream was closed.
    StreamClosed,
    /// Another publisher took the stream over.
    Replaced,
    /// The worker has `sessions_max` sessions already.
    Full,
    /// The handshake gave keys that do not fit their profile.
    BadKeys,
    /// The TCP connection of its handshake ended meanwhile.
    Disconnected,
}

/// A session's counters, for people and for the API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionStats {
    /// Media packets, retransmissions not counted.
    pub packets_sent: u64,
    /// In media packets and retransmissions, as they are on the wire.
    pub bytes_sent: u64,
    /// Media packets, retransmissions included.
    pub packets_received: u64,
    /// In their payloads.
    pub bytes_received: u64,
    /// Of a publisher: packets whose temporal layer is not known, for want of the structure that their dependency
    /// descriptor refers to.
    pub packets_without_layer: u64,
    /// Media packets sent again.
    pub packets_resent: u64,
    /// Packets that were never sent, because the peer was too slow.
    pub packets_skipped: u64,
    /// Packets that the peer asked for again.
    pub nacks_received: u64,
    /// PLI and FIR.
    pub keyframe_requests_received: u64,
    /// Share of packets lost, 0 to 1: on the way to the peer by its last report, or on the way from it in the last five seconds or so,
    /// whichever is more.
    pub loss: f32,
    /// By the peer's last report.
    pub round_trip_ms: Option<f32>,
    /// What the path to the peer carries, where the peer gives feedback.
    pub estimate: Option<Bitrate>,
    /// For each video track: the layer sent now and the one aimed at.
    pub layers: Vec<LayerStats>,
}

/// How one video track is sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerStats {
    /// Identifies the media section.
    pub mid: Arc<str>,
    /// `None` before the first keyframe.
    pub current: Option<u8>,
    /// Reached at its next keyframe.
    pub target: u8,
    /// How many there are.
    pub layer_count: u8,
    /// The name of the current one.
    pub rid: Option<Arc<str>>,
    /// Higher temporal layers are left out.
    pub temporal_max: u8,
}
