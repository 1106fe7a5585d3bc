//! The control plane behind HTTP: sessions from the request to the end, streams by name, drain.
//!
//! In: offers, fragments and questions from HTTP handlers; notices from the negotiators.
//! Out: answers; requests to negotiators and commands to workers.
//! Cost: one lock, held for a few map lookups; nothing is awaited under it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counters::{Published, counters};
use engine::Mailbox;
use rooms::spec::{Command, Event, LayerLimit, SessionId, SessionStats, TrackSpec};
use rooms::story::Story;
use tokio::sync::Mutex as Turn;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::time::timeout;
use wire::WorkerId;
use wire::codec::MediaKind;

use crate::plane::placement::Placement;
use crate::plane::questions::{ANSWER_TIMEOUT, Questions};
use crate::plane::{Plane, ProductControl};
use crate::random::random;
use crate::rooms::client::Client;
use crate::rooms::directory::{self, Admitted, Census, Directory, DirectoryError, Role, Session, StreamView};
use crate::rooms::negotiator::{self, Answer, EndReason, Input, NegotiationError, Notice, Patched, Request};
use crate::rooms::stories::{self, About, Stories};
use crate::scan::scan;
use crate::traces::Join;
use crate::worker::Message;

/// What clients are told to wait while the server drains.
pub const DRAIN_RETRY_SECONDS: u32 = 5;

/// What newcomers are told to wait while all workers are busy: viewers have to leave first.
pub const OVERLOAD_RETRY_SECONDS: u32 = 10;

/// What a client is told to wait that has too many offers open: those that come to nothing end after some seconds.
pub const WAITING_RETRY_SECONDS: u32 = 5;

counters! {
    /// Offers that were refused before they had a place, or when their client had connected and there was none left, since
    /// the start.
    pub struct Counters: "millrace_offers_" {
        /// Offers that cannot be read, or not be answered with what there is.
        counter unreadable: u64 = "unreadable_total",
        /// Offers of clients of which too many wait already (`rooms.waiting_per_client`).
        counter too_many_waiting: u64 = "too_many_waiting_total",
        /// Offers of clients, or with tokens, that have as many sessions as they may have (`rooms.sessions_per_client`,
        /// `rooms.sessions_per_token`).
        counter too_many_sessions: u64 = "too_many_sessions_total",
        /// Offers for streams that have as many viewers as they may have (`rooms.viewers_per_stream`).
        counter stream_full: u64 = "stream_full_total",
        /// Offers that came while every worker was busy.
        counter overloaded: u64 = "overloaded_total",
    }
}

/// The way to a worker's negotiator.
#[derive(Debug)]
pub struct NegotiatorEnd {
    /// Takes requests; one that finds it full is refused as busy.
    pub mailbox: Mailbox<Input>,
    /// What it has counted.
    pub counters: Published<negotiator::Counters>,
}

/// Everything that can be asked of the rooms.
pub struct RoomsControl {
    plane: Arc<Plane>,
    /// Of each worker.
    negotiators: Vec<NegotiatorEnd>,
    state: Mutex<State>,
    inspections: Questions<Option<SessionStats>>,
    tales: Questions<Option<Box<Story>>>,
    stories: Mutex<Stories>,
}

struct State {
    directory: Directory,
    counters: Counters,
    /// The last part of a session's URL. It cannot be guessed, so knowing it is a proof in itself.
    by_key: HashMap<Arc<str>, SessionId>,
    keys: HashMap<SessionId, Arc<str>>,
    /// Of sessions that have sent fragments: who has the turn has one in the negotiator's mailbox, though nobody may wait for
    /// its answer any more.
    turns: HashMap<SessionId, Arc<Turn<()>>>,
}

/// A session that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// As workers know it.
    pub session: SessionId,
    /// The last part of its URL.
    pub key: Arc<str>,
    /// What the client is told.
    pub answer: Answer,
}

/// What became of a session.
#[derive(Clone, Debug)]
pub struct Told {
    /// Who it is, or was.
    pub about: About,
    /// When it ended, and why; `None`: it is still there.
    pub ended: Option<(Instant, &'static str)>,
    /// What happened; `None` until it is connected.
    pub story: Option<Box<Story>>,
}

/// Why something cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum ControlError {
    #[error("the server is about to stop")]
    Draining,
    #[error("the server is too busy to answer")]
    Busy,
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    #[error("the stream has no track {id:?}; it has {known}")]
    NoTrack { id: String, known: String },
}

