//! What one media section came to: the facts that the media path needs.

use strum::{EnumString, IntoStaticStr, VariantArray};
use wire::codec::{Codec, MediaKind};

/// Which way media flows, as we see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From us to the other side.
    Send,
    /// From the other side to us.
    Receive,
}

/// An SSRC, and that of its retransmissions (RFC 4588 §5.3) where there is one.
pub type Ssrcs = (u32, Option<u32>);

/// The outcome of an offer and its answer.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// The answer's text.
    pub sdp: String,
    /// The accepted sections, in the order of the offer.
    pub media: Vec<Media>,
}

/// One accepted media section. It has exactly one codec, so that is known before the first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Names the section (RFC 5888), and in a header extension its packets; empty where the offer gives none.
    pub mid: String,
    /// One way only: of "sendrecv" that part is taken which the session is for.
    pub direction: Direction,
    /// Of a section that sends: the index into `Purpose::Send::tracks`. Otherwise counted from zero.
    pub track: usize,
    /// The one that stays of those offered; its kind is that of the m-line.
    pub codec: Codec,
    /// The offerer's number for the codec; 7 bits.
    pub payload_type: u8,
    /// That of retransmissions (RFC 4588 §8.6); without it nothing is sent again.
    pub rtx_payload_type: Option<u8>,
    /// For audio with redundancy, where the offerer has it for this codec.
    pub red: Option<Red>,
    /// Format parameters of the codec as the other side wrote them; empty without.
    pub fmtp: String,
    /// Header extensions that both sides know, with their ids (RFC 8285).
    pub extensions: Vec<(u8, Extension)>,
    /// What we send: one entry per simulcast layer in the order of `rids`, or one.
    pub tx: Vec<Ssrcs>,
    /// What the other side says that it sends; empty where it says nothing (with RIDs it usually does not).
    pub rx: Vec<Ssrcs>,
    /// Simulcast layers in the order of `a=simulcast` (RFC 8853); empty without simulcast.
    pub rids: Vec<String>,
    /// Transport-wide feedback was agreed on.
    pub transport_cc: bool,
    /// RTCP packets may go alone (RFC 5506 §5); otherwise in whole compounds (RFC 3550 §6.1).
    pub reduced_size: bool,
}

/// Audio that carries the packets before it once more (RFC 2198), beside the codec alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// The offerer's number for it; 7 bits.
    pub payload_type: u8,
    /// It stands before the codec.
    pub is_preferred: bool,
}

impl Media {
    /// The payload types in the order of the offerer's preference, and that of retransmissions.
    pub fn payload_types(&self) -> impl Iterator<Item = u8> {
        let (before, behind) = match self.red {
            Some(Red { payload_type, is_preferred: true }) => (Some(payload_type), None),
            red => (None, red.map(|red| red.payload_type)),
        };
        [before, Some(self.payload_type), behind, self.rtx_payload_type].into_iter().flatten()
    }

    /// The id of a header extension in this section.
    pub fn extension_id(&self, extension: Extension) -> Option<u8> {
        self.extensions.iter().find(|(_, known)| *known == extension).map(|(id, _)| *id)
    }
}

/// The RTP header extensions that the forwarder reads, writes or passes on, each by its name in `a=extmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray)]
pub enum Extension {
    /// The section's name (RFC 9143 §15).
    #[strum(serialize = "urn:ietf:params:rtp-hdrext:sdes:mid")]
    Mid,
    /// The simulcast layer's name (RFC 8852 §3.1).
    #[strum(serialize = "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id")]
    Rid,
    /// On a retransmission, the layer that it repairs (RFC 8852 §3.2).
    #[strum(serialize = "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id")]
    RepairedRid,
    /// How loud a packet is, client to mixer (RFC 6464).
    #[strum(serialize = "urn:ietf:params:rtp-hdrext:ssrc-audio-level")]
    AudioLevel,
    /// When a packet left, in 2^-18 s modulo 64 s.
    #[strum(serialize = "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time")]
    AbsSendTime,
    /// A number that counts over all streams of the transport, for feedback on each packet.
    #[strum(serialize = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01")]
    TransportCc,
    /// How the camera is turned (3GPP TS 26.114 §7.4.5).
    #[strum(serialize = "urn:3gpp:video-orientation")]
    VideoOrientation,
    /// How long the receiver should hold frames back, from and to.
    #[strum(serialize = "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay")]
    PlayoutDelay,
    /// Which frames a frame needs (AV1 RTP specification, appendix A); other codecs carry it too.
    #[strum(serialize = "https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension")]
    DependencyDescriptor,
    /// When the frame was captured, as 64 bits of NTP time, perhaps with the offset of that clock from the sender's.
    #[strum(serialize = "http://www.webrtc.org/experiments/rtp-hdrext/abs-capture-time")]
    AbsCaptureTime,
    /// The picture's color space, with HDR metadata.
    #[strum(serialize = "http://www.webrtc.org/experiments/rtp-hdrext/color-space")]
    ColorSpace,
    /// Camera or screen.
    #[strum(serialize = "http://www.webrtc.org/experiments/rtp-hdrext/video-content-type")]
    VideoContentType,
}

impl Extension {
    /// Its name in `a=extmap` (RFC 8285 §5).
    pub fn uri(self) -> &'static str {
        self.into()
    }

    /// Whether the extension means anything for a kind of media.
    pub(crate) fn suits(self, kind: MediaKind) -> bool {
        match self {
            Extension::AudioLevel => kind == MediaKind::Audio,
            Extension::Mid | Extension::AbsSendTime | Extension::AbsCaptureTime | Extension::TransportCc => true,
            _ => kind == MediaKind::Video,
        }
    }
}
