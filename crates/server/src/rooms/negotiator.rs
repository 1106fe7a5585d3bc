//! The control thread beside each worker: it answers offers, and drives ICE and DTLS of that worker's sessions.
//!
//! In: requests from HTTP; from the worker the STUN and DTLS datagrams, and word of sessions that ended.
//! Out: answers; to the worker datagrams to send, and each session as a plain value once it has keys; notices.
//! Cost: an answer takes some 0.2 ms and a handshake 0.3 ms, so none of this happens on the worker itself.
//! Source: RFC 9725 (WHIP), draft-ietf-wish-whep (WHEP), RFC 7983 (which datagram is what).
//!
//! A datagram finds its session by the user fragment in STUN's USERNAME; DTLS, which has no such thing, by the address
//! from which an authenticated check came before. `Negotiator` has no thread and no clock; `run` is the loop around it.

pub mod conference;
mod convert;
mod core;
mod counters;
mod member;
mod session;
#[cfg(test)]
mod tests;
mod thread;

use std::time::Duration;

use rooms::spec::{self, SessionId, TrackSpec};
use tokio::sync::{OwnedMutexGuard, oneshot};
use webrtc::{Candidate, Media, Purpose};
use wire::Path;
use wire::codec::{Codec, Profile};

use self::conference::{ConferenceNotice, ConferenceRequest};
pub use self::convert::{ssrcs, track};
pub use self::core::Negotiator;
pub use self::counters::Counters;
pub use self::session::Progress;
use super::directory::Admitted;
use crate::worker::Ticket;
pub use thread::run;

/// What one negotiator may choose.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the worker is reached, the best first: its UDP and TCP addresses, or the public ones in front of them.
    pub candidates: Vec<Candidate>,
    /// Sessions in all; further offers are refused with `NegotiationError::Overloaded`.
    pub sessions_max: usize,
    /// Sessions without keys yet. When there are more, one goes that has not proved an address, of the client or token that
    /// has most; where all have, further offers are refused with `NegotiationError::Overloaded`.
    pub handshakes_max: usize,
    /// From the answer to the peer's first check; a session that takes longer is dropped.
    pub proof_timeout: Duration,
    /// From then to the first address of the peer that is proved, and again from there to the keys; a session that takes
    /// longer is dropped.
    pub handshake_timeout: Duration,
    /// A connected peer's checks are reported to the worker this often at most; several times in the idle timeout.
    pub consent_interval: Duration,
    /// Takes viewers' transport-wide feedback only where they have layers to choose from, or say nothing else of their path.
    pub transport_cc_for_layers: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            candidates: Vec::new(),
            sessions_max: 20_000,
            handshakes_max: 4_000,
            proof_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            consent_interval: Duration::from_secs(5),
            transport_cc_for_layers: true,
        }
    }
}

impl Settings {
    /// Whether a viewer is to give transport-wide feedback of those tracks that it chose, of all where it chose none.
    fn takes_transport_cc(&self, tracks: &[TrackSpec], chosen: &[usize]) -> bool {
        let is_chosen = |index: &usize| chosen.is_empty() || chosen.contains(index);
        let mut watched = (0..).zip(tracks).filter(|(index, _)| is_chosen(index)).map(|(_, track)| track);
        !self.transport_cc_for_layers || watched.any(TrackSpec::may_have_layers)
    }
}

/// What comes into a negotiator's mailbox.
#[derive(Debug)]
pub enum Input {
    /// From HTTP.
    Request(Request),
    /// A STUN or DTLS datagram that came to the worker.
    Datagram {
        /// Where it came from, and by which socket; an answer goes back there.
        path: Path,
        /// The whole of it.
        data: Box<[u8]>,
        /// Counts it while it waits.
        ticket: Ticket,
    },
    /// From the worker's rooms.
    Event(spec::Event),
}

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, NegotiationError>>;

