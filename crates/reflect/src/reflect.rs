//! All of one worker's reflector.
//!
//! A byte's way: its writer puts it into the stream's file and tells how far that reaches (`Command::Grown`), which gives
//! each viewer of the stream a turn; in it `Feed::write` points the outbox at what lies between his position and the end,
//! and the kernel takes it from there.
//!
//! **Who is slow** keeps his position, and has his next turn when there is room (`LinkEvent::Writable`). Who is before the
//! window when that moves is taken on then and there (`Viewer::handle_lag`): so nobody ever reads what may be gone.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use slab::Slab;
use wire::{Adopted, Begun, LinkEvent, LinkId, LinkRequest, Outbox, Product, Sending, StreamOptions, Token};

use crate::coalesce::Share;
use crate::counters::Counters;
use crate::course::Course;
use crate::moved::{Handed, MovedViewer};
use crate::spec::{Command, DRAIN_MAX, EndReason, EndedViewer, Event, NewViewer, StreamId, ViewerId};
use crate::stream::Stream;
use crate::viewer::{Moved, Viewer};
use crate::window::Growth;

/// A viewer who sends more than so many bytes behind his request is closed: read from no more, he would not be seen to leave.
const IGNORED_MAX: usize = 64 * 1_024;

/// With more viewers on a worker nobody is paced to a part of his stream's rate, until there are a quarter fewer again. Without
/// the scheduler fq the kernel needs a timer and a send for each two segments of a paced connection: 10,000 viewers of 2 Mbit/s
/// took more than a core, and stalled; unpaced they take less. Who was paced has such timers at whatever rate ever after: of
/// 5,000, a thousand who had been took a sixth of all that was sent to them cost.
const PACED_MAX: usize = 250;

/// The limits and dials of one worker's reflector.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which of the products of a worker it is (`wire::Token::owner`).
    pub owner: u16,
    /// Viewers on the worker at most. One too many is closed.
    pub viewers_max: usize,
    /// Bytes that the kernel takes for a viewer beyond what is on its way: what a pace and a skip cannot take back. More where his
    /// pace is fast (`LinkRequest::Pace`).
    pub unsent_max: u32,
    /// A viewer who takes nothing of what he was sent for so long is closed.
    pub unacknowledged_max: Duration,
    /// How the kernel sends to viewers.
    pub sending: Sending,
}

impl Settings {
    /// What is good for most.
    pub fn new(owner: u16) -> Self {
        Settings {
            owner,
            viewers_max: 100_000,
            unsent_max: 128 * 1_024,
            unacknowledged_max: Duration::from_secs(60),
            sending: Sending::default(),
        }
    }
}

/// The reflector of one worker. It holds no socket and reads no clock.
#[derive(Debug)]
pub struct Reflect {
    settings: Settings,
    streams: Slab<Stream>,
    streams_by_id: HashMap<StreamId, usize, FxBuildHasher>,
    viewers: Slab<Viewer>,
    viewers_by_id: HashMap<ViewerId, usize, FxBuildHasher>,
    /// Streams whose viewers have turns to come, each once.
    growing: VecDeque<usize>,
    /// Viewers who have a turn of their own, each once (`Viewer::is_ready`).
    ready: VecDeque<usize>,
    /// Streams that have ended, with the time that their viewers have.
    drains: VecDeque<(Instant, usize)>,
    requests: VecDeque<LinkRequest>,
    events: VecDeque<Event>,
    /// Viewers are to go over to another process, when what was told before has been sent.
    wants_release: bool,
    /// Nothing is sent any more: viewers go over to another process, of whom so many are still here.
    releasing: Option<usize>,
    /// Nothing is sent yet: viewers are another process's still.
    is_held: bool,
    moved: VecDeque<Handed>,
    /// How often something was written: who was in this turn is not settled before the next.
    turn: u64,
    /// There are more viewers than are paced.
    is_crowded: bool,
    counters: Counters,
}

impl Reflect {
    /// A reflector without streams.
    pub fn new(settings: Settings) -> Self {
        Reflect {
            settings,
            streams: Slab::new(),
            streams_by_id: HashMap::default(),
            viewers: Slab::new(),
            viewers_by_id: HashMap::default(),
            growing: VecDeque::new(),
            ready: VecDeque::new(),
            drains: VecDeque::new(),
            requests: VecDeque::new(),
            events: VecDeque::new(),
            wants_release: false,
            releasing: None,
            is_held: false,
            moved: VecDeque::new(),
            turn: 0,
            is_crowded: false,
            counters: Counters::default(),
        }
    }

