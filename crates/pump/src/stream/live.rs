//! Sessions that play what comes in: each packet is due when the input says, and so much later as the session began late.

use super::{PACKETS, Stream};
use crate::live::Start;
use crate::pace::LivePace;
use crate::queue::Plan;
use crate::spec::{Activity, FeedId, Settings, WhenStarved};

impl Stream {
    /// The live input that is played.
    pub(crate) fn feed(&self) -> Option<FeedId> {
        self.spec.live.map(|live| live.feed)
    }

    /// Goes on elsewhere in the live input; what is between is not sent, and counters go on.
    pub(crate) fn jump(&mut self, now_ns: i64, to: Start, settings: &Settings) {
        if self.spec.live.is_some() {
            let plan = Plan::Live { next: to.chunk, packet: to.packet, splice: true };
            self.replace(now_ns, plan, settings);
        }
    }

    /// When the next datagram is due behind a gap, as late as the session is. `None` when it plays a title. It may have a
    /// packet or two from before the gap, so its last packet tells as well.
    pub(super) fn live_due_ns(&self) -> Option<i64> {
        let (mut times, position) = (LivePace::new(self.live_zero?), self.queue.position()?);
        let others = u64::from(PACKETS) - 1;
        let by_first_ns = times.ns_at(&self.queue, position);
        let by_last_ns = times.ns_at(&self.queue, position + others) - self.slope.ns(others);
        let late_ns = self.pace.as_ref().map_or(0, |pace| self.origin_ns - pace.zero_ns());
        Some(by_first_ns.max(by_last_ns) + late_ns)
    }

    /// What comes next is late.
    pub(crate) fn is_starved(&self) -> bool {
        self.activity == Activity::Starved
    }

    /// What comes next in a live input is there, but not due yet, and until then null packets are wanted.
    pub(crate) fn fills_gap(&self, now_ns: i64) -> bool {
        let is_filling = self.activity == Activity::Starved && self.spec.when_starved == WhenStarved::Nulls;
        is_filling && self.live_due_ns().is_some_and(|due_ns| due_ns > self.null_due_ns.max(now_ns))
    }

    /// Goes on behind a gap, at `at_ns`. The session is later from now on only by what that is behind the input's time.
    pub(super) fn resume_live(&mut self, at_ns: i64) -> bool {
        let Some(due_ns) = self.live_due_ns() else { return false };
        let late_ns = at_ns - due_ns;
        self.origin_ns += late_ns;
        self.due_ns = at_ns;
        if let Some(padding) = &mut self.padding {
            padding.origin_ns += late_ns;
        }
        true
    }
}
