//! What a run came to: for people, as JSON, and as a verdict.

use std::fmt;

use serde::Serialize;

use super::service::Totals;
use crate::clients::{Counted, Served};
use measure::cpu::CpuTime;
use measure::percentiles::{Percentiles, Times};
use measure::report::Table;

/// What is asked for.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Limits {
    /// Exit status 1 when a larger share of packets did not come the first time, 0 to 1.
    #[arg(long)]
    pub max_loss: Option<f64>,
    /// Exit status 1 when the 99th percentile of latency is larger, in milliseconds.
    #[arg(long)]
    pub max_p99: Option<f64>,
    /// Exit status 1 when for a larger share of the viewers a picture stood still, 0 to 1.
    #[arg(long)]
    pub max_frozen: Option<f64>,
    /// Nothing has to come of those that others are louder than.
    #[arg(skip)]
    pub may_be_silent: bool,
}

impl Limits {
    /// These, and where there is none that of `other`.
    pub(crate) fn or(&self, other: &Limits) -> Limits {
        Limits {
            max_loss: self.max_loss.or(other.max_loss),
            max_p99: self.max_p99.or(other.max_p99),
            max_frozen: self.max_frozen.or(other.max_frozen),
            may_be_silent: self.may_be_silent,
        }
    }
}

/// Numbers of all viewers, over the time that was counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Clients that publish.
    pub publishers: usize,
    /// Viewers that were asked for.
    pub viewers_wanted: usize,
    /// Viewers that connected.
    pub viewers: usize,
    /// Clients whose handshake failed, or whose session the server ended.
    pub failed: usize,
    /// Why the first of them did.
    pub why_failed: Option<String>,
    /// Time over which was counted.
    pub seconds: f64,
    /// RTP packets that arrived.
    pub packets: u64,
    /// Their bytes, SRTP's part included.
    pub bytes: u64,
    /// Packets of all viewers.
    pub packets_per_second: f64,
    /// Bitrate of all viewers.
    pub mbit_per_second: f64,
    /// Videos of which a viewer got nothing, over all viewers.
    pub silent: usize,
    /// Bitrate of the slowest, the middle and the fastest viewer.
    pub viewer_kbps: [f64; 3],
    /// Packets that did not come the first time: never, or as retransmissions.
    pub lost: u64,
    /// Their share of all that were sent the first time.
    pub loss: f64,
    /// Viewers that miss any.
    pub viewers_with_loss: usize,
    /// Times that a picture stood still for 150 ms longer than usual (W3C webrtc-stats, freezeCount), over all viewers.
    pub freezes: u64,
    /// Viewers that saw one do so.
    pub viewers_with_freezes: usize,
    /// Packets that came as retransmissions.
    pub repaired: u64,
    /// Packets that came after one with a higher number, retransmissions not counted.
    pub reordered: u64,
    /// Packets that had come already.
    pub duplicates: u64,
    /// Packets that came damaged or with a wrong tag, among those that were decrypted.
    pub damaged: u64,
    /// Packets that were decrypted and looked into.
    pub decrypted: u64,
    /// Keyframe requests that publishers got.
    pub keyframe_requests: u64,
    /// From the publisher's send to the viewer's receive.
    pub latency: Percentiles,
    /// From the HTTP request, of whichever kind, until the handshake was done.
    pub join: Percentiles,
    /// From the HTTP request to the first media packet.
    pub first_packet: Percentiles,
    /// From the HTTP request to a keyframe's first packet.
    pub first_keyframe: Percentiles,
    /// Of the server's process, if it is known.
    pub server_cpu: Option<CpuTime>,
    /// Of the server, user and system, per packet that arrived.
    pub server_ns_per_packet: Option<CpuTime>,
    /// Of this process, with all its clients.
    pub load_cpu: CpuTime,
}

