//! The model: what a machine with so many viewers needs, and how many it carries.
//!
//! In: `Costs`, a `Demand`, a `Machine`. Out: a `Plan`.
//! How: a viewer's packets per second and per frame follow from its bitrate. What a packet costs is read off the curve
//! that was measured, by viewers per core; what a viewer costs whatever its rate is taken out of that curve at the rate
//! of the measurement, and put back at this one; the kernel's part is scaled by the packets that leave in one send.
//! A machine is full when the first of its limits is reached; that one is named.

use std::cmp::Ordering;

use anyhow::{Result, ensure};
use serde::Serialize;
use strum::{Display, VariantArray};

use super::costs::{Costs, Rooms, Source};

/// Bytes around a datagram on an Ethernet wire: UDP and IPv4 headers; frame, preamble and gap.
const WIRE_BYTES: f64 = 28.0 + 38.0;

/// What is to be carried.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Demand {
    pub viewers: f64,
    /// Over which they are spread evenly.
    pub streams: f64,
    /// Of each stream, headers not counted.
    pub bitrate_bps: f64,
}

/// What one machine has.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Machine {
    pub cores: f64,
    pub memory_bytes: f64,
    pub nic_bps: f64,
    /// The share of each that may be used.
    pub headroom: f64,
}

/// What a viewer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shape {
    pub packets_per_second: f64,
    pub packets_per_frame: f64,
    /// On the wire, Ethernet's part included.
    pub bytes_per_second: f64,
}

impl Shape {
    /// Frames are cut into as few equal packets as can be.
    pub fn of(costs: &Rooms, bitrate_bps: f64) -> Self {
        let stream = &costs.stream;
        let frame_bytes = bitrate_bps / 8.0 / stream.frames_per_second;
        let packets_per_frame = (frame_bytes / stream.payload_bytes_max).ceil().max(1.0);
        Self::with_packets(costs, bitrate_bps, packets_per_frame * stream.frames_per_second)
    }

    /// A stream whose packets were counted.
    pub fn with_packets(costs: &Rooms, bitrate_bps: f64, packets_per_second: f64) -> Self {
        let per_packet = costs.stream.overhead_bytes + WIRE_BYTES;
        Shape {
            packets_per_second,
            packets_per_frame: (packets_per_second / costs.stream.frames_per_second).max(1.0),
            bytes_per_second: bitrate_bps / 8.0 + packets_per_second * per_packet,
        }
    }
}

/// CPU time for one packet to one viewer, everything included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerPacket {
    pub user_ns: f64,
    pub kernel_ns: f64,
}

impl PerPacket {
    pub fn of(costs: &Rooms, shape: &Shape, viewers_per_core: f64) -> Self {
        let measured = Shape::of(costs, costs.stream.bitrate_bps);
        let scale = sends(costs, shape) / sends(costs, &measured);
        let part = |whole: f64, per_second: f64, scale: f64| {
            // A curve may have no room for the viewer's own cost; a packet costs no less than nothing.
            let alone = (whole - per_second / measured.packets_per_second).max(0.0);
            alone * scale + per_second / shape.packets_per_second
        };
        let viewer = &costs.viewer;
        PerPacket {
            user_ns: part(costs.packets.user().at(viewers_per_core), viewer.user_ns_per_second, 1.0),
            kernel_ns: part(costs.packets.kernel().at(viewers_per_core), viewer.kernel_ns_per_second, scale),
        }
    }

    pub fn total_ns(&self) -> f64 {
        self.user_ns + self.kernel_ns
    }
}

/// Kernel time of a datagram, in sends of a frame each.
fn sends(costs: &Rooms, shape: &Shape) -> f64 {
    costs.sends.kernel().at(shape.packets_per_frame.min(costs.sends.segments_max))
}

/// What can give out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Resource {
    #[strum(to_string = "CPU")]
    Cpu,
    Network,
    Memory,
    Sessions,
}

