//! All streams and viewers, which go over to another process or come from one.
//!
//! In: streams and viewers as they are. Out: the same elsewhere. Who is copied to by HTTP, and who is behind a cipher, cannot go
//! over and is ended; so is who still reads what came before a stream's format changed.
//! Order: sources of the process before are let go of, streams go, then workers give their viewers away.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use reflect::moved::{Handed, MovedViewer};
use reflect::spec::{Command, StreamId, ViewerId};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, block_in_place};

use super::admission::Admission;
use super::reload::Coming;
use super::{At, Control, Viewer};
use crate::config;
use crate::reflect::moved::ViewerRecord;
use crate::reflect::stream::{Gone, Stream, StreamHandle, hear};
use crate::upgrade::feed::Fed;
use crate::upgrade::{Successor, Taken};
use crate::worker::Message;

/// Workers give all viewers away in so long, or have failed.
const VIEWERS_MAX: Duration = Duration::from_secs(10);

/// What finds a worker's mailbox full is sent again so soon.
const FLUSH: Duration = Duration::from_millis(5);

/// Viewers of one message at most.
const BATCH: usize = 200;

/// A stream's source that another process has the connection of.
#[derive(Debug)]
pub(super) struct Hearing {
    stop: Arc<Notify>,
    task: Option<JoinHandle<Option<Fed>>>,
}

