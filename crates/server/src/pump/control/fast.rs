//! Other speeds of viewing: which pictures are shown next, found chunk by chunk ahead of the session.
//!
//! In: a title, a place, a speed. Out: picks, some at a time, in the order of showing.
//! Times count from chunk to chunk, so a clock that jumps moves nothing. Of a title that goes by fast, chunks between two
//! pictures are not read.
//! Cost: one or two chunks per step, from the cache mostly; nothing is kept but a place.

use std::sync::Arc;
use std::time::Duration;

use pump::chunk::Chunk;
use pump::index::Index;
use pump::title::Title;
use pump::trick::{Pick, Picker};
use titles::{Error, Library};

/// No two pictures follow each other by less.
const SPACING: Duration = Duration::from_millis(100);

/// Fastest, and slowest, in thousandths.
const SCALE_PERMILLE: (i32, i32) = (100, 32_000);

/// Chunks that are looked at for one answer; when there is no picture in them, there are no more.
const LOOKS_MAX: usize = 64;

/// A speed that there is, near the one that was asked for; in thousandths, negative backwards.
pub(super) fn nearest(scale: f64) -> i32 {
    let (low, high) = SCALE_PERMILLE;
    let permille = (scale.abs() * 1_000.0).round().clamp(low.into(), high.into()) as i32;
    if scale < 0.0 { -permille } else { permille }
}

type MaybeChunk = Option<Arc<Chunk>>;

/// What goes through a title at another speed.
#[derive(Debug)]
pub(super) struct Planner {
    title: Arc<Title>,
    /// Pictures begin no earlier than this, and before that; in packets from the title's start.
    low: u64,
    high: u64,
    scale_permille: i32,
    is_backward: bool,
    /// Chunks from one that is looked at to the next.
    stride: u32,
    /// `None`: the title's end, or its begin.
    next: Option<u32>,
    /// The last chunk that was looked at, and nanoseconds from the first one's begin to its.
    last: Option<(u32, i128)>,
    picker: Picker,
    /// A chunk that cannot be had is waited for.
    pub(super) is_patient: bool,
}

impl Planner {
    /// Goes on from the packet `from`, within the packets `bounds`. `None` when the title has no pictures that are known
    /// to stand alone, or no clock.
    pub(super) fn new(title: &Arc<Title>, from: u64, bounds: (u64, u64), scale_permille: i32) -> Option<Planner> {
        let slope = title.slope.filter(|_| title.video.is_some() && scale_permille != 0)?;
        let is_backward = scale_permille < 0;
        let (low, high) = if is_backward { (bounds.0, from + 1) } else { (from, bounds.1) };
        let chunk_ns = i128::from(slope.ns(title.chunk_packets().into()).max(1));
        let step_ns = SPACING.as_nanos() as i128 * i128::from(scale_permille.unsigned_abs()) / 1_000;
        Some(Planner {
            title: title.clone(),
            low,
            high,
            scale_permille,
            is_backward,
            stride: u32::try_from(step_ns / chunk_ns).unwrap_or(u32::MAX).max(1),
            next: Some(title.chunk_of(from)),
            last: None,
            picker: Picker::new(scale_permille, slope, SPACING),
            is_patient: false,
        })
    }

    pub(super) fn scale_permille(&self) -> i32 {
        self.scale_permille
    }

    /// Where the session goes on when all was shown: at normal speed from the first packet that may be shown, or behind
    /// the last.
    pub(super) fn place_behind(&self) -> u64 {
        if self.is_backward { self.low } else { self.high }
    }

    /// The next `count` pictures, or a few more; fewer when a chunk cannot be had behind them; none when there are no more.
    ///
    /// # Errors
    /// When a chunk cannot be had. Then this may be tried again.
    pub(super) async fn plan(&mut self, library: &Library, count: usize) -> Result<Vec<Pick>, Error> {
        let mut picks = Vec::new();
        let mut looks = 0;
        while let Some(number) = self.next.filter(|_| picks.len() < count && looks < LOOKS_MAX) {
            match self.read(library, number).await {
                Ok((chunk, after, last)) => self.take(&mut picks, &chunk, after.as_deref(), last.as_deref()),
                Err(_) if !picks.is_empty() => break,
                Err(error) => return Err(error),
            }
            looks += 1;
        }
        Ok(picks)
    }

    /// A chunk, the one behind it where its last picture ends there, and the one that was looked at before.
    async fn read(&self, library: &Library, number: u32) -> Result<(Arc<Chunk>, MaybeChunk, MaybeChunk), Error> {
        let chunk = self.chunk(library, number).await?;
        let ends_later = chunk.pictures.last().is_some_and(|picture| picture.end.is_none());
        let after = match number + 1 {
            after if ends_later && after < self.title.chunk_count() => Some(self.chunk(library, after).await?),
            _ => None,
        };
        let last = match self.last {
            Some((last, _)) => Some(self.chunk(library, last).await?),
            None => None,
        };
        Ok((chunk, after, last))
    }

    async fn chunk(&self, library: &Library, number: u32) -> Result<Arc<Chunk>, Error> {
        match self.is_patient {
            true => library.await_chunk(&self.title, number.into()).await,
            false => library.chunk(&self.title, number.into()).await,
        }
    }

    fn take(&mut self, picks: &mut Vec<Pick>, chunk: &Chunk, after: Option<&Chunk>, last: Option<&Chunk>) {
        let mut index = Index::new(&self.title);
        for chunk in [last, Some(chunk), after].into_iter().flatten() {
            index.add(chunk);
        }
        let ns = |position| index.time_at(position).map_or(0, |time| time.as_nanos() as i128);
        let begin_ns = ns(chunk.first);
        let passed_ns = match (self.last, last) {
            (Some((_, passed_ns)), Some(last)) => passed_ns + begin_ns - ns(last.first),
            _ => 0,
        };
        let end = chunk.first + u64::from(chunk.packet_count());
        let (low, high) = (self.low.max(chunk.first), self.high.min(end));
        let mut pictures = index.pictures();
        pictures.retain(|picture| (low..high).contains(&picture.from));
        if self.is_backward {
            pictures.reverse();
        }
        for picture in pictures {
            let at_ns = passed_ns + picture.time.as_nanos() as i128 - begin_ns;
            let ahead_ns = if self.is_backward { -at_ns } else { at_ns };
            picks.extend(self.picker.push(picture.from, picture.to, ahead_ns));
        }
        self.last = Some((chunk.number, passed_ns));
        self.next = self.behind(chunk.number);
    }

    /// The chunk to look at next.
    fn behind(&self, number: u32) -> Option<u32> {
        if self.is_backward {
            let first = self.title.chunk_of(self.low);
            (number > first).then(|| number.saturating_sub(self.stride).max(first))
        } else {
            let count =
                self.title.chunk_of(self.high.saturating_sub(1)).saturating_add(1).min(self.title.chunk_count());
            number.checked_add(self.stride).filter(|next| *next < count)
        }
    }
}