impl Report {
    pub(crate) fn new(parts: &[Totals], viewers_wanted: usize, counted: &Counted) -> Self {
        let seen = || parts.iter().flat_map(|part| &part.viewers);
        let gone = || parts.iter().map(|part| &part.gone);
        let sum = |count: fn(&super::viewer::Seen) -> u64| seen().chain(gone()).map(count).sum::<u64>();
        let merged = |pick: fn(&Totals) -> &Times| Percentiles::of_all(parts.iter().map(pick));
        let Counted { seconds, served: Served { cpu: server_cpu, .. }, load_cpu } = *counted;
        let mut rates: Vec<f64> = seen().map(|viewer| viewer.bytes as f64 * 8.0 / seconds / 1e3).collect();
        rates.sort_by(f64::total_cmp);
        let rate = |share: f64| {
            let index = (rates.len().saturating_sub(1) as f64 * share) as usize;
            rates.get(index).copied().unwrap_or(0.0)
        };
        let [packets, bytes, lost, repaired] = [
            sum(|viewer| viewer.packets),
            sum(|viewer| viewer.bytes),
            sum(|viewer| viewer.lost),
            sum(|viewer| viewer.repaired),
        ];
        let per_packet = |seconds: f64| seconds * 1e9 / packets.max(1) as f64;
        Report {
            publishers: parts.iter().map(|part| part.publishers).sum(),
            viewers_wanted,
            viewers: parts.iter().map(|part| part.connected_viewers).sum(),
            failed: parts.iter().map(|part| part.failed).sum(),
            why_failed: parts.iter().find_map(|part| part.why_failed.clone()),
            seconds,
            packets,
            bytes,
            packets_per_second: packets as f64 / seconds,
            mbit_per_second: bytes as f64 * 8.0 / seconds / 1e6,
            silent: seen().map(|viewer| viewer.silent).sum(),
            viewer_kbps: [rate(0.0), rate(0.5), rate(1.0)],
            lost,
            loss: lost as f64 / (packets.saturating_sub(repaired) + lost).max(1) as f64,
            viewers_with_loss: seen().filter(|viewer| viewer.lost > 0).count(),
            freezes: sum(|viewer| viewer.freezes),
            viewers_with_freezes: seen().filter(|viewer| viewer.freezes > 0).count(),
            repaired,
            reordered: sum(|viewer| viewer.reordered),
            duplicates: sum(|viewer| viewer.duplicates),
            damaged: sum(|viewer| viewer.damaged),
            decrypted: sum(|viewer| viewer.decrypted),
            keyframe_requests: parts.iter().map(|part| part.keyframe_requests).sum(),
            latency: merged(|part| &part.latency),
            join: merged(|part| &part.join),
            first_packet: merged(|part| &part.first_packet),
            first_keyframe: merged(|part| &part.first_keyframe),
            server_cpu,
            server_ns_per_packet: server_cpu
                .map(|cpu| CpuTime { user: per_packet(cpu.user), system: per_packet(cpu.system) }),
            load_cpu,
        }
    }

    /// What was asked for and not held, in words; empty when all was.
    pub fn failures(&self, limits: &Limits) -> Vec<String> {
        let mut failures = Vec::new();
        if self.viewers < self.viewers_wanted {
            failures.push(format!("{} of {} viewers connected", self.viewers, self.viewers_wanted));
        }
        if let Some(why) = &self.why_failed {
            failures.push(format!("{} sessions have ended: {why}", self.failed));
        }
        if self.packets == 0 {
            failures.push("no media packet arrived".into());
        } else if self.silent > 0 && !limits.may_be_silent {
            failures.push(format!("nothing came of {} videos", self.silent));
        }
        if self.damaged > 0 {
            failures.push(format!("{} packets were damaged", self.damaged));
        }
        if let Some(max) = limits.max_loss.filter(|max| self.loss > *max) {
            failures.push(format!("loss {:.5} is over --max-loss {max}", self.loss));
        }
        if let Some(max) = limits.max_p99.filter(|max| self.latency.p99_ms > *max) {
            failures.push(format!("p99 latency {:.2} ms is over --max-p99 {max}", self.latency.p99_ms));
        }
        let frozen = self.viewers_with_freezes as f64 / self.viewers.max(1) as f64;
        if let Some(max) = limits.max_frozen.filter(|max| frozen > *max) {
            failures.push(format!("pictures stood still for {frozen:.3} of the viewers, over --max-frozen {max}"));
        }
        failures
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { viewers, viewers_wanted, publishers, packets_per_second, mbit_per_second, seconds, .. } = self;
        let mut table = Table::of_facts();
        table.text("");
        table.fact("viewers", format!("{viewers} of {viewers_wanted}, {publishers} publishers"));
        if let Some(why) = &self.why_failed {
            table.fact("failed", format!("{}: {why}", self.failed));
        }
        let rates = format!("{packets_per_second:.0} packets/s, {mbit_per_second:.0} Mbit/s over {seconds:.1} s");
        table.fact("received", rates);
        let [slowest, middle, fastest] = self.viewer_kbps;
        let kbps = format!("{slowest:.0} / {middle:.0} / {fastest:.0} kbit/s (slowest, median, fastest)");
        table.fact("per viewer", kbps);
        if self.silent > 0 {
            table.fact("silent", format!("{} videos, of which nothing came", self.silent));
        }
        let Report { lost, viewers_with_loss, repaired, reordered, duplicates, damaged, decrypted, .. } = self;
        let percent = self.loss * 100.0;
        table.fact("lost", format!("{lost} ({percent:.5} %), {viewers_with_loss} viewers; {repaired} repaired"));
        let order =
            format!("{reordered} reordered, {duplicates} duplicates, {damaged} damaged of {decrypted} decrypted");
        table.fact("order", order);
        let Report { freezes, viewers_with_freezes, .. } = self;
        table.fact("freezes", format!("{freezes}, {viewers_with_freezes} viewers"));
        table.fact("latency", self.latency.to_string());
        table.fact("join", self.join.to_string());
        table.fact("first packet", self.first_packet.to_string());
        table.fact("first keyframe", self.first_keyframe.to_string());
        if let Some((cpu, ns)) = self.server_cpu.zip(self.server_ns_per_packet) {
            let (total, core) = (ns.total(), cpu.of_a_core(*seconds));
            let CpuTime { user, system } = ns;
            let cost = format!("{core}; {total:.0} ns per packet ({user:.0} user, {system:.0} system)");
            table.fact("server CPU", cost);
        }
        table.fact("load CPU", self.load_cpu.of_a_core(*seconds));
        table.fmt(f)
    }
}
