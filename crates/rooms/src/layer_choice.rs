//! What one viewer gets of one video track: which size of the picture, how many frames of it, or nothing for a while.
//!
//! In: the share of the estimate that the track may take, and what each way to send it takes. Out: a rank, a highest temporal
//! layer, and whether it pauses. Cost: O(layers) per choice.

use std::time::{Duration, Instant};

use wire::Bitrate;

use crate::bwe::LayerChooser;
use crate::stream::{Place, TEMPORAL_CHOICES, Track};

/// The last of `Track::thinned_rates`: nothing is left out.
const ALL_TEMPORAL: u8 = TEMPORAL_CHOICES as u8 - 1;

/// Frames are left out when less than this share of their layer fits, and no sooner: what is lost comes again, and a frame
/// that is left out does not.
const THIN_FIT: f64 = 0.8;

/// The choices for one down track, each with its memory.
#[derive(Debug)]
pub struct LayerChoice {
    /// The layer to be on; its switch happens at that layer's next keyframe.
    pub place: Place,
    /// Chooses among the ranks.
    sizes: LayerChooser,
    /// Chooses among the ways to send the smallest, see `Track::thinned_rates`.
    thinner: LayerChooser,
    /// What it chose.
    thinned: u8,
    /// The highest temporal layer that the viewer asked for.
    temporal_limit: u8,
    /// Of what the path carries it has its part before those of higher numbers, and with 0 behind all.
    pub priority: u32,
    /// `None` where it never pauses.
    pause: Option<Pause>,
}

impl LayerChoice {
    /// Begins at the best layer.
    pub fn new(track: &Track, may_pause: bool) -> Self {
        LayerChoice {
            place: track.place_of(track.rank_count() - 1),
            sizes: LayerChooser::default(),
            thinner: LayerChooser::at(ALL_TEMPORAL),
            thinned: ALL_TEMPORAL,
            temporal_limit: u8::MAX,
            priority: 0,
            pause: may_pause.then(Pause::default),
        }
    }

    /// Whether a size was chosen yet.
    pub fn has_chosen(&self) -> bool {
        self.sizes.has_chosen()
    }

    /// Chooses the best of the sizes with `rates`, by rank, that `share` carries; the viewer wants no others. False: nothing of
    /// the track comes, so nothing can be chosen.
    ///
    /// After a time without pictures the layers of the first one come one after the other, as with a page that is shown for
    /// seconds. Until the layer that was chosen has come, too, or is gone, it stays.
    pub fn choose(&mut self, now: Instant, share: Bitrate, rates: &[Bitrate], track: &Track) -> bool {
        let rank = track.rank_of(self.place);
        self.sizes.is_at(rank);
        let is_silent = rates.get(usize::from(rank)) == Some(&Bitrate::ZERO);
        if is_silent && self.sizes.has_chosen() && !track.is_gone(rank) {
            return track.is_flowing(now);
        }
        if let Some(rank) = self.sizes.choose(now, share, rates) {
            debug_assert!(rates[usize::from(rank)] > Bitrate::ZERO, "the layer of rank {rank} is sent");
            self.place = track.place_of(rank);
            return true;
        }
        if usize::from(rank) >= rates.len() {
            self.place = track.place_of(rates.len().saturating_sub(1) as u8);
        }
        track.is_flowing(now)
    }

    /// The smallest size is sent: where it does not fit `share` temporal layers are left out, and where not even the least of it
    /// does, it pauses. `rates` are `Track::thinned_rates`.
    pub fn fit(&mut self, now: Instant, share: Bitrate, rates: &[Bitrate; TEMPORAL_CHOICES]) {
        self.thin(now, share, rates);
        self.pause(now, share, rates);
    }

    /// A larger size is sent, as it is.
    pub fn send_all(&mut self) {
        self.send_all_temporal();
        self.resume();
    }

    /// Leaves out temporal layers where not even the smallest size fits `share`; `rates` are `Track::thinned_rates`.
    fn thin(&mut self, now: Instant, share: Bitrate, rates: &[Bitrate; TEMPORAL_CHOICES]) {
        self.thinned = self.thinner.choose(now, share.scale(1.0 / THIN_FIT), rates).unwrap_or(ALL_TEMPORAL);
    }

    /// Sends all temporal layers that the viewer asked for.
    fn send_all_temporal(&mut self) {
        if self.thinned != ALL_TEMPORAL {
            (self.thinner, self.thinned) = (LayerChooser::at(ALL_TEMPORAL), ALL_TEMPORAL);
        }
    }

    /// Pauses where `share` does not even carry the least that can be sent, of `Track::thinned_rates`; and ends the pause.
    pub fn pause(&mut self, now: Instant, share: Bitrate, rates: &[Bitrate; TEMPORAL_CHOICES]) {
        if let Some(pause) = &mut self.pause
            && let Some(least) = rates.iter().find(|rate| **rate > Bitrate::ZERO)
        {
            pause.follow(now, share, *least);
        }
    }

