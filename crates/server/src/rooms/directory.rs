//! Which streams there are, on which workers, and who publishes and watches them.
//!
//! In: what HTTP wants to do, what negotiators report, the time.
//! Out: where a session goes, and commands to workers (`poll_command`), in the order in which they have to arrive.
//! Cost: a few map lookups for each call; `handle_timeout` looks at each stream. It has no socket, no clock, no lock.
//!
//! A stream lives on the worker of its publisher. Another worker gets it (`OpenStream`, and `Feed` at the publisher's)
//! with its first viewer there, and loses it with the last. A stream without publisher waits for its return; who comes
//! back with the same tracks finds the viewers still there, other tracks make a new stream under the old name.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rooms::spec::{Command, SessionId, StreamId, StreamSpec, TrackSpec, WorkerId};
use rustc_hash::FxHashMap;

/// Names end up in URLs, so they consist of characters that need no escape there (RFC 3986 §2.3).
pub const NAME_BYTES_MAX: usize = 64;

/// Streams at one time; publications of further names are refused.
pub const STREAMS_MAX: usize = 10_000;

/// All streams and sessions of this process.
pub struct Directory {
    reconnect_grace: Duration,
    streams: FxHashMap<StreamId, Stream>,
    by_name: HashMap<Arc<str>, StreamId>,
    sessions: FxHashMap<SessionId, Session>,
    /// Sessions of each worker.
    load: Vec<usize>,
    /// Workers that take no newcomers.
    is_full: Vec<bool>,
    commands: VecDeque<(WorkerId, Command)>,
    next_session: u64,
    next_stream: u32,
}

/// One stream, as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    pub name: Arc<str>,
    pub state: StreamState,
    pub tracks: Vec<TrackSpec>,
    pub viewers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// A publisher has its answer and is not connected yet.
    Connecting,
    Live,
    /// The publisher is gone and may come back.
    Interrupted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Publisher,
    Viewer,
}

/// One session, from the request on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub role: Role,
    pub worker: WorkerId,
    pub stream: StreamId,
    /// Name of the stream.
    pub name: Arc<str>,
    pub is_connected: bool,
}

/// Where a new session goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub session: SessionId,
    pub worker: WorkerId,
    pub stream: StreamId,
    pub name: Arc<str>,
    /// Of the stream; empty for a publisher, who brings them.
    pub tracks: Vec<TrackSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    #[error("a stream's name has 1 to {NAME_BYTES_MAX} letters, digits, \"-\", \".\", \"_\" and \"~\"")]
    BadName,
    #[error("nobody publishes this stream")]
    NoStream,
    #[error("there are {STREAMS_MAX} streams already")]
    TooManyStreams,
    #[error("every worker of this server is busy")]
    Overloaded,
    #[error("the stream has other tracks")]
    OtherTracks,
    #[error("no such session")]
    NoSession,
}

struct Stream {
    name: Arc<str>,
    worker: WorkerId,
    tracks: Vec<TrackSpec>,
    /// Publishers that have their answer. More than one only while one takes the place of another.
    publishers: Vec<SessionId>,
    /// Who is connected, the last one.
    live: Option<SessionId>,
    /// Since when nobody publishes.
    vacant_since: Option<Instant>,
    /// Viewers on each worker.
    viewers: Vec<usize>,
}

impl Directory {
    pub fn new(workers: usize, reconnect_grace: Duration) -> Self {
        Directory {
            reconnect_grace,
            streams: FxHashMap::default(),
            by_name: HashMap::new(),
            sessions: FxHashMap::default(),
            load: vec![0; workers.max(1)],
            is_full: vec![false; workers.max(1)],
            commands: VecDeque::new(),
            next_session: 1,
            next_stream: 1,
        }
    }

