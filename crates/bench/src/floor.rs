//! `millrace bench floor`: what the bare kernel path and the bare cipher cost on this machine.
//!
//! In: a datagram's size, rounds, and optionally where to send.
//! Out: for each way, CPU nanoseconds per datagram (sendfile: per 1,448 bytes, a TCP segment's payload), user space and
//! kernel apart, as medians over alternating rounds with their interval. What this kernel lacks is reported as absent.
//! How: every way runs on a thread of its own whose CPU time is read (`on_own_thread`), and does nothing else than what it is
//! named for, on bytes made before. UDP goes to sockets on loopback that nobody reads and that hold a packet or two, so
//! that a send pays its whole way and nothing is delivered; or to `--to`, which may lie behind a pair of virtual cards
//! in a namespace that drops. What loopback does in a send's wake (the receiver's side, up to the socket) is the
//! sender's time in the kernel's accounting, and so is part of each number.
//! Source: send(2), sendmmsg(2), recvmmsg(2), sendfile(2), udp(7).

mod file;
mod receive;
mod report;
mod seal;
mod send;

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result};
use clap::Parser;
use engine::sys::{thread_cpu_time, thread_id};
use engine::udp;
use srtp::Profile;

use report::Row;

use crate::comparison::{Options, Sample, datagram_bytes};
use crate::sinks::{Sinks, bind_loopback};
use measure::cpu::{CpuTime, Spent, Stopwatch};
use measure::rounds::Rounds;

/// The smallest datagram: an RTP header with its extensions, an SRTP tag, and something between.
const DATAGRAM_MIN: usize = 64;

/// One way of moving or sealing bytes.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Its name in JSON.
    name: &'static str,
    what: What,
    /// Datagrams of a message, where a message can have several.
    segments: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// One system call per datagram.
    SendEach,
    /// 128 datagrams per call.
    Send,
    /// Takes datagrams that lie in the socket's buffer, up to 256 per call; joined by the kernel, up to 64 messages.
    Receive,
    /// From a file in memory to a TCP connection on loopback, 64 KB per call.
    File,
    /// SRTP, no kernel at all.
    Seal(Profile),
}

const WAYS: [Way; 13] = [
    Way { name: "sendto", what: What::SendEach, segments: None },
    Way { name: "sendmmsg", what: What::Send, segments: None },
    Way { name: "gso", what: What::Send, segments: Some(1) },
    Way { name: "gso", what: What::Send, segments: Some(2) },
    Way { name: "gso", what: What::Send, segments: Some(4) },
    Way { name: "gso", what: What::Send, segments: Some(8) },
    Way { name: "gso", what: What::Send, segments: Some(16) },
    Way { name: "recvmmsg", what: What::Receive, segments: None },
    Way { name: "recvmmsg+gro", what: What::Receive, segments: Some(16) },
    Way { name: "sendfile", what: What::File, segments: None },
    Way { name: "seal gcm128", what: What::Seal(Profile::AeadAes128Gcm), segments: None },
    Way { name: "seal gcm256", what: What::Seal(Profile::AeadAes256Gcm), segments: None },
    Way { name: "seal cm-sha1", what: What::Seal(Profile::Aes128CmSha1_80), segments: None },
];

/// What one way gave in one round, or why this machine cannot.
type Outcome = Result<Sample, &'static str>;

/// Options of `millrace bench floor`.
#[derive(Clone, Debug, Parser)]
#[command(mut_arg("rounds", |rounds| rounds.default_value("8")))]
pub struct Args {
    /// Bytes of each datagram.
    #[arg(long, value_name = "BYTES", value_parser = datagram_bytes(DATAGRAM_MIN), default_value_t = 1_200)]
    size: usize,
    #[command(flatten)]
    options: Options,
    /// Sends there instead of to sockets on loopback that nobody reads: an address of yours that drops, such as one
    /// behind a veth pair in a network namespace.
    #[arg(long, value_name = "ADDR:PORT")]
    to: Option<SocketAddr>,
}

/// The whole command: measures, prints the table or JSON lines.
///
/// # Errors
/// When an option makes no sense, a socket or thread is not to be had, or nothing gets through.
pub fn execute(args: &Args) -> Result<()> {
    let rows = run(args)?;
    args.options.tell(&rows, &report::table(args, &rows), None)
}

/// Measures every way, in alternating rounds. It takes about 14 × `seconds` × rounds.
fn run(args: &Args) -> Result<Vec<Row>> {
    let bench = Bench::new(args)?;
    let rounds = Rounds::new(args.options.rounds, WAYS.len());
    let measure = |way: &Way| bench.measure(way).with_context(|| format!("measure {}", way.name));
    Ok(report::rows(args, &rounds.alternate(&WAYS, |way| way.name.to_owned(), measure)?))
}

/// Sockets that are sent to in turn, as a server has many viewers.
const SINKS: usize = 64;

/// What stays the same from one measurement to the next.
struct Bench {
    args: Args,
    /// Where the sending ways send.
    targets: Vec<SocketAddr>,
    /// Kept open, so that nobody is told that the port is closed.
    _sinks: Sinks,
    gso: bool,
    gro: bool,
}

impl Bench {
    fn new(args: &Args) -> Result<Self> {
        let sinks = Sinks::bind(if args.to.is_some() { 0 } else { SINKS })?;
        let targets = args.to.map_or_else(|| (0..SINKS).map(|index| sinks.addr(index)).collect(), |to| vec![to]);
        let probe = bind_loopback(&udp::Options::default())?;
        Ok(Bench { args: args.clone(), targets, _sinks: sinks, gso: probe.gso(), gro: probe.gro() })
    }

