//! `/metrics`: counters of workers, rooms, pumps, relays, RTSP and negotiators for Prometheus (text format 0.0.4).
//!
//! Labels are the worker's number, fixed names, and names in the settings (streams, live inputs, files of certificates), so that
//! the number of series does not grow with use. Units are seconds and bytes, as is usual there; but rates are bit/s (`_bps`), as in
//! the settings and as everybody counts them who sends media.

pub(super) mod process;
mod pump;
mod reflect;

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::get;
use counters::{Counters, Lateness, Value};
use tokio::sync::Mutex;
use wire::WorkerId;

use strum::VariantArray as _;

use super::{App, Problem};
use crate::auth::{self, Refusal};
use crate::config::Secret;
use crate::plane::workers::Workers;
use crate::pump::live::Inspected;
use crate::rooms::control::RoomsControl;
use crate::rooms::directory::StreamState;
use crate::tls::Certificates;

/// How `/metrics` is served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsSettings {
    /// It is not there but on a listener of its own.
    pub is_apart: bool,
    /// What who reads it has to show, as a bearer token (RFC 6750).
    pub token: Option<Secret>,
    /// A page that is younger is good enough for the next who asks.
    pub age_max: Duration,
}

/// `/metrics`, and the page as it was made last.
#[derive(Debug)]
pub struct Metrics {
    pub(super) settings: MetricsSettings,
    /// When the process began, as good as that.
    started: SystemTime,
    page: Mutex<Option<(Instant, Bytes)>>,
}

impl Metrics {
    /// No page yet.
    pub fn new(settings: MetricsSettings) -> Self {
        Metrics { settings, started: SystemTime::now(), page: Mutex::default() }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(MetricsSettings::default())
    }
}

/// The resource alone. Pages of other origins have no business here, so it has no CORS headers.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/metrics", get(metrics)).method_not_allowed_fallback(super::method_not_allowed)
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    if let Some(Secret(token)) = &app.metrics.settings.token {
        let sent = auth::bearer_token(headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()))?;
        if verify_slices_are_equal(sent.as_bytes(), token.as_bytes()).is_err() {
            return Err(Refusal::BadToken("is not that of http.metrics_token".to_owned()).into());
        }
    }
    // Of many who ask at a time one makes the page, and the others wait for it.
    let mut cached = app.metrics.page.lock().await;
    let page = match &*cached {
        Some((at, page)) if at.elapsed() < app.metrics.settings.age_max => page.clone(),
        _ => cached.insert((Instant::now(), make_page(&app).into())).1.clone(),
    };
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page))
}

fn make_page(app: &App) -> String {
    let mut page = Page::default();
    process::write(&mut page, app.metrics.started);
    page.set(&[(String::new(), app.door.counters())]);
    let certificates = app.certificates.as_deref();
    page.set(&[(String::new(), certificates.map(Certificates::counters).unwrap_or_default())]);
    write_certificates(&mut page, certificates);
    page.set(&[(String::new(), app.connections.counters())]);
    write_sessions(&mut page, app);
    page.set(&[(String::new(), app.rooms.counters())]);
    page.set(&[(String::new(), app.plane.traces().counters())]);
    write_workers(&mut page, app.plane.workers());
    write_negotiators(&mut page, &app.rooms);
    write_rooms(&mut page, app.plane.workers());
    let livekit = app.livekit.as_ref().map(|livekit| livekit.counters());
    page.set(&[(String::new(), livekit.unwrap_or_default())]);
    if let Some(pump) = &app.pump {
        pump::write(&mut page, pump);
        let input = |input: &Inspected| (label("input", &input.config.name), input.counters.clone());
        page.set(&pump.live_inputs().iter().map(input).collect::<Vec<_>>());
    }
    if app.relay.is_some() {
        let rows = app.plane.workers().numbers().map(|(id, numbers)| (worker_label(id), numbers.relay.load()));
        page.set(&rows.collect::<Vec<_>>());
    }
    if let Some(reflect) = &app.reflect {
        reflect::write(&mut page, reflect, app.plane.workers());
    }
    if let Some(rtsp) = &app.rtsp {
        page.set(&[(String::new(), rtsp.stats())]);
    }
    page.text
}

/// Until when certificates are good, by their files.
fn write_certificates(page: &mut Page, certificates: Option<&Certificates>) {
    let name = "millrace_tls_certificate_expiry_timestamp_seconds";
    page.family(name, "gauge", "When the certificate in the file goes out of date, in seconds since 1970.");
    for (file, until) in certificates.map(Certificates::expiries).into_iter().flatten() {
        let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        page.sample(name, &label("file", &file.to_string_lossy()), until.as_secs_f64());
    }
}

fn write_sessions(page: &mut Page, app: &App) {
    let census = app.rooms.census();
    page.family("millrace_streams", "gauge", "Streams by the state of their publisher.");
    for (state, count) in StreamState::VARIANTS.iter().zip(census.streams) {
        page.sample("millrace_streams", &label("state", state.into()), count as f64);
    }
    page.family("millrace_sessions", "gauge", "Sessions by role, and whether their handshake is done.");
    for ((all, connected), label) in [(census.publishers, "publisher"), (census.viewers, "viewer")] {
        for (state, count) in [("connected", connected), ("connecting", all - connected)] {
            page.sample("millrace_sessions", &format!("role={label:?},state={state:?}"), count as f64);
        }
    }
    page.family("millrace_draining", "gauge", "1 when new sessions are refused, because the server is about to stop.");
    page.sample("millrace_draining", "", f64::from(u8::from(app.plane.is_draining())));
}

