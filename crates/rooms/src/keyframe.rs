//! Keyframe requests: those of one call gathered, those for one layer merged and throttled.
//!
//! In: requests of any number of viewers, and keyframes as they pass. Out: whether to ask the publisher now, or when.
//! A keyframe is several times as large as another frame and goes to everybody, so at most one is asked for per interval.
//! Source: RFC 4585 §6.3.1 (PLI), RFC 5104 §4.3.1.2 (on limiting requests).

use std::time::{Duration, Instant};

/// One layer of a stream on this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerKey {
    /// Key of the stream.
    pub stream: usize,
    /// Index of the track in the stream.
    pub track: u8,
    /// Index of the layer in the track.
    pub layer: u8,
}

/// The layers of which one call asks for keyframes, each once. So it never holds more than the session has layers.
#[derive(Debug, Default)]
pub struct KeyframeWishes(Vec<LayerKey>);

impl KeyframeWishes {
    /// Takes a layer that the stream has.
    pub fn add(&mut self, layer: LayerKey) {
        if !self.0.contains(&layer) {
            self.0.push(layer);
        }
    }

    /// Takes out one of the layers.
    pub fn pop(&mut self) -> Option<LayerKey> {
        self.0.pop()
    }
}

/// Merges the requests for one layer's keyframes, and lets one through per interval.
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
    /// Lets the first request through at once.
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
        // What was held back goes along.
        (self.state, self.asked_at) = (State::Idle, Some(now));
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
        debug_assert!(self.asked_at.is_some(), "held back behind a request that went through");
        self.state = State::Timed;
        self.asked_at.map(|at| at + self.interval)
    }

    /// True: ask the publisher now for what was held back.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        debug_assert_ne!(self.state, State::Held, "a timer is set");
        // That of a request which a keyframe has answered comes too soon for the next, which has a timer of its own.
        self.state != State::Idle && self.request(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    #[test]
    fn each_layer_that_is_wished_for_comes_out_once() {
        let all =
            (0..24).map(|number| LayerKey { stream: number / 6, track: number as u8 / 2 % 3, layer: number as u8 % 2 });
        let mut wishes = KeyframeWishes::default();
        all.clone().chain(all.clone()).for_each(|layer| wishes.add(layer));
        let wished: Vec<LayerKey> = std::iter::from_fn(|| wishes.pop()).collect();
        assert!(wished.into_iter().rev().eq(all));
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
    fn a_request_that_comes_before_the_timer_of_another_leaves_none_behind() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start));
        assert!(!throttle.request(start + INTERVAL / 2));
        let timer = throttle.take_timer().expect("it is held back");
        assert!(throttle.request(timer));
        assert!(!throttle.handle_timeout(timer));
        assert!(!throttle.request(timer + INTERVAL / 2));
        assert_eq!(throttle.take_timer(), Some(timer + INTERVAL));
    }

    #[test]
    fn the_timer_of_a_request_that_was_answered_lets_no_other_through_too_soon() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start));
        assert!(!throttle.request(start + INTERVAL / 2));
        let first = throttle.take_timer().expect("it is held back");
        throttle.on_keyframe();
        assert!(!throttle.request(start + INTERVAL / 2));
        let second = throttle.take_timer().expect("so is this one");
        assert!(throttle.handle_timeout(first));
        assert!(!throttle.request(first));
        let third = throttle.take_timer().expect("and this one");
        assert!(!throttle.handle_timeout(second) && throttle.handle_timeout(third));
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
