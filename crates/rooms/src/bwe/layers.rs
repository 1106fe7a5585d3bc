//! Chooses the simulcast layer that a bandwidth estimate has room for, without flapping.
//!
//! In: the estimate, and the measured rate of each layer, smallest picture first; zero for a layer that is not there.
//! Out: the layer to send. Cost: O(layers).
//! Source: our own rule; libwebrtc's video/config/simulcast.cc has a like margin for switching up.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use wire::Bitrate;

use super::HEADROOM;

/// A larger layer has to fit for this long before it is taken, once one had to be left for want of bandwidth.
const STABLE: Duration = Duration::from_millis(500);

/// A layer that is sent fits with so much to spare.
const KEPT: f64 = 1.05;

/// A layer that does not quite fit is left after so long: one large frame can look like overuse, and the estimate comes
/// back when the queue has drained. One for which less than this share is left is left at once.
const MISFIT_HOLD: Duration = Duration::from_secs(1);
const MISFIT_CLEAR: f64 = 0.7;

/// A layer that had to be left so soon was too much: the next climb waits, twice as long each time, within these bounds.
/// Each climb is a keyframe for everybody, and so is each fall.
const CLIMB_LOST: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(160);
/// … until one has held for so long.
const CLIMB_HELD: Duration = Duration::from_secs(60);

/// What there has to be for a layer of this rate, that is sent or is to be.
pub fn room_for(rate: Bitrate, is_sent: bool) -> Bitrate {
    rate.scale(if is_sent { KEPT } else { HEADROOM })
}

/// The layer for `estimate`: up only where the layer fits with a margin of a fifth, down when the current one no longer
/// fits with a small one. The smallest layer that is there is sent even when it does not fit; `None` when none is.
fn choose_layer(estimate: Bitrate, rates: &[Bitrate], current: Option<u8>) -> Option<u8> {
    let mut chosen = None;
    for (layer, rate) in (0u8..).zip(rates).filter(|(_, rate)| **rate > Bitrate::ZERO) {
        let keeps = current.is_some_and(|current| layer <= current) && estimate >= room_for(*rate, true);
        let rises = estimate >= room_for(*rate, false);
        if chosen.is_none() || keeps || rises {
            chosen = Some(layer);
        }
    }
    chosen
}

/// `choose_layer` with a memory: goes up only after the larger layer has fitted for a while, and ever more rarely when it
/// had to come down again.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerChooser {
    current: Option<u8>,
    /// Since when a larger layer than the current one would fit.
    fits_since: Option<Instant>,
    /// Whether one was ever left that was sent, since it did not fit.
    has_fallen: bool,
    /// Since when the current layer has not fitted.
    misfits_since: Option<Instant>,
    /// When it went up last, and did not come down since.
    climbed: Option<Instant>,
    /// After climbs that were lost: which layer that was, how long it is not tried, and until when.
    lost: u8,
    pause: Duration,
    not_before: Option<Instant>,
}

impl LayerChooser {
    /// Begins with a layer, for which no keyframe has to be waited.
    pub fn at(layer: u8) -> Self {
        LayerChooser { current: Some(layer), ..LayerChooser::default() }
    }

    /// The layer that was chosen has this rank now.
    pub fn is_at(&mut self, rank: u8) {
        self.current = self.current.map(|_| rank);
    }

    /// Whether one was chosen yet.
    pub fn has_chosen(&self) -> bool {
        self.current.is_some()
    }

