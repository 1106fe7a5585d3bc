//! What a run came to: for people, as JSON, and as a verdict.

use std::time::Duration;

use serde_json::{Value, json};
use wheel::Lateness;

use super::Limits;
use super::metrics::Served;
use super::receiver::Totals;
use super::watch::Seen;
use measure::cpu::CpuTime;
use measure::percentiles::{Percentiles, histogram};

/// Numbers of all sessions, over the time that was counted.
#[derive(Clone, Debug)]
pub struct Report {
    pub sessions_wanted: usize,
    /// Of which something arrived while it was counted.
    pub sessions: usize,
    /// Further ones, that go to where nobody receives.
    pub unreceived: usize,
    pub seconds: f64,
    pub datagrams: u64,
    /// Of whole TS packets.
    pub bytes: u64,
    /// TS packets that arrived, and that are missing by the continuity counters or RTP's sequence numbers.
    pub packets: u64,
    pub lost: u64,
    /// Datagrams that are no whole packets.
    pub malformed: u64,
    pub sessions_with_loss: usize,
    /// Messages that arrived and found no room in our own sockets: those are not the sender's losses.
    pub dropped_here: u64,
    /// Sums of TR 101 290's first and second priority, losses included.
    pub errors: [u64; 2],
    /// Packets of compared sessions that were as in the title, that had another clock, and that were not as in the title.
    pub matched: u64,
    pub restamped: u64,
    pub damaged: u64,
    /// Times that a session got nothing for 100 ms, and that the server had nothing to send.
    pub stalls: u64,
    pub underruns: Option<u64>,
    /// From datagram to datagram within a session.
    pub interval: Percentiles,
    /// How much later than its clock says each reference came, from the one that came earliest in its session.
    pub lateness: Percentiles,
    /// Each session's worst second (RFC 4445 §3.1), and the mean of its seconds.
    pub delay_factor: Percentiles,
    pub delay_factor_mean: Percentiles,
    /// Each session's worst second, peak to peak.
    pub pcr_jitter: Percentiles,
    /// From the request to the first datagram.
    pub start: Percentiles,
    /// Sessions that were opened while others were measured, and that were refused.
    pub newcomers: usize,
    pub refused: usize,
    /// Those of them from whose request to their first datagram.
    pub newcomer_start: Percentiles,
    /// Sessions of titles that break, opened meanwhile.
    pub faulty: usize,
    /// What the server says of all its sessions, or what is known of its process.
    pub served: Option<Served>,
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

