//! Keyframe requests: those of one call gathered, those for one layer merged and throttled, those of one viewer counted.
//!
//! In: requests of any number of viewers, and keyframes as they pass. Out: whether to ask the publisher now, or when.
//! A keyframe is several times as large as another frame and goes to everybody, so at most one is asked for per interval,
//! and what one viewer may ask for is limited.
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

/// How soon a keyframe is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A viewer has a picture, and would like a better one.
    CanWait,
    /// A viewer has no picture, or one that is broken or too large for its path.
    Now,
}

/// The layers of which one call asks for keyframes, each once. So it never holds more than the session has layers.
#[derive(Debug, Default)]
pub struct KeyframeWishes(Vec<(LayerKey, Urgency)>);

impl KeyframeWishes {
    /// Takes a layer that the stream has.
    pub fn add(&mut self, layer: LayerKey, urgency: Urgency) {
        match self.0.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, known)) => *known = urgency.max(*known),
            None => self.0.push((layer, urgency)),
        }
    }

    /// Takes out one of the layers.
    pub fn pop(&mut self) -> Option<(LayerKey, Urgency)> {
        self.0.pop()
    }
}

/// What one viewer may ask for of one track: `REQUESTS_MAX` keyframes at once, and one each `REQUEST_INTERVAL` in the long
/// run. Whoever has asked for more waits for what others ask for. Until a keyframe comes all requests are for that one.
#[derive(Clone, Copy, Debug)]
pub struct KeyframeBudget {
    /// When all may be asked for again.
    full_at: Instant,
    /// When the last request was passed on.
    asked_at: Option<Instant>,
}

/// What becomes of a viewer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// It is passed on.
    Passed,
    /// It is for a keyframe that was asked for before.
    Repeated,
    /// The budget is spent.
    Refused,
}

const REQUESTS_MAX: u32 = 3;
const REQUEST_INTERVAL: Duration = Duration::from_secs(5);

/// A keyframe that is still missing is asked for again after this time.
pub const ASK_AGAIN: Duration = Duration::from_millis(1_000);

impl KeyframeBudget {
    /// All may be asked for.
    pub fn new(now: Instant) -> Self {
        KeyframeBudget { full_at: now, asked_at: None }
    }

    /// Takes a request; `came_at` is when the last keyframe came.
    pub fn request(&mut self, now: Instant, came_at: Option<Instant>) -> Request {
        if let Some(asked_at) = self.asked_at
            && came_at.is_none_or(|came_at| came_at < asked_at)
        {
            if now.saturating_duration_since(asked_at) < ASK_AGAIN {
                return Request::Repeated;
            }
        } else {
            let full_at = self.full_at.max(now) + REQUEST_INTERVAL;
            if full_at > now + REQUEST_INTERVAL * REQUESTS_MAX {
                return Request::Refused;
            }
            self.full_at = full_at;
        }
        self.asked_at = Some(now);
        Request::Passed
    }
}

/// Merges the requests for one layer's keyframes, and lets one through per interval.
#[derive(Clone, Debug)]
pub struct KeyframeThrottle {
    interval: Duration,
    asked_at: Option<Instant>,
    /// When the last keyframe began to come.
    came_at: Option<Instant>,
    /// When to ask for what is held back.
    held_until: Option<Instant>,
    /// For when the earliest timer is set.
    timer: Option<Instant>,
}

/// A request that can wait is let through so long after the last one, or after a keyframe that came by itself: so all who
/// climb share one, and climb for nothing where the publisher sends one at least this often.
const INTERVAL_OF_CLIMBS: Duration = Duration::from_secs(1);

impl KeyframeThrottle {
    /// Lets the first request through at once.
    pub fn new(interval: Duration) -> Self {
        KeyframeThrottle { interval, asked_at: None, came_at: None, held_until: None, timer: None }
    }

    /// Takes a viewer's request. True: ask the publisher now. False: it was merged with one before, or is held back.
    pub fn request(&mut self, now: Instant, urgency: Urgency) -> bool {
        let free_at = match urgency {
            Urgency::Now => self.asked_at.map(|at| at + self.interval),
            Urgency::CanWait => self.asked_at.max(self.came_at).map(|at| at + self.interval.max(INTERVAL_OF_CLIMBS)),
        };
        if let Some(free_at) = free_at.filter(|at| now < *at) {
            self.held_until = Some(self.held_until.map_or(free_at, |at| at.min(free_at)));
            return false;
        }
        // What was held back goes along.
        (self.held_until, self.asked_at) = (None, Some(now));
        true
    }

    /// A keyframe has come: what was held back is answered.
    pub fn on_keyframe(&mut self, now: Instant) {
        // A timer that is set will find nothing to do.
        (self.held_until, self.came_at) = (None, Some(now));
    }

    /// When the last keyframe began to come.
    pub fn came_at(&self) -> Option<Instant> {
        self.came_at
    }

    /// When to call `handle_timeout` for a request that is held back, unless a timer is set already.
    pub fn take_timer(&mut self) -> Option<Instant> {
        let at = self.held_until.filter(|at| self.timer.is_none_or(|timer| *at < timer))?;
        self.timer = Some(at);
        Some(at)
    }

