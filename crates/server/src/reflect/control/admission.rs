//! Who may watch, and his place: among all viewers, his stream's and his client's, and on a worker.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use axum::http::request::Parts;
use reflect::course::Course;
use reflect::spec::{EndedViewer, Join, NewViewer, StreamId, ViewerId};
use tokio::sync::Notify;
use wire::{Begun, Bitrate, WorkerId};

use super::{At, Control, Refusal, Session, Viewer};
use crate::accept::household;
use crate::reflect::access::Visit;
use crate::reflect::stream::{Copied, Stream};

/// What a viewer is expected to take of a stream whose rate nobody knows yet.
const USUAL: Bitrate = Bitrate::from_kbps(2_000);

/// A place for one viewer of a stream, until it is dropped.
pub struct Admission {
    control: Arc<Control>,
    stream: Arc<Stream>,
    id: ViewerId,
    client: Option<IpAddr>,
    /// Whose it is, as far as one client may have so many.
    network: Option<IpAddr>,
    worker: WorkerId,
    cost: Bitrate,
    /// What the access log will say of him, where there is one.
    visit: Option<Visit>,
}

/// A connection whose request was read, and granted.
pub struct Arrived {
    /// The socket.
    pub descriptor: OwnedFd,
    /// What was read beyond the request, and the cipher that the connection is under.
    pub begun: Begun,
    /// The head of the response.
    pub head: Box<[u8]>,
    /// Where he begins. `None`: as the stream has it.
    pub join: Option<Join>,
}

impl Control {
    /// Gives a viewer a place, who is at `client`; who `is_proxy` stands for others, and is not counted.
    ///
    /// # Errors
    /// When there is none.
    pub fn admit(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        client: Option<IpAddr>,
        is_proxy: bool,
    ) -> Result<Admission, Refusal> {
        if self.plane.is_draining() {
            return Err(Refusal::Draining);
        }
        if stream.content().is_none() {
            return Err(Refusal::NotReady);
        }
        let network = client.filter(|_| !is_proxy).map(household);
        let mut state = self.lock();
        if state.leaving.is_some() {
            return Err(Refusal::Draining);
        }
        let limits = state.limits.clone();
        if state.admitted >= limits.viewers_max {
            if !std::mem::replace(&mut state.is_full_told, true) {
                tracing::warn!(
                    viewers = state.admitted,
                    "there are as many viewers as there may be; others are refused"
                );
            }
            return Err(Refusal::Full);
        }
        let taken =
            || state.streams.values().map(|entry| entry.viewers as u64 * entry.stream.rate().bps()).sum::<u64>();
        if limits.bandwidth_max.is_some_and(|max| taken() + stream.rate().bps() > max.bps()) {
            return Err(Refusal::Bandwidth);
        }
        let entry = state.streams.get(&stream.number()).ok_or(Refusal::NotReady)?;
        if entry.viewers >= entry.viewers_max {
            return Err(Refusal::StreamFull);
        }
        if network.is_some_and(|network| !state.per_client.has_room(&network, limits.viewers_per_client)) {
            return Err(Refusal::ClientFull);
        }
        let cost = Some(stream.rate()).filter(|rate| *rate > Bitrate::ZERO).unwrap_or(USUAL);
        let near = stream.nearest();
        let worker = {
            let mut placement = self.plane.placement();
            let worker = placement.find(near, |_| true).ok_or(Refusal::Busy)?;
            placement.take(worker, cost);
            worker
        };
        if let Some(network) = network {
            state.per_client.enter(network, usize::MAX);
        }
        if let Some(entry) = state.streams.get_mut(&stream.number()) {
            entry.viewers += 1;
            entry.totals.begun += 1;
        }
        state.admitted += 1;
        state.viewers_begun += 1;
        let id = ViewerId(state.viewers_begun);
        drop(state);
        let (control, stream) = (self.clone(), stream.clone());
        Ok(Admission { control, stream, id, client, network, worker, cost, visit: None })
    }
}

impl Admission {
    /// Of what.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Has the access log tell of this request, whose answer has a head of `head_len` bytes.
    pub fn note(&mut self, request: &Parts, head_len: usize) {
        if self.control.lock().access.is_some() {
            self.visit = Some(Visit::new(self.client, SystemTime::now(), request, 200, head_len));
        }
    }

