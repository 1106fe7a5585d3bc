//! The reflector's control plane: streams by their paths, who watches them, and how many may.
//!
//! In: settings, requests that want a stream, events of workers. Out: viewers for workers, what is known of streams and viewers.
//! Cost: one lock per viewer that comes or goes and per request by HLS, held for a look at each stream; none for a request that wants no stream, nor for
//! what streams carry. Some 200 bytes per viewer.
//! Locks: this one first, then a stream's, then the plane's.

mod admission;
mod moved;
mod reload;
mod sessions;
mod told;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use reflect::counters::EndCounts;
use reflect::moved::Handed;
use reflect::spec::{Command, EndReason, EndedViewer, Event, ViewerId, ViewerNow};
use tokio::sync::{Notify, mpsc, oneshot};
use wire::{Bitrate, WorkerId};

use super::access::{self, AccessLog, End};
use super::sign::UrlKeys;
use super::source::{Around, Running};
use super::stories::Stories;
use super::stream::Stream;
use crate::accept::PerAddress;
use crate::config;
use crate::plane::questions::Questions;
use crate::plane::{Plane, ProductControl};
use crate::scan::scan;
use crate::worker::Message;
pub use admission::{Admission, Arrived};
pub(crate) use moved::Away;
use moved::Hearing;
pub use sessions::Session;
use sessions::Sessions;

/// Everything that can be asked of the reflector.
pub struct Control {
    plane: Arc<Plane>,
    /// What sources need.
    around: Option<Around>,
    /// The process has descriptors for so many viewers.
    viewers_max: usize,
    /// Streams by their paths: replaced as a whole.
    paths: RwLock<Arc<HashMap<Box<str>, Arc<Stream>>>>,
    state: Mutex<State>,
    /// What became of viewers who are here, which their workers are asked for.
    told: Questions<Option<ViewerNow>>,
}

#[derive(Default)]
struct State {
    /// As they were applied last.
    settings: config::Reflect,
    limits: Limits,
    /// Of signed URLs. `None`: everybody may watch.
    keys: Option<Arc<UrlKeys>>,
    /// By its name.
    access: Option<(String, Arc<AccessLog>)>,
    /// By their numbers, those that were removed included while they have viewers.
    streams: BTreeMap<u64, Entry>,
    viewers: BTreeMap<ViewerId, Viewer>,
    /// Those who are gone.
    stories: Stories,
    /// Of these, those that are players of HLS.
    sessions: Sessions,
    per_client: PerAddress,
    /// Viewers that have a place, whether they are in the table yet or not.
    admitted: usize,
    /// That there is no place left was said, and none has become free since.
    is_full_told: bool,
    streams_begun: u64,
    viewers_begun: u64,
    /// All goes over to another process: where viewers go whom workers give away.
    leaving: Option<mpsc::Sender<Handed>>,
    /// Streams that came back have their sources' bytes from these, which are as they were before.
    former: Vec<Running>,
    /// Each of which tells when it has ended.
    feeding: Vec<oneshot::Receiver<()>>,
}

/// A stream, and what its viewers had.
struct Entry {
    stream: Arc<Stream>,
    /// Where it is fetched from; nobody when it is pushed.
    sources: Option<Running>,
    /// Its source's bytes come from another process.
    hearing: Option<Hearing>,
    path: Box<str>,
    is_configured: bool,
    /// That have a place.
    viewers: usize,
    viewers_max: usize,
    totals: Totals,
}

/// What the viewers of a stream have had who are gone.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How many came.
    pub begun: u64,
    /// Bytes that they got.
    pub sent_bytes: u64,
    /// How often one fell out of the window and went on elsewhere.
    pub skips: u64,
    /// Why they are gone.
    pub ended: EndCounts,
}

/// Somebody who watches.
struct Viewer {
    admission: Admission,
    at: At,
    since: Instant,
}

/// Who sends to a viewer.
enum At {
    Worker(WorkerId),
    /// A task, which ends when it is told.
    Task(Arc<Notify>),
    /// It asks for one piece after the other, by HLS.
    Player(Arc<Session>),
}

/// What viewers may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Viewers of all streams.
    pub viewers_max: usize,
    /// Of one client.
    pub viewers_per_client: usize,
    /// What all of them take, by their streams' rates.
    pub bandwidth_max: Option<Bitrate>,
}

impl Default for Limits {
    /// None.
    fn default() -> Self {
        Limits { viewers_max: usize::MAX, viewers_per_client: usize::MAX, bandwidth_max: None }
    }
}

