//! What a receiver without transport-wide feedback estimates by itself, and says by REMB: as old browsers do, in outline.
//!
//! In: what arrives, and how long it took. Out: the rate to say, when it is time to say it.
//! Source: libwebrtc modules/remote_bitrate_estimator (growth of 8 % in a second, to half as much again as what arrives; 0.85
//! of that while a queue stands; a message each second, and at once when it fell by 3 %). A standing queue is told by the
//! shortest delay of 200 ms, which is simpler than a trendline.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Bitrate;

const WINDOW: Duration = Duration::from_millis(500);
const QUEUE_WINDOW: Duration = Duration::from_millis(200);
/// A queue of so long is overuse.
const QUEUE: Duration = Duration::from_millis(50);
const INTERVAL: Duration = Duration::from_secs(1);
const HOLD: Duration = Duration::from_millis(300);

/// A receiver's estimate.
#[derive(Debug, Default)]
pub struct ReceiverEstimate {
    /// When each datagram of the last half second came, and its size.
    arrived: VecDeque<(Instant, usize)>,
    /// The same of its delay.
    delays: VecDeque<(Instant, Duration)>,
    shortest: Option<Duration>,
    bps: Option<f64>,
    changed: Option<Instant>,
    held_until: Option<Instant>,
    said: Option<(Instant, f64)>,
}

impl ReceiverEstimate {
    /// Takes a datagram's size, and its time under way where that is known.
    pub fn on_datagram(&mut self, now: Instant, bytes: usize, delay: Option<Duration>) {
        self.arrived.push_back((now, bytes));
        if let Some(delay) = delay {
            self.delays.push_back((now, delay));
            self.shortest = Some(self.shortest.map_or(delay, |shortest| shortest.min(delay)));
        }
    }

    /// The rate to say now.
    pub fn poll(&mut self, now: Instant) -> Option<Bitrate> {
        self.arrived.retain(|(at, _)| now.duration_since(*at) < WINDOW);
        self.delays.retain(|(at, _)| now.duration_since(*at) < QUEUE_WINDOW);
        let bytes: usize = self.arrived.iter().map(|(_, bytes)| bytes).sum();
        let arriving = Bitrate::of(bytes as u64, WINDOW).bps() as f64;
        let queue = self.delays.iter().map(|(_, delay)| *delay).min().zip(self.shortest);
        let is_full = queue.is_some_and(|(least, shortest)| least > shortest + QUEUE);
        let passed = self.changed.replace(now).map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        let bps = self.bps.unwrap_or(arriving);
        let bps = if is_full && self.held_until.is_none_or(|at| now >= at) {
            self.held_until = Some(now + HOLD);
            bps.min(0.85 * arriving)
        } else if is_full {
            bps
        } else {
            (bps * 1.08_f64.powf(passed)).min(bps.max(1.5 * arriving + 10_000.0))
        };
        // Nothing is known before the first second has passed.
        let (said_at, said_bps) = *self.said.get_or_insert((now, 0.0));
        if now.duration_since(said_at) >= INTERVAL || bps < 0.97 * said_bps {
            self.said = Some((now, bps));
            self.bps = Some(bps);
            return Some(Bitrate::from_bps(bps as u64));
        }
        self.bps = self.bps.map(|_| bps);
        None
    }
}