impl RoomsControl {
    /// No streams yet, on workers of which each has its negotiator.
    pub fn new(plane: Arc<Plane>, negotiators: Vec<NegotiatorEnd>, settings: directory::Settings) -> Self {
        let directory = Directory::new(plane.workers().count(), settings);
        RoomsControl {
            plane,
            negotiators,
            state: Mutex::new(State {
                directory,
                counters: Counters::default(),
                by_key: HashMap::new(),
                keys: HashMap::new(),
                turns: HashMap::new(),
            }),
            inspections: Questions::default(),
            tales: Questions::default(),
            stories: Mutex::default(),
        }
    }

    /// What all products have in common.
    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// Opens a publication. Who publishes a stream that has a publisher takes its place once connected.
    ///
    /// # Errors
    /// `Draining`, `Busy`, and what the directory and the negotiator refuse.
    pub async fn publish(&self, name: &str, offer: &str, client: Client) -> Result<Opened, ControlError> {
        self.check_draining()?;
        let tracks = self.read(negotiator::published_tracks(offer))?;
        self.open(offer, |directory, placement| {
            directory.begin_publish(placement, Instant::now(), name, &tracks, client)
        })
        .await
    }

    /// Opens a viewer's session, for the tracks that it names (`track_id`), or for all where it names none.
    ///
    /// # Errors
    /// `Draining`, `Busy`, and what the directory and the negotiator refuse.
    pub async fn watch(
        &self,
        name: &str,
        offer: &str,
        tracks: &[&str],
        client: Client,
    ) -> Result<Opened, ControlError> {
        self.check_draining()?;
        let known = self.lock().directory.tracks(name)?;
        let chosen = choose(&known, tracks)?;
        self.read(negotiator::check_viewer(offer, &known, &chosen))?;
        self.open(offer, |directory, placement| {
            let admitted = directory.begin_watch(placement, Instant::now(), name, client)?;
            Ok(Admitted { chosen, ..admitted })
        })
        .await
    }

    fn read<T>(&self, read: Result<T, webrtc::Error>) -> Result<T, ControlError> {
        read.map_err(|error| {
            self.lock().counters.unreadable += 1;
            NegotiationError::Sdp(error).into()
        })
    }

    fn check_draining(&self) -> Result<(), ControlError> {
        if self.plane.is_draining() { Err(ControlError::Draining) } else { Ok(()) }
    }

    async fn open(
        &self,
        offer: &str,
        place: impl FnOnce(&mut Directory, &mut Placement) -> Result<Admitted, DirectoryError>,
    ) -> Result<Opened, ControlError> {
        let key = new_key()?;
        let place = self.with_state(|state| {
            let place = place(&mut state.directory, &mut self.plane.placement());
            let place = place.inspect_err(|error| state.counters.add(*error))?;
            state.by_key.insert(key.clone(), place.session);
            state.keys.insert(place.session, key.clone());
            Ok::<_, DirectoryError>(place)
        })?;
        let Admitted { session, worker, .. } = place;
        let (reply, answer) = oneshot::channel();
        let mut pending = Pending { control: self, session, worker, answer, state: Asked::NotYet };
        self.request(worker, Request::Open { place, offer: offer.to_owned(), reply })?;
        pending.state = Asked::Waits;
        let answer = wait(&mut pending.answer).await?;
        pending.state = if answer.is_ok() { Asked::Kept } else { Asked::Refused };
        Ok(Opened { session, key, answer: answer? })
    }

    /// The join of a session that was answered is traced by what becomes of that, from here on.
    pub fn follow(&self, session: SessionId, join: Join) {
        self.plane.traces().follow(session, "ice", join, || self.worker_of(session).is_ok());
    }

    /// Finds the session of a URL.
    ///
    /// # Errors
    /// `NoSession`, also when it is one of another stream or role.
    pub fn find(&self, role: Role, name: &str, key: &str) -> Result<SessionId, ControlError> {
        let state = self.lock();
        let found = state.by_key.get(key).copied().filter(|id| {
            state.directory.session(*id).is_some_and(|session| session.role == role && &*session.name == name)
        });
        found.ok_or(ControlError::Directory(DirectoryError::NoSession))
    }

    /// Hands a trickle fragment to the session, when the one before it is done with.
    ///
    /// # Errors
    /// `NoSession`, `Busy`, and what the negotiator refuses.
    pub async fn patch(&self, session: SessionId, fragment: String, if_match: String) -> Result<Patched, ControlError> {
        let (worker, turn) = {
            let mut state = self.lock();
            let worker = state.worker_of(session)?;
            (worker, state.turns.entry(session).or_default().clone())
        };
        self.patch_at(worker, session, turn, (fragment, if_match)).await
    }

