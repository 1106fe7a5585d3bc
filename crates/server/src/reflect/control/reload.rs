//! Streams that are added, changed and removed while others go on.

use std::collections::HashMap;

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::{Control, Entry, Limits, State, Totals};
use crate::config::{self, ReflectStream};
use crate::reflect::access::AccessLog;
use crate::reflect::inlet::Framing;
use crate::reflect::sign::UrlKeys;
use crate::reflect::source::{self, Running};
use crate::reflect::stream::{Stream, StreamHandle};
use crate::upgrade::TakenStream;
use crate::upgrade::feed::Fed;

impl Control {
    /// Has streams as the settings say: a stream is what has the same name. Who watches one that is still there goes on, and who
    /// watches one that is not gets what is left of it. One that there is no memory for is said and left out.
    ///
    /// # Errors
    /// The first that could not be had; and where there is no access log, nothing has changed (`apply_access`).
    pub fn apply(&self, settings: &config::Reflect) -> io::Result<()> {
        self.apply_with(settings, &mut Coming::default())
    }

    /// The same, with streams that come from another process.
    pub(super) fn apply_with(&self, settings: &config::Reflect, coming: &mut Coming) -> io::Result<()> {
        self.apply_access(settings.access_log.as_deref())?;
        let mut state = self.lock();
        state.settings = settings.clone();
        state.keys = UrlKeys::new(&settings.url_keys).map(Arc::new);
        let viewers_max = settings.viewers_max.min(self.viewers_max);
        if viewers_max < settings.viewers_max && !settings.streams.is_empty() {
            tracing::info!(viewers_max, wanted = settings.viewers_max, "open files allow fewer viewers");
        }
        state.limits = Limits {
            viewers_max,
            viewers_per_client: settings.viewers_per_client,
            bandwidth_max: settings.bandwidth_max,
        };
        let now = Instant::now();
        let wanted: Vec<Wanted<'_>> = settings.streams.iter().flat_map(Wanted::of).collect();
        let is_there = |entry: &Entry| wanted.iter().any(|wanted| *wanted.name == **entry.stream.name());
        for entry in state.streams.values_mut().filter(|entry| entry.is_configured && !is_there(entry)) {
            (entry.is_configured, entry.sources, entry.hearing) = (false, None, None);
            entry.stream.end(now);
            tracing::info!(stream = &**entry.stream.name(), viewers = entry.viewers, "stream removed");
        }
        state.streams.retain(|_, entry| entry.is_configured || entry.viewers > 0);
        let results: Vec<io::Result<()>> = wanted.iter().map(|wanted| self.have(&mut state, wanted, coming)).collect();
        for plain in wanted.iter().filter(|wanted| wanted.framing == Framing::None) {
            if let Some(stream) = state.stream(&plain.name) {
                stream.set_framed(state.stream(&framed(&plain.name)).filter(|_| plain.config.metacube));
            }
        }
        let configured = state.streams.values().filter(|entry| entry.is_configured);
        let paths: HashMap<_, _> = configured.map(|entry| (entry.path.clone(), entry.stream.clone())).collect();
        *self.paths.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(paths);
        results.into_iter().collect()
    }

    /// Opens the access log, anew if it was open.
    ///
    /// # Errors
    /// When it cannot be opened: then the one before stays.
    pub fn apply_access(&self, name: Option<&str>) -> io::Result<()> {
        let before = self.lock().access.clone();
        let next = match (name, before) {
            (Some(name), Some((open, log))) if name == open => {
                log.reopen();
                return Ok(());
            }
            (Some(name), _) => {
                let log = AccessLog::open(Path::new(name));
                let log = log.map_err(|error| io::Error::new(error.kind(), format!("access_log {name:?}: {error}")))?;
                Some((name.to_owned(), Arc::new(log)))
            }
            (None, _) => None,
        };
        // What waits in the one before is written when nobody has it any more.
        let before = std::mem::replace(&mut self.lock().access, next);
        drop(before);
        Ok(())
    }

