//! What a run came to: for people, as JSON, and as a verdict.

use std::collections::BTreeMap;
use std::fmt;

use measure::cpu::CpuTime;
use measure::percentiles::{Percentiles, Times};
use measure::report::Table;
use serde::Serialize;
use wire::ts::PACKET_LEN;

use super::Limits;
use super::check::Faults;
use super::totals::Totals;
use crate::clients::{Counted, Served};

/// A viewer that has less than this share of the median has not got all.
const SHARE_MIN: f64 = 0.97;

/// Numbers of all viewers, over the time that was counted; how they came and what was wrong, since the beginning.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Viewers who were to stay.
    pub viewers_wanted: usize,
    /// Those who get the stream in the end.
    pub viewers: usize,
    /// Those who got it, and whose connection ended.
    pub ended: u64,
    /// Slow ones whose connection the server closed.
    pub slow_closed: u64,
    /// Why somebody did not get it, and how often.
    pub failures: BTreeMap<String, u64>,
    /// Time over which was counted.
    pub seconds: f64,
    /// Of 188 bytes, as many as the bytes make.
    pub packets: u64,
    /// Of the stream, to all viewers together.
    pub bytes: u64,
    /// The same.
    pub gbit_per_second: f64,
    /// What the median of those got who are to get all: in Mbit/s.
    pub median_mbit_per_second: f64,
    /// What the one got who got least.
    pub least_mbit_per_second: f64,
    /// Those who got less than 97 % of the median.
    pub short: usize,
    /// Packets that are missing, of viewers who are not slow.
    pub lost: u64,
    /// Of viewers of whom every byte is looked at.
    pub checked: Faults,
    /// Of slow ones.
    pub slow: Faults,
    /// Of others, as far as it is looked at.
    pub others: Faults,
    /// Times that a viewer who reads got nothing for too long.
    pub stalls: u64,
    /// How long that was.
    pub stall: Percentiles,
    /// Of each viewer who is checked, the longest time between two arrivals.
    pub longest_gap: Percentiles,
    /// From when a packet was made until it arrived, of those who are checked.
    pub latency: Percentiles,
    /// From the connection's beginning to the stream's first byte.
    pub first_byte: Percentiles,
    /// From there to the end of what holds a packet that a decoder can begin at.
    pub picture: Percentiles,
    /// Of those who come and go.
    pub passing_first_byte: Percentiles,
    /// Of those.
    pub passing_picture: Percentiles,
    /// Of the server's process, if it is known.
    pub server_cpu: Option<CpuTime>,
    /// CPU time of the server for each Gbit that arrived.
    pub server_seconds_per_gbit: Option<f64>,
    /// Of this process, with all its viewers and the source.
    pub load_cpu: CpuTime,
}

