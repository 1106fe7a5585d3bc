//! One source of a stream, from its first byte to its last: what of it is known, and what waits to be put into the stream.
//!
//! In: its bytes, cut anywhere. Out: bytes whose place in the container is known, and marks: start points, with the header
//! when that is another one, boundaries between units, and seams between pictures. Places are bytes of the source before them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use live::{Event, Format, Header, Reader};

/// Boundaries are looked for so often, in bytes: who falls out of the window gets the rest of his unit, up to one of them.
const LOOK: usize = 4_096;

/// A source in which one could start nowhere for so long may be started anywhere between two units. More than x264's longest
/// way between key frames.
const PATIENCE: Duration = Duration::from_secs(12);

/// A stream in which no picture began for so long has none for now, and may be parted between any two units. A large one takes a
/// second to come, or two.
const PICTURE_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Source {
    format: Format,
    reader: Reader,
    header: Option<Arc<Header>>,
    /// It is another one than the last start point had.
    is_header_new: bool,
    /// What is not put into the stream yet, and where it begins.
    pub(super) pending: Vec<u8>,
    pub(super) pending_at: u64,
    /// What is to be told once the bytes before it are put.
    pub(super) marks: Vec<Mark>,
    boundary: u64,
    seam: u64,
    /// When the last picture began.
    seam_came: Instant,
    began: Instant,
    /// A start point was found.
    has_start: bool,
}

/// Something at a place of a source.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) at: u64,
    pub(super) kind: MarkKind,
}

#[derive(Clone, Debug)]
pub(super) enum MarkKind {
    /// One may start here; the header if it is another one than before.
    Start { media: Option<Duration>, header: Option<Arc<Header>> },
    /// A unit ends here, and another one begins.
    Boundary,
    /// The same, and no picture is torn here.
    Seam,
}

impl Mark {
    pub(super) fn is_start(&self) -> bool {
        matches!(self.kind, MarkKind::Start { .. })
    }

    /// The header that begins to hold here.
    pub(super) fn header(&self) -> Option<&Arc<Header>> {
        match &self.kind {
            MarkKind::Start { header, .. } => header.as_ref(),
            MarkKind::Boundary | MarkKind::Seam => None,
        }
    }
}

impl Source {
    pub(super) fn new(now: Instant, format: Format) -> Self {
        Source {
            format,
            reader: Reader::new(format),
            header: None,
            is_header_new: false,
            pending: Vec::new(),
            pending_at: 0,
            marks: Vec::new(),
            boundary: 0,
            seam: 0,
            seam_came: now,
            began: now,
            has_start: false,
        }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    pub(super) fn header(&self) -> Option<&Arc<Header>> {
        self.header.as_ref()
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// When it cannot be read on. What was before the fault is taken.
    pub(super) fn take(&mut self, now: Instant, bytes: &[u8]) -> Result<(), live::Error> {
        self.pending.extend_from_slice(bytes);
        if self.reader.starts_anywhere() && !bytes.is_empty() {
            self.mark_start(self.reader.taken(), None);
        }
        for mut piece in bytes.chunks(LOOK) {
            while let Some(event) = self.reader.read(&mut piece)? {
                match event {
                    Event::Header(header) => (self.header, self.is_header_new) = (Some(header), true),
                    Event::Start(start) => {
                        self.has_start = true;
                        self.mark_start(start.at, start.time);
                    }
                }
            }
            let boundary = self.reader.boundary();
            if boundary > self.boundary {
                self.boundary = boundary;
                self.marks.push(Mark { at: boundary, kind: MarkKind::Boundary });
                if self.is_blind(now) {
                    self.mark_start(boundary, None);
                }
            }
            self.mark_seam(now);
        }
        Ok(())
    }

    fn mark_seam(&mut self, now: Instant) {
        let known = self.reader.seam().filter(|seam| *seam > self.seam);
        if known.is_some() {
            self.seam_came = now;
        }
        let is_without = now.saturating_duration_since(self.seam_came) > PICTURE_MAX;
        let any = (is_without && self.boundary > self.seam).then_some(self.boundary);
        if let Some(at) = known.or(any) {
            self.seam = at;
            self.marks.push(Mark { at, kind: MarkKind::Seam });
        }
    }

    fn mark_start(&mut self, at: u64, media: Option<Duration>) {
        let header = self.header.clone().filter(|_| std::mem::take(&mut self.is_header_new));
        self.marks.push(Mark { at, kind: MarkKind::Start { media, header } });
    }

    /// Whether one may start between any two units, as nothing better was found. Without its header only a transport stream
    /// can be played.
    fn is_blind(&self, now: Instant) -> bool {
        let is_over = now.saturating_duration_since(self.began) >= PATIENCE;
        !self.has_start && is_over && (self.header.is_some() || self.format == Format::Ts)
    }

    /// Up to where it is known what the bytes are.
    pub(super) fn taken(&self) -> u64 {
        self.reader.taken()
    }

    /// Before this no further start point will be found.
    pub(super) fn decided(&self) -> u64 {
        self.reader.decided()
    }

    /// The last place between two units.
    pub(super) fn boundary(&self) -> u64 {
        self.boundary
    }

    /// Lets go of what is before `at`: it is in the stream, or is to be no part of it.
    pub(super) fn pass(&mut self, at: u64) {
        let len = usize::try_from(at.saturating_sub(self.pending_at)).unwrap_or(usize::MAX).min(self.pending.len());
        self.pending.drain(..len);
        self.pending_at += len as u64;
    }

    /// It ends: what was begun and is not known is let go of, and what the last element lacks is filled up with zeros, if that
    /// is no more than `missing_max`. Returns how many.
    pub(super) fn close(&mut self, missing_max: u64) -> u64 {
        let known = usize::try_from(self.taken().saturating_sub(self.pending_at)).unwrap_or(usize::MAX);
        self.pending.truncate(known);
        let missing = Some(self.reader.missing()).filter(|missing| *missing <= missing_max).unwrap_or(0);
        self.pending.resize(self.pending.len() + missing as usize, 0);
        missing
    }
}
