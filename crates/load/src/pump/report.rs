//! What a run came to: for people, as JSON, and as a verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::repeat;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::original::Comparison;
use super::receiver::Totals;
use super::watch::Seen;
use super::{Limits, Served};
use measure::cpu::CpuTime;
use measure::percentiles::Percentiles;
use measure::report::Table;
use pump::monitor;

/// Numbers of all sessions, over the time that was counted.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Sessions that were asked for, to be received here.
    pub sessions_wanted: usize,
    /// Of which something arrived while it was counted.
    pub sessions: usize,
    /// Further ones, that go to where nobody receives.
    pub unreceived: usize,
    /// Time over which was counted.
    pub seconds: f64,
    /// What arrived.
    pub datagrams: u64,
    /// Of whole TS packets.
    pub bytes: u64,
    /// TS packets that arrived.
    pub packets: u64,
    /// TS packets that are missing by the continuity counters or RTP's sequence numbers.
    pub lost: u64,
    /// RTP packets that came late or twice.
    pub reordered: u64,
    /// Datagrams that are no whole packets.
    pub malformed: u64,
    /// Sessions in which any are missing.
    pub sessions_with_loss: usize,
    /// Messages that arrived and found no room in our own sockets: those are not the sender's losses.
    pub dropped_here: u64,
    /// Sums of TR 101 290's first and second priority, losses included.
    pub errors: [u64; 2],
    /// Packets of compared sessions that were as in the title.
    pub matched: u64,
    /// Those that had another clock.
    pub restamped: u64,
    /// Those that were not as in the title.
    pub damaged: u64,
    /// Times that a session got nothing for 100 ms.
    pub stalls: u64,
    /// Times that the server had nothing to send, if it says so.
    pub underruns: Option<u64>,
    /// Times by name: `interval` from datagram to datagram within a session; `lateness`, how much later than its clock says
    /// each reference came, from the one that came earliest in its session; `delay_factor` of each session's worst second
    /// (RFC 4445 §3.1), `delay_factor_mean` of all its seconds; `pcr_jitter` of each session's worst second, peak to peak;
    /// `start` from the request to the first datagram, `newcomer_start` of newcomers.
    pub times: BTreeMap<&'static str, Percentiles>,
    /// Sessions that were opened while others were measured.
    pub newcomers: usize,
    /// Those that were refused meanwhile.
    pub refused: usize,
    /// Sessions of titles that break, opened meanwhile.
    pub faulty: usize,
    /// What the server says of all its sessions, and what is known of its process.
    pub served: Served,
    /// Of this process.
    pub load_cpu: CpuTime,
}

impl Report {
    /// What the sessions saw. `asked_ns` is when each was asked for by its number, in nanoseconds since 1970, newcomers being
    /// the last; `None`: it was not, or was refused. Session `n` is in the totals of thread `n % threads`.
    pub(super) fn of_sessions(parts: &[Totals], asked_ns: &[Option<u64>]) -> Self {
        let interval = Percentiles::of_all(parts.iter().map(|part| &part.times.intervals));
        let lateness = Percentiles::of_all(parts.iter().map(|part| &part.times.lateness));
        let asked = |thread| asked_ns.iter().copied().skip(thread).step_by(parts.len()).chain(repeat(None));
        let all = parts.iter().enumerate().flat_map(|(thread, part)| part.seen.iter().zip(asked(thread)));
        let (guests, sessions): (Vec<_>, Vec<_>) = all.partition(|(seen, _)| seen.is_newcomer);
        let start = |all: &[(&Seen, Option<u64>)]| {
            let ns = all.iter().filter_map(|(seen, asked_ns)| Some(seen.first_ns?.saturating_sub((*asked_ns)?)));
            Percentiles::of_ns(ns)
        };
        let seen = || sessions.iter().map(|(seen, _)| *seen);
        let sum = |value: fn(&Seen) -> u64| seen().map(value).sum::<u64>();
        let compared =
            |count: fn(&Comparison) -> u64| seen().filter_map(|seen| seen.comparison.as_ref()).map(count).sum();
        let worst =
            |ns: fn(&monitor::Report) -> Option<u64>| Percentiles::of_ns(seen().filter_map(|seen| ns(&seen.report)));
        Report {
            sessions: seen().filter(|seen| seen.report.datagrams > 0).count(),
            datagrams: sum(|seen| seen.report.datagrams),
            bytes: sum(|seen| seen.report.bytes),
            packets: sum(|seen| seen.report.packets),
            lost: sum(lost),
            reordered: sum(|seen| seen.report.rtp_reordered),
            malformed: sum(|seen| seen.report.malformed),
            sessions_with_loss: seen().filter(|seen| lost(seen) > 0).count(),
            dropped_here: parts.iter().map(|part| part.dropped).sum(),
            errors: [sum(|seen| seen.report.priorities.sums().0), sum(|seen| seen.report.priorities.sums().1)],
            matched: compared(|comparison| comparison.matched),
            restamped: compared(|comparison| comparison.restamped),
            damaged: compared(|comparison| comparison.damaged),
            stalls: sum(|seen| seen.stalls),
            times: BTreeMap::from([
                ("interval", interval),
                ("lateness", lateness),
                ("delay_factor", worst(|report| report.delay_factor_max_ns)),
                ("delay_factor_mean", worst(|report| report.delay_factor_mean_ns)),
                ("pcr_jitter", worst(|report| (report.references > 1).then_some(report.pcr_jitter_max_ns))),
                ("start", start(&sessions)),
                ("newcomer_start", start(&guests)),
            ]),
            newcomers: guests.iter().filter(|(_, asked_ns)| asked_ns.is_some()).count(),
            refused: guests.iter().filter(|(_, asked_ns)| asked_ns.is_none()).count(),
            ..Report::default()
        }
    }

