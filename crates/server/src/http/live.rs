//! Live inputs as JSON.

use pump::live::Report;
use serde_json::{Value, json};

use crate::pump::live::Inspected;

/// A live input, in the list of titles.
pub(super) fn input_json(input: &Inspected) -> Value {
    let Inspected { config, report, sessions, dropped, local } = input;
    let ms = |span: std::time::Duration| span.as_secs_f64() * 1e3;
    let Report { rate, datagrams, bytes, foreign, malformed, rtp_lost, rtp_reordered, rtp_late, lost, .. } = report;
    json!({
        "name": format!("live/{}", config.name),
        "url": config.to_string(),
        "address": local,
        "state": <&str>::from(report.state),
        "source": report.source,
        "rate": rate.bps(),
        "sessions": sessions,
        "delay_ms": ms(config.delay),
        "statistics": {
            "datagrams": datagrams,
            "bytes": bytes,
            "foreign_datagrams": foreign,
            "malformed": malformed,
            "rtp_lost": rtp_lost,
            "rtp_reordered": rtp_reordered,
            "rtp_late": rtp_late,
            "continuity_errors": lost,
            "resyncs": report.resyncs,
            "source_changes": report.sources,
            "overruns": report.overruns,
            "flushes": report.flushes,
            "dropped_chunks": dropped,
            "drift_ppm": report.drift_ppm,
            "jitter_ms": ms(report.jitter),
            "delay_factor_max_ms": report.delay_factor_max.map(ms),
        },
    })
}