    /// Does what control asks.
    pub fn handle_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::AddStream { stream: id, file, units, growth, terms } => {
                let slot = self.streams.insert(Stream::new(id, file, units, &growth, terms));
                if let Some(former) = self.streams_by_id.insert(id, slot) {
                    debug_assert!(false, "a stream is added once");
                    self.end_stream(now, former);
                }
            }
            Command::ChangeStream { stream, terms } => {
                if let Some(&slot) = self.streams_by_id.get(&stream) {
                    self.streams[slot].terms = terms;
                }
            }
            Command::Grown { stream, growth, share } => {
                if let Some(&slot) = self.streams_by_id.get(&stream) {
                    self.grow(now, slot, &growth, share);
                }
            }
            Command::RemoveStream(stream) => {
                if let Some(slot) = self.streams_by_id.remove(&stream) {
                    self.end_stream(now, slot);
                }
            }
            Command::AddViewer(new) => self.add_viewer(now, *new),
            Command::TakeUp(moved) => self.take_up(now, *moved),
            Command::Release => self.wants_release = true,
            Command::Hold => (self.wants_release, self.releasing, self.is_held) = (false, None, true),
            Command::Resume => self.resume(),
            Command::Story { token, viewer } => self.tell(now, token, viewer),
            Command::EndViewer(viewer) => {
                if let Some(&slot) = self.viewers_by_id.get(&viewer) {
                    self.end(slot, EndReason::Asked, Patience::None);
                }
            }
        }
    }

    /// What control is to be told next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What goes over to another process next (`Command::Release`).
    pub fn poll_moved(&mut self) -> Option<Handed> {
        self.moved.pop_front()
    }

    /// What it has counted.
    pub fn counters(&self) -> Counters {
        let (viewers, streams) = (self.viewers.len() as u64, self.streams.len() as u64);
        Counters { viewers, streams, ..self.counters.clone() }
    }

    fn grow(&mut self, now: Instant, slot: usize, growth: &Growth, share: Share) {
        let stream = &mut self.streams[slot];
        let begin = stream.window.extent().begin;
        stream.grow(growth);
        if growth.extent.begin > begin {
            self.move_window(now, slot);
        }
        self.start_turns(slot, share);
    }

    /// Takes on who is before the window, while what is over is still there.
    fn move_window(&mut self, now: Instant, slot: usize) {
        let stream = &self.streams[slot];
        let mut lost = Vec::new();
        for &member in stream.members.slots() {
            let Some(viewer) = self.viewers.get_mut(member) else { continue };
            viewer.settle(0, &mut self.counters);
            if let Moved::Ends = viewer.handle_lag(now, stream, &mut self.counters) {
                lost.push(member);
            }
        }
        let stream = &mut self.streams[slot];
        stream.window.forget();
        self.events.push_back(Event::Passed { stream: stream.id, begin: stream.window.extent().begin });
        for viewer in lost {
            self.end(viewer, EndReason::Lagged, Patience::None);
        }
    }

    /// So many viewers of a stream are to have a turn.
    fn start_turns(&mut self, slot: usize, share: Share) {
        if self.streams[slot].members.start(share) {
            self.growing.push_back(slot);
        }
    }

    fn end_stream(&mut self, now: Instant, slot: usize) {
        let stream = &mut self.streams[slot];
        stream.is_ended = true;
        self.drains.push_back((now + DRAIN_MAX, slot));
        self.start_turns(slot, Share::ALL);
        self.let_go(slot);
    }

    /// Lets go of a stream that has ended when nobody is there any more.
    fn let_go(&mut self, slot: usize) {
        let is_over = |stream: &Stream| stream.is_ended && stream.members.slots().is_empty();
        if self.streams.get(slot).is_some_and(is_over) {
            let stream = self.streams.remove(slot);
            self.growing.retain(|growing| *growing != slot);
            self.drains.retain(|(_, drain)| *drain != slot);
            self.events.push_back(Event::Left(stream.id));
        }
    }

    fn add_viewer(&mut self, now: Instant, mut new: NewViewer) {
        let Some(place) = self.place_of(new.id, new.stream) else { return };
        let viewer = Viewer::new(now, &mut new, &self.streams[place], place);
        self.counters.viewers_begun += 1;
        self.enter(new.id, viewer, new.descriptor, new.begun);
    }

    /// Takes a viewer who comes from another process.
    fn take_up(&mut self, now: Instant, moved: MovedViewer) {
        let MovedViewer { id, stream, descriptor, unread, state } = moved;
        let Some(place) = self.place_of(id, stream) else { return };
        let Some(viewer) = Viewer::take_up(now, (id, state), &self.streams[place], place) else {
            return self.refuse(id, stream, EndReason::NoStream);
        };
        self.counters.rest_bytes += viewer.rest_bytes;
        self.enter(id, viewer, descriptor, Begun { received: unread, ..Begun::default() });
    }

    /// The slot of a newcomer's stream. `None`: he cannot be here, which is told.
    fn place_of(&mut self, id: ViewerId, stream: StreamId) -> Option<usize> {
        let found = self.streams_by_id.get(&stream).copied();
        let reason = match found {
            _ if self.releasing.is_some() => EndReason::Asked,
            Some(slot) if self.viewers.len() < self.settings.viewers_max => return Some(slot),
            Some(_) => EndReason::Full,
            None => EndReason::NoStream,
        };
        self.refuse(id, stream, reason);
        None
    }

    fn refuse(&mut self, id: ViewerId, stream: StreamId, reason: EndReason) {
        self.counters.viewers_ended.add(reason, 1);
        let ended = EndedViewer { id, stream, reason, sent_bytes: 0, course: Course::default(), age: Duration::ZERO };
        self.events.push_back(Event::ViewerEnded(ended));
    }

    /// A viewer is here, and his connection is to be.
    fn enter(&mut self, id: ViewerId, viewer: Viewer, descriptor: OwnedFd, begun: Begun) {
        let stream = viewer.stream;
        let slot = self.viewers.insert(viewer);
        self.viewers[slot].member = self.streams[stream].members.insert(slot);
        self.viewers_by_id.insert(id, slot);
        let options = StreamOptions {
            unsent_max: Some(self.settings.unsent_max),
            unacknowledged_max: Some(self.settings.unacknowledged_max),
            sending: self.settings.sending.clone(),
            ..StreamOptions::default()
        };
        let token = Token { owner: self.settings.owner, number: slot as u32 };
        let kind = Adopted::Begun(options, begun);
        self.requests.push_back(LinkRequest::Adopt { token, descriptor, kind });
    }

    /// Sends a viewer nothing more. What the kernel has may still leave, or not.
    fn end(&mut self, slot: usize, reason: EndReason, patience: Patience) {
        let Some(viewer) = self.viewers.get_mut(slot).filter(|viewer| viewer.ending.is_none()) else { return };
        viewer.ending = Some(reason);
        if let Some(link) = viewer.link {
            self.close(link, patience);
        }
    }

    fn close(&mut self, link: LinkId, patience: Patience) {
        self.requests.push_back(LinkRequest::Close { link });
        if matches!(patience, Patience::None) {
            self.requests.push_back(LinkRequest::Close { link });
        }
    }

    /// A viewer's link is gone, or never came.
    fn remove(&mut self, now: Instant, slot: usize) {
        let Some(mut viewer) = self.take_out(slot) else { return };
        viewer.forget_rest(&mut self.counters);
        let reason = viewer.ending.unwrap_or(EndReason::Closed);
        if let Some(stream) = self.streams.get(viewer.stream) {
            viewer.see(now, &stream.window);
        }
        self.counters.viewers_ended.add(reason, 1);
        self.events.push_back(Event::ViewerEnded(viewer.ended(now, reason)));
        self.let_go(viewer.stream);
        self.count_out(viewer.is_leaving);
    }

    /// Tells what became of a viewer who is here.
    fn tell(&mut self, now: Instant, token: u64, viewer: ViewerId) {
        let slot = self.viewers_by_id.get(&viewer).copied();
        let told = slot.and_then(|slot| {
            let viewer = self.viewers.get_mut(slot)?;
            viewer.settle(0, &mut self.counters);
            Some(viewer.told(now, &self.streams.get(viewer.stream)?.window))
        });
        self.events.push_back(Event::Story { token, told });
    }

    /// Takes a viewer out of all tables. What was written for him is taken.
    fn take_out(&mut self, slot: usize) -> Option<Viewer> {
        let mut viewer = self.viewers.try_remove(slot)?;
        viewer.settle(0, &mut self.counters);
        self.viewers_by_id.remove(&viewer.id);
        if viewer.is_ready {
            self.ready.retain(|ready| *ready != slot);
        }
        if let Some(stream) = self.streams.get_mut(viewer.stream)
            && let Some(other) = stream.members.remove(viewer.member)
        {
            self.viewers[other].member = viewer.member;
            self.make_ready(other);
        }
        Some(viewer)
    }

    /// Has all viewers go over to another process, as far as they can.
    fn release(&mut self) {
        if self.releasing.is_some() {
            return;
        }
        let slots: Vec<usize> = self.viewers.iter().map(|(slot, _)| slot).collect();
        let mut leaving = 0;
        for slot in slots {
            let viewer = &mut self.viewers[slot];
            if viewer.ending.is_some() {
                continue;
            }
            if viewer.is_sealed {
                continue;
            }
            viewer.is_leaving = true;
            leaving += 1;
            // One that is not open yet is given back when it is.
            self.requests.extend(viewer.link.map(|link| LinkRequest::Release { link }));
        }
        self.releasing = Some(leaving);
        if leaving == 0 {
            self.all_are_away();
        }
    }

    /// Nobody who goes over is here any more. Who is behind a cipher gets the rest of the unit that he is in, and is closed.
    fn all_are_away(&mut self) {
        self.moved.push_back(Handed::Done);
        let staying: Vec<usize> =
            self.viewers.iter().filter(|(_, viewer)| viewer.is_sealed).map(|(slot, _)| slot).collect();
        for slot in staying {
            let viewer = &mut self.viewers[slot];
            if viewer.ending.is_none()
                && let Some(stream) = self.streams.get(viewer.stream)
            {
                viewer.finish(stream, &mut self.counters);
                self.make_ready(slot);
            }
        }
    }

    /// Goes on to send.
    fn resume(&mut self) {
        (self.wants_release, self.releasing, self.is_held) = (false, None, false);
        let streams: Vec<usize> = self.streams.iter().map(|(slot, _)| slot).collect();
        streams.into_iter().for_each(|slot| self.start_turns(slot, Share::ALL));
    }

    /// A viewer's link is his own again. Who was ended meanwhile goes nowhere.
    fn give_away(&mut self, now: Instant, slot: usize, descriptor: OwnedFd, unread: Box<[u8]>) {
        if self.viewers.get(slot).is_some_and(|viewer| viewer.ending.is_some()) {
            return self.remove(now, slot);
        }
        let Some(viewer) = self.take_out(slot) else { return };
        self.counters.rest_bytes -= viewer.rest_bytes;
        self.let_go(viewer.stream);
        let is_leaving = viewer.is_leaving;
        self.moved.push_back(Handed::Viewer(Box::new(viewer.moved(now, descriptor, unread))));
        self.count_out(is_leaving);
    }

    /// One who was to go over has, or is gone.
    fn count_out(&mut self, was_leaving: bool) {
        if let Some(left) = self.releasing.as_mut().filter(|_| was_leaving) {
            *left -= 1;
            if *left == 0 {
                self.all_are_away();
            }
        }
    }

    /// Gives a viewer a turn of his own.
    fn make_ready(&mut self, slot: usize) {
        if let Some(viewer) = self.viewers.get_mut(slot)
            && !std::mem::replace(&mut viewer.is_ready, true)
        {
            self.ready.push_back(slot);
        }
    }

    /// Writes what a viewer is to get; false when the outbox has no room for it.
    fn serve(&mut self, now: Instant, slot: usize, out: &mut Outbox) -> bool {
        let is_sent_to = |viewer: &&mut Viewer| viewer.is_finishing || !(self.is_held || self.releasing.is_some());
        let Some(viewer) = self.viewers.get_mut(slot).filter(is_sent_to) else { return true };
        let Some(stream) = self.streams.get(viewer.stream) else { return true };
        let Some(link) = viewer.link.filter(|_| viewer.ending.is_none() && !viewer.is_blocked) else { return true };
        if viewer.turn == self.turn {
            return true;
        }
        viewer.settle(0, &mut self.counters);
        viewer.go_on(now, &stream.window);
        if !viewer.feed.has_more(stream.window.extent().end) {
            if stream.is_ended {
                self.end(slot, EndReason::StreamEnded, Patience::Some);
            } else if viewer.is_finishing {
                self.end(slot, EndReason::Asked, Patience::Some);
            }
            return true;
        }
        if !out.has_room_for_request() {
            return false;
        }
        if let Some(request) = viewer.pace(now, link, stream, self.is_crowded) {
            let asked = out.request(request);
            debug_assert!(asked.is_ok(), "there is room");
        }
        viewer.turn = self.turn;
        let is_done = viewer.feed.write(link, &stream.source(), out);
        if stream.is_ended || viewer.is_finishing {
            // He is closed when all of it was taken, and nobody tells of that.
            self.make_ready(slot);
        }
        is_done
    }

    /// Serves who has a turn of his own; false when the outbox is full.
    fn serve_ready(&mut self, now: Instant, out: &mut Outbox) -> bool {
        for _ in 0..self.ready.len() {
            let Some(slot) = self.ready.pop_front() else { break };
            if let Some(viewer) = self.viewers.get_mut(slot) {
                viewer.is_ready = false;
            }
            if !self.serve(now, slot, out) {
                self.make_ready(slot);
                return false;
            }
        }
        true
    }

    /// Serves the viewers of streams that have grown; false when the outbox is full.
    fn serve_streams(&mut self, now: Instant, out: &mut Outbox) -> bool {
        while let Some(&slot) = self.growing.front() {
            while let Some(viewer) = self.streams[slot].members.current() {
                if !self.serve(now, viewer, out) {
                    return false;
                }
                self.streams[slot].members.advance();
            }
            self.growing.pop_front();
        }
        true
    }

    /// Hands the engine what is asked of it; false when the outbox has no room for it.
    fn request(&mut self, out: &mut Outbox) -> bool {
        while let Some(request) = self.requests.pop_front() {
            if let Err(request) = out.request(request) {
                self.requests.push_front(request);
                return false;
            }
        }
        true
    }

    fn handle_bytes(&mut self, slot: usize, count: usize) {
        self.counters.ignored_bytes += count as u64;
        let Some(viewer) = self.viewers.get_mut(slot) else { return };
        viewer.ignored_bytes += count;
        if viewer.ignored_bytes > IGNORED_MAX {
            self.end(slot, EndReason::Talked, Patience::None);
        }
    }
}

