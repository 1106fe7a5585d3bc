//! From a time in a title to a place in it, and back, by the references in its chunks.
//!
//! In: a library, a title, seconds or packets. Out: packets or seconds. Cost of a place: what `Library::place` reads; of a
//! time, nothing. Where references do not continue, times are only near.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pump::chunk::Chunk;
use pump::clock::Mark;
use pump::title::Title;
use titles::{Error, Library};
use wire::ts::Pcr;

/// Chunks in which a picture that stands alone is looked for: more than a group has, usually.
const PICTURE_LOOKS_MAX: usize = 9;

/// The title's first reference, which is its time zero.
///
/// # Errors
/// When the first chunk cannot be had.
pub(super) async fn zero(library: &Library, title: &Arc<Title>) -> Result<Option<Pcr>, Error> {
    let chunk = library.chunk(title, 0).await?;
    Ok(chunk.marks.first().map(|mark| back_to(mark, 0, title)))
}

/// Where the title is `at` after its start: the packet there; with `at_picture` that of the picture that stands alone
/// at it or before, when there is one.
///
/// # Errors
/// When a chunk cannot be had.
pub(super) async fn position_at(
    library: &Library,
    title: &Arc<Title>,
    zero: Option<Pcr>,
    at: Duration,
    at_picture: bool,
) -> Result<u64, Error> {
    let place = match zero.filter(|_| !at.is_zero()) {
        Some(_) => library.place(title, at, !at_picture).await?,
        None => None,
    };
    Ok(place.unwrap_or_else(|| guess(title, at)))
}

/// The nearest picture that stands alone, at `position` or some chunks before it; else `position`.
///
/// # Errors
/// When a chunk cannot be had.
pub(super) async fn picture_before(library: &Library, title: &Arc<Title>, position: u64) -> Result<u64, Error> {
    for number in (0..=title.chunk_of(position)).rev().take(PICTURE_LOOKS_MAX) {
        let chunk = library.chunk(title, number.into()).await?;
        if let Some(start) = last_picture(&chunk, position) {
            return Ok(start);
        }
    }
    Ok(position)
}

fn last_picture(chunk: &Chunk, position: u64) -> Option<u64> {
    let starts = chunk.pictures.iter().map(|picture| chunk.first + u64::from(picture.start));
    starts.take_while(|start| *start <= position).last()
}

/// How long the title is; by its rate when its last chunk cannot be had.
pub(super) async fn length(library: &Library, title: &Arc<Title>, zero: Option<Pcr>) -> Duration {
    let mut seen = Seen::default();
    if let Ok(chunk) = library.chunk(title, title.chunk_count().saturating_sub(1).into()).await {
        seen.note(&chunk);
    }
    seen.time_at(title, zero, title.packet_count())
}

/// The references of chunks that a session was given lately: first and last of each.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    marks: VecDeque<Mark>,
}

/// References that are remembered: those of the chunks that a session holds, and some more.
const SEEN_MAX: usize = 16;

impl Seen {
    pub(super) fn note(&mut self, chunk: &Chunk) {
        self.marks.extend(chunk.marks.first());
        self.marks.extend(chunk.marks.last());
        while self.marks.len() > SEEN_MAX {
            self.marks.pop_front();
        }
    }

    /// How long after the title's start a packet is due, evenly between the nearest references.
    pub(super) fn time_at(&self, title: &Title, zero: Option<Pcr>, position: u64) -> Duration {
        let by_rate = title.slope.map_or(0, |slope| slope.ns(position));
        let by_rate = Duration::from_nanos(by_rate.max(0) as u64);
        let Some(zero) = zero else { return by_rate };
        let before = self.marks.iter().filter(|mark| mark.position <= position).max_by_key(|mark| mark.position);
        let behind = self.marks.iter().filter(|mark| mark.position > position).min_by_key(|mark| mark.position);
        let ticks = match (before, behind) {
            (Some(before), Some(behind)) => {
                let (from, to) = (zero.ticks_to(before.pcr), zero.ticks_to(behind.pcr));
                let (done, all) = (position - before.position, behind.position - before.position);
                from + (i128::from(to - from) * i128::from(done) / i128::from(all)) as i64
            }
            (Some(mark), None) | (None, Some(mark)) => zero.ticks_to(back_to(mark, position, title)),
            (None, None) => return by_rate,
        };
        Duration::from_nanos((ticks.max(0) as u64).saturating_mul(1_000) / 27)
    }
}

/// The reference that a packet before or behind a mark would have.
fn back_to(mark: &Mark, position: u64, title: &Title) -> Pcr {
    let Some(slope) = title.slope else { return mark.pcr };
    let packets = i128::from(position) - i128::from(mark.position);
    let ticks = packets * i128::from(slope.ticks) / i128::from(slope.packets.max(1));
    mark.pcr.plus(ticks as i64)
}

fn guess(title: &Title, at: Duration) -> u64 {
    let Some(slope) = title.slope else { return 0 };
    let packets = at.as_nanos() * 27 / 1_000 * u128::from(slope.packets) / u128::from(slope.ticks.max(1));
    u64::try_from(packets).unwrap_or(u64::MAX).min(title.packet_count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pump::sample::Sample;

    /// A title in memory, and its chunks.
    fn sample(is_constant: bool) -> (Title, Vec<Chunk>) {
        let bytes = Sample { pictures: 1_000, is_constant, ..Sample::default() }.make();
        let title = Title::probe(&bytes[..1 << 20], bytes.len() as u64, 700).expect("a title");
        let range = |number| title.chunk_range(number).start as usize..title.chunk_range(number).end as usize;
        let chunks = (0..title.chunk_count()).map(|number| Chunk::scan(&title, number, bytes[range(number)].to_vec()));
        let chunks = chunks.collect();
        (title, chunks)
    }

    #[test]
    fn the_time_of_a_place_is_known_from_the_chunks_around() {
        for is_constant in [true, false] {
            let (title, chunks) = sample(is_constant);
            let zero = back_to(&chunks[0].marks[0], 0, &title);
            let mut seen = Seen::default();
            for chunk in &chunks {
                seen.note(chunk);
                let mark = chunk.marks[chunk.marks.len() / 2];
                let told = seen.time_at(&title, Some(zero), mark.position).as_secs_f64();
                let expected = zero.ticks_to(mark.pcr) as f64 / Pcr::HZ as f64;
                assert!((told - expected).abs() < 0.2, "{told} for {expected}");
            }
        }
    }

    #[test]
    fn the_picture_before_a_place_is_found() {
        let (_, chunks) = sample(true);
        let pictures: Vec<u64> = chunks.iter().filter_map(|chunk| last_picture(chunk, u64::MAX)).collect();
        assert!(pictures.len() > 20);
        let (chunk, first) = chunks.iter().find_map(|chunk| Some((chunk, chunk.pictures.first()?))).expect("one");
        let start = chunk.first + u64::from(first.start);
        assert_eq!(last_picture(chunk, start), Some(start));
        assert_eq!(start.checked_sub(1).and_then(|before| last_picture(chunk, before)), None);
    }
}
