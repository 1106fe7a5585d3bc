//! What the server says of itself at /metrics: of all its sessions, also of those that nobody receives here.
//!
//! In: the page. Out: CPU time, counters, and how late bursts were written; of a window, by two readings.
//! Source: the text format of Prometheus; `le` are powers of two of nanoseconds.

use wheel::{BUCKETS, Lateness};

use measure::cpu::CpuTime;

/// One reading, or the difference of two. What the page does not have is zero.
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

impl Served {
    /// Asks the server; the CPU time of process `pid`, if it is given, comes from the kernel.
    pub(super) fn read(agent: &ureq::Agent, url: &str, pid: Option<u32>) -> Option<Served> {
        let page = agent.get(format!("{url}/metrics")).call().ok()?.body_mut().read_to_string().ok()?;
        let mut served = Self::parse(&page);
        if let Some(pid) = pid {
            served.cpu = Self::of_process(pid)?.cpu;
        }
        Some(served)
    }

    /// What the kernel knows of a process that is not asked.
    pub(super) fn of_process(pid: u32) -> Option<Served> {
        Some(Served { cpu: Some(CpuTime::of_process(pid)?), ..Served::default() })
    }

    fn parse(page: &str) -> Served {
        let (mut served, mut cpu) = (Served::default(), (None, None));
        // Of all workers, how many were less late than 2^index nanoseconds.
        let mut below = [0; BUCKETS];
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((sample, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            match name {
                "millrace_process_cpu_seconds_total" if labels.contains("\"user\"") => cpu.0 = Some(value),
                "millrace_process_cpu_seconds_total" => cpu.1 = Some(value),
                "millrace_pump_datagrams_total" => served.datagrams += value as u64,
                "millrace_pump_bytes_total" => served.bytes += value as u64,
                "millrace_pump_underruns_total" => served.underruns += value as u64,
                "millrace_pump_shifts_total" => served.shifts += value as u64,
                "millrace_pump_lateness_seconds_bucket" => {
                    let bound = labels.split_once("le=\"").and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
                    if let Some(bound) = bound {
                        below[bucket_up_to(bound)] += value as u64;
                    }
                }
                _ => {}
            }
        }
        served.cpu = cpu.0.zip(cpu.1).map(|(user, system)| CpuTime { user, system });
        served.lateness = Lateness::from_buckets(apart(&below));
        served
    }

    /// What came between an earlier reading and this one.
    pub(super) fn since(&self, before: &Served) -> Served {
        let (now, then) = (self.lateness.buckets(), before.lateness.buckets());
        Served {
            cpu: self.cpu.zip(before.cpu).map(|(now, then)| now.since(then)),
            datagrams: self.datagrams.saturating_sub(before.datagrams),
            bytes: self.bytes.saturating_sub(before.bytes),
            underruns: self.underruns.saturating_sub(before.underruns),
            shifts: self.shifts.saturating_sub(before.shifts),
            lateness: Lateness::from_buckets(std::array::from_fn(|index| now[index].saturating_sub(then[index]))),
        }
    }
}

/// The bucket that ends at so many seconds; the last one is for all that is later.
fn bucket_up_to(seconds: f64) -> usize {
    // A number out of range is as good as one at its end.
    ((seconds * 1e9).log2().round() as usize).min(BUCKETS - 1)
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

    #[test]
    fn a_window_is_the_difference_of_two_pages_over_all_workers() {
        let window = Served::parse(AFTER).since(&Served::parse(BEFORE));
        let cpu = window.cpu.unwrap();
        assert_eq!((cpu.user, cpu.system, window.datagrams, window.shifts), (0.5, 2.0, 1_000, 2));
        assert_eq!(window.lateness.count(), 1_000);
        let us = |quantile| window.lateness.quantile(quantile).as_nanos() as f64 / 1e3;
        assert!((16.0..33.0).contains(&us(0.5)) && (16.0..33.0).contains(&us(0.98)), "{:?}", window.lateness);
        assert!(window.lateness.quantile(0.999) > Duration::from_secs(1));
    }

    #[test]
    fn a_page_of_something_else_has_nothing() {
        let served = Served::parse("<html>\nx{le=\"}\nmillrace_pump_lateness_seconds_bucket{le=\"-1\"} nan\n# 7\n");
        assert!(served.cpu.is_none() && served.datagrams == 0 && served.lateness.count() == 0, "{served:?}");
    }
}