    /// The layer to send from now on; `None` when none is there.
    pub fn choose(&mut self, now: Instant, estimate: Bitrate, rates: &[Bitrate]) -> Option<u8> {
        let allowed = if self.may_climb(now, self.lost) { rates } else { &rates[..rates.len().min(self.lost.into())] };
        let best =
            choose_layer(estimate, allowed, self.current).or_else(|| choose_layer(estimate, rates, self.current))?;
        let current = self.current.unwrap_or(best);
        let rate = rates.get(usize::from(current)).copied().unwrap_or(Bitrate::ZERO);
        // A layer that fell silent is no reason to wait: the picture stands still.
        let may_wait = rate > Bitrate::ZERO;
        if self.climbed.is_some_and(|at| now.saturating_duration_since(at) > CLIMB_HELD) {
            self.pause = Duration::ZERO;
        }
        let waits = match best.cmp(&current) {
            Ordering::Equal => false,
            Ordering::Greater => {
                self.has_fallen && self.fits_since.is_none_or(|since| now.saturating_duration_since(since) < STABLE)
            }
            Ordering::Less => {
                estimate >= rate.scale(MISFIT_CLEAR)
                    && self.misfits_since.is_none_or(|since| now.saturating_duration_since(since) < MISFIT_HOLD)
            }
        };
        self.fits_since = self.fits_since.or(Some(now)).filter(|_| best > current);
        self.misfits_since = self.misfits_since.or(Some(now)).filter(|_| best < current);
        if may_wait && waits {
            return Some(current);
        }
        if best > current {
            self.climbed = Some(now);
        } else if best < current
            && may_wait
            && let Some(at) = self.climbed.take()
            && now.saturating_duration_since(at) < CLIMB_LOST
        {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            (self.lost, self.not_before) = (current, Some(now + self.pause));
        }
        self.has_fallen |= best < current && may_wait;
        if best != current {
            (self.fits_since, self.misfits_since) = (None, None);
        }
        self.current = Some(best);
        self.current
    }

    /// The rate that a probe would have to prove so that the next larger layer would be sent.
    pub fn wanted_rate(&self, now: Instant, rates: &[Bitrate], current: u8) -> Option<Bitrate> {
        let mut larger = (0..).zip(rates).skip(usize::from(current) + 1);
        let (next, rate) = larger.find(|(_, rate)| **rate > Bitrate::ZERO)?;
        self.may_climb(now, next).then_some(*rate)
    }

