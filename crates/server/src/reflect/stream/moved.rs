//! A stream that goes over to another process, or comes from one.
//!
//! In: a stream as it is. Out: what the other process is to know of it; from then on its source's bytes go there (`Feed`).
//! Nothing happens here any more: who still reads it here is another edition's.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reflect::moved::MovedViewer;
use reflect::spec::{Command, StreamId};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use wire::WorkerId;

use super::handle::StreamHandle;
use super::{Source, Stream, settings};
use crate::config::ReflectStream;
use crate::plane::Plane;
use crate::reflect::inlet::{Framing, Inlet};
use crate::reflect::moved::StreamRecord;
use crate::upgrade::TakenStream;
use crate::upgrade::feed::{Fed, Feed};

/// Who writes is waited for no longer, when nobody makes room.
const WRITER_MAX: Duration = Duration::from_millis(500);

/// Answers of HLS that are under way may read so long. The next process gives memory back when the window has moved on.
const ANSWERS_MAX: Duration = Duration::from_secs(1);

/// The ticket of a source that comes from the process before.
const FED: u64 = 1;

/// Where what sources bring goes.
#[derive(Debug, Default)]
pub(super) enum Way {
    /// Into the stream.
    #[default]
    Here,
    /// To another process, of the source with this ticket.
    Away { feed: Arc<Feed>, ticket: u64 },
    /// Nowhere: another process asks its sources itself.
    Nowhere,
}

/// What a writer finds.
pub(super) enum Going {
    Here,
    Away(Arc<Feed>),
    Nowhere,
}

/// A stream that has gone.
pub(in crate::reflect) struct Gone {
    /// What it was here.
    pub(in crate::reflect) id: StreamId,
    /// What the other process is to have.
    pub(in crate::reflect) taken: TakenStream,
    /// Tells when the source whose bytes are passed on has ended.
    pub(in crate::reflect) feeding: Option<oneshot::Receiver<()>>,
}

/// What a source's bytes come from, and who hears them.
type Hearer = (Fed, StreamHandle);

/// What a stream that goes away needs.
pub(in crate::reflect) struct Spare {
    /// What it is here from then on.
    inlet: Inlet,
    /// Between its source and the other process: what is written, and what is read.
    feed: (UnixStream, OwnedFd),
}

impl Stream {
    /// Keeps who writes from doing so, also into the stream in Cubemap's framing. `None`: he waits for room himself.
    pub(in crate::reflect) async fn hold(&self) -> Option<OwnedMutexGuard<()>> {
        let lock: Arc<Mutex<()>> = self.writing.clone();
        tokio::time::timeout(WRITER_MAX, lock.lock_owned()).await.ok()
    }

    /// Where what a source brings goes.
    pub(super) fn way(&self, ticket: u64) -> Going {
        match &*self.away() {
            Way::Here => Going::Here,
            Way::Away { feed, ticket: heard } if *heard == ticket => Going::Away(feed.clone()),
            Way::Away { .. } | Way::Nowhere => Going::Nowhere,
        }
    }

    /// No other process has it.
    pub(crate) fn is_here(&self) -> bool {
        matches!(*self.away(), Way::Here)
    }

    /// The source whose bytes go away is gone, and its feed with it.
    pub(super) fn end_feed(&self, ticket: u64) {
        let mut away = self.away();
        if matches!(&*away, Way::Away { ticket: heard, .. } if *heard == ticket) {
            *away = Way::Nowhere;
        }
    }

    /// What is needed to give it away.
    ///
    /// # Errors
    /// When there is no memory or descriptor for it.
    pub(in crate::reflect) fn spare(&self) -> io::Result<Spare> {
        let writer = self.lock();
        let (near, far) = BlockingUnixStream::pair()?;
        near.set_nonblocking(true)?;
        let feed = (UnixStream::from_std(near)?, OwnedFd::from(far));
        Ok(Spare { inlet: Inlet::new(Instant::now(), settings(&writer.config, writer.framing))?, feed })
    }

