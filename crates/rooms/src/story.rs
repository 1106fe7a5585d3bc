//! What became of one session, so that somebody who asks later finds out why its picture stood still.
//!
//! In: once a second, what differs from the second before (`Downs::take_notes`, `Ups::take_notes`). Out: entries, by time.
//! Cost: a look a second at each picture; an entry takes 56 bytes, and there are at most `ENTRIES_MAX`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::{Bitrate, LinkKind, Path};

use crate::spec::StreamId;

/// Entries of a session at most. Of more, the first ones stay, which say how it began, and the newest.
const ENTRIES_MAX: usize = 128;
const FIRST_KEPT: usize = 16;

/// What changes all the time is told at most this often, unless it matters at once.
const APART: Duration = Duration::from_secs(10);

/// What was heard of the path in one second is worth an entry from this on.
const ASKED_MIN: u64 = 10;
const LOSS_MIN: u8 = 5;

/// What became of a session, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Story {
    entries: VecDeque<Entry>,
    /// Entries that are gone, from behind the first `FIRST_KEPT`.
    forgotten: u64,
    estimate: Option<(Instant, Bitrate)>,
    asked: Tally,
    keyframes: Tally,
    skipped: u64,
    loss_told_at: Option<Instant>,
}

/// One thing that happened, and when it was noticed: at most a second after it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When that was.
    pub at: Instant,
    /// What it was.
    pub what: Happened,
}

/// What happened. Layers are counted from the smallest picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is reached there, from the beginning or since it moved.
    Path {
        /// Its address, as we see it.
        remote: SocketAddr,
        /// By a TCP connection.
        is_tcp: bool,
    },
    /// It gets another size of a picture, or fewer pictures a second.
    Layer {
        /// Of which stream.
        stream: StreamId,
        /// Index of the track in the stream.
        track: u8,
        /// What it got; `None`: nothing.
        from: Option<u8>,
        /// What it gets.
        to: Option<u8>,
        /// The highest temporal layer that it gets; `u8::MAX` for all.
        temporal_max: u8,
        /// For which reason.
        why: Why,
    },
    /// What its path is taken to carry.
    Estimate(Bitrate),
    /// It asked for so many lost packets again (NACK) since that was noted last.
    Asked(u64),
    /// It asked for so many keyframes (PLI, FIR) since that was noted last.
    Keyframes(u64),
    /// It was too slow for what is kept, and went on at the next keyframe: so many packets it never got.
    FellBehind(u64),
    /// A picture stands still, or is about to.
    Stalled {
        /// Of which stream.
        stream: StreamId,
        /// Index of the track in the stream.
        track: u8,
        /// What it waits for.
        cause: Stall,
    },
    /// It moves again.
    Moves {
        /// Of which stream.
        stream: StreamId,
        /// Index of the track in the stream.
        track: u8,
        /// How long it stood still.
        after: Duration,
    },
    /// Other sizes of a picture come from it than before: one bit each, the smallest the lowest.
    Sends {
        /// Of which stream.
        stream: StreamId,
        /// Index of the track in the stream.
        track: u8,
        /// 0: nothing comes.
        layers: u8,
    },
    /// Of what it sends, so many in a hundred packets are lost on their way here.
    LosesUp(u8),
}

/// Why somebody gets another layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Why {
    /// It is the first one.
    Begins,
    /// Its path carries less, or more.
    Bandwidth,
    /// The viewer, or its application, wants it so.
    Wish,
    /// The publisher sends other layers than before.
    Publisher,
    /// It had to wait for a keyframe of the one that it got.
    Keyframe,
}

/// What a picture waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Stall {
    /// Nothing of it comes from its publisher.
    Publisher,
    /// A keyframe, without which it can not begin or go on.
    Keyframe,
    /// The path carries less than the least that can be sent.
    Bandwidth,
    /// What was sent is not through yet.
    Backlog,
    /// The TCP connection is gone, and there is no other path yet.
    CutOff,
    /// Nothing has come from the viewer for seconds: what is sent does perhaps not arrive.
    Path,
    /// More is lost on the way than can be repaired in time.
    Loss,
}

/// Something that is counted, and told in sums.
#[derive(Clone, Debug, Default)]
struct Tally {
    /// The counter as it was seen last, and as it was told last.
    seen: u64,
    told: u64,
    told_at: Option<Instant>,
}

impl Tally {
    /// Takes the counter. Returns what was added since it was told last, where that is to be told now, and what in this second.
    fn take(&mut self, now: Instant, count: u64, min: u64) -> (Option<u64>, u64) {
        let added = count - self.seen;
        self.seen = count;
        let is_time = self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= APART);
        let sum = count - self.told;
        if sum < min || !is_time {
            return (None, added);
        }
        (self.told, self.told_at) = (count, Some(now));
        (Some(sum), added)
    }
}

