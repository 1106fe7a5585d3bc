//! The runs of one subject at one point, and the numbers that can be read off a run.
//!
//! In: records. Out: medians over the rounds, with where they lie, and comparisons of two cells by their common rounds.
//! Of a repeated run the last one counts. A number that a run does not have is left out.

use std::collections::BTreeMap;

use super::compare::Comparison;
use super::outcome::LOST;
use super::record::Record;
use measure::rounds::{Ratio, median};

/// One subject at one point.
pub struct Cell<'a> {
    /// In the order in which they were measured, disturbed and repeated ones too.
    pub all: Vec<&'a Record>,
    /// Those that count, by round.
    pub counted: BTreeMap<u32, &'a Record>,
}

impl<'a> Cell<'a> {
    /// The runs of a subject at a point, but for those to warm up.
    pub fn of(records: &'a [Record], subject: &str, point: f64) -> Self {
        // Round 0 is the warm-up, whoever kept it.
        let is_here = |record: &&Record| record.subject == subject && record.point == point && record.round > 0;
        let all: Vec<&Record> = records.iter().filter(is_here).collect();
        let counted = all.iter().map(|record| (record.round, *record)).collect();
        Cell { all, counted }
    }

    /// Those that count although they were disturbed.
    pub fn disturbed(&self) -> impl Iterator<Item = &'a Record> {
        self.counted.values().copied().filter(|record| record.disturbed.is_some())
    }

    fn values(&self, value: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
        self.counted.values().filter_map(|record| value(record)).filter(|value| value.is_finite()).collect()
    }

    /// The median of a number over the runs that count; `None` when none of them has it.
    pub fn median(&self, value: impl Fn(&Record) -> Option<f64>) -> Option<f64> {
        let values = self.values(value);
        (!values.is_empty()).then(|| median(&values))
    }

    /// The median, and where it lies with 95 % confidence.
    pub fn estimate(&self, value: impl Fn(&Record) -> Option<f64>) -> Option<Ratio> {
        let values = self.values(value);
        // The interval of a median is that of its ratio to one.
        Ratio::of(&values, &vec![1.0; values.len()])
    }

    /// This one to the other, by the rounds that both have.
    pub fn compare(&self, other: &Cell<'_>, value: impl Fn(&Record) -> Option<f64>) -> Option<Comparison> {
        let pair = |(round, record): (&u32, &&Record)| Some((value(record)?, value(other.counted.get(round)?)?));
        let (own, others): (Vec<f64>, Vec<f64>) = self.counted.iter().filter_map(pair).unzip();
        Comparison::of(&own, &others)
    }

    /// `None` when no run knows.
    pub fn sum(&self, count: impl Fn(&Record) -> Option<u64>) -> Option<u64> {
        self.counted.values().filter_map(|record| count(record)).reduce(|sum, count| sum + count)
    }

    /// Packets in each class of latency over all rounds, by the class's upper bound in milliseconds, rising.
    pub fn histogram(&self) -> Vec<(f64, u64)> {
        // No bound is negative, so that their bits have their order.
        let mut classes: BTreeMap<u64, u64> = BTreeMap::new();
        let all = self.counted.values().filter_map(|record| record.latency_ms.as_ref());
        for (upper, count) in
            all.flat_map(|latency| &latency.histogram).filter(|class| class.0.is_finite() && class.1 > 0)
        {
            *classes.entry(upper.to_bits()).or_default() += count;
        }
        classes.into_iter().map(|(upper, count)| (f64::from_bits(upper), count)).collect()
    }
}

/// A number of a run.
pub type Metric = fn(&Record) -> Option<f64>;

fn per_packet(record: &Record, amount: f64) -> Option<f64> {
    (record.arrived.packets > 0).then(|| amount / record.arrived.packets as f64)
}

fn per_second(record: &Record, amount: f64) -> Option<f64> {
    (record.seconds > 0.0).then(|| amount / record.seconds)
}

/// CPU time of the server per packet that arrived, in microseconds.
pub fn cost_us(record: &Record) -> Option<f64> {
    per_packet(record, record.server.cpu_s() * 1e6)
}

