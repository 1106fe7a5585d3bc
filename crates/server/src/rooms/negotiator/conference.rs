//! What is asked of a negotiator for sessions of conferences, and what it says of them. Plain values.
//!
//! Nothing is answered by itself: what becomes of a request is a notice, in the order of the requests.

use std::sync::Arc;

use rooms::spec::{LayerLimit, StreamId};
use webrtc::{ChannelEvent, Delivery, Described, Down, UpWish};

use super::{EndReason, NegotiationError};
use crate::rooms::client::Client;

/// What is asked for one session. What is asked for one that is not there any more is dropped: that it has ended was said.
#[derive(Clone, Debug)]
pub enum ConferenceRequest {
    /// Opens it. One that is refused is not there.
    Open(Box<Open>),
    /// An offer of the peer, where it makes them. Answered by `Answered`, or refused.
    Offer {
        /// Its text.
        sdp: String,
        /// How tracks that it publishes are taken, all of them.
        ups: Vec<UpWish>,
    },
    /// The peer's answer to our last offer, where we make them. Answered by `Accepted`, or refused.
    Answer {
        /// Its text.
        sdp: String,
    },
    /// What the peer gets from now on, all of it. Where we make the offers, `Offered` follows, unless one waits for its answer;
    /// where the peer does, its next offer is answered so.
    SetDowns(Vec<Watched>),
    /// How the peer gets a stream that it was to get last, from now on.
    Choose {
        /// Which.
        stream: StreamId,
        /// How.
        choice: Choice,
    },
    /// What the peer sends in a section is a stream from now on, which is open on the worker.
    Publish {
        /// Of the section.
        mid: String,
        /// Which.
        stream: StreamId,
    },
    /// The peer publishes the stream no more.
    Unpublish {
        /// Which.
        stream: StreamId,
    },
    /// Restarts ICE, where we make the offers.
    Restart,
    /// Sends a message. What the peer is too slow for is dropped, and counted.
    Data {
        /// On which channel.
        delivery: Delivery,
        /// At most `webrtc::MESSAGE_BYTES_MAX`.
        bytes: Arc<[u8]>,
    },
    /// From now on what the peer sends by its data channels is not read, and it has to wait with more; or all is again.
    Hold(bool),
    /// Ends it, with a goodbye to the peer.
    Close,
}

/// How a session begins.
#[derive(Clone, Debug)]
pub struct Open {
    /// Who asks for it.
    pub client: Client,
    /// The first offer of a peer that makes them, with how its tracks are taken; `None` where we make them.
    pub offer: Option<(String, Vec<UpWish>)>,
    /// What it gets at first.
    pub downs: Vec<Watched>,
    /// With data channels.
    pub wants_data: bool,
    /// Its peer hears of a track by the first packet, and so is to get some though nothing comes.
    pub wants_packets: bool,
    /// Names our clock in RTCP: the room.
    pub cname: Arc<str>,
}

/// A stream of one track that a peer is to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Which. It is open on the worker by the time that the peer has its description.
    pub stream: StreamId,
    /// How it is described; its `id` is the stream's.
    pub down: Down,
}

/// How a peer gets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Not for now.
    pub is_paused: bool,
    /// At most.
    pub layers: LayerLimit,
    /// As in `Command::LimitStream`.
    pub priority: u32,
}

impl Default for Choice {
    fn default() -> Self {
        Choice { is_paused: false, layers: LayerLimit::NONE, priority: 0 }
    }
}

/// What is said of one session.
#[derive(Debug)]
pub enum ConferenceNotice {
    /// Our answer, and what the sections are from now on.
    Answered(Described),
    /// Our offer.
    Offered {
        /// Its text.
        sdp: String,
    },
    /// The peer's answer was taken: what the sections are from now on.
    Accepted(Described),
    /// What was asked for last was not done.
    Refused(NegotiationError),
    /// ICE and DTLS are done; the worker gets the session, unless there is no room for it any more.
    Connected,
    /// From the data channels.
    Channel(ChannelEvent),
    /// The session is gone, here and on the worker. Comes once for each that was opened.
    Ended(EndReason),
}
