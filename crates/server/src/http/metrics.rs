//! `/metrics`: counters of workers, rooms, pumps, RTSP and negotiators for Prometheus (text format 0.0.4).
//!
//! Labels are the worker's number and fixed names, so that the number of series does not grow with use.

mod live;
mod pump;
mod rtsp;

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use engine::CountersSnapshot;
use nix::sys::resource::{UsageWho, getrusage};
use rooms::spec::Counters;
use wire::WorkerId;

use super::{Connections, Service};
use crate::plane::workers::Workers;
use crate::rooms::control::RoomsControl;
use crate::rooms::directory::{Role, StreamState};
use crate::rooms::negotiator;

/// A family: what stands behind the prefix in its name, its type, what it tells, and where that is to be had.
type Field<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

pub(super) async fn metrics(State(service): State<Arc<Service>>) -> impl IntoResponse {
    let mut page = Page::default();
    write_process(&mut page);
    page.values("millrace_http_connections", &CONNECTIONS, &service.connections);
    write_sessions(&mut page, &service);
    write_workers(&mut page, service.plane.workers());
    write_negotiators(&mut page, &service.rooms);
    write_rooms(&mut page, &service.rooms.counters().await);
    if let Some(pump) = &service.pump {
        pump::write(&mut page, pump).await;
        live::write(&mut page, &pump.live_inputs());
    }
    if let Some(rtsp) = &service.rtsp {
        rtsp::write(&mut page, &rtsp.stats());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.text)
}

/// What the process as a whole takes. Of numbers that cannot be had there is no sample.
fn write_process(page: &mut Page) {
    page.family("millrace_process_cpu_seconds_total", "counter", "CPU time of the process, by where it was spent.");
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        for (mode, time) in [("user", usage.user_time()), ("system", usage.system_time())] {
            let seconds = time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
            page.sample("millrace_process_cpu_seconds_total", &format!("mode={mode:?}"), seconds);
        }
    }
    page.family("millrace_process_resident_bytes", "gauge", "Memory of the process that is in RAM.");
    if let Some(bytes) = resident_bytes() {
        page.sample("millrace_process_resident_bytes", "", bytes);
    }
}

/// The line "VmRSS: 1234 kB" of proc_pid_status(5).
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: f64 =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"))?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

const CONNECTIONS: [Field<Connections>; 3] = [
    ("", "gauge", "HTTP connections now.", |connections| connections.open() as f64),
    ("_max", "gauge", "HTTP connections at a time at most; further ones wait.", |connections| {
        connections.limits().connections_max as f64
    }),
    ("_accepted_total", "counter", "HTTP connections since the start.", |connections| connections.accepted() as f64),
];

fn write_sessions(page: &mut Page, service: &Service) {
    let streams = service.rooms.streams();
    page.family("millrace_streams", "gauge", "Streams by the state of their publisher.");
    for (state, label) in [
        (StreamState::Connecting, "connecting"),
        (StreamState::Live, "live"),
        (StreamState::Interrupted, "interrupted"),
    ] {
        let count = streams.iter().filter(|stream| stream.state == state).count();
        page.sample("millrace_streams", &format!("state={label:?}"), count as f64);
    }
    page.family("millrace_sessions", "gauge", "Sessions by role, and whether their handshake is done.");
    for (role, label) in [(Role::Publisher, "publisher"), (Role::Viewer, "viewer")] {
        let (all, connected) = service.rooms.session_counts(role);
        for (state, count) in [("connected", connected), ("connecting", all - connected)] {
            page.sample("millrace_sessions", &format!("role={label:?},state={state:?}"), count as f64);
        }
    }
    page.family("millrace_draining", "gauge", "1 when new sessions are refused, because the server is about to stop.");
    page.sample("millrace_draining", "", f64::from(u8::from(service.plane.is_draining())));
}

/// The sockets and threads of each worker.
fn write_workers(page: &mut Page, workers: &Workers) {
    let rows: Vec<_> = workers.counters().map(|(worker, counters)| (worker, worker_label(worker), counters)).collect();
    page.family(
        "millrace_worker_cpu_seconds_total",
        "counter",
        "CPU time of the worker's thread, the kernel's included.",
    );
    for (worker, labels, _) in &rows {
        let time = workers.cpu_time(*worker).unwrap_or_default();
        page.sample("millrace_worker_cpu_seconds_total", labels, time.as_secs_f64());
    }
    for (index, (name, help, _)) in CountersSnapshot::default().fields().enumerate() {
        // All but the number of open links only grow.
        let (name, kind) = match name {
            "tcp_links" => ("millrace_worker_tcp_links".to_owned(), "gauge"),
            _ => (format!("millrace_worker_{name}_total"), "counter"),
        };
        page.family(&name, kind, help);
        for (_, labels, counters) in &rows {
            let value = counters.fields().nth(index).map_or(0, |(.., value)| value);
            page.sample(&name, labels, value as f64);
        }
    }
}

