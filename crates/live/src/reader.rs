//! Reads a stream of any format, cut anywhere.
//!
//! In: slices of the stream, in order. Out: events. What a format's own code sees is one contiguous slice from the first
//! byte that it has not taken yet, and it says how many bytes it needs to go on, or takes some. It decides by no more than
//! the bytes that it asked for: so the cuts make no difference.
//! Cost: linear in the bytes; a copy of what spans a cut, and of headers and indices that are read whole.

use std::sync::Arc;
use std::time::Duration;

use crate::Format;
use crate::flv::Flv;
use crate::matroska::Matroska;
use crate::mp4::Mp4;
use crate::ts::Ts;

/// A header may have so many bytes, and so may an element that must be read whole (`moof`). It bounds what a reader holds:
/// twice this, and the sections of a transport stream's 32 programs.
pub const HEADER_LEN_MAX: usize = 1 << 20;

/// An element that is passed over may have so many bytes. A longer one is damage, which would be waited for in silence.
pub const ELEMENT_LEN_MAX: u64 = 256 << 20;

/// What a newcomer needs before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// To be sent before the bytes from a start point on.
    pub bytes: Vec<u8>,
    /// The media type, without parameters.
    pub content_type: &'static str,
    /// As RFC 6381 writes them, where the container says so: `avc1.64001f`. May be fewer than there are tracks.
    pub codecs: Vec<String>,
    /// Whether start points are key frames of a video track; without one each is somewhere in the sound.
    pub has_video: bool,
}

/// A place where a newcomer may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Bytes of the stream before it. An element of the container begins there.
    pub at: u64,
    /// When its first picture is shown, or its first sound heard, on the stream's own clock. What matters are differences;
    /// a source that jumps makes them jump, also backwards.
    pub time: Option<Duration>,
}

/// What is told of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The header, for all start points that are told from now on.
    Header(Arc<Header>),
    /// A start point. Always behind a header, at ever larger offsets.
    Start(Start),
}

/// Why a stream cannot be read on. The source's doing, so never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Error {
    /// It is not in this format, or damaged.
    #[error("{format:?} stream, byte {at}: {what}")]
    Malformed { format: Format, at: u64, what: &'static str },
    /// A header, or an element that must be read whole, is over `HEADER_LEN_MAX`.
    #[error("byte {at}: the header, or an index, has {len} bytes, more than {HEADER_LEN_MAX}")]
    HeaderTooLong { at: u64, len: u64 },
    /// An element is over `ELEMENT_LEN_MAX`.
    #[error("byte {at}: an element of {len} bytes, more than {ELEMENT_LEN_MAX}")]
    ElementTooLong { at: u64, len: u64 },
    /// An MP4 file whose index is for the whole of it has no place to start but its beginning.
    #[error("MP4 without fragments (moov has no mvex) cannot be joined")]
    NotFragmented,
}

/// What a format's code says to the bytes from where it is.
pub(crate) enum Step {
    /// So many bytes must be there, more than were given.
    Need(usize),
    /// Goes on behind so many, which may be more than were given.
    Take(u64, Option<Event>),
}

#[derive(Debug)]
enum Parser {
    Ts(Ts),
    Flv(Flv),
    Matroska(Matroska),
    Mp4(Mp4),
    Raw,
}

/// Reads one stream.
#[derive(Debug)]
pub struct Reader {
    parser: Parser,
    /// Bytes of the stream before what is not taken yet.
    at: u64,
    /// What is not taken yet and was in earlier slices, with as much of this one as was needed.
    held: Vec<u8>,
    /// Bytes that are passed over before anything else.
    skip: u64,
    /// The last place between two units.
    boundary: u64,
    failed: Option<Error>,
}

/// A buffer larger than this is given back once it is empty.
const HELD_KEPT: usize = 16 << 10;

impl Reader {
    /// Begins in front of a stream's first byte.
    pub fn new(format: Format) -> Self {
        let parser = match format {
            Format::Ts => Parser::Ts(Ts::default()),
            Format::Flv => Parser::Flv(Flv::default()),
            Format::Matroska => Parser::Matroska(Matroska::default()),
            Format::Mp4 => Parser::Mp4(Mp4::default()),
            Format::Raw => Parser::Raw,
        };
        Reader { parser, at: 0, held: Vec::new(), skip: 0, boundary: 0, failed: None }
    }

    /// Whether a newcomer may start at any byte. Then there is neither header nor start point.
    pub fn starts_anywhere(&self) -> bool {
        matches!(self.parser, Parser::Raw)
    }

