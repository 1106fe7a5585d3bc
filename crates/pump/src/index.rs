//! Where in a title a time is, and where its pictures that stand alone are; built from the chunks as they are read.
//!
//! In: chunks, in any order. Out: times of positions, positions of times, pictures. What was not read yet is found by
//! reading: a search says which chunk to read next, and takes a few, however long the title is. Where it looks first, a
//! chunk's first part will do, as that has its clock.
//! Cost: some 600 bytes per chunk; a pass over the known chunks per question. Not for the packet path.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::ts::Pcr;

use crate::chunk::{Chunk, Picture};
use crate::clock::{Clock, Mark, Slope};
use crate::cut::Cut;
use crate::title::Title;

/// A picture that stands alone is looked for so far back, then any place will do.
const LOOK_BACK: u32 = 32;

/// What a search says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Begin with this packet, counted from the title's start.
    At(u64),
    /// Read this chunk, add it, and search again. When it was not even known in part, a part may be enough.
    Read(u32),
}

/// A picture that stands alone, and its time in the title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedPicture {
    /// Its first packet and the one behind its last.
    pub from: u64,
    /// The one behind its last.
    pub to: u64,
    /// Its time from the title's start.
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

/// A chunk, and the ticks from the title's start to its first mark.
#[derive(Clone, Copy, Debug)]
struct InChunk {
    number: u32,
    start: i64,
    /// The same of the next chunk that is known.
    next: Option<(u32, i64)>,
}

/// What a chunk tells. Ticks are of 27 MHz, and count from its first mark.
#[derive(Clone, Debug)]
struct Summary {
    is_whole: bool,
    /// The first and the last mark.
    marks: Option<(Mark, Mark)>,
    /// Where each mark is, and its ticks.
    times: Box<[(u64, i64)]>,
    /// First packet, packet behind the last, if that is in the chunk, and ticks.
    pictures: Vec<(u64, Option<u64>, i64)>,
    /// The first packet with which a picture begins.
    first_start: Option<u64>,
    /// The rate behind the last mark.
    slope: Slope,
}