/// What is at a path.
pub enum Found {
    /// A stream.
    Stream(Arc<Stream>),
    /// Something that belongs to it, by its name: a playlist, a segment.
    Below(Arc<Stream>, String),
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum Refusal {
    #[error("nothing of this stream has come yet")]
    NotReady,
    #[error("the server is about to stop")]
    Draining,
    #[error("every worker of this server is busy")]
    Busy,
    #[error("this server has as many viewers as it may have")]
    Full,
    #[error("this stream has as many viewers as it may have")]
    StreamFull,
    #[error("there are too many viewers from your address")]
    ClientFull,
    #[error("the bandwidth of this server is used up")]
    Bandwidth,
}

/// A stream as it is shown.
#[derive(Clone, Debug)]
pub struct StreamView {
    /// What it is called.
    pub name: Arc<str>,
    /// Where it is served.
    pub path: Box<str>,
    /// What its viewers are told that it is. `None`: nothing has come yet.
    pub content_type: Option<String>,
    /// Where it may be fetched from; none when it is pushed.
    pub sources: usize,
    /// Somebody sends it.
    pub has_source: bool,
    /// As measured.
    pub rate: Bitrate,
    /// Bytes that came.
    pub received_bytes: u64,
    /// How often each viewer is sent to, once in this.
    pub interval: Duration,
    /// It is served as HLS too.
    pub has_hls: bool,
    /// Viewers now.
    pub viewers: usize,
    /// What those had who are gone.
    pub totals: Totals,
}

/// A viewer as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewerView {
    /// Which.
    pub id: ViewerId,
    /// Where it is.
    pub client: Option<IpAddr>,
    /// Which worker sends; `None`: HTTP does.
    pub worker: Option<WorkerId>,
    /// It is a player of HLS.
    pub is_hls: bool,
    /// For how long it has been here.
    pub age: Duration,
}

impl Control {
    /// Without streams. Where there is nothing `around`, streams can only be pushed. There are `viewers_max` viewers at most, whatever
    /// the settings say.
    pub fn new(plane: Arc<Plane>, around: Option<Around>, viewers_max: usize) -> Arc<Self> {
        Arc::new(Control {
            plane,
            around,
            viewers_max,
            paths: RwLock::default(),
            state: Mutex::default(),
            told: Questions::default(),
        })
    }

    /// Whether there are streams.
    pub fn has_streams(&self) -> bool {
        !self.paths().is_empty()
    }

    /// Whether a path is a stream's, as it is typed and without a query.
    pub fn is_stream(&self, path: &str) -> bool {
        self.paths().contains_key(path)
    }

    /// What is at a path.
    pub fn find(&self, path: &str) -> Option<Found> {
        let paths = self.paths();
        if let Some(stream) = paths.get(path) {
            return Some(Found::Stream(stream.clone()));
        }
        let (above, name) = path.rsplit_once('/')?;
        Some(Found::Below(paths.get(above)?.clone(), name.to_owned()))
    }

    /// The keys of signed URLs, where viewers need these.
    pub fn url_keys(&self) -> Option<Arc<UrlKeys>> {
        self.lock().keys.clone()
    }

    /// What became of lines of the access log.
    pub fn access_totals(&self) -> access::Totals {
        self.lock().access.as_ref().map(|(_, log)| log.totals()).unwrap_or_default()
    }

    /// Takes what a worker reports.
    pub fn handle_event(&self, worker: WorkerId, event: Event) {
        let of = |id| self.lock().streams.get(&Stream::number_of(id)).map(|entry| entry.stream.clone());
        match event {
            Event::Passed { stream, begin } => {
                if let Some(found) = of(stream) {
                    found.handle_passed(worker, stream, begin);
                }
            }
            Event::Left(stream) => {
                if let Some(found) = of(stream) {
                    found.handle_left(worker, stream);
                }
            }
            Event::ViewerEnded(ended) => self.handle_ended(worker, &ended),
            Event::Story { token, told } => self.told.handle_answer(token, told),
        }
    }

    fn handle_ended(&self, worker: WorkerId, ended: &EndedViewer) {
        if let Some(viewer) = self.remove(ended) {
            viewer.admission.stream().remove_viewer(worker, ended.stream);
        }
    }