/// What HTTP asks. Who asked may be gone by the time of the answer; then the session is dropped at once.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are named for their types")]
pub enum Request {
    /// WHIP: takes the offerer's tracks as the stream, which has to be open on the worker by the time that it is connected.
    /// WHEP: sends the stream's tracks; its name groups them for the viewer.
    Open { place: Admitted, offer: String, reply: Reply<Answer> },
    /// A trickle fragment: candidates, or an ICE restart. `if_match` is the header's value. The session's next one comes when
    /// `turn` is dropped.
    Patch { session: SessionId, fragment: String, if_match: String, reply: Reply<Patched>, turn: OwnedMutexGuard<()> },
    /// DELETE: ends the session, with a goodbye to the peer.
    Close { session: SessionId },
    /// For a session of a conference.
    Conference { session: SessionId, request: ConferenceRequest },
}

/// What answers an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Our side.
    pub sdp: String,
    /// Names the ICE session, for ETag (without quotes); another one after a restart.
    pub etag: String,
}

/// The tracks that an offer publishes. Takes no session and no place, so that an offer is read before it costs any.
///
/// # Errors
/// What is wrong with the offer.
pub fn published_tracks(offer: &str) -> Result<Vec<TrackSpec>, webrtc::Error> {
    Ok(published_media(offer)?.iter().map(convert::track).collect())
}

/// The same, with the sections that bring them.
///
/// # Errors
/// What is wrong with the offer.
pub fn published_media(offer: &str) -> Result<Vec<Media>, webrtc::Error> {
    webrtc::read_offer(offer, PUBLISH)
}

/// Whether an offer can be answered with the tracks of a stream, or those chosen by their indices. Takes no session and no place either.
///
/// # Errors
/// What is wrong with the offer, or lacks for the stream.
pub fn check_viewer(offer: &str, tracks: &[TrackSpec], chosen: &[usize]) -> Result<(), webrtc::Error> {
    webrtc::read_offer(offer, to_send(&formats(tracks), chosen, "", true)).map(|_| ())
}

const PUBLISH: Purpose<'_> = Purpose::Receive { codecs: &Codec::ALL };

fn to_send<'a>(
    (codecs, profiles): &'a (Vec<Codec>, Vec<Profile>),
    chosen: &'a [usize],
    stream: &'a str,
    transport_cc: bool,
) -> Purpose<'a> {
    Purpose::Send { tracks: codecs, profiles, chosen, stream, transport_cc }
}

fn formats(tracks: &[TrackSpec]) -> (Vec<Codec>, Vec<Profile>) {
    tracks.iter().map(|track| (track.codec, track.profile)).unzip()
}

/// What answers a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// Our side of an ICE restart (200); `None` when there is nothing to say (204).
    pub fragment: Option<String>,
    /// Names the ICE session from now on.
    pub etag: String,
}

/// Why an offer or a fragment was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NegotiationError {
    /// The text is wrong, or asks for what is not there (400, or 406 when only the codec is at fault).
    #[error(transparent)]
    Sdp(#[from] webrtc::Error),
    /// 503 with Retry-After.
    #[error("too many sessions or handshakes; try again in {retry_after_seconds} s")]
    Overloaded {
        /// When another try makes sense.
        retry_after_seconds: u32,
    },
    /// 404.
    #[error("no such session")]
    NoSession,
    /// 412.
    #[error("If-Match names another ICE session")]
    EtagMismatch,
    /// The caller used the number of a session that exists (500).
    #[error("the session exists already")]
    SessionExists,
}

/// What the control plane is told.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are named for their types")]
pub enum Notice {
    /// The peer has come further with ICE.
    Reached { session: SessionId, progress: Progress },
    /// ICE and DTLS are done; the worker gets the session, unless control says that there is no room for it any more.
    Connected { session: SessionId },
    /// The session is gone, here and on the worker. Comes once for each session that was answered, and for each that nobody
    /// waited for.
    Ended { session: SessionId, reason: EndReason },
    /// Of a session of a conference, of which the others say nothing. What is returned counts for `Connected` alone.
    Conference { session: SessionId, notice: ConferenceNotice },
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// By `Request::Close`.
    Asked,
    /// The peer never finished ICE and DTLS.
    HandshakeTimeout,
    /// The peer was shaking hands, and a newer session needed its place.
    MadeRoom,
    /// Control had no room for it any more when the peer had connected.
    Refused,
    /// The peer said goodbye, or its DTLS failed.
    Peer(webrtc::EndReason),
    /// The worker ended it.
    Worker(spec::EndReason),
    /// Who asked for it did not wait for the answer.
    Abandoned,
}
