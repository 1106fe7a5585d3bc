//! How much of a publisher's video anybody wants (dynacast): more at once, less after a while.
//!
//! A layer that nobody wants goes on for `LAYER_PAUSED_AFTER`, so that a viewer who turns away and back does not make
//! the publisher's encoder stop and start.

use std::time::Instant;

use crate::limits::LAYER_PAUSED_AFTER;
use crate::media::Layer;

#[derive(Debug)]
pub(crate) struct Demand {
    /// What the publisher was told; a publisher that was told nothing sends everything.
    told: Option<Layer>,
    wanted: Option<Layer>,
    /// When the publisher is told to send less.
    lower_at: Option<Instant>,
}

impl Demand {
    pub(crate) fn new(now: Instant) -> Self {
        Demand { told: Some(Layer::High), wanted: None, lower_at: Some(now + LAYER_PAUSED_AFTER) }
    }

    /// Takes the best layer that anybody wants now; returns it when the publisher is to be told at once.
    pub(crate) fn want(&mut self, wanted: Option<Layer>, now: Instant) -> Option<Layer> {
        self.wanted = wanted;
        if wanted >= self.told {
            self.lower_at = None;
            let is_more = wanted > self.told;
            self.told = wanted;
            return wanted.filter(|_| is_more);
        }
        self.lower_at.get_or_insert(now + LAYER_PAUSED_AFTER);
        None
    }

    pub(crate) fn lower_at(&self) -> Option<Instant> {
        self.lower_at
    }

    /// What the publisher is to be told, when that is due: `Some(None)` is nothing at all.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Option<Layer>> {
        self.lower_at.filter(|at| *at <= now)?;
        self.lower_at = None;
        self.told = self.wanted;
        Some(self.told)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn more_is_told_at_once_and_less_after_five_seconds() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        assert_eq!(demand.want(Some(Layer::Low), start), None);
        assert_eq!(demand.handle_timeout(start + Duration::from_secs(4)), None);
        assert_eq!(demand.handle_timeout(start + Duration::from_secs(5)), Some(Some(Layer::Low)));
        assert_eq!(demand.want(Some(Layer::High), start + Duration::from_secs(6)), Some(Layer::High));
    }

    #[test]
    fn who_turns_away_and_back_within_five_seconds_changes_nothing() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        demand.want(Some(Layer::High), start);
        demand.want(None, start);
        demand.want(Some(Layer::High), start + Duration::from_secs(4));
        assert_eq!(demand.lower_at(), None);
        assert_eq!(demand.handle_timeout(start + Duration::from_secs(60)), None);
    }

    #[test]
    fn a_track_that_nobody_watches_is_to_be_sent_no_more() {
        let start = Instant::now();
        let mut demand = Demand::new(start);
        assert_eq!(demand.handle_timeout(start + Duration::from_secs(5)), Some(None));
    }
}
