//! A thread that plays viewers: lets them come, reads for them, and looks who gets nothing.
//!
//! In: who they are and when each comes. Out: their totals.
//! How: level-triggered epoll; what a connection has is read in one or two calls. Those who pass come and go by the clock.
//! Viewers that are read in turn are in no epoll set: they are gone through once in so many milliseconds, which is cheaper
//! where there are thousands.
//! Cost: about a microsecond for what one viewer got at once, and two more for each look.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::stream::Stream;
use super::target::Target;
use super::totals::Totals;
use super::viewer::{Role, Shared, Viewer};

/// Viewers of whom one wait reports.
pub(super) const READY_MAX: usize = 512;

/// Who comes before others are read again, at most.
const JOINS_MAX: usize = 64;

/// How often slow ones read, and how often is looked who gets nothing.
const TICK: Duration = Duration::from_millis(20);

/// Of a thread that has nothing else to do.
const IDLE: Duration = Duration::from_millis(5);

/// How long it may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who a thread's viewers are.
pub(super) struct Setup {
    pub(super) target: Target,
    /// `None` of a stream that others make.
    pub(super) stream: Option<Arc<Stream>>,
    /// The stream is ours, so it always flows.
    pub(super) is_source: bool,
    /// Those who stay, in the order in which they come, and who pass.
    pub(super) staying: Vec<(Role, Option<SocketAddr>)>,
    pub(super) passing: Vec<Option<SocketAddr>>,
    /// How many come in a second.
    pub(super) joins_per_second: f64,
    pub(super) passing_per_second: f64,
    /// Plain viewers are read once in this time.
    pub(super) read_every: Option<Duration>,
    pub(super) receive_buffer: Option<usize>,
    /// Without a byte for so long, a viewer stalls.
    pub(super) stall: Duration,
}

enum Message {
    /// Viewers come from now on.
    Join,
    /// Those who pass do too, and it counts.
    Count,
    Report(SyncSender<Totals>),
}

/// The running thread. It ends when this is dropped.
pub(super) struct Crowd {
    messages: SyncSender<Message>,
}

impl Crowd {
    /// Starts it; nobody comes yet.
    ///
    /// # Errors
    /// When there are no descriptors for it.
    pub(super) fn start(setup: Setup) -> Result<Self> {
        let Setup { target, stream, staying, passing, .. } = &setup;
        let shared = Shared::new(target.clone(), stream.clone(), setup.receive_buffer, setup.read_every.is_some())?;
        let now = Instant::now();
        let passing = passing.iter().map(|from| (Role::Passing, *from));
        let viewers: Vec<Viewer> = (staying.iter().copied().chain(passing).zip(0..))
            .map(|((role, from), token)| Viewer::new(role, token, from, now))
            .collect();
        let (messages, inbox) = sync_channel(4);
        let mut play =
            Play { setup, viewers, shared, joins: None, passes: None, turns: None, ticked: now, newest: now };
        let run = move || {
            if let Err(error) = play.run(&inbox) {
                eprintln!("a thread of viewers ended: {error:#}");
            }
        };
        thread::Builder::new().name("viewers".into()).spawn(run).context("start a thread")?;
        Ok(Crowd { messages })
    }

    /// Lets viewers come.
    pub(super) fn join(&self) -> Result<()> {
        self.tell(Message::Join)
    }

    /// The warm-up is over: it counts, and those who pass come.
    pub(super) fn count(&self) -> Result<()> {
        self.tell(Message::Count)
    }

    pub(super) fn totals(&self) -> Result<Totals> {
        let (reply, totals) = sync_channel(1);
        self.tell(Message::Report(reply))?;
        totals.recv_timeout(PATIENCE).context("a thread of viewers does not answer")
    }

    fn tell(&self, message: Message) -> Result<()> {
        self.messages.send(message).ok().context("a thread of viewers has ended")
    }
}

/// Things that are due at even times.
struct Schedule {
    begun: Instant,
    per_second: f64,
    /// That were done.
    done: usize,
}

impl Schedule {
    fn new(begun: Instant, per_second: f64) -> Self {
        Schedule { begun, per_second, done: 0 }
    }

    /// How many are due and were not done.
    fn due(&self, now: Instant) -> usize {
        let all = now.saturating_duration_since(self.begun).as_secs_f64() * self.per_second;
        // The first is due at once.
        (all as usize).saturating_add(1).saturating_sub(self.done)
    }
}

struct Play {
    setup: Setup,
    /// Those who stay, then those who pass.
    viewers: Vec<Viewer>,
    shared: Shared,
    joins: Option<Schedule>,
    passes: Option<Schedule>,
    /// Looks at one viewer after the other.
    turns: Option<Schedule>,
    ticked: Instant,
    /// When any viewer got something last.
    newest: Instant,
}