    /// The same of any session of a worker, which has one fragment at a time under way by its turn.
    pub(crate) async fn patch_at(
        &self,
        worker: WorkerId,
        session: SessionId,
        turn: Arc<Turn<()>>,
        (fragment, if_match): (String, String),
    ) -> Result<Patched, ControlError> {
        let asked = async {
            let turn = turn.lock_owned().await;
            let (reply, patched) = oneshot::channel();
            self.request(worker, Request::Patch { session, fragment, if_match, reply, turn })?;
            Ok(patched.await.map_err(|_| ControlError::Busy)??)
        };
        timeout(ANSWER_TIMEOUT, asked).await.unwrap_or(Err(ControlError::Busy))
    }

    /// Ends a session. A publisher takes its stream along.
    ///
    /// # Errors
    /// `NoSession`, `Busy`.
    pub fn close(&self, session: SessionId) -> Result<(), ControlError> {
        let worker = self.worker_of(session)?;
        self.request(worker, Request::Close { session })?;
        self.end(session, true, stories::reason(&EndReason::Asked));
        Ok(())
    }

    /// What the worker has counted for a session; `None` until it is connected.
    ///
    /// # Errors
    /// `NoSession`, `Busy`.
    pub async fn stats(&self, session: SessionId) -> Result<Option<SessionStats>, ControlError> {
        self.ask(self.worker_of(session)?, session).await.ok_or(ControlError::Busy)
    }

    /// The same of any session of a worker; `None` as well where there is no answer.
    pub(crate) async fn inspect(&self, worker: WorkerId, session: SessionId) -> Option<SessionStats> {
        self.ask(worker, session).await.flatten()
    }

    async fn ask(&self, worker: WorkerId, session: SessionId) -> Option<Option<SessionStats>> {
        let ask = |token| self.plane.workers().offer(worker, Message::Command(Command::Inspect { session, token }));
        self.inspections.ask(ask).await
    }

    /// What became of a session so far, or until it ended.
    ///
    /// # Errors
    /// `NoSession`, also when it ended too long ago; `Busy`.
    pub async fn story(&self, session: SessionId) -> Result<Told, ControlError> {
        let known = self.lock().directory.session(session).map(|known| (About::from(known), known.worker));
        if let Some((about, worker)) = known {
            let story = self.tell(worker, session).await.ok_or(ControlError::Busy)?;
            return Ok(Told { about, ended: None, story });
        }
        let stories = self.stories();
        let ended = stories.get(session).and_then(|ended| Some((ended, ended.about.clone()?)));
        let (ended, about) = ended.ok_or(ControlError::Directory(DirectoryError::NoSession))?;
        Ok(Told { about, ended: Some((ended.at, ended.why)), story: ended.story.clone() })
    }

    /// What became so far of any session of a worker.
    pub(crate) async fn tell(&self, worker: WorkerId, session: SessionId) -> Option<Option<Box<Story>>> {
        let ask = |token| self.plane.workers().offer(worker, Message::Command(Command::Tell { session, token }));
        self.tales.ask(ask).await
    }

    /// Any session of a worker has ended.
    pub(crate) fn note_end(&self, session: SessionId, about: About, why: &'static str) {
        self.plane.traces().end(session, why);
        self.stories().end(Instant::now(), session, about, why);
    }

    /// So many sessions that have ended, of one stream or of all, the last first: with who they were, when they ended, and why.
    pub fn ended(&self, stream: Option<&str>, count: usize) -> Vec<(SessionId, About, Instant, &'static str)> {
        let stories = self.stories();
        let latest = stories.latest().filter(|(_, about, _)| stream.is_none_or(|stream| *about.stream == *stream));
        latest.take(count).map(|(id, about, ended)| (id, about.clone(), ended.at, ended.why)).collect()
    }

    /// The way to a worker's negotiator.
    pub(crate) fn negotiator(&self, worker: WorkerId) -> Option<&Mailbox<Input>> {
        self.negotiators.get(worker.index()).map(|negotiator| &negotiator.mailbox)
    }

    /// Limits the layers that a viewer gets.
    ///
    /// # Errors
    /// `NoSession`, `Busy`.
    pub fn limit(&self, session: SessionId, layers: LayerLimit) -> Result<(), ControlError> {
        self.limit_at(self.worker_of(session)?, session, layers)
    }

    /// The same of any session of a worker.
    pub(crate) fn limit_at(
        &self,
        worker: WorkerId,
        session: SessionId,
        layers: LayerLimit,
    ) -> Result<(), ControlError> {
        let is_taken = self.plane.workers().offer(worker, Message::Command(Command::Limit { session, layers }));
        if is_taken { Ok(()) } else { Err(ControlError::Busy) }
    }

