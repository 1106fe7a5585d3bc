//! Which streams there are, on which workers, and who publishes and watches them.
//!
//! In: what HTTP wants to do, what negotiators report, the time.
//! Out: where a session goes, and commands to workers (`poll_command`), in the order in which they have to arrive.
//! Cost: a few map lookups for each call; `handle_timeout` looks at each stream. It has no socket, no clock, no lock.
//!
//! A stream lives on the worker of its publisher, which opens it for the first session that is connected. Another worker
//! gets it (`OpenStream`, and `Mirror` at the publisher's) with its first viewer that is connected there, and loses it with
//! the last: an offer alone, which proves nothing, costs no worker anything.
//!
//! A stream without publisher waits for its return; who comes back with the same tracks finds the viewers still there.
//! Other tracks make a new stream, which takes the name from the old one, and ends that, when its publisher is connected.
//! Until then viewers get the old one; of several that wait each takes the name when it is connected.
//!
//! Who waits has no part in any limit but those for who waits, so that offers which come to nothing keep nobody out. The
//! limits for sessions are looked at twice: when there is an offer, and when its client is connected.

mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use rooms::spec::{Command, SessionId, StreamId, StreamSpec, TrackSpec};
use rustc_hash::FxHashMap;
use strum::VariantArray;
use wire::codec::MediaKind;
use wire::{Bitrate, WorkerId};

use crate::plane::placement::Placement;
use crate::rooms::client::{Client, Shares};
use crate::rooms::spread::{Commands, Spread};
pub use settings::Settings;

/// Names end up in URLs, so they consist of characters that need no escape there (RFC 3986 §2.3).
pub const NAME_BYTES_MAX: usize = 64;

/// Streams at one time that somebody has been connected to; publications of further names are refused.
pub const STREAMS_MAX: usize = 10_000;

/// What one video track is expected to take, for the placement: that of a good camera. The codec and the network decide.
const VIDEO: Bitrate = Bitrate::from_kbps(2_500);

/// The same of an audio track.
const AUDIO: Bitrate = Bitrate::from_kbps(64);

/// So much of a worker's places viewers leave to publishers: one in so many.
const PUBLISHERS_SHARE: usize = 16;

/// All streams and sessions of this process.
pub struct Directory {
    settings: Settings,
    streams: FxHashMap<StreamId, Stream>,
    by_name: BTreeMap<Arc<str>, StreamId>,
    /// Streams that are open.
    open: usize,
    sessions: BTreeMap<SessionId, Session>,
    shares: Shares,
    /// When sessions end because their tokens do.
    ends: BTreeSet<(Instant, SessionId)>,
    /// How many sessions each worker has that are connected.
    counts: Vec<usize>,
    commands: Commands,
    census: Census,
    next_session: u64,
    next_stream: u32,
}

/// One stream, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    /// By which it is published and watched.
    pub name: Arc<str>,
    /// That of its publisher.
    pub state: StreamState,
    /// What it consists of.
    pub tracks: Vec<TrackSpec>,
    /// How many watch it, connected.
    pub viewers: usize,
}

/// What a stream's publisher does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum StreamState {
    /// A publisher has its answer and is not connected yet.
    Connecting,
    /// A publisher is connected.
    Live,
    /// The publisher is gone and may come back.
    Interrupted,
}

/// How many of what there are, kept as it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Publishers: all, and those that are connected.
    pub publishers: (usize, usize),
    /// Viewers: all, and those that are connected.
    pub viewers: (usize, usize),
    /// Streams by their state, in the order of its variants; those that wait for their name are among the connecting.
    pub streams: [usize; StreamState::VARIANTS.len()],
}

impl Census {
    fn of(&mut self, role: Role) -> &mut (usize, usize) {
        match role {
            Role::Publisher => &mut self.publishers,
            Role::Viewer => &mut self.viewers,
        }
    }

    /// A stream changes from one state into another; `None` is that there is none.
    fn change(&mut self, from: Option<StreamState>, to: Option<StreamState>) {
        if let Some(state) = from {
            self.streams[state as usize] -= 1;
        }
        if let Some(state) = to {
            self.streams[state as usize] += 1;
        }
    }
}

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It brings a stream.
    Publisher,
    /// It gets one.
    Viewer,
}

/// One session, from the request on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// What it is for.
    pub role: Role,
    /// Where it is.
    pub worker: WorkerId,
    /// What it brings or gets.
    pub stream: StreamId,
    /// Name of the stream.
    pub name: Arc<str>,
    /// Its handshake is done.
    pub is_connected: bool,
    /// Who asked for it.
    pub client: Client,
    /// When that was.
    pub since: Instant,
    /// What it is expected to take of its worker.
    cost: Bitrate,
}