    fn measure(&self, way: &Way) -> Result<Outcome> {
        let (Args { size, options, .. }, segments) = (&self.args, way.segments);
        let (size, seconds) = (*size, options.seconds);
        match way.what {
            _ if segments.is_some() && !self.gso => Ok(Err("no UDP_SEGMENT in this kernel")),
            What::Receive if segments.is_some() && !self.gro => Ok(Err("no UDP_GRO in this kernel")),
            What::SendEach => send::one_by_one(&self.targets, size, seconds).map(Ok),
            What::Send => send::batched(&self.targets, size, segments, seconds),
            What::Receive => receive::batched(size, segments, seconds).map(Ok),
            What::File => file::to_tcp(seconds).map(Ok),
            What::Seal(profile) => seal::seal(profile, size, seconds).map(Ok),
        }
    }
}

/// Runs `work` on a thread of its own; it returns how many units it did.
///
/// The sum of its CPU time is the thread's own clock, exact to the nanosecond; the kernel splits it by what its timer tick
/// met, so the parts of one short measurement are rough, and the median of many is better.
fn on_own_thread(work: impl FnOnce() -> Result<u64> + Send) -> Result<Sample> {
    let cpu_time = || thread_cpu_time(thread_id()).context("read the thread's CPU time");
    thread::scope(|scope| {
        let measured = scope.spawn(|| {
            let (before, stopwatch) = (cpu_time()?, Stopwatch::start_on_thread()?);
            let sent = work()?;
            let (seconds, Spent { wall, cpu }) = ((cpu_time()? - before).as_secs_f64(), stopwatch.stop()?);
            // All of it is user time when the kernel knows of neither.
            let share = if cpu.total() > 0.0 { cpu.user / cpu.total() } else { 1.0 };
            let cpu = CpuTime { user: seconds * share, system: seconds * (1.0 - share) };
            Ok(Sample { spent: Spent { wall, cpu }, sent, ..Sample::default() })
        });
        measured.join().expect("a measurement does not panic")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use measure::report::json_lines;

    use super::*;

    fn quick() -> Args {
        let options = Options { rounds: 2, seconds: Duration::from_millis(3), json: false };
        Args { options, ..Args::parse_from([""]) }
    }

    #[test]
    fn every_way_moves_datagrams_and_has_a_price() {
        let rows = run(&quick()).unwrap();
        assert_eq!(rows.len(), WAYS.len());
        for row in &rows {
            let Some(costs) = &row.costs else { panic!("absent here: {row:?}") };
            assert!(costs.units > 0 && costs.cpu_ns > 0.0, "{row:?}");
            assert!(costs.low <= costs.cpu_ns && costs.cpu_ns <= costs.high, "{row:?}");
        }
    }

    #[test]
    fn a_kernel_without_segmentation_has_absent_ways_and_all_others() {
        let args = quick();
        let bench = Bench { gso: false, gro: false, ..Bench::new(&args).unwrap() };
        let outcomes: Vec<Vec<Outcome>> = WAYS.iter().map(|way| vec![bench.measure(way).unwrap()]).collect();
        let rows = report::rows(&args, &outcomes);
        let absent: Vec<&str> = rows.iter().filter(|row| row.costs.is_none()).map(|row| row.path).collect();
        assert_eq!(absent, ["gso", "gso", "gso", "gso", "gso", "recvmmsg+gro"]);
        let table = report::table(&args, &rows).to_string();
        assert!(table.contains("absent: no UDP_SEGMENT"), "{table}");
        let lines = json_lines(&rows).unwrap();
        let line = lines.lines().find(|line| line.contains(r#""segments":4"#)).unwrap();
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["absent"], "no UDP_SEGMENT in this kernel");
        assert!(value.get("cpu_ns").is_none(), "{line}");
    }

    #[test]
    fn what_is_sent_elsewhere_goes_there() {
        let there = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let args = Args { to: Some(there.local_addr().unwrap()), ..quick() };
        let bench = Bench::new(&args).unwrap();
        for way in &WAYS[..5] {
            assert!(bench.measure(way).unwrap().is_ok(), "{way:?}");
            there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            assert_eq!(there.recv(&mut [0; 2_000]).unwrap(), args.size, "{way:?}");
            there.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            while there.recv(&mut [0; 2_000]).is_ok() {}
        }
    }

    #[test]
    fn nothing_that_gets_through_is_an_error_that_names_the_way() {
        // An IPv4 socket cannot send there at all.
        let args = Args { to: Some("[::1]:9".parse().unwrap()), ..quick() };
        let error = format!("{:#}", run(&args).unwrap_err());
        assert!(error.contains("sendto") && error.contains("[::1]:9"), "{error}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for broken in
            [["--size", "20"], ["--size", "9000"], ["--rounds", "0"], ["--seconds", "0"], ["--seconds", "601"]]
        {
            assert!(Args::try_parse_from([&[""], &broken[..]].concat()).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn what_the_work_counted_comes_back_with_its_price() {
        let sample = on_own_thread(|| Ok(2)).unwrap();
        assert_eq!(sample.sent, 2);
        assert!(sample.cpu_ns() > 0.0, "{sample:?}");
        assert!(on_own_thread(|| anyhow::bail!("no socket")).is_err());
    }

    #[test]
    fn the_number_of_rounds_is_its_own() {
        let options = Args::parse_from([""]).options;
        assert_eq!((options.rounds, options.seconds), (8, Duration::from_millis(200)));
    }
}
