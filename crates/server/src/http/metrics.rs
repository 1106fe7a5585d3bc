//! `/metrics`: counters of workers, rooms, pumps and negotiators for Prometheus (text format 0.0.4).
//!
//! Labels are the worker's number and fixed names, so that the number of series does not grow with use.

mod live;
mod pump;

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use nix::sys::resource::{UsageWho, getrusage};
use rooms::spec::Counters;

use super::Service;
use crate::control::Meter;
use crate::directory::{Role, StreamState};

pub(super) async fn metrics(State(service): State<Arc<Service>>) -> impl IntoResponse {
    let mut page = Page::default();
    write_process(&mut page);
    write_connections(&mut page, &service);
    write_sessions(&mut page, &service);
    write_meters(&mut page, &service.control.meters());
    write_rooms(&mut page, &service.control.room_counters().await);
    if let Some(pump) = service.control.pump() {
        pump::write(&mut page, pump).await;
        live::write(&mut page, &pump.live_inputs());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.text)
}

/// What the process as a whole takes. Of numbers that cannot be had there is no sample.
fn write_process(page: &mut Page) {
    page.family("millrace_process_cpu_seconds_total", "counter", "CPU time of the process, by where it was spent.");
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        for (mode, time) in [("user", usage.user_time()), ("system", usage.system_time())] {
            let seconds = time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
            page.sample("millrace_process_cpu_seconds_total", &[("mode", mode)], seconds);
        }
    }
    page.family("millrace_process_resident_bytes", "gauge", "Memory of the process that is in RAM.");
    if let Some(bytes) = resident_bytes() {
        page.sample("millrace_process_resident_bytes", &[] as &[(&str, &str)], bytes);
    }
}

/// The line "VmRSS: 1234 kB" of proc_pid_status(5).
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: f64 =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"))?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

fn write_connections(page: &mut Page, service: &Service) {
    let connections = &service.connections;
    for (name, kind, help, value) in [
        ("millrace_http_connections", "gauge", "HTTP connections now.", connections.open()),
        (
            "millrace_http_connections_max",
            "gauge",
            "HTTP connections at a time at most; further ones wait.",
            connections.limits().connections_max as u64,
        ),
        (
            "millrace_http_connections_accepted_total",
            "counter",
            "HTTP connections since the start.",
            connections.accepted(),
        ),
    ] {
        page.family(name, kind, help);
        page.sample(name, &[] as &[(&str, &str)], value as f64);
    }
}

fn write_sessions(page: &mut Page, service: &Service) {
    let streams = service.control.streams();
    page.family("millrace_streams", "gauge", "Streams by the state of their publisher.");
    for (state, label) in [
        (StreamState::Connecting, "connecting"),
        (StreamState::Live, "live"),
        (StreamState::Interrupted, "interrupted"),
    ] {
        let count = streams.iter().filter(|stream| stream.state == state).count();
        page.sample("millrace_streams", &[("state", label)], count as f64);
    }
    page.family("millrace_sessions", "gauge", "Sessions by role, and whether their handshake is done.");
    for (role, label) in [(Role::Publisher, "publisher"), (Role::Viewer, "viewer")] {
        let (all, connected) = service.control.session_counts(role);
        for (state, count) in [("connected", connected), ("connecting", all - connected)] {
            page.sample("millrace_sessions", &[("role", label), ("state", state)], count as f64);
        }
    }
    page.family("millrace_draining", "gauge", "1 when new sessions are refused, because the server is about to stop.");
    page.sample("millrace_draining", &[] as &[(&str, &str)], f64::from(u8::from(service.control.is_draining())));
}

/// The sockets and threads of each worker, and its negotiator.
fn write_meters(page: &mut Page, meters: &[Meter]) {
    page.family(
        "millrace_worker_cpu_seconds_total",
        "counter",
        "CPU time of the worker's thread, the kernel's included.",
    );
    for (worker, meter) in meters.iter().enumerate() {
        let cpu_time = meter.cpu_time.unwrap_or_default().as_secs_f64();
        page.sample("millrace_worker_cpu_seconds_total", &[("worker", &worker.to_string())], cpu_time);
    }
    let Some(first) = meters.first() else { return };
    for (index, (name, help, _)) in first.engine.fields().enumerate() {
        // All but the number of open links only grow.
        let (name, kind) = match name {
            "tcp_links" => ("millrace_worker_tcp_links".to_owned(), "gauge"),
            _ => (format!("millrace_worker_{name}_total"), "counter"),
        };
        page.family(&name, kind, help);
        for (worker, meter) in meters.iter().enumerate() {
            let value = meter.engine.fields().nth(index).map_or(0, |(.., value)| value);
            page.sample(&name, &[("worker", &worker.to_string())], value as f64);
        }
    }
    write_negotiators(page, meters);
}

