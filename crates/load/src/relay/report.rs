//! What a run came to: for people, as JSON, and as a verdict.

use std::collections::BTreeMap;
use std::fmt;

use measure::cpu::CpuTime;
use measure::percentiles::{Percentiles, Times};
use measure::report::Table;
use serde::Serialize;

use super::job::Totals;
use crate::clients::{Counted, Served};

/// Numbers of all clients, over the time that was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Clients that were asked for.
    pub clients_wanted: usize,
    /// Clients that got their allocation.
    pub clients: usize,
    /// Clients that failed, then or later.
    pub failed: usize,
    /// How often by what.
    pub failures: BTreeMap<String, u64>,
    /// Time over which was counted.
    pub seconds: f64,
    /// Messages that came back, or arrived at a peer that keeps them; with --allocate allocations that were made and freed.
    pub packets: u64,
    /// Their bytes, without what stands around them.
    pub bytes: u64,
    /// Those of a second.
    pub packets_per_second: f64,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages of those that did not come within half a second of the end.
    pub lost: u64,
    /// Their share.
    pub loss: f64,
    /// Messages that came after a later one.
    pub reordered: u64,
    /// Messages that had come already.
    pub duplicates: u64,
    /// What came and was not what it should be.
    pub damaged: u64,
    /// Requests of strangers, and how many were answered.
    pub strangers_sent: u64,
    /// Those that were answered.
    pub strangers_answered: u64,
    /// Bytes of their answers for each byte of all their requests.
    pub strangers_amplification: f64,
    /// From the send until it came back, or to the peer; with --allocate from the first request until it was freed.
    pub latency: Percentiles,
    /// From the first request, or the connection's beginning, until a client may send.
    pub set_up: Percentiles,
    /// Of the server's process, if it is known.
    pub server_cpu: Option<CpuTime>,
    /// Of the server, user and system, per message that came.
    pub server_ns_per_packet: Option<CpuTime>,
    /// Messages that came for each second of the server's CPU time.
    pub packets_per_server_cpu_second: Option<f64>,
    /// Of this process, with all its clients and peers.
    pub load_cpu: CpuTime,
}

impl Report {
    /// `stopped` is what was known when the counting ended, and `parts` when stragglers had their time.
    pub(super) fn new(
        clients_wanted: usize,
        len: usize,
        stopped: &[Totals],
        parts: &[Totals],
        counted: &Counted,
    ) -> Self {
        let sum = |count: fn(&Totals) -> u64| parts.iter().map(count).sum::<u64>();
        let count = |count: fn(&Totals) -> usize| parts.iter().map(count).sum::<usize>();
        let merged = |pick: fn(&Totals) -> &Times| Percentiles::of_all(parts.iter().map(pick));
        let Counted { seconds, served: Served { cpu: server_cpu, .. }, load_cpu } = *counted;
        let packets = stopped.iter().map(|part| part.received).sum::<u64>();
        let [sent, answered] = [sum(|part| part.sent), sum(|part| part.answered)];
        let lost = sent.saturating_sub(answered);
        let mut failures = BTreeMap::new();
        for (why, count) in parts.iter().flat_map(|part| &part.failures) {
            *failures.entry(why.clone()).or_default() += count;
        }
        let per_packet = |seconds: f64| seconds * 1e9 / packets.max(1) as f64;
        Report {
            clients_wanted,
            clients: count(|part| part.allocated),
            failed: count(|part| part.failed),
            failures,
            seconds,
            packets,
            bytes: packets * len as u64,
            packets_per_second: packets as f64 / seconds,
            sent,
            lost,
            loss: lost as f64 / sent.max(1) as f64,
            reordered: sum(|part| part.reordered),
            duplicates: sum(|part| part.duplicates),
            damaged: sum(|part| part.damaged),
            strangers_sent: sum(|part| part.strangers.sent),
            strangers_answered: sum(|part| part.strangers.answered),
            strangers_amplification: sum(|part| part.strangers.answered_bytes) as f64
                / sum(|part| part.strangers.sent_bytes).max(1) as f64,
            latency: merged(|part| &part.latency),
            set_up: merged(|part| &part.set_up),
            server_cpu,
            server_ns_per_packet: server_cpu
                .map(|cpu| CpuTime { user: per_packet(cpu.user), system: per_packet(cpu.system) }),
            packets_per_server_cpu_second: server_cpu.map(|cpu| packets as f64 / cpu.total().max(1e-9)),
            load_cpu,
        }
    }

    /// What was asked for and not held, in words; empty when all was.
    pub fn failures(&self, loss_max: Option<f64>, p99_max_ms: Option<f64>) -> Vec<String> {
        let mut failures = Vec::new();
        if self.clients < self.clients_wanted {
            failures.push(format!("{} of {} clients have an allocation", self.clients, self.clients_wanted));
        }
        failures.extend(self.failures.iter().map(|(why, count)| format!("{why} ({count} times)")));
        if self.packets == 0 {
            failures.push("nothing came back".into());
        }
        if self.damaged > 0 {
            failures.push(format!("{} messages were damaged", self.damaged));
        }
        if let Some(max) = loss_max.filter(|max| self.loss > *max) {
            failures.push(format!("loss {:.5} is over --max-loss {max}", self.loss));
        }
        if let Some(max) = p99_max_ms.filter(|max| self.latency.p99_ms > *max) {
            failures.push(format!("p99 {:.2} ms is over --max-p99 {max}", self.latency.p99_ms));
        }
        failures
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { clients, clients_wanted, packets, packets_per_second, seconds, .. } = self;
        let mut table = Table::of_facts();
        table.text("");
        table.fact("clients", format!("{clients} of {clients_wanted}, {} failed", self.failed));
        table.fact("came back", format!("{packets}, {packets_per_second:.0} a second over {seconds:.1} s"));
        table.fact("lost", format!("{} of {} ({:.5} %)", self.lost, self.sent, self.loss * 100.0));
        let Report { reordered, duplicates, damaged, .. } = self;
        table.fact("order", format!("{reordered} reordered, {duplicates} duplicates, {damaged} damaged"));
        if self.strangers_sent > 0 {
            let Report { strangers_sent: sent, strangers_answered: answered, strangers_amplification, .. } = self;
            table.fact(
                "strangers",
                format!("{answered} of {sent} answered, {strangers_amplification:.2} bytes for each byte"),
            );
        }
        table.fact("round trip", self.latency.to_string());
        table.fact("set up", self.set_up.to_string());
        if let Some((cpu, ns)) = self.server_cpu.zip(self.server_ns_per_packet) {
            let (total, core, rate) =
                (ns.total(), cpu.of_a_core(*seconds), self.packets_per_server_cpu_second.unwrap_or(0.0));
            let CpuTime { user, system } = ns;
            let cost = format!("{total:.0} ns each ({user:.0} user, {system:.0} system), {rate:.0} per CPU second");
            table.fact("server CPU", format!("{core}; {cost}"));
        }
        table.fact("load CPU", self.load_cpu.of_a_core(*seconds));
        table.fmt(f)
    }
}
