//! What a forwarder reads from the payload header of each codec: never more than a few bytes, never the picture.
//!
//! In: one packet's RTP payload without padding, and its dependency descriptor extension where there is one.
//! Out: `PayloadInfo`; what cannot be read leaves its fields at their defaults.
//! Cost: a few bytes per packet; aggregation packets are walked through, at most `UNITS_MAX` units of each.
//! Source: RFC 7741 (VP8), RFC 9628 (VP9), RFC 6184 (H.264), RFC 7798 (H.265), the AV1 RTP specification.

pub mod av1;
pub mod dependency;
pub mod h264;
pub mod h265;
mod profile;
pub mod red;
pub mod vp8;
pub mod vp9;

pub use profile::Profile;

/// The most units of one aggregation packet that are looked at. Real ones have a handful; what decides stands in front.
const UNITS_MAX: usize = 16;

/// Audio or video.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// Sound. Every packet is a frame, and none is asked for again.
    Audio,
    /// Pictures, which depend on each other back to the last keyframe.
    Video,
}

/// The codecs that are passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Sound (RFC 7587); its clock always counts 48,000 units per second.
    Opus,
    /// Sound of telephones, G.711 with µ-law (RFC 3551 §4.5.14).
    Pcmu,
    /// The same with A-law.
    Pcma,
    /// RFC 7741.
    Vp8,
    /// RFC 9628.
    Vp9,
    /// RFC 6184.
    H264,
    /// RFC 7798.
    H265,
    /// The AV1 RTP specification of the Alliance for Open Media.
    Av1,
}

impl Codec {
    /// All of them.
    pub const ALL: [Codec; 8] =
        [Codec::Opus, Codec::Pcmu, Codec::Pcma, Codec::Vp8, Codec::Vp9, Codec::H264, Codec::H265, Codec::Av1];

    /// The encoding name in `a=rtpmap` (RFC 8866 §6.6), where upper and lower case are the same.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::Opus => "opus",
            Codec::Pcmu => "PCMU",
            Codec::Pcma => "PCMA",
            Codec::Vp8 => "VP8",
            Codec::Vp9 => "VP9",
            Codec::H264 => "H264",
            Codec::H265 => "H265",
            Codec::Av1 => "AV1",
        }
    }

    /// What it codes.
    pub const fn kind(self) -> MediaKind {
        match self {
            Codec::Opus | Codec::Pcmu | Codec::Pcma => MediaKind::Audio,
            Codec::Vp8 | Codec::Vp9 | Codec::H264 | Codec::H265 | Codec::Av1 => MediaKind::Video,
        }
    }

    /// Units of the RTP timestamp per second.
    pub const fn clock_rate(self) -> u32 {
        match self {
            Codec::Opus => 48_000,
            Codec::Pcmu | Codec::Pcma => 8_000,
            Codec::Vp8 | Codec::Vp9 | Codec::H264 | Codec::H265 | Codec::Av1 => 90_000,
        }
    }
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
    /// Bit t: who decodes this packet's frame may take the temporal layers up to t from here on. Only dependency
    /// descriptors say so.
    pub switch_to: u8,
    /// Size of the picture among those that share the packet's SSRC, 0 the smallest.
    pub spatial_id: u8,
    /// The last packet of its frame in its spatial layer. Only VP9's header and dependency descriptors say so.
    pub ends_layer: bool,
    /// VP8's and VP9's running numbers, which a forwarder has to carry on from one layer to another.
    pub picture: Option<PictureNumbers>,
}

impl PayloadInfo {
    /// The highest temporal layer, up to `temporal_max`, that who decodes this packet's frame may take from here on.
    pub fn switch_target(&self, temporal_max: u8) -> Option<u8> {
        let reachable = self.switch_to & u8::MAX >> 7_u8.saturating_sub(temporal_max);
        reachable.checked_ilog2().map(|layer| layer as u8)
    }
}

/// Running numbers of a VP8 or VP9 payload descriptor (RFC 7741 §4.2, RFC 9628 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureNumbers {
    /// 15 bits, or 7 when `long_picture_id` is false.
    pub picture_id: Option<u16>,
    /// Whether the picture id has two bytes (the M bit).
    pub long_picture_id: bool,
    /// Whether a picture that is left out leaves a gap: VP9 says by distances of ids what a picture refers to.
    pub keeps_gaps: bool,
    /// Counts the frames of the lowest temporal layer (TL0PICIDX), on frames of all layers.
    pub tl0_pic_idx: Option<u8>,
}

