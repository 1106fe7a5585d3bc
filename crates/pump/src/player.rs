//! One session: a title on its way to one destination.
//!
//! In: chunks, in any order; pause, resume, seek; the time. Out: datagrams of seven packets, each burst at its time.
//! Times are nanoseconds since the pump's start.
//! Straight through and right in UDP, the outbox keeps a reference to the chunk and nothing is copied; with an RTP header
//! it is one copy. Behind a splice, or with PIDs left out or renamed, each packet is looked at. Padded, each packet has a
//! place of its own in a constant rate.
//! Cost: one division per burst.
//!
//! What it is made of: `reel` is what is played, packet by packet; `schedule` when each is due, and the clock that is sent;
//! `sender` what is around a datagram; `measure` what is counted. `emit` makes datagrams of them, and this file says when.

mod emit;
mod history;
mod measure;
mod pictures;
mod reel;
mod schedule;
mod sender;
mod touch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::Outbox;

use crate::chunk::Chunk;
use crate::connections::Connections;
use crate::live;
use crate::queue::{Plan, ReadAhead, Supply};
use crate::spec::{
    Activity, Counters, EndReason, Event, InputId, SessionSpec, SessionStats, Settings, Start, WhenStarved,
};
use crate::totals::Totals;
use crate::trick::Pick;
use emit::Sent;
use history::History;
use measure::Measure;
use pictures::Pictures;
use reel::Reel;
use schedule::Schedule;
use sender::Sender;

/// Packets of a datagram.
const PACKETS: u32 = wire::ts::DATAGRAM_PACKETS as u32;

/// A burst takes no longer at the stream's rate, where nobody chose its size: what a receiver sees a reference early by adds
/// to the time between two of them, of which the standard allows 100 ms (ETSI TR 101 290, 2.3a).
const BURST_NS_MAX: i64 = 10_000_000;

/// No stream sends more than a datagram in this time over a while (1 Gbit/s), whatever its clock says.
const DATAGRAM_NS_MIN: i64 = 10_000;

/// What a silent input leaves over, less than a datagram, waits so long for the rest of it.
const LEFT_OVER_NS: i64 = 200_000_000;

/// When the stream is to be served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    At(i64),
    /// When a command comes.
    Wait,
    /// As soon as the outbox has room.
    Full,
    Ended(EndReason),
}

/// What a stream writes to.
pub(crate) struct Output<'a> {
    pub(crate) out: &'a mut Outbox,
    pub(crate) connections: &'a mut Connections,
    pub(crate) totals: &'a mut Totals,
    pub(crate) settings: &'a Settings,
}

impl Output<'_> {
    /// Whether there is room for a datagram, wherever it goes.
    fn has_room(&self) -> bool {
        self.out.has_room_for_piece() && self.out.has_room_for_shared()
    }
}

#[derive(Debug)]
pub(crate) struct Player {
    pub(crate) spec: Box<SessionSpec>,
    mode: Mode,
    /// Paused: while it played, and it goes on from there. Loading: also while it waits for a place to go on at.
    pub(crate) activity: Activity,
    /// While it is starved: if a gap is filled, then with null packets, the next of which are due then.
    null_due_ns: i64,
    /// Nobody paused it.
    is_running: bool,
    reel: Reel,
    schedule: Schedule,
    sender: Sender,
    measure: Measure,
    history: History,
    /// Datagrams of a burst.
    burst: u8,
    /// Those of one that found no room.
    burst_left: u8,
    /// Since when it cannot go on as chunks lack.
    lacking_ns: Option<i64>,
    /// For so long it may.
    patience_ns: i64,
    /// Its end is that of what can be had of the title.
    is_cut_off: bool,
    /// Who wants to know when it plays.
    pub(crate) start_token: Option<u64>,
}

/// What is played.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Through,
    /// Single pictures of the title.
    Pictures(Pictures),
    /// What comes in.
    Live(InputId),
}

