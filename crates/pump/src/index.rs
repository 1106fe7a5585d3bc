//! Where in a title a time is, and where its pictures that stand alone are; built from the chunks as they are read.
//!
//! In: chunks, in any order. Out: times of positions, positions of times, pictures. What was not read yet is found by
//! reading: a search says which chunk to read next, and takes a few, however long the title is.
//! Cost: some 200 bytes per chunk; a pass over the known chunks per question. Not for the packet path.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::ts::Pcr;

use crate::chunk::Chunk;
use crate::clock::{Clock, Mark, Slope};
use crate::cut::Cut;
use crate::title::Title;

/// A picture that stands alone is looked for so far back, then any place will do.
const LOOK_BACK: u32 = 64;

/// What a search says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Begin with this packet, counted from the title's start.
    At(u64),
    /// Read this chunk, add it, and search again.
    Read(u32),
}

/// A picture that stands alone, and its time in the title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedPicture {
    /// Its first packet and the one behind its last.
    pub from: u64,
    pub to: u64,
    pub time: Duration,
}

/// What is known of one title.
#[derive(Clone, Debug)]
pub struct Index {
    cut: Cut,
    chunk_count: u32,
    packet_count: u64,
    has_video: bool,
    slope: Option<Slope>,
    chunks: BTreeMap<u32, Summary>,
}

/// What a chunk tells. Ticks are of 27 MHz, and count from its first mark.
#[derive(Clone, Debug)]
struct Summary {
    /// The first and the last mark, and the ticks between them.
    marks: Option<(Mark, Mark, i64)>,
    /// First packet, packet behind the last, if that is in the chunk, and ticks.
    pictures: Vec<(u64, Option<u64>, i64)>,
    /// The first packet with which a picture begins.
    first_start: Option<u64>,
    /// The rate behind the last mark.
    slope: Slope,
}

impl Index {
    pub fn new(title: &Title) -> Self {
        Index {
            cut: title.cut(),
            chunk_count: title.chunk_count(),
            packet_count: title.packet_count(),
            has_video: title.video.is_some(),
            slope: title.slope,
            chunks: BTreeMap::new(),
        }
    }

    /// Takes note of a chunk. One that is known already changes nothing.
    pub fn add(&mut self, chunk: &Chunk) {
        let Some(slope) = self.slope else { return };
        if !self.chunks.contains_key(&chunk.number()) && chunk.number() < self.chunk_count {
            self.chunks.insert(chunk.number(), Summary::of(chunk, slope));
        }
    }

    pub fn is_known(&self, chunk: u32) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// Chunks that are not known yet.
    pub fn missing(&self) -> impl Iterator<Item = u32> {
        (0..self.chunk_count).filter(|number| !self.is_known(*number))
    }

    /// The chunk to read next so that the duration is exact; `None` when it is. The last with a clock tells.
    pub fn end_needs(&self) -> Option<u32> {
        for number in (0..self.chunk_count).rev().take(LOOK_BACK as usize) {
            match self.chunks.get(&number) {
                None => return Some(number),
                Some(summary) if summary.marks.is_some() => return None,
                Some(_) => {}
            }
        }
        None
    }

    /// How long the title is: exact when `end_needs` nothing, else by its rate. `None` without a clock.
    pub fn duration(&self) -> Option<Duration> {
        self.time_at(self.packet_count)
    }

    /// The time of a packet since the title's start, as exact as is known. `None` without a clock.
    pub fn time_at(&self, position: u64) -> Option<Duration> {
        let slope = self.slope?;
        let number = self.cut.number(position);
        let timeline = self.timeline();
        let before = timeline.partition_point(|(known, _)| *known <= number);
        let ticks = match before.checked_sub(1).and_then(|index| timeline.get(index)) {
            Some((known, start)) => start + self.chunks.get(known)?.ticks_at(position),
            None => slope_ticks(slope, position as i64),
        };
        Some(duration(ticks))
    }