    /// True: ask the publisher now for what was held back. Another timer may be wanted then.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        self.timer = self.timer.filter(|at| *at > now);
        let is_due = self.held_until.is_some_and(|at| at <= now);
        if is_due {
            (self.held_until, self.asked_at) = (None, Some(now));
        }
        is_due
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
        all.clone().chain(all.clone()).for_each(|layer| wishes.add(layer, Urgency::Now));
        let wished: Vec<LayerKey> = std::iter::from_fn(|| wishes.pop()).map(|(layer, _)| layer).collect();
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
            asked += u32::from(throttle.request(now, Urgency::Now));
            timer = timer.or(throttle.take_timer());
        }
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_request_within_the_interval_is_made_up_for_at_its_end() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start, Urgency::Now));
        assert!(!throttle.request(start + INTERVAL / 2, Urgency::Now));
        assert_eq!(throttle.take_timer(), Some(start + INTERVAL));
        assert_eq!(throttle.take_timer(), None);
        assert!(throttle.handle_timeout(start + INTERVAL));
    }

    #[test]
    fn a_request_that_comes_before_the_timer_of_another_leaves_none_behind() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start, Urgency::Now));
        assert!(!throttle.request(start + INTERVAL / 2, Urgency::Now));
        let timer = throttle.take_timer().expect("it is held back");
        assert!(throttle.request(timer, Urgency::Now));
        assert!(!throttle.handle_timeout(timer));
        assert!(!throttle.request(timer + INTERVAL / 2, Urgency::Now));
        assert_eq!(throttle.take_timer(), Some(timer + INTERVAL));
    }

    #[test]
    fn the_timer_of_a_request_that_was_answered_lets_no_other_through_too_soon() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start, Urgency::Now));
        assert!(!throttle.request(start + INTERVAL / 2, Urgency::Now));
        let first = throttle.take_timer().expect("it is held back");
        assert!(throttle.request(first, Urgency::Now));
        assert!(!throttle.request(first + INTERVAL / 2, Urgency::Now));
        assert!(!throttle.handle_timeout(first));
        let second = throttle.take_timer().expect("so is this one");
        assert!(throttle.handle_timeout(second));
    }

    #[test]
    fn a_request_that_can_wait_does_so_and_an_urgent_one_takes_it_along() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start, Urgency::CanWait), "nobody asked before");
        assert!(!throttle.request(start + INTERVAL, Urgency::CanWait));
        assert_eq!(throttle.take_timer(), Some(start + INTERVAL_OF_CLIMBS));
        assert!(throttle.request(start + INTERVAL, Urgency::Now));
        assert!(!throttle.handle_timeout(start + INTERVAL_OF_CLIMBS));
        throttle.on_keyframe(start + INTERVAL * 4);
        assert!(!throttle.request(start + INTERVAL * 5, Urgency::CanWait), "one came by itself");
        assert_eq!(throttle.take_timer(), Some(start + INTERVAL * 4 + INTERVAL_OF_CLIMBS));
        assert!(!throttle.request(start + INTERVAL + INTERVAL / 2, Urgency::Now));
        assert_eq!(throttle.take_timer(), Some(start + INTERVAL * 2), "an earlier timer");
    }

    #[test]
    fn one_viewer_asks_for_three_and_then_for_one_in_five_seconds() {
        let start = Instant::now();
        let mut budget = KeyframeBudget::new(start);
        let passed = (0..200).filter(|step| {
            let now = start + Duration::from_millis(100) * *step;
            budget.request(now, Some(now)) == Request::Passed
        });
        assert_eq!(passed.collect::<Vec<_>>(), [0, 1, 2, 50, 100, 150]);
    }

    #[test]
    fn requests_until_a_keyframe_comes_are_for_that_one() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut budget = KeyframeBudget::new(start);
        let asked: Vec<_> = (0..25).map(|step| budget.request(at(200 * step), None)).collect();
        let passed = |step: &usize| asked[*step] == Request::Passed;
        assert_eq!((0..25).filter(passed).collect::<Vec<_>>(), [0, 5, 10, 15, 20], "the first may be lost");
        assert!(!asked.contains(&Request::Refused));
        for (ms, request) in [(5_000, Request::Passed), (5_001, Request::Repeated)] {
            assert_eq!(budget.request(at(ms), Some(at(4_900))), request);
        }
        // Of three, with the one before.
        let more = [6_000, 7_000, 8_000].map(|ms| budget.request(at(ms), Some(at(ms))));
        assert_eq!(more, [Request::Passed, Request::Passed, Request::Refused]);
    }

    #[test]
    fn a_keyframe_answers_the_request_that_was_held_back() {
        let start = Instant::now();
        let mut throttle = KeyframeThrottle::new(INTERVAL);
        assert!(throttle.request(start, Urgency::Now));
        assert!(!throttle.request(start + INTERVAL / 2, Urgency::Now));
        throttle.take_timer();
        throttle.on_keyframe(start + INTERVAL / 2);
        assert!(!throttle.handle_timeout(start + INTERVAL));
    }
}
