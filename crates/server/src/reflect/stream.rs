//! A live stream above its workers: who writes it, where it is read, and who is told when it has grown.
//!
//! In: bytes of a source, viewers for workers, what workers say. Out: commands to the workers that have viewers of it.
//! Cost: one lock per write, per growth and per viewer that comes or goes; no worker takes it.
//! Locks: control takes its own first, then a stream's, then the plane's.
//!
//! A worker has the stream from its first viewer there to its last (`Command::AddStream`, `RemoveStream`). A source that goes on
//! in another format begins another edition: workers know it as another stream, and who watches the one before gets the rest.

mod copy;
mod handle;
mod moved;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reflect::coalesce::Crowd;
use reflect::hls::Container;
use reflect::spec::{Command, Join, NewViewer, StreamId, Terms};
use tokio::sync::Notify;
use wire::{Bitrate, WorkerId};

use super::hls::Hls;
use super::inlet::{Framing, Inlet, Settings, Trouble};
use super::response;
use crate::config::{ReflectStream, Secret};
use crate::plane::Plane;
use crate::worker::Message;
pub(super) use copy::Copied;
use copy::Copies;
pub use handle::{Occupied, StreamHandle, WriteError};
use moved::Way;
pub(super) use moved::{Gone, Spare, hear};

/// Viewers are told of another rate when it is so many times what they know, or that part of it.
const RATE_STEP: f64 = 1.2;

/// Editions of a stream have so many bits of its number.
const EDITION_BITS: u32 = 16;

/// For whom bytes are copied, as far as the inlet is concerned.
const COPIES: WorkerId = WorkerId(u16::MAX);

/// A stream.
pub struct Stream {
    /// Of all streams of the process.
    number: u64,
    name: Arc<str>,
    plane: Arc<Plane>,
    writer: Mutex<Writer>,
    /// The timer is to look when it is due.
    timer: Arc<Notify>,
    /// A worker has let go of something: there may be room.
    room: Notify,
    rate_bps: AtomicU64,
    is_over: AtomicBool,
    /// The same bytes for Cubemaps, where they are wanted: it gets what this one gets.
    framed: RwLock<Option<Arc<Stream>>>,
    /// Held while something is written, here and in Cubemap's framing.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// Where what sources bring goes.
    way: Mutex<Way>,
}

struct Writer {
    config: ReflectStream,
    framing: Framing,
    inlet: Inlet,
    edition: u16,
    /// Something of this edition was told.
    is_ready: bool,
    readers: Vec<Reader>,
    copies: Option<Arc<Copies>>,
    terms: Terms,
    source: Option<Source>,
    tickets: u64,
    /// When the timer looks by itself.
    wakes_at: Option<Instant>,
    received_bytes: u64,
}

/// A worker that has the stream.
#[derive(Debug)]
struct Reader {
    worker: WorkerId,
    viewers: usize,
    /// Times that it was told to let go of it, and has not said yet that it has.
    leaving: usize,
}

/// Who writes.
#[derive(Debug)]
struct Source {
    ticket: u64,
    content_type: Option<Box<str>>,
    heard_at: Instant,
}

/// What a stream is, for those who watch it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The media type.
    pub content_type: String,
    /// Around it.
    pub encoding: Option<&'static str>,
}

impl Content {
    /// For the head of an answer.
    pub fn as_body(&self) -> response::Body<'_> {
        response::Body { content_type: &self.content_type, content_encoding: self.encoding }
    }
}

/// What is known of a stream's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// There is one.
    pub has_source: bool,
    /// What came since the start.
    pub received_bytes: u64,
}

/// Whether there was room.
enum Room {
    Enough,
    None,
}

