//! A plan as text.

use std::fmt;

use super::model::{Need, Plan, Resource};
use measure::text::{thousands, trimmed};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { demand, machine, shape, .. } = self;
        writeln!(
            f,
            "{} viewers of {} at {}: {:.0} packets/s to each, {:.0} to a frame",
            thousands(demand.viewers),
            if demand.streams == 1.0 {
                "one stream".to_owned()
            } else {
                format!("{} streams", thousands(demand.streams))
            },
            rate(demand.bitrate_bps),
            shape.packets_per_second,
            shape.packets_per_frame
        )?;
        writeln!(
            f,
            "on machines of {} cores, {}, {}, of which {:.0} % may be used\n",
            machine.cores,
            bytes(machine.memory_bytes),
            rate(machine.nic_bps),
            machine.headroom * 100.0
        )?;
        writeln!(
            f,
            "{} machine{}, {} viewers on each; {} gives out first, at {} viewers\n",
            thousands(self.machines),
            if self.machines == 1.0 { "" } else { "s" },
            thousands(self.viewers_per_machine),
            name(self.first),
            thousands(self.viewers_max)
        )?;
        writeln!(f, "{:<10} {:>14} {:>14} {:>7}   gives out at", "machine", "used", "of", "")?;
        for need in &self.needs {
            let share = need.used / need.available * 100.0;
            writeln!(
                f,
                "{:<10} {:>14} {:>14} {share:>5.1} %   {} viewers",
                name(need.resource),
                amount(need, need.used),
                amount(need, need.available),
                thousands(need.viewers_max)
            )?;
        }
        let packet = &self.per_packet;
        writeln!(
            f,
            "\na packet costs {:.2} µs of CPU here: {:.2} user, {:.2} kernel",
            packet.total_ns() / 1e3,
            packet.user_ns / 1e3,
            packet.kernel_ns / 1e3
        )?;
        writeln!(f, "a core has sent a frame to all its viewers of a stream after {:.1} ms", self.sweep_ms)?;
        writeln!(
            f,
            "joins: {} per second on each machine beside its viewers, {} on an idle one\n",
            thousands(self.joins_per_second.floor()),
            thousands(self.joins_per_second_idle.floor())
        )?;
        writeln!(f, "From {}, {}:", self.source.machine, self.source.when)?;
        for line in &self.measured {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "Extrapolated:")?;
        for line in &self.extrapolated {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

fn name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Network => "network",
        Resource::Memory => "memory",
        Resource::Sessions => "sessions",
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
    match bps {
        bps if bps >= 1e9 => format!("{} Gbit/s", trimmed(bps / 1e9, 2)),
        bps if bps >= 1e6 => format!("{} Mbit/s", trimmed(bps / 1e6, 2)),
        bps => format!("{} kbit/s", trimmed(bps / 1e3, 2)),
    }
}

fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{} GB", trimmed(bytes / 1e9, 2)),
        bytes => format!("{} MB", trimmed(bytes / 1e6, 2)),
    }
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
