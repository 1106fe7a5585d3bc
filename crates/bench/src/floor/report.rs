//! The floor as a table and as lines of JSON.

use serde::Serialize;

use super::file::{PIECE_BYTES, SEGMENT_BYTES};
use super::{Args, Outcome, WAYS, Way, What};
use crate::comparison::{Options, Sample, middle, values};
use measure::report::Table;
use measure::rounds::Ratio;

/// One way, and what it costs where it is there.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub path: &'static str,
    /// Datagrams of a message, where a message can have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<usize>,
    /// Bytes of the unit that the costs are of.
    pub bytes: usize,
    /// Where it went: "loopback", an address, or nowhere for what only computes.
    pub to: String,
    #[serde(flatten)]
    pub costs: Option<Costs>,
    /// Why there are no costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<&'static str>,
}

/// CPU nanoseconds of one unit: a datagram, or for sendfile 1,448 bytes. Medians over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Costs {
    /// User space and kernel together.
    pub cpu_ns: f64,
    pub user_ns: f64,
    pub kernel_ns: f64,
    /// Where the median of `cpu_ns` lies with 95 % confidence.
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
    /// In all rounds.
    pub units: u64,
}

impl Costs {
    /// `None` without samples.
    fn of(samples: &[Sample]) -> Option<Self> {
        let cpu = values(samples, Sample::cpu_ns);
        // The interval of a median is that of its ratio to one.
        let interval = Ratio::of(&cpu, &vec![1.0; cpu.len()])?;
        Some(Costs {
            cpu_ns: interval.median,
            user_ns: middle(samples, Sample::user_ns),
            kernel_ns: middle(samples, Sample::system_ns),
            low: interval.low,
            high: interval.high,
            rounds: samples.len(),
            units: samples.iter().map(|sample| sample.sent).sum(),
        })
    }
}

/// The outcomes of each of `WAYS`, round by round.
pub(super) fn rows(args: &Args, outcomes: &[Vec<Outcome>]) -> Vec<Row> {
    let row = |(way, outcomes): (&Way, &Vec<Outcome>)| {
        let samples: Result<Vec<Sample>, &str> = outcomes.iter().cloned().collect();
        Row {
            path: way.name,
            segments: way.segments,
            bytes: if way.what == What::File { SEGMENT_BYTES } else { args.size },
            to: match (way.what, args.to) {
                (What::Seal(_), _) => "nowhere".to_owned(),
                (What::SendEach | What::Send, Some(addr)) => addr.to_string(),
                _ => "loopback".to_owned(),
            },
            costs: samples.as_deref().ok().and_then(Costs::of),
            absent: samples.err(),
        }
    };
    WAYS.iter().zip(outcomes).map(row).collect()
}

pub(super) fn table(args: &Args, rows: &[Row]) -> Table {
    let Args { size, to, options: Options { rounds, seconds, .. } } = args;
    let to = to.map_or_else(|| "sockets on loopback that nobody reads".to_owned(), |addr| addr.to_string());
    let mut table = Table::new("lrlrr");
    table.text(format!("{size}-byte datagrams, {rounds} rounds of {seconds:?}; sends go to {to}"));
    table.text(format!(
        "CPU ns per datagram, median (95 % interval); sendfile in pieces of {} KB, per {SEGMENT_BYTES} bytes\n",
        PIECE_BYTES >> 10
    ));
    table.head(String::new(), &["CPU ns", "", "user", "kernel"]);
    for row in rows {
        let name = match row.segments {
            Some(segments) => format!("{} × {segments}", row.path),
            None => row.path.to_owned(),
        };
        let Some(Costs { cpu_ns, user_ns, kernel_ns, low, high, .. }) = row.costs else {
            table.text(format!("{name} absent: {}", row.absent.unwrap_or("not measured")));
            continue;
        };
        let [cpu, user, kernel] = [cpu_ns, user_ns, kernel_ns].map(|ns| format!("{ns:.0}"));
        table.row([name, cpu, format!("({low:.0}–{high:.0})"), user, kernel]);
    }
    table
}

#[cfg(test)]
mod tests {
    use measure::cpu::{CpuTime, Spent};

    use super::*;

    #[test]
    fn costs_are_medians_per_unit() {
        let sample = |cpu_ns, user_ns| {
            let cpu = CpuTime { user: user_ns * 1e-9, system: (cpu_ns - user_ns) * 1e-9 };
            Sample { sent: 10, spent: Spent { cpu, ..Spent::default() }, ..Sample::default() }
        };
        let costs = Costs::of(&[sample(100.0, 40.0), sample(300.0, 60.0), sample(200.0, 50.0)]).unwrap();
        assert_eq!([costs.cpu_ns, costs.user_ns, costs.kernel_ns].map(f64::round), [20.0, 5.0, 15.0]);
        assert_eq!([costs.low, costs.high].map(f64::round), [10.0, 30.0]);
        assert_eq!((costs.rounds, costs.units), (3, 30));
        assert!(Costs::of(&[]).is_none());
    }
}
