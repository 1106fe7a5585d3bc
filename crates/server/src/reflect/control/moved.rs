//! All streams and viewers, which go over to another process or come from one.
//!
//! In: streams and viewers as they are. Out: the same elsewhere. Who is copied to by HTTP, and who is behind a cipher, cannot go
//! over and is ended; so is who still reads what came before a stream's format changed.
//! Order: sources of the process before are let go of, streams go, then workers give their viewers away. All of it is kept
//! until the other process has taken it; if that does not, it is taken up here, in the same way.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use reflect::moved::{Handed, MovedViewer};
use reflect::spec::{Command, EndReason, StreamId, ViewerId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, block_in_place};

use super::admission::Admission;
use super::reload::Coming;
use super::{At, Control, Entry, Totals, Viewer};
use crate::config;
use crate::reflect::moved::ViewerRecord;
use crate::reflect::stream::{Gone, Spare, Stream, StreamHandle, hear};
use crate::upgrade::feed::Fed;
use crate::upgrade::{Failed, Successor, TakenStream};
use crate::worker::Message;

/// Workers give all viewers away in so long, or have failed.
const VIEWERS_MAX: Duration = Duration::from_secs(10);

/// What finds a worker's mailbox full is sent again so soon.
const FLUSH: Duration = Duration::from_millis(5);

/// Viewers that workers have given away and nobody has taken. With more the thread that hears the workers waits.
const MOVED_MAX: usize = 1_024;

/// Viewers of one message at most: while the next process takes these in, others are given away here.
const BATCH: usize = 100;

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

/// What goes over, which is kept until it is known that it has.
#[derive(Debug, Default)]
pub(crate) struct Away {
    pub(crate) streams: Vec<TakenStream>,
    /// By the numbers of their streams among these.
    pub(crate) viewers: Vec<(ViewerRecord, OwnedFd)>,
    /// Of sources whose bytes are passed on: each tells when its source has ended.
    pub(crate) feeding: Vec<oneshot::Receiver<()>>,
}

/// A stream that is about to go over, and what that needs.
struct Leaving {
    stream: Arc<Stream>,
    spare: Spare,
    framed: Option<(Arc<Stream>, Spare)>,
}

impl Control {
    /// Gives all to another process; nobody is let in here any more. With it comes whether that has taken all.
    ///
    /// # Errors
    /// When it could not begin, or could not be done: then what is here is of no use to anybody.
    pub(crate) async fn give_away(&self, successor: &mut Successor) -> Result<(Away, anyhow::Result<()>), Failed> {
        let leaving = self.prepare_to_leave().context("preparing streams to go over").map_err(Failed::Before)?;
        let (sender, moved) = mpsc::channel(MOVED_MAX);
        let mut feds = HashMap::new();
        for (number, hearing) in self.leave(sender) {
            feds.extend(hearing.stop().await.map(|fed| (number, fed)));
        }
        let (mut away, mut given, mut indices) = (Away::default(), Ok(()), HashMap::new());
        away.feeding = std::mem::take(&mut self.lock().feeding);
        for Leaving { stream, spare, framed } in leaving {
            let held = stream.hold().await;
            let fed = feds.remove(&stream.number());
            for (stream, spare, fed) in
                [Some((stream, spare, fed)), framed.map(|(stream, spare)| (stream, spare, None))].into_iter().flatten()
            {
                let Gone { id, taken, feeding } = stream.give_away(Instant::now(), spare, fed, held.is_some());
                given = given.and_then(|()| block_in_place(|| successor.give_stream(&taken)));
                if feeding.is_none()
                    && let Some(entry) = self.lock().streams.get_mut(&stream.number())
                {
                    entry.sources = None;
                }
                indices.insert(id, away.streams.len() as u32);
                away.streams.push(taken);
                away.feeding.extend(feeding);
            }
        }
        // Even where that failed, so that all come back in the same way.
        self.release(successor, moved, (&mut away, &mut given), &indices).await.map_err(Failed::Within)?;
        Ok((away, given))
    }

    /// What can fail, before anything has changed.
    fn prepare_to_leave(&self) -> std::io::Result<Vec<Leaving>> {
        let streams: Vec<Arc<Stream>> = self.lock().streams.values().map(|entry| entry.stream.clone()).collect();
        let leaving = |stream: Arc<Stream>| {
            let framed = stream.framed().map(|framed| Ok::<_, std::io::Error>((framed.clone(), framed.spare()?)));
            Ok(Leaving { spare: stream.spare()?, framed: framed.transpose()?, stream })
        };
        streams.into_iter().filter(|stream| stream.is_plain() && !stream.is_over()).map(leaving).collect()
    }

    /// Nobody is let in any more, and who is copied to is ended, as is each session of HLS. Returns who hears what of which stream.
    fn leave(&self, sender: mpsc::Sender<Handed>) -> Vec<(u64, Hearing)> {
        self.lock().leaving = Some(sender);
        self.end_sessions(Instant::now(), EndReason::Asked, |_| true);
        let mut state = self.lock();
        for viewer in state.viewers.values() {
            if let At::Task(task) = &viewer.at {
                task.notify_one();
            }
        }
        state.streams.iter_mut().filter_map(|(number, entry)| Some((*number, entry.hearing.take()?))).collect()
    }