    /// From now on these limits count, but for `sessions_max`, which workers have as well. Who is there stays.
    pub fn set_limits(&self, settings: directory::Settings) {
        self.lock().directory.set_limits(settings);
    }

    /// As `Directory::streams`. Everybody needs the lock, so `count` is to be small.
    pub fn streams(&self, names: &[&str], after: &str, count: usize) -> Vec<StreamView> {
        self.lock().directory.streams(names, after, count)
    }

    /// Ends a stream and its sessions.
    ///
    /// # Errors
    /// `NoStream`.
    pub fn close_stream(&self, name: &str) -> Result<(), ControlError> {
        Ok(self.with_directory(|directory| directory.close_stream(name))?)
    }

    /// So many sessions behind one that are wanted, the oldest first, and where to go on. As with `streams`, `count` is to be small.
    pub fn sessions(
        &self,
        after: SessionId,
        count: usize,
        wanted: impl Fn(&Session) -> bool,
    ) -> (Vec<(SessionId, Session)>, Option<SessionId>) {
        let state = self.lock();
        scan(state.directory.sessions(after), count, |id, session| wanted(session).then(|| (id, session.clone())))
    }

    /// One session.
    ///
    /// # Errors
    /// `NoSession`.
    pub fn session(&self, id: SessionId) -> Result<Session, ControlError> {
        let session = self.lock().directory.session(id).cloned();
        session.ok_or(ControlError::Directory(DirectoryError::NoSession))
    }

    /// The session may go on until `at`: its client has shown a newer token.
    pub fn renew(&self, session: SessionId, at: Instant) {
        self.lock().directory.renew(session, at);
    }

    /// How many of what there are.
    pub fn census(&self) -> Census {
        self.lock().directory.census()
    }

    /// What was refused.
    pub fn counters(&self) -> Counters {
        self.lock().counters.clone()
    }

    /// What each worker's negotiator has counted.
    pub fn negotiator_counters(&self) -> impl Iterator<Item = (WorkerId, negotiator::Counters)> {
        self.plane.workers().ids().zip(self.negotiators.iter().map(|negotiator| negotiator.counters.load()))
    }

    /// Takes what a negotiator reports. False: there is no room any more for who has connected.
    pub fn handle_notice(&self, notice: Notice) -> bool {
        match notice {
            // Of sessions of conferences, too.
            Notice::Reached { session, progress } => self.plane.traces().reached(session, progress),
            Notice::Connected { session } => {
                let has_room = self.with_state(|state| {
                    let result = state.directory.handle_connected(session);
                    result.inspect_err(|error| state.counters.add(*error)).is_ok()
                });
                if has_room {
                    self.plane.traces().connected(session);
                }
                return has_room;
            }
            // Not of these rooms.
            Notice::Conference { .. } => return false,
            Notice::Ended { session, reason } => {
                tracing::debug!(session = session.0, ?reason, "session ended");
                // Somebody who leaves by DTLS alone may be a page that is being reloaded.
                self.end(session, reason == EndReason::Asked, stories::reason(&reason));
            }
        }
        true
    }

    /// Takes what a worker reports.
    pub fn handle_event(&self, event: Event) {
        match event {
            Event::Stats { token, stats } => self.inspections.handle_answer(token, stats),
            Event::Story { token, story } => self.tales.handle_answer(token, story),
            Event::StoryEnded { session, story } => self.stories().tell(Instant::now(), session, story),
            // This is for the negotiator.
            Event::SessionEnded { .. } => {}
            // Of conferences alone.
            Event::Levels(_) | Event::Layers { .. } | Event::Paused { .. } | Event::Silent { .. } => {}
        }
    }

    fn worker_of(&self, session: SessionId) -> Result<WorkerId, ControlError> {
        self.lock().worker_of(session)
    }

    fn request(&self, worker: WorkerId, request: Request) -> Result<(), ControlError> {
        let negotiator = self.negotiator(worker).ok_or(ControlError::Busy)?;
        negotiator.send(Input::Request(request)).map_err(|_| ControlError::Busy)
    }

    fn end(&self, session: SessionId, is_final: bool, why: &'static str) {
        self.with_state(|state| {
            if let Some(known) = state.directory.session(session) {
                self.stories().end(Instant::now(), session, About::from(known), why);
            }
            if let Some(key) = state.keys.remove(&session) {
                state.by_key.remove(&key);
            }
            state.turns.remove(&session);
            state.directory.handle_ended(&mut self.plane.placement(), Instant::now(), session, is_final);
        });
        // Behind the directory, for who follows a join.
        self.plane.traces().end(session, why);
    }

