//! What the server says of itself at /metrics: of all its sessions, also of those that nobody receives here.
//!
//! In: the page. Out: CPU time, counters, and how late bursts were written; of a window, by two readings.
//! Source: the text format of Prometheus; `le` are powers of two of nanoseconds.

use wheel::{BUCKETS, Lateness};

use super::Api;
use measure::cpu::CpuTime;

/// What a server came to in a window. What it does not tell is zero.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// CPU time of the server's process.
    pub cpu: Option<CpuTime>,
    /// Datagrams that the pump wrote.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times that a session's next part was not there, of any session.
    pub underruns: u64,
    /// Times that a session was so late that its schedule was moved.
    pub shifts: u64,
    /// How late bursts were written.
    pub lateness: Lateness,
}

/// What is known of a server at an instant.
pub(crate) struct Reading {
    page: Option<Page>,
    cpu: Option<CpuTime>,
}

impl Reading {
    /// Asks the server, if there is one that can be asked; the CPU time of process `pid`, if it is given, comes from the
    /// kernel.
    pub(crate) fn take(api: Option<&Api>, pid: Option<u32>) -> Reading {
        let page = api.and_then(|api| api.get(&format!("{}/metrics", api.url)).ok()).map(|answer| Page(answer.body));
        let cpu = pid.map_or_else(|| page.as_ref()?.cpu(), CpuTime::of_process);
        Reading { page, cpu }
    }

    /// What came between an earlier reading and this one.
    pub(crate) fn since(&self, before: &Reading) -> Served {
        // A server that has used less than before was started again meanwhile. One that has used nothing has told the same
        // page twice, as it makes one a second (`http.metrics_age_max`): of a shorter window it says nothing.
        let both = self.cpu.zip(before.cpu).filter(|(now, then)| now.total() > then.total());
        let cpu = both.map(|(now, then)| now.since(then));
        let Some((now, then)) = self.page.as_ref().zip(before.page.as_ref()) else {
            return Served { cpu, ..Served::default() };
        };
        let count = |name| now.sum(name).saturating_sub(then.sum(name));
        let (now_below, then_below) = (now.less_late(), then.less_late());
        let below = std::array::from_fn(|index| now_below[index].saturating_sub(then_below[index]));
        Served {
            cpu,
            datagrams: count("millrace_pump_datagrams_total"),
            bytes: count("millrace_pump_bytes_total"),
            underruns: count("millrace_pump_underruns_total"),
            shifts: count("millrace_pump_shifts_total"),
            lateness: Lateness::from_buckets(apart(&below)),
        }
    }
}

struct Page(String);

impl Page {
    /// Labels and values of a metric.
    fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, value.parse().ok()?))
        })
    }

    fn sum(&self, name: &str) -> u64 {
        self.samples(name).map(|(_, value)| value as u64).sum()
    }

    fn cpu(&self) -> Option<CpuTime> {
        let of = |mode| self.samples("millrace_process_cpu_seconds_total").find(|(labels, _)| labels.contains(mode));
        Some(CpuTime { user: of("\"user\"")?.1, system: of("\"system\"")?.1 })
    }

    /// Of all workers, how many bursts were less late than 2^index nanoseconds; zero where the page has no such bound.
    fn less_late(&self) -> [u64; BUCKETS] {
        let mut below = [0; BUCKETS];
        for (labels, count) in self.samples("millrace_pump_lateness_seconds_bucket") {
            let bound = labels.split_once("le=\"").and_then(|(_, rest)| rest.split('"').next()?.parse::<f64>().ok());
            if let Some(seconds) = bound {
                // The last bucket is for all that is later; a number out of range is as good as one at its end.
                below[((seconds * 1e9).log2().round() as usize).min(BUCKETS - 1)] += count as u64;
            }
        }
        below
    }
}

/// Counts below each bound become counts between it and the bound before; where there is no bound there is no count.
fn apart(below: &[u64; BUCKETS]) -> [u64; BUCKETS] {
    let mut last = 0;
    below.map(|count| {
        let between = count.saturating_sub(last);
        last = last.max(count);
        between
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BEFORE: &str = "\
# TYPE millrace_pump_lateness_seconds histogram
millrace_process_cpu_seconds_total{mode=\"user\"} 1.5
millrace_process_cpu_seconds_total{mode=\"system\"} 3
millrace_pump_datagrams_total{worker=\"0\"} 1000
millrace_pump_lateness_seconds_bucket{worker=\"0\",le=\"0.000016384\"} 900
millrace_pump_lateness_seconds_bucket{worker=\"0\",le=\"0.000032768\"} 1000
millrace_pump_lateness_seconds_bucket{worker=\"0\",le=\"+Inf\"} 1000
";

    const AFTER: &str = "\
millrace_process_cpu_seconds_total{mode=\"user\"} 2
millrace_process_cpu_seconds_total{mode=\"system\"} 5
millrace_pump_datagrams_total{worker=\"0\"} 1700
millrace_pump_datagrams_total{worker=\"1\"} 300
millrace_pump_shifts_total{worker=\"1\"} 2
millrace_pump_lateness_seconds_bucket{worker=\"0\",le=\"0.000016384\"} 900
millrace_pump_lateness_seconds_bucket{worker=\"0\",le=\"0.000032768\"} 1690
millrace_pump_lateness_seconds_bucket{worker=\"0\",le=\"+Inf\"} 1700
millrace_pump_lateness_seconds_bucket{worker=\"1\",le=\"0.000016384\"} 0
millrace_pump_lateness_seconds_bucket{worker=\"1\",le=\"0.000032768\"} 300
millrace_pump_lateness_seconds_bucket{worker=\"1\",le=\"+Inf\"} 300
";

    fn window(before: &str, after: &str) -> Served {
        let [before, after] = [before, after].map(|text| {
            let page = Page(text.to_owned());
            Reading { cpu: page.cpu(), page: Some(page) }
        });
        after.since(&before)
    }

    #[test]
    fn a_window_is_the_difference_of_two_pages_over_all_workers() {
        let window = window(BEFORE, AFTER);
        let cpu = window.cpu.unwrap();
        assert_eq!((cpu.user, cpu.system, window.datagrams, window.shifts), (0.5, 2.0, 1_000, 2));
        assert_eq!(window.lateness.count(), 1_000);
        let us = |quantile| window.lateness.quantile(quantile).as_nanos() as f64 / 1e3;
        assert!((16.0..33.0).contains(&us(0.5)) && (16.0..33.0).contains(&us(0.98)), "{:?}", window.lateness);
        assert!(window.lateness.quantile(0.999) > Duration::from_secs(1));
    }

    #[test]
    fn what_a_server_used_that_was_started_again_meanwhile_is_not_known() {
        let window = window(AFTER, BEFORE);
        assert!(window.cpu.is_none() && window.datagrams == 0, "{window:?}");
    }

    #[test]
    fn what_a_server_used_is_not_known_when_it_tells_the_same_page_twice() {
        assert!(window(AFTER, AFTER).cpu.is_none());
    }

    #[test]
    fn a_page_of_something_else_has_nothing() {
        let page = "<html>\nx{le=\"}\nmillrace_pump_lateness_seconds_bucket{le=\"-1\"} nan\n# 7\n";
        let served = window("", page);
        assert!(served.cpu.is_none() && served.datagrams == 0 && served.lateness.count() == 0, "{served:?}");
    }
}
