//! One m-line and what it is used for.

use wire::codec::MediaKind;

use super::spec::{Down, Section, Up};
use crate::media::{Media, Ssrcs};

/// An m-line of a connection. It keeps its place for good; only who was refused may be replaced by another (RFC 8829 §5.2.2).
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub mid: String,
    pub medium: Medium,
    pub up: Option<Up>,
    pub down: Option<Placed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Rtp(MediaKind),
    Data,
    /// Port 0.
    Refused,
}

/// A down track in its section.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub down: Down,
    pub media: Media,
    /// Where we make the offers: the peer has answered, and takes it.
    pub is_taken: bool,
}

impl Slot {
    pub fn new(mid: &str, medium: Medium) -> Self {
        Slot { mid: mid.into(), medium, up: None, down: None }
    }

    /// Its kind of media, where it has one.
    pub fn kind(&self) -> Option<MediaKind> {
        match self.medium {
            Medium::Rtp(kind) => Some(kind),
            Medium::Data | Medium::Refused => None,
        }
    }

    pub fn holds(&self, down: &Down) -> bool {
        self.down.as_ref().is_some_and(|placed| placed.down == *down)
    }

    /// The same track, by this stream or another.
    pub fn holds_track_of(&self, down: &Down) -> bool {
        self.down.as_ref().is_some_and(|placed| placed.down.is_same_track(down))
    }

    /// As the caller sees it.
    pub fn section(&self) -> Option<Section> {
        let placed = self.down.as_ref().filter(|placed| placed.is_taken);
        (self.medium != Medium::Refused).then(|| Section {
            mid: self.mid.clone(),
            kind: self.kind(),
            up: self.up.clone(),
            down: placed.map(|placed| (placed.down.id, placed.media.clone())),
        })
    }
}

/// SSRCs of one connection, each once: the worker takes none twice, since its packets' numbers would come again under one key.
///
/// They begin anywhere and go on in steps of an odd number, which comes to each of 2^32 before it comes to one again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row(u32);

impl Row {
    pub fn new(begin: u32) -> Self {
        Row(begin)
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b1);
        // RFC 3550 allows it, but libraries have it for none.
        if self.0 == 0 { self.next() } else { self.0 }
    }

    /// Under what a section sends: with those of retransmissions where it has them, and what it had before where that is the same.
    pub fn ssrcs(&mut self, before: Option<&Media>, has_rtx: bool) -> Vec<Ssrcs> {
        let before = before.and_then(|media| media.tx.first()).filter(|(_, rtx)| rtx.is_some() == has_rtx);
        vec![before.copied().unwrap_or_else(|| (self.next(), has_rtx.then(|| self.next())))]
    }
}
