//! When a stream's packets are due, and which clock goes out with them.
//!
//! Times are nanoseconds since the pump's start. A run is what is played from one place on, until a splice.

use std::time::Instant;

use wire::ts::{Pcr, Timestamp};

use super::PACKETS;
use super::reel::Reel;
use crate::clock::Slope;
use crate::pace::{LivePace, Pace};
use crate::spec::{EndReason, Pacing, SessionSpec};
use crate::trick::Pick;

/// A picture is decoded so long after its last byte is due, in ticks of 90 kHz (100 ms).
const PICTURE_DELAY: i64 = 9_000;

#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) run: Run,
    /// When the first packet of the run is due.
    pub(super) origin_ns: i64,
    /// When the next burst is due, while it plays or is starved.
    pub(super) due_ns: i64,
    /// From the last burst's time to that of the next.
    pub(super) step_ns: i64,
    /// The constant rate into which packets are put.
    pub(super) padding: Option<Padding>,
    /// That lasts, whatever is played.
    pub(super) is_padded: bool,
    /// The rate where the title's clock does not say: that of its head, or the given one.
    pub(super) slope: Slope,
    /// A constant rate that holds instead of the clock's.
    pub(super) rate: Option<Slope>,
    pub(super) speed_permille: u32,
    /// The clock that is sent continues, whatever is played.
    pub(super) restamp: bool,
    /// It plays a live input, whose times count from here.
    pub(super) live_zero: Option<Instant>,
    /// So long the first run goes out at twice its pace.
    pub(super) burst_start_ns: i64,
}

/// What says when packets are due.
#[derive(Debug)]
pub(super) enum Run {
    /// Nothing yet: what was played was left, and the output's clock stood like this. `None`: nothing was played.
    Left(Option<Anchor>),
    /// The title's clock, or the live input's.
    Through(Pace),
    /// The times of single pictures. The output has a clock of its own.
    Pictures(Anchor),
}

/// The output's clock: a reference, and when it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    at_ns: i64,
    pcr: Pcr,
}

/// A constant rate into which packets are put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padding {
    slope: Slope,
    /// When its first packet was due.
    origin_ns: i64,
    /// Packets since then, nulls included.
    pub(super) packets: u64,
    /// When the last reference of our own was sent.
    pub(super) stamped_ns: Option<i64>,
    /// The next chunk is late.
    pub(super) is_behind: bool,
    /// It was, and its packets are late by that still.
    pub(super) catches_up: bool,
}

impl Schedule {
    /// # Errors
    /// When nothing says at which pace to send.
    pub(super) fn new(spec: &SessionSpec, zero: Instant) -> Result<Self, EndReason> {
        let of_rate = |rate| Slope::of_rate(rate).ok_or(EndReason::NoPace);
        let (rate, padding) = match spec.play.pacing {
            Pacing::Clock => (None, None),
            Pacing::Rate(rate) => (Some(of_rate(rate)?), None),
            Pacing::Padded(rate) => (None, Some(Padding::new(of_rate(rate)?, 0))),
        };
        let is_plain = padding.is_none() && spec.live.is_none();
        let burst_start_ns = i64::try_from(spec.play.burst_start.as_nanos()).unwrap_or(i64::MAX / 4);
        Ok(Schedule {
            run: Run::Left(None),
            origin_ns: 0,
            due_ns: 0,
            step_ns: 0,
            is_padded: padding.is_some(),
            padding,
            slope: rate.or(spec.title.slope).ok_or(EndReason::NoPace)?,
            rate,
            speed_permille: spec.play.speed_permille,
            // What comes in is sent as it is.
            restamp: spec.play.restamp && spec.live.is_none(),
            live_zero: spec.live.map(|_| zero),
            burst_start_ns: if is_plain { burst_start_ns } else { 0 },
        })
    }

    /// The time of so many datagrams, about.
    pub(super) fn interval_ns(&self, datagrams: u8) -> i64 {
        let slope = self.padding.map_or(self.slope, |padding| padding.slope);
        let ns = slope.ns(u64::from(PACKETS) * u64::from(datagrams));
        (ns * 1_000 / i64::from(self.speed_permille.max(1))).max(1)
    }

