//! What rooms ask of the packet path, and what they hear from there: plain values, all of them about a session.
//!
//! A session is one peer connection. A client of protocol v0 has two, one to publish by and one to watch by; one of v1
//! has a single one for both. A track is one stream of the packet path, with all its layers.

use std::sync::Arc;
use std::time::Duration;

/// One peer connection. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// One track of a publisher. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(pub u64);

/// What a session is for, and so who offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client publishes by it, and offers.
    Publisher,
    /// The client watches by it, and we offer.
    Subscriber,
    /// Both, and the client offers.
    Both,
}

/// Sound or pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Kind {
    Audio,
    Video,
}

/// Which data channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// `_reliable`.
    Reliable,
    /// `_lossy`.
    Lossy,
}

/// How good a picture is wanted: the rids f, h and q, or the spatial layers 2, 1 and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Layer {
    Low,
    Medium,
    High,
}

/// A track that a subscriber shall get, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// Which.
    pub track: TrackId,
    /// The stream's id in SDP (`a=msid`).
    pub stream: String,
    /// The track's id in SDP, which is its sid.
    pub sid: String,
    /// Another one than before is a new subscription: the client has let go of the track, and is told of it anew.
    pub subscription: u64,
    /// What it is.
    pub kind: Kind,
}

/// How a track of a publisher's is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up {
    /// The client's id of the track (`a=msid`), or its section's name.
    pub cid: String,
    /// Codecs, as "video/VP8", the best first; empty: as the client offers.
    pub codecs: Vec<String>,
    /// What the answer lists behind the one that is taken: pion takes the codecs of a kind's first section for all.
    pub others: Vec<String>,
    /// With redundancy (RFC 2198).
    pub red: bool,
    /// Sound falls silent with its speaker.
    pub dtx: bool,
    /// Sound in stereo.
    pub stereo: bool,
}

/// What a session is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// There shall be a session. Nothing is known of its client yet.
    Open {
        /// Its name.
        session: SessionId,
        /// The room's sid.
        room: String,
        /// What people call the room.
        room_name: String,
        /// Whose it is.
        identity: String,
        /// What for.
        role: Role,
        /// Whether our offer has data channels; where the client offers, that says it.
        wants_data: bool,
        /// Whether its client hears of a track by the first packet, and so is to get some though nothing comes.
        wants_packets: bool,
    },
    /// It shall end.
    Close {
        /// Which.
        session: SessionId,
    },
    /// The client's offer; `Answered` or `Refused` is the answer.
    Offer {
        /// Whose.
        session: SessionId,
        /// As it came.
        sdp: String,
        /// How the tracks are taken that it announces or publishes, all of them.
        ups: Vec<Up>,
    },
    /// The client's answer to our offer.
    Answer {
        /// Whose.
        session: SessionId,
        /// As it came.
        sdp: String,
    },
    /// A candidate of the client's.
    Trickle {
        /// Whose.
        session: SessionId,
        /// The candidate as SDP has it, empty with the last.
        candidate: String,
        /// Whether no more will come.
        is_last: bool,
    },
    /// The client comes by another path: ICE begins again, with an offer where we are the one who offers.
    Restart {
        /// Which.
        session: SessionId,
    },
    /// All that a subscriber shall get from now on.
    SetDown {
        /// Whose.
        session: SessionId,
        /// In the order in which they were subscribed to.
        tracks: Vec<Down>,
    },
    /// What comes in a section is a track.
    Publish {
        /// Whose.
        session: SessionId,
        /// The section.
        mid: String,
        /// The track.
        track: TrackId,
    },
    /// A track is none any more.
    Unpublish {
        /// Whose.
        session: SessionId,
        /// Which.
        track: TrackId,
    },
    /// Nobody gets a track while its publisher has it muted.
    Mute {
        /// Which.
        track: TrackId,
        /// Whether it is.
        is_muted: bool,
    },
    /// Nobody gets a track while others in its room are louder.
    Quiet {
        /// Which.
        track: TrackId,
        /// Whether they are.
        is_quiet: bool,
    },
    /// A subscriber does not get a track while it is out of view.
    Pause {
        /// Whose.
        session: SessionId,
        /// Which.
        track: TrackId,
        /// Whether it is.
        is_paused: bool,
    },
    /// How much a subscriber wants of a track.
    Limit {
        /// Whose.
        session: SessionId,
        /// Which.
        track: TrackId,
        /// The best layer.
        layer: Layer,
        /// Pictures per second at most; 0 is all of them.
        fps: u32,
        /// Who gets bandwidth first: 1 before 2; 0 is nothing said.
        priority: u32,
    },
    /// Nothing is read of the data that comes from a session, so that its client waits with more; or all is again.
    Hold {
        /// Which.
        session: SessionId,
        /// Whether it is so from now on.
        on: bool,
    },
    /// A data packet, to many.
    Data {
        /// To whom.
        to: Vec<SessionId>,
        /// By which channel.
        channel: Channel,
        /// What.
        bytes: Arc<[u8]>,
    },
}