impl Stream {
    /// A stream without a byte. To be called on a runtime: what is due is told by a task.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn start(
        number: u64,
        (name, framing): (&str, Framing),
        config: ReflectStream,
        plane: Arc<Plane>,
    ) -> io::Result<Arc<Self>> {
        let inlet = Inlet::new(Instant::now(), settings(&config, framing))?;
        Ok(Stream::with(number, (name, framing), config, plane, inlet))
    }

    fn with(
        number: u64,
        (name, framing): (&str, Framing),
        config: ReflectStream,
        plane: Arc<Plane>,
        inlet: Inlet,
    ) -> Arc<Self> {
        let terms = terms(&config, Bitrate::ZERO);
        let stream = Arc::new(Stream {
            number,
            name: name.into(),
            plane,
            writer: Mutex::new(Writer {
                config,
                framing,
                inlet,
                edition: 0,
                is_ready: false,
                readers: Vec::new(),
                copies: None,
                terms,
                source: None,
                tickets: 0,
                wakes_at: None,
                received_bytes: 0,
            }),
            timer: Arc::default(),
            room: Notify::new(),
            rate_bps: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            framed: RwLock::default(),
            writing: Arc::default(),
            way: Mutex::default(),
        });
        tokio::spawn(keep_time(Arc::downgrade(&stream), stream.timer.clone()));
        stream
    }

    /// What it is called.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Which stream of control's it is that workers speak of.
    pub(super) fn number_of(id: StreamId) -> u64 {
        id.0 >> EDITION_BITS
    }

    /// Its rate, as measured. Zero: nobody knows.
    pub fn rate(&self) -> Bitrate {
        Bitrate::from_bps(self.rate_bps.load(Ordering::Relaxed))
    }

    /// Whether it was removed.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The settings that hold for it now.
    pub fn config(&self) -> ReflectStream {
        self.lock().config.clone()
    }

    /// Whether it is served as it comes.
    pub(super) fn is_plain(&self) -> bool {
        self.lock().framing == Framing::None
    }

    /// Its number, of all streams of the process.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Where its viewers begin who do not say.
    pub(super) fn join(&self) -> Join {
        self.lock().config.join.into()
    }

    /// What its viewers are told that it is. `None`: nothing has come yet.
    pub fn content(&self) -> Option<Content> {
        let writer = self.lock();
        writer.is_ready.then(|| Content {
            content_type: writer.inlet.content_type().to_owned(),
            encoding: writer.inlet.content_encoding(),
        })
    }

    /// What answers players that speak HLS, where it does.
    pub fn hls(&self) -> Option<Arc<Hls>> {
        self.lock().inlet.hls().cloned()
    }

    /// What is known of its source.
    pub fn status(&self) -> SourceStatus {
        let writer = self.lock();
        SourceStatus { has_source: writer.source.is_some(), received_bytes: writer.received_bytes }
    }

    /// How often each viewer is sent to, once in this.
    pub fn interval(&self) -> Duration {
        self.lock().inlet.interval()
    }

    /// What who pushes it has to show, where that is set; whether it is pushed at all.
    pub fn push_terms(&self) -> (bool, Option<Secret>) {
        let writer = self.lock();
        (writer.config.source.is_empty(), writer.config.push_token.clone())
    }

    /// From now on another stream gets what this one gets, or none does.
    pub(super) fn set_framed(&self, framed: Option<Arc<Stream>>) {
        *self.framed.write().unwrap_or_else(PoisonError::into_inner) = framed;
    }

    pub(super) fn framed(&self) -> Option<Arc<Stream>> {
        self.framed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more source, which is heard when it begins.
    pub fn new_source(self: &Arc<Self>) -> StreamHandle {
        let mut writer = self.lock();
        writer.tickets += 1;
        StreamHandle::new(self.clone(), writer.tickets)
    }

    /// One more source, which is heard from now on, unless there is another that is not silent.
    ///
    /// # Errors
    /// When there is.
    pub fn claim(self: &Arc<Self>, now: Instant, content_type: Option<&str>) -> Result<StreamHandle, Occupied> {
        let handle = self.new_source();
        let mut writer = self.lock();
        let silence = writer.config.push_silence;
        let is_heard = |source: &Source| now.saturating_duration_since(source.heard_at) < silence;
        if self.is_over() || !self.is_here() || writer.source.as_ref().is_some_and(is_heard) {
            return Err(Occupied);
        }
        self.begin(&mut writer, now, handle.ticket(), content_type);
        drop(writer);
        Ok(handle)
    }

    /// Takes how many viewers each worker has, of all streams, and for what share of its time it is at work.
    pub(super) fn look_at_crowd(&self, work_of: &dyn Fn(WorkerId) -> (u64, f64)) {
        let mut writer = self.lock();
        let mut crowd = Crowd { rate: writer.terms.rate, ..Crowd::default() };
        for reader in writer.readers.iter().filter(|reader| reader.viewers > 0) {
            let (viewers, busy) = work_of(reader.worker);
            crowd.own = crowd.own.max(reader.viewers);
            crowd.all = crowd.all.max(viewers as usize);
            crowd.busy = crowd.busy.max(busy);
        }
        writer.inlet.set_crowd(crowd);
        drop(writer);
        if let Some(framed) = self.framed() {
            framed.look_at_crowd(work_of);
        }
    }

    /// The worker with most viewers of it, where others are no trouble.
    pub(super) fn nearest(&self) -> Option<WorkerId> {
        let writer = self.lock();
        let most = writer.readers.iter().filter(|reader| reader.viewers > 0).max_by_key(|reader| reader.viewers);
        most.map(|reader| reader.worker)
    }

    /// Gives a worker a viewer, and the stream before its first one. Returns what the stream is called there.
    pub(super) fn add_viewer(&self, worker: WorkerId, viewer: impl FnOnce(StreamId) -> NewViewer) -> StreamId {
        self.enter(worker, |id| Command::AddViewer(Box::new(viewer(id))))
    }

    fn enter(&self, worker: WorkerId, command: impl FnOnce(StreamId) -> Command) -> StreamId {
        let mut writer = self.lock();
        let id = self.id(&writer);
        if !self.is_over() {
            let index = writer.reader(worker);
            if writer.readers[index].viewers == 0 {
                let (file, units, growth) = writer.inlet.add_reader(worker);
                let terms = writer.terms;
                self.post(worker, Command::AddStream { stream: id, file, units, growth, terms });
            }
            writer.readers[index].viewers += 1;
        }
        // One of a stream that is over ends at once.
        self.post(worker, command(id));
        id
    }

    /// A viewer of a worker is gone.
    pub(super) fn remove_viewer(&self, worker: WorkerId, id: StreamId) {
        let mut writer = self.lock();
        if id != self.id(&writer) {
            return;
        }
        let is_over = self.is_over();
        let Some(reader) = writer.readers.iter_mut().find(|reader| reader.worker == worker) else { return };
        reader.viewers = reader.viewers.saturating_sub(1);
        if reader.viewers == 0 && !is_over {
            reader.leaving += 1;
            self.post(worker, Command::RemoveStream(id));
        }
    }

    /// Nobody of a worker is before `begin` any more.
    pub(super) fn handle_passed(&self, worker: WorkerId, id: StreamId, begin: u64) {
        let mut writer = self.lock();
        if id == self.id(&writer) {
            writer.inlet.passed(worker, begin);
            self.room.notify_waiters();
        }
    }

    /// A worker has let go of it.
    pub(super) fn handle_left(&self, worker: WorkerId, id: StreamId) {
        let mut writer = self.lock();
        let is_current = id == self.id(&writer);
        let Some(index) = writer.readers.iter().position(|reader| is_current && reader.worker == worker) else {
            return;
        };
        let reader = &mut writer.readers[index];
        reader.leaving = reader.leaving.saturating_sub(1);
        // A viewer may have come meanwhile.
        if reader.leaving == 0 && reader.viewers == 0 {
            writer.readers.swap_remove(index);
            writer.inlet.remove_reader(worker);
            self.room.notify_waiters();
        }
    }

    /// Other settings hold from now on. Of those that are built into what is there, none changes before its next edition;
    /// returns whether there are such.
    pub(super) fn change(&self, config: ReflectStream) -> bool {
        let mut writer = self.lock();
        let built_in = |config: &ReflectStream| {
            let of_hls = (config.hls, config.hls_segment, config.hls_part, config.hls_window);
            (config.backlog, config.format, config.dense, of_hls)
        };
        let is_later = built_in(&writer.config) != built_in(&config);
        writer.config = config;
        let terms = terms(&writer.config, writer.terms.rate);
        if terms != writer.terms {
            self.change_terms(&mut writer, terms);
        }
        is_later
    }

    /// Removes it: nobody writes it any more, and who watches gets what is left.
    pub(super) fn end(&self, now: Instant) {
        let mut writer = self.lock();
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        writer.inlet.end(now);
        self.tell_all(&mut writer, now);
        writer.source = None;
        self.let_go(&mut writer);
        self.timer.notify_one();
        self.room.notify_waiters();
    }

    /// Nothing comes to the current edition any more.
    fn let_go(&self, writer: &mut Writer) {
        if let Some(copies) = &writer.copies {
            copies.end();
        }
        let id = self.id(writer);
        for reader in writer.readers.iter_mut().filter(|reader| reader.viewers > 0) {
            reader.leaving += 1;
            self.post(reader.worker, Command::RemoveStream(id));
        }
    }

    fn begin(&self, writer: &mut Writer, now: Instant, ticket: u64, content_type: Option<&str>) {
        if self.is_over() || !self.is_here() {
            return;
        }
        if writer.source.take().is_some() {
            writer.inlet.break_off(now);
        }
        writer.source = Some(Source { ticket, content_type: content_type.map(Box::from), heard_at: now });
        writer.inlet.begin(now, content_type);
        self.tell(writer, now);
    }

    fn write(&self, ticket: u64, bytes: &[u8]) -> Result<Room, WriteError> {
        let mut writer = self.lock();
        if self.is_over() || !self.is_here() {
            return Err(WriteError::Ended);
        }
        let now = Instant::now();
        let source = writer.source.as_mut().filter(|source| source.ticket == ticket).ok_or(WriteError::Superseded)?;
        source.heard_at = now;
        let mut taken = writer.inlet.handle_bytes(now, bytes);
        if let Err(Trouble::OtherFormat { before, now: format }) = taken {
            tracing::info!(stream = &*self.name, ?before, now = ?format, "another format: the stream begins anew");
            taken = self.begin_anew(&mut writer, now, bytes);
        }
        match taken {
            Ok(()) => {
                writer.received_bytes += bytes.len() as u64;
                self.tell(&mut writer, now);
                Ok(Room::Enough)
            }
            Err(Trouble::Full(_)) => Ok(Room::None),
            Err(trouble) => {
                self.tell(&mut writer, now);
                Err(WriteError::Trouble(trouble))
            }
        }
    }

    /// The source has begun something else: it is another edition.
    fn begin_anew(&self, writer: &mut Writer, now: Instant, bytes: &[u8]) -> Result<(), Trouble> {
        let pending = writer.inlet.take_pending();
        let inlet = Inlet::new(now, settings(&writer.config, writer.framing)).map_err(Trouble::Memory)?;
        self.tell_all(writer, now);
        self.let_go(writer);
        (writer.readers, writer.copies, writer.is_ready) = (Vec::new(), None, false);
        (writer.inlet, writer.edition) = (inlet, writer.edition.wrapping_add(1));
        let content_type = writer.source.as_ref().and_then(|source| source.content_type.as_deref());
        writer.inlet.begin(now, content_type);
        if !pending.is_empty() {
            writer.inlet.handle_bytes(now, &pending)?;
        }
        writer.inlet.handle_bytes(now, bytes)
    }

    /// Takes the bytes that the plain stream got of a source.
    fn follow(&self, plain: &Stream, ticket: u64, bytes: &[u8]) -> Result<Room, WriteError> {
        let is_other = self.lock().source.as_ref().is_none_or(|source| source.ticket != ticket);
        if is_other {
            let said = plain.lock().source.as_ref().and_then(|source| source.content_type.clone());
            self.begin(&mut self.lock(), Instant::now(), ticket, said.as_deref());
        }
        self.write(ticket, bytes)
    }

    fn break_off(&self, ticket: u64) {
        if !self.is_here() {
            return self.end_feed(ticket);
        }
        if let Some(framed) = self.framed() {
            framed.break_off(ticket);
        }
        let (mut writer, now) = (self.lock(), Instant::now());
        if !self.is_over() && writer.source.take_if(|source| source.ticket == ticket).is_some() {
            writer.inlet.break_off(now);
            self.tell(&mut writer, now);
        }
    }

    /// Whoever writes it is heard no more.
    pub(super) fn stop_source(&self) {
        let ticket = self.lock().source.as_ref().map(|source| source.ticket);
        if let Some(ticket) = ticket {
            self.break_off(ticket);
        }
    }

    /// Tells workers what is due, and the timer when it is to look again.
    fn tell(&self, writer: &mut Writer, now: Instant) {
        self.tell_growth(writer, now);
        let due = writer.inlet.poll_timeout(now);
        if due.is_some_and(|due| writer.wakes_at.is_none_or(|wakes_at| due < wakes_at)) {
            writer.wakes_at = due;
            self.timer.notify_one();
        }
    }

    /// The same, and what waits for more besides: of this edition no more comes.
    fn tell_all(&self, writer: &mut Writer, now: Instant) {
        writer.inlet.hurry();
        self.tell(writer, now);
    }

    fn tell_growth(&self, writer: &mut Writer, now: Instant) {
        if let Some((growth, share)) = writer.inlet.poll_growth(now) {
            let id = self.id(writer);
            for reader in writer.readers.iter().filter(|reader| reader.viewers > 0) {
                self.post(reader.worker, Command::Grown { stream: id, growth: growth.clone(), share });
            }
            if let Some(copies) = &writer.copies {
                copies.grow(&growth, share);
                writer.inlet.passed(COPIES, growth.extent.begin);
            }
            writer.is_ready = true;
        }
        self.look_at_rate(writer);
    }

    fn look_at_rate(&self, writer: &mut Writer) {
        let (rate, told) = (writer.inlet.rate(), writer.terms.rate);
        let is_near = rate <= told.scale(RATE_STEP) && rate.scale(RATE_STEP) >= told;
        if !is_near {
            self.rate_bps.store(rate.bps(), Ordering::Relaxed);
            let terms = Terms { rate, ..writer.terms };
            self.change_terms(writer, terms);
        }
    }

    fn change_terms(&self, writer: &mut Writer, terms: Terms) {
        writer.terms = terms;
        if let Some(copies) = &writer.copies {
            copies.set_lag(terms.lag);
        }
        let stream = self.id(writer);
        for reader in writer.readers.iter().filter(|reader| reader.viewers > 0) {
            self.post(reader.worker, Command::ChangeStream { stream, terms });
        }
    }

    /// Tells what is due; returns when there is more, and `None` when the stream is over.
    fn handle_timeout(&self) -> Option<Option<Instant>> {
        let (mut writer, now) = (self.lock(), Instant::now());
        if self.is_over() {
            return None;
        }
        self.tell_growth(&mut writer, now);
        // Who asks is the timer, and need not be woken for what it hears now.
        writer.wakes_at = writer.inlet.poll_timeout(now);
        Some(writer.wakes_at)
    }

    fn id(&self, writer: &Writer) -> StreamId {
        StreamId(self.number << EDITION_BITS | u64::from(writer.edition))
    }

    fn post(&self, worker: WorkerId, command: Command) {
        // A worker that takes nothing any more has failed, and the server ends.
        self.plane.workers().post(worker, Message::Reflect(command));
    }

    fn away(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic of a source's task leaves the stream as it is.
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn reader(&mut self, worker: WorkerId) -> usize {
        let found = self.readers.iter().position(|reader| reader.worker == worker);
        found.unwrap_or_else(|| {
            self.readers.push(Reader { worker, viewers: 0, leaving: 0 });
            self.readers.len() - 1
        })
    }
}

/// Tells what nobody else tells in time, for as long as the stream is there.
async fn keep_time(stream: Weak<Stream>, timer: Arc<Notify>) {
    loop {
        let Some(due) = stream.upgrade().and_then(|stream| stream.handle_timeout()) else { return };
        match due {
            None => timer.notified().await,
            Some(due) => tokio::select! {
                () = tokio::time::sleep_until(due.into()) => {}
                () = timer.notified() => {}
            },
        }
    }
}

fn terms(config: &ReflectStream, rate: Bitrate) -> Terms {
    Terms { pace: config.pace.into(), rate, lag: config.lag.into() }
}

pub(super) fn settings(config: &ReflectStream, framing: Framing) -> Settings {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let backlog = config.backlog.0 as u64;
    let hls = config.hls.then(|| reflect::hls::Settings {
        container: Container::Ts,
        target: Duration::from_secs(config.hls_segment.as_secs().max(1)),
        window: config.hls_window,
        part_target: config.hls_part,
        backlog_size: backlog,
        first_number: since_1970,
    });
    Settings { format: config.format.map(Into::into), backlog, intervals: config.intervals(), hls, framing }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::plane::placement;
    use crate::plane::workers::Workers;

    #[tokio::test]
    async fn the_timer_is_not_woken_by_itself() {
        let plane = Plane::new(Workers::pretended(Vec::new()), placement::Settings::default());
        let stream = Stream::start(0, ("radio", Framing::None), ReflectStream::default(), plane).expect("memory");
        let source = stream.claim(Instant::now(), Some("audio/mpeg")).expect("nobody else does");
        // The first is told of at once, and the second waits.
        for bytes in [[0; 1_000], [1; 1_000]] {
            source.write(&bytes).await.expect("taken");
        }
        let is_woken =
            async || tokio::select! { biased; () = stream.timer.notified() => true, () = ready(()) => false };
        assert!(is_woken().await, "by who wrote");
        assert!(stream.handle_timeout().flatten().is_some(), "something waits");
        assert!(!is_woken().await);
    }
}
