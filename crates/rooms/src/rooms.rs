//! All sessions and streams of one worker.
//!
//! A packet's way: `handle_datagram` → `handle_rtp` (decrypt, find the layer) → `Stream::push` (into the log, and into
//! the batches for other workers) → `poll_transmit` → `Viewer::send` (header and seal into the outbox, viewer by viewer).
//! On another worker the way begins at `handle_post`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use slab::Slab;
use wheel::Wheel;
use wire::codec::MediaKind;
use wire::rtp::{self, Kind, RtpPacket};
use wire::{Datagram, LinkId, Outbox, Path, rtcp};

use crate::batch::{BatchPool, Post};
use crate::drops::DropReason;
use crate::keyframe::KeyframeWishes;
use crate::passthrough::{self, PASSED_MAX};
use crate::publisher::Publisher;
use crate::session::{Link, Role, Session};
use crate::settings::{Random, Settings};
use crate::spec::{
    Command, Counters, DownTrackSpec, EndReason, Event, PeerSpec, SessionId, StreamId, StreamSpec, UpTrackSpec,
    WorkerId,
};
use crate::stream::Stream;
use crate::viewer::{Progress, Viewer};

pub struct Rooms {
    worker: WorkerId,
    settings: Settings,
    pool: BatchPool,
    sessions: Slab<Session>,
    streams: Slab<Stream>,
    session_by_path: HashMap<(LinkId, SocketAddr), usize>,
    session_by_id: HashMap<SessionId, usize, FxBuildHasher>,
    stream_by_id: HashMap<StreamId, usize, FxBuildHasher>,
    wheel: Wheel<Timer>,
    /// Streams with packets that not all viewers have been served with.
    dirty: VecDeque<usize>,
    /// Viewers whose burst is through, with more to send.
    due: VecDeque<usize>,
    events: VecDeque<Event>,
    posts: VecDeque<(WorkerId, Post)>,
    /// Keyframe requests that wait for room in the outbox: stream key, track, layer.
    requests: Vec<(usize, u8, u8)>,
    random: Random,
    counters: Counters,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    /// The session's own next deadline.
    Session(usize),
    /// The viewer may be sent its next burst.
    Paced(usize),
    /// A keyframe request was held back until now.
    Keyframe { stream: usize, track: u8, layer: u8 },
}

/// The wheel's tick: a burst leaves at most so much late.
const TICK: std::time::Duration = std::time::Duration::from_micros(500);

impl Rooms {
    pub fn new(now: Instant, worker: WorkerId, settings: Settings, pool: BatchPool) -> Self {
        let random = Random::new(settings.seed ^ u64::from(worker.0) << 48);
        Rooms {
            worker,
            settings,
            pool,
            sessions: Slab::new(),
            streams: Slab::new(),
            session_by_path: HashMap::default(),
            session_by_id: HashMap::default(),
            stream_by_id: HashMap::default(),
            wheel: Wheel::new(now, TICK),
            dirty: VecDeque::new(),
            due: VecDeque::new(),
            events: VecDeque::new(),
            posts: VecDeque::new(),
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
            Kind::Rtp => self.handle_rtp(now, &path, data),
            Kind::Rtcp => self.handle_rtcp(now, &path, data, out),
            Kind::Stun | Kind::Dtls | Kind::TurnChannel | Kind::Unknown => Err(DropReason::UnknownProtocol),
        };
        if let Err(reason) = result {
            self.counters.drops.add(reason);
        }
        self.send_keyframe_requests(now, out);
    }

    fn handle_rtp(&mut self, now: Instant, path: &Path, data: &mut [u8]) -> Result<(), DropReason> {
        let key = *self.session_by_path.get(&(path.link, path.remote)).ok_or(DropReason::UnknownPeer)?;
        let session = &mut self.sessions[key];
        let Role::Publisher(publisher) = &mut session.role else { return Err(DropReason::NotAPublisher) };
        let len = session.opener.open_rtp(data)?;
        session.last_heard = now;
        let packet = RtpPacket::parse(&data[..len]).map_err(|_| DropReason::MalformedRtp)?;
        let stream_key = publisher.stream;
        let stream = &mut self.streams[stream_key];
        let taken = publisher.handle_rtp(now, &packet, stream);
        if let Ok(arrived) = &taken {
            let mut extensions = [0; PASSED_MAX];
            let extensions_len = passthrough::gather(&packet, &arrived.passage, &mut extensions);
            self.counters.packets_in += 1;
            let posts = &mut self.posts;
            stream.make_room(self.worker, &self.pool, |to, batch| posts.push_back((to, Post::Packets(batch))));
            stream.push(arrived.place, &arrived.meta, &extensions[..extensions_len], arrived.payload);
            self.mark_dirty(stream_key);
        }
        // Of a packet that goes no further, too, the publisher wants to hear that it came.
        self.reschedule(key);
        taken.map(drop)
    }