impl Hearing {
    /// Ends it; what its bytes come from is read on elsewhere. `None`: it has ended.
    async fn stop(mut self) -> Option<Fed> {
        self.stop.notify_one();
        self.task.take()?.await.ok()?
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What went over.
#[derive(Debug, Default)]
pub(crate) struct Away {
    /// How many viewers.
    pub(crate) viewers: usize,
    /// How many streams.
    pub(crate) streams: usize,
    /// Those who pass on what sources bring: each ends with its source.
    pub(crate) feeding: Vec<JoinHandle<()>>,
    /// For how long viewers were sent nothing, as far as it is known here.
    pub(crate) pause: Duration,
}

impl Control {
    /// Gives all to another process. Nobody is let in here any more.
    ///
    /// # Errors
    /// When the other process does not take it; then nobody has it.
    pub(crate) async fn give_away(&self, successor: &Successor) -> anyhow::Result<Away> {
        let (sender, mut moved) = mpsc::unbounded_channel();
        let (streams, hearings) = {
            let mut state = self.lock();
            state.leaving = Some(sender);
            for viewer in state.viewers.values() {
                if let At::Task(task) = &viewer.at {
                    task.notify_one();
                }
            }
            let streams: Vec<Arc<Stream>> = state.streams.values().map(|entry| entry.stream.clone()).collect();
            let hearings: Vec<(u64, Hearing)> =
                state.streams.iter_mut().filter_map(|(number, entry)| Some((*number, entry.hearing.take()?))).collect();
            (streams, hearings)
        };
        let mut feds = HashMap::new();
        for (number, hearing) in hearings {
            feds.extend(hearing.stop().await.map(|fed| (number, fed)));
        }
        let mut away = Away::default();
        let mut indices: HashMap<StreamId, u32> = HashMap::new();
        let began = Instant::now();
        for stream in streams.into_iter().filter(|stream| stream.is_plain() && !stream.is_over()) {
            let held = stream.hold().await;
            let framed = stream.framed();
            let fed = feds.remove(&stream.number());
            for (stream, fed) in [(Some(stream), fed), (framed, None)] {
                let Some(stream) = stream else { continue };
                let Gone { id, record, file, feed, feeding } = stream.give_away(Instant::now(), fed, held.is_some())?;
                let feed = feed.as_ref().map(std::os::fd::AsFd::as_fd);
                block_in_place(|| successor.give_stream(record, &file, feed)).context("a stream")?;
                if feeding.is_none()
                    && let Some(entry) = self.lock().streams.get_mut(&stream.number())
                {
                    entry.sources = None;
                }
                indices.insert(id, away.streams as u32);
                away.streams += 1;
                away.feeding.extend(feeding);
            }
        }
        for worker in self.plane.workers().ids() {
            self.plane.workers().post(worker, Message::Reflect(Command::Release));
        }
        let (mut workers, mut batch) = (self.plane.workers().count(), Vec::new());
        let until = Instant::now() + VIEWERS_MAX;
        while workers > 0 {
            let Ok(next) = tokio::time::timeout(FLUSH, moved.recv()).await else {
                anyhow::ensure!(Instant::now() < until, "a worker does not answer");
                self.plane.workers().flush();
                continue;
            };
            match next.context("nobody hears the workers")? {
                Handed::Done => workers -= 1,
                Handed::Viewer(viewer) => batch.extend(self.record(*viewer, &indices)),
            }
            if batch.len() >= BATCH || (workers == 0 && !batch.is_empty()) {
                away.viewers += batch.len();
                block_in_place(|| successor.give_viewers(std::mem::take(&mut batch))).context("viewers")?;
            }
        }
        away.pause = began.elapsed();
        Ok(away)
    }

    /// A viewer who leaves with his connection. `None`: his stream has not gone.
    fn record(&self, moved: MovedViewer, indices: &HashMap<StreamId, u32>) -> Option<(ViewerRecord, OwnedFd)> {
        let MovedViewer { id, stream, descriptor, unread, state } = moved;
        let viewer = self.lock().viewers.remove(&id)?;
        let stream = *indices.get(&stream)?;
        let (client, network) = (viewer.admission.client(), viewer.admission.network());
        let record = ViewerRecord { id: id.0, stream, client, network, unread: unread.into(), state };
        Some((record, descriptor))
    }

    /// Takes what a worker gives away.
    pub fn handle_moved(&self, moved: Handed) {
        // Where nobody wants to know, the process ends.
        if let Some(leaving) = &self.lock().leaving {
            leaving.send(moved).ok();
        }
    }

    /// Has streams as the settings say, those of another process among them, and its viewers. Returns how many of these there
    /// are.
    ///
    /// # Errors
    /// The first stream that could not be had. The others are there.
    pub(crate) fn take_up(self: &Arc<Self>, settings: &config::Reflect, taken: Taken) -> (usize, std::io::Result<()>) {
        let Taken { streams, viewers } = taken;
        let names: Vec<String> = streams.iter().map(|stream| stream.record.name.clone()).collect();
        let mut coming = Coming::new(streams);
        let applied = self.apply_with(settings, &mut coming);
        for (number, fed, handle) in coming.fed {
            self.hear(number, fed, handle);
        }
        let found: Vec<Option<Arc<Stream>>> = {
            let state = self.lock();
            names.iter().map(|name| state.stream(name).filter(|_| coming.taken.contains(name))).collect()
        };
        let mut count = 0;
        for (record, descriptor) in viewers {
            let Some(Some(stream)) = found.get(record.stream as usize) else { continue };
            count += 1;
            self.take_up_viewer(stream, record, descriptor);
        }
        (count, applied)
    }

    fn take_up_viewer(self: &Arc<Self>, stream: &Arc<Stream>, record: ViewerRecord, descriptor: OwnedFd) {
        let ViewerRecord { id, client, network, unread, state, .. } = record;
        let (id, since) = (ViewerId(id), Instant::now().checked_sub(state.age()).unwrap_or_else(Instant::now));
        let (admission, worker) = Admission::restore(self, stream, id, (client, network));
        self.lock().viewers.insert(id, Viewer { admission, at: At::Worker(worker), since });
        stream.take_up_viewer(worker, |stream| MovedViewer { id, stream, descriptor, unread: unread.into(), state });
    }

    /// Hears a stream's source that another process has the connection of; then the stream's own sources are asked.
    fn hear(self: &Arc<Self>, number: u64, fed: Fed, handle: StreamHandle) {
        let (control, stop) = (Arc::downgrade(self), Arc::new(Notify::new()));
        let heard = hear(fed, handle, stop.clone());
        // It waits for this until its task is known.
        let mut state = self.lock();
        let Some(entry) = state.streams.get_mut(&number) else { return };
        let task = tokio::spawn(async move {
            let fed = heard.await;
            if fed.is_none()
                && let Some(control) = control.upgrade()
            {
                control.begin_sources(number);
            }
            fed
        });
        entry.hearing = Some(Hearing { stop, task: Some(task) });
    }
}