impl Story {
    /// None yet, with room for the first ones: a session of which little is to be told needs no more later.
    pub fn new() -> Self {
        Story { entries: VecDeque::with_capacity(FIRST_KEPT), ..Story::default() }
    }

    /// Its entries, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many entries are gone that stood behind the first ones.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes another entry.
    pub fn note(&mut self, at: Instant, what: Happened) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.remove(FIRST_KEPT);
            self.forgotten += 1;
        }
        self.entries.push_back(Entry { at, what });
    }

    /// It is reached by this path from now on.
    pub fn note_path(&mut self, now: Instant, path: &Path) {
        self.note(now, Happened::Path { remote: path.remote, is_tcp: path.link.kind() != LinkKind::Datagrams });
    }

    /// What the path is taken to carry: told when it is much less than was told last, or in time when it is otherwise.
    pub fn note_estimate(&mut self, now: Instant, estimate: Bitrate) {
        if let Some((at, told)) = self.estimate {
            let is_half = estimate.bps() <= told.bps() / 2;
            let is_other = estimate.bps().abs_diff(told.bps()) > told.bps() / 4;
            let is_time = now.saturating_duration_since(at) >= APART;
            if !(is_half || is_other && is_time) {
                return;
            }
        }
        self.estimate = Some((now, estimate));
        self.note(now, Happened::Estimate(estimate));
    }

    /// What the viewer has asked for in all. Returns whether it asked for a keyframe since the last time.
    pub fn note_requests(&mut self, now: Instant, packets: u64, keyframes: u64) -> bool {
        if let (Some(sum), _) = self.asked.take(now, packets, ASKED_MIN) {
            self.note(now, Happened::Asked(sum));
        }
        let (sum, added) = self.keyframes.take(now, keyframes, 1);
        if let Some(sum) = sum {
            self.note(now, Happened::Keyframes(sum));
        }
        added > 0
    }

    /// So many in a hundred of its packets are lost on their way here.
    pub fn note_loss_up(&mut self, now: Instant, percent: u8) {
        let is_time = self.loss_told_at.is_none_or(|at| now.saturating_duration_since(at) >= APART);
        if percent >= LOSS_MIN && is_time {
            self.loss_told_at = Some(now);
            self.note(now, Happened::LosesUp(percent));
        }
    }

    /// How many packets it never got in all, because it was too slow.
    pub fn note_skipped(&mut self, now: Instant, skipped: u64) {
        // Tracks that it watches no more took theirs with them.
        let more = skipped.saturating_sub(std::mem::replace(&mut self.skipped, skipped));
        if more > 0 {
            self.note(now, Happened::FellBehind(more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_entries_the_first_and_the_newest_stay() {
        let (start, mut story) = (Instant::now(), Story::default());
        for count in 0..1_000 {
            story.note(start, Happened::Asked(count));
        }
        let counts: Vec<u64> = story
            .entries()
            .map(|entry| match entry.what {
                Happened::Asked(count) => count,
                other => panic!("{other:?}"),
            })
            .collect();
        let kept: Vec<u64> = (0..16).chain(1_000 - 112..1_000).collect();
        assert_eq!(counts, kept);
        assert_eq!(story.forgotten(), 1_000 - 128);
    }

    #[test]
    fn what_is_asked_for_all_the_time_is_told_in_sums() {
        let (start, mut story) = (Instant::now(), Story::default());
        for second in 1..=60 {
            story.note_requests(start + Duration::from_secs(second), second * 5, 0);
        }
        let sums: Vec<Happened> = story.entries().map(|entry| entry.what).collect();
        assert_eq!(sums, [10, 50, 50, 50, 50, 50].map(Happened::Asked));
        assert!(!story.note_requests(start + Duration::from_secs(61), 300, 0));
        assert!(story.note_requests(start + Duration::from_secs(62), 300, 2), "keyframes were asked for");
    }

    #[test]
    fn an_estimate_is_told_at_once_when_it_halves_and_else_in_time() {
        let (start, mut story) = (Instant::now(), Story::default());
        let kbps = [(0, 1_000), (1, 700), (2, 500), (3, 900), (12, 900), (13, 901), (30, 950)];
        for (second, kbps) in kbps {
            story.note_estimate(start + Duration::from_secs(second), Bitrate::from_kbps(kbps));
        }
        let told: Vec<Happened> = story.entries().map(|entry| entry.what).collect();
        assert_eq!(told, [1_000, 500, 900].map(|kbps| Happened::Estimate(Bitrate::from_kbps(kbps))));
    }
}
