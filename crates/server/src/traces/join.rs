//! One join: a span from the request until the session is connected or fails, and a span within it for each of its phases.
//!
//! Phases follow each other: each begins when the one before it ends. What is said by clients is cut, as it may be long.

use std::net::IpAddr;
use std::time::SystemTime;

use axum::http::{HeaderMap, StatusCode, header};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

/// What a span has of a text that a client has sent, in characters.
const TEXT_CHARS_MAX: usize = 200;

/// How somebody asks to join.
pub struct Asked<'a> {
    /// The span's name, of which there are few.
    pub name: &'static str,
    /// Of HTTP.
    pub method: &'static str,
    /// The path, with names of its parts for what differs.
    pub route: &'static str,
    /// The request's.
    pub headers: &'a HeaderMap,
    /// Where the client is.
    pub client: Option<IpAddr>,
    /// The first phase.
    pub phase: &'static str,
}

/// A join that goes on, or nothing, where it is not traced. One that is let go of has been given up.
#[derive(Default)]
pub struct Join(Option<Box<Open>>);

struct Open {
    tracer: SdkTracer,
    /// Has the span of the join.
    context: Context,
    phase: (&'static str, Span),
}

impl Join {
    pub(super) fn begin(tracer: &SdkTracer, parent: &Context, asked: &Asked<'_>) -> Self {
        let now = SystemTime::now();
        let name = SpanBuilder::from_name(asked.name).with_kind(SpanKind::Server).with_start_time(now);
        let span = tracer.build_with_context(name, parent);
        // Whether it is sampled.
        if !span.is_recording() {
            return Join(None);
        }
        let context = Context::new().with_span(span);
        let phase = (asked.phase, begin(tracer, &context, asked.phase, now));
        let mut join = Join(Some(Box::new(Open { tracer: tracer.clone(), context, phase })));
        join.set("http.request.method", || asked.method.to_owned());
        join.set("http.route", || asked.route.to_owned());
        if let Some(ip) = asked.client {
            join.set("client.address", || ip.to_string());
        }
        if let Some(agent) = asked.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()) {
            join.set("user_agent.original", || agent.to_owned());
        }
        join
    }

    /// Whether it is traced.
    pub fn is_traced(&self) -> bool {
        self.0.is_some()
    }

    /// Says something of the join.
    pub fn set(&mut self, key: &'static str, value: impl FnOnce() -> String) {
        if let Some(open) = &self.0 {
            open.context.span().set_attribute(KeyValue::new(key, cut(&value())));
        }
    }

    /// The next phase begins.
    pub fn enter(&mut self, phase: &'static str) {
        if let Some(open) = &mut self.0 {
            let now = SystemTime::now();
            open.phase.1.end_with_timestamp(now);
            open.phase = (phase, begin(&open.tracer, &open.context, phase, now));
        }
    }

    /// The same, if it is now in that other one.
    pub(super) fn enter_behind(&mut self, before: &str, phase: &'static str) {
        if self.0.as_ref().is_some_and(|open| open.phase.0 == before) {
            self.enter(phase);
        }
    }

    /// Something has happened in the phase.
    pub(super) fn note(&mut self, what: &'static str) {
        if let Some(open) = &mut self.0 {
            open.phase.1.add_event(what, Vec::new());
        }
    }

    /// What the request was answered with.
    pub fn answer(&mut self, status: StatusCode) {
        if let Some(open) = &self.0 {
            open.context.span().set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        }
    }

    /// The request was refused.
    pub fn refuse(mut self, status: StatusCode, why: &str) {
        self.answer(status);
        self.close("refused", Some((status.as_str(), why)));
    }

    /// It has come to its end.
    pub fn succeed(mut self) {
        self.close("connected", None);
    }

    pub(super) fn fail(mut self, kind: &'static str, why: &str) {
        self.close(kind, Some((kind, why)));
    }

    /// Ends its spans; `error` has its kind, of which there are few, and what it is in words.
    fn close(&mut self, outcome: &'static str, error: Option<(&str, &str)>) {
        let Some(Open { context, phase: (_, mut phase), .. }) = self.0.take().map(|open| *open) else { return };
        let (now, join) = (SystemTime::now(), context.span());
        join.set_attribute(KeyValue::new("millrace.join.outcome", outcome));
        if let Some((kind, why)) = error {
            let (kind, status) = (KeyValue::new("error.type", kind.to_owned()), Status::error(cut(why)));
            phase.set_attribute(kind.clone());
            phase.set_status(status.clone());
            join.set_attribute(kind);
            join.set_status(status);
        }
        phase.end_with_timestamp(now);
        join.end_with_timestamp(now);
    }
}

impl Drop for Join {
    fn drop(&mut self) {
        self.close("abandoned", Some(("abandoned", "the client has gone before it was answered")));
    }
}

fn begin(tracer: &SdkTracer, context: &Context, phase: &'static str, now: SystemTime) -> Span {
    tracer.build_with_context(SpanBuilder::from_name(phase).with_start_time(now), context)
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}
