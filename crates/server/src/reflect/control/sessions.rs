//! Players of HLS as viewers: who asks now and then for a piece of a stream watches it.
//!
//! In: requests for playlists and segments. Out: the session of each, which is a viewer with a place as any other.
//! A session is what comes from one address with one User-Agent and one query, as the playlist hands that on: who wants two
//! players behind one address told apart gives each a query of its own. It is over when nobody has asked for a while.
//! Cost: one lock per request. Sessions are viewers, so there are no more of them than viewers may be.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::http::request::Parts;
use hyper::body::{Frame, SizeHint};
use reflect::course::Course;
use reflect::spec::{EndReason, EndedViewer, StreamId, ViewerId};

use super::{At, Control, Refusal, State};
use crate::reflect::hls::passed_on;
use crate::reflect::stream::Stream;

/// A player that asks for nothing for so many target durations is gone: an answer that is waited for may take three.
const TARGETS: u32 = 4;

/// The same before it is known how long segments are.
const FIRST_MAX: Duration = Duration::from_secs(20);

/// Sessions that are over are looked for so often.
const LOOK: Duration = Duration::from_secs(1);

/// Who is the same player.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    stream: u64,
    client: Option<IpAddr>,
    /// Of what it says of itself.
    digest: u64,
}

/// One player's.
#[derive(Debug)]
pub struct Session {
    key: Key,
    begun: Instant,
    /// Of time since it began, when somebody asked last or was sent something.
    heard_ms: AtomicU64,
    /// For how long it goes on from then.
    patience_ms: AtomicU64,
    sent_bytes: AtomicU64,
}

/// Sessions by what they are told by.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    hasher: RandomState,
    by_key: HashMap<Key, ViewerId>,
    looked_at: Option<Instant>,
}

impl Control {
    /// The session that a request belongs to; a new one needs a place. `None`: all goes over to another process, which counts it.
    ///
    /// # Errors
    /// When there is none.
    pub fn visit(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        (client, is_proxy): (Option<IpAddr>, bool),
        request: &Parts,
    ) -> Result<Option<Arc<Session>>, Refusal> {
        let target = stream.hls().and_then(|hls| hls.target());
        let patience = target.map_or(FIRST_MAX, |target| TARGETS * target);
        let (key, known, is_leaving) = {
            let state = self.lock();
            let key = state.sessions.key(stream.number(), client, request);
            (key, state.session(&key), state.leaving.is_some())
        };
        if known.is_none() && is_leaving {
            return Ok(None);
        }
        let session = match known {
            Some(session) => session,
            None => {
                let mut admission = self.admit(stream, client, is_proxy)?;
                admission.note(request, 0);
                admission.enter_session(Session::new(key, Instant::now()))
            }
        };
        session.patience_ms.store(patience.as_millis() as u64, Ordering::Relaxed);
        session.hear(Instant::now());
        Ok(Some(session))
    }

    /// Lets go of those who have asked for nothing for a while.
    pub(super) fn end_late_sessions(&self, now: Instant) {
        {
            let looked_at = &mut self.lock().sessions.looked_at;
            if looked_at.is_some_and(|looked_at| now < looked_at + LOOK) {
                return;
            }
            *looked_at = Some(now);
        }
        self.end_sessions(now, EndReason::Closed, |session| session.is_late(now));
    }

    /// Ends those of which that is so.
    pub(super) fn end_sessions(&self, now: Instant, reason: EndReason, is_over: impl Fn(&Session) -> bool) {
        let over: Vec<(ViewerId, Arc<Session>)> = {
            let state = self.lock();
            let all = state.sessions.by_key.values().filter_map(|id| Some((*id, state.session_of(*id)?)));
            all.filter(|(_, session)| is_over(session)).collect()
        };
        for (id, session) in over {
            self.end_session(id, &session, now, reason);
        }
    }

    /// A session is over. A player that is still there begins another with its next request.
    pub(super) fn end_session(&self, id: ViewerId, session: &Session, now: Instant, reason: EndReason) {
        let (stream, course, sent_bytes) = (StreamId(0), Course::default(), session.sent_bytes());
        let age = now.saturating_duration_since(session.begun);
        self.remove(&EndedViewer { id, stream, reason, sent_bytes, course, age });
    }
}

impl State {
    pub(super) fn session(&self, key: &Key) -> Option<Arc<Session>> {
        self.session_of(*self.sessions.by_key.get(key)?)
    }

    fn session_of(&self, id: ViewerId) -> Option<Arc<Session>> {
        match &self.viewers.get(&id)?.at {
            At::Player(session) => Some(session.clone()),
            _ => None,
        }
    }
}

impl Sessions {
    fn key(&self, stream: u64, client: Option<IpAddr>, request: &Parts) -> Key {
        let agent = request.headers.get(header::USER_AGENT).map(|agent| agent.as_bytes());
        let query = passed_on(request.uri.query().unwrap_or_default());
        Key { stream, client, digest: self.hasher.hash_one((agent, query)) }
    }

    pub(super) fn insert(&mut self, session: &Session, id: ViewerId) {
        self.by_key.insert(session.key, id);
    }

    pub(super) fn remove(&mut self, session: &Session) {
        self.by_key.remove(&session.key);
    }
}

impl Session {
    fn new(key: Key, begun: Instant) -> Arc<Self> {
        let (heard_ms, patience_ms, sent_bytes) = Default::default();
        Arc::new(Session { key, begun, heard_ms, patience_ms, sent_bytes })
    }

    /// Which it is.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// Since when.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// What it was sent.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    fn hear(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.begun).as_millis() as u64;
        self.heard_ms.fetch_max(ms, Ordering::Relaxed);
    }

    fn is_late(&self, now: Instant) -> bool {
        let until_ms = self.heard_ms.load(Ordering::Relaxed) + self.patience_ms.load(Ordering::Relaxed);
        now.saturating_duration_since(self.begun) >= Duration::from_millis(until_ms)
    }

    /// Counts what a body has as it is sent; while that is under way the session goes on.
    pub fn count(self: Arc<Self>, body: Body) -> Body {
        Body::new(Counted { body, session: self })
    }
}

struct Counted {
    body: Body,
    session: Arc<Session>,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let count = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.session.sent_bytes.fetch_add(count, Ordering::Relaxed);
            self.session.hear(Instant::now());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
