//! What one media section came to: the facts that the media path needs.

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
    /// By the m-line; the codec is of this kind.
    pub kind: MediaKind,
    /// One way only: of "sendrecv" that part is taken which the session is for.
    pub direction: Direction,
    /// Of a section that sends: the index into `Purpose::Send::tracks`. Otherwise counted from zero.
    pub track: usize,
    /// The one that stays of those offered.
    pub codec: Codec,
    /// Units of the RTP timestamp per second.
    pub clock_rate: u32,
    /// The offerer's number for the codec; 7 bits.
    pub payload_type: u8,
    /// That of retransmissions (RFC 4588 §8.6); without it nothing is sent again.
    pub rtx_payload_type: Option<u8>,
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
}

impl Media {
    /// The id of a header extension in this section.
    pub fn extension_id(&self, extension: Extension) -> Option<u8> {
        self.extensions.iter().find(|(_, known)| *known == extension).map(|(id, _)| *id)
    }
}

/// The RTP header extensions that the forwarder reads, writes or passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// The section's name (RFC 9143 §15).
    Mid,
    /// The simulcast layer's name (RFC 8852 §3.1).
    Rid,
    /// On a retransmission, the layer that it repairs (RFC 8852 §3.2).
    RepairedRid,
    /// How loud a packet is, client to mixer (RFC 6464).
    AudioLevel,
    /// When a packet left, in 2^-18 s modulo 64 s.
    AbsSendTime,
    /// A number that counts over all streams of the transport, for feedback on each packet.
    TransportCc,
    /// How the camera is turned (3GPP TS 26.114 §7.4.5).
    VideoOrientation,
    /// How long the receiver should hold frames back, from and to.
    PlayoutDelay,
    /// Which frames a frame needs (AV1 RTP specification, appendix A); other codecs carry it too.
    DependencyDescriptor,
}

impl Extension {
    pub(crate) const ALL: [Extension; 9] = [
        Extension::Mid,
        Extension::Rid,
        Extension::RepairedRid,
        Extension::AudioLevel,
        Extension::AbsSendTime,
        Extension::TransportCc,
        Extension::VideoOrientation,
        Extension::PlayoutDelay,
        Extension::DependencyDescriptor,
    ];

    /// Its name in `a=extmap` (RFC 8285 §5).
    pub fn uri(self) -> &'static str {
        match self {
            Extension::Mid => "urn:ietf:params:rtp-hdrext:sdes:mid",
            Extension::Rid => "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id",
            Extension::RepairedRid => "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id",
            Extension::AudioLevel => "urn:ietf:params:rtp-hdrext:ssrc-audio-level",
            Extension::AbsSendTime => "http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time",
            Extension::TransportCc => "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01",
            Extension::VideoOrientation => "urn:3gpp:video-orientation",
            Extension::PlayoutDelay => "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay",
            Extension::DependencyDescriptor => {
                "https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension"
            }
        }
    }

    pub(crate) fn from_uri(uri: &str) -> Option<Extension> {
        Extension::ALL.into_iter().find(|extension| extension.uri() == uri)
    }

    /// Whether the extension means anything for a kind of media.
    pub(crate) fn suits(self, kind: MediaKind) -> bool {
        match self {
            Extension::AudioLevel => kind == MediaKind::Audio,
            Extension::Rid | Extension::RepairedRid => kind == MediaKind::Video,
            Extension::VideoOrientation | Extension::PlayoutDelay | Extension::DependencyDescriptor => {
                kind == MediaKind::Video
            }
            Extension::Mid | Extension::AbsSendTime | Extension::TransportCc => true,
        }
    }
}