    /// Share of packets that never came.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.packets + self.lost).max(1) as f64
    }

    fn per_second(&self, count: f64) -> f64 {
        count / self.seconds.max(1e-9)
    }

    /// Of the server's CPU, by all sessions that play on.
    fn ms_per_stream_second(&self, cpu: CpuTime) -> f64 {
        let sessions = self.sessions + self.unreceived;
        self.per_second(cpu.total() * 1e3) / sessions.max(1) as f64
    }

    /// Quantiles of how late the server wrote bursts, if it says so.
    fn server_lateness_ms(&self) -> Option<[f64; 3]> {
        let lateness = Some(&self.served.lateness).filter(|lateness| lateness.count() > 0)?;
        Some([0.5, 0.99, 0.999].map(|quantile| lateness.quantile(quantile).as_secs_f64() * 1e3))
    }

    /// What was asked for and not held, in words; empty when all was.
    pub fn failures(&self, limits: &Limits) -> Vec<String> {
        let mut failures = Vec::new();
        if self.sessions < self.sessions_wanted {
            failures.push(format!("{} of {} sessions arrived", self.sessions, self.sessions_wanted));
        }
        if self.damaged > 0 || self.malformed > 0 {
            failures.push(format!("{} packets and {} datagrams were damaged", self.damaged, self.malformed));
        }
        if let Some(max) = limits.max_loss.filter(|max| self.loss() > *max) {
            failures.push(format!("loss {:.6} is over --max-loss {max}", self.loss()));
        }
        let times = &self.times;
        let times = [
            ("p99 lateness", times["lateness"].p99_ms, "--max-lateness", limits.max_lateness),
            ("p99 interval", times["interval"].p99_ms, "--max-interval", limits.max_interval),
            ("p99 delay factor", times["delay_factor"].p99_ms, "--max-delay-factor", limits.max_delay_factor),
            ("p99.9 start", times["start"].p999_ms, "--max-start", limits.max_start),
            ("newcomers' p99.9 start", times["newcomer_start"].p999_ms, "--max-start", limits.max_start),
        ];
        for (name, ms, flag, max) in times {
            if let Some(max) = max.filter(|max| ms > *max) {
                failures.push(format!("{name} {ms:.2} ms is over {flag} {max}"));
            }
        }
        if self.refused > 0 {
            failures.push(format!("{} newcomers were refused, or came too late", self.refused));
        }
        if let Some(max) = limits.max_underruns.filter(|max| self.underruns.unwrap_or(0) > *max) {
            failures.push(format!("{} underruns are over --max-underruns {max}", self.underruns.unwrap_or(0)));
        }
        failures
    }

    /// One object, as `millrace ab` reads it. What is not known is left out.
    pub fn json(&self) -> Value {
        let Report { datagrams, bytes, seconds, lost, served, .. } = self;
        let mbit_per_second = |bytes: u64| self.per_second(bytes as f64) * 8.0 / 1e6;
        let mut groups = vec![json!({
            "sessions": self.sessions,
            "sessions_wanted": self.sessions_wanted,
            "sessions_with_loss": self.sessions_with_loss,
            "mbit_per_second": mbit_per_second(*bytes),
            "ts_packets": self.packets,
            "loss": self.loss(),
            "rtp_reordered": self.reordered,
            "malformed": self.malformed,
            "dropped_here": self.dropped_here,
            "errors_priority_1": self.errors[0],
            "errors_priority_2": self.errors[1],
            "matched": self.matched,
            "restamped": self.restamped,
            "damaged": self.damaged,
            "stalls": self.stalls,
            "load_cpu_s": self.load_cpu.total(),
        })];
        if self.newcomers + self.refused + self.faulty > 0 {
            let (newcomers, refused, faulty) = (self.newcomers, self.refused, self.faulty);
            groups.push(json!({"newcomers": newcomers, "newcomers_refused": refused, "faulty": faulty}));
        }
        if self.unreceived > 0 {
            groups.push(json!({"unreceived": self.unreceived}));
        }
        if let Some([p50, p99, p999]) = self.server_lateness_ms() {
            groups.push(json!({
                "server_datagrams": served.datagrams,
                "server_mbit_per_second": mbit_per_second(served.bytes),
                "server_underruns": served.underruns,
                "server_shifts": served.shifts,
                "server_bursts": served.lateness.count(),
                "server_lateness_p50_ms": p50,
                "server_lateness_p99_ms": p99,
                "server_lateness_p999_ms": p999,
            }));
        }
        groups.extend(self.underruns.map(|underruns| json!({"underruns": underruns})));
        if let Some(cpu) = served.cpu {
            let ms = self.ms_per_stream_second(cpu);
            groups.push(json!({
                "server_user_s": cpu.user, "server_system_s": cpu.system, "server_ms_per_stream_second": ms
            }));
        }
        for (name, all) in self.times.iter().filter(|(_, all)| all.count > 0) {
            let quantiles = [("p50", all.p50_ms), ("p99", all.p99_ms), ("p999", all.p999_ms), ("max", all.max_ms)];
            groups.extend(quantiles.map(|(quantile, ms)| json!({(format!("{name}_{quantile}_ms")): ms})));
        }
        let values = groups.iter().filter_map(Value::as_object).flatten();
        let values: Map<String, Value> = values.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut object =
            json!({"packets": datagrams, "bytes": bytes, "seconds": seconds, "lost": lost, "values": values});
        let lateness = &self.times["lateness"];
        if lateness.count > 0 {
            let Percentiles { p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = lateness;
            object["latency_ms"] = json!({"p50": p50_ms, "p90": p90_ms, "p99": p99_ms, "p999": p999_ms, "max": max_ms});
        }
        object
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is there none of is not worth a word.
        let unless_0 = |count: u64, text: String| if count > 0 { text } else { String::new() };
        let mut table = Table::of_facts();
        table.text("");
        let Report { sessions, sessions_wanted, unreceived, lost, sessions_with_loss, dropped_here, times, .. } = self;
        let further = unless_0(*unreceived as u64, format!(", and {unreceived} that nobody receives"));
        table.fact("sessions", format!("{sessions} of {sessions_wanted}{further}"));
        let datagrams = self.per_second(self.datagrams as f64);
        let (mbit, seconds) = (self.per_second(self.bytes as f64 * 8.0 / 1e6), self.seconds);
        table.fact("received", format!("{datagrams:.0} datagrams/s, {mbit:.1} Mbit/s over {seconds:.1} s"));
        let share = self.loss() * 100.0;
        let here = unless_0(*dropped_here, format!("; {dropped_here} messages found no room in our sockets"));
        let late = unless_0(self.reordered, format!("; {} RTP packets late or twice", self.reordered));
        table.fact("lost", format!("{lost} packets ({share:.5} %), {sessions_with_loss} sessions{late}{here}"));
        let Report { matched, restamped, damaged, newcomers, refused, faulty, errors: [first, second], .. } = self;
        if matched + restamped + damaged > 0 {
            let clock = unless_0(*restamped, format!(", {restamped} with another clock"));
            table.fact("content", format!("{matched} packets as in the title{clock}, {damaged} not"));
        }
        table.fact("TR 101 290", format!("{first} errors of priority 1, {second} of priority 2"));
        table.fact("interval", times["interval"].to_string());
        table.fact("lateness", times["lateness"].to_string());
        table.fact("delay factor", times["delay_factor_mean"].to_string());
        table.fact("in worst second", times["delay_factor"].to_string());
        table.fact("PCR jitter", times["pcr_jitter"].to_string());
        if times["start"].count > 0 {
            table.fact("start", times["start"].to_string());
        }
        if newcomers + refused > 0 {
            let start = &times["newcomer_start"];
            table.fact("newcomers", format!("{newcomers}, {refused} refused; start {start}"));
        }
        if *faulty > 0 {
            table.fact("faulty", format!("{faulty} sessions of titles that broke"));
        }
        let underruns = self.underruns.map_or(String::new(), |count| format!(", {count} underruns at the server"));
        table.fact("stalls", format!("{} of more than 100 ms{underruns}", self.stalls));
        if let Some(cpu) = self.served.cpu {
            let ms = self.ms_per_stream_second(cpu);
            table.fact("server CPU", format!("{}; {ms:.3} ms per session and second", cpu.of_a_core(self.seconds)));
        }
        if let Some([p50, p99, p999]) = self.server_lateness_ms() {
            let (sent, shifts) = (self.per_second(self.served.datagrams as f64), self.served.shifts);
            let late = format!("p50 {p50:.2}, p99 {p99:.2}, p99.9 {p999:.2} ms late");
            table.fact("server sent", format!("{sent:.0} datagrams/s; {late}; {shifts} shifts"));
        }
        table.fact("load CPU", self.load_cpu.of_a_core(self.seconds));
        table.fmt(f)
    }
}

/// TS packets: RTP knows of all that are missing, continuity counters of no more than 14 in a row.
fn lost(seen: &Seen) -> u64 {
    let report = &seen.report;
    let per_datagram = report.packets / report.datagrams.max(1);
    report.lost.max(report.rtp_lost * per_datagram)
}