/// How much of a resource one machine needs, and has.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Need {
    pub resource: Resource,
    /// Cores, bit/s, bytes, sessions.
    pub used: f64,
    /// All that the machine has.
    pub available: f64,
    /// Viewers at which the usable share is used up.
    pub viewers_max: f64,
}

/// One machine with so many viewers.
#[derive(Clone, Copy, Debug)]
struct Load<'a> {
    costs: &'a Rooms,
    demand: &'a Demand,
    machine: &'a Machine,
    shape: Shape,
}

impl Load<'_> {
    /// Streams that have viewers on a machine with so many of them, spread evenly.
    fn streams(&self, viewers: f64) -> f64 {
        (viewers * self.demand.streams / self.demand.viewers).ceil().clamp(1.0, self.demand.streams)
    }

    fn used(&self, resource: Resource, viewers: f64) -> f64 {
        let Load { costs, machine, shape, .. } = self;
        let streams = self.streams(viewers);
        let per_core = viewers / machine.cores;
        match resource {
            Resource::Cpu => {
                let packets = viewers * shape.packets_per_second;
                let publisher = costs.publisher.user_ns_per_packet + costs.publisher.kernel_ns_per_packet;
                let out = packets * PerPacket::of(costs, shape, per_core).total_ns();
                (out + streams * shape.packets_per_second * publisher) / 1e9
            }
            Resource::Network => viewers * shape.bytes_per_second * 8.0,
            Resource::Memory => {
                // A stream's log is on each core that has viewers of it.
                let logs = (streams * machine.cores).min(viewers.max(streams));
                costs.memory.bytes(viewers, per_core, logs)
            }
            Resource::Sessions => viewers + streams,
        }
    }

    fn available(&self, resource: Resource) -> f64 {
        match resource {
            Resource::Cpu => self.machine.cores,
            Resource::Network => self.machine.nic_bps,
            Resource::Memory => self.machine.memory_bytes,
            Resource::Sessions => self.costs.limits.sessions_per_core * self.machine.cores,
        }
    }

    /// What of it may be used. The limit of sessions is a setting: no need to stay below.
    fn usable(&self, resource: Resource) -> f64 {
        let share = if resource == Resource::Sessions { 1.0 } else { self.machine.headroom };
        self.available(resource) * share
    }

    /// Viewers at which the usable share is used up, by bisection: whatever is used grows with the viewers.
    fn viewers_max(&self, resource: Resource) -> f64 {
        let (mut low, mut high) = (0.0_f64, 1.0_f64);
        while self.used(resource, high) <= self.usable(resource) && high < 1e15 {
            (low, high) = (high, high * 2.0);
        }
        while high - low > 1.0 {
            let middle = ((low + high) / 2.0).floor();
            if self.used(resource, middle) <= self.usable(resource) { low = middle } else { high = middle }
        }
        low
    }
}

/// What `millrace plan` says.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub demand: Demand,
    pub machine: Machine,
    pub shape: Shape,
    pub machines: f64,
    /// Viewers on each, spread evenly.
    pub viewers_per_machine: f64,
    /// Viewers that one machine carries.
    pub viewers_max: f64,
    /// What gives out first.
    pub first: Resource,
    /// With `viewers_per_machine`.
    pub needs: Vec<Need>,
    pub per_packet: PerPacket,
    /// How long a core takes to send one frame to all its viewers; the last one has it so much later than the first.
    pub sweep_ms: f64,
    /// New viewers per second that a machine takes while it carries its viewers, and all of them that it takes idle.
    pub joins_per_second: f64,
    pub joins_per_second_idle: f64,
    pub source: Source,
    /// What was measured, and how good it is.
    pub measured: Vec<String>,
    /// What goes beyond that.
    pub extrapolated: Vec<String>,
}