    pub(super) fn visit(&self) -> Option<&Visit> {
        self.visit.as_ref()
    }

    /// The place of a viewer who comes from another process, however many there are.
    pub(super) fn restore(
        control: &Arc<Control>,
        stream: &Arc<Stream>,
        id: ViewerId,
        (client, network): (Option<IpAddr>, Option<IpAddr>),
        visit: Option<Visit>,
    ) -> (Self, WorkerId) {
        let cost = Some(stream.rate()).filter(|rate| *rate > Bitrate::ZERO).unwrap_or(USUAL);
        let near = stream.nearest();
        let worker = {
            let mut placement = control.plane.placement();
            // He was served before, however busy all are.
            let worker = placement.find(near, |_| true).unwrap_or(WorkerId(0));
            placement.take(worker, cost);
            worker
        };
        let mut state = control.lock();
        network.map(|network| state.per_client.enter(network, usize::MAX));
        if let Some(entry) = state.streams.get_mut(&stream.number()) {
            entry.viewers += 1;
        }
        state.admitted += 1;
        state.viewers_begun = state.viewers_begun.max(id.0);
        drop(state);
        let admission =
            Admission { control: control.clone(), stream: stream.clone(), id, client, network, worker, cost, visit };
        (admission, worker)
    }

    /// Whose it is, as far as one client may have so many.
    pub(super) fn network(&self) -> Option<IpAddr> {
        self.network
    }

    pub(super) fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Gives the viewer's connection to a worker, which sends to him from here on.
    pub fn serve(self, arrived: Arrived) {
        let (stream, id, worker) = (self.stream.clone(), self.id, self.worker);
        let join = arrived.join.unwrap_or_else(|| stream.join());
        self.enter(At::Worker(worker));
        stream.add_viewer(worker, |stream| NewViewer {
            id,
            stream,
            descriptor: arrived.descriptor,
            begun: arrived.begun,
            head: arrived.head,
            join,
            pace: None,
        });
    }

    /// The body of an answer for a viewer whose connection stays HTTP's.
    pub fn copy(self, join: Option<Join>) -> Body {
        let (control, id) = (self.control.clone(), self.id);
        let (stream, began, asked) = (self.stream.clone(), Instant::now(), Arc::new(Notify::new()));
        let copy = stream.copy(began, join.unwrap_or_else(|| stream.join()));
        self.enter(At::Task(asked.clone()));
        Body::new(copy.start(asked, move |Copied { reason, skips, sent_bytes }| {
            let (stream, age, course) = (StreamId(0), began.elapsed(), Course { skips, ..Course::default() });
            control.remove(&EndedViewer { id, stream, reason, sent_bytes, course, age });
        }))
    }

    /// Makes it the place of a player of HLS. Returns its session: that of another of its requests, if that was first.
    pub(super) fn enter_session(self, session: Arc<Session>) -> Arc<Session> {
        let control = self.control.clone();
        let mut state = control.lock();
        if let Some(first) = state.session(session.key()) {
            drop(state);
            return first;
        }
        state.sessions.insert(&session, self.id);
        let (id, since) = (self.id, session.begun());
        state.viewers.insert(id, Viewer { admission: self, at: At::Player(session.clone()), since });
        session
    }

    fn enter(self, at: At) {
        let control = self.control.clone();
        let viewer = Viewer { admission: self, at, since: Instant::now() };
        control.lock().viewers.insert(viewer.admission.id, viewer);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.control.plane.placement().release(self.worker, self.cost);
        let mut state = self.control.lock();
        state.admitted -= 1;
        // Said again when places were short for a while, not for each that comes and goes.
        state.is_full_told &= state.admitted * 10 > state.limits.viewers_max * 9;
        if let Some(network) = self.network {
            state.per_client.leave(network);
        }
        let number = self.stream.number();
        let Some(entry) = state.streams.get_mut(&number) else { return };
        entry.viewers -= 1;
        if entry.viewers == 0 && !entry.is_configured {
            state.streams.remove(&number);
        }
    }
}