    fn handle_rtcp(&mut self, now: Instant, path: &Path, data: &mut [u8], out: &mut Outbox) -> Result<(), DropReason> {
        let key = *self.session_by_path.get(&(path.link, path.remote)).ok_or(DropReason::UnknownPeer)?;
        let session = &mut self.sessions[key];
        let len = session.opener.open_rtcp(data)?;
        session.last_heard = now;
        let packets = rtcp::packets(&data[..len]).map_err(|_| DropReason::MalformedRtcp)?;
        let stream_key = session.stream();
        let mut wishes = KeyframeWishes::default();
        let (Session { path, sealer, role, .. }, settings) = (session, &self.settings);
        let mut link = Link { now, path, sealer, settings, counters: &mut self.counters, out };
        for packet in packets {
            match role {
                Role::Viewer(viewer) => {
                    viewer.handle_rtcp(&packet, &self.streams[stream_key], &mut link, &mut wishes);
                }
                Role::Publisher(publisher) => {
                    if let Some((track, layer, clock)) = publisher.handle_rtcp(now, &packet, settings) {
                        let stream = &mut self.streams[stream_key];
                        stream.set_clock(track, layer, clock);
                        let id = stream.id;
                        let posts = stream.feeds().map(|to| (to, Post::Clock { stream: id, track, layer, clock }));
                        self.posts.extend(posts);
                    }
                }
            }
        }
        self.want_keyframes(now, stream_key, wishes);
        Ok(())
    }

    /// Takes what another worker sent.
    pub fn handle_post(&mut self, now: Instant, post: Post, out: &mut Outbox) {
        match post {
            Post::Packets(batch) => {
                if let Some(&key) = self.stream_by_id.get(&batch.stream) {
                    let stream = &mut self.streams[key];
                    stream.origin = Some(batch.from);
                    for packet in batch.packets() {
                        stream.push(packet.place, packet.meta, packet.extensions, packet.payload);
                    }
                    self.mark_dirty(key);
                }
                self.pool.give(batch);
            }
            Post::KeyframeWanted { stream, track, layer } => {
                if let Some(&key) = self.stream_by_id.get(&stream) {
                    self.want_keyframe(now, key, track, layer);
                }
            }
            Post::Clock { stream, track, layer, clock } => {
                if let Some(&key) = self.stream_by_id.get(&stream) {
                    self.streams[key].set_clock(track, layer, clock);
                }
            }
        }
        self.send_keyframe_requests(now, out);
    }

    /// Takes what control asks for.
    pub fn handle_command(&mut self, now: Instant, command: Command, out: &mut Outbox) {
        match command {
            Command::OpenStream(spec) => self.open_stream(spec),
            Command::CloseStream(id) => self.close_stream(id),
            Command::AddPublisher { stream, peer, tracks } => self.add_publisher(now, stream, peer, tracks),
            Command::AddViewer { stream, peer, tracks } => self.add_viewer(now, stream, peer, tracks),
            Command::MovePath { session, path } => self.move_path(session, path),
            Command::Consent { session } => {
                if let Some(&key) = self.session_by_id.get(&session) {
                    self.sessions[key].last_heard = now;
                }
            }
            Command::RemoveSession(session) => {
                if let Some(&key) = self.session_by_id.get(&session) {
                    self.remove(key);
                }
            }
            Command::Feed { stream, to, on } => self.set_feed(now, stream, to, on),
            Command::Limit { session, layers } => {
                if let Some(&key) = self.session_by_id.get(&session)
                    && let Role::Viewer(viewer) = &mut self.sessions[key].role
                {
                    viewer.set_limit(layers, &self.streams[viewer.stream], now);
                    self.due.push_back(key);
                }
            }
            Command::Inspect { session, token } => {
                let session = self.session_by_id.get(&session).map(|key| &self.sessions[*key]);
                let stats = session.map(|session| session.stats(&self.streams[session.stream()]));
                self.events.push_back(Event::Stats { token, stats });
            }
        }
        self.send_keyframe_requests(now, out);
    }

