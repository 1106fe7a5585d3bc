//! What `millrace load reflect` is told on the command line, and what of it makes no sense.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use measure::text::seconds;
use wire::Bitrate;

use super::source::{Place, Source};
use super::stream::Stream;
use super::target::Target;
use super::viewer::Role;
use crate::clients::{Addresses, Common};

/// On loopback the viewers of a thread have addresses of such a network of 127.0.0.0/8, from this one on. There are so many.
const VIEWERS_NETWORK: u8 = 64;
const THREADS_MAX: u8 = 128;

/// A connection of one who reads slowly is to hold little, or it would take long until the server notices.
const SLOW_BUFFER_BYTES: usize = 64 << 10;

/// Watches a stream by HTTP with as many viewers as asked for, and measures what they see.
///
/// With --origin or --push the stream is made here, and each of its packets says which it is and when it was sent. Without,
/// nothing but bytes is looked at, unless --made says that another process makes it with the same --rate and --interval.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The stream: a whole URL, or its path at --url.
    #[arg(long, value_name = "URL", default_value = "/live/load")]
    pub stream: String,
    /// Viewers who stay.
    #[arg(long, default_value_t = 100)]
    pub viewers: usize,
    /// How many come in a second.
    #[arg(long, value_name = "N", default_value_t = 1_000.0)]
    pub join_rate: f64,
    /// All come at once.
    #[arg(long, conflicts_with = "join_rate")]
    pub at_once: bool,
    /// Addresses that they come from, in turn. On loopback each has one of its own unless given.
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub from: Vec<IpAddr>,
    /// Viewers of whom every byte is looked at, and timed; of the others some packets are each second.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub sample: usize,
    /// So many percent of the viewers read no faster than this, such as 5@300k; all that they get is looked at.
    #[arg(long, value_name = "PERCENT@RATE", value_parser = Slow::parse)]
    pub slow: Option<Slow>,
    /// So many percent ask and never read.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    pub deaf: f64,
    /// Further viewers that come while it counts, a second, and go again.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub churn: f64,
    /// How long those stay, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub stay: Duration,
    /// Reads plain viewers in turn, once in so many milliseconds, and not when something came: that is cheaper where there
    /// are thousands.
    #[arg(long, value_name = "MS")]
    pub read_every: Option<u64>,
    /// Receive buffer of each connection; the system's choice unless given, and 64 KiB where some are slow.
    #[arg(long, value_name = "BYTES")]
    pub receive_buffer: Option<usize>,
    /// A viewer who gets nothing for so many milliseconds has stalled.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    pub stall: u64,
    /// Makes the stream, and is an HTTP source for the server there.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "push")]
    pub origin: Option<SocketAddr>,
    /// Makes the stream, and brings it there: a whole URL, or a path at --url.
    #[arg(long, value_name = "URL")]
    pub push: Option<String>,
    /// Brings it by POST and not by PUT.
    #[arg(long, requires = "push")]
    pub post: bool,
    /// Bearer token for that.
    #[arg(long, value_name = "TOKEN", requires = "push")]
    pub push_token: Option<String>,
    /// Another process makes the stream in the same way.
    #[arg(long, conflicts_with_all = ["origin", "push"])]
    pub made: bool,
    /// Rate of the stream: a number with k or M.
    #[arg(long, default_value = "2M")]
    pub rate: Bitrate,
    /// Seconds from one packet at which a decoder can begin to the next.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// The stream is sent to the server every so many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub tick: u64,
    /// How long to wait for the server to have the stream, in seconds.
    #[arg(long, default_value = "20", value_parser = seconds)]
    pub wait: Duration,
    /// What every load generator is told.
    #[command(flatten)]
    pub common: Common,
    /// What has to be held.
    #[command(flatten)]
    pub limits: Limits,
}

/// What has to be held; exit status 1 when it is not.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Limits {
    /// Exit status 1 when more packets are torn, damaged, repeated, or missing where nobody can begin behind them.
    #[arg(long, value_name = "N")]
    pub max_faults: Option<u64>,
    /// Exit status 1 when viewers that are not slow miss more packets.
    #[arg(long, value_name = "N")]
    pub max_missing: Option<u64>,
    /// Exit status 1 when viewers stall more often.
    #[arg(long, value_name = "N")]
    pub max_stalls: Option<u64>,
    /// Exit status 1 when the 99th percentile of latency is larger, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_p99: Option<f64>,
    /// Exit status 1 when the 99th percentile of the time until the first byte is larger, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_first_byte: Option<f64>,
    /// Exit status 1 when the 99th percentile of the time until a picture is larger, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_picture: Option<f64>,
}

/// Who reads slowly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slow {
    percent: f64,
    rate: Bitrate,
}

impl Slow {
    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('@').and_then(|(percent, rate)| {
            let percent =
                percent.trim_end_matches('%').parse().ok().filter(|percent| (0.0..=100.0).contains(percent))?;
            Some(Slow { percent, rate: rate.parse().ok()? })
        });
        parts.ok_or_else(|| "a share in percent and a rate, such as 5@300k".to_owned())
    }
}

