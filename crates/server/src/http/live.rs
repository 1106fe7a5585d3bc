//! Live inputs as JSON.

use serde_json::{Value, json};

use crate::pump::live::Inspected;

/// A live input, in the list of titles.
pub(super) fn input_json(input: &Inspected) -> Value {
    let Inspected { config, local, source, counters } = input;
    let ms = |span: std::time::Duration| span.as_secs_f64() * 1e3;
    let delay_factor_max = Some(counters.delay_factor_max).filter(|span| !span.is_zero());
    json!({
        "name": format!("live/{}", config.name),
        "url": config.to_string(),
        "address": local,
        "state": <&str>::from(counters.state),
        "source": source,
        "rate": counters.rate_bps,
        "sessions": counters.sessions,
        "delay_ms": ms(config.delay),
        "statistics": {
            "datagrams": counters.datagrams,
            "bytes": counters.bytes,
            "foreign_datagrams": counters.foreign,
            "malformed": counters.malformed,
            "rtp_lost": counters.rtp_lost,
            "rtp_reordered": counters.rtp_reordered,
            "rtp_late": counters.rtp_late,
            "continuity_errors": counters.continuity_errors,
            "lost_packets": counters.lost,
            "resyncs": counters.resyncs,
            "source_changes": counters.sources,
            "overruns": counters.overruns,
            "flushes": counters.flushes,
            "dropped_chunks": counters.dropped,
            "drift_ppm": counters.drift_ppm,
            "jitter_ms": ms(counters.jitter),
            "delay_factor_max_ms": delay_factor_max.map(ms),
        },
    })
}