    /// Changes a stream, or adds it.
    fn have(&self, state: &mut State, wanted: &Wanted<'_>, coming: &mut Coming) -> io::Result<()> {
        let Wanted { name, path, framing, config } = wanted;
        let is_it = |entry: &&mut Entry| entry.is_configured && **entry.stream.name() == **name;
        if let Some(entry) = state.streams.values_mut().find(is_it) {
            (entry.path, entry.viewers_max) = (path.as_str().into(), config.viewers_max);
            if entry.stream.config().source != config.source {
                (entry.sources, entry.hearing) = (None, None);
                entry.stream.stop_source();
                entry.sources = self.start_sources(&entry.stream, *framing, config);
            }
            if entry.stream.config() != **config && entry.stream.change((*config).clone()) {
                tracing::info!(stream = name, "backlog, format, dense and hls change when the stream begins anew");
            }
            return Ok(());
        }
        state.streams_begun += 1;
        let number = state.streams_begun;
        let (stream, fed) = match coming.take(name) {
            Some(taken) => {
                let (name, plane) = (name.as_str(), self.plane.clone());
                let (stream, fed) = Stream::take_up(number, (name, *framing), (*config).clone(), plane, taken)
                    .inspect_err(
                        |error| tracing::error!(stream = name, %error, "what comes from the process before"),
                    )?;
                coming.taken.push(name.to_owned());
                (stream, fed)
            }
            None => {
                let stream = Stream::start(number, (name, *framing), (*config).clone(), self.plane.clone())
                    .inspect_err(|error| tracing::error!(stream = name, %error, "no memory for a stream"))?;
                (stream, None)
            }
        };
        tracing::info!(stream = name, path, "stream");
        let is_asked_later = coming.is_held && *framing == Framing::None && fed.is_none();
        coming.unheard.extend(Some(number).filter(|_| is_asked_later));
        let is_asked = fed.is_none() && !is_asked_later;
        let entry = Entry {
            sources: if is_asked { self.start_sources(&stream, *framing, config) } else { None },
            hearing: None,
            stream,
            path: path.as_str().into(),
            is_configured: true,
            viewers: 0,
            viewers_max: config.viewers_max,
            totals: Totals::default(),
        };
        state.streams.insert(number, entry);
        coming.fed.extend(fed.map(|(fed, handle)| (number, fed, handle)));
        Ok(())
    }

    /// The source that another process had the connection of has ended: the stream's own are asked.
    pub(super) fn begin_sources(&self, number: u64) {
        let mut state = self.lock();
        let Some(entry) = state.streams.get_mut(&number).filter(|entry| entry.is_configured) else { return };
        entry.hearing = None;
        if entry.sources.is_none() && entry.stream.is_here() {
            entry.sources = self.start_sources(&entry.stream, Framing::None, &entry.stream.config());
        }
    }

    /// Of one in Cubemap's framing there are none: it gets what the plain one gets.
    fn start_sources(&self, stream: &Arc<Stream>, framing: Framing, config: &ReflectStream) -> Option<Running> {
        let (around, sources) = (self.around.as_ref()?, &config.source);
        let is_fetched = framing == Framing::None && !sources.is_empty();
        is_fetched.then(|| source::start(stream.new_source(), sources, around))
    }
}

/// Streams that come from another process.
#[derive(Default)]
pub(crate) struct Coming {
    /// In the order in which they came.
    pub(super) names: Vec<String>,
    waiting: Vec<TakenStream>,
    /// Those that are here.
    pub(super) taken: Vec<String>,
    /// By the numbers that viewers know them by.
    pub(super) found: Vec<Option<Arc<Stream>>>,
    /// How many viewers have come.
    pub(super) viewers: usize,
    /// The other process may still go on with them: no source is asked before it is known that it does not.
    is_held: bool,
    /// Whose own sources are to be asked then.
    pub(super) unheard: Vec<u64>,
    /// Whose source goes on, by number.
    pub(super) fed: Vec<(u64, Fed, StreamHandle)>,
}

impl Coming {
    pub(super) fn new(waiting: Vec<TakenStream>) -> Self {
        let names = waiting.iter().map(|stream| stream.record.name.clone()).collect();
        Coming { names, waiting, is_held: true, ..Coming::default() }
    }

    fn take(&mut self, name: &str) -> Option<TakenStream> {
        let index = self.waiting.iter().position(|taken| taken.record.name == name)?;
        Some(self.waiting.swap_remove(index))
    }
}

/// A stream that there is to be.
struct Wanted<'a> {
    name: String,
    path: String,
    framing: Framing,
    config: &'a ReflectStream,
}

impl Wanted<'_> {
    /// One, or with Cubemap's framing two.
    fn of(config: &ReflectStream) -> impl Iterator<Item = Wanted<'_>> {
        let plain = Wanted { name: config.name.clone(), path: config.path(), framing: Framing::None, config };
        let other = Wanted { name: framed(&plain.name), path: framed(&plain.path), framing: Framing::Metacube, config };
        [plain].into_iter().chain(config.metacube.then_some(other))
    }
}

/// The name, or the path, of what is served in Cubemap's framing.
fn framed(plain: &str) -> String {
    format!("{plain}.metacube")
}

impl State {
    /// A stream that is configured.
    pub(super) fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        let found = self.streams.values().find(|entry| entry.is_configured && **entry.stream.name() == *name);
        found.map(|entry| entry.stream.clone())
    }
}
