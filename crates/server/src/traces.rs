//! Traces of joins, for a collector of OpenTelemetry's: where each one's time went, and why it failed.
//!
//! In: joins as they go on, from HTTP and signalling, and from what negotiators say of their sessions. Out: spans, which a thread of
//! their own sends (`export`). Cost: nothing where there is no collector; else some allocations for each join, and one lock
//! around a map. Workers know nothing of it.
//! Source: OpenTelemetry's specification of tracing and its semantic conventions, W3C Trace Context.

mod export;
mod join;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::http::HeaderMap;
use counters::counters;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use rooms::spec::SessionId;

use crate::config;
use crate::rooms::negotiator::Progress;
pub use join::{Asked, Join};

/// What waits to be sent when the server ends is sent within this, or never.
const FLUSH_TIME: Duration = Duration::from_secs(2);

/// Of `traceparent` and `tracestate`, which go along with each span: nobody has to take longer ones (W3C Trace Context §3.3.1.5).
const HEADER_BYTES_MAX: usize = 512;

counters! {
    /// Traces of joins.
    pub struct Counters: "millrace_traces_" {
        /// Spans of joins that the collector of traces has taken.
        counter spans_sent: u64 = "spans_sent_total",
        /// Spans of joins that were dropped, because the collector of traces did not take them, or too many waited for it.
        counter spans_dropped: u64 = "spans_dropped_total",
    }
}

/// Who traces joins, or nobody.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Active>>);

struct Active {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    tally: Arc<export::Tally>,
    /// Joins whose sessions are not connected yet. A session that does not connect soon ends, so there are as many as there may be
    /// handshakes.
    joins: Mutex<HashMap<SessionId, Join>>,
}

impl Traces {
    /// For the collector of the settings. Without one, nothing is traced.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(settings: &config::Traces) -> anyhow::Result<Self> {
        let Some(endpoint) = &settings.endpoint else { return Ok(Traces::default()) };
        let tally = Arc::<export::Tally>::default();
        let provider = export::start(endpoint, settings, &tally)?;
        let tracer = provider.tracer("millrace");
        Ok(Traces(Some(Arc::new(Active { provider, tracer, tally, joins: Mutex::default() }))))
    }

    /// Somebody wants to join. Where its request says that it belongs to a trace (`traceparent`), it does.
    pub fn begin(&self, asked: &Asked<'_>) -> Join {
        let Some(active) = &self.0 else { return Join::default() };
        let parent = TraceContextPropagator::new().extract(&Head(asked.headers));
        Join::begin(&active.tracer, &parent, asked)
    }

    /// A join goes on with this phase, by what becomes of its session. Who ends sessions lets go of one first, and then says so to
    /// `end`; `is_there` says whether somebody has.
    pub fn follow(&self, session: SessionId, phase: &'static str, mut join: Join, is_there: impl FnOnce() -> bool) {
        let Some(active) = self.0.as_ref().filter(|_| join.is_traced()) else { return };
        join.set("session.id", || session.0.to_string());
        join.enter(phase);
        active.joins().insert(session, join);
        if !is_there() {
            self.end(session, "ended");
        }
    }

    /// The client and the server know each other's descriptions.
    pub fn described(&self, session: SessionId) {
        self.with(session, |join| join.enter_behind("describe", "ice"));
    }

    /// The client has come further with ICE.
    pub fn reached(&self, session: SessionId, progress: Progress) {
        self.with(session, |join| match progress {
            Progress::Answered => {}
            Progress::Checked => join.note("first check"),
            Progress::Proved => join.enter("dtls"),
        });
    }

    /// The session has keys, and the join has come to its end.
    pub fn connected(&self, session: SessionId) {
        if let Some(join) = self.take(session) {
            join.succeed();
        }
    }

    /// The session has ended. Where it never was connected, its join has failed, for this reason.
    pub fn end(&self, session: SessionId, why: &'static str) {
        if let Some(join) = self.take(session) {
            join.fail(why, "the session has ended before it was connected");
        }
    }

    /// What was sent, and what was not.
    pub fn counters(&self) -> Counters {
        self.0.as_ref().map(|active| active.tally.counters()).unwrap_or_default()
    }

    /// Sends what waits, for as long as that may take, and traces nothing more. It blocks.
    pub fn stop(&self) {
        let Some(active) = &self.0 else { return };
        let open: Vec<Join> = active.joins().drain().map(|(_, join)| join).collect();
        for join in open {
            join.fail("server_stopped", "the server has stopped before the session was connected");
        }
        if let Err(error) = active.provider.shutdown_with_timeout(FLUSH_TIME) {
            tracing::debug!(%error, "some traces are not sent");
        }
    }

    fn with(&self, session: SessionId, act: impl FnOnce(&mut Join)) {
        if let Some(active) = &self.0
            && let Some(join) = active.joins().get_mut(&session)
        {
            act(join);
        }
    }

    fn take(&self, session: SessionId) -> Option<Join> {
        self.0.as_ref()?.joins().remove(&session)
    }
}

impl Active {
    fn joins(&self) -> MutexGuard<'_, HashMap<SessionId, Join>> {
        self.joins.lock().expect("nobody panics under this lock")
    }
}

/// A request's head, as those who read `traceparent` want it.
struct Head<'a>(&'a HeaderMap);

impl Extractor for Head<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok().filter(|value| value.len() <= HEADER_BYTES_MAX)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}