/// The part of it outside the kernel.
pub fn user_us(record: &Record) -> Option<f64> {
    per_packet(record, record.server.user_s * 1e6)
}

/// The part of it inside the kernel.
pub fn kernel_us(record: &Record) -> Option<f64> {
    per_packet(record, record.server.system_s * 1e6)
}

/// Packets that arrived per second.
pub fn rate(record: &Record) -> Option<f64> {
    per_second(record, record.arrived.packets as f64)
}

/// Bits that arrived per second.
pub fn bit_rate(record: &Record) -> Option<f64> {
    per_second(record, record.arrived.bytes as f64 * 8.0)
}

/// Bytes of the mean packet.
pub fn packet_bytes(record: &Record) -> Option<f64> {
    per_packet(record, record.arrived.bytes as f64)
}

/// Cores that the server used.
pub fn cores(record: &Record) -> Option<f64> {
    per_second(record, record.server.cpu_s())
}

/// Cores that the load used: near 1 for each of its threads, the load is what is measured.
pub fn load_cores(record: &Record) -> Option<f64> {
    per_second(record, record.load.cpu_s())
}

/// The most memory that the server had, in bytes.
pub fn memory_bytes(record: &Record) -> Option<f64> {
    Some(record.server.peak_memory_bytes).filter(|bytes| *bytes > 0).map(|bytes| bytes as f64)
}

/// The same in MiB.
pub fn memory_mib(record: &Record) -> Option<f64> {
    memory_bytes(record).map(|bytes| bytes / f64::from(1 << 20))
}

/// The median of latency in milliseconds.
pub fn p50(record: &Record) -> Option<f64> {
    record.latency_ms.as_ref().map(|latency| latency.p50)
}

/// The 99th percentile of latency in milliseconds.
pub fn p99(record: &Record) -> Option<f64> {
    record.latency_ms.as_ref().map(|latency| latency.p99)
}

/// A number for tables and JSON.
pub struct Figure {
    /// Its name in JSON, with the unit.
    pub key: &'static str,
    /// Its name in tables.
    pub name: &'static str,
    /// By what it is multiplied there.
    pub factor: f64,
    /// Where it is taken from.
    pub metric: Metric,
}

const fn figure(key: &'static str, name: &'static str, factor: f64, metric: Metric) -> Figure {
    Figure { key, name, factor, metric }
}

/// All of them but the cost. Context switches are those of the server, voluntary ones when a thread went to sleep.
pub const FIGURES: [Figure; 12] = [
    figure("user_us_per_packet", "user µs", 1.0, user_us),
    figure("system_us_per_packet", "kernel µs", 1.0, kernel_us),
    figure("packets_per_second", "packets/s", 1.0, rate),
    figure("bits_per_second", "Mbit/s", 1e-6, bit_rate),
    figure("server_cpus", "server, % of a core", 100.0, cores),
    figure("load_cpus", "load, % of a core", 100.0, load_cores),
    figure("p50_ms", "p50 ms", 1.0, p50),
    figure("p99_ms", "p99 ms", 1.0, p99),
    figure("peak_memory_bytes", "memory MiB", 1.0 / (1 << 20) as f64, memory_bytes),
    figure("syscalls_per_packet", "calls per packet", 1.0, |run| per_packet(run, run.server.syscalls? as f64)),
    figure("voluntary_per_1000", "switches per 1,000", 1.0, |run| {
        per_packet(run, run.server.voluntary_switches as f64 * 1e3)
    }),
    figure("involuntary_per_1000", "involuntary per 1,000", 1.0, |run| {
        per_packet(run, run.server.involuntary_switches as f64 * 1e3)
    }),
];

/// A number of packets of a run.
pub type Count = fn(&Record) -> Option<u64>;

/// Places where packets are lost.
pub const PLACES: [(&str, Count); 4] = [
    ("listener", |run| run.loss.listener),
    ("relay", |run| run.loss.relay),
    ("client", |run| run.loss.client),
    ("interface", |run| run.loss.interface),
];

/// Packets that the load says it misses.
pub fn missed(record: &Record) -> Option<u64> {
    record.values.get(LOST).map(|lost| *lost as u64)
}
