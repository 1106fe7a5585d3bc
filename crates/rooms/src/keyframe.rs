//! Keyframe requests: those of one call gathered, those for one layer merged and throttled.
//!
//! In: requests of any number of viewers, and keyframes as they pass. Out: whether to ask the publisher now, or when.
//! A keyframe is several times as large as another frame and goes to everybody, so at most one is asked for per interval.
//! Source: RFC 4585 §6.3.1 (PLI), RFC 5104 §4.3.1.2 (on limiting requests).

use std::time::{Duration, Instant};

use crate::stream::{LAYERS_MAX, TRACKS_MAX};

/// The layers of which one call asks for keyframes, each once: a bit for every layer that a stream may have.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyframeWishes(u32);

const _: () = assert!(TRACKS_MAX * LAYERS_MAX <= u32::BITS as usize, "a bit for every layer");

impl KeyframeWishes {
    /// Takes a layer that the stream has.
    pub fn add(&mut self, track: u8, layer: u8) {
        self.0 |= 1 << (usize::from(track) * LAYERS_MAX + usize::from(layer));
    }

    /// Track and layer of each.
    pub fn iter(self) -> impl Iterator<Item = (u8, u8)> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let bit = left.checked_ilog2()?;
            left ^= 1 << bit;
            let (track, layer) = (bit as usize / LAYERS_MAX, bit as usize % LAYERS_MAX);
            Some((track as u8, layer as u8))
        })
    }
}

#[derive(Clone, Debug)]
pub struct KeyframeThrottle {
    interval: Duration,
    asked_at: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A request waits for the end of the interval; nobody has set a timer for it yet.
    Held,
    /// The same, and the timer is set.
    Timed,
}

impl KeyframeThrottle {
    pub fn new(interval: Duration) -> Self {
        KeyframeThrottle { interval, asked_at: None, state: State::Idle }
    }

    /// Takes a viewer's request. True: ask the publisher now. False: it was merged with one before, or is held back.
    pub fn request(&mut self, now: Instant) -> bool {
        if self.asked_at.is_some_and(|at| now < at + self.interval) {
            if self.state == State::Idle {
                self.state = State::Held;
            }
            return false;
        }
        self.asked_at = Some(now);
        true
    }

    /// A keyframe has come: what was held back is answered.
    pub fn on_keyframe(&mut self) {
        // A timer that is set will find nothing to do.
        self.state = State::Idle;
    }

    /// When to call `handle_timeout`, once for each request that is held back.
    pub fn take_timer(&mut self) -> Option<Instant> {
        if self.state != State::Held {
            return None;
        }
        self.state = State::Timed;
        self.asked_at.map(|at| at + self.interval)
    }

    /// True: ask the publisher now for what was held back.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.state == State::Idle {
            return false;
        }
        self.state = State::Idle;
        self.request(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    #[test]
    fn every_layer_of_every_track_may_be_wished_for_at_once() {
        let all = || (0..TRACKS_MAX as u8).flat_map(|track| (0..LAYERS_MAX as u8).map(move |layer| (track, layer)));
        let mut wishes = KeyframeWishes::default();
        for (track, layer) in all().chain(all()) {
            wishes.add(track, layer);
        }
        assert!(wishes.iter().eq(all().collect::<Vec<_>>().into_iter().rev()));
        assert_eq!(KeyframeWishes::default().iter().count(), 0);
    }

    #[test]
    fn a_hundred_requests_per_second_become_two() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        let mut asked = 0;
        let mut timer = None;
        for step in 0..100 {
            let now = start + Duration::from_millis(10) * step;
            if timer.is_some_and(|at| at <= now) {
                timer = None;
                asked += u32::from(throttle.handle_timeout(now));
            }
            asked += u32::from(throttle.request(now));
            timer = timer.or(throttle.take_timer());
        }
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_request_within_the_interval_is_made_up_for_at_its_end() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start));
        assert!(!throttle.request(start + INTERVAL / 2));
        assert_eq!(throttle.take_timer(), Some(start + INTERVAL));
        assert_eq!(throttle.take_timer(), None);
        assert!(throttle.handle_timeout(start + INTERVAL));
    }

    #[test]
    fn a_keyframe_answers_the_request_that_was_held_back() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start));
        assert!(!throttle.request(start + INTERVAL / 2));
        throttle.take_timer();
        throttle.on_keyframe();
        assert!(!throttle.handle_timeout(start + INTERVAL));
    }
}