/// Whether a viewer may still read what the kernel has for him.
#[derive(Clone, Copy, Debug)]
enum Patience {
    Some,
    None,
}

impl Product for Reflect {
    fn handle_link(&mut self, now: Instant, token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        let slot = token.number as usize;
        match event {
            LinkEvent::Opened { link, .. } => {
                let Some(viewer) = self.viewers.get_mut(slot) else { return };
                viewer.link = Some(link);
                if viewer.ending.is_some() {
                    self.close(link, Patience::None);
                } else if viewer.is_leaving {
                    self.requests.push_back(LinkRequest::Release { link });
                }
                self.make_ready(slot);
            }
            LinkEvent::Unsent { bytes, .. } => {
                let Some(viewer) = self.viewers.get_mut(slot) else { return };
                viewer.settle(bytes, &mut self.counters);
                viewer.block();
                self.counters.full += 1;
            }
            LinkEvent::Writable { .. } => {
                let Some(viewer) = self.viewers.get_mut(slot) else { return };
                viewer.is_blocked = false;
                if let Some(stream) = self.streams.get(viewer.stream) {
                    viewer.see(now, &stream.window);
                }
                self.make_ready(slot);
            }
            LinkEvent::Bytes { bytes, .. } => self.handle_bytes(slot, bytes.len()),
            LinkEvent::Failed { .. } | LinkEvent::Closed { .. } => self.remove(now, slot),
            LinkEvent::Released { descriptor, unsent, unread, .. } => {
                debug_assert!(unsent.is_empty(), "nothing is copied for a viewer, so nothing of it waits");
                self.give_away(now, slot, descriptor, unread);
            }
            // A closed connection and one that may still read look the same, until something is sent; players do the first.
            LinkEvent::InputEnded { .. } => self.end(slot, EndReason::Closed, Patience::None),
            LinkEvent::Refused { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant, _out: &mut Outbox) {
        while let Some((_, slot)) = self.drains.pop_front_if(|(at, _)| *at <= now) {
            let Some(stream) = self.streams.get(slot) else { continue };
            for viewer in stream.members.slots().to_vec() {
                self.end(viewer, EndReason::StreamEnded, Patience::None);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.drains.front().map(|(at, _)| *at)
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        self.turn += 1;
        self.is_crowded = self.viewers.len() > if self.is_crowded { PACED_MAX / 4 * 3 } else { PACED_MAX };
        // In a turn of its own: what was written in others has been taken, or that was told.
        if self.wants_release && self.growing.is_empty() && self.ready.is_empty() {
            self.wants_release = false;
            self.release();
        }
        // Newcomers do not wait for those who are here, who may never have enough. Who is served may ask for something.
        let is_all =
            self.request(out) && self.serve_ready(now, out) && self.serve_streams(now, out) && self.request(out);
        !is_all || !self.ready.is_empty() || self.wants_release
    }
}
