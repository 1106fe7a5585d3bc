//! All sessions and streams of one worker.
//!
//! A packet's way: `handle_datagram` → `Session::handle_rtp` (decrypt) → `Ups::handle_rtp` (find the layer) →
//! `Stream::push` (into the log, and into the batches for other workers) → `poll_transmit` → `Downs::send` →
//! `DownTrack::send` (header and seal into the outbox, viewer by viewer). On another worker the way begins at `handle_post`.

mod answers;
mod keyframes;
mod speakers;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use slab::Slab;
use wheel::Wheel;
use wire::rtcp;
use wire::rtp::{self, Kind};
use wire::{Datagram, DatagramRun, LinkEvent, LinkKind, Outbox, Path, Product, Random, Rate, Token};

use crate::batch::{BatchPool, Post, Posts};
use crate::consent::Consent;
use crate::down_track::Progress;
use crate::drops::DropReason;
use crate::io::Io;
use crate::keyframe::{KeyframeWishes, LayerKey, Urgency};
use crate::observer::{self, Observer};
use crate::places::Places;
use crate::session::Session;
use crate::settings::Settings;
use crate::spec::{
    Command, Counters, DownTrackSpec, EndReason, Event, PeerSpec, SessionId, StreamId, StreamSpec, UpTrackSpec,
    WorkerId,
};
use crate::stream::Stream;
use crate::transport::Transport;
use speakers::Speakers;
use turns::Turn;

/// The selective forwarding unit of one worker.
pub struct Rooms {
    settings: Settings,
    sessions: Slab<Session>,
    streams: Slab<Stream>,
    places: Places,
    session_by_id: HashMap<SessionId, usize, FxBuildHasher>,
    stream_by_id: HashMap<StreamId, usize, FxBuildHasher>,
    wheel: Wheel<Timer>,
    /// Who has something to send, in the order of their turns.
    turns: VecDeque<Turn>,
    /// Sessions with more to send for a reason of their own: they are new, or their burst is through. While there are some,
    /// `Turn::Due` is among the turns.
    due: VecDeque<usize>,
    speakers: Speakers,
    events: VecDeque<Event>,
    posts: Posts,
    /// What the session that was called last wished for.
    wishes: KeyframeWishes,
    /// Streams that nobody publishes or watches here since the present call began.
    left: Vec<usize>,
    /// Streams of which is told how loud they are and which layers come.
    observer: Observer,
    /// Keyframe requests that wait for room in the outbox.
    requests: Vec<(LayerKey, Urgency)>,
    random: Random,
    counters: Counters,
}

/// Who sends a datagram of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Who is where no session is.
    Stranger,
    /// Who is where a session is.
    Session,
    /// The same, beyond what a session sends by itself: somebody forges its address, or it floods.
    Flood,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    /// The session's own next deadline.
    Session(usize),
    /// The viewer may be sent its next burst.
    Paced(usize),
    /// A keyframe request was held back until now.
    Keyframe(LayerKey),
    /// What came of a stream's frame waits no longer for the rest.
    Gather(usize),
    /// The same of speakers.
    Speakers,
    /// It is time to tell of the streams that are observed.
    Observe,
    /// What is left of a stream that nobody publishes or watches here may be old by now.
    Left(usize),
}

/// The wheel's tick: a burst leaves at most so much late, and with the next wake-up of a worker that coalesces.
const TICK: Duration = Duration::from_micros(500);

/// What came last of a stream that was left comes so much later at most, from another worker.
const LEFT_MARGIN: Duration = Duration::from_secs(1);

/// A session keeps its place's packets from others for so long after something authentic last came from it.
const HOLDS_PLACE: Duration = Duration::from_secs(3);

/// STUN and DTLS datagrams of one session: browsers send 20 checks a second at most. What is more goes behind the others'.
const HANDSHAKES: Rate = Rate { burst: 128, interval: Duration::from_millis(10) };

impl Rooms {
    /// Nobody is there yet. Batches for other workers are taken from `pool`.
    pub fn new(now: Instant, worker: WorkerId, settings: Settings, pool: BatchPool) -> Self {
        let random = Random::new(settings.seed ^ u64::from(worker.0) << 48);
        Rooms {
            settings,
            sessions: Slab::new(),
            streams: Slab::new(),
            places: Places::default(),
            session_by_id: HashMap::default(),
            stream_by_id: HashMap::default(),
            wheel: Wheel::new(now, TICK),
            turns: VecDeque::new(),
            due: VecDeque::new(),
            speakers: Speakers::default(),
            events: VecDeque::new(),
            posts: Posts::new(worker, pool),
            wishes: KeyframeWishes::default(),
            left: Vec::new(),
            observer: Observer::default(),
            requests: Vec::new(),
            random,
            counters: Counters::default(),
        }
    }