impl Plan {
    /// # Errors
    /// When one machine of this kind does not carry even one viewer.
    pub fn new(costs: &Costs, demand: &Demand, machine: &Machine) -> Result<Self> {
        ensure!(machine.cores >= 1.0 && demand.viewers >= 1.0 && demand.streams >= 1.0, "at least one of everything");
        let shape = Shape::of(&costs.rooms, demand.bitrate_bps);
        let load = Load { costs: &costs.rooms, demand, machine, shape };
        let maxima = Resource::VARIANTS.iter().map(|&resource| (resource, load.viewers_max(resource)));
        let (first, viewers_max) = maxima.clone().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Resource::Cpu, 0.0));
        ensure!(viewers_max >= 1.0, "such a machine does not carry one viewer: {first:?} gives out");

        let machines = (demand.viewers / viewers_max).ceil();
        let viewers_per_machine = (demand.viewers / machines).ceil();
        let needs = maxima.map(|(resource, viewers_max)| Need {
            resource,
            used: load.used(resource, viewers_per_machine),
            available: load.available(resource),
            viewers_max,
        });
        let spare_cores = machine.cores * machine.headroom - load.used(Resource::Cpu, viewers_per_machine);
        let join_s = costs.rooms.join.cpu_us / 1e6;
        let per_core = viewers_per_machine / machine.cores;
        let per_packet = PerPacket::of(&costs.rooms, &shape, per_core);
        // Viewers of other streams get their frames at other times.
        let at_once = per_core / load.streams(viewers_per_machine);
        Ok(Plan {
            demand: *demand,
            machine: *machine,
            shape,
            machines,
            viewers_per_machine,
            viewers_max,
            first,
            needs: needs.collect(),
            per_packet,
            sweep_ms: at_once * shape.packets_per_frame * per_packet.total_ns() / 1e6,
            joins_per_second: spare_cores.max(0.0) / join_s,
            joins_per_second_idle: machine.cores * machine.headroom / join_s,
            source: costs.source.clone(),
            measured: costs.origins(),
            extrapolated: extrapolated(costs, &load, machines, viewers_per_machine),
        })
    }
}

