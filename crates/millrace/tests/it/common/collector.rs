//! A collector of traces, as OpenTelemetry's is, which keeps what it is sent.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// It ends with the test's process.
pub struct Collector {
    pub url: String,
    state: Arc<Mutex<State>>,
}

struct State {
    answer: &'static str,
    requests: usize,
    taken: Vec<ExportTraceServiceRequest>,
    /// Of the last request, in lower case.
    head: String,
}

/// A span with all within it that has no other above it here.
pub struct Trace {
    pub join: Span,
    /// In the order of their beginnings.
    pub phases: Vec<Span>,
}

impl Collector {
    pub fn start() -> Self {
        Self::answering(OK)
    }

    /// It says this to each request, and keeps none that it does not say is well.
    pub fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let state = State { answer, requests: 0, taken: Vec::new(), head: String::new() };
        let state = Arc::new(Mutex::new(state));
        let kept = state.clone();
        thread::spawn(move || {
            for socket in listener.incoming() {
                take(socket.expect("a connection"), &kept);
            }
        });
        Collector { url, state }
    }

    /// From now on it takes what comes.
    pub fn mend(&self) {
        self.locked().answer = OK;
    }

    pub fn requests(&self) -> usize {
        self.locked().requests
    }

    pub fn head(&self) -> String {
        self.locked().head.clone()
    }

    /// What each resource says of itself.
    pub fn resources(&self) -> Vec<BTreeMap<String, String>> {
        let state = self.locked();
        let resources = state.taken.iter().flat_map(|request| &request.resource_spans);
        resources.filter_map(|spans| Some(said(&spans.resource.as_ref()?.attributes))).collect()
    }

    /// All that it was sent so far, by joins.
    pub fn traces(&self) -> Vec<Trace> {
        let state = self.locked();
        let scopes = state.taken.iter().flat_map(|request| &request.resource_spans).flat_map(|all| &all.scope_spans);
        let spans: Vec<&Span> = scopes.flat_map(|scope| &scope.spans).collect();
        let is_here = |id: &[u8]| spans.iter().any(|span| span.span_id == id);
        let joins = spans.iter().filter(|span| !is_here(&span.parent_span_id) && span.name.ends_with(" join"));
        let trace = |join: &&Span| {
            let phases = spans.iter().filter(|span| span.parent_span_id == join.span_id);
            let mut phases: Vec<Span> = phases.map(|span| (*span).clone()).collect();
            phases.sort_by_key(|span| (span.start_time_unix_nano, span.end_time_unix_nano));
            Trace { join: (*join).clone(), phases }
        };
        joins.map(trace).collect()
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics")
    }
}

impl Trace {
    pub fn phases(&self) -> Vec<&str> {
        self.phases.iter().map(|span| span.name.as_str()).collect()
    }

    pub fn said(&self) -> BTreeMap<String, String> {
        said(&self.join.attributes)
    }
}

/// Attributes as text.
pub fn said(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(&attribute.value))).collect()
}

fn take(socket: TcpStream, state: &Mutex<State>) {
    let (mut reader, mut writer) = (BufReader::new(socket.try_clone().expect("a socket")), socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a request") > 0, "{head}");
    }
    let head = head.to_lowercase();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).expect("a length");
    let mut body = vec![0; len];
    reader.read_exact(&mut body).expect("a body");
    let mut state = state.lock().expect("nobody panics");
    (state.requests, state.head) = (state.requests + 1, head);
    if state.answer == OK {
        state.taken.push(ExportTraceServiceRequest::decode(&body[..]).expect("OTLP"));
    }
    // Whoever asks may have gone.
    writer.write_all(state.answer.as_bytes()).ok();
}
