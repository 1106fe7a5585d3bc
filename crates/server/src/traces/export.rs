//! Sends spans to the collector: OTLP over HTTP, protobuf, from a thread of its own that has a runtime of its own.
//!
//! In: spans that have ended. Out: requests with up to `BATCH_MAX` of them, once a second. What the collector does not take is sent
//! again after one and two seconds, unless that makes no sense, and then dropped and counted; meanwhile `WAITING_MAX` spans wait, and
//! further ones are dropped. The log says when that begins and when it is over.
//! Source: OTLP 1.7, "OTLP/HTTP".

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE};
use hyper::{Request, Uri};
use opentelemetry::{Context, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};
use prost::Message as _;
use rustix::system::uname;
use titles::Url;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::Counters;
use crate::config;
use crate::https::{self, Client};

/// Spans that wait to be sent at most: those of some 400 joins.
const WAITING_MAX: usize = 2_048;
/// Spans of one request at most.
const BATCH_MAX: usize = 512;
/// Spans wait so long for others that go with them.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// Within this the collector has to answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Of an answer. It says at most how many spans were not taken, and why.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// The thread comes behind the workers, which must not wait for it on a busy machine (nice(2)).
const NICE: i32 = 10;

/// What has become of spans.
#[derive(Debug, Default)]
pub(super) struct Tally {
    waiting: AtomicUsize,
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    pub(super) fn counters(&self) -> Counters {
        Counters { spans_sent: self.sent.load(Ordering::Relaxed), spans_dropped: self.dropped.load(Ordering::Relaxed) }
    }
}

/// Starts the thread.
///
/// # Errors
/// When there is none to be had.
pub(super) fn start(
    endpoint: &Url,
    settings: &config::Traces,
    tally: &Arc<Tally>,
) -> anyhow::Result<SdkTracerProvider> {
    let exporter = Exporter {
        url: address(endpoint)?,
        headers: settings.headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect(),
        client: https::client()?,
        runtime: Some(Builder::new_current_thread().enable_all().build().context("starting a runtime")?),
        resource: ResourceAttributesWithSchema::default(),
        tally: tally.clone(),
        fails: AtomicBool::new(false),
    };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(WAITING_MAX)
        .with_max_export_batch_size(BATCH_MAX)
        .with_scheduled_delay(BATCH_TIME)
        .build();
    // The processor's thread is as nice as the one that starts it.
    let started = move || {
        if let Err(error) = engine::sys::set_nice(NICE) {
            tracing::debug!(%error, "cannot lower the priority of who sends traces");
        }
        BatchSpanProcessor::new(exporter, batches)
    };
    let starter = thread::Builder::new().name("traces".to_owned()).spawn(started).context("starting a thread")?;
    let sender = starter.join().map_err(|_| anyhow::anyhow!("the thread that sends traces cannot be started"))?;
    let resource = Resource::builder_empty()
        .with_service_name(settings.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("host.name", uname().nodename().to_string_lossy().into_owned()))
        .with_attribute(KeyValue::new("process.pid", i64::from(std::process::id())));
    Ok(SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample))))
        .with_resource(resource.build())
        .with_span_processor(Gate { sender, tally: tally.clone() })
        .build())
}

/// Where the collector takes traces.
fn address(endpoint: &Url) -> anyhow::Result<Uri> {
    let mut url = endpoint.clone();
    let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.as_str().parse().with_context(|| format!("traces.endpoint: {endpoint}"))
}

/// Keeps the number of spans that wait below its limit. The processor has the same, but does not say what it drops.
#[derive(Debug)]
struct Gate {
    sender: BatchSpanProcessor,
    tally: Arc<Tally>,
}

impl SpanProcessor for Gate {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.tally.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX {
            self.sender.on_end(span);
        } else {
            self.tally.waiting.fetch_sub(1, Ordering::Relaxed);
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.sender.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.sender.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.sender.set_resource(resource);
    }
}

/// The way to the collector.
struct Exporter {
    url: Uri,
    headers: HeaderMap,
    client: Client,
    /// Whatever a collector does, HTTP and signalling of others are on another one.
    runtime: Option<Runtime>,
    resource: ResourceAttributesWithSchema,
    tally: Arc<Tally>,
    /// The log knows that it takes nothing.
    fails: AtomicBool,
}

impl Drop for Exporter {
    /// A name that is being looked up is not waited for.
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exporter({})", self.url)
    }
}

/// Why the collector has not taken spans.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{}", chain(.0))]
    Client(#[from] hyper_util::client::legacy::Error),
    #[error("no answer within {ANSWER_TIME:?}")]
    Late,
    #[error("it answers {0}")]
    Status(StatusCode),
}

