//! The pump's control plane: sessions from the request to the end.
//!
//! In: requests; events from workers. Out: answers; commands to workers; chunks, fetched by tasks.
//! Cost: one lock, held for a few map lookups; nothing is awaited under it, and no worker takes it.

mod change;
mod fast;
mod limits;
mod live;
mod open;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use engine::OpenSocket;
use pump::pids::RenameError;
use pump::spec::{self, Command, EndReason, Event, SessionId, SessionStats};
use pump::title::Title;
use titles::{Library, Trouble};
use tokio::runtime::Handle;
use tokio::time::timeout;
use wire::{Bitrate, LinkId, WorkerId};

use super::connections::Connections;
use super::destination::{Allowed, DestinationError};
use super::live::Input;
use super::outputs::Outputs;
use super::sessions::{End, Limits, Session, Sessions};
use super::times;
use crate::plane::questions::Questions;
use crate::plane::workers::Posted;
use crate::plane::{Plane, ProductControl};
use crate::scan::scan;
use crate::worker::Message;

pub(super) use change::Fast;
pub use change::Started;

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much there may be.
    pub limits: Limits,
    /// What sessions may choose to send by, for which each worker has sockets.
    pub outputs: Outputs,
    /// Where sessions may send to; `None`: everywhere, for the one who starts the process himself.
    pub destinations: Option<Allowed>,
    /// How long a client waits for what has to be read of a title before it is told to try again.
    pub read_timeout: Duration,
}

/// Everything that can be asked of the pump.
pub struct PumpControl {
    plane: Arc<Plane>,
    /// The sockets that each worker sends from.
    senders: Vec<Senders>,
    outputs: Outputs,
    read_timeout: Duration,
    library: Library,
    /// Live inputs; set once, at the start.
    pub(super) live: OnceLock<Vec<Arc<Input>>>,
    pub(super) connections: Connections,
    state: Mutex<State>,
    inspections: Questions<Option<Box<SessionStats>>>,
    starts: Questions<Option<spec::Start>>,
}

/// The sockets that a worker's pump sends from.
pub type Senders = Vec<OpenSocket>;

struct State {
    sessions: Sessions,
    /// As in `Settings`.
    destinations: Option<Arc<Allowed>>,
    /// Numbers rows of pictures.
    next_run: u64,
    refusals: u64,
}

/// A session and its numbers.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The session.
    pub session: Session,
    /// What its worker has counted.
    pub stats: Box<SessionStats>,
    /// How far into the title it is.
    pub at: Duration,
    /// What keeps the parts of its title from coming now.
    pub trouble: Option<Trouble>,
}

/// What control has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Sessions that are open.
    pub open: usize,
    /// Of these: paused.
    pub paused: usize,
    /// What all sessions take.
    pub bandwidth: Bitrate,
    /// What they may take.
    pub bandwidth_max: Bitrate,
    /// Reports that nobody listens at a destination.
    pub refusals: u64,
}