    fn open_stream(&mut self, spec: StreamSpec) {
        if self.stream_by_id.contains_key(&spec.id) {
            return;
        }
        let id = spec.id;
        let key = self.streams.insert(Stream::new(spec, &self.settings));
        self.stream_by_id.insert(id, key);
    }

    fn close_stream(&mut self, id: StreamId) {
        let Some(&key) = self.stream_by_id.get(&id) else { return };
        let stream = &self.streams[key];
        // The last first, which is found and taken out at once.
        let sessions: Vec<usize> = stream.viewers.iter().rev().chain(&stream.publisher).copied().collect();
        for session in sessions {
            self.end(session, EndReason::StreamClosed);
        }
        self.stream_by_id.remove(&id);
        self.streams.remove(key);
        self.dirty.retain(|dirty| *dirty != key);
        self.requests.retain(|(stream, ..)| *stream != key);
    }

    fn add_publisher(&mut self, now: Instant, id: StreamId, peer: PeerSpec, tracks: Vec<UpTrackSpec>) {
        let Some(&stream_key) = self.stream_by_id.get(&id) else {
            return self.refuse(peer.session, EndReason::StreamClosed);
        };
        if let Some(previous) = self.streams[stream_key].publisher {
            self.end(previous, EndReason::Replaced);
        }
        let ssrc = self.random.next_u64() as u32 | 1;
        let publisher = Publisher::new(now, stream_key, &self.streams[stream_key], tracks, ssrc);
        let Some(key) = self.add_session(now, peer, Role::Publisher(publisher)) else { return };
        self.streams[stream_key].publisher = Some(key);
    }

    fn add_viewer(&mut self, now: Instant, id: StreamId, peer: PeerSpec, tracks: Vec<DownTrackSpec>) {
        let Some(&stream_key) = self.stream_by_id.get(&id) else {
            return self.refuse(peer.session, EndReason::StreamClosed);
        };
        let stream = &self.streams[stream_key];
        let viewer = Viewer::new(now, stream_key, stream, tracks, &self.settings, &mut self.random);
        let Some(key) = self.add_session(now, peer, Role::Viewer(viewer)) else { return };
        self.streams[stream_key].viewers.push(key);
        // It starts at a stored keyframe, or asks for one.
        self.due.push_back(key);
    }

    fn add_session(&mut self, now: Instant, peer: PeerSpec, role: Role) -> Option<usize> {
        let (id, path) = (peer.session, peer.path);
        if self.sessions.len() >= self.settings.sessions_max {
            self.refuse(id, EndReason::Full);
            return None;
        }
        let Ok(session) = Session::new(now, peer, role) else {
            self.refuse(id, EndReason::BadKeys);
            return None;
        };
        let key = self.sessions.insert(session);
        self.session_by_id.insert(id, key);
        self.session_by_path.insert((path.link, path.remote), key);
        self.reschedule(key);
        Some(key)
    }

    fn refuse(&mut self, session: SessionId, reason: EndReason) {
        self.events.push_back(Event::SessionEnded { session, reason });
    }

    fn move_path(&mut self, session: SessionId, path: Path) {
        let Some(&key) = self.session_by_id.get(&session) else { return };
        let previous = std::mem::replace(&mut self.sessions[key].path, path);
        self.forget_path(key, &previous);
        self.session_by_path.insert((path.link, path.remote), key);
    }

    /// A session's packets come from there no more. Another session's may: then the way is that one's.
    fn forget_path(&mut self, key: usize, path: &Path) {
        let place = (path.link, path.remote);
        if self.session_by_path.get(&place) == Some(&key) {
            self.session_by_path.remove(&place);
        }
    }

    fn set_feed(&mut self, now: Instant, id: StreamId, to: WorkerId, on: bool) {
        let Some(&key) = self.stream_by_id.get(&id) else { return };
        if self.streams[key].feeds().any(|feed| feed == to) == on {
            return;
        }
        self.streams[key].set_feed(to, on);
        if !on {
            return;
        }
        let Rooms { streams, pool, posts, worker, .. } = self;
        streams[key].replay(*worker, pool, |post| posts.push_back((to, post)));
        // Whoever starts over there starts at a keyframe.
        for track in 0..self.streams[key].tracks.len() {
            let top = self.streams[key].tracks[track].layers.len() - 1;
            if self.streams[key].tracks[track].layers[top].log.keyframe().is_none() {
                self.want_keyframe(now, key, track as u8, top as u8);
            }
        }
    }