impl Refused {
    /// Whether it may take them another time (OTLP/HTTP, "Retryable Response Codes").
    fn is_for_now(&self) -> bool {
        match self {
            Refused::Client(_) | Refused::Late => true,
            Refused::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.tally.waiting.fetch_sub(count, Ordering::Relaxed);
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec().into();
        let Some(runtime) = &self.runtime else { return Err(OTelSdkError::AlreadyShutdown) };
        let delivered = runtime.block_on(self.deliver(body));
        let taken = delivered.as_ref().map_or(0, |refused| count.saturating_sub(*refused));
        self.tally.sent.fetch_add(taken as u64, Ordering::Relaxed);
        self.tally.dropped.fetch_add((count - taken) as u64, Ordering::Relaxed);
        match delivered {
            Ok(_) if self.fails.swap(false, Ordering::Relaxed) => {
                tracing::info!(collector = %self.url, "the collector of traces takes them again");
            }
            Err(error) if !self.fails.swap(true, Ordering::Relaxed) => {
                tracing::warn!(collector = %self.url, %error, "the collector of traces does not take them; they are dropped until it does");
            }
            Ok(_) | Err(_) => {}
        }
        if taken == count { Ok(()) } else { Err(OTelSdkError::InternalFailure("not all were taken".to_owned())) }
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

impl Exporter {
    /// Sends a request until it is taken, or was sent often enough. Returns how many of its spans the collector has refused.
    async fn deliver(&self, body: Bytes) -> Result<usize, Refused> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let error = match timeout(ANSWER_TIME, self.post(body.clone())).await.unwrap_or(Err(Refused::Late)) {
                Ok(refused) => return Ok(refused),
                Err(error) => error,
            };
            tracing::debug!(collector = %self.url, %error, "the collector of traces has not taken a request");
            match pauses.next().filter(|_| error.is_for_now()) {
                Some(pause) => sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    async fn post(&self, body: Bytes) -> Result<usize, Refused> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        // Between two requests nobody would see that it was closed.
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let answer = self.client.request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        if !status.is_success() {
            return Err(Refused::Status(status));
        }
        // Where nobody can read what it says, it has taken them all.
        let said = body.ok().and_then(|body| ExportTraceServiceResponse::decode(body.to_bytes()).ok());
        let refused = said.and_then(|said| said.partial_success).map_or(0, |partial| partial.rejected_spans);
        Ok(usize::try_from(refused).unwrap_or(0))
    }
}

/// What an error says, and what those say that have caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use axum::http::HeaderMap;

    use super::super::{Asked, Traces};
    use super::*;

    #[test]
    fn traces_have_their_place_below_the_endpoint() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://example.org/otlp/", "https://example.org/otlp/v1/traces"),
            ("https://example.org/otlp?tenant=a", "https://example.org/otlp/v1/traces?tenant=a"),
        ] {
            let endpoint = endpoint.parse().expect("a URL");
            assert_eq!(address(&endpoint).expect("another").to_string(), expected);
        }
    }

    #[test]
    fn what_a_collector_would_refuse_again_is_not_sent_again() {
        let is_for_now = |status| Refused::Status(StatusCode::from_u16(status).expect("a status")).is_for_now();
        assert!([429, 502, 503, 504].map(is_for_now).iter().all(|again| *again));
        assert!(![400, 401, 404, 413, 500, 501].map(is_for_now).iter().any(|again| *again));
    }

    #[test]
    fn of_a_collector_that_never_answers_so_many_wait_and_the_end_is_not_held_up() {
        // The kernel takes the connection, and nobody reads from it.
        let collector = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let endpoint = format!("http://{}", collector.local_addr().expect("bound"));
        let settings = config::Traces { endpoint: endpoint.parse().ok(), ..config::Traces::default() };
        let traces = Traces::start(&settings).expect("a thread");
        let headers = HeaderMap::new();
        let begun = Instant::now();
        for _ in 0..5_000 {
            let asked =
                Asked { name: "a join", method: "POST", route: "/", headers: &headers, client: None, phase: "offer" };
            traces.begin(&asked).succeed();
        }
        let Counters { spans_sent, spans_dropped } = traces.counters();
        // Each has two, and one request is under way.
        assert!((10_000 - WAITING_MAX..=10_000).contains(&(spans_dropped as usize + BATCH_MAX)), "{spans_dropped}");
        assert_eq!(spans_sent, 0);
        traces.stop();
        let patience = ANSWER_TIME * (1 + PAUSES.len() as u32);
        assert!(begun.elapsed() < patience, "{:?}", begun.elapsed());
    }
}
