//! Sessions that play what comes in: each packet is due when the input says, and so much later as the session began late.

use super::{Output, PACKETS, Stream};
use crate::live::Start;
use crate::pace::LivePace;
use crate::queue::{Plan, Supply};
use crate::spec::{Activity, InputId, WhenStarved};

/// What a silent input leaves over, less than a datagram, waits so long for the rest of it.
const LEFT_OVER_NS: i64 = 200_000_000;

impl Stream {
    /// The live input that is played.
    pub(crate) fn input(&self) -> Option<InputId> {
        self.spec.live.map(|live| live.input)
    }

    /// Goes on elsewhere in the live input; what is between is not sent, and counters go on.
    pub(crate) fn jump(&mut self, now_ns: i64, to: Start) {
        if self.spec.live.is_some() {
            let plan = Plan::Live { next: to.chunk, packet: to.packet, splice: true };
            self.replace(now_ns, plan);
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
        let is_filling = self.activity == Activity::Starved && self.spec.play.when_starved == WhenStarved::Nulls;
        is_filling && self.live_due_ns().is_some_and(|due_ns| due_ns > self.null_due_ns.max(now_ns))
    }

    /// When the last packets of an input that is silent are sent after all: at once where null packets fill the gap anyway.
    pub(super) fn left_over_due_ns(&self) -> Option<i64> {
        let patience_ns = if self.spec.play.when_starved == WhenStarved::Nulls { 0 } else { LEFT_OVER_NS };
        (self.spec.live.is_some() && self.left_over() > 0).then(|| self.due_ns + patience_ns)
    }

    /// Packets that wait for others to fill a datagram with, which have not come.
    fn left_over(&self) -> u32 {
        if self.supply(PACKETS) != Supply::Late {
            return 0;
        }
        (1..PACKETS).rev().find(|count| self.supply(*count) == Supply::Enough).unwrap_or(0)
    }

    /// Sends them if they are due, filled up with null packets; false when there is no room for them.
    pub(super) fn send_left_over(&mut self, now_ns: i64, output: &mut Output<'_>) -> bool {
        while self.left_over_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            if !self.send_parity(output) || !output.out.has_room() {
                return false;
            }
            self.write(self.left_over(), output);
            self.null_due_ns += self.interval_ns();
        }
        true
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