    /// Finds the last picture that stands alone and is not behind `time`; in a title without video, the packet.
    pub fn find(&self, time: Duration) -> Option<Found> {
        let slope = self.slope?;
        let wanted = ticks(time);
        let timeline = self.timeline();
        let before = timeline.partition_point(|(_, start)| *start <= wanted);
        let next = timeline.get(before).map(|(number, start)| (*number, *start));
        let Some((number, start)) = before.checked_sub(1).and_then(|index| timeline.get(index)).copied() else {
            // Before the first mark that is known.
            return Some(if self.is_known(0) { Found::At(0) } else { Found::Read(0) });
        };
        // What lies before a chunk's first mark is earlier than the mark.
        if let Some((next, next_start)) = next.filter(|(next, _)| *next == number + 1)
            && let Some(from) = self.last_picture(next, wanted - next_start)
        {
            return Some(Found::At(from));
        }
        let summary = self.chunks.get(&number)?;
        let end_position = self.cut.end(number);
        let end = start + summary.ticks_at(end_position);
        let upper = next.map_or(self.chunk_count, |(number, _)| number);
        if wanted < end || number + 1 >= upper {
            return Some(self.in_chunk(number, wanted - start));
        }
        // In between; where, by the time that lies on both sides.
        let chunks = i128::from(upper - number - 1);
        let chunk_ticks = i128::from(slope_ticks(slope, self.cut.packets() as i64).max(1));
        let ahead = match next {
            Some((_, next_start)) => i128::from(wanted - end) * chunks / i128::from((next_start - end).max(1)),
            None => i128::from(wanted - end) / chunk_ticks,
        };
        Some(self.unknown_near(number + 1 + ahead.clamp(0, chunks - 1) as u32, number + 1, upper))
    }

    /// The pictures that stand alone, as far as they are known whole, in order.
    pub fn pictures(&self) -> Vec<TimedPicture> {
        let timed = self.timeline().into_iter().flat_map(|(number, start)| {
            let pictures = self.chunks.get(&number).map_or(&[][..], |summary| &summary.pictures);
            pictures.iter().filter_map(move |&(from, to, ticks)| {
                let to = to.or_else(|| self.next_start(number))?;
                Some(TimedPicture { from, to, time: duration(start + ticks) })
            })
        });
        timed.collect()
    }

    /// Where the picture ends that does not in chunk `number`.
    fn next_start(&self, number: u32) -> Option<u64> {
        for next in number + 1..self.chunk_count {
            if let Some(start) = self.chunks.get(&next)?.first_start {
                return Some(start);
            }
        }
        Some(self.packet_count)
    }

    /// The place in chunk `number` for `wanted` ticks from its first mark.
    fn in_chunk(&self, number: u32, wanted: i64) -> Found {
        if self.has_video {
            return self.picture_before(number, wanted);
        }
        let mut low = self.cut.start(number);
        let mut high = self.cut.end(number).min(self.packet_count).max(low + 1);
        while high - low > 1 {
            let middle = low.midpoint(high);
            let is_early = self.chunks.get(&number).is_some_and(|summary| summary.ticks_at(middle) <= wanted);
            (low, high) = if is_early { (middle, high) } else { (low, middle) };
        }
        Found::At(low)
    }

    /// The last picture of chunk `number` up to `wanted` ticks from its first mark, or of the chunks before it.
    fn picture_before(&self, number: u32, wanted: i64) -> Found {
        let oldest = number.saturating_sub(LOOK_BACK);
        for known in (oldest..=number).rev() {
            // In an earlier chunk every picture is early enough.
            let limit = if known == number { wanted } else { i64::MAX };
            if let Some(from) = self.last_picture(known, limit) {
                return Found::At(from);
            }
            if !self.is_known(known) {
                return Found::Read(known);
            }
        }
        Found::At(if oldest == 0 { 0 } else { self.cut.start(number) })
    }

    /// The last picture of a known chunk up to `limit` ticks from its first mark.
    fn last_picture(&self, number: u32, limit: i64) -> Option<u64> {
        let pictures = &self.chunks.get(&number)?.pictures;
        pictures.iter().rev().find(|(.., ticks)| *ticks <= limit).map(|(from, ..)| *from)
    }

    /// The chunk nearest to `guess`, between two known ones, that is to be read; when all are known, its start.
    fn unknown_near(&self, guess: u32, from: u32, to: u32) -> Found {
        let unknown = (from..to).filter(|number| !self.is_known(*number));
        let nearest = unknown.min_by_key(|number| number.abs_diff(guess));
        nearest.map_or(Found::At(self.cut.start(guess)), Found::Read)
    }