    /// Begins a run at the front of the reel; its first packet is due at `at_ns`. True when it does not continue what was
    /// before. Before the first packet (`is_first`) it is the one that goes out at twice its pace.
    pub(super) fn begin(&mut self, reel: &mut Reel, at_ns: i64, is_first: bool) -> bool {
        let (is_splice, is_new) = (reel.queue.is_at_splice(), matches!(self.run, Run::Left(_)));
        let before = self.output_pcr(reel, at_ns);
        if is_splice {
            reel.activate();
        }
        reel.queue.pass_splice();
        let (position, pick) = (reel.position(), reel.queue.pick());
        let live = self.live_zero.map(LivePace::new);
        let mut pace = Pace::new(&reel.queue, self.slope, self.rate, self.speed_permille, live);
        pace.burst_ns = if is_first && is_new { self.burst_start_ns } else { 0 };
        if is_splice {
            reel.splice(true);
            let after = pace.clock.pcr_at(position).plus(reel.rewriter.clock_offset);
            if let Some(before) = before.filter(|_| self.restamp && pick.is_none()) {
                reel.rewriter.shift_clock(after.ticks_to(before));
            }
        }
        self.run = match before.filter(|_| pick.is_some()) {
            Some(pcr) => Run::Pictures(Anchor { at_ns, pcr }),
            None => Run::Through(pace),
        };
        // Pictures that came too late to go on with those before.
        let passed_ns = pick.map_or(0, |pick| pick.at_ns);
        (self.origin_ns, self.due_ns, reel.end) = (at_ns - passed_ns, at_ns, position);
        // A loop in a padded stream does not interrupt the padding.
        if let Some(padding) = self.padding.as_mut().filter(|_| is_new) {
            *padding = Padding::new(padding.slope, at_ns);
        }
        is_splice
    }

    /// What was played is left; the output's clock is remembered.
    pub(super) fn leave(&mut self, reel: &Reel, now_ns: i64) {
        self.run = Run::Left(self.output_pcr(reel, now_ns).map(|pcr| Anchor { at_ns: now_ns, pcr }));
    }

    /// Single pictures come next: by a clock, whatever was before, and in a constant rate, as they leave gaps in which a
    /// receiver still wants references.
    pub(super) fn prepare_pictures(&mut self, now_ns: i64) {
        if let Run::Left(anchor) = &mut self.run {
            anchor.get_or_insert(Anchor { at_ns: now_ns, pcr: Pcr::from_ticks(0) });
        }
        self.padding.get_or_insert(Padding::new(self.slope, 0));
    }

    /// All pictures are shown; the output's clock goes on.
    pub(super) fn leave_pictures(&mut self) {
        if let Run::Pictures(anchor) = self.run {
            self.run = Run::Left(Some(anchor));
        }
    }

    /// The title comes next.
    pub(super) fn prepare_through(&mut self) {
        if !self.is_padded {
            self.padding = None;
        }
    }

    pub(super) fn has_run(&self) -> bool {
        !matches!(self.run, Run::Left(_))
    }

    pub(super) fn shows_pictures(&self) -> bool {
        matches!(self.run, Run::Pictures(_))
    }

    /// Moves by `ns`, and the clock that is sent with it.
    pub(super) fn shift(&mut self, reel: &mut Reel, ns: i64) {
        self.shift_times(ns);
        self.due_ns += ns;
        self.shift_clock(reel, ns);
    }

    fn shift_times(&mut self, ns: i64) {
        self.origin_ns += ns;
        if let Some(padding) = &mut self.padding {
            padding.origin_ns += ns;
        }
    }

    /// What is put into the constant rate goes on `late_ns` later. True when its clock is as late from now on.
    pub(super) fn shift_behind_padding(&mut self, reel: &mut Reel, late_ns: i64) -> bool {
        self.origin_ns += late_ns;
        self.shift_clock(reel, late_ns)
    }

    fn shift_clock(&self, reel: &mut Reel, ns: i64) -> bool {
        let shifts = self.restamp && !self.shows_pictures() && ns != 0;
        if shifts {
            reel.activate();
            reel.rewriter.shift_clock(ticks(ns));
        }
        shifts
    }

    /// Goes on with a live input behind a gap, at `at_ns`. The session is later from now on only by what that is behind the
    /// input's time. False when it is none.
    pub(super) fn resume_live(&mut self, reel: &Reel, at_ns: i64) -> bool {
        let Some(due_ns) = self.live_due_ns(reel) else { return false };
        self.shift_times(at_ns - due_ns);
        self.due_ns = at_ns;
        true
    }

    /// The reference that the output has at `at_ns`; `None` before anything was sent.
    pub(super) fn output_pcr(&mut self, reel: &Reel, at_ns: i64) -> Option<Pcr> {
        match &mut self.run {
            Run::Left(anchor) => anchor.map(|anchor| anchor.pcr_at(at_ns)),
            Run::Pictures(anchor) => Some(anchor.pcr_at(at_ns)),
            Run::Through(pace) => {
                let end_ns = self.origin_ns + pace.ns_at(&reel.queue, reel.end);
                let end = pace.clock.pcr_at(reel.end).plus(reel.rewriter.clock_offset);
                Some(end.plus(ticks(at_ns - end_ns)))
            }
        }
    }