/// Where a new session goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The newcomer.
    pub session: SessionId,
    /// What it is for.
    pub role: Role,
    /// Where it goes.
    pub worker: WorkerId,
    /// What it brings or gets.
    pub stream: StreamId,
    /// Name of the stream.
    pub name: Arc<str>,
    /// Of the stream; empty for a publisher, who brings them.
    pub tracks: Vec<TrackSpec>,
    /// Who asked for it.
    pub client: Client,
    /// Indices of the tracks that a viewer chose, in the order of its wish; empty for all.
    pub chosen: Vec<usize>,
}

/// Why there is no place, or no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum DirectoryError {
    #[error("a stream's name has 1 to {NAME_BYTES_MAX} letters, digits, \"-\", \".\", \"_\" and \"~\"")]
    BadName,
    #[error("nobody publishes this stream")]
    NoStream,
    #[error("there are {STREAMS_MAX} streams already")]
    TooManyStreams,
    #[error("every worker of this server is busy")]
    Overloaded,
    #[error("too many offers of this client wait for it to connect")]
    TooManyWaiting,
    #[error("this client, or its token, has as many sessions as it may have")]
    TooManySessions,
    #[error("the stream has as many viewers as it may have")]
    StreamFull,
    #[error("no such session")]
    NoSession,
}

struct Stream {
    name: Arc<str>,
    /// Which workers have it: its own, and those of its viewers that are connected.
    spread: Spread,
    tracks: Vec<TrackSpec>,
    /// Publishers, connected or not. More than one only while one takes the place of another.
    publishers: Vec<SessionId>,
    /// Who is connected, the last one.
    live: Option<SessionId>,
    /// Since when nobody publishes who did; a stream that never was live has no such time.
    vacant_since: Option<Instant>,
}

impl Directory {
    /// Without streams and sessions.
    pub fn new(workers: usize, settings: Settings) -> Self {
        Directory {
            settings,
            streams: FxHashMap::default(),
            by_name: BTreeMap::new(),
            open: 0,
            sessions: BTreeMap::new(),
            shares: Shares::default(),
            ends: BTreeSet::new(),
            counts: vec![0; workers],
            commands: Commands::new(),
            census: Census::default(),
            next_session: 1,
            next_stream: 1,
        }
    }

    /// Newcomers find these limits from now on, but for `sessions_max`.
    pub fn set_limits(&mut self, settings: Settings) {
        self.settings = Settings { sessions_max: self.settings.sessions_max, ..settings };
    }

    /// The tracks of the stream that has the name.
    ///
    /// # Errors
    /// `NoStream`.
    pub fn tracks(&self, name: &str) -> Result<Vec<TrackSpec>, DirectoryError> {
        let stream = self.by_name.get(name).and_then(|id| self.streams.get(id));
        Ok(stream.ok_or(DirectoryError::NoStream)?.tracks.clone())
    }

    /// Finds a place for a publisher of these tracks: in the stream of the name when it has the same, else in one of its
    /// own.
    ///
    /// # Errors
    /// `BadName`, `TooManyWaiting`, `TooManySessions`, `TooManyStreams`, `Overloaded`; who comes back to a stream is not told
    /// the last two.
    pub fn begin_publish(
        &mut self,
        placement: &mut Placement,
        now: Instant,
        name: &str,
        tracks: &[TrackSpec],
        client: Client,
    ) -> Result<Admitted, DirectoryError> {
        if !is_name(name) {
            return Err(DirectoryError::BadName);
        }
        self.shares.check(Role::Publisher, &client, &self.settings)?;
        let current = self.by_name.get(name).and_then(|id| Some((*id, self.streams.get(id)?)));
        let (id, worker, name) = match current {
            Some((id, stream)) if stream.tracks == tracks => (id, stream.spread.home(), stream.name.clone()),
            _ => self.add_stream(placement, name, tracks)?,
        };
        let place = self.add_session(placement, now, Role::Publisher, (id, worker, name), Vec::new(), client);
        if let Some(stream) = self.streams.get_mut(&id) {
            let before = stream.state();
            stream.publishers.push(place.session);
            self.census.change(Some(before), Some(stream.state()));
        }
        Ok(place)
    }

