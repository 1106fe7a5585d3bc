//! The pump's part of `/metrics`.

use super::{Field, Page, worker_label};
use crate::pump::control::{PumpControl, Totals};

pub(super) fn write(page: &mut Page, pump: &PumpControl) {
    let workers = pump.plane().workers().numbers();
    let rows: Vec<_> = workers.map(|(id, numbers)| (worker_label(id), numbers.pump.load())).collect();
    write_totals(page, &pump.totals(), rows.iter().map(|(_, counters)| counters.playing).sum());
    page.set(&rows);
    page.set(&[(String::new(), pump.library().stats())]);
}

fn write_totals(page: &mut Page, totals: &Totals, playing: u64) {
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
