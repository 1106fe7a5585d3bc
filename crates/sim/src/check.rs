//! What has to hold for a received track, whatever happened on the way.
//!
//! In: a track's record. Out: the first thing that is wrong with it, in words. Cost: O(packets).
//! Source: RFC 3550 §5.1 (numbers, timestamps, marker); RFC 7741 §4.2 and §5 (VP8 picture ids, TL0PICIDX).

use std::time::Duration;

use crate::media::Tag;
use crate::viewer::{ReceivedTrack, Record};

/// A timestamp may differ from the time that passed by this much: two layers of one picture need not be coded at the same
/// moment.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(70);

/// How a track was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Media packets from the first whole keyframe on, retransmitted or not.
    pub packets: usize,
    /// Frames of which the first packet came.
    pub frames: usize,
    /// Numbers that never came.
    pub holes: usize,
    /// Changes of layer to a larger picture.
    pub switches_up: usize,
    /// To a smaller picture.
    pub switches_down: usize,
}

/// Whether packets may be missing for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// None at all: everything was repaired.
    Refused,
    /// On a path that is too narrow for a while, repair comes too late for some.
    Allowed,
}

/// Checks that a track, put in the order of its sequence numbers, is what one encoder might have sent: no number is
/// missing, frames lie one behind the other and are whole (but for one that a change of layer cuts short), timestamps
/// follow the time of the pictures, the marker is that of each frame's last packet, VP8's picture ids and TL0PICIDX go up
/// by one.
///
/// It begins with the first whole keyframe: of what was lost before the very first packet a viewer cannot know. Packets
/// that came in the last `tail` of the record are not looked at: what is lost there had no time to be sent again.
pub fn check_track(track: &ReceivedTrack, clock_rate: u32, tail: Duration, holes: Holes) -> Result<Summary, String> {
    let Some(end) = track.records.values().map(|record| record.arrival).max() else {
        return Err("nothing came".into());
    };
    let end = end.checked_sub(tail).unwrap_or(end);
    let is_start = |record: &Record| {
        let frame = track.frames.get(&(record.tag.layer, record.tag.frame));
        record.tag.keyframe && record.tag.index == 0 && frame.is_some_and(|frame| frame.whole_at.is_some())
    };
    let Some((start, _)) = track.records.iter().find(|(_, record)| is_start(record)) else {
        return Err("no whole keyframe came".into());
    };
    let mut summary = Summary::default();
    let mut previous: Option<(u64, &Record)> = None;
    let mut first: Option<&Record> = None;
    for (seq, record) in track.records.range(start..).take_while(|(_, record)| record.arrival <= end) {
        let place = || format!("at number {seq}, {:?}", record.tag);
        summary.packets += 1;
        let (starts, ends) = (record.tag.index == 0, record.tag.index + 1 == record.tag.count);
        if record.marker != ends {
            return Err(format!("the marker is {} {}", record.marker, place()));
        }
        if let Some((last_seq, last)) = previous {
            let missing = (last_seq + 1..*seq).filter(|seq| !track.padding.contains(seq)).count();
            summary.holes += missing;
            let step = match (missing, holes) {
                (0, _) => check_step(last, record),
                (_, Holes::Allowed) => Ok(()),
                (_, Holes::Refused) => Err(format!("{missing} numbers missing")),
            };
            step.map_err(|what| format!("{what} {}", place()))?;
        }
        if starts {
            summary.frames += 1;
            let from = first.get_or_insert(record);
            check_clock(from, record, clock_rate).map_err(|what| format!("{what} {}", place()))?;
            let before = previous.map_or(record.tag.layer, |(_, last)| last.tag.layer);
            summary.switches_up += usize::from(record.tag.layer > before);
            summary.switches_down += usize::from(record.tag.layer < before);
        }
        previous = Some((*seq, record));
    }
    Ok(summary)
}

/// Checks two packets with neighbouring numbers.
fn check_step(last: &Record, record: &Record) -> Result<(), String> {
    let frame = |tag: &Tag| (tag.layer, tag.frame);
    let ends = last.tag.index + 1 == last.tag.count;
    if frame(&last.tag) == frame(&record.tag) {
        if record.tag.index != last.tag.index + 1 {
            return Err(format!("packet {} follows {} of its frame", record.tag.index, last.tag.index));
        }
        if record.timestamp != last.timestamp || record.numbers != last.numbers {
            return Err(format!("numbers change within the frame: {last:?}"));
        }
        return Ok(());
    }
    // A switch may cut the last frame of the layer that is left: the keyframe that follows needs nothing before it.
    let switches = record.tag.layer != last.tag.layer;
    if record.tag.index != 0 || !ends && !switches {
        return Err(format!("the frame before is cut: {:?}", last.tag));
    }
    if switches && !record.tag.keyframe {
        return Err(format!("layer {} goes on without a keyframe", record.tag.layer));
    }
    let step = record.timestamp.wrapping_sub(last.timestamp) as i32;
    if step < 1 {
        return Err(format!("the timestamp moves by {step}"));
    }
    check_vp8(last, record)
}

fn check_vp8(last: &Record, record: &Record) -> Result<(), String> {
    let (Some(before), Some(after)) = (last.numbers, record.numbers) else { return Ok(()) };
    if let (Some(before), Some(after)) = (before.picture_id, after.picture_id)
        && after != (before + 1) & 0x7fff
    {
        return Err(format!("picture id {after} follows {before}"));
    }
    if let (Some(before), Some(after)) = (before.tl0_pic_idx, after.tl0_pic_idx)
        && after != before.wrapping_add(u8::from(record.tag.temporal_id == 0))
    {
        return Err(format!("TL0PICIDX {after} follows {before}"));
    }
    Ok(())
}

/// Checks that the timestamp says as much time since the first frame as passed at the encoder.
fn check_clock(first: &Record, record: &Record, clock_rate: u32) -> Result<(), String> {
    let said_us = i64::from(record.timestamp.wrapping_sub(first.timestamp)) * 1_000_000 / i64::from(clock_rate);
    let passed_us = record.tag.sent_us as i64 - first.tag.sent_us as i64;
    if (said_us - passed_us).unsigned_abs() > CLOCK_TOLERANCE.as_micros() as u64 {
        return Err(format!("the timestamp says {said_us} µs since the first frame, where {passed_us} µs passed"));
    }
    Ok(())
}
