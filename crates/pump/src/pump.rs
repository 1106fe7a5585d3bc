//! All streams of one worker.
//!
//! A datagram's way: `handle_timeout` finds the streams that are due on the wheel → `poll_transmit` → `Player::transmit`
//! (a burst of seven packets each, from the chunk into the outbox) → back on the wheel for the burst after.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use slab::Slab;
use wheel::{TimerId, Wheel};
use wire::{LinkEvent, Outbox, Product, Token};

use crate::chunk::Chunk;
use crate::connections::Connections;
use crate::inputs::{Inputs, Look};
use crate::phase::{Phase, Phases};
use crate::player::{Next, Output, Player};
use crate::spec::{
    Activity, Command, Counters, EndReason, Event, InputId, SessionId, SessionSpec, SessionStats, Settings,
};
use crate::totals::Totals;

/// Streams whose state is read together before they are served.
const READ_TOGETHER: usize = 16;

/// The pump of one worker. It holds no socket and reads no clock.
#[derive(Debug)]
pub struct Pump {
    start: Instant,
    settings: Settings,
    sessions: Slab<Session>,
    /// By the key of the session.
    alarms: Vec<Alarm>,
    by_id: HashMap<SessionId, usize, FxBuildHasher>,
    wheel: Wheel<usize>,
    /// Sessions whose time has come, and that have not been served.
    due: VecDeque<usize>,
    /// So many of these, from the front on, have been read into the caches.
    read: usize,
    events: VecDeque<Event>,
    phases: Phases,
    connections: Connections,
    inputs: Inputs,
    totals: Totals,
}

#[derive(Debug)]
struct Session {
    player: Player,
    phase: Phase,
    /// As it is among `Counters::playing` or `Counters::starved`.
    counted: Activity,
}

/// What the wheel has to know of a session. These lie close together, as each tick looks at those of many sessions.
#[derive(Clone, Copy, Debug, Default)]
struct Alarm {
    timer: Option<TimerId>,
    /// The session stands in `due`.
    is_due: bool,
}

impl Pump {
    /// A pump without sessions, whose times count from `now`.
    pub fn new(now: Instant, settings: Settings) -> Self {
        Pump {
            start: now,
            wheel: Wheel::new(now, settings.tick),
            settings,
            sessions: Slab::new(),
            alarms: Vec::new(),
            by_id: HashMap::default(),
            due: VecDeque::new(),
            read: 0,
            events: VecDeque::new(),
            phases: Phases::default(),
            connections: Connections::default(),
            inputs: Inputs::default(),
            totals: Totals::default(),
        }
    }

    /// Takes what control asks for.
    pub fn handle_command(&mut self, now: Instant, command: Command) {
        let now_ns = self.ns(now);
        match command {
            Command::Open(spec) => self.open(now_ns, spec),
            Command::Chunk { session, chunk } => self.take_chunk(now_ns, session, &chunk),
            Command::Gone { session, chunk } => self.with(session, now_ns, |player| player.handle_gone(chunk)),
            Command::LiveChunk { input, chunk, oldest, .. } => self.take_live(now_ns, input, &chunk, oldest),
            Command::LiveGone(input) => self.inputs.forget(input),
            Command::Jump { session, to } => self.with(session, now_ns, |player| player.jump(now_ns, to)),
            Command::Pause(session) => self.with(session, now_ns, |player| player.pause(now_ns)),
            Command::Resume(session) => self.with(session, now_ns, |player| player.resume()),
            Command::Seek { session, to } => self.with(session, now_ns, |player| player.seek(now_ns, to)),
            Command::SetEnd { session, end } => self.with(session, now_ns, |player| player.set_end(end)),
            Command::Trick { session, picks, run } => {
                self.with(session, now_ns, |player| player.show(now_ns, picks, run));
            }
            Command::MorePictures { session, picks, run } => {
                self.with(session, now_ns, |player| player.show_more(&picks, run))
            }
            Command::AwaitStart { session, token } => self.await_start(session, token),
            Command::Close(session) => {
                if let Some(&key) = self.by_id.get(&session) {
                    self.end(key, now_ns, EndReason::Closed);
                }
            }
            Command::Limit(sessions_max) => self.settings.sessions_max = sessions_max,
            Command::Adopt { connection, descriptor, patience } => {
                self.connections.adopt(connection, descriptor, patience);
            }
            Command::Say { connection, bytes, heard } => self.connections.say(connection, &bytes, heard),
            Command::Hold { connection, channel } => self.connections.hold(connection, channel),
            Command::LetGo(connection) => self.connections.let_go(connection),
            Command::HangUp(connection) => self.connections.hang_up(connection),
            Command::Inspect { session, token } => {
                let stats = self.by_id.get(&session).map(|key| Box::new(self.sessions[*key].player.stats(now_ns)));
                self.events.push_back(Event::Stats { token, stats });
            }
        }
    }

