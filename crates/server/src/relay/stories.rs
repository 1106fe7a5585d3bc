//! What became of allocations that are gone, for as long as there is room.
//!
//! In: allocations that have ended, with what their workers have noted. Out: the same, for who asks.
//! Cost: a map lookup each; the memory of `KEPT_MAX` and `UNUSED_KEPT_MAX` stories, each of one kilobyte and a half at most.

use std::sync::Arc;
use std::time::{Duration, Instant};

use relay::spec::{AllocationId, AllocationInfo, EndReason, Traffic};
use relay::story::Story;
use wire::WorkerId;

use crate::kept::Kept;

/// Allocations that are gone and still known, at most: the one that ended first is forgotten for the next.
const KEPT_MAX: usize = 4_096;

/// The same of those through which nothing went, or that were there for less than `BRIEF`: clients make some for each call and drop
/// them, and these are not to push the others out.
const UNUSED_KEPT_MAX: usize = 512;
const BRIEF: Duration = Duration::from_secs(10);

/// What became of an allocation.
#[derive(Clone, Debug)]
pub struct Told {
    /// Where it is, or was.
    pub worker: WorkerId,
    /// What it is, or was at its end.
    pub info: AllocationInfo,
    /// When and why it ended.
    pub ended: Option<(Instant, EndReason)>,
    /// What has happened to it.
    pub story: Box<Story>,
}

/// All that are gone and still known.
#[derive(Debug)]
pub struct Stories {
    used: Kept<AllocationId, Arc<Told>>,
    unused: Kept<AllocationId, Arc<Told>>,
}

impl Default for Stories {
    fn default() -> Self {
        Stories { used: Kept::new(KEPT_MAX), unused: Kept::new(UNUSED_KEPT_MAX) }
    }
}

impl Stories {
    /// An allocation has ended.
    pub fn end(&mut self, told: Told) {
        let is_used = [told.info.sent, told.info.received].iter().any(|way| *way != Traffic::default());
        let is_used = is_used && told.info.age >= BRIEF;
        let kept = if is_used { &mut self.used } else { &mut self.unused };
        kept.entry(told.info.id, || Arc::new(told));
    }

    /// One that has ended.
    pub fn get(&self, id: AllocationId) -> Option<Arc<Told>> {
        self.used.get(&id).or_else(|| self.unused.get(&id)).cloned()
    }

    /// The last ones of a user or of all, so many at most, the last first.
    pub fn latest(&self, user: Option<&str>, count: usize) -> Vec<Arc<Told>> {
        let at = |told: &Arc<Told>| told.ended.map(|(at, _)| at);
        let all = self.used.latest_with(&self.unused, at).map(|(_, told)| told);
        all.filter(|told| user.is_none_or(|user| *user == *told.info.user)).take(count).cloned().collect()
    }
}
