//! `millrace bench allocations`: what many allocations on one worker take, and what packets notice when all of them end at
//! once.
//!
//! In: how many, and whether each has a socket. Out: CPU time of making, refreshing and ending one, memory, and the longest
//! turn; with sockets the kernel's part of these, and how long packets of another client took meanwhile.
//! How: one thread, the relay's own code. Without sockets (`alone`) there is no engine and no kernel, and time is set. With
//! them (`sockets`) a worker serves clients on loopback, as many as the limit of open files lets it.

mod alone;
mod client;
mod sockets;
mod workers;

use std::fmt;

use anyhow::Result;
use measure::report::{self, Table};
use serde::Serialize;

use crate::comparison::at_least;

/// Options of `millrace bench allocations`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How many.
    #[arg(long, value_parser = at_least(1), default_value_t = 50_000)]
    pub count: usize,
    /// Each has a socket, as far as the limit of open files goes.
    #[arg(long, conflicts_with = "workers")]
    pub sockets: bool,
    /// So many workers' relays instead, on as many threads: what packets cost when one of them works, and when all do.
    #[arg(long, value_parser = at_least(2))]
    pub workers: Option<usize>,
    /// Prints JSON instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints.
///
/// # Errors
/// When a request is not granted, or a socket is not to be had.
pub fn execute(args: &Args) -> Result<()> {
    let count = args.count.min(alone::COUNT_MAX);
    match args.workers {
        Some(workers) => report::print(args.json, &Workers(workers::measure_all(workers)?)),
        None if args.sockets => report::print(args.json, &WithSockets(sockets::measure(count)?)),
        None => report::print(args.json, &Alone(alone::measure(count)?)),
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Alone(alone::Costs);

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = &self.0;
        let mut table = Table::of_facts();
        table.text(format!("{} allocations with a channel each, without sockets", costs.count));
        table.fact("making one", format!("{:.2} µs", costs.made_ns / 1e3));
        table.fact("refreshing one", format!("{:.2} µs", costs.refreshed_ns / 1e3));
        table.fact("memory of one", format!("{:.0} bytes", costs.bytes));
        table.fact("a turn, nothing due", format!("{:.0} ns", costs.idle_turn_ns));
        table.fact("the end of one", format!("{:.2} µs, all due at once", costs.ended_ns / 1e3));
        let alone::Costs { end_turns, end_turn_max_us, end_ms, .. } = costs;
        table.fact("the end of all", format!("{end_ms:.0} ms, {end_turns} turns, the longest {end_turn_max_us:.0} µs"));
        table.fmt(f)
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct WithSockets(sockets::Costs);

impl fmt::Display for WithSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = &self.0;
        let mut table = Table::of_facts();
        table.text(format!("{} allocations with a channel and a socket each", costs.count));
        let sockets::Costs { made_ns, made_per_second, bytes, kernel_bytes, ended_ns, end_ms, .. } = costs;
        table.fact("making one", format!("{:.2} µs of the worker, {made_per_second:.0} a second", made_ns / 1e3));
        table.fact("memory of one", format!("{bytes:.0} bytes, and {kernel_bytes:.0} of the kernel's"));
        table.fact("the end of one", format!("{:.2} µs of the worker, all due at once", ended_ns / 1e3));
        table.fact("the end of all", format!("{end_ms:.0} ms"));
        table.fact("packets before", costs.before.to_string());
        table.fact("packets meanwhile", costs.meanwhile.to_string());
        table.fmt(f)
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Workers(workers::Costs);

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers::Costs { workers, users, one_user } = self.0;
        let mut table = Table::of_facts();
        table.text(format!("{workers} workers' relays, without a kernel: CPU time of a packet"));
        for (name, pair) in [("many users", users), ("one user", one_user)] {
            let workers::Pair { alone_ns, together_ns, core_share } = pair;
            let (times, share) = (pair.times(workers), core_share * 100.0);
            let cost =
                format!("{alone_ns:.0} ns alone, {together_ns:.0} ns together, each with {share:.0} % of a core");
            table.fact(name, format!("{cost}: {times:.2} times one's"));
        }
        table.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_made_refreshed_and_ended_without_sockets() {
        let costs = alone::measure(200).unwrap();
        assert!(costs.count == 200 && costs.end_turns >= 200 / 64, "{costs:?}");
    }

    #[test]
    fn packets_of_several_workers_are_relayed_alone_and_together() {
        let costs = workers::measure(2, 1_000).unwrap();
        assert!(costs.users.alone_ns > 0.0 && costs.one_user.times(2) > 0.0, "{costs:?}");
    }

    #[test]
    fn each_is_made_and_ended_with_its_socket_and_packets_pass_meanwhile() {
        let costs = sockets::measure(200).unwrap();
        assert!(costs.count == 200 && costs.before.count > 0, "{costs:?}");
    }
}
