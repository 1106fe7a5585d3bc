//! One session: a title on its way to one destination.
//!
//! In: chunks, in any order; pause, resume, seek; the time. Out: datagrams of seven packets, written where they are sent
//! from, each burst at its time. Times are nanoseconds since the pump's start.
//! Straight through, a datagram is one copy from the chunk. Behind a splice, or with PIDs left out or renamed, each
//! packet is looked at. Padded, each packet has a place of its own in a constant rate.
//! Cost: one division per burst and one copy per datagram.

mod emit;
mod live;
mod measure;
mod parity;
mod pictures;
mod start;
mod touch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::ts::{PACKET_LEN, Pcr};
use wire::{Outbox, Seq};

use crate::chunk::Chunk;
use crate::clock::Slope;
use crate::fec::Encoder;
use crate::pace::{LivePace, Pace};
use crate::queue::{Plan, Queue, ReadAhead, Supply};
use crate::rewrite::Rewriter;
use crate::spec::{Activity, Counters, EndReason, Pacing, SessionSpec, SessionStats, Settings, Transport, WhenStarved};
use crate::totals::Totals;
use crate::trick::Pick;
use measure::Measure;
use pictures::Pictures;

/// Packets of a datagram.
const PACKETS: u32 = wire::ts::DATAGRAM_PACKETS as u32;

/// No stream sends more than a datagram in this time over a while (1 Gbit/s), whatever its clock says.
const DATAGRAM_NS_MIN: i64 = 10_000;

/// When the stream is to be served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    At(i64),
    /// When a command comes.
    Wait,
    /// As soon as the outbox has room.
    Full,
    Ended,
}

/// What a stream writes to.
pub(crate) struct Output<'a> {
    pub(crate) out: &'a mut Outbox,
    pub(crate) totals: &'a mut Totals,
    pub(crate) settings: &'a Settings,
}

/// The output's own clock while pictures are shown: a reference, and when it holds.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    at_ns: i64,
    pcr: Pcr,
}

/// A constant rate into which packets are put.
#[derive(Clone, Copy, Debug)]
struct Padding {
    slope: Slope,
    /// When its first packet was due.
    origin_ns: i64,
    /// Packets since then, nulls included.
    packets: u64,
    /// When the last reference of our own was sent.
    stamped_ns: Option<i64>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    spec: Box<SessionSpec>,
    queue: Queue,
    rewriter: Rewriter,
    pace: Option<Pace>,
    padding: Option<Padding>,
    /// The rate where the title's clock does not say: that of its head, or the given one.
    slope: Slope,
    /// When the first packet of the run is due.
    origin_ns: i64,
    /// When the next burst is due, while it plays or is starved.
    due_ns: i64,
    /// From the last burst's time to that of the next.
    step_ns: i64,
    /// Position behind the last packet that was sent.
    end_position: u64,
    activity: Activity,
    /// Pictures are shown, by this clock.
    trick: Option<Anchor>,
    /// PAT and PMT, and how many of their packets are to be sent before all else.
    tables: Vec<[u8; PACKET_LEN]>,
    tables_left: usize,
    /// Datagrams of a burst.
    burst: u8,
    /// Those of one that found no room.
    burst_left: u8,
    seq: Seq,
    fec: Option<Box<Encoder>>,
    /// The time that the first RTP timestamp stands for.
    rtp_zero_ns: Option<i64>,
    rtp_marker: bool,
    /// Nobody paused it.
    is_running: bool,
    /// The next burst of null packets, while it is starved.
    null_due_ns: i64,
    /// Padded, and its next chunk is late.
    is_behind: bool,
    /// The picture to which the last packet belonged.
    shown: Option<Pick>,
    /// The plan is one of pictures.
    pictures: Option<Pictures>,
    /// Who wants to know when it plays.
    start_token: Option<u64>,
    /// It plays a live input, and times count from here.
    live_zero: Option<Instant>,
    stats: SessionStats,
    measure: Measure,
}