fn extrapolated(costs: &Costs, load: &Load<'_>, machines: f64, viewers: f64) -> Vec<String> {
    let (rooms, machine) = (&costs.rooms, load.machine);
    let mut notes = Vec::new();
    let per_core = viewers / machine.cores;
    let curve = rooms.packets.user();
    let (first, last) = curve.ends();
    match curve.reach(per_core) {
        Ordering::Equal => {}
        Ordering::Greater => notes.push(format!(
            "{per_core:.0} viewers per core: measured up to {last:.0}, taken to cost as much per packet as there"
        )),
        Ordering::Less => notes.push(format!(
            "{per_core:.1} viewers per core: measured from {first:.0} on, taken to cost as much per packet as there"
        )),
    }
    if machine.cores != costs.source.cores {
        notes.push(format!(
            "{} cores: measured on {}; workers share no lock, but they do share memory and the network card",
            machine.cores, costs.source.cores
        ));
    }
    if load.demand.bitrate_bps != rooms.stream.bitrate_bps {
        notes.push(format!(
            "{} Mbit/s: measured at {}; the packets are computed",
            load.demand.bitrate_bps / 1e6,
            rooms.stream.bitrate_bps / 1e6
        ));
    }
    if load.demand.streams > 1.0 {
        notes.push("several streams: measured with one; batches are taken to be as large as with one".to_owned());
    }
    if machines > 1.0 {
        let alone = "millrace does not spread viewers over machines, and each needs the streams once more";
        notes.push(format!("several machines: {alone}"));
    }
    notes.push("a network card: measured on loopback, without a driver and its interrupts".to_owned());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round numbers: 10 packets a second of 1,000 bytes, one to a frame.
    const SIMPLE: &str = r#"
        source = { machine = "made up", when = "never", cores = 1 }
        [rooms]
        stream = { basis = "assumed", from = "", bitrate_bps = 80_000, frames_per_second = 10, payload_bytes_max = 1_000, overhead_bytes = 34 }
        packets = { basis = "assumed", from = "", curve = [
            { viewers_per_core = 10, user_ns = 5_000, kernel_ns = 5_000 },
            { viewers_per_core = 1_000, user_ns = 3_000, kernel_ns = 2_000 },
        ] }
        sends = { basis = "assumed", from = "", segments_max = 4, curve = [
            { segments = 1, kernel_ns = 2_000 },
            { segments = 4, kernel_ns = 1_000 },
        ] }
        viewer = { basis = "assumed", from = "", user_ns_per_second = 10_000, kernel_ns_per_second = 5_000 }
        publisher = { basis = "assumed", from = "", user_ns_per_packet = 1_000, kernel_ns_per_packet = 1_000 }
        memory = { basis = "assumed", from = "", bytes_base = 5_000_000, bytes_per_stream = 1_000_000, curve = [{ viewers_per_core = 1, bytes_per_viewer = 100_000 }] }
        join = { basis = "assumed", from = "", cpu_us = 2_000 }
        limits = { basis = "assumed", from = "", sessions_per_core = 20_000 }
    "#;

    fn simple() -> Costs {
        Costs::parse(SIMPLE).unwrap()
    }

    fn demand(viewers: f64) -> Demand {
        Demand { viewers, streams: 1.0, bitrate_bps: 80_000.0 }
    }

    const LARGE: Machine = Machine { cores: 1.0, memory_bytes: 1e12, nic_bps: 1e12, headroom: 1.0 };

    fn need(plan: &Plan, resource: Resource) -> f64 {
        plan.needs.iter().find(|need| need.resource == resource).unwrap().used
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs()
    }

    #[test]
    fn packets_follow_from_the_bitrate() {
        // 80 kbit/s at 10 frames a second: 1,000 bytes a frame, and 100 more around each packet.
        let shape = Shape::of(&simple().rooms, 80_000.0);
        assert_eq!(shape, Shape { packets_per_second: 10.0, packets_per_frame: 1.0, bytes_per_second: 11_000.0 });
        // 200 kbit/s: 2,500 bytes a frame, in three packets.
        let shape = Shape::of(&simple().rooms, 200_000.0);
        assert_eq!(shape, Shape { packets_per_second: 30.0, packets_per_frame: 3.0, bytes_per_second: 28_000.0 });
    }

    #[test]
    fn at_a_measured_point_a_packet_costs_what_was_measured() {
        let costs = simple();
        let shape = Shape::of(&costs.rooms, 80_000.0);
        assert_eq!(PerPacket::of(&costs.rooms, &shape, 10.0), PerPacket { user_ns: 5_000.0, kernel_ns: 5_000.0 });
        // Half way from 10 to 1,000, over the logarithm.
        let between = PerPacket::of(&costs.rooms, &shape, 100.0);
        assert!(close(between.user_ns, 4_000.0) && close(between.kernel_ns, 3_500.0), "{between:?}");
    }

    #[test]
    fn at_another_rate_feedback_is_spread_over_more_packets_and_sends_are_larger() {
        let costs = simple();
        // 40 packets a second, four to a send.
        let shape = Shape::of(&costs.rooms, 320_000.0);
        let cost = PerPacket::of(&costs.rooms, &shape, 10.0);
        // User: 5,000 less 10,000/10, and 10,000/40. Kernel: (5,000 - 5,000/10) × 1,000/2,000 + 5,000/40.
        assert!(close(cost.user_ns, 4_250.0) && close(cost.kernel_ns, 2_375.0), "{cost:?}");
    }

    #[test]
    fn one_machine_needs_what_can_be_computed_by_hand() {
        let plan = Plan::new(&simple(), &demand(1_000.0), &LARGE).unwrap();
        assert_eq!(plan.machines, 1.0);
        // 10,000 packets at 5 µs, and the publisher's 10 at 2 µs.
        assert!(close(need(&plan, Resource::Cpu), 0.050_02));
        // 10 packets of 1,000 + 34 + 66 bytes, 8 bits each, 1,000 times.
        assert!(close(need(&plan, Resource::Network), 88e6));
        // 100 KB each, the stream's log, and the server itself.
        assert!(close(need(&plan, Resource::Memory), 106e6));
        assert_eq!(need(&plan, Resource::Sessions), 1_001.0);
        // A packet of 5 µs to each of 1,000.
        assert!(close(plan.sweep_ms, 5.0), "{}", plan.sweep_ms);
        // 0.94998 cores are free, 2 ms each.
        assert!(close(plan.joins_per_second, 474.99), "{}", plan.joins_per_second);
    }

    #[test]
    fn what_gives_out_first_is_named_and_decides_the_number_of_machines() {
        let million = demand(1e6);
        let first = |machine: Machine| {
            let plan = Plan::new(&simple(), &million, &machine).unwrap();
            (plan.first, plan.viewers_max, plan.machines)
        };
        // 88 kbit/s each: 1,000 in 88 Mbit/s.
        assert_eq!(first(Machine { nic_bps: 88e6, ..LARGE }), (Resource::Network, 1_000.0, 1_000.0));
        // Of which half may be used.
        assert_eq!(first(Machine { nic_bps: 88e6, headroom: 0.5, ..LARGE }).1, 500.0);
        // 0.1 MB each, 1 MB for the log, 5 MB for the server: 90 in 15 MB.
        assert_eq!(first(Machine { memory_bytes: 15e6, ..LARGE }).0, Resource::Memory);
        assert_eq!(first(Machine { memory_bytes: 15e6, ..LARGE }).1, 90.0);
        // Beyond the last point 50 µs a second each, less 20 µs for the publisher: 19,999.6.
        assert_eq!(first(LARGE), (Resource::Cpu, 19_999.0, 51.0));
        // Half the cost, and the limit of sessions comes first; the publisher is one.
        let cheap = SIMPLE.replace("user_ns = 3_000, kernel_ns = 2_000", "user_ns = 1_200, kernel_ns = 1_000");
        let plan = Plan::new(&Costs::parse(&cheap).unwrap(), &million, &LARGE).unwrap();
        assert_eq!((plan.first, plan.viewers_max), (Resource::Sessions, 19_999.0));
    }

    #[test]
    fn rooms_are_spread_over_the_machines_and_each_publisher_costs() {
        let rooms = Demand { streams: 100.0, ..demand(1_000.0) };
        let plan = Plan::new(&simple(), &rooms, &LARGE).unwrap();
        assert!(close(need(&plan, Resource::Cpu), 0.052), "{}", need(&plan, Resource::Cpu));
        assert_eq!(need(&plan, Resource::Sessions), 1_100.0);
    }

    #[test]
    fn a_machine_that_is_too_small_for_one_viewer_is_an_error() {
        let tiny = Machine { nic_bps: 1_000.0, ..LARGE };
        let error = Plan::new(&simple(), &demand(10.0), &tiny).unwrap_err().to_string();
        assert!(error.contains("Network gives out"), "{error}");
    }

    #[test]
    fn what_goes_beyond_the_measurements_is_said() {
        let notes = |viewers, machine: Machine| Plan::new(&simple(), &demand(viewers), &machine).unwrap().extrapolated;
        let alike = notes(500.0, LARGE);
        assert_eq!(alike.len(), 1, "{alike:?}");
        assert!(alike[0].starts_with("a network card"), "{alike:?}");
        let beyond = notes(1e6, Machine { cores: 16.0, ..LARGE }).join("\n");
        for note in ["measured up to 1000", "16 cores: measured on 1", "several machines"] {
            assert!(beyond.contains(note), "{beyond}");
        }
        assert!(notes(3.0, LARGE)[0].contains("measured from 10 on"));
    }
}
