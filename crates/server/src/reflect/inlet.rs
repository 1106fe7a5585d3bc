//! A stream's writer: bytes of its sources go in, and stand in memory for all workers, with what is known of them.
//!
//! In: the bytes of one source after another, cut anywhere, and what workers say that they have passed. Out: growth for the
//! workers, when it is time (`Coalescer`), and news for the playlist (`Hls`), always behind the bytes.
//!
//! **Where a source begins**: at its first start point. What it sends before that is no part of the stream, and its header
//! stands before each start point for who begins there. A stream goes on with its next source in the same way, so that who
//! watches it goes on too; if the header is another one, it stands before that start point for him as well. A unit that the
//! last source left torn is filled up with zeros, up to `MISSING_MAX`. **Another format ends the stream**, and so its
//! viewers: nobody's player could go on (`Trouble::OtherFormat`).
//! Bytes are held until it is known what they are: the rest of a packet, the head of a tag, a `moof`.
//!
//! **Metacube**: a stream in Cubemap's framing is another stream from the same source. Its blocks end at start points, so that
//! each is known to be one or not: bytes wait until that is told, which is some packets of a picture at most. A header that is
//! another one than before stands in it as a block.
//! Cost: a copy into the file, and one before that.

mod moved;
mod rate;
mod ring;
mod source;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use live::metacube::{self, Kind};
use live::{DETECT_LEN, Format, Header};
use reflect::backlog::Full;
use reflect::coalesce::{Coalescer, Crowd, Intervals, Share};
use reflect::hls::Container;
use reflect::window::{Extent, Growth, Units};
use serde::{Deserialize, Serialize};
use wire::{Bitrate, WorkerId};

pub use self::moved::InletState;
use self::rate::Meter;
use self::ring::Ring;
use self::source::{Mark, MarkKind, Source};
use super::hls::Hls;

/// No backlog is smaller.
pub const BACKLOG_MIN: u64 = 1 << 20;

/// A torn unit that lacks more than that stays torn.
const MISSING_MAX: u64 = 1 << 20;

/// A source that has not come to a start point keeps no more than that.
const PENDING_MAX: u64 = 1 << 20;

/// Room that is asked for beyond what comes.
const SLACK: usize = 64 << 10;

/// How a stream is kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `None`: as the first bytes, or the source's Content-Type, say.
    pub format: Option<Format>,
    /// Bytes that are there for viewers; `BACKLOG_MIN` at least.
    pub backlog: u64,
    /// When workers are told.
    pub intervals: Intervals,
    /// For streams that can be HLS, TS and MP4; the container is what the stream is in.
    pub hls: Option<reflect::hls::Settings>,
    /// How its bytes are sent.
    pub framing: Framing,
}

/// How a stream's bytes are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// As they came.
    #[default]
    None,
    /// In blocks of Metacube 2, for a Cubemap.
    Metacube,
}