impl Args {
    pub(super) fn check(&self) -> Result<()> {
        let threads = usize::from(self.common.threads);
        ensure!((1..=THREADS_MAX).contains(&self.common.threads), "--threads is 1 to {THREADS_MAX}");
        ensure!(self.viewers > 0, "at least one viewer");
        let per_thread = self.viewers.div_ceil(threads) + self.passing().div_ceil(threads);
        ensure!(per_thread <= Addresses::MAX, "at most {} viewers on one thread", Addresses::MAX);
        ensure!(self.join_rate > 0.0, "--join-rate is more than 0");
        ensure!((0.0..=100.0).contains(&self.deaf), "--deaf is 0 to 100");
        ensure!((0.0..=100_000.0).contains(&self.churn), "--churn is 0 to 100000");
        ensure!(!self.stay.is_zero(), "--stay is more than 0");
        ensure!(self.read_every != Some(0) && self.stall > 0, "--read-every and --stall are more than 0");
        let odd = self.slow.map_or(0.0, |slow| slow.percent) + self.deaf;
        ensure!(odd <= 100.0, "--slow and --deaf are more than all viewers");
        Ok(())
    }

    /// How the stream is made, when that is known.
    pub(super) fn made_stream(&self) -> Result<Option<Arc<Stream>>> {
        let is_known = self.made || self.is_source();
        is_known.then(|| Stream::new(self.rate, self.interval).map(Arc::new)).transpose()
    }

    pub(super) fn is_source(&self) -> bool {
        self.origin.is_some() || self.push.is_some()
    }

    pub(super) fn target(&self) -> Result<Target> {
        Target::parse(&self.stream, &self.common.basics.url)
    }

    pub(super) fn start_source(&self, stream: &Option<Arc<Stream>>) -> Result<Option<Source>> {
        let place = match (self.origin, &self.push) {
            (Some(addr), _) => Place::Here(addr),
            (None, Some(url)) => Place::There {
                target: Target::parse(url, &self.common.basics.url)?,
                method: if self.post { "POST" } else { "PUT" },
                token: self.push_token.clone(),
            },
            (None, None) => return Ok(None),
        };
        let Some(stream) = stream else { return Ok(None) };
        Source::start(Arc::clone(stream), place, Duration::from_millis(self.tick)).map(Some)
    }

    pub(super) fn joins_per_second(&self) -> f64 {
        if self.at_once { f64::INFINITY } else { self.join_rate }
    }

    /// How many of those who come and go are there at a time.
    pub(super) fn passing(&self) -> usize {
        (self.churn * self.stay.as_secs_f64()).ceil() as usize
    }

    pub(super) fn receive_buffer(&self) -> Option<usize> {
        self.receive_buffer.or_else(|| self.slow.map(|_| SLOW_BUFFER_BYTES))
    }

    /// Those who stay. The odd ones stand evenly among the others, as do those who are checked.
    pub(super) fn roles(&self) -> Vec<Role> {
        let share = |percent: f64| (self.viewers as f64 * percent / 100.0).round() as usize;
        let (slow, deaf) = (self.slow.map_or(0, |slow| share(slow.percent)), share(self.deaf));
        let sample = self.sample.min(self.viewers.saturating_sub(slow + deaf));
        let mut roles = vec![Role::Plain; self.viewers];
        let mut spread = |count: usize, role: Role| {
            for index in 0..count {
                let wanted = index * self.viewers / count;
                // The next place that nobody has.
                let place = (wanted..self.viewers).chain(0..wanted).find(|place| roles[*place] == Role::Plain);
                if let Some(place) = place {
                    roles[place] = role;
                }
            }
        };
        spread(sample, Role::Checked);
        if let Some(Slow { rate, .. }) = self.slow {
            spread(slow, Role::Slow(rate.bps() as f64 / 8.0));
        }
        spread(deaf, Role::Deaf);
        roles
    }

    /// Where a viewer comes from, by his number among a thread's.
    pub(super) fn address_of(&self, target: &Target, thread: u8, index: usize) -> Option<SocketAddr> {
        let ip = match self.from.get(index % self.from.len().max(1)) {
            Some(ip) => *ip,
            None if target.addr.is_ipv4() && target.addr.ip().is_loopback() => {
                Addresses { run: VIEWERS_NETWORK + thread }.of(index).into()
            }
            None => return None,
        };
        Some((ip, 0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::typed;

    fn args(words: &str) -> Args {
        typed(&words.split_whitespace().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn everybody_has_one_role() {
        let roles = args("--viewers 100 --sample 5 --slow 10@300k --deaf 3").roles();
        let count = |role: Role| roles.iter().filter(|other| **other == role).count();
        assert_eq!([Role::Checked, Role::Slow(37_500.0), Role::Deaf, Role::Plain].map(count), [5, 10, 3, 82]);
        assert_eq!((roles[0], roles[20]), (Role::Checked, Role::Checked));
        assert!(args("--viewers 3 --sample 8").roles().iter().all(|role| *role == Role::Checked));
        let all = args("--viewers 10 --slow 50@1M --deaf 50").roles();
        assert!(!all.contains(&Role::Plain) && !all.contains(&Role::Checked), "{all:?}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        args("").check().unwrap();
        for words in [
            "--viewers 0",
            "--threads 129",
            "--slow 60@1M --deaf 41",
            "--join-rate 0",
            "--churn 1 --stay 0",
            "--read-every 0",
        ] {
            assert!(args(words).check().is_err(), "{words}");
        }
        assert!(["5", "5@", "@1M", "101@1M", "x@1M"].iter().all(|text| Slow::parse(text).is_err()));
    }

    #[test]
    fn on_loopback_each_has_an_address() {
        let args = args("");
        let target = args.target().unwrap();
        let from = |thread, index| args.address_of(&target, thread, index).unwrap().to_string();
        assert_eq!([from(0, 0), from(1, 258)], ["127.64.0.0:0", "127.65.1.2:0"]);
    }
}