impl Play {
    fn run(&mut self, inbox: &Receiver<Message>) -> Result<()> {
        loop {
            let wait = if self.is_busy() { Duration::from_millis(1) } else { IDLE };
            self.shared.epoll.wait(Some(wait)).context("wait for viewers")?;
            let now = Instant::now();
            let ready_count = self.shared.epoll.ready_count();
            for index in 0..ready_count {
                if let Some(ready) = self.shared.epoll.ready(index)
                    && let Some(viewer) = self.viewers.get_mut(ready.token as usize)
                {
                    viewer.handle(&mut self.shared, ready, now);
                    self.newest = now;
                }
            }
            self.let_come(now);
            self.let_pass(now);
            self.take_turns(now);
            // Who has something to read is not taken for one who gets nothing.
            if ready_count < READY_MAX {
                self.tick(now);
            }
            match inbox.try_recv() {
                Ok(message) => self.hear(message),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Something is due at even times.
    fn is_busy(&self) -> bool {
        self.passes.is_some()
            || self.turns.is_some()
            || self.joins.as_ref().is_some_and(|joins| joins.done < self.staying())
    }

    fn staying(&self) -> usize {
        self.setup.staying.len()
    }

    fn hear(&mut self, message: Message) {
        let now = Instant::now();
        match message {
            Message::Join => {
                self.joins = Some(Schedule::new(now, self.setup.joins_per_second));
                let turns = self.setup.read_every.map(|every| self.staying() as f64 / every.as_secs_f64());
                self.turns = turns.map(|per_second| Schedule::new(now, per_second));
            }
            Message::Count => {
                self.shared.totals.reset();
                self.viewers.iter_mut().for_each(Viewer::count);
                let passes = Schedule::new(now, self.setup.passing_per_second);
                self.passes = (!self.setup.passing.is_empty()).then_some(passes);
            }
            // Nobody listens any more: then nobody needs it.
            Message::Report(reply) => drop(reply.send(self.totals(now))),
        }
    }

    fn let_come(&mut self, now: Instant) {
        let staying = self.staying();
        let Some(joins) = &mut self.joins else { return };
        for _ in 0..joins.due(now).min(JOINS_MAX) {
            if joins.done == staying {
                return;
            }
            self.viewers[joins.done].join(&mut self.shared, now);
            joins.done += 1;
        }
    }

    /// Who passes has come when all others had their turn since; then he comes anew.
    fn let_pass(&mut self, now: Instant) {
        let staying = self.staying();
        let Some(passes) = &mut self.passes else { return };
        let count = self.setup.passing.len();
        for _ in 0..passes.due(now).min(JOINS_MAX) {
            self.viewers[staying + passes.done % count].join(&mut self.shared, now);
            passes.done += 1;
        }
    }

    fn take_turns(&mut self, now: Instant) {
        let staying = self.staying();
        let Some(turns) = &mut self.turns else { return };
        // Whoever is so late does not catch up.
        let (due, before) = (turns.due(now), self.shared.totals.bytes);
        for _ in 0..due.min(staying) {
            let viewer = &mut self.viewers[turns.done % staying];
            if viewer.is_in_turn(&self.shared) {
                viewer.handle_turn(&mut self.shared, now);
            }
            turns.done += 1;
        }
        turns.done += due.saturating_sub(staying);
        if self.shared.totals.bytes > before {
            self.newest = now;
        }
    }

    /// Slow ones read, and it is looked who gets nothing.
    fn tick(&mut self, now: Instant) {
        let span = now.saturating_duration_since(self.ticked);
        if span < TICK {
            return;
        }
        self.ticked = now;
        let flows = self.setup.is_source || now.saturating_duration_since(self.newest) < self.setup.stall;
        for viewer in &mut self.viewers {
            viewer.handle_allowance(&mut self.shared, span, now);
            if flows && viewer.begins_to_stall(self.setup.stall, now) {
                self.shared.totals.stall_count += 1;
            }
        }
    }

    fn totals(&mut self, now: Instant) -> Totals {
        let begun = self.joins.as_ref().map_or(0, |joins| joins.done);
        for viewer in &mut self.viewers {
            let faults = viewer.take_faults();
            self.shared.totals.faults_of(viewer.role).add(&faults);
        }
        let staying = &self.viewers[..self.staying()];
        let watching = staying.iter().filter(|viewer| viewer.is_watching()).count();
        let away = staying[..begun].iter().filter(|viewer| viewer.is_away()).count();
        let on_time = || staying.iter().filter(|viewer| viewer.role.is_on_time() && viewer.is_watching());
        let mut totals = self.shared.totals.clone();
        totals.watching = watching;
        totals.waiting = self.staying() - watching - away;
        totals.shares = on_time().map(|viewer| viewer.bytes).collect();
        on_time().filter_map(Viewer::longest_gap_ns).for_each(|gap_ns| totals.longest_gaps.record_ns(gap_ns));
        on_time().filter_map(|viewer| viewer.stalled_for(now)).for_each(|span| totals.stalls.record(span));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_at_even_times_is_done_once() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(begun, 10.0);
        assert_eq!(schedule.due(begun), 1);
        schedule.done = 1;
        assert_eq!(schedule.due(begun + Duration::from_millis(99)), 0);
        assert_eq!(schedule.due(begun + Duration::from_millis(250)), 2);
        assert_eq!(Schedule::new(begun, f64::INFINITY).due(begun + Duration::from_nanos(1)), usize::MAX);
    }
}
