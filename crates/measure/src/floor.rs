//! `millrace bench floor`: what the bare kernel path and the bare cipher cost on this machine.
//!
//! In: a datagram's size, rounds, and optionally where to send.
//! Out: for each way, CPU nanoseconds per datagram (sendfile: per 1,448 bytes, a TCP segment's payload), user space and
//! kernel apart, as medians over alternating rounds with their interval. What this kernel lacks is reported as absent.
//! How: every way runs on a thread of its own whose CPU time is read (`clock`), and does nothing else than what it is
//! named for, on bytes made before. UDP goes to sockets on loopback that nobody reads and that hold a packet or two, so
//! that a send pays its whole way and nothing is delivered; or to `--to`, which may lie behind a pair of virtual cards
//! in a namespace that drops. What loopback does in a send's wake (the receiver's side, up to the socket) is the
//! sender's time in the kernel's accounting, and so is part of each number.
//! Source: send(2), sendmmsg(2), recvmmsg(2), sendfile(2), udp(7).

mod clock;
mod file;
mod receive;
mod report;
mod seal;
mod send;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use engine::udp;
use indicatif::{ProgressBar, ProgressStyle};
use rooms::srtp::Profile;

pub use report::{Report, Row};

use clock::Sample;

use crate::rounds::alternate;

/// Rounds that are thrown away: they fill caches and wake the processor.
const WARM_UP_ROUNDS: usize = 1;

/// The smallest datagram: an RTP header with its extensions, an SRTP tag, and something between.
const DATAGRAM_MIN: usize = 64;

/// Datagrams of one GSO send that the receiving side takes back as one by GRO.
const GRO_SEGMENTS: usize = 16;

/// One way of moving or sealing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One system call per datagram.
    Sendto,
    /// 128 messages of one datagram per call.
    Sendmmsg,
    /// 128 datagrams per call, this many to a message.
    Gso(usize),
    /// Takes datagrams that lie in the socket's buffer, up to 256 per call.
    Recvmmsg,
    /// The same where the kernel joins this many datagrams to a message, up to 64 messages per call.
    RecvmmsgGro(usize),
    /// From a file in memory to a TCP connection on loopback, 64 KB per call.
    Sendfile,
    /// SRTP, no kernel at all.
    Seal(Profile),
}

impl Way {
    pub const ALL: [Way; 13] = [
        Way::Sendto,
        Way::Sendmmsg,
        Way::Gso(1),
        Way::Gso(2),
        Way::Gso(4),
        Way::Gso(8),
        Way::Gso(16),
        Way::Recvmmsg,
        Way::RecvmmsgGro(GRO_SEGMENTS),
        Way::Sendfile,
        Way::Seal(Profile::AeadAes128Gcm),
        Way::Seal(Profile::AeadAes256Gcm),
        Way::Seal(Profile::Aes128CmSha1_80),
    ];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Way::Sendto => "sendto",
            Way::Sendmmsg => "sendmmsg",
            Way::Gso(_) => "gso",
            Way::Recvmmsg => "recvmmsg",
            Way::RecvmmsgGro(_) => "recvmmsg+gro",
            Way::Sendfile => "sendfile",
            Way::Seal(Profile::AeadAes128Gcm) => "seal gcm128",
            Way::Seal(Profile::AeadAes256Gcm) => "seal gcm256",
            Way::Seal(Profile::Aes128CmSha1_80) => "seal cm-sha1",
        }
    }

    /// Datagrams of a message, where a message can have several.
    pub fn segments(self) -> Option<usize> {
        match self {
            Way::Gso(segments) | Way::RecvmmsgGro(segments) => Some(segments),
            _ => None,
        }
    }
}

/// What one way gave in one round.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Done(Sample),
    /// This machine cannot; why.
    Absent(&'static str),
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a datagram, SRTP tag included.
    pub datagram_bytes: usize,
    /// Rounds that count.
    pub rounds: usize,
    /// Of one way in one round.
    pub time: Duration,
    /// Where the sending ways send; sockets of our own on loopback unless given.
    pub to: Option<SocketAddr>,
}

