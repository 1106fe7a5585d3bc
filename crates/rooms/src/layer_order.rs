//! Which layer of a track is the smallest picture and which the largest, by what they carry.
//!
//! In: the measured rate of each layer. Out: the layers from small to large, and which of them are sent no more. It begins with
//! the order of the specification, which is guessed from names; a layer keeps its index whatever its rank becomes. Where names
//! say it for sure rates change nothing: an encoder that lacks bandwidth may give its smallest picture the most.
//! Cost: a comparison per packet, and a sort of four once a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::Bitrate;

use crate::stream::LAYERS_MAX;

/// A rank from 0, the smallest picture, and the index of the layer that has it.
#[derive(Clone, Debug)]
pub struct LayerOrder {
    /// By rank.
    indexes: [u8; LAYERS_MAX],
    /// What the rates said when they were last looked at.
    wanted: [u8; LAYERS_MAX],
    /// The most that each carried lately, by index: of a picture that stands still the larger layers carry no more.
    peaks: [Bitrate; LAYERS_MAX],
    /// By index, those of which nothing has come from one look at the rates to the next.
    gone: [bool; LAYERS_MAX],
    /// Of layers that the track has.
    count: usize,
    /// The specification's is the right one.
    is_told: bool,
    due_at: Option<Instant>,
}

/// How often the rates are looked at, while something comes. What they say counts when they say it twice: the first time a layer may have been
/// there for less than the second that is measured.
const INTERVAL: Duration = Duration::from_secs(1);

/// A layer of a lower rank carries this much more than the next: then their ranks are wrong. Between simulcast layers lies a
/// factor of two and more; less is what encoders do when they lack bandwidth.
const MARGIN: f64 = 1.5;

/// Peaks are forgotten by this factor each second: in 20 s one is down to what the margin allows for.
const FORGOTTEN: f64 = 0.98;

/// A quarter, a half and the full height: so LiveKit's clients and others name their layers, and mean it.
const TELLING_RIDS: [&str; 3] = ["q", "h", "f"];

/// What carries less than this says nothing about its size.
const TELLING: Bitrate = Bitrate::from_kbps(100);

impl LayerOrder {
    /// As the layers of these names stand in the specification.
    pub fn of(rids: &[Arc<str>], count: usize) -> Self {
        let is_told = rids.iter().all(|rid| TELLING_RIDS.contains(&&**rid));
        LayerOrder { is_told, ..LayerOrder::new(count) }
    }

    fn new(count: usize) -> Self {
        let indexes = std::array::from_fn(|index| index as u8);
        let peaks = [Bitrate::ZERO; LAYERS_MAX];
        let count = count.clamp(1, LAYERS_MAX);
        LayerOrder { indexes, wanted: indexes, peaks, gone: [false; LAYERS_MAX], count, is_told: false, due_at: None }
    }

    /// The layer of a rank; of one that there is not, the largest.
    pub fn index(&self, rank: u8) -> u8 {
        self.indexes[usize::from(rank).min(self.count - 1)]
    }

    /// The rank of a layer.
    pub fn rank(&self, index: u8) -> u8 {
        self.indexes.iter().position(|known| *known == index).unwrap_or(0) as u8
    }

    /// The largest picture.
    pub fn top(&self) -> u8 {
        self.index(u8::MAX)
    }

    /// Whether others came for a second and more while nothing came of the layer of a rank. Where nothing came of any, as of
    /// a picture that stands still, none is gone.
    pub fn is_gone(&self, rank: u8) -> bool {
        self.gone[usize::from(self.index(rank))]
    }

    /// When it is time to look at the rates: the time of the last look.
    #[inline]
    pub fn due_since(&mut self, now: Instant) -> Option<Instant> {
        if self.count < 2 || self.due_at.is_some_and(|at| now < at) {
            return None;
        }
        self.due_at.replace(now + INTERVAL).map(|due_at| due_at - INTERVAL)
    }

    /// Takes, by index, of which layers nothing came since the last look.
    pub fn set_gone(&mut self, gone: [bool; LAYERS_MAX]) {
        self.gone = gone;
    }