    /// One object, as `millrace ab` reads it.
    pub fn json(&self) -> Value {
        let mut values = serde_json::Map::new();
        let mut put = |name: &str, value: f64| values.insert(name.to_owned(), json!(value));
        put("sessions", self.sessions as f64);
        put("sessions_wanted", self.sessions_wanted as f64);
        put("sessions_with_loss", self.sessions_with_loss as f64);
        put("mbit_per_second", self.bytes as f64 * 8.0 / 1e6 / self.seconds.max(1e-9));
        put("ts_packets", self.packets as f64);
        put("loss", self.loss());
        put("malformed", self.malformed as f64);
        put("dropped_here", self.dropped_here as f64);
        put("errors_priority_1", self.errors[0] as f64);
        put("errors_priority_2", self.errors[1] as f64);
        put("matched", self.matched as f64);
        put("restamped", self.restamped as f64);
        put("damaged", self.damaged as f64);
        put("stalls", self.stalls as f64);
        put("load_cpu_s", self.load_cpu.total());
        for (name, count) in
            [("newcomers", self.newcomers), ("newcomers_refused", self.refused), ("faulty", self.faulty)]
        {
            if self.newcomers + self.refused + self.faulty > 0 {
                put(name, count as f64);
            }
        }
        if self.unreceived > 0 {
            put("unreceived", self.unreceived as f64);
        }
        if let Some((served, lateness)) = self.served.as_ref().zip(self.server_lateness()) {
            put("server_datagrams", served.datagrams as f64);
            put("server_mbit_per_second", served.bytes as f64 * 8.0 / 1e6 / self.seconds.max(1e-9));
            put("server_underruns", served.underruns as f64);
            put("server_shifts", served.shifts as f64);
            put("server_bursts", lateness.count() as f64);
            put("server_lateness_p50_ms", quantile_ms(lateness, 0.5));
            put("server_lateness_p99_ms", quantile_ms(lateness, 0.99));
            put("server_lateness_p999_ms", quantile_ms(lateness, 0.999));
        }
        if let Some(underruns) = self.underruns {
            put("underruns", underruns as f64);
        }
        if let Some((cpu, ms)) = self.server_cpu().zip(self.ms_per_stream_second()) {
            put("server_user_s", cpu.user);
            put("server_system_s", cpu.system);
            put("server_ms_per_stream_second", ms);
        }
        let times = [
            ("interval", &self.interval),
            ("delay_factor", &self.delay_factor),
            ("delay_factor_mean", &self.delay_factor_mean),
            ("pcr_jitter", &self.pcr_jitter),
            ("start", &self.start),
            ("newcomer_start", &self.newcomer_start),
            ("lateness", &self.lateness),
        ];
        for (name, all) in times.into_iter().filter(|(_, all)| all.count > 0) {
            put(&format!("{name}_p50_ms"), all.p50_ms);
            put(&format!("{name}_p99_ms"), all.p99_ms);
            put(&format!("{name}_p999_ms"), all.p999_ms);
            put(&format!("{name}_max_ms"), all.max_ms);
        }
        let mut object = json!({
            "packets": self.datagrams,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "lost": self.lost,
            "values": values,
        });
        if self.lateness.count > 0 {
            let Percentiles { p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = self.lateness;
            object["latency_ms"] = json!({"p50": p50_ms, "p90": p90_ms, "p99": p99_ms, "p999": p999_ms, "max": max_ms});
        }
        object
    }

    pub fn print(&self) {
        let line = |name: &str, value: String| println!("  {name:<16}{value}");
        let per_second = |count: f64| count / self.seconds.max(1e-9);
        println!();
        let unreceived = match self.unreceived {
            0 => String::new(),
            count => format!(", and {count} that nobody receives"),
        };
        line("sessions", format!("{} of {}{unreceived}", self.sessions, self.sessions_wanted));
        let (datagrams, mbit) = (per_second(self.datagrams as f64), per_second(self.bytes as f64 * 8.0 / 1e6));
        line("received", format!("{datagrams:.0} datagrams/s, {mbit:.1} Mbit/s over {:.1} s", self.seconds));
        let share = self.loss() * 100.0;
        let here = match self.dropped_here {
            0 => String::new(),
            count => format!("; {count} messages found no room in our sockets"),
        };
        line("lost", format!("{} packets ({share:.5} %), {} sessions{here}", self.lost, self.sessions_with_loss));
        let Report { matched, restamped, damaged, .. } = self;
        if matched + restamped + damaged > 0 {
            let clock = match restamped {
                0 => String::new(),
                count => format!(", {count} with another clock"),
            };
            line("content", format!("{matched} packets as in the title{clock}, {damaged} not"));
        }
        let [first, second] = self.errors;
        line("TR 101 290", format!("{first} errors of priority 1, {second} of priority 2"));
        line("interval", self.interval.to_string());
        line("lateness", self.lateness.to_string());
        line("delay factor", self.delay_factor_mean.to_string());
        line("in worst second", self.delay_factor.to_string());
        line("PCR jitter", self.pcr_jitter.to_string());
        if self.start.count > 0 {
            line("start", self.start.to_string());
        }
        if self.newcomers + self.refused > 0 {
            let Report { newcomers, refused, newcomer_start, .. } = self;
            line("newcomers", format!("{newcomers}, {refused} refused; start {}", newcomer_start));
        }
        if self.faulty > 0 {
            line("faulty", format!("{} sessions of titles that broke", self.faulty));
        }
        let underruns = self.underruns.map_or(String::new(), |count| format!(", {count} underruns at the server"));
        line("stalls", format!("{} of more than 100 ms{underruns}", self.stalls));
        if let Some((cpu, ms)) = self.server_cpu().zip(self.ms_per_stream_second()) {
            let cores = per_second(cpu.total()) * 100.0;
            line("server CPU", format!("{cores:.1} % of a core; {ms:.3} ms per session and second"));
        }
        if let Some((served, lateness)) = self.served.as_ref().zip(self.server_lateness()) {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| quantile_ms(lateness, quantile));
            let (sent, shifts) = (per_second(served.datagrams as f64), served.shifts);
            line(
                "server sent",
                format!("{sent:.0} datagrams/s; p50 {p50:.2}, p99 {p99:.2}, p99.9 {p999:.2} ms late; {shifts} shifts"),
            );
        }
        line("load CPU", format!("{:.1} % of a core", per_second(self.load_cpu.total()) * 100.0));
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
