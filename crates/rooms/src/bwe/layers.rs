//! Chooses the simulcast layer that a bandwidth estimate has room for, without flapping.
//!
//! In: the estimate, and the measured rate of each layer, smallest picture first; zero for a layer that is not there.
//! Out: the layer to send. Cost: O(layers).
//! Source: our own rule; libwebrtc's video/config/simulcast.cc has a like margin for switching up.

use std::time::{Duration, Instant};

use wire::Bitrate;

use super::HEADROOM;

/// A larger layer has to fit for this long before it is taken, unless nothing was sent yet.
const STABLE: Duration = Duration::from_millis(500);

/// The layer for `estimate`: up only where the layer fits with a margin of a fifth, down at once when the current one no
/// longer fits. The smallest layer that is there is sent even when it does not fit; `None` when none is.
fn choose_layer(estimate: Bitrate, rates: &[Bitrate], current: Option<u8>) -> Option<u8> {
    let mut chosen = None;
    for (layer, rate) in (0u8..).zip(rates).filter(|(_, rate)| **rate > Bitrate::ZERO) {
        let keeps = current.is_some_and(|current| layer <= current) && estimate >= *rate;
        let rises = estimate >= rate.scale(HEADROOM);
        if chosen.is_none() || keeps || rises {
            chosen = Some(layer);
        }
    }
    chosen
}

/// The rate that a probe would have to prove so that the next larger layer may be sent.
pub fn wanted_rate(rates: &[Bitrate], current: u8) -> Option<Bitrate> {
    rates.iter().skip(usize::from(current) + 1).copied().find(|rate| *rate > Bitrate::ZERO)
}

/// `choose_layer` with a memory: goes up only after the larger layer has fitted for a while.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayerChooser {
    current: Option<u8>,
    /// Since when a larger layer than the current one would fit.
    fits_since: Option<Instant>,
}

impl LayerChooser {
    /// The layer that was chosen has this rank now.
    pub fn is_at(&mut self, rank: u8) {
        self.current = self.current.map(|_| rank);
    }

    /// The layer to send from now on; `None` when none is there.
    pub fn choose(&mut self, now: Instant, estimate: Bitrate, rates: &[Bitrate]) -> Option<u8> {
        let best = choose_layer(estimate, rates, self.current)?;
        let current = self.current.unwrap_or(best);
        // A layer that fell silent is no reason to wait: the picture stands still.
        let alive = rates.get(usize::from(current)).is_some_and(|rate| *rate > Bitrate::ZERO);
        if best > current && alive {
            let since = *self.fits_since.get_or_insert(now);
            if now.saturating_duration_since(since) < STABLE {
                return Some(current);
            }
        }
        self.fits_since = None;
        self.current = Some(best);
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kbps(rates: &[u64]) -> Vec<Bitrate> {
        rates.iter().map(|rate| Bitrate::from_kbps(*rate)).collect()
    }

    #[test]
    fn up_needs_a_margin_and_down_comes_at_once() {
        let rates = kbps(&[150, 500, 1_500]);
        let choose = |estimate, current| choose_layer(Bitrate::from_kbps(estimate), &rates, current);
        assert_eq!(choose(1_000, None), Some(1));
        assert_eq!(choose(1_700, Some(1)), Some(1));
        assert_eq!(choose(1_800, Some(1)), Some(2));
        assert_eq!(choose(1_500, Some(2)), Some(2));
        assert_eq!(choose(1_499, Some(2)), Some(1));
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
    fn a_larger_layer_has_to_fit_for_a_while() {
        let rates = kbps(&[150, 500, 1_500]);
        let start = Instant::now();
        let mut chooser = LayerChooser::default();
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(700), &rates), Some(1));
        assert_eq!(chooser.choose(start, Bitrate::from_kbps(5_000), &rates), Some(1));
        assert_eq!(chooser.choose(start + STABLE / 2, Bitrate::from_kbps(700), &rates), Some(1));
        assert_eq!(chooser.choose(start + STABLE, Bitrate::from_kbps(5_000), &rates), Some(1));
        assert_eq!(chooser.choose(start + 2 * STABLE, Bitrate::from_kbps(5_000), &rates), Some(2));
        assert_eq!(chooser.choose(start + 2 * STABLE, Bitrate::from_kbps(200), &rates), Some(0));
    }
}