impl Stream {
    /// Opens a session. Times count from `zero`.
    ///
    /// # Errors
    /// When nothing says at which pace to send.
    pub(crate) fn new(mut spec: Box<SessionSpec>, settings: &Settings, zero: Instant) -> Result<Self, EndReason> {
        let slope = match spec.play.pacing {
            Pacing::Clock | Pacing::Padded(_) => spec.title.slope,
            Pacing::Rate(rate) => Slope::of_rate(rate),
        };
        let slope = slope.ok_or(EndReason::NoPace)?;
        let padding = match spec.play.pacing {
            Pacing::Padded(rate) => Some(Padding::new(Slope::of_rate(rate).ok_or(EndReason::NoPace)?)),
            Pacing::Clock | Pacing::Rate(_) => None,
        };
        let end = spec.end.unwrap_or(u64::MAX).min(spec.title.packet_count());
        let plan = match spec.live {
            Some(live) => Plan::Live { next: live.start.chunk, packet: live.start.packet, splice: false },
            None => Plan::Through {
                next: spec.start,
                end,
                again_from: spec.play.looped.then_some(spec.start),
                splice: false,
            },
        };
        // What comes in is sent as it is.
        spec.play.restamp &= spec.live.is_none();
        let ahead_ns = settings.read_ahead.as_nanos() * u128::from(spec.play.speed_permille) / 1_000;
        let read_ahead = ReadAhead { ns: i64::try_from(ahead_ns).unwrap_or(i64::MAX), slope };
        let queue = Queue::new(plan, spec.title.cut(), read_ahead);
        let seq = match spec.transport {
            Transport::Udp => Seq(0),
            Transport::Rtp { first_seq, .. } => Seq(first_seq),
        };
        let fec = spec.play.fec.filter(|_| spec.transport != Transport::Udp);
        let fec = fec.and_then(|fec| Encoder::new(fec, &spec.path, seq)).map(Box::new);
        Ok(Stream {
            queue,
            rewriter: Rewriter::new(&spec.title, spec.pids.clone()),
            pace: None,
            padding,
            slope,
            origin_ns: 0,
            due_ns: 0,
            step_ns: 0,
            end_position: spec.start,
            activity: Activity::Loading,
            trick: None,
            tables: spec.title.table_packets(),
            tables_left: 0,
            burst: spec.play.burst.unwrap_or(settings.burst).clamp(1, PACKETS as u8),
            burst_left: 0,
            seq,
            fec,
            rtp_zero_ns: None,
            rtp_marker: true,
            is_running: !spec.play.is_paused,
            null_due_ns: 0,
            is_behind: false,
            shown: None,
            pictures: None,
            start_token: None,
            live_zero: spec.live.map(|_| zero),
            stats: SessionStats::default(),
            measure: Measure::new(&spec),
            spec,
        })
    }

    pub(crate) fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// Time from burst to burst, about.
    pub(crate) fn interval_ns(&self) -> i64 {
        let slope = self.padding.map_or(self.slope, |padding| padding.slope);
        let ns = slope.ns(u64::from(PACKETS) * u64::from(self.burst));
        (ns * 1_000 / i64::from(self.spec.play.speed_permille.max(1))).max(1)
    }

    /// The number of a chunk to ask for; each is returned once.
    pub(crate) fn poll_need(&mut self) -> Option<u32> {
        self.queue.poll_need()
    }

    pub(crate) fn handle_chunk(&mut self, chunk: &Arc<Chunk>, counters: &mut Counters) {
        if self.queue.take(chunk) {
            self.note_chunk(chunk, counters);
        }
    }

    pub(crate) fn pause(&mut self) {
        self.is_running = false;
        if matches!(self.activity, Activity::Playing | Activity::Starved) {
            self.activity = Activity::Paused;
        }
    }

    pub(crate) fn resume(&mut self) {
        self.is_running = true;
    }

    /// Goes on at another place, at normal speed, as soon as its chunk is there.
    pub(crate) fn seek(&mut self, now_ns: i64, to: u64) {
        if self.spec.live.is_some() {
            return;
        }
        let end = self.end_packet();
        let plan = Plan::Through { next: to.min(end), end, again_from: self.loops_from(), splice: true };
        self.replace(now_ns, plan);
        self.rewriter.join_offsets();
        if !matches!(self.spec.play.pacing, Pacing::Padded(_)) {
            self.padding = None;
        }
    }

    /// Ends elsewhere.
    pub(crate) fn set_end(&mut self, end: Option<u64>) {
        self.spec.end = end;
        self.queue.set_end(self.end_packet(), self.loops_from());
    }

    fn burst_start_ns(&self) -> i64 {
        let is_plain = !matches!(self.spec.play.pacing, Pacing::Padded(_)) && self.spec.live.is_none();
        if is_plain { i64::try_from(self.spec.play.burst_start.as_nanos()).unwrap_or(i64::MAX / 4) } else { 0 }
    }