impl Player {
    /// Opens a session. Times count from `zero`.
    ///
    /// # Errors
    /// When nothing says at which pace to send.
    pub(crate) fn new(spec: Box<SessionSpec>, settings: &Settings, zero: Instant) -> Result<Self, EndReason> {
        let schedule = Schedule::new(&spec, zero)?;
        let (plan, mode) = match spec.live {
            Some(live) => (coming(live.start, false), Mode::Live(live.input)),
            None => (through(&spec, spec.start, false), Mode::Through),
        };
        let ahead_ns = settings.read_ahead.as_nanos() * u128::from(spec.play.speed_permille) / 1_000;
        let read_ahead = ReadAhead { ns: i64::try_from(ahead_ns).unwrap_or(i64::MAX), slope: schedule.slope };
        let fitting = u8::try_from(BURST_NS_MAX / schedule.interval_ns(1)).unwrap_or(u8::MAX);
        let burst = spec.play.burst.unwrap_or(settings.burst.min(fitting)).clamp(1, PACKETS as u8);
        let patience = spec.play.starved_timeout.unwrap_or(settings.starved_timeout);
        Ok(Player {
            mode,
            activity: Activity::Loading,
            null_due_ns: 0,
            is_running: !spec.play.is_paused,
            reel: Reel::new(&spec, plan, read_ahead),
            schedule,
            sender: Sender::new(&spec),
            measure: Measure::new(&spec.play),
            history: History::new(zero),
            burst,
            burst_left: 0,
            lacking_ns: None,
            patience_ns: i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX / 4),
            is_cut_off: false,
            start_token: None,
            spec,
        })
    }

    /// The live input that is played.
    pub(crate) fn input(&self) -> Option<InputId> {
        match self.mode {
            Mode::Live(input) => Some(input),
            Mode::Through | Mode::Pictures(_) => None,
        }
    }

    /// Time from burst to burst, about.
    pub(crate) fn interval_ns(&self) -> i64 {
        self.schedule.interval_ns(self.burst)
    }

    /// The number of a chunk to ask for; each is returned once.
    #[inline]
    pub(crate) fn poll_need(&mut self) -> Option<u32> {
        self.reel.queue.poll_need()
    }

    /// What control is to be told of pictures.
    #[inline]
    pub(crate) fn poll_pictures(&mut self) -> Option<Event> {
        match &mut self.mode {
            Mode::Pictures(pictures) => pictures.poll_event(&self.reel.queue, self.spec.id),
            Mode::Through | Mode::Live(_) => None,
        }
    }

    pub(crate) fn handle_chunk(&mut self, chunk: &Arc<Chunk>, counters: &mut Counters) {
        if self.reel.queue.take(chunk) {
            self.reel.flag_seam();
            let expected = match self.mode {
                Mode::Live(_) => 0,
                Mode::Through | Mode::Pictures(_) => self.spec.title.packets_of(chunk.number),
            };
            self.measure.count_chunk(chunk, expected, counters);
        }
    }

    /// The title is gone from a chunk on.
    pub(crate) fn handle_gone(&mut self, chunk: u32) {
        self.is_cut_off |= self.reel.queue.cut_off(chunk);
    }

    pub(crate) fn pause(&mut self, now_ns: i64) {
        self.is_running = false;
        self.lacking_ns = None;
        if matches!(self.activity, Activity::Playing | Activity::Starved) {
            self.enter(now_ns, Activity::Paused);
        }
    }

    pub(crate) fn resume(&mut self) {
        self.is_running = true;
    }

    /// Goes on at another place, at normal speed, as soon as its chunk is there.
    pub(crate) fn seek(&mut self, now_ns: i64, to: u64) {
        if self.input().is_some() {
            return;
        }
        let end = end_packet(&self.spec);
        self.replace(now_ns, through(&self.spec, to.min(end), true), Mode::Through);
        self.reel.rewriter.join_offsets();
        self.schedule.prepare_through();
    }

    /// Goes on elsewhere in the live input; what is between is not sent, and counters go on.
    pub(crate) fn jump(&mut self, now_ns: i64, to: live::Start) {
        if self.input().is_some() {
            self.replace(now_ns, coming(to, true), self.mode);
        }
    }

    /// Shows single pictures.
    pub(crate) fn show(&mut self, now_ns: i64, picks: Arc<[Pick]>, run: u64) {
        if self.input().is_some() {
            return;
        }
        let mode = Mode::Pictures(Pictures::new(run, picks.is_empty()));
        self.replace(now_ns, Plan::Pictures { picks, next: 0, at: 0 }, mode);
        self.schedule.prepare_pictures(now_ns);
    }

    /// Shows more of them.
    pub(crate) fn show_more(&mut self, picks: &[Pick], run: u64) {
        if let Mode::Pictures(pictures) = &mut self.mode
            && pictures.add(run)
        {
            self.reel.queue.add_pictures(picks);
        }
    }

    /// Ends elsewhere.
    pub(crate) fn set_end(&mut self, end: Option<u64>) {
        self.spec.end = end;
        // What was gone is asked for again.
        let asks_again = self.reel.queue.set_end(end_packet(&self.spec), loops_from(&self.spec));
        self.is_cut_off &= !asks_again;
    }

    fn replace(&mut self, now_ns: i64, plan: Plan, mode: Mode) {
        self.reel.activate();
        self.schedule.leave(&self.reel, now_ns);
        self.reel.queue.replace(plan);
        self.mode = mode;
        (self.lacking_ns, self.is_cut_off) = (None, false);
        self.burst_left = 0;
        self.enter(now_ns, Activity::Loading);
    }

    /// Whether it waits for a time to go on at (`begin`): its next packets are there, and nobody paused it.
    pub(crate) fn can_begin(&self) -> bool {
        let waits = self.activity != Activity::Playing && self.is_running;
        waits && !self.reel.queue.has_ended() && self.reel.supply(PACKETS) != Supply::Late
    }

    /// What comes next in a live input is there, but not due yet, and until then null packets are wanted.
    pub(crate) fn fills_gap(&self, now_ns: i64) -> bool {
        let is_wanted = self.activity == Activity::Starved && self.fills_gaps();
        let is_late = |due_ns| due_ns > self.null_due_ns.max(now_ns);
        is_wanted && self.schedule.live_due_ns(&self.reel).is_some_and(is_late)
    }

    fn fills_gaps(&self) -> bool {
        self.spec.play.when_starved == WhenStarved::Nulls
    }

    /// `begin` no earlier than this.
    pub(crate) fn free_ns(&self) -> i64 {
        let free_ns = match self.activity {
            Activity::Starved => self.null_due_ns.max(self.schedule.due_ns),
            Activity::Paused => self.schedule.due_ns,
            Activity::Loading | Activity::Playing => i64::MIN,
        };
        self.schedule.live_due_ns(&self.reel).map_or(free_ns, |due_ns| due_ns.max(free_ns))
    }

    /// Nothing is to be sent: the plan is empty, or all of it is skipped.
    pub(crate) fn has_ended(&self) -> bool {
        let goes_on = matches!(self.mode, Mode::Pictures(_)) || self.spec.play.holds_at_end;
        self.reel.queue.has_ended() && (self.is_cut_off || !goes_on) && !self.is_parity_left()
    }

    /// Why it has ended.
    pub(crate) fn end_reason(&self) -> EndReason {
        if self.is_cut_off { EndReason::Gone } else { EndReason::Ended }
    }

    /// Until when it waits for chunks without which it cannot go on.
    pub(crate) fn await_chunk(&mut self, now_ns: i64) -> Option<i64> {
        if !matches!(self.activity, Activity::Playing) {
            let lacks = match self.mode {
                Mode::Through => !self.reel.queue.has_ended(),
                // More of them are looked for, or a place to go on at.
                Mode::Pictures(_) => true,
                Mode::Live(_) => false,
            };
            let lacks = lacks && self.is_running && self.activity != Activity::Paused;
            self.lacking_ns = lacks.then(|| self.lacking_ns.unwrap_or(now_ns));
        }
        self.patience_ends_ns()
    }

    /// A live input is waited for as long as it takes.
    fn patience_ends_ns(&self) -> Option<i64> {
        let lacking_ns = self.lacking_ns.filter(|_| self.input().is_none())?;
        Some(lacking_ns.saturating_add(self.patience_ns))
    }

    /// What it does, as others see it: a padded stream plays null packets while it is starved.
    #[inline]
    pub(crate) fn shown_activity(&self) -> Activity {
        match self.activity {
            Activity::Playing if self.lacking_ns.is_some() => Activity::Starved,
            activity => activity,
        }
    }

    /// Since when it is starved.
    fn starved_since_ns(&self) -> Option<i64> {
        match self.activity {
            Activity::Starved => Some(self.schedule.due_ns),
            Activity::Playing => self.lacking_ns,
            Activity::Loading | Activity::Paused => None,
        }
    }

    /// Goes on at `at_ns`.
    pub(crate) fn begin(&mut self, at_ns: i64) {
        match self.activity {
            Activity::Loading | Activity::Playing => self.begin_run(at_ns),
            Activity::Paused | Activity::Starved => {
                let held_ns = at_ns - self.schedule.due_ns;
                if self.activity != Activity::Paused {
                    self.measure.stats.starved += Duration::from_nanos(held_ns.max(0) as u64);
                }
                if !self.schedule.resume_live(&self.reel, at_ns) {
                    self.schedule.shift(&mut self.reel, held_ns);
                }
            }
        }
        (self.burst_left, self.lacking_ns) = (0, None);
        self.enter(at_ns, Activity::Playing);
    }

    /// Every change of the state is one of these.
    fn enter(&mut self, at_ns: i64, activity: Activity) {
        debug_assert!(
            match (self.activity, activity) {
                (Activity::Playing, Activity::Playing) => false,
                (_, Activity::Playing) => self.is_running && self.schedule.has_run(),
                (from, Activity::Paused | Activity::Starved) => from != Activity::Loading && self.schedule.has_run(),
                (_, Activity::Loading) => true,
            },
            "{:?} to {activity:?}",
            self.activity
        );
        self.activity = activity;
        self.history.note(at_ns, activity, self.reel.position());
    }

    /// Begins to play at the reel's front; the first packet is due at `at_ns`.
    fn begin_run(&mut self, at_ns: i64) {
        let is_first = self.measure.stats.datagrams == 0;
        if self.schedule.begin(&mut self.reel, at_ns, is_first) {
            self.sender.mark_splice();
        }
    }

    /// At a splice: ends the run, and begins the next at once.
    fn pass_splice(&mut self) {
        if !self.reel.queue.is_at_splice() || self.reel.queue.peek().is_none() {
            return;
        }
        if self.reel.queue.pick().is_some() {
            // The output's clock goes on, so only the counters have to be seen to.
            return self.reel.splice(false);
        }
        let end_ns = self.schedule.run_end_ns(&self.reel);
        self.begin_run(end_ns);
    }

    /// Writes the burst that is due, if one is. **Call it until it is not `Full`.**
    pub(crate) fn transmit(&mut self, now_ns: i64, output: &mut Output<'_>) -> Next {
        if self.patience_ends_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            return Next::Ended(EndReason::Starved);
        }
        match self.activity {
            Activity::Loading | Activity::Paused => return Next::Wait,
            Activity::Starved => return self.transmit_starved(now_ns, output),
            Activity::Playing => {}
        }
        for _ in 0..self.bursts_max(output.settings.tick) {
            if self.schedule.due_ns > now_ns {
                return Next::At(self.schedule.due_ns);
            }
            match self.send_burst(now_ns, output) {
                Next::At(_) if self.schedule.due_ns <= now_ns => {}
                next => return next,
            }
        }
        // Late: it catches up at twice its pace, and not in one go.
        Next::At(now_ns + (self.schedule.step_ns / 2).max(1))
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
        let was_due_ns = self.schedule.due_ns;
        while self.burst_left > 0 {
            if !self.send_parity(output) || !output.has_room() {
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
        if self.reel.queue.has_ended() {
            return self.end();
        }
        self.schedule.step(&self.reel, was_due_ns);
        Next::At(self.schedule.due_ns)
    }

    fn send_parity(&mut self, output: &mut Output<'_>) -> bool {
        self.sender.send_parity(output, &mut self.measure)
    }

    /// Pictures that are all shown leave the session waiting for a place to go on at; so does an end at which it holds.
    fn end(&mut self) -> Next {
        self.burst_left = 0;
        if self.is_parity_left() {
            return Next::At(self.release_parity());
        }
        if self.has_ended() {
            return Next::Ended(self.end_reason());
        }
        if let Mode::Pictures(pictures) = &mut self.mode {
            pictures.is_shown = true;
            // What comes next begins anew in the constant rate as well.
            self.schedule.leave_pictures();
        }
        self.enter(self.schedule.due_ns, Activity::Loading);
        Next::Wait
    }

    /// All is sent but parity, which leaves at the pace that was.
    fn is_parity_left(&self) -> bool {
        // Behind pictures something else is about to come.
        self.sender.holds_parity() && self.activity == Activity::Playing && !matches!(self.mode, Mode::Pictures(_))
    }

    /// Lets one more column go, and says when. The schedule moves on with it, so what may yet come is not late.
    fn release_parity(&mut self) -> i64 {
        if let Some(encoder) = &self.sender.fec {
            let datagram_ns = self.interval_ns() / i64::from(self.burst);
            self.schedule.shift(&mut self.reel, datagram_ns * i64::from(encoder.fec.rows()));
        }
        self.sender.release_parity(self.schedule.due_ns);
        self.schedule.due_ns
    }

    fn note_lateness(&mut self, now_ns: i64, output: &mut Output<'_>) {
        let late_ns = now_ns - self.schedule.due_ns;
        let interval_ns = || self.schedule.interval_ns(self.burst);
        self.measure.count_burst(now_ns, late_ns, interval_ns, output.totals);
        if late_ns > output.settings.late_max.as_nanos() as i64 {
            self.measure.count_shift(output.totals);
            self.schedule.shift(&mut self.reel, late_ns);
        }
    }

    /// A datagram has not all its packets. When it is the first of its burst, it is due, and the stream is starved.
    fn handle_late(&mut self, was_due_ns: i64, output: &mut Output<'_>) -> Next {
        let is_first = self.burst_left == self.burst;
        self.burst_left = 0;
        if !is_first {
            let next_ns = self.schedule.next_due(&self.reel).unwrap_or(self.schedule.due_ns);
            self.schedule.due_ns = next_ns.max(was_due_ns + 1);
            return Next::At(self.schedule.due_ns);
        }
        self.enter(was_due_ns, Activity::Starved);
        self.null_due_ns = was_due_ns;
        self.measure.count_underrun(output.totals);
        self.transmit_starved(was_due_ns, output)
    }

    /// Sends what a silent input left over, and null packets, if they are wanted, until the next chunk is there.
    fn transmit_starved(&mut self, now_ns: i64, output: &mut Output<'_>) -> Next {
        while self.left_over_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            if !self.send_parity(output) || !output.has_room() {
                return Next::Full;
            }
            self.write(self.reel.left_over(), output);
            self.null_due_ns += self.interval_ns();
        }
        if self.fills_gaps() && self.null_due_ns <= now_ns {
            for _ in 0..self.burst {
                if !self.send_parity(output) || !output.has_room() {
                    break;
                }
                self.null_datagram(self.null_due_ns, output);
            }
            self.null_due_ns = (self.null_due_ns + self.interval_ns()).max(now_ns);
        }
        let null_due_ns = self.fills_gaps().then_some(self.null_due_ns);
        let due_ns = [null_due_ns, self.left_over_due_ns(), self.patience_ends_ns()];
        due_ns.into_iter().flatten().min().map_or(Next::Wait, Next::At)
    }

    /// When the last packets of an input that is silent are sent after all: at once where null packets fill the gap anyway.
    fn left_over_due_ns(&self) -> Option<i64> {
        let patience_ns = if self.fills_gaps() { 0 } else { LEFT_OVER_NS };
        (self.input().is_some() && self.reel.left_over() > 0).then(|| self.schedule.due_ns + patience_ns)
    }

    /// Who is to be told that it plays now: where it begins, or goes on (RTP-Info, RFC 2326 §12.33).
    pub(crate) fn poll_started(&mut self) -> Option<(u64, Start)> {
        let token = self.start_token.take_if(|_| self.activity == Activity::Playing)?;
        let rtp = self.sender.rtp_point(self.schedule.rtp_time(&self.reel));
        Some((token, Start { position: self.reel.position(), rtp }))
    }

    /// Its numbers as they are now.
    pub(crate) fn stats(&self, now_ns: i64) -> SessionStats {
        let Measure { stats, first_ns, monitor, .. } = &self.measure;
        let has_ended = self.reel.queue.has_ended() && !matches!(self.mode, Mode::Pictures(_));
        let is_waiting = self.activity == Activity::Loading && (!self.is_running || has_ended);
        let age_ns = first_ns.map_or(0, |first_ns| now_ns - first_ns);
        let starved_ns = self.starved_since_ns().map_or(0, |since_ns| now_ns - since_ns);
        SessionStats {
            activity: if is_waiting { Activity::Paused } else { self.shown_activity() },
            starved: stats.starved + Duration::from_nanos(starved_ns.max(0) as u64),
            position: self.reel.position(),
            clock_jumps: self.schedule.clock_jumps(),
            age: Duration::from_nanos(age_ns.max(0) as u64),
            rtp: self.sender.rtp_point(now_ns).filter(|_| stats.datagrams > 0),
            steps: self.history.steps(),
            report: monitor.as_ref().map(|monitor| Box::new(monitor.report())),
            ..stats.clone()
        }
    }
}

/// All of the title from a packet on.
fn through(spec: &SessionSpec, next: u64, splice: bool) -> Plan {
    Plan::Through { next, end: end_packet(spec), again_from: loops_from(spec), splice }
}

/// What comes in, from there on.
fn coming(from: live::Start, splice: bool) -> Plan {
    Plan::Live { next: from.chunk, packet: from.packet, splice }
}

fn end_packet(spec: &SessionSpec) -> u64 {
    spec.end.unwrap_or(u64::MAX).min(spec.title.packet_count())
}

fn loops_from(spec: &SessionSpec) -> Option<u64> {
    spec.play.looped.then_some(spec.start)
}
