//! The control plane behind HTTP: sessions from the request to the end, streams by name, drain.
//!
//! In: offers, fragments and questions from HTTP handlers; notices from the negotiators.
//! Out: answers; requests to negotiators and commands to workers, each by the ports that the server was started with.
//! Cost: one lock, held for a few map lookups; nothing is awaited under it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rooms::spec::{Command, Counters, Event, LayerLimit, SessionId, SessionStats, WorkerId};
use tokio::sync::oneshot;

use crate::plane::backlog::Backlog;
use crate::plane::busy::BusyMeter;
use crate::plane::questions::{ANSWER_TIMEOUT, Questions};
use crate::pump::control::PumpControl;
use crate::random::random;
use crate::rooms::directory::{Directory, DirectoryError, Place, Role, Session, StreamView};
use crate::rooms::negotiator::{self, Answer, EndReason, NegotiationError, Notice, Patched, Request};

/// What clients are told to wait while the server drains.
pub const DRAIN_RETRY_SECONDS: u32 = 5;

/// What newcomers are told to wait while all workers are busy: viewers have to leave first.
pub const OVERLOAD_RETRY_SECONDS: u32 = 10;

/// The way to one worker and to its negotiator.
pub struct WorkerPort {
    /// Hands a command to the worker; gives it back when there is no room.
    pub command: Box<dyn Fn(Command) -> Result<(), Command> + Send + Sync>,
    /// Hands a request to the negotiator; false when there is no room.
    pub request: Box<dyn Fn(Request) -> bool + Send + Sync>,
    pub meter: Box<dyn Fn() -> Meter + Send + Sync>,
}

/// What a worker and its negotiator say about themselves.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    pub engine: engine::CountersSnapshot,
    /// CPU time of the worker's thread, the kernel's share included.
    pub cpu_time: Option<Duration>,
    pub negotiator: negotiator::CountersSnapshot,
}

/// Everything that HTTP can ask for.
pub struct Control {
    ports: Vec<WorkerPort>,
    /// A worker that is busier takes no newcomers.
    busy_max: f64,
    state: Mutex<State>,
    inspections: Questions<Option<SessionStats>>,
    counts: Questions<Box<Counters>>,
    is_draining: AtomicBool,
    pump: Option<Arc<PumpControl>>,
}

struct State {
    directory: Directory,
    /// Of each worker.
    busy: Vec<BusyMeter>,
    /// The last part of a session's URL. It cannot be guessed, so knowing it is a proof in itself.
    by_key: HashMap<Arc<str>, SessionId>,
    keys: HashMap<SessionId, Arc<str>>,
    backlog: Backlog<Command>,
}

/// A session that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub key: Arc<str>,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("the server is about to stop")]
    Draining,
    #[error("the server is too busy to answer")]
    Busy,
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
}

impl Control {
    pub fn new(ports: Vec<WorkerPort>, reconnect_grace: Duration) -> Self {
        let state = State {
            directory: Directory::new(ports.len(), reconnect_grace),
            busy: vec![BusyMeter::default(); ports.len()],
            by_key: HashMap::new(),
            keys: HashMap::new(),
            backlog: Backlog::new(ports.len()),
        };
        Control {
            ports,
            busy_max: 1.0,
            state: Mutex::new(state),
            inspections: Questions::default(),
            counts: Questions::default(),
            is_draining: AtomicBool::new(false),
            pump: None,
        }
    }

    /// The pump that runs beside the rooms.
    #[must_use]
    pub fn with_pump(self, pump: Arc<PumpControl>) -> Self {
        Control { pump: Some(pump), ..self }
    }

    pub fn pump(&self) -> Option<&Arc<PumpControl>> {
        self.pump.as_ref()
    }

    /// Newcomers are refused while every worker is at work for a larger share of its time than this.
    #[must_use]
    pub fn with_busy_max(self, busy_max: f64) -> Self {
        Control { busy_max, ..self }
    }

    /// Opens a publication. Who publishes a stream that has a publisher takes its place.
    ///
    /// # Errors
    /// `Draining`, `Busy`, and what the directory and the negotiator refuse.
    pub async fn publish(&self, name: &str, offer: &str) -> Result<Opened, ControlError> {
        match self.try_publish(name, offer, false).await {
            // The name goes on, but its viewers cannot watch these tracks: a new stream takes its place.
            Err(ControlError::Directory(DirectoryError::OtherTracks)) => self.try_publish(name, offer, true).await,
            result => result,
        }
    }