    fn end_packet(&self) -> u64 {
        self.spec.end.unwrap_or(u64::MAX).min(self.spec.title.packet_count())
    }

    fn loops_from(&self) -> Option<u64> {
        self.spec.play.looped.then_some(self.spec.start)
    }

    fn replace(&mut self, now_ns: i64, plan: Plan) {
        self.activate();
        let left = self.output_pcr(now_ns);
        self.queue.replace(plan);
        self.trick =
            left.filter(|_| self.pace.is_some() || self.trick.is_some()).map(|pcr| Anchor { at_ns: now_ns, pcr });
        self.pace = None;
        self.activity = Activity::Loading;
        self.burst_left = 0;
        (self.shown, self.pictures) = (None, None);
    }

    /// From now on packets are looked at. The counters sent so far are those of the chunk being played.
    fn activate(&mut self) {
        if self.rewriter.is_active() {
            return;
        }
        let current = self.queue.current().into_iter();
        self.rewriter.activate(current.flat_map(|(chunk, played)| emit::counters(chunk, played)));
    }

    /// Whether it waits for a time to go on at (`begin`): its next packets are there, and nobody paused it.
    pub(crate) fn can_begin(&self) -> bool {
        let waits = self.activity != Activity::Playing && self.is_running;
        waits && !self.queue.has_ended() && self.supply(PACKETS) != Supply::Late
    }

    /// Nothing is to be sent: the plan is empty, or all of it is skipped.
    pub(crate) fn has_ended(&self) -> bool {
        self.queue.has_ended() && self.pictures.is_none() && !self.spec.play.holds_at_end && !self.is_parity_left()
    }

    /// Goes on at `at_ns`.
    pub(crate) fn begin(&mut self, at_ns: i64) {
        let was = std::mem::replace(&mut self.activity, Activity::Playing);
        self.burst_left = 0;
        match (was, &self.pace) {
            (Activity::Paused | Activity::Starved, Some(_)) => {
                let held_ns = at_ns - self.due_ns;
                if was == Activity::Starved {
                    self.stats.starved += Duration::from_nanos(held_ns.max(0) as u64);
                }
                if !self.resume_live(at_ns) {
                    self.shift(held_ns);
                }
            }
            _ => self.begin_run(at_ns),
        }
    }

    /// The schedule moves by `ns`, and the clock that is sent with it.
    fn shift(&mut self, ns: i64) {
        self.origin_ns += ns;
        self.due_ns += ns;
        if let Some(padding) = &mut self.padding {
            padding.origin_ns += ns;
        }
        if self.spec.play.restamp && self.trick.is_none() && ns != 0 {
            self.activate();
            self.rewriter.shift_clock(ticks(ns));
        }
    }

    /// Begins to play at the queue's front; the first packet is due at `at_ns`.
    fn begin_run(&mut self, at_ns: i64) {
        let is_splice = self.queue.is_at_splice();
        let before = self.output_pcr(at_ns);
        if is_splice {
            self.activate();
        }
        self.queue.pass_splice();
        let rate = matches!(self.spec.play.pacing, Pacing::Rate(_)).then_some(self.slope);
        let position = self.queue.position().unwrap_or(self.end_position);
        let is_trick = self.queue.pick().is_some();
        let live = self.live_zero.map(LivePace::new);
        let pace = Pace::new(&self.queue, self.slope, rate, self.spec.play.speed_permille, live);
        let is_first = self.pace.is_none() && self.stats.datagrams == 0;
        let pace = if is_first { pace.with_burst(self.burst_start_ns()) } else { pace };
        if is_splice {
            self.rewriter.splice(true);
            self.rtp_marker = true;
            self.tables_left = self.tables.len();
            let after = pace.pcr_at(position).plus(self.rewriter.clock_offset());
            if let Some(before) = before.filter(|_| self.spec.play.restamp && !is_trick) {
                self.rewriter.shift_clock(after.ticks_to(before));
            }
        }
        match before.filter(|_| is_trick) {
            Some(pcr) => self.trick = Some(Anchor { at_ns, pcr }),
            None => self.trick = None,
        }
        // A loop in a padded stream does not interrupt the padding.
        let is_new = self.pace.replace(pace).is_none();
        // Pictures that came too late to go on with those before.
        let passed_ns = self.queue.pick().map_or(0, |pick| pick.at_ns);
        (self.origin_ns, self.due_ns, self.end_position) = (at_ns - passed_ns, at_ns, position);
        if let Some(padding) = self.padding.as_mut().filter(|_| is_new) {
            *padding = Padding { origin_ns: at_ns, ..Padding::new(padding.slope) };
        }
    }