    /// When a picture is decoded, whatever its own timestamps say: when it is there.
    pub(super) fn picture_time(&mut self, reel: &Reel, pick: Pick) -> Option<Timestamp> {
        let pcr = self.output_pcr(reel, self.origin_ns + pick.until_ns)?;
        Some(Timestamp::from_ticks(pcr.ticks() / 300).plus(PICTURE_DELAY))
    }

    /// The time of the packet at the front. A loop goes on where the run before ends.
    #[inline]
    pub(super) fn next_due(&mut self, reel: &Reel) -> Option<i64> {
        let position = reel.queue.position()?;
        if let Some(pick) = reel.queue.pick() {
            let (start, end) = (pick.at_ns, pick.until_ns);
            let (done, all) = (position.saturating_sub(pick.from), (pick.to - pick.from).max(1));
            let within = i128::from(end - start) * i128::from(done) / i128::from(all);
            return Some(self.origin_ns + start + within as i64);
        }
        let Run::Through(pace) = &mut self.run else { return None };
        let position = if reel.queue.is_at_splice() { reel.end } else { position };
        Some(self.origin_ns + pace.ns_at(&reel.queue, position))
    }

    /// When the run ends that a splice follows.
    pub(super) fn run_end_ns(&mut self, reel: &Reel) -> i64 {
        match &mut self.run {
            Run::Through(pace) => self.origin_ns + pace.ns_at(&reel.queue, reel.end),
            Run::Left(_) | Run::Pictures(_) => self.due_ns,
        }
    }

    /// The time that the next datagram's RTP timestamp stands for: that by the title's pace, also of what goes out ahead
    /// of it.
    pub(super) fn rtp_time(&mut self, reel: &Reel) -> i64 {
        let due_ns = self.next_due(reel).unwrap_or(self.due_ns);
        due_ns + self.run.pace().map_or(0, |pace| pace.ahead_ns(due_ns - self.origin_ns))
    }

    /// Sets when the next burst is due.
    #[inline]
    pub(super) fn step(&mut self, reel: &Reel, was_due_ns: i64) {
        self.due_ns = match &self.padding {
            Some(padding) => padding.next_ns(),
            None => self.next_due(reel).unwrap_or(self.due_ns),
        };
        self.step_ns = self.due_ns - was_due_ns;
    }

    /// When the next datagram of a live input is due behind a gap, as late as the session is. `None` when it plays a title.
    /// It may have a packet or two from before the gap, so its last packet tells as well.
    pub(super) fn live_due_ns(&self, reel: &Reel) -> Option<i64> {
        let (mut times, position) = (LivePace::new(self.live_zero?), reel.queue.position()?);
        let others = u64::from(PACKETS) - 1;
        let by_first_ns = times.ns_at(&reel.queue, position);
        let by_last_ns = times.ns_at(&reel.queue, position + others) - self.slope.ns(others);
        let late_ns = self.run.pace().map_or(0, |pace| self.origin_ns - pace.zero_ns);
        Some(by_first_ns.max(by_last_ns) + late_ns)
    }

    /// References of the title that did not continue, in this run.
    pub(super) fn clock_jumps(&self) -> u64 {
        self.run.pace().map_or(0, |pace| pace.clock.jumps())
    }
}

impl Run {
    /// The title's times, or the live input's, while it plays by them.
    #[inline]
    pub(super) fn pace(&self) -> Option<&Pace> {
        match self {
            Run::Through(pace) => Some(pace),
            Run::Left(_) | Run::Pictures(_) => None,
        }
    }
}

impl Anchor {
    fn pcr_at(&self, at_ns: i64) -> Pcr {
        self.pcr.plus(ticks(at_ns - self.at_ns))
    }
}

impl Padding {
    fn new(slope: Slope, origin_ns: i64) -> Self {
        Padding { slope, origin_ns, packets: 0, stamped_ns: None, is_behind: false, catches_up: false }
    }

    /// When its next packet is due.
    pub(super) fn next_ns(&self) -> i64 {
        self.origin_ns + self.slope.ns(self.packets)
    }
}

/// Nanoseconds in ticks of 27 MHz.
pub(super) fn ticks(ns: i64) -> i64 {
    (i128::from(ns) * 27 / 1_000) as i64
}