    /// Takes a media datagram from the network. What cannot be used is counted and dropped.
    ///
    /// STUN and DTLS are not for the rooms; whoever drives them hands these to the negotiator.
    pub fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>, out: &mut Outbox) {
        let Datagram { path, data, .. } = datagram;
        let result = match rtp::classify(data) {
            Kind::Rtp => self.handle_rtp(now, &path, data, out),
            Kind::Rtcp => self.handle_rtcp(now, &path, data, out),
            Kind::Stun | Kind::Dtls | Kind::TurnChannel | Kind::Unknown => Err(DropReason::UnknownProtocol),
        };
        if let Err(reason) = result {
            self.counters.drops.add(reason);
        }
        self.send_keyframe_requests(now, out);
    }

    fn handle_rtp(&mut self, now: Instant, path: &Path, data: &mut [u8], out: &mut Outbox) -> Result<(), DropReason> {
        let key = self.session_at(path)?;
        let (sessions, mut io) = self.split(now, out);
        let stored = sessions[key].handle_rtp(data, &mut io);
        if let Ok(stream) = stored {
            self.gather(now, stream);
        }
        // Of a packet that goes no further, too, the peer wants to hear that it came.
        self.reschedule(key);
        stored.map(drop)
    }

    fn handle_rtcp(&mut self, now: Instant, path: &Path, data: &mut [u8], out: &mut Outbox) -> Result<(), DropReason> {
        let key = self.session_at(path)?;
        let (sessions, mut io) = self.split(now, out);
        let session = &mut sessions[key];
        let had_wanted = session.downs.has_wanted();
        let result = session.handle_rtcp(data, &mut io);
        // While something was wanted already, it is due or waits for its burst.
        if !had_wanted && session.downs.has_wanted() {
            self.queue_due(key);
        }
        self.take_wishes(now);
        result
    }

    /// Who sends a STUN or DTLS datagram from there.
    pub fn handshake_sender(&mut self, now: Instant, path: &Path) -> Sender {
        let Some(key) = self.places.holder(path) else { return Sender::Stranger };
        let is_within = self.sessions[key].handshakes.take(now, HANDSHAKES);
        if is_within { Sender::Session } else { Sender::Flood }
    }

    /// Answers a check by which a peer asks from where it is whether it is still heard; false where it is no such one.
    pub fn handle_consent_check(&mut self, now: Instant, path: &Path, data: &[u8], out: &mut Outbox) -> bool {
        let Ok(key) = self.session_at(path) else { return false };
        let Session { transport, consent, .. } = &mut self.sessions[key];
        // A check proves the address of a TCP connection, which is for the negotiator to know.
        if transport.path != *path || path.link.kind() != LinkKind::Datagrams {
            return false;
        }
        let answer = consent.as_mut().and_then(|consent| consent.answer(now, data, path.remote));
        let Some(answer) = answer else { return false };
        transport.last_heard = now;
        if !out.push(path, answer.bytes()) {
            self.counters.drops.add(DropReason::OutboxFull);
        }
        true
    }

    fn session_at(&self, path: &Path) -> Result<usize, DropReason> {
        self.places.holder(path).ok_or(DropReason::UnknownPeer)
    }

    /// The sessions, and what a call on one of them works with.
    fn split<'a>(&'a mut self, now: Instant, out: &'a mut Outbox) -> (&'a mut Slab<Session>, Io<'a>) {
        let Rooms { sessions, streams, settings, counters, wishes, posts, .. } = self;
        (sessions, Io { now, streams, settings, counters, wishes, posts, out })
    }

    /// Takes what another worker sent.
    pub fn handle_post(&mut self, now: Instant, post: Post, out: &mut Outbox) {
        match post {
            Post::Packets(batch) => {
                if let Some(&key) = self.stream_by_id.get(&batch.stream) {
                    let stream = &mut self.streams[key];
                    stream.origin = Some(batch.from);
                    for packet in batch.packets() {
                        stream.push(packet.start, packet.meta, packet.extensions, packet.payload, &mut self.posts);
                    }
                    self.gather_from_worker(now, key);
                }
                self.posts.pool.give(batch);
            }
            Post::KeyframeWanted { stream, track, layer, urgency } => {
                if let Some(&stream) = self.stream_by_id.get(&stream) {
                    self.want_keyframe(now, LayerKey { stream, track, layer }, urgency);
                }
            }
            Post::Clock { stream, track, layer, clock } => {
                if let Some(&key) = self.stream_by_id.get(&stream) {
                    self.streams[key].set_clock(track, layer, clock, &mut self.posts);
                }
            }
        }
        self.send_keyframe_requests(now, out);
    }

    /// Takes what control asks for.
    pub fn handle_command(&mut self, now: Instant, command: Command, out: &mut Outbox) {
        match command {
            Command::OpenStream(spec) => self.open_stream(spec),
            Command::CloseStream(id) => self.close_stream(id, out),
            Command::AddSession(peer) => self.add_session(now, peer, false),
            Command::AddMember(peer) => self.add_session(now, peer, true),
            Command::Publish { session, stream, tracks } => self.publish(now, session, stream, tracks, out),
            Command::Watch { session, stream, tracks } => self.watch(now, session, stream, tracks, out),
            Command::Unpublish { session, stream } => {
                if let Some((key, stream)) = self.both(session, stream)
                    && self.streams[stream].publisher == Some(key)
                {
                    self.unpublish(key, stream);
                    self.end_if_idle(key, EndReason::StreamClosed, out);
                }
            }
            Command::Unwatch { session, stream } => {
                if let Some((key, stream)) = self.both(session, stream)
                    && self.sessions[key].downs.watches(stream)
                {
                    self.unwatch(key, stream, out);
                    self.end_if_idle(key, EndReason::StreamClosed, out);
                }
            }
            Command::Announce { session, stream } => {
                if let Some((key, stream)) = self.both(session, stream) {
                    self.sessions[key].downs.announce(stream);
                }
            }
            Command::Pause { session, stream, on } => {
                if let Some((key, stream)) = self.both(session, stream) {
                    self.hold(now, key, stream, on);
                }
            }
            Command::LimitStream { session, stream, layers, priority } => {
                if let Some((key, stream)) = self.both(session, stream) {
                    self.sessions[key].downs.set_priority(stream, priority);
                    self.sessions[key].limit(Some(stream), layers, &self.streams, now);
                    self.queue_due(key);
                }
            }
            Command::Observe { stream } => {
                if let Some(&key) = self.stream_by_id.get(&stream) {
                    self.observe(now, key);
                }
            }
            Command::MovePath { session, path } => self.move_path(now, session, path),
            Command::Consent { session } => {
                if let Some(&key) = self.session_by_id.get(&session) {
                    self.sessions[key].transport.last_heard = now;
                    // Should its place be another's.
                    self.claim_place(now, key);
                }
            }
            Command::AnswerChecks { session, credentials } => {
                if let Some(&key) = self.session_by_id.get(&session) {
                    self.sessions[key].consent = credentials.and_then(|credentials| Consent::new(now, credentials));
                }
            }
            Command::RemoveSession(session) => {
                if let Some(&key) = self.session_by_id.get(&session) {
                    self.remove(key, out);
                }
            }
            Command::Mirror { stream, to, on } => self.set_mirror(now, stream, to, on),
            Command::Limit { session, layers } => {
                if let Some(&key) = self.session_by_id.get(&session) {
                    self.sessions[key].limit(None, layers, &self.streams, now);
                    self.queue_due(key);
                }
            }
            Command::Inspect { session, token } => self.inspect(session, token),
            Command::Tell { session, token } => self.tell(session, token),
        }
        self.set_timers_of_left(now);
        self.send_keyframe_requests(now, out);
    }

    fn open_stream(&mut self, spec: StreamSpec) {
        if self.stream_by_id.contains_key(&spec.id) {
            return;
        }
        let id = spec.id;
        let key = self.streams.insert(Stream::new(spec, &self.settings));
        self.stream_by_id.insert(id, key);
        self.counters.streams += 1;
    }

    fn close_stream(&mut self, id: StreamId, out: &mut Outbox) {
        let Some(key) = self.stream_by_id.remove(&id) else { return };
        // The last first, which is found and taken out at once.
        while let Some(&viewer) = self.streams[key].viewers.last() {
            self.unwatch(viewer, key, out);
            self.end_if_idle(viewer, EndReason::StreamClosed, out);
        }
        if let Some(publisher) = self.streams[key].publisher {
            self.unpublish(publisher, key);
            self.end_if_idle(publisher, EndReason::StreamClosed, out);
        }
        if let Some((_, timer)) = self.streams.remove(key).gathered.timer {
            self.wheel.cancel(timer);
        }
        self.observer.forget(key);
        self.speakers.forget(key);
        self.turns.retain(|turn| *turn != Turn::Stream(key));
        self.requests.retain(|(layer, _)| layer.stream != key);
        self.counters.streams -= 1;
    }

    fn add_session(&mut self, now: Instant, peer: PeerSpec, is_member: bool) {
        let id = peer.session;
        if !self.places.is_open(&peer.path) {
            return self.refuse(id, EndReason::Disconnected);
        }
        if self.sessions.len() >= self.settings.sessions_max {
            return self.refuse(id, EndReason::Full);
        }
        let Ok(session) = Session::new(now, &peer, &self.settings) else {
            return self.refuse(id, EndReason::BadKeys);
        };
        let key = self.sessions.insert(Session { is_member, ..session });
        let previous = self.session_by_id.insert(id, key);
        debug_assert!(previous.is_none(), "{id:?} is unique");
        self.claim_place(now, key);
        self.counters.sessions += 1;
        self.reschedule(key);
    }

    fn publish(
        &mut self,
        now: Instant,
        session: SessionId,
        stream: StreamId,
        tracks: Vec<UpTrackSpec>,
        out: &mut Outbox,
    ) {
        // Whoever was refused, or is gone by now, has heard of it.
        let Some(&key) = self.session_by_id.get(&session) else { return };
        let Some(&stream_key) = self.stream_by_id.get(&stream) else {
            return self.end_if_idle(key, EndReason::StreamClosed, out);
        };
        if let Some(previous) = self.streams[stream_key].publisher {
            self.unpublish(previous, stream_key);
            if previous != key {
                self.end_if_idle(previous, EndReason::Replaced, out);
            }
        }
        let stream = &mut self.streams[stream_key];
        self.sessions[key].ups.add(now, stream_key, stream, tracks, &mut self.random);
        stream.publisher = Some(key);
        self.counters.publishers += 1;
        self.reschedule(key);
    }

    fn watch(
        &mut self,
        now: Instant,
        session: SessionId,
        stream: StreamId,
        tracks: Vec<DownTrackSpec>,
        out: &mut Outbox,
    ) {
        let Some(&key) = self.session_by_id.get(&session) else { return };
        let Some(&stream_key) = self.stream_by_id.get(&stream) else {
            return self.end_if_idle(key, EndReason::StreamClosed, out);
        };
        if !self.sessions[key].downs.claim(&tracks) {
            return;
        }
        if self.sessions[key].downs.watches(stream_key) {
            self.unwatch(key, stream_key, out);
        }
        let (session, stream) = (&mut self.sessions[key], &mut self.streams[stream_key]);
        let is_transport_wide = tracks.iter().any(|track| track.extensions.transport_cc.is_some());
        session.transport.expect_feedback(now, is_transport_wide, &self.settings);
        session.downs.add(now, stream_key, stream, tracks, &self.settings, &mut self.random);
        stream.add_viewer(key);
        self.counters.viewers += 1;
        self.reschedule(key);
        // It starts at a stored keyframe, or asks for one.
        self.queue_due(key);
    }

    /// The session publishes the stream no more.
    fn unpublish(&mut self, key: usize, stream: usize) {
        debug_assert_eq!(self.streams[stream].publisher, Some(key));
        self.sessions[key].ups.remove(stream);
        self.streams[stream].publisher = None;
        self.counters.publishers -= 1;
        self.note_left(stream);
    }

    /// The session watches the stream no more.
    fn unwatch(&mut self, key: usize, stream: usize, out: &mut Outbox) {
        debug_assert!(self.sessions[key].downs.watches(stream));
        let Session { transport, downs, .. } = &mut self.sessions[key];
        if downs.holds(stream) {
            self.streams[stream].note_hold(false);
        }
        let ssrcs = downs.remove(stream);
        // Where another session is by now nobody could read it.
        let is_there = self.places.holder(&transport.path) == Some(key);
        if let Some(first) = ssrcs.first().filter(|_| is_there) {
            transport.send_rtcp(out, *first, |buf| rtcp::write_bye(buf, &ssrcs));
        }
        if downs.is_empty() {
            downs.forget_pictures(&mut self.counters);
        }
        self.streams[stream].remove_viewer(key);
        self.counters.viewers -= 1;
        self.note_left(stream);
    }

    /// A stream's sessions see that what is old of it goes. When there is none, that is done once more.
    fn note_left(&mut self, stream: usize) {
        if !self.streams[stream].has_sessions() {
            self.left.push(stream);
        }
    }

    /// From now on it is told how loud the stream is and which of its layers come.
    fn observe(&mut self, now: Instant, stream: usize) {
        if self.observer.add(stream) {
            self.wheel.insert(now + observer::INTERVAL, Timer::Observe);
        }
    }

    fn set_timers_of_left(&mut self, now: Instant) {
        while let Some(stream) = self.left.pop() {
            self.wheel.insert(now + self.settings.log_span() * 2 + LEFT_MARGIN, Timer::Left(stream));
        }
    }

    /// The keys of both, where both are here.
    fn both(&self, session: SessionId, stream: StreamId) -> Option<(usize, usize)> {
        Some((*self.session_by_id.get(&session)?, *self.stream_by_id.get(&stream)?))
    }

    /// A session ends with the last stream that it publishes or watches, unless it is a member.
    fn end_if_idle(&mut self, key: usize, reason: EndReason, out: &mut Outbox) {
        if !self.sessions[key].is_member && self.sessions[key].is_idle() {
            self.end(key, reason, out);
        }
    }

    fn refuse(&mut self, session: SessionId, reason: EndReason) {
        self.events.push_back(Event::SessionEnded { session, reason });
    }

    fn move_path(&mut self, now: Instant, session: SessionId, path: Path) {
        let Some(&key) = self.session_by_id.get(&session) else { return };
        let transport = &mut self.sessions[key].transport;
        let previous = std::mem::replace(&mut transport.path, path);
        let was_cut_off = std::mem::replace(&mut transport.is_cut_off, !self.places.is_open(&path));
        transport.story.note_path(now, &path);
        self.places.leave(key, &previous);
        self.claim_place(now, key);
        if was_cut_off {
            self.queue_due(key);
        }
    }

    /// Packets from a session's path are its own, unless another is there that was heard from lately: then they stay that
    /// one's. Both have shown that they receive there, as with a NAT that gives a port away again.
    fn claim_place(&mut self, now: Instant, key: usize) {
        let Transport { path, is_cut_off, .. } = &self.sessions[key].transport;
        if *is_cut_off {
            return;
        }
        let was_heard = |holder: usize| {
            let heard = self.sessions[holder].transport.last_heard;
            now.saturating_duration_since(heard) < HOLDS_PLACE
        };
        self.places.claim(key, path, was_heard);
    }

    fn set_mirror(&mut self, now: Instant, id: StreamId, to: WorkerId, on: bool) {
        let Some(&key) = self.stream_by_id.get(&id) else { return };
        if !self.streams[key].set_mirror(to, on) {
            return;
        }
        self.streams[key].replay(to, &mut self.posts);
        // Whoever starts over there starts at a keyframe.
        for track in 0..self.streams[key].tracks.len() {
            let top = usize::from(self.streams[key].tracks[track].order.top());
            if self.streams[key].tracks[track].layers[top].log.keyframe().is_none() {
                let layer = LayerKey { stream: key, track: track as u8, layer: top as u8 };
                self.want_keyframe(now, layer, Urgency::Now);
            }
        }
    }

    /// Ends a session and says so.
    fn end(&mut self, key: usize, reason: EndReason, out: &mut Outbox) {
        let session = self.sessions[key].id;
        self.remove(key, out);
        self.events.push_back(Event::SessionEnded { session, reason });
    }

    fn remove(&mut self, key: usize, out: &mut Outbox) {
        while let Some(stream) = self.sessions[key].ups.any_stream() {
            self.unpublish(key, stream);
        }
        while let Some(stream) = self.sessions[key].downs.any_stream() {
            self.unwatch(key, stream, out);
        }
        let mut session = self.sessions.remove(key);
        session.downs.forget_pictures(&mut self.counters);
        let story = Box::new(std::mem::take(&mut session.transport.story));
        self.events.push_back(Event::StoryEnded { session: session.id, story });
        self.session_by_id.remove(&session.id);
        self.places.leave(key, &session.transport.path);
        if let Some((_, timer)) = session.timer {
            self.wheel.cancel(timer);
        }
        self.due.retain(|due| *due != key);
        self.counters.sessions -= 1;
        debug_assert_eq!(self.counters.sessions, self.sessions.len() as u64);
    }

    fn handle_session_timeout(&mut self, now: Instant, key: usize, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.timer = None;
        if session.is_silent(now, &self.settings) {
            return self.end(key, EndReason::Silent, out);
        }
        let (sessions, mut io) = self.split(now, out);
        sessions[key].handle_timeout(&mut io);
        self.take_wishes(now);
        self.sessions[key].tell_of_pauses(&self.streams, &mut self.events);
        self.sessions[key].tell_of_silence(now, &mut self.events);
        self.reschedule(key);
    }

    /// What control has to know, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What goes to other workers, oldest first.
    pub fn poll_post(&mut self) -> Option<(WorkerId, Post)> {
        self.posts.queue.pop_front()
    }

    /// Takes back a post that found its mailbox full. Its packets are lost for that worker; viewers there ask for them.
    pub fn handle_undelivered(&mut self, post: Post) {
        self.counters.drops.add(DropReason::MailboxFull);
        if let Post::Packets(batch) = post {
            self.posts.pool.give(batch);
        }
    }

    /// Counts a packet that the worker dropped for a reason of its own.
    pub fn count_drop(&mut self, reason: DropReason) {
        self.counters.drops.add(reason);
    }

    /// What was counted since the start, and what there is now.
    pub fn counters(&self) -> Counters {
        debug_assert_eq!(self.counters.streams, self.streams.len() as u64);
        debug_assert_eq!(
            self.counters.viewers,
            self.streams.iter().map(|(_, stream)| stream.viewers.len() as u64).sum()
        );
        debug_assert_eq!(
            self.counters.publishers,
            self.streams.iter().filter(|(_, stream)| stream.publisher.is_some()).count() as u64
        );
        Counters { lateness: self.wheel.lateness().clone(), ..self.counters.clone() }
    }

    /// Moves the session's entry on the wheel forward when its next deadline is earlier than that.
    fn reschedule(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        let at = session.poll_timeout(&self.settings);
        if session.timer.is_some_and(|(set, _)| set <= at) {
            return;
        }
        if let Some((_, timer)) = session.timer {
            self.wheel.cancel(timer);
        }
        session.timer = Some((at, self.wheel.insert(at, Timer::Session(key))));
    }
}