    /// A viewer is gone. His place is there again when what is returned is dropped.
    fn remove(&self, ended: &EndedViewer) -> Option<Viewer> {
        let mut state = self.lock();
        let viewer = state.viewers.remove(&ended.id)?;
        if let At::Player(session) = &viewer.at {
            state.sessions.remove(session);
        }
        if let Some(entry) = state.streams.get_mut(&viewer.admission.stream().number()) {
            entry.totals.sent_bytes += ended.sent_bytes;
            entry.totals.skips += u64::from(ended.course.skips);
            entry.totals.ended.add(ended.reason, 1);
        }
        let told = viewer.ended(Instant::now(), ended);
        state.stories.end(told);
        let access = state.access.as_ref().map(|(_, log)| log.clone());
        drop(state);
        if let Some((log, visit)) = access.zip(viewer.admission.visit()) {
            let EndedViewer { sent_bytes, age, course, reason, .. } = *ended;
            log.write(visit, &End { sent_bytes, age, skips: course.skips, reason: reason.into() });
        }
        let (id, stream, reason) = (ended.id.0, &**viewer.admission.stream().name(), <&str>::from(ended.reason));
        let (sent_bytes, skips) = (ended.sent_bytes, ended.course.skips);
        tracing::debug!(viewer = id, stream, reason, sent_bytes, skips, "viewer gone");
        Some(viewer)
    }

    /// Ends a viewer. False: there is none.
    pub fn end_viewer(&self, id: ViewerId) -> bool {
        let state = self.lock();
        match state.viewers.get(&id).map(|viewer| &viewer.at) {
            Some(At::Worker(worker)) => {
                self.plane.workers().post(*worker, Message::Reflect(Command::EndViewer(id)));
            }
            Some(At::Task(task)) => task.notify_one(),
            Some(At::Player(session)) => {
                let session = session.clone();
                drop(state);
                self.end_session(id, &session, Instant::now(), EndReason::Asked);
            }
            None => return false,
        }
        true
    }

    /// Streams that are configured, by name.
    pub fn streams(&self) -> Vec<StreamView> {
        let state = self.lock();
        let mut all: Vec<StreamView> = state.streams.values().filter(|entry| entry.is_configured).map(view).collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Viewers of a stream from the first after `after` on, by number, and where to go on. `None`: there is no such stream.
    pub fn viewers(&self, stream: &str, after: ViewerId, count: usize) -> Option<(Vec<ViewerView>, Option<ViewerId>)> {
        let state = self.lock();
        let (number, _) =
            state.streams.iter().find(|(_, entry)| entry.is_configured && **entry.stream.name() == *stream)?;
        let later = state.viewers.range((Excluded(after), Unbounded));
        let now = Instant::now();
        let view = |id: &ViewerId, viewer: &Viewer| ViewerView {
            id: *id,
            client: viewer.admission.client(),
            worker: match viewer.at {
                At::Worker(worker) => Some(worker),
                At::Task(_) | At::Player(_) => None,
            },
            is_hls: matches!(viewer.at, At::Player(_)),
            age: now.saturating_duration_since(viewer.since),
        };
        let is_of_stream = |viewer: &Viewer| viewer.admission.stream().number() == *number;
        let (found, next) = scan(later, count, |id, viewer| is_of_stream(viewer).then(|| view(id, viewer)));
        Some((found, next.copied()))
    }

    /// How many streams are configured.
    pub fn stream_count(&self) -> usize {
        self.lock().streams.values().filter(|entry| entry.is_configured).count()
    }

    /// How many viewers there are.
    pub fn viewer_count(&self) -> usize {
        self.lock().admitted
    }

    fn paths(&self) -> Arc<HashMap<Box<str>, Arc<Stream>>> {
        self.paths.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn view(entry: &Entry) -> StreamView {
    let stream = &entry.stream;
    let status = stream.status();
    StreamView {
        name: stream.name().clone(),
        path: entry.path.clone(),
        content_type: stream.content().map(|content| content.content_type),
        sources: stream.config().source.len(),
        has_source: status.has_source,
        rate: stream.rate(),
        received_bytes: status.received_bytes,
        interval: stream.interval(),
        has_hls: stream.hls().is_some(),
        viewers: entry.viewers,
        totals: entry.totals.clone(),
    }
}

impl ProductControl for Control {
    fn handle_timeout(&self, now: Instant) {
        self.end_late_sessions(now);
        let viewers = self.plane.workers().numbers().map(|(worker, numbers)| (worker, numbers.reflect.load().viewers));
        let placement = self.plane.placement();
        let work: Vec<_> = viewers.map(|(worker, viewers)| (viewers, placement.busy(worker))).collect();
        drop(placement);
        let streams: Vec<_> = self.lock().streams.values().map(|entry| entry.stream.clone()).collect();
        for stream in streams {
            stream.look_at_crowd(&|worker| work.get(worker.index()).copied().unwrap_or_default());
        }
    }

    fn has_receivers(&self) -> bool {
        self.lock().admitted > 0
    }

    fn close_all(&self) {
        let streams: Vec<_> = self.lock().streams.values().map(|entry| entry.stream.clone()).collect();
        let now = Instant::now();
        streams.iter().for_each(|stream| stream.end(now));
    }
}