    /// A new stream, which has the name when no other has.
    fn add_stream(
        &mut self,
        placement: &Placement,
        name: &str,
        tracks: &[TrackSpec],
    ) -> Result<(StreamId, WorkerId, Arc<str>), DirectoryError> {
        if !self.has_room_for(name) {
            return Err(DirectoryError::TooManyStreams);
        }
        let worker = self.find_worker(placement, None, Role::Publisher)?;
        while self.streams.contains_key(&StreamId(self.next_stream)) {
            self.next_stream = self.next_stream.wrapping_add(1);
        }
        let id = StreamId(self.next_stream);
        self.next_stream = self.next_stream.wrapping_add(1);
        let name = Arc::<str>::from(name);
        let stream = Stream {
            name: name.clone(),
            spread: Spread::new(worker, self.counts.len()),
            tracks: tracks.to_vec(),
            publishers: Vec::new(),
            live: None,
            vacant_since: None,
        };
        self.census.change(None, Some(stream.state()));
        self.streams.insert(id, stream);
        self.by_name.entry(name.clone()).or_insert(id);
        Ok((id, worker, name))
    }

    /// Finds a place for a viewer.
    ///
    /// # Errors
    /// `NoStream`, `TooManyWaiting`, `TooManySessions`, `StreamFull`, `Overloaded`.
    pub fn begin_watch(
        &mut self,
        placement: &mut Placement,
        now: Instant,
        name: &str,
        client: Client,
    ) -> Result<Admitted, DirectoryError> {
        let id = self.by_name.get(name).copied().ok_or(DirectoryError::NoStream)?;
        let stream = self.streams.get(&id).ok_or(DirectoryError::NoStream)?;
        self.shares.check(Role::Viewer, &client, &self.settings)?;
        if stream.spread.viewer_count() >= self.settings.viewers_per_stream {
            return Err(DirectoryError::StreamFull);
        }
        let worker = self.find_worker(placement, Some(stream.spread.home()), Role::Viewer)?;
        let (name, tracks) = (stream.name.clone(), stream.tracks.clone());
        Ok(self.add_session(placement, now, Role::Viewer, (id, worker, name), tracks, client))
    }

