//! What a run came to: for people, as JSON, and as a verdict.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use wheel::Lateness;

use super::Limits;
use super::metrics::Served;
use super::receiver::Totals;
use super::watch::Seen;
use measure::cpu::CpuTime;
use measure::percentiles::{Percentiles, histogram};
use measure::report::Table;

/// Numbers of all sessions, over the time that was counted.
#[derive(Clone, Debug)]
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
    /// From datagram to datagram within a session.
    pub interval: Percentiles,
    /// How much later than its clock says each reference came, from the one that came earliest in its session.
    pub lateness: Percentiles,
    /// Each session's worst second (RFC 4445 §3.1).
    pub delay_factor: Percentiles,
    /// The mean of each session's seconds.
    pub delay_factor_mean: Percentiles,
    /// Each session's worst second, peak to peak.
    pub pcr_jitter: Percentiles,
    /// From the request to the first datagram.
    pub start: Percentiles,
    /// Sessions that were opened while others were measured.
    pub newcomers: usize,
    /// Those that were refused meanwhile.
    pub refused: usize,
    /// Those of them from whose request to their first datagram.
    pub newcomer_start: Percentiles,
    /// Sessions of titles that break, opened meanwhile.
    pub faulty: usize,
    /// What the server says of all its sessions, or what is known of its process.
    pub served: Option<Served>,
    /// Of this process.
    pub load_cpu: CpuTime,
}

/// What is not in the sessions' own totals.
pub(super) struct Context {
    pub(super) sessions_wanted: usize,
    pub(super) unreceived: usize,
    pub(super) span: Duration,
    /// When each session was asked for, in nanoseconds since 1970, by thread as in the totals; newcomers are the last.
    /// `None`: it was not, or was refused.
    pub(super) asked_ns: Vec<Vec<Option<u64>>>,
    /// Sessions of titles that break.
    pub(super) faulty: usize,
    pub(super) underruns: Option<u64>,
    pub(super) served: Option<Served>,
    pub(super) load_cpu: CpuTime,
}

impl Report {
    pub(super) fn new(parts: &[Totals], context: Context) -> Self {
        let seen: Vec<&Seen> = parts.iter().flat_map(|part| &part.seen).filter(|seen| !seen.is_newcomer).collect();
        let guests = || {
            let parts = parts.iter().zip(&context.asked_ns);
            parts.flat_map(|(part, asked_ns)| part.seen.iter().zip(asked_ns)).filter(|(seen, _)| seen.is_newcomer)
        };
        let of = |value: &dyn Fn(&Seen) -> u64| seen.iter().map(|seen| value(seen)).sum::<u64>();
        let over_sessions = |ns: &dyn Fn(&Seen) -> Option<u64>| {
            let mut all = histogram();
            seen.iter().filter_map(|seen| ns(seen)).for_each(|ns| all.saturating_record(ns / 1_000));
            Percentiles::of(&all)
        };
        let comparisons = || seen.iter().filter_map(|seen| seen.comparison.as_ref());
        let sums: Vec<(u64, u64)> = seen.iter().map(|seen| seen.report.priorities.sums()).collect();
        Report {
            sessions_wanted: context.sessions_wanted,
            sessions: seen.iter().filter(|seen| seen.report.datagrams > 0).count(),
            unreceived: context.unreceived,
            seconds: context.span.as_secs_f64(),
            datagrams: of(&|seen| seen.report.datagrams),
            bytes: of(&|seen| seen.report.bytes),
            packets: of(&|seen| seen.report.packets),
            lost: of(&lost),
            malformed: of(&|seen| seen.report.malformed),
            sessions_with_loss: seen.iter().filter(|seen| lost(seen) > 0).count(),
            dropped_here: parts.iter().map(|part| part.dropped).sum(),
            errors: [sums.iter().map(|sums| sums.0).sum(), sums.iter().map(|sums| sums.1).sum()],
            matched: comparisons().map(|comparison| comparison.matched).sum(),
            restamped: comparisons().map(|comparison| comparison.restamped).sum(),
            damaged: comparisons().map(|comparison| comparison.damaged).sum(),
            stalls: of(&|seen| seen.stalls),
            underruns: context.underruns,
            interval: Percentiles::of_all(parts.iter().map(|part| &part.times.intervals)),
            lateness: Percentiles::of_all(parts.iter().map(|part| &part.times.lateness)),
            delay_factor: over_sessions(&|seen| seen.report.delay_factor_max_ns),
            delay_factor_mean: over_sessions(&|seen| seen.report.delay_factor_mean_ns),
            pcr_jitter: over_sessions(&|seen| (seen.report.references > 1).then_some(seen.report.pcr_jitter_max_ns)),
            start: starts(parts, &context.asked_ns, false),
            newcomers: guests().filter(|(_, asked_ns)| asked_ns.is_some()).count(),
            refused: guests().filter(|(_, asked_ns)| asked_ns.is_none()).count(),
            newcomer_start: starts(parts, &context.asked_ns, true),
            faulty: context.faulty,
            served: context.served,
            load_cpu: context.load_cpu,
        }
    }

