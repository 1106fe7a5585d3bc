//! Peer connections without media: SDP, ICE and DTLS for WHIP, WHEP and conferences, the SRTP keys that come out of them, and
//! data channels where both sides want some.
//!
//! In: an offer, and the STUN and DTLS datagrams of one session.
//! Out: an answer, datagrams, deadlines, and once: `Output::Connected` with the exporter's keys.
//! Cost: a server's session takes about 8 KB, one with data channels, and a client's, 31 KB; and a quarter of a millisecond of
//! CPU until it is connected, of which the answer is a third; then some 10 µs for each connectivity check of the peer.
//! Source: RFC 8829 (JSEP), RFC 8843 (BUNDLE), RFC 8853 (simulcast), RFC 8445 (ICE), RFC 8840 (trickle fragments),
//! RFC 5763 and RFC 5764 (DTLS-SRTP), RFC 9725 (WHIP).
//!
//! DTLS is dimpl's, data channels are str0m's, and so is ICE but for a server's checks; SDP is read and written here, because an
//! answer of ours keeps one codec per section, groups by stream name, and lists header extensions that only the forwarder
//! understands.
//! str0m knows of no media section and gets no key, so it cannot send a media packet: it would use a nonce of ours twice.
#![forbid(unsafe_code)]

mod answer;
mod channels;
mod checks;
mod conference;
mod context;
mod error;
mod fragment;
mod gate;
mod guard;
mod media;
mod nomination;
mod offer;
mod peer;
mod random;
mod reach;
mod sdp;
mod select;
mod write;

pub use answer::{AnswerOptions, LAYERS_MAX, Purpose, TRACKS_MAX, read_offer};
pub use channels::{
    BEHIND_BYTES, BUFFERED_BYTES_MAX, CAUGHT_UP_BYTES, ChannelEvent, DataRefused, Delivery, LOSSY_BYTES_MAX,
    MESSAGE_BYTES_MAX,
};
pub use conference::{Conference, ConferenceClient, ConferenceOptions, Described, Down, Section, Up, UpWish};
pub use context::Context;
pub use error::Error;
pub use fragment::Fragment;
pub use guard::is_guarded;
pub use media::{Direction, Extension, Media, Negotiated, Red, Ssrcs};
pub use offer::OfferOptions;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub use peer::Fault;
pub use peer::{EndReason, Output, Peer, Received, Refused, Remote};
pub use sdp::{CONFERENCE_SECTIONS_MAX, SECTIONS_MAX};
pub use write::Candidate;