/// The negotiator of each worker.
fn write_negotiators(page: &mut Page, rooms: &RoomsControl) {
    let counters: Vec<_> = rooms.negotiator_counters().collect();
    let rows: Vec<_> = counters.iter().map(|(worker, counters)| (worker_label(*worker), counters)).collect();
    page.table("millrace_handshake_", &NEGOTIATOR, &rows);
}

const NEGOTIATOR: [Field<negotiator::CountersSnapshot>; 11] = [
    ("handshakes", "gauge", "Sessions without keys yet.", |counters| counters.handshakes as f64),
    ("answered_total", "counter", "Offers answered.", |counters| counters.answered as f64),
    ("refused_total", "counter", "Offers and fragments refused for their text.", |counters| counters.refused as f64),
    ("overloaded_total", "counter", "Offers refused for want of room.", |counters| counters.overloaded as f64),
    ("connected_total", "counter", "Sessions that got their keys.", |counters| counters.connected as f64),
    ("timed_out_total", "counter", "Sessions that did not in time.", |counters| counters.timed_out as f64),
    ("failed_total", "counter", "Sessions whose handshake failed.", |counters| counters.failed as f64),
    ("certificates_refused_total", "counter", "Of these: for want of an ECDSA certificate.", |counters| {
        counters.certificates_refused as f64
    }),
    ("restarts_total", "counter", "ICE restarts.", |counters| counters.restarts as f64),
    ("datagrams_total", "counter", "STUN and DTLS datagrams received.", |counters| counters.datagrams as f64),
    ("datagrams_refused_total", "counter", "Of these: malformed, for nobody, or not authentic.", |refused| {
        (refused.malformed + refused.unknown + refused.not_authentic + refused.too_many_addresses) as f64
    }),
];

fn write_rooms(page: &mut Page, rooms: &[Option<Box<Counters>>]) {
    let rows = answered(rooms);
    let fields: [Field<Counters>; 8] = [
        ("streams", "gauge", "Streams that the worker knows, its own and those it is fed.", |rooms| {
            rooms.streams as f64
        }),
        ("publishers", "gauge", "Publishers on the worker.", |rooms| rooms.publishers as f64),
        ("viewers", "gauge", "Viewers on the worker.", |rooms| rooms.viewers as f64),
        ("sessions", "gauge", "Sessions on the worker.", |rooms| rooms.sessions as f64),
        ("packets_in_total", "counter", "Media packets taken from publishers.", |rooms| rooms.packets_in as f64),
        ("packets_out_total", "counter", "Media packets written for viewers.", |rooms| rooms.packets_out as f64),
        ("packets_resent_total", "counter", "Media packets written again (RTX).", |rooms| rooms.packets_resent as f64),
        ("keyframe_requests_total", "counter", "Keyframes asked of publishers.", |rooms| {
            rooms.keyframe_requests as f64
        }),
    ];
    page.table("millrace_rooms_", &fields, &rows);
    page.family("millrace_rooms_dropped_total", "counter", "Packets that went no further, by reason.");
    for (worker, counters) in &rows {
        for (reason, count) in counters.drops.iter() {
            page.sample("millrace_rooms_dropped_total", &format!("{worker},reason={:?}", reason.name()), count as f64);
        }
    }
    page.family("millrace_rooms_timer_lateness_seconds", "gauge", "How late timers fired since the start.");
    for (worker, counters) in &rows {
        for (quantile, late) in ["0.5", "0.99", "1"].into_iter().zip(counters.lateness_ns) {
            let labels = format!("{worker},quantile={quantile:?}");
            page.sample("millrace_rooms_timer_lateness_seconds", &labels, late as f64 / 1e9);
        }
    }
}

fn worker_label(worker: WorkerId) -> String {
    format!("worker=\"{}\"", worker.0)
}

/// What workers have counted, each with its label. One that did not answer in time has no samples.
fn answered<T>(workers: &[Option<Box<T>>]) -> Vec<(String, &T)> {
    let all = WorkerId::all(workers.len()).zip(workers);
    all.filter_map(|(worker, counters)| Some((worker_label(worker), counters.as_deref()?))).collect()
}

/// A page under construction.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// A family for each field, with a sample for each row: its labels, and what the field is of.
    fn table<T>(&mut self, prefix: &str, fields: &[Field<T>], rows: &[(String, &T)]) {
        for (name, kind, help, value) in fields {
            let name = format!("{prefix}{name}");
            self.family(&name, kind, help);
            for (labels, row) in rows {
                self.sample(&name, labels, value(row));
            }
        }
    }

    /// A family for each field, with one sample without labels.
    fn values<T>(&mut self, prefix: &str, fields: &[Field<T>], of: &T) {
        self.table(prefix, fields, &[(String::new(), of)]);
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
