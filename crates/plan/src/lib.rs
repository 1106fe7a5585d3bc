//! `millrace plan`: how many machines of what kind carry so many viewers, what gives out first, and why.
//!
//! In: viewers, bitrate, rooms, a machine; costs that were measured (docs/bench/costs.toml, or another file).
//! Out: cores, bandwidth and memory, the number of machines, the joins they take per second, and what of it is measured
//! and what is extrapolated. With `--check` the prediction beside measured runs, and the error at each size.
//! How: see `model`. Every number of the model is in the costs file, none in the code.
#![forbid(unsafe_code)]

mod check;
mod costs;
mod model;
mod report;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use measure::report::print;
use wire::Bitrate;

use costs::Costs;
use model::{Demand, Machine, Plan};

/// Options of `millrace plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Viewers in all. One that watches several streams counts once for each.
    #[arg(long, value_name = "N", value_parser = count, required_unless_present = "check")]
    pub viewers: Option<f64>,
    /// Of the stream that a viewer gets.
    #[arg(long, value_name = "RATE", default_value = "1.5M")]
    pub bitrate: Bitrate,
    /// Rooms that the viewers are spread over evenly.
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    pub rooms: f64,
    /// Publishers in each room; each viewer watches one of them.
    #[arg(long, value_name = "N", value_parser = count, default_value = "1")]
    pub publishers: f64,
    /// What the viewers use.
    #[arg(long, value_enum, default_value_t = Service::Rooms)]
    pub service: Service,
    /// Cores of one machine.
    #[arg(long, value_name = "N", value_parser = count, default_value = "16")]
    pub cores: f64,
    /// Memory of one machine, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = count, default_value = "64G")]
    pub memory: f64,
    /// Network card of one machine, in bit/s.
    #[arg(long, value_name = "RATE", default_value = "25G")]
    pub nic: Bitrate,
    /// The share of each that may be used.
    #[arg(long, value_name = "SHARE", default_value_t = 0.7)]
    pub headroom: f64,
    /// Costs that were measured elsewhere, instead of those that are built in (docs/bench/costs.toml).
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Holds the prediction against the results of `millrace ab` in this directory, and prints the error at each size.
    #[arg(long, value_name = "RESULTS_DIR")]
    pub check: Option<PathBuf>,
    /// The subject of the results that is millrace.
    #[arg(long, value_name = "NAME", default_value = "millrace", requires = "check")]
    pub subject: String,
    /// Prints JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Those that there is a model of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Service {
    /// WebRTC rooms: WHIP in, WHEP out.
    Rooms,
}

/// A number such as 2000, 1e6, 1_000_000, 500k or 1.5M.
fn count(text: &str) -> Result<f64, String> {
    let plain = text.replace('_', "").parse::<f64>().ok();
    let value = plain.or_else(|| text.parse::<Bitrate>().ok().map(|rate| rate.bps() as f64));
    let value = value.filter(|value| (1.0..1e15).contains(value));
    value.ok_or_else(|| "a number over 0, such as 2000, 500k, 1e6 or 64G".to_owned())
}

impl Args {
    fn costs(&self) -> Result<Costs> {
        let Some(path) = &self.costs else { return Costs::built_in() };
        let read = || Costs::parse(&std::fs::read_to_string(path)?);
        read().with_context(|| format!("read {}", path.display()))
    }

    fn machine(&self) -> Result<Machine> {
        ensure!(self.headroom > 0.0 && self.headroom <= 1.0, "--headroom is a share between 0 and 1");
        ensure!(self.bitrate > Bitrate::ZERO && self.nic > Bitrate::ZERO, "--bitrate and --nic are over 0");
        Ok(Machine {
            cores: self.cores.floor(),
            memory_bytes: self.memory,
            nic_bps: self.nic.bps() as f64,
            headroom: self.headroom,
        })
    }

    fn demand(&self, viewers: f64) -> Demand {
        let streams = (self.rooms.floor() * self.publishers.floor()).min(1e12);
        Demand { viewers: viewers.floor(), streams, bitrate_bps: self.bitrate.bps() as f64 }
    }
}

/// The whole command: predicts, or checks, and prints.
///
/// # Errors
/// When an option makes no sense, a file cannot be read, or no machine of this kind carries even one viewer.
pub fn execute(args: &Args) -> Result<()> {
    let costs = args.costs()?;
    let machine = args.machine()?;
    let Service::Rooms = args.service;
    if let Some(directory) = &args.check {
        let check = check::check(&costs, directory, &args.subject)?;
        return print(args.json, &check);
    }
    let viewers = args.viewers.context("--viewers")?;
    let plan = Plan::new(&costs, &args.demand(viewers), &machine)?;
    print(args.json, &plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        assert_eq!(count("2000"), Ok(2_000.0));
        assert_eq!(count("1e6"), Ok(1e6));
        assert_eq!(count("1_000_000"), Ok(1e6));
        assert_eq!(count("64G"), Ok(64e9));
        for wrong in ["", "0", "-3", "nan", "inf", "many", "1e99"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
