//! What one viewer still gets: some bytes of his own, then the stream from a position on.
//!
//! In: what is there; what the kernel took. Out: pieces for his connection. Cost: no allocation but for a newcomer and who
//! is moved.
//!
//! What was written counts as taken once the engine had its chance to say otherwise (`LinkEvent::Unsent`), and it has that
//! when it next calls. **So a feed writes at most once between two flushes, and `settle` comes first in each later call.**

use std::fs::File;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wire::{LinkId, Outbox};

use crate::window::{Bytes, Extent};

/// Where a stream's bytes lie.
pub(crate) struct Source<'a> {
    pub(crate) file: &'a Arc<File>,
    pub(crate) end: u64,
    /// The last of them once more, in memory.
    pub(crate) fresh: Option<&'a Bytes>,
}

#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Whole things that come first, three at most: a response's head, the rest of a unit, a header.
    ahead: Vec<Bytes>,
    /// Bytes of the first that are taken.
    offset: usize,
    /// The last of these is a header.
    has_header: bool,
    place: Place,
    /// Bytes that were written and nobody knows of yet.
    written: usize,
}

/// What goes over to another process (`moved`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FeedState {
    ahead: Vec<Vec<u8>>,
    offset: u64,
    has_header: bool,
    place: Place,
}

/// Where somebody is in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// He waits for a start point that is not before this.
    Waits(u64),
    /// The next byte that he gets.
    At(u64),
}

impl Default for Place {
    fn default() -> Self {
        Place::Waits(0)
    }
}

impl Feed {
    /// All of it, which is settled, for another process.
    pub(crate) fn state(&self) -> FeedState {
        debug_assert_eq!(self.written, 0, "what was written is settled first");
        let ahead = self.ahead.iter().map(|bytes| bytes.to_vec()).collect();
        FeedState { ahead, offset: self.offset as u64, has_header: self.has_header, place: self.place }
    }

    /// The same again, of a stream of which so much is there. `None`: it cannot have been.
    pub(crate) fn restore(state: FeedState, extent: Extent) -> Option<Self> {
        let FeedState { ahead, offset, has_header, place } = state;
        let is_in_first = ahead.first().map_or(offset == 0, |first| offset < first.len() as u64);
        let is_right = is_in_first
            && ahead.iter().all(|bytes| !bytes.is_empty())
            && (!has_header || !ahead.is_empty())
            && !matches!(place, Place::At(position) if position < extent.begin || position > extent.end);
        let ahead = ahead.into_iter().map(|bytes| Arc::new(bytes.into())).collect();
        is_right.then_some(Feed { ahead, offset: offset as usize, has_header, place, written: 0 })
    }

    /// Puts bytes before the stream.
    pub(crate) fn put_ahead(&mut self, bytes: Bytes) {
        debug_assert!(!self.has_header, "a header is the last");
        if !bytes.is_empty() {
            self.ahead.push(bytes);
        }
    }

    /// Waits for a start point that is not before `from`, behind what is ahead. True when that was a header that had not
    /// begun: it is dropped.
    pub(crate) fn wait(&mut self, from: u64) -> bool {
        debug_assert_eq!(self.written, 0, "what was written is settled first");
        let has_begun = self.ahead.len() == 1 && self.offset > 0;
        let is_dropped = std::mem::take(&mut self.has_header) && !has_begun;
        if is_dropped {
            self.ahead.pop();
        }
        self.place = Place::Waits(from);
        is_dropped
    }

    /// Goes on from `position`, behind a header.
    pub(crate) fn begin(&mut self, position: u64, header: Option<Bytes>) {
        debug_assert!(matches!(self.place, Place::Waits(from) if from <= position), "it is what he waits for");
        if let Some(header) = header.filter(|header| !header.is_empty()) {
            self.ahead.push(header);
            self.has_header = true;
        }
        self.place = Place::At(position);
    }

    /// Where he is, as far as it is settled.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Whether something comes before the stream.
    pub(crate) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Whether there is something for him now.
    pub(crate) fn has_more(&self, end: u64) -> bool {
        !self.ahead.is_empty() || matches!(self.place, Place::At(position) if position < end)
    }

    /// Writes all that is there; false when the outbox has no room for it.
    pub(crate) fn write(&mut self, link: LinkId, source: &Source<'_>, out: &mut Outbox) -> bool {
        debug_assert_eq!(self.written, 0, "once between two flushes");
        let mut offset = self.offset;
        for bytes in &self.ahead {
            let len = bytes.len() - offset;
            if !out.push_stream(link, bytes, offset, len) {
                return false;
            }
            (self.written, offset) = (self.written + len, 0);
        }
        let Place::At(position) = self.place else { return true };
        let len = (source.end - position) as usize;
        let is_written = match source.fresh {
            _ if len == 0 => true,
            Some(fresh) if len <= fresh.len() => out.push_stream(link, fresh, fresh.len() - len, len),
            _ => out.push_file(link, source.file, position, len),
        };
        self.written += if is_written { len } else { 0 };
        is_written
    }

    /// All that was written is taken but the last `unsent` bytes. Returns how many are.
    pub(crate) fn settle_but(&mut self, unsent: usize) -> u64 {
        debug_assert!(unsent <= self.written, "nobody has more than was written");
        let taken = std::mem::take(&mut self.written).saturating_sub(unsent);
        let mut left = taken;
        while let Some(first) = self.ahead.first() {
            let rest = first.len() - self.offset;
            if left < rest {
                self.offset += left;
                return taken as u64;
            }
            (left, self.offset) = (left - rest, 0);
            self.ahead.remove(0);
            if self.ahead.is_empty() {
                // Most viewers never have anything ahead again.
                (self.ahead, self.has_header) = (Vec::new(), false);
            }
        }
        if let Place::At(position) = &mut self.place {
            *position += left as u64;
        }
        taken as u64
    }
}