    /// The reference that the output has at `at_ns`; `None` before anything was sent.
    fn output_pcr(&mut self, at_ns: i64) -> Option<Pcr> {
        if let Some(anchor) = self.trick {
            return Some(anchor.pcr.plus(ticks(at_ns - anchor.at_ns)));
        }
        let pace = self.pace.as_mut()?;
        let end_ns = self.origin_ns + pace.ns_at(&self.queue, self.end_position);
        let end = pace.pcr_at(self.end_position).plus(self.rewriter.clock_offset());
        Some(end.plus(ticks(at_ns - end_ns)))
    }

    /// The schedule's time of the packet at the front. A loop goes on where the run before ends.
    fn next_due(&mut self) -> Option<i64> {
        let position = self.queue.position()?;
        if let Some(pick) = self.queue.pick() {
            let (start, end) = (pick.at_ns, pick.until_ns);
            let (done, all) = (position.saturating_sub(pick.from), (pick.to - pick.from).max(1));
            let within = i128::from(end - start) * i128::from(done) / i128::from(all);
            return Some(self.origin_ns + start + within as i64);
        }
        let pace = self.pace.as_mut()?;
        let position = if self.queue.is_at_splice() { self.end_position } else { position };
        Some(self.origin_ns + pace.ns_at(&self.queue, position))
    }

    /// At a splice: ends the run, and begins the next at once.
    fn pass_splice(&mut self) {
        if !self.queue.is_at_splice() || self.queue.peek().is_none() {
            return;
        }
        if self.queue.pick().is_some() {
            // The output's clock goes on, so only the counters have to be seen to.
            self.queue.pass_splice();
            self.rewriter.splice(false);
            self.tables_left = self.tables.len();
            return;
        }
        let pace = self.pace.as_mut();
        let end_ns = pace.map_or(self.due_ns, |pace| self.origin_ns + pace.ns_at(&self.queue, self.end_position));
        self.begin_run(end_ns);
    }

    /// Writes the burst that is due, if one is. **Call it until it is not `Full`.**
    pub(crate) fn transmit(&mut self, now_ns: i64, output: &mut Output<'_>) -> Next {
        match self.activity {
            Activity::Loading | Activity::Paused => return Next::Wait,
            Activity::Starved => return self.transmit_starved(now_ns, output),
            Activity::Playing => {}
        }
        for _ in 0..self.bursts_max(output.settings.tick) {
            if self.due_ns > now_ns {
                return Next::At(self.due_ns);
            }
            match self.send_burst(now_ns, output) {
                Next::At(_) if self.due_ns <= now_ns => {}
                next => return next,
            }
        }
        // Late: it catches up at twice its pace, and not in one go.
        Next::At(now_ns + (self.step_ns / 2).max(1))
    }

    /// Bursts that may be written at one time: those of two ticks, as deadlines are served once per tick.
    fn bursts_max(&self, tick: Duration) -> i64 {
        let tick_ns = tick.as_nanos() as i64;
        let per_tick = tick_ns / DATAGRAM_NS_MIN / i64::from(self.burst);
        1 + (2 * tick_ns / self.interval_ns()).min(per_tick)
    }

    /// Writes the burst that is due.
    fn send_burst(&mut self, now_ns: i64, output: &mut Output<'_>) -> Next {
        if self.burst_left == 0 {
            self.burst_left = self.burst;
            self.note_lateness(now_ns, output);
        }
        let was_due_ns = self.due_ns;
        while self.burst_left > 0 {
            if !self.send_parity(output) || !output.out.has_room() || !output.out.has_room_for_shared() {
                return Next::Full;
            }
            let ready = self.ready_datagrams(self.burst_left, output);
            self.burst_left -= ready;
            if ready > 0 {
                continue;
            }
            match self.datagram(output) {
                Sent::Yes => self.burst_left -= 1,
                Sent::Late => return self.handle_late(was_due_ns, output),
                Sent::Over => return self.end(),
            }
        }
        // What finds no room now goes before the next datagram.
        self.send_parity(output);
        if self.queue.has_ended() {
            return self.end();
        }
        self.due_ns = match &self.padding {
            Some(padding) => padding.next_ns(),
            None => self.next_due().unwrap_or(self.due_ns),
        };
        self.step_ns = self.due_ns - was_due_ns;
        Next::At(self.due_ns)
    }

