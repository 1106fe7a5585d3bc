//! What a conference is told and says. Plain values.

use std::sync::Arc;

use wire::codec::{Codec, MediaKind};

use crate::media::Media;
use crate::write::Candidate;

/// What holds for a connection's whole life.
#[derive(Clone, Debug)]
pub struct ConferenceOptions {
    /// Where we are reached, the best first.
    pub candidates: Arc<[Candidate]>,
    /// Names our clock in RTCP (RFC 3550 §6.5.1).
    pub cname: Arc<str>,
    /// Data channels are taken, and where we make the offers, offered.
    pub wants_data: bool,
    /// What is taken of who publishes, in any order.
    pub codecs: Arc<[Codec]>,
}

/// A track that the peer shall get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// How the caller calls it; no two of a connection are alike.
    pub id: u64,
    /// In which it is published.
    pub codec: Codec,
    /// Its publisher's format parameters (`Media::fmtp`), as far as they are of use to who decodes; empty for the usual ones.
    pub fmtp: String,
    /// With redundancy (RFC 2198), where the peer has it.
    pub red: bool,
    /// The media stream's name for the peer (RFC 8830), 64 characters at most.
    pub media_stream: String,
    /// The track's name for the peer, 64 characters at most.
    pub track: String,
    /// Where it is another one than before, the peer hears that the track was gone, and is there again.
    pub subscription: u64,
}

impl Down {
    /// Whether the peer has both for the same track of the same subscription, by one stream or another.
    pub(super) fn is_same_track(&self, other: &Down) -> bool {
        let is_of_its_kind = self.codec.kind() == other.codec.kind();
        let is_named_alike = self.media_stream == other.media_stream && self.track == other.track;
        is_of_its_kind && !self.track.is_empty() && is_named_alike && self.subscription == other.subscription
    }
}

/// How a track that the peer publishes is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpWish {
    /// Its name in the peer's `a=msid`, or else that of its section (`a=mid`).
    pub cid: String,
    /// The best first; where the peer has none of them, and where there are none, its own order decides.
    pub codecs: Vec<Codec>,
    /// What the answer lists behind the one that is taken, for peers that take the codecs of a kind's first section for all.
    pub others: Vec<Codec>,
    /// With redundancy (RFC 2198), which the peer is to send where it has it.
    pub red: bool,
    /// Opus is to fall silent with its speaker (RFC 7587 §6.1, `usedtx`).
    pub dtx: bool,
    /// Opus is to be sent in stereo.
    pub stereo: bool,
}

/// What a description of the peer's came to.
#[derive(Clone, Debug)]
pub struct Described {
    /// Our answer; empty where the peer has answered.
    pub sdp: String,
    /// All sections that were not refused.
    pub sections: Vec<Section>,
    /// Tracks for which there is no free section of their kind (`Down::id`).
    pub unplaced: Vec<u64>,
    /// Tracks that the peer cannot take: it lacks the codec, or has refused the section.
    pub refused: Vec<u64>,
    /// ICE has other credentials on both sides from now on.
    pub restarted: bool,
}

/// One media section as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name (RFC 5888).
    pub mid: String,
    /// `None` for data channels.
    pub kind: Option<MediaKind>,
    /// What the peer sends there.
    pub up: Option<Up>,
    /// What it gets there: `Down::id`, and how.
    pub down: Option<(u64, Media)>,
}

/// A track that the peer publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up {
    /// As it comes: one codec, its layers, SSRCs as far as they are named.
    pub media: Media,
    /// Its media stream (RFC 8830); "-" or empty for none.
    pub media_stream: String,
    /// Its name there; empty for none.
    pub cid: String,
}