    /// Bytes that are taken: what they are is known. Behind them may be some, of an element's beginning, that are held.
    pub fn taken(&self) -> u64 {
        self.at
    }

    /// Bytes that the element still lacks in which the last taken byte is. Of one that is held nobody knows how long it is.
    pub fn missing(&self) -> u64 {
        self.skip
    }

    /// The last place between two units: a unit is what cannot be cut, a packet, a tag, a cluster, a fragment. A stream that
    /// starts anywhere has none but its beginning.
    pub fn boundary(&self) -> u64 {
        match &self.parser {
            Parser::Matroska(matroska) => matroska.boundary(),
            _ => self.boundary,
        }
    }

    /// The last boundary at which no picture is torn: in a transport stream that is where one began. `None`: none is known of.
    pub fn seam(&self) -> Option<u64> {
        match &self.parser {
            Parser::Ts(ts) => ts.seam(),
            _ => Some(self.boundary()),
        }
    }

    /// Before this place no further start point will be told.
    pub fn decided(&self) -> u64 {
        let undecided = match &self.parser {
            Parser::Ts(ts) => ts.undecided(),
            Parser::Matroska(matroska) => matroska.undecided(),
            Parser::Mp4(mp4) => mp4.undecided(),
            Parser::Flv(_) | Parser::Raw => None,
        };
        undecided.map_or(self.at, |at| at.min(self.at))
    }

    /// Takes bytes from the front of `bytes` until there is something to tell. `None`: all of them are taken.
    ///
    /// # Errors
    /// When the stream cannot be read on; from then on it says the same again.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let read = self.advance(bytes);
        if let Err(error) = read {
            (self.failed, self.held) = (Some(error), Vec::new());
        }
        read
    }

    fn advance(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, Error> {
        loop {
            let passed = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            *bytes = &bytes[passed..];
            self.skip -= passed as u64;
            self.at += passed as u64;
            if self.skip > 0 {
                return Ok(None);
            }
            if self.parser.is_between() {
                self.boundary = self.at;
            }
            let data = if self.held.is_empty() { *bytes } else { &self.held[..] };
            let step = match &mut self.parser {
                Parser::Ts(ts) => ts.step(self.at, data),
                Parser::Flv(flv) => flv.step(self.at, data)?,
                Parser::Matroska(matroska) => matroska.step(self.at, data)?,
                Parser::Mp4(mp4) => mp4.step(self.at, data)?,
                Parser::Raw if data.is_empty() => Step::Need(1),
                Parser::Raw => Step::Take(data.len() as u64, None),
            };
            match step {
                Step::Need(len) => {
                    let part;
                    (part, *bytes) = bytes.split_at(bytes.len().min(len.saturating_sub(self.held.len())));
                    self.held.extend_from_slice(part);
                    if self.held.len() < len {
                        return Ok(None);
                    }
                }
                Step::Take(len, event) => {
                    let from_held = self.held.len().min(usize::try_from(len).unwrap_or(usize::MAX));
                    self.held.drain(..from_held);
                    self.at += from_held as u64;
                    self.skip = len - from_held as u64;
                    if self.held.is_empty() && self.held.capacity() > HELD_KEPT {
                        self.held = Vec::new();
                    }
                    if event.is_some() {
                        return Ok(event);
                    }
                }
            }
        }
    }
}

impl Parser {
    /// Whether the place in front of what comes is one between two units.
    fn is_between(&self) -> bool {
        match self {
            Parser::Ts(ts) => ts.is_in_step(),
            Parser::Flv(flv) => flv.is_between(),
            Parser::Mp4(mp4) => mp4.is_between(),
            // It tells a cluster by its head.
            Parser::Matroska(_) | Parser::Raw => false,
        }
    }
}

/// Checks the length of an element that is passed over.
pub(crate) fn passed(at: u64, len: u64) -> Result<u64, Error> {
    if len > ELEMENT_LEN_MAX { Err(Error::ElementTooLong { at, len }) } else { Ok(len) }
}

/// Checks the length of an element that is read whole, `kept` being there of the header already. `None`: it is not all
/// there yet.
pub(crate) fn whole(at: u64, data: &[u8], len: u64, kept: usize) -> Result<Option<&[u8]>, Error> {
    if len.saturating_add(kept as u64) > HEADER_LEN_MAX as u64 {
        return Err(Error::HeaderTooLong { at, len });
    }
    Ok(data.get(..len as usize))
}
