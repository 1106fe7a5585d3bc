//! Which of a room's microphones are heard: all, or so many of the loudest (`Config::loudest`).
//!
//! In: microphones that come and go, and how loud each is, a tenth of a second or so at a time. Out: which is heard from now on, and
//! which no more. As long as there are places everybody is heard; then who is clearly louder takes the place of who is least loud.
//! Silence counts by and by, so that nobody loses his place between two words, and who has just got one keeps it for a second, so
//! that a cough does not take it from a speaker twice.
//! Nobody has two places: further microphones of a participant stand aside until they are louder than the one that is heard.
//! Cost: a look at those that are heard for each level of one that is not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::directory::Number;
use crate::media::{Request, TrackId};

/// So much louder is clearly louder, in dB.
const MARGIN: f32 = 6.0;
/// What loudness fades by, in dB per second.
const FADING: f32 = 10.0;
/// Digital silence, in dB below full scale (RFC 6464 §3).
const SILENCE: f32 = 127.0;
/// A place is kept for this long.
const KEPT: Duration = Duration::from_secs(1);

/// The microphones of a room.
#[derive(Debug)]
pub(crate) struct Loudest {
    /// 0: all are heard.
    places: usize,
    microphones: BTreeMap<TrackId, Microphone>,
    /// Those that are heard, one of a participant at most, and since when.
    heard: Vec<(TrackId, Instant)>,
}

#[derive(Debug)]
struct Microphone {
    /// Whose it is.
    of: Number,
    /// In dB below full scale, when it was last louder than what was left of before.
    level: f32,
    at: Instant,
}

impl Microphone {
    /// How loud it counts, in dB below full scale.
    fn level(&self, now: Instant) -> f32 {
        (self.level + now.saturating_duration_since(self.at).as_secs_f32() * FADING).min(SILENCE)
    }
}

impl Loudest {
    pub(crate) fn new(places: usize) -> Self {
        Loudest { places, microphones: BTreeMap::new(), heard: Vec::new() }
    }

    /// A participant's microphone has come: whether it is heard.
    pub(crate) fn add(&mut self, track: TrackId, of: Number, now: Instant) -> Option<Request> {
        if self.places == 0 {
            return None;
        }
        self.microphones.insert(track, Microphone { of, level: SILENCE, at: now });
        let is_heard = self.heard.len() < self.places && self.heard_of(of).is_none();
        if is_heard {
            self.heard.push((track, now));
        }
        Some(Request::Quiet { track, is_quiet: !is_heard })
    }

    /// A microphone was so loud, in dB below full scale: who changes places for that.
    pub(crate) fn observe(&mut self, track: TrackId, level_dbov: u8, now: Instant) -> Option<[Request; 2]> {
        let microphone = self.microphones.get_mut(&track)?;
        let level = microphone.level(now).min(level_dbov.into());
        (microphone.level, microphone.at) = (level, now);
        let of = microphone.of;
        if self.heard.iter().any(|(heard, _)| *heard == track) {
            return None;
        }
        let own = self.heard_of(of);
        let may_lose = (0..self.heard.len()).filter(|place| {
            let (other, since) = self.heard[*place];
            now.saturating_duration_since(since) >= KEPT && own.is_none_or(|own| own == other)
        });
        let levels = may_lose.map(|place| (place, self.level_of(self.heard[place].0, now)));
        let (place, quietest) = levels.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        if level + MARGIN > quietest {
            return None;
        }
        let (other, _) = std::mem::replace(&mut self.heard[place], (track, now));
        Some([(other, true), (track, false)].map(|(track, is_quiet)| Request::Quiet { track, is_quiet }))
    }

    /// A microphone that has gone: who is heard in its place.
    pub(crate) fn remove(&mut self, track: TrackId, now: Instant) -> Option<Request> {
        self.microphones.remove(&track);
        let place = self.heard.iter().position(|(heard, _)| *heard == track)?;
        self.heard.remove(place);
        let waiting = self.microphones.iter().filter(|(_, microphone)| self.heard_of(microphone.of).is_none());
        let levels = waiting.map(|(track, microphone)| (*track, microphone.level(now)));
        let (next, _) = levels.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        self.heard.push((next, now));
        Some(Request::Quiet { track: next, is_quiet: false })
    }

    /// Which of a participant's microphones is heard.
    fn heard_of(&self, of: Number) -> Option<TrackId> {
        let heard = self.heard.iter().map(|(track, _)| *track);
        heard.into_iter().find(|track| self.microphones.get(track).is_some_and(|microphone| microphone.of == of))
    }