    async fn try_publish(&self, name: &str, offer: &str, is_new: bool) -> Result<Opened, ControlError> {
        let (place, key) = self.begin(|directory| directory.begin_publish(name, is_new))?;
        let Place { session, worker, stream, .. } = place;
        let mut pending = Pending { control: self, session, worker, is_kept: false };
        let (reply, answer) = oneshot::channel();
        let offer = offer.to_owned();
        self.request(worker, Request::Publish { session, stream, offer, reply })?;
        let answer = wait(answer).await??;
        let commit = self.with_directory(|directory| directory.commit_publish(session, &answer.tracks));
        commit?;
        pending.is_kept = true;
        Ok(Opened { key, answer })
    }

    /// Opens a viewer's session.
    ///
    /// # Errors
    /// `Draining`, `Busy`, and what the directory and the negotiator refuse.
    pub async fn watch(&self, name: &str, offer: &str) -> Result<Opened, ControlError> {
        let (place, key) = self.begin(|directory| directory.begin_watch(name))?;
        let Place { session, worker, stream, name, tracks } = place;
        let mut pending = Pending { control: self, session, worker, is_kept: false };
        let (reply, answer) = oneshot::channel();
        let offer = offer.to_owned();
        self.request(worker, Request::Watch { session, stream, name, tracks, offer, reply })?;
        let answer = wait(answer).await??;
        pending.is_kept = true;
        Ok(Opened { key, answer })
    }