impl Product for Rooms {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        for datagram in run.into_datagrams() {
            self.handle_datagram(now, datagram, out);
        }
    }

    /// Who is on a TCP connection that is gone is sent no media until ICE has brought another way, for as long as it may be
    /// silent.
    fn handle_link(&mut self, _now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        match event {
            LinkEvent::Opened { link, .. } => self.places.open(link),
            LinkEvent::Closed { link, remote: Some(remote), .. } => {
                for key in self.places.close(link, remote) {
                    self.sessions[key].transport.is_cut_off = true;
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        while out.has_room()
            && let Some(timer) = self.wheel.pop_due(now)
        {
            match timer {
                Timer::Session(key) => self.handle_session_timeout(now, key, out),
                Timer::Paced(key) => self.queue_due(key),
                Timer::Keyframe(wanted) => self.handle_keyframe_timeout(now, wanted),
                Timer::Gather(stream) => self.handle_gather_timeout(now, stream),
                Timer::Speakers => self.handle_speakers_timeout(now),
                Timer::Observe => {
                    if self.observer.look(now, &mut self.streams, &mut self.events) {
                        self.wheel.insert(now + observer::INTERVAL, Timer::Observe);
                    }
                }
                Timer::Left(stream) => {
                    if let Some(stream) = self.streams.get_mut(stream).filter(|stream| !stream.has_sessions()) {
                        stream.tidy(now);
                    }
                }
            }
        }
        self.set_timers_of_left(now);
        self.send_keyframe_requests(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        self.post_batches();
        while let Some(&turn) = self.turns.front() {
            let progress = match turn {
                Turn::Stream(stream) => self.serve_stream(now, stream, out),
                Turn::Speakers(round) => self.serve_speakers(now, round, out),
                Turn::Due => self.serve_due(now, out),
            };
            self.turns.pop_front();
            if progress == Progress::Full {
                self.turns.push_back(turn);
                return true;
            }
        }
        self.send_keyframe_requests(now, out);
        false
    }
}
