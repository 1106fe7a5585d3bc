//! What a viewer asked for of one track by hand.
//!
//! In: what was asked for, and the time. Out: what holds. Temporal layers follow at once; a size that changes too often, since
//! each change takes a keyframe, follows when it may.

use std::time::Instant;

use crate::keyframe::{KeyframeBudget, Request};
use crate::spec::LayerLimit;

/// The limit of one down track.
#[derive(Debug)]
pub struct Limit {
    holds: LayerLimit,
    wished: LayerLimit,
    changes: KeyframeBudget,
}

impl Limit {
    /// Begins with that.
    pub fn new(now: Instant, limit: LayerLimit) -> Self {
        Limit { holds: limit, wished: limit, changes: KeyframeBudget::new(now) }
    }

    /// What holds now.
    pub fn holds(&self) -> LayerLimit {
        self.holds
    }

    /// Takes another.
    pub fn wish(&mut self, now: Instant, limit: LayerLimit) {
        self.wished = limit;
        self.holds.temporal_max = limit.temporal_max;
        self.follow(now);
    }

    /// Has the size be what was asked for last, when it may.
    pub fn follow(&mut self, now: Instant) {
        let is_other = self.wished.spatial_max != self.holds.spatial_max;
        if is_other && self.changes.request(now, Some(now)) == Request::Passed {
            self.holds = self.wished;
        }
    }
}