    /// A session has keys, and is its worker's next: its stream comes to that worker, and a publisher takes the name from
    /// who had it. For a stream that is closed by now nothing is done; the worker ends who comes for it.
    ///
    /// # Errors
    /// As when it was offered, by what others have taken since. Then nothing is done, and it has to be ended.
    pub fn handle_connected(&mut self, session: SessionId) -> Result<(), DirectoryError> {
        let Some(entry) = self.sessions.get(&session) else { return Err(DirectoryError::NoSession) };
        if entry.is_connected {
            return Ok(());
        }
        self.check_connected(entry)?;
        let Some(entry) = self.sessions.get_mut(&session) else { return Ok(()) };
        entry.is_connected = true;
        let (role, worker, id) = (entry.role, entry.worker, entry.stream);
        self.census.of(role).1 += 1;
        self.shares.end_wait(role, &entry.client);
        self.shares.enter(role, &entry.client);
        if let Some(count) = self.counts.get_mut(worker.index()) {
            *count += 1;
        }
        let takes_place =
            role == Role::Publisher && self.streams.get(&id).is_some_and(|stream| self.has_open(&stream.name));
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let Stream { spread, tracks, .. } = stream;
        if spread.open(|| spec(id, tracks), &mut self.commands) {
            self.open += 1;
            if self.open > STREAMS_MAX + usize::from(takes_place) {
                self.close_vacant();
            }
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        match role {
            Role::Publisher => {
                let before = stream.state();
                stream.live = Some(session);
                stream.vacant_since = None;
                self.census.change(Some(before), Some(stream.state()));
                let name = stream.name.clone();
                if let Some(old) = self.by_name.insert(name, id).filter(|old| *old != id) {
                    self.close(old);
                }
            }
            Role::Viewer => {
                let Stream { spread, tracks, .. } = stream;
                spread.enter(worker, || spec(id, tracks), &mut self.commands);
            }
        }
        Ok(())
    }

    /// Whether there is room still for a session whose client has connected.
    fn check_connected(&self, session: &Session) -> Result<(), DirectoryError> {
        let Session { role, worker, stream, client, .. } = session;
        self.shares.check_connected(*role, client, &self.settings)?;
        if !self.has_room(*worker, *role) {
            return Err(DirectoryError::Overloaded);
        }
        match self.streams.get(stream) {
            Some(stream) if !stream.spread.is_open() && !self.has_room_for(&stream.name) => {
                Err(DirectoryError::TooManyStreams)
            }
            Some(stream)
                if *role == Role::Viewer && stream.spread.viewer_count() >= self.settings.viewers_per_stream =>
            {
                Err(DirectoryError::StreamFull)
            }
            _ => Ok(()),
        }
    }

    /// Streams that have lost their publishers, with since when.
    fn vacant(&self) -> impl Iterator<Item = (Instant, StreamId)> {
        self.streams
            .iter()
            .filter_map(|(id, stream)| Some((stream.vacant_since.filter(|_| stream.spread.is_open())?, *id)))
    }

    /// Whether a stream of that name can be opened: there is a place, or one that waits for its publisher makes room, or the one
    /// that has the name.
    fn has_room_for(&self, name: &str) -> bool {
        self.open < STREAMS_MAX || self.has_open(name) || self.vacant().next().is_some()
    }

    /// Whether a stream of that name is open.
    fn has_open(&self, name: &str) -> bool {
        self.by_name.get(name).and_then(|id| self.streams.get(id)).is_some_and(|stream| stream.spread.is_open())
    }

    /// The stream that has waited for its publisher for longest makes room.
    fn close_vacant(&mut self) {
        if let Some((_, id)) = self.vacant().min() {
            self.close(id);
        }
    }

    /// A session is gone, or was never answered. `is_final` says that its peer wants no more of it: a publisher then
    /// takes the stream along.
    pub fn handle_ended(&mut self, placement: &mut Placement, now: Instant, session: SessionId, is_final: bool) {
        let Some(ended) = self.sessions.remove(&session) else { return };
        let Session { role, worker, stream: id, is_connected, cost, client, .. } = ended;
        let census = self.census.of(role);
        census.0 -= 1;
        if is_connected {
            census.1 -= 1;
            self.shares.leave(role, &client);
            if let Some(count) = self.counts.get_mut(worker.index()) {
                *count -= 1;
            }
        } else {
            self.shares.end_wait(role, &client);
        }
        if let Some(at) = client.ends_at {
            self.ends.remove(&(at, session));
        }
        placement.release(worker, cost);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match role {
            Role::Viewer if is_connected => stream.spread.leave(id, worker, &mut self.commands),
            Role::Viewer => {}
            Role::Publisher => {
                let before = stream.state();
                stream.publishers.retain(|publisher| *publisher != session);
                if stream.live == Some(session) {
                    stream.live = None;
                    stream.vacant_since = Some(now);
                }
                self.census.change(Some(before), Some(stream.state()));
                // Who was never connected ends nothing that others have; and what nobody has published is nothing to come
                // back to.
                let is_final = is_final && is_connected || stream.vacant_since.is_none();
                if stream.publishers.is_empty() && is_final {
                    self.close(id);
                }
            }
        }
    }

    /// Ends a stream and all of its sessions.
    ///
    /// # Errors
    /// `NoStream`.
    pub fn close_stream(&mut self, name: &str) -> Result<(), DirectoryError> {
        let id = self.by_name.get(name).copied().ok_or(DirectoryError::NoStream)?;
        self.close(id);
        Ok(())
    }

    /// Ends all streams and their sessions.
    pub fn close_all(&mut self) {
        let all: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in all {
            self.close(id);
        }
    }

    /// Closes streams whose publisher did not come back.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= self.settings.reconnect_grace;
        let over: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.publishers.is_empty() && stream.vacant_since.is_some_and(is_over))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.close(id);
        }
    }

    /// The next command to a worker.
    pub fn poll_command(&mut self) -> Option<(WorkerId, Command)> {
        self.commands.pop_front()
    }

    /// The sessions behind one, the oldest first.
    pub fn sessions(&self, after: SessionId) -> impl Iterator<Item = (SessionId, &Session)> {
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        self.sessions.range(behind).map(|(id, session)| (*id, session))
    }

    /// The session ends at `at` instead, when that is later: its client has shown a newer token.
    pub fn renew(&mut self, session: SessionId, at: Instant) {
        let Some(ends_at) = self.sessions.get_mut(&session).and_then(|session| session.client.ends_at.as_mut()) else {
            return;
        };
        if at > *ends_at {
            self.ends.remove(&(*ends_at, session));
            self.ends.insert((at, session));
            *ends_at = at;
        }
    }

    /// Sessions whose tokens are over: they are to be ended, and stand here until they have.
    pub fn overdue(&self, now: Instant) -> Vec<SessionId> {
        self.ends.iter().take_while(|(at, _)| *at <= now).map(|(_, session)| *session).collect()
    }

    /// One session.
    pub fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session)
    }

    /// Streams behind the name `after` that have a name to be watched by, which is one of `names` or begins as one of those
    /// that end in `*`: by name, and so many at most. Others are not looked at.
    pub fn streams(&self, names: &[&str], after: &str, count: usize) -> Vec<StreamView> {
        let mut found: Vec<_> = names.iter().flat_map(|name| self.named(name, after).take(count)).collect();
        found.sort_unstable();
        found.dedup();
        found.truncate(count);
        found.into_iter().filter_map(|(_, id)| self.streams.get(id)).map(Stream::view).collect()
    }

    fn named<'a>(&'a self, name: &'a str, after: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a StreamId)> {
        let (begin, is_whole) = name.strip_suffix('*').map_or((name, true), |begin| (begin, false));
        let from = if after < begin { Bound::Included(begin) } else { Bound::Excluded(after) };
        let is_it = move |found: &str| if is_whole { found == begin } else { found.starts_with(begin) };
        self.by_name.range::<str, _>((from, Bound::Unbounded)).take_while(move |(found, _)| is_it(found))
    }

    /// How many of what there are.
    pub fn census(&self) -> Census {
        self.census
    }

    fn add_session(
        &mut self,
        placement: &mut Placement,
        now: Instant,
        role: Role,
        place: (StreamId, WorkerId, Arc<str>),
        tracks: Vec<TrackSpec>,
        client: Client,
    ) -> Admitted {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let (stream, worker, name) = place;
        let cost = match role {
            Role::Publisher => VIDEO,
            Role::Viewer => cost(&tracks),
        };
        // For the balance, which nobody is refused by. A storm of joins is spread before the first of them is connected.
        placement.take(worker, cost);
        self.shares.wait(role, &client);
        self.census.of(role).0 += 1;
        self.ends.extend(client.ends_at.map(|at| (at, id)));
        let place = Admitted {
            session: id,
            role,
            worker,
            stream,
            name: name.clone(),
            tracks,
            chosen: Vec::new(),
            client: client.clone(),
        };
        let session = Session { role, worker, stream, name, is_connected: false, client, since: now, cost };
        self.sessions.insert(id, session);
        place
    }

    /// Workers end the sessions of a stream that is closed; each is then reported as ended.
    fn close(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.census.change(Some(stream.state()), None);
        if self.by_name.get(&stream.name) == Some(&id) {
            self.by_name.remove(&stream.name);
        }
        self.open -= usize::from(stream.spread.is_open());
        stream.spread.close(id, &mut self.commands);
    }

    fn find_worker(
        &self,
        placement: &Placement,
        near: Option<WorkerId>,
        role: Role,
    ) -> Result<WorkerId, DirectoryError> {
        placement.find(near, |worker| self.has_room(worker, role)).ok_or(DirectoryError::Overloaded)
    }

    /// Viewers leave places for publishers: a stream whose viewers fill its worker could not go on when its own comes back.
    fn has_room(&self, worker: WorkerId, role: Role) -> bool {
        let others = match role {
            Role::Publisher => 0,
            Role::Viewer => self.settings.sessions_max / PUBLISHERS_SHARE,
        };
        self.counts.get(worker.index()).is_some_and(|count| *count + others < self.settings.sessions_max)
    }
}

impl Stream {
    fn state(&self) -> StreamState {
        match (self.live, self.publishers.is_empty()) {
            (Some(_), _) => StreamState::Live,
            (None, false) => StreamState::Connecting,
            (None, true) => StreamState::Interrupted,
        }
    }

    fn view(&self) -> StreamView {
        let (name, tracks) = (self.name.clone(), self.tracks.clone());
        StreamView { name, state: self.state(), tracks, viewers: self.spread.viewer_count() }
    }
}

fn spec(id: StreamId, tracks: &[TrackSpec]) -> StreamSpec {
    StreamSpec { id, tracks: tracks.to_vec() }
}

/// What a viewer of the tracks is expected to take.
fn cost(tracks: &[TrackSpec]) -> Bitrate {
    let of = |track: &TrackSpec| match track.codec.kind() {
        MediaKind::Audio => AUDIO.bps(),
        MediaKind::Video => VIDEO.bps(),
    };
    Bitrate::from_bps(tracks.iter().map(of).sum())
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    // A name of dots alone would be a step in a path.
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) && name.bytes().any(|byte| byte != b'.')
}