    /// Pictures that are all shown leave the session waiting for a place to go on at; so does an end at which it holds.
    fn end(&mut self) -> Next {
        self.burst_left = 0;
        if self.is_parity_left() {
            return Next::At(self.release_parity());
        }
        if self.has_ended() {
            return Next::Ended;
        }
        self.activity = Activity::Loading;
        if let Some(pictures) = &mut self.pictures {
            pictures.is_shown = true;
            // What comes next begins anew in the constant rate as well.
            self.pace = None;
        }
        Next::Wait
    }

    fn note_lateness(&mut self, now_ns: i64, output: &mut Output<'_>) {
        let late = Duration::from_nanos((now_ns - self.due_ns) as u64);
        output.totals.counters.lateness.record(late);
        self.measure(now_ns, now_ns - self.due_ns, output.totals);
        self.stats.late_max = self.stats.late_max.max(late);
        if late > output.settings.late_max {
            self.stats.shifts += 1;
            output.totals.counters.shifts += 1;
            self.shift(now_ns - self.due_ns);
        }
    }

    /// A datagram has not all its packets. When it is the first of its burst, it is due, and the stream is starved.
    fn handle_late(&mut self, was_due_ns: i64, output: &mut Output<'_>) -> Next {
        let is_first = self.burst_left == self.burst;
        self.burst_left = 0;
        if !is_first {
            self.due_ns = self.next_due().unwrap_or(self.due_ns).max(was_due_ns + 1);
            return Next::At(self.due_ns);
        }
        self.activity = Activity::Starved;
        self.null_due_ns = was_due_ns;
        self.stats.underruns += 1;
        output.totals.counters.underruns += 1;
        self.transmit_starved(was_due_ns, output)
    }

    /// Sends what is left over, and fills the gap until the next chunk is there.
    fn transmit_starved(&mut self, now_ns: i64, output: &mut Output<'_>) -> Next {
        if !self.send_left_over(now_ns, output) {
            return Next::Full;
        }
        match (self.transmit_nulls(now_ns, output), self.left_over_due_ns()) {
            (Next::At(at_ns), Some(due_ns)) => Next::At(at_ns.min(due_ns)),
            (Next::Wait, Some(due_ns)) => Next::At(due_ns),
            (next, _) => next,
        }
    }

    /// Null packets, if they are wanted.
    fn transmit_nulls(&mut self, now_ns: i64, output: &mut Output<'_>) -> Next {
        if self.spec.play.when_starved == WhenStarved::Pause {
            return Next::Wait;
        }
        if self.null_due_ns <= now_ns {
            for _ in 0..self.burst {
                if !self.send_parity(output) || !output.out.has_room() {
                    break;
                }
                self.null_datagram(self.null_due_ns, output);
            }
            self.null_due_ns = (self.null_due_ns + self.interval_ns()).max(now_ns);
        }
        Next::At(self.null_due_ns)
    }

    pub(crate) fn activity(&self) -> Activity {
        self.activity
    }

    /// `begin` no earlier than this.
    pub(crate) fn free_ns(&self) -> i64 {
        let free_ns = match self.activity {
            Activity::Starved => self.null_due_ns.max(self.due_ns),
            Activity::Paused => self.due_ns,
            Activity::Loading | Activity::Playing => i64::MIN,
        };
        self.live_due_ns().map_or(free_ns, |due_ns| due_ns.max(free_ns))
    }
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Yes,
    /// The next chunk is not there.
    Late,
    /// There is nothing more to send.
    Over,
}

impl Padding {
    fn new(slope: Slope) -> Self {
        Padding { slope, origin_ns: 0, packets: 0, stamped_ns: None }
    }

    /// When its next packet is due.
    fn next_ns(&self) -> i64 {
        self.origin_ns + self.slope.ns(self.packets)
    }
}

/// Nanoseconds in ticks of 27 MHz.
fn ticks(ns: i64) -> i64 {
    (i128::from(ns) * 27 / 1_000) as i64
}