    /// Finds a place for a publisher. `is_new` makes a new stream even where one of the name exists.
    ///
    /// # Errors
    /// `BadName`, `TooManyStreams`, `Overloaded`; who comes back to a stream of its own is never refused.
    pub fn begin_publish(&mut self, name: &str, is_new: bool) -> Result<Place, DirectoryError> {
        if !is_name(name) {
            return Err(DirectoryError::BadName);
        }
        let existing = self.by_name.get(name).and_then(|id| Some((*id, self.streams.get(id)?)));
        let place = match existing {
            Some((id, stream)) if !is_new => (id, stream.worker, stream.name.clone()),
            None if self.streams.len() >= STREAMS_MAX => return Err(DirectoryError::TooManyStreams),
            _ => {
                let worker = self.least_loaded()?;
                let id = StreamId(self.next_stream);
                self.next_stream = self.next_stream.wrapping_add(1);
                (id, worker, name.into())
            }
        };
        Ok(self.add_session(Role::Publisher, place, Vec::new()))
    }

    /// The publisher has its answer, with these tracks: the stream is open from now on.
    ///
    /// # Errors
    /// `OtherTracks` when the place is in a stream that exists and that does not have these tracks: begin anew with
    /// `is_new`. `NoSession` when it has ended meanwhile.
    pub fn commit_publish(&mut self, session: SessionId, tracks: &[TrackSpec]) -> Result<(), DirectoryError> {
        let Session { stream: id, worker, name, .. } =
            self.sessions.get(&session).cloned().ok_or(DirectoryError::NoSession)?;
        match self.by_name.get(&name).copied() {
            Some(current) if current == id => {
                let stream = self.streams.get_mut(&id).ok_or(DirectoryError::NoStream)?;
                if stream.tracks != tracks {
                    return Err(DirectoryError::OtherTracks);
                }
                stream.publishers.push(session);
                stream.vacant_since = None;
                return Ok(());
            }
            Some(other) => self.close(other),
            None => {}
        }
        let viewers = vec![0; self.load.len()];
        let tracks = tracks.to_vec();
        self.commands.push_back((worker, Command::OpenStream(StreamSpec { id, tracks: tracks.clone() })));
        let publishers = vec![session];
        let stream = Stream { name: name.clone(), worker, tracks, publishers, live: None, vacant_since: None, viewers };
        self.streams.insert(id, stream);
        self.by_name.insert(name, id);
        Ok(())
    }

    /// Finds a place for a viewer, and brings the stream there.
    ///
    /// # Errors
    /// `NoStream`, `Overloaded`.
    pub fn begin_watch(&mut self, name: &str) -> Result<Place, DirectoryError> {
        let id = self.by_name.get(name).copied().ok_or(DirectoryError::NoStream)?;
        let worker = self.least_loaded()?;
        let stream = self.streams.get_mut(&id).ok_or(DirectoryError::NoStream)?;
        if let Some(viewers) = stream.viewers.get_mut(usize::from(worker.0)) {
            *viewers += 1;
            if *viewers == 1 && worker != stream.worker {
                let spec = StreamSpec { id, tracks: stream.tracks.clone() };
                self.commands.push_back((worker, Command::OpenStream(spec)));
                self.commands.push_back((stream.worker, Command::Feed { stream: id, to: worker, on: true }));
            }
        }
        let (name, tracks) = (stream.name.clone(), stream.tracks.clone());
        Ok(self.add_session(Role::Viewer, (id, worker, name), tracks))
    }

    /// A session has keys and is with its worker.
    pub fn handle_connected(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        entry.is_connected = true;
        if entry.role == Role::Publisher
            && let Some(stream) = self.streams.get_mut(&entry.stream)
        {
            stream.live = Some(session);
        }
    }