    fn level_of(&self, track: TrackId, now: Instant) -> f32 {
        self.microphones.get(&track).map_or(SILENCE, |microphone| microphone.level(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    struct Lab {
        loudest: Loudest,
        now: Instant,
        heard: Vec<u64>,
    }

    impl Lab {
        fn new(places: usize, microphones: u64) -> Self {
            let mut lab =
                Lab { loudest: Loudest::new(places), now: Instant::now(), heard: (1..=microphones).collect() };
            for track in 1..=microphones {
                let told = lab.loudest.add(TrackId(track), Number(track), lab.now);
                lab.take(told);
            }
            lab
        }

        fn take(&mut self, told: impl IntoIterator<Item = Request>) {
            for request in told {
                let Request::Quiet { track, is_quiet } = request else { panic!("{request:?}") };
                self.heard.retain(|heard| *heard != track.0);
                if !is_quiet {
                    self.heard.push(track.0);
                }
            }
            self.heard.sort_unstable();
        }

        /// All that are named are so loud for so long.
        fn speak(&mut self, steps: u32, levels: &[(u64, u8)]) -> &[u64] {
            for _ in 0..steps {
                self.now += STEP;
                for (track, level) in levels {
                    let told = self.loudest.observe(TrackId(*track), *level, self.now);
                    self.take(told.into_iter().flatten());
                }
            }
            &self.heard
        }
    }

    #[test]
    fn all_are_heard_where_nothing_is_said_or_there_are_places() {
        assert_eq!(Lab::new(0, 3).speak(20, &[(1, 20), (2, 50), (3, 90)]), [1, 2, 3]);
        assert_eq!(Lab::new(3, 3).speak(20, &[(1, 20), (2, 50), (3, 90)]), [1, 2, 3]);
    }

    #[test]
    fn who_speaks_takes_the_place_of_who_is_least_loud_at_once() {
        let mut lab = Lab::new(2, 4);
        assert_eq!(lab.heard, [1, 2]);
        lab.speak(20, &[(1, 30), (2, 60)]);
        assert_eq!(lab.speak(1, &[(1, 30), (2, 60), (4, 40)]), [1, 4]);
    }

    #[test]
    fn who_is_hardly_louder_takes_no_place() {
        let mut lab = Lab::new(2, 3);
        assert_eq!(lab.speak(50, &[(1, 30), (2, 35), (3, 30)]), [1, 2]);
    }

    #[test]
    fn a_pause_between_words_loses_no_place_and_silence_does() {
        let mut lab = Lab::new(1, 2);
        lab.speak(20, &[(1, 30)]);
        assert_eq!(lab.speak(5, &[(2, 30)]), [1], "half a second is 5 dB");
        assert_eq!(lab.speak(2, &[(2, 30)]), [2]);
    }

    #[test]
    fn a_place_is_kept_for_a_second_whoever_is_louder() {
        let mut lab = Lab::new(1, 2);
        assert_eq!(lab.speak(9, &[(1, 60), (2, 10)]), [1]);
        assert_eq!(lab.speak(1, &[(1, 60), (2, 10)]), [2]);
        // Two that shout at each other do not change places with each word.
        let mut changes = 0;
        for second in 0..20 {
            let (one, other) = if second % 2 == 0 { (20, 10) } else { (10, 20) };
            let before = lab.heard.clone();
            changes += u32::from(lab.speak(10, &[(1, one), (2, other)]) != before);
        }
        assert!(changes <= 20, "{changes}");
    }

    #[test]
    fn the_loudest_that_waits_follows_one_that_has_gone() {
        let mut lab = Lab::new(2, 4);
        lab.speak(9, &[(3, 60), (4, 50)]);
        let told = lab.loudest.remove(TrackId(3), lab.now);
        assert_eq!(told, None, "it had no place");
        lab.heard.retain(|track| *track != 1);
        let told = lab.loudest.remove(TrackId(1), lab.now);
        lab.take(told);
        assert_eq!(lab.heard, [2, 4]);
        assert_eq!(lab.loudest.remove(TrackId(1), lab.now), None, "it is gone already");
        assert_eq!(lab.loudest.observe(TrackId(1), 0, lab.now), None);
    }

    #[test]
    fn nobody_has_two_places() {
        let mut lab = Lab::new(2, 3);
        // A second microphone of the first, and of the third.
        for (track, of) in [(4, 1), (5, 3)] {
            let told = lab.loudest.add(TrackId(track), Number(of), lab.now);
            lab.take(told);
        }
        assert_eq!(lab.speak(30, &[(1, 40), (2, 90), (4, 0)]), [2, 4], "his louder one is heard in place of his other");
        assert_eq!(lab.speak(30, &[(2, 90), (4, 0), (1, 0)]), [2, 4]);
        // What is left goes to who has none.
        let told = lab.loudest.remove(TrackId(2), lab.now);
        lab.heard.retain(|track| *track != 2);
        lab.take(told);
        assert_eq!(lab.heard, [3, 4]);
    }
}