/// Why something cannot be done.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum PumpError {
    #[error("the server is about to stop")]
    Draining,
    #[error("the server is too busy to answer")]
    Busy,
    #[error("every worker of this server is busy, or the pump's bandwidth is used up")]
    Overloaded,
    #[error(transparent)]
    Destination(#[from] DestinationError),
    #[error(transparent)]
    Title(#[from] titles::Error),
    #[error("what is needed of the title is not here yet; try again")]
    Slow,
    #[error("the title has no clock; say at which rate to send it")]
    NoClock,
    #[error("nothing lies between start and end")]
    Empty,
    #[error(transparent)]
    Rename(#[from] RenameError),
    #[error(
        "pad is {pad} bit/s, and the title has {mean} bit/s on average and {peak} bit/s in its fullest part that was looked \
         at; pad it to more, or not"
    )]
    PadTooLow { pad: u64, mean: u64, peak: u64 },
    #[error("there is no output {0:?} (see pump.outputs)")]
    NoOutput(String),
    #[error("nothing comes at this live input, or nothing with a clock")]
    NoSignal,
    #[error("a live input has no {0}")]
    Live(&'static str),
    #[error("no such session")]
    NoSession,
    #[error("the session has ended")]
    Ended,
}

impl PumpControl {
    /// Without sessions, on workers that send from `senders`.
    pub fn new(library: Library, plane: Arc<Plane>, senders: Vec<Senders>, settings: Settings) -> Self {
        let Settings { limits, outputs, destinations, read_timeout } = settings;
        let sessions = Sessions::new(plane.workers().count(), limits);
        let destinations = destinations.map(Arc::new);
        PumpControl {
            state: Mutex::new(State { sessions, destinations, next_run: 0, refusals: 0 }),
            plane,
            senders,
            outputs,
            read_timeout,
            library,
            live: OnceLock::new(),
            connections: Connections::default(),
            inspections: Questions::default(),
            starts: Questions::default(),
        }
    }

    /// What all products have in common.
    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// The socket of a worker for an address.
    fn link(&self, worker: WorkerId, output: Option<&str>, ip: IpAddr) -> Option<LinkId> {
        let senders = self.senders.get(worker.index())?;
        self.outputs.link(senders, output, ip)
    }

    /// Where titles come from.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Waits for what has to be read, but not longer than a client does. Reading goes on, so the next try is quicker.
    async fn in_time<T>(&self, reading: impl Future<Output = Result<T, PumpError>>) -> Result<T, PumpError> {
        timeout(self.read_timeout, reading).await.unwrap_or(Err(PumpError::Slow))
    }

    /// A title by its name.
    ///
    /// # Errors
    /// Why it cannot be played.
    pub async fn title(&self, name: &str) -> Result<Arc<Title>, PumpError> {
        self.in_time(async { Ok(self.library.open(name).await?) }).await
    }

    /// The sockets that each worker sends from.
    pub fn senders(&self) -> impl Iterator<Item = &[OpenSocket]> {
        self.senders.iter().map(Vec::as_slice)
    }

    /// Somebody still wants the session: its lease begins anew.
    pub fn renew(&self, id: SessionId) {
        self.lock().sessions.renew(Instant::now(), id);
    }

    /// Ends a session.
    ///
    /// # Errors
    /// `NoSession`, `Ended`.
    pub fn close(&self, id: SessionId) -> Result<(), PumpError> {
        self.running(id)?;
        self.close_because(id, End::Pump(EndReason::Closed));
        Ok(())
    }

    fn close_because(&self, id: SessionId, why: End) {
        if let Some(worker) = self.lock().sessions.close(id, why) {
            self.post(worker, Command::Close(id));
        }
    }

    fn running(&self, id: SessionId) -> Result<Session, PumpError> {
        let mut state = self.lock();
        match state.sessions.get(id) {
            None => Err(PumpError::NoSession),
            Some(_) => state.sessions.running(id).map(|session| session.clone()).ok_or(PumpError::Ended),
        }
    }

    /// Whether a title's name is that of a live input.
    pub fn is_live(&self, title: &str) -> bool {
        self.input(title).is_some()
    }

    /// Whether the session is there and has not ended.
    pub fn is_open(&self, id: SessionId) -> bool {
        self.lock().sessions.running(id).is_some()
    }

    /// Whether the session is there, has not ended and is not paused.
    pub fn is_playing(&self, id: SessionId) -> bool {
        self.lock().sessions.running(id).is_some_and(|session| !session.is_paused)
    }

    /// All sessions, those that ended lately included.
    pub fn sessions(&self) -> Vec<Session> {
        self.lock().sessions.iter().cloned().collect()
    }

    /// So many of these behind one that are wanted, the oldest first, and where to go on.
    pub fn sessions_behind(
        &self,
        after: SessionId,
        count: usize,
        wanted: impl Fn(&Session) -> bool,
    ) -> (Vec<Session>, Option<SessionId>) {
        let state = self.lock();
        scan(state.sessions.behind(after), count, |_, session| wanted(session).then(|| session.clone()))
    }

    /// What control has counted.
    pub fn totals(&self) -> Totals {
        let state = self.lock();
        Totals {
            open: state.sessions.open_count(),
            paused: state.sessions.iter().filter(|session| session.is_paused && session.end.is_none()).count(),
            bandwidth: state.sessions.bandwidth(),
            bandwidth_max: state.sessions.limits().bandwidth_max,
            refusals: state.refusals,
        }
    }

    /// A session with what its worker has counted.
    ///
    /// # Errors
    /// `NoSession`, `Busy`.
    pub async fn inspect(&self, id: SessionId) -> Result<Inspected, PumpError> {
        let session = {
            let mut state = self.lock();
            state.sessions.renew(Instant::now(), id);
            state.sessions.get(id).cloned().ok_or(PumpError::NoSession)?
        };
        let asked = match &session.end {
            Some(_) => None,
            None => self.ask_stats(session.worker, id).await?,
        };
        // It may have ended meanwhile.
        let session = self.lock().sessions.get(id).cloned().unwrap_or(session);
        let stats = match (&session.end, asked) {
            (Some((_, stats)), _) => stats.clone(),
            (None, stats) => stats.unwrap_or_default(),
        };
        let at = session.time_at(stats.position);
        let trouble = self.trouble(&session);
        Ok(Inspected { session, stats, at, trouble })
    }

    async fn ask_stats(&self, worker: WorkerId, session: SessionId) -> Result<Option<Box<SessionStats>>, PumpError> {
        let ask = |token| self.offer(worker, Command::Inspect { session, token });
        self.inspections.ask(ask).await.ok_or(PumpError::Busy)
    }

    /// Takes what a worker reports. Chunks are fetched by tasks on `runtime`.
    pub fn handle_event(self: &Arc<Self>, event: Event, runtime: &Handle) {
        match event {
            Event::Need { session, chunk } => {
                if let Some(found) = self.begin_delivery(session, chunk) {
                    let control = self.clone();
                    runtime.spawn(async move {
                        match &found.content.input {
                            Some(input) => control.jump(session, input).await,
                            None => control.deliver(found, chunk).await,
                        }
                    });
                }
            }
            Event::SessionEnded { session, reason, stats } => {
                let mut state = self.lock();
                if let Some(starved) = state.sessions.running(session).filter(|_| reason == EndReason::Starved) {
                    starved.trouble = self.trouble(starved).map(|trouble| trouble.error.to_string());
                }
                let ended = state.sessions.handle_ended(&mut self.plane.placement(), session, reason, stats);
                if let Some(session) = ended {
                    if let Some(input) = &session.content.input {
                        input.remove_session(session.worker, self.plane.workers());
                    }
                    let why = session.end.as_ref().map(|(why, _)| why);
                    tracing::debug!(session = session.id.0, title = &*session.name, ?why, "pump session ended");
                }
            }
            Event::Heard { connection, bytes } => self.connections.handle_heard(connection, bytes),
            Event::HungUp { connection } => self.connections.handle_hung_up(connection),
            Event::Stats { token, stats } => self.inspections.handle_answer(token, stats),
            Event::Started { token, start } => self.starts.handle_answer(token, start),
            Event::PicturesWanted { session, run } => {
                if let Ok(found) = self.running(session) {
                    let control = self.clone();
                    runtime.spawn(async move { control.find_pictures(found, run).await });
                }
            }
            Event::PicturesShown { session, run, parts } => {
                if let Ok(found) = self.running(session) {
                    let control = self.clone();
                    runtime.spawn(async move { control.handle_shown(found, run, parts).await });
                }
            }
        }
    }

    /// A session for which a chunk is not on its way yet.
    fn begin_delivery(&self, id: SessionId, number: u32) -> Option<Session> {
        let mut state = self.lock();
        let session = state.sessions.running(id)?;
        let is_new = session.content.input.is_some() || session.awaited.insert(number);
        is_new.then(|| session.clone())
    }

    /// Fetches a chunk for a session, for as long as there is the session and the title. What could be had of a title that
    /// is gone is still sent.
    async fn deliver(&self, session: Session, number: u32) {
        let Session { id, worker, content, name, .. } = session;
        loop {
            let awaited = self.library.await_chunk(&content.title, number.into()).await;
            let mut state = self.lock();
            let Some(session) = state.sessions.running(id) else { return };
            let command = match awaited {
                Ok(chunk) => {
                    session.seen.note(&chunk);
                    Command::Chunk { session: id, chunk }
                }
                Err(error) if error.is_passing() => continue,
                Err(error) => {
                    tracing::debug!(title = &*name, number, %error, "the title is gone");
                    session.trouble = Some(error.to_string());
                    Command::Gone { session: id, chunk: number }
                }
            };
            session.awaited.remove(&number);
            self.post(worker, command);
            return;
        }
    }

    /// What keeps the parts of a session's title from coming now.
    pub fn trouble(&self, session: &Session) -> Option<Trouble> {
        self.library.trouble(&session.content.title).filter(|_| session.end.is_none())
    }

    /// Nobody listens at a destination.
    pub fn handle_refused(&self, remote: SocketAddr) {
        let over = {
            let mut state = self.lock();
            state.refusals += 1;
            state.sessions.handle_refused(Instant::now(), remote)
        };
        for id in over {
            tracing::info!(session = id.0, %remote, "nobody listens there; the session ends");
            self.close_because(id, End::Refused);
        }
    }

    /// Tells a worker what follows from a change. What has an order is told under the lock.
    pub(super) fn post(&self, worker: WorkerId, command: Command) -> Posted {
        self.plane.workers().post(worker, Message::Pump(command))
    }

    /// Asks a worker; false when it has no room now.
    fn offer(&self, worker: WorkerId, question: Command) -> bool {
        self.plane.workers().offer(worker, Message::Pump(question))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under this lock")
    }
}

impl PumpControl {
    /// Ends all sessions but the server's own.
    pub(crate) fn close_clients(&self) {
        let open: Vec<SessionId> =
            self.lock().sessions.iter().filter(|session| !session.is_own).map(|session| session.id).collect();
        for id in open {
            self.close_because(id, End::Pump(EndReason::Closed));
        }
    }
}

impl ProductControl for PumpControl {
    fn handle_timeout(&self, now: Instant) {
        let lapsed = self.lock().sessions.lapsed(now);
        for id in lapsed {
            tracing::debug!(session = id.0, "nobody asked for it within its lease; the session ends");
            self.close_because(id, End::Lapsed);
        }
    }

    fn has_receivers(&self) -> bool {
        self.lock().sessions.open_count() > 0
    }

    fn close_all(&self) {
        let open: Vec<SessionId> = self.lock().sessions.iter().map(|session| session.id).collect();
        for id in open {
            self.close_because(id, End::Pump(EndReason::Closed));
        }
    }
}
