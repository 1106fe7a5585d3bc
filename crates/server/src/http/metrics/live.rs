//! The live inputs' part of `/metrics`.

use super::{Field, Page};
use crate::http::live::state_name;
use crate::pump::live::Inspected;

pub(super) fn write(page: &mut Page, inputs: &[Inspected]) {
    if inputs.is_empty() {
        return;
    }
    page.family("millrace_pump_live_state", "gauge", "1 for what an input does.");
    for input in inputs {
        let labels = format!("input={:?},state={:?}", input.config.name, state_name(input.report.state));
        page.sample("millrace_pump_live_state", &labels, 1.0);
    }
    let rows: Vec<(String, &Inspected)> =
        inputs.iter().map(|input| (format!("input={:?}", input.config.name), input)).collect();
    let fields: [Field<Inspected>; 18] = [
        ("sessions", "gauge", "Sessions that play an input.", |input| input.sessions as f64),
        ("rate_bps", "gauge", "Mean rate of its stream.", |input| input.report.rate.bps() as f64),
        ("datagrams_total", "counter", "Datagrams of its source.", |input| input.report.datagrams as f64),
        ("bytes_total", "counter", "Bytes of these.", |input| input.report.bytes as f64),
        ("foreign_total", "counter", "Datagrams of others.", |input| input.report.foreign as f64),
        ("malformed_total", "counter", "Datagrams and packets that are none.", |input| input.report.malformed as f64),
        ("rtp_lost_total", "counter", "RTP packets that did not come.", |input| input.report.rtp_lost as f64),
        ("rtp_reordered_total", "counter", "RTP packets put back in order.", |input| input.report.rtp_reordered as f64),
        ("rtp_late_total", "counter", "RTP packets that came too late, or twice.", |input| {
            input.report.rtp_late as f64
        }),
        ("continuity_errors_total", "counter", "Packets missing by their counters.", |input| input.report.lost as f64),
        ("resyncs_total", "counter", "Times that its clock did not continue.", |input| input.report.resyncs as f64),
        ("source_changes_total", "counter", "Times that another source was taken.", |input| {
            input.report.sources as f64
        }),
        ("overruns_total", "counter", "Packets left out, a second and more before their time.", |input| {
            input.report.overruns as f64
        }),
        ("flushes_total", "counter", "Chunks let go without a reference.", |input| input.report.flushes as f64),
        ("dropped_chunks_total", "counter", "Chunks for which a worker had no room.", |input| input.dropped as f64),
        ("drift_ppm", "gauge", "How much slower the source's clock is.", |input| input.report.drift_ppm),
        ("jitter_seconds", "gauge", "Of the last second's references, earliest to latest.", |input| {
            input.report.jitter.as_secs_f64()
        }),
        ("delay_factor_max_seconds", "gauge", "RFC 4445, by the mean rate, the worst second.", |input| {
            input.report.delay_factor_max.unwrap_or_default().as_secs_f64()
        }),
    ];
    page.table("millrace_pump_live_", &fields, &rows);
}