fn write_negotiators(page: &mut Page, meters: &[Meter]) {
    type Field = (&'static str, &'static str, &'static str, fn(&crate::negotiator::CountersSnapshot) -> u64);
    let fields: [Field; 11] = [
        ("handshakes", "gauge", "Sessions without keys yet.", |counters| counters.handshakes),
        ("answered_total", "counter", "Offers answered.", |counters| counters.answered),
        ("refused_total", "counter", "Offers and fragments refused for their text.", |counters| counters.refused),
        ("overloaded_total", "counter", "Offers refused for want of room.", |counters| counters.overloaded),
        ("connected_total", "counter", "Sessions that got their keys.", |counters| counters.connected),
        ("timed_out_total", "counter", "Sessions that did not in time.", |counters| counters.timed_out),
        ("failed_total", "counter", "Sessions whose handshake failed.", |counters| counters.failed),
        ("certificates_refused_total", "counter", "Of these: for want of an ECDSA certificate.", |counters| {
            counters.certificates_refused
        }),
        ("restarts_total", "counter", "ICE restarts.", |counters| counters.restarts),
        ("datagrams_total", "counter", "STUN and DTLS datagrams received.", |counters| counters.datagrams),
        ("datagrams_refused_total", "counter", "Of these: malformed, for nobody, or not authentic.", |counters| {
            counters.malformed + counters.unknown + counters.not_authentic + counters.too_many_addresses
        }),
    ];
    for (name, kind, help, value) in fields {
        let name = format!("millrace_handshake_{name}");
        page.family(&name, kind, help);
        for (worker, meter) in meters.iter().enumerate() {
            page.sample(&name, &[("worker", &worker.to_string())], value(&meter.negotiator) as f64);
        }
    }
}

/// What each worker's rooms say. A worker that does not answer in time has no samples.
fn write_rooms(page: &mut Page, rooms: &[Option<Box<Counters>>]) {
    let answered = || rooms.iter().enumerate().filter_map(|(worker, counters)| Some((worker, counters.as_deref()?)));
    type Field = (&'static str, &'static str, &'static str, fn(&Counters) -> u64);
    let fields: [Field; 8] = [
        ("streams", "gauge", "Streams that the worker knows, its own and those it is fed.", |counters| {
            counters.streams
        }),
        ("publishers", "gauge", "Publishers on the worker.", |counters| counters.publishers),
        ("viewers", "gauge", "Viewers on the worker.", |counters| counters.viewers),
        ("sessions", "gauge", "Sessions on the worker.", |counters| counters.sessions),
        ("packets_in_total", "counter", "Media packets taken from publishers.", |counters| counters.packets_in),
        ("packets_out_total", "counter", "Media packets written for viewers.", |counters| counters.packets_out),
        ("packets_resent_total", "counter", "Media packets written again (RTX).", |counters| counters.packets_resent),
        ("keyframe_requests_total", "counter", "Keyframes asked of publishers.", |counters| counters.keyframe_requests),
    ];
    for (name, kind, help, value) in fields {
        let name = format!("millrace_rooms_{name}");
        page.family(&name, kind, help);
        for (worker, counters) in answered() {
            page.sample(&name, &[("worker", &worker.to_string())], value(counters) as f64);
        }
    }
    page.family("millrace_rooms_dropped_total", "counter", "Packets that went no further, by reason.");
    for (worker, counters) in answered() {
        for (reason, count) in counters.drops.iter() {
            let labels = [("worker", worker.to_string()), ("reason", reason.name().to_owned())];
            page.sample("millrace_rooms_dropped_total", &labels, count as f64);
        }
    }
    page.family("millrace_rooms_timer_lateness_seconds", "gauge", "How late timers fired since the start.");
    for (worker, counters) in answered() {
        for (quantile, late) in ["0.5", "0.99", "1"].into_iter().zip(counters.lateness_ns) {
            let labels = [("worker", worker.to_string()), ("quantile", quantile.to_owned())];
            page.sample("millrace_rooms_timer_lateness_seconds", &labels, late as f64 / 1e9);
        }
    }
}

/// A page under construction.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, impl AsRef<str>)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", value.as_ref())).collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("writing to a String cannot fail");
    }
}
