//! What a forwarder reads from the payload header of each codec: never more than a few bytes, never the picture.

/// Audio or video.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    Audio,
    Video,
}

/// The codecs that are passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    Opus,
    Vp8,
    Vp9,
    H264,
    H265,
    Av1,
}

/// What one packet's payload header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadInfo {
    /// The packet is the first of its frame.
    pub starts_frame: bool,
    /// The packet belongs to a frame from which decoding can start. Only sure on a packet that starts its frame.
    pub keyframe: bool,
    /// Temporal layer, 0 the lowest.
    pub temporal_id: u8,
    /// A receiver of lower temporal layers may start to take this one here.
    pub switch_up: bool,
    /// VP8's running numbers, which a forwarder has to keep free of gaps.
    pub vp8: Option<Vp8Numbers>,
}

/// Running numbers of a VP8 payload descriptor (RFC 7741 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vp8Numbers {
    /// 15 bits, or 7 when `long_picture_id` is false.
    pub picture_id: Option<u16>,
    pub long_picture_id: bool,
    pub tl0_pic_idx: Option<u8>,
}