    /// Sends what can be sent, whatever fits.
    fn resume(&mut self) {
        self.pause = self.pause.map(|_| Pause::default());
    }

    /// Whether nothing is sent now.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some_and(Pause::is_paused)
    }

    /// Takes the highest temporal layer that the viewer asks for.
    pub fn set_temporal_limit(&mut self, temporal_max: u8) {
        self.temporal_limit = temporal_max;
    }

    /// The highest temporal layer that is sent.
    pub fn temporal_max(&self) -> u8 {
        if self.thinned == ALL_TEMPORAL { self.temporal_limit } else { self.temporal_limit.min(self.thinned) }
    }

    /// What is sent of a size with these `Track::thinned_rates`, and what would be with more temporal layers, where that would be
    /// taken if it fitted.
    pub fn thinned_rate(&self, now: Instant, rates: &[Bitrate; TEMPORAL_CHOICES]) -> (Bitrate, Option<Bitrate>) {
        (rates[usize::from(self.thinned)], self.thinner.wanted_rate(now, rates, self.thinned))
    }

    /// What the next larger size takes, of those with `rates` by rank, where it would be taken if it fitted.
    pub fn wanted_rate(&self, now: Instant, rates: &[Bitrate], rank: u8) -> Option<Bitrate> {
        self.sizes.wanted_rate(now, rates, rank)
    }
}

/// A track pauses when the share has been below this part of its least for so long: a picture that stutters is worth more
/// than none.
const PAUSE_FIT: f64 = 0.5;
const PAUSE_AFTER: Duration = Duration::from_secs(3);
/// While nothing is sent, little is heard of the path: it is tried again after so long, then twice as long each time, up to …
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(40);
/// A try has so much time to be heard of before it counts, and one that goes well for so long was the last.
const TRY: Duration = Duration::from_secs(5);
const HELD: Duration = Duration::from_secs(30);

/// When a track is not sent at all.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    state: PauseState,
    /// How long the last pause lasted; zero when none did lately.
    retry: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PauseState {
    #[default]
    Sending,
    /// Not even the least has fitted since then.
    Short {
        since: Instant,
    },
    Paused {
        until: Instant,
    },
    /// It is sent again since then.
    Trying {
        since: Instant,
    },
}

impl Pause {
    fn is_paused(self) -> bool {
        matches!(self.state, PauseState::Paused { .. })
    }

    fn follow(&mut self, now: Instant, share: Bitrate, least: Bitrate) {
        let fits = share >= least.scale(PAUSE_FIT);
        let since = |at: Instant| now.saturating_duration_since(at);
        self.state = match self.state {
            PauseState::Sending if fits => return,
            PauseState::Sending => PauseState::Short { since: now },
            PauseState::Short { .. } if fits => PauseState::Sending,
            PauseState::Short { since: at } if since(at) < PAUSE_AFTER => return,
            PauseState::Trying { since: at } if since(at) < TRY => return,
            PauseState::Trying { since: at } if fits && since(at) < HELD => return,
            PauseState::Trying { .. } if fits => {
                self.retry = Duration::ZERO;
                PauseState::Sending
            }
            PauseState::Short { .. } | PauseState::Trying { .. } => {
                self.retry = (self.retry * 2).clamp(RETRY_MIN, RETRY_MAX);
                PauseState::Paused { until: now + self.retry }
            }
            PauseState::Paused { until } if now < until && share < least => return,
            PauseState::Paused { .. } => PauseState::Trying { since: now },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a pause with the share of each second, of a track that takes 150 kbit/s. Returns the seconds without pictures.
    fn paused(seconds: u32, share_kbps: impl Fn(u32) -> u64) -> Vec<u32> {
        let start = Instant::now();
        let mut pause = Pause::default();
        let is_paused = |second: &u32| {
            let now = start + Duration::from_secs(1) * *second;
            pause.follow(now, Bitrate::from_kbps(share_kbps(*second)), Bitrate::from_kbps(150));
            pause.is_paused()
        };
        (0..seconds).filter(is_paused).collect()
    }

    #[test]
    fn a_track_pauses_when_half_of_the_least_has_not_fitted_for_a_while() {
        assert_eq!(paused(60, |_| 80), []);
        assert_eq!(paused(60, |second| if second % 3 == 0 { 80 } else { 60 }), []);
        assert_eq!(paused(8, |_| 60), [3, 4, 5, 6, 7]);
    }

    #[test]
    fn it_comes_back_when_the_least_fits_and_is_tried_ever_more_rarely_where_nothing_is_heard() {
        assert_eq!(paused(30, |second| if second < 6 { 60 } else { 150 }), [3, 4, 5]);
        let all = paused(120, |_| 60);
        let resumed: Vec<u32> = all.windows(2).filter(|pair| pair[1] > pair[0] + 1).map(|pair| pair[0] + 1).collect();
        assert_eq!(resumed, [8, 23, 48, 93]);
    }
}