/// Reads what a payload header says. Never fails: of a payload that is empty (padding only) or broken it says nothing.
///
/// The dependency descriptor counts for the codecs whose own header leaves things open, AV1, H.264 and H.265: there it
/// decides where frames start and adds keyframes. Temporal layers that only its templates know of come from
/// `dependency::Structure`, which the caller keeps.
pub fn inspect(codec: Codec, payload: &[u8], dependency_descriptor: Option<&[u8]>) -> PayloadInfo {
    if payload.is_empty() {
        return PayloadInfo::default();
    }
    let info = match codec {
        Codec::Opus | Codec::Pcmu | Codec::Pcma => {
            return PayloadInfo { starts_frame: true, keyframe: true, ..PayloadInfo::default() };
        }
        Codec::Vp8 => return vp8::inspect(payload),
        Codec::Vp9 => return vp9::inspect(payload),
        Codec::H264 => h264::inspect(payload),
        Codec::H265 => h265::inspect(payload),
        Codec::Av1 => av1::inspect(payload),
    };
    match dependency_descriptor.and_then(dependency::Descriptor::parse) {
        None => info,
        Some(descriptor) => PayloadInfo {
            starts_frame: descriptor.start_of_frame,
            keyframe: info.keyframe || descriptor.has_structure,
            ..info
        },
    }
}

/// Puts other running numbers in the places where a VP8 or VP9 payload has some; their widths stay. A number that is wider
/// than its place is cut to its low bits.
pub fn rewrite(codec: Codec, payload: &mut [u8], picture_id: Option<u16>, tl0_pic_idx: Option<u8>) {
    let places = match codec {
        Codec::Vp8 => vp8::places(payload),
        Codec::Vp9 => vp9::places(payload),
        Codec::Opus | Codec::Pcmu | Codec::Pcma | Codec::H264 | Codec::H265 | Codec::Av1 => None,
    };
    let Some(places) = places else { return };
    if let (Some((at, width)), Some(picture_id)) = (places.picture_id, picture_id) {
        let [high, low] = picture_id.to_be_bytes();
        match payload.get_mut(at..at + width) {
            Some([only]) => *only = low & 0x7f,
            Some([first, second]) => (*first, *second) = (0x80 | high, low),
            _ => {}
        }
    }
    if let (Some(at), Some(tl0_pic_idx)) = (places.tl0_pic_idx, tl0_pic_idx)
        && let Some(place) = payload.get_mut(at)
    {
        *place = tl0_pic_idx;
    }
}

/// Where the running numbers stand in a payload.
#[derive(Clone, Copy, Debug, Default)]
struct NumberPlaces {
    /// With the width in bytes, 1 or 2.
    picture_id: Option<(usize, usize)>,
    tl0_pic_idx: Option<usize>,
}

impl NumberPlaces {
    fn read(&self, payload: &[u8], keeps_gaps: bool) -> PictureNumbers {
        let byte = |at: usize| payload.get(at).copied();
        let picture_id = self.picture_id.and_then(|(at, width)| match width {
            1 => byte(at).map(u16::from),
            _ => Some(u16::from_be_bytes([byte(at)? & 0x7f, byte(at + 1)?])),
        });
        PictureNumbers {
            picture_id,
            long_picture_id: self.picture_id.is_some_and(|(_, width)| width == 2),
            keeps_gaps,
            tl0_pic_idx: self.tl0_pic_idx.and_then(byte),
        }
    }
}

/// The units that H.264 and H.265 aggregate, each behind its length of 16 bits.
fn units(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    let next = move || {
        let (length, after) = rest.split_first_chunk()?;
        let unit;
        (unit, rest) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
        Some(unit)
    };
    std::iter::from_fn(next).take(UNITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_goes_no_higher_than_asked_for() {
        let info = PayloadInfo { switch_to: 0b101, ..PayloadInfo::default() };
        assert_eq!([0, 1, 2, 255].map(|max| info.switch_target(max)), [Some(0), Some(0), Some(2), Some(2)]);
        assert_eq!(PayloadInfo { switch_to: 0b100, ..info }.switch_target(1), None);
        assert_eq!(PayloadInfo::default().switch_target(255), None);
    }

    #[test]
    fn an_empty_payload_says_nothing() {
        for codec in Codec::ALL {
            assert_eq!(inspect(codec, &[], Some(&[0x80, 0, 1])), PayloadInfo::default());
        }
    }

    #[test]
    fn every_opus_packet_is_a_frame_from_which_decoding_can_start() {
        let info = inspect(Codec::Opus, &[0xfc], None);
        assert!(info.starts_frame && info.keyframe);
    }

    #[test]
    fn the_dependency_descriptor_decides_where_an_av1_frame_starts() {
        let new_obu = [0x10, 0x30, 1, 2];
        assert!(inspect(Codec::Av1, &new_obu, None).starts_frame);
        assert!(!inspect(Codec::Av1, &new_obu, Some(&[0x40, 0, 1])).starts_frame);
        let with_structure = inspect(Codec::Av1, &new_obu, Some(&[0x80, 0, 1, 0x80]));
        assert!(with_structure.starts_frame && with_structure.keyframe);
    }
}
