//! What `millrace load relay` is told on the command line, and what of it makes no sense.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::payload::STAMP_BYTES;
use crate::clients::{Addresses, Common};

/// Bytes of the longest payload: it has to fit a datagram behind a Send indication's header, with IPv6 addresses.
const LENGTH_MAX: usize = 1_400;

/// Threads at most: the networks of 127.0.0.0/8 are divided among them, half to clients and half to peers.
const THREADS_MAX: u8 = 100;

/// How clients speak to the server.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    #[default]
    Udp,
    /// A connection each.
    Tcp,
    /// The same under TLS; whatever certificate the server has is taken.
    Tls,
}

/// Plays clients of a TURN server and their peers: allocates, and sends messages to peers that send them back.
///
/// On loopback every client has an IP address of its own (127.0.0.0/8), so one thread and one socket play thousands;
/// elsewhere each has a socket of its own.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The TURN server.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:3478")]
    pub server: SocketAddr,
    /// How clients speak to it; peers are reached by UDP.
    #[arg(long, value_enum, default_value_t)]
    pub transport: Transport,
    /// User name; with --secret the name behind the colon.
    #[arg(long, default_value = "user")]
    pub user: String,
    /// The user's password.
    #[arg(long, default_value = "secret", conflicts_with = "secret")]
    pub password: String,
    /// Shared secret of the server, of which names and passwords for a day are made (TURN REST API).
    #[arg(long)]
    pub secret: Option<String>,
    /// Clients in all, spread evenly over the threads. Each has one allocation.
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// Peers of each thread, spread evenly over its clients.
    #[arg(long, default_value_t = 1)]
    pub peers: usize,
    /// Bytes of each message.
    #[arg(long, default_value_t = 120)]
    pub length: usize,
    /// Sends by Send indications and permissions, not by channels.
    #[arg(long)]
    pub indications: bool,
    /// Peers keep what they get: it counts when it arrives there.
    #[arg(long)]
    pub sink: bool,
    /// Messages that each client has under way; the next goes out when one comes back.
    #[arg(long, value_name = "N", default_value_t = 64, conflicts_with = "rate")]
    pub in_flight: u32,
    /// Messages a second of each client, whatever comes back.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// With --rate: what is due is sent together, so often, in milliseconds. 0: each message at its own time.
    #[arg(long, value_name = "MS", default_value_t = 0.0, requires = "rate")]
    pub tick: f64,
    /// Sends nothing: each client allocates and frees, again and again, on loopback from another address each time.
    #[arg(long, conflicts_with_all = ["rate", "in_flight", "sink", "indications"])]
    pub allocate: bool,
    /// Strangers beside the clients: so many requests a second that prove nothing, each from another address, a million in turns.
    /// On loopback, by UDP.
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub strangers: f64,
    /// Address of clients and peers, when the server is not on loopback.
    #[arg(long, value_name = "ADDR")]
    pub from: Option<IpAddr>,
    /// Sends each datagram on its own, also where the kernel could split several.
    #[arg(long)]
    pub no_gso: bool,
    /// What every load generator is told; --url names the server's HTTP side, which is asked for its CPU time.
    #[command(flatten)]
    pub common: Common,
    /// Exit status 1 when a larger share of messages never came back, 0 to 1.
    #[arg(long)]
    pub max_loss: Option<f64>,
    /// Exit status 1 when the 99th percentile of the time of a round trip is larger, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_p99: Option<f64>,
}

impl Args {
    pub(super) fn check(&self) -> Result<()> {
        let threads = self.common.threads;
        ensure!((1..=THREADS_MAX).contains(&threads), "--threads is 1 to {THREADS_MAX}");
        ensure!(self.clients >= usize::from(threads), "at least one client for each thread");
        ensure!(self.clients_of(0) <= Addresses::MAX, "at most {} clients on one thread", Addresses::MAX);
        ensure!((1..=Addresses::MAX).contains(&self.peers), "--peers is 1 to {}", Addresses::MAX);
        let lengths = STAMP_BYTES..=LENGTH_MAX;
        ensure!(lengths.contains(&self.length), "--length is {} to {}", lengths.start(), lengths.end());
        ensure!(self.in_flight > 0, "--in-flight is 1 at least");
        ensure!(self.rate.is_none_or(|rate| (0.001..=1e6).contains(&rate)), "--rate is 0.001 to 1000000");
        ensure!((0.0..=1e3).contains(&self.tick), "--tick is 0 to 1000");
        ensure!((0.0..=1e6).contains(&self.strangers), "--strangers is 0 to 1000000");
        let has_addresses = self.is_on_loopback() && self.transport == Transport::Udp;
        ensure!(self.strangers == 0.0 || has_addresses, "--strangers is for UDP on loopback");
        ensure!(!self.allocate || self.transport == Transport::Udp, "--allocate is for UDP");
        Ok(())
    }

    /// How many clients a thread has.
    pub(super) fn clients_of(&self, thread: u8) -> usize {
        let threads = usize::from(self.common.threads);
        (self.clients + threads - 1 - usize::from(thread)) / threads
    }

    /// Whether clients and peers have addresses of 127.0.0.0/8.
    pub(super) fn is_on_loopback(&self) -> bool {
        self.from.is_none() && matches!(self.server.ip(), IpAddr::V4(ip) if ip.is_loopback())
    }

    pub(super) fn tick(&self) -> Duration {
        Duration::from_secs_f64(self.tick / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::typed;

    fn args(words: &[&str]) -> Result<Args> {
        let args: Args = typed(words)?;
        args.check().map(|()| args)
    }

    #[test]
    fn clients_are_spread_evenly() {
        let args = args(&["--clients", "7", "--threads", "3"]).unwrap();
        assert_eq!([0, 1, 2].map(|thread| args.clients_of(thread)), [3, 2, 2]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            &["--clients", "0"][..],
            &["--length", "15"],
            &["--length", "1401"],
            &["--rate", "0"],
            &["--rate", "5", "--in-flight", "3"],
            &["--tick", "5"],
            &["--allocate", "--transport", "tls"],
            &["--allocate", "--sink"],
            &["--peers", "0"],
            &["--strangers", "5", "--transport", "tcp"],
            &["--strangers", "5", "--from", "127.0.0.1"],
            &["--clients", "2", "--threads", "3"],
            &["--secret", "x", "--password", "y"],
        ] {
            assert!(args(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn only_who_is_not_told_where_to_be_is_everywhere_on_loopback() {
        assert!(args(&[]).unwrap().is_on_loopback());
        assert!(!args(&["--from", "127.0.0.1"]).unwrap().is_on_loopback());
        assert!(!args(&["--server", "10.0.0.1:3478"]).unwrap().is_on_loopback());
    }
}
