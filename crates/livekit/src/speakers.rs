//! Who speaks: louder than −35 dBov for 40 % of a window of 400 ms, evened out over two windows.
//!
//! In: how loud each microphone was, a tenth of a second or so at a time. Out, every 400 ms: whose level has changed,
//! in steps of an eighth, and who has fallen silent. Cost: a handful of numbers per microphone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::limits::SPEAKERS_EVERY;
use crate::media::TrackId;

/// dB below full scale at which somebody is heard.
const ACTIVE_DBOV: u8 = 35;
/// Of each window, in percent.
const ACTIVE_PERCENT: u32 = 40;
/// Of an exponential average with the centre of mass of two windows.
const SMOOTHING: f64 = 2.0 / 3.0;
const STEPS: f32 = 8.0;

/// How loud one microphone is.
#[derive(Debug)]
struct Loudness {
    loudest_dbov: u8,
    active: Duration,
    observed: Duration,
    smoothed: f64,
    heard_at: Instant,
}

/// All microphones of a room; `P` is whose they are.
#[derive(Debug)]
pub(crate) struct Speakers<P> {
    microphones: BTreeMap<TrackId, (P, Loudness)>,
    told: BTreeMap<P, f32>,
}

impl<P: Ord + Copy> Speakers<P> {
    pub(crate) fn new() -> Self {
        Speakers { microphones: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// Whether there is anything to look at every 400 ms.
    pub(crate) fn is_idle(&self) -> bool {
        self.microphones.is_empty() && self.told.is_empty()
    }

    pub(crate) fn observe(&mut self, of: P, track: TrackId, level_dbov: u8, over: Duration, now: Instant) {
        let loudness = || Loudness {
            loudest_dbov: 127,
            active: Duration::ZERO,
            observed: Duration::ZERO,
            smoothed: 0.0,
            heard_at: now,
        };
        let (_, loudness) = self.microphones.entry(track).or_insert_with(|| (of, loudness()));
        loudness.observe(level_dbov, over.min(SPEAKERS_EVERY), now);
    }

    /// A track that there is no more.
    pub(crate) fn remove(&mut self, track: TrackId) {
        self.microphones.remove(&track);
    }

    /// Somebody who is in the room no more.
    pub(crate) fn forget(&mut self, who: P) {
        self.microphones.retain(|_, (of, _)| *of != who);
        self.told.remove(&who);
    }

    /// Who speaks otherwise than at the last look, loudest first; a level of 0 is somebody who has stopped.
    pub(crate) fn changes(&mut self, now: Instant) -> Vec<(P, f32)> {
        // Who sends nothing is silent.
        self.microphones
            .retain(|_, (_, loudness)| now.saturating_duration_since(loudness.heard_at) < SPEAKERS_EVERY * 2);
        let mut levels = BTreeMap::new();
        for (of, loudness) in self.microphones.values().filter(|(_, loudness)| loudness.is_active()) {
            let level = (loudness.smoothed as f32 * STEPS).ceil() / STEPS;
            let known: &mut f32 = levels.entry(*of).or_default();
            *known = known.max(level);
        }
        let mut changes: Vec<_> = levels.iter().map(|(of, level)| (*of, *level)).collect();
        changes.retain(|(of, level)| self.told.get(of) != Some(level));
        changes.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        changes.extend(self.told.keys().filter(|of| !levels.contains_key(of)).map(|of| (*of, 0.0)));
        self.told = levels;
        changes
    }

    /// How loud somebody was at the last look.
    pub(crate) fn level_of(&self, who: P) -> Option<f32> {
        self.told.get(&who).copied()
    }
}

impl Loudness {
    fn observe(&mut self, level_dbov: u8, over: Duration, now: Instant) {
        self.heard_at = now;
        self.observed += over;
        if level_dbov <= ACTIVE_DBOV {
            self.active += over;
            self.loudest_dbov = self.loudest_dbov.min(level_dbov);
        }
        if self.observed < SPEAKERS_EVERY {
            return;
        }
        self.smoothed = match self.active >= SPEAKERS_EVERY * ACTIVE_PERCENT / 100 {
            true => {
                // Who speaks during half of the window counts as 6 dB less loud.
                let share = self.active.as_secs_f64() / SPEAKERS_EVERY.as_secs_f64();
                let level = linear(f64::from(self.loudest_dbov) - 20.0 * share.log10());
                (self.smoothed + (level - self.smoothed) * SMOOTHING).min(1.0)
            }
            false => 0.0,
        };
        (self.loudest_dbov, self.active, self.observed) = (127, Duration::ZERO, Duration::ZERO);
    }

    fn is_active(&self) -> bool {
        self.smoothed >= linear(f64::from(ACTIVE_DBOV))
    }
}

fn linear(dbov: f64) -> f64 {
    10f64.powf(-dbov / 20.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// Four tenths of a second at these levels, and a look.
    fn window(speakers: &mut Speakers<u8>, now: &mut Instant, levels: [u8; 4]) -> Vec<(u8, f32)> {
        for level in levels {
            *now += STEP;
            speakers.observe(1, TrackId(1), level, STEP, *now);
        }
        speakers.changes(*now)
    }

    #[test]
    fn who_is_loud_for_40_percent_of_a_window_speaks() {
        let (mut speakers, mut now) = (Speakers::new(), Instant::now());
        assert_eq!(window(&mut speakers, &mut now, [20, 127, 127, 127]), []);
        let changes = window(&mut speakers, &mut now, [20, 20, 127, 127]);
        assert_eq!(changes.len(), 1);
        assert!(changes[0].1 > 0.0);
    }

    #[test]
    fn who_is_quieter_than_35_dbov_does_not_speak() {
        let (mut speakers, mut now) = (Speakers::new(), Instant::now());
        assert_eq!(window(&mut speakers, &mut now, [36, 36, 36, 36]), []);
    }

    #[test]
    fn who_stops_is_told_once_with_level_zero() {
        let (mut speakers, mut now) = (Speakers::new(), Instant::now());
        window(&mut speakers, &mut now, [10; 4]);
        assert_eq!(window(&mut speakers, &mut now, [127; 4]), [(1, 0.0)]);
        assert_eq!(window(&mut speakers, &mut now, [127; 4]), []);
    }

    #[test]
    fn who_sends_nothing_for_two_windows_has_stopped() {
        let (mut speakers, mut now) = (Speakers::new(), Instant::now());
        window(&mut speakers, &mut now, [10; 4]);
        assert_eq!(speakers.changes(now + SPEAKERS_EVERY * 2), [(1, 0.0)]);
        assert!(speakers.is_idle());
    }

    #[test]
    fn a_level_that_stays_is_not_told_again() {
        let (mut speakers, mut now) = (Speakers::new(), Instant::now());
        let mut told = 0;
        for _ in 0..10 {
            told += window(&mut speakers, &mut now, [10; 4]).len();
        }
        // Once when it begins, and at most once more as the average settles.
        assert!((1..=2).contains(&told), "{told}");
    }
}