    /// Takes the rates, by index. Layers that are not sent keep their ranks.
    pub fn follow(&mut self, rates: &[Bitrate; LAYERS_MAX]) {
        if self.is_told {
            return;
        }
        for (peak, rate) in self.peaks.iter_mut().zip(rates) {
            *peak = peak.scale(FORGOTTEN).max(*rate);
        }
        let peak = |index: u8| self.peaks[usize::from(index)];
        let mut wanted = self.indexes;
        for _ in 1..self.count {
            let mut before: Option<usize> = None;
            for rank in 0..self.count {
                if rates[usize::from(wanted[rank])] == Bitrate::ZERO {
                    continue;
                }
                if let Some(lower) = before
                    && peak(wanted[lower]) > peak(wanted[rank]).scale(MARGIN).max(TELLING)
                {
                    wanted.swap(lower, rank);
                }
                before = Some(rank);
            }
        }
        if wanted == self.wanted {
            self.indexes = wanted;
        }
        self.wanted = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kbps<const N: usize>(rates: [u64; N]) -> [Bitrate; LAYERS_MAX] {
        std::array::from_fn(|index| Bitrate::from_kbps(rates.get(index).copied().unwrap_or(0)))
    }

    fn order(order: &LayerOrder) -> Vec<u8> {
        (0..order.count as u8).map(|rank| order.index(rank)).collect()
    }

    #[test]
    fn layers_are_sorted_when_their_rates_say_so_twice() {
        let mut layers = LayerOrder::new(3);
        layers.follow(&kbps([2_500, 500, 150]));
        assert_eq!(order(&layers), [0, 1, 2]);
        layers.follow(&kbps([2_500, 500, 150]));
        assert_eq!(order(&layers), [2, 1, 0]);
        assert_eq!([0, 1, 2].map(|index| layers.rank(index)), [2, 1, 0]);
        assert_eq!(layers.top(), 0);
    }

    #[test]
    fn of_layers_whose_names_say_it_the_smallest_may_carry_the_most() {
        let rids = |names: [&str; 3]| names.map(Arc::from);
        for (rids, expected) in [(rids(["q", "h", "f"]), [0, 1, 2]), (rids(["a", "h", "f"]), [2, 1, 0])] {
            let mut layers = LayerOrder::of(&rids, 3);
            (0..2).for_each(|_| layers.follow(&kbps([2_500, 500, 150])));
            assert_eq!(order(&layers), expected, "{rids:?}");
        }
    }

    #[test]
    fn a_layer_that_begins_or_lacks_bandwidth_keeps_its_rank() {
        let mut layers = LayerOrder::new(3);
        for rates in [[150, 500, 0], [150, 500, 200], [150, 500, 2_500], [150, 500, 400], [150, 0, 400], [0, 500, 400]]
        {
            layers.follow(&kbps(rates));
            layers.follow(&kbps([150, 500, 2_500]));
            assert_eq!(order(&layers), [0, 1, 2], "{rates:?}");
        }
        let mut layers = LayerOrder::new(3);
        for _ in 0..2 {
            layers.follow(&kbps([150, 0, 50]));
        }
        assert_eq!(order(&layers), [2, 1, 0], "one that is not sent stays between them");
    }

    #[test]
    fn a_picture_that_stands_still_changes_no_rank() {
        let mut layers = LayerOrder::new(3);
        layers.follow(&kbps([150, 500, 2_500]));
        for second in 0..600 {
            layers.follow(&kbps([40, 20, 12]));
            assert_eq!(order(&layers), [0, 1, 2], "second {second}");
        }
        // One that did from the start, with a keyframe once.
        let mut layers = LayerOrder::new(3);
        layers.follow(&kbps([90, 250, 800]));
        (0..600).for_each(|_| layers.follow(&kbps([40, 20, 12])));
        assert_eq!(order(&layers), [0, 1, 2]);
    }

    #[test]
    fn layers_that_change_their_sizes_are_sorted_anew_within_half_a_minute() {
        let mut layers = LayerOrder::new(2);
        (0..10).for_each(|_| layers.follow(&kbps([150, 2_500])));
        (0..30).for_each(|_| layers.follow(&kbps([2_500, 150])));
        assert_eq!(order(&layers), [1, 0]);
    }

    #[test]
    fn rates_are_due_once_a_second_from_the_first_second_on() {
        let start = Instant::now();
        let mut layers = LayerOrder::new(2);
        let due = (0..30).filter(|step| layers.due_since(start + Duration::from_millis(100) * *step).is_some());
        assert_eq!(due.collect::<Vec<_>>(), [10, 20]);
        assert_eq!(LayerOrder::new(1).due_since(start), None);
        let later = start + Duration::from_secs(9);
        assert_eq!(layers.due_since(later), Some(start + Duration::from_secs(2)));
    }
}
