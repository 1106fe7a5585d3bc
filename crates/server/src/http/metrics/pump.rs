//! The pump's part of `/metrics`.

use pump::spec::Counters;
use titles::Stats;
use wheel::Lateness;

use super::Page;
use crate::pump::control::{PumpControl, Totals};

const NO_LABELS: &[(&str, &str)] = &[];

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
        page.sample("millrace_pump_sessions", &[("state", state)], count as f64);
    }
    for (name, kind, help, value) in [
        ("bandwidth_bps", "gauge", "What open sessions take, by their titles' average rates.", totals.bandwidth.bps()),
        ("bandwidth_max_bps", "gauge", "What they may take (pump.bandwidth_max).", totals.bandwidth_max.bps()),
        ("refusals_total", "counter", "Reports that nobody listens at a destination (ICMP).", totals.refusals),
    ] {
        let name = format!("millrace_pump_{name}");
        page.family(&name, kind, help);
        page.sample(&name, NO_LABELS, value as f64);
    }
}

/// A worker that does not answer in time has no samples.
fn write_workers(page: &mut Page, workers: &[Option<Box<Counters>>]) {
    let answered = || workers.iter().enumerate().filter_map(|(worker, counters)| Some((worker, counters.as_deref()?)));
    type Field = (&'static str, &'static str, fn(&Counters) -> u64);
    let fields: [Field; 10] = [
        ("datagrams_total", "Datagrams written.", |counters| counters.datagrams),
        ("bytes_total", "Bytes of these, RTP headers included.", |counters| counters.bytes),
        ("fec_datagrams_total", "Parity datagrams, which are not among the others.", |counters| counters.fec_datagrams),
        ("underruns_total", "Times that a session's next part was not there when it was due.", |counters| {
            counters.underruns
        }),
        ("lost_packets_total", "Packets of titles that could not be had.", |counters| counters.lost),
        ("continuity_errors_total", "Errors of titles' continuity counters.", |counters| counters.continuity_errors),
        ("tr101290_priority1_total", "First priority errors (ETSI TR 101 290) of monitored sessions.", |counters| {
            counters.priority_1
        }),
        ("tr101290_priority2_total", "Second priority errors of monitored sessions.", |counters| counters.priority_2),
        ("null_packets_total", "Null packets added.", |counters| counters.nulls),
        ("shifts_total", "Times that a session was so late that its schedule was moved.", |counters| counters.shifts),
    ];
    for (name, help, value) in fields {
        let name = format!("millrace_pump_{name}");
        page.family(&name, "counter", help);
        for (worker, counters) in answered() {
            page.sample(&name, &[("worker", &worker.to_string())], value(counters) as f64);
        }
    }
    type Gauge = (&'static str, &'static str, fn(&Counters) -> f64);
    let gauges: [Gauge; 3] = [
        ("delay_factor_max_seconds", "Worst delay factor (RFC 4445) of sessions in their last second.", |counters| {
            counters.delay_factor_max.as_secs_f64()
        }),
        ("monitored_sessions", "Sessions with a monitor.", |counters| counters.monitored as f64),
        ("pcr_jitter_max_seconds", "Worst jitter of clock references that monitors saw.", |counters| {
            counters.pcr_jitter_max.as_secs_f64()
        }),
    ];
    for (name, help, value) in gauges {
        let name = format!("millrace_pump_{name}");
        page.family(&name, "gauge", help);
        for (worker, counters) in answered() {
            page.sample(&name, &[("worker", &worker.to_string())], value(counters));
        }
    }
    page.family("millrace_pump_lateness_seconds", "histogram", "How long after its time each burst was written.");
    for (worker, counters) in answered() {
        write_lateness(page, &worker.to_string(), &counters.lateness);
    }
}

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
            page.sample(&bucket, &[("worker", worker), ("le", &upper.to_string())], below as f64);
        }
    }
    page.sample(&bucket, &[("worker", worker), ("le", "+Inf")], below as f64);
    page.sample(&format!("{name}_sum"), &[("worker", worker)], sum);
    page.sample(&format!("{name}_count"), &[("worker", worker)], below as f64);
}

fn write_library(page: &mut Page, stats: &Stats) {
    type Field = (&'static str, &'static str, &'static str, u64);
    let fields: [Field; 17] = [
        ("hits_total", "counter", "Parts of titles that were there when asked for.", stats.hits),
        ("misses_total", "counter", "Parts that had to be waited for.", stats.misses),
        ("joined_total", "counter", "Of these: parts that were on their way already.", stats.joined),
        ("cached_bytes", "gauge", "In the memory cache.", stats.cached_bytes),
        ("held_bytes", "gauge", "In memory, the cache and what sessions hold beside it.", stats.held_bytes),
        ("evictions_total", "counter", "Parts that left the memory cache for others.", stats.evictions),
        ("titles", "gauge", "Titles that are known.", stats.titles),
        ("reads_total", "counter", "Reads of local files.", stats.reads),
        ("fetches_total", "counter", "Requests to origins.", stats.fetches),
        ("fetched_bytes_total", "counter", "Bytes that came from origins.", stats.fetched_bytes),
        ("fetching", "gauge", "Requests to origins under way.", stats.fetching),
        ("retries_total", "counter", "Requests to an origin that had been asked before.", stats.retries),
        ("failovers_total", "counter", "Requests to the next origin.", stats.failovers),
        ("disk_hits_total", "counter", "Parts that were on disk.", stats.disk_hits),
        ("disk_bytes", "gauge", "In the disk cache.", stats.disk_bytes),
        ("disk_evictions_total", "counter", "Parts that left the disk cache for others.", stats.disk_evictions),
        ("disk_damaged_total", "counter", "Files of the disk cache that were damaged.", stats.disk_damaged),
    ];
    for (name, kind, help, value) in fields {
        let name = format!("millrace_library_{name}");
        page.family(&name, kind, help);
        page.sample(&name, NO_LABELS, value as f64);
    }
    page.family("millrace_library_errors_total", "counter", "Failed requests, reads and openings, by kind.");
    for (kind, count) in stats.errors_by_kind() {
        page.sample("millrace_library_errors_total", &[("kind", kind)], count as f64);
    }
}
