//! How much of a publisher's video anybody wants (dynacast), in each of its codecs: more at once, less after a while.
//!
//! A layer that nobody wants goes on for `LAYER_PAUSED_AFTER`, so that a viewer who turns away and back does not make
//! the publisher's encoder stop and start.

use std::time::Instant;

use crate::limits::LAYER_PAUSED_AFTER;
use crate::media::Layer;

/// The best layer of a track's first codec and of its backup; `None` is nothing of it.
pub(crate) type Layers = [Option<Layer>; 2];

#[derive(Debug)]
pub(crate) struct Demand {
    of: [OfCodec; 2],
}

#[derive(Debug)]
struct OfCodec {
    /// What the publisher was told, or sends as long as it was told nothing.
    told: Option<Layer>,
    wanted: Option<Layer>,
    /// When the publisher is told to send less.
    lower_at: Option<Instant>,
}

impl Demand {
    /// Nobody wants anything yet; `is_sent` says of each codec whether it comes, and then all of it does.
    pub(crate) fn new(is_sent: [bool; 2], now: Instant) -> Self {
        Demand { of: is_sent.map(|is_sent| OfCodec::new(is_sent, now)) }
    }

    /// Takes the best layers that anybody wants now; whether the publisher is to be told at once.
    pub(crate) fn want(&mut self, wanted: Layers, now: Instant) -> bool {
        let [first, backup] = &mut self.of;
        first.want(wanted[0], now) | backup.want(wanted[1], now)
    }

    /// What the publisher is to send, as it was told or is to be now.
    pub(crate) fn told(&self) -> Layers {
        self.of.each_ref().map(|of| of.told)
    }

    /// When `handle_timeout` has something to say.
    pub(crate) fn lower_at(&self) -> Option<Instant> {
        self.of.iter().filter_map(|of| of.lower_at).min()
    }

    /// The backup comes, all of it.
    pub(crate) fn begin_backup(&mut self, now: Instant) {
        let wanted = self.of[1].wanted;
        self.of[1] = OfCodec { wanted, ..OfCodec::new(true, now) };
    }

    /// The backup comes no more.
    pub(crate) fn end_backup(&mut self, now: Instant) {
        self.of[1] = OfCodec::new(false, now);
    }

    /// Whether the publisher is to be told now that less is wanted.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        let [first, backup] = &mut self.of;
        first.handle_timeout(now) | backup.handle_timeout(now)
    }
}

impl OfCodec {
    fn new(is_sent: bool, now: Instant) -> Self {
        let lower_at = is_sent.then_some(now + LAYER_PAUSED_AFTER);
        OfCodec { told: is_sent.then_some(Layer::High), wanted: None, lower_at }
    }

    fn want(&mut self, wanted: Option<Layer>, now: Instant) -> bool {
        self.wanted = wanted;
        if wanted >= self.told {
            self.lower_at = None;
            let is_more = wanted > self.told;
            self.told = wanted;
            return is_more;
        }
        self.lower_at.get_or_insert(now + LAYER_PAUSED_AFTER);
        false
    }

    fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.lower_at.is_none_or(|at| at > now) {
            return false;
        }
        self.lower_at = None;
        self.told = self.wanted;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LOW: Layers = [Some(Layer::Low), None];
    const HIGH: Layers = [Some(Layer::High), None];
    const NOTHING: Layers = [None, None];

    /// Of a track that comes in its first codec.
    fn demand(start: Instant) -> Demand {
        Demand::new([true, false], start)
    }

    #[test]
    fn more_is_told_at_once_and_less_after_five_seconds() {
        let start = Instant::now();
        let mut demand = demand(start);
        assert!(!demand.want(LOW, start));
        assert!(!demand.handle_timeout(start + Duration::from_secs(4)));
        assert!(demand.handle_timeout(start + Duration::from_secs(5)) && demand.told() == LOW);
        assert!(demand.want(HIGH, start + Duration::from_secs(6)) && demand.told() == HIGH);
    }

    #[test]
    fn who_turns_away_and_back_within_five_seconds_changes_nothing() {
        let start = Instant::now();
        let mut demand = demand(start);
        demand.want(HIGH, start);
        demand.want(NOTHING, start);
        demand.want(HIGH, start + Duration::from_secs(4));
        assert_eq!(demand.lower_at(), None);
        assert!(!demand.handle_timeout(start + Duration::from_secs(60)));
    }

    #[test]
    fn a_track_that_nobody_watches_is_to_be_sent_no_more() {
        let start = Instant::now();
        let mut demand = demand(start);
        assert!(demand.handle_timeout(start + Duration::from_secs(5)) && demand.told() == NOTHING);
    }

    #[test]
    fn a_codec_is_wanted_at_once_while_less_of_the_other_is_not_told_before_it_is_time() {
        let start = Instant::now();
        let mut demand = demand(start);
        assert!(demand.want([None, Some(Layer::Low)], start));
        assert_eq!(demand.told(), [Some(Layer::High), Some(Layer::Low)]);
        assert!(demand.handle_timeout(start + Duration::from_secs(5)));
        assert_eq!(demand.told(), [None, Some(Layer::Low)]);
        assert_eq!(demand.lower_at(), None);
    }
}
