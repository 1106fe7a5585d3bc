//! RTSP's part of `/metrics`.

use super::{Field, Page};
use crate::rtsp::Stats;

pub(super) fn write(page: &mut Page, stats: &Stats) {
    let fields: [Field<Stats>; 5] = [
        ("connections", "gauge", "RTSP connections now.", |stats| stats.connections as f64),
        ("connections_accepted_total", "counter", "RTSP connections since the start.", |stats| stats.accepted as f64),
        (
            "connections_refused_total",
            "counter",
            "Connections closed at once, as their client has too many.",
            |stats| stats.refused as f64,
        ),
        ("interleaved_datagrams_total", "counter", "Datagrams put into connections.", |stats| stats.carried as f64),
        (
            "interleaved_lost_total",
            "counter",
            "Datagrams lost on their way there, as clients took too little.",
            |stats| stats.lost as f64,
        ),
    ];
    page.values("millrace_rtsp_", &fields, stats);
    page.family("millrace_rtsp_sessions", "gauge", "RTSP sessions, by how their packets travel.");
    for (transport, count) in stats.sessions {
        page.sample("millrace_rtsp_sessions", &format!("transport={transport:?}"), count as f64);
    }
    page.family("millrace_rtsp_requests_total", "counter", "RTSP requests by method, and by their answer's status.");
    for (method, class, count) in &stats.requests {
        page.sample("millrace_rtsp_requests_total", &format!("method={method:?},status={class:?}"), *count as f64);
    }
}