    /// Whether it would go up to that layer, if it fitted.
    fn may_climb(&self, now: Instant, to: u8) -> bool {
        to < self.lost || self.not_before.is_none_or(|at| now >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kbps(rates: &[u64]) -> Vec<Bitrate> {
        rates.iter().map(|rate| Bitrate::from_kbps(*rate)).collect()
    }

    #[test]
    fn up_needs_a_margin_and_staying_a_small_one() {
        let rates = kbps(&[150, 500, 1_500]);
        let choose = |estimate, current| choose_layer(Bitrate::from_kbps(estimate), &rates, current);
        assert_eq!(choose(1_000, None), Some(1));
        assert_eq!(choose(1_700, Some(1)), Some(1));
        assert_eq!(choose(1_800, Some(1)), Some(2));
        assert_eq!(choose(1_575, Some(2)), Some(2));
        assert_eq!(choose(1_574, Some(2)), Some(1));
        assert_eq!(choose(10, Some(2)), Some(0));
    }

    #[test]
    fn layers_that_are_not_there_are_passed_over() {
        let choose =
            |rates: &[u64], estimate, current| choose_layer(Bitrate::from_kbps(estimate), &kbps(rates), current);
        assert_eq!(choose(&[0, 500, 0], 100, Some(2)), Some(1));
        assert_eq!(choose(&[150, 0, 1_500], 5_000, Some(0)), Some(2));
        assert_eq!(choose(&[0, 0, 0], 5_000, None), None);
        assert_eq!(choose(&[], 5_000, Some(1)), None);
    }

    #[test]
    fn a_larger_layer_is_taken_at_once_until_one_had_to_be_left() {
        let rates = kbps(&[150, 500, 1_500]);
        let start = Instant::now();
        let mut chooser = LayerChooser::default();
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(200), &rates), Some(0));
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(5_000), &rates), Some(2));
    }

    #[test]
    fn a_larger_layer_has_to_fit_for_a_while_after_that() {
        let rates = kbps(&[150, 500, 1_500]);
        let start = Instant::now();
        let mut chooser = LayerChooser { has_fallen: true, ..LayerChooser::default() };
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(700), &rates), Some(1));
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(5_000), &rates), Some(1));
        assert_eq!(chooser.choose(start + STABLE / 2, Bitrate::from_kbps(700), &rates), Some(1));
        assert_eq!(chooser.choose(start + STABLE, Bitrate::from_kbps(5_000), &rates), Some(1));
        assert_eq!(chooser.choose(start + 2 * STABLE, Bitrate::from_kbps(5_000), &rates), Some(2));
        assert_eq!(chooser.choose(start + 2 * STABLE, Bitrate::from_kbps(200), &rates), Some(0));
    }

    #[test]
    fn a_layer_that_almost_fits_is_kept_for_a_while() {
        let rates = kbps(&[150, 500, 1_500]);
        let start = Instant::now();
        let mut chooser = LayerChooser::default();
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(2_000), &rates), Some(2));
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(1_400), &rates), Some(2));
        assert_eq!(chooser.choose(start + MISFIT_HOLD / 2, Bitrate::from_kbps(1_600), &rates), Some(2));
        assert_eq!(chooser.choose(start + MISFIT_HOLD, Bitrate::from_kbps(1_400), &rates), Some(2));
        assert_eq!(chooser.choose(start + 2 * MISFIT_HOLD, Bitrate::from_kbps(1_400), &rates), Some(1));
    }

    /// Runs a chooser whose climb is lost 3 s later, each time, and returns the seconds at which it climbed.
    fn climbs(chooser: &mut LayerChooser, start: Instant, seconds: std::ops::Range<u32>) -> Vec<u32> {
        let rates = kbps(&[150, 500]);
        let mut climbs = Vec::new();
        for tenth in seconds.start * 10..seconds.end * 10 {
            let now = start + Duration::from_millis(100) * tenth;
            let lost = climbs.last().is_some_and(|at| (30..40).contains(&(tenth - at)));
            let before = chooser.current;
            chooser.choose(now, Bitrate::from_kbps(if lost { 200 } else { 2_000 }), &rates);
            if before == Some(0) && chooser.current == Some(1) {
                climbs.push(tenth);
            }
        }
        climbs.iter().map(|tenth| tenth / 10).collect()
    }

    #[test]
    fn a_layer_that_was_lost_does_not_keep_smaller_ones_away() {
        let rates = kbps(&[150, 500, 1_500]);
        let start = Instant::now();
        let mut chooser = LayerChooser::default();
        let mut after = |millis, estimate| {
            chooser.choose(start + Duration::from_millis(millis), Bitrate::from_kbps(estimate), &rates)
        };
        assert_eq!([after(0, 700), after(100, 5_000)], [Some(1), Some(2)]);
        assert_eq!([after(2_000, 160), after(2_100, 5_000), after(2_600, 5_000)], [Some(0), Some(0), Some(1)]);
        assert_eq!([after(6_000, 5_000), after(7_000, 5_000), after(7_500, 5_000)], [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn climbs_that_are_lost_become_rare_and_one_that_holds_makes_up_for_them() {
        let start = Instant::now();
        let mut chooser = LayerChooser::default();
        chooser.choose(start, Bitrate::from_kbps(160), &kbps(&[150, 500]));
        assert_eq!(climbs(&mut chooser, start, 0..170), [0, 8, 22, 45, 89]);
        // The last of these holds.
        let now = start + Duration::from_secs(260);
        for second in 0..62 {
            chooser.choose(now + Duration::from_secs(second), Bitrate::from_kbps(2_000), &kbps(&[150, 500]));
        }
        chooser.choose(now + Duration::from_secs(70), Bitrate::from_kbps(160), &kbps(&[150, 500]));
        assert!(chooser.may_climb(now + Duration::from_secs(70), 1));
        assert_eq!(climbs(&mut chooser, now, 80..110), [80, 89, 102]);
    }
}