/// One section of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub mid: String,
    /// What it carries.
    pub kind: Kind,
    /// The codec that was chosen, as "video/VP8".
    pub codec: String,
    /// The names of its simulcast layers, the smallest picture first; empty without simulcast.
    pub rids: Vec<String>,
    /// By which SSRC each of them comes, or what there is without simulcast, and by which its retransmissions do; empty where the
    /// client does not say.
    pub ssrcs: Vec<(u32, Option<u32>)>,
    /// The client's id of the track that it sends (`a=msid`), when it sends one.
    pub cid: Option<String>,
    /// Whether the client sends in it.
    pub is_sent: bool,
    /// The sid of the track that the client gets by it.
    pub down: Option<String>,
}

/// What became of a session, or came by it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The client's offer has an answer.
    Answered {
        /// Whose.
        session: SessionId,
        /// For the client.
        sdp: String,
        /// What was agreed on.
        sections: Vec<Section>,
        /// Whether there are data channels.
        has_data: bool,
    },
    /// The client's offer or answer cannot be used.
    Refused {
        /// Whose.
        session: SessionId,
        /// In words.
        why: String,
    },
    /// We have an offer for the client.
    Offered {
        /// Whose.
        session: SessionId,
        /// For the client.
        sdp: String,
        /// Which section has which track: mid and sid.
        tracks: Vec<(String, String)>,
    },
    /// The client has to offer more sections before it can get all that it shall.
    NeedSections {
        /// Whose.
        session: SessionId,
        /// So many more for sound.
        audio: u32,
        /// So many more for pictures.
        video: u32,
    },
    /// A candidate of ours, for clients that want them one by one.
    Candidate {
        /// Whose.
        session: SessionId,
        /// As `RTCIceCandidateInit` in JSON.
        init: String,
    },
    /// ICE and DTLS are done.
    Connected {
        /// Which.
        session: SessionId,
    },
    /// Both data channels are open.
    ChannelsOpen {
        /// Which.
        session: SessionId,
    },
    /// Nothing comes by its path any more; it may come back.
    Lost {
        /// Which.
        session: SessionId,
    },
    /// Something comes by it again.
    Heard {
        /// Which.
        session: SessionId,
    },
    /// It has ended, and does not come back.
    Ended {
        /// Which.
        session: SessionId,
        /// Its client has closed it.
        by_client: bool,
    },
    /// A data packet came.
    Data {
        /// From whom.
        session: SessionId,
        /// By which channel.
        channel: Channel,
        /// What.
        bytes: Vec<u8>,
    },
    /// Whether so much reliable data waits for a session that more would soon be lost; it is said when that changes.
    Behind {
        /// Which.
        session: SessionId,
        /// Whether it does.
        is_behind: bool,
    },
    /// How loud a track was.
    Level {
        /// Which.
        track: TrackId,
        /// The loudest, in dB below full scale (RFC 6464 §3): 0 is loudest, 127 silence.
        level_dbov: u8,
        /// How long it was so.
        over: Duration,
    },
    /// Whether a subscriber gets a track that it shall get: for want of bandwidth it may not.
    Active {
        /// Whose.
        session: SessionId,
        /// Which.
        track: TrackId,
        /// Whether it does.
        is_active: bool,
    },
    /// The client lacks the codec of a track that it shall get: it does not get it.
    Unsupported {
        /// Whose.
        session: SessionId,
        /// Which.
        track: TrackId,
    },
    /// How well a session did lately.
    Quality {
        /// Which.
        session: SessionId,
        /// Packets lost, of 1.
        loss: f32,
        /// There and back.
        rtt: Duration,
        /// By how much packets' delays differ.
        jitter: Duration,
    },
}