    /// Share of packets that never came.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.packets + self.lost).max(1) as f64
    }

    fn server_cpu(&self) -> Option<CpuTime> {
        self.served.as_ref()?.cpu
    }

    /// Of the server's CPU, by all sessions that play on.
    fn ms_per_stream_second(&self) -> Option<f64> {
        let sessions = self.sessions + self.unreceived;
        Some(self.server_cpu()?.total() * 1e3 / self.seconds / sessions.max(1) as f64)
    }

    /// How late the server wrote bursts, if it says so.
    fn server_lateness(&self) -> Option<&Lateness> {
        self.served.as_ref().map(|served| &served.lateness).filter(|lateness| lateness.count() > 0)
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
        let times = [
            ("p99 lateness", self.lateness.p99_ms, "--max-lateness", limits.max_lateness),
            ("p99 interval", self.interval.p99_ms, "--max-interval", limits.max_interval),
            ("p99 delay factor", self.delay_factor.p99_ms, "--max-delay-factor", limits.max_delay_factor),
            ("p99.9 start", self.start.p999_ms, "--max-start", limits.max_start),
            ("newcomers' p99.9 start", self.newcomer_start.p999_ms, "--max-start", limits.max_start),
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
        let per_second = |count: u64| count as f64 / self.seconds.max(1e-9);
        let has_guests = self.newcomers + self.refused + self.faulty > 0;
        let server = self.served.as_ref().zip(self.server_lateness());
        let late_ms = |quantile| server.map(|(_, lateness)| quantile_ms(lateness, quantile));
        let cpu = self.server_cpu();
        let mut values = Map::from_iter(
            [
                ("sessions", json!(self.sessions)),
                ("sessions_wanted", json!(self.sessions_wanted)),
                ("sessions_with_loss", json!(self.sessions_with_loss)),
                ("mbit_per_second", json!(per_second(self.bytes) * 8.0 / 1e6)),
                ("ts_packets", json!(self.packets)),
                ("loss", json!(self.loss())),
                ("malformed", json!(self.malformed)),
                ("dropped_here", json!(self.dropped_here)),
                ("errors_priority_1", json!(self.errors[0])),
                ("errors_priority_2", json!(self.errors[1])),
                ("matched", json!(self.matched)),
                ("restamped", json!(self.restamped)),
                ("damaged", json!(self.damaged)),
                ("stalls", json!(self.stalls)),
                ("load_cpu_s", json!(self.load_cpu.total())),
                ("newcomers", json!(has_guests.then_some(self.newcomers))),
                ("newcomers_refused", json!(has_guests.then_some(self.refused))),
                ("faulty", json!(has_guests.then_some(self.faulty))),
                ("unreceived", json!(Some(self.unreceived).filter(|count| *count > 0))),
                ("server_datagrams", json!(server.map(|(served, _)| served.datagrams))),
                ("server_mbit_per_second", json!(server.map(|(served, _)| per_second(served.bytes) * 8.0 / 1e6))),
                ("server_underruns", json!(server.map(|(served, _)| served.underruns))),
                ("server_shifts", json!(server.map(|(served, _)| served.shifts))),
                ("server_bursts", json!(server.map(|(_, lateness)| lateness.count()))),
                ("server_lateness_p50_ms", json!(late_ms(0.5))),
                ("server_lateness_p99_ms", json!(late_ms(0.99))),
                ("server_lateness_p999_ms", json!(late_ms(0.999))),
                ("underruns", json!(self.underruns)),
                ("server_user_s", json!(cpu.map(|cpu| cpu.user))),
                ("server_system_s", json!(cpu.map(|cpu| cpu.system))),
                ("server_ms_per_stream_second", json!(self.ms_per_stream_second())),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        for (name, all) in self.times().into_iter().filter(|(_, all)| all.count > 0) {
            let quantiles = [("p50", all.p50_ms), ("p99", all.p99_ms), ("p999", all.p999_ms), ("max", all.max_ms)];
            values.extend(quantiles.map(|(quantile, ms)| (format!("{name}_{quantile}_ms"), json!(ms))));
        }
        values.retain(|_, value| !value.is_null());
        let Report { datagrams, bytes, seconds, lost, .. } = self;
        let mut object =
            json!({"packets": datagrams, "bytes": bytes, "seconds": seconds, "lost": lost, "values": values});
        if self.lateness.count > 0 {
            let Percentiles { p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = self.lateness;
            object["latency_ms"] = json!({"p50": p50_ms, "p90": p90_ms, "p99": p99_ms, "p999": p999_ms, "max": max_ms});
        }
        object
    }

    fn times(&self) -> [(&'static str, &Percentiles); 7] {
        [
            ("interval", &self.interval),
            ("delay_factor", &self.delay_factor),
            ("delay_factor_mean", &self.delay_factor_mean),
            ("pcr_jitter", &self.pcr_jitter),
            ("start", &self.start),
            ("newcomer_start", &self.newcomer_start),
            ("lateness", &self.lateness),
        ]
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_second = |count: f64| count / self.seconds.max(1e-9);
        // What is there none of is not worth a word.
        let unless_0 = |count: u64, text: String| if count > 0 { text } else { String::new() };
        let mut table = Table::of_facts();
        table.text("");
        let Report { sessions, sessions_wanted, unreceived, lost, sessions_with_loss, dropped_here, .. } = self;
        let further = unless_0(*unreceived as u64, format!(", and {unreceived} that nobody receives"));
        table.fact("sessions", format!("{sessions} of {sessions_wanted}{further}"));
        let (datagrams, mbit) = (per_second(self.datagrams as f64), per_second(self.bytes as f64 * 8.0 / 1e6));
        table.fact("received", format!("{datagrams:.0} datagrams/s, {mbit:.1} Mbit/s over {:.1} s", self.seconds));
        let share = self.loss() * 100.0;
        let here = unless_0(*dropped_here, format!("; {dropped_here} messages found no room in our sockets"));
        table.fact("lost", format!("{lost} packets ({share:.5} %), {sessions_with_loss} sessions{here}"));
        let Report { matched, restamped, damaged, .. } = self;
        if matched + restamped + damaged > 0 {
            let clock = unless_0(*restamped, format!(", {restamped} with another clock"));
            table.fact("content", format!("{matched} packets as in the title{clock}, {damaged} not"));
        }
        let [first, second] = self.errors;
        table.fact("TR 101 290", format!("{first} errors of priority 1, {second} of priority 2"));
        table.fact("interval", self.interval.to_string());
        table.fact("lateness", self.lateness.to_string());
        table.fact("delay factor", self.delay_factor_mean.to_string());
        table.fact("in worst second", self.delay_factor.to_string());
        table.fact("PCR jitter", self.pcr_jitter.to_string());
        if self.start.count > 0 {
            table.fact("start", self.start.to_string());
        }
        let Report { newcomers, refused, newcomer_start, faulty, .. } = self;
        if newcomers + refused > 0 {
            table.fact("newcomers", format!("{newcomers}, {refused} refused; start {newcomer_start}"));
        }
        if *faulty > 0 {
            table.fact("faulty", format!("{faulty} sessions of titles that broke"));
        }
        let underruns = self.underruns.map_or(String::new(), |count| format!(", {count} underruns at the server"));
        table.fact("stalls", format!("{} of more than 100 ms{underruns}", self.stalls));
        self.write_server(&mut table);
        table.fact("load CPU", format!("{:.1} % of a core", per_second(self.load_cpu.total()) * 100.0));
        table.fmt(f)
    }
}

impl Report {
    /// What the server used, and what it says of itself.
    fn write_server(&self, table: &mut Table) {
        let per_second = |count: f64| count / self.seconds.max(1e-9);
        if let Some((cpu, ms)) = self.server_cpu().zip(self.ms_per_stream_second()) {
            let cores = per_second(cpu.total()) * 100.0;
            table.fact("server CPU", format!("{cores:.1} % of a core; {ms:.3} ms per session and second"));
        }
        if let Some((served, lateness)) = self.served.as_ref().zip(self.server_lateness()) {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| quantile_ms(lateness, quantile));
            let (sent, shifts) = (per_second(served.datagrams as f64), served.shifts);
            let late = format!("p50 {p50:.2}, p99 {p99:.2}, p99.9 {p999:.2} ms late");
            table.fact("server sent", format!("{sent:.0} datagrams/s; {late}; {shifts} shifts"));
        }
    }
}

/// TS packets: RTP knows of all that are missing, continuity counters of no more than 15 in a row.
fn lost(seen: &Seen) -> u64 {
    let report = &seen.report;
    let per_datagram = report.packets / report.datagrams.max(1);
    report.lost.max(report.rtp_lost * per_datagram)
}

fn quantile_ms(lateness: &Lateness, quantile: f64) -> f64 {
    lateness.quantile(quantile).as_secs_f64() * 1e3
}

fn starts(parts: &[Totals], asked_ns: &[Vec<Option<u64>>], of_newcomers: bool) -> Percentiles {
    let mut all = histogram();
    for (part, asked_ns) in parts.iter().zip(asked_ns) {
        let seen = part.seen.iter().zip(asked_ns).filter(|(seen, _)| seen.is_newcomer == of_newcomers);
        for (seen, asked_ns) in seen {
            if let Some((first_ns, asked_ns)) = seen.first_ns.zip(*asked_ns) {
                all.saturating_record(first_ns.saturating_sub(asked_ns) / 1_000);
            }
        }
    }
    Percentiles::of(&all)
}