/// Why bytes are not taken.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A worker holds on to too much. The same bytes are to be offered again.
    #[error(transparent)]
    Full(#[from] Full),
    /// The source is in another format than the stream. It was begun, and these bytes were not taken; those before them are to
    /// be had (`Inlet::take_pending`). The stream is to begin anew, with another inlet.
    #[error("the source is {now:?}, and the stream was {before:?}")]
    OtherFormat {
        /// The stream's.
        before: Format,
        /// The source's.
        now: Format,
    },
    /// The source cannot be read on. It has been broken off, and is to be asked anew.
    #[error(transparent)]
    Source(#[from] live::Error),
    /// There is no memory for it. The source has been broken off.
    #[error("memory for the stream: {0}")]
    Memory(#[from] io::Error),
}

/// What is known of a stream.
#[derive(Clone, Debug)]
pub struct Status {
    /// `None`: nothing came yet.
    pub format: Option<Format>,
    /// The media type; empty while nobody knows it.
    pub content_type: String,
    /// As RFC 6381 writes them, as far as they are known.
    pub codecs: Vec<String>,
    /// Whether there are pictures.
    pub has_video: bool,
    /// As measured; zero when nobody knows.
    pub rate: Bitrate,
    /// What is there, in bytes since the stream began.
    pub extent: Extent,
    /// A source is there.
    pub is_live: bool,
    /// When bytes came last.
    pub heard: Option<Instant>,
    /// What was counted.
    pub counts: Counts,
}

/// What a stream's writer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Sources that began.
    pub sources: u64,
    /// Sources that could not be read on.
    pub faults: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes that came before a source's first start point.
    pub passed_bytes: u64,
    /// Bytes that torn units were filled up with.
    pub filled_bytes: u64,
    /// Start points that were found.
    pub starts: u64,
}

/// One stream's writer.
#[derive(Debug)]
pub struct Inlet {
    settings: Settings,
    ring: Ring,
    coalescer: Coalescer,
    meter: Meter,
    hls: Option<Arc<Hls>>,
    format: Option<Format>,
    content_type: String,
    /// The header of what was put last: who watches has it.
    header: Option<Arc<Header>>,
    incoming: Incoming,
    heard: Option<Instant>,
    counts: Counts,
}

#[derive(Debug)]
enum Incoming {
    /// There is no source.
    Nothing,
    /// It is not known what comes.
    Unknown { head: Vec<u8>, content_type: Option<String> },
    /// A source that has not come to a start point.
    Early(Source),
    /// A source whose byte `from` stands at `to` in the stream.
    Begun { source: Source, from: u64, to: u64 },
}

/// News for a playlist.
enum News {
    Header(Arc<Header>),
    Start(u64, Option<Duration>),
    Seam(u64),
}

impl Inlet {
    /// A stream without a byte.
    ///
    /// # Errors
    /// When there is no memory or descriptor for it.
    pub fn new(_now: Instant, settings: Settings) -> io::Result<Self> {
        let ring = Ring::new(settings.backlog.max(BACKLOG_MIN))?;
        let mut inlet = Inlet::with(settings, ring);
        if let Some(format) = inlet.settings.format {
            inlet.set_format(format);
        }
        Ok(inlet)
    }

    fn with(settings: Settings, ring: Ring) -> Self {
        Inlet {
            ring,
            coalescer: Coalescer::new(settings.intervals),
            meter: Meter::default(),
            hls: None,
            format: None,
            content_type: String::new(),
            header: None,
            incoming: Incoming::Nothing,
            heard: None,
            counts: Counts::default(),
            settings,
        }
    }

    fn set_format(&mut self, format: Format) {
        self.format = Some(format);
        self.content_type = match format {
            Format::Ts => "video/mp2t",
            Format::Flv => "video/x-flv",
            // The header says whether there are pictures.
            Format::Matroska | Format::Mp4 => "",
            // Its source, or its first bytes.
            Format::Raw => "",
        }
        .to_owned();
        let container = match format {
            Format::Ts => Container::Ts,
            Format::Mp4 => Container::Mp4,
            _ => return,
        };
        if let Some(settings) = self.settings.hls.filter(|_| self.settings.framing == Framing::None) {
            let settings = reflect::hls::Settings { container, ..settings };
            self.hls = Some(Arc::new(Hls::new(settings, self.ring.file.clone())));
        }
    }

    /// A source begins, with what its response said of the format. Another one that has not ended is broken off.
    pub fn begin(&mut self, now: Instant, content_type: Option<&str>) {
        self.break_off(now);
        self.meter.begin();
        self.counts.sources += 1;
        self.incoming = Incoming::Unknown { head: Vec::new(), content_type: content_type.map(str::to_owned) };
    }

    /// Takes bytes of the source as they come, some hundred thousand at once at most.
    ///
    /// # Errors
    /// See there.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> Result<(), Trouble> {
        if matches!(self.incoming, Incoming::Nothing) {
            self.begin(now, None);
        }
        // With a header, which comes out of the same bytes, and heads of blocks, each of which has more than the head.
        self.ring.backlog.check(3 * (self.pending_len() + bytes.len()) + SLACK)?;
        let first = self.learn_format(now, bytes)?;
        self.heard = Some(now);
        self.counts.bytes += bytes.len() as u64;
        self.meter.add(now, bytes.len());
        let source = match &mut self.incoming {
            Incoming::Early(source) | Incoming::Begun { source, .. } => source,
            Incoming::Nothing | Incoming::Unknown { .. } => return Ok(()),
        };
        let read = source.take(now, first.as_deref().unwrap_or(bytes));
        self.release(now).inspect_err(|_| self.incoming = Incoming::Nothing)?;
        if read.is_err() {
            self.counts.faults += 1;
            self.break_off(now);
        }
        Ok(read?)
    }

    fn pending_len(&self) -> usize {
        match &self.incoming {
            Incoming::Nothing => 0,
            Incoming::Unknown { head, .. } => head.len(),
            Incoming::Early(source) | Incoming::Begun { source, .. } => source.pending.len(),
        }
    }

    /// Makes a source out of what comes as soon as it is known what that is. Then returns its first bytes.
    fn learn_format(&mut self, now: Instant, bytes: &[u8]) -> Result<Option<Vec<u8>>, Trouble> {
        let Incoming::Unknown { head, content_type } = &mut self.incoming else { return Ok(None) };
        let all = [&head[..], bytes].concat();
        let said = content_type.as_deref();
        let Some(format) = self.settings.format.or_else(|| Format::detect(&all, said)) else {
            *head = all;
            return Ok(None);
        };
        if let Some(before) = self.format.filter(|before| *before != format) {
            return Err(Trouble::OtherFormat { before, now: format });
        }
        // Some call everything so.
        let said = said.map(str::trim).filter(|said| *said != "application/octet-stream").map(str::to_owned);
        if self.format.is_none() {
            self.set_format(format);
        }
        if format == Format::Raw {
            let head = &all[..all.len().min(DETECT_LEN)];
            self.content_type = said.unwrap_or_else(|| live::raw_content_type(head).to_owned());
        }
        self.incoming = Incoming::Early(Source::new(now, format));
        Ok(Some(all))
    }

    /// The first bytes of a source in another format (`Trouble::OtherFormat`), for the inlet that takes it.
    pub fn take_pending(&mut self) -> Vec<u8> {
        match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::Unknown { head, .. } => head,
            _ => Vec::new(),
        }
    }

    /// Puts into the stream what is known by now.
    fn release(&mut self, now: Instant) -> io::Result<()> {
        let incoming = match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::Early(source) => self.begin_at_start(source)?,
            incoming => incoming,
        };
        self.incoming = incoming;
        let limit = match &self.incoming {
            Incoming::Begun { source, .. } if self.settings.framing == Framing::Metacube => source.decided(),
            Incoming::Begun { source, .. } => source.taken(),
            _ => return Ok(()),
        };
        self.release_to(now, limit)
    }

    /// Begins with the first start point of a source, if that was found.
    fn begin_at_start(&mut self, mut source: Source) -> io::Result<Incoming> {
        if let Some(header) = source.header()
            && self.content_type != header.content_type
        {
            header.content_type.clone_into(&mut self.content_type);
        }
        let Some(start) = source.marks.iter().position(Mark::is_start) else {
            let passed = source.decided().max(source.taken().saturating_sub(PENDING_MAX));
            self.pass(&mut source, passed);
            source.marks.clear();
            return Ok(Incoming::Early(source));
        };
        source.marks.drain(..start);
        let at = source.marks[0].at;
        self.pass(&mut source, at);
        // One that was let go of for its length begins where it is.
        let from = source.pending_at.max(at);
        source.marks[0].at = from;
        if let (Framing::None, Some(header)) = (self.settings.framing, source.marks[0].header()) {
            self.put_header(source.format(), header)?;
        }
        let to = self.ring.backlog.end();
        Ok(Incoming::Begun { source, from, to })
    }

    fn pass(&mut self, source: &mut Source, at: u64) {
        let before = source.pending_at;
        source.pass(at);
        self.counts.passed_bytes += source.pending_at - before;
    }

    /// Puts a header into the stream, for who watches and has another one.
    fn put_header(&mut self, format: Format, header: &Header) -> io::Result<()> {
        if self.ring.backlog.end() == 0 || !self.is_other(header) {
            return Ok(());
        }
        // In Flash Video that of the file stands at the beginning alone; behind it are tags as anywhere.
        let bytes = match format {
            Format::Flv => header.bytes.get(flv_head_len(&header.bytes)..).unwrap_or_default(),
            _ => &header.bytes[..],
        };
        self.ring.put(bytes)?;
        self.coalescer.handle_bytes();
        self.ring.backlog.mark_boundary();
        Ok(())
    }

    /// Whether it is another one than that of what was put last.
    fn is_other(&self, header: &Header) -> bool {
        self.header.as_ref().is_none_or(|before| before.bytes != header.bytes)
    }

    /// Puts what of the source is before `limit` into the stream, and tells of the marks in it.
    fn release_to(&mut self, now: Instant, limit: u64) -> io::Result<()> {
        let mut incoming = std::mem::replace(&mut self.incoming, Incoming::Nothing);
        if let Incoming::Begun { source, from, to } = &mut incoming {
            match self.settings.framing {
                Framing::None => self.put_plain(now, source, limit, (*from, *to))?,
                Framing::Metacube => self.put_framed(now, source, limit)?,
            }
        }
        self.incoming = incoming;
        Ok(())
    }

    fn put_plain(&mut self, now: Instant, source: &mut Source, limit: u64, place: (u64, u64)) -> io::Result<()> {
        let len = (limit.saturating_sub(source.pending_at) as usize).min(source.pending.len());
        if len > 0 {
            self.ring.put(&source.pending[..len])?;
            self.coalescer.handle_bytes();
            source.pass(source.pending_at + len as u64);
        }
        let mut news = Vec::new();
        for Mark { at, kind } in source.marks.drain(..) {
            let (from, to) = place;
            let Some(at) = at.checked_sub(from).map(|at| at + to) else { continue };
            match kind {
                MarkKind::Start { media, header } => {
                    if let Some(header) = header {
                        if self.is_other(&header) {
                            self.ring.backlog.set_header_at(at, &header.bytes);
                        }
                        self.header = Some(header.clone());
                        news.push(News::Header(header));
                    }
                    self.ring.backlog.mark_start_at(at, now);
                    self.counts.starts += 1;
                    news.push(News::Start(at, media));
                }
                MarkKind::Boundary => self.ring.backlog.mark_boundary_at(at),
                MarkKind::Seam => news.push(News::Seam(at)),
            }
        }
        self.tell(now, &news);
        Ok(())
    }

    fn tell(&self, now: Instant, news: &[News]) {
        let Some(hls) = self.hls.as_ref().filter(|_| !news.is_empty()) else { return };
        hls.tell(|playlist| {
            for news in news {
                match news {
                    News::Header(header) => playlist.set_header(&header.bytes),
                    News::Start(at, media) => playlist.handle_start(*at, *media, now),
                    News::Seam(at) => playlist.handle_boundary(*at, now),
                }
            }
        });
    }

    /// The same, in blocks that end at start points.
    fn put_framed(&mut self, now: Instant, source: &mut Source, limit: u64) -> io::Result<()> {
        let marks = std::mem::take(&mut source.marks);
        let (starts, later): (Vec<Mark>, Vec<Mark>) =
            marks.into_iter().filter(Mark::is_start).partition(|mark| mark.at < limit);
        source.marks = later;
        let ends: Vec<u64> = starts.iter().skip(1).map(|mark| mark.at).chain([limit]).collect();
        let first = starts.first().map_or(limit, |mark| mark.at);
        self.put_block(source, Kind::Continuation, first)?;
        for (Mark { kind, .. }, end) in starts.into_iter().zip(ends) {
            if let MarkKind::Start { header: Some(header), .. } = kind {
                self.put_framed_header(header)?;
            }
            if end > source.pending_at {
                self.ring.backlog.mark_start(now);
                self.counts.starts += 1;
            }
            self.put_block(source, Kind::Start, end)?;
        }
        Ok(())
    }

    /// Puts a header into the stream as a block, if it is another one, but for the first: that all who come get.
    fn put_framed_header(&mut self, header: Arc<Header>) -> io::Result<()> {
        if self.is_other(&header) {
            let mut block = metacube::block_head(Kind::Header, header.bytes.len() as u32).to_vec();
            block.extend_from_slice(&header.bytes);
            if self.ring.backlog.end() > 0 {
                self.ring.put(&block)?;
                self.coalescer.handle_bytes();
            }
            self.ring.backlog.set_header(&block);
        }
        self.header = Some(header);
        Ok(())
    }

    /// Puts what is before `end` into the stream as a block.
    fn put_block(&mut self, source: &mut Source, kind: Kind, end: u64) -> io::Result<()> {
        let len = (end.saturating_sub(source.pending_at) as usize).min(source.pending.len());
        if len > 0 {
            let mut block = metacube::block_head(kind, len as u32).to_vec();
            block.extend_from_slice(&source.pending[..len]);
            self.ring.put(&block)?;
            self.coalescer.handle_bytes();
            self.ring.backlog.mark_boundary();
            source.pass(source.pending_at + len as u64);
        }
        Ok(())
    }

    /// The source is gone, or another one is to come. Without one nothing happens.
    pub fn break_off(&mut self, now: Instant) {
        if let Incoming::Begun { source, from, to } = &mut self.incoming {
            let whole = source.boundary().saturating_sub(*from) + *to;
            let missing = source.close(MISSING_MAX);
            let limit = source.taken() + missing;
            let closed = self.release_to(now, limit);
            self.counts.filled_bytes += missing;
            if let Err(error) = closed {
                tracing::warn!(%error, "the end of a source is lost");
            }
            self.ring.backlog.mark_boundary();
            if let Some(hls) = &self.hls {
                hls.tell(|playlist| playlist.break_off(whole, now));
            }
        }
        self.incoming = Incoming::Nothing;
    }

    /// The stream is over: nothing comes any more, from no source.
    pub fn end(&mut self, now: Instant) {
        self.break_off(now);
        if let Some(hls) = &self.hls {
            hls.tell(|playlist| playlist.end(self.ring.backlog.end(), now));
        }
    }

    /// What workers have to do (`Coalescer::set_crowd`).
    pub fn set_crowd(&mut self, crowd: Crowd) {
        self.coalescer.set_crowd(crowd);
    }

    /// From one turn of a viewer to his next.
    pub fn interval(&self) -> Duration {
        self.coalescer.interval()
    }

    /// What workers are to be told now, if it is time, and how many viewers have a turn then.
    pub fn poll_growth(&mut self, now: Instant) -> Option<(Arc<Growth>, Share)> {
        if self.ring.backlog.is_urgent() {
            self.coalescer.hurry();
        }
        let share = self.coalescer.take(now)?;
        let growth = Arc::new(self.ring.backlog.take_growth(self.coalescer.is_in_shares()));
        self.ring.punch(self.hls.as_ref());
        Some((growth, share))
    }

    /// What waits or comes next is told of at once.
    pub fn hurry(&mut self) {
        self.coalescer.hurry();
    }

    /// When `poll_growth` next has something; a time that is over means at once. `None`: when bytes come.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.coalescer.poll_timeout(now)
    }

    /// A worker reads from now on: what it is told first (`Command::AddStream`).
    pub fn add_reader(&mut self, worker: WorkerId) -> (Arc<File>, Units, Growth) {
        let growth = self.ring.backlog.add_reader(worker);
        (self.ring.file.clone(), Units::Marked, growth)
    }

    /// A worker reads no more.
    pub fn remove_reader(&mut self, worker: WorkerId) {
        self.ring.backlog.remove_reader(worker);
        self.ring.punch(self.hls.as_ref());
    }

    /// Nobody of a worker is before `begin` any more.
    pub fn passed(&mut self, worker: WorkerId, begin: u64) {
        self.ring.backlog.passed(worker, begin);
        self.ring.punch(self.hls.as_ref());
    }

    /// As measured over the last seconds; zero when nobody knows.
    pub fn rate(&self) -> Bitrate {
        self.meter.rate()
    }

    /// The media type; empty while nobody knows it.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// What the response's Content-Encoding is.
    pub fn content_encoding(&self) -> Option<&'static str> {
        (self.settings.framing == Framing::Metacube).then_some(metacube::CONTENT_ENCODING)
    }

    /// `None`: there is no HLS of it, or nobody knows yet whether there is.
    pub fn hls(&self) -> Option<&Arc<Hls>> {
        self.hls.as_ref()
    }

    /// What is known of it.
    pub fn status(&self) -> Status {
        let header = self.header.as_deref();
        Status {
            format: self.format,
            content_type: self.content_type.clone(),
            codecs: header.map(|header| header.codecs.clone()).unwrap_or_default(),
            has_video: header.is_some_and(|header| header.has_video),
            rate: self.meter.rate(),
            extent: self.ring.backlog.extent(),
            is_live: !matches!(self.incoming, Incoming::Nothing),
            heard: self.heard,
            counts: self.counts,
        }
    }
}

/// Bytes of the file's header in Flash Video, and of the length of no tag behind it (annex E.2 and E.3 of its specification).
fn flv_head_len(header: &[u8]) -> usize {
    let offset = header.get(5..9).and_then(|offset| offset.try_into().ok()).map_or(0, u32::from_be_bytes);
    offset as usize + 4
}