    fn open(&mut self, now_ns: i64, spec: Box<SessionSpec>) {
        let id = spec.id;
        if self.sessions.len() >= self.settings.sessions_max {
            return self.refuse(id, EndReason::Full);
        }
        if self.by_id.contains_key(&id) {
            return self.refuse(id, EndReason::InUse);
        }
        let player = match Player::new(spec, &self.settings, self.start) {
            Ok(player) => player,
            Err(reason) => return self.refuse(id, reason),
        };
        let phase = self.phases.take(player.interval_ns());
        self.totals.counters.sessions += 1;
        self.totals.counters.monitored += u64::from(player.spec.play.is_monitored);
        let key = self.sessions.insert(Session { player, phase, counted: Activity::Loading });
        self.alarms.resize(self.alarms.len().max(key + 1), Alarm::default());
        self.by_id.insert(id, key);
        self.settle(key, now_ns);
    }

    fn refuse(&mut self, session: SessionId, reason: EndReason) {
        self.events.push_back(Event::SessionEnded { session, reason, stats: Box::default() });
    }

    /// Does something to a session's stream, and what follows from it.
    fn with(&mut self, id: SessionId, now_ns: i64, change: impl FnOnce(&mut Player)) {
        if let Some(&key) = self.by_id.get(&id) {
            change(&mut self.sessions[key].player);
            self.settle(key, now_ns);
        }
    }

    /// Sees to what follows from a change, in this order: what the stream needs is asked for, and taken where it lies here
    /// already; then it goes on if it can, at the next time that has its phase, or ends; and whoever wants to know hears
    /// of it.
    fn settle(&mut self, key: usize, now_ns: i64) {
        self.ask(key);
        let Session { player, phase, .. } = &mut self.sessions[key];
        if player.can_begin() && !player.fills_gap(now_ns) {
            let not_before = player.spec.not_before.map_or(i64::MIN, |at| since(self.start, at));
            let from_ns = now_ns.max(not_before).max(player.free_ns());
            let at_ns = phase.next_ns(from_ns, player.interval_ns());
            player.begin(at_ns);
            self.schedule(key, at_ns);
        } else if player.has_ended() {
            let reason = player.end_reason();
            return self.end(key, now_ns, reason);
        } else if let Some(at_ns) = player.await_chunk(now_ns).filter(|_| self.alarms[key].timer.is_none()) {
            self.schedule(key, at_ns);
        }
        self.tell_started(key);
        self.count_playing(key);
    }

    fn count_playing(&mut self, key: usize) {
        let Session { player, counted, .. } = &mut self.sessions[key];
        let before = std::mem::replace(counted, player.shown_activity());
        self.totals.move_session(before, *counted);
    }

    fn await_start(&mut self, session: SessionId, token: u64) {
        let Some(&key) = self.by_id.get(&session) else {
            return self.events.push_back(Event::Started { token, start: None });
        };
        let forgotten = self.sessions[key].player.start_token.replace(token);
        self.events.extend(forgotten.map(|token| Event::Started { token, start: None }));
        self.tell_started(key);
    }

    fn tell_started(&mut self, key: usize) {
        if let Some((token, start)) = self.sessions[key].player.poll_started() {
            self.events.push_back(Event::Started { token, start: Some(start) });
        }
    }

    fn ask(&mut self, key: usize) {
        let player = &mut self.sessions[key].player;
        let session = player.spec.id;
        while let Some(chunk) = player.poll_need() {
            match player.input().map(|input| self.inputs.look(input, chunk, session)) {
                Some(Look::Here(chunk)) => player.handle_chunk(&chunk, &mut self.totals.counters),
                Some(Look::Waits) => {}
                Some(Look::Gone) | None => self.events.push_back(Event::Need { session, chunk }),
            }
        }
        while let Some(event) = player.poll_pictures() {
            self.events.push_back(event);
        }
    }

    fn take_chunk(&mut self, now_ns: i64, session: SessionId, chunk: &Arc<Chunk>) {
        let Some(&key) = self.by_id.get(&session) else { return };
        self.sessions[key].player.handle_chunk(chunk, &mut self.totals.counters);
        self.settle(key, now_ns);
    }

    /// Sessions that waited for the chunk get it, and go on.
    fn take_live(&mut self, now_ns: i64, input: InputId, chunk: &Arc<Chunk>, oldest: u32) {
        for (session, number) in self.inputs.push(input, chunk, oldest) {
            if number == chunk.number {
                self.take_chunk(now_ns, session, chunk);
            } else {
                self.events.push_back(Event::Need { session, chunk: number });
            }
        }
    }