impl Default for Options {
    fn default() -> Self {
        Options { datagram_bytes: 1_200, rounds: 8, time: Duration::from_millis(200), to: None }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let datagram_bytes = DATAGRAM_MIN..=wire::DATAGRAM_MAX;
        ensure!(datagram_bytes.contains(&self.datagram_bytes), "a datagram has {datagram_bytes:?} bytes");
        ensure!(self.rounds > 0, "at least one round");
        ensure!(!self.time.is_zero(), "a round takes some time");
        Ok(())
    }
}

/// Measures every way, in alternating rounds. It takes about 14 × `time` × rounds.
///
/// # Errors
/// When an option makes no sense, a socket or thread is not to be had, or nothing gets through.
pub fn run(options: &Options) -> Result<Report> {
    options.check()?;
    let bench = Bench::new(options)?;
    let count = Way::ALL.len() * (WARM_UP_ROUNDS + options.rounds);
    let progress = ProgressBar::new(count as u64);
    progress.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} ({eta} left)")?);
    let outcomes = alternate(Way::ALL.len(), WARM_UP_ROUNDS, options.rounds, |index| {
        let way = Way::ALL[index];
        progress.set_message(way.name());
        let outcome = bench.measure(way).with_context(|| format!("measure {}", way.name()));
        progress.inc(1);
        outcome
    })?;
    progress.finish_and_clear();
    Ok(Report::new(options, &outcomes))
}

/// What stays the same from one measurement to the next.
struct Bench {
    options: Options,
    sinks: send::Sinks,
    gso: bool,
    gro: bool,
}

impl Bench {
    fn new(options: &Options) -> Result<Self> {
        let sinks = match options.to {
            Some(addr) => send::Sinks::elsewhere(addr),
            None => send::Sinks::bind()?,
        };
        let probe = bind_loopback(&udp::Options::default())?;
        Ok(Bench { options: options.clone(), sinks, gso: probe.gso(), gro: probe.gro() })
    }

    fn measure(&self, way: Way) -> Result<Outcome> {
        let Options { datagram_bytes, time, .. } = self.options;
        match way {
            Way::Gso(_) | Way::RecvmmsgGro(_) if !self.gso => {
                return Ok(Outcome::Absent("no UDP_SEGMENT in this kernel"));
            }
            Way::RecvmmsgGro(_) if !self.gro => return Ok(Outcome::Absent("no UDP_GRO in this kernel")),
            _ => {}
        }
        match way {
            Way::Sendto => send::one_by_one(&self.sinks, datagram_bytes, time).map(Outcome::Done),
            Way::Sendmmsg => send::batched(&self.sinks, datagram_bytes, None, time),
            Way::Gso(segments) => send::batched(&self.sinks, datagram_bytes, Some(segments), time),
            Way::Recvmmsg => receive::batched(datagram_bytes, None, time).map(Outcome::Done),
            Way::RecvmmsgGro(segments) => receive::batched(datagram_bytes, Some(segments), time).map(Outcome::Done),
            Way::Sendfile => file::to_tcp(time).map(Outcome::Done),
            Way::Seal(profile) => seal::seal(profile, datagram_bytes, time).map(Outcome::Done),
        }
    }
}

fn bind_loopback(options: &udp::Options) -> Result<udp::UdpSocket> {
    udp::UdpSocket::bind(([127, 0, 0, 1], 0).into(), options).context("bind a socket on 127.0.0.1")
}