impl Index {
    /// Knows nothing but the title's head; `add` chunks.
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
        let is_known = self.is_known(chunk.number);
        if let Some(slope) = self.slope.filter(|_| !is_known && chunk.number < self.chunk_count) {
            self.chunks.insert(chunk.number, Summary::of(chunk, slope));
        }
    }

    /// Takes note of a chunk of which only the first packets were read: of its clock.
    pub fn add_part(&mut self, chunk: &Chunk) {
        if let Some(slope) = self.slope.filter(|_| chunk.number < self.chunk_count) {
            let part = || Summary { is_whole: false, pictures: Vec::new(), ..Summary::of(chunk, slope) };
            self.chunks.entry(chunk.number).or_insert_with(part);
        }
    }

    /// Whether all of a chunk was added.
    pub fn is_known(&self, chunk: u32) -> bool {
        self.chunks.get(&chunk).is_some_and(|summary| summary.is_whole)
    }

    /// Whether a chunk, or its first part, was added.
    pub fn is_known_in_part(&self, chunk: u32) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// The chunk to read next so that the duration is exact; `None` when it is. The last with a clock tells.
    pub fn end_needs(&self) -> Option<u32> {
        for number in (0..self.chunk_count).rev().take(LOOK_BACK as usize) {
            match self.chunks.get(&number) {
                None => return Some(number),
                Some(summary) if !summary.is_whole => return Some(number),
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
        let wanted = ticks(time);
        let InChunk { number, start, next } = match self.chunk_at(wanted)? {
            Ok(place) => place,
            Err(found) => return Some(found),
        };
        if !self.has_video {
            return Some(self.packet_in(number, wanted - start));
        }
        // What lies before a chunk's first mark is earlier than the mark.
        if let Some((next, next_start)) = next.filter(|(next, _)| *next == number + 1)
            && let Some(from) = self.last_picture(next, wanted - next_start)
        {
            return Some(Found::At(from));
        }
        Some(self.picture_before(number, wanted - start))
    }

    /// Finds the last packet that is not behind `time`.
    pub fn find_packet(&self, time: Duration) -> Option<Found> {
        let wanted = ticks(time);
        let found = self.chunk_at(wanted)?;
        Some(found.map_or_else(|found| found, |place| self.packet_in(place.number, wanted - place.start)))
    }

    /// The packet at a time by the title's mean rate, when nothing better can be had.
    pub fn position_by_rate(&self, time: Duration) -> Option<u64> {
        let slope = self.slope?;
        let packets =
            u128::from(ticks(time).max(0) as u64) * u128::from(slope.packets) / u128::from(slope.ticks.max(1));
        Some(u64::try_from(packets).unwrap_or(u64::MAX).min(self.packet_count))
    }

    /// The chunk in whose time `wanted` ticks are, or what is to be read to know.
    fn chunk_at(&self, wanted: i64) -> Option<Result<InChunk, Found>> {
        let slope = self.slope?;
        let timeline = self.timeline();
        let before = timeline.partition_point(|(_, start)| *start <= wanted);
        let next = timeline.get(before).copied();
        let Some((number, start)) = before.checked_sub(1).and_then(|index| timeline.get(index)).copied() else {
            // Before the first mark that is known.
            return Some(Err(if self.is_known(0) { Found::At(0) } else { Found::Read(0) }));
        };
        let end_position = self.cut.end(number);
        let end = start + self.chunks.get(&number)?.ticks_at(end_position);
        let upper = next.map_or(self.chunk_count, |(number, _)| number);
        if wanted < end || number + 1 >= upper {
            return Some(Ok(InChunk { number, start, next }));
        }
        // In between; where, by the time that lies on both sides.
        let (packets, ticks) = match next {
            Some((next, next_start)) => (self.cut.start(next) - end_position, (next_start - end).max(1) as u64),
            None => (slope.packets, slope.ticks),
        };
        let ahead = u128::from((wanted - end) as u64) * u128::from(packets) / u128::from(ticks.max(1));
        let guess = self.cut.number(end_position.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX)));
        Some(Err(self.unknown_near(guess.clamp(number + 1, upper - 1), number + 1, upper)))
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
            let summary = self.chunks.get(&next)?;
            if let Some(start) = summary.first_start {
                return Some(start);
            }
            summary.is_whole.then_some(())?;
        }
        Some(self.packet_count)
    }

    /// The packet of chunk `number` at `wanted` ticks from its first mark.
    fn packet_in(&self, number: u32, wanted: i64) -> Found {
        if !self.is_known(number) {
            return Found::Read(number);
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
        let has_told = |summary: &Summary| summary.is_whole || summary.marks.is_some();
        let unknown = (from..to).filter(|number| !self.chunks.get(number).is_some_and(has_told));
        let nearest = unknown.min_by_key(|number| number.abs_diff(guess));
        nearest.map_or(Found::At(self.cut.start(guess)), Found::Read)
    }

    /// For each known chunk with a clock, in order: the ticks from the title's start to its first mark.
    fn timeline(&self) -> Vec<(u32, i64)> {
        let Some(slope) = self.slope else { return Vec::new() };
        let mut timeline: Vec<(u32, i64)> = Vec::new();
        let mut before: Option<(u32, Mark, i64, Slope)> = None;
        for (number, summary) in &self.chunks {
            let (Some((first, last)), Some((_, within))) = (summary.marks, summary.times.last()) else { continue };
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
        let at = |packet: u32| chunk.first + u64::from(packet);
        let (first_start, times) = (chunk.first_start.map(at), Box::default());
        let mut summary = Summary { is_whole: true, marks: None, times, pictures: Vec::new(), first_start, slope };
        let Some((first, others)) = chunk.marks.split_first() else { return summary };
        let mut clock = Clock::new(*first, slope);
        let mut times = vec![(first.position, 0)];
        for mark in others {
            clock.aim(*mark);
            clock.reach();
            let last = clock.from().position;
            if times.last().is_some_and(|(position, _)| *position < last) {
                times.push((last, clock.ticks_at(last)));
            }
        }
        summary.marks = Some((*first, clock.from()));
        (summary.times, summary.slope) = (times.into(), clock.slope());
        let timed = |picture: &Picture| (at(picture.start), picture.end.map(at), summary.ticks_at(at(picture.start)));
        summary.pictures = chunk.pictures.iter().map(timed).collect();
        summary
    }

    /// Ticks from the first mark to a packet: between marks evenly.
    fn ticks_at(&self, position: u64) -> i64 {
        let behind = self.times.partition_point(|(mark, _)| *mark <= position).max(1);
        let Some((mark, ticks)) = self.times.get(behind - 1) else { return 0 };
        let packets = position as i64 - *mark as i64;
        let Some((next, next_ticks)) = self.times.get(behind) else { return ticks + slope_ticks(self.slope, packets) };
        let (all, between) = (i128::from(next - mark), i128::from(next_ticks - ticks));
        ticks + (between * i128::from(packets)).div_euclid(all) as i64
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
