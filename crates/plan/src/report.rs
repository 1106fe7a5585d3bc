//! A plan as text.

use std::fmt;

use super::model::{Need, Plan, Resource};
use measure::report::Table;
use measure::text::{thousands, trimmed};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_answer(f)?;
        let mut needs = Table::new("lrrrl");
        needs.head("machine".to_owned(), &["used", "of", "", "gives out at"]);
        for need in &self.needs {
            needs.row([
                need.resource.to_string(),
                amount(need, need.used),
                amount(need, need.available),
                format!("{:.1} %", need.used / need.available * 100.0),
                format!("{} viewers", thousands(need.viewers_max)),
            ]);
        }
        write!(f, "{needs}")?;
        let packet = &self.per_packet;
        let [total, user, kernel] = [packet.total_ns(), packet.user_ns, packet.kernel_ns].map(|ns| ns / 1e3);
        writeln!(f, "\na packet costs {total:.2} µs of CPU here: {user:.2} user, {kernel:.2} kernel")?;
        writeln!(f, "a core has sent a frame to all its viewers of a stream after {:.1} ms", self.sweep_ms)?;
        let [beside, idle] = [self.joins_per_second, self.joins_per_second_idle].map(|joins| thousands(joins.floor()));
        writeln!(f, "joins: {beside} per second on each machine beside its viewers, {idle} on an idle one\n")?;
        writeln!(f, "From {}, {}:", self.source.machine, self.source.when)?;
        self.measured.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        writeln!(f, "Extrapolated:")?;
        self.extrapolated.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl Plan {
    /// What was asked, how many machines it takes, and what gives out first.
    fn write_answer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { demand, machine, shape, .. } = self;
        let viewers = thousands(demand.viewers);
        let streams = match demand.streams {
            1.0 => "one stream".to_owned(),
            streams => format!("{} streams", thousands(streams)),
        };
        let (bitrate, per_second, per_frame) =
            (rate(demand.bitrate_bps), shape.packets_per_second, shape.packets_per_frame);
        writeln!(
            f,
            "{viewers} viewers of {streams} at {bitrate}: {per_second:.0} packets/s to each, {per_frame:.0} to a frame"
        )?;
        let (memory, nic, percent) = (bytes(machine.memory_bytes), rate(machine.nic_bps), machine.headroom * 100.0);
        writeln!(f, "on machines of {} cores, {memory}, {nic}, of which {percent:.0} % may be used\n", machine.cores)?;
        let plural = if self.machines == 1.0 { "" } else { "s" };
        let [machines, on_each, most] = [self.machines, self.viewers_per_machine, self.viewers_max].map(thousands);
        let first = self.first;
        writeln!(
            f,
            "{machines} machine{plural}, {on_each} viewers on each; {first} gives out first, at {most} viewers\n"
        )
    }
}

fn amount(need: &Need, value: f64) -> String {
    match need.resource {
        Resource::Cpu => format!("{value:.2} cores"),
        Resource::Network => rate(value),
        Resource::Memory => bytes(value),
        Resource::Sessions => thousands(value),
    }
}

fn rate(bps: f64) -> String {
    in_units(bps, &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")])
}

fn bytes(bytes: f64) -> String {
    in_units(bytes, &[(1e9, "GB"), (1e6, "MB")])
}

/// In the first unit that it reaches, or the last.
fn in_units(value: f64, units: &[(f64, &str)]) -> String {
    let unit = units.iter().find(|unit| value >= unit.0).or(units.last());
    unit.map_or_else(String::new, |(size, name)| format!("{} {name}", trimmed(value / size, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::model::{Demand, Machine};

    #[test]
    fn amounts_are_written_as_people_read_them() {
        assert_eq!([rate(300e3), rate(1.5e6), rate(25e9)], ["300 kbit/s", "1.5 Mbit/s", "25 Gbit/s"]);
        assert_eq!([bytes(64e9), bytes(1.25e6)], ["64 GB", "1.25 MB"]);
    }

    #[test]
    fn a_plan_says_how_many_machines_why_and_what_it_rests_on() {
        let demand = Demand { viewers: 1e6, streams: 1.0, bitrate_bps: 2e6 };
        let machine = Machine { cores: 16.0, memory_bytes: 64e9, nic_bps: 25e9, headroom: 0.7 };
        let plan = Plan::new(&Costs::built_in().unwrap(), &demand, &machine).unwrap();
        let text = plan.to_string();
        for part in
            ["1,000,000 viewers of one stream at 2 Mbit/s", "gives out first", "Extrapolated:", "a join: derived"]
        {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
