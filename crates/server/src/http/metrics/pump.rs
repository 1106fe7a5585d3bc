//! The pump's part of `/metrics`.

use pump::spec::Counters;
use titles::Stats;
use wheel::Lateness;

use super::{Field, Page, answered};
use crate::pump::control::{PumpControl, Totals};

pub(super) async fn write(page: &mut Page, pump: &PumpControl) {
    let workers = pump.counters().await;
    write_totals(page, &pump.totals(), &workers);
    write_workers(page, &workers);
    write_library(page, &pump.library().stats());
}

fn write_totals(page: &mut Page, totals: &Totals, workers: &[Option<Box<Counters>>]) {
    let playing: u64 = workers.iter().flatten().map(|counters| counters.playing).sum();
    let (open, paused) = (totals.open as u64, totals.paused as u64);
    page.family("millrace_pump_sessions", "gauge", "Pump sessions, by what they do; waiting: for parts of titles.");
    let waiting = open.saturating_sub(playing + paused);
    for (state, count) in [("playing", playing), ("paused", paused), ("waiting", waiting)] {
        page.sample("millrace_pump_sessions", &format!("state={state:?}"), count as f64);
    }
    let fields: [Field<Totals>; 3] = [
        ("bandwidth_bps", "gauge", "What open sessions take, by their titles' average rates.", |totals| {
            totals.bandwidth.bps() as f64
        }),
        ("bandwidth_max_bps", "gauge", "What they may take (pump.bandwidth_max).", |totals| {
            totals.bandwidth_max.bps() as f64
        }),
        ("refusals_total", "counter", "Reports that nobody listens at a destination (ICMP).", |totals| {
            totals.refusals as f64
        }),
    ];
    page.values("millrace_pump_", &fields, totals);
}

fn write_workers(page: &mut Page, workers: &[Option<Box<Counters>>]) {
    let rows = answered(workers);
    page.table("millrace_pump_", &WORKER, &rows);
    page.family("millrace_pump_lateness_seconds", "histogram", "How long after its time each burst was written.");
    for (worker, counters) in &rows {
        write_lateness(page, worker, &counters.lateness);
    }
}

const WORKER: [Field<Counters>; 13] = [
    ("datagrams_total", "counter", "Datagrams written.", |counters| counters.datagrams as f64),
    ("bytes_total", "counter", "Bytes of these, RTP headers included.", |counters| counters.bytes as f64),
    ("fec_datagrams_total", "counter", "Parity datagrams, which are not among the others.", |counters| {
        counters.fec_datagrams as f64
    }),
    ("underruns_total", "counter", "Times that a session's next part was not there when it was due.", |counters| {
        counters.underruns as f64
    }),
    ("lost_packets_total", "counter", "Packets of titles that could not be had.", |counters| counters.lost as f64),
    ("continuity_errors_total", "counter", "Errors of titles' continuity counters.", |counters| {
        counters.continuity_errors as f64
    }),
    (
        "tr101290_priority1_total",
        "counter",
        "First priority errors (ETSI TR 101 290) of monitored sessions.",
        |counters| counters.priority_1 as f64,
    ),
    ("tr101290_priority2_total", "counter", "Second priority errors of monitored sessions.", |counters| {
        counters.priority_2 as f64
    }),
    ("null_packets_total", "counter", "Null packets added.", |counters| counters.nulls as f64),
    ("shifts_total", "counter", "Times that a session was so late that its schedule was moved.", |counters| {
        counters.shifts as f64
    }),
    (
        "delay_factor_max_seconds",
        "gauge",
        "Worst delay factor (RFC 4445) of sessions in their last second.",
        |counters| counters.delay_factor_max.as_secs_f64(),
    ),
    ("monitored_sessions", "gauge", "Sessions with a monitor.", |counters| counters.monitored as f64),
    ("pcr_jitter_max_seconds", "gauge", "Worst jitter of clock references that monitors saw.", |counters| {
        counters.pcr_jitter_max.as_secs_f64()
    }),
];

/// Powers of two from 16 µs to 17 s, which is all that is of interest.
const LATENESS_BITS: std::ops::RangeInclusive<usize> = 14..=34;

fn write_lateness(page: &mut Page, worker: &str, lateness: &Lateness) {
    let name = "millrace_pump_lateness_seconds";
    let bucket = format!("{name}_bucket");
    let (mut below, mut sum) = (0, 0.0);
    for (bits, count) in lateness.buckets().iter().enumerate() {
        below += count;
        let upper = (1_u64 << bits) as f64 / 1e9;
        // The middle of a bucket stands for all in it.
        sum += *count as f64 * upper * 0.75;
        if LATENESS_BITS.contains(&bits) {
            page.sample(&bucket, &format!("{worker},le=\"{upper}\""), below as f64);
        }
    }
    page.sample(&bucket, &format!("{worker},le=\"+Inf\""), below as f64);
    page.sample(&format!("{name}_sum"), worker, sum);
    page.sample(&format!("{name}_count"), worker, below as f64);
}

fn write_library(page: &mut Page, stats: &Stats) {
    let fields: [Field<Stats>; 17] = [
        ("hits_total", "counter", "Parts of titles that were there when asked for.", |stats| stats.hits as f64),
        ("misses_total", "counter", "Parts that had to be waited for.", |stats| stats.misses as f64),
        ("joined_total", "counter", "Of these: parts that were on their way already.", |stats| stats.joined as f64),
        ("cached_bytes", "gauge", "In the memory cache.", |stats| stats.cached_bytes as f64),
        ("held_bytes", "gauge", "In memory, the cache and what sessions hold beside it.", |stats| {
            stats.held_bytes as f64
        }),
        ("evictions_total", "counter", "Parts that left the memory cache for others.", |stats| stats.evictions as f64),
        ("titles", "gauge", "Titles that are known.", |stats| stats.titles as f64),
        ("reads_total", "counter", "Reads of local files.", |stats| stats.reads as f64),
        ("fetches_total", "counter", "Requests to origins.", |stats| stats.fetches as f64),
        ("fetched_bytes_total", "counter", "Bytes that came from origins.", |stats| stats.fetched_bytes as f64),
        ("fetching", "gauge", "Requests to origins under way.", |stats| stats.fetching as f64),
        ("retries_total", "counter", "Requests to an origin that had been asked before.", |stats| stats.retries as f64),
        ("failovers_total", "counter", "Requests to the next origin.", |stats| stats.failovers as f64),
        ("disk_hits_total", "counter", "Parts that were on disk.", |stats| stats.disk_hits as f64),
        ("disk_bytes", "gauge", "In the disk cache.", |stats| stats.disk_bytes as f64),
        ("disk_evictions_total", "counter", "Parts that left the disk cache for others.", |stats| {
            stats.disk_evictions as f64
        }),
        ("disk_damaged_total", "counter", "Files of the disk cache that were damaged.", |stats| {
            stats.disk_damaged as f64
        }),
    ];
    page.values("millrace_library_", &fields, stats);
    page.family("millrace_library_errors_total", "counter", "Failed requests, reads and openings, by kind.");
    for (kind, count) in stats.errors_by_kind() {
        page.sample("millrace_library_errors_total", &format!("kind={kind:?}"), count as f64);
    }
}
