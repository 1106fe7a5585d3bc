//! How much of a publisher's video anybody wants (dynacast), in each of its codecs: more at once, less after a while.
//!
//! A layer that nobody wants goes on for `LAYER_PAUSED_AFTER`, so that a viewer who turns away and back does not make
//! the publisher's encoder stop and start. A codec that is wanted and does not come is asked for again and again: a
//! client does not hear what it is told of a track before it knows the track itself.

use std::time::Instant;

use crate::limits::{CODEC_ASKED_EVERY, LAYER_PAUSED_AFTER};
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
    is_sent: bool,
    /// When the publisher is told to send less, or asked again for what does not come.
    due: Option<Instant>,
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
    pub(crate) fn due(&self) -> Option<Instant> {
        self.of.iter().filter_map(|of| of.due).min()
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

    /// Whether the publisher is to be told now: that less is wanted, or once more what is.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        let [first, backup] = &mut self.of;
        first.handle_timeout(now) | backup.handle_timeout(now)
    }
}

impl OfCodec {
    fn new(is_sent: bool, now: Instant) -> Self {
        let due = is_sent.then_some(now + LAYER_PAUSED_AFTER);
        OfCodec { told: is_sent.then_some(Layer::High), wanted: None, is_sent, due }
    }

    fn want(&mut self, wanted: Option<Layer>, now: Instant) -> bool {
        self.wanted = wanted;
        if wanted < self.told {
            self.due.get_or_insert(now + LAYER_PAUSED_AFTER);
            return false;
        }
        let is_more = wanted > self.told;
        self.told = wanted;
        // How often somebody wants the same does not put off when it is asked for.
        self.due = self.ask_again(now).map(|at| self.due.map_or(at, |due| due.min(at)));
        is_more
    }

    fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|at| at > now) {
            return false;
        }
        self.told = self.wanted;
        self.due = self.ask_again(now);
        true
    }

    /// When the publisher is asked again for what it was told to send, if that does not come.
    fn ask_again(&self, now: Instant) -> Option<Instant> {
        (self.told.is_some() && !self.is_sent).then_some(now + CODEC_ASKED_EVERY)
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
        assert_eq!(demand.due(), None);
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
    }

    #[test]
    fn a_codec_that_does_not_come_is_asked_for_until_it_does() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut demand = Demand::new([false, false], start);
        assert!(demand.want([None, Some(Layer::Low)], start));
        assert!(!demand.want([None, Some(Layer::Low)], after(1)), "that it is wanted still is no news");
        for asked in 1..4 {
            assert_eq!(demand.due(), Some(start + CODEC_ASKED_EVERY * asked));
            assert!(demand.handle_timeout(start + CODEC_ASKED_EVERY * asked));
            assert_eq!(demand.told(), [None, Some(Layer::Low)]);
        }
        demand.begin_backup(after(7));
        demand.want([None, Some(Layer::High)], after(7));
        assert_eq!(demand.due(), None);
    }

    #[test]
    fn a_codec_that_does_not_come_is_asked_for_no_more_when_nobody_wants_it() {
        let start = Instant::now();
        let mut demand = Demand::new([false, false], start);
        demand.want([None, Some(Layer::Low)], start);
        demand.want(NOTHING, start);
        assert!(demand.handle_timeout(start + LAYER_PAUSED_AFTER));
        assert_eq!((demand.told(), demand.due()), (NOTHING, None));
    }
}