impl Report {
    pub(super) fn new(viewers_wanted: usize, parts: &[Totals], counted: &Counted) -> Self {
        let sum = |count: fn(&Totals) -> u64| parts.iter().map(count).sum::<u64>();
        let merged = |pick: fn(&Totals) -> &Times| Percentiles::of_all(parts.iter().map(pick));
        let faults = |pick: fn(&Totals) -> &Faults| {
            let mut all = Faults::default();
            parts.iter().for_each(|part| all.add(pick(part)));
            all
        };
        let mut failures = BTreeMap::new();
        for (why, count) in parts.iter().flat_map(|part| &part.failures) {
            *failures.entry(why.clone()).or_default() += count;
        }
        let Counted { seconds, served: Served { cpu: server_cpu, .. }, load_cpu } = *counted;
        let bytes = sum(|part| part.bytes);
        let mut shares: Vec<u64> = parts.iter().flat_map(|part| &part.shares).copied().collect();
        shares.sort_unstable();
        let median = shares.get(shares.len() / 2).copied().unwrap_or(0);
        let mbit_per_second = |bytes: u64| bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9);
        let gbit = bytes as f64 * 8.0 / 1e9;
        let (checked, others) = (faults(|part| &part.checked), faults(|part| &part.others));
        Report {
            viewers_wanted,
            viewers: parts.iter().map(|part| part.watching).sum(),
            ended: sum(|part| part.ended),
            slow_closed: sum(|part| part.slow_closed),
            failures,
            seconds,
            packets: bytes / PACKET_LEN as u64,
            bytes,
            gbit_per_second: gbit / seconds.max(1e-9),
            median_mbit_per_second: mbit_per_second(median),
            least_mbit_per_second: mbit_per_second(shares.first().copied().unwrap_or(0)),
            short: shares.iter().filter(|bytes| (**bytes as f64) < median as f64 * SHARE_MIN).count(),
            lost: checked.missing + others.missing,
            checked,
            slow: faults(|part| &part.slow),
            others,
            stalls: sum(|part| part.stall_count),
            stall: merged(|part| &part.stalls),
            longest_gap: merged(|part| &part.longest_gaps),
            latency: merged(|part| &part.latency),
            first_byte: merged(|part| &part.first_byte),
            picture: merged(|part| &part.picture),
            passing_first_byte: merged(|part| &part.passing_first_byte),
            passing_picture: merged(|part| &part.passing_picture),
            server_cpu,
            server_seconds_per_gbit: server_cpu.filter(|_| gbit > 0.0).map(|cpu| cpu.total() / gbit),
            load_cpu,
        }
    }

    /// What nobody excuses: torn, damaged or repeated packets, and gaps behind which no decoder can begin.
    pub fn faults(&self) -> u64 {
        [&self.checked, &self.slow, &self.others].map(Faults::of_content).iter().sum()
    }

    /// What was asked for and not held, in words; empty when all was.
    pub fn failures(&self, limits: &Limits) -> Vec<String> {
        let mut failures = Vec::new();
        let staying = self.viewers as u64 + self.slow_closed;
        if staying < self.viewers_wanted as u64 {
            failures.push(format!("{} of {} viewers get the stream", self.viewers, self.viewers_wanted));
            failures.extend(self.failures.iter().map(|(why, count)| format!("{why} ({count} times)")));
        }
        if self.packets == 0 {
            failures.push("nothing came".into());
        }
        let counts = [
            ("faults", self.faults(), "--max-faults", limits.max_faults),
            ("packets missing", self.lost, "--max-missing", limits.max_missing),
            ("stalls", self.stalls, "--max-stalls", limits.max_stalls),
        ];
        for (name, count, flag, max) in counts {
            if let Some(max) = max.filter(|max| count > *max) {
                failures.push(format!("{count} {name} are over {flag} {max}"));
            }
        }
        let times = [
            ("p99 latency", &self.latency, "--max-p99", limits.max_p99),
            ("p99 of the first byte", &self.first_byte, "--max-first-byte", limits.max_first_byte),
            ("newcomers' p99 of the first byte", &self.passing_first_byte, "--max-first-byte", limits.max_first_byte),
            ("p99 of the first picture", &self.picture, "--max-picture", limits.max_picture),
            ("newcomers' p99 of the first picture", &self.passing_picture, "--max-picture", limits.max_picture),
        ];
        for (name, Percentiles { p99_ms, .. }, flag, max) in times {
            if let Some(max) = max.filter(|max| p99_ms > max) {
                failures.push(format!("{name} {p99_ms:.2} ms is over {flag} {max}"));
            }
        }
        failures
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { viewers, viewers_wanted, seconds, gbit_per_second, ended, slow_closed, .. } = self;
        let mut table = Table::of_facts();
        table.text("");
        table.fact("viewers", format!("{viewers} of {viewers_wanted}; {ended} ended, {slow_closed} slow ones closed"));
        for (why, count) in &self.failures {
            table.fact("", format!("{why} ({count} times)"));
        }
        table.fact("came", format!("{gbit_per_second:.3} Gbit/s over {seconds:.1} s"));
        let Report { median_mbit_per_second: median, least_mbit_per_second: least, short, .. } = self;
        table.fact(
            "each",
            format!("median {median:.3}, least {least:.3} Mbit/s; {short} got less than 97 % of the median"),
        );
        for (who, faults) in [("checked", &self.checked), ("slow", &self.slow), ("others", &self.others)] {
            table.fact(who, faults.to_string());
        }
        table.fact("latency", self.latency.to_string());
        table.fact("longest gaps", self.longest_gap.to_string());
        table.fact("first byte", self.first_byte.to_string());
        table.fact("first picture", self.picture.to_string());
        if self.passing_first_byte.count > 0 {
            table.fact("newcomers' byte", self.passing_first_byte.to_string());
            table.fact("and picture", self.passing_picture.to_string());
        }
        let long = if self.stalls > 0 { format!("; {}", self.stall) } else { String::new() };
        table.fact("stalls", format!("{}{long}", self.stalls));
        if let Some((cpu, each)) = self.server_cpu.zip(self.server_seconds_per_gbit) {
            table.fact("server CPU", format!("{}; {:.2} ms for each Gbit", cpu.of_a_core(*seconds), each * 1e3));
        }
        table.fact("load CPU", self.load_cpu.of_a_core(*seconds));
        table.fmt(f)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults { gaps, gaps_amid, missing, repeats, torn, damaged, ragged } = self;
        if *self == Faults::default() {
            return f.write_str("no faults");
        }
        write!(
            f,
            "{gaps} gaps ({gaps_amid} end where nobody can begin), {missing} packets missing; {repeats} repeats, \
             {torn} torn, {damaged} damaged, {ragged} begin amid a packet"
        )
    }
}