    /// Has workers give all viewers away, and gives them on.
    async fn release(
        &self,
        successor: &mut Successor,
        mut moved: mpsc::Receiver<Handed>,
        (away, given): (&mut Away, &mut anyhow::Result<()>),
        indices: &HashMap<StreamId, u32>,
    ) -> anyhow::Result<()> {
        self.tell_workers(|| Command::Release);
        let (mut workers, mut count_given) = (self.plane.workers().count(), 0);
        let until = Instant::now() + VIEWERS_MAX;
        while workers > 0 {
            let Ok(next) = tokio::time::timeout(FLUSH, moved.recv()).await else {
                anyhow::ensure!(Instant::now() < until, "a worker does not answer");
                self.plane.workers().flush();
                continue;
            };
            match next.context("nobody hears the workers")? {
                Handed::Done => workers -= 1,
                Handed::Viewer(viewer) => away.viewers.extend(self.record(*viewer, indices)),
            }
            let waiting = &away.viewers[count_given..];
            if given.is_ok() && (waiting.len() >= BATCH || workers == 0) {
                *given = block_in_place(|| successor.give_viewers(waiting));
                count_given = away.viewers.len();
            }
        }
        Ok(())
    }

    /// What did not go over is here again, as if it came from another process. Returns how many viewers there are.
    ///
    /// # Errors
    /// When a stream cannot be had any more.
    pub(crate) fn take_back(self: &Arc<Self>, away: Away) -> anyhow::Result<usize> {
        let Away { streams, viewers, feeding } = away;
        let (settings, totals) = {
            let mut state = self.lock();
            state.leaving = None;
            let former: Vec<Entry> = std::mem::take(&mut state.streams).into_values().collect();
            let totals: HashMap<Arc<str>, Totals> =
                former.iter().map(|entry| (entry.stream.name().clone(), entry.totals.clone())).collect();
            state.former.extend(former.into_iter().filter_map(|entry| entry.sources));
            state.feeding.extend(feeding);
            (state.settings.clone(), totals)
        };
        let mut coming = self.prepare(&settings, streams)?;
        for entry in self.lock().streams.values_mut() {
            if let Some(totals) = totals.get(entry.stream.name()) {
                entry.totals = totals.clone();
            }
        }
        self.take_in(&mut coming, viewers);
        Ok(self.take_up(coming))
    }

    /// A viewer who leaves with his connection. `None`: his stream has not gone.
    fn record(&self, moved: MovedViewer, indices: &HashMap<StreamId, u32>) -> Option<(ViewerRecord, OwnedFd)> {
        let MovedViewer { id, stream, descriptor, unread, state } = moved;
        let viewer = self.lock().viewers.remove(&id)?;
        let stream = *indices.get(&stream)?;
        let (client, network) = (viewer.admission.client(), viewer.admission.network());
        let visit = viewer.admission.visit().cloned();
        let record = ViewerRecord { id: id.0, stream, client, network, visit, unread: unread.into(), state };
        Some((record, descriptor))
    }

    /// Takes what a worker gives away; not on a runtime.
    pub fn handle_moved(&self, moved: Handed) {
        let leaving = self.lock().leaving.clone();
        // Where nobody wants to know, the process ends.
        if let Some(leaving) = leaving {
            leaving.blocking_send(moved).ok();
        }
    }

    /// Has streams as the settings say, those of another process among them. Nothing of these is changed, and nobody is sent
    /// anything before `take_up`.
    ///
    /// # Errors
    /// What cannot be had.
    pub(crate) fn prepare(&self, settings: &config::Reflect, streams: Vec<TakenStream>) -> std::io::Result<Coming> {
        self.tell_workers(|| Command::Hold);
        let mut coming = Coming::new(streams);
        self.apply_with(settings, &mut coming)?;
        let state = self.lock();
        let found = |name: &String| state.stream(name).filter(|_| coming.taken.contains(name));
        coming.found = coming.names.iter().map(found).collect();
        drop(state);
        Ok(coming)
    }

    /// Gives workers viewers of streams that were prepared.
    pub(crate) fn take_in(self: &Arc<Self>, coming: &mut Coming, viewers: Vec<(ViewerRecord, OwnedFd)>) {
        for (record, descriptor) in viewers {
            let Some(Some(stream)) = coming.found.get(record.stream as usize) else { continue };
            coming.viewers += 1;
            self.take_up_viewer(stream, record, descriptor);
        }
    }

    /// Goes on with what was prepared. Returns how many viewers there are.
    pub(crate) fn take_up(self: &Arc<Self>, coming: Coming) -> usize {
        self.tell_workers(|| Command::Resume);
        coming.unheard.iter().for_each(|number| self.begin_sources(*number));
        for (number, fed, handle) in coming.fed {
            self.hear(number, fed, handle);
        }
        coming.viewers
    }

    fn tell_workers(&self, command: impl Fn() -> Command) {
        for worker in self.plane.workers().ids() {
            self.plane.workers().post(worker, Message::Reflect(command()));
        }
    }

    fn take_up_viewer(self: &Arc<Self>, stream: &Arc<Stream>, record: ViewerRecord, descriptor: OwnedFd) {
        let ViewerRecord { id, client, network, visit, unread, state, .. } = record;
        let (id, since) = (ViewerId(id), Instant::now().checked_sub(state.age()).unwrap_or_else(Instant::now));
        let (admission, worker) = Admission::restore(self, stream, id, (client, network), visit);
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