/// Options of `millrace bench floor`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Bytes of each datagram.
    #[arg(long, value_name = "BYTES", default_value_t = Options::default().datagram_bytes)]
    pub size: usize,
    /// Rounds that count, after one to warm up; each measures every way once, forwards and backwards in turn.
    #[arg(long, default_value_t = Options::default().rounds)]
    pub rounds: usize,
    /// How long each way runs in each round.
    #[arg(long, default_value_t = Options::default().time.as_secs_f64())]
    pub seconds: f64,
    /// Sends there instead of to sockets on loopback that nobody reads: an address of yours that drops, such as one
    /// behind a veth pair in a network namespace.
    #[arg(long, value_name = "ADDR:PORT")]
    pub to: Option<SocketAddr>,
    /// Prints one line of JSON per way instead of the table.
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// # Errors
    /// When a time is negative or not a number.
    pub fn options(&self) -> Result<Options> {
        let time = Duration::try_from_secs_f64(self.seconds).context("--seconds")?;
        Ok(Options { datagram_bytes: self.size, rounds: self.rounds, time, to: self.to })
    }
}

/// The whole command: measures, prints the table or JSON lines.
///
/// # Errors
/// Those of `run`.
pub fn execute(args: &Args) -> Result<()> {
    let report = run(&args.options()?)?;
    if args.json {
        print!("{}", report.json_lines()?);
    } else {
        print!("{report}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Options {
        Options { rounds: 2, time: Duration::from_millis(3), ..Options::default() }
    }

    #[test]
    fn every_way_moves_datagrams_and_has_a_price() {
        let report = run(&quick()).unwrap();
        assert_eq!(report.rows().len(), Way::ALL.len());
        for row in report.rows() {
            let Some(costs) = &row.costs else { panic!("absent here: {row:?}") };
            assert!(costs.units > 0 && costs.cpu_ns > 0.0, "{row:?}");
            assert!(costs.low <= costs.cpu_ns && costs.cpu_ns <= costs.high, "{row:?}");
        }
    }

    #[test]
    fn a_kernel_without_segmentation_has_absent_ways_and_all_others() {
        let options = quick();
        let bench = Bench { gso: false, gro: false, ..Bench::new(&options).unwrap() };
        let outcomes: Vec<Vec<Outcome>> = Way::ALL.iter().map(|&way| vec![bench.measure(way).unwrap()]).collect();
        let report = Report::new(&options, &outcomes);
        let absent: Vec<&str> = report.rows().iter().filter(|row| row.costs.is_none()).map(|row| row.path).collect();
        assert_eq!(absent, ["gso", "gso", "gso", "gso", "gso", "recvmmsg+gro"]);
        assert!(report.to_string().contains("absent: no UDP_SEGMENT"), "{report}");
        let lines = report.json_lines().unwrap();
        let line = lines.lines().find(|line| line.contains(r#""segments":4"#)).unwrap();
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["absent"], "no UDP_SEGMENT in this kernel");
        assert!(value.get("cpu_ns").is_none(), "{line}");
    }

    #[test]
    fn what_is_sent_elsewhere_goes_there() {
        let there = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = Options { to: Some(there.local_addr().unwrap()), ..quick() };
        let bench = Bench::new(&options).unwrap();
        for way in [Way::Sendto, Way::Sendmmsg, Way::Gso(4)] {
            assert!(matches!(bench.measure(way).unwrap(), Outcome::Done(_)), "{way:?}");
            there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            assert_eq!(there.recv(&mut [0; 2_000]).unwrap(), options.datagram_bytes, "{way:?}");
            there.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            while there.recv(&mut [0; 2_000]).is_ok() {}
        }
    }

    #[test]
    fn nothing_that_gets_through_is_an_error_that_names_the_way() {
        // An IPv4 socket cannot send there at all.
        let options = Options { to: Some("[::1]:9".parse().unwrap()), ..quick() };
        let error = format!("{:#}", run(&options).unwrap_err());
        assert!(error.contains("sendto") && error.contains("[::1]:9"), "{error}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for broken in [
            Options { datagram_bytes: 20, ..quick() },
            Options { datagram_bytes: 9_000, ..quick() },
            Options { rounds: 0, ..quick() },
            Options { time: Duration::ZERO, ..quick() },
        ] {
            assert!(run(&broken).is_err(), "{broken:?}");
        }
    }
}