    /// Gives the stream away. `fed` is what its source's bytes come from, if that is another process. A source that cannot go
    /// on is broken off; with `is_held`, or of a stream in Cubemap's framing, whose plain one is held, none brings anything
    /// meanwhile.
    pub(in crate::reflect) fn give_away(&self, now: Instant, spare: Spare, fed: Option<Fed>, is_held: bool) -> Gone {
        let mut writer = self.lock();
        let id = self.id(&writer);
        // Who watches has all there is before he waits.
        writer.inlet.hurry();
        self.tell(&mut writer, now);
        let (file, state) = writer.inlet.give_away(now);
        if let Some(hls) = writer.inlet.hls().cloned() {
            tokio::spawn(async move {
                tokio::time::sleep(ANSWERS_MAX).await;
                hls.tell(|playlist| playlist.forget(u64::MAX));
            });
        }
        // What workers and timers still say of it is of no meaning.
        writer.inlet = spare.inlet;
        writer.edition = writer.edition.wrapping_add(1);
        writer.readers.clear();
        if let Some(copies) = writer.copies.take() {
            copies.give_away();
        }
        let source = writer.source.take().filter(|_| state.has_source() && is_held);
        let record = StreamRecord {
            name: self.name().to_string(),
            inlet: state,
            is_ready: writer.is_ready,
            received_bytes: writer.received_bytes,
            content_type: source.as_ref().and_then(|source| source.content_type.as_deref()).map(str::to_owned),
            goes_on: source.is_some(),
        };
        let (mut feed, mut feeding, mut way) = (None, None, Way::Nowhere);
        match (source, fed) {
            (Some(_), Some(fed)) => {
                // One that cannot be had is as one whose source has ended.
                feed = fed.into_socket().into_std().ok().map(OwnedFd::from);
            }
            (Some(Source { ticket, .. }), None) if writer.framing == Framing::None => {
                let (near, far) = spare.feed;
                let (writing, is_over) = Feed::new(near);
                way = Way::Away { feed: Arc::new(writing), ticket };
                (feed, feeding) = (Some(far), Some(is_over));
            }
            _ => {}
        }
        *self.away() = way;
        Gone { id, taken: TakenStream { record, file, feed }, feeding }
    }

    /// A stream that comes from another process, and who hears its source, if that goes on.
    ///
    /// # Errors
    /// When it cannot have been.
    pub(in crate::reflect) fn take_up(
        number: u64,
        (name, framing): (&str, Framing),
        config: ReflectStream,
        plane: Arc<Plane>,
        taken: TakenStream,
    ) -> io::Result<(Arc<Self>, Option<Hearer>)> {
        let (now, TakenStream { record, file, feed }) = (Instant::now(), taken);
        let (mut inlet, goes_on) = Inlet::take_up(now, settings(&config, framing), file, record.inlet)?;
        let has_feed = framing == Framing::Metacube || feed.is_some();
        let goes_on = goes_on && record.goes_on && has_feed;
        if !goes_on {
            inlet.break_off(now);
        }
        let stream = Stream::with(number, (name, framing), config, plane, inlet);
        let mut writer = stream.lock();
        (writer.is_ready, writer.received_bytes) = (record.is_ready, record.received_bytes);
        if goes_on {
            let content_type = record.content_type.map(Box::from);
            (writer.tickets, writer.source) = (FED, Some(Source { ticket: FED, content_type, heard_at: now }));
        }
        // What nobody was told of is told when somebody is there.
        stream.tell(&mut writer, now);
        writer.inlet.hurry();
        drop(writer);
        let fed = match feed.filter(|_| goes_on) {
            None => None,
            Some(socket) => {
                let socket = BlockingUnixStream::from(socket);
                socket.set_nonblocking(true)?;
                let fed = Fed::new(UnixStream::from_std(socket)?);
                Some((fed, StreamHandle::new(stream.clone(), FED)))
            }
        };
        Ok((stream, fed))
    }

    /// Gives a worker a viewer who comes from another process, and the stream before its first one.
    pub(in crate::reflect) fn take_up_viewer(&self, worker: WorkerId, viewer: impl FnOnce(StreamId) -> MovedViewer) {
        self.enter(worker, |id| Command::TakeUp(Box::new(viewer(id))));
    }
}

/// Gives a stream what its source brings elsewhere, until that ends, which is when `None` is returned.
pub(in crate::reflect) async fn hear(
    mut fed: Fed,
    handle: StreamHandle,
    stop: Arc<tokio::sync::Notify>,
) -> Option<Fed> {
    loop {
        let bytes = tokio::select! {
            biased;
            () = stop.notified() => return Some(fed),
            bytes = fed.next() => bytes.unwrap_or_default(),
        };
        let is_taken = handle.write(bytes).await.inspect_err(|error| {
            tracing::warn!(stream = &**handle.stream().name(), %error, "what comes from the process before");
        });
        if bytes.is_empty() || is_taken.is_err() {
            handle.break_off();
            return None;
        }
    }
}