    /// A session is gone, or was never answered. `is_final` says that its peer wants no more of it: a publisher then
    /// takes the stream along.
    pub fn handle_ended(&mut self, now: Instant, session: SessionId, is_final: bool) {
        let Some(Session { role, worker, stream: id, .. }) = self.sessions.remove(&session) else { return };
        if let Some(load) = self.load.get_mut(usize::from(worker.0)) {
            *load -= 1;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match role {
            Role::Viewer => self.remove_viewer(id, worker),
            // One that was never committed leaves the stream as it was.
            Role::Publisher if !stream.publishers.contains(&session) => {}
            Role::Publisher => {
                stream.publishers.retain(|publisher| *publisher != session);
                stream.live = stream.live.filter(|live| *live != session);
                if stream.publishers.is_empty() {
                    stream.vacant_since = Some(now);
                    if is_final {
                        self.close(id);
                    }
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

    /// Whether a worker is too busy for more sessions than it has.
    pub fn set_full(&mut self, worker: WorkerId, is_full: bool) {
        if let Some(entry) = self.is_full.get_mut(usize::from(worker.0)) {
            *entry = is_full;
        }
    }

    /// Closes streams whose publisher did not come back.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= self.reconnect_grace;
        let over: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.vacant_since.is_some_and(is_over))
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

    pub fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session)
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<StreamView> {
        let mut views: Vec<StreamView> = self.streams.values().map(Stream::view).collect();
        views.sort_by(|one, other| one.name.cmp(&other.name));
        views
    }

    /// Sessions of a role: all, and those that are connected.
    pub fn session_counts(&self, role: Role) -> (usize, usize) {
        let mut counts = (0, 0);
        for session in self.sessions.values().filter(|session| session.role == role) {
            counts.0 += 1;
            counts.1 += usize::from(session.is_connected);
        }
        counts
    }

    fn add_session(&mut self, role: Role, place: (StreamId, WorkerId, Arc<str>), tracks: Vec<TrackSpec>) -> Place {
        let session = SessionId(self.next_session);
        self.next_session += 1;
        let (stream, worker, name) = place;
        if let Some(load) = self.load.get_mut(usize::from(worker.0)) {
            *load += 1;
        }
        self.sessions.insert(session, Session { role, worker, stream, name: name.clone(), is_connected: false });
        Place { session, worker, stream, name, tracks }
    }

    fn remove_viewer(&mut self, id: StreamId, worker: WorkerId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(viewers) = stream.viewers.get_mut(usize::from(worker.0)) else { return };
        *viewers -= 1;
        if *viewers == 0 && worker != stream.worker {
            self.commands.push_back((stream.worker, Command::Feed { stream: id, to: worker, on: false }));
            self.commands.push_back((worker, Command::CloseStream(id)));
        }
    }

    /// Workers end the sessions of a stream that is closed; each is then reported as ended.
    fn close(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else { return };
        if self.by_name.get(&stream.name) == Some(&id) {
            self.by_name.remove(&stream.name);
        }
        self.commands.push_back((stream.worker, Command::CloseStream(id)));
        for (index, viewers) in stream.viewers.iter().enumerate() {
            let worker = WorkerId(index as u16);
            if *viewers > 0 && worker != stream.worker {
                self.commands.push_back((worker, Command::CloseStream(id)));
            }
        }
    }

    fn least_loaded(&self) -> Result<WorkerId, DirectoryError> {
        let workers = self.load.iter().zip(&self.is_full).enumerate();
        let least = workers.filter(|(_, (_, is_full))| !**is_full).min_by_key(|(_, (load, _))| **load);
        least.map(|(index, _)| WorkerId(index as u16)).ok_or(DirectoryError::Overloaded)
    }
}

impl Stream {
    fn view(&self) -> StreamView {
        let state = match (self.live, self.publishers.is_empty()) {
            (Some(_), _) => StreamState::Live,
            (None, false) => StreamState::Connecting,
            (None, true) => StreamState::Interrupted,
        };
        let viewers = self.viewers.iter().sum();
        StreamView { name: self.name.clone(), state, tracks: self.tracks.clone(), viewers }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    // A name of dots alone would be a step in a path.
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) && name.bytes().any(|byte| byte != b'.')
}