    /// For each known chunk with a clock, in order: the ticks from the title's start to its first mark.
    fn timeline(&self) -> Vec<(u32, i64)> {
        let Some(slope) = self.slope else { return Vec::new() };
        let mut timeline: Vec<(u32, i64)> = Vec::new();
        let mut before: Option<(u32, Mark, i64, Slope)> = None;
        for (number, summary) in &self.chunks {
            let Some((first, last, within)) = summary.marks else { continue };
            let start = match before {
                None => slope_ticks(slope, first.position as i64),
                Some((known, mark, at, near)) => {
                    let is_next = known + 1 == *number;
                    at + if is_next { next_ticks(mark, first, near) } else { far_ticks(mark, first, slope) }
                }
            };
            timeline.push((*number, start));
            before = Some((*number, last, start + within, summary.slope));
        }
        timeline
    }
}

impl Summary {
    fn of(chunk: &Chunk, slope: Slope) -> Summary {
        let marks = chunk.marks();
        let Some(first) = marks.first() else {
            let first_start = chunk.first_start().map(|start| chunk.first() + u64::from(start));
            return Summary { marks: None, pictures: Vec::new(), first_start, slope };
        };
        let mut clock = Clock::new(*first, slope);
        let mut ahead = marks[1..].iter();
        if let Some(next) = ahead.next() {
            clock.aim(*next);
        }
        let mut pictures = Vec::new();
        for picture in chunk.pictures() {
            let from = chunk.first() + u64::from(picture.start);
            while clock.until().is_some_and(|until| until.position <= from) {
                clock.reach();
                if let Some(next) = ahead.next() {
                    clock.aim(*next);
                }
            }
            let to = picture.end.map(|end| chunk.first() + u64::from(end));
            pictures.push((from, to, clock.ticks_at(from)));
        }
        while clock.until().is_some() {
            clock.reach();
            if let Some(next) = ahead.next() {
                clock.aim(*next);
            }
        }
        let last = clock.from();
        let first_start = chunk.first_start().map(|start| chunk.first() + u64::from(start));
        let marks = Some((*first, last, clock.ticks_at(last.position)));
        Summary { marks, pictures, first_start, slope: clock.slope() }
    }

    /// Ticks from the first mark to a packet: between the marks evenly, which is near enough for a position.
    fn ticks_at(&self, position: u64) -> i64 {
        let Some((first, last, within)) = self.marks else { return 0 };
        let behind = position as i64 - last.position as i64;
        if behind >= 0 || last.position == first.position {
            return within + slope_ticks(self.slope, behind);
        }
        let (done, all) = (position as i64 - first.position as i64, (last.position - first.position) as i64);
        (i128::from(within) * i128::from(done) / i128::from(all)) as i64
    }
}

/// Ticks between marks of neighbouring chunks.
fn next_ticks(from: Mark, to: Mark, slope: Slope) -> i64 {
    let mut clock = Clock::new(from, slope);
    clock.aim(to);
    clock.reach();
    clock.ticks_at(to.position)
}

/// Ticks between marks with chunks in between that nobody read: by the references, when that is a likely rate.
fn far_ticks(from: Mark, to: Mark, slope: Slope) -> i64 {
    let likely = slope_ticks(slope, to.position as i64 - from.position as i64);
    let said = from.pcr.ticks_to(to.pcr);
    if (likely / 16..likely.saturating_mul(16)).contains(&said) { said } else { likely }
}

fn slope_ticks(slope: Slope, packets: i64) -> i64 {
    (i128::from(packets) * i128::from(slope.ticks) / i128::from(slope.packets)) as i64
}

fn ticks(time: Duration) -> i64 {
    // Rounded up, as `duration` rounds down: a time that came from here leads back to its place.
    (time.as_nanos().min(u64::MAX.into()) * u128::from(Pcr::HZ)).div_ceil(1_000_000_000) as i64
}

fn duration(ticks: i64) -> Duration {
    Duration::from_nanos((i128::from(ticks.max(0)) * 1_000 / 27) as u64)
}
