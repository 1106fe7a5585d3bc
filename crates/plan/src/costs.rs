//! What was measured: the costs file, and curves through its points.
//!
//! In: TOML, see docs/bench/costs.toml. Out: costs at any size, each with where it lies to the measured points.
//! Between two points a curve is straight over the logarithm of its x axis; outside of them it stays at the last one.

use std::cmp::Ordering;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

const BUILT_IN: &str = include_str!("../../../docs/bench/costs.toml");

/// All costs of all services.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    pub source: Source,
    pub rooms: Rooms,
}

/// Where and when it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub machine: String,
    pub when: String,
    pub cores: f64,
}

/// How good a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    Measured,
    /// Computed from measurements.
    Derived,
    /// A default of the server's configuration.
    Setting,
    /// None of these.
    Assumed,
}

/// The costs of the rooms.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rooms {
    pub stream: Stream,
    pub packets: Packets,
    pub sends: Sends,
    pub viewer: Viewer,
    pub publisher: Publisher,
    pub memory: Memory,
    pub join: Join,
    pub limits: Limits,
}

/// Declares parts of the file: each says how good its numbers are, and from what they come.
macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident { $($fields:tt)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            pub basis: Basis,
            pub from: String,
            $($fields)*
        }
    )*};
}

parts! {
    /// The stream that was measured with.
    Stream {
        pub bitrate_bps: f64,
        pub frames_per_second: f64,
        pub payload_bytes_max: f64,
        /// RTP header and SRTP tag.
        pub overhead_bytes: f64,
    }
    /// CPU time of the whole server for each packet that reached a viewer.
    Packets { pub curve: Vec<PacketPoint>, }
    /// Kernel time of a datagram, by how many leave in one send.
    Sends {
        pub curve: Vec<SendPoint>,
        pub segments_max: f64,
    }
    /// What a viewer costs whatever its stream's rate.
    Viewer {
        pub user_ns_per_second: f64,
        pub kernel_ns_per_second: f64,
    }
    Publisher {
        pub user_ns_per_packet: f64,
        pub kernel_ns_per_packet: f64,
    }
    Memory {
        pub curve: Vec<MemoryPoint>,
        /// Of a server without anybody.
        pub bytes_base: f64,
        /// For each core with viewers of it.
        pub bytes_per_stream: f64,
    }
    Join { pub cpu_us: f64, }
    Limits { pub sessions_per_core: f64, }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketPoint {
    pub viewers_per_core: f64,
    pub user_ns: f64,
    pub kernel_ns: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendPoint {
    pub segments: f64,
    pub kernel_ns: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPoint {
    pub viewers_per_core: f64,
    pub bytes_per_viewer: f64,
}

impl Costs {
    /// Those of docs/bench/costs.toml.
    ///
    /// # Errors
    /// Never: the tests read it.
    pub fn built_in() -> Result<Self> {
        Self::parse(BUILT_IN).context("read the built-in costs")
    }

    /// # Errors
    /// When it is not TOML of this form, a number is not over 0, or a curve does not rise on its x axis.
    pub fn parse(text: &str) -> Result<Self> {
        let costs: Costs = toml::from_str(text)?;
        check_numbers("", &toml::Value::Table(text.parse()?))?;
        let Rooms { packets, sends, memory, .. } = &costs.rooms;
        packets.user().check("rooms.packets.curve")?;
        sends.kernel().check("rooms.sends.curve")?;
        memory.per_viewer().check("rooms.memory.curve")?;
        Ok(costs)
    }

    /// How good each part is, and from what it comes.
    pub fn origins(&self) -> Vec<String> {
        let Rooms { stream, packets, sends, viewer, publisher, memory, join, limits } = &self.rooms;
        let parts = [
            ("stream", stream.basis, &stream.from),
            ("cost of a packet", packets.basis, &packets.from),
            ("cost by packets per send", sends.basis, &sends.from),
            ("feedback and timers", viewer.basis, &viewer.from),
            ("cost of a publisher's packet", publisher.basis, &publisher.from),
            ("memory", memory.basis, &memory.from),
            ("cost of a join", join.basis, &join.from),
            ("limit of sessions", limits.basis, &limits.from),
        ];
        parts.map(|(what, basis, from)| format!("{what}: {}, {from}", format!("{basis:?}").to_lowercase())).into()
    }
}

/// All are over 0, wherever they stand.
fn check_numbers(name: &str, value: &toml::Value) -> Result<()> {
    let number = value.as_float().or(value.as_integer().map(|number| number as f64));
    let is_sound = number.is_none_or(|number| number > 0.0 && number.is_finite());
    ensure!(is_sound, "{name} is a number over 0, not {value}");
    match value {
        toml::Value::Table(table) => table.iter().try_for_each(|(key, value)| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            check_numbers(&name, value)
        }),
        toml::Value::Array(values) => values.iter().try_for_each(|value| check_numbers(name, value)),
        _ => Ok(()),
    }
}

impl Packets {
    pub fn user(&self) -> Curve {
        Curve(self.curve.iter().map(|point| (point.viewers_per_core, point.user_ns)).collect())
    }

    pub fn kernel(&self) -> Curve {
        Curve(self.curve.iter().map(|point| (point.viewers_per_core, point.kernel_ns)).collect())
    }
}

impl Sends {
    pub fn kernel(&self) -> Curve {
        Curve(self.curve.iter().map(|point| (point.segments, point.kernel_ns)).collect())
    }
}

impl Memory {
    /// Of one server, whose logs are on so many cores, all streams taken together.
    pub fn bytes(&self, viewers: f64, viewers_per_core: f64, logs: f64) -> f64 {
        self.bytes_base + viewers * self.per_viewer().at(viewers_per_core) + logs * self.bytes_per_stream
    }

    pub fn per_viewer(&self) -> Curve {
        Curve(self.curve.iter().map(|point| (point.viewers_per_core, point.bytes_per_viewer)).collect())
    }
}

/// Measured points, rising on the x axis.
#[derive(Clone, Debug)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    fn check(&self, name: &str) -> Result<()> {
        ensure!(!self.0.is_empty(), "{name} has at least one point");
        ensure!(self.0.windows(2).all(|pair| pair[0].0 < pair[1].0), "{name} rises on its x axis");
        Ok(())
    }

    /// The value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        let after = self.0.partition_point(|(known, _)| *known < x);
        match (after.checked_sub(1).and_then(|before| self.0.get(before)), self.0.get(after)) {
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (x / x0).ln() / (x1 / x0).ln(),
            (Some((_, y)), None) | (None, Some((_, y))) => *y,
            (None, None) => 0.0,
        }
    }

    /// Where a value lies to the points: before all, among them, or behind all.
    pub fn reach(&self, x: f64) -> Ordering {
        match self.ends() {
            (first, _) if x < first => Ordering::Less,
            (_, last) if x > last => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// The smallest and the largest x that were measured.
    pub fn ends(&self) -> (f64, f64) {
        self.0.first().zip(self.0.last()).map_or((0.0, 0.0), |((first, _), (last, _))| (*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_costs_can_be_read() {
        let costs = Costs::built_in().unwrap();
        assert!(costs.source.cores >= 1.0);
        assert!(costs.rooms.packets.curve.len() >= 3);
    }

    #[test]
    fn a_curve_goes_through_its_points_and_is_straight_over_the_logarithm_between_them() {
        let curve = Curve(vec![(10.0, 8.0), (1_000.0, 2.0)]);
        assert_eq!((curve.at(10.0), curve.at(1_000.0)), (8.0, 2.0));
        // 100 is half way from 10 to 1,000.
        assert!((curve.at(100.0) - 5.0).abs() < 1e-9);
        assert_eq!(curve.reach(100.0), Ordering::Equal);
    }

    #[test]
    fn outside_of_its_points_a_curve_is_flat_and_says_so() {
        let curve = Curve(vec![(10.0, 8.0), (1_000.0, 2.0)]);
        assert_eq!((curve.at(1.0), curve.reach(1.0)), (8.0, Ordering::Less));
        assert_eq!((curve.at(1e6), curve.reach(1e6)), (2.0, Ordering::Greater));
    }

    #[test]
    fn costs_that_make_no_sense_are_refused() {
        for (from, to) in [
            ("cores = 2", "cores = 0"),
            ("cores = 2", "cores = 2\nspeed = 3"),
            ("viewers_per_core = 50, user", "viewers_per_core = 5, user"),
            ("kernel_ns = 5_100", "kernel_ns = -1"),
            ("basis = \"derived\"", "basis = \"hoped\""),
        ] {
            assert!(BUILT_IN.contains(from), "{from}");
            assert!(Costs::parse(&BUILT_IN.replacen(from, to, 1)).is_err(), "{to}");
        }
        assert!(Costs::parse("").is_err());
    }
}