    fn with_directory<T>(&self, change: impl FnOnce(&mut Directory) -> T) -> T {
        self.with_state(|state| change(&mut state.directory))
    }

    /// Changes the state and hands the commands that follow from it to the workers, in order, under one lock.
    fn with_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        while let Some((worker, command)) = state.directory.poll_command() {
            self.plane.workers().post(worker, Message::Command(command));
        }
        result
    }

    fn stories(&self) -> MutexGuard<'_, Stories> {
        self.stories.lock().expect("nobody panics under this lock")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under this lock")
    }
}

impl State {
    fn worker_of(&self, session: SessionId) -> Result<WorkerId, ControlError> {
        let worker = self.directory.session(session).map(|session: &Session| session.worker);
        worker.ok_or(ControlError::Directory(DirectoryError::NoSession))
    }
}

impl Counters {
    fn add(&mut self, refusal: DirectoryError) {
        match refusal {
            DirectoryError::TooManyWaiting => self.too_many_waiting += 1,
            DirectoryError::TooManySessions => self.too_many_sessions += 1,
            DirectoryError::StreamFull => self.stream_full += 1,
            DirectoryError::Overloaded => self.overloaded += 1,
            // These are of nobody's load.
            DirectoryError::BadName
            | DirectoryError::NoStream
            | DirectoryError::TooManyStreams
            | DirectoryError::NoSession => {}
        }
    }
}

impl ProductControl for RoomsControl {
    fn handle_timeout(&self, now: Instant) {
        self.with_directory(|directory| directory.handle_timeout(now));
        let overdue = self.lock().directory.overdue(now);
        for session in overdue {
            // Whoever finds the negotiator full is told the next time.
            if self.close(session).is_ok() {
                tracing::debug!(session = session.0, "the token of a session is over");
            }
        }
    }

    fn has_receivers(&self) -> bool {
        self.census().viewers.1 > 0
    }

    fn close_all(&self) {
        self.with_directory(Directory::close_all);
    }
}

/// A session whose answer has not arrived. When it never does, or nobody waits for it any more, the session goes.
struct Pending<'a> {
    control: &'a RoomsControl,
    session: SessionId,
    worker: WorkerId,
    answer: oneshot::Receiver<Result<Answer, NegotiationError>>,
    state: Asked,
}

/// How far a negotiator has come with an offer.
enum Asked {
    /// It has not heard of it.
    NotYet,
    /// It is to answer.
    Waits,
    /// It has kept no session.
    Refused,
    /// It has one, and the client its answer.
    Kept,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if matches!(self.state, Asked::Kept) {
            return;
        }
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(_)) => {
                // Without room for this, the handshake's time runs out.
                let _ = self.control.request(self.worker, Request::Close { session: self.session });
            }
            Ok(Err(_)) => {}
            // The offer is in the mailbox, and takes its client's place until the negotiator sees there that nobody waits, and
            // says that it has ended.
            Err(_) if matches!(self.state, Asked::Waits) => return,
            Err(_) => {}
        }
        self.control.end(self.session, false, stories::reason(&EndReason::Abandoned));
    }
}

async fn wait<T>(answer: impl Future<Output = Result<T, RecvError>>) -> Result<T, ControlError> {
    match timeout(ANSWER_TIMEOUT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) | Err(_) => Err(ControlError::Busy),
    }
}

/// How a viewer names a track, and how the answer does in `a=msid`: by what it is and its place in the stream.
pub fn track_id(index: usize, track: &TrackSpec) -> String {
    let kind = match track.codec.kind() {
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
    };
    format!("{kind}{index}")
}

/// The indices of the tracks with these ids, each once.
fn choose(tracks: &[TrackSpec], ids: &[&str]) -> Result<Vec<usize>, ControlError> {
    let known: Vec<String> = tracks.iter().enumerate().map(|(index, track)| track_id(index, track)).collect();
    let mut chosen = Vec::new();
    for id in ids {
        let index = known.iter().position(|known| known == id).ok_or_else(|| {
            let id = id.chars().take(NAME_SHOWN_MAX).collect();
            ControlError::NoTrack { id, known: known.join(", ") }
        })?;
        if !chosen.contains(&index) {
            chosen.push(index);
        }
    }
    Ok(chosen)
}

/// Characters of an unknown name that are said again.
const NAME_SHOWN_MAX: usize = 40;

/// 128 random bits.
///
/// # Errors
/// `Busy`, where the system has no random numbers.
pub(crate) fn new_key() -> Result<Arc<str>, ControlError> {
    let bytes: [u8; 16] = random().ok_or(ControlError::Busy)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes).into())
}