    fn begin(
        &self,
        place: impl FnOnce(&mut Directory) -> Result<Place, DirectoryError>,
    ) -> Result<(Place, Arc<str>), ControlError> {
        if self.is_draining() {
            return Err(ControlError::Draining);
        }
        let key = new_key()?;
        let place = self.with_directory(place)?;
        let mut state = self.lock();
        state.by_key.insert(key.clone(), place.session);
        state.keys.insert(place.session, key.clone());
        Ok((place, key))
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

    /// Hands a trickle fragment to the session.
    ///
    /// # Errors
    /// What the negotiator refuses.
    pub async fn patch(&self, session: SessionId, fragment: String, if_match: String) -> Result<Patched, ControlError> {
        let worker = self.worker_of(session)?;
        let (reply, patched) = oneshot::channel();
        self.request(worker, Request::Patch { session, fragment, if_match, reply })?;
        Ok(wait(patched).await??)
    }

    /// Ends a session. A publisher takes its stream along.
    ///
    /// # Errors
    /// `NoSession`, `Busy`.
    pub fn close(&self, session: SessionId) -> Result<(), ControlError> {
        let worker = self.worker_of(session)?;
        self.request(worker, Request::Close { session })?;
        self.end(session, true);
        Ok(())
    }

    /// What the worker has counted for a session; `None` until it is connected.
    ///
    /// # Errors
    /// `NoSession`, `Busy`.
    pub async fn stats(&self, session: SessionId) -> Result<Option<SessionStats>, ControlError> {
        let worker = self.worker_of(session)?;
        let ask = |token| self.command(worker, Command::Inspect { session, token });
        self.inspections.ask(ask).await.ok_or(ControlError::Busy)
    }

    /// Limits the layers that a viewer gets.
    ///
    /// # Errors
    /// `NoSession`.
    pub fn limit(&self, session: SessionId, layers: LayerLimit) -> Result<(), ControlError> {
        let worker = self.worker_of(session)?;
        self.command(worker, Command::Limit { session, layers });
        Ok(())
    }

    pub fn streams(&self) -> Vec<StreamView> {
        self.lock().directory.streams()
    }

    /// Ends a stream and its sessions.
    ///
    /// # Errors
    /// `NoStream`.
    pub fn close_stream(&self, name: &str) -> Result<(), ControlError> {
        Ok(self.with_directory(|directory| directory.close_stream(name))?)
    }

    /// Whether anybody is sent anything.
    pub fn has_receivers(&self) -> bool {
        self.session_counts(Role::Viewer).1 > 0 || self.pump.as_ref().is_some_and(|pump| pump.totals().open > 0)
    }

    /// Sessions of a role: all, and those that are connected.
    pub fn session_counts(&self, role: Role) -> (usize, usize) {
        self.lock().directory.session_counts(role)
    }

    /// What each worker and its negotiator say about themselves.
    pub fn meters(&self) -> Vec<Meter> {
        self.ports.iter().map(|port| (port.meter)()).collect()
    }

    /// What each worker's rooms have counted; `None` for one that does not answer in time.
    pub async fn room_counters(&self) -> Vec<Option<Box<Counters>>> {
        let ask = |index, token| self.command(WorkerId(index as u16), Command::Count { token });
        self.counts.ask_all(self.ports.len(), ask).await
    }

    /// Takes what a negotiator reports.
    pub fn handle_notice(&self, notice: Notice) {
        match notice {
            Notice::Connected { session } => self.with_directory(|directory| directory.handle_connected(session)),
            Notice::Ended { session, reason } => {
                tracing::debug!(session = session.0, ?reason, "session ended");
                // Somebody who leaves by DTLS alone may be a page that is being reloaded.
                self.end(session, reason == EndReason::Asked);
            }
            Notice::Event(Event::Stats { token, stats }) => self.inspections.handle_answer(token, stats),
            Notice::Event(Event::Counters { token, counters }) => self.counts.handle_answer(token, counters),
            Notice::Event(_) => {}
        }
    }

    /// Does what is due. To be called every 100 ms or so.
    pub fn handle_timeout(&self, now: Instant) {
        let meters = self.meters();
        self.with_state(|state| {
            let State { directory, busy, .. } = state;
            for (index, (busy, meter)) in busy.iter_mut().zip(&meters).enumerate() {
                busy.update(now, meter.engine.busy_ns);
                directory.set_full(WorkerId(index as u16), busy.share() > self.busy_max);
            }
            directory.handle_timeout(now);
        });
        if let Some(pump) = &self.pump {
            pump.handle_timeout(now);
        }
    }

    /// Refuses new sessions from now on.
    pub fn start_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        if let Some(pump) = &self.pump {
            pump.start_drain();
        }
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    fn worker_of(&self, session: SessionId) -> Result<WorkerId, ControlError> {
        let worker = self.lock().directory.session(session).map(|session: &Session| session.worker);
        worker.ok_or(ControlError::Directory(DirectoryError::NoSession))
    }

    fn request(&self, worker: WorkerId, request: Request) -> Result<(), ControlError> {
        let port = self.ports.get(usize::from(worker.0)).ok_or(ControlError::Busy)?;
        if (port.request)(request) { Ok(()) } else { Err(ControlError::Busy) }
    }

    fn command(&self, worker: WorkerId, command: Command) {
        self.with_state(|state| state.backlog.push(worker.0.into(), command));
    }

    fn end(&self, session: SessionId, is_final: bool) {
        self.with_state(|state| {
            if let Some(key) = state.keys.remove(&session) {
                state.by_key.remove(&key);
            }
            state.directory.handle_ended(Instant::now(), session, is_final);
        });
    }

    fn with_directory<T>(&self, change: impl FnOnce(&mut Directory) -> T) -> T {
        self.with_state(|state| change(&mut state.directory))
    }

    /// Changes the state and hands the commands that follow from it to the workers, in order, under one lock.
    fn with_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let State { directory, backlog, .. } = &mut *state;
        while let Some((WorkerId(worker), command)) = directory.poll_command() {
            backlog.push(worker.into(), command);
        }
        backlog.flush(|worker, command| match self.ports.get(worker) {
            Some(port) => (port.command)(command),
            None => Ok(()),
        });
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under this lock")
    }
}

/// A session whose answer has not arrived. When it never does, or nobody waits for it any more, the session goes.
struct Pending<'a> {
    control: &'a Control,
    session: SessionId,
    worker: WorkerId,
    is_kept: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        // Without room for this, the handshake's time runs out.
        let _ = self.control.request(self.worker, Request::Close { session: self.session });
        self.control.end(self.session, false);
    }
}

async fn wait<T>(answer: oneshot::Receiver<T>) -> Result<T, ControlError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) | Err(_) => Err(ControlError::Busy),
    }
}

/// 128 random bits.
fn new_key() -> Result<Arc<str>, ControlError> {
    let bytes: [u8; 16] = random().ok_or(ControlError::Busy)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes).into())
}