    /// Reads what the next streams need, all of them at once: each lies elsewhere in memory, and to wait for one after the
    /// other takes longer than all else that a burst costs here.
    fn read_together(&mut self) {
        if self.read > 0 {
            return;
        }
        let next = || self.due.iter().take(READ_TOGETHER).filter_map(|key| self.sessions.get(*key));
        std::hint::black_box(next().fold(0, |sum, session| sum ^ session.player.touch()));
        std::hint::black_box(next().fold(0, |sum, session| sum ^ session.player.touch_plan()));
        std::hint::black_box(next().fold(0, |sum, session| sum ^ session.player.touch_chunk()));
        self.read = self.due.len().min(READ_TOGETHER);
    }

    /// What follows from a burst: one that plays on only asks for what it needs next. What another waits for may be there.
    fn go_on(&mut self, key: usize, now_ns: i64, next: Next) {
        match next {
            Next::Ended(reason) => return self.end(key, now_ns, reason),
            Next::At(at_ns) => self.schedule(key, at_ns),
            Next::Wait | Next::Full => {}
        }
        let Session { player, counted, .. } = &self.sessions[key];
        if player.activity != Activity::Playing {
            return self.settle(key, now_ns);
        }
        if player.shown_activity() != *counted {
            self.count_playing(key);
        }
        self.ask(key);
    }

    fn schedule(&mut self, key: usize, at_ns: i64) {
        let alarm = &mut self.alarms[key];
        if let Some(timer) = alarm.timer.take() {
            self.wheel.cancel(timer);
        }
        alarm.timer = Some(self.wheel.insert_ns(at_ns.max(0) as u64, key));
    }

    fn end(&mut self, key: usize, now_ns: i64, reason: EndReason) {
        let Session { player, phase, counted } = self.sessions.remove(key);
        let Alarm { timer, is_due } = std::mem::take(&mut self.alarms[key]);
        let session = player.spec.id;
        self.by_id.remove(&session);
        self.phases.give(phase);
        if let Some(timer) = timer {
            self.wheel.cancel(timer);
        }
        if is_due {
            self.due.retain(|due| *due != key);
        }
        self.events.extend(player.start_token.map(|token| Event::Started { token, start: None }));
        self.totals.move_session(counted, Activity::Loading);
        let counters = &mut self.totals.counters;
        counters.sessions -= 1;
        counters.monitored -= u64::from(player.spec.play.is_monitored);
        if counters.sessions == 0 {
            self.totals.forget_worst();
        }
        let stats: Box<SessionStats> = Box::new(player.stats(now_ns));
        self.events.push_back(Event::SessionEnded { session, reason, stats });
    }

    /// What control has to know, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// All numbers of this worker.
    pub fn counters(&self) -> &Counters {
        &self.totals.counters
    }

    fn ns(&self, at: Instant) -> i64 {
        since(self.start, at)
    }
}

/// Its sockets only send; its connections are clients'.
impl Product for Pump {
    /// Hears what became of a connection's link.
    fn handle_link(&mut self, _: Instant, token: Token, event: LinkEvent<'_>, _: &mut Outbox) {
        self.connections.handle_link(token, event, &mut self.events, &mut self.totals.counters);
    }

    /// Finds the streams that are due.
    fn handle_timeout(&mut self, now: Instant, _: &mut Outbox) {
        let now_ns = self.ns(now);
        self.totals.handle_time(now_ns);
        while let Some(key) = self.wheel.pop_due_ns(now_ns as u64) {
            let alarm = &mut self.alarms[key];
            alarm.timer = None;
            if !alarm.is_due {
                alarm.is_due = true;
                self.due.push_back(key);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let now_ns = self.ns(now);
        if self.connections.transmit(out) {
            return true;
        }
        while let Some(&key) = self.due.front() {
            self.read_together();
            let Pump { connections, totals, settings, .. } = self;
            let output = &mut Output { out, connections, totals, settings };
            match self.sessions[key].player.transmit(now_ns, output) {
                Next::Full => return true,
                next => {
                    self.due.pop_front();
                    self.read = self.read.saturating_sub(1);
                    self.alarms[key].is_due = false;
                    self.go_on(key, now_ns, next);
                }
            }
        }
        false
    }
}

/// Nanoseconds from `start` to `at`; zero when that is earlier.
fn since(start: Instant, at: Instant) -> i64 {
    i64::try_from(at.saturating_duration_since(start).as_nanos()).unwrap_or(i64::MAX)
}