    /// Ends a session and says so.
    fn end(&mut self, key: usize, reason: EndReason) {
        let session = self.sessions[key].id;
        self.remove(key);
        self.events.push_back(Event::SessionEnded { session, reason });
    }

    fn remove(&mut self, key: usize) {
        let session = self.sessions.remove(key);
        self.session_by_id.remove(&session.id);
        self.forget_path(key, &session.path);
        if let Some((_, timer)) = session.timer {
            self.wheel.cancel(timer);
        }
        self.due.retain(|due| *due != key);
        let stream = &mut self.streams[session.stream()];
        match session.role {
            Role::Publisher(_) => stream.publisher = stream.publisher.filter(|publisher| *publisher != key),
            Role::Viewer(_) => stream.remove_viewer(key),
        }
    }

    /// A TCP connection is gone, and the sessions on it with it.
    pub fn handle_link_closed(&mut self, link: LinkId) {
        let gone: Vec<usize> =
            self.sessions.iter().filter(|(_, session)| session.path.link == link).map(|(key, _)| key).collect();
        for key in gone {
            self.end(key, EndReason::LinkClosed);
        }
    }

    /// When `handle_timeout` next has work.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        while out.has_room()
            && let Some(timer) = self.wheel.pop_due(now)
        {
            match timer {
                Timer::Session(key) => self.handle_session_timeout(now, key, out),
                Timer::Paced(key) => self.due.push_back(key),
                Timer::Keyframe { stream, track, layer } => {
                    let place = self.streams.get_mut(stream).and_then(|stream| stream.layer_mut(track, layer));
                    if place.is_some_and(|place| place.keyframes.handle_timeout(now)) {
                        self.requests.push((stream, track, layer));
                    }
                }
            }
        }
        self.send_keyframe_requests(now, out);
    }

    fn handle_session_timeout(&mut self, now: Instant, key: usize, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.timer = None;
        if now.saturating_duration_since(session.last_heard) >= self.settings.idle_timeout {
            return self.end(key, EndReason::Silent);
        }
        let stream_key = session.stream();
        let stream = &self.streams[stream_key];
        let mut wishes = KeyframeWishes::default();
        let Session { path, sealer, role, .. } = session;
        let mut link = Link { now, path, sealer, settings: &self.settings, counters: &mut self.counters, out };
        match role {
            Role::Viewer(viewer) => viewer.handle_timeout(stream, &mut link, &mut wishes),
            Role::Publisher(publisher) => publisher.handle_timeout(&mut link, &mut wishes),
        }
        self.want_keyframes(now, stream_key, wishes);
        self.reschedule(key);
    }

    /// Writes what is ready until the outbox is full; true when there is more.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        self.post_batches();
        while let Some(&stream_key) = self.dirty.front() {
            while let Some(&key) = self.streams[stream_key].viewers.get(self.streams[stream_key].next_viewer) {
                self.look_ahead(stream_key);
                if self.send_to(now, key, out) == Progress::Full {
                    return true;
                }
                self.streams[stream_key].next_viewer += 1;
            }
            let stream = &mut self.streams[stream_key];
            stream.next_viewer = 0;
            stream.is_dirty = false;
            self.dirty.pop_front();
        }
        while let Some(&key) = self.due.front() {
            if self.sessions.contains(key) && self.send_to(now, key, out) == Progress::Full {
                return true;
            }
            self.due.pop_front();
        }
        self.send_keyframe_requests(now, out);
        false
    }

    /// Reads what the next two viewers need, so that it comes into the caches while one seals for the viewer before them:
    /// of the second what says where the rest is, of the first the rest. Waiting for it costs a tenth of all user time.
    fn look_ahead(&self, stream: usize) {
        let stream = &self.streams[stream];
        let session = |ahead: usize| self.sessions.get(*stream.viewers.get(stream.next_viewer + ahead)?);
        std::hint::black_box((session(2).map(Session::touch), session(1).map(Session::touch_tracks)));
    }

    /// Hands what was gathered for other workers over, before the viewers here are served.
    fn post_batches(&mut self) {
        for &stream_key in &self.dirty {
            let stream = &mut self.streams[stream_key];
            let posts = &mut self.posts;
            stream.take_batches(|to, batch| posts.push_back((to, Post::Packets(batch))));
            if self.settings.equal_size_padding {
                stream.even_out();
            }
        }
    }

    fn send_to(&mut self, now: Instant, key: usize, out: &mut Outbox) -> Progress {
        let Session { path, sealer, role, .. } = &mut self.sessions[key];
        let Role::Viewer(viewer) = role else { return Progress::Done };
        let was_paced = viewer.paced_until;
        if was_paced.is_some_and(|until| until > now) {
            // Its turn comes with its timer; until then the log keeps what is new.
            return Progress::Done;
        }
        let stream_key = viewer.stream;
        let stream = &self.streams[stream_key];
        let mut wishes = KeyframeWishes::default();
        let (settings, counters) = (&self.settings, &mut self.counters);
        let progress = viewer.send(stream, &mut Link { now, path, sealer, settings, counters, out }, &mut wishes);
        if let Progress::Later(at) = progress {
            self.wheel.insert(at, Timer::Paced(key));
        }
        self.want_keyframes(now, stream_key, wishes);
        progress
    }

    fn want_keyframes(&mut self, now: Instant, stream: usize, wishes: KeyframeWishes) {
        for (track, layer) in wishes.iter() {
            self.want_keyframe(now, stream, track, layer);
        }
    }

    /// Notes that a layer's viewers need a keyframe. Requests are merged and throttled, per layer.
    fn want_keyframe(&mut self, now: Instant, stream: usize, track: u8, layer: u8) {
        let kind = self.streams[stream].tracks.get(usize::from(track)).map(|track| track.spec.kind);
        if kind != Some(MediaKind::Video) {
            return;
        }
        let Some(place) = self.streams[stream].layer_mut(track, layer) else { return };
        if place.keyframes.request(now) {
            self.requests.push((stream, track, layer));
        } else if let Some(at) = place.keyframes.take_timer() {
            self.wheel.insert(at, Timer::Keyframe { stream, track, layer });
        }
    }

    /// Sends keyframe requests on their way: to the publisher, or to the worker that has it.
    fn send_keyframe_requests(&mut self, now: Instant, out: &mut Outbox) {
        while out.has_room()
            && let Some((key, track, layer)) = self.requests.pop()
        {
            let Some(stream) = self.streams.get(key) else { continue };
            if let Some(publisher) = stream.publisher {
                let Session { path, sealer, role, .. } = &mut self.sessions[publisher];
                let mut link = Link { now, path, sealer, settings: &self.settings, counters: &mut self.counters, out };
                if let Role::Publisher(publisher) = role
                    && publisher.request_keyframe(track, layer, &mut link)
                {
                    self.counters.keyframe_requests += 1;
                }
            } else if let Some(origin) = stream.origin {
                self.posts.push_back((origin, Post::KeyframeWanted { stream: stream.id, track, layer }));
            }
        }
    }

    /// What control has to know, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What goes to other workers, oldest first.
    pub fn poll_post(&mut self) -> Option<(WorkerId, Post)> {
        self.posts.pop_front()
    }

    /// Takes back a post that found its mailbox full. Its packets are lost for that worker; viewers there ask for them.
    pub fn handle_undelivered(&mut self, post: Post) {
        self.counters.drops.add(DropReason::MailboxFull);
        if let Post::Packets(batch) = post {
            self.pool.give(batch);
        }
    }

    /// Counts a packet that the worker dropped for a reason of its own.
    pub fn count_drop(&mut self, reason: DropReason) {
        self.counters.drops.add(reason);
    }

    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.lateness = self.wheel.lateness().clone();
        counters.streams = self.streams.len() as u64;
        counters.sessions = self.sessions.len() as u64;
        counters.viewers = self.streams.iter().map(|(_, stream)| stream.viewers.len() as u64).sum();
        counters.publishers = self.streams.iter().filter(|(_, stream)| stream.publisher.is_some()).count() as u64;
        counters
    }

    fn mark_dirty(&mut self, stream: usize) {
        if !self.streams[stream].is_dirty {
            self.streams[stream].is_dirty = true;
            self.dirty.push_back(stream);
        }
    }

    /// Moves the session's entry on the wheel forward when its next deadline is earlier than that.
    fn reschedule(&mut self, key: usize) {
        let session = &mut self.sessions[key];
        let at = session.poll_timeout();
        if session.timer.is_some_and(|(set, _)| set <= at) {
            return;
        }
        if let Some((_, timer)) = session.timer {
            self.wheel.cancel(timer);
        }
        session.timer = Some((at, self.wheel.insert(at, Timer::Session(key))));
    }
}
