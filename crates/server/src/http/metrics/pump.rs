//! The pump's part of `/metrics`.

use counters::counters;

use super::{Page, label, worker_label};
use crate::pump::control::{PumpControl, Totals};

counters! {
    /// What all sessions take, and what becomes of them.
    pub struct Admission: "millrace_pump_" {
        /// What open sessions take, by their titles' average rates, in bit/s.
        gauge bandwidth_bps: u64 = "bandwidth_bps",
        /// What all sessions may take (`pump.bandwidth_max`), in bit/s.
        gauge bandwidth_max_bps: u64 = "bandwidth_max_bps",
        /// Reports that nobody listens at a pump's destination (ICMP).
        counter refusals: u64 = "refusals_total",
    }
}

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
        page.sample("millrace_pump_sessions", &label("state", state), count as f64);
    }
    let (bandwidth_bps, bandwidth_max_bps) = (totals.bandwidth.bps(), totals.bandwidth_max.bps());
    page.set(&[(String::new(), Admission { bandwidth_bps, bandwidth_max_bps, refusals: totals.refusals })]);
}