/// The sockets and threads of each worker.
fn write_workers(page: &mut Page, workers: &Workers) {
    page.family(
        "millrace_worker_cpu_seconds_total",
        "counter",
        "CPU time of the worker's thread in seconds, the kernel's included.",
    );
    for worker in workers.ids() {
        let time = workers.cpu_time(worker).unwrap_or_default();
        page.sample("millrace_worker_cpu_seconds_total", &worker_label(worker), time.as_secs_f64());
    }
    let rows: Vec<_> = workers.counters().map(|(worker, counters)| (worker_label(worker), counters)).collect();
    page.set(&rows);
    let name = "millrace_worker_messages_waiting";
    page.family(
        name,
        "gauge",
        "Messages that wait for room in the worker's mailbox. For more than a second: it hangs.",
    );
    for worker in workers.ids() {
        page.sample(name, &worker_label(worker), workers.waiting(worker) as f64);
    }
}

/// The negotiator of each worker.
fn write_negotiators(page: &mut Page, rooms: &RoomsControl) {
    let counters = rooms.negotiator_counters();
    let rows: Vec<_> = counters.map(|(worker, counters)| (worker_label(worker), counters)).collect();
    page.set(&rows);
    let name = "millrace_handshake_datagrams_refused_total";
    page.family(name, "counter", "STUN and DTLS datagrams that were malformed, for nobody, or not authentic.");
    for (worker, counters) in &rows {
        page.sample(name, worker, counters.refused_datagrams() as f64);
    }
}

/// The rooms of each worker.
fn write_rooms(page: &mut Page, workers: &Workers) {
    let rows: Vec<_> = workers.numbers().map(|(id, numbers)| (worker_label(id), numbers.rooms.load())).collect();
    page.set(&rows);
}

fn worker_label(worker: WorkerId) -> String {
    label("worker", &worker.0.to_string())
}

/// A label and its value. Of what may be in that, three characters have to be written otherwise.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('\n', r"\n").replace('"', r#"\""#);
    format!("{name}=\"{value}\"")
}

/// Bounds of histograms: powers of two from 16 µs to 17 s, which is all that is of interest.
const SHOWN_BITS: RangeInclusive<usize> = 14..=34;

/// Labels with one more.
fn with_label(labels: &str, name: &str, value: &str) -> String {
    joined(labels, &label(name, value))
}

fn joined(labels: &str, more: &str) -> String {
    if labels.is_empty() { more.to_owned() } else { format!("{labels},{more}") }
}

/// A page under construction.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// All families of a set of counters, with a sample for each row: its labels, and what it has counted.
    fn set<C: Counters>(&mut self, rows: &[(String, C)]) {
        let rows: Vec<_> = rows.iter().map(|(labels, counters)| (labels, counters.values())).collect();
        for (index, family) in C::FAMILIES.iter().enumerate() {
            self.family(family.name, family.kind.name(), family.help);
            for (labels, values) in &rows {
                if let Some(value) = values.get(index) {
                    self.value(family.name, labels, value);
                }
            }
        }
    }

    fn value(&mut self, name: &str, labels: &str, value: &Value<'_>) {
        match value {
            Value::Number(number) => self.sample(name, labels, *number as f64),
            Value::Real(number) => self.sample(name, labels, *number),
            Value::Time(time) => self.sample(name, labels, time.as_secs_f64()),
            Value::Times(times) => self.histogram(name, labels, times),
            Value::ByLabels(counts) => {
                for (of, count) in counts {
                    self.sample(name, &joined(labels, of), *count as f64);
                }
            }
            Value::ByLabel(label, counts) => {
                for (of, count) in counts {
                    self.sample(name, &with_label(labels, label, of), *count as f64);
                }
            }
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, times: &Lateness) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bits, count) in times.buckets().iter().enumerate() {
            below += count;
            if SHOWN_BITS.contains(&bits) {
                let upper = (1_u64 << bits) as f64 / 1e9;
                self.sample(&bucket, &with_label(labels, "le", &upper.to_string()), below as f64);
            }
        }
        self.sample(&bucket, &with_label(labels, "le", "+Inf"), below as f64);
        self.sample(&format!("{name}_sum"), labels, times.sum_ns() as f64 / 1e9);
        self.sample(&format!("{name}_count"), labels, below as f64);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// Labels as they stand in the text, such as `worker="0"`.
    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            _ => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("writing to a String cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_characters_of_a_label_are_written_otherwise_and_no_others() {
        assert_eq!(label("file", "/etc/n\u{fc}/a b.pem"), "file=\"/etc/n\u{fc}/a b.pem\"");
        assert_eq!(label("file", "a\"b\\c\nd\te\u{301}"), "file=\"a\\\"b\\\\c\\nd\te\u{301}\"");
    }
}
